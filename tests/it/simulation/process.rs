//! A process of a schedule: the services on its own way to the store.

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use vitrina::cache::Tiers;
use vitrina::cart::CartService;
use vitrina::checkout::CheckoutService;
use vitrina::checkout::service::Parts;
use vitrina::checkout::sweeper::Sweeper;
use vitrina::clock::{Clock, Timestamp};
use vitrina::inventory::InventoryService;
use vitrina::inventory::service::StockCaches;
use vitrina::orders::OrderService;
use vitrina::telemetry::Metrics;

use super::store::SimStore;
use super::world::World;

/// When every schedule begins.
const START: Timestamp = Timestamp::from_millis(1_794_736_800_000);

/// A clock that goes as fast as the timers do.
#[derive(Clone, Copy)]
pub struct SimClock {
    pub began: Instant,
    /// By how many milliseconds it is ahead, or behind.
    pub ahead: i64,
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let now = START.after(self.began.elapsed());
        Timestamp::from_micros(now.micros() + self.ahead * 1_000)
    }
}

/// How a process is made.
#[derive(Clone)]
pub struct Settings {
    pub world: Arc<Mutex<World>>,
    pub began: Instant,
    /// Of a thousand calls of the store, how many fail.
    pub faults: u64,
    pub payment_within: Duration,
}

pub struct Process {
    pub store: Arc<SimStore>,
    pub checkout: Arc<CheckoutService>,
    pub carts: Arc<CartService>,
    pub sweeper: tokio::sync::Mutex<Sweeper>,
}

impl Process {
    pub fn start(settings: &Settings, name: String, seed: u64, ahead: i64) -> Arc<Self> {
        static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::default);
        let Settings { world, began, faults, payment_within } = settings.clone();
        let clock: Arc<dyn Clock> = Arc::new(SimClock { began, ahead });
        let store = Arc::new(SimStore::new(world, name, seed, faults, began));
        // Nobody watches: what looks at watched rows every second would find nothing.
        let is_shared = false;
        let caches = StockCaches::new(&Tiers::Off, "t", is_shared, &METRICS);
        let inventory = InventoryService::new(store.clone(), clock.clone(), caches, 5, &METRICS);
        let carts = CartService::new(store.clone(), clock.clone(), &Tiers::Off, "t", is_shared);
        let orders = OrderService::new(store.clone(), clock.clone(), &Tiers::Off, "t", is_shared);
        let parts = Parts {
            store: store.clone(),
            catalog: store.clone(),
            inventory,
            carts: carts.clone(),
            orders,
        };
        let counters = METRICS.checkouts().clone();
        let checkout = CheckoutService::new(parts, clock, payment_within, counters);
        let sweeper = tokio::sync::Mutex::new(Sweeper::new(checkout.clone()));
        Arc::new(Self { store, checkout, carts, sweeper })
    }
}
