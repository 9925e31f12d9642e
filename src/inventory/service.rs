//! Use cases of the inventory: what a resolver or a checkout calls.

mod caches;
mod combiner;
mod errands;
mod feed;
mod turns;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use tokio::time::MissedTickBehavior;

pub use self::caches::StockCaches;
use self::caches::zones_entry;
use self::combiner::Combiner;
use self::feed::Feed;
use super::model::{
    Ask, Line, MAX_BATCH, MAX_ZONES, RawChange, RawEntry, Reservation, Shortage, StockKey,
    StockLevel, Token, Told, check_entries,
};
use super::store::InventoryStore;
use crate::cache::Entry;
use crate::clock::Clock;
use crate::error::{Error, ErrorCode, UserError};
use crate::geo_zone::GeoZone;
use crate::locks::{Locked, Locks};
use crate::product_id::ProductId;
use crate::telemetry::Metrics;

/// How often rows that are watched are looked at, in case a message was lost.
const REFRESH: Duration = Duration::from_secs(1);
/// Products whose zones are read at once.
const ZONES_AT_ONCE: usize = 32;
/// The version of a row that has just been made.
const FIRST_VERSION: i64 = 1;
/// Rows of one look.
const REFRESH_ROWS: usize = 250;

/// How a reservation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// All of it is held.
    Held,
    /// Nothing of it is held: these rows have too little.
    Short(Vec<Shortage>),
    /// Nothing of it is held: the token was released before.
    Undone,
}

/// What is known of a reservation that is to be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is recorded that all of it was held.
    Recorded,
    /// It may have been held, in part or not at all, and somebody may still be at it.
    Unknown,
}

/// The stock of the shop.
pub struct InventoryService {
    store: Arc<dyn InventoryStore>,
    combiner: Combiner,
    caches: Arc<StockCaches>,
    feed: Arc<Feed>,
    low_stock: i64,
    /// Calls for one reservation of several rows; see [`InventoryService::reserve`].
    locks: Locks<Token>,
}

impl InventoryService {
    /// The stock of a store. Up to `low_stock` units are shown as few.
    pub fn new(
        store: Arc<dyn InventoryStore>,
        clock: Arc<dyn Clock>,
        caches: StockCaches,
        low_stock: i64,
        metrics: &Metrics,
    ) -> Arc<Self> {
        Self::build(store, clock, caches, low_stock, metrics, true)
    }

    /// The same without combining requests for a row, to measure what that is worth.
    pub fn apart(
        store: Arc<dyn InventoryStore>,
        clock: Arc<dyn Clock>,
        caches: StockCaches,
        metrics: &Metrics,
    ) -> Arc<Self> {
        Self::build(store, clock, caches, 0, metrics, false)
    }

    fn build(
        store: Arc<dyn InventoryStore>,
        clock: Arc<dyn Clock>,
        caches: StockCaches,
        low_stock: i64,
        metrics: &Metrics,
        combines: bool,
    ) -> Arc<Self> {
        let (caches, feed) = (Arc::new(caches), Arc::new(Feed::default()));
        let on_change = {
            let (caches, feed) = (caches.clone(), feed.clone());
            Box::new(move |key: &StockKey, level, since| {
                caches.changed(key, level, since);
                feed.tell(key, level);
            })
        };
        caches.listen({
            let feed = feed.clone();
            move |key, level| feed.tell(&key, level)
        });
        let combiner = Combiner::new(store.clone(), clock, metrics.stock().clone(), on_change);
        let combiner = if combines { combiner } else { combiner.apart() };
        let is_shared = caches.is_shared;
        let this =
            Arc::new(Self { store, combiner, caches, feed, low_stock, locks: Locks::default() });
        if is_shared {
            tokio::spawn(refresh(Arc::downgrade(&this)));
        }
        this
    }

    /// Up to so many units are shown as few.
    pub fn low_stock(&self) -> i64 {
        self.low_stock
    }

    /// The levels of these rows, in their order, as shoppers see them; `None` where a product is
    /// not sold in a zone.
    pub async fn levels(&self, keys: &[StockKey]) -> Result<Vec<Option<StockLevel>>, Error> {
        let read = |missing: Vec<StockKey>| async move {
            let levels = self.store.stock_levels(&missing).await?;
            let entry = |level: Option<StockLevel>| Entry {
                version: level.map_or(0, |level| level.version),
                value: level.map(Arc::new),
            };
            Ok::<_, Error>(levels.into_iter().map(entry).collect())
        };
        let levels = self.caches.levels.get_many(keys, read).await?;
        Ok(levels.into_iter().map(|level| level.map(|level| *level)).collect())
    }

    /// The zones that products are sold in, by name.
    pub async fn zones(&self, products: &[ProductId]) -> Result<Vec<Arc<Vec<GeoZone>>>, Error> {
        let read = |missing: Vec<ProductId>| async move {
            let reads = missing.iter().map(|product| self.store.stock_zones(product));
            let reads = stream::iter(reads.collect::<Vec<_>>()).buffered(ZONES_AT_ONCE);
            Ok::<_, Error>(reads.map_ok(zones_entry).try_collect().await?)
        };
        let zones = self.caches.zones.get_many(products, read).await?;
        Ok(zones.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// The levels of rows as they change, the current ones first.
    pub async fn changes(
        &self,
        keys: Vec<StockKey>,
    ) -> Result<impl Stream<Item = (StockKey, StockLevel)> + Send + use<>, Error> {
        // Watched before they are read: no change is missed in between.
        let changes = self.feed.levels(&keys)?;
        self.look_at(&keys).await?;
        Ok(changes)
    }

    async fn look_at(&self, keys: &[StockKey]) -> Result<(), Error> {
        for (key, level) in keys.iter().zip(self.levels(keys).await?) {
            if let Some(level) = level {
                self.feed.tell(key, level);
            }
        }
        Ok(())
    }

    /// Holds the units of a reservation, all of them or none. Asked again with the same token it
    /// changes nothing and answers the same, as long as the reservation was not settled; a refusal
    /// leaves nothing behind and is decided anew.
    ///
    /// An error tells nothing: what was asked may have happened, or may yet happen. Asking this
    /// process again tells the truth; whoever gives up, or goes on in another process and is refused
    /// there, has to [`release`](Self::release) with [`Standing::Unknown`].
    ///
    /// One process at a time drives a reservation of several rows: of two that do, one could take
    /// back what the other counts on. Within a process they wait for each other.
    pub async fn reserve(&self, reservation: &Reservation) -> Result<Reserved, Error> {
        let _alone = self.alone(reservation).await;
        for (index, line) in reservation.lines().iter().enumerate() {
            let ask = Ask::Reserve(reservation.token.clone(), line.units);
            match self.combiner.ask(&line.key, ask).await? {
                Told::Done(_) => {}
                Told::Short(available) => {
                    self.take_back(reservation).await?;
                    let mut shortages = vec![shortage(line, available)];
                    // The others are for the shopper's information.
                    let others = self.shortages(&reservation.lines()[index + 1..]).await;
                    shortages.extend(others.unwrap_or_default());
                    return Ok(Reserved::Short(shortages));
                }
                Told::Undone => {
                    self.take_back(reservation).await?;
                    return Ok(Reserved::Undone);
                }
                told => {
                    self.take_back(reservation).await?;
                    return Err(unexpected(&line.key, told));
                }
            }
        }
        Ok(Reserved::Held)
    }

    /// Of rows that were not asked yet, those that have too little: a shopper is told of all.
    async fn shortages(&self, lines: &[Line]) -> Result<Vec<Shortage>, Error> {
        let keys: Vec<_> = lines.iter().map(|line| line.key.clone()).collect();
        let levels = self.store.stock_levels(&keys).await?;
        let available = levels.iter().map(|level| level.map_or(0, |level| level.available()));
        let short = lines.iter().zip(available).filter(|(line, there)| *there < line.units);
        Ok(short.map(|(line, available)| shortage(line, available)).collect())
    }

    /// Frees whatever is held for a reservation, by this call or an earlier one.
    async fn take_back(&self, reservation: &Reservation) -> Result<(), Error> {
        if reservation.lines().len() < 2 {
            // The row that refused held nothing, and there is no other. What it holds by now was
            // given to another call for the same reservation.
            return Ok(());
        }
        let asks = reservation
            .lines()
            .iter()
            .map(|line| self.combiner.ask(&line.key, Ask::TakeBack(reservation.token.clone())));
        // All of them, also when one fails.
        let told = join_all(asks).await;
        told.into_iter().try_for_each(|told| told.map(drop))
    }

    /// The caller has recorded that the reservation is held: the rows need not remember it any
    /// more.
    pub async fn settle(&self, reservation: &Reservation) -> Result<(), Error> {
        self.ask_all(reservation, |_| Ask::Settle(reservation.token.clone())).await
    }

    /// The caller has recorded that the reservation was released or has left: the rows need not
    /// remember it much longer.
    pub async fn close(&self, reservation: &Reservation) -> Result<(), Error> {
        self.ask_all(reservation, |_| Ask::Close(reservation.token.clone())).await
    }

    /// Frees what a reservation holds. It can be repeated until it is closed.
    pub async fn release(
        &self,
        reservation: &Reservation,
        standing: Standing,
    ) -> Result<(), Error> {
        let release = |line: &Line| Ask::Release {
            token: reservation.token.clone(),
            units: line.units,
            recorded: standing == Standing::Recorded,
        };
        self.ask_all(reservation, release).await
    }

    /// What a reservation holds leaves for good. It is recorded that it was held. It can be
    /// repeated until it is closed.
    pub async fn commit(&self, reservation: &Reservation) -> Result<(), Error> {
        let commit = |line: &Line| Ask::Commit(reservation.token.clone(), line.units);
        self.ask_all(reservation, commit).await
    }

    async fn ask_all(
        &self,
        reservation: &Reservation,
        ask: impl Fn(&Line) -> Ask,
    ) -> Result<(), Error> {
        let _alone = self.alone(reservation).await;
        let asks = reservation.lines().iter().map(|line| self.combiner.ask(&line.key, ask(line)));
        // All of them, also when one fails: each counts for itself.
        let told: Vec<_> = join_all(asks).await;
        for (line, told) in reservation.lines().iter().zip(told) {
            match told? {
                Told::Done(_) => {}
                told => return Err(unexpected(&line.key, told)),
            }
        }
        Ok(())
    }

    /// Keeps calls for one reservation apart, where it has several rows.
    async fn alone(&self, reservation: &Reservation) -> Option<Locked<'_, Token>> {
        if reservation.lines().len() < 2 {
            return None;
        }
        Some(self.locks.lock(&reservation.token).await)
    }

    /// Changes quantities for staff. All entries are checked before the first is carried out; after
    /// that each counts for itself. Answers with the rows that were changed, and with what is wrong
    /// with the others. `unknown` are the entries whose product is not in the catalogue.
    pub async fn change(
        &self,
        batch: &[RawEntry],
        unknown: &[usize],
    ) -> Result<(Vec<(StockKey, StockLevel)>, Vec<UserError>), Error> {
        if batch.len() > MAX_BATCH {
            let fault = format!("at most {MAX_BATCH} at once, got {}", batch.len());
            return Err(Error::argument("entries", fault));
        }
        // A product that is not there is a slip of the pen: its stock would never be seen.
        let no_product = |index: &usize| {
            let message = "There is no such product.".to_owned();
            entry_fault(*index, "productId", ErrorCode::NotFound, message)
        };
        let mut faults: Vec<_> = unknown.iter().map(no_product).collect();
        let asks = match check_entries(batch, || Token::of_set(uuid::Uuid::new_v4())) {
            Ok(asks) => asks,
            Err(wrong) => {
                faults.extend(wrong);
                return Ok((Vec::new(), faults));
            }
        };
        faults.extend(self.crowded(&asks).await?);
        if !faults.is_empty() {
            return Ok((Vec::new(), faults));
        }
        let told =
            join_all(asks.iter().map(|(key, ask)| self.combiner.ask(key, ask.clone()))).await;
        let (mut changed, mut failed) = (Vec::new(), None);
        for (index, ((key, _), told)) in asks.into_iter().zip(told).enumerate() {
            match told {
                Ok(Told::Done(level)) => {
                    log_change(&key, &batch[index].change, level);
                    changed.push((key, level));
                }
                Ok(told) => match refusal(index, &batch[index].change, &key, told) {
                    Ok(fault) => faults.push(fault),
                    Err(error) => failed = Some(error),
                },
                Err(error) => failed = Some(error),
            }
        }
        for (key, _) in changed.iter().filter(|(_, level)| level.version == FIRST_VERSION) {
            self.caches.has_zones(&key.product, self.store.stock_zones(&key.product).await?);
        }
        // What was carried out is logged, and can be asked for again.
        failed.map_or(Ok((changed, faults)), Err)
    }

    /// Entries that would give a product more zones than it may have.
    async fn crowded(&self, asks: &[(StockKey, Ask)]) -> Result<Vec<UserError>, Error> {
        let products: HashSet<&ProductId> = asks.iter().map(|(key, _)| &key.product).collect();
        let read = |product| async move {
            Ok::<_, Error>((product, self.store.stock_zones(product).await?))
        };
        let reads: Vec<_> = products.into_iter().map(read).collect();
        let mut zones: HashMap<&ProductId, Vec<GeoZone>> =
            stream::iter(reads).buffer_unordered(ZONES_AT_ONCE).try_collect().await?;
        let mut faults = Vec::new();
        for (index, (key, _)) in asks.iter().enumerate() {
            let Some(zones) = zones.get_mut(&key.product) else { continue };
            if zones.contains(&key.zone) {
                continue;
            }
            zones.push(key.zone.clone());
            if zones.len() > MAX_ZONES {
                let message = format!("A product is sold in at most {MAX_ZONES} zones.");
                faults.push(entry_fault(index, "geoZone", ErrorCode::TooMany, message));
            }
        }
        Ok(faults)
    }
}

fn shortage(line: &Line, available: i64) -> Shortage {
    Shortage { key: line.key.clone(), requested: line.units, available }
}

/// An answer that no caller with sound records gets.
fn unexpected(key: &StockKey, told: Told) -> Error {
    tracing::error!(row = %key, ?told, "a reservation that cannot be");
    Error::Internal
}

fn entry_fault(index: usize, field: &str, code: ErrorCode, message: String) -> UserError {
    let field = ["entries".to_owned(), index.to_string(), field.to_owned()];
    UserError { code, field: Some(field.into()), message }
}

fn refusal(
    index: usize,
    change: &RawChange,
    key: &StockKey,
    told: Told,
) -> Result<UserError, Error> {
    let field = match change {
        RawChange::Set(_) => "quantity",
        RawChange::Adjust { .. } => "delta",
    };
    Ok(match told {
        Told::Below { reserved } => {
            let message = format!("{reserved} are reserved; the quantity cannot be below that.");
            entry_fault(index, field, ErrorCode::BelowReserved, message)
        }
        Told::TooMany => {
            let max = super::model::MAX_QUANTITY;
            let message = format!("A quantity is at most {max}.");
            entry_fault(index, field, ErrorCode::Invalid, message)
        }
        Told::Reused => {
            let message = "This key was used for another adjustment.".to_owned();
            entry_fault(index, "idempotencyKey", ErrorCode::KeyReused, message)
        }
        told => return Err(unexpected(key, told)),
    })
}

/// Who looks for what became of the stock finds it in the log.
fn log_change(key: &StockKey, change: &RawChange, level: StockLevel) {
    let (product, zone) = (key.product.as_str(), key.zone.as_str());
    let StockLevel { quantity, reserved, version, .. } = level;
    match change {
        RawChange::Set(_) => {
            tracing::info!(product, zone, quantity, reserved, version, "stock set");
        }
        RawChange::Adjust { delta, reason, .. } => {
            let reason = reason.as_deref();
            tracing::info!(
                product,
                zone,
                delta,
                reason,
                quantity,
                reserved,
                version,
                "stock adjusted"
            );
        }
    }
}

/// Looks at watched rows now and then, as long as the service is there.
async fn refresh(service: Weak<InventoryService>) {
    let mut ticks = tokio::time::interval(REFRESH);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(service) = service.upgrade() else { return };
        for keys in service.feed.watched().chunks(REFRESH_ROWS) {
            if service.look_at(keys).await.is_err() {
                // It was logged; the next look comes soon.
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests;
