//! A cache of what is made of the entries of other caches.

use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use quick_cache::Equivalent;
use tokio::time::{Instant, timeout_at};

use super::flight::Held;
use super::memory::{Claim, Claimed, Memory};
use super::trail::{self, Parts};
use super::{CacheSettings, MAX_WAIT, MAX_WAITS};

/// About how large an entry is. It decides into how many parts the cache is cut.
const EXPECTED_BYTES: u64 = 4 << 10;
/// The cache itself is never told of a change; what its entries are made of is.
const NO_NAMES: usize = 1;

/// Something whose size is known.
pub trait Weighed {
    /// The bytes that it takes, about.
    fn bytes(&self) -> usize;
}

/// Something that was made, and what it was made of.
pub struct Derived<V> {
    value: V,
    parts: Parts,
}

impl<V> Derived<V> {
    /// Something that is made of nothing that is known, and not kept.
    pub fn alone(value: V) -> Arc<Self> {
        Arc::new(Self { value, parts: Parts::default() })
    }
}

impl<V> Deref for Derived<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

/// How a call got its answer.
pub enum Got<V, R> {
    /// Another call has made it.
    Found(Arc<Derived<V>>),
    /// This call has made it, for itself and for others.
    Made(Arc<Derived<V>>),
    /// This call has made it, and it is for nobody else.
    Own(R),
}

/// A cache in this process of what is made of the entries of other caches.
///
/// An answer was made no longer than `max_age` ago, of entries that all may be shown still, in which
/// nothing was changed since they were read. Whether that is so is found out each time it is asked
/// for: a change only has to be noted, nothing has to be searched for or removed, and what was being
/// made during a change is never shown to whoever asks after it.
pub struct DerivedCache<K, V> {
    memory: Memory<K, Derived<V>>,
    max_entry_bytes: u64,
}

impl<K: Clone + Eq + Hash, V: Weighed> DerivedCache<K, V> {
    /// A cache of so many bytes, about, of which an entry takes no more than `max_entry_bytes`.
    pub fn new(
        name: &'static str,
        max_age: Duration,
        capacity_bytes: u64,
        max_entry_bytes: u64,
    ) -> Self {
        let settings = CacheSettings {
            name,
            prefix: String::new(),
            max_age,
            capacity_bytes,
            expected_entries: usize::try_from(capacity_bytes / EXPECTED_BYTES).unwrap_or(1),
            hot_asks: 0,
            announces: false,
        };
        let weigh = |derived: &Derived<V>| derived.value.bytes() + derived.parts.bytes();
        Self { memory: Memory::new(&settings, NO_NAMES, weigh), max_entry_bytes }
    }

    /// What is at hand.
    pub fn get<Q>(&self, key: &Q, asked: Instant) -> Option<Arc<Derived<V>>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        let held = self.memory.get(key, self.memory.oldest(asked))?;
        held.value.filter(|derived| derived.parts.hold(asked))
    }

    /// What somebody is just making, if it comes to something that may be shown to this caller.
    pub async fn wait(&self, key: &K, asked: Instant) -> Option<Arc<Derived<V>>> {
        let flight = self.memory.under_way(key)?;
        let held = timeout_at(asked + MAX_WAIT, flight.wait()).await.ok().flatten()?;
        shown(&held, asked)
    }

    /// What is at hand, or what somebody is just making, or else what `make` makes: `Ok` for
    /// everybody, `Err` for this caller alone. `key_bytes` is the length of the key.
    ///
    /// One call makes it at a time, and the others wait for it. When it fails, goes away or makes
    /// something for itself alone, nobody waits for long: whoever waited twice, or knows that there
    /// is nothing to wait for, makes its own.
    pub async fn get_or_make<R, F, Fut>(
        &self,
        (key, key_bytes): (&K, usize),
        asked: Instant,
        make: F,
    ) -> Got<V, R>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<V, R>>,
    {
        let (claimed, since) = match self.claim(key, asked).await {
            Way::Found(derived) => return Got::Found(derived),
            Way::Alone => {
                return match make().await {
                    Ok(value) => Got::Made(Derived::alone(value)),
                    Err(own) => Got::Own(own),
                };
            }
            Way::Mine(claimed, since) => (claimed, since),
        };
        let weigh = |derived| self.memory.weigh(key_bytes, 0, derived, since);
        let (made, parts) = trail::collect(make()).await;
        let derived = match made {
            Ok(value) => Arc::new(Derived { value, parts }),
            Err(own) => {
                // Known not to be there: nobody waits for the next one.
                claimed.complete(weigh(None));
                return Got::Own(own);
            }
        };
        let held = weigh(Some(derived.clone()));
        if held.bytes > self.max_entry_bytes {
            claimed.complete(weigh(None));
        } else if derived.parts.hold(Instant::now()) {
            claimed.complete(held);
        } else {
            // Something of it was changed meanwhile. Whoever waits makes it anew.
            drop(claimed);
        }
        Got::Made(derived)
    }

    /// Decides who makes something.
    async fn claim(&self, key: &K, asked: Instant) -> Way<'_, K, V> {
        let deadline = asked + MAX_WAIT;
        let mut refused = None;
        for _ in 0..=MAX_WAITS {
            let now = Instant::now();
            let oldest = self.memory.oldest(now).max(refused);
            let held = match self.memory.claim(key, now, oldest, true) {
                Claim::Mine(claimed) => return Way::Mine(claimed, now),
                Claim::Held(held) => Some(held),
                Claim::Wait(flight) => match timeout_at(deadline, flight.wait()).await {
                    Ok(landed) => landed,
                    Err(_) => return Way::Alone,
                },
            };
            match held {
                Some(Held { value: None, .. }) => return Way::Alone,
                Some(held) => match shown(&held, asked) {
                    Some(derived) => return Way::Found(derived),
                    None => refused = refused.max(Some(held.since)),
                },
                // Who made it failed or went away.
                None => {}
            }
        }
        Way::Alone
    }
}

/// What may be shown to somebody who has asked at a moment: what still holds; and what was begun
/// after that moment, because it is as good as what the caller would have made itself.
fn shown<V>(held: &Held<Derived<V>>, asked: Instant) -> Option<Arc<Derived<V>>> {
    let derived = held.value.as_ref()?;
    let is_good = held.since >= asked || derived.parts.hold(Instant::now());
    is_good.then(|| derived.clone())
}

/// What a call does.
enum Way<'a, K: Hash + Eq, V> {
    /// It answers with this.
    Found(Arc<Derived<V>>),
    /// It makes it, from this moment on, for itself and others.
    Mine(Claimed<'a, K, Derived<V>>, Instant),
    /// It makes it for itself.
    Alone,
}

#[cfg(test)]
mod tests;
