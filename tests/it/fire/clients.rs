//! Those who shop: some browse, some look at cards, some fill carts, some buy.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use vitrina::server::Role;

use super::record::{Kind, Record};
use super::shop::{CATEGORY, Client, Front, PRODUCTS, ZONE, product};
use crate::support::Random;
use crate::support::server::token;

/// How long a buyer goes on asking what became of a purchase.
const PATIENCE: Duration = Duration::from_secs(90);
/// One purchase of so many is of what is scarce.
const SCARCE: u64 = 3;

pub const PAGE: &str = "query Page($name: String!, $zone: String!, $price: PriceRange) {
    category(name: $name) { products(first: 24, price: $price) {
        nodes { id name price { amount } stock(geoZone: $zone) { available status } } } } }";
const BARE_CARD: &str = "query Bare($id: ID!) { product(id: $id) { id name price { amount } } }";
pub const CARD: &str = "query Card($id: ID!, $zone: String!) {
    product(id: $id) { id name price { amount } stock(geoZone: $zone) { available } } }";
const ADD: &str = "mutation Add($lines: [CartLineInput!]!, $key: String!) {
    cartLinesAdd(lines: $lines, idempotencyKey: $key) {
        cart { totalQuantity } userErrors { code } } }";
const CART: &str = "query Cart { cart { totalQuantity lines { name quantity total { amount } } } }";
const CHECKOUT: &str = "mutation Buy($zone: String!) { checkout(input: {
    idempotencyKey: \"buy\", geoZone: $zone, paymentMethod: \"card\",
    shippingAddress: { city: \"Москва\", street: \"Тверская, 1\" } }) {
        order { id } userErrors { code } } }";

/// How many of each there are, and how long each waits between two requests.
#[derive(Clone, Copy)]
pub struct Crowd {
    pub browsing: u64,
    /// Those who look at cards without stock, and at nothing else.
    pub looking: u64,
    pub filling: u64,
    pub buying: u64,
    pub pause: Duration,
}

/// What a customer bought, and was told.
#[derive(Debug, Clone)]
pub struct Purchase {
    pub user: String,
    pub product: String,
    pub units: i64,
    /// The order; `None` if it was refused for lack of stock.
    pub order: Option<String>,
}

/// What all clients of a test share.
pub struct Shared {
    pub front: Front,
    pub record: Arc<Record>,
    pub purchases: Mutex<Vec<Purchase>>,
    /// Of what is scarce; each stretch of a test has its own.
    pub scarce: Mutex<String>,
    /// Makes every customer another.
    customers: AtomicU64,
    stop: AtomicBool,
}

/// Clients at work.
pub struct Load {
    pub shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn start(front: Front, crowd: Crowd, scarce: &str, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            front,
            record: Arc::default(),
            purchases: Mutex::default(),
            scarce: Mutex::new(scarce.to_owned()),
            customers: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let mut clients = Vec::new();
        let mut random = Random(seed);
        for _ in 0..crowd.browsing {
            clients.push(tokio::spawn(browse(shared.clone(), crowd.pause, random.next())));
        }
        for _ in 0..crowd.looking {
            clients.push(tokio::spawn(look(shared.clone(), crowd.pause, random.next())));
        }
        for _ in 0..crowd.filling {
            clients.push(tokio::spawn(fill_carts(shared.clone(), crowd.pause, random.next())));
        }
        for _ in 0..crowd.buying {
            clients.push(tokio::spawn(buy(shared.clone(), crowd.pause, random.next())));
        }
        Self { shared, clients }
    }

    /// Waits until everybody has been told how it stands with what it has begun.
    pub async fn end(self) -> Arc<Shared> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.unwrap();
        }
        self.shared
    }
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    fn client(&self, turn: u64) -> Client {
        Client { front: self.front.clone(), record: self.record.clone(), turn }
    }

    fn customer(&self, what: &str, seed: u64) -> (String, String) {
        let number = self.customers.fetch_add(1, Ordering::Relaxed);
        let user = format!("{what}-{seed:x}-{number}");
        let token = token(&user, Role::Customer);
        (user, token)
    }
}

/// A page of a category or a card, as a visitor asks for it.
pub fn browsing(random: &mut Random) -> Value {
    if random.below(2) == 0 {
        let price = json!({ "min": (100 + random.below(PRODUCTS / 2)).to_string() });
        let variables = json!({ "name": CATEGORY, "zone": ZONE, "price": price });
        json!({ "query": PAGE, "variables": variables })
    } else {
        let variables = json!({ "id": product(random.below(PRODUCTS)), "zone": ZONE });
        json!({ "query": CARD, "variables": variables })
    }
}

async fn browse(shared: Arc<Shared>, pause: Duration, seed: u64) {
    let (mut client, mut random) = (shared.client(seed), Random(seed));
    while shared.goes_on() {
        client.ask(Kind::Browse, None, &browsing(&mut random)).await;
        tokio::time::sleep(pause).await;
    }
}

async fn look(shared: Arc<Shared>, pause: Duration, seed: u64) {
    let (mut client, mut random) = (shared.client(seed), Random(seed));
    while shared.goes_on() {
        let variables = json!({ "id": product(random.below(PRODUCTS)) });
        let card = json!({ "query": BARE_CARD, "variables": variables });
        client.ask(Kind::Card, None, &card).await;
        tokio::time::sleep(pause).await;
    }
}

async fn fill_carts(shared: Arc<Shared>, pause: Duration, seed: u64) {
    let (mut client, mut random) = (shared.client(seed), Random(seed));
    let (_, token) = shared.customer("filling", seed);
    let mut number = 0_u64;
    let (mut wanted, mut seen) = (0_i64, 0_i64);
    while shared.goes_on() {
        number += 1;
        let lines = json!([{ "productId": product(random.below(20)), "quantity": 1 }]);
        let add =
            json!({ "query": ADD, "variables": { "lines": lines, "key": number.to_string() } });
        // The same key until it is answered: what was added is added once.
        while client.ask(Kind::Cart, Some(&token), &add).await.is_none() && shared.goes_on() {}
        wanted += 1;
        if let Some(data) = client.ask(Kind::Cart, Some(&token), &json!({ "query": CART })).await {
            seen = data["cart"]["totalQuantity"].as_i64().unwrap();
            let is_over = !shared.goes_on();
            assert!(seen == wanted || is_over, "{seen} in a cart, {wanted} were added");
        }
        tokio::time::sleep(pause).await;
    }
    assert!(seen <= wanted, "{seen} in a cart, {wanted} were added");
}

async fn buy(shared: Arc<Shared>, pause: Duration, seed: u64) {
    let (mut client, mut random) = (shared.client(seed), Random(seed));
    while shared.goes_on() {
        let bought = if random.below(SCARCE) == 0 {
            shared.scarce.lock().unwrap().clone()
        } else {
            product(random.below(PRODUCTS))
        };
        let units = 1 + i64::try_from(random.below(2)).unwrap();
        let purchase = purchase(&shared, &mut client, &bought, units, seed).await;
        shared.purchases.lock().unwrap().push(purchase);
        tokio::time::sleep(pause).await;
    }
}

/// A customer who fills a cart and buys it, and asks until it is told what became of it.
async fn purchase(
    shared: &Shared,
    client: &mut Client,
    product: &str,
    units: i64,
    seed: u64,
) -> Purchase {
    let (user, token) = shared.customer("buying", seed);
    let lines = json!([{ "productId": product, "quantity": units }]);
    let add = json!({ "query": ADD, "variables": { "lines": lines, "key": "fill" } });
    until_told(client, Kind::Cart, &token, &add).await;
    let checkout = json!({ "query": CHECKOUT, "variables": { "zone": ZONE } });
    let told = until_told(client, Kind::Checkout, &token, &checkout).await;
    let told = &told["checkout"];
    let order = told["order"]["id"].as_str().map(str::to_owned);
    let refusal = told["userErrors"][0]["code"].as_str();
    assert!(order.is_some() || refusal == Some("OUT_OF_STOCK"), "{user}: {told}");
    Purchase { user, product: product.to_owned(), units, order }
}

async fn until_told(client: &mut Client, kind: Kind, token: &str, body: &Value) -> Value {
    let began = Instant::now();
    loop {
        if let Some(data) = client.ask(kind, Some(token), body).await {
            return data;
        }
        assert!(began.elapsed() < PATIENCE, "nobody says what became of a purchase");
    }
}
