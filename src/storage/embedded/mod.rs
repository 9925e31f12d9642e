//! The embedded store: the same tables as sorted keys on fjall, in one folder, in one process.

mod codec;
mod engine;
mod keys;
mod shared;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use engine::{Engine, Reader, Table};
pub use keys::{Key, KeyParts};
pub use writer::Txn;

use super::{OpenError, Store, StoreError};
use crate::catalog::embedded::CatalogTables;
use crate::clock::Clock;
use crate::telemetry::Metrics;

/// Writes see the layout as it is; a page may be of one that was cached for half a second.
const LAYOUT_GRACE: Duration = Duration::from_secs(2);

/// All domains on one embedded engine.
pub struct EmbeddedStore {
    pub(crate) engine: Engine,
    pub(crate) catalog: CatalogTables,
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
        let shared = shared::SharedTables::open(&engine)?;
        Ok(Self { engine, catalog, shared })
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn ready(&self) -> Result<(), StoreError> {
        self.engine.ready()
    }

    async fn root_key(&self) -> Result<[u8; 32], StoreError> {
        self.shared.root_key(&self.engine).await
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

    fn kind(&self) -> &'static str {
        "embedded"
    }
}
