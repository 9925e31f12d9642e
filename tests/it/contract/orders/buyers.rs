//! Many buyers of few units, who try again, cancel and are sent what they bought: no unit is sold
//! twice, and none is lost.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use rust_decimal::Decimal;
use tokio::sync::RwLock;
use uuid::Uuid;
use vitrina::app::Shop;
use vitrina::cache::Tiers;
use vitrina::cart::model::Card;
use vitrina::cart::model::change::{RawChange, RawLine};
use vitrina::checkout::model::{CheckoutRequest, Outcome};
use vitrina::checkout::service::Changed;
use vitrina::clock::{Clock, ManualClock, SystemClock};
use vitrina::config::ShopRules;
use vitrina::error::ErrorCode;
use vitrina::geo_zone::GeoZone;
use vitrina::inventory::model::{Mark, StockKey, StockRow, Token};
use vitrina::money::Money;
use vitrina::orders::model::{Actor, Address, Order, OrderStatus, Step, UnitsStand};
use vitrina::owner::Owner;
use vitrina::product_id::ProductId;
use vitrina::storage::Store;
use vitrina::telemetry::Metrics;

use crate::support::stores::TestStore;
use crate::support::{Random, draft, seed};

crate::on_every_store!(five_hundred_buyers_of_a_hundred_units_account_for_every_one);

const PRODUCT: &str = "P1";
const ZONE: &str = "Тула";
const STOCKED: i64 = 100;
const BUYERS: usize = 500;
/// Buyers who are at it at once.
const AT_ONCE: usize = 24;
/// How often an answer that tells nothing is asked for again.
const PATIENCE: usize = 50;

fn key() -> StockKey {
    let (product, zone) = (ProductId::parse(PRODUCT).unwrap(), GeoZone::parse(ZONE).unwrap());
    StockKey { product, zone }
}

async fn open(store: &TestStore, clock: Arc<dyn Clock>) -> Arc<Shop> {
    let (rules, metrics) = (ShopRules::default(), Arc::new(Metrics::default()));
    let opened = store.store.clone();
    Arc::new(Shop::open(opened, clock, &Tiers::Off, &rules, &metrics).await.unwrap())
}

fn request(key: &str) -> CheckoutRequest {
    let (city, street) = ("Тула".to_owned(), "Ленина, 1".to_owned());
    CheckoutRequest {
        key: key.to_owned(),
        zone: ZONE.to_owned(),
        address: Address { city, street, postal_code: None, recipient: None, phone: None },
        payment_method: "card".to_owned(),
        expected_total: None,
    }
}

async fn row(store: &dyn Store) -> StockRow {
    store.settled_stock_row(&key()).await.unwrap().unwrap()
}

async fn orders(store: &dyn Store) -> Vec<Order> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let step = store.scan_orders(after).await.unwrap();
        found.extend(step.orders);
        after = step.next;
        if after.is_none() {
            return found;
        }
    }
}

fn units_of(orders: &[Order], stands: &[UnitsStand]) -> i64 {
    let units = |order: &Order| order.lines.iter().map(|line| line.units).sum::<i64>();
    orders.iter().filter(|order| stands.contains(&order.units)).map(units).sum()
}

/// What holds at every moment, whatever is under way.
fn assert_possible(row: &StockRow) {
    let level = row.level;
    assert!(0 <= level.reserved && level.reserved <= level.quantity, "{level:?}");
    assert!(level.quantity <= STOCKED, "{level:?}");
}

/// What holds whenever no order is being placed or changed: of the units stocked, those that have
/// left and those that are there are all; and those that are held are held for a mark or an order.
async fn assert_accounted_for(store: &dyn Store) {
    let row = row(store).await;
    assert_possible(&row);
    let orders = orders(store).await;
    let left = units_of(&orders, &[UnitsStand::Left]);
    let mark = |order: &Order| row.marks.get(&Token::of_reservation(order.id)).copied();
    // One whose commit is in the row is told of by the row already.
    let leaving = orders.iter().filter(|order| {
        order.units == UnitsStand::Leaving && matches!(mark(order), Some(Mark::Committed(_)))
    });
    let leaving = units_of(&leaving.cloned().collect::<Vec<_>>(), &[UnitsStand::Leaving]);
    assert_eq!(row.level.quantity + left + leaving, STOCKED, "{:?}", row.level);
    let marked = row.marks.values().map(|mark| if let Mark::Reserved(n) = mark { *n } else { 0 });
    let unmarked: Vec<_> = orders.iter().filter(|order| mark(order).is_none()).cloned().collect();
    let held = [UnitsStand::Held, UnitsStand::Releasing, UnitsStand::Leaving];
    let held = marked.sum::<i64>() + units_of(&unmarked, &held);
    assert_eq!(row.level.reserved, held, "{row:?}");
    let sold = STOCKED - row.level.quantity;
    assert_eq!(sold + row.level.available() + held, STOCKED, "every unit is somewhere");
}

/// Buys, perhaps several times with one key and through several instances; then cancels, or is sent
/// it, or leaves it.
async fn buy(shops: &[Arc<Shop>], number: usize, mut random: Random, gate: &RwLock<()>) -> Bought {
    let owner = if number.is_multiple_of(3) {
        Owner::Guest(Uuid::from_u64_pair(random.next(), random.next()))
    } else {
        Owner::User(format!("buyer {number}").into())
    };
    let units = i64::try_from(1 + random.below(3)).unwrap();
    let mut shop = || shops[usize::try_from(random.below(shops.len() as u64)).unwrap()].clone();
    let (at, elsewhere, other) = (shop(), shop(), shop());
    {
        let _open = gate.read().await;
        let lines = vec![RawLine { product: PRODUCT.to_owned(), quantity: units }];
        let raw = RawChange::Add(lines);
        let price = Money::rub(Decimal::new(10_000, 2));
        let card = Card { name: "Товар".to_owned(), price, image_url: None };
        let cards: HashMap<_, _> =
            raw.products().into_iter().map(|id| (id, card.clone())).collect();
        let mut tries = 0;
        while at.carts.change(&owner, &raw, &cards, Some("fill")).await.is_err() {
            tries += 1;
            assert!(tries < PATIENCE, "the cart of buyer {number} cannot be filled");
        }
    }
    let key = format!("buy-{number}");
    // With one key, over and over: every answer is the same.
    let mut ends: Vec<Option<Uuid>> = Vec::new();
    for attempt in 0..=random.below(3) {
        let mut tries = 0;
        let _open = gate.read().await;
        loop {
            let shop = if attempt % 2 == 0 { &at } else { &elsewhere };
            let asked = [shop, &other].into_iter().take(1 + usize::from(random.below(4) == 0));
            let told = asked.map(|shop| shop.checkout.checkout(owner.clone(), request(&key)));
            let told = futures_util::future::join_all(told).await;
            let answered = told.iter().any(Result::is_ok);
            for outcome in told.into_iter().flatten() {
                ends.push(match outcome {
                    Outcome::Order(order) => Some(order.id),
                    Outcome::Refused(refusal) => {
                        let codes: Vec<_> = refusal.errors.iter().map(|e| e.code).collect();
                        assert_eq!(codes, [ErrorCode::OutOfStock], "buyer {number}");
                        assert!(refusal.shortages[0].available < units);
                        None
                    }
                });
            }
            if answered {
                break;
            }
            tries += 1;
            assert!(tries < PATIENCE, "buyer {number} gets no answer");
        }
    }
    ends.dedup();
    let [end] = ends[..] else { panic!("buyer {number} was told different things: {ends:?}") };
    let Some(id) = end else { return Bought::default() };
    let to: &[OrderStatus] = match random.below(4) {
        0 | 1 => &[OrderStatus::Cancelled],
        2 => &[OrderStatus::Paid, OrderStatus::Processing, OrderStatus::Shipped],
        _ => &[],
    };
    let mut stands = OrderStatus::Created;
    for next in to {
        for _ in 0..=random.below(3) {
            let (mut tries, _open) = (0, gate.read().await);
            loop {
                let step = Step::new(*next, Actor::Shop);
                // The same step through two instances at once.
                let (one, two) = tokio::join!(
                    at.checkout.step(id, step.clone(), |_| true),
                    elsewhere.checkout.step(id, step, |_| true)
                );
                let done = |told: &Result<Changed, _>| matches!(told, Ok(Changed::Done(_)));
                if done(&one) && done(&two) {
                    break;
                }
                assert!(one.is_err() || two.is_err(), "{one:?} {two:?}");
                tries += 1;
                assert!(tries < PATIENCE, "{one:?} {two:?}");
            }
        }
        stands = *next;
    }
    Bought { order: Some((id, stands)), units }
}

#[derive(Default)]
struct Bought {
    order: Option<(Uuid, OrderStatus)>,
    units: i64,
}

async fn five_hundred_buyers_of_a_hundred_units_account_for_every_one(store: &TestStore) {
    let mut random = Random(seed());
    // Two instances of the shop on one store.
    let shops =
        [open(store, Arc::new(SystemClock)).await, open(store, Arc::new(SystemClock)).await];
    store.upsert(vec![draft(PRODUCT, "Книги", 10_000)]).await;
    let opened = store.store.as_ref();
    opened.stock_up(vec![(key(), STOCKED)], SystemClock.now()).await.unwrap();
    let (gate, is_over, looks) = (RwLock::new(()), AtomicBool::new(false), AtomicU64::new(0));
    let least = AtomicI64::new(STOCKED);
    // Looks all the time at what must hold at every moment.
    let look = async {
        while !is_over.load(Ordering::SeqCst) {
            let row = row(opened).await;
            assert_possible(&row);
            let before = least.swap(row.level.quantity, Ordering::SeqCst);
            assert!(row.level.quantity <= before, "what was sold has come back");
            looks.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let buying = async {
        let buyers = (0..BUYERS).map(|number| (number, Random(random.next())));
        let buyers: Vec<_> = buyers.collect();
        let (shops, gate) = (&shops, &gate);
        let bought = stream::iter(buyers).map(|(number, random)| async move {
            let bought = buy(shops, number, random, gate).await;
            if number.is_multiple_of(25) {
                // Nobody else changes an order now: it is counted exactly.
                let _closed = gate.write().await;
                assert_accounted_for(opened).await;
            }
            bought
        });
        let bought: Vec<Bought> = bought.buffer_unordered(AT_ONCE).collect().await;
        is_over.store(true, Ordering::SeqCst);
        bought
    };
    let (bought, ()) = tokio::join!(buying, look);
    assert!(looks.load(Ordering::SeqCst) > 0);
    assert_accounted_for(opened).await;

    // What each was told is what there is.
    let orders: HashMap<Uuid, Order> =
        orders(opened).await.into_iter().map(|order| (order.id, order)).collect();
    let told: HashMap<Uuid, &Bought> =
        bought.iter().filter_map(|bought| Some((bought.order?.0, bought))).collect();
    assert_eq!(orders.len(), told.len(), "an order for each who was told so, and no other");
    let (mut held, mut left) = (0, 0);
    for (id, order) in &orders {
        let Bought { order: stands, units } = told[id];
        assert_eq!(Some(order.status), stands.map(|(_, status)| status));
        assert_eq!(order.lines[0].units, *units);
        match order.status {
            OrderStatus::Cancelled => {}
            OrderStatus::Shipped => left += units,
            _ => held += units,
        }
    }
    let level = row(opened).await.level;
    assert_eq!((level.quantity, level.reserved), (STOCKED - left, held));
    // All who were refused found too little: at most two of a product were left over for them, or
    // somebody has cancelled since.
    assert!(held + left <= STOCKED);

    // Nobody pays. After their time the units of those that waited are back, once.
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    clock.advance(ShopRules::default().payment_within + Duration::from_secs(60));
    let later = open(store, clock).await;
    let mut sweeper = vitrina::checkout::sweeper::Sweeper::new(later.checkout.clone());
    for _ in 0..5 {
        sweeper.sweep().await.unwrap();
    }
    assert_accounted_for(opened).await;
    let level = row(opened).await.level;
    assert_eq!((level.quantity, level.reserved), (STOCKED - left, 0));
    let report = vitrina::checkout::check::check(&store.store, &later.checkout).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
}
