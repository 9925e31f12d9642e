//! Loads on workers that serve everything: what each took, of the process and of its store.

use std::net::SocketAddr;
use std::time::Duration;

use super::Result;
use super::connection::Connection;
use super::figures::{Load, Round, Variant, float, median, megabytes, thousands};
use super::http::{self, Until};
use super::requests::Requests;
use super::worker::Worker;

/// Bad answers on a connection in a round; with more of them a round tells nothing.
pub(super) const MAY_FAIL: u64 = 1_000;
/// How long it is waited after a round: what is done after an answer is part of what it takes.
pub(super) const REST: Duration = Duration::from_millis(200);
/// How long a worker may take to count.
const COUNT_WITHIN: Duration = Duration::from_secs(10);

/// A load with what its rounds need, and what they came to.
pub(super) struct Lane {
    pub(super) variant: Variant,
    pub(super) requests: Requests,
    connections: Vec<Connection>,
    /// So many of them are busy at once.
    busy: usize,
    /// Calls of the store for each request, by rounds.
    calls: Vec<f64>,
    /// What each part of a mix did, by rounds.
    pub(super) parts: Vec<Vec<Load>>,
    /// Bad answers of all rounds, and the first of them.
    pub(super) failed: u64,
    pub(super) first_failure: Option<String>,
    /// Memory of the server after the last round, in bytes.
    memory: u64,
}

impl Lane {
    /// A lane with so many connections open and so many of them busy at once; `variant` says what it
    /// is.
    pub(super) async fn open(
        variant: Variant,
        address: SocketAddr,
        requests: Requests,
        (open, busy): (usize, usize),
    ) -> Result<Self> {
        let connections = http::connect(address, open).await?;
        let (calls, parts) = (Vec::new(), Vec::new());
        let (failed, first_failure, memory) = (0, None, 0);
        Ok(Self {
            variant,
            requests,
            connections,
            busy,
            calls,
            parts,
            failed,
            first_failure,
            memory,
        })
    }

    /// Measures a round.
    pub(super) async fn round(
        &mut self,
        worker: &mut Worker,
        (time, counts): (Duration, bool),
    ) -> Result<()> {
        let before = calls(worker).await?;
        let spent = worker.spent()?;
        let (busy, until) = ((self.busy, MAY_FAIL), Until::Time(time));
        let seen = http::load_apart(&mut self.connections, &self.requests, busy, until).await;
        let seen = seen.map_err(|error| format!("{}: {error}", self.variant.name))?;
        tokio::time::sleep(REST).await;
        let spent = worker.spent()?.since(spent);
        self.memory = worker.memory()?;
        let calls = calls(worker).await? - before;
        if counts {
            self.calls.push(calls / float(seen.load.done.max(1)));
            self.variant.rounds.push(spent.on(seen.load));
            self.parts.push(seen.parts);
            self.failed += seen.failed;
            self.first_failure = self.first_failure.take().or(seen.first_failure);
        }
        Ok(())
    }

    /// Calls of the store for each request.
    pub(super) fn calls(&self) -> f64 {
        median(self.calls.clone())
    }

    /// Memory of the server after the last round, in megabytes.
    pub(super) fn memory(&self) -> f64 {
        megabytes(self.memory)
    }
}

/// All calls of a worker's store so far.
async fn calls(worker: &mut Worker) -> Result<f64> {
    Ok(worker.order("calls", COUNT_WITHIN).await?.parse()?)
}

/// The cells of a variant: requests a second, three percentiles, CPU.
pub(super) fn cells(variant: &Variant) -> Vec<String> {
    let time = |of: fn(&Load) -> f64| format!("{:.2}", variant.median(|round| of(&round.load)));
    vec![
        thousands(variant.median(Round::per_second)),
        time(Load::p50),
        time(Load::p95),
        time(Load::p99),
        format!("{:.1}", variant.median(Round::cpu_micros)),
    ]
}

/// Their columns.
pub(super) const COLUMNS: [&str; 5] =
    ["requests/s", "p50 ms", "p95 ms", "p99 ms", "CPU µs/request"];
