//! The tier in this process: entries by weight, and one fill at a time for each key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};
use tokio::time::Instant;

use super::CacheSettings;
use super::flight::{Flight, Held};
use super::trail::Source;

/// What an entry takes beside its key's text and its value: its slot, hash table and counters.
const ENTRY_BYTES: usize = 160;

#[derive(Clone)]
struct ByBytes;

impl<K, V> Weighter<K, Held<V>> for ByBytes {
    fn weight(&self, _: &K, held: &Held<V>) -> u64 {
        held.bytes
    }
}

type Flights<K, V> = HashMap<K, Arc<Flight<V>>>;

/// Entries in memory, and the fills under way.
///
/// Reading takes the lock of one shard of the cache. Everything that changes an entry also holds
/// the lock of its flights, so that looking at an entry and replacing it is one step.
pub(super) struct Memory<K, V> {
    /// How old entries may be, and what of them was changed.
    pub(super) source: Arc<Source>,
    weigh: fn(&V) -> usize,
    held: Cache<K, Held<V>, ByBytes>,
    flights: Box<[Mutex<Flights<K, V>>]>,
}

/// What becomes of a key that was not in memory.
pub(super) enum Claim<'a, K: Hash + Eq, V> {
    /// It is there by now.
    Held(Held<V>),
    /// Somebody is filling it.
    Wait(Arc<Flight<V>>),
    /// It is the caller's to fill.
    Mine(Claimed<'a, K, V>),
}

/// The right and the duty to fill a key. Dropped without [`Claimed::complete`], it lets the others
/// know that they have to do it themselves.
pub(super) struct Claimed<'a, K: Hash + Eq, V> {
    memory: &'a Memory<K, V>,
    /// Taken out on completion.
    key: Option<K>,
    flight: Arc<Flight<V>>,
}

impl<K: Clone + Hash + Eq, V> Memory<K, V> {
    /// `names` is how many changes of entries, or of their groups, are told apart.
    pub(super) fn new(settings: &CacheSettings, names: usize, weigh: fn(&V) -> usize) -> Self {
        let expected = settings.expected_entries.max(1);
        let held = Cache::with_weighter(expected, settings.capacity_bytes, ByBytes);
        let flights = (0..held.num_shards()).map(|_| Mutex::default()).collect();
        Self { source: Source::new(settings.max_age, names), weigh, held, flights }
    }

    /// The moment that is too old for somebody who asks at `asked`.
    pub(super) fn oldest(&self, asked: Instant) -> Option<Instant> {
        self.source.oldest(asked)
    }

    /// An answer with its weight; `key_bytes` is the length of its key.
    pub(super) fn weigh(
        &self,
        key_bytes: usize,
        version: i64,
        value: Option<Arc<V>>,
        since: Instant,
    ) -> Held<V> {
        let value_bytes = value.as_deref().map_or(0, self.weigh);
        let bytes = value_bytes.saturating_add(key_bytes).saturating_add(ENTRY_BYTES);
        Held { version, value, since, bytes: u64::try_from(bytes).unwrap_or(u64::MAX) }
    }

    /// The answer in memory, if it is fresh.
    pub(super) fn get<Q>(&self, key: &Q, oldest: Option<Instant>) -> Option<Held<V>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.held.get(key).filter(|held| held.is_fresh(oldest))
    }

    /// Decides who fills a key. Without `may_wait` the caller does, whoever else is at it; what
    /// the other brings is then not kept. So it goes to one whose answer would be too old, too.
    pub(super) fn claim(
        &self,
        key: &K,
        since: Instant,
        oldest: Option<Instant>,
        may_wait: bool,
    ) -> Claim<'_, K, V> {
        let mut flights = self.flights(key);
        if let Some(held) = self.held.peek(key).filter(|held| held.is_fresh(oldest)) {
            return Claim::Held(held);
        }
        match flights.get(key) {
            Some(flight) if may_wait && flight.is_fresh(oldest) => Claim::Wait(flight.clone()),
            _ => {
                let flight = Arc::new(Flight::new(since));
                flights.insert(key.clone(), flight.clone());
                Claim::Mine(Claimed { memory: self, key: Some(key.clone()), flight })
            }
        }
    }

    /// The fill of a key that is under way.
    pub(super) fn under_way(&self, key: &K) -> Option<Arc<Flight<V>>> {
        self.flights(key).get(key).cloned()
    }

    /// Keeps an answer that is known without a fill, unless a newer one is there. A fill under way
    /// may have read what was before: it is ended with this answer, and what it brings is dropped.
    pub(super) fn put(&self, key: K, held: Held<V>) {
        let stripe = self.source.changes.stripe_of(&key);
        let mut flights = self.flights(&key);
        let flight = flights.remove(&key);
        let kept = self.keep(key, held);
        drop(flights);
        // After it is there: who reads from now on finds it.
        self.source.changes.mark_stripe(stripe);
        if let Some(flight) = flight {
            flight.land(Some(kept));
        }
    }

    /// The same, if the key is in memory or being filled. What nobody here asks for is not kept.
    pub(super) fn put_if_known(&self, key: &K, held: Held<V>) {
        let is_known = self.flights(key).contains_key(key) || self.held.peek(key).is_some();
        // Who begins to fill it between these lines reads what is true by now.
        if is_known {
            self.put(key.clone(), held);
        } else {
            // Something may have been made of what is no longer in memory.
            self.source.changes.mark(key);
        }
    }

    /// Keeps the newer of two answers and says which. The key's flights are locked.
    fn keep(&self, key: K, held: Held<V>) -> Held<V> {
        let oldest = self.oldest(Instant::now());
        match self.held.peek(&key) {
            Some(there) if there.is_fresh(oldest) && there.is_newer_than(&held) => there,
            there => {
                // Somebody has changed it and told nobody here: what was made of the old one falls,
                // so that nobody is shown the new one and then the old one.
                let is_change = there.is_some_and(|there| there.version != held.version);
                let stripe = is_change.then(|| self.source.changes.stripe_of(&key));
                self.held.insert(key, held.clone());
                if let Some(stripe) = stripe {
                    self.source.changes.mark_stripe(stripe);
                }
                held
            }
        }
    }
}

impl<K: Hash + Eq, V> Memory<K, V> {
    fn flights(&self, key: &K) -> MutexGuard<'_, Flights<K, V>> {
        let shard = &self.flights[self.held.shard_index(key)];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Hash + Eq, V> Claimed<'_, K, V> {
    /// Ends the fill. The answer to go on with, and whether it was kept: it was not if meanwhile a
    /// newer one was put there or somebody else took the fill over.
    pub(super) fn complete(mut self, held: Held<V>) -> (Held<V>, bool) {
        let Some(key) = self.key.take() else { return (held, false) };
        let mut flights = self.memory.flights(&key);
        let is_current = flights.get(&key).is_some_and(|there| Arc::ptr_eq(there, &self.flight));
        let best = if is_current {
            flights.remove(&key);
            self.memory.keep(key, held.clone())
        } else if self.memory.held.peek(&key).is_some_and(|there| there.version < held.version) {
            // Overtaken by something that it has seen beyond: shown once, it must stay.
            self.memory.keep(key, held.clone())
        } else {
            self.flight.answer().filter(|other| other.is_newer_than(&held)).unwrap_or(held.clone())
        };
        drop(flights);
        self.flight.land(Some(best.clone()));
        let kept = is_current && !best.is_newer_than(&held);
        (best, kept)
    }
}

impl<K: Hash + Eq, V> Drop for Claimed<'_, K, V> {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let mut flights = self.memory.flights(&key);
        if flights.get(&key).is_some_and(|there| Arc::ptr_eq(there, &self.flight)) {
            flights.remove(&key);
        }
        drop(flights);
        self.flight.land(None);
    }
}

#[cfg(test)]
impl<K: Clone + Hash + Eq, V> Memory<K, V> {
    pub(super) fn bytes(&self) -> u64 {
        self.held.weight()
    }

    pub(super) fn fills_under_way(&self) -> usize {
        self.flights.iter().map(|flights| flights.lock().unwrap().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::marks::FEW;
    use super::*;

    #[test]
    fn what_was_overtaken_by_something_older_is_kept() {
        let settings = CacheSettings {
            name: "rows",
            prefix: "test".to_owned(),
            max_age: Duration::from_secs(3_600),
            capacity_bytes: 1 << 20,
            expected_entries: 100,
            hot_asks: 0,
            announces: false,
        };
        let memory: Memory<String, i64> = Memory::new(&settings, FEW, |_| 8);
        let (now, key) = (Instant::now(), "a".to_owned());
        let Claim::Mine(fill) = memory.claim(&key, now, None, true) else { unreachable!() };
        // It has read version 9 when somebody tells of version 8.
        memory.put_if_known(&key, memory.weigh(1, 8, Some(Arc::new(8)), Instant::now()));
        let (shown, _) = fill.complete(memory.weigh(1, 9, Some(Arc::new(9)), now));
        assert_eq!(shown.version, 9);
        assert_eq!(memory.get(&key, None).unwrap().version, 9);
    }
}
