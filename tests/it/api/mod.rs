//! The shop over HTTP, as a frontend meets it.

// A helper of a test that cannot go on fails the test.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use vitrina::clock::{Clock, ManualClock, SystemClock};

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

/// Runs every case on the shop served from each store at a time that the case decides. A case is an
/// `async fn(&TestServer, &ManualClock)`; its store is empty.
macro_rules! at_any_time {
    ($($case:ident),+ $(,)?) => {
        mod embedded_in_time {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let (server, clock) = $crate::api::in_time().await;
                    super::$case(&server, &clock).await;
                }
            )+
        }

        mod cassandra_in_time {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    if let Some((server, clock)) = $crate::api::in_time_on_cassandra().await {
                        super::$case(&server, &clock).await;
                        $crate::support::stores::drop_keyspace(server.store()).await;
                    }
                }
            )+
        }
    };
}

mod browse;
mod browsers;
mod budgets;
mod carts;
mod catalog;
mod documents;
mod execution;
mod failures;
mod generated;
mod hostile;
mod hostile_bodies;
mod identity;
mod identity_keys;
mod orders;
mod overload;
mod pages;
mod responses;
mod sessions;
mod staff;
mod stock;
mod stock_cache;
mod subscriptions;
mod together;
mod transport;
mod trusted;
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

/// The shop on an embedded store, at a time that the test decides: now, to begin with.
async fn in_time() -> (TestServer, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let store = TestStore::embedded_with(clock.clone()).await;
    (TestServer::start_with_clock(store, clock.clone(), |_| {}).await, clock)
}

/// The same on the test cluster; `None` where there is none. What is kept there ends by the
/// cluster's own clock, so a test sees what the shop makes of its age.
async fn in_time_on_cassandra() -> Option<(TestServer, Arc<ManualClock>)> {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let store = TestStore::cassandra().await?;
    Some((TestServer::start_with_clock(store, clock.clone(), |_| {}).await, clock))
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
    data_for(http, None, query, variables).await
}

/// The same with a token, or without one.
async fn data_for(http: &HttpClient, token: Option<&str>, query: &str, variables: Value) -> Value {
    let body = json!({ "query": query, "variables": variables });
    let mut answer = http.post(token, &body).await.json();
    assert_eq!(answer["errors"], Value::Null, "{answer}");
    answer["data"].take()
}

/// The paths and codes of a payload's `userErrors`, sorted.
fn faults(payload: &Value) -> Vec<(String, String)> {
    let path = |fault: &Value| {
        let steps = fault["field"].as_array().unwrap().iter();
        steps.map(|step| step.as_str().unwrap()).collect::<Vec<_>>().join(".")
    };
    let mut faults: Vec<_> = payload["userErrors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| (path(fault), fault["code"].as_str().unwrap().to_owned()))
        .collect();
    faults.sort();
    faults
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
