//! The store on Apache Cassandra: the session, the migrations, and the statements of all domains.

mod decimal;
mod due;
mod gather;
mod lines;
mod migrate;
mod outage;
mod session;
mod shared;
mod statement;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use scylla::client::session::Session;

pub use decimal::{from_cql, to_cql};
pub(crate) use gather::{Gather, Reads};
pub use migrate::migrate;
pub use session::{await_agreement, connect, patiently};
pub use statement::{Access, Batch, KEYS_AT_ONCE, Statement, Statements, seconds};

use super::{Due, DueRead, DueStore, OpenError, Store, StoreError};
use crate::cart::cassandra::CartStatements;
use crate::catalog::cassandra::CatalogStatements;
use crate::checkout::cassandra::CheckoutStatements;
use crate::clock::Timestamp;
use crate::config::CassandraConfig;
use crate::inventory::cassandra::InventoryStatements;
use crate::orders::cassandra::OrderStatements;
use crate::root_key::RootKey;
use crate::sessions::cassandra::SessionStatements;
use crate::telemetry::Metrics;

/// All domains on one Cassandra cluster.
pub struct CassandraStore {
    pub(crate) catalog: Arc<CatalogStatements>,
    pub(crate) products: Gather<CatalogStatements>,
    pub(crate) inventory: Arc<InventoryStatements>,
    pub(crate) levels: Gather<InventoryStatements>,
    pub(crate) sessions: Arc<SessionStatements>,
    pub(crate) known_sessions: Gather<SessionStatements>,
    pub(crate) carts: Arc<CartStatements>,
    pub(crate) cart_logs: Gather<CartStatements>,
    pub(crate) orders: OrderStatements,
    pub(crate) checkouts: CheckoutStatements,
    due: due::DueStatements,
    shared: shared::SharedStatements,
    outage: Arc<outage::Outage>,
}

/// A layout is read anew for each write, and again if its rows took longer than a moment to write; a
/// page may be of one that was cached for a moment, and takes three seconds at the most. What is
/// left is for the time-out of a single row.
const LAYOUT_GRACE: Duration = Duration::from_secs(6);

impl CassandraStore {
    /// Prepares every statement of every domain, so that a broken one is found now.
    pub async fn open(
        session: Arc<Session>,
        config: &CassandraConfig,
        metrics: Arc<Metrics>,
    ) -> Result<Self, OpenError> {
        let statements = Statements::new(session, config, metrics).await?;
        let catalog = Arc::new(Box::pin(CatalogStatements::prepare(&statements)).await?);
        let inventory = Arc::new(Box::pin(InventoryStatements::prepare(&statements)).await?);
        let sessions = Arc::new(Box::pin(SessionStatements::prepare(&statements)).await?);
        let carts = Arc::new(Box::pin(CartStatements::prepare(&statements)).await?);
        Ok(Self {
            products: Gather::new(catalog.clone()),
            catalog,
            levels: Gather::new(inventory.clone()),
            inventory,
            known_sessions: Gather::new(sessions.clone()),
            sessions,
            cart_logs: Gather::new(carts.clone()),
            carts,
            orders: Box::pin(OrderStatements::prepare(&statements)).await?,
            checkouts: Box::pin(CheckoutStatements::prepare(&statements)).await?,
            due: Box::pin(due::DueStatements::prepare(&statements)).await?,
            shared: shared::SharedStatements::prepare(&statements).await?,
            outage: statements.outage(),
        })
    }
}

#[async_trait]
impl Store for CassandraStore {
    async fn ready(&self) -> Result<(), StoreError> {
        self.outage.probe().await
    }

    async fn root_key(&self) -> Result<RootKey, StoreError> {
        self.shared.root_key().await.map(RootKey::from)
    }

    async fn take_lease(
        &self,
        name: &str,
        holder: uuid::Uuid,
        life: Duration,
    ) -> Result<bool, StoreError> {
        self.shared.take_lease(name, holder, life).await
    }

    async fn give_up_lease(&self, name: &str, holder: uuid::Uuid) -> Result<(), StoreError> {
        self.shared.give_up_lease(name, holder).await
    }

    fn layout_grace(&self) -> Duration {
        LAYOUT_GRACE
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "Cassandra"
    }
}

#[async_trait]
impl DueStore for CassandraStore {
    async fn add_due(&self, due: &Due) -> Result<(), StoreError> {
        self.due.add(due).await
    }

    async fn remove_due(&self, due: &Due) -> Result<(), StoreError> {
        self.due.remove(due).await
    }

    async fn due(
        &self,
        shard: i8,
        span: (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<DueRead, StoreError> {
        self.due.read(shard, span, limit).await
    }

    async fn swept(&self) -> Result<Option<Timestamp>, StoreError> {
        self.due.swept().await
    }

    async fn set_swept(&self, until: Timestamp) -> Result<(), StoreError> {
        self.due.set_swept(until).await
    }
}
