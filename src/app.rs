//! Wires store, services and schema together.

use std::sync::{Arc, OnceLock};

use crate::catalog::CatalogService;
use crate::clock::Clock;
use crate::config::Config;
use crate::graphql::ShopGraph;
use crate::page::CursorKey;
use crate::server::{Documents, Identity};
use crate::storage::{Store, StoreError};
use crate::telemetry::Metrics;

/// The services, on an open store.
pub struct Shop {
    /// The store under them; only health checks and the demo talk to it directly.
    pub store: Arc<dyn Store>,
    /// Products and categories.
    pub catalog: Arc<CatalogService>,
}

impl Shop {
    /// The services on a store.
    pub async fn open(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let cursors = CursorKey::derive(&store.root_key().await?);
        Ok(Self { catalog: Arc::new(CatalogService::new(store.clone(), clock, cursors)), store })
    }
}

/// What the server works with. It is there before the store is open, so that health checks and
/// clients are told the truth while the shop waits for its store.
pub struct App {
    /// The configuration.
    pub config: Config,
    /// The schema.
    pub graph: ShopGraph,
    /// Who is who.
    pub identity: Identity,
    /// The metrics of the process.
    pub metrics: Arc<Metrics>,
    pub(crate) documents: Documents,
    shop: OnceLock<Arc<Shop>>,
}

impl App {
    /// An application without its shop.
    pub fn new(config: Config, metrics: Arc<Metrics>) -> Self {
        Self {
            graph: ShopGraph::new(config.introspection),
            identity: Identity::new(&config.auth),
            documents: Documents::new(&config.limits),
            metrics,
            config,
            shop: OnceLock::new(),
        }
    }

    /// Opens the shop: from now on it serves. Only the first call counts.
    pub fn open(&self, shop: Shop) {
        let _ = self.shop.set(Arc::new(shop));
    }

    /// The shop, once it is open.
    pub fn shop(&self) -> Option<&Arc<Shop>> {
        self.shop.get()
    }
}
