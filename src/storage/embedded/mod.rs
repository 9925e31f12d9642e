//! The embedded store: the same tables as sorted keys on fjall, in one folder, in one process.

mod codec;
mod engine;
mod keys;
mod writer;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;

pub use engine::{Engine, Reader, Table};
pub use keys::{Key, KeyParts};
pub use writer::Txn;

use super::{OpenError, Store, StoreError};
use crate::catalog::embedded::CatalogTables;
use crate::clock::Clock;
use crate::telemetry::Metrics;

/// All domains on one embedded engine.
pub struct EmbeddedStore {
    pub(crate) engine: Engine,
    pub(crate) catalog: CatalogTables,
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
        Ok(Self { engine, catalog })
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn ready(&self) -> Result<(), StoreError> {
        self.engine.ready()
    }

    fn kind(&self) -> &'static str {
        "embedded"
    }
}
