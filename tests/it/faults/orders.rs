//! Processes that die before and after every write of a checkout, and of every change of an order.
//!
//! Each round prepares something, starts a process that dies at the n-th write, has it do one thing,
//! and looks at what is left: at once, for what a reader must never see; and until it is whole, with
//! the client trying again in every other round and nobody but the sweeper in the others.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use vitrina::config::StoreConfig;
use vitrina::server::Role;

use crate::support::http::HttpClient;
use crate::support::process::{ServerProcess, run, vitrina};
use crate::support::server::token;
use crate::support::stores::{address_of, cassandra_config, drop_keyspace};

const ZONE: &str = "Москва";
const STOCK: i64 = 10_000;
/// What every cart has of each of two products.
const BOUGHT: [(&str, i64); 2] = [("A", 2), ("B", 1)];
/// No operation has so many writes.
const MAX_WRITES: u32 = 60;
/// Longer than everything takes that is to be waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than a write takes whose process has died since it sent it.
const IN_FLIGHT: Duration = Duration::from_millis(300);
/// All processes wait a twentieth of the time for others, and tell of the stock as it is: the level in
/// another one's cache may be a fifth of a second old.
const SETTINGS: [(&str, &str); 2] = [("VITRINA_FAULT_HURRY", "1"), ("VITRINA_CACHE", "off")];
/// Longer than what a process does after its answer.
const AFTERWARDS: Duration = Duration::from_millis(1_500);

const CHECKOUT: &str = "mutation($key: String!, $zone: String!) { checkout(input: {
    idempotencyKey: $key, geoZone: $zone, paymentMethod: \"card\",
    shippingAddress: { city: \"Москва\", street: \"Тверская, 1\" } }) {
    order { id } userErrors { code } } }";
const ADVANCE: &str = "mutation($id: ID!, $to: OrderStatus!) {
    orderAdvance(id: $id, to: $to) { order { status } userErrors { code } } }";
const CANCEL: &str = "mutation($id: ID!) {
    orderCancel(id: $id) { order { status } userErrors { code } } }";
const MERGE: &str = "mutation($guest: String!) {
    cartMerge(guestToken: $guest) { userErrors { code } } }";
const SHOPPER: &str = "query($zone: String!) {
    cart { totalQuantity } orders { nodes { id status } }
    a: product(id: \"A\") { stock(geoZone: $zone) { available } }
    b: product(id: \"B\") { stock(geoZone: $zone) { available } } }";
const ORDER: &str = "query($id: ID!) { order(id: $id) { status timeline { type } } }";
const PERIOD: &str = "query($day: Date!, $after: String) {
    ordersByPeriod(day: $day, first: 100, after: $after) {
        nodes { id status } pageInfo { hasNextPage endCursor } } }";

/// What is done while the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Checkout,
    Pay,
    Ship,
    Cancel,
    Merge,
}

/// Somebody who shops, and what was prepared for the deed.
struct Shopper {
    name: String,
    token: String,
    guest: Option<String>,
    order: Option<String>,
}

/// What a shopper sees.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    cart: i64,
    orders: Vec<(String, String)>,
    available: [i64; 2],
}

async fn ask(http: &HttpClient, token: &str, query: &str, variables: Value) -> Value {
    until_answered(http, token, &json!({ "query": query, "variables": variables })).await
}

/// Asks as a client does: what failed is asked for again. Everything here may be.
async fn until_answered(http: &HttpClient, token: &str, body: &Value) -> Value {
    let began = Instant::now();
    loop {
        let answer = http.post(Some(token), body).await;
        let code = answer.code();
        if code.is_empty() {
            return answer.json()["data"].clone();
        }
        let may_pass = ["TIMEOUT", "UNAVAILABLE"].contains(&code.as_str());
        assert!(may_pass && began.elapsed() < PATIENCE, "{}", answer.text());
    }
}

async fn seen(http: &HttpClient, token: &str) -> Seen {
    let data = ask(http, token, SHOPPER, json!({ "zone": ZONE })).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let orders = data["orders"]["nodes"].as_array().unwrap();
    let units = |product: &str| data[product]["stock"]["available"].as_i64().unwrap();
    Seen {
        cart: data["cart"]["totalQuantity"].as_i64().unwrap(),
        orders: orders.iter().map(|order| (text(&order["id"]), text(&order["status"]))).collect(),
        available: [units("a"), units("b")],
    }
}

fn staff() -> String {
    token("boss", Role::Staff)
}

impl Shopper {
    /// Somebody for whom everything is ready for a deed.
    async fn ready_for(http: &HttpClient, deed: Deed, number: u32) -> Self {
        let name = format!("{deed:?}-{number}");
        let user = token(&name, Role::Customer);
        let mut shopper = Self { name, token: user, guest: None, order: None };
        if deed == Deed::Merge {
            let started = http.query("mutation { sessionStart { token } }", json!({})).await.json();
            let guest = started["data"]["sessionStart"]["token"].as_str().unwrap().to_owned();
            shopper.guest = Some(guest);
        }
        let buyer = shopper.guest.clone().unwrap_or_else(|| shopper.token.clone());
        let add = "mutation($lines: [CartLineInput!]!) {
            cartLinesAdd(lines: $lines, idempotencyKey: \"once\") { userErrors { code } } }";
        let line = |(id, units): &(&str, i64)| json!({ "productId": id, "quantity": units });
        let lines: Vec<_> = BOUGHT.iter().map(line).collect();
        ask(http, &buyer, add, json!({ "lines": lines })).await;
        if deed == Deed::Checkout {
            return shopper;
        }
        let key = json!({ "key": "prepared", "zone": ZONE });
        let placed = ask(http, &buyer, CHECKOUT, key).await;
        let id = placed["checkout"]["order"]["id"].as_str().unwrap().to_owned();
        if deed == Deed::Ship {
            for to in ["PAID", "PROCESSING"] {
                ask(http, &staff(), ADVANCE, json!({ "id": id, "to": to })).await;
            }
        }
        shopper.order = Some(id);
        shopper
    }

    /// What is asked for, by whom.
    fn request(&self, deed: Deed) -> (String, Value) {
        let (by, query, variables) = match deed {
            Deed::Checkout => (&self.token, CHECKOUT, json!({ "key": "the-key", "zone": ZONE })),
            Deed::Pay => (&staff(), ADVANCE, json!({ "id": self.order, "to": "PAID" })),
            Deed::Ship => (&staff(), ADVANCE, json!({ "id": self.order, "to": "SHIPPED" })),
            Deed::Cancel => (&self.token, CANCEL, json!({ "id": self.order })),
            Deed::Merge => (&self.token, MERGE, json!({ "guest": self.guest })),
        };
        (by.clone(), json!({ "query": query, "variables": variables }))
    }
}

/// A store on which processes die.
struct Stage {
    store: String,
    /// Whether another instance can serve it beside the one that dies.
    is_shared: bool,
    healthy: Option<ServerProcess>,
}

impl Stage {
    fn healthy(&mut self) -> HttpClient {
        let start = || ServerProcess::start_with(&self.store, &SETTINGS);
        self.healthy.get_or_insert_with(start).http.clone()
    }

    async fn open(store: &str, is_shared: bool) -> Self {
        let mut stage = Self { store: store.to_owned(), is_shared, healthy: None };
        let http = stage.healthy();
        let product = |id: &str| json!({ "id": id, "name": id, "category": "К", "price": { "amount": "10.50" } });
        let stock = |id: &str| json!({ "productId": id, "geoZone": ZONE, "quantity": STOCK });
        let query = "mutation($p: [ProductInput!]!, $s: [StockInput!]!) {
            productsUpsert(products: $p) { userErrors { message } }
            stockSet(entries: $s) { userErrors { message } } }";
        let (products, stock) = (["A", "B"].map(product), ["A", "B"].map(stock));
        let variables = json!({ "p": products, "s": stock });
        ask(&http, &staff(), query, variables).await;
        stage
    }

    /// Has a deed done by a process that dies at a write. Answers whether it died, and what it had
    /// answered before.
    async fn deed(&mut self, deed: Deed, shopper: &Shopper, fault: &str) -> (bool, Option<Value>) {
        if !self.is_shared {
            self.healthy = None;
        }
        let settings = [SETTINGS[0], SETTINGS[1], ("VITRINA_FAULT", fault)];
        let mut dying = ServerProcess::start_with(&self.store, &settings);
        let (by, body) = shopper.request(deed);
        let answer = dying.http.try_post(Some(&by), &body).await.ok().map(|answer| answer.json());
        let died = dying.ends_within(AFTERWARDS).await;
        (died, answer)
    }

    /// One round. Answers whether the process died.
    async fn round(&mut self, deed: Deed, place: &str, nth: u32, number: u32) -> bool {
        let http = self.healthy();
        let shopper = Shopper::ready_for(&http, deed, number).await;
        let before = seen(&http, &shopper.token).await;
        let fault = format!("{place}:{nth}");
        let (died, answer) = self.deed(deed, &shopper, &fault).await;
        let http = self.healthy();
        self.at_once(&http, &shopper).await;
        let was_done = answer.as_ref().is_some_and(|answer| answer.get("errors").is_none());
        let tries_again = nth.is_multiple_of(2);
        if tries_again {
            let (by, body) = shopper.request(deed);
            let again = until_answered(&http, &by, &body).await;
            if was_done && deed == Deed::Checkout {
                assert_eq!(Some(&again), answer.as_ref().map(|answer| &answer["data"]));
            }
            if deed == Deed::Checkout {
                let order = again["checkout"]["order"]["id"].as_str().unwrap();
                let now = seen(&http, &shopper.token).await;
                let told: Vec<_> = now.orders.iter().map(|(id, _)| id.as_str()).collect();
                assert_eq!((told, now.cart), (vec![order], 0), "{} {fault}", shopper.name);
            }
        }
        let must = was_done || tries_again || !died;
        let whole = async {
            loop {
                while !is_whole(&http, deed, &shopper, &before, must).await {
                    sleep(Duration::from_millis(20)).await;
                }
                // What looks like nothing may be about to become something.
                if must {
                    break;
                }
                sleep(IN_FLIGHT).await;
                if is_whole(&http, deed, &shopper, &before, must).await {
                    break;
                }
            }
        };
        if timeout(PATIENCE, whole).await.is_err() {
            let now = seen(&http, &shopper.token).await;
            panic!("{} {fault}, done {must}: from {before:?} to {now:?}", shopper.name);
        }
        died
    }

    /// What must hold at every moment: all lists show an order as it stands.
    async fn at_once(&self, http: &HttpClient, shopper: &Shopper) {
        let Some(id) = &shopper.order else { return };
        let order = ask(http, &staff(), ORDER, json!({ "id": id })).await;
        let status = order["order"]["status"].as_str().unwrap().to_owned();
        let lists = [&Some(shopper.token.clone()), &shopper.guest];
        let mut listed = Vec::new();
        for owner in lists.into_iter().flatten() {
            listed.extend(seen(http, owner).await.orders);
        }
        // It may move from one list to the other between the two looks.
        assert!(listed.iter().all(|one| *one == (id.clone(), status.clone())), "{listed:?}");
        let (day, mut after) = (today(), Value::Null);
        let by_day = loop {
            let page = ask(http, &staff(), PERIOD, json!({ "day": day, "after": after })).await;
            let page = &page["ordersByPeriod"];
            let nodes = page["nodes"].as_array().unwrap().clone();
            if let Some(node) = nodes.into_iter().find(|node| node["id"] == **id) {
                break node;
            }
            assert_eq!(page["pageInfo"]["hasNextPage"], true, "{id} is not among those of {day}");
            after = page["pageInfo"]["endCursor"].clone();
        };
        assert_eq!(by_day["status"], status.as_str());
    }
}

fn today() -> String {
    use vitrina::clock::{Clock, SystemClock};
    SystemClock.now().to_string()[..10].to_owned()
}

/// Whether a deed is done as a whole, or (where it need not be) not at all.
async fn is_whole(
    http: &HttpClient,
    deed: Deed,
    shopper: &Shopper,
    before: &Seen,
    must: bool,
) -> bool {
    let now = seen(http, &shopper.token).await;
    let taken = [before.available[0] - BOUGHT[0].1, before.available[1] - BOUGHT[1].1];
    let back = [before.available[0] + BOUGHT[0].1, before.available[1] + BOUGHT[1].1];
    let status = now.orders.first().map(|(_, status)| status.as_str());
    match deed {
        Deed::Checkout => {
            let is_done = now.cart == 0 && now.orders.len() == 1 && now.available == taken;
            is_done || !must && now == *before
        }
        Deed::Pay | Deed::Ship => {
            let to = if deed == Deed::Pay { "PAID" } else { "SHIPPED" };
            let is_done = status == Some(to) && now.available == before.available;
            if is_done {
                let order = ask(http, &shopper.token, ORDER, json!({ "id": shopper.order })).await;
                let events = order["order"]["timeline"].as_array().unwrap();
                let count =
                    events.iter().filter(|event| event["type"] == to.to_lowercase()).count();
                assert_eq!(count, 1, "{order}");
            }
            is_done || !must && now == *before
        }
        Deed::Cancel => {
            let is_done = status == Some("CANCELLED") && now.available == back;
            is_done || !must && now == *before
        }
        Deed::Merge => {
            let guest = seen(http, shopper.guest.as_deref().unwrap()).await;
            let is_done = guest.orders.is_empty() && now.orders.len() == 1;
            is_done || !must && now.orders.is_empty() && guest.orders.len() == 1
        }
    }
}

async fn dies_everywhere(store: &str, is_shared: bool, places: &[&str]) {
    let mut stage = Stage::open(store, is_shared).await;
    let mut number = 0;
    for deed in [Deed::Checkout, Deed::Pay, Deed::Ship, Deed::Cancel, Deed::Merge] {
        for place in places {
            let started = Instant::now();
            let mut deaths = 0;
            for nth in 1..MAX_WRITES {
                number += 1;
                if !stage.round(deed, place, nth, number).await {
                    break;
                }
                deaths += 1;
            }
            println!("{deed:?}, {place}: {deaths} deaths in {:.1?}", started.elapsed());
            assert!((3..MAX_WRITES - 1).contains(&deaths), "{deed:?}, {place}: {deaths} deaths");
        }
    }
    // The stock, all orders, events and lists agree, and there is nothing to mend.
    stage.healthy = None;
    let checked = run(&mut vitrina(&["check", "--store", store]));
    let told = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && told.contains("Orders and stock agree."), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_dies_an_order_is_whole_or_is_not_embedded() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", dir.path().display());
    dies_everywhere(&store, false, &["write.before", "write.after"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_dies_an_order_is_whole_or_is_not_cassandra() {
    let Some(config) = cassandra_config() else { return };
    let store = address_of(&config);
    dies_everywhere(&store, true, &["write.before", "write.after"]).await;
    drop_keyspace(&StoreConfig::Cassandra(config)).await;
}
