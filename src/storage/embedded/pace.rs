//! Whether short reads can be made on the spot.
//!
//! To go to a thread that may block, and back, costs some 40 µs of CPU (docs/performance.md), more than a
//! look at what lies in memory, where most of it does that is asked for often. So a short read is made where it
//! is asked for, until some have waited for the disk: then all go to those threads for a while. What
//! that can cost at the worst is a few reads from disk a second.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A short read that took longer has waited for the disk; or its thread for a core.
const LONG: Duration = Duration::from_millis(1);
/// A long read counts as so many quick ones: threads that wait for a core are told from a disk by how
/// seldom it happens.
const WEIGHT: u32 = 8;
/// With so many more long reads than quick ones, it is the disk.
const TOO_LONG: u32 = 4 * WEIGHT;
/// For how long reads go to threads that may block then.
const AWAY: Duration = Duration::from_secs(1);

/// How long short reads take.
pub(super) struct Pace {
    began: Instant,
    /// Long reads by their weight, less the quick ones since.
    long: AtomicU32,
    /// Milliseconds after it began until which reads go elsewhere.
    away_until: AtomicU64,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, long: AtomicU32::new(0), away_until: AtomicU64::new(0) }
    }

    /// Whether a short read can be made on the spot.
    pub(super) fn is_quick(&self, now: Instant) -> bool {
        self.millis(now) >= self.away_until.load(Ordering::Relaxed)
    }

    /// Notes how long one took. Of several at once some may go uncounted.
    pub(super) fn note(&self, started: Instant, now: Instant) {
        let long = self.long.load(Ordering::Relaxed);
        if now.saturating_duration_since(started) < LONG {
            if long > 0 {
                self.long.store(long - 1, Ordering::Relaxed);
            }
        } else if long + WEIGHT < TOO_LONG {
            self.long.store(long + WEIGHT, Ordering::Relaxed);
        } else {
            self.long.store(0, Ordering::Relaxed);
            self.away_until.store(self.millis(now + AWAY), Ordering::Relaxed);
        }
    }

    fn millis(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.began);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_go_elsewhere_while_they_wait_for_the_disk() {
        let start = Instant::now();
        let pace = Pace::new(start);
        for _ in 0..4 {
            assert!(pace.is_quick(start));
            pace.note(start, start + LONG);
        }
        let noted = start + LONG;
        assert!(!pace.is_quick(noted));
        assert!(!pace.is_quick(start + AWAY));
        assert!(pace.is_quick(noted + AWAY));
    }

    #[test]
    fn a_thread_that_waits_for_a_core_now_and_then_changes_nothing() {
        let start = Instant::now();
        let pace = Pace::new(start);
        for _ in 0..1_000 {
            pace.note(start, start + 3 * LONG);
            for _ in 0..WEIGHT {
                pace.note(start, start);
            }
            assert!(pace.is_quick(start + 3 * LONG));
        }
    }
}
