//! Whether enough of the cluster answers, so that whoever cannot be served is told so at once.
//!
//! A node that dies is believed in by the others for some fifteen seconds. As long as it is, whatever
//! needs more copies of a row than there are left waits for its whole time-out. So a call that is not
//! answered soon raises a suspicion, and a probe is sent. Only if that one is not answered either, and
//! nobody else was meanwhile, the cluster is given up: those who wait and those who come are told so,
//! until a probe is answered. Cards, which need one copy, are not concerned.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use scylla::client::session::Session;
use scylla::errors::ExecutionError;
use scylla::statement::prepared::PreparedStatement;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::statement::store_error;
use crate::storage::StoreError;
use crate::telemetry::{CallKind, Metrics};

/// A call that takes longer raises a suspicion: no healthy cluster takes so long.
const SUSPECT_AFTER: Duration = Duration::from_millis(500);
/// A probe is waited for so long. With [`SUSPECT_AFTER`] it is the time-out of most statements: hardly
/// anybody is sent away who would have been served.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The pause between two probes of a cluster that was given up: after it is back, nobody is sent away
/// for longer.
const PROBE_PAUSE: Duration = Duration::from_millis(250);

/// Asks a cluster for a sign of life.
#[derive(Clone)]
pub(super) struct Probe {
    pub(super) session: Arc<Session>,
    /// Reads at quorum, within [`PROBE_TIMEOUT`].
    pub(super) statement: PreparedStatement,
}

impl Probe {
    /// Reads at quorum from a table that is always there.
    pub(super) async fn send(&self) -> Result<(), StoreError> {
        let answer = self.session.execute_unpaged(&self.statement, ()).await;
        answer.map(drop).map_err(|error| store_error("probe", &error))
    }
}

/// What is known of the cluster.
pub(super) struct Outage {
    probe: Probe,
    metrics: Arc<Metrics>,
    /// Calls that were answered.
    answers: AtomicU64,
    /// Whether a probe is under way.
    is_probing: AtomicBool,
    /// Whether the cluster was given up.
    is_out: watch::Sender<bool>,
}

impl Outage {
    pub(super) fn new(probe: Probe, metrics: Arc<Metrics>) -> Arc<Self> {
        metrics.store_given_up(false);
        Arc::new(Self {
            probe,
            metrics,
            answers: AtomicU64::new(0),
            is_probing: AtomicBool::new(false),
            is_out: watch::Sender::new(false),
        })
    }

    /// Asks now, whatever is believed.
    pub(super) async fn probe(&self) -> Result<(), StoreError> {
        self.probe.send().await
    }

    /// Waits for a call that needs more than one copy of a row, for as long as that makes sense.
    pub(super) async fn guard<T>(
        self: &Arc<Self>,
        (table, kind): (&'static str, CallKind),
        mut call: Pin<Box<impl Future<Output = Result<T, ExecutionError>>>>,
    ) -> Result<T, StoreError> {
        let unavailable = || StoreError::Unavailable {
            call: table,
            cause: "too few nodes of the cluster answer".to_owned(),
        };
        if *self.is_out.borrow() {
            return Err(unavailable());
        }
        let answer = match timeout(SUSPECT_AFTER, call.as_mut()).await {
            Ok(answer) => answer,
            Err(_) => {
                self.suspect();
                let mut is_out = self.is_out.subscribe();
                tokio::select! {
                    answer = call => answer,
                    _ = is_out.wait_for(|is_out| *is_out) => return Err(match kind {
                        CallKind::Read => unavailable(),
                        // It may have happened, or may yet.
                        CallKind::Write => StoreError::Timeout {
                            call: table,
                            cause: "too few nodes of the cluster answered".to_owned(),
                        },
                    }),
                }
            }
        };
        if answer.is_ok() {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
        answer.map_err(|error| store_error(table, &error))
    }

    fn suspect(self: &Arc<Self>) {
        if !self.is_probing.swap(true, Ordering::AcqRel) {
            tokio::spawn(Self::find_out(Arc::downgrade(self)));
        }
    }

    /// Probes until there is an answer, or nobody is left who would want to know.
    async fn find_out(outage: Weak<Self>) {
        while let Some(outage) = outage.upgrade() {
            let before = outage.answers.load(Ordering::Relaxed);
            let probed = outage.probe().await;
            if probed.is_ok() || outage.answers.load(Ordering::Relaxed) != before {
                outage.is_probing.store(false, Ordering::Release);
                if outage.is_out.send_replace(false) {
                    outage.metrics.store_given_up(false);
                    tracing::info!("enough of the cluster answers again");
                }
                return;
            }
            if let Err(error) = probed
                && !outage.is_out.send_replace(true)
            {
                outage.metrics.store_given_up(true);
                tracing::error!(%error, "too few nodes answer: what needs several is refused");
            }
            drop(outage);
            sleep(PROBE_PAUSE).await;
        }
    }
}
