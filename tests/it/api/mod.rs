//! The shop over HTTP, as a frontend meets it.

// A helper of a test that cannot go on fails the test.
#![allow(clippy::unwrap_used)]

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::support::http::{Answer, HttpClient};
use crate::support::server::{TestServer, token};
use crate::support::stores::TestStore;
use vitrina::server::Role;

/// Runs every case on the shop served from each store. A case is an `async fn(&TestServer)`; its
/// store is empty.
macro_rules! on_every_server {
    ($($case:ident),+ $(,)?) => {
        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case(&$crate::support::server::TestServer::start().await).await;
                }
            )+
        }

        mod cassandra {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    if let Some(server) = $crate::api::on_cassandra().await {
                        super::$case(&server).await;
                        $crate::support::stores::drop_keyspace(server.store()).await;
                    }
                }
            )+
        }
    };
}

mod browse;
mod catalog;
mod documents;
mod execution;
mod failures;
mod hostile;
mod hostile_bodies;
mod identity;
mod identity_keys;
mod pages;
mod staff;
mod stock;
mod stock_cache;
mod subscriptions;
mod transport;
mod websocket;

const UPSERT: &str = "mutation($products: [ProductInput!]!) {
    productsUpsert(products: $products) {
        products { id name price { amount currencyCode } category { name productCount } }
        userErrors { code field message }
    }
}";

const DELETE: &str = "mutation($ids: [ID!]!) {
    productsDelete(ids: $ids) { deletedIds userErrors { code field message } }
}";

/// The shop on the test cluster; `None` where there is none.
async fn on_cassandra() -> Option<TestServer> {
    Some(TestServer::start_on(TestStore::cassandra().await?, |_| {}).await)
}

/// A product as `productsUpsert` takes it.
fn product(id: &str, category: &str, amount: &str) -> Value {
    json!({ "id": id, "name": format!("Товар {id}"), "category": category,
            "price": { "amount": amount } })
}

/// Calls `productsUpsert` as staff; its payload.
async fn upsert(http: &HttpClient, products: &[Value]) -> Value {
    let answer = http.query_as(&staff(), UPSERT, json!({ "products": products })).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["data"]["productsUpsert"].take()
}

/// Calls `productsUpsert` with products that are right.
async fn stock(http: &HttpClient, products: &[Value]) {
    let payload = upsert(http, products).await;
    assert_eq!(payload["userErrors"], json!([]));
    assert_eq!(payload["products"].as_array().unwrap().len(), products.len());
}

/// Calls `productsDelete` as staff; its payload.
async fn delete(http: &HttpClient, ids: &[&str]) -> Value {
    let answer = http.query_as(&staff(), DELETE, json!({ "ids": ids })).await;
    answer.json()["data"]["productsDelete"].take()
}

fn staff() -> String {
    token("manager-1", Role::Staff)
}

/// A query without a token; its data, which must come without errors.
async fn data(http: &HttpClient, query: &str, variables: Value) -> Value {
    let mut answer = http.query(query, variables).await.json();
    assert_eq!(answer["errors"], Value::Null, "{answer}");
    answer["data"].take()
}

/// `POST /graphql` with these headers and nothing else.
async fn post(http: &HttpClient, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
    let mut request = Request::post("/graphql");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http.send(request.body(body.into()).unwrap()).await.unwrap()
}

/// `GET` with these headers.
async fn get(http: &HttpClient, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http.send(request.body(Body::empty()).unwrap()).await.unwrap()
}

/// `/graphql` with parameters.
fn graphql_path(parameters: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(parameters);
    format!("/graphql?{}", query.finish())
}

/// A counter of `/metrics`, by its name with its labels; 0 before it first counts.
async fn metric(http: &HttpClient, series: &str) -> u64 {
    let metrics = http.get("/metrics").await.text();
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}
