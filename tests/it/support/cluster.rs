//! A cluster of three that `scripts/servers` has started and that a test may hurt:
//!
//! ```sh
//! exports=$(scripts/servers start --cassandra 3 --name hurt) && eval "$exports"
//! export VITRINA_TEST_CLUSTER=hurt
//! ```

use std::process::Command;

use vitrina::config::CassandraConfig;

use super::stores::cassandra_config;

pub const NODES: usize = 3;

pub struct Cluster {
    name: String,
}

impl Cluster {
    /// The cluster that may be hurt, with a keyspace of which every node has a copy. `None` where
    /// `VITRINA_TEST_CLUSTER` names none: such tests take minutes, and are run by hand.
    pub fn open() -> Option<(Self, CassandraConfig)> {
        let Ok(name) = std::env::var("VITRINA_TEST_CLUSTER") else {
            eprintln!("left out: VITRINA_TEST_CLUSTER names no cluster that may be hurt");
            return None;
        };
        let config = cassandra_config()?;
        assert_eq!(config.nodes.len(), NODES, "VITRINA_TEST_CASSANDRA names all nodes of {name}");
        let replication = vec![(config.dc.clone(), 3)];
        Some((Self { name }, CassandraConfig { replication, ..config }))
    }

    /// Starts a node again after it was killed; when this is back all nodes see each other.
    pub fn start(&self, node: usize) {
        self.servers("start-node", node);
    }

    /// Sends a signal to a node, by its name (`KILL`, `STOP`, `CONT`). Nodes are counted from 1.
    pub fn signal(&self, node: usize, signal: &str) {
        let pid = self.servers("node-pid", node);
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    fn servers(&self, command: &str, node: usize) -> String {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/servers");
        let mut command_line = Command::new(script);
        // With it the script would not look at its own servers.
        command_line.env_remove("VITRINA_TEST_CASSANDRA");
        let node = node.to_string();
        let output = command_line.args([command, "--name", &self.name, &node]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}
