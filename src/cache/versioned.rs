//! A cache of rows that have versions.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::flight::Held;
use super::heat::Heat;
use super::marks::{FEW, MANY, Marks};
use super::memory::{Claim, Claimed, Memory};
use super::shared::{Shared, Urgency};
use super::trail;
use super::{
    CacheKey, CacheSettings, Counters, MAX_FETCHES, MAX_WAIT, MAX_WAITS, ReadableKey, Tiers,
};
use crate::telemetry::Metrics;

/// What is known of one key.
#[derive(Debug)]
pub struct Entry<V> {
    /// Of two entries the larger version is the newer one.
    pub version: i64,
    /// The row; `None` if it is known that there is none, since this version.
    pub value: Option<Arc<V>>,
}

impl<V> Clone for Entry<V> {
    fn clone(&self) -> Self {
        Self { version: self.version, value: self.value.clone() }
    }
}

/// A read cache of rows with versions.
///
/// An answer was true at a moment that is no more than `max_age` before the call. A row that was
/// [`put`](Self::put) is never followed by an older one that was being read meanwhile.
pub struct VersionedCache<K: CacheKey, V> {
    /// `None` if it is off.
    open: Option<Open<K, V>>,
}

struct Open<K, V> {
    memory: Memory<K, V>,
    shared: Option<Shared>,
    /// When a key was put last by this instance. What Redis holds may be older for a moment.
    puts: Marks,
    counters: Counters,
    /// How often keys are asked for; `None` if that does not matter.
    heat: Option<Heat>,
    hot_asks: u32,
    announces: bool,
    fetches: Semaphore,
}

/// What a call has found so far.
struct Answers<V> {
    values: Vec<Option<Arc<V>>>,
    /// The oldest of them is true since then.
    since: Instant,
}

impl<V> Answers<V> {
    fn set(&mut self, place: usize, held: Held<V>) {
        self.since = self.since.min(held.since);
        self.values[place] = held.value;
    }
}

/// A key that a call fills, and where its answer goes.
type Own<'a, K, V> = (usize, Claimed<'a, K, V>, K);

impl<K: CacheKey, V: Serialize + DeserializeOwned + Send + Sync + 'static> VersionedCache<K, V> {
    /// A cache on these tiers; `weigh` tells the bytes that a row takes, about.
    pub fn new(
        tiers: &Tiers,
        settings: &CacheSettings,
        weigh: fn(&V) -> usize,
        metrics: &Metrics,
    ) -> Self {
        if matches!(tiers, Tiers::Off) {
            return Self { open: None };
        }
        let open = Open {
            memory: Memory::new(settings, MANY, weigh),
            shared: tiers.redis().map(|redis| Shared::new(redis, settings)),
            puts: Marks::new(FEW),
            counters: Counters::new(metrics, settings.name),
            heat: (settings.hot_asks > 0 && tiers.redis().is_some()).then(Heat::new),
            hot_asks: settings.hot_asks,
            announces: settings.announces,
            fetches: Semaphore::new(MAX_FETCHES),
        };
        Self { open: Some(open) }
    }

    /// The rows with these keys, in their order; `None` where there is none.
    ///
    /// Keys that are not at hand are read by `fetch`, which answers with an entry for each key it
    /// gets, in their order. A key is read by one call at a time: a call first reads, at once, all
    /// keys that nobody else reads, and then waits for the others. It reads those that did not
    /// come, so `fetch` is called more than once now and then, but never twice for one key.
    pub async fn get_many<E, F, Fut>(&self, keys: &[K], fetch: F) -> Result<Vec<Option<Arc<V>>>, E>
    where
        F: FnMut(Vec<K>) -> Fut,
        Fut: Future<Output = Result<Vec<Entry<V>>, E>>,
    {
        self.get_many_within(keys, Duration::MAX, fetch).await
    }

    /// The same for a caller to whom an answer may be no older than `age`.
    pub async fn get_many_within<E, F, Fut>(
        &self,
        keys: &[K],
        age: Duration,
        mut fetch: F,
    ) -> Result<Vec<Option<Arc<V>>>, E>
    where
        F: FnMut(Vec<K>) -> Fut,
        Fut: Future<Output = Result<Vec<Entry<V>>, E>>,
    {
        let Some(open) = &self.open else {
            let entries = if keys.is_empty() { Vec::new() } else { fetch(keys.to_vec()).await? };
            let mut values: Vec<_> = entries.into_iter().map(|entry| entry.value).collect();
            values.resize(keys.len(), None);
            return Ok(values);
        };
        let asked = Instant::now();
        // There is none while the machine's clock is younger than the age.
        let oldest = open.memory.oldest(asked).max(asked.checked_sub(age));
        if let Some(heat) = &open.heat {
            let second = heat.second(asked);
            for key in keys {
                heat.note(key, second);
            }
        }
        let mut answers = Answers { values: vec![None; keys.len()], since: asked };
        let mut missing = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            match open.memory.get(key, oldest) {
                Some(held) => answers.set(place, held),
                None => missing.push(place),
            }
        }
        open.counters.memory.note(keys.len() - missing.len(), missing.len());
        if !missing.is_empty() {
            // In a box, so that the future of a call that finds everything stays small.
            let moments = (asked, oldest);
            Box::pin(open.fill(keys, missing, moments, &mut answers, fetch)).await?;
        }
        trail::note(&open.memory.source, asked, answers.since, keys);
        Ok(answers.values)
    }

    /// Takes over what was just written through this instance: visible in memory at once, and in
    /// Redis soon. An entry with a larger version is left as it is. Its age counts from now.
    pub fn put(&self, key: K, entry: Entry<V>) {
        self.put_since(key, entry, Instant::now());
    }

    /// The same for what was true at a moment: one before it was written, where others write too.
    pub fn put_since(&self, key: K, entry: Entry<V>, since: Instant) {
        let Some(open) = &self.open else { return };
        // Before the entry itself: who does not find it in memory must not take an older one.
        open.puts.mark(&key);
        let text = key.redis_key();
        let held = open.memory.weigh(text.len(), entry.version, entry.value, since);
        match &open.shared {
            Some(shared) if open.announces => shared.announce(&text, held.clone()),
            Some(shared) => {
                shared.store(vec![(shared.key(&text), held.clone())], Urgency::Change);
            }
            None => {}
        }
        drop(text);
        open.memory.put(key, held);
    }

    /// From now on entries in memory are answered with until they are this old.
    pub fn set_max_age(&self, max_age: Duration) {
        if let Some(open) = &self.open {
            open.memory.source.set_max_age(max_age);
        }
    }
}

impl<K: ReadableKey, V: Serialize + DeserializeOwned + Send + Sync + 'static> VersionedCache<K, V> {
    /// Takes over what other instances put, as soon as they say so, and passes it on to `told`.
    /// While nobody can be heard, entries are answered with until they are `deaf_age` old.
    pub fn listen(
        self: &Arc<Self>,
        deaf_age: Duration,
        told: impl Fn(K, Entry<V>) + Send + Sync + 'static,
    ) {
        let Some(shared) = self.open.as_ref().and_then(|open| open.shared.as_ref()) else { return };
        let this = Arc::downgrade(self);
        let hear = move |message: &[u8]| {
            let Some(this) = this.upgrade() else { return false };
            if let Some((key, entry)) = this.hear(message) {
                told(key, entry);
            }
            true
        };
        let mut listening = shared.redis.listen(shared.channel(), hear);
        let (mut in_use, max_age) = (shared.redis.in_use(), shared.max_age);
        let this = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                let hears = *listening.borrow_and_update() && *in_use.borrow_and_update();
                let set = |age| this.upgrade().map(|cache| cache.set_max_age(age)).is_some();
                if !set(deaf_age) {
                    return;
                }
                let grow = async {
                    // What was missed before it began to listen is too old by then.
                    if hears {
                        tokio::time::sleep(max_age).await;
                        set(max_age);
                    }
                    std::future::pending::<()>().await;
                };
                let changed = tokio::select! {
                    changed = listening.changed() => changed,
                    changed = in_use.changed() => changed,
                    () = grow => return,
                };
                if changed.is_err() {
                    return;
                }
            }
        });
    }

    fn hear(&self, message: &[u8]) -> Option<(K, Entry<V>)> {
        let open = self.open.as_ref()?;
        let (text, found) = open.shared.as_ref()?.heard::<V>(message)?;
        let key = K::from_redis_key(text)?;
        let entry = Entry { version: found.version, value: found.value.clone() };
        let held = open.memory.weigh(text.len(), found.version, found.value, found.since);
        open.memory.put_if_known(&key, held);
        Some((key, entry))
    }
}

impl<K: CacheKey, V: Serialize + DeserializeOwned + Send + Sync + 'static> Open<K, V> {
    /// Answers the `missing` places of `keys`.
    async fn fill<E, F, Fut>(
        &self,
        keys: &[K],
        mut missing: Vec<usize>,
        (asked, oldest): (Instant, Option<Instant>),
        answers: &mut Answers<V>,
        mut fetch: F,
    ) -> Result<(), E>
    where
        F: FnMut(Vec<K>) -> Fut,
        Fut: Future<Output = Result<Vec<Entry<V>>, E>>,
    {
        let deadline = asked + MAX_WAIT;
        let (mut now, mut waits) = (asked, 0);
        while !missing.is_empty() {
            let may_wait = waits < MAX_WAITS && now < deadline;
            waits += 1;
            let mut own: Vec<Own<'_, K, V>> = Vec::new();
            let mut others = Vec::new();
            for place in missing.drain(..) {
                let key = &keys[place];
                // A key that is asked for twice is filled by this very call.
                let is_own = !may_wait && own.iter().any(|(_, _, other)| other == key);
                match self.memory.claim(key, now, oldest, may_wait || is_own) {
                    Claim::Held(held) => answers.set(place, held),
                    Claim::Wait(flight) => others.push((place, flight)),
                    Claim::Mine(claimed) => own.push((place, claimed, key.clone())),
                }
            }
            // Own keys before the wait: two calls that need each other's keys both come to an end.
            if !own.is_empty() {
                self.fill_own(own, oldest, answers, &mut fetch).await?;
            }
            for (place, flight) in others {
                match timeout_at(deadline, flight.wait()).await {
                    Ok(Some(held)) if held.is_fresh(oldest) => answers.set(place, held),
                    _ => missing.push(place),
                }
            }
            now = Instant::now();
        }
        Ok(())
    }

    /// Fills keys from Redis, and those that are not there with one read.
    async fn fill_own<E, F, Fut>(
        &self,
        own: Vec<Own<'_, K, V>>,
        oldest: Option<Instant>,
        answers: &mut Answers<V>,
        fetch: &mut F,
    ) -> Result<(), E>
    where
        F: FnMut(Vec<K>) -> Fut,
        Fut: Future<Output = Result<Vec<Entry<V>>, E>>,
    {
        let own = self.take_from_redis(own, oldest, answers).await;
        if own.is_empty() {
            return Ok(());
        }
        // Closed by nobody.
        let _permit = self.fetches.acquire().await;
        let since = Instant::now();
        let entries = fetch(own.iter().map(|(_, _, key)| key.clone()).collect()).await?;
        let mut fetched = Vec::with_capacity(own.len());
        for ((place, claimed, key), entry) in own.into_iter().zip(entries) {
            let text = key.redis_key();
            let held = self.memory.weigh(text.len(), entry.version, entry.value, since);
            let (best, kept) = claimed.complete(held);
            answers.set(place, best.clone());
            if let (true, Some(shared)) = (kept && self.is_hot(&key), &self.shared) {
                fetched.push((shared.key(&text), best));
            }
        }
        if let Some(shared) = &self.shared {
            shared.store(fetched, Urgency::StoreBack);
        }
        Ok(())
    }

    /// Fills what Redis has, in one round trip; the keys that remain.
    async fn take_from_redis<'a>(
        &self,
        own: Vec<Own<'a, K, V>>,
        oldest: Option<Instant>,
        answers: &mut Answers<V>,
    ) -> Vec<Own<'a, K, V>> {
        let Some(shared) = &self.shared else { return own };
        let (own, mut remaining): (Vec<_>, Vec<_>) =
            own.into_iter().partition(|(_, _, key)| self.is_hot(key));
        if own.is_empty() {
            return remaining;
        }
        let names: Vec<_> = own.iter().map(|(_, _, key)| shared.key(&key.redis_key())).collect();
        let Some(found) = shared.find::<V>(&names).await else {
            remaining.extend(own);
            return remaining;
        };
        let (asked, cold) = (own.len(), remaining.len());
        for ((place, claimed, key), found) in own.into_iter().zip(found) {
            let fresh = found.filter(|found| {
                Some(found.since) > oldest && Some(found.since) > self.puts.last(&key)
            });
            match fresh {
                Some(found) => {
                    let bytes = key.redis_key().len();
                    let held = self.memory.weigh(bytes, found.version, found.value, found.since);
                    answers.set(place, claimed.complete(held).0);
                }
                None => remaining.push((place, claimed, key)),
            }
        }
        let missed = remaining.len() - cold;
        self.counters.redis.note(asked - missed, missed);
        remaining
    }

    /// Whether a key is asked for often enough to be worth a place in Redis.
    fn is_hot(&self, key: &K) -> bool {
        let hot = |heat: &Heat| heat.count(key, heat.second(Instant::now())) >= self.hot_asks;
        self.heat.as_ref().is_none_or(hot)
    }
}

#[cfg(test)]
mod tests;
