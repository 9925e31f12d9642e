use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::time::sleep;
use uuid::Uuid;

use super::*;
use crate::cache::Tiers;
use crate::clock::{SystemClock, Timestamp};
use crate::inventory::model::{Errand, Mark, Report, StockRow, decide};
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
    /// How long a write takes to which nothing happens.
    write_millis: u64,
    writes: AtomicUsize,
    reads: AtomicUsize,
    line: Mutex<BTreeSet<Uuid>>,
    errands: Mutex<BTreeMap<Uuid, Errand>>,
    /// Errands that were not acknowledged.
    late: Mutex<Vec<Errand>>,
    reports: Mutex<BTreeMap<Uuid, (i64, Report)>>,
    /// Draws what goes wrong; without it nothing does.
    chance: Option<Mutex<u64>>,
}

fn lost<T>() -> Result<T, StoreError> {
    Err(StoreError::Timeout { call: "test", cause: "lost".to_owned() })
}

impl Fake {
    fn below(&self, bound: u64) -> u64 {
        let Some(chance) = &self.chance else { return bound - 1 };
        let mut state = chance.lock().unwrap();
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % bound
    }

    fn is_unlucky(&self) -> bool {
        self.chance.is_some() && self.below(8) == 0
    }

    /// What errands go through: some time, and sometimes no answer.
    async fn trouble(&self) -> Result<(), StoreError> {
        if self.chance.is_none() {
            return Ok(());
        }
        let millis = if self.below(30) == 0 { 600 } else { 1 + self.below(4) };
        sleep(Duration::from_millis(millis)).await;
        if self.is_unlucky() { lost() } else { Ok(()) }
    }

    fn chance_fate(&self) -> Fate {
        if self.chance.is_none() {
            return Fate::Done(self.write_millis);
        }
        match self.below(20) {
            0 => Fate::Ghost(1 + self.below(50)),
            1 => Fate::Unheard,
            2 => Fate::Done(400),
            _ => Fate::Done(5 + self.below(20)),
        }
    }

    /// Some of the writes that were reported lost come to life.
    fn haunt(&self) {
        for (key, expected, after) in std::mem::take(&mut *self.ghosts.lock().unwrap()) {
            if self.below(2) == 0 {
                self.apply(&key, expected, &after);
            }
        }
    }

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

    async fn stand_in_line(&self, _: &StockKey, who: Uuid, wants: bool) -> Result<(), StoreError> {
        let mut line = self.line.lock().unwrap();
        if wants {
            line.insert(who)
        } else {
            line.remove(&who)
        };
        Ok(())
    }

    async fn line(&self, _: &StockKey) -> Result<Vec<Uuid>, StoreError> {
        Ok(self.line.lock().unwrap().iter().copied().collect())
    }

    async fn give_errand(&self, _: &StockKey, errand: &Errand) -> Result<(), StoreError> {
        self.trouble().await?;
        if self.is_unlucky() {
            // It is seen later, perhaps too late.
            self.late.lock().unwrap().push(errand.clone());
            return lost();
        }
        self.errands.lock().unwrap().insert(errand.from, errand.clone());
        self.trouble().await
    }

    async fn errands(&self, _: &StockKey) -> Result<Vec<Errand>, StoreError> {
        let mut errands = self.errands.lock().unwrap().clone();
        for late in self.late.lock().unwrap().iter() {
            let before = errands.get(&late.from).map_or(0, |before| before.number);
            // Of what was not acknowledged a copy may be seen, or not.
            if before < late.number && !self.is_unlucky() {
                errands.insert(late.from, late.clone());
            }
        }
        self.trouble().await?;
        Ok(errands.into_values().collect())
    }

    async fn report_errand(
        &self,
        _: &StockKey,
        from: Uuid,
        number: i64,
        report: &Report,
    ) -> Result<(), StoreError> {
        self.trouble().await?;
        self.reports.lock().unwrap().insert(from, (number, report.clone()));
        Ok(())
    }

    async fn errand_report(
        &self,
        _: &StockKey,
        from: Uuid,
    ) -> Result<Option<(i64, Report)>, StoreError> {
        self.trouble().await?;
        Ok(self.reports.lock().unwrap().get(&from).cloned())
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
        let fate = self.fates.lock().unwrap().pop_front().unwrap_or_else(|| self.chance_fate());
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
    Arc::new(Fake { rows, fates, settle_millis, write_millis: 1, ..Fake::default() })
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

/// Several services of one store, and how many requests were carried out for others.
fn several(
    store: &Arc<Fake>,
    count: usize,
) -> (Vec<Arc<InventoryService>>, impl Fn() -> u64 + use<>) {
    let metrics: Vec<_> = (0..count).map(|_| Metrics::default()).collect();
    let services = metrics.iter().map(|metrics| {
        let caches = StockCaches::new(&Tiers::Off, "t", true, metrics);
        InventoryService::new(store.clone(), Arc::new(SystemClock), caches, 5, metrics)
    });
    let services = services.collect();
    (services, move || metrics.iter().map(|metrics| metrics.stock().handed_total()).sum())
}

/// Buys from several services of one row that has too little, everything going wrong that can;
/// answers with how many requests were carried out for others.
async fn buy_in_trouble(seed: u64) -> u64 {
    const UNITS: i64 = 60;
    let updated_at = Timestamp::from_millis(0);
    let level = StockLevel { quantity: UNITS, reserved: 0, version: 1, updated_at };
    let row = StockRow { level, marks: BTreeMap::new(), turn: None };
    let store = Arc::new(Fake {
        rows: Mutex::new(BTreeMap::from([(key(), row)])),
        settle_millis: 5,
        chance: Some(Mutex::new(seed)),
        ..Fake::default()
    });
    let (services, handed) = several(&store, 3);
    let haunted = tokio::spawn({
        let store = store.clone();
        async move {
            loop {
                sleep(Duration::from_millis(20)).await;
                store.haunt();
            }
        }
    });
    let (settled, kept) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(BTreeMap::new())));
    let buyers = (0..60_u128).map(|buyer| {
        let service = services[usize::try_from(buyer % 3).unwrap()].clone();
        let (store, settled, kept) = (store.clone(), settled.clone(), kept.clone());
        tokio::spawn(async move {
            for attempt in 0..25 {
                let token = token(buyer * 1_000 + attempt);
                let units = 1 + store.below(3).cast_signed();
                let line = Line { key: key(), units };
                let order = Reservation::new(token.clone(), [line]).unwrap();
                // Without an answer the same is asked again, as whoever retries does.
                let told = loop {
                    if let Ok(told) = service.reserve(&order).await {
                        break told;
                    }
                };
                match told {
                    Reserved::Held => match store.below(8) {
                        0 => {
                            kept.lock().unwrap().insert(token, units);
                        }
                        1 => {
                            while service.settle(&order).await.is_err() {}
                            *settled.lock().unwrap() += units;
                        }
                        _ => while service.release(&order, Standing::Unknown).await.is_err() {},
                    },
                    Reserved::Short(_) => {}
                    Reserved::Undone => panic!("nobody gave it up"),
                }
            }
        })
    });
    for buyer in join_all(buyers.collect::<Vec<_>>()).await {
        buyer.unwrap();
    }
    // Whatever was lost may rise now, and what nobody wants any more be settled.
    sleep(Duration::from_secs(10)).await;
    haunted.abort();
    store.haunt();
    let row = store.row();
    let mut held = BTreeMap::new();
    for (token, mark) in row.marks {
        if let Mark::Reserved(units) = mark {
            held.insert(token, units);
        }
    }
    assert_eq!(held, *kept.lock().unwrap(), "seed {seed}");
    let settled = *settled.lock().unwrap();
    assert_eq!(row.level.reserved, settled + held.values().sum::<i64>(), "seed {seed}");
    handed()
}

/// Three writers of one row, whose writes and errands are late, lost, or rise after they were lost.
#[tokio::test(start_paused = true)]
async fn errands_are_run_once_whatever_goes_wrong() {
    const SEEDS: u64 = 60;
    let first = std::env::var("VITRINA_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let begin: u64 = first.unwrap_or_else(|| SystemClock.now().micros().cast_unsigned());
    println!("VITRINA_TEST_SEED={begin}");
    let mut handed = 0;
    for seed in begin..begin + SEEDS {
        handed += buy_in_trouble(seed).await;
    }
    assert!(handed > 20 * SEEDS, "{handed} requests were carried out for others");
}

/// Those who wait are served in the rounds of the one whose turn it is.
#[tokio::test(start_paused = true)]
async fn who_waits_is_served_in_anothers_turn() {
    let store =
        Arc::new(Fake { write_millis: 20, ..Arc::into_inner(fake(1_000_000, 1, &[])).unwrap() });
    let (services, handed) = several(&store, 2);
    let buyers = (0..200_u128).map(|buyer| {
        let service = services[usize::try_from(buyer % 2).unwrap()].clone();
        tokio::spawn(async move {
            for order in 0..100 {
                let ask = Ask::Reserve(token(buyer * 1_000 + order), 1);
                service.combiner.ask(&key(), ask).await.unwrap();
                let ask = Ask::Settle(token(buyer * 1_000 + order));
                service.combiner.ask(&key(), ask).await.unwrap();
            }
        })
    });
    for buyer in join_all(buyers.collect::<Vec<_>>()).await {
        buyer.unwrap();
    }
    assert_eq!(store.row().level.reserved, 20_000);
    // Half of the callers wait for another's turn at any time.
    assert!(handed() > 4_000, "{} of 40,000 requests", handed());
}

/// The other writer has taken an errand along and stands still. Who takes it back finds the row sold
/// out; what the other one has decided would free units and hold them for this very buyer.
#[tokio::test(start_paused = true)]
async fn nobody_is_refused_and_then_held_by_an_errand() {
    let store = fake(10, 1, &[]);
    let (services, _) = several(&store, 1);
    let combiner = &services[0].combiner;
    combiner.ask(&key(), Ask::Reserve(token(1), 5)).await.unwrap();
    let other = Uuid::from_u128(7);
    let at_work = {
        let mut rows = store.rows.lock().unwrap();
        let row = rows.get_mut(&key()).unwrap();
        // Which this service does not know of.
        row.marks.insert(token(3), Mark::Reserved(5));
        row.level.reserved += 5;
        (row.level.version, row.turn) = (row.level.version + 1, Some(other));
        row.clone()
    };
    let buying = tokio::spawn({
        let service = services[0].clone();
        async move { service.combiner.ask(&key(), Ask::Reserve(token(2), 5)).await }
    });
    // Less than it takes until the other one is given up.
    sleep(Duration::from_millis(100)).await;
    let errand = store.errands.lock().unwrap().values().next().cloned().unwrap();
    assert_eq!(errand.to, other);
    let release = Ask::Release { token: token(1), units: 5, recorded: false };
    let asks = std::iter::once(&release).chain(&errand.asks);
    let after = decide(Some(&at_work), asks, SystemClock.now()).after.unwrap();
    assert!(matches!(after.marks.get(&token(2)), Some(Mark::Reserved(5))));
    assert_eq!(buying.await.unwrap().unwrap(), Told::Short(0));
    assert!(!store.apply(&key(), Some(at_work.level.version), &after), "it rose after that");
}
