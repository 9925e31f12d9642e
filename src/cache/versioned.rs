//! A cache of rows that have versions.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::heat::Heat;
use super::marks::Marks;
use super::memory::{Claim, Claimed, Memory};
use super::shared::{Shared, Urgency};
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
            memory: Memory::new(settings, weigh),
            shared: tiers.redis().map(|redis| Shared::new(redis, settings)),
            puts: Marks::new(),
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
        let mut answers = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        for (place, key) in keys.iter().enumerate() {
            let held = open.memory.get(key, oldest);
            if held.is_none() {
                missing.push(place);
            }
            answers.push(held.and_then(|held| held.value));
        }
        open.counters.memory.note(keys.len() - missing.len(), missing.len());
        if !missing.is_empty() {
            // In a box, so that the future of a call that finds everything stays small.
            let moments = (asked, oldest);
            Box::pin(open.fill(keys, missing, moments, &mut answers, fetch)).await?;
        }
        Ok(answers)
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
            open.memory.set_max_age(max_age);
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
        answers: &mut [Option<Arc<V>>],
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
                    Claim::Held(held) => answers[place] = held.value,
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
                    Ok(Some(held)) if held.is_fresh(oldest) => answers[place] = held.value,
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
        answers: &mut [Option<Arc<V>>],
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
            answers[place].clone_from(&best.value);
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
        answers: &mut [Option<Arc<V>>],
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
                    answers[place] = claimed.complete(held).0.value;
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
mod tests {
    use std::collections::HashMap;
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::sync::{Barrier, Semaphore, oneshot};
    use tokio::time::{advance, sleep, timeout};

    use super::*;

    const MAX_AGE: Duration = Duration::from_millis(500);

    type Rows = VersionedCache<String, i64>;

    fn settings(capacity_bytes: u64) -> CacheSettings {
        CacheSettings {
            name: "rows",
            prefix: "test".to_owned(),
            max_age: MAX_AGE,
            capacity_bytes,
            expected_entries: 1_000,
            hot_asks: 0,
            announces: false,
        }
    }

    fn cache() -> Arc<Rows> {
        cache_of(1 << 20)
    }

    fn cache_of(capacity_bytes: u64) -> Arc<Rows> {
        build(&settings(capacity_bytes))
    }

    /// For tests under the real clock: nothing gets too old, however slow the machine is.
    fn ageless(capacity_bytes: u64) -> Arc<Rows> {
        let max_age = Duration::from_secs(3_600);
        build(&CacheSettings { max_age, ..settings(capacity_bytes) })
    }

    fn build(settings: &CacheSettings) -> Arc<Rows> {
        let metrics = Metrics::default();
        Arc::new(VersionedCache::new(&Tiers::Memory, settings, |_| 8, &metrics))
    }

    fn keys(names: &str) -> Vec<String> {
        names.chars().map(String::from).collect()
    }

    fn entry(version: i64) -> Entry<i64> {
        Entry { version, value: Some(Arc::new(version)) }
    }

    fn plain(answers: Vec<Option<Arc<i64>>>) -> Vec<Option<i64>> {
        answers.into_iter().map(|answer| answer.map(|value| *value)).collect()
    }

    /// Reads keys from a store where every row has `version`, and notes which were read.
    async fn read(cache: &Rows, names: &str, version: i64) -> (Vec<Option<i64>>, String) {
        let (keys, mut fetched) = (keys(names), String::new());
        let answers = cache.get_many(&keys, |keys: Vec<String>| {
            fetched.push_str(&keys.concat());
            async move { Ok::<_, Infallible>(vec![entry(version); keys.len()]) }
        });
        let answers = plain(answers.await.unwrap());
        (answers, fetched)
    }

    /// A read of one key that has begun and brings what is sent to it.
    async fn begin(
        cache: &Arc<Rows>,
        name: &str,
    ) -> (tokio::task::JoinHandle<Result<Option<i64>, ()>>, oneshot::Sender<Result<i64, ()>>) {
        let (begun, has_begun) = oneshot::channel();
        let (bring, brought) = oneshot::channel::<Result<i64, ()>>();
        let (cache, keys) = (cache.clone(), keys(name));
        let reader = tokio::spawn(async move {
            let mut once = Some((begun, brought));
            let answers = cache.get_many(&keys, |_| {
                let (begun, brought) = once.take().expect("read once");
                begun.send(()).unwrap();
                async move { brought.await.unwrap().map(|version| vec![entry(version)]) }
            });
            Ok(answers.await?[0].as_deref().copied())
        });
        has_begun.await.unwrap();
        (reader, bring)
    }

    fn nothing_is_blocked(cache: &Rows) {
        assert_eq!(cache.open.as_ref().unwrap().memory.fills_under_way(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_in_order_and_reads_what_is_missing_once() {
        let cache = cache();
        assert_eq!(read(&cache, "ab", 1).await, (vec![Some(1); 2], "ab".to_owned()));
        let mixed = read(&cache, "cbdac", 2).await;
        assert_eq!(mixed, (vec![Some(2), Some(1), Some(2), Some(1), Some(2)], "cd".to_owned()));
        assert_eq!(read(&cache, "", 3).await, (vec![], String::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn knows_that_there_is_none() {
        let cache = cache();
        cache.put("a".to_owned(), Entry { version: 1, value: None });
        assert_eq!(read(&cache, "a", 2).await, (vec![None], String::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn age_counts_from_before_the_read() {
        let cache = cache();
        let slow = |keys: Vec<String>| async move {
            sleep(Duration::from_millis(300)).await;
            Ok::<_, Infallible>(vec![entry(1); keys.len()])
        };
        cache.get_many(&keys("a"), slow).await.unwrap();
        advance(Duration::from_millis(199)).await;
        assert_eq!(read(&cache, "a", 2).await, (vec![Some(1)], String::new()));
        advance(Duration::from_millis(1)).await;
        assert_eq!(read(&cache, "a", 2).await, (vec![Some(2)], "a".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fresh_read_replaces_a_row_that_is_too_old_whatever_its_version() {
        let cache = cache();
        cache.put("a".to_owned(), entry(9));
        advance(MAX_AGE).await;
        assert_eq!(read(&cache, "a", 1).await, (vec![Some(1)], "a".to_owned()));
        assert_eq!(read(&cache, "a", 2).await, (vec![Some(1)], String::new()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hundred_calls_read_each_key_once() {
        let cache = ageless(1 << 20);
        let reads = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
        // Every call overlaps with its neighbours, half of them the other way round. The first one
        // brings nothing before all have begun.
        let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let calls = (0..100).map(|call| {
            let mut keys: Vec<_> = (call..call + 10).map(|n| (n % 50).to_string()).collect();
            if call % 2 == 0 {
                keys.reverse();
            }
            let (cache, reads) = (cache.clone(), reads.clone());
            let (begun, gate) = (begun.clone(), gate.clone());
            tokio::spawn(async move {
                if begun.fetch_add(1, Ordering::SeqCst) == 99 {
                    gate.add_permits(1);
                }
                let answers = cache.get_many(&keys, |keys: Vec<String>| {
                    let (reads, gate) = (reads.clone(), gate.clone());
                    async move {
                        drop(gate.acquire().await.unwrap());
                        for key in &keys {
                            *reads.lock().unwrap().entry(key.clone()).or_default() += 1;
                        }
                        Ok::<_, Infallible>(
                            keys.iter().map(|k| entry(k.parse().unwrap())).collect(),
                        )
                    }
                });
                let expected: Vec<i64> = keys.iter().map(|key| key.parse().unwrap()).collect();
                let answers: Vec<i64> =
                    answers.await.unwrap().into_iter().map(|v| *v.unwrap()).collect();
                assert_eq!(answers, expected);
            })
        });
        for call in join_all(calls).await {
            call.unwrap();
        }
        let reads = reads.lock().unwrap();
        assert_eq!(reads.len(), 50);
        assert!(reads.values().all(|count| *count == 1), "{reads:?}");
        nothing_is_blocked(&cache);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_need_each_others_keys_come_to_an_end() {
        let cache = cache();
        // Both hold a key of the other before either goes on.
        let both = Barrier::new(2);
        let call = async |names: &str| {
            let keys = keys(names);
            let answers = cache.get_many(&keys, |keys: Vec<String>| {
                let both = &both;
                async move {
                    assert_eq!(keys.len(), 2, "{keys:?}");
                    both.wait().await;
                    Ok::<_, Infallible>(vec![entry(1); keys.len()])
                }
            });
            answers.await.unwrap().len()
        };
        // The second finds `b` and `a` taken and reads `c` and `d`; the first waits for `d`.
        let first = async {
            call("ab").await;
            read(&cache, "dcba", 2).await
        };
        let second = call("cdba");
        let ((answers, fetched), count) = tokio::join!(first, second);
        assert_eq!((answers, fetched.as_str(), count), (vec![Some(1); 4], "", 4));
        nothing_is_blocked(&cache);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_reads_itself_when_the_reader_goes_away() {
        let cache = cache();
        let (reader, _bring) = begin(&cache, "a").await;
        let waiter = tokio::spawn({
            let cache = cache.clone();
            async move { read(&cache, "ab", 2).await }
        });
        tokio::task::yield_now().await;
        let asked = Instant::now();
        reader.abort();
        assert_eq!(waiter.await.unwrap(), (vec![Some(2); 2], "ba".to_owned()));
        assert_eq!(asked.elapsed(), Duration::ZERO);
        nothing_is_blocked(&cache);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_reads_itself_when_the_reader_fails() {
        let cache = cache();
        let (reader, bring) = begin(&cache, "a").await;
        let asked = Instant::now();
        let waiters = (0..10).map(|_| read(&cache, "a", 2));
        let (answers, ()) = tokio::join!(join_all(waiters), async {
            bring.send(Err(())).unwrap();
        });
        assert_eq!(reader.await.unwrap(), Err(()));
        assert!(answers.iter().all(|(answer, _)| answer == &[Some(2)]));
        let reads: String = answers.into_iter().map(|(_, fetched)| fetched).collect();
        assert_eq!(reads, "a", "one of them reads for all");
        assert_eq!(asked.elapsed(), Duration::ZERO);
        nothing_is_blocked(&cache);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_keeps_failing_fails_everybody_soon() {
        let cache = cache();
        let (keys, asked) = (keys("a"), Instant::now());
        let calls = (0..20).map(|_| {
            cache.get_many(&keys, |_| async {
                sleep(Duration::from_millis(10)).await;
                Err::<Vec<Entry<i64>>, _>(())
            })
        });
        assert!(join_all(calls).await.iter().all(Result::is_err));
        assert_eq!(asked.elapsed(), Duration::from_millis(30));
        nothing_is_blocked(&cache);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_has_an_end() {
        let cache = cache();
        let (reader, bring) = begin(&cache, "a").await;
        let asked = Instant::now();
        assert_eq!(read(&cache, "a", 2).await, (vec![Some(2)], "a".to_owned()));
        assert_eq!(asked.elapsed(), MAX_WAIT);
        // What the slow one brings in the end is its own, and replaces nothing.
        bring.send(Ok(1)).unwrap();
        assert_eq!(reader.await.unwrap(), Ok(Some(1)));
        assert_eq!(read(&cache, "a", 3).await, (vec![Some(2)], String::new()));
        nothing_is_blocked(&cache);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_an_answer_that_will_be_too_old() {
        let cache = cache();
        let (_reader, _bring) = begin(&cache, "a").await;
        advance(MAX_AGE).await;
        let asked = Instant::now();
        assert_eq!(read(&cache, "a", 2).await, (vec![Some(2)], "a".to_owned()));
        assert_eq!(asked.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn an_older_row_never_follows_one_that_was_put() {
        // With memory for the row, and with memory for nothing.
        for capacity in [1 << 20, 1] {
            let cache = cache_of(capacity);
            let (reader, bring) = begin(&cache, "a").await;
            let waiter = tokio::spawn({
                let cache = cache.clone();
                async move { read(&cache, "a", 3).await }
            });
            tokio::task::yield_now().await;
            cache.put("a".to_owned(), entry(2));
            // Who waits need not wait any longer.
            assert_eq!(waiter.await.unwrap(), (vec![Some(2)], String::new()));
            bring.send(Ok(1)).unwrap();
            assert_eq!(reader.await.unwrap(), Ok(Some(2)));
            let (answers, fetched) = read(&cache, "a", 4).await;
            match capacity {
                1 => assert_eq!((answers, fetched.as_str()), (vec![Some(4)], "a")),
                _ => assert_eq!((answers, fetched.as_str()), (vec![Some(2)], "")),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_larger_version_stays_whatever_comes_later() {
        let cache = cache();
        cache.put("a".to_owned(), entry(5));
        cache.put("a".to_owned(), entry(4));
        assert_eq!(read(&cache, "a", 9).await, (vec![Some(5)], String::new()));
        cache.put("a".to_owned(), Entry { version: 6, value: None });
        cache.put("a".to_owned(), entry(5));
        assert_eq!(read(&cache, "a", 9).await, (vec![None], String::new()));
        cache.put("b".to_owned(), entry(i64::MIN));
        cache.put("b".to_owned(), entry(-1));
        assert_eq!(read(&cache, "b", 9).await, (vec![Some(-1)], String::new()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_put_is_what_is_read_under_load() {
        const KEYS: usize = 8;
        // Memory for about half of the keys, so that entries come and go.
        let cache = ageless(2_000);
        let store: Arc<Vec<AtomicI64>> = Arc::new((0..KEYS).map(|_| AtomicI64::new(0)).collect());
        let put: Arc<Vec<AtomicI64>> = Arc::new((0..KEYS).map(|_| AtomicI64::new(0)).collect());
        let readers = (0..6usize).map(|reader| {
            let (cache, store, put) = (cache.clone(), store.clone(), put.clone());
            tokio::spawn(async move {
                for turn in 0..2_000 {
                    let row = (turn + reader) % KEYS;
                    if reader == 0 {
                        // The only writer: it commits, then puts, then tells that it has.
                        let version = store[row].fetch_add(1, Ordering::SeqCst) + 1;
                        cache.put(row.to_string(), entry(version));
                        put[row].store(version, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        continue;
                    }
                    let rows = [row, (row + reader) % KEYS];
                    let least = rows.map(|row| put[row].load(Ordering::SeqCst));
                    let keys = rows.map(|row| row.to_string());
                    let answers = cache.get_many(&keys, |keys| {
                        let store = store.clone();
                        async move {
                            let version = |key: &String| {
                                store[key.parse::<usize>().unwrap()].load(Ordering::SeqCst)
                            };
                            let versions: Vec<i64> = keys.iter().map(version).collect();
                            tokio::task::yield_now().await;
                            Ok::<_, Infallible>(versions.into_iter().map(entry).collect())
                        }
                    });
                    for (answer, least) in answers.await.unwrap().into_iter().zip(least) {
                        let answer = *answer.unwrap();
                        assert!(answer >= least, "{answer} was read after {least} was put");
                    }
                }
            })
        });
        for reader in join_all(readers).await {
            reader.unwrap();
        }
        nothing_is_blocked(&cache);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_by_weight() {
        let cache = cache_of(100_000);
        for n in 0..10_000 {
            cache.put(n.to_string(), entry(1));
        }
        let bytes = cache.open.as_ref().unwrap().memory.bytes();
        assert!((50_000..=100_000).contains(&bytes), "{bytes}");
    }

    #[tokio::test(start_paused = true)]
    async fn off_it_only_reads() {
        let cache: Rows =
            VersionedCache::new(&Tiers::Off, &settings(1 << 20), |_| 8, &Metrics::default());
        cache.put("a".to_owned(), entry(9));
        for version in 1..3 {
            let read = read(&cache, "aa", version).await;
            assert_eq!(read, (vec![Some(version); 2], "aa".to_owned()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn counts_hits_and_misses() {
        let metrics = Metrics::default();
        let cache = VersionedCache::new(&Tiers::Memory, &settings(1 << 20), |_| 8, &metrics);
        let ((), reads) = crate::telemetry::OperationStats::collect(async {
            read(&cache, "ab", 1).await;
            read(&cache, "abc", 1).await;
        })
        .await;
        assert_eq!((reads.store_reads, reads.cache_hits), (0, 2));
        let text = metrics.encode();
        let line = |result, count| {
            let labels = format!("cache=\"rows\",tier=\"memory\",result=\"{result}\"");
            format!("vitrina_cache_lookups_total{{{labels}}} {count}")
        };
        assert!(text.contains(&line("hit", 2)) && text.contains(&line("miss", 3)), "{text}");
    }

    #[tokio::test]
    async fn its_future_can_move_between_threads() {
        fn is_send<T: Send>(value: T) -> T {
            value
        }
        let cache = cache();
        let fetch =
            |keys: Vec<String>| async move { Ok::<_, Infallible>(vec![entry(1); keys.len()]) };
        let answers = timeout(MAX_WAIT, is_send(cache.get_many(&keys("a"), fetch))).await;
        assert_eq!(plain(answers.unwrap().unwrap()), [Some(1)]);
    }
}
