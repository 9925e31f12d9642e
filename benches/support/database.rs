//! What the cluster spends, where it runs on this machine.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use super::figures::{Load, Round};
use super::process::cpu_of;
use super::{Result, cores};

/// A socket that listens, in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// CPU time of a server and of the cluster beside it.
#[derive(Clone, Copy)]
pub(super) struct Spent {
    pub(super) cpu: Duration,
    pub(super) database: Duration,
}

impl Spent {
    /// What was spent after an earlier look.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            database: self.database.saturating_sub(before.database),
        }
    }

    /// A round in which it was spent on a load.
    pub(super) fn on(self, load: Load) -> Round {
        Round { load, cpu: self.cpu, database: self.database }
    }
}

/// The processes of the cluster. None if it runs elsewhere: then nothing is known of it.
pub(super) struct Database {
    pids: Vec<u32>,
}

impl Database {
    /// The processes that listen on the ports of a store's nodes.
    pub(super) fn of(store: &str) -> Self {
        let nodes = store.strip_prefix("cassandra://").and_then(|rest| rest.split('/').next());
        let ports = nodes.into_iter().flat_map(|nodes| nodes.split(','));
        let ports = ports.filter_map(|node| node.rsplit_once(':')?.1.parse().ok());
        let inodes = listening(&ports.collect());
        Self { pids: owners(&inodes) }
    }

    /// Has it leave the core of what is measured alone for as long as some work takes, where that has
    /// a core for itself.
    pub(super) async fn aside(store: &str, work: impl Future<Output = Result<()>>) -> Result<()> {
        if !cores::are_apart() {
            return work.await;
        }
        let pids = Self::of(store).pids;
        pids.iter().try_for_each(|pid| cores::keep_off(*pid))?;
        let done = work.await;
        done.and(pids.iter().try_for_each(|pid| cores::give_back(*pid)))
    }

    /// Whether anything is known of it.
    pub(super) fn is_known(&self) -> bool {
        !self.pids.is_empty()
    }

    /// CPU time of all of it so far.
    pub(super) fn cpu(&self) -> Duration {
        self.pids.iter().map(|pid| cpu_of(*pid).unwrap_or_default()).sum()
    }
}

/// The inodes of sockets that listen on some ports.
fn listening(ports: &HashSet<u16>) -> HashSet<String> {
    let mut inodes = HashSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, _, _, _, _, _, inode, ..] = fields.as_slice() else {
                continue;
            };
            let port = local.rsplit_once(':').and_then(|(_, p)| u16::from_str_radix(p, 16).ok());
            if *state == LISTENS && port.is_some_and(|port| ports.contains(&port)) {
                inodes.insert(format!("socket:[{inode}]"));
            }
        }
    }
    inodes
}

/// The processes that have these sockets open.
fn owners(inodes: &HashSet<String>) -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let owns = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|link| link.to_str().is_some_and(|link| inodes.contains(link)))
    };
    if inodes.is_empty() { Vec::new() } else { pids.filter(owns).collect() }
}
