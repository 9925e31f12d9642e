//! What the sections of the benchmark share.

pub(crate) mod card;
pub(crate) mod cassandra;
pub(crate) mod fill;
pub(crate) mod machine;
pub(crate) mod roles;
pub(crate) mod start;

mod control;
mod figures;
mod http;
mod process;
mod requests;
mod worker;

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// Why a benchmark cannot go on, for a person.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
/// A benchmark that cannot go on says why, cleans up and ends.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Connections that are kept busy, unless told otherwise.
const CONNECTIONS: u64 = 32;
/// Rounds of every variant; their median is reported.
const ROUNDS: u64 = 5;
/// Length of a round. CPU time is counted in steps of 10 ms, which is well below 1 % of it.
const SECONDS: u64 = 3;
/// Products that `load` writes; a million is what the shop is judged by and takes longer.
const PRODUCTS: u64 = 100_000;

/// What can be changed from outside.
pub(crate) struct Settings {
    /// Connections, and executions under way at once in the loop beside Cassandra.
    pub(crate) connections: usize,
    /// Rounds of every variant.
    pub(crate) rounds: u64,
    /// How long a round is.
    pub(crate) round: Duration,
    /// How many products `load` writes.
    pub(crate) products: u64,
}

impl Settings {
    /// Reads the settings; one that makes no sense is an error.
    pub(crate) fn from_environment() -> Result<Self> {
        let connections = number("VITRINA_BENCH_CONNECTIONS", CONNECTIONS, 1..=1_000)?;
        Ok(Self {
            connections: usize::try_from(connections)?,
            rounds: number("VITRINA_BENCH_ROUNDS", ROUNDS, 1..=1_000)?,
            round: Duration::from_secs(number("VITRINA_BENCH_SECONDS", SECONDS, 1..=3_600)?),
            products: number("VITRINA_BENCH_PRODUCTS", PRODUCTS, 1..=vitrina::demo::MAX_PRODUCTS)?,
        })
    }

    /// The load in words, for the heading of a table.
    pub(crate) fn describe(&self, connections: usize) -> String {
        let plural = if connections == 1 { "" } else { "s" };
        let (rounds, seconds) = (self.rounds, self.round.as_secs());
        format!("{connections} connection{plural}, median of {rounds} rounds of {seconds} s")
    }
}

fn number(variable: &str, default: u64, range: RangeInclusive<u64>) -> Result<u64> {
    let Ok(text) = std::env::var(variable) else { return Ok(default) };
    let (low, high) = (range.start(), range.end());
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("{variable} must be a number from {low} to {high}").into()),
    }
}

/// Does some work, unless a signal asks this process to stop meanwhile: then the work is dropped,
/// and with it its children and folders.
pub(crate) async fn unless_stopped(work: impl Future<Output = Result<()>>) -> Result<()> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => Err("interrupted".into()),
        _ = terminate.recv() => Err("told to stop".into()),
    }
}
