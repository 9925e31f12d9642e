//! An answer falls with what it shows: at once here, in time elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use vitrina::config::{CacheConfig, Config};

use super::super::carts::{Shopper, set_stock};
use super::super::{data, delete, metric, product, stock as sell};
use super::{HIT, PATIENCE};
use crate::support::http::HttpClient;
use crate::support::redis::PrivateRedis;
use crate::support::server::TestServer;
use crate::support::stores::{TestStore, drop_keyspace};

/// A change of stock is seen everywhere within this time.
const STOCK_WITHIN: Duration = Duration::from_millis(250);
/// A change of a card or a page.
const CARD_WITHIN: Duration = Duration::from_millis(500);
/// What a busy machine adds to either.
const NOISE: Duration = Duration::from_millis(250);

const CARD: &str = "{ product(id: 1) { name price { amount } category { name productCount } } }";
const CARDS: &str = "{ products(ids: [1, 2, 3]) { id name } }";
const PAGE: &str = "{ category(name: \"Книги\") { productCount priceRange { max { amount } }
    products(first: 10) { nodes { id name price { amount } } pageInfo { hasNextPage } } } }";
const PART: &str = "{ category(name: \"Книги\") {
    products(first: 10, price: { min: \"5\" }) { edges { node { id description } } } } }";
const LIST: &str = "{ categories { name productCount } }";
const STOCK: &str = "{ product(id: 1) { stock(geoZone: \"Тула\") { available status }
    stocks { geoZone available } } }";
const LEVEL: &str = "{ product(id: 1) { stock(geoZone: \"Тула\") { available } } }";
const QUERIES: [&str; 6] = [CARD, CARDS, PAGE, PART, LIST, STOCK];

/// All answers, as often as it takes to have them at hand.
async fn ask_all(http: &HttpClient) -> Vec<Value> {
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.clear();
        for query in QUERIES {
            answers.push(data(http, query, json!({})).await);
        }
    }
    answers
}

on_every_server! {
    what_is_changed_here_is_shown_at_once,
    nobody_is_shown_less_than_was_acknowledged_before,
}

async fn what_is_changed_here_is_shown_at_once(server: &TestServer) {
    let http = &server.http;
    sell(http, &[product("1", "Книги", "10"), product("2", "Книги", "20")]).await;
    let begun = ask_all(http).await;
    assert_eq!(begun[1]["products"][2], Value::Null);
    assert_eq!(begun[5]["product"], json!({ "stock": null, "stocks": [] }));

    // A price.
    sell(http, &[product("1", "Книги", "11")]).await;
    let now = ask_all(http).await;
    assert_eq!(now[0]["product"]["price"]["amount"], "11.00");
    assert_eq!(now[2]["category"]["products"]["nodes"][0]["price"]["amount"], "11.00");

    // A new product, in the category and by its id.
    sell(http, &[product("3", "Книги", "30")]).await;
    let now = ask_all(http).await;
    assert_eq!(now[0]["product"]["category"]["productCount"], 3);
    assert_eq!(now[1]["products"][2]["id"], "3");
    assert_eq!(now[2]["category"]["products"]["nodes"][2]["id"], "3");
    assert_eq!(now[2]["category"]["priceRange"]["max"]["amount"], "30.00");
    assert_eq!(now[3]["category"]["products"]["edges"][2]["node"]["id"], "3");
    assert_eq!(now[4]["categories"], json!([{ "name": "Книги", "productCount": 3 }]));

    // One that moves to a category that was not there.
    sell(http, &[product("3", "Игры", "30")]).await;
    let now = ask_all(http).await;
    assert_eq!(now[2]["category"]["productCount"], 2);
    assert_eq!(now[3]["category"]["products"]["edges"].as_array().unwrap().len(), 2);
    assert_eq!(now[4]["categories"].as_array().unwrap().len(), 2);

    // One that goes.
    delete(http, &["2"]).await;
    let now = ask_all(http).await;
    assert_eq!(now[1]["products"][1], Value::Null);
    assert_eq!(now[2]["category"]["products"]["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(now[4]["categories"][1], json!({ "name": "Книги", "productCount": 1 }));

    // Stock, where there was none and where there was.
    for (quantity, status) in [(7, "IN_STOCK"), (2, "LOW_STOCK"), (9, "IN_STOCK")] {
        set_stock(http, &[("1", "Тула", quantity)]).await;
        let now = ask_all(http).await;
        let shown = json!({ "available": quantity, "status": status });
        assert_eq!(now[5]["product"]["stock"], shown);
    }
    set_stock(http, &[("1", "Москва", 4)]).await;
    let stocks = json!([{ "geoZone": "Москва", "available": 4 },
                        { "geoZone": "Тула", "available": 9 }]);
    assert_eq!(ask_all(http).await[5]["product"]["stocks"], stocks);

    // What somebody buys.
    let buyer = Shopper::customer(server, "buyer");
    buyer.put(&[("1", 3)]).await;
    ask_all(http).await;
    let checkout = "mutation($input: CheckoutInput!) {
        checkout(input: $input) { order { id } userErrors { code message } } }";
    let input = json!({ "idempotencyKey": "k", "geoZone": "Тула", "paymentMethod": "card",
                        "shippingAddress": { "city": "Тула", "street": "Ленина, 1" } });
    let bought = buyer.data(checkout, json!({ "input": input })).await;
    assert!(bought["checkout"]["order"]["id"].is_string(), "{bought}");
    assert_eq!(ask_all(http).await[5]["product"]["stock"]["available"], 6);
    let id = &bought["checkout"]["order"]["id"];
    let cancel = "mutation($id: ID!) { orderCancel(id: $id) { userErrors { code } } }";
    buyer.data(cancel, json!({ "id": id })).await;
    let began = Instant::now();
    // Its units are given back after it is told.
    while ask_all(http).await[5]["product"]["stock"]["available"] != 9 {
        assert!(began.elapsed() < PATIENCE);
    }
    assert!(metric(http, HIT).await > 0, "nothing of this came from the cache");
}

/// Readers all the while: what one is shown is never older than what was acknowledged before it
/// asked. A change during the making of an answer must not leave the old one behind.
async fn nobody_is_shown_less_than_was_acknowledged_before(server: &TestServer) {
    let http = &server.http;
    sell(http, &[product("1", "Книги", "1")]).await;
    set_stock(http, &[("1", "Тула", 1)]).await;
    let query = "{ product(id: 1) { price { amount } stock(geoZone: \"Тула\") { available } }
        category(name: \"Книги\") { products(first: 1) { nodes { price { amount } } } } }";
    let (stops, said) =
        (Arc::new(AtomicBool::new(false)), Arc::new([const { AtomicI64::new(1) }; 2]));
    let readers = (0..8).map(|_| {
        let (http, stops, said) = (http.clone(), stops.clone(), said.clone());
        tokio::spawn(async move {
            while !stops.load(Ordering::SeqCst) {
                let before = [0, 1].map(|n| said[n].load(Ordering::SeqCst));
                let shown = data(&http, query, json!({})).await;
                let number = |amount: &Value| {
                    amount.as_str().unwrap().strip_suffix(".00").unwrap().parse::<i64>().unwrap()
                };
                let price = number(&shown["product"]["price"]["amount"]);
                let node = &shown["category"]["products"]["nodes"][0];
                assert!(price >= before[0], "{shown} after {before:?}");
                assert!(number(&node["price"]["amount"]) >= before[0], "{shown} {before:?}");
                let available = shown["product"]["stock"]["available"].as_i64().unwrap();
                assert!(available >= before[1], "{shown} after {before:?}");
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    for n in 2..60 {
        sell(http, &[product("1", "Книги", &n.to_string())]).await;
        said[0].store(n, Ordering::SeqCst);
        set_stock(http, &[("1", "Тула", n)]).await;
        said[1].store(n, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(if n % 3 == 0 { 15 } else { 0 })).await;
    }
    stops.store(true, Ordering::SeqCst);
    for reader in join_all(readers).await {
        reader.unwrap();
    }
    assert!(metric(http, HIT).await > 0);
}

/// Asks another instance until it shows a change; how long after it that was. Fails if it showed the
/// old to somebody who asked later than it may.
async fn seen_within(
    http: &HttpClient,
    query: &str,
    within: Duration,
    is_new: impl Fn(&Value) -> bool,
) -> Duration {
    let acknowledged = Instant::now();
    loop {
        let asked = Instant::now();
        let shown = data(http, query, json!({})).await;
        let late = asked.duration_since(acknowledged);
        if is_new(&shown) {
            return late;
        }
        assert!(late <= within + NOISE, "after {late:?}: {shown}");
    }
}

async fn others_see_it_in_time(a: &TestServer, b: &TestServer) {
    sell(&a.http, &[product("1", "Книги", "1")]).await;
    let mut soonest = Duration::MAX;
    for n in 2..8 {
        // The other instance has everything at hand, of different ages.
        ask_all(&b.http).await;
        tokio::time::sleep(Duration::from_millis(70 * n)).await;
        ask_all(&b.http).await;
        sell(&a.http, &[product("1", "Книги", &n.to_string())]).await;
        let amount = format!("{n}.00");
        let card = seen_within(&b.http, CARD, CARD_WITHIN, |shown| {
            shown["product"]["price"]["amount"] == amount
        });
        let page = seen_within(&b.http, PAGE, CARD_WITHIN, |shown| {
            shown["category"]["products"]["nodes"][0]["price"]["amount"] == amount
        });
        tokio::join!(card, page);
        ask_all(&b.http).await;
        data(&b.http, LEVEL, json!({})).await;
        set_stock(&a.http, &[("1", "Тула", n.try_into().unwrap())]).await;
        let late = seen_within(&b.http, LEVEL, STOCK_WITHIN, |shown| {
            shown["product"]["stock"]["available"] == n
        });
        soonest = soonest.min(late.await);
    }
    // An answer that nobody ends would be shown for half a second, also on a machine without noise.
    assert!(soonest <= STOCK_WITHIN, "{soonest:?}");
    assert!(metric(&b.http, HIT).await > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_instance_changes_is_shown_in_time_with_redis() {
    let (Some(store), Some(redis)) = (TestStore::cassandra().await, PrivateRedis::start(&[]))
    else {
        return;
    };
    let cached = || {
        let config = redis.config();
        move |c: &mut Config| c.cache = CacheConfig::Redis(config)
    };
    let a = TestServer::start_on(store, cached()).await;
    let b = a.beside(cached()).await;
    others_see_it_in_time(&a, &b).await;
    drop_keyspace(a.store()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_instance_changes_is_shown_in_time_without_redis() {
    let Some(store) = TestStore::cassandra().await else { return };
    let a = TestServer::start_on(store, |_| {}).await;
    let b = a.beside(|_| {}).await;
    others_see_it_in_time(&a, &b).await;
    drop_keyspace(a.store()).await;
}
