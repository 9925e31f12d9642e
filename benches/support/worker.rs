//! A worker: this program again, in a process of its own, so that the CPU time of what is measured
//! is not mixed with that of the load generator.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;

use super::connection::Connection;
use super::control::Control;
use super::database::{Database, Spent};
use super::figures::{Load, Round};
use super::http::{self, Until};
use super::process::{Process, command};
use super::requests::Requests;
use super::{Result, Settings};

/// The variable that names the role of a worker.
pub(super) const ROLE: &str = "VITRINA_BENCH_ROLE";
/// The variable that tells a worker where to report.
pub(super) const CONTROL: &str = "VITRINA_BENCH_CONTROL";
/// The variable that tells a worker which store to use.
pub(super) const STORE: &str = "VITRINA_BENCH_STORE";

/// The variable that tells a worker which Redis to use.
pub(super) const REDIS: &str = "VITRINA_BENCH_REDIS";
/// The variable that names the Redis to the benchmark, as to the tests.
pub(super) const REDIS_OF_TESTS: &str = "VITRINA_TEST_REDIS";

/// What a worker does.
#[derive(Clone, Copy)]
pub(super) enum Role {
    /// Serves the shop and, on another port, bare handlers.
    Serve,
    /// Runs the prepared statement of a card, when told to.
    Drive,
    /// Serves categories of made-up products, with and without caches, and fills, splits and
    /// writes them when told to.
    Clerk,
    /// Buys and looks at stock, when told to.
    Buyers,
    /// Serves carts and, on another port, a bare handler, and makes carts when told to.
    Carts,
    /// Runs the prepared statements of carts, when told to.
    DriveCarts,
    /// Serves orders, and buys and fills histories when told to.
    Checkout,
    /// Serves everything, with and without caches and on a third port by bare handlers, and fills
    /// it when told to.
    Mixed,
}

impl Role {
    /// Its name in [`ROLE`].
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Drive => "drive",
            Self::Clerk => "clerk",
            Self::Buyers => "buyers",
            Self::Carts => "carts",
            Self::DriveCarts => "drive-carts",
            Self::Checkout => "checkout",
            Self::Mixed => "mixed",
        }
    }
}

/// How long a worker may take until it is ready: it fills a store first.
const READY_WITHIN: Duration = Duration::from_secs(300);
/// How much longer than its round a worker may take to report on it.
const REPORT_WITHIN: Duration = Duration::from_secs(30);
/// How often a worker that has not reported yet is looked at.
const LIFE_POLL: Duration = Duration::from_millis(50);
/// How long a worker may take to close its store: what was written last goes to disk.
const FINISH_WITHIN: Duration = Duration::from_secs(60);
/// How long every variant runs before the first round counts.
const WARM_UP: Duration = Duration::from_secs(1);

/// A running worker.
pub(super) struct Worker {
    process: Process,
    database: Database,
    control: Control,
    /// What it said when it was ready: ports.
    greeting: Vec<u16>,
}

impl Worker {
    /// Starts a worker and waits until it is ready. Its log goes to `folder`.
    pub(super) async fn start(role: Role, store: &str, folder: &Path) -> Result<Self> {
        let reports = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let mut command = command(std::env::current_exe()?);
        command
            .env(ROLE, role.name())
            .env(CONTROL, reports.local_addr()?.to_string())
            .env(STORE, store)
            .env(REDIS, std::env::var(REDIS_OF_TESTS).unwrap_or_default());
        let log = folder.join(format!("{}-{}.log", role.name(), reports.local_addr()?.port()));
        let mut process = Process::start(&mut command, &log)?;
        let ready = async {
            let stream = loop {
                tokio::select! {
                    accepted = reports.accept() => break accepted?.0,
                    () = tokio::time::sleep(LIFE_POLL) => if process.ended()?.is_some() {
                        return Err("it ended".into());
                    },
                }
            };
            let mut control = Control::new(stream);
            let greeting = control.hear().await?.ok_or("it ended")?;
            let ports = greeting.split_whitespace().map(str::parse);
            Ok::<_, super::Error>((control, ports.collect::<std::result::Result<Vec<u16>, _>>()?))
        };
        match tokio::time::timeout(READY_WITHIN, ready).await.unwrap_or_else(|e| Err(e.into())) {
            Ok((control, greeting)) => {
                Ok(Self { process, database: Database::of(store), control, greeting })
            }
            Err(error) => {
                let words = process.last_words();
                Err(format!("the worker {}: {error}; its log: {words}", role.name()).into())
            }
        }
    }

    /// The address of one of its ports.
    pub(super) fn address(&self, index: usize) -> Result<SocketAddr> {
        let port = self.greeting.get(index).ok_or("a worker that named too few ports")?;
        Ok((Ipv4Addr::LOCALHOST, *port).into())
    }

    /// Measures a round of requests to it.
    pub(super) async fn requests(
        &self,
        connections: &mut [Connection],
        requests: &Requests,
        time: Duration,
    ) -> Result<Round> {
        let before = self.spent()?;
        let load = http::load(connections, requests, Until::Time(time)).await?;
        Ok(self.spent()?.since(before).on(load))
    }

    /// Measures a round of what it does by itself, with so many executions under way at once.
    pub(super) async fn executions(&mut self, at_once: usize, time: Duration) -> Result<Round> {
        self.measured(&format!("{} {at_once}", time.as_millis()), time).await
    }

    /// Measures a round of what it does by itself when it is given an order that takes so long.
    pub(super) async fn measured(&mut self, order: &str, time: Duration) -> Result<Round> {
        let before = self.spent()?;
        let load: Load = self.order(order, time + REPORT_WITHIN).await?.parse()?;
        Ok(self.spent()?.since(before).on(load))
    }

    /// Gives it an order; its report.
    pub(super) async fn order(&mut self, order: &str, within: Duration) -> Result<String> {
        self.control.tell(order).await?;
        let report = tokio::time::timeout(within, self.control.hear()).await;
        let report = report.map_err(|_| format!("no report on «{order}» within {within:?}"))??;
        report.ok_or_else(|| {
            format!("the worker ended; its log: {}", self.process.last_words()).into()
        })
    }

    /// CPU time that it and the cluster have spent so far.
    pub(super) fn spent(&self) -> Result<Spent> {
        Ok(Spent { cpu: self.process.cpu()?, database: self.database.cpu() })
    }

    /// Whether that of the cluster is known.
    pub(super) fn knows_database(&self) -> bool {
        self.database.is_known()
    }

    /// Memory that it has now, in bytes.
    pub(super) fn memory(&self) -> Result<u64> {
        Ok(self.process.memory("VmRSS").ok_or("the worker is gone")?)
    }

    /// Lets it go and waits until it has closed its store.
    pub(super) async fn finish(self) -> Result<()> {
        let Self { mut process, control, .. } = self;
        drop(control);
        let gone = async {
            while process.ended()?.is_none() {
                tokio::time::sleep(LIFE_POLL).await;
            }
            Ok(())
        };
        tokio::time::timeout(FINISH_WITHIN, gone).await?
    }
}

/// The lengths of the rounds: the warm-up, which does not count, then those that do.
pub(super) fn schedule(settings: &Settings) -> impl Iterator<Item = (Duration, bool)> {
    let counted = (0..settings.rounds).map(|_| (settings.round, true));
    std::iter::once((WARM_UP, false)).chain(counted)
}

/// A folder that is gone with everything in it when it is dropped.
pub(crate) fn folder() -> Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("vitrina-bench-").tempdir()?)
}
