//! What was taken on other instances. Each tells Redis now and then what was taken from a bucket
//! here and hears what was taken by all; no request waits for that. So together they may give a
//! client more than its share by what each gives out between two rounds.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Bucket, Key, whole_micros};
use crate::cache::Redis;

/// A bucket is told of once a fraction of one in so many was taken from it here.
pub(super) const TELL_BY: u64 = 20;
/// The time between two rounds.
const ROUND: Duration = Duration::from_millis(100);
/// Buckets that are told of in a round; the others wait for the next one.
const MAX_DUE: usize = 1_000;

/// Buckets that the others should hear of.
#[derive(Default)]
pub(super) struct Due(Mutex<Vec<(Key, Arc<Bucket>)>>);

impl Due {
    /// Notes a bucket, if there is room; if not, it is noted the next time that it is used.
    pub(super) fn note(&self, key: Key, bucket: &Arc<Bucket>) {
        if bucket.is_noted.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut due = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if due.len() < MAX_DUE {
            due.push((key, bucket.clone()));
        } else {
            bucket.is_noted.store(false, Ordering::Relaxed);
        }
    }

    fn take(&self) -> Vec<(Key, Arc<Bucket>)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Goes on as long as there are the buckets.
pub(super) async fn keep(redis: Arc<Redis>, prefix: String, due: Weak<Due>, began: Instant) {
    let mut rounds = interval(ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        let Some(due) = due.upgrade().map(|due| due.take()) else { return };
        if due.is_empty() {
            continue;
        }
        let keys: Vec<String> = due
            .iter()
            .map(|(key, _)| format!("{prefix}:{:032x}", u128::from_be_bytes(*key)))
            .collect();
        let untold = |(_, bucket): &(Key, Arc<Bucket>)| {
            bucket.is_noted.store(false, Ordering::Relaxed);
            bucket.untold.swap(0, Ordering::Relaxed)
        };
        let taken: Vec<u64> = due.iter().map(untold).collect();
        // If it is away, what was taken here counts here all the same.
        let Some(ahead) = redis.meter(&keys, &taken).await else { continue };
        let now = whole_micros(began.elapsed());
        for ((_, bucket), ahead) in due.iter().zip(ahead) {
            bucket.full_at.fetch_max(now.saturating_add(ahead), Ordering::Relaxed);
        }
    }
}
