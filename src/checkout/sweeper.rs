//! Finishes or undoes what a process that died has left, and cancels what was not paid in time. One
//! instance at a time does it; the others stand by.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::time::{Instant, MissedTickBehavior, interval};
use uuid::Uuid;

use super::CheckoutService;
use super::model::CheckoutState;
use crate::clock::Timestamp;
use crate::error::Error;
use crate::fault;
use crate::storage::{DUE_SHARDS, Due, Store, Task};

/// How often it is looked what is due.
const LOOK: Duration = Duration::from_secs(1);
/// The right to sweep, and how long it lasts without being renewed.
const LEASE: &str = "sweeper";
const LEASE_LIFE: Duration = Duration::from_secs(6);
/// How often it is renewed, or asked for.
const RENEW: Duration = Duration::from_secs(2);
/// What is handled at once.
const AT_ONCE: usize = 32;
/// What is read of a shard at once.
const BATCH: usize = 200;
/// Most batches of a shard in one round.
const MAX_BATCHES: usize = 10;
/// What cannot be done now is tried again after this long.
const RETRY: Duration = Duration::from_secs(5);
/// A checkout that is not there by so long after its time was never begun.
const NOT_BEGUN: Duration = Duration::from_secs(60);
/// Tells the time of a second look from that of a first.
const SECOND_LOOK: Duration = Duration::from_micros(1);
/// How far back it is looked now and then: for what was noted late, by a process that was frozen.
const LOOK_BACK: Duration = Duration::from_secs(600);
/// How often that is.
const LOOK_BACK_EVERY: Duration = Duration::from_secs(60);
/// Where the first sweeper of a shop begins.
const FIRST_LOOK: Duration = Duration::from_secs(3_600);

/// Up to when everything of each shard was handled.
#[derive(Debug)]
pub struct Sweeper {
    service: Arc<CheckoutService>,
    until: Option<Vec<Timestamp>>,
    looked_back: Instant,
}

impl std::fmt::Debug for CheckoutService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CheckoutService")
    }
}

/// Sweeps for as long as it is polled.
pub async fn keep(store: Arc<dyn Store>, service: Arc<CheckoutService>) {
    let holder = Uuid::new_v4();
    let mut sweeper = Sweeper::new(service);
    let mut ticks = interval(fault::hurried(LOOK));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut renewed, mut is_mine) = (None::<Instant>, false);
    loop {
        ticks.tick().await;
        if renewed.is_none_or(|renewed| renewed.elapsed() >= fault::hurried(RENEW)) {
            renewed = Some(Instant::now());
            let life = fault::hurried(LEASE_LIFE).max(Duration::from_secs(1));
            let was_mine = is_mine;
            is_mine = store.take_lease(LEASE, holder, life).await.unwrap_or(false);
            if !(was_mine && is_mine) {
                // Another has swept meanwhile.
                sweeper.until = None;
            }
        }
        if is_mine && let Err(error) = sweeper.sweep().await {
            tracing::warn!(code = error.code(), "what is due could not be looked at");
        }
    }
}

impl Sweeper {
    /// A sweeper that has not looked yet.
    pub fn new(service: Arc<CheckoutService>) -> Self {
        Self { service, until: None, looked_back: Instant::now() }
    }

    /// Handles what is due now. Answers how many.
    pub async fn sweep(&mut self) -> Result<usize, Error> {
        let (store, now) = (&self.service.store, self.service.clock.now());
        let mut until = match self.until.take() {
            Some(until) => until,
            None => {
                let swept = store.swept().await?.unwrap_or_else(|| now.before(FIRST_LOOK));
                vec![swept; usize::from(DUE_SHARDS.unsigned_abs())]
            }
        };
        let looks_back = self.looked_back.elapsed() >= LOOK_BACK_EVERY;
        if looks_back {
            self.looked_back = Instant::now();
            let back = now.before(LOOK_BACK);
            for until in &mut until {
                *until = (*until).min(back);
            }
        }
        let (mut handled, mut pending) = (0, 0);
        for (shard, until) in (0..DUE_SHARDS).zip(&mut until) {
            for _ in 0..MAX_BATCHES {
                let read = store.due(shard, (*until, now), BATCH).await?;
                let found = read.due.len();
                let service = &self.service;
                let handle = async |due: Due| service.handle(&due).await;
                let handling = stream::iter(read.due).map(handle).buffer_unordered(AT_ONCE);
                let results: Vec<bool> = handling.collect().await;
                handled += found;
                let left = results.iter().filter(|done| !**done).count();
                pending += left;
                if left > 0 {
                    // Neither done nor put off: from here on it is looked again.
                    break;
                }
                *until = read.until;
                if found < BATCH {
                    break;
                }
            }
        }
        self.service.counters.pending(pending);
        if let Some(oldest) = until.iter().min()
            && (handled > 0 || looks_back)
        {
            store.set_swept(*oldest).await?;
        }
        self.until = Some(until);
        Ok(handled)
    }
}

impl CheckoutService {
    /// Handles what is due. Answers whether it need not be looked at under this time again.
    async fn handle(self: &Arc<Self>, due: &Due) -> bool {
        let put_off = match self.look_at(due).await {
            Ok(Looked::Done) => {
                self.counters.swept(due.task.kind(), "done");
                None
            }
            Ok(Looked::Nothing) => {
                self.counters.swept(due.task.kind(), "nothing");
                None
            }
            // By a clock that was set back: noted for the time that it is about to be removed from.
            Ok(Looked::Later(at)) if at == due.at => return false,
            Ok(Looked::Later(at)) => Some(at),
            Err(error) => {
                self.counters.swept(due.task.kind(), "failed");
                let task = due.task.to_text();
                tracing::warn!(task, code = error.code(), "what is due could not be done yet");
                Some(self.clock.now().after(fault::hurried(RETRY)))
            }
        };
        if let Some(at) = put_off
            && self.store.add_due(&Due { at, task: due.task.clone() }).await.is_err()
        {
            return false;
        }
        self.store.remove_due(due).await.is_ok()
    }

    async fn look_at(self: &Arc<Self>, due: &Due) -> Result<Looked, Error> {
        match &due.task {
            Task::Checkout { owner, key } => {
                let Some(checkout) = self.store.settled_checkout(owner, key).await? else {
                    // Whoever has noted this may be slow: it is looked at once more. The first time
                    // is in whole milliseconds, the second is not.
                    let is_second = due.at != due.at.to_millis_precision();
                    let later = due.at.after(fault::hurried(NOT_BEGUN) + SECOND_LOOK);
                    return Ok(if is_second { Looked::Nothing } else { Looked::Later(later) });
                };
                match &checkout.state {
                    CheckoutState::Open { until } if self.clock.now() < *until => {
                        Ok(Looked::Later(*until))
                    }
                    CheckoutState::Open { .. } | CheckoutState::Undone => {
                        self.undo(&checkout).await?;
                        Ok(Looked::Done)
                    }
                    CheckoutState::Accepted => {
                        self.complete(&checkout).await?;
                        self.counters.finished();
                        // Whoever looked after its payment may have found no order yet.
                        if self.clock.now() >= checkout.order.payment_due_at {
                            self.mend(checkout.order.id, false).await?;
                        }
                        Ok(Looked::Done)
                    }
                    CheckoutState::Refused(_) => Ok(Looked::Nothing),
                }
            }
            Task::Payment(id) | Task::Change(id, _) => {
                let is_change = matches!(due.task, Task::Change(..));
                let did = self.mend(*id, is_change).await?;
                Ok(if did { Looked::Done } else { Looked::Nothing })
            }
            Task::Claim(guest) => {
                self.hand_over_all(*guest).await?;
                Ok(Looked::Done)
            }
        }
    }
}

/// What a look came to.
enum Looked {
    /// Something was done.
    Done,
    /// There was nothing to do.
    Nothing,
    /// It is too early.
    Later(Timestamp),
}
