//! When something of a kind was changed last, in bounded memory.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How many changes are told apart. Two names that fall together only make an entry of the one be
/// read again when the other was changed; with a few hundred names that is rare. 8 KiB.
const STRIPES: usize = 1_024;

/// The moments of the last changes, by hash of what was changed.
pub(super) struct Marks {
    base: Instant,
    hasher: RandomState,
    /// Nanoseconds after `base` and one more; 0 where nothing was changed yet.
    stripes: Box<[AtomicU64]>,
}

impl Marks {
    pub(super) fn new() -> Self {
        Self {
            base: Instant::now(),
            hasher: RandomState::new(),
            stripes: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Notes that `name` has just been changed.
    pub(super) fn mark<Q: Hash + ?Sized>(&self, name: &Q) {
        let nanos = u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.stripe(name).fetch_max(nanos.saturating_add(1), Ordering::SeqCst);
    }

    /// When `name` was changed last, or something that falls together with it.
    pub(super) fn last<Q: Hash + ?Sized>(&self, name: &Q) -> Option<Instant> {
        let nanos = self.stripe(name).load(Ordering::SeqCst).checked_sub(1)?;
        Some(self.base + Duration::from_nanos(nanos))
    }

    fn stripe<Q: Hash + ?Sized>(&self, name: &Q) -> &AtomicU64 {
        let hash = self.hasher.hash_one(name);
        // Below STRIPES, so it fits any usize.
        #[allow(clippy::cast_possible_truncation)]
        let index = (hash % STRIPES as u64) as usize;
        &self.stripes[index]
    }
}
