//! How often something is asked for, in bounded memory.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::time::Instant;

/// How many names are told apart. Two that fall together only seem to be asked for more often than
/// they are. 64 KiB.
const STRIPES: usize = 16_384;
/// The low half of a stripe counts, the high half tells the second of the count.
const COUNT_BITS: u32 = 16;
const COUNT_MASK: u32 = (1 << COUNT_BITS) - 1;

/// Counts of the last seconds, by hash of what was asked for. Two threads that count at once may
/// lose one of the two: that is near enough.
pub(super) struct Heat {
    base: Instant,
    hasher: RandomState,
    stripes: Box<[AtomicU32]>,
}

impl Heat {
    pub(super) fn new() -> Self {
        Self {
            base: Instant::now(),
            hasher: RandomState::new(),
            stripes: (0..STRIPES).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The current second, as far as it fits.
    pub(super) fn second(&self, now: Instant) -> u32 {
        let seconds = now.saturating_duration_since(self.base).as_secs();
        // The remainder fits.
        #[allow(clippy::cast_possible_truncation)]
        let second = (seconds & u64::from(COUNT_MASK)) as u32;
        second
    }

    /// Notes that `name` is asked for.
    pub(super) fn note<Q: Hash + ?Sized>(&self, name: &Q, second: u32) {
        let stripe = self.stripe(name);
        let count = decayed(stripe.load(Ordering::Relaxed), second);
        let count = (count + 1).min(COUNT_MASK);
        stripe.store(second << COUNT_BITS | count, Ordering::Relaxed);
    }

    /// How often `name` was asked for lately: this second's count, and half of the one before.
    pub(super) fn count<Q: Hash + ?Sized>(&self, name: &Q, second: u32) -> u32 {
        decayed(self.stripe(name).load(Ordering::Relaxed), second)
    }

    fn stripe<Q: Hash + ?Sized>(&self, name: &Q) -> &AtomicU32 {
        // Below STRIPES, so it fits any usize.
        #[allow(clippy::cast_possible_truncation)]
        let index = (self.hasher.hash_one(name) % STRIPES as u64) as usize;
        &self.stripes[index]
    }
}

fn decayed(stripe: u32, second: u32) -> u32 {
    let count = stripe & COUNT_MASK;
    match second.wrapping_sub(stripe >> COUNT_BITS) & COUNT_MASK {
        0 => count,
        age @ 1..=8 => count >> age,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_often_is_hot_until_it_is_not() {
        let heat = Heat::new();
        for _ in 0..8 {
            heat.note("a", 5);
        }
        assert_eq!(heat.count("a", 5), 8);
        assert_eq!(heat.count("a", 6), 4);
        assert_eq!(heat.count("a", 60), 0);
        heat.note("a", 6);
        assert_eq!(heat.count("a", 6), 5);
    }
}
