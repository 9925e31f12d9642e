//! Documents and variables that are meant to hurt. Each is answered soon, with a typed refusal that
//! repeats nothing of it, and in little memory.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::{data, post, product, staff, stock, upsert};
use crate::support::documents::bomb;
use crate::support::http::{Answer, HttpClient};
use crate::support::process::ServerProcess;
use crate::support::server::TestServer;
use crate::support::websocket::Socket;

const TOO_COMPLEX: &str = "QUERY_TOO_COMPLEX";
const BAD_INPUT: &str = "BAD_USER_INPUT";
/// Far longer than an unoptimised build takes on a busy machine; what these inputs are after takes
/// many times as long.
const SOON: Duration = Duration::from_secs(2);
/// In every input, where a name of the schema cannot stand; in no answer.
const MARKER: &str = "ECHOME";

/// Posts a body, which must be answered soon, and without repeating its marker.
async fn attack(http: &HttpClient, body: impl Into<axum::body::Body>) -> Answer {
    let started = Instant::now();
    let answer = post(http, &[("content-type", "application/json")], body).await;
    let took = started.elapsed();
    assert!(took < SOON, "answered after {took:?}");
    assert!(!answer.text().contains(MARKER), "{}", answer.text());
    answer
}

/// Posts a document, which must be refused with this code.
async fn assert_refused(http: &HttpClient, code: &str, query: &str) {
    let query = format!("# {MARKER}\n{query}");
    let answer = attack(http, json!({ "query": query }).to_string()).await;
    let start: String = query.chars().take(200).collect();
    assert_eq!(answer.code(), code, "{start}: {}", answer.text());
    // What was refused while it was executed is null beside its error.
    let data = answer.json()["data"].clone();
    let nothing = data.as_object().is_none_or(|fields| fields.values().all(Value::is_null));
    assert!(nothing, "{start}: {data}");
    assert!(answer.body.len() < 8_192, "{start}: {} bytes", answer.body.len());
}

fn repeated(times: usize, text: impl Fn(usize) -> String) -> String {
    (0..times).map(text).collect()
}

/// Documents that are refused, with the code of the refusal.
fn refused_documents() -> Vec<(&'static str, String)> {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let deep = |depth| "product(id: 1) {".repeat(depth) + "id" + &"}".repeat(depth);
    vec![
        // Fragments.
        (TOO_COMPLEX, format!("{{ ...F0 }} {}", bomb(24))),
        (TOO_COMPLEX, format!("{{ ...F0 }} {}", bomb(200))),
        (TOO_COMPLEX, format!("{{ a: __typename ... {{ ...F0 }} }} {}", bomb(100))),
        (BAD_INPUT, "{ ...A } fragment A on Query { ...A }".to_owned()),
        (
            BAD_INPUT,
            "{ ...A } fragment A on Query { ...B } fragment B on Query { ...A }".to_owned(),
        ),
        (BAD_INPUT, "{ __typename } fragment A on Query { ...A }".to_owned()),
        (BAD_INPUT, format!("{{ __typename }} {}", bomb(100))),
        (BAD_INPUT, format!("{{ ...F0 }} {}", cycle(300))),
        (BAD_INPUT, "{ ...Nowhere }".to_owned()),
        // Too much of one thing.
        (TOO_COMPLEX, format!("{{ {} }}", deep(16))),
        (TOO_COMPLEX, format!("{{ {} }}", deep(3_000))),
        (TOO_COMPLEX, format!("{{ {} }}", "... {".repeat(60) + "__typename" + &"}".repeat(60))),
        (
            TOO_COMPLEX,
            format!("{{ product(id: 1) {{ {} }} }}", repeated(10_000, |n| format!("a{n}:id "))),
        ),
        (
            TOO_COMPLEX,
            format!("{{ product(id: 1) {{ {} }} }}", repeated(251, |n| format!("a{n}:id "))),
        ),
        (TOO_COMPLEX, format!("{{ {} }}", "__typename,".repeat(9_000))),
        (TOO_COMPLEX, format!("{{ {} }}", "__typename,".repeat(251))),
        (TOO_COMPLEX, format!("{{ __typename {} }}", "@a".repeat(20_000))),
        (TOO_COMPLEX, format!("{{ __typename {} }}", "@skip(if:false)".repeat(51))),
        (TOO_COMPLEX, format!("query {} {{ __typename }}", "@a".repeat(51))),
        (TOO_COMPLEX, format!("{{ {} }}", "x ".repeat(20_000))),
        (
            TOO_COMPLEX,
            format!("query({}) {{ __typename }}", repeated(5_000, |n| format!("$v{n}:ID "))),
        ),
        // A list that nests, as a value and as a type.
        (TOO_COMPLEX, format!("{{ products(ids: {}) {{ id }} }}", nested(45_000))),
        (TOO_COMPLEX, format!("{{ products(ids: {}) {{ id }} }}", nested(60))),
        (TOO_COMPLEX, format!("{{ products(ids: {}", "[".repeat(90_000))),
        (
            TOO_COMPLEX,
            format!("query($x: {}ID{}) {{ __typename }}", "[".repeat(60), "]".repeat(60)),
        ),
        (TOO_COMPLEX, format!("{{ products(ids: {} }}", "{a:".repeat(30_000))),
        // Values that nothing parts, of which the parser finds more than there are words.
        (
            BAD_INPUT,
            format!("{{ products(ids: [{}]) {{ id }} }}", repeated(900, |_| "0".repeat(99) + " ")),
        ),
        (BAD_INPUT, format!("{{ products(ids: [{}]) {{ id }} }}", "0-".repeat(40) + "0")),
        (
            TOO_COMPLEX,
            format!(
                "{{ products(ids: [{}]) {{ id }} }}",
                repeated(900, |_| "null".repeat(25) + " ")
            ),
        ),
        // Text that is no GraphQL.
        (BAD_INPUT, String::new()),
        (BAD_INPUT, format!("{{ {MARKER}( }}")),
        (BAD_INPUT, format!("{{ product(id: \"{MARKER}) {{ id }} }}")),
        (BAD_INPUT, format!("{{ product(id: \"\"\"{MARKER}")),
        (BAD_INPUT, format!("{{ product(id: \"\\x{MARKER}\") {{ id }} }}")),
        // A block string without an end, which the parser takes for two empty strings: what
        // follows would be hidden from the limits.
        (BAD_INPUT, format!("{{ products(ids: [\"\"\"\" {}]) {{ id }} }}", nested(3_000))),
        (BAD_INPUT, format!("{{ products(ids: [\"\"\"\" {}]) {{ id }} }}", "1 ".repeat(5_000))),
        // Different fields of one name, below the level that the schema's rules look at.
        (BAD_INPUT, "{ a: product(id: 1) { x: name } a: product(id: 1) { x: id } }".to_owned()),
        (BAD_INPUT, "{ product(id: 1) @include(if: null) { id } }".to_owned()),
        (BAD_INPUT, "}".repeat(1_000)),
        (BAD_INPUT, format!("{MARKER} {{ __typename }}")),
        (BAD_INPUT, "{ __typename \u{0} }".to_owned()),
        (BAD_INPUT, "{ __typename \u{1F} }".to_owned()),
        (BAD_INPUT, "{ имя }".to_owned()),
        (BAD_INPUT, "{ product(id: \"\\u0000\") { id } }".to_owned()),
        (BAD_INPUT, "{ product(id: \"\u{0}\") { id } }".to_owned()),
        (BAD_INPUT, "{ product(id: \"\\uD800\") { id } }".to_owned()),
        (BAD_INPUT, "{ product(id: \"\\uDC00\\uD800\") { id } }".to_owned()),
        (BAD_INPUT, "{ product(id: \"\\u12\") { id } }".to_owned()),
        (BAD_INPUT, "type Query { a: ID }".to_owned()),
        (BAD_INPUT, "subscription { __typename }".to_owned()),
        // Values that no type takes.
        (BAD_INPUT, format!("{{ product(id: {{ a: \"{MARKER}\" }}) {{ id }} }}")),
        (BAD_INPUT, format!("{{ product(id: {MARKER}) {{ id }} }}")),
        (BAD_INPUT, format!("{{ category(name: {MARKER}) {{ name }} }}")),
        (BAD_INPUT, "{ category(name: 2147483648) { name } }".to_owned()),
        (BAD_INPUT, "{ product(id: 1e999) { id } }".to_owned()),
        (BAD_INPUT, "{ product(id: 1.5) { id } }".to_owned()),
        (BAD_INPUT, format!("{{ product(id: {}) {{ id }} }}", "9".repeat(50_000))),
        (BAD_INPUT, format!("{{ product(id: \"{}\") {{ id }} }}", MARKER.repeat(10_000))),
        (BAD_INPUT, format!("{{ categories @skip(if: \"{MARKER}\") {{ name }} }}")),
        (
            BAD_INPUT,
            format!("query($x: Boolean = \"{MARKER}\") {{ categories @skip(if: $x) {{ name }} }}"),
        ),
        // What the schema does not have.
        (BAD_INPUT, format!("{{ {} }}", repeated(240, |n| format!("x{n} ")))),
        (BAD_INPUT, format!("{{ product(id: 1) {{ {} }} }}", "x ".repeat(3_900))),
        (BAD_INPUT, format!("{{ product({}) {{ id }} }}", repeated(1_300, |n| format!("x{n}:1 ")))),
        (
            BAD_INPUT,
            format!("{{ __typename ...{} }}", repeated(1_900, |n| format!(" F{n} ...")) + "X"),
        ),
        (BAD_INPUT, format!("query({}) {{ __typename }}", repeated(950, |n| format!("$v{n}:ID ")))),
    ]
}

fn cycle(length: usize) -> String {
    repeated(length, |n| format!(" fragment F{n} on Query {{ ...F{} }}", (n + 1) % length))
}

#[tokio::test]
async fn hostile_documents_are_refused() {
    let server = TestServer::start().await;
    for (code, query) in refused_documents() {
        assert_refused(&server.http, code, &query).await;
    }
    assert_works(&server.http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_documents_are_refused_over_websocket_too() {
    let server = TestServer::start().await;
    let mut socket = Socket::connect(server.address).await;
    for (n, (code, query)) in refused_documents().into_iter().enumerate() {
        let (id, query) = (n.to_string(), format!("# {MARKER}\n{query}"));
        let start: String = query.chars().take(200).collect();
        let begun = Instant::now();
        socket.subscribe(&id, &query, json!({})).await;
        let message = socket.next().await;
        assert!(begun.elapsed() < SOON, "{start}: {:?}", begun.elapsed());
        assert_eq!(message["id"], id, "{start}");
        // Before it is executed it ends with an error, after that with its data and errors.
        let errors = match message["type"].as_str() {
            Some("error") => message["payload"].clone(),
            Some("next") => {
                let data = &message["payload"]["data"];
                let nothing =
                    data.as_object().is_none_or(|fields| fields.values().all(Value::is_null));
                assert!(nothing, "{start}: {data}");
                socket.payload("complete", &id).await;
                message["payload"]["errors"].clone()
            }
            _ => panic!("{start}: {message}"),
        };
        assert_eq!(errors[0]["extensions"]["code"], code, "{start}: {errors}");
        let told = message.to_string();
        assert!(!told.contains(MARKER) && told.len() < 8_192, "{start}: {told:.300}");
    }
    // What is no message at all, or too long a one, ends the connection and nothing else.
    let deep = format!("{{\"type\":\"subscribe\",\"id\":\"1\",\"payload\":{}", "[".repeat(90_000));
    let long = " ".repeat(200_000);
    let surrogate = r#"{"type":"subscribe","id":"1","payload":{"query":"\uD800"}}"#.to_owned();
    let batch =
        r#"{"type":"subscribe","id":"1","payload":[{"query":"{ __typename }"}]}"#.to_owned();
    for message in [deep, long, surrogate, batch, "[]".to_owned(), "\0".to_owned()] {
        let mut socket = Socket::connect(server.address).await;
        let _ = socket.try_say(Message::text(message)).await;
        assert_eq!(socket.close_code().await, 4400);
    }
    assert_works(&server.http).await;
}

/// A server that has been attacked still answers.
async fn assert_works(http: &HttpClient) {
    let found = data(http, "{ product(id: 404) { id } }", json!({})).await;
    assert_eq!(found, json!({ "product": null }));
}

#[tokio::test]
async fn a_document_of_many_operations_takes_no_longer_than_its_text() {
    let server = TestServer::start().await;
    let operations = repeated(550, |n| format!("query A{n} {{ ...F0 }} "));
    for (why, query) in [
        ("small ones", repeated(790, |n| format!("query A{n} {{ __typename }} "))),
        ("each of which expands the same fragments", operations + &bomb(7)),
    ] {
        for name in [Value::Null, json!("A1")] {
            let body = json!({ "query": query, "operationName": name });
            let answer = attack(&server.http, body.to_string()).await;
            assert!(!answer.code().is_empty() || answer.json()["data"].is_object(), "{why}");
        }
    }
}

#[tokio::test]
async fn a_name_of_great_length_is_not_repeated() {
    let server = TestServer::start().await;
    let long = "x".repeat(80_000);
    for query in [
        format!("{{ {long} }}"),
        format!("{{ product({long}: 1) {{ id }} }}"),
        format!("{{ ...{long} }}"),
        format!("{{ categories @{long} {{ name }} }}"),
        format!("query(${long}: ID) {{ __typename }}"),
        format!("query($x: {long}) {{ __typename }}"),
        format!("fragment {long} on Query {{ __typename }} {{ __typename }}"),
    ] {
        assert_refused(&server.http, BAD_INPUT, &query).await;
    }
}

#[tokio::test]
async fn introspection_does_not_multiply() {
    let server = TestServer::start().await;
    let nested = |depth: usize| {
        let (open, close) = ("fields { type { ofType { ".repeat(depth), "} } }".repeat(depth));
        format!("{{ __schema {{ types {{ {open} name {close} }} }} }}")
    };
    for depth in [4, 5] {
        assert_refused(&server.http, TOO_COMPLEX, &nested(depth)).await;
    }
    // As much of it as the limits let through must still be answered soon.
    let list = "types{fields{args{type{ofType{inputFields{type{ofType{inputFields{name}}}}}}}}}";
    for inside in [
        list,
        "types{fields{type{ofType{fields{type{ofType{fields{name}}}}}}}}",
        "types{name description fields{name description args{name description}}}",
    ] {
        let of = |times| repeated(times, |n| format!("a{n}:__schema{{{inside}}} "));
        assert_refused(&server.http, TOO_COMPLEX, &format!("{{ {} }}", of(50))).await;
        let query = format!("{{ {} }}", of(40));
        let answer = attack(&server.http, json!({ "query": query }).to_string()).await;
        assert!(answer.body.len() < 4 << 20, "{inside}: {} bytes", answer.body.len());
    }
}

#[tokio::test]
async fn cost_counts_lists_wherever_they_come_from() {
    let server = TestServer::start().await;
    let fields = repeated(100, |n| format!("a{n}:name "));
    let list = format!("[{}]", repeated(250, |n| format!("{n},")));
    assert_refused(
        &server.http,
        TOO_COMPLEX,
        &format!("{{ products(ids: {list}) {{ {fields} }} }}"),
    )
    .await;
    let by_default =
        format!("query($ids: [ID!]! = {list}) {{ products(ids: $ids) {{ {fields} }} }}");
    assert_refused(&server.http, TOO_COMPLEX, &by_default).await;
    let by_variable = format!("query($ids: [ID!]!) {{ products(ids: $ids) {{ {fields} }} }}");
    for _ in 0..2 {
        let ids = |count: u32| json!({ "ids": (0..count).collect::<Vec<_>>() });
        let answer = server.http.query(&by_variable, ids(250)).await;
        assert_eq!(answer.code(), TOO_COMPLEX);
        // What was refused with many is let through with few, and the other way round.
        let answer = server.http.query(&by_variable, ids(10)).await;
        assert_eq!(answer.json()["data"]["products"].as_array().unwrap().len(), 10);
    }
}

#[tokio::test]
async fn hostile_variables_are_refused() {
    let server = TestServer::start().await;
    let query = "query($x: [ID!]!) { products(ids: $x) { id } }";
    for value in [
        json!([[MARKER]]),
        json!({ MARKER: 1 }),
        json!([null]),
        json!([{}]),
        json!(1.5),
        json!(1e300),
        json!(true),
        json!(null),
        json!([MARKER, "\u{0}"]),
        json!([MARKER.repeat(20)]),
        (0..251).map(|n| json!(n)).collect::<Value>(),
        (0..20_000).map(|_| json!(1)).collect::<Value>(),
    ] {
        let body = json!({ "query": query, "variables": { "x": value } });
        let answer = attack(&server.http, body.to_string()).await;
        assert_ne!(answer.code(), "", "{value}");
        assert_eq!(answer.json()["data"], Value::Null);
    }
    // A key of JSON can be any text, so it is not repeated as a name of the schema would be.
    let query = "mutation($x: [ProductInput!]!) { productsUpsert(products: $x) { __typename } }";
    for key in [format!("{MARKER} <b>"), "y".repeat(50_000)] {
        let mut card = product("1", "Книги", "1");
        card[&key] = json!(1);
        let body = json!({ "query": query, "variables": { "x": [card] } });
        let answer = attack(&server.http, body.to_string()).await;
        assert_eq!(answer.code(), BAD_INPUT);
        assert!(answer.body.len() < 8_192, "{} bytes", answer.body.len());
    }
}

#[tokio::test]
async fn a_key_that_must_be_there_is_missed() {
    let server = TestServer::start().await;
    let address = json!({ "city": "Тула", "street": "Мира, 1" });
    let checkout =
        json!({ "geoZone": "Тула", "paymentMethod": "card", "shippingAddress": address });
    let adjust = json!({ "productId": "A", "geoZone": "Тула", "delta": 1 });
    for (query, input) in [
        ("mutation($x: CheckoutInput!) { checkout(input: $x) { userErrors { code } } }", checkout),
        (
            "mutation($x: StockAdjustInput!) { stockAdjust(entries: [$x]) { userErrors { code } } }",
            adjust,
        ),
    ] {
        for key in [None, Some(Value::Null), Some(json!([])), Some(json!({}))] {
            let mut input = input.clone();
            if let Some(key) = &key {
                input["idempotencyKey"] = key.clone();
            }
            let answer = server.http.query_as(&staff(), query, json!({ "x": input })).await;
            assert_eq!(answer.code(), BAD_INPUT, "{key:?}: {}", answer.text());
            assert_eq!(answer.json()["data"], Value::Null);
        }
    }
}

#[tokio::test]
async fn the_number_of_errors_is_bounded() {
    let server = TestServer::start().await;
    let many = format!("{{ {} }}", repeated(240, |n| format!("x{n} ")));
    let answer = attack(&server.http, json!({ "query": many }).to_string()).await;
    assert!(answer.json()["errors"].as_array().unwrap().len() <= 10);
    let failing = format!("{{ {} }}", repeated(240, |n| format!("a{n}:product(id:\"\"){{id}} ")));
    let answer = attack(&server.http, json!({ "query": failing }).to_string()).await;
    assert!(answer.body.len() < 64 << 10, "{} bytes", answer.body.len());

    // Staff are told everything, and everything is no more than a body can hold.
    let attribute = json!({ "name": "", "value": "" });
    let mut card = product("", "", "-1");
    card["attributes"] = (0..50).map(|_| attribute.clone()).collect();
    let started = Instant::now();
    let payload = upsert(&server.http, &vec![card; 70]).await;
    assert!(started.elapsed() < 2 * SOON, "{:?}", started.elapsed());
    assert!(payload["userErrors"].as_array().unwrap().len() > 7_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_documents_take_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &["--no-demo"]);
    stock(&server.http, &[product("1", "Книги", "1")]).await;
    let before = server.memory();
    for round in 0..3 {
        for (_, query) in refused_documents() {
            let query = format!("# {round}\n{query}");
            attack(&server.http, json!({ "query": query }).to_string()).await;
        }
    }
    let grown = server.peak_memory() - before;
    assert!(grown < 64 << 20, "memory grew by {} KiB", grown >> 10);
    assert_works(&server.http).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_different_documents_take_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &["--no-demo"]);
    assert_works(&server.http).await;
    let before = server.memory();
    // Short fields: parsed, they are as many times their text as can be.
    let fields = "id ".repeat(3_900);
    for n in 0..400 {
        let query = format!("# {n}\n{{ product(id: 1) {{ {fields} }} }}");
        assert_eq!(server.http.query(&query, json!({})).await.status, 200);
    }
    // Long strings: few tokens, and kept as they are.
    let text = "x".repeat(90_000);
    for n in 0..900 {
        let query = format!("{{ product(id: \"{n}{text}\") {{ id }} }}");
        assert_eq!(server.http.query(&query, json!({})).await.status, 200);
    }
    let grown = server.peak_memory() - before;
    assert!(grown < 192 << 20, "memory grew by {} KiB", grown >> 10);
}
