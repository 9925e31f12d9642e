use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::time::sleep;
use uuid::Uuid;

use super::*;
use crate::cache::Tiers;
use crate::clock::{SystemClock, Timestamp};
use crate::inventory::model::{Mark, StockRow};
use crate::storage::StoreError;

/// What becomes of a write.
#[derive(Clone, Copy)]
enum Fate {
    /// It takes so many milliseconds.
    Done(u64),
    /// Its reply is lost after so many, and it may yet happen.
    Ghost(u64),
    /// It happens, and its reply is lost.
    Unheard,
}

/// A store in memory, whose writes have the fates that a test gives them.
#[derive(Default)]
struct Fake {
    rows: Mutex<BTreeMap<StockKey, StockRow>>,
    fates: Mutex<VecDeque<Fate>>,
    ghosts: Mutex<Vec<(StockKey, Option<i64>, StockRow)>>,
    settle_millis: u64,
    writes: AtomicUsize,
    reads: AtomicUsize,
}

impl Fake {
    fn apply(&self, key: &StockKey, expected: Option<i64>, after: &StockRow) -> bool {
        let mut rows = self.rows.lock().unwrap();
        let is_expected = rows.get(key).map(|row| row.level.version) == expected;
        if is_expected {
            rows.insert(key.clone(), after.clone());
        }
        is_expected
    }

    fn row(&self) -> StockRow {
        self.rows.lock().unwrap()[&key()].clone()
    }

    /// What it was asked since it was last asked this: writes and reads.
    fn calls(&self) -> (usize, usize) {
        (self.writes.swap(0, Ordering::SeqCst), self.reads.swap(0, Ordering::SeqCst))
    }
}

#[async_trait]
impl InventoryStore for Fake {
    async fn stock_levels(&self, keys: &[StockKey]) -> Result<Vec<Option<StockLevel>>, StoreError> {
        let rows = self.rows.lock().unwrap();
        Ok(keys.iter().map(|key| rows.get(key).map(|row| row.level)).collect())
    }

    async fn stock_zones(&self, product: &ProductId) -> Result<Vec<GeoZone>, StoreError> {
        let rows = self.rows.lock().unwrap();
        let own = rows.keys().filter(|key| key.product == *product);
        Ok(own.map(|key| key.zone.clone()).collect())
    }

    async fn stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Ok(self.rows.lock().unwrap().get(key).cloned())
    }

    async fn stock_turn(&self, key: &StockKey) -> Result<Option<(i64, Option<Uuid>)>, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        Ok(self.rows.lock().unwrap().get(key).map(|row| (row.level.version, row.turn)))
    }

    async fn stand_in_line(&self, _: &StockKey, _: Uuid, _: bool) -> Result<(), StoreError> {
        Ok(())
    }

    async fn line(&self, _: &StockKey) -> Result<Vec<Uuid>, StoreError> {
        Ok(Vec::new())
    }

    async fn settled_stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError> {
        sleep(Duration::from_millis(self.settle_millis)).await;
        Ok(self.rows.lock().unwrap().get(key).cloned())
    }

    async fn change_stock(
        &self,
        key: &StockKey,
        expected: Option<i64>,
        after: &StockRow,
    ) -> Result<bool, StoreError> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let lost = || Err(StoreError::Timeout { call: "test", cause: "lost".to_owned() });
        let fate = self.fates.lock().unwrap().pop_front().unwrap_or(Fate::Done(1));
        match fate {
            Fate::Done(millis) => {
                sleep(Duration::from_millis(millis)).await;
                Ok(self.apply(key, expected, after))
            }
            Fate::Ghost(millis) => {
                self.ghosts.lock().unwrap().push((key.clone(), expected, after.clone()));
                sleep(Duration::from_millis(millis)).await;
                lost()
            }
            Fate::Unheard => {
                self.apply(key, expected, after);
                lost()
            }
        }
    }

    async fn stock_up(&self, _: Vec<(StockKey, i64)>, _: Timestamp) -> Result<(), StoreError> {
        Ok(())
    }
}

fn key() -> StockKey {
    StockKey {
        product: ProductId::new_unchecked("A"), zone: GeoZone::new_unchecked("Москва")
    }
}

fn fake(quantity: i64, settle_millis: u64, fates: &[Fate]) -> Arc<Fake> {
    let updated_at = Timestamp::from_millis(0);
    let level = StockLevel { quantity, reserved: 0, version: 1, updated_at };
    let row = StockRow { level, marks: BTreeMap::new(), turn: None };
    let rows = Mutex::new(BTreeMap::from([(key(), row)]));
    let fates = Mutex::new(fates.iter().copied().collect());
    Arc::new(Fake { rows, fates, settle_millis, ..Fake::default() })
}

fn service(store: &Arc<Fake>, tiers: &Tiers, is_shared: bool) -> Arc<InventoryService> {
    let metrics = Metrics::default();
    let caches = StockCaches::new(tiers, "t", is_shared, &metrics);
    InventoryService::new(store.clone(), Arc::new(SystemClock), caches, 5, &metrics)
}

fn token(number: u128) -> Token {
    Token::of_reservation(Uuid::from_u128(number))
}

fn set(quantity: i64) -> Ask {
    Ask::Set(Token::of_set(Uuid::from_u128(5)), quantity)
}

/// A buyer shares a round with staff who stock the row up. The reply is lost, and staff have given
/// up when the buyer is decided on again, alone.
#[tokio::test(start_paused = true)]
async fn nobody_is_refused_and_then_held_by_a_ghost() {
    let store = fake(0, 1_950, &[Fate::Done(100), Fate::Ghost(2_000)]);
    let service = service(&store, &Tiers::Off, false);
    let ask = |ask: Ask| {
        let service = service.clone();
        tokio::spawn(async move { service.combiner.ask(&key(), ask).await })
    };
    let first = ask(Ask::Release { token: token(9), units: 1, recorded: false });
    sleep(Duration::from_millis(10)).await;
    let stocked = ask(set(10));
    sleep(Duration::from_millis(80)).await;
    let bought = ask(Ask::Reserve(token(1), 5));
    first.await.unwrap().unwrap();
    stocked.await.unwrap().unwrap_err();
    let told = bought.await.unwrap();
    let ghosts = std::mem::take(&mut *store.ghosts.lock().unwrap());
    assert_eq!(ghosts.len(), 1);
    for (key, expected, after) in ghosts {
        assert!(!store.apply(&key, expected, &after), "{told:?} was told, and then it rose");
    }
    assert!(!matches!(store.row().marks.get(&token(1)), Some(Mark::Reserved(_))));
}

/// Nobody waits any more, and still a lost write must not rise later.
#[tokio::test(start_paused = true)]
async fn a_doubt_is_settled_also_when_everybody_has_left() {
    let store = fake(10, 1, &[Fate::Ghost(10)]);
    let service = service(&store, &Tiers::Off, false);
    let asking = tokio::spawn({
        let service = service.clone();
        async move { service.combiner.ask(&key(), Ask::Reserve(token(1), 5)).await }
    });
    sleep(Duration::from_millis(5)).await;
    asking.abort();
    sleep(Duration::from_secs(5)).await;
    let (key, expected, after) = store.ghosts.lock().unwrap().pop().unwrap();
    assert!(!store.apply(&key, expected, &after));
    assert_eq!(store.row().level.reserved, 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_reply_has_changed_is_shown() {
    let store = fake(3, 1, &[Fate::Unheard]);
    let service = service(&store, &Tiers::Memory, true);
    let shown = || async { service.levels(&[key()]).await.unwrap()[0].unwrap().quantity };
    assert_eq!(shown().await, 3);
    assert!(matches!(service.combiner.ask(&key(), set(7)).await, Ok(Told::Done(_))));
    assert_eq!(shown().await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_new_zone_is_shown_at_once() {
    let store = fake(3, 1, &[]);
    let service = service(&store, &Tiers::Memory, false);
    let product = [key().product];
    assert_eq!(service.zones(&product).await.unwrap()[0].len(), 1);
    let change = RawChange::Set(4);
    let entry = RawEntry { product: "A".to_owned(), zone: "Казань".to_owned(), change };
    service.change(&[entry], &[]).await.unwrap();
    assert_eq!(service.zones(&product).await.unwrap()[0].len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_process_does_not_keep_itself_company() {
    let store = fake(1_000_000, 1, &[]);
    let service = service(&store, &Tiers::Off, false);
    let mut tokens = 1..;
    let mut buy = async || {
        let ask = Ask::Reserve(token(tokens.next().unwrap()), 1);
        service.combiner.ask(&key(), ask).await.unwrap();
        sleep(Duration::from_millis(100)).await;
    };
    buy().await;
    // Another process writes once.
    store.rows.lock().unwrap().get_mut(&key()).unwrap().level.version += 1;
    for _ in 0..30 {
        buy().await;
    }
    store.calls();
    for _ in 0..100 {
        buy().await;
    }
    assert_eq!(store.calls(), (100, 0), "writes and reads of a hundred orders");
}

#[test]
fn rows_that_nobody_watches_any_more_are_forgotten() {
    let feed = Arc::new(Feed::default());
    for _ in 0..20_000 {
        let (a, b) = (feed.levels(&[key()]).unwrap(), feed.levels(&[key()]).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || drop(a));
            drop(b);
        });
        assert!(feed.watched().is_empty());
    }
}
