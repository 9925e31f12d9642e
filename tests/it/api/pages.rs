//! What stands beside `/graphql`: health, metrics, pictures, the schema, GraphiQL.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{get, graphql_path};
use crate::support::server::TestServer;
use crate::support::stores::TestStore;

async fn without_introspection() -> TestServer {
    let store = TestStore::embedded().await;
    TestServer::start_on(store, |config| config.introspection = false).await
}

#[tokio::test]
async fn the_process_lives_and_the_shop_is_ready() {
    let server = TestServer::start().await;
    assert_eq!(server.http.get("/health/live").await.status, 200);
    let ready = server.http.get("/health/ready").await;
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json(), json!({ "ready": true, "missing": [] }));
}

#[tokio::test]
async fn metrics_can_be_read_by_prometheus() {
    let server = TestServer::start().await;
    server.http.query("{ ok: __typename product(id: 1) { id } }", json!({})).await;
    server.http.query("{ product(id: \"\") { id } }", json!({})).await;
    let answer = server.http.get("/metrics").await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.header("content-type").starts_with("application/openmetrics-text; version=1.0.0")
    );
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"), "OpenMetrics ends with its mark");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        assert!(name.starts_with("vitrina_"), "{line}");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{line}");
        assert!(labels.ends_with('}'), "{line}");
    }
    for series in [
        "vitrina_http_request_seconds_count{route=\"/graphql\",status=\"200\"} 2",
        "vitrina_store_call_seconds_count{table=\"product_by_id\",kind=\"read\"} 1",
        "vitrina_operation_seconds_count{root=\"__typename\",outcome=\"ok\"} 1",
    ] {
        assert!(text.contains(series), "{series} is not in\n{text}");
    }
}

#[tokio::test]
async fn clients_cannot_make_up_new_series() {
    let server = TestServer::start().await;
    let series = async || server.http.get("/metrics").await.text().lines().count();
    server.http.query("query A { ECHOME: __typename }", json!({})).await;
    server.http.get("/ECHOME-0").await;
    server.http.query("{ ECHOME }", json!({})).await;
    // The first look at the metrics is a series of its own.
    series().await;
    let before = series().await;
    for n in 0..5 {
        server.http.query(&format!("query Q{n} {{ ECHOME{n}: __typename }}"), json!({})).await;
        server.http.query(&format!("{{ ECHOME{n} }}"), json!({})).await;
        server.http.get(&format!("/ECHOME-{n}")).await;
    }
    assert_eq!(series().await, before);
    assert!(!server.http.get("/metrics").await.text().contains("ECHOME"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_series_does_not_grow_with_what_clients_choose() {
    let server = TestServer::start().await;
    let series = async || {
        let text = server.http.get("/metrics").await.text();
        let names = text.lines().filter(|line| !line.starts_with('#'));
        names.map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<BTreeSet<_>>()
    };
    let send = async |n: usize| {
        let query = format!("query Q{n} {{ A{n}: __typename product(id: \"{n}\") {{ id }} }}");
        server.http.query(&query, json!({ "v": n })).await;
        let hidden = format!("query R{n} {{ ...F{n} }} fragment F{n} on Query {{ __typename }}");
        server.http.query(&hidden, json!({})).await;
        server.http.query(&format!("{{ field{n} }}"), json!({})).await;
        let category =
            format!("{{ category(name: \"C{n}\") {{ products {{ nodes {{ id }} }} }} }}");
        server.http.query(&category, json!({})).await;
        for path in [format!("/p{n}"), format!("/images/{n}.svg"), format!("/graphql/{n}?a={n}")] {
            get(&server.http, &path, &[("host", &format!("host-{n}.example"))]).await;
        }
        let id = n.to_string();
        let headers = [
            ("x-request-id", id.as_str()),
            ("user-agent", &id),
            ("origin", &id),
            ("x-forwarded-for", &id),
            ("authorization", &id),
        ];
        get(&server.http, "/graphql", &headers).await;
        for path in ["/graphql", "/metrics", "/nope"] {
            let request = axum::http::Request::builder().method(format!("M{n}").as_str()).uri(path);
            server.http.send(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
        }
    };
    send(0).await;
    series().await;
    let before = series().await;
    for n in 1..=1_000 {
        send(n).await;
    }
    assert_eq!(series().await, before);
    assert!(before.len() < 1_000, "{} series", before.len());
}

#[tokio::test]
async fn pictures_are_drawn() {
    let server = TestServer::start().await;
    let picture = server.http.get("/images/PROD-12345.svg").await;
    assert_eq!(picture.status, 200);
    assert_eq!(picture.header("content-type"), "image/svg+xml");
    assert!(picture.text().starts_with("<svg"), "{}", picture.text());
    assert!(picture.header("content-security-policy").contains("default-src 'none'"));
    for path in [
        "/images/nope",
        "/images/nope.svg",
        "/images/PROD-12345",
        "/images/PROD-12345.png",
        "/images/PROD-99999999999999999999999.svg",
        "/images/PROD--1.svg",
        "/images/%2e%2e%2fCargo.toml",
        "/images/PROD-1%3Cscript%3E.svg",
        "/images/",
        "/nope",
    ] {
        assert_eq!(server.http.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_browser_gets_graphiql() {
    let server = TestServer::start().await;
    // As browsers send it; also a link that carries a query executes nothing.
    let accept = ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
    let link = graphql_path(&[("query", "{ __typename }")]);
    for path in ["/graphql", &link] {
        let page = get(&server.http, path, &[accept]).await;
        assert_eq!(page.status, 200);
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        let policy = page.header("content-security-policy");
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        assert!(page.text().contains("<html"), "{}", page.text());
    }
    let nothing = server.http.get("/graphql").await;
    assert_eq!((nothing.status.as_u16(), nothing.code().as_str()), (400, "BAD_USER_INPUT"));
}

#[tokio::test]
async fn the_schema_can_be_asked_for() {
    let server = TestServer::start().await;
    let schema = server.http.get("/schema.graphql").await;
    assert_eq!(schema.status, 200);
    assert!(schema.header("content-type").starts_with("text/plain"));
    assert!(schema.text().contains("type Product {"));
    let answer = server.http.query("{ __schema { queryType { name } } }", json!({})).await;
    assert_eq!(answer.json()["data"]["__schema"]["queryType"]["name"], "Query");
    let answer = server.http.query("{ prodct(id: 1) { id } }", json!({})).await;
    let message = answer.json()["errors"][0]["message"].take();
    assert!(message.as_str().unwrap().contains("Did you mean \"product\""), "{message}");
}

#[tokio::test]
async fn without_introspection_the_schema_is_not_told() {
    let server = without_introspection().await;
    assert_eq!(server.http.get("/schema.graphql").await.status, 404);
    for query in [
        "{ __schema { types { name } } }",
        "{ __type(name: \"Product\") { fields { name } } }",
        "{ a: __typename ...F } fragment F on Query { b: __schema { queryType { name } } }",
        "query A { __typename } query B { __type(name: \"Query\") { name } }",
    ] {
        for name in [Value::Null, json!("B")] {
            let body = json!({ "query": query, "operationName": name });
            let refused = server.http.post(None, &body).await;
            assert_eq!(refused.code(), "BAD_USER_INPUT", "{query}: {}", refused.text());
            assert!(!refused.text().contains("Product"), "{}", refused.text());
            assert!(!refused.text().contains("queryType"), "{}", refused.text());
        }
    }
    let answer = server.http.query("{ __typename categories { __typename } }", json!({})).await;
    assert_eq!(answer.json()["data"], json!({ "__typename": "Query", "categories": [] }));
}

#[tokio::test]
async fn without_introspection_a_misspelt_name_gets_no_suggestion() {
    let server = without_introspection().await;
    for query in [
        "{ prodct(id: 1) { id } }",
        "{ product(idd: 1) { id } }",
        "{ product(id: 1) { nam } }",
        "{ product(id: 1) { price { amoun } } }",
        "query($x: ProductInpt) { __typename }",
        "{ product(id: 1) { ...F } } fragment F on Produc { id }",
        "{ product(id: 1) { id @skipp(if: true) } }",
        "mutation { productsUpser(products: []) { __typename } }",
        "mutation { productsUpsert(products: [{ idd: 1 }]) { __typename } }",
    ] {
        let refused = server.http.query(query, json!({})).await;
        assert_eq!(refused.code(), "BAD_USER_INPUT", "{query}");
        let text = refused.text();
        assert!(!text.contains("mean"), "{text}");
        for name in ["\"product\"", "\"amount\"", "ProductInput", "\"skip\"", "productsUpsert\\\""]
        {
            assert!(!text.contains(name) || query.contains(name.trim_matches('"')), "{text}");
        }
    }
}
