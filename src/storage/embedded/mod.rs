//! The embedded store: the same tables as sorted keys on fjall, in one folder, in one process.

mod codec;
mod due;
mod engine;
mod keys;
mod pace;
mod shared;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use engine::{Engine, Reader, StoredKey, Table};
pub use keys::{Key, KeyParts};
pub use writer::Txn;

use super::{Due, DueRead, DueStore, OpenError, Store, StoreError};
use crate::cart::embedded::CartTables;
use crate::catalog::CatalogStore;
use crate::catalog::embedded::CatalogTables;
use crate::checkout::embedded::CheckoutTables;
use crate::clock::{Clock, Timestamp};
use crate::inventory::embedded::InventoryTables;
use crate::orders::embedded::OrderTables;
use crate::root_key::RootKey;
use crate::sessions::embedded::SessionTables;
use crate::telemetry::Metrics;

/// Writes see the layout as it is; a page may be of one that was cached for a moment, and takes
/// three seconds at the most.
const LAYOUT_GRACE: Duration = Duration::from_secs(4);

/// All domains on one embedded engine.
pub struct EmbeddedStore {
    pub(crate) engine: Engine,
    pub(crate) catalog: CatalogTables,
    pub(crate) inventory: InventoryTables,
    pub(crate) sessions: SessionTables,
    pub(crate) carts: CartTables,
    pub(crate) orders: OrderTables,
    pub(crate) checkouts: CheckoutTables,
    pub(crate) due: due::DueTables,
    shared: shared::SharedTables,
}

impl EmbeddedStore {
    /// Opens the folder, made if it is not there.
    pub fn open(
        dir: &Path,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, OpenError> {
        let engine = Engine::open(dir, clock, metrics)?;
        let catalog = CatalogTables::open(&engine)?;
        let inventory = InventoryTables::open(&engine)?;
        let sessions = SessionTables::open(&engine)?;
        let carts = CartTables::open(&engine)?;
        let orders = OrderTables::open(&engine)?;
        let checkouts = CheckoutTables::open(&engine)?;
        let due = due::DueTables::open(&engine)?;
        let shared = shared::SharedTables::open(&engine)?;
        Ok(Self { engine, catalog, inventory, sessions, carts, orders, checkouts, due, shared })
    }
}

impl EmbeddedStore {
    /// Brings a folder of an older version up to date. It can be stopped and done again.
    pub async fn upgrade(&self) -> Result<(), StoreError> {
        if self.engine.format() >= engine::FORMAT {
            return Ok(());
        }
        tracing::info!("the folder is of an older version: giving its products their rows");
        let mut after = None;
        loop {
            let step = self.scan_products(0, 1, after).await?;
            self.mend_rows(&step.ids, Timestamp::from_micros(0)).await?;
            after = step.next;
            if after.is_none() {
                return self.engine.set_format().await;
            }
        }
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn ready(&self) -> Result<(), StoreError> {
        self.engine.ready()
    }

    async fn root_key(&self) -> Result<RootKey, StoreError> {
        self.shared.root_key(&self.engine).await.map(RootKey::from)
    }

    async fn take_lease(
        &self,
        name: &str,
        holder: uuid::Uuid,
        life: Duration,
    ) -> Result<bool, StoreError> {
        self.shared.take_lease(&self.engine, name, holder, life).await
    }

    async fn give_up_lease(&self, name: &str, holder: uuid::Uuid) -> Result<(), StoreError> {
        self.shared.give_up_lease(&self.engine, name, holder).await
    }

    fn layout_grace(&self) -> Duration {
        LAYOUT_GRACE
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn kind(&self) -> &'static str {
        "embedded"
    }
}

#[async_trait]
impl DueStore for EmbeddedStore {
    async fn add_due(&self, due: &Due) -> Result<(), StoreError> {
        self.due.add(&self.engine, due).await
    }

    async fn remove_due(&self, due: &Due) -> Result<(), StoreError> {
        self.due.remove(&self.engine, due).await
    }

    async fn due(
        &self,
        shard: i8,
        span: (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<DueRead, StoreError> {
        self.due.read(&self.engine, shard, span, limit).await
    }

    async fn swept(&self) -> Result<Option<Timestamp>, StoreError> {
        self.due.swept(&self.engine).await
    }

    async fn set_swept(&self, until: Timestamp) -> Result<(), StoreError> {
        self.due.set_swept(&self.engine, until).await
    }
}
