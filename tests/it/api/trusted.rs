//! Trusted documents: nothing else is executed, by whichever way it comes.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use vitrina::config::Limits;
use vitrina::server::Trusted;

use super::documents::{PREFLIGHT, hash_of, persisted};
use super::{get, graphql_path, metric, post, staff};
use crate::support::http::Answer;
use crate::support::server::TestServer;
use crate::support::stores::TestStore;
use crate::support::websocket::Socket;

const CARD: &str = "query Card($id: ID!) { product(id: $id) { id } }";
const LIST: &str = "query List { categories { name } }";
const DELETE: &str = "mutation Delete { productsDelete(ids: []) { deletedIds } }";
const WATCH: &str = "subscription Watch { stockChanged(productIds: [\"A\"], geoZone: \"Тула\") \
    { available } }";
const NOT_TRUSTED: &str = "DOCUMENT_NOT_TRUSTED";

/// A folder with a manifest, in the form of Relay's compiler, of these texts.
fn folder(texts: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let manifest: Value = texts
        .iter()
        .map(|text| (hash_of(text), json!(text)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    fs::write(dir.path().join("manifest.json"), manifest.to_string()).unwrap();
    dir
}

async fn serve(texts: &[&str], introspection: bool) -> TestServer {
    let dir = folder(texts);
    let trusted = Trusted::load(dir.path(), &Limits::default(), introspection).await.unwrap();
    TestServer::start_on(TestStore::embedded().await, |config| {
        config.trusted = Some(trusted);
        config.introspection = introspection;
    })
    .await
}

fn id_of(text: &str) -> String {
    format!("sha256:{}", hash_of(text))
}

async fn ask(server: &TestServer, body: Value) -> Answer {
    server.http.post(None, &body).await
}

#[tokio::test]
async fn a_trusted_document_is_executed_by_its_hash_and_by_its_text() {
    let server = serve(&[CARD, LIST, DELETE], true).await;
    let found = json!({ "data": { "product": null } });
    let variables = json!({ "id": "1" });
    for body in [
        json!({ "query": CARD, "variables": variables }),
        json!({ "documentId": id_of(CARD), "variables": variables }),
        json!({ "documentId": id_of(CARD), "operationName": "Card", "variables": variables }),
        json!({ "documentId": id_of(CARD), "query": CARD, "variables": variables }),
        json!({ "documentId": id_of(CARD), "extensions": persisted(&hash_of(CARD)),
                "variables": variables }),
        json!({ "extensions": persisted(&hash_of(CARD)), "variables": variables }),
    ] {
        assert_eq!(ask(&server, body.clone()).await.json(), found, "{body}");
    }
    let path = graphql_path(&[("documentId", &id_of(CARD)), ("variables", r#"{"id":"1"}"#)]);
    assert_eq!(get(&server.http, &path, &[PREFLIGHT]).await.json(), found);
    let body = json!({ "documentId": id_of(DELETE) });
    let answer = server.http.post(Some(&staff()), &body).await;
    assert_eq!(answer.json()["data"]["productsDelete"]["deletedIds"], json!([]));
    // What holds for every request holds here: rights, variables, methods.
    assert_eq!(ask(&server, body).await.code(), "UNAUTHENTICATED");
    assert_eq!(ask(&server, json!({ "documentId": id_of(CARD) })).await.code(), "BAD_USER_INPUT");
    let path = graphql_path(&[("documentId", &id_of(DELETE))]);
    let bearer = format!("Bearer {}", staff());
    let refused = get(&server.http, &path, &[PREFLIGHT, ("authorization", &bearer)]).await;
    assert_eq!(refused.status, 405);
    assert_eq!(get(&server.http, &path, &[]).await.status, 400);
    // Kept from the start on.
    assert_eq!(metric(&server.http, "vitrina_documents_total{cache=\"miss\"}").await, 0);
}

#[tokio::test]
async fn nothing_else_is_executed_or_even_looked_at() {
    let server = serve(&[CARD, LIST], true).await;
    let card = |tail: &str| format!("{CARD}{tail}");
    for text in [
        card(" "),
        card("\n"),
        card("#"),
        CARD.to_lowercase(),
        DELETE.to_owned(),
        "{ __typename }".to_owned(),
        "{ __schema { queryType { name } } }".to_owned(),
        "ECHOME {".to_owned(),
        String::new(),
        "{".repeat(50_000),
        format!("{CARD} {LIST}"),
    ] {
        for accept in ["application/json", "application/graphql-response+json"] {
            for body in [
                json!({ "query": text }),
                json!({ "query": text, "extensions": persisted(&hash_of(&text)) }),
                json!({ "query": text, "documentId": id_of(&text) }),
                json!({ "documentId": id_of(&text) }),
                json!({ "extensions": persisted(&hash_of(&text)) }),
            ] {
                let headers = [("content-type", "application/json"), ("accept", accept)];
                let answer = post(&server.http, &headers, body.to_string()).await;
                assert_eq!(answer.code(), NOT_TRUSTED, "{body:.200}");
                assert_eq!(answer.status, 400, "{body:.200}");
                assert!(answer.header("content-type").starts_with(accept));
                let answer = answer.json();
                assert_eq!(answer["errors"].as_array().unwrap().len(), 1);
                assert_eq!(answer["data"], Value::Null);
                assert!(!answer.to_string().contains("ECHOME"));
            }
        }
        let path = graphql_path(&[("query", &text)]);
        if path.len() < 8_000 {
            assert_eq!(get(&server.http, &path, &[PREFLIGHT]).await.code(), NOT_TRUSTED);
        }
    }
    // A text with the hash of a trusted one is not that one, and names none of the two.
    let body = json!({ "query": "{ __typename }", "extensions": persisted(&hash_of(CARD)) });
    assert_eq!(ask(&server, body).await.code(), "BAD_USER_INPUT");
    // Sent once or a hundred times, it is not learnt.
    for _ in 0..100 {
        let body = json!({ "query": DELETE, "extensions": persisted(&hash_of(DELETE)) });
        assert_eq!(ask(&server, body).await.code(), NOT_TRUSTED);
    }
    assert_eq!(ask(&server, json!({ "documentId": id_of(DELETE) })).await.code(), NOT_TRUSTED);
    assert_eq!(ask(&server, json!({})).await.code(), "BAD_USER_INPUT");
}

#[tokio::test]
async fn the_same_holds_over_websocket() {
    let server = serve(&[CARD, WATCH], true).await;
    let mut socket = Socket::connect(server.address).await;
    let subscribe =
        |id: &str, payload: Value| json!({ "id": id, "type": "subscribe", "payload": payload });
    for (n, payload) in [
        json!({ "query": "{ __typename }" }),
        json!({ "query": WATCH.replace("Watch", "Watch2") }),
        json!({ "documentId": id_of("{ __typename }") }),
        json!({ "extensions": persisted(&hash_of("{ __typename }")) }),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("bad-{n}");
        socket.send(&subscribe(&id, payload)).await;
        let errors = socket.payload("error", &id).await;
        assert_eq!(errors[0]["extensions"]["code"], NOT_TRUSTED);
    }
    let by_id = json!({ "documentId": id_of(CARD), "variables": { "id": "1" } });
    socket.send(&subscribe("card", by_id)).await;
    assert_eq!(socket.payload("next", "card").await["data"], json!({ "product": null }));
    socket.payload("complete", "card").await;
    socket.send(&subscribe("text", json!({ "query": CARD, "variables": { "id": "1" } }))).await;
    socket.payload("next", "text").await;
    socket.payload("complete", "text").await;
    socket.send(&subscribe("watch", json!({ "documentId": id_of(WATCH) }))).await;
    socket.send(&json!({ "type": "ping" })).await;
    assert_eq!(socket.next().await, json!({ "type": "pong" }), "it runs, and has nothing to tell");
}

#[tokio::test]
async fn the_schema_is_told_only_to_registered_questions() {
    let question = "query Types { __schema { queryType { name } } }";
    let server = serve(&[question], true).await;
    let told = ask(&server, json!({ "documentId": id_of(question) })).await.json();
    assert_eq!(told["data"]["__schema"]["queryType"]["name"], "Query");
    let other = "query Types { __schema { mutationType { name } } }";
    assert_eq!(ask(&server, json!({ "query": other })).await.code(), NOT_TRUSTED);
    // Where the schema is not told at all, such a document keeps the server from starting.
    let refused = Trusted::load(folder(&[question]).path(), &Limits::default(), false).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("Introspection is switched off"), "{refused}");
}

#[tokio::test]
async fn a_browser_gets_the_page_where_it_can_do_something() {
    for (introspection, status) in [(true, 200), (false, 400)] {
        let server = serve(&[CARD], introspection).await;
        let accept = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
        let page = get(&server.http, "/graphql", &[accept]).await;
        assert_eq!(page.status, status);
        assert_eq!(page.header("content-type").starts_with("text/html"), introspection);
    }
}

#[tokio::test]
async fn a_document_id_is_a_name_without_the_mode_too() {
    let server = TestServer::start().await;
    let by_id = json!({ "documentId": id_of(CARD), "variables": { "id": "1" } });
    let unknown = ask(&server, by_id.clone()).await;
    assert_eq!(unknown.code(), "PERSISTED_QUERY_NOT_FOUND");
    ask(&server, json!({ "query": CARD, "variables": { "id": "1" } })).await;
    assert_eq!(ask(&server, by_id).await.json(), json!({ "data": { "product": null } }));
    let hash = hash_of(CARD);
    for id in [
        json!(""),
        json!(hash),
        json!(format!("sha256:{}", &hash[1..])),
        json!(format!("sha256:{hash}0")),
        json!(format!("md5:{hash}")),
        json!("sha256:ECHOME"),
        json!("x-ECHOME:1"),
        json!(7),
        json!([hash]),
    ] {
        for query in [Value::Null, json!(CARD)] {
            let body = json!({ "documentId": id, "query": query, "variables": { "id": "1" } });
            let refused = ask(&server, body.clone()).await;
            assert_eq!(refused.code(), "BAD_USER_INPUT", "{body}");
            assert!(!refused.text().contains("ECHOME"));
        }
    }
    let two = json!({ "documentId": id_of(CARD), "extensions": persisted(&hash_of(LIST)) });
    assert_eq!(ask(&server, two).await.code(), "BAD_USER_INPUT");
    let path = graphql_path(&[("documentId", &id_of(CARD)), ("variables", r#"{"id":"1"}"#)]);
    assert_eq!(get(&server.http, &path, &[PREFLIGHT]).await.status, 200);
}
