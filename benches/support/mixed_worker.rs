//! The worker that serves everything a shop does, and fills it when it is told to.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use vitrina::app::App;
use vitrina::clock::{Clock, SystemClock};
use vitrina::config::{CacheConfig, Config, StoreConfig};
use vitrina::demo;
use vitrina::server::Role as ViewerRole;
use vitrina::storage;
use vitrina::telemetry::Metrics;

use super::Result;
use super::card_driver::Driver;
use super::carts::add_body;
use super::checkout::{buy_body, page_body};
use super::checkout_worker::{buyer, fill_carts, fill_history, plenty, store_calls};
use super::requests::Kind;
use super::roles::{self, Answers, bare, control, listen, open, shop, token};
use super::window::{ZONE, card_bodies, page_bodies};

/// Where the bare handlers answer: with the bytes of a card …
pub(super) const BARE_CARD: &str = "/card";
/// … of one with its stock …
pub(super) const BARE_STOCKED: &str = "/stocked";
/// … of a page of a category …
pub(super) const BARE_PAGE: &str = "/page";
/// … of a change of a cart …
pub(super) const BARE_ADD: &str = "/add";
/// … of a history …
pub(super) const BARE_HISTORY: &str = "/history";
/// … and of a checkout; …
pub(super) const BARE_CHECKOUT: &str = "/checkout";
/// … and on Cassandra with those of a card with its stock after both have been read.
pub(super) const BARE_READS: &str = "/reads";

/// How long a connection may be quiet here: it must not be hung up on while it waits for its round.
const QUIET_WITHIN: Duration = Duration::from_secs(24 * 3_600);
/// Orders of a history.
const ORDERS: u64 = 20;

/// The customer with this number, of those who have a history.
pub(super) fn regular(number: u64) -> String {
    format!("regular-{number}")
}

/// Serves two shops on one store, the first with the caches of the default configuration, the second
/// without any, and carries orders out until the benchmark is gone:
///
/// - `plenty PRODUCTS`: puts more into the shoppers' zone than is ever bought, of so many products
///   that are not there yet: the demo's own stock is written where there is none;
/// - `fill PRODUCTS`: fills the shop;
/// - `histories CUSTOMERS`: gives so many customers a history of twenty orders;
/// - `carts FIRST LAST PRODUCTS`: fills the carts of buyers with some of so many products;
/// - `bare PRODUCTS`: serves bare handlers beside the shop, which must be filled; reports the port;
/// - `calls`: reports how many calls of the store there were.
pub(super) async fn work() -> Result<()> {
    let mut control = control().await?;
    let metrics = Arc::new(Metrics::default());
    let config = patient(CacheConfig::Memory)?;
    let store = storage::open(&config.store, Arc::new(SystemClock), metrics.clone()).await?;
    let cached = shop(config, store.clone(), &metrics).await?;
    let plain = shop(patient(CacheConfig::Off)?, store.clone(), &metrics).await?;
    let ports = (open(&cached).await?, open(&plain).await?);
    control.tell(&format!("{} {}", ports.0, ports.1)).await?;
    while let Some(order) = control.hear().await? {
        let report = match order.split(' ').collect::<Vec<_>>().as_slice() {
            ["fill", products] => {
                demo::fill(store.as_ref(), products.parse()?, &SystemClock, |_| {}).await?;
                String::new()
            }
            ["plenty", products] => {
                store.stock_up(plenty(products.parse()?, ZONE), SystemClock.now()).await?;
                String::new()
            }
            ["histories", customers] => {
                for customer in 0..customers.parse()? {
                    fill_history(&store, &regular(customer), ORDERS).await?;
                }
                String::new()
            }
            ["carts", first, last, products] => {
                fill_carts(&store, first.parse()?..last.parse()?, products.parse()?).await?;
                String::new()
            }
            ["bare", products] => {
                let address = (Ipv4Addr::LOCALHOST, ports.0).into();
                serve_bare(&cached, address, products.parse()?).await?.to_string()
            }
            ["calls"] => store_calls(&metrics).to_string(),
            _ => return Err(format!("an order that cannot be read: {order}").into()),
        };
        control.tell(&report).await?;
    }
    Ok(())
}

/// The configuration of a shop whose clients may be quiet for long.
fn patient(cache: CacheConfig) -> Result<Config> {
    let mut config = roles::config(cache)?;
    config.limits.connections.quiet_within = QUIET_WITHIN;
    Ok(config)
}

/// Serves bare handlers with answers of the shop. The first of the regulars and of the buyers must
/// have a history and a cart; the cart is bought.
async fn serve_bare(shop: &Arc<App>, address: SocketAddr, products: u64) -> Result<u16> {
    let someone = token("bare", ViewerRole::Customer)?;
    let (regular, buyer) = (regular(0), buyer(0));
    let (regular, buyer) =
        (token(&regular, ViewerRole::Customer)?, token(&buyer, ViewerRole::Customer)?);
    let pages = page_bodies(address).await?;
    let cards = card_bodies(products);
    let add = add_body(0, 0, "bare");
    let answers = [
        (BARE_CARD, Kind::Card.bodies(), None),
        (BARE_STOCKED, cards.clone(), None),
        (BARE_PAGE, pages, None),
        (BARE_ADD, vec![add], Some(&someone)),
        (BARE_HISTORY, vec![page_body(None)], Some(&regular)),
        (BARE_CHECKOUT, vec![buy_body(ZONE)], Some(&buyer)),
    ];
    let mut router = Router::new();
    for (path, bodies, token) in answers {
        let answers = Answers::of(shop, &bodies, token.map(String::as_str)).await?;
        router = router.route(path, post(bare).with_state(answers));
    }
    if let StoreConfig::Cassandra(config) = &shop.config.store {
        let reads = Reads {
            driver: Driver::open(config).await?,
            next: AtomicUsize::new(0),
            answers: Answers::of(shop, &cards, None).await?,
        };
        router = router.route(BARE_READS, post(bare_after_reads).with_state(Arc::new(reads)));
    }
    listen(router).await
}

/// What a handler needs that reads what it answers with, and pays no attention to it.
struct Reads {
    driver: Driver,
    next: AtomicUsize,
    answers: Arc<Answers>,
}

async fn bare_after_reads(State(reads): State<Arc<Reads>>, body: Bytes) -> Response {
    match reads.driver.both(reads.next.fetch_add(1, Ordering::Relaxed)).await {
        Ok(()) => bare(State(reads.answers.clone()), body).await,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
