//! The worker that buys, and looks at stock, when it is told to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use vitrina::cache::{CacheSettings, Entry, Tiers, VersionedCache};
use vitrina::clock::{Clock, SystemClock};
use vitrina::config::{CacheConfig, StoreConfig};
use vitrina::geo_zone::GeoZone;
use vitrina::inventory::InventoryService;
use vitrina::inventory::model::{
    Line, RawChange, RawEntry, Reservation, StockKey, StockLevel, StockRow, Token,
};
use vitrina::inventory::service::{Reserved, StockCaches};
use vitrina::product_id::ProductId;
use vitrina::storage::{self, Store};
use vitrina::telemetry::Metrics;

use super::figures::Load;
use super::requests::below;
use super::roles::control;
use super::{Result, worker};

/// The zone of all stock here.
const ZONE: &str = "Москва";
/// Units of a row: more than are ever bought here.
const UNITS: i64 = 1_000_000_000;
/// The pause of somebody who waits for a change to be shown.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

fn key(row: usize) -> StockKey {
    let product = ProductId::new_unchecked(format!("ROW-{row}"));
    StockKey { product, zone: GeoZone::new_unchecked(ZONE) }
}

/// What the worker works with.
struct Buyers {
    store: Arc<dyn Store>,
    service: Arc<InventoryService>,
    metrics: Arc<Metrics>,
    tiers: Tiers,
    errors: AtomicU64,
}

/// Carries orders out until the benchmark is gone:
///
/// - `stock ROWS`: makes so many rows;
/// - `buy WAY BUYERS ROWS MILLISECONDS`: buys, `combined` or `plain`; reports what was bought;
/// - `errors`: reports how many attempts ended without an answer since it was last asked;
/// - `read WAY ROWS AT_ONCE MILLISECONDS`: reads levels, from the `store`, `redis` or `memory`;
/// - `look ROWS AT_ONCE MILLISECONDS`: reads levels as shoppers do, some rows far more often than
///   others; reports what was read, and hits and misses of both tiers;
/// - `set QUANTITY`: changes a row; `until QUANTITY`: waits until it is shown.
pub(super) async fn work() -> Result<()> {
    let mut control = control().await?;
    let config = StoreConfig::parse(&std::env::var(worker::STORE)?)?;
    let metrics = Arc::new(Metrics::default());
    let clock = Arc::new(SystemClock);
    let store = storage::open(&config, clock.clone(), metrics.clone()).await?;
    let tiers = match std::env::var(worker::REDIS) {
        Ok(url) if !url.is_empty() => Tiers::open(&CacheConfig::parse(&url)?).await,
        _ => Tiers::Memory,
    };
    let caches = StockCaches::new(&tiers, "bench", store.is_shared(), &metrics);
    let service = InventoryService::new(store.clone(), clock, caches, 5, &metrics);
    let buyers = Arc::new(Buyers { store, service, metrics, tiers, errors: AtomicU64::new(0) });
    control.tell("").await?;
    while let Some(order) = control.hear().await? {
        let words: Vec<&str> = order.split(' ').collect();
        let report = match words.as_slice() {
            ["stock", rows] => {
                let rows: Vec<_> = (0..rows.parse()?).map(|row| (key(row), UNITS)).collect();
                buyers.store.stock_up(rows, SystemClock.now()).await?;
                String::new()
            }
            ["buy", way, count, rows, millis] => {
                let time = Duration::from_millis(millis.parse()?);
                buyers.buy(*way == "combined", count.parse()?, rows.parse()?, time).await?
            }
            ["errors"] => buyers.errors.swap(0, Ordering::SeqCst).to_string(),
            ["read", way, rows, at_once, millis] => {
                let time = Duration::from_millis(millis.parse()?);
                buyers.read(way, rows.parse()?, at_once.parse()?, time).await?
            }
            ["look", rows, at_once, millis] => {
                let time = Duration::from_millis(millis.parse()?);
                buyers.look(rows.parse()?, at_once.parse()?, time).await?
            }
            ["set", quantity] => buyers.set(quantity.parse()?).await?,
            ["until", quantity] => buyers.until(quantity.parse()?).await?,
            _ => return Err(format!("an order that cannot be read: {order}").into()),
        };
        control.tell(&report).await?;
    }
    Ok(())
}

impl Buyers {
    async fn buy(
        self: &Arc<Self>,
        combined: bool,
        count: usize,
        rows: usize,
        time: Duration,
    ) -> Result<String> {
        let started = Instant::now();
        let mut buyers = JoinSet::new();
        for buyer in 0..count {
            let this = self.clone();
            buyers.spawn(async move {
                let (mut times, mut draws) = (Vec::new(), buyer as u64);
                while started.elapsed() < time {
                    let row = if rows == 1 { 0 } else { below(&mut draws, rows) };
                    let sent = Instant::now();
                    let done =
                        if combined { this.reserve(row).await } else { this.write(row).await };
                    if done { times.push(sent.elapsed()) } else { this.failed() }
                }
                times
            });
        }
        let mut times = Vec::new();
        while let Some(done) = buyers.join_next().await {
            times.extend(done?);
        }
        Ok(Load::new(started.elapsed(), times).to_string())
    }

    fn failed(&self) {
        self.errors.fetch_add(1, Ordering::SeqCst);
    }

    /// Reserves a unit through the combiner, and settles it in the background.
    async fn reserve(self: &Arc<Self>, row: usize) -> bool {
        let token = Token::of_reservation(uuid::Uuid::now_v7());
        let Ok(order) = Reservation::new(token, [Line { key: key(row), units: 1 }]) else {
            return false;
        };
        if !matches!(self.service.reserve(&order).await, Ok(Reserved::Held)) {
            return false;
        }
        let this = self.clone();
        tokio::spawn(async move {
            if this.service.settle(&order).await.is_err() {
                this.failed();
            }
        });
        true
    }

    /// Reserves a unit with a conditional write of its own, again while others are ahead of it.
    async fn write(&self, row: usize) -> bool {
        let key = key(row);
        loop {
            let Ok(Some(StockRow { level, .. })) = self.store.stock_row(&key).await else {
                return false;
            };
            let StockLevel { quantity, reserved, version, .. } = level;
            let level = StockLevel {
                quantity,
                reserved: reserved + 1,
                version: version + 1,
                updated_at: SystemClock.now(),
            };
            let after = StockRow { level, marks: BTreeMap::new(), turn: None };
            match self.store.change_stock(&key, Some(version), &after).await {
                Ok(true) => return true,
                Ok(false) => {}
                Err(_) => return false,
            }
        }
    }

    async fn read(
        self: &Arc<Self>,
        way: &str,
        rows: usize,
        at_once: usize,
        time: Duration,
    ) -> Result<String> {
        let (tiers, bytes) = match way {
            "store" => (Tiers::Off, 0),
            "memory" => (Tiers::Memory, 32 << 20),
            // Too small for any entry: everything is asked of Redis.
            _ => (self.tiers.clone(), 1),
        };
        let settings = CacheSettings {
            name: "bench",
            prefix: format!("vitrina:bench:{}", uuid::Uuid::new_v4()),
            max_age: Duration::from_secs(1),
            capacity_bytes: bytes,
            expected_entries: rows,
            hot_asks: 0,
            announces: false,
        };
        let cache = VersionedCache::new(&tiers, &settings, |_| 32, &self.metrics);
        let cache = Arc::new(cache);
        let started = Instant::now();
        let mut readers = JoinSet::new();
        for reader in 0..at_once {
            let (this, cache) = (self.clone(), cache.clone());
            readers.spawn(async move {
                let (mut times, mut draws) = (Vec::new(), reader as u64);
                while started.elapsed() < time {
                    let keys = [key(below(&mut draws, rows))];
                    let sent = Instant::now();
                    let read = |missing: Vec<StockKey>| {
                        let store = this.store.clone();
                        async move {
                            let levels = store.stock_levels(&missing).await?;
                            let entry = |level: Option<StockLevel>| Entry {
                                version: level.map_or(0, |level| level.version),
                                value: level.map(Arc::new),
                            };
                            Ok::<_, storage::StoreError>(levels.into_iter().map(entry).collect())
                        }
                    };
                    match cache.get_many(&keys, read).await {
                        Ok(_) => times.push(sent.elapsed()),
                        Err(_) => this.failed(),
                    }
                    // A read from memory never waits; others must get their turn.
                    tokio::task::consume_budget().await;
                }
                times
            });
        }
        let mut times = Vec::new();
        while let Some(done) = readers.join_next().await {
            times.extend(done?);
        }
        Ok(Load::new(started.elapsed(), times).to_string())
    }

    async fn look(self: &Arc<Self>, rows: usize, at_once: usize, time: Duration) -> Result<String> {
        let before = self.lookups();
        let started = Instant::now();
        let mut readers = JoinSet::new();
        for reader in 0..at_once {
            let this = self.clone();
            readers.spawn(async move {
                let (mut looks, mut draws) = (0_u64, reader as u64);
                while started.elapsed() < time {
                    // A page of 24 cards. Each draw is cut to a random part of the rows, so that
                    // the first ones come up far more often: half of all looks go to a hundredth.
                    let keys: Vec<_> = (0..24)
                        .map(|_| {
                            let bound = 1 << below(&mut draws, rows.ilog2() as usize + 1);
                            key(below(&mut draws, bound))
                        })
                        .collect();
                    if this.service.levels(&keys).await.is_err() {
                        this.failed();
                    }
                    looks += 24;
                    tokio::task::consume_budget().await;
                }
                looks
            });
        }
        let mut looks = 0;
        while let Some(done) = readers.join_next().await {
            looks += done?;
        }
        let counts = self.lookups().into_iter().zip(before).map(|(now, before)| now - before);
        let counts: Vec<_> = counts.map(|count| count.to_string()).collect();
        Ok(format!("{looks} {}", counts.join(" ")))
    }

    /// Hits and misses in memory, and in Redis.
    fn lookups(&self) -> [u64; 4] {
        let text = self.metrics.encode();
        let count = |tier: &str, result: &str| {
            let series = format!(
                "vitrina_cache_lookups_total{{cache=\"stock\",tier=\"{tier}\",result=\"{result}\"}} "
            );
            text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok()).unwrap_or(0)
        };
        [
            count("memory", "hit"),
            count("memory", "miss"),
            count("redis", "hit"),
            count("redis", "miss"),
        ]
    }

    async fn set(&self, quantity: i64) -> Result<String> {
        let key = key(0);
        let entry = RawEntry {
            product: key.product.to_string(),
            zone: ZONE.to_owned(),
            change: RawChange::Set(quantity),
        };
        match self.service.change(&[entry], &[]).await {
            Ok((changed, _)) if changed.len() == 1 => Ok(String::new()),
            other => Err(format!("the stock was not set: {other:?}").into()),
        }
    }

    async fn until(&self, quantity: i64) -> Result<String> {
        loop {
            let levels = self.service.levels(&[key(0)]).await;
            let levels = levels.map_err(|error| format!("no stock: {error:?}"))?;
            if levels[0].is_some_and(|level| level.quantity == quantity) {
                return Ok(String::new());
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }
}
