//! The protocol `graphql-transport-ws`: who is let in, what ends a connection, and its limits.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::config::{AuthConfig, Secret, SocketLimits};
use vitrina::server::{Role, sign_token};

use super::{get, metric, product, staff, stock};
use crate::support::http::{Answer, HttpClient};
use crate::support::process::ServerProcess;
use crate::support::server::{SECRET, TestServer, token};
use crate::support::stores::TestStore;
use crate::support::websocket::{PROTOCOL, Socket};

const WATCH: &str = "subscription($ids: [ID!]!) {
    stockChanged(productIds: $ids, geoZone: \"Тула\") { available product { description } }
}";
/// Who asks, by what only staff may do: an empty batch changes nothing.
const WHO: &str = "mutation { productsDelete(ids: []) { deletedIds } }";

async fn serve(change: impl FnOnce(&mut SocketLimits)) -> TestServer {
    let store = TestStore::embedded().await;
    TestServer::start_on(store, |config| change(&mut config.limits.sockets)).await
}

/// A request for a WebSocket with these headers, answered as any other.
async fn ask(http: &HttpClient, protocol: Option<&str>, version: &str) -> Answer {
    let mut headers = vec![
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", version),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    headers.extend(protocol.map(|protocol| ("sec-websocket-protocol", protocol)));
    get(http, "/graphql", &headers).await
}

/// The code of the error that `WHO` ends with; `OK` if it ends without.
async fn who(socket: &mut Socket) -> String {
    socket.subscribe("who", WHO, json!({})).await;
    let payload = socket.payload("next", "who").await;
    socket.payload("complete", "who").await;
    payload["errors"][0]["extensions"]["code"].as_str().unwrap_or("OK").to_owned()
}

async fn wait_for(http: &HttpClient, series: &str, value: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while metric(http, series).await != value {
        assert!(Instant::now() < deadline, "{series} does not become {value}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn only_its_own_protocol_is_spoken() {
    let server = TestServer::start().await;
    for protocol in [None, Some("graphql-ws"), Some("chat, soap")] {
        let answer = ask(&server.http, protocol, "13").await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (400, "BAD_USER_INPUT"));
        assert!(answer.text().contains(PROTOCOL));
        assert_ne!(answer.header("x-request-id"), "");
    }
    let answer = ask(&server.http, Some(PROTOCOL), "12").await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (400, "BAD_USER_INPUT"));
    let several = [("sec-websocket-protocol", "graphql-ws, graphql-transport-ws")];
    assert!(Socket::try_open(server.address, &several).await.is_ok());
}

#[tokio::test]
async fn a_token_comes_with_the_first_message_or_with_the_request() {
    let server = TestServer::start().await;
    let (staff, customer) = (staff(), token("c", Role::Customer));
    let bearer = |token: &str| format!("Bearer {token}");
    for (header, payload, expected) in [
        (None, Value::Null, "UNAUTHENTICATED"),
        (None, json!({ "other": 1 }), "UNAUTHENTICATED"),
        (None, json!({ "Authorization": bearer(&staff) }), "OK"),
        (None, json!({ "authorization": format!("bearer {staff}") }), "OK"),
        (None, json!({ "AUTHORIZATION": bearer(&customer) }), "FORBIDDEN"),
        (Some(&staff), Value::Null, "OK"),
        (Some(&staff), json!({}), "OK"),
        (Some(&staff), json!({ "Authorization": bearer(&customer) }), "FORBIDDEN"),
    ] {
        let header = header.map(|token| bearer(token));
        let headers: Vec<_> =
            header.iter().map(|value| ("authorization", value.as_str())).collect();
        let mut socket = Socket::try_open(server.address, &headers).await.unwrap();
        socket.init(payload.clone()).await;
        assert_eq!(who(&mut socket).await, expected, "{payload}");
    }
    for (header, payload) in [
        (None, json!({ "Authorization": "Bearer nonsense" })),
        (None, json!({ "Authorization": staff })),
        (None, json!({ "Authorization": 1 })),
        (None, json!({ "Authorization": bearer(&staff), "authorization": bearer(&staff) })),
        (Some("Bearer nonsense"), Value::Null),
    ] {
        let headers: Vec<_> = header.iter().map(|value| ("authorization", *value)).collect();
        let mut socket = Socket::try_open(server.address, &headers).await.unwrap();
        socket.send(&json!({ "type": "connection_init", "payload": payload })).await;
        assert_eq!(socket.close_code().await, 4403, "{payload}");
    }
}

#[tokio::test]
async fn a_connection_ends_with_its_token() {
    let server = TestServer::start().await;
    let auth = AuthConfig::new(Secret::new(SECRET)).unwrap();
    // Taken for half a minute more than it says; two seconds of that are left.
    let expires = Timestamp::from_millis(SystemClock.now().millis() - 28_000);
    let token = sign_token(&auth, "c", Role::Customer, expires).unwrap();
    let mut socket = Socket::connect_as(server.address, &token).await;
    socket.subscribe("s", WATCH, json!({ "ids": ["A"] })).await;
    let started = Instant::now();
    assert_eq!(socket.closed().await, (4403, "token expired".to_owned()));
    assert!(started.elapsed() < Duration::from_secs(4));
    wait_for(&server.http, "vitrina_subscriptions", 0).await;
    // One that never ends does no harm.
    let token = sign_token(&auth, "c", Role::Customer, Timestamp::from_micros(i64::MAX)).unwrap();
    Socket::connect_as(server.address, &token).await;
}

#[tokio::test]
async fn what_breaks_the_protocol_ends_the_connection() {
    let server = TestServer::start().await;
    let subscribe = |id: &str| {
        let payload = json!({ "query": WATCH, "variables": { "ids": ["A"] } });
        Message::text(json!({ "type": "subscribe", "id": id, "payload": payload }).to_string())
    };
    let init = || Message::text(r#"{"type":"connection_init"}"#);
    let text = |text: &str| Message::text(text.to_owned());
    let deep = format!("{{\"type\":{}", "[".repeat(50_000));
    for (said, code) in [
        (vec![subscribe("1")], 4401),
        (vec![init(), init()], 4429),
        (vec![init(), subscribe("1"), subscribe("1")], 4409),
        (vec![text("")], 4400),
        (vec![text("{")], 4400),
        (vec![text("[]")], 4400),
        (vec![text(&deep)], 4400),
        (vec![text(r#"{"type":"connection_init","payload":"me"}"#)], 4400),
        (vec![init(), text(r#"{"type":"start","id":"1"}"#)], 4400),
        (vec![init(), text(r#"{"type":"subscribe","id":"1"}"#)], 4400),
        (vec![init(), text(r#"{"type":"subscribe","id":1,"payload":{"query":"{a}"}}"#)], 4400),
        (vec![init(), subscribe("")], 4400),
        (vec![init(), subscribe(&"x".repeat(256))], 4400),
        (vec![init(), Message::binary(br#"{"type":"ping"}"#.to_vec())], 4400),
        // Longer than a body may be.
        (
            vec![init(), text(&format!("{{\"type\":\"ping\",\"x\":\"{}\"}}", "x".repeat(200_000)))],
            4400,
        ),
    ] {
        let mut socket = Socket::open(server.address).await;
        for message in said.clone() {
            // The server may be through with it before all is said.
            let _ = socket.try_say(message).await;
        }
        let (closed, reason) = socket.closed().await;
        assert_eq!(closed, code, "{reason}: {:.200}", format!("{said:?}"));
        assert!(!reason.is_empty());
    }
    wait_for(&server.http, "vitrina_websocket_connections", 0).await;
}

#[tokio::test]
async fn who_does_not_say_who_it_is_has_to_go() {
    let server = serve(|limits| limits.init_within = Duration::from_millis(300)).await;
    let mut silent = Socket::open(server.address).await;
    assert_eq!(silent.close_code().await, 4408);
    let mut chatty = Socket::open(server.address).await;
    chatty.send(&json!({ "type": "ping" })).await;
    assert_eq!(chatty.next().await, json!({ "type": "pong" }));
    assert_eq!(chatty.close_code().await, 4408);
    let mut known = Socket::connect(server.address).await;
    assert_eq!(known.next_within(Duration::from_millis(600)).await, None);
}

#[tokio::test]
async fn a_quiet_connection_is_asked_for_a_sign_of_life() {
    let server = serve(|limits| limits.ping_after = Duration::from_millis(200)).await;
    // This one's library answers pings as long as it reads.
    let mut alive = Socket::connect(server.address).await;
    let mut dead = Socket::connect(server.address).await;
    assert_eq!(alive.next_within(Duration::from_secs(1)).await, None);
    wait_for(&server.http, "vitrina_websocket_connections", 1).await;
    assert_eq!(dead.close_code().await, 1006);
    alive.send(&json!({ "type": "pong" })).await;
    alive.send(&json!({ "type": "ping", "payload": { "n": 1 } })).await;
    assert_eq!(alive.next().await, json!({ "type": "pong" }));
}

#[tokio::test]
async fn there_are_only_so_many_connections_and_operations() {
    let server = serve(|limits| {
        (limits.connections, limits.connections_per_address, limits.subscriptions) = (100, 2, 3);
    })
    .await;
    let mut one = Socket::connect(server.address).await;
    let two = Socket::connect(server.address).await;
    let answer = ask(&server.http, Some(PROTOCOL), "13").await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (429, "RATE_LIMITED"));
    assert_eq!(metric(&server.http, "vitrina_websocket_connections").await, 2);
    drop(two);
    wait_for(&server.http, "vitrina_websocket_connections", 1).await;
    Socket::connect(server.address).await;

    for id in ["1", "2", "3", "4"] {
        one.subscribe(id, WATCH, json!({ "ids": ["A"] })).await;
    }
    let errors = one.payload("error", "4").await;
    assert_eq!(errors[0]["extensions"]["code"], "RATE_LIMITED");
    one.send(&json!({ "type": "complete", "id": "2" })).await;
    one.subscribe("4", "{ __typename }", json!({})).await;
    one.payload("next", "4").await;

    let full = serve(|limits| limits.connections = 1).await;
    let _only = Socket::connect(full.address).await;
    let answer = ask(&full.http, Some(PROTOCOL), "13").await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (503, "UNAVAILABLE"));
    assert_eq!(answer.header("retry-after"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_messages_at_once_are_all_answered() {
    const COUNT: usize = 10_000;
    let server = TestServer::start().await;
    let mut socket = Socket::connect(server.address).await;
    let mut pongs = 0;
    for n in 0..COUNT {
        socket.send(&json!({ "type": "ping" })).await;
        // A client that never reads would be a slow one.
        if n % 10 == 9 {
            for _ in 0..10 {
                assert_eq!(socket.next().await, json!({ "type": "pong" }));
                pongs += 1;
            }
        }
    }
    assert_eq!(pongs, COUNT);
    // Ids may come again and again, and what is unknown may be completed.
    for _ in 0..500 {
        socket.send(&json!({ "type": "complete", "id": "none" })).await;
        socket.subscribe("q", "{ __typename }", json!({})).await;
        socket.payload("next", "q").await;
        socket.payload("complete", "q").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_is_dropped_and_nothing_piles_up() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &["--no-demo"]);
    let address = server.base.trim_start_matches("http://").parse().unwrap();
    let ids: Vec<_> = (0..20).map(|n| format!("P{n}")).collect();
    let mut products: Vec<_> = ids.iter().map(|id| product(id, "Книги", "10")).collect();
    for product in &mut products {
        product["description"] = "длинно ".repeat(1_000).into();
    }
    for batch in products.chunks(5) {
        stock(&server.http, batch).await;
    }
    let set = async |quantity: i32| {
        let entry = |id| json!({ "productId": id, "geoZone": "Тула", "quantity": quantity });
        let entries: Vec<_> = ids.iter().map(entry).collect();
        let query = "mutation($entries: [StockInput!]!) {
            stockSet(entries: $entries) { userErrors { message } } }";
        server.http.query_as(&staff(), query, json!({ "entries": entries })).await;
    };
    set(1).await;
    let mut reader = Socket::connect(address).await;
    reader.subscribe("s", WATCH, json!({ "ids": ["P0"] })).await;
    reader.payload("next", "s").await;
    let before = server.memory();
    let mut stuck = Socket::open_narrow(address).await;
    stuck.init(Value::Null).await;
    for n in 0..20 {
        stuck.subscribe(&n.to_string(), WATCH, json!({ "ids": ids })).await;
    }
    // Each of these is 5 megabytes of events for the one that does not read.
    let started = Instant::now();
    let mut quantity = 1;
    while metric(&server.http, "vitrina_slow_consumers_total").await == 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "it is not dropped");
        quantity += 1;
        set(quantity).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        // The other one reads, and is told.
        while reader.payload("next", "s").await["data"]["stockChanged"]["available"] != quantity {}
    }
    assert!(quantity > 20, "{quantity} changes only");
    wait_for(&server.http, "vitrina_websocket_connections", 1).await;
    wait_for(&server.http, "vitrina_subscriptions", 1).await;
    let grown = server.peak_memory().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes more after {quantity} changes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &["--no-demo"]);
    let address = server.base.trim_start_matches("http://").parse().unwrap();
    let mut socket = Socket::connect(address).await;
    socket.subscribe("s", WATCH, json!({ "ids": ["A"] })).await;
    let _rude = Socket::open(address).await;
    let started = Instant::now();
    server.signal("TERM");
    assert_eq!(socket.close_code().await, 1001);
    let code = tokio::task::spawn_blocking(move || server.wait()).await.unwrap();
    assert_eq!(code, Some(0));
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}
