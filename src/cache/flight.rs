//! A fill that is under way, and those who wait for it.

use std::pin::pin;
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;
use tokio::time::Instant;

/// An answer and since when it is true.
pub(super) struct Held<V> {
    /// Of two answers the larger version is the newer one; 0 where there are no versions.
    pub(super) version: i64,
    /// The answer; `None` if it is known that there is none.
    pub(super) value: Option<Arc<V>>,
    /// The moment before it was read.
    pub(super) since: Instant,
    /// Memory it takes, about.
    pub(super) bytes: u64,
}

impl<V> Clone for Held<V> {
    fn clone(&self) -> Self {
        let Self { version, ref value, since, bytes } = *self;
        Self { version, value: value.clone(), since, bytes }
    }
}

impl<V> Held<V> {
    /// Whether it may still be answered with, where `oldest` is the moment that is too old.
    pub(super) fn is_fresh(&self, oldest: Option<Instant>) -> bool {
        Some(self.since) > oldest
    }

    /// Whether it is to be kept rather than `other`.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        (self.version, self.since) > (other.version, other.since)
    }
}

/// One fill of one key.
pub(super) struct Flight<V> {
    /// When it began.
    since: Instant,
    /// How it ended; `None` inside if it failed or was given up.
    answer: OnceLock<Option<Held<V>>>,
    landed: Notify,
}

impl<V> Flight<V> {
    pub(super) fn new(since: Instant) -> Self {
        Self { since, answer: OnceLock::new(), landed: Notify::new() }
    }

    /// Whether its answer will be fresh for somebody to whom `oldest` is too old.
    pub(super) fn is_fresh(&self, oldest: Option<Instant>) -> bool {
        Some(self.since) > oldest
    }

    /// Ends it and wakes everybody who waits. What ended it first counts.
    pub(super) fn land(&self, answer: Option<Held<V>>) {
        let _ = self.answer.set(answer);
        self.landed.notify_waiters();
    }

    /// The answer, if it ended with one.
    pub(super) fn answer(&self) -> Option<Held<V>> {
        self.answer.get().cloned().flatten()
    }

    /// Waits for its end.
    pub(super) async fn wait(&self) -> Option<Held<V>> {
        let mut landed = pin!(self.landed.notified());
        // From here on no end is missed, so an end before this line is the only other case.
        landed.as_mut().enable();
        if self.answer.get().is_none() {
            landed.await;
        }
        self.answer()
    }
}
