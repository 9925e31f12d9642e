//! What everybody may read: products and categories.

use std::fmt::Write;

use serde_json::{Value, json};
use vitrina::config::CacheConfig;

use super::{data, delete, metric, product, stock, upsert};
use crate::support::server::TestServer;
use crate::support::stores::TestStore;

const READS: &str = "vitrina_store_call_seconds_count{table=\"product_by_id\",kind=\"read\"}";
const PRODUCTS: &str = "query($ids: [ID!]!) { products(ids: $ids) { id } }";

on_every_server! {
    a_stored_card_is_read_back_whole,
    products_come_in_the_order_of_the_ids,
    categories_count_their_products,
    a_product_that_is_asked_for_often_is_read_once,
}

async fn a_stored_card_is_read_back_whole(server: &TestServer) {
    let card = json!({
        "id": "ТОВАР-1/я",
        "name": "Смартфон «Ёлка» 128 ГБ 📱",
        "description": "Экран 6,1″\nи две камеры",
        "category": "Электроника",
        "price": { "amount": "89990", "currencyCode": "RUB" },
        "attributes": [
            { "name": "Цвет", "value": "чёрный" }, { "name": "Память", "value": "128 ГБ" },
        ],
        "imageUrl": "https://example.com/1.png",
    });
    stock(&server.http, &[card]).await;
    let query = "query($id: ID!) { product(id: $id) {
        id name description category { name productCount } price { amount currencyCode }
        attributes { name value } imageUrl createdAt updatedAt
    } }";
    let mut found = data(&server.http, query, json!({ "id": "ТОВАР-1/я" })).await["product"].take();
    let (created, updated) = (found["createdAt"].take(), found["updatedAt"].take());
    assert_eq!(created, updated);
    assert!(created.as_str().unwrap().ends_with('Z'), "{created}");
    assert_eq!(
        found,
        json!({
            "id": "ТОВАР-1/я",
            "name": "Смартфон «Ёлка» 128 ГБ 📱",
            "description": "Экран 6,1″\nи две камеры",
            "category": { "name": "Электроника", "productCount": 1 },
            "price": { "amount": "89990.00", "currencyCode": "RUB" },
            "attributes": [
                { "name": "Память", "value": "128 ГБ" }, { "name": "Цвет", "value": "чёрный" },
            ],
            "imageUrl": "https://example.com/1.png",
            "createdAt": null,
            "updatedAt": null,
        })
    );
}

async fn products_come_in_the_order_of_the_ids(server: &TestServer) {
    let cards = ["b", "a", "c"].map(|id| product(id, "Аудио", "1"));
    stock(&server.http, &cards).await;
    let ids = json!({ "ids": ["c", "нет такого", "a", "c", "b"] });
    let found = data(&server.http, PRODUCTS, ids).await;
    let expected = json!([{ "id": "c" }, null, { "id": "a" }, { "id": "c" }, { "id": "b" }]);
    assert_eq!(found["products"], expected);
    assert_eq!(data(&server.http, PRODUCTS, json!({ "ids": [] })).await, json!({ "products": [] }));
}

async fn categories_count_their_products(server: &TestServer) {
    assert_eq!(categories(server).await, json!([]));
    let cards =
        [product("1", "Книги", "1"), product("2", "Аудио", "1"), product("3", "Книги", "1")];
    stock(&server.http, &cards).await;
    assert_eq!(categories(server).await, json!([["Аудио", 1], ["Книги", 2]]));

    // Storing a product again counts it no second time.
    stock(&server.http, &cards).await;
    assert_eq!(categories(server).await, json!([["Аудио", 1], ["Книги", 2]]));

    // A move takes from one and gives to the other; the last one out closes the category.
    stock(&server.http, &[product("2", "Книги", "1")]).await;
    assert_eq!(categories(server).await, json!([["Книги", 3]]));
    assert_eq!(category(server, "Аудио").await, Value::Null);

    assert_eq!(delete(&server.http, &["1", "2"]).await["deletedIds"], json!(["1", "2"]));
    assert_eq!(category(server, "Книги").await, json!({ "name": "Книги", "productCount": 1 }));
    delete(&server.http, &["3"]).await;
    assert_eq!(categories(server).await, json!([]));
    assert_eq!(category(server, "Книги").await, Value::Null);
}

async fn categories(server: &TestServer) -> Value {
    let found = data(&server.http, "{ categories { name productCount } }", json!({})).await;
    let pair = |category: &Value| json!([category["name"], category["productCount"]]);
    found["categories"].as_array().unwrap().iter().map(pair).collect()
}

async fn category(server: &TestServer, name: &str) -> Value {
    let query = "query($name: String!) { category(name: $name) { name productCount } }";
    data(&server.http, query, json!({ "name": name })).await["category"].take()
}

async fn a_product_that_is_asked_for_often_is_read_once(server: &TestServer) {
    // One that was never written, so that no cache has it.
    let before = metric(&server.http, READS).await;
    let found = data(&server.http, &aliases(|_| 1), json!({})).await;
    assert_eq!(metric(&server.http, READS).await - before, 1);
    assert_eq!(found.as_object().unwrap().len(), 100);
    assert_eq!(found["p99"], Value::Null);
    // And what was just written is not read at all.
    stock(&server.http, &[product("1", "Книги", "1")]).await;
    let before = metric(&server.http, READS).await;
    assert_eq!(data(&server.http, &aliases(|_| 1), json!({})).await["p99"], json!({ "id": "1" }));
    assert_eq!(metric(&server.http, READS).await - before, 0);
}

/// A query with 100 products, each under an alias of its own.
fn aliases(id: impl Fn(usize) -> usize) -> String {
    let mut query = "{".to_owned();
    for index in 0..100 {
        write!(query, " p{index}: product(id: {}) {{ id }}", id(index)).unwrap();
    }
    query + " }"
}

/// A server that reads everything it answers.
async fn uncached() -> TestServer {
    let store = TestStore::embedded().await;
    TestServer::start_on(store, |config| config.cache = CacheConfig::Off).await
}

#[tokio::test]
async fn a_hundred_products_are_read_in_one_round() {
    let server = uncached().await;
    let cards: Vec<_> = (0..100).map(|id| product(&id.to_string(), "Книги", "1")).collect();
    stock(&server.http, &cards).await;
    let before = metric(&server.http, READS).await;
    let found = data(&server.http, &aliases(|index| index), json!({})).await;
    // The embedded store notes a call for each thread that reads, 32 products each.
    assert_eq!(metric(&server.http, READS).await - before, 4);
    for id in 0..100 {
        assert_eq!(found[format!("p{id}")], json!({ "id": id.to_string() }));
    }
}

#[tokio::test]
async fn products_of_several_fields_share_a_round() {
    let server = uncached().await;
    stock(&server.http, &[product("1", "Книги", "1"), product("2", "Книги", "1")]).await;
    let before = metric(&server.http, READS).await;
    let query = r#"{ a: products(ids: [1, 2, "x"]) { id } b: product(id: 2) { id }
                     c: products(ids: ["x", 1]) { id } }"#;
    let found = data(&server.http, query, json!({})).await;
    assert_eq!(metric(&server.http, READS).await - before, 1);
    assert_eq!(found["c"], json!([null, { "id": "1" }]));
}

#[tokio::test]
async fn category_counts_of_many_products_are_read_once_per_category() {
    let server = TestServer::start().await;
    let cards: Vec<_> = (0..50)
        .map(|id: usize| product(&id.to_string(), ["Книги", "Аудио"][id % 2], "1"))
        .collect();
    stock(&server.http, &cards).await;
    let series = READS.replace("product_by_id", "category_by_name");
    let before = metric(&server.http, &series).await;
    let query = "query($ids: [ID!]!) { products(ids: $ids) { category { name productCount } } }";
    let ids: Vec<_> = (0..50).map(|id| id.to_string()).collect();
    let found = data(&server.http, query, json!({ "ids": ids })).await;
    assert!(metric(&server.http, &series).await - before <= 2);
    assert_eq!(
        found["products"][49],
        json!({ "category": { "name": "Аудио", "productCount": 25 } })
    );
}

#[tokio::test]
async fn categories_that_are_asked_for_often_are_read_once() {
    let server = TestServer::start().await;
    stock(&server.http, &[product("1", "Книги", "1")]).await;
    let series = READS.replace("product_by_id", "category_by_name");
    let before = metric(&server.http, &series).await;
    let mut query = "{".to_owned();
    for index in 0..100 {
        write!(query, " c{index}: categories {{ name }}").unwrap();
    }
    let found = data(&server.http, &(query + " }"), json!({})).await;
    assert_eq!(metric(&server.http, &series).await - before, 1);
    assert_eq!(found["c99"], json!([{ "name": "Книги" }]));
}

#[tokio::test]
async fn an_unknown_product_or_category_is_null() {
    let server = TestServer::start().await;
    let query = r#"{ product(id: "PROD-1") { id } category(name: "Нет такой") { name } }"#;
    let found = data(&server.http, query, json!({})).await;
    assert_eq!(found, json!({ "product": null, "category": null }));
}

#[tokio::test]
async fn at_most_250_products_at_once() {
    let server = TestServer::start().await;
    let ids = |count: usize| json!({ "ids": (0..count).collect::<Vec<_>>() });
    let found = data(&server.http, PRODUCTS, ids(250)).await;
    assert_eq!(found["products"].as_array().unwrap().len(), 250);
    let refused = server.http.query(PRODUCTS, ids(251)).await;
    assert_eq!(refused.code(), "BAD_USER_INPUT");
    assert_eq!(refused.json()["data"], Value::Null);
    assert_eq!(refused.json()["errors"][0]["path"], json!(["products"]));
}

#[tokio::test]
async fn malformed_keys_are_refused_and_not_repeated() {
    let server = TestServer::start().await;
    let long = "ECHOME".repeat(11);
    for id in ["", " ", "a\u{0}ECHOME", "ECHOME\n", "ECHOME\u{7F}", "ECHOME\u{85}", &long] {
        for query in [
            "query($x: ID!) { product(id: $x) { id } }",
            "query($x: ID!) { products(ids: [1, $x]) { id } }",
        ] {
            let refused = server.http.query(query, json!({ "x": id })).await;
            assert_eq!(refused.code(), "BAD_USER_INPUT", "{id:?}");
            assert!(!refused.text().contains("ECHOME"), "{}", refused.text());
        }
    }
    for name in ["", " \t", "ECHOME\u{0}", &"ECHOME".repeat(17)] {
        let query = "query($x: String!) { category(name: $x) { name } }";
        let refused = server.http.query(query, json!({ "x": name })).await;
        assert_eq!(refused.code(), "BAD_USER_INPUT", "{name:?}");
        assert!(!refused.text().contains("ECHOME"), "{}", refused.text());
    }
}

#[tokio::test]
async fn prices_are_exact_however_they_were_written() {
    let server = TestServer::start().await;
    for (sent, shown) in [
        (json!("89990"), "89990.00"),
        (json!("89990.0"), "89990.00"),
        (json!("0.1"), "0.10"),
        (json!("0"), "0.00"),
        (json!("-0.00"), "0.00"),
        (json!("1.500000"), "1.50"),
        (json!("99999999999.99"), "99999999999.99"),
        (json!("100000000000"), "100000000000.00"),
        (json!(5), "5.00"),
    ] {
        let mut card = product("1", "Книги", "0");
        card["price"]["amount"] = sent.clone();
        let payload = upsert(&server.http, &[card]).await;
        assert_eq!(payload["products"][0]["price"]["amount"], shown, "{sent}");
        let read = data(&server.http, "{ product(id: 1) { price { amount } } }", json!({})).await;
        assert_eq!(read["product"]["price"]["amount"], shown, "{sent}");
    }
}

#[tokio::test]
async fn an_id_may_be_sent_as_a_whole_number() {
    let server = TestServer::start().await;
    stock(&server.http, &[product("4294967296", "Книги", "1")]).await;
    let query = "query($id: ID!) { product(id: $id) { id } }";
    let found = data(&server.http, query, json!({ "id": 4_294_967_296_u64 })).await;
    assert_eq!(found["product"]["id"], "4294967296");
}
