//! When those who are sent away are told to come back.
//!
//! A refusal is cheap, but thousands of them a second are not: they take time from those who are served,
//! and those who buy wait behind them. So the more are sent away, the later they are told to come back,
//! and not all at the same moment.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The latest they are told to come back while few are sent away …
const SHORTEST: Duration = Duration::from_secs(1);
/// … and while a great many are. Whoever is served again by then would have given up soon after.
const LONGEST: Duration = Duration::from_secs(8);
/// More refusals than these in a second are too many: they take a hundredth of a core.
const MANY: f64 = 200.0;
/// It is made shorter again when fewer than one in so many of those is left. Halving it doubles them, so
/// that they are not too many at once.
const FEW: f64 = 4.0;

/// The time that is asked of those who are sent away.
pub(super) struct Comeback {
    /// The latest, in milliseconds.
    latest: AtomicU64,
    sent_away: AtomicU32,
}

impl Comeback {
    pub(super) fn new() -> Self {
        Self { latest: AtomicU64::new(millis(SHORTEST)), sent_away: AtomicU32::new(0) }
    }

    /// How long one more is asked to stay away: between half of the latest and the latest. Multiples of
    /// the golden ratio fill that evenly, however many there are.
    pub(super) fn wait(&self) -> Duration {
        const GOLDEN: u32 = 0x9E37_79B9;
        let count = self.sent_away.fetch_add(1, Ordering::Relaxed);
        let half = self.latest.load(Ordering::Relaxed) / 2;
        let part = u64::from(count.wrapping_mul(GOLDEN) >> 16);
        Duration::from_millis(half + ((half * part) >> 16))
    }

    /// Whether so many are sent away that they are told to come back later than at other times.
    pub(super) fn is_late(&self) -> bool {
        self.latest.load(Ordering::Relaxed) > millis(SHORTEST)
    }

    /// Begins to count those who are sent away.
    pub(super) fn begin(&self) -> Count {
        Count { since: Instant::now(), before: self.sent_away.load(Ordering::Relaxed) }
    }

    /// Makes the time longer or shorter by how many were sent away, once those who were asked to stay away
    /// for the present time are back.
    pub(super) fn adjust(&self, count: &mut Count) {
        let latest = self.latest.load(Ordering::Relaxed);
        let elapsed = count.since.elapsed();
        if elapsed < Duration::from_millis(latest) {
            return;
        }
        let now = self.begin();
        let a_second = f64::from(now.before.wrapping_sub(count.before)) / elapsed.as_secs_f64();
        *count = now;
        let wanted = match a_second {
            many if many > MANY => (latest * 2).min(millis(LONGEST)),
            few if few < MANY / FEW => (latest / 2).max(millis(SHORTEST)),
            _ => latest,
        };
        self.latest.store(wanted, Ordering::Relaxed);
    }
}

/// Those who were sent away since a moment.
pub(super) struct Count {
    since: Instant,
    before: u32,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The latest moment, after so many are sent away in each of some seconds.
    async fn after(comeback: &Comeback, count: &mut Count, seconds: u64, each: u32) -> Duration {
        for _ in 0..seconds {
            let waits = (0..each).map(|_| comeback.wait());
            let latest = Duration::from_millis(comeback.latest.load(Ordering::Relaxed));
            assert!(waits.into_iter().all(|wait| wait >= latest / 2 && wait <= latest));
            tokio::time::advance(Duration::from_secs(1)).await;
            comeback.adjust(count);
        }
        Duration::from_millis(comeback.latest.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn the_more_are_sent_away_the_later_they_come_back() {
        let comeback = Comeback::new();
        let mut count = comeback.begin();
        assert_eq!(after(&comeback, &mut count, 3, 100).await, SHORTEST);
        assert!(!comeback.is_late());
        assert_eq!(after(&comeback, &mut count, 1, 2_000).await, 2 * SHORTEST);
        // It waits to see what that brings.
        assert_eq!(after(&comeback, &mut count, 1, 2_000).await, 2 * SHORTEST);
        assert_eq!(after(&comeback, &mut count, 60, 2_000).await, LONGEST);
        assert_eq!(after(&comeback, &mut count, 60, 100).await, LONGEST);
        assert!(comeback.is_late());
        assert_eq!(after(&comeback, &mut count, 60, 10).await, SHORTEST);
        assert!(!comeback.is_late());
    }

    #[test]
    fn they_do_not_come_back_all_at_once() {
        let comeback = Comeback::new();
        let mut tenths = [0; 10];
        for _ in 0..1_000 {
            let beyond_half = comeback.wait().checked_sub(SHORTEST / 2).unwrap();
            tenths[usize::try_from(beyond_half.as_millis() / 50).unwrap().min(9)] += 1;
        }
        assert!(tenths.iter().all(|count| (90..=110).contains(count)), "{tenths:?}");
    }
}
