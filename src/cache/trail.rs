//! What an answer is made of: entries of caches, and until when all of them may be shown.
//!
//! Whoever makes something out of what caches give, and wants to keep it, collects the trail of the
//! work: which entries of which caches were read, and since when the oldest of them is true. What was
//! made may be shown for as long as each of them may be. Ages so do not add up: an answer made of a
//! card that has 100 ms left has 100 ms left, whatever else it is made of.
//!
//! The trail travels with the task, so that caches can note what they give without knowing for what.

use std::cell::RefCell;
use std::hash::Hash;
use std::mem::size_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::marks::{Marks, Stripe};

/// What all entries of one cache have in common: for how long they may be shown, and what of them was
/// changed.
pub(super) struct Source {
    /// In nanoseconds.
    max_age: AtomicU64,
    /// When an entry was changed, by its key or its group.
    pub(super) changes: Marks,
}

impl Source {
    pub(super) fn new(max_age: Duration, names: usize) -> Arc<Self> {
        let max_age = AtomicU64::new(nanos(max_age));
        Arc::new(Self { max_age, changes: Marks::new(names) })
    }

    /// The moment that is too old for somebody who asks at `asked`.
    pub(super) fn oldest(&self, asked: Instant) -> Option<Instant> {
        // There is none while the machine's clock is younger than the age.
        asked.checked_sub(Duration::from_nanos(self.max_age.load(Ordering::Relaxed)))
    }

    /// From now on entries are shown until they are this old, and what was made of them too.
    pub(super) fn set_max_age(&self, max_age: Duration) {
        self.max_age.store(nanos(max_age), Ordering::Relaxed);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What was read of one cache.
struct Part {
    source: Arc<Source>,
    /// Before the first of it was asked for: a change that is noted later may have been missed.
    read: Instant,
    /// The oldest of it is true since then.
    since: Instant,
    names: Vec<Stripe>,
}

impl Part {
    fn holds(&self, now: Instant) -> bool {
        // The age is looked up now: it shrinks when changes made elsewhere cannot be heard any more.
        Some(self.since) > self.source.oldest(now)
            && !self.source.changes.any_since(&self.names, self.read)
    }
}

/// Everything that an answer was made of.
#[derive(Default)]
pub(super) struct Parts(Vec<Part>);

impl Parts {
    /// Whether all of it may be shown now, and none of it was changed since it was read.
    pub(super) fn hold(&self, now: Instant) -> bool {
        self.0.iter().all(|part| part.holds(now))
    }

    /// Memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let names = self.0.iter().map(|part| part.names.len() * size_of::<Stripe>());
        self.0.len() * size_of::<Part>() + names.sum::<usize>()
    }
}

tokio::task_local! {
    static TRAIL: RefCell<Parts>;
}

/// Does some work; its result, and what it was made of.
pub(super) async fn collect<F: Future>(work: F) -> (F::Output, Parts) {
    let noted = async {
        let output = work.await;
        let mut parts = TRAIL.with(RefCell::take);
        for part in &mut parts.0 {
            part.names.sort_unstable();
            part.names.dedup();
            part.names.shrink_to_fit();
        }
        (output, parts)
    };
    TRAIL.scope(RefCell::default(), noted).await
}

/// Notes what is read of a cache: under these names, asked for at `read`, the oldest of it true
/// since `since`. Where nobody collects, nothing is noted.
pub(super) fn note<'n, Q: Hash + ?Sized + 'n>(
    source: &Arc<Source>,
    read: Instant,
    since: Instant,
    names: impl IntoIterator<Item = &'n Q>,
) {
    let _ = TRAIL.try_with(|trail| {
        let names = names.into_iter().map(|name| source.changes.stripe_of(name));
        let parts = &mut trail.borrow_mut().0;
        match parts.iter_mut().find(|part| Arc::ptr_eq(&part.source, source)) {
            Some(part) => {
                part.read = part.read.min(read);
                part.since = part.since.min(since);
                part.names.extend(names);
            }
            None => {
                let (source, names) = (source.clone(), names.collect());
                parts.push(Part { source, read, since, names });
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::super::marks::FEW;
    use super::*;

    const AGE: Duration = Duration::from_millis(500);
    const TICK: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn what_is_made_lives_as_long_as_the_part_that_ends_first() {
        let (cards, pages) = (Source::new(AGE, FEW), Source::new(AGE, FEW));
        let began = Instant::now();
        advance(AGE / 2).await;
        let ((), parts) = collect(async {
            let now = Instant::now();
            note(&cards, now, now, ["a"]);
            // An old one beside a new one.
            note(&cards, now, began + TICK, ["b"]);
            note(&pages, now, now, ["c"]);
        })
        .await;
        assert!(parts.hold(Instant::now()));
        assert!(parts.hold(began + AGE));
        assert!(!parts.hold(began + AGE + TICK), "the old card is too old");
        // Nobody tells of changes any more.
        cards.set_max_age(AGE / 10);
        assert!(!parts.hold(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_a_part_ends_it_and_one_of_something_else_does_not() {
        let (cards, pages) = (Source::new(AGE, FEW), Source::new(AGE, FEW));
        advance(TICK).await;
        let ((), parts) = collect(async {
            let now = Instant::now();
            note(&cards, now, now, ["a", "b", "a"]);
            note(&pages, now, now, ["c"]);
        })
        .await;
        advance(TICK).await;
        cards.changes.mark("c");
        pages.changes.mark("a");
        assert!(parts.hold(Instant::now()));
        cards.changes.mark("b");
        assert!(!parts.hold(Instant::now()));
        // Outside a trail nothing is noted, and nothing is amiss.
        note(&cards, Instant::now(), Instant::now(), ["a"]);
    }
}
