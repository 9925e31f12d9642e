//! What the clients of a history share: instances of the shop, rows, names, and the record.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uuid::Uuid;
use vitrina::cache::Tiers;
use vitrina::clock::SystemClock;
use vitrina::inventory::model::{self as shop, StockKey, StockLevel, StockRow, Token};
use vitrina::inventory::service::StockCaches;
use vitrina::inventory::{InventoryService, InventoryStore};
use vitrina::storage::StoreError;
use vitrina::telemetry::Metrics;

use super::history::{History, Recorder};
use super::model::{Answer, Call, Mark, Name, Seen};
use crate::contract::inventory::{key, stock};

/// How often is asked again, once nothing is in the way any more.
pub const MAX_TRIES: usize = 20;
/// The pause between two attempts to read.
const PAUSE: Duration = Duration::from_millis(50);

/// The token of a reservation.
pub fn token(name: Name) -> Token {
    Token::of_reservation(Uuid::from_u64_pair(0, name.into()))
}

/// The reservation that a mark of a row is of, and how it stands.
pub fn mark_of(token: &Token, mark: shop::Mark) -> Option<(Name, Mark)> {
    let name = Name::try_from(token.order()?.as_u64_pair().1).ok()?;
    let mark = match mark {
        shop::Mark::Reserved(units) => Mark::Reserved(units),
        shop::Mark::Released(_) => Mark::Released,
        shop::Mark::Committed(units) => Mark::Committed(units),
        shop::Mark::Undone(_) => Mark::Undone,
        shop::Mark::Adjusted(..) | shop::Mark::Set(_) => return None,
    };
    Some((name, mark))
}

pub fn seen_level(level: StockLevel) -> Seen {
    Seen {
        available: level.available(),
        quantity: Some(level.quantity),
        version: Some(level.version),
        marks: None,
    }
}

pub fn seen_row(row: &StockRow) -> Seen {
    let marks = row.marks.iter().filter_map(|(token, mark)| mark_of(token, *mark));
    Seen { marks: Some(marks.collect()), ..seen_level(row.level) }
}

/// An instance of the shop: a service of its own on its own way to the store.
#[derive(Clone)]
pub struct Instance {
    pub name: &'static str,
    pub store: Arc<dyn InventoryStore>,
    pub service: Arc<InventoryService>,
    metrics: Arc<Metrics>,
}

impl Instance {
    pub fn new(name: &'static str, store: Arc<dyn InventoryStore>) -> Self {
        let metrics = Arc::new(Metrics::default());
        let caches = StockCaches::new(&Tiers::Off, "t", true, &metrics);
        let clock = Arc::new(SystemClock);
        let service = InventoryService::new(store.clone(), clock, caches, 5, &metrics);
        Self { name, store, service, metrics }
    }

    /// Writes whose reply was lost so far.
    pub fn doubts(&self) -> u64 {
        let told = self.metrics.encode();
        let line = told.lines().find(|line| line.starts_with("vitrina_stock_doubts_total"));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap()
    }
}

/// What all clients of a history know.
pub struct Scene {
    pub recorder: Recorder,
    /// The rows, each a product in the zone of all tests.
    pub rows: Vec<String>,
    next: AtomicU16,
    /// Reservations and adjustments that others may ask for, too.
    pub shared: Mutex<Vec<(String, Call)>>,
    /// Answers that no client with sound records gets from a sound store.
    odd: AtomicU64,
}

/// A product of the catalogue may have its row, so that staff can change it over HTTP.
pub fn row_name(history: &str, row: usize) -> String {
    format!("{history}-{row}")
}

impl Scene {
    /// Begins a history on fresh rows of so many units.
    pub async fn begin(store: &dyn InventoryStore, name: &str, rows: usize, units: i64) -> Self {
        let rows: Vec<_> = (0..rows).map(|row| row_name(name, row)).collect();
        let stocked: Vec<_> = rows.iter().map(|row| (row.as_str(), units)).collect();
        stock(store, &stocked).await;
        Self {
            recorder: Recorder::default(),
            rows,
            next: AtomicU16::new(1),
            shared: Mutex::default(),
            odd: AtomicU64::new(0),
        }
    }

    /// A name that nothing else in this history has.
    pub fn name(&self) -> Name {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// Notes such an answer.
    pub fn was_odd(&self) {
        self.odd.fetch_add(1, Ordering::SeqCst);
    }

    pub fn odd(&self) -> u64 {
        self.odd.load(Ordering::SeqCst)
    }

    /// Everybody has come to an end: what each instance reads now is what there is.
    pub async fn at_rest(&self, instances: &[Instance]) -> History {
        for instance in instances {
            for row in &self.rows {
                let row_as_it_is = async |key| instance.store.settled_stock_row(&key).await;
                self.read(instance, row, row_as_it_is, |row| seen_row(&row.unwrap())).await;
                let level = async |key| instance.store.stock_levels(&[key]).await;
                self.read(instance, row, level, |levels| seen_level(levels[0].unwrap())).await;
            }
        }
        self.recorder.recorded()
    }

    /// Reads until there is an answer: the way to the store may have to be found again.
    async fn read<T>(
        &self,
        instance: &Instance,
        row: &str,
        read: impl AsyncFn(StockKey) -> Result<T, StoreError>,
        seen: impl Fn(T) -> Seen,
    ) {
        let mut last = None;
        for _ in 0..MAX_TRIES {
            let begun = self.recorder.begin(instance.name, row, Call::Read);
            match read(key(row)).await {
                Ok(found) => return self.recorder.end(begun, Answer::Seen(seen(found))),
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{row} cannot be read: {last:?}");
    }
}
