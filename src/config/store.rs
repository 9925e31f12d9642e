//! Where the data is.

use std::path::PathBuf;

use super::{ConfigError, Secret, host_and_port};

/// Where the shop keeps its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConfig {
    /// In a folder of this machine, in this process.
    Embedded {
        /// The folder.
        dir: PathBuf,
    },
    /// In a Cassandra cluster.
    Cassandra(CassandraConfig),
}

/// How to reach and use a Cassandra cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CassandraConfig {
    /// Nodes to start from, `host:port`.
    pub nodes: Vec<String>,
    /// The shop's keyspace.
    pub keyspace: String,
    /// The data centre this instance works in.
    pub dc: String,
    /// How many copies of each row every data centre keeps: `dc1:3,dc2:3`.
    pub replication: Vec<(String, u8)>,
    /// Name and password, where the cluster asks for them.
    pub credentials: Option<(String, Secret)>,
    /// The certificate authority that signed the nodes' certificates; with it, TLS is used.
    pub tls_ca: Option<PathBuf>,
}

/// The setting that [`StoreConfig::parse`] speaks of.
const STORE: &str = "--store / VITRINA_STORE";
/// The port of a node that names none.
const CQL_PORT: u16 = 9042;
/// Most characters of a keyspace name, a limit of Cassandra's.
const MAX_KEYSPACE_CHARS: usize = 48;
/// Most copies of a row in a data centre: more than any sensible cluster keeps.
const MAX_REPLICAS: u8 = 9;

impl StoreConfig {
    /// Reads `embedded:DIR` or `cassandra://host:port,host:port/keyspace?dc=dc1&rf=3`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if let Some(dir) = text.strip_prefix("embedded:") {
            if dir.is_empty() {
                return Err(ConfigError::new(
                    STORE,
                    "embedded: needs a folder, as embedded:./data",
                ));
            }
            return Ok(Self::Embedded { dir: dir.into() });
        }
        match text.strip_prefix("cassandra://") {
            Some(rest) => CassandraConfig::parse(rest).map(Self::Cassandra),
            None => Err(ConfigError::new(
                STORE,
                "must be embedded:DIR or cassandra://host:port,host:port/keyspace?dc=dc1&rf=3",
            )),
        }
    }
}

impl CassandraConfig {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |fault: &str| ConfigError::new(STORE, fault);
        let (address, options) = text.split_once('?').unwrap_or((text, ""));
        let (hosts, keyspace) =
            address.split_once('/').ok_or_else(|| wrong("names no keyspace after the hosts"))?;
        if hosts.contains('@') {
            return Err(wrong(
                "must not hold a password; use VITRINA_CASSANDRA_USER and \
                 VITRINA_CASSANDRA_PASSWORD",
            ));
        }
        let nodes = hosts.split(',').map(node).collect::<Option<Vec<_>>>();
        let nodes = nodes.ok_or_else(|| wrong("has a host that is not host or host:port"))?;
        // Unlike a data centre, a keyspace has no `-` in its name.
        let is_keyspace = is_name(keyspace) && !keyspace.contains('-');
        if !is_keyspace || keyspace.len() > MAX_KEYSPACE_CHARS {
            return Err(wrong("has a keyspace that is not a name of letters, digits and _"));
        }
        let (mut dc, mut rf, mut tls_ca) = ("dc1".to_owned(), "3".to_owned(), None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("dc", value)) => value.clone_into(&mut dc),
                Some(("rf", value)) => value.clone_into(&mut rf),
                Some(("ca", value)) => tls_ca = Some(value.into()),
                _ => return Err(wrong("knows the options dc, rf and ca only")),
            }
        }
        if !is_name(&dc) {
            return Err(wrong("has a dc that is not a name of letters, digits and _ or -"));
        }
        let replication = replication(&rf, &dc).ok_or_else(|| {
            wrong("has an rf that is neither a number from 1 to 9 nor a list such as dc1:3,dc2:3")
        })?;
        let keyspace = keyspace.to_owned();
        Ok(Self { nodes, keyspace, dc, replication, credentials: None, tls_ca })
    }
}

fn node(host: &str) -> Option<String> {
    let (name, port) = host_and_port(host, CQL_PORT)?;
    Some(format!("{name}:{port}"))
}

fn replication(rf: &str, dc: &str) -> Option<Vec<(String, u8)>> {
    let copies = |text: &str| text.parse().ok().filter(|n| (1..=MAX_REPLICAS).contains(n));
    if let Some(copies) = copies(rf) {
        return Some(vec![(dc.to_owned(), copies)]);
    }
    let list: Option<Vec<_>> = rf
        .split(',')
        .map(|part| {
            let (dc, rf) = part.split_once(':')?;
            Some((is_name(dc).then(|| dc.to_owned())?, copies(rf)?))
        })
        .collect();
    list.filter(|list| list.iter().any(|(name, _)| name == dc))
}

/// Letters, digits, `_` and `-`: names that go into CQL as they are need no quoting rules.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cassandra(text: &str) -> CassandraConfig {
        match StoreConfig::parse(text) {
            Ok(StoreConfig::Cassandra(config)) => config,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn reads_a_cluster() {
        let config = cassandra("cassandra://10.0.0.1:9043,db-2/mobile_world?dc=msk&rf=2");
        assert_eq!(config.nodes, ["10.0.0.1:9043", "db-2:9042"]);
        assert_eq!(config.keyspace, "mobile_world");
        assert_eq!(config.replication, [("msk".to_owned(), 2)]);
        let config = cassandra("cassandra://a/k?rf=dc1:3,dc2:3&ca=/etc/ca.pem");
        assert_eq!(config.replication, [("dc1".to_owned(), 3), ("dc2".to_owned(), 3)]);
        assert_eq!(config.tls_ca, Some("/etc/ca.pem".into()));
    }

    #[test]
    fn refuses_what_it_cannot_use_and_names_the_setting() {
        for text in [
            "",
            "redis://x",
            "embedded:",
            "cassandra://a",
            "cassandra:///k",
            "cassandra://a:0/k",
            "cassandra://a:b/k",
            "cassandra://a b/k",
            "cassandra://user:pw@a/k",
            "cassandra://a/",
            "cassandra://a/my-shop",
            "cassandra://a/k; DROP KEYSPACE x",
            "cassandra://a/k?rf=0",
            "cassandra://a/k?rf=10",
            "cassandra://a/k?rf=dc2:3",
            "cassandra://a/k?dc='",
            "cassandra://a/k?unknown=1",
        ] {
            let error = StoreConfig::parse(text).expect_err(text);
            assert_eq!(error.setting, STORE, "{text}");
        }
    }

    proptest! {
        /// What goes into CQL as it is holds nothing but names, whatever was typed.
        #[test]
        fn any_text_is_a_store_or_a_fault(
            text in prop_oneof![
                any::<String>(),
                "(embedded|cassandra)?:?/{0,3}[a-z0-9.:,/?&=@;' я-]{0,60}",
                "cassandra://[a-z0-9.:,-]{1,12}/[a-zA-Z_0-9-]{1,50}(\\?(dc|rf|ca|x)=[a-z0-9:,]{0,9}){0,1}(&(dc|rf)=[a-z0-9:,]{0,9}){0,2}",
            ],
        ) {
            match StoreConfig::parse(&text) {
                Ok(StoreConfig::Embedded { dir }) => {
                    prop_assert_eq!(format!("embedded:{}", dir.display()), text);
                }
                Ok(StoreConfig::Cassandra(config)) => {
                    prop_assert!(is_name(&config.keyspace) && config.keyspace.len() <= MAX_KEYSPACE_CHARS);
                    prop_assert!(!config.nodes.is_empty());
                    for node in &config.nodes {
                        prop_assert!(host_and_port(node, CQL_PORT).is_some(), "{}", node);
                    }
                    prop_assert!(config.replication.iter().any(|(dc, _)| *dc == config.dc));
                    for (dc, copies) in &config.replication {
                        prop_assert!(is_name(dc) && (1..=MAX_REPLICAS).contains(copies));
                    }
                    prop_assert_eq!(config.credentials, None);
                }
                Err(fault) => prop_assert_eq!(fault.setting, STORE),
            }
        }
    }
}
