//! The worker that only runs the prepared statements of a card.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scylla::DeserializeRow;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::{CqlDecimal, CqlTimestamp};
use tokio::task::JoinSet;
use vitrina::config::{CassandraConfig, StoreConfig};
use vitrina::demo::{self, DEFAULT_PRODUCTS};
use vitrina::storage;

use super::figures::Load;
use super::requests::below;
use super::roles::{control, prepare};
use super::window::ZONE;
use super::{Result, worker};

/// The statement that the shop reads a card with.
pub(super) const PRODUCT: &str = "SELECT product_id, name, description, category, price, currency, attrs, \
                       image_url, created_at, updated_at, version FROM ks.product_by_id \
                       WHERE product_id = ?";

/// Its row. That it can be read into these columns is all that is asked of it.
#[derive(DeserializeRow)]
#[allow(dead_code, reason = "read from the answer and thrown away: that is the work measured")]
pub(super) struct ProductRow<'a> {
    product_id: &'a str,
    name: &'a str,
    description: Option<String>,
    category: &'a str,
    price: CqlDecimal,
    currency: &'a str,
    attrs: Option<BTreeMap<String, String>>,
    image_url: Option<String>,
    created_at: CqlTimestamp,
    updated_at: CqlTimestamp,
    pub(super) version: i64,
}

/// The statement that the shop reads a product's stock in a zone with.
const LEVEL: &str = "SELECT quantity, reserved, version, updated_at \
                     FROM ks.inventory_by_product_geo WHERE product_id = ? AND geo_zone = ?";

/// What the loops work with.
pub(super) struct Driver {
    session: Arc<Session>,
    card: PreparedStatement,
    level: PreparedStatement,
    ids: Vec<String>,
}

/// Runs the statement of a card on a session like the shop's, each time the benchmark says for how
/// long (in milliseconds) and how many at once; if it adds `stock`, each time that of the stock in a
/// zone after it.
pub(super) async fn work() -> Result<()> {
    let mut control = control().await?;
    let StoreConfig::Cassandra(config) = StoreConfig::parse(&std::env::var(worker::STORE)?)? else {
        return Err("this needs a Cassandra store".into());
    };
    let driver = Arc::new(Driver::open(&config).await?);
    control.tell("").await?;
    while let Some(order) = control.hear().await? {
        let words: Vec<&str> = order.split(' ').collect();
        let [millis, at_once, rest @ ..] = words.as_slice() else {
            return Err(format!("an order that cannot be read: {order}").into());
        };
        let (time, with_stock) = (Duration::from_millis(millis.parse()?), rest == ["stock"]);
        let started = Instant::now();
        let mut loops = JoinSet::new();
        for seed in 0..at_once.parse()? {
            let driver = driver.clone();
            loops.spawn(async move { driver.run_for(time, seed, with_stock).await });
        }
        let mut times = Vec::new();
        while let Some(done) = loops.join_next().await {
            times.extend(done??);
        }
        control.tell(&Load::new(started.elapsed(), times).to_string()).await?;
    }
    Ok(())
}

impl Driver {
    pub(super) async fn open(config: &CassandraConfig) -> Result<Self> {
        let session = storage::cassandra::connect(config).await?;
        Ok(Self {
            card: prepare(&session, config, PRODUCT, Consistency::LocalOne).await?,
            level: prepare(&session, config, LEVEL, Consistency::LocalQuorum).await?,
            ids: (0..DEFAULT_PRODUCTS).map(demo::catalogue::id_of).collect(),
            session,
        })
    }

    async fn run_for(&self, time: Duration, seed: u64, with_stock: bool) -> Result<Vec<Duration>> {
        let mut draws = seed;
        let mut times = Vec::new();
        let started = Instant::now();
        while started.elapsed() < time {
            let id = &self.ids[below(&mut draws, self.ids.len())];
            let sent = Instant::now();
            self.card(id).await?;
            if with_stock {
                self.stock(id).await?;
            }
            times.push(sent.elapsed());
        }
        Ok(times)
    }

    /// Both reads of one product at once, as the shop makes them.
    pub(super) async fn both(&self, number: usize) -> Result<()> {
        let id = &self.ids[number % self.ids.len()];
        tokio::try_join!(self.card(id), self.stock(id)).map(drop)
    }

    async fn card(&self, id: &str) -> Result<()> {
        let found = self.session.execute_unpaged(&self.card, (id,)).await?.into_rows_result()?;
        let row: Option<ProductRow<'_>> = found.maybe_first_row()?;
        row.map(drop).ok_or_else(|| format!("{id} is not there").into())
    }

    async fn stock(&self, id: &str) -> Result<()> {
        let level = self.session.execute_unpaged(&self.level, (id, ZONE)).await?;
        // A product that is not sold in the zone has no row.
        level.into_rows_result()?.maybe_first_row::<(i64, i64, i64, CqlTimestamp)>()?;
        Ok(())
    }
}
