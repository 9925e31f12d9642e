//! What is made of rows and pages falls with them.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::advance;

use super::super::{Entry, GroupCache, Tiers, VersionedCache};
use super::*;
use crate::telemetry::Metrics;

const AGE: Duration = Duration::from_millis(500);
/// A tick before that.
const NEARLY_AGE: Duration = Duration::from_millis(499);
/// How old a row may be.
const ROW_AGE: Duration = Duration::from_millis(400);
/// Two ticks before that.
const NEARLY_ROW_AGE: Duration = Duration::from_millis(398);
/// Two events of one moment cannot be told apart, and the clock of a test stands still.
const TICK: Duration = Duration::from_millis(1);

impl Weighed for String {
    fn bytes(&self) -> usize {
        self.len()
    }
}

type Rows = VersionedCache<String, i64>;

/// Texts made of the row `a` and a page of the group `g`.
struct World {
    texts: DerivedCache<String, String>,
    rows: Rows,
    pages: GroupCache<String, i64>,
    made: AtomicUsize,
}

fn settings(name: &'static str, max_age: Duration) -> CacheSettings {
    CacheSettings {
        name,
        prefix: "test".to_owned(),
        max_age,
        capacity_bytes: 1 << 20,
        expected_entries: 100,
        hot_asks: 0,
        announces: false,
    }
}

impl World {
    fn new() -> Arc<Self> {
        let metrics = Metrics::default();
        let rows = VersionedCache::new(&Tiers::Memory, &settings("rows", ROW_AGE), |_| 8, &metrics);
        let pages = GroupCache::new(&Tiers::Memory, &settings("pages", AGE), |_| 8, &metrics);
        let texts = DerivedCache::new("texts", AGE, 1 << 20, 1 << 10);
        Arc::new(Self { texts, rows, pages, made: AtomicUsize::new(0) })
    }

    async fn read(&self, row: i64) -> String {
        let fetch = |keys: Vec<String>| async move {
            let entry = |_| Entry { version: row, value: Some(Arc::new(row)) };
            Ok::<_, Infallible>(keys.into_iter().map(entry).collect())
        };
        let rows = self.rows.get_many(&["a".to_owned()], fetch).await.unwrap();
        let page = || async { Ok::<_, Infallible>(7) };
        let page = self.pages.get("g", "1".to_owned(), page).await.unwrap();
        format!("{:?} {page}", rows[0].as_deref())
    }

    /// The text, where the store has `row`; and whether it was made for it.
    async fn text(&self, row: i64) -> (String, bool) {
        let make = || async {
            self.made.fetch_add(1, Ordering::SeqCst);
            Ok::<_, ()>(self.read(row).await)
        };
        match self.texts.get_or_make((&"t".to_owned(), 1), Instant::now(), make).await {
            Got::Found(text) => (text.to_string(), false),
            Got::Made(text) => (text.to_string(), true),
            Got::Own(()) => unreachable!(),
        }
    }

    fn put(&self, row: i64) {
        let entry = Entry { version: row, value: Some(Arc::new(row)) };
        self.rows.put("a".to_owned(), entry);
    }
}

fn text(row: i64) -> String {
    format!("Some({row}) 7")
}

#[tokio::test(start_paused = true)]
async fn it_lives_as_long_as_the_rows_that_it_is_made_of() {
    let world = World::new();
    advance(TICK).await;
    world.read(1).await;
    advance(NEARLY_ROW_AGE).await;
    // Made of a row that has two ticks left, it has two ticks left.
    assert_eq!(world.text(2).await, (text(1), true));
    advance(TICK).await;
    assert_eq!(world.text(2).await, (text(1), false));
    assert!(world.texts.get("t", Instant::now()).is_some());
    advance(TICK).await;
    assert!(world.texts.get("t", Instant::now()).is_none());
    assert_eq!(world.text(2).await, (text(2), true));
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_its_own_age_too() {
    let texts: DerivedCache<String, String> = DerivedCache::new("texts", AGE, 1 << 20, 1 << 10);
    let make = || async { Ok::<_, ()>("of nothing".to_owned()) };
    texts.get_or_make((&"t".to_owned(), 1), Instant::now(), make).await;
    advance(NEARLY_AGE).await;
    assert!(texts.get("t", Instant::now()).is_some());
    advance(TICK).await;
    assert!(texts.get("t", Instant::now()).is_none());
}

#[tokio::test(start_paused = true)]
async fn it_falls_at_once_with_a_row_or_a_group() {
    let world = World::new();
    advance(TICK).await;
    assert_eq!(world.text(1).await, (text(1), true));
    advance(TICK).await;
    assert_eq!(world.text(2).await, (text(1), false));
    world.put(2);
    advance(TICK).await;
    assert_eq!(world.text(2).await, (text(2), true));
    world.pages.invalidate("other");
    assert_eq!(world.text(2).await, (text(2), false));
    world.pages.invalidate("g");
    advance(TICK).await;
    assert_eq!(world.text(2).await, (text(2), true));
    assert_eq!(world.text(2).await, (text(2), false));
}

#[tokio::test(start_paused = true)]
async fn it_falls_when_somebody_reads_a_newer_row_of_which_nobody_has_told() {
    let world = World::new();
    advance(TICK).await;
    world.text(1).await;
    advance(ROW_AGE / 2).await;
    let fetch = |_| async { Ok::<_, Infallible>(vec![Entry { version: 2, value: None }]) };
    // To this one the row is too old; what it reads is newer.
    world.rows.get_many_within(&["a".to_owned()], TICK, fetch).await.unwrap();
    assert!(world.text(2).await.1, "not the old one after the new one");
}

/// A call that has begun to make the text and ends with what is sent to it.
async fn begin(
    world: &Arc<World>,
) -> (tokio::task::JoinHandle<Result<String, ()>>, oneshot::Sender<Result<(), ()>>) {
    let (begun, has_begun) = oneshot::channel();
    let (go_on, may_go_on) = oneshot::channel::<Result<(), ()>>();
    let world = world.clone();
    let task = tokio::spawn(async move {
        let make = || async {
            let text = world.read(1).await;
            begun.send(()).unwrap();
            may_go_on.await.unwrap().map(|()| text)
        };
        match world.texts.get_or_make((&"t".to_owned(), 1), Instant::now(), make).await {
            Got::Found(text) | Got::Made(text) => Ok(text.to_string()),
            Got::Own(()) => Err(()),
        }
    });
    has_begun.await.unwrap();
    (task, go_on)
}

#[tokio::test(start_paused = true)]
async fn what_was_changed_while_it_was_made_is_shown_to_nobody_who_asks_later() {
    let world = World::new();
    advance(TICK).await;
    let (early, go_on) = begin(&world).await;
    advance(TICK).await;
    world.put(2);
    advance(TICK).await;
    // It asks after the change, and waits for one that has read before it.
    let late = tokio::spawn({
        let world = world.clone();
        async move { world.text(2).await }
    });
    tokio::task::yield_now().await;
    assert!(world.texts.memory.under_way(&"t".to_owned()).is_some());
    go_on.send(Ok(())).unwrap();
    assert_eq!(early.await.unwrap(), Ok(text(1)));
    assert_eq!(late.await.unwrap(), (text(2), true));
    assert_eq!(world.text(2).await, (text(2), false));
}

#[tokio::test(start_paused = true)]
async fn who_waits_goes_on_at_once_when_the_maker_fails_or_goes_away() {
    for goes_away in [true, false] {
        let world = World::new();
        advance(TICK).await;
        let (maker, go_on) = begin(&world).await;
        let waiters: Vec<_> = (0..10)
            .map(|_| {
                let world = world.clone();
                tokio::spawn(async move { world.text(1).await.0 })
            })
            .collect();
        tokio::task::yield_now().await;
        let asked = Instant::now();
        if goes_away {
            maker.abort();
        } else {
            go_on.send(Err(())).unwrap();
        }
        for waiter in join_all(waiters).await {
            assert_eq!(waiter.unwrap(), text(1));
        }
        assert_eq!(asked.elapsed(), Duration::ZERO);
        assert_eq!(world.texts.memory.fills_under_way(), 0);
        let made = world.made.load(Ordering::SeqCst);
        // One takes the place of one that went away; what is for one alone is made by each.
        assert_eq!(made, if goes_away { 1 } else { 10 });
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_what_is_known_to_be_for_one_alone() {
    let world = World::new();
    advance(TICK).await;
    let (maker, go_on) = begin(&world).await;
    go_on.send(Err(())).unwrap();
    assert_eq!(maker.await.unwrap(), Err(()));
    assert_eq!(world.text(1).await, (text(1), true));
    assert_eq!(world.text(1).await, (text(1), true), "it is not kept either");
    advance(AGE).await;
    world.text(1).await;
    assert_eq!(world.text(1).await, (text(1), false));
}

#[tokio::test(start_paused = true)]
async fn waiting_has_an_end() {
    let world = World::new();
    let (_maker, _go_on) = begin(&world).await;
    let asked = Instant::now();
    assert_eq!(world.text(1).await, (text(1), true));
    assert_eq!(asked.elapsed(), MAX_WAIT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_calls_make_it_once() {
    let texts: Arc<DerivedCache<String, String>> =
        Arc::new(DerivedCache::new("texts", Duration::from_secs(3_600), 1 << 20, 1 << 10));
    let made = Arc::new(AtomicUsize::new(0));
    let calls = (0..100).map(|_| {
        let (texts, made) = (texts.clone(), made.clone());
        tokio::spawn(async move {
            let make = || async {
                made.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                Ok::<_, ()>("made".to_owned())
            };
            match texts.get_or_make((&"t".to_owned(), 1), Instant::now(), make).await {
                Got::Found(text) | Got::Made(text) => text.to_string(),
                Got::Own(()) => unreachable!(),
            }
        })
    });
    assert!(join_all(calls).await.into_iter().all(|text| text.unwrap() == "made"));
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn it_takes_no_more_memory_than_it_may() {
    const CAPACITY: u64 = 256 << 10;
    let texts: DerivedCache<String, String> = DerivedCache::new("texts", AGE, CAPACITY, 4 << 10);
    for n in 0..1_000 {
        let make = || async { Ok::<_, ()>("x".repeat(1 << 10)) };
        texts.get_or_make((&n.to_string(), 3), Instant::now(), make).await;
    }
    assert!(texts.memory.bytes() <= CAPACITY, "{}", texts.memory.bytes());
    assert!(texts.memory.bytes() > CAPACITY / 2, "{}", texts.memory.bytes());
    // One that is too large is made for each.
    let large = || async { Ok::<_, ()>("x".repeat(8 << 10)) };
    let key = "large".to_owned();
    assert!(matches!(texts.get_or_make((&key, 5), Instant::now(), large).await, Got::Made(_)));
    assert!(texts.get("large", Instant::now()).is_none());
}
