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
                    Ok::<_, Infallible>(keys.iter().map(|k| entry(k.parse().unwrap())).collect())
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
    let fetch = |keys: Vec<String>| async move { Ok::<_, Infallible>(vec![entry(1); keys.len()]) };
    let answers = timeout(MAX_WAIT, is_send(cache.get_many(&keys("a"), fetch))).await;
    assert_eq!(plain(answers.unwrap().unwrap()), [Some(1)]);
}
