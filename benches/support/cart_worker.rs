//! The worker that serves carts, and makes them when it is told to.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use uuid::Uuid;
use vitrina::cache::Tiers;
use vitrina::cart::CartService;
use vitrina::cart::model::change::{RawChange, RawLine};
use vitrina::cart::model::{Card, CartLog, Change, Operation, Units, day_of, shard_of};
use vitrina::clock::{Clock, ManualClock, SystemClock};
use vitrina::demo::catalogue;
use vitrina::product_id::ProductId;
use vitrina::server::Role as ViewerRole;
use vitrina::storage::Store;

use super::Result;
use super::carts::{LINES, PRODUCTS, add_body, cart_body, place_of};
use super::roles::{Answers, bare, control, demo_shop, listen, open, token};
use vitrina::owner::Owner;

/// Where the bare handler answers.
pub(super) const BARE_CART: &str = "/cart";
/// The time between two operations of a cart that is made as shoppers make it.
const PAUSE: Duration = Duration::from_secs(5);
/// How far ahead of the machine's clock such a cart ends: for the shop, nothing of it settles while
/// it is measured.
const AHEAD: Duration = Duration::from_secs(3_600);
/// How often it is looked whether a checkpoint is there.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// Carts that are written at once.
const CARTS_AT_ONCE: usize = 128;

/// The customer with this number, of those with this name.
pub(super) fn customer(name: &str, number: u64) -> String {
    format!("{name}-{number}")
}

/// Serves the demo shop and, on another port, a bare handler that gives the bytes of a cart, and
/// carries orders out until the benchmark is gone:
///
/// - `make NAME CARTS OPERATIONS`: makes carts of customers of this name as shoppers do, one
///   operation after another; reports milliseconds, and of the log that is read then the most
///   operations and the most ids that its checkpoint names;
/// - `fill NAME FIRST LAST`: writes carts of customers of this name straight to the store, one
///   operation for each line; reports milliseconds.
pub(super) async fn work() -> Result<()> {
    let mut control = control().await?;
    let (store, shop) = demo_shop().await?;
    let visitor = token("bare", ViewerRole::Customer)?;
    let lines: Vec<String> = (0..LINES).map(|line| add_body(0, line, &line.to_string())).collect();
    Answers::of(&shop, &lines, Some(&visitor)).await?;
    let answers = Answers::of(&shop, &[cart_body()], Some(&visitor)).await?;
    let bare = Router::new().route(BARE_CART, post(bare).with_state(answers));
    control.tell(&format!("{} {}", open(&shop).await?, listen(bare).await?)).await?;
    while let Some(order) = control.hear().await? {
        let started = Instant::now();
        let done = || started.elapsed().as_millis();
        let report = match order.split(' ').collect::<Vec<_>>().as_slice() {
            ["make", name, carts, operations] => {
                let operations = operations.parse()?;
                let carts = (0..carts.parse()?).map(|cart| make(&store, name, cart, operations));
                let logs = try_join_all(carts).await?;
                let unfolded = logs.iter().map(CartLog::unfolded).max();
                let ids =
                    logs.iter().filter_map(|log| Some(log.checkpoint.as_ref()?.covered.len()));
                format!("{} {} {}", done(), unfolded.unwrap_or(0), ids.max().unwrap_or(0))
            }
            ["fill", name, first, last] => {
                fill(store.as_ref(), name, first.parse()?..last.parse()?).await?;
                done().to_string()
            }
            _ => return Err(format!("an order that cannot be read: {order}").into()),
        };
        control.tell(&report).await?;
    }
    Ok(())
}

/// A unit of each product that is bought, by its place.
fn shelf() -> Vec<Units> {
    let unit = |place| {
        let draft = catalogue::product(place);
        let card = Card { name: draft.name, price: draft.price, image_url: draft.image_url };
        Units { product: draft.id, units: 1, card }
    };
    (0..PRODUCTS).map(unit).collect()
}

/// The lines of a caller's cart.
fn lines_of(shelf: &[Units], caller: u64) -> impl Iterator<Item = &Units> {
    (0..LINES).filter_map(move |line| shelf.get(usize::try_from(place_of(caller, line)).ok()?))
}

/// Makes a cart by operations that put a unit in and take it out again. Checkpoints are written
/// along the way, as in life, and leave the cart as its shopper sees it right after the last one.
async fn make(store: &Arc<dyn Store>, name: &str, cart: u64, operations: u32) -> Result<CartLog> {
    let owner = Owner::User(customer(name, cart).into());
    let end = SystemClock.now().after(AHEAD);
    let clock = Arc::new(ManualClock::new(end.before(PAUSE * operations)));
    let (is_shared, tiers) = (store.is_shared(), Tiers::Off);
    let carts = CartService::new(store.clone(), clock.clone(), &tiers, "bench", is_shared);
    let shelf = shelf();
    let lines: Vec<&Units> = lines_of(&shelf, cart).collect();
    let cards: HashMap<ProductId, Card> =
        lines.iter().map(|line| (line.product.clone(), line.card.clone())).collect();
    for number in 0..operations {
        let line = lines[usize::try_from(number / 2)? % lines.len()];
        let raw = vec![RawLine { product: line.product.to_string(), quantity: 1 }];
        let adds = number.is_multiple_of(2);
        let raw = if adds { RawChange::Add(raw) } else { RawChange::Set(raw) };
        clock.advance(PAUSE);
        let changed = carts.change(&owner, &raw, &cards, Some(&number.to_string())).await;
        let changed = changed.map_err(|error| format!("{owner} was not changed: {error:?}"))?;
        if !changed.errors.is_empty() {
            return Err(format!("{owner} was not changed: {:?}", changed.errors).into());
        }
    }
    // The last checkpoint is written in the background, if need be after another look at the cart.
    loop {
        let log = store.cart_log(&owner).await?;
        if !log.wants_checkpoint(clock.now()) {
            return Ok(log);
        }
        let found = carts.cart(&owner).await;
        found.map_err(|error| format!("{owner} cannot be read: {error:?}"))?;
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

async fn fill(store: &dyn Store, name: &str, carts: Range<u64>) -> Result<()> {
    let shelf = shelf();
    // Gathered first: a lazy iterator of borrowing futures is more than the compiler can name.
    let carts: Vec<_> = carts.map(|cart| fill_one(store, name, cart, &shelf)).collect();
    stream::iter(carts).buffer_unordered(CARTS_AT_ONCE).try_collect().await
}

/// Writes what a cart is after an operation for each line.
async fn fill_one(store: &dyn Store, name: &str, cart: u64, shelf: &[Units]) -> Result<()> {
    let owner = Owner::User(customer(name, cart).into());
    let now = SystemClock.now();
    let operations = (1..).zip(lines_of(shelf, cart)).map(|(place, line)| Operation {
        id: Uuid::new_v4(),
        at: now.before(PAUSE * place),
        is_keyed: true,
        change: Change::Add(vec![line.clone()]),
    });
    let operations: Vec<_> = operations.collect();
    try_join_all(operations.iter().map(|operation| store.add_to_cart(&owner, operation))).await?;
    Ok(store.list_cart(day_of(now), shard_of(&owner), &owner).await?)
}
