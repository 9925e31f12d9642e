//! Wires store, services and schema together.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::cache::Tiers;
use crate::cart::CartService;
use crate::catalog::CatalogService;
use crate::catalog::service::CatalogCaches;
use crate::checkout::CheckoutService;
use crate::checkout::service::Parts;
use crate::clock::Clock;
use crate::config::{Config, ShopRules};
use crate::graphql::ShopGraph;
use crate::inventory::InventoryService;
use crate::inventory::service::StockCaches;
use crate::orders::OrderService;
use crate::page::CursorKey;
use crate::rate::Rates;
use crate::root_key::{self, RootKey};
use crate::server::{Admission, Arriving, Documents, Health, Identity, Responses, Sockets, Till};
use crate::sessions::SessionService;
use crate::storage::{Store, StoreError};
use crate::telemetry::Metrics;

/// So long a process may take to open its store before clients are told that it is away.
const OPENING: Duration = Duration::from_secs(4);

/// The services, on an open store.
pub struct Shop {
    /// The store under them; only health checks and the demo talk to it directly.
    pub store: Arc<dyn Store>,
    /// Products and categories.
    pub catalog: Arc<CatalogService>,
    /// How much there is of each product.
    pub inventory: Arc<InventoryService>,
    /// Who visits.
    pub sessions: SessionService,
    /// What they want to buy.
    pub carts: Arc<CartService>,
    /// What they have bought.
    pub orders: Arc<OrderService>,
    /// How the one becomes the other.
    pub checkout: Arc<CheckoutService>,
    /// How much each client may ask for.
    pub rates: Rates,
    /// Signs the cursors of lists.
    pub cursors: CursorKey,
}

impl Shop {
    /// The services on a store, with caches on these tiers.
    pub async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        tiers: &Tiers,
        rules: &ShopRules,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, StoreError> {
        let root = store.root_key().await?;
        let (name, is_shared) = (shop_name(&root), store.is_shared());
        tiers.tell(metrics);
        let caches = CatalogCaches::new(tiers, &name, is_shared, metrics);
        let cursors = CursorKey::derive(&root);
        let catalog = CatalogService::new(store.clone(), clock.clone(), cursors.clone(), caches);
        let caches = StockCaches::new(tiers, &name, is_shared, metrics);
        let low_stock = rules.low_stock.into();
        let inventory =
            InventoryService::new(store.clone(), clock.clone(), caches, low_stock, metrics);
        let sessions = SessionService::new(store.clone(), clock.clone(), &root, tiers, metrics);
        let carts = CartService::new(store.clone(), clock.clone(), tiers, &name, is_shared);
        let orders = OrderService::new(store.clone(), clock.clone(), tiers, &name, is_shared);
        let parts = Parts {
            store: store.clone(),
            catalog: store.clone(),
            inventory: inventory.clone(),
            carts: carts.clone(),
            orders: orders.clone(),
        };
        let counters = metrics.checkouts().clone();
        let checkout = CheckoutService::new(parts, clock, rules.payment_within, counters);
        Ok(Self {
            catalog: Arc::new(catalog),
            inventory,
            sessions,
            carts,
            orders,
            checkout,
            rates: Rates::new(&rules.rates, tiers, &name),
            cursors,
            store,
        })
    }
}

/// Tells this shop from others that share a Redis: the same for all instances on one store, and
/// nothing that the root key could be guessed from.
fn shop_name(root: &RootKey) -> String {
    let name = root_key::mark(root, "vitrina cache name, first form");
    URL_SAFE_NO_PAD.encode(&name.as_ref()[..8])
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
    pub(crate) responses: Responses,
    pub(crate) sockets: Sockets,
    pub(crate) admission: Admission,
    pub(crate) till: Till,
    pub(crate) arriving: Arriving,
    pub(crate) health: Health,
    is_stopping: watch::Sender<bool>,
    began: Instant,
    is_open: watch::Sender<bool>,
    shop: OnceLock<Arc<Shop>>,
}

impl App {
    /// An application without its shop.
    pub fn new(config: Config, metrics: Arc<Metrics>) -> Self {
        Self {
            graph: ShopGraph::new(config.introspection),
            identity: Identity::new(&config.auth),
            documents: Documents::new(&config.limits, config.trusted.clone()),
            responses: Responses::new(&config, &metrics),
            sockets: Sockets::new(&config.limits.sockets, metrics.clone()),
            admission: Admission::new(&config.limits.work, metrics.clone()),
            till: Till::default(),
            arriving: Arriving::default(),
            health: Health::default(),
            is_stopping: watch::Sender::new(false),
            began: Instant::now(),
            is_open: watch::Sender::new(false),
            metrics,
            config,
            shop: OnceLock::new(),
        }
    }

    /// Opens the shop: from now on it serves. Only the first call counts.
    pub fn open(&self, shop: Shop) {
        let _ = self.shop.set(Arc::new(shop));
        self.is_open.send_replace(true);
    }

    /// The shop; of a process that has just started, when it is open. So clients of one that is
    /// started anew wait for a moment and are not sent away; where the store is away for longer,
    /// nobody waits for it.
    pub(crate) async fn opened(&self) -> Option<&Arc<Shop>> {
        if self.shop.get().is_none() {
            let mut is_open = self.is_open.subscribe();
            let opening = is_open.wait_for(|is_open| *is_open);
            let _ = timeout_at(self.began + OPENING, opening).await;
        }
        self.shop()
    }

    /// From now on it is not ready any more, and clients are told to go elsewhere.
    pub(crate) fn stop(&self) {
        self.is_stopping.send_replace(true);
    }

    /// Whether it is about to end.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.is_stopping.borrow()
    }

    /// Waits until it is.
    pub(crate) async fn stopped(&self) {
        // It is asked by who has it, so what tells is there.
        let _ = self.is_stopping.subscribe().wait_for(|is_stopping| *is_stopping).await;
    }

    /// Whether a browser gets GraphiQL. Where only trusted documents are executed and the schema is
    /// not told, there is nothing that the page could do.
    pub(crate) fn has_page(&self) -> bool {
        self.config.introspection || !self.documents.is_closed()
    }

    /// The shop, once it is open.
    pub fn shop(&self) -> Option<&Arc<Shop>> {
        self.shop.get()
    }
}
