//! The worker that buys, and fills histories, when it is told to.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::task::JoinSet;
use uuid::Uuid;
use vitrina::app::Shop;
use vitrina::cache::Tiers;
use vitrina::cart::model::{Card, Change, Operation, Units};
use vitrina::checkout::CheckoutService;
use vitrina::checkout::model::{CheckoutRequest, Outcome};
use vitrina::checkout::service::Parts;
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::config::CacheConfig;
use vitrina::demo::{self, catalogue};
use vitrina::geo_zone::GeoZone;
use vitrina::inventory::InventoryService;
use vitrina::inventory::model::StockKey;
use vitrina::inventory::service::StockCaches;
use vitrina::orders::model::{
    Actor, Address, MAX_PART_ROWS, Month, Order, OrderLine, OrderStatus, Step, Stepped, UnitsStand,
    part_of,
};
use vitrina::owner::Owner;
use vitrina::storage::{self, Due, Store, Task};
use vitrina::telemetry::Metrics;

use super::Result;
use super::requests::below;
use super::roles::{config, control, open, shop};

/// The zone of all stock here.
const ZONE: &str = "Склад";
/// Units of a row: more than are ever bought here.
const UNITS: i64 = 1_000_000_000;
/// Lines of a cart.
const LINES: usize = 3;
/// What is written at once while something is filled.
const AT_ONCE: usize = 64;
/// How long it is waited until nothing is done any more.
const REST: Duration = Duration::from_millis(500);
/// The time that a history is spread over.
const YEAR: Duration = Duration::from_secs(360 * 24 * 3_600);

/// What the worker works with.
struct Buyers {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    combined: Arc<CheckoutService>,
    apart: Arc<CheckoutService>,
    /// The carts that were filled, and the next that is bought.
    filled: AtomicU64,
    next: AtomicU64,
    errors: AtomicU64,
}

/// Serves the shop and carries orders out until the benchmark is gone:
///
/// - `fill PRODUCTS`: fills the shop, with more of everything than is ever bought;
/// - `carts COUNT PRODUCTS`: fills so many carts of so many products;
/// - `buy WAY BUYERS MILLISECONDS`: buys carts, with stock rows `combined` or `apart`;
/// - `calls`: reports how many calls of the store there were; `errors`: how many checkouts failed
///   since it was last asked; `rest`: waits until what goes on beside is done;
/// - `history USER ORDERS`: fills the history of a customer.
pub(super) async fn work() -> Result<()> {
    let mut control = control().await?;
    let config = config(CacheConfig::Memory)?;
    let (clock, metrics) = (Arc::new(SystemClock), Arc::new(Metrics::default()));
    let store = storage::open(&config.store, clock.clone(), metrics.clone()).await?;
    let port = open(&shop(config.clone(), store.clone(), &metrics).await?).await?;
    let opened =
        Shop::open(store.clone(), clock.clone(), &Tiers::Memory, &config.rules, &metrics).await?;
    let caches = StockCaches::new(&Tiers::Memory, "apart", store.is_shared(), &metrics);
    let inventory = InventoryService::apart(store.clone(), clock.clone(), caches, &metrics);
    let parts = Parts {
        store: store.clone(),
        catalog: store.clone(),
        inventory,
        carts: opened.carts.clone(),
        orders: opened.orders.clone(),
    };
    let within = config.rules.payment_within;
    let apart = CheckoutService::new(parts, clock, within, metrics.checkouts().clone());
    let buyers = Arc::new(Buyers {
        store,
        metrics,
        combined: opened.checkout.clone(),
        apart,
        filled: AtomicU64::new(0),
        next: AtomicU64::new(0),
        errors: AtomicU64::new(0),
    });
    control.tell(&port.to_string()).await?;
    while let Some(order) = control.hear().await? {
        let words: Vec<&str> = order.split(' ').collect();
        let report = match words.as_slice() {
            ["fill", products] => {
                buyers.fill(products.parse()?).await?;
                String::new()
            }
            ["carts", count, products] => {
                buyers.carts(count.parse()?, products.parse()?).await?;
                String::new()
            }
            ["buy", way, count, millis] => {
                let time = Duration::from_millis(millis.parse()?);
                buyers.buy(*way == "combined", count.parse()?, time).await?
            }
            ["calls"] => store_calls(&buyers.metrics).to_string(),
            ["errors"] => buyers.errors.swap(0, Ordering::SeqCst).to_string(),
            ["rest"] => {
                tokio::time::sleep(REST).await;
                String::new()
            }
            ["history", user, orders] => {
                fill_history(&buyers.store, user, orders.parse()?).await?;
                String::new()
            }
            _ => return Err(format!("an order that cannot be read: {order}").into()),
        };
        control.tell(&report).await?;
    }
    Ok(())
}

/// The name of the customer with this cart.
pub(super) fn buyer(cart: u64) -> String {
    format!("buyer-{cart}")
}

fn owner(cart: u64) -> Owner {
    Owner::User(buyer(cart).into())
}

impl Buyers {
    async fn fill(&self, products: u64) -> Result<()> {
        if self.store.categories().await?.is_empty() {
            demo::fill(self.store.as_ref(), products, &SystemClock, |_| {}).await?;
        }
        let rows = plenty(products, ZONE);
        Ok(self.store.stock_up(rows, SystemClock.now()).await?)
    }

    async fn carts(&self, count: u64, products: u64) -> Result<()> {
        let first = self.filled.load(Ordering::SeqCst).max(self.next.load(Ordering::SeqCst));
        fill_carts(&self.store, first..first + count, products).await?;
        self.next.store(first, Ordering::SeqCst);
        self.filled.store(first + count, Ordering::SeqCst);
        Ok(())
    }

    async fn buy(self: &Arc<Self>, combined: bool, count: usize, time: Duration) -> Result<String> {
        let started = Instant::now();
        let mut buyers = JoinSet::new();
        for _ in 0..count {
            let this = self.clone();
            buyers.spawn(async move {
                let service = if combined { &this.combined } else { &this.apart };
                let mut times = Vec::new();
                while started.elapsed() < time {
                    let cart = this.next.fetch_add(1, Ordering::SeqCst);
                    if cart >= this.filled.load(Ordering::SeqCst) {
                        break;
                    }
                    let sent = Instant::now();
                    match service.checkout(owner(cart), request()).await {
                        Ok(Outcome::Order(_)) => times.push(sent.elapsed()),
                        _ => {
                            this.errors.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                }
                times
            });
        }
        let mut times = Vec::new();
        while let Some(done) = buyers.join_next().await {
            times.extend(done?);
        }
        Ok(super::figures::Load::new(started.elapsed(), times).to_string())
    }
}

/// All calls of the store so far. A histogram tells its count only as text.
pub(super) fn store_calls(metrics: &Metrics) -> u64 {
    let text = metrics.encode();
    let counts = text.lines().filter(|line| line.starts_with("vitrina_store_call_seconds_count"));
    counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// Fills carts of buyers with a few of so many products each.
pub(super) async fn fill_carts(
    store: &Arc<dyn Store>,
    carts: Range<u64>,
    products: u64,
) -> Result<()> {
    let lines = LINES.min(usize::try_from(products)?);
    let mut writes = Vec::new();
    for cart in carts {
        let mut draws = cart;
        let mut units: Vec<Units> = Vec::with_capacity(lines);
        while units.len() < lines {
            let draft = catalogue::product(below(&mut draws, usize::try_from(products)?) as u64);
            if units.iter().all(|line| line.product != draft.id) {
                let card = Card { name: draft.name, price: draft.price, image_url: None };
                units.push(Units { product: draft.id, units: 1, card });
            }
        }
        let (id, at) = (Uuid::new_v4(), SystemClock.now());
        let operation = Operation { id, at, is_keyed: false, change: Change::Add(units) };
        let store = store.clone();
        writes.push(async move { store.add_to_cart(&owner(cart), &operation).await });
    }
    Ok(stream::iter(writes).buffer_unordered(AT_ONCE).try_collect::<()>().await?)
}

/// So much of so many products in a zone that it is never sold out.
pub(super) fn plenty(products: u64, zone: &'static str) -> Vec<(StockKey, i64)> {
    let row = |place| {
        let product = catalogue::product(place).id;
        (StockKey { product, zone: GeoZone::new_unchecked(zone) }, UNITS)
    };
    (0..products).map(row).collect()
}

/// Fills the history of a customer as orders would have over twelve months.
pub(super) async fn fill_history(store: &Arc<dyn Store>, user: &str, count: u64) -> Result<()> {
    let owner = Owner::User(user.into());
    let end = SystemClock.now();
    let step = i64::try_from(YEAR.as_micros())? / i64::try_from(count)?;
    let (mut parts, mut rows): (Vec<Month>, usize) = (Vec::new(), 0);
    let mut orders = Vec::new();
    for number in (0..i64::try_from(count)?).rev() {
        let at = Timestamp::from_micros(end.micros() - number * step).to_millis_precision();
        let part = part_of(&parts, at);
        if !parts.contains(&part) {
            parts.push(part);
            rows = 0;
        }
        rows += 1;
        // As a shop decides it: a part that has grown large ends with its month.
        let next = Month::of(at).next();
        if rows >= MAX_PART_ROWS && !parts.contains(&next) {
            parts.push(next);
            rows = 0;
        }
        orders.push(order(&owner, at, part));
    }
    for part in &parts {
        if part.start() <= end {
            store.begin_history_part(&owner, *part).await?;
        }
    }
    let writes = orders.into_iter().map(|order| {
        let store = store.clone();
        async move {
            let due = Due { at: end.after(YEAR), task: Task::Payment(order.id) };
            store.place_order(&order, &due).await
        }
    });
    Ok(stream::iter(writes.collect::<Vec<_>>())
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?)
}

fn request() -> CheckoutRequest {
    CheckoutRequest {
        key: "bench".to_owned(),
        zone: ZONE.to_owned(),
        address: address(),
        payment_method: "card".to_owned(),
        expected_total: None,
    }
}

fn address() -> Address {
    Address {
        city: "Москва".to_owned(),
        street: "Тверская, 1".to_owned(),
        postal_code: None,
        recipient: None,
        phone: None,
    }
}

/// An order of three lines that has gone all its way.
fn order(owner: &Owner, at: Timestamp, part: Month) -> Order {
    let line = |place| {
        let draft = catalogue::product(place);
        OrderLine { product: draft.id, name: draft.name, units: 1, price: draft.price }
    };
    let lines: Vec<_> = (0..LINES as u64).map(line).collect();
    let mut order = Order {
        id: Uuid::now_v7(),
        owner: owner.clone(),
        status: OrderStatus::Created,
        units: UnitsStand::Held,
        zone: GeoZone::new_unchecked(ZONE),
        total: lines[0].price,
        lines,
        address: address(),
        payment_method: "card".to_owned(),
        created_at: at,
        updated_at: at,
        payment_due_at: at,
        tracking_number: None,
        payment: None,
        part,
        changes: Vec::new(),
        version: 0,
    };
    order.note_creation();
    for to in
        [OrderStatus::Paid, OrderStatus::Processing, OrderStatus::Shipped, OrderStatus::Delivered]
    {
        if let Stepped::Changed(next) = order.step(&Step::new(to, Actor::Shop), at) {
            order = *next;
        }
    }
    order.units = UnitsStand::Left;
    order
}
