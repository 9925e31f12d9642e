//! The cache in front of stock: two instances on one Redis, and a Redis that dies, freezes, is
//! emptied, is full or holds rubbish.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use vitrina::config::{CacheConfig, RedisConfig};

use super::{metric, product, staff, stock as sell};
use crate::support::http::HttpClient;
use crate::support::redis::PrivateRedis;
use crate::support::server::TestServer;
use crate::support::stores::{TestStore, drop_keyspace};

/// Longer than anything here takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);
const PRODUCTS: usize = 24;

const SET: &str = "mutation($entries: [StockInput!]!) {
    stockSet(entries: $entries) { userErrors { message } } }";
const CARDS: &str = "query($ids: [ID!]!) {
    products(ids: $ids) { id stock(geoZone: \"Москва\") { available } } }";

fn ids() -> Vec<String> {
    (0..PRODUCTS).map(|n| format!("P{n}")).collect()
}

/// Two instances on one store and one Redis, with products in stock.
struct Pair {
    redis: PrivateRedis,
    a: TestServer,
    b: TestServer,
}

async fn pair(store: Option<TestStore>, args: &[&str]) -> Option<Pair> {
    let (store, redis) = (store?, PrivateRedis::start(args)?);
    let config = redis.config();
    let cached = |config: RedisConfig| {
        move |c: &mut vitrina::config::Config| {
            c.cache = CacheConfig::Redis(config);
        }
    };
    let a = TestServer::start_on(store, cached(config.clone())).await;
    let b = a.beside(cached(config)).await;
    let products: Vec<_> = ids().iter().map(|id| product(id, "Книги", "10")).collect();
    sell(&a.http, &products).await;
    set(&a.http, 100).await;
    Some(Pair { redis, a, b })
}

/// Sets the stock of all products.
async fn set(http: &HttpClient, quantity: i64) {
    let entry = |id: &String| json!({ "productId": id, "geoZone": "Москва", "quantity": quantity });
    let entries: Vec<_> = ids().iter().map(entry).collect();
    let answer = http.query_as(&staff(), SET, json!({ "entries": entries })).await.json();
    assert_eq!(answer["data"]["stockSet"]["userErrors"], json!([]), "{answer}");
}

/// What an instance shows of all products; the whole answer.
async fn cards(http: &HttpClient) -> Value {
    let answer = http.query(CARDS, json!({ "ids": ids() })).await.json();
    assert_eq!(answer["errors"], Value::Null, "{answer}");
    answer
}

fn shown(cards: &Value) -> Vec<i64> {
    let products = cards["data"]["products"].as_array().unwrap().iter();
    products.map(|product| product["stock"]["available"].as_i64().unwrap()).collect()
}

/// Waits until an instance shows this stock of everything.
async fn until_shown(http: &HttpClient, quantity: i64) {
    let began = Instant::now();
    while shown(&cards(http).await) != [quantity; PRODUCTS] {
        assert!(began.elapsed() < PATIENCE, "it is never shown");
    }
}

/// Waits until an instance does without Redis, or does with it.
async fn until_degraded(http: &HttpClient, is: bool) {
    let began = Instant::now();
    loop {
        let answer = cards(http).await;
        let degraded = answer["extensions"]["degraded"] == json!(["cache"]);
        let in_use = metric(http, "vitrina_redis_in_use").await == 1;
        // An answer from memory needs no Redis, so the metric has to agree.
        if in_use != is && (degraded || !is) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "degraded is not {is}: {answer}");
    }
}

/// Reads through both instances while `during` happens, and changes the stock all the while:
/// nothing fails, and no instance shows an older stock after a newer one.
async fn under_load(a: &TestServer, b: &TestServer, during: impl AsyncFnOnce()) {
    let (stops, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let quantity = Arc::new(AtomicI64::new(100));
    let mut tasks = Vec::new();
    for server in [a, b, a, b] {
        let (http, stops, reads) = (server.http.clone(), stops.clone(), reads.clone());
        tasks.push(tokio::spawn(async move {
            let mut before = vec![0; PRODUCTS];
            while !stops.load(Ordering::SeqCst) {
                let now = shown(&cards(&http).await);
                // Stock only grows here.
                assert!(now.iter().zip(&before).all(|(now, before)| now >= before), "{now:?}");
                before = now;
                reads.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    let writer = {
        let (http, stops, quantity) = (a.http.clone(), stops.clone(), quantity.clone());
        tokio::spawn(async move {
            while !stops.load(Ordering::SeqCst) {
                set(&http, quantity.fetch_add(1, Ordering::SeqCst) + 1).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    };
    let at_least = |count: u64| {
        let reads = reads.clone();
        async move {
            let began = Instant::now();
            while reads.load(Ordering::SeqCst) < count {
                assert!(began.elapsed() < PATIENCE, "readers are stuck");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    at_least(50).await;
    during().await;
    let so_far = reads.load(Ordering::SeqCst);
    at_least(so_far + 50).await;
    stops.store(true, Ordering::SeqCst);
    for task in join_all(tasks).await {
        task.unwrap();
    }
    writer.await.unwrap();
    let last = quantity.load(Ordering::SeqCst);
    until_shown(&a.http, last).await;
    until_shown(&b.http, last).await;
}

macro_rules! on_every_pair {
    ($($case:ident($args:expr)),+ $(,)?) => {
        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let store = super::TestStore::embedded().await;
                    if let Some(pair) = super::pair(Some(store), $args).await {
                        super::$case(pair).await;
                    }
                }
            )+
        }

        mod cassandra {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    if let Some(pair) = super::pair(super::TestStore::cassandra().await, $args).await {
                        let config = pair.a.store().clone();
                        super::$case(pair).await;
                        super::drop_keyspace(&config).await;
                    }
                }
            )+
        }
    };
}

on_every_pair! {
    a_change_is_seen_by_the_other_instance(&[]),
    only_rows_that_are_asked_for_often_go_to_redis(&[]),
    redis_may_die_and_come_back(&[]),
    redis_may_freeze(&[]),
    redis_may_be_emptied(&[]),
    redis_may_be_full(&["--maxmemory", "1500kb", "--maxmemory-policy", "noeviction"]),
    redis_may_hold_rubbish(&[]),
}

async fn a_change_is_seen_by_the_other_instance(pair: Pair) {
    for quantity in [7, 3, 12] {
        // Both have it in memory, and neither asks the store for a second.
        until_shown(&pair.b.http, shown(&cards(&pair.a.http).await)[0]).await;
        set(&pair.a.http, quantity).await;
        assert_eq!(
            shown(&cards(&pair.a.http).await),
            [quantity; PRODUCTS],
            "at once where it was made"
        );
        until_shown(&pair.b.http, quantity).await;
    }
    under_load(&pair.a, &pair.b, async || {}).await;
}

/// The keys of stock in Redis.
async fn keys(redis: &PrivateRedis) -> Vec<String> {
    let keys = redis.command(&["KEYS", "*:stock:e:*"]);
    keys.lines().filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

async fn only_rows_that_are_asked_for_often_go_to_redis(pair: Pair) {
    // What was written lies there for a second, so that nothing older takes its place; and on a slow
    // machine it was asked for often before that.
    let began = Instant::now();
    loop {
        while !keys(&pair.redis).await.is_empty() {
            assert!(began.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        cards(&pair.b.http).await;
        let there = keys(&pair.redis).await;
        if there.is_empty() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "asked for once: {there:?}");
    }
    let began = Instant::now();
    while keys(&pair.redis).await.len() < PRODUCTS {
        assert!(began.elapsed() < PATIENCE);
        cards(&pair.b.http).await;
    }
    // A page of cards asks Redis once, and finds everything there.
    let hits = "vitrina_cache_lookups_total{cache=\"stock\",tier=\"redis\",result=\"hit\"}";
    let began = Instant::now();
    while metric(&pair.a.http, hits).await == 0 {
        assert!(began.elapsed() < PATIENCE);
        cards(&pair.a.http).await;
        cards(&pair.b.http).await;
    }
}

async fn redis_may_die_and_come_back(pair: Pair) {
    let Pair { mut redis, a, b } = pair;
    under_load(&a, &b, async || {
        redis.kill();
        until_degraded(&a.http, true).await;
        until_degraded(&b.http, true).await;
        redis = PrivateRedis::start_on(redis.port(), &[]).unwrap();
        until_degraded(&a.http, false).await;
        until_degraded(&b.http, false).await;
    })
    .await;
}

async fn redis_may_freeze(pair: Pair) {
    under_load(&pair.a, &pair.b, async || {
        pair.redis.freeze();
        until_degraded(&pair.a.http, true).await;
        until_degraded(&pair.b.http, true).await;
        pair.redis.thaw();
        until_degraded(&pair.a.http, false).await;
        until_degraded(&pair.b.http, false).await;
    })
    .await;
}

async fn redis_may_be_emptied(pair: Pair) {
    under_load(&pair.a, &pair.b, async || {
        for _ in 0..20 {
            pair.redis.command(&["FLUSHALL"]);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

async fn redis_may_be_full(pair: Pair) {
    under_load(&pair.a, &pair.b, async || {
        let filler = "x".repeat(100_000);
        let mut stored = 0;
        while !pair.redis.command(&["SET", &format!("filler {stored}"), &filler]).contains("OOM") {
            stored += 1;
            assert!(stored < 1_000, "it has a limit");
        }
    })
    .await;
    // One that takes nothing more still answers: it is not given up for what it refuses. On a machine that
    // is short of time it may be given up for being slow, but not whenever it is tried.
    let (began, mut quantity) = (Instant::now(), 1_000_000);
    loop {
        until_degraded(&pair.a.http, false).await;
        for _ in 0..10 {
            quantity += 1;
            set(&pair.a.http, quantity).await;
        }
        until_shown(&pair.b.http, quantity).await;
        if metric(&pair.a.http, "vitrina_redis_in_use").await == 1 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "it is given up each time");
    }
}

async fn redis_may_hold_rubbish(pair: Pair) {
    under_load(&pair.a, &pair.b, async || {
        let rubbish = [String::new(), "rubbish".to_owned(), "9".repeat(40), "9".repeat(400)];
        for round in 0..20 {
            for key in keys(&pair.redis).await {
                pair.redis.command(&["SET", &key, &rubbish[round % 4], "PX", "500"]);
            }
            let channels = pair.redis.command(&["PUBSUB", "CHANNELS"]);
            for channel in channels.lines() {
                pair.redis.command(&["PUBLISH", channel, "7 rubbish"]);
            }
        }
    })
    .await;
}
