//! A storefront of another make on the same tables, measured in the same rounds: `benches/rival`, in
//! Node.js with Mercurius. It is there where `npm ci` was run in that folder.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Result;
use super::connection::Connection;
use super::database::{Database, Spent};
use super::figures::Variant;
use super::http::{self, Until};
use super::lanes::{MAY_FAIL, REST};
use super::process::{Process, command};
use super::requests::Requests;

/// The server, which serves twice: with what it has read kept for a while, and with nothing kept.
pub(super) struct Rival {
    process: Process,
    database: Database,
    ports: Vec<u16>,
}

impl Rival {
    /// Starts it on a store, if it is installed; says so if it is not.
    pub(super) fn start(store: &str, secret: &str, folder: &Path) -> Result<Option<Self>> {
        let Some((nodes, keyspace)) = store
            .strip_prefix("cassandra://")
            .and_then(|rest| rest.split('?').next()?.split_once('/'))
        else {
            return Ok(None);
        };
        let home = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/rival"));
        if !home.join("node_modules").is_dir() {
            println!("*** NOT MEASURED: another make. Run `npm ci` in benches/rival. ***\n");
            return Ok(None);
        }
        let mut command = command("node");
        command
            .arg(home.join("server.js"))
            .env("RIVAL_NODES", nodes)
            .env("RIVAL_KEYSPACE", keyspace)
            .env("RIVAL_SECRET", secret)
            .env("NODE_ENV", "production");
        let mut process = Process::start_talking(&mut command, &folder.join("rival.log"))?;
        let mut line = String::new();
        if let Some(output) = process.output() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let ports: Vec<u16> =
            line.split_whitespace().filter_map(|port| port.parse().ok()).collect();
        if ports.len() != 2 {
            return Err(format!("the rival does not serve: {}", process.last_words()).into());
        }
        Ok(Some(Self { process, database: Database::of(store), ports }))
    }

    fn spent(&self) -> Result<Spent> {
        Ok(Spent { cpu: self.process.cpu()?, database: self.database.cpu() })
    }

    /// Where it keeps what it has read, or where it does not.
    pub(super) fn address(&self, keeps: bool) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports[usize::from(!keeps)]).into()
    }
}

/// A load on it.
pub(super) struct RivalLane {
    pub(super) variant: Variant,
    requests: Requests,
    connections: Vec<Connection>,
}

impl RivalLane {
    /// The same requests as those of the row at `place`, over so many connections.
    pub(super) async fn open(
        (name, place): (&str, usize),
        address: SocketAddr,
        requests: Requests,
        connections: usize,
    ) -> Result<Self> {
        let variant = Variant::new(format!("Mercurius: {name}"), place);
        Ok(Self { variant, requests, connections: http::connect(address, connections).await? })
    }

    /// Measures a round.
    pub(super) async fn round(
        &mut self,
        rival: &Rival,
        (time, counts): (Duration, bool),
    ) -> Result<()> {
        let before = rival.spent()?;
        let busy = (self.connections.len(), MAY_FAIL);
        let until = Until::Time(time);
        let seen = http::load_apart(&mut self.connections, &self.requests, busy, until).await;
        let seen = seen.map_err(|error| format!("{}: {error}", self.variant.name))?;
        if let Some(failure) = seen.first_failure {
            return Err(format!("{}: {failure}", self.variant.name).into());
        }
        tokio::time::sleep(REST).await;
        let spent = rival.spent()?.since(before);
        if counts {
            self.variant.rounds.push(spent.on(seen.load));
        }
        Ok(())
    }
}
