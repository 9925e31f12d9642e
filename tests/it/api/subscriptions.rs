//! Subscriptions: what a client is told of the stock, and when.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vitrina::config::CacheConfig;

use super::{data, metric, product, staff, stock};
use crate::support::http::HttpClient;
use crate::support::redis::shared_redis;
use crate::support::server::TestServer;
use crate::support::stores::{TestStore, drop_keyspace};
use crate::support::websocket::Socket;

const WATCH: &str = "subscription Watch($ids: [ID!]!, $zone: String!) {
    stockChanged(productIds: $ids, geoZone: $zone) {
        available status geoZone product { id name price { amount } }
    }
}";
const SET: &str = "mutation($entries: [StockInput!]!) {
    stockSet(entries: $entries) { stocks { available } userErrors { code message } }
}";
const ADJUST: &str = "mutation($entries: [StockAdjustInput!]!) {
    stockAdjust(entries: $entries) { stocks { available } userErrors { code message } }
}";
/// Longer than a change takes to be told of.
const SOON: Duration = Duration::from_secs(10);
/// Long enough to be sure that nothing is told.
const A_WHILE: Duration = Duration::from_millis(700);

fn watched(ids: &[&str], zone: &str) -> Value {
    json!({ "ids": ids, "zone": zone })
}

async fn set(http: &HttpClient, id: &str, zone: &str, quantity: i32) {
    let entry = json!({ "productId": id, "geoZone": zone, "quantity": quantity });
    let answer = http.query_as(&staff(), SET, json!({ "entries": [entry] })).await.json();
    assert_eq!(answer["data"]["stockSet"]["userErrors"], json!([]), "{answer}");
}

/// The stock that the next event of an operation tells of.
async fn event(socket: &mut Socket, id: &str) -> Value {
    let mut payload = socket.payload("next", id).await;
    assert_eq!(payload["errors"], Value::Null, "{payload}");
    payload["data"]["stockChanged"].take()
}

async fn is_told_of_what_there_is_and_of_each_change(server: &TestServer) {
    stock(&server.http, &[product("A", "Книги", "10")]).await;
    set(&server.http, "A", "Тула", 7).await;
    let mut socket = Socket::connect(server.address).await;
    socket.subscribe("s", WATCH, watched(&["A"], "Тула")).await;
    let shown = json!({
        "available": 7, "status": "IN_STOCK", "geoZone": "Тула",
        "product": { "id": "A", "name": "Товар A", "price": { "amount": "10.00" } },
    });
    assert_eq!(event(&mut socket, "s").await, shown);
    set(&server.http, "A", "Тула", 2).await;
    let changed = event(&mut socket, "s").await;
    assert_eq!((&changed["available"], &changed["status"]), (&json!(2), &json!("LOW_STOCK")));
    // Another zone is not watched.
    set(&server.http, "A", "Орёл", 1).await;
    assert_eq!(socket.next_within(A_WHILE).await, None);
}

async fn shows_a_product_as_it_is_when_the_event_comes(server: &TestServer) {
    stock(&server.http, &[product("A", "Книги", "10")]).await;
    set(&server.http, "A", "Тула", 1).await;
    let mut socket = Socket::connect(server.address).await;
    socket.subscribe("s", WATCH, watched(&["A"], "Тула")).await;
    assert_eq!(event(&mut socket, "s").await["product"]["name"], "Товар A");
    let renamed = json!({ "id": "A", "name": "Новое имя", "category": "Книги",
                          "price": { "amount": "12" } });
    stock(&server.http, &[renamed]).await;
    set(&server.http, "A", "Тула", 2).await;
    let shown = event(&mut socket, "s").await;
    assert_eq!(shown["available"], 2);
    assert_eq!(
        shown["product"],
        json!({ "id": "A", "name": "Новое имя", "price": { "amount": "12.00" } })
    );
}

async fn is_told_at_most_ten_times_a_second_and_always_of_the_last(server: &TestServer) {
    stock(&server.http, &[product("A", "Книги", "10")]).await;
    set(&server.http, "A", "Тула", 0).await;
    let mut socket = Socket::connect(server.address).await;
    socket.subscribe("s", WATCH, watched(&["A"], "Тула")).await;
    let started = Instant::now();
    assert_eq!(event(&mut socket, "s").await["available"], 0);
    let http = server.http.clone();
    let changes = tokio::spawn(async move {
        for n in 0..50 {
            let entry = json!({ "productId": "A", "geoZone": "Тула", "delta": 1,
                                "idempotencyKey": format!("k{n}") });
            let answer = http.query_as(&staff(), ADJUST, json!({ "entries": [entry] })).await;
            assert_eq!(answer.json()["data"]["stockAdjust"]["userErrors"], json!([]));
        }
    });
    let mut told = vec![0];
    while told.last() != Some(&50) {
        told.push(event(&mut socket, "s").await["available"].as_i64().unwrap());
    }
    changes.await.unwrap();
    assert!(told.is_sorted(), "{told:?}");
    let tenths = usize::try_from(started.elapsed().as_millis() / 100).unwrap();
    assert!(told.len() <= tenths + 2, "{} events in {tenths} tenths of a second", told.len());
    assert_eq!(socket.next_within(A_WHILE).await, None);
}

async fn watches_several_products_and_several_times(server: &TestServer) {
    let ids = ["A", "B", "C"];
    stock(&server.http, &ids.map(|id| product(id, "Книги", "10"))).await;
    for id in ids {
        set(&server.http, id, "Тула", 5).await;
    }
    let mut socket = Socket::connect(server.address).await;
    socket.subscribe("all", WATCH, watched(&["A", "B", "C", "A"], "Тула")).await;
    let mut shown = HashMap::new();
    for _ in ids {
        let told = event(&mut socket, "all").await;
        shown.insert(told["product"]["id"].to_string(), told["available"].as_i64());
    }
    assert_eq!(shown.len(), 3);
    socket.subscribe("one", WATCH, watched(&["B"], "Тула")).await;
    assert_eq!(event(&mut socket, "one").await["available"], 5);
    set(&server.http, "B", "Тула", 6).await;
    let mut told = Vec::new();
    for _ in 0..2 {
        let message = socket.next().await;
        assert_eq!(message["payload"]["data"]["stockChanged"]["available"], 6);
        told.push(message["id"].as_str().unwrap().to_owned());
    }
    told.sort();
    assert_eq!(told, ["all", "one"]);
}

async fn is_silent_about_a_zone_until_it_is_stocked(server: &TestServer) {
    stock(&server.http, &[product("A", "Книги", "10")]).await;
    let mut socket = Socket::connect(server.address).await;
    socket.subscribe("s", WATCH, watched(&["A"], "Новая зона")).await;
    assert_eq!(socket.next_within(A_WHILE).await, None);
    set(&server.http, "A", "Новая зона", 3).await;
    assert_eq!(event(&mut socket, "s").await["available"], 3);
}

async fn stops_when_it_is_told_to(server: &TestServer) {
    stock(&server.http, &[product("A", "Книги", "10")]).await;
    set(&server.http, "A", "Тула", 1).await;
    let mut socket = Socket::connect(server.address).await;
    socket.subscribe("s", WATCH, watched(&["A"], "Тула")).await;
    event(&mut socket, "s").await;
    assert_eq!(metric(&server.http, "vitrina_subscriptions").await, 1);
    socket.send(&json!({ "id": "s", "type": "complete" })).await;
    wait_for(&server.http, "vitrina_subscriptions", 0).await;
    set(&server.http, "A", "Тула", 2).await;
    assert_eq!(socket.next_within(A_WHILE).await, None);
    // The id is free again.
    socket.subscribe("s", WATCH, watched(&["A"], "Тула")).await;
    assert_eq!(event(&mut socket, "s").await["available"], 2);
    drop(socket);
    wait_for(&server.http, "vitrina_subscriptions", 0).await;
    wait_for(&server.http, "vitrina_websocket_connections", 0).await;
    let ended = "vitrina_operation_seconds_count{root=\"stockChanged\",outcome=\"ok\"}";
    assert_eq!(metric(&server.http, ended).await, 2);
}

async fn runs_queries_and_mutations_too(server: &TestServer) {
    let mut socket = Socket::connect_as(server.address, &staff()).await;
    let upsert = json!({ "products": [product("A", "Книги", "10")] });
    socket.subscribe("m", super::UPSERT, upsert).await;
    let payload = socket.payload("next", "m").await;
    assert_eq!(payload["data"]["productsUpsert"]["userErrors"], json!([]));
    assert!(payload["extensions"]["reads"].is_object(), "staff are told: {payload}");
    assert_eq!(socket.payload("complete", "m").await, Value::Null);
    let query = "query($id: ID!) { product(id: $id) { name id } }";
    socket.subscribe("q", query, json!({ "id": "A" })).await;
    let payload = socket.payload("next", "q").await;
    assert_eq!(payload["data"], data(&server.http, query, json!({ "id": "A" })).await);
    assert_eq!(socket.payload("complete", "q").await, Value::Null);
}

on_every_server!(
    is_told_of_what_there_is_and_of_each_change,
    shows_a_product_as_it_is_when_the_event_comes,
    is_told_at_most_ten_times_a_second_and_always_of_the_last,
    watches_several_products_and_several_times,
    is_silent_about_a_zone_until_it_is_stocked,
    stops_when_it_is_told_to,
    runs_queries_and_mutations_too,
);

async fn wait_for(http: &HttpClient, series: &str, value: u64) {
    let deadline = Instant::now() + SOON;
    while metric(http, series).await != value {
        assert!(Instant::now() < deadline, "{series} does not become {value}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_through_one_instance_reaches_a_client_of_another() {
    let Some(redis) = shared_redis() else { return };
    let Some(store) = TestStore::cassandra().await else { return };
    let with_redis = |redis| {
        move |config: &mut vitrina::config::Config| {
            config.cache = CacheConfig::Redis(redis);
        }
    };
    let again = store.open_again().await;
    let one = TestServer::start_on(store, with_redis(redis.clone())).await;
    let other = TestServer::start_on(again, with_redis(redis)).await;
    stock(&one.http, &[product("A", "Книги", "10")]).await;
    set(&one.http, "A", "Тула", 1).await;
    let mut socket = Socket::connect(other.address).await;
    socket.subscribe("s", WATCH, watched(&["A"], "Тула")).await;
    assert_eq!(event(&mut socket, "s").await["available"], 1);
    for quantity in 2..5 {
        set(&one.http, "A", "Тула", quantity).await;
        assert_eq!(event(&mut socket, "s").await["available"], quantity);
    }
    drop_keyspace(one.store()).await;
}

#[tokio::test]
async fn what_is_wrong_with_a_subscription_is_told_as_over_http() {
    let server = TestServer::start().await;
    let mut socket = Socket::connect(server.address).await;
    let two = "subscription { a: stockChanged(productIds: [1], geoZone: \"x\") { available }
                              b: stockChanged(productIds: [2], geoZone: \"x\") { available } }";
    let in_fragment = "subscription { ...F } fragment F on Subscription {
        __typename stockChanged(productIds: [1], geoZone: \"x\") { available } }";
    let left_out = "subscription($no: Boolean!) {
        stockChanged(productIds: [1], geoZone: \"x\") @include(if: $no) { available } }";
    let one = "exactly one root field";
    for (query, variables, fault) in [
        (two, json!({}), one),
        // The checker knows no introspection of subscriptions.
        (in_fragment, json!({}), "__typename"),
        ("subscription { __typename }", json!({}), "__typename"),
        (left_out, json!({ "no": false }), one),
        ("subscription { nothing }", json!({}), "Unknown field"),
        ("subscription {", json!({}), "Syntax error"),
        (WATCH, json!({}), "$ids"),
        (WATCH, watched(&[], "Тула"), "productIds"),
        (WATCH, watched(&["A"], ""), "geoZone"),
    ] {
        socket.subscribe("s", query, variables).await;
        let errors = socket.payload("error", "s").await;
        assert_eq!(errors[0]["extensions"]["code"], "BAD_USER_INPUT", "{query}: {errors}");
        let message = errors[0]["message"].as_str().unwrap();
        assert!(message.contains(fault), "{query}: {message}");
    }
    // Nothing is left of them, and the connection is as good as before.
    socket.subscribe("s", "{ __typename }", json!({})).await;
    assert_eq!(socket.payload("next", "s").await, json!({ "data": { "__typename": "Query" } }));
    // Over HTTP there are none.
    let answer = server.http.query(WATCH, watched(&["A"], "Тула")).await;
    assert_eq!(answer.code(), "BAD_USER_INPUT");
    assert!(answer.text().contains("WebSocket"), "{}", answer.text());
}

#[tokio::test]
async fn a_product_that_was_deleted_and_came_back_is_still_watched() {
    let server = TestServer::start().await;
    stock(&server.http, &[product("A", "Книги", "10")]).await;
    set(&server.http, "A", "Тула", 1).await;
    let mut socket = Socket::connect(server.address).await;
    socket.subscribe("s", WATCH, watched(&["A"], "Тула")).await;
    event(&mut socket, "s").await;
    super::delete(&server.http, &["A"]).await;
    assert_eq!(socket.next_within(A_WHILE).await, None);
    stock(&server.http, &[product("A", "Книги", "11")]).await;
    set(&server.http, "A", "Тула", 3).await;
    assert_eq!(event(&mut socket, "s").await["product"]["price"]["amount"], "11.00");
}
