//! What operations ask of the store: a budget for each, so that a read more is seen.
//!
//! The store counts its calls itself, also those that run beside a request or after its answer. What
//! the calls of a query looked up is told with its answer. On Cassandra a read is one partition; on
//! the embedded store one call may look up many keys and ranges. Nothing is known to an instance that
//! is measured: its caches are off, and it is a new one each time. The figures are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uuid::Uuid;
use vitrina::clock::{Clock, SystemClock};
use vitrina::config::{CacheConfig, Config, StoreConfig};
use vitrina::orders::model::Order;
use vitrina::owner::Owner;

use super::carts::{Shopper, set_stock};
use super::{product, staff, stock as sell};
use crate::contract::orders::{DAY, before, order_at, place_all};
use crate::support::server::TestServer;

/// What an operation takes of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Budget {
    /// Calls that read.
    reads: u64,
    /// Keys and ranges that they look up; `None` where most of the work is not the request's own
    /// task, which is the one that is told of.
    lookups: Option<u64>,
    /// Calls that write.
    writes: u64,
}

impl Budget {
    const fn reads(reads: u64, lookups: u64) -> Self {
        Self { reads, lookups: Some(lookups), writes: 0 }
    }

    /// Reads of Cassandra, each of one partition.
    const fn partitions(reads: u64) -> Self {
        Self::reads(reads, reads)
    }

    const fn of_calls(reads: u64, writes: u64) -> Self {
        Self { reads, lookups: None, writes }
    }
}

/// The same operation on each store.
#[derive(Clone, Copy)]
struct Budgets {
    embedded: Budget,
    cassandra: Budget,
}

/// A card: the product.
const CARD: Budgets = Budgets { embedded: Budget::reads(1, 1), cassandra: Budget::partitions(1) };

/// A card with its stock in a zone: the product, and its row of that zone.
const CARD_WITH_STOCK: Budgets =
    Budgets { embedded: Budget::reads(2, 2), cassandra: Budget::partitions(2) };

/// The products of the page that is measured.
const PAGE: u64 = 24;
/// Buckets of the category that a page is read from: three at the most at any size, one in a small
/// category.
const PAGE_BUCKETS: u64 = 1;
/// What is read on Cassandra to find the buckets: the count of the category for `category`, and its
/// layout. (One with several hash buckets also needs the list of its price buckets and their rows.)
const PAGE_MAP: u64 = 2;
/// The products of a page on Cassandra, which its rows are compared with, and the one that tells
/// whether there is a next page.
const PAGE_CARDS: u64 = PAGE + 1;

/// A page with the stock of its products. On the embedded store: the category, its map (the category
/// and its counts), the bucket, and the stock of all products in one call. Its rows have all that is
/// shown, so no product is read. On Cassandra all products and all stock are one call each, too.
const PAGE_WITH_STOCK: Budgets = Budgets {
    embedded: Budget::reads(4, 1 + 2 + PAGE_BUCKETS + PAGE),
    cassandra: Budget::reads(
        PAGE_MAP + PAGE_BUCKETS + 1 + 1,
        PAGE_MAP + PAGE_BUCKETS + PAGE_CARDS + PAGE,
    ),
};

/// The badge: the log of the cart. On the embedded store its checkpoint and its operations are looked
/// up one after the other.
const BADGE: Budgets = Budgets { embedded: Budget::reads(1, 2), cassandra: Budget::partitions(1) };

/// The same for a guest of whom the instance knows nothing: the session first. (A request is told what
/// it took from there on; hand-overs are looked up on the embedded store.)
const BADGE_OF_A_GUEST: Budgets =
    Budgets { embedded: Budget::reads(2, 3), cassandra: Budget::reads(2, 1) };

/// The lines of the carts that are measured.
const LINES: u64 = 3;

/// A cart with prices and stock: the log, and then all products and all stock, which is one call each:
/// they are asked for in at most two rounds.
const CART: Budgets = Budgets {
    embedded: Budget::reads(1 + 1 + 1, 2 + LINES + LINES),
    cassandra: Budget::reads(1 + 1 + 1, 1 + LINES + LINES),
};

/// The first units in a cart: reads the products and the log; lists the cart under its day and adds
/// the operation.
const CART_LINES_ADD: Budgets = Budgets {
    embedded: Budget { writes: 2, ..Budget::reads(1 + 1, LINES + 2) },
    cassandra: Budget { writes: 2, ..Budget::reads(1 + 1, LINES + 1) },
};

/// A checkout on the embedded store. Reads: whether its key is known, the cart, the parts of the
/// history, all products, each row of stock, and the cart again before it is told. Writes: the
/// checkout, each row of stock, that it is accepted, the order, the cart; and after the answer each
/// row once more, which forgets the reservation, and that nothing is due.
const CHECKOUT_EMBEDDED: Budget = Budget::of_calls(5 + LINES, 5 + 2 * LINES);

/// The same on Cassandra, where what is due and the lists and events of an order are writes of their
/// own: two more for what is due, and for the order the months of its history, the history, the day
/// and the events.
const CHECKOUT_CASSANDRA: Budget = Budget::of_calls(5 + LINES, 5 + 2 * LINES + 2 + 4);

/// The orders of a page of a history.
const HISTORY_PAGE: usize = 20;
/// The list of a history's parts, and two of them where a page goes beyond the start of a year.
const HISTORY_PARTITIONS: u64 = 3;

/// What took longer may have read again what an instance remembers for a second, or met a store that did
/// not answer: it is tried again.
const DISTURBED: Duration = Duration::from_millis(800);
/// The same for what lies in caches.
const CACHED: Duration = Duration::from_millis(150);
const TRIES: u32 = 20;
/// What comes after an answer comes within this time.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it is waited for what should not come.
const QUIET: Duration = Duration::from_millis(60);
/// One in so many orders counts the part of its history, which is a read more.
const COUNTS_ONE_IN: u128 = 64;

const ZONE: &str = "Тула";

on_every_server! {
    a_card_is_one_read_and_its_stock_another,
    a_page_reads_few_partitions_and_then_what_stands_on_it,
    a_page_that_was_just_shown_reads_nothing,
    a_cart_is_one_read_and_its_products_and_stock_one_of_each,
    units_are_put_into_a_cart,
    a_cart_is_bought,
    a_page_of_a_history_reads_three_partitions_however_long_it_is,
}

/// What a client sends.
struct Request {
    token: String,
    query: &'static str,
    variables: Value,
}

/// Calls by table and kind, as the store has counted them.
async fn calls(server: &TestServer) -> BTreeMap<String, u64> {
    let text = server.http.get("/metrics").await.text();
    let series = |line: &str| {
        let (labels, count) =
            line.strip_prefix("vitrina_store_call_seconds_count{")?.split_once("} ")?;
        Some((labels.to_owned(), count.parse().unwrap()))
    };
    text.lines().filter_map(series).collect()
}

/// The calls since then, without tables that were left alone.
async fn calls_since(server: &TestServer, then: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut now = calls(server).await;
    for (labels, count) in &mut now {
        *count -= then.get(labels).copied().unwrap_or(0);
    }
    now.retain(|_, count| *count > 0);
    now
}

fn sum(calls: &BTreeMap<String, u64>, kind: &str) -> u64 {
    let of_kind = |labels: &String| labels.ends_with(&format!("kind=\"{kind}\""));
    calls.iter().filter(|(labels, _)| of_kind(labels)).map(|(_, count)| count).sum()
}

async fn ask(server: &TestServer, request: &Request) -> Value {
    let Request { token, query, variables } = request;
    let answer = server.http.query_as(token, query, variables.clone()).await.json();
    assert_eq!(answer["errors"], Value::Null, "{answer}");
    answer
}

/// Sees that a request takes exactly its budget from an instance that knows nothing; its answer.
/// `prepare` makes the request, with a number that tells one try from another.
async fn assert_takes(
    server: &TestServer,
    budgets: Budgets,
    prepare: impl AsyncFn(u32) -> Request,
) -> Value {
    let budget = match server.store() {
        StoreConfig::Embedded { .. } => budgets.embedded,
        StoreConfig::Cassandra(_) => budgets.cassandra,
    };
    for number in 0..TRIES {
        let request = prepare(number).await;
        let knows_nothing = |config: &mut Config| {
            (config.cache, config.tells_reads) = (CacheConfig::Off, true);
        };
        let cold = server.beside(knows_nothing).await;
        let before = calls(server).await;
        let began = Instant::now();
        let answer = ask(&cold, &request).await;
        let taken = |calls: &BTreeMap<String, u64>| Budget {
            reads: sum(calls, "read"),
            lookups: budget.lookups.and(answer["extensions"]["reads"]["lookups"].as_u64()),
            writes: sum(calls, "write"),
        };
        // Some of it may come after the answer.
        let mut made = calls_since(server, &before).await;
        while taken(&made).reads + taken(&made).writes < budget.reads + budget.writes
            && began.elapsed() < PATIENCE
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
            made = calls_since(server, &before).await;
        }
        let is_disturbed = began.elapsed() > DISTURBED || counts_its_part(&answer);
        tokio::time::sleep(QUIET).await;
        made = calls_since(server, &before).await;
        if taken(&made) == budget {
            return answer;
        }
        let told = format!("{:?} and not {budget:?}: {made:?}\n{}", taken(&made), request.query);
        assert!(is_disturbed && number + 1 < TRIES, "{told}");
        eprintln!("tried again after {:?}: {told}", began.elapsed());
    }
    unreachable!()
}

/// Whether an answer is an order that counts the part of its history.
fn counts_its_part(answer: &Value) -> bool {
    let id = answer["data"]["checkout"]["order"]["id"].as_str();
    id.is_some_and(|id| id.parse::<Uuid>().unwrap().as_u128().is_multiple_of(COUNTS_ONE_IN))
}

/// Sells so many products of one category, each for another price, and has a thousand of each.
async fn open_shop(server: &TestServer, count: u64) -> Vec<String> {
    let ids: Vec<_> = (0..count).map(|n| format!("P{n:03}")).collect();
    let products = ids.iter().zip(1..).map(|(id, price)| product(id, "Дом", &price.to_string()));
    sell(&server.http, &products.collect::<Vec<_>>()).await;
    let stock: Vec<_> = ids.iter().map(|id| (id.as_str(), ZONE, 1_000)).collect();
    set_stock(&server.http, &stock).await;
    ids
}

async fn a_card_is_one_read_and_its_stock_another(server: &TestServer) {
    open_shop(server, 1).await;
    let card = "{ product(id: \"P000\") { id name description price { amount } } }";
    let with_stock = "{ product(id: \"P000\") { id name price { amount }
        stock(geoZone: \"Тула\") { available status } } }";
    for (budgets, query) in [(CARD, card), (CARD_WITH_STOCK, with_stock)] {
        let request = async |_| Request { token: staff(), query, variables: json!({}) };
        let answer = assert_takes(server, budgets, request).await;
        assert_eq!(answer["data"]["product"]["id"], "P000", "{answer}");
    }
}

/// The first page of the category, as staff: nobody else's answer is given to them.
async fn first_page(_: u32) -> Request {
    let query = "query($first: Int!) { category(name: \"Дом\") { products(first: $first) {
        nodes { id name imageUrl price { amount } stock(geoZone: \"Тула\") { available } }
        pageInfo { hasNextPage } } } }";
    Request { token: staff(), query, variables: json!({ "first": PAGE }) }
}

fn assert_full(answer: &Value) {
    let page = &answer["data"]["category"]["products"];
    let nodes = page["nodes"].as_array().unwrap();
    assert_eq!(nodes.len() as u64, PAGE, "{answer}");
    assert!(nodes.iter().all(|node| node["stock"]["available"] == 1_000), "{answer}");
    assert_eq!(page["pageInfo"]["hasNextPage"], true);
}

async fn a_page_reads_few_partitions_and_then_what_stands_on_it(server: &TestServer) {
    open_shop(server, PAGE + 6).await;
    let answer = assert_takes(server, PAGE_WITH_STOCK, first_page).await;
    assert_full(&answer);
    let page = &answer["extensions"]["reads"]["pages"][0];
    assert_eq!((&page["partitions"], &page["rows"]), (&json!(PAGE_BUCKETS), &json!(PAGE + 1)));
}

async fn a_page_that_was_just_shown_reads_nothing(server: &TestServer) {
    open_shop(server, PAGE + 6).await;
    for number in 0..TRIES {
        // A new one, which has nothing in its caches that is about to end.
        let (fresh, request) = (server.beside(|_| {}).await, first_page(number).await);
        let began = Instant::now();
        ask(&fresh, &request).await;
        let before = calls(server).await;
        let answer = ask(&fresh, &request).await;
        let took = began.elapsed();
        assert_full(&answer);
        let made = calls_since(server, &before).await;
        if made.is_empty() {
            return;
        }
        assert!(took > CACHED && number + 1 < TRIES, "after {took:?}: {made:?}");
    }
}

/// Puts two of each product into a cart.
async fn fill(shopper: &Shopper, ids: &[String]) {
    shopper.put(&ids.iter().map(|id| (id.as_str(), 2)).collect::<Vec<_>>()).await;
}

async fn a_cart_is_one_read_and_its_products_and_stock_one_of_each(server: &TestServer) {
    let ids = open_shop(server, LINES).await;
    let (customer, guest) = (Shopper::customer(server, "customer-1"), Shopper::guest(server).await);
    fill(&customer, &ids).await;
    fill(&guest, &ids).await;
    let badge = "{ cart { totalQuantity } }";
    let whole = "{ cart { totalQuantity subtotal { amount } notices(geoZone: \"Тула\") { code }
        lines { quantity unitPrice { amount } total { amount }
            product { id name stock(geoZone: \"Тула\") { available } } } } }";
    for (shopper, budgets, query) in
        [(&customer, BADGE, badge), (&guest, BADGE_OF_A_GUEST, badge), (&customer, CART, whole)]
    {
        let request =
            async |_| Request { token: shopper.token.clone(), query, variables: json!({}) };
        let answer = assert_takes(server, budgets, request).await;
        assert_eq!(answer["data"]["cart"]["totalQuantity"], 2 * LINES, "{answer}");
    }
}

async fn units_are_put_into_a_cart(server: &TestServer) {
    let ids = open_shop(server, LINES).await;
    let query = "mutation($lines: [CartLineInput!]!) { cartLinesAdd(lines: $lines) {
        cart { totalQuantity lines { unitPrice { amount } } } userErrors { code } } }";
    let lines: Vec<_> = ids.iter().map(|id| json!({ "productId": id, "quantity": 2 })).collect();
    // A cart that was never touched: on any other it depends on the day whether it has to be listed.
    let request = async |number| Request {
        token: Shopper::customer(server, &format!("customer-{number}")).token,
        query,
        variables: json!({ "lines": lines }),
    };
    let answer = assert_takes(server, CART_LINES_ADD, request).await;
    assert_eq!(answer["data"]["cartLinesAdd"]["cart"]["totalQuantity"], 2 * LINES, "{answer}");
}

async fn a_cart_is_bought(server: &TestServer) {
    let ids = open_shop(server, LINES).await;
    let query = "mutation($input: CheckoutInput!) { checkout(input: $input) {
        order { id status } userErrors { code } } }";
    let request = async |number| {
        let shopper = Shopper::customer(server, &format!("customer-{number}"));
        fill(&shopper, &ids).await;
        let input = json!({ "idempotencyKey": "key", "geoZone": ZONE, "paymentMethod": "card",
            "shippingAddress": { "city": "Тула", "street": "Ленина, 1" } });
        Request { token: shopper.token, query, variables: json!({ "input": input }) }
    };
    let budgets = Budgets { embedded: CHECKOUT_EMBEDDED, cassandra: CHECKOUT_CASSANDRA };
    let answer = assert_takes(server, budgets, request).await;
    assert_eq!(answer["data"]["checkout"]["order"]["status"], "CREATED", "{answer}");
}

async fn a_page_of_a_history_reads_three_partitions_however_long_it_is(server: &TestServer) {
    let query = "query($first: Int!) { orders(first: $first) {
        nodes { id status total { amount } } pageInfo { hasNextPage } } }";
    let now = SystemClock.now();
    for count in [10_u32, 200] {
        let user = format!("customer-of-{count}");
        let owner = Owner::User(user.as_str().into());
        // Evenly over a year, newest first.
        let at = |n: u32| before(now, (DAY * 360 / count) * n);
        let orders: Vec<Order> = (0..count).map(|n| order_at(&owner, at(n))).collect();
        place_all(server.opened(), &orders).await;
        // One more than the page tells whether there is a next one.
        let read = &orders[..orders.len().min(HISTORY_PAGE + 1)];
        let parts = read.iter().map(|order| order.part).collect::<BTreeSet<_>>().len();
        // With the list of parts. The date decides whether the page goes beyond the start of a year.
        let partitions = 1 + parts as u64;
        // On the embedded store a list names orders, which are looked up where they stand.
        let budgets = Budgets {
            embedded: Budget::reads(1, partitions + read.len() as u64),
            cassandra: Budget::partitions(partitions),
        };
        let request = async |_| Request {
            token: Shopper::customer(server, &user).token,
            query,
            variables: json!({ "first": HISTORY_PAGE }),
        };
        let answer = assert_takes(server, budgets, request).await;
        let page = &answer["data"]["orders"];
        let shown = page["nodes"].as_array().unwrap().len();
        assert_eq!(shown, orders.len().min(HISTORY_PAGE), "{answer}");
        assert_eq!(page["pageInfo"]["hasNextPage"], orders.len() > HISTORY_PAGE);
        let told = &answer["extensions"]["reads"]["pages"][0]["partitions"];
        assert_eq!(*told, json!(partitions), "{answer}");
        assert!(partitions <= HISTORY_PARTITIONS, "{partitions} for {count} orders");
    }
}
