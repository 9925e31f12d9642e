//! When something of a kind was changed last, in bounded memory.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How many changes are told apart where a few hundred names are changed, such as categories. Two
/// names that fall together only make an entry of the one be read again when the other was changed.
/// 8 KiB.
pub(super) const FEW: usize = 1_024;
/// The same for names as many as there are products. 256 KiB.
pub(super) const MANY: usize = 32_768;

/// The place of a name among the marks. Names that fall together share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stripe(u32);

/// The moments of the last changes, by hash of what was changed.
pub(super) struct Marks {
    base: Instant,
    hasher: RandomState,
    /// Nanoseconds after `base` and one more; 0 where nothing was changed yet.
    stripes: Box<[AtomicU64]>,
    /// The largest of them, or a little less while a change is being noted: most looks end here.
    latest: AtomicU64,
}

impl Marks {
    /// Marks that tell so many changes apart.
    pub(super) fn new(stripes: usize) -> Self {
        Self {
            base: Instant::now(),
            hasher: RandomState::new(),
            stripes: (0..stripes.max(1)).map(|_| AtomicU64::new(0)).collect(),
            latest: AtomicU64::new(0),
        }
    }

    /// Notes that `name` has just been changed.
    pub(super) fn mark<Q: Hash + ?Sized>(&self, name: &Q) {
        self.mark_stripe(self.stripe_of(name));
    }

    /// The same for a name whose place is known.
    pub(super) fn mark_stripe(&self, stripe: Stripe) {
        let moment = self.nanos(Instant::now()).saturating_add(1);
        self.at(stripe).fetch_max(moment, Ordering::SeqCst);
        self.latest.fetch_max(moment, Ordering::SeqCst);
    }

    /// When `name` was changed last, or something that falls together with it.
    pub(super) fn last<Q: Hash + ?Sized>(&self, name: &Q) -> Option<Instant> {
        let nanos = self.at(self.stripe_of(name)).load(Ordering::SeqCst).checked_sub(1)?;
        Some(self.base + Duration::from_nanos(nanos))
    }

    /// Whether any of these was changed at a moment or after it.
    pub(super) fn any_since(&self, stripes: &[Stripe], moment: Instant) -> bool {
        let moment = self.nanos(moment);
        self.latest.load(Ordering::SeqCst) > moment
            && stripes.iter().any(|stripe| self.at(*stripe).load(Ordering::SeqCst) > moment)
    }

    /// The place of a name.
    pub(super) fn stripe_of<Q: Hash + ?Sized>(&self, name: &Q) -> Stripe {
        let hash = self.hasher.hash_one(name);
        // Below the number of stripes, which is small.
        #[allow(clippy::cast_possible_truncation)]
        let index = (hash % self.stripes.len() as u64) as u32;
        Stripe(index)
    }

    fn at(&self, stripe: Stripe) -> &AtomicU64 {
        &self.stripes[stripe.0 as usize]
    }

    fn nanos(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.base);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_known_to_whoever_looked_before_it() {
        let marks = Marks::new(MANY);
        let (changed, other) = (marks.stripe_of("a"), marks.stripe_of("b"));
        advance(Duration::from_millis(1)).await;
        let before = Instant::now();
        assert!(!marks.any_since(&[changed, other], before));
        advance(Duration::from_millis(1)).await;
        marks.mark("a");
        assert!(marks.any_since(&[other, changed], before));
        assert!(marks.any_since(&[changed], Instant::now()), "of one moment: better once more");
        assert!(!marks.any_since(&[other], before));
        advance(Duration::from_millis(1)).await;
        assert!(!marks.any_since(&[changed, other], Instant::now()));
    }
}
