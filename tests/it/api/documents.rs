//! Documents that are sent again: what is kept of them must not show, except in the time it takes.
//! And persisted queries, which are asked for by the hash of their text.

use std::fmt::Write;

use aws_lc_rs::digest::{SHA256, digest};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{UPSERT, get, graphql_path, metric, product, staff, stock};
use crate::support::http::Answer;
use crate::support::server::TestServer;

const PRODUCT: &str = "query One($id: ID!) { product(id: $id) { id } }";
pub(super) const PREFLIGHT: (&str, &str) = ("apollo-require-preflight", "true");

pub(super) fn hash_of(text: &str) -> String {
    let mut hex = String::new();
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        write!(hex, "{byte:02x}").unwrap();
    }
    hex
}

pub(super) fn persisted(hash: &str) -> Value {
    json!({ "persistedQuery": { "version": 1, "sha256Hash": hash } })
}

async fn by_hash(server: &TestServer, hash: &str, variables: Value) -> Answer {
    let body = json!({ "extensions": persisted(hash), "variables": variables });
    server.http.post(None, &body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_with_one_document_and_different_variables_do_not_mix() {
    let server = TestServer::start().await;
    let cards: Vec<_> = (0..100).map(|id| product(&id.to_string(), "Книги", "1")).collect();
    stock(&server.http, &cards).await;
    let asked = (0..300).map(|n| {
        let (http, id) = (server.http.clone(), (n % 101).to_string());
        async move {
            let answer = http.query(PRODUCT, json!({ "id": id })).await.json();
            (id, answer)
        }
    });
    for (id, answer) in join_all(asked).await {
        let expected = if id == "100" { Value::Null } else { json!({ "id": id }) };
        assert_eq!(answer, json!({ "data": { "product": expected } }));
    }
}

#[tokio::test]
async fn bad_variables_get_the_same_refusal_every_time() {
    let server = TestServer::start().await;
    for (query, variables) in [
        (PRODUCT, json!({})),
        (PRODUCT, json!({ "id": null })),
        (PRODUCT, json!({ "id": ["1"] })),
        (PRODUCT, json!({ "id": 1.5 })),
        (PRODUCT, json!({ "id": true })),
        (UPSERT, json!({ "products": 1 })),
        (UPSERT, json!({ "products": [null] })),
        (UPSERT, json!({ "products": [{ "id": "1" }] })),
        (UPSERT, json!({ "products": [{ "id": "1", "name": "x", "category": "y", "price": 1 }] })),
    ] {
        let first = server.http.query_as(&staff(), query, variables.clone()).await;
        assert_eq!(first.code(), "BAD_USER_INPUT", "{variables}");
        assert_eq!(first.json()["data"], Value::Null, "{variables}");
        let second = server.http.query_as(&staff(), query, variables.clone()).await;
        assert_eq!(first.json(), second.json(), "{variables}");
        assert_eq!(first.status, second.status);
        let good = server.http.query(PRODUCT, json!({ "id": "1" })).await;
        assert_eq!(good.json(), json!({ "data": { "product": null } }));
    }
}

#[tokio::test]
async fn a_bad_document_gets_the_same_refusal_every_time() {
    let server = TestServer::start().await;
    for query in ["{ nope }", "{", "{ product { id } }", "query($x: Int) { __typename }"] {
        let first = server.http.query(query, json!({})).await;
        assert_eq!(first.code(), "BAD_USER_INPUT", "{query}");
        assert_eq!(first.json(), server.http.query(query, json!({})).await.json(), "{query}");
    }
}

#[tokio::test]
async fn a_repeated_document_is_not_parsed_again() {
    let server = TestServer::start().await;
    let (hits, misses) =
        ("vitrina_documents_total{cache=\"hit\"}", "vitrina_documents_total{cache=\"miss\"}");
    for id in 0..5 {
        server.http.query(PRODUCT, json!({ "id": id })).await;
    }
    assert_eq!(metric(&server.http, misses).await, 1);
    assert_eq!(metric(&server.http, hits).await, 4);
}

#[tokio::test]
async fn the_rights_of_one_bearer_do_not_stick_to_the_document() {
    let server = TestServer::start().await;
    stock(&server.http, &[product("1", "Книги", "1")]).await;
    let refused = server.http.query(UPSERT, json!({ "products": [] })).await;
    assert_eq!(refused.code(), "UNAUTHENTICATED");
}

#[tokio::test]
async fn operation_name_says_which_operation_is_meant() {
    let server = TestServer::start().await;
    let query = "query A { a: __typename } query B($id: ID!) { b: product(id: $id) { id } }";
    let ask = async |name: Value, variables: Value| {
        let body = json!({ "query": query, "operationName": name, "variables": variables });
        server.http.post(None, &body).await
    };
    for _ in 0..2 {
        let a = ask(json!("A"), json!({})).await.json();
        assert_eq!(a, json!({ "data": { "a": "Query" } }));
        let b = ask(json!("B"), json!({ "id": "1" })).await.json();
        assert_eq!(b, json!({ "data": { "b": null } }));
        // The variables of A are not asked of B, nor the other way round.
        assert_eq!(ask(json!("B"), json!({})).await.code(), "BAD_USER_INPUT");
        for name in [Value::Null, json!("ECHOME"), json!("a"), json!("")] {
            let refused = ask(name, json!({ "id": "1" })).await;
            assert_eq!(refused.code(), "BAD_USER_INPUT");
            assert!(!refused.text().contains("ECHOME"));
        }
    }
}

#[tokio::test]
async fn an_operation_name_that_the_only_operation_does_not_have_is_refused() {
    let server = TestServer::start().await;
    for query in ["{ __typename }", "query A { __typename }"] {
        let body = json!({ "query": query, "operationName": "B" });
        let refused = server.http.post(None, &body).await;
        assert_eq!(refused.code(), "BAD_USER_INPUT", "{query}");
    }
}

#[tokio::test]
async fn a_persisted_query_is_sent_once_and_then_asked_for_by_its_hash() {
    let server = TestServer::start().await;
    stock(&server.http, &[product("1", "Книги", "1")]).await;
    let hash = hash_of(PRODUCT);
    let unknown = by_hash(&server, &hash, json!({ "id": "1" })).await;
    assert_eq!(unknown.code(), "PERSISTED_QUERY_NOT_FOUND");
    // The message that clients look for.
    assert_eq!(unknown.json()["errors"][0]["message"], "PersistedQueryNotFound");
    assert_eq!(unknown.status, 200);

    let found = json!({ "data": { "product": { "id": "1" } } });
    let body = json!({
        "query": PRODUCT, "variables": { "id": "1" }, "extensions": persisted(&hash),
    });
    assert_eq!(server.http.post(None, &body).await.json(), found);
    assert_eq!(by_hash(&server, &hash, json!({ "id": "1" })).await.json(), found);
    let upper = hash.to_uppercase();
    assert_eq!(by_hash(&server, &upper, json!({ "id": "1" })).await.json(), found);
    let other = by_hash(&server, &hash, json!({ "id": "2" })).await.json();
    assert_eq!(other, json!({ "data": { "product": null } }));

    let extensions = persisted(&hash).to_string();
    let path = graphql_path(&[("variables", r#"{"id":"1"}"#), ("extensions", &extensions)]);
    assert_eq!(get(&server.http, &path, &[PREFLIGHT]).await.json(), found);
    assert_eq!(get(&server.http, &path, &[]).await.status, 400);
}

#[tokio::test]
async fn a_persisted_mutation_is_not_carried_out_over_get() {
    let server = TestServer::start().await;
    let text = "mutation { productsDelete(ids: [1]) { deletedIds } }";
    stock(&server.http, &[product("1", "Книги", "1")]).await;
    // Registered by a caller who may not carry it out.
    let body = json!({ "query": text, "extensions": persisted(&hash_of(text)) });
    assert_eq!(server.http.post(None, &body).await.code(), "UNAUTHENTICATED");
    let extensions = persisted(&hash_of(text)).to_string();
    let path = graphql_path(&[("extensions", &extensions)]);
    let bearer = format!("Bearer {}", staff());
    let refused = get(&server.http, &path, &[PREFLIGHT, ("authorization", &bearer)]).await;
    assert_eq!(refused.status, 405);
    let left = server.http.query("{ product(id: 1) { id } }", json!({})).await.json();
    assert_eq!(left["data"]["product"]["id"], "1");
}

#[tokio::test]
async fn a_text_cannot_be_registered_under_a_foreign_hash() {
    let server = TestServer::start().await;
    let foreign = hash_of("{ categories { name } }");
    let body = json!({ "query": "{ __typename }", "extensions": persisted(&foreign) });
    assert_eq!(server.http.post(None, &body).await.code(), "BAD_USER_INPUT");
    let answer = by_hash(&server, &foreign, json!({})).await;
    assert_eq!(answer.code(), "PERSISTED_QUERY_NOT_FOUND");
}

#[tokio::test]
async fn a_document_that_is_refused_is_not_kept() {
    let server = TestServer::start().await;
    let text = "{ nope }";
    let body = json!({ "query": text, "extensions": persisted(&hash_of(text)) });
    assert_eq!(server.http.post(None, &body).await.code(), "BAD_USER_INPUT");
    let answer = by_hash(&server, &hash_of(text), json!({})).await;
    assert_eq!(answer.code(), "PERSISTED_QUERY_NOT_FOUND");
}

#[tokio::test]
async fn malformed_persisted_queries_are_refused() {
    let server = TestServer::start().await;
    let hash = hash_of("{ __typename }");
    let entry = |version: Value, hash: Value| json!({ "version": version, "sha256Hash": hash });
    for entry in [
        entry(json!(2), json!(hash)),
        entry(json!(0), json!(hash)),
        entry(json!(-1), json!(hash)),
        entry(json!("1"), json!(hash)),
        entry(json!(1), json!("")),
        entry(json!(1), json!(hash[..63])),
        entry(json!(1), json!(format!("{hash}0"))),
        entry(json!(1), json!("ECHOME".repeat(11)[..64])),
        entry(json!(1), json!("я".repeat(32))),
        entry(json!(1), json!(7)),
        json!({ "version": 1 }),
        json!({ "sha256Hash": hash }),
        json!([]),
        json!("ECHOME"),
    ] {
        for query in [Value::Null, json!("{ __typename }")] {
            let body = json!({ "query": query, "extensions": { "persistedQuery": entry } });
            let refused = server.http.post(None, &body).await;
            assert_eq!(refused.code(), "BAD_USER_INPUT", "{body}");
            assert!(!refused.text().contains("ECHOME"), "{}", refused.text());
        }
    }
}

#[tokio::test]
async fn other_extensions_are_passed_over() {
    let server = TestServer::start().await;
    for extensions in [json!({}), json!({ "tracing": { "version": 1 } }), Value::Null] {
        let body = json!({ "query": "{ __typename }", "extensions": extensions });
        assert_eq!(server.http.post(None, &body).await.json()["data"]["__typename"], "Query");
    }
}
