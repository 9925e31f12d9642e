//! The read caches on a real Redis. Two caches with one prefix are two instances of the shop.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use vitrina::cache::{CacheSettings, Entry, GroupCache, Redis, Tiers, VersionedCache};
use vitrina::config::{RedisConfig, Secret};
use vitrina::telemetry::Metrics;

use crate::support::redis::{PrivateRedis, free_port, redis_config, shared_redis};

/// Long enough for every step of a test on a slow machine.
const LONG: Duration = Duration::from_secs(60);
/// One time-out of the cache's, and as much for a slow machine as keeps two apart from it.
const ONE_TIMEOUT: Duration = Duration::from_millis(75);
/// Longer than the cache needs to notice that Redis is away or back.
const PATIENCE: Duration = Duration::from_secs(10);

/// One instance of the shop.
struct Instance {
    redis: Arc<Redis>,
    rows: Arc<VersionedCache<String, i64>>,
    pages: Arc<GroupCache<String, i64>>,
    metrics: Metrics,
}

fn new_prefix() -> String {
    format!("vitrina-test:{}", uuid::Uuid::new_v4().simple())
}

impl Instance {
    async fn open(config: &RedisConfig, prefix: &str) -> Self {
        Self::with(config, prefix, LONG, 1 << 20).await
    }

    async fn with(config: &RedisConfig, prefix: &str, max_age: Duration, bytes: u64) -> Self {
        let (redis, metrics) = (Redis::open(config).await, Metrics::default());
        let tiers = Tiers::Redis(redis.clone());
        let settings = |name| CacheSettings {
            name,
            prefix: prefix.to_owned(),
            max_age,
            capacity_bytes: bytes,
            expected_entries: 100,
            hot_asks: 0,
            announces: false,
        };
        let rows = VersionedCache::new(&tiers, &settings("rows"), |_| 8, &metrics);
        let pages = GroupCache::new(&tiers, &settings("pages"), |_| 8, &metrics);
        Self { redis, rows: Arc::new(rows), pages: Arc::new(pages), metrics }
    }

    /// The row where the store has `version`.
    async fn row(&self, key: &str, version: i64) -> i64 {
        let keys = [key.to_owned()];
        let fetch = |keys: Vec<String>| async move {
            Ok::<_, Infallible>(vec![entry(version); keys.len()])
        };
        *self.rows.get_many(&keys, fetch).await.unwrap()[0].clone().unwrap()
    }

    /// The row if it is there without a read from the store.
    async fn known_row(&self, key: &str) -> Option<i64> {
        let keys = [key.to_owned()];
        let fetch = |_| async { Err::<Vec<Entry<i64>>, _>(()) };
        let rows = self.rows.get_many(&keys, fetch).await.ok()?;
        Some(rows[0].as_deref().copied().unwrap_or_default())
    }

    async fn page(&self, group: &str, value: i64) -> i64 {
        let fetch = || async move { Ok::<_, Infallible>(value) };
        *self.pages.get(group, "1".to_owned(), fetch).await.unwrap()
    }

    async fn known_page(&self, group: &str) -> Option<i64> {
        let page = self.pages.get(group, "1".to_owned(), || async { Err::<i64, _>(()) });
        page.await.ok().map(|value| *value)
    }

    /// Puts a row, and waits until Redis has it.
    async fn put(&self, key: &str, entry: Entry<i64>) {
        self.rows.put(key.to_owned(), entry);
        self.redis.settled().await;
    }

    /// Waits until Redis is used or left alone.
    async fn until_in_use(&self, is: bool) {
        let mut in_use = self.redis.in_use();
        let change = in_use.wait_for(|in_use| *in_use == is);
        timeout(PATIENCE, change).await.expect("Redis comes and goes in time").unwrap();
    }

    fn count(&self, cache: &str, result: &str) -> u64 {
        let labels = format!("{{cache=\"{cache}\",tier=\"redis\",result=\"{result}\"}} ");
        let text = self.metrics.encode();
        let line = text.lines().find_map(|line| {
            line.strip_prefix("vitrina_cache_lookups_total")?.strip_prefix(&labels)
        });
        line.map_or(0, |count| count.parse().unwrap())
    }
}

fn entry(version: i64) -> Entry<i64> {
    Entry { version, value: Some(Arc::new(version)) }
}

/// A read that has begun in the store, and what lets it bring its answer.
type Begun = (JoinHandle<i64>, oneshot::Sender<i64>);

async fn begin_row(instance: &Instance, key: &str) -> Begun {
    let (begun, has_begun) = oneshot::channel();
    let (bring, brought) = oneshot::channel();
    let (rows, keys) = (instance.rows.clone(), [key.to_owned()]);
    let reader = tokio::spawn(async move {
        let mut once = Some((begun, brought));
        let rows = rows.get_many(&keys, |_| {
            let (begun, brought) = once.take().unwrap();
            begun.send(()).unwrap();
            async move { Ok::<_, Infallible>(vec![entry(brought.await.unwrap())]) }
        });
        *rows.await.unwrap()[0].clone().unwrap()
    });
    has_begun.await.unwrap();
    (reader, bring)
}

async fn begin_page(instance: &Instance, group: &'static str) -> Begun {
    let (begun, has_begun) = oneshot::channel();
    let (bring, brought) = oneshot::channel();
    let pages = instance.pages.clone();
    let reader = tokio::spawn(async move {
        let fetch = || async {
            begun.send(()).unwrap();
            Ok::<_, Infallible>(brought.await.unwrap())
        };
        *pages.get(group, "1".to_owned(), fetch).await.unwrap()
    });
    has_begun.await.unwrap();
    (reader, bring)
}

/// A connection of the test's own.
async fn direct(config: &RedisConfig) -> redis::aio::MultiplexedConnection {
    let url = format!("redis://{}:{}/{}", config.host, config.port, config.db);
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

#[tokio::test]
async fn what_one_instance_has_read_the_other_need_not_read() {
    let Some(config) = shared_redis() else { return };
    let prefix = new_prefix();
    let (a, b) = (Instance::open(&config, &prefix).await, Instance::open(&config, &prefix).await);
    assert_eq!((a.row("x", 1).await, a.page("g", 1).await), (1, 1));
    a.redis.settled().await;
    assert_eq!((b.known_row("x").await, b.known_page("g").await), (Some(1), Some(1)));
    assert_eq!((b.known_row("y").await, b.known_page("h").await), (None, None));
    for cache in ["rows", "pages"] {
        assert_eq!((b.count(cache, "hit"), b.count(cache, "miss")), (1, 1), "{cache}");
        assert_eq!((a.count(cache, "hit"), a.count(cache, "miss")), (0, 1), "{cache}");
    }
    // Now it is in memory.
    assert_eq!((b.known_row("x").await, b.count("rows", "hit")), (Some(1), 1));
    let other = Instance::open(&config, &new_prefix()).await;
    assert_eq!((other.known_row("x").await, other.known_page("g").await), (None, None));
}

#[tokio::test]
async fn many_rows_come_from_redis_and_the_store_together() {
    let Some(config) = shared_redis() else { return };
    let prefix = new_prefix();
    let (a, b) = (Instance::open(&config, &prefix).await, Instance::open(&config, &prefix).await);
    a.rows.put("gone".to_owned(), Entry { version: 7, value: None });
    a.put("x", entry(1)).await;
    let keys = ["y", "x", "gone", "z", "y"].map(str::to_owned);
    let mut fetched = Vec::new();
    let rows = b.rows.get_many(&keys, |keys: Vec<String>| {
        fetched.push(keys.concat());
        async move { Ok::<_, Infallible>(vec![entry(2); keys.len()]) }
    });
    let rows: Vec<_> = rows.await.unwrap().into_iter().map(|row| row.map(|row| *row)).collect();
    assert_eq!(rows, [Some(2), Some(1), None, Some(2), Some(2)]);
    assert_eq!(fetched, ["yz"]);
}

#[tokio::test]
async fn a_larger_version_stays_whoever_stores() {
    let Some(config) = shared_redis() else { return };
    let prefix = new_prefix();
    let (a, b) = (Instance::open(&config, &prefix).await, Instance::open(&config, &prefix).await);
    // The other instance reads the old row, this one writes the new one, the other stores the old.
    let (reader, bring) = begin_row(&b, "x").await;
    a.put("x", entry(2)).await;
    bring.send(1).unwrap();
    assert_eq!(reader.await.unwrap(), 1);
    b.redis.settled().await;
    assert_eq!(Instance::open(&config, &prefix).await.known_row("x").await, Some(2));
    b.put("x", entry(1)).await;
    assert_eq!(Instance::open(&config, &prefix).await.known_row("x").await, Some(2));
    // Neighbours that a floating point number cannot tell apart, and a row that is gone.
    let large = i64::MAX - 1;
    a.put("x", entry(large)).await;
    b.put("x", Entry { version: large + 1, value: None }).await;
    a.put("x", entry(large)).await;
    assert_eq!(Instance::open(&config, &prefix).await.known_row("x").await, Some(0));
    a.put("negative", entry(-5)).await;
    b.put("negative", entry(-6)).await;
    assert_eq!(Instance::open(&config, &prefix).await.known_row("negative").await, Some(-5));
}

#[tokio::test]
async fn what_was_written_here_is_not_followed_by_what_redis_still_holds() {
    let Some(config) = shared_redis() else { return };
    let prefix = new_prefix();
    // No memory, so that every call goes to Redis, which learns of the write a little later.
    let a = Instance::with(&config, &prefix, LONG, 1).await;
    for round in 0..50 {
        assert_eq!((a.row("x", round).await, a.page("g", round).await), (round, round));
        a.redis.settled().await;
        a.rows.put("x".to_owned(), entry(round + 1));
        a.pages.invalidate("g");
        // Sent before what the two lines above have begun.
        let next = round + 1;
        assert_eq!((a.row("x", next).await, a.page("g", next).await), (next, next));
        a.redis.settled().await;
    }
}

#[tokio::test]
async fn the_age_is_counted_across_instances() {
    let Some(config) = shared_redis() else { return };
    let (prefix, max_age) = (new_prefix(), Duration::from_millis(300));
    let a = Instance::with(&config, &prefix, max_age, 1 << 20).await;
    // One without memory takes it from Redis again and again; one with memory takes it over when
    // half of its life is gone.
    let b = Instance::with(&config, &prefix, max_age, 1).await;
    let c = Instance::with(&config, &prefix, max_age, 1 << 20).await;
    let begun = Instant::now();
    assert_eq!((a.row("x", 1).await, a.page("g", 1).await), (1, 1));
    let fetched = Instant::now();
    a.redis.settled().await;
    let mut seen = [0; 4];
    while begun.elapsed() < max_age * 2 {
        let asked = Instant::now();
        let mut known = [b.known_row("x").await, b.known_page("g").await, None, None];
        if begun.elapsed() > max_age / 2 {
            known[2..].copy_from_slice(&[c.known_row("x").await, c.known_page("g").await]);
        }
        for (seen, known) in seen.iter_mut().zip(known) {
            if known.is_some() {
                *seen += 1;
                assert!(asked < fetched + max_age, "{:?} old", asked - fetched);
            }
        }
        sleep(Duration::from_millis(3)).await;
    }
    // Most of its life, it was there.
    assert!(seen.iter().all(|seen| *seen > 5), "{seen:?}");
}

#[tokio::test]
async fn a_change_of_a_group_reaches_redis() {
    let Some(config) = shared_redis() else { return };
    let prefix = new_prefix();
    let (a, b) = (Instance::open(&config, &prefix).await, Instance::open(&config, &prefix).await);
    assert_eq!((a.page("g", 1).await, a.page("h", 1).await), (1, 1));
    a.redis.settled().await;
    // The other instance reads meanwhile, and stores when all is over.
    let (reader, bring) = begin_page(&b, "i").await;
    a.pages.invalidate("g");
    a.pages.invalidate("i");
    assert_eq!(a.known_page("g").await, None, "gone for this instance at once");
    a.redis.settled().await;
    bring.send(1).unwrap();
    assert_eq!(reader.await.unwrap(), 1);
    b.redis.settled().await;
    let c = Instance::open(&config, &prefix).await;
    assert_eq!([c.known_page("g").await, c.known_page("i").await], [None, None]);
    assert_eq!(c.known_page("h").await, Some(1));
    // What is read after the change is shared again.
    assert_eq!(a.page("g", 2).await, 2);
    a.redis.settled().await;
    assert_eq!(c.known_page("g").await, Some(2));
}

#[tokio::test]
async fn keys_have_the_prefix_and_an_end() {
    let Some(config) = shared_redis() else { return };
    let prefix = new_prefix();
    let a = Instance::open(&config, &prefix).await;
    a.put("x", entry(1)).await;
    a.page("a:b", 1).await;
    a.pages.invalidate("c");
    a.redis.settled().await;
    let mut direct = direct(&config).await;
    for key in ["rows:e:x", "pages:e:3:a:b:1", "pages:g:c"] {
        let key = format!("{prefix}:{key}");
        let left: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut direct).await.unwrap();
        assert!(left > 0, "{key}: {left}");
    }
}

#[tokio::test]
async fn a_value_that_cannot_be_read_is_a_miss() {
    let Some(config) = shared_redis() else { return };
    let prefix = new_prefix();
    let a = Instance::open(&config, &prefix).await;
    let mut direct = direct(&config).await;
    for (key, value) in [("x", "garbage"), ("y", ""), ("z", &"9".repeat(60))] {
        let key = format!("{prefix}:rows:e:{key}");
        let set = redis::cmd("SET").arg(&key).arg(value).arg("PX").arg(60_000).to_owned();
        set.exec_async(&mut direct).await.unwrap();
    }
    for key in ["x", "y", "z"] {
        assert_eq!((a.known_row(key).await, a.row(key, 1).await), (None, 1));
    }
    assert!(*a.redis.in_use().borrow());
}

#[tokio::test]
async fn a_redis_that_stands_still_is_left_alone_until_it_goes_on() {
    let Some(server) = PrivateRedis::start(&[]) else { return };
    let prefix = new_prefix();
    let a = Instance::open(&server.config(), &prefix).await;
    a.put("before", entry(1)).await;
    a.until_in_use(true).await;

    server.freeze();
    let mut slow = 0;
    let mut turn = 0;
    while *a.redis.in_use().borrow() {
        turn += 1;
        let asked = Instant::now();
        assert_eq!(a.row(&format!("frozen {turn}"), 1).await, 1);
        assert!(asked.elapsed() < ONE_TIMEOUT, "read {turn} took {:?}", asked.elapsed());
        slow += 1;
    }
    assert!(slow <= 3, "{slow} reads waited for it");
    // Left alone, it costs nothing.
    let asked = Instant::now();
    for turn in 0..100 {
        assert_eq!(a.row(&format!("alone {turn}"), 1).await, 1);
        assert_eq!(a.page(&format!("alone {turn}"), 1).await, 1);
    }
    assert!(asked.elapsed() < ONE_TIMEOUT, "{:?}", asked.elapsed());

    server.thaw();
    a.until_in_use(true).await;
    assert_eq!(a.row("after", 2).await, 2);
    a.redis.settled().await;
    let b = Instance::open(&server.config(), &prefix).await;
    assert_eq!(b.known_row("before").await, Some(1));
    assert_eq!(b.known_row("after").await, Some(2));
}

#[tokio::test]
async fn what_redis_runs_late_is_not_younger_for_that() {
    let Some(server) = PrivateRedis::start(&[]) else { return };
    let (prefix, max_age) = (new_prefix(), Duration::from_millis(100));
    let a = Instance::with(&server.config(), &prefix, max_age, 1).await;
    // The scripts are known, so that storing is one call.
    assert_eq!((a.row("first", 1).await, a.page("first", 1).await), (1, 1));
    a.redis.settled().await;
    server.freeze();
    // Sent, but not run before its life is over. Two failures: Redis is still in use.
    let begun = Instant::now();
    a.put("late", entry(1)).await;
    assert_eq!(a.known_page("failure 2").await, None);
    sleep(max_age.saturating_sub(begun.elapsed()) + Duration::from_millis(5)).await;
    server.thaw();
    // On the same connection, so it is answered after the late script has run.
    assert_eq!(a.known_row("other").await, None);
    assert!(*a.redis.in_use().borrow());
    let key = format!("{prefix}:rows:e:late");
    let mut direct = direct(&server.config()).await;
    let exists: bool = redis::cmd("EXISTS").arg(&key).query_async(&mut direct).await.unwrap();
    assert!(!exists);
}

#[tokio::test]
async fn a_redis_that_dies_and_comes_back_is_found_again() {
    let Some(server) = PrivateRedis::start(&[]) else { return };
    let (config, port) = (server.config(), server.port());
    let a = Instance::open(&config, &new_prefix()).await;
    a.put("x", entry(1)).await;
    drop(server);
    let asked = Instant::now();
    assert_eq!((a.row("x", 2).await, a.row("y", 2).await, a.page("g", 2).await), (1, 2, 2));
    assert!(asked.elapsed() < ONE_TIMEOUT, "{:?}", asked.elapsed());
    a.until_in_use(false).await;
    let Some(server) = PrivateRedis::start_on(port, &[]) else { return };
    a.until_in_use(true).await;
    assert_eq!(a.row("z", 3).await, 3);
    a.redis.settled().await;
    // Scripts and entries may be thrown away at any time.
    let mut direct = direct(&server.config()).await;
    redis::cmd("FLUSHALL").exec_async(&mut direct).await.unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut direct).await.unwrap();
    a.put("w", entry(4)).await;
    assert!(*a.redis.in_use().borrow());
    let entries: i64 = redis::cmd("DBSIZE").query_async(&mut direct).await.unwrap();
    assert_eq!(entries, 1);
}

#[tokio::test]
async fn a_redis_that_is_away_at_first_is_used_when_it_comes() {
    let port = free_port();
    let config = redis_config(&format!("redis://127.0.0.1:{port}"));
    let asked = Instant::now();
    let a = Instance::open(&config, &new_prefix()).await;
    assert_eq!((a.row("x", 1).await, a.page("g", 1).await), (1, 1));
    a.rows.put("x".to_owned(), entry(2));
    a.pages.invalidate("g");
    assert_eq!((a.row("x", 3).await, a.page("g", 3).await), (2, 3));
    assert!(asked.elapsed() < ONE_TIMEOUT, "{:?}", asked.elapsed());
    assert!(!*a.redis.in_use().borrow());
    let Some(_server) = PrivateRedis::start_on(port, &[]) else { return };
    a.until_in_use(true).await;
}

#[tokio::test]
async fn logs_in_where_it_has_to() {
    let Some(server) = PrivateRedis::start(&["--requirepass", "p@ss:w%"]) else { return };
    let with = |url: &str| redis_config(&format!("redis://{url}127.0.0.1:{}/3", server.port()));
    for url in [":p%40ss%3Aw%25@", "default:p%40ss%3Aw%25@"] {
        let config = with(url);
        assert_eq!(config.credentials.as_ref().unwrap().1, Secret::new("p@ss:w%"));
        assert!(*Redis::open(&config).await.in_use().borrow(), "{url}");
    }
    for url in ["", ":wrong@", "nobody:p%40ss%3Aw%25@"] {
        assert!(!*Redis::open(&with(url)).await.in_use().borrow(), "{url}");
    }
}
