//! Stock: many buyers of one row, lost replies, callers that vanish, and what shoppers are shown.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Notify;
use uuid::Uuid;
use vitrina::cache::Tiers;
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::geo_zone::GeoZone;
use vitrina::inventory::model::{
    Ask, Errand, Line, MAX_OPEN, Mark, RawChange, RawEntry, Report, Reservation, Shortage,
    StockKey, StockLevel, StockRow, Token, Told,
};
use vitrina::inventory::service::{Reserved, Standing, StockCaches};
use vitrina::inventory::{InventoryService, InventoryStore};
use vitrina::product_id::ProductId;
use vitrina::storage::StoreError;
use vitrina::telemetry::Metrics;

use crate::support::gate::forwarded_stock;
use crate::support::stores::TestStore;
use crate::support::{Random, seed};

crate::on_every_store!(
    a_row_changes_only_from_the_version_before,
    rows_and_zones_are_read_as_they_were_written,
    a_reservation_lives_and_counts_once,
    a_reservation_of_several_rows_is_all_or_nothing,
    who_was_refused_takes_nothing_from_who_was_not,
    two_hundred_buyers_of_a_hundred_units,
    lost_replies_are_settled_by_the_row_itself,
    a_ghost_of_a_lost_write_changes_nothing,
    two_services_share_a_row,
    the_latest_errand_of_a_writer_counts,
    staff_set_and_adjust,
    an_older_level_is_never_shown_after_a_newer_one,
    watchers_are_told_of_every_row_and_of_the_last_change,
    a_store_that_is_away_is_waited_for_and_not_for_ever,
    a_full_row_is_waited_for_by_those_who_take,
);

pub const ZONE: &str = "Москва";

pub fn key(product: &str) -> StockKey {
    StockKey { product: ProductId::parse(product).unwrap(), zone: GeoZone::parse(ZONE).unwrap() }
}

pub fn reservation(token: &Token, lines: &[(&str, i64)]) -> Reservation {
    let line = |(product, units): &(&str, i64)| Line { key: key(product), units: *units };
    Reservation::new(token.clone(), lines.iter().map(line)).unwrap()
}

pub fn new_token() -> Token {
    Token::of_reservation(uuid::Uuid::new_v4())
}

pub fn service(store: Arc<dyn InventoryStore>, tiers: &Tiers) -> Arc<InventoryService> {
    let metrics = Metrics::default();
    let caches = StockCaches::new(tiers, "t", true, &metrics);
    InventoryService::new(store, Arc::new(SystemClock), caches, 5, &metrics)
}

fn plain(store: &TestStore) -> Arc<InventoryService> {
    service(store.store.clone(), &Tiers::Off)
}

pub async fn stock(store: &dyn InventoryStore, rows: &[(&str, i64)]) {
    let rows = rows.iter().map(|(product, units)| (key(product), *units)).collect();
    store.stock_up(rows, SystemClock.now()).await.unwrap();
}

async fn row(store: &dyn InventoryStore, product: &str) -> StockRow {
    store.stock_row(&key(product)).await.unwrap().unwrap()
}

async fn numbers(store: &TestStore, product: &str) -> (i64, i64) {
    let level = row(store.store.as_ref(), product).await.level;
    (level.quantity, level.reserved)
}

/// The invariant of every row, as far as the row itself tells: all that is reserved has its mark
/// (nothing was settled yet).
fn assert_whole(row: &StockRow) {
    let held = row.marks.values().map(|mark| if let Mark::Reserved(n) = mark { *n } else { 0 });
    assert_eq!(row.level.reserved, held.sum::<i64>(), "{row:?}");
    assert!(0 <= row.level.reserved && row.level.reserved <= row.level.quantity, "{row:?}");
}

async fn a_row_changes_only_from_the_version_before(store: &TestStore) {
    let store = store.store.as_ref();
    let at = |version, quantity| StockRow {
        level: StockLevel {
            quantity,
            reserved: 1,
            version,
            updated_at: SystemClock.now().to_millis_precision(),
        },
        marks: [
            (new_token(), Mark::Reserved(1)),
            (Token::of_adjustment("ключ"), Mark::Set(SystemClock.now().to_millis_precision())),
        ]
        .into(),
        turn: None,
    };
    let (first, second) = (at(1, 5), at(2, 6));
    assert!(!store.change_stock(&key("A"), Some(1), &second).await.unwrap(), "it is not there");
    assert!(store.change_stock(&key("A"), None, &first).await.unwrap());
    assert!(!store.change_stock(&key("A"), None, &second).await.unwrap(), "it is there");
    assert_eq!(store.stock_row(&key("A")).await.unwrap(), Some(first));
    assert!(store.change_stock(&key("A"), Some(1), &second).await.unwrap());
    assert!(!store.change_stock(&key("A"), Some(1), &at(2, 9)).await.unwrap(), "it has changed");
    assert_eq!(store.stock_row(&key("A")).await.unwrap(), Some(second.clone()));
    assert_eq!(store.settled_stock_row(&key("A")).await.unwrap(), Some(second));
    assert_eq!(store.stock_row(&key("B")).await.unwrap(), None);
}

async fn rows_and_zones_are_read_as_they_were_written(store: &TestStore) {
    let store = store.store.as_ref();
    let zone = |product: &str, zone: &str| StockKey {
        product: ProductId::parse(product).unwrap(),
        zone: GeoZone::parse(zone).unwrap(),
    };
    let rows = vec![(zone("A", "СПб"), 2), (zone("A", "Казань"), 0), (zone("AB", "СПб"), 7)];
    store.stock_up(rows.clone(), SystemClock.now()).await.unwrap();
    // Again, with other numbers: what is there stays.
    let others = rows.iter().map(|(key, _)| (key.clone(), 99)).collect();
    store.stock_up(others, SystemClock.now()).await.unwrap();
    let keys: Vec<_> = rows.iter().map(|(key, _)| key.clone()).chain([zone("A", "Омск")]).collect();
    let levels = store.stock_levels(&keys).await.unwrap();
    let quantities: Vec<_> = levels.iter().map(|level| level.map(|level| level.quantity)).collect();
    assert_eq!(quantities, [Some(2), Some(0), Some(7), None]);
    let zones = store.stock_zones(&ProductId::parse("A").unwrap()).await.unwrap();
    assert_eq!(zones.iter().map(GeoZone::as_str).collect::<Vec<_>>(), ["Казань", "СПб"]);
    assert_eq!(store.stock_zones(&ProductId::parse("Z").unwrap()).await.unwrap(), []);
}

async fn a_reservation_lives_and_counts_once(store: &TestStore) {
    stock(store.store.as_ref(), &[("A", 10)]).await;
    let service = plain(store);
    let (sold, cancelled) = (new_token(), new_token());
    let (sold, cancelled) = (reservation(&sold, &[("A", 3)]), reservation(&cancelled, &[("A", 2)]));
    for _ in 0..2 {
        assert_eq!(service.reserve(&sold).await.unwrap(), Reserved::Held);
        assert_eq!(service.reserve(&cancelled).await.unwrap(), Reserved::Held);
    }
    assert_eq!(numbers(store, "A").await, (10, 5));
    for _ in 0..2 {
        service.settle(&sold).await.unwrap();
        service.settle(&cancelled).await.unwrap();
    }
    assert_eq!(numbers(store, "A").await, (10, 5));
    for _ in 0..2 {
        service.commit(&sold).await.unwrap();
        service.release(&cancelled, Standing::Recorded).await.unwrap();
    }
    assert_eq!(numbers(store, "A").await, (7, 0));
    for _ in 0..2 {
        service.close(&sold).await.unwrap();
        service.close(&cancelled).await.unwrap();
    }
    let row = row(store.store.as_ref(), "A").await;
    let over = row.marks.values().all(|mark| matches!(mark, Mark::Undone(_)));
    assert!(over && row.marks.len() == 2, "{row:?}");
    assert_eq!(service.reserve(&sold).await.unwrap(), Reserved::Undone);
    // One that was given up before it was known to be held; whoever comes late gets nothing.
    let late = reservation(&new_token(), &[("A", 1)]);
    service.release(&late, Standing::Unknown).await.unwrap();
    assert_eq!(service.reserve(&late).await.unwrap(), Reserved::Undone);
    assert_eq!(numbers(store, "A").await, (7, 0));
}

async fn a_reservation_of_several_rows_is_all_or_nothing(store: &TestStore) {
    stock(store.store.as_ref(), &[("A", 5), ("B", 1), ("C", 5), ("D", 0)]).await;
    let service = plain(store);
    let token = new_token();
    let much = reservation(&token, &[("A", 2), ("B", 1), ("B", 1), ("C", 6), ("D", 1), ("E", 1)]);
    let short =
        |product: &str, requested, available| Shortage { key: key(product), requested, available };
    let shortages = vec![short("B", 2, 1), short("C", 6, 5), short("D", 1, 0), short("E", 1, 0)];
    assert_eq!(service.reserve(&much).await.unwrap(), Reserved::Short(shortages));
    for product in ["A", "B", "C", "D"] {
        assert_eq!(numbers(store, product).await.1, 0, "{product}");
    }
    // Refused is not done: with more stock the same token succeeds.
    let entry = |product: &str, quantity| RawEntry {
        product: product.to_owned(),
        zone: ZONE.to_owned(),
        change: RawChange::Set(quantity),
    };
    let entries = [entry("B", 2), entry("C", 6), entry("D", 1), entry("E", 1)];
    let (changed, faults) = service.change(&entries, &[]).await.unwrap();
    assert_eq!((changed.len(), faults), (4, vec![]));
    let both = join_all([service.reserve(&much), service.reserve(&much)]).await;
    assert!(both.into_iter().all(|told| told.unwrap() == Reserved::Held));
    for (product, held) in [("A", 2), ("B", 2), ("C", 6), ("D", 1), ("E", 1)] {
        assert_eq!(numbers(store, product).await.1, held, "{product}");
    }
}

/// One order, asked for twice at once: one call is refused and slow to notice; meanwhile units come
/// back, and the other call gets them.
async fn who_was_refused_takes_nothing_from_who_was_not(store: &TestStore) {
    stock(store.store.as_ref(), &[("A", 1)]).await;
    let service = plain(store);
    let (before, order) = (new_token(), new_token());
    let (before, order) = (reservation(&before, &[("A", 1)]), reservation(&order, &[("A", 1)]));
    assert_eq!(service.reserve(&before).await.unwrap(), Reserved::Held);
    let mut slow = Box::pin(service.reserve(&order));
    assert!((&mut slow).now_or_never().is_none(), "it waits for the row");
    // Whoever comes later is answered later: the slow one has its refusal, and does not look at it.
    let later = reservation(&new_token(), &[("A", 1)]);
    assert!(matches!(service.reserve(&later).await.unwrap(), Reserved::Short(_)));
    service.release(&before, Standing::Unknown).await.unwrap();
    assert_eq!(service.reserve(&order).await.unwrap(), Reserved::Held);
    assert!(matches!(slow.await.unwrap(), Reserved::Short(_)));
    assert_eq!(numbers(store, "A").await, (1, 1));
    assert!(matches!(service.reserve(&later).await.unwrap(), Reserved::Short(_)));
}

/// What each token was told, with its units.
type Outcomes = HashMap<Token, (i64, Vec<Reserved>)>;

/// Buys until nothing is left: random amounts, tokens that are tried again, callers that vanish.
async fn buy(
    services: &[Arc<InventoryService>],
    product: &str,
    buyers: u64,
    random: &mut Random,
) -> Outcomes {
    let told: Arc<Mutex<Outcomes>> = Arc::default();
    let mut tasks = Vec::new();
    for buyer in 0..buyers {
        let service = services[usize::try_from(buyer).unwrap() % services.len()].clone();
        let units = i64::try_from(1 + random.below(3)).unwrap();
        let (token, tries) = (new_token(), 1 + random.below(3));
        let vanishes = random.below(8) == 0;
        let (order, told) = (reservation(&token, &[(product, units)]), told.clone());
        told.lock().unwrap().insert(token.clone(), (units, Vec::new()));
        let task = tokio::spawn(async move {
            for _ in 0..tries {
                // A failure tells nothing: the buyer tries again.
                if let Ok(outcome) = service.reserve(&order).await {
                    told.lock().unwrap().get_mut(&token).unwrap().1.push(outcome);
                }
            }
        });
        if vanishes {
            let after = Duration::from_micros(random.below(3_000));
            let abort = task.abort_handle();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                abort.abort();
            });
        }
        tasks.push(task);
    }
    for task in tasks {
        // Those that vanished end with an error.
        let _ = task.await;
    }
    Arc::into_inner(told).unwrap().into_inner().unwrap()
}

/// Whatever a buyer was told is what the row says.
fn assert_told_the_truth(row: &StockRow, told: &Outcomes) {
    assert_whole(row);
    for (token, (units, outcomes)) in told {
        let mark = row.marks.get(token);
        if outcomes.contains(&Reserved::Held) {
            assert_eq!(mark, Some(&Mark::Reserved(*units)), "{token:?} was told {outcomes:?}");
        }
        if let Some(Reserved::Short(_)) = outcomes.last() {
            assert_eq!(mark, None, "{token:?} was told {outcomes:?}");
        }
    }
}

/// Sells what is left one by one; the row afterwards.
async fn sell_out(
    store: &dyn InventoryStore,
    service: &InventoryService,
    product: &str,
) -> StockRow {
    loop {
        let one = reservation(&new_token(), &[(product, 1)]);
        match service.reserve(&one).await {
            Ok(Reserved::Short(short)) => {
                assert_eq!(short[0].available, 0);
                return row(store, product).await;
            }
            Ok(Reserved::Undone) => panic!("nobody has undone it"),
            // Held; or a lost reply, and the token is in the row or it is not.
            Ok(Reserved::Held) | Err(_) => {}
        }
    }
}

async fn two_hundred_buyers_of_a_hundred_units(store: &TestStore) {
    let mut random = Random(seed());
    let service = plain(store);
    for round in 0..50 {
        let product = format!("P{round}");
        stock(store.store.as_ref(), &[(&product, 100)]).await;
        let told = buy(std::slice::from_ref(&service), &product, 200, &mut random).await;
        assert_told_the_truth(&row(store.store.as_ref(), &product).await, &told);
        let row = sell_out(store.store.as_ref(), &service, &product).await;
        assert_eq!((row.level.quantity, row.level.reserved), (100, 100), "round {round}");
        assert_whole(&row);
    }
}

/// A store whose replies are lost on purpose.
pub struct Lossy {
    store: Arc<dyn InventoryStore>,
    random: Mutex<Random>,
    lost: AtomicU64,
    /// Writes that were reported lost and are yet to come.
    ghosts: Mutex<Vec<(StockKey, Option<i64>, StockRow)>>,
    keeps_ghosts: bool,
    is_away: AtomicBool,
}

impl Lossy {
    pub fn new(store: Arc<dyn InventoryStore>, seed: u64, keeps_ghosts: bool) -> Arc<Self> {
        Arc::new(Self {
            store,
            random: Mutex::new(Random(seed)),
            lost: AtomicU64::new(0),
            ghosts: Mutex::default(),
            keeps_ghosts,
            is_away: AtomicBool::new(false),
        })
    }

    /// Replies that were lost so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    fn chance(&self, of: u64) -> u64 {
        self.random.lock().unwrap().below(of)
    }

    /// Fails every other time.
    fn half(&self) -> Result<(), StoreError> {
        let (call, cause) = ("test", "no reply".to_owned());
        if self.chance(2) == 0 { Ok(()) } else { Err(StoreError::Timeout { call, cause }) }
    }

    fn here<T>(&self, value: T) -> Result<T, StoreError> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable { call: "test", cause: "away".to_owned() });
        }
        Ok(value)
    }
}

#[async_trait]
impl InventoryStore for Lossy {
    async fn stock_levels(&self, keys: &[StockKey]) -> Result<Vec<Option<StockLevel>>, StoreError> {
        self.here(())?;
        self.store.stock_levels(keys).await
    }

    async fn stock_zones(&self, product: &ProductId) -> Result<Vec<GeoZone>, StoreError> {
        self.here(())?;
        self.store.stock_zones(product).await
    }

    async fn stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError> {
        self.here(())?;
        self.store.stock_row(key).await
    }

    async fn stock_turn(&self, key: &StockKey) -> Result<Option<(i64, Option<Uuid>)>, StoreError> {
        self.here(())?;
        self.store.stock_turn(key).await
    }

    async fn stand_in_line(
        &self,
        key: &StockKey,
        process: Uuid,
        wants: bool,
    ) -> Result<(), StoreError> {
        self.store.stand_in_line(key, process, wants).await
    }

    async fn line(&self, key: &StockKey) -> Result<Vec<Uuid>, StoreError> {
        self.store.line(key).await
    }

    async fn give_errand(&self, key: &StockKey, errand: &Errand) -> Result<(), StoreError> {
        self.here(())?;
        self.store.give_errand(key, errand).await?;
        self.half()
    }

    async fn errands(&self, key: &StockKey) -> Result<Vec<Errand>, StoreError> {
        self.half()?;
        self.store.errands(key).await
    }

    async fn report_errand(
        &self,
        key: &StockKey,
        from: Uuid,
        number: i64,
        report: &Report,
    ) -> Result<(), StoreError> {
        self.half()?;
        self.store.report_errand(key, from, number, report).await
    }

    async fn errand_report(
        &self,
        key: &StockKey,
        from: Uuid,
    ) -> Result<Option<(i64, Report)>, StoreError> {
        self.half()?;
        self.store.errand_report(key, from).await
    }

    async fn settled_stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError> {
        self.here(())?;
        self.store.settled_stock_row(key).await
    }

    async fn change_stock(
        &self,
        key: &StockKey,
        expected: Option<i64>,
        after: &StockRow,
    ) -> Result<bool, StoreError> {
        self.here(())?;
        let lost = || {
            self.lost.fetch_add(1, Ordering::SeqCst);
            let (call, cause) = ("test", "no reply".to_owned());
            if self.chance(2) == 0 {
                Err(StoreError::Timeout { call, cause })
            } else {
                Err(StoreError::Unavailable { call, cause })
            }
        };
        match self.chance(3) {
            0 => {
                self.store.change_stock(key, expected, after).await?;
                lost()
            }
            1 => {
                if self.keeps_ghosts {
                    let ghost = (key.clone(), expected, after.clone());
                    self.ghosts.lock().unwrap().push(ghost);
                }
                lost()
            }
            _ => self.store.change_stock(key, expected, after).await,
        }
    }

    async fn stock_up(&self, rows: Vec<(StockKey, i64)>, now: Timestamp) -> Result<(), StoreError> {
        self.store.stock_up(rows, now).await
    }
}

async fn lost_replies_are_settled_by_the_row_itself(store: &TestStore) {
    let mut random = Random(seed());
    let lossy = Lossy::new(store.store.clone(), random.next(), false);
    let service = service(lossy.clone(), &Tiers::Off);
    for round in 0..20 {
        let product = format!("P{round}");
        stock(lossy.as_ref(), &[(&product, 60)]).await;
        let told = buy(std::slice::from_ref(&service), &product, 60, &mut random).await;
        assert_told_the_truth(&row(store.store.as_ref(), &product).await, &told);
        let row = sell_out(store.store.as_ref(), &service, &product).await;
        assert_eq!(row.level.reserved, 60, "round {round}");
        assert_whole(&row);
    }
    assert!(lossy.lost() > 10);
}

/// A write that was reported lost may come to life at any time later: after a frozen node thaws.
async fn a_ghost_of_a_lost_write_changes_nothing(store: &TestStore) {
    let mut random = Random(seed());
    let lossy = Lossy::new(store.store.clone(), random.next(), true);
    let service = service(lossy.clone(), &Tiers::Off);
    stock(lossy.as_ref(), &[("A", 10_000)]).await;
    let mut rose = 0;
    for _ in 0..20 {
        let told = buy(std::slice::from_ref(&service), "A", 20, &mut random).await;
        let before = row(store.store.as_ref(), "A").await;
        assert_told_the_truth(&before, &told);
        let ghosts = std::mem::take(&mut *lossy.ghosts.lock().unwrap());
        for (key, expected, after) in ghosts {
            rose += 1;
            let applied = store.store.change_stock(&key, expected, &after).await.unwrap();
            // Of those that only said whose turn it is, the last one may come to life: it has nothing
            // else to say.
            let says_nothing = after.marks == before.marks
                && after.level.reserved == before.level.reserved
                && after.level.quantity == before.level.quantity;
            assert!(!applied || says_nothing, "a ghost has changed the row");
        }
        // The turn may have been given up meanwhile; nothing else has changed.
        let after = row(store.store.as_ref(), "A").await;
        assert!(after.marks == before.marks, "a ghost has left a mark");
        assert_eq!(after.level.reserved, before.level.reserved);
    }
    assert!(rose > 5, "there were ghosts: {rose}");
}

async fn two_services_share_a_row(store: &TestStore) {
    let mut random = Random(seed());
    let services = [plain(store), plain(store), plain(store)];
    for round in 0..10 {
        let product = format!("P{round}");
        stock(store.store.as_ref(), &[(&product, 100)]).await;
        let told = buy(&services, &product, 200, &mut random).await;
        assert_told_the_truth(&row(store.store.as_ref(), &product).await, &told);
        let row = sell_out(store.store.as_ref(), &services[0], &product).await;
        assert_eq!(row.level.reserved, 100, "round {round}");
        assert_whole(&row);
    }
}

async fn the_latest_errand_of_a_writer_counts(store: &TestStore) {
    if !store.store.is_shared() {
        // One process has the folder: there is nobody to run errands for.
        return;
    }
    let (store, key) = (store.store.as_ref(), key("A"));
    let [a, b, c] = [Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3)];
    let all_asks = || {
        let token = new_token;
        vec![
            Ask::Reserve(token(), 3),
            Ask::Settle(token()),
            Ask::Close(token()),
            Ask::TakeBack(token()),
            Ask::Release { token: token(), units: 2, recorded: true },
            Ask::Commit(token(), 1),
            Ask::Set(Token::of_set(Uuid::new_v4()), 7),
            Ask::Adjust(Token::of_adjustment("ключ «'\""), -7),
        ]
    };
    let errand = |from, number, asks| Errand { from, to: c, number, asks };
    let (first, second) = (errand(a, 10, all_asks()), errand(a, 12, all_asks()));
    let other = errand(b, 5, vec![Ask::Settle(new_token())]);
    for given in [&first, &other, &second, &first] {
        store.give_errand(&key, given).await.unwrap();
    }
    assert_eq!(store.errands(&key).await.unwrap(), [second.clone(), other.clone()]);
    let withdrawn = errand(a, 13, Vec::new());
    store.give_errand(&key, &withdrawn).await.unwrap();
    store.give_errand(&key, &second).await.unwrap();
    assert_eq!(store.errands(&key).await.unwrap(), [withdrawn, other]);

    assert_eq!(store.errand_report(&key, a).await.unwrap(), None);
    let level = StockLevel {
        quantity: 9,
        reserved: 4,
        version: 7,
        updated_at: SystemClock.now().to_millis_precision(),
    };
    let told = [
        Told::Done(level),
        Told::Short(2),
        Told::Undone,
        Told::Below { reserved: 3 },
        Told::TooMany,
        Told::Reused,
        Told::Impossible,
        Told::Full,
    ];
    let report = Report::of(level, &told);
    store.report_errand(&key, a, 12, &report).await.unwrap();
    store.report_errand(&key, a, 10, &Report::DECLINED).await.unwrap();
    let (number, found) = store.errand_report(&key, a).await.unwrap().unwrap();
    assert_eq!((number, found.told(told.len()).unwrap()), (12, told.to_vec()));
    store.report_errand(&key, a, 13, &Report::DECLINED).await.unwrap();
    let (_, found) = store.errand_report(&key, a).await.unwrap().unwrap();
    assert_eq!(found.told(3), None);
}

async fn staff_set_and_adjust(store: &TestStore) {
    let service = plain(store);
    let set = |product: &str, quantity| RawEntry {
        product: product.to_owned(),
        zone: ZONE.to_owned(),
        change: RawChange::Set(quantity),
    };
    let adjust = |product: &str, delta, key: &str| RawEntry {
        product: product.to_owned(),
        zone: ZONE.to_owned(),
        change: RawChange::Adjust {
            delta,
            reason: Some("поставка".to_owned()),
            key: key.to_owned(),
        },
    };
    let quantities = |changed: &[(StockKey, StockLevel)]| {
        changed.iter().map(|(_, level)| level.quantity).collect::<Vec<_>>()
    };
    let (changed, faults) = service.change(&[set("A", 5), adjust("B", 3, "k")], &[]).await.unwrap();
    assert_eq!((quantities(&changed), faults), (vec![5, 3], vec![]));
    // The same keys again, at once and many times, beside each other.
    let again =
        (0..20).map(|_| async { service.change(&[adjust("B", 3, "k")], &[]).await.unwrap() });
    for (changed, faults) in join_all(again).await {
        assert_eq!((quantities(&changed), faults), (vec![3], vec![]));
    }
    assert_eq!(
        service.reserve(&reservation(&new_token(), &[("A", 4)])).await.unwrap(),
        Reserved::Held
    );
    let batch = [set("A", 3), adjust("A", -2, "x"), adjust("B", 4, "k"), set("C", 1)];
    let (changed, faults) = service.change(&batch, &[]).await.unwrap();
    assert_eq!(quantities(&changed), [1], "each entry counts for itself");
    let told: Vec<_> = faults
        .iter()
        .map(|f| (f.field.clone().unwrap().join("."), format!("{:?}", f.code)))
        .collect();
    let expected = [
        ("entries.0.quantity", "BelowReserved"),
        ("entries.1.delta", "BelowReserved"),
        ("entries.2.idempotencyKey", "KeyReused"),
    ];
    assert_eq!(told, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    assert!(faults[0].message.contains("4 are reserved"), "{faults:?}");
    assert_eq!(numbers(store, "A").await, (5, 4));
    // Different adjustments of one row in one batch.
    let (changed, _) =
        service.change(&[adjust("D", 3, "1"), adjust("D", 4, "2")], &[]).await.unwrap();
    assert_eq!(changed.len(), 2);
    assert_eq!(numbers(store, "D").await, (7, 0));
}

/// A store that pauses between reading levels and answering.
struct Slow {
    store: Arc<dyn InventoryStore>,
    pauses: AtomicBool,
    has_read: Notify,
    goes_on: Notify,
}

forwarded_stock!(Slow by store {
    fn change_stock(a: &StockKey, b: Option<i64>, c: &StockRow) -> bool;
} and {
    async fn stock_levels(&self, keys: &[StockKey]) -> Result<Vec<Option<StockLevel>>, StoreError> {
        let levels = self.store.stock_levels(keys).await;
        if self.pauses.swap(false, Ordering::SeqCst) {
            self.has_read.notify_one();
            self.goes_on.notified().await;
        }
        levels
    }
});

async fn an_older_level_is_never_shown_after_a_newer_one(store: &TestStore) {
    stock(store.store.as_ref(), &[("A", 10)]).await;
    let slow = Arc::new(Slow {
        store: store.store.clone(),
        pauses: AtomicBool::new(true),
        has_read: Notify::new(),
        goes_on: Notify::new(),
    });
    let service = service(slow.clone(), &Tiers::Memory);
    // A reader has read 10 and is about to fill the cache with it …
    let reader = tokio::spawn({
        let service = service.clone();
        async move { service.levels(&[key("A")]).await.unwrap()[0].unwrap() }
    });
    slow.has_read.notified().await;
    // … when somebody buys, and is shown what is left …
    let bought = reservation(&new_token(), &[("A", 4)]);
    assert_eq!(service.reserve(&bought).await.unwrap(), Reserved::Held);
    let shown = || async { service.levels(&[key("A")]).await.unwrap()[0].unwrap().available() };
    assert_eq!(shown().await, 6);
    slow.goes_on.notify_one();
    // … so what the reader brings is thrown away, for itself as for everybody.
    assert_eq!(reader.await.unwrap().available(), 6);
    assert_eq!(shown().await, 6);
}

async fn watchers_are_told_of_every_row_and_of_the_last_change(store: &TestStore) {
    stock(store.store.as_ref(), &[("A", 1_000), ("B", 7)]).await;
    let service = service(store.store.clone(), &Tiers::Memory);
    let mut changes = Box::pin(service.changes(vec![key("A"), key("B"), key("C")]).await.unwrap());
    let mut seen: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for _ in 0..2 {
        let (key, level) = changes.next().await.unwrap();
        seen.entry(key.product.to_string()).or_default().push(level.available());
    }
    assert_eq!(seen, BTreeMap::from([("A".to_owned(), vec![1_000]), ("B".to_owned(), vec![7])]));
    // Many changes: few of them are told, the last one is.
    let began = tokio::time::Instant::now();
    let buys = (0..200).map(|_| async {
        service.reserve(&reservation(&new_token(), &[("A", 1)])).await.unwrap();
    });
    let ((), told) = tokio::join!(
        async {
            for buy in buys {
                buy.await;
            }
        },
        async {
            let mut told = 0_u32;
            loop {
                let (changed, level) = changes.next().await.unwrap();
                assert_eq!(changed, key("A"));
                told += 1;
                if level.available() == 800 {
                    return told;
                }
            }
        }
    );
    let allowed = 2 + u32::try_from(began.elapsed().as_millis() / 100).unwrap();
    assert!(told <= allowed, "{told} changes were told, at most {allowed}");
    // A row that comes into being.
    stock(store.store.as_ref(), &[("C", 3)]).await;
    let (changed, level) = changes.next().await.unwrap();
    assert_eq!((changed, level.available()), (key("C"), 3));
}

async fn a_store_that_is_away_is_waited_for_and_not_for_ever(store: &TestStore) {
    stock(store.store.as_ref(), &[("A", 10)]).await;
    let lossy = Lossy::new(store.store.clone(), seed(), false);
    let service = service(lossy.clone(), &Tiers::Off);
    lossy.is_away.store(true, Ordering::SeqCst);
    let order = reservation(&new_token(), &[("A", 1)]);
    let began = tokio::time::Instant::now();
    assert!(service.reserve(&order).await.is_err());
    assert!(began.elapsed() < Duration::from_secs(6));
    // It comes back while somebody waits.
    let waiting = tokio::spawn({
        let (service, order) = (service.clone(), order.clone());
        async move { service.reserve(&order).await }
    });
    tokio::task::yield_now().await;
    lossy.is_away.store(false, Ordering::SeqCst);
    assert_eq!(waiting.await.unwrap().unwrap(), Reserved::Held);
    assert_eq!(numbers(store, "A").await, (10, 1));
}

async fn a_full_row_is_waited_for_by_those_who_take(store: &TestStore) {
    stock(store.store.as_ref(), &[("A", 1_000_000)]).await;
    let level = row(store.store.as_ref(), "A").await.level;
    let held: Vec<_> = (0..MAX_OPEN).map(|_| new_token()).collect();
    let marks = held.iter().map(|token| (token.clone(), Mark::Reserved(1))).collect();
    let level = StockLevel { reserved: i64::try_from(MAX_OPEN).unwrap(), version: 2, ..level };
    let full = StockRow { level, marks, turn: None };
    assert!(store.store.change_stock(&key("A"), Some(1), &full).await.unwrap());
    let service = plain(store);
    // More than fit into one round, so that those who settle come after all of them …
    let orders: Vec<_> = (0..1_500).map(|_| reservation(&new_token(), &[("A", 1)])).collect();
    let waiting = orders.iter().map(|order| service.reserve(order));
    let settling = held.iter().take(2_000).map(|token| reservation(token, &[("A", 1)]));
    let settling = async {
        // … when all of them wait.
        tokio::task::yield_now().await;
        for settled in settling.collect::<Vec<_>>().chunks(500) {
            join_all(settled.iter().map(|order| service.settle(order))).await;
        }
    };
    let (told, ()) = tokio::join!(join_all(waiting), settling);
    assert!(told.into_iter().all(|told| told.unwrap() == Reserved::Held));
    let row = row(store.store.as_ref(), "A").await;
    assert_eq!(row.marks.len(), MAX_OPEN - 500);
}
