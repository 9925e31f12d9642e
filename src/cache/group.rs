//! A cache of answers that are thrown away by groups.

use std::hash::Hash;
use std::sync::Arc;

use quick_cache::Equivalent;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::marks::FEW;
use super::memory::{Claim, Claimed, Memory};
use super::shared::Shared;
use super::trail;
use super::{CacheKey, CacheSettings, Counters, MAX_WAIT, MAX_WAITS, Tiers};
use crate::telemetry::Metrics;

/// A read cache of answers that many rows make up. Each belongs to a group.
///
/// An answer was true at a moment that is no more than `max_age` before the call, and after the
/// last [`invalidate`](Self::invalidate) of its group through this instance.
pub struct GroupCache<K: CacheKey, V> {
    /// `None` if it is off.
    open: Option<Open<K, V>>,
}

struct Open<K: CacheKey, V> {
    /// Its marks say when a group was changed. An entry that is older is as good as gone, so nothing
    /// has to be searched for or removed, and a fill under way cannot bring anything back.
    memory: Memory<GroupKey<K>, V>,
    shared: Option<Shared>,
    counters: Counters,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct GroupKey<K> {
    group: Box<str>,
    key: K,
}

/// The same without owning it, to look a key up. It must hash alike.
#[derive(Hash)]
struct GroupKeyRef<'a, K> {
    group: &'a str,
    key: &'a K,
}

impl<K: Eq> Equivalent<GroupKey<K>> for GroupKeyRef<'_, K> {
    fn equivalent(&self, other: &GroupKey<K>) -> bool {
        self.key == &other.key && self.group == &*other.group
    }
}

impl<K: CacheKey, V: Serialize + DeserializeOwned + Send + Sync + 'static> GroupCache<K, V> {
    /// A cache on these tiers; `weigh` tells the bytes that an answer takes, about.
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
            memory: Memory::new(settings, FEW, weigh),
            shared: tiers.redis().map(|redis| Shared::new(redis, settings)),
            counters: Counters::new(metrics, settings.name),
        };
        Self { open: Some(open) }
    }

    /// The answer to `key` in a group; `fetch` reads it if it is not at hand. It is read by one
    /// call at a time; the others wait for that one, and read themselves if it fails.
    pub async fn get<E, F, Fut>(&self, group: &str, key: K, fetch: F) -> Result<Arc<V>, E>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<V, E>>,
    {
        let Some(open) = &self.open else { return fetch().await.map(Arc::new) };
        let asked = Instant::now();
        let oldest = open.oldest(group, asked);
        let held = open.memory.get(&GroupKeyRef { group, key: &key }, oldest);
        let found = held.and_then(|held| Some((held.value?, held.since)));
        open.counters.memory.note(usize::from(found.is_some()), usize::from(found.is_none()));
        let (value, since) = match found {
            Some(found) => found,
            // In a box, so that the future of a call that finds its answer stays small.
            None => Box::pin(open.fill(group, key, asked, oldest, fetch)).await?,
        };
        trail::note(&open.memory.source, asked, since, [group]);
        Ok(value)
    }

    /// Notes that something of a group is read which is not cached, for whoever makes something of
    /// it. Said before it is read.
    pub fn is_read(&self, group: &str) {
        if let Some(open) = &self.open {
            let now = Instant::now();
            trail::note(&open.memory.source, now, now, [group]);
        }
    }

    /// Throws all answers of a group away after a write through this instance: at once in memory,
    /// soon in Redis. What is being read meanwhile is not kept.
    pub fn invalidate(&self, group: &str) {
        let Some(open) = &self.open else { return };
        open.memory.source.changes.mark(group);
        if let Some(shared) = &open.shared {
            shared.change_group(group);
        }
    }
}

impl<K: CacheKey, V: Serialize + DeserializeOwned + Send + Sync + 'static> Open<K, V> {
    /// The moment that is too old for a group.
    fn oldest(&self, group: &str, asked: Instant) -> Option<Instant> {
        self.memory.oldest(asked).max(self.memory.source.changes.last(group))
    }

    /// The answer, and since when it is true.
    async fn fill<E, F, Fut>(
        &self,
        group: &str,
        key: K,
        asked: Instant,
        oldest: Option<Instant>,
        fetch: F,
    ) -> Result<(Arc<V>, Instant), E>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<V, E>>,
    {
        let key = GroupKey { group: group.into(), key };
        let claimed = match self.claim(&key, asked, oldest).await {
            Ok(claimed) => claimed,
            Err(found) => return Ok(found),
        };
        let text = key.key.redis_key();
        let bytes = text.len() + group.len();
        let names = self.shared.as_ref().map(|shared| shared.group_keys(group, &text));
        let mut found = None;
        if let (Some(shared), Some(names)) = (&self.shared, &names)
            && let Some(answer) = shared.find_in_group::<V>(names).await
        {
            found = answer.filter(|found| Some(found.since) > oldest);
            self.counters.redis.note(usize::from(found.is_some()), usize::from(found.is_none()));
        }
        if let Some((value, found)) = found.and_then(|found| Some((found.value.clone()?, found))) {
            claimed.complete(self.memory.weigh(bytes, found.version, found.value, found.since));
            return Ok((value, found.since));
        }
        let since = Instant::now();
        let value = Arc::new(fetch().await?);
        let held = self.memory.weigh(bytes, 0, Some(value.clone()), since);
        let (held, kept) = claimed.complete(held);
        if let (true, Some(shared), Some(names)) = (kept, &self.shared, names) {
            shared.store_in_group(names, held);
        }
        Ok((value, since))
    }

    /// Waits for whoever fills a key, for a time; the answer, or the right to fill it.
    async fn claim<'a>(
        &'a self,
        key: &GroupKey<K>,
        asked: Instant,
        oldest: Option<Instant>,
    ) -> Result<Claimed<'a, GroupKey<K>, V>, (Arc<V>, Instant)> {
        let deadline = asked + MAX_WAIT;
        let (mut now, mut waits) = (asked, 0);
        loop {
            let may_wait = waits < MAX_WAITS && now < deadline;
            waits += 1;
            let held = match self.memory.claim(key, now, oldest, may_wait) {
                Claim::Mine(claimed) => return Ok(claimed),
                Claim::Held(held) => Some(held),
                Claim::Wait(flight) => timeout_at(deadline, flight.wait()).await.ok().flatten(),
            };
            let fresh = held.filter(|held| held.is_fresh(oldest));
            if let Some(found) = fresh.and_then(|held| Some((held.value?, held.since))) {
                return Err(found);
            }
            now = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;
    use tokio::time::{advance, sleep};

    use super::*;

    const MAX_AGE: Duration = Duration::from_millis(500);
    /// Two events of one moment cannot be told apart, and the clock of a test stands still.
    const TICK: Duration = Duration::from_millis(1);

    type Pages = GroupCache<String, i64>;

    fn settings() -> CacheSettings {
        CacheSettings {
            name: "pages",
            prefix: "test".to_owned(),
            max_age: MAX_AGE,
            capacity_bytes: 1 << 20,
            expected_entries: 1_000,
            hot_asks: 0,
            announces: false,
        }
    }

    fn cache() -> Arc<Pages> {
        Arc::new(GroupCache::new(&Tiers::Memory, &settings(), |_| 8, &Metrics::default()))
    }

    /// The answer where the store has `value`.
    async fn read(cache: &Pages, group: &str, key: &str, value: i64) -> i64 {
        let fetch = || async move { Ok::<_, Infallible>(value) };
        *cache.get(group, key.to_owned(), fetch).await.unwrap()
    }

    /// A read that has begun and brings what is sent to it.
    async fn begin(
        cache: &Arc<Pages>,
    ) -> (JoinHandle<Result<i64, ()>>, oneshot::Sender<Result<i64, ()>>) {
        let (begun, has_begun) = oneshot::channel();
        let (bring, brought) = oneshot::channel();
        let cache = cache.clone();
        let reader = tokio::spawn(async move {
            let fetch = || async move {
                begun.send(()).unwrap();
                brought.await.unwrap()
            };
            cache.get("a", "1".to_owned(), fetch).await.map(|value| *value)
        });
        has_begun.await.unwrap();
        (reader, bring)
    }

    #[tokio::test(start_paused = true)]
    async fn answers_until_it_is_too_old() {
        let cache = cache();
        let slow = || async {
            sleep(Duration::from_millis(300)).await;
            Ok::<_, Infallible>(1)
        };
        cache.get("a", "1".to_owned(), slow).await.unwrap();
        advance(Duration::from_millis(199)).await;
        assert_eq!(read(&cache, "a", "1", 2).await, 1);
        assert_eq!(read(&cache, "a", "2", 2).await, 2);
        assert_eq!(read(&cache, "b", "1", 3).await, 3);
        advance(Duration::from_millis(1)).await;
        assert_eq!(read(&cache, "a", "1", 4).await, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_throws_the_whole_group_away() {
        let cache = cache();
        for (group, key) in [("a", "1"), ("a", "2"), ("b", "1")] {
            read(&cache, group, key, 1).await;
        }
        advance(TICK).await;
        cache.invalidate("a");
        advance(TICK).await;
        let read = async |group, key, value| read(&cache, group, key, value).await;
        assert_eq!((read("a", "1", 2).await, read("a", "2", 2).await), (2, 2));
        assert_eq!(read("b", "1", 2).await, 1);
        assert_eq!(read("a", "1", 3).await, 2, "it is kept again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_being_read_during_a_change_is_not_kept() {
        let cache = cache();
        let (reader, bring) = begin(&cache).await;
        cache.invalidate("a");
        advance(TICK).await;
        // Who asks after the change neither waits for the old read nor loses to it.
        assert_eq!(read(&cache, "a", "1", 2).await, 2);
        bring.send(Ok(1)).unwrap();
        assert_eq!(reader.await.unwrap(), Ok(1));
        assert_eq!(read(&cache, "a", "1", 3).await, 2);

        let (reader, bring) = {
            advance(MAX_AGE).await;
            begin(&cache).await
        };
        cache.invalidate("a");
        advance(TICK).await;
        bring.send(Ok(4)).unwrap();
        assert_eq!(reader.await.unwrap(), Ok(4));
        assert_eq!(read(&cache, "a", "1", 5).await, 5);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hundred_calls_read_once() {
        // Nothing gets too old, however slow the machine is.
        let settings = CacheSettings { max_age: Duration::from_secs(3_600), ..settings() };
        let cache = GroupCache::new(&Tiers::Memory, &settings, |_| 8, &Metrics::default());
        let (cache, reads) = (Arc::new(cache), Arc::new(AtomicUsize::new(0)));
        let calls = (0..100).map(|_| {
            let (cache, reads) = (cache.clone(), reads.clone());
            tokio::spawn(async move {
                let fetch = || async {
                    reads.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    Ok::<_, Infallible>(1)
                };
                *cache.get("a", "1".to_owned(), fetch).await.unwrap()
            })
        });
        assert!(join_all(calls).await.into_iter().all(|answer| answer.unwrap() == 1));
        assert_eq!(reads.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_reads_itself_when_the_reader_fails_or_goes_away() {
        for goes_away in [true, false] {
            let cache = cache();
            let (reader, bring) = begin(&cache).await;
            let waiter = tokio::spawn({
                let cache = cache.clone();
                async move { read(&cache, "a", "1", 2).await }
            });
            tokio::task::yield_now().await;
            let asked = Instant::now();
            if goes_away {
                reader.abort();
            } else {
                bring.send(Err(())).unwrap();
            }
            assert_eq!(waiter.await.unwrap(), 2);
            assert_eq!(asked.elapsed(), Duration::ZERO);
            assert_eq!(cache.open.as_ref().unwrap().memory.fills_under_way(), 0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_has_an_end() {
        let cache = cache();
        let (_reader, _bring) = begin(&cache).await;
        let asked = Instant::now();
        assert_eq!(read(&cache, "a", "1", 2).await, 2);
        assert_eq!(asked.elapsed(), MAX_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn off_it_only_reads() {
        let cache = GroupCache::new(&Tiers::Off, &settings(), |_| 8, &Metrics::default());
        cache.invalidate("a");
        assert_eq!(read(&cache, "a", "1", 1).await, 1);
        assert_eq!(read(&cache, "a", "1", 2).await, 2);
    }
}
