//! Writing products, in a worker: through the store, with everything that follows from a product,
//! and beside it the card alone, which is the same row in one table.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use rust_decimal::Decimal;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlDecimal, CqlTimestamp};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use vitrina::catalog::model::{Before, MAX_BATCH, Product, ProductDraft};
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::config::StoreConfig;
use vitrina::money::Currency;
use vitrina::storage::embedded::{Engine, Key, Table};
use vitrina::storage::{self, Store};
use vitrina::telemetry::Metrics;

use super::card_driver::{PRODUCT, ProductRow};
use super::figures::Load;
use super::requests::below;
use super::roles::prepare;
use super::shelf::Shelf;
use super::{Error, Result, clerk};

/// Writers at once, each with a batch of [`MAX_BATCH`] products under way: as many as the demo has.
pub(super) const WRITERS: usize = 16;
/// Rows of one batch that are under way at once, as in the store on Cassandra.
const ROWS_AT_ONCE: usize = 64;
/// Times that a batch is tried: a busy node may let one run out of time.
const MAX_TRIES: u32 = 4;
/// The category that the store writes to.
const SHELF: &str = "upserts";
/// The category of cards that are written alone; their ids must not be those of the others.
const CARDS: &str = "cards";
/// The table of cards, in the store and alone.
const TABLE: &str = "product_by_id";
/// Different prices that a product is given.
const REVISIONS: usize = 1 << 20;

/// What is written.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// The product: card, rows of both read models, counts.
    Product,
    /// The card, read before it is written: what a store without read models would do.
    Card,
    /// The card, without a look at what was there.
    BlindCard,
}

impl Way {
    /// All, in the order of the table.
    pub(super) const ALL: [Self; 3] = [Self::Product, Self::Card, Self::BlindCard];

    /// Its name in an order.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Product => "product",
            Self::Card => "card",
            Self::BlindCard => "blind",
        }
    }
}

impl FromStr for Way {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name).ok_or_else(|| "no such way".into())
    }
}

/// What it changes.
#[derive(Clone, Copy)]
pub(super) enum Change {
    /// Products that were not there.
    New,
    /// The price of products that were.
    Price,
}

impl Change {
    /// Both.
    pub(super) const BOTH: [Self; 2] = [Self::New, Self::Price];

    /// Its name in an order.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Price => "price",
        }
    }
}

impl FromStr for Change {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::BOTH.into_iter().find(|change| change.name() == name);
        known.ok_or_else(|| "no such change".into())
    }
}

/// Everything that is needed to write.
pub(super) struct Writes {
    store: Arc<dyn Store>,
    cards: Cards,
    /// Products that were there at the start, in both.
    base: u64,
    /// The next new product.
    next: AtomicU64,
    /// Runs so far; each draws differently.
    runs: AtomicU64,
    /// Batches that had to be written again.
    repeats: AtomicU64,
}

/// Where cards are written alone.
enum Cards {
    Embedded { engine: Engine, table: Table },
    Cassandra { session: Arc<Session>, read: PreparedStatement, write: PreparedStatement },
}

impl Writes {
    /// Fills both with the same products.
    pub(super) async fn prepare(
        place: &StoreConfig,
        store: Arc<dyn Store>,
        base: u64,
    ) -> Result<Self> {
        clerk::fill(store.as_ref(), &Shelf::new(SHELF), base).await?;
        let cards = Cards::open(place).await?;
        let shelf = Shelf::new(CARDS);
        let batches = (0..base).step_by(MAX_BATCH).map(|first| {
            let last = (first + MAX_BATCH as u64).min(base);
            cards.write((first..last).map(|index| shelf.product(index)).collect(), Way::BlindCard)
        });
        let batches: Vec<_> = batches.collect();
        stream::iter(batches).buffer_unordered(WRITERS).try_collect::<()>().await?;
        let (next, runs, repeats) = (AtomicU64::new(base), AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { store, cards, base, next, runs, repeats })
    }

    /// Keeps all writers busy for a while; the times of batches.
    pub(super) async fn run(
        self: &Arc<Self>,
        way: Way,
        change: Change,
        time: Duration,
    ) -> Result<Load> {
        let started = Instant::now();
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let (writes, seed) = (self.clone(), self.runs.fetch_add(1, Ordering::Relaxed));
            writers.spawn(async move { writes.write_for(time, way, change, seed).await });
        }
        let mut times = Vec::new();
        while let Some(done) = writers.join_next().await {
            times.extend(done??);
        }
        Ok(Load::new(started.elapsed(), times))
    }

    async fn write_for(
        &self,
        time: Duration,
        way: Way,
        change: Change,
        seed: u64,
    ) -> Result<Vec<Duration>> {
        let shelf = Shelf::new(if matches!(way, Way::Product) { SHELF } else { CARDS });
        let mut draws = seed;
        let mut times = Vec::new();
        let started = Instant::now();
        while started.elapsed() < time {
            let batch = match change {
                Change::New => self.new_products(&shelf),
                Change::Price => self.new_prices(&shelf, &mut draws),
            };
            let sent = Instant::now();
            let mut tries = 1;
            // Writing the same batch again is safe, and what a caller would do.
            while let Err(error) = self.write(way, batch.clone()).await {
                if tries == MAX_TRIES {
                    return Err(error);
                }
                tries += 1;
                self.repeats.fetch_add(1, Ordering::Relaxed);
            }
            times.push(sent.elapsed());
        }
        Ok(times)
    }

    async fn write(&self, way: Way, batch: Vec<ProductDraft>) -> Result<()> {
        match way {
            Way::Product => {
                self.store.upsert_products(batch, SystemClock.now()).await?;
                Ok(())
            }
            Way::Card | Way::BlindCard => self.cards.write(batch, way).await,
        }
    }

    /// Batches that had to be written again since the last time this was asked.
    pub(super) fn repeats(&self) -> u64 {
        self.repeats.swap(0, Ordering::Relaxed)
    }

    fn new_products(&self, shelf: &Shelf) -> Vec<ProductDraft> {
        let batch = MAX_BATCH as u64;
        let first = self.next.fetch_add(batch, Ordering::Relaxed);
        (first..first + batch).map(|index| shelf.product(index)).collect()
    }

    fn new_prices(&self, shelf: &Shelf, draws: &mut u64) -> Vec<ProductDraft> {
        // Products from all over the category, none of them twice.
        let stride = (self.base / MAX_BATCH as u64).max(1);
        let first = below(draws, usize::try_from(stride).unwrap_or(usize::MAX)) as u64;
        let revision = 1 + below(draws, REVISIONS) as u64;
        let places = (0..MAX_BATCH as u64).map(|place| first + place * stride);
        places.map(|index| shelf.product_at(index, revision)).collect()
    }
}

impl Cards {
    async fn open(place: &StoreConfig) -> Result<Self> {
        match place {
            StoreConfig::Embedded { dir } => {
                let dir = dir.with_file_name(CARDS);
                let clock = Arc::new(SystemClock);
                let engine = Engine::open(&dir, clock, Arc::new(Metrics::default()))?;
                let table = engine.table(TABLE)?;
                Ok(Self::Embedded { engine, table })
            }
            StoreConfig::Cassandra(config) => {
                let session = storage::cassandra::connect(config).await?;
                let quorum = Consistency::LocalQuorum;
                let read = prepare(&session, config, PRODUCT, quorum).await?;
                let write = prepare(&session, config, WRITE_CARD, quorum).await?;
                Ok(Self::Cassandra { session, read, write })
            }
        }
    }

    async fn write(&self, batch: Vec<ProductDraft>, way: Way) -> Result<()> {
        let now = SystemClock.now();
        let reads = matches!(way, Way::Card);
        match self {
            Self::Embedded { engine, table } => {
                let table = table.clone();
                let written = engine.write(TABLE, move |txn| {
                    for draft in batch {
                        let key = Key::new().text(draft.id.as_str());
                        let before: Option<CardRow> =
                            if reads { txn.get(&table, &key)? } else { None };
                        let version = before.as_ref().map_or(0, |before| before.version);
                        let before_product = Before { product: None, version };
                        let product = Product::from_draft(draft, &before_product, now);
                        let created_at = before.map_or(product.created_at, |row| row.created_at);
                        txn.put(&table, key, &CardRow::of(product, created_at), None)?;
                    }
                    Ok(())
                });
                Ok(written.await?)
            }
            Self::Cassandra { session, read, write } => {
                let mut versions = vec![0; batch.len()];
                if reads {
                    let ids = batch.iter().map(|draft| version_of(session, read, draft));
                    let ids: Vec<_> = ids.collect();
                    versions = stream::iter(ids).buffered(ROWS_AT_ONCE).try_collect().await?;
                }
                let products = batch.into_iter().zip(versions).map(|(draft, version)| {
                    Product::from_draft(draft, &Before { product: None, version }, now)
                });
                let products: Vec<_> = products.collect();
                let writes: Vec<_> =
                    products.iter().map(|product| write_card(session, write, product)).collect();
                stream::iter(writes).buffer_unordered(ROWS_AT_ONCE).try_collect().await
            }
        }
    }
}

/// A row of `product_by_id` as the embedded store writes it.
#[derive(Serialize, Deserialize)]
struct CardRow {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    category: String,
    price: Decimal,
    currency: Currency,
    attrs: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image_url: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    version: i64,
}

impl CardRow {
    fn of(product: Product, created_at: Timestamp) -> Self {
        let attributes = product.attributes.into_iter();
        Self {
            name: product.name,
            description: product.description,
            category: product.category.as_ref().to_owned(),
            price: product.price.amount,
            currency: product.price.currency,
            attrs: attributes.map(|attribute| (attribute.name, attribute.value)).collect(),
            image_url: product.image_url,
            created_at,
            updated_at: product.updated_at,
            version: product.version,
        }
    }
}

/// The statement that the store on Cassandra writes a card with.
const WRITE_CARD: &str = "UPDATE ks.product_by_id USING TIMESTAMP ? SET name = ?, description = ?, \
                          category = ?, price = ?, currency = ?, attrs = ?, image_url = ?, \
                          created_at = ?, updated_at = ?, version = ? WHERE product_id = ?";

async fn version_of(
    session: &Session,
    read: &PreparedStatement,
    draft: &ProductDraft,
) -> Result<i64> {
    let found = session.execute_unpaged(read, (draft.id.as_str(),)).await?.into_rows_result()?;
    let row: Option<ProductRow<'_>> = found.maybe_first_row()?;
    Ok(row.map_or(0, |row| row.version))
}

async fn write_card(session: &Session, write: &PreparedStatement, product: &Product) -> Result<()> {
    let attributes = product.attributes.iter();
    let attrs: BTreeMap<&str, &str> =
        attributes.map(|attribute| (&*attribute.name, &*attribute.value)).collect();
    let price = product.price.amount;
    let price = CqlDecimal::from_signed_be_bytes_slice_and_exponent(
        &price.mantissa().to_be_bytes(),
        i32::try_from(price.scale())?,
    );
    let values = (
        product.version,
        &product.name,
        &product.description,
        product.category.as_ref(),
        price,
        product.price.currency.as_str(),
        attrs,
        &product.image_url,
        CqlTimestamp(product.created_at.millis()),
        CqlTimestamp(product.updated_at.millis()),
        product.version,
        product.id.as_str(),
    );
    session.execute_unpaged(write, values).await?;
    Ok(())
}
