//! Bodies and connections that are meant to hurt: too large, endless, slow, deep, no text.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{data, post};
use crate::support::http::HttpClient;
use crate::support::process::ServerProcess;
use crate::support::server::TestServer;
use crate::support::stores::TestStore;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
const HEAD: &str = "POST /graphql HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\n";
/// Far longer than any of these takes.
const SOON: Duration = Duration::from_secs(2);
/// The limit of a body.
const LIMIT: usize = 100 << 10;

/// Everything the server sends until it closes the connection, which it must do soon.
async fn rest_of(connection: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(SOON, async {
        let mut buffer = [0; 4_096];
        // A server that closes with input left unread resets the connection: that ends it too.
        while let Ok(count @ 1..) = connection.read(&mut buffer).await {
            bytes.extend_from_slice(&buffer[..count]);
        }
    });
    assert!(read.await.is_ok(), "the connection was left open");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends a head and a body as it is, and reads to the end of the connection.
async fn raw(address: SocketAddr, headers: &str, body: &[u8]) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let head = format!("{HEAD}{headers}\r\n");
    connection.write_all(head.as_bytes()).await.unwrap();
    // The answer may come, and the connection close, before all of it is sent.
    let _ = connection.write_all(body).await;
    rest_of(&mut connection).await
}

/// A body in chunks of 8 KiB, without the last one, which ends it.
fn chunked(body: &[u8]) -> Vec<u8> {
    let mut sent = Vec::new();
    for chunk in body.chunks(8 << 10) {
        sent.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        sent.extend_from_slice(chunk);
        sent.extend_from_slice(b"\r\n");
    }
    sent
}

/// A query that fills a body of so many bytes.
fn padded(bytes: usize) -> Vec<u8> {
    let mut body = br#"{"query":"{ __typename }"}"#.to_vec();
    body.resize(bytes, b' ');
    body
}

#[tokio::test]
async fn a_body_may_be_as_large_as_the_limit_and_no_larger() {
    let server = TestServer::start().await;
    assert_eq!(post(&server.http, &JSON, padded(LIMIT)).await.status, 200);
    let refused = post(&server.http, &JSON, padded(LIMIT + 1)).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(refused.code(), "BAD_USER_INPUT");

    let whole = |body: &[u8]| [chunked(body), b"0\r\n\r\n".to_vec()].concat();
    let headers = "transfer-encoding: chunked\r\nconnection: close\r\n";
    let accepted = raw(server.address, headers, &whole(&padded(LIMIT))).await;
    assert!(accepted.starts_with("HTTP/1.1 200"), "{accepted}");
    let refused = raw(server.address, headers, &whole(&padded(LIMIT + 1))).await;
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    assert!(refused.contains("BAD_USER_INPUT"), "{refused}");
}

#[tokio::test]
async fn a_body_that_is_announced_too_large_is_refused_before_it_comes() {
    let server = TestServer::start().await;
    for length in ["102401", "10737418240", "9223372036854775807"] {
        let started = Instant::now();
        let answer = raw(server.address, &format!("content-length: {length}\r\n"), b"").await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{length}: {answer}");
        assert!(started.elapsed() < SOON);
    }
    for length in ["-1", "1e3", "99999999999999999999999", "1, 2"] {
        let answer = raw(server.address, &format!("content-length: {length}\r\n"), b"").await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{length}: {answer}");
    }
}

/// A connection that is closed with input left unread is reset, and whoever is reset may lose an answer
/// that has come.
#[tokio::test]
async fn who_still_sends_when_it_is_refused_is_not_reset() {
    let server = TestServer::start().await;
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    let head = format!("{HEAD}content-length: {}\r\n\r\n", 10 * LIMIT);
    connection.write_all(&[head.as_bytes(), &vec![b' '; LIMIT / 2]].concat()).await.unwrap();
    let mut told = [0; 4_096];
    let length = connection.read(&mut told).await.unwrap();
    assert!(told[..length].starts_with(b"HTTP/1.1 413 "), "{}", String::from_utf8_lossy(&told));
    connection.write_all(&vec![b' '; LIMIT]).await.expect("the connection was reset");
    connection.shutdown().await.unwrap();
    while connection.read(&mut told).await.expect("the connection was reset") > 0 {}
}

#[tokio::test]
async fn a_client_that_waits_to_send_too_much_is_told_not_to() {
    let server = TestServer::start().await;
    let headers = "content-length: 10737418240\r\nexpect: 100-continue\r\n";
    let answer = raw(server.address, headers, b"").await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_body_is_cut_off_in_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&dir.path().join("data"), &["--no-demo"]);
    let address: SocketAddr = server.base.trim_start_matches("http://").parse().unwrap();
    assert_works(&server.http).await;
    let before = server.memory();
    let attackers = (0..20).map(|_| async move {
        let connection = TcpStream::connect(address).await.unwrap();
        let (mut answers, mut requests) = connection.into_split();
        let endless = tokio::spawn(async move {
            let head = format!("{HEAD}transfer-encoding: chunked\r\n\r\n");
            let chunk = chunked(&vec![b' '; 64 << 10]);
            let mut sent = requests.write(head.as_bytes()).await.unwrap();
            // Bounded, so that a server that swallows everything fails the test and not the machine.
            while sent < 64 << 20 && requests.write_all(&chunk).await.is_ok() {
                sent += chunk.len();
            }
            sent
        });
        let answer = rest_of(&mut answers).await;
        (answer, endless.await.unwrap())
    });
    for (answer, sent) in futures_util::future::join_all(attackers).await {
        // The reset that follows may overtake the answer; it never is another one.
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
        assert!(sent < 32 << 20, "the server took {sent} bytes");
    }
    let grown = server.peak_memory() - before;
    assert!(grown < 32 << 20, "memory grew by {} KiB", grown >> 10);
    assert_works(&server.http).await;
}

async fn assert_works(http: &HttpClient) {
    let found = data(http, "{ product(id: 404) { id } }", json!({})).await;
    assert_eq!(found, json!({ "product": null }));
}

async fn impatient() -> TestServer {
    let store = TestStore::embedded().await;
    let deadline = Duration::from_millis(200);
    TestServer::start_on(store, |config| config.limits.deadline = deadline).await
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let server = impatient().await;
    for (headers, body) in [
        ("content-length: 50\r\n", ""),
        ("content-length: 50\r\n", "{\"query\":"),
        ("transfer-encoding: chunked\r\n", ""),
        ("transfer-encoding: chunked\r\n", "5\r\n{\"que"),
        ("transfer-encoding: chunked\r\n", "ffffff\r\n{\"que"),
    ] {
        let started = Instant::now();
        let answer = raw(server.address, headers, body.as_bytes()).await;
        assert!(answer.contains("\"TIMEOUT\""), "{answer}");
        assert!(started.elapsed() >= Duration::from_millis(200));
    }
    assert_works(&server.http).await;
}

#[tokio::test]
async fn a_body_that_drips_does_not_outlast_the_deadline() {
    let server = impatient().await;
    let connection = TcpStream::connect(server.address).await.unwrap();
    let (mut answers, mut requests) = connection.into_split();
    let drip = tokio::spawn(async move {
        let head = format!("{HEAD}content-length: 5000\r\n\r\n");
        requests.write_all(head.as_bytes()).await.unwrap();
        while requests.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let answer = rest_of(&mut answers).await;
    assert!(answer.contains("\"TIMEOUT\""), "{answer}");
    // The connection is closed, so that the client cannot go on.
    tokio::time::timeout(SOON, drip).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_behind() {
    let server = TestServer::start().await;
    let in_work = async || super::metric(&server.http, "vitrina_requests_in_work").await;
    let mut connections = Vec::new();
    for _ in 0..10 {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        let head = format!("{HEAD}content-length: 50\r\n\r\n{{");
        connection.write_all(head.as_bytes()).await.unwrap();
        connections.push(connection);
    }
    // The request that asks is one of those in work itself.
    let started = Instant::now();
    while in_work().await < 11 {
        assert!(started.elapsed() < SOON, "the requests never came");
    }
    drop(connections);
    while in_work().await > 1 {
        assert!(started.elapsed() < 2 * SOON, "requests of clients that left are still in work");
    }
}

#[tokio::test]
async fn json_that_nests_is_refused() {
    let server = TestServer::start().await;
    let query = r#"{"query":"query($x: [ID!]!) { products(ids: $x) { id } }","variables":{"x":"#;
    for start in [query, "", r#"{"query":"#] {
        for depth in [200, 40_000] {
            let lists = format!("{start}{}{}}}}}", "[".repeat(depth), "]".repeat(depth));
            // An object's level takes more bytes than a list's.
            let levels = depth.min(15_000);
            let (begin, end) = ("{\"a\":".repeat(levels), "}".repeat(levels));
            let objects = format!("{start}{begin}1{end}}}}}");
            let open = format!("{start}{}", "[".repeat(depth));
            for body in [lists, objects, open] {
                let answer = post(&server.http, &JSON, body).await;
                assert_eq!(answer.status, 400, "{start} {depth}");
                assert_eq!(answer.code(), "BAD_USER_INPUT");
            }
        }
    }
    // What stands in an unknown extension is passed over, level by level, and never built.
    let start = r#"{"query":"{ __typename }","extensions":{"x":"#;
    let body = format!("{start}{}{}}}}}", "[".repeat(40_000), "]".repeat(40_000));
    assert_eq!(post(&server.http, &JSON, body).await.status, 200);
    // 100,000 levels are more than a body may have bytes.
    let body = format!("{query}{}{}}}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(post(&server.http, &JSON, body).await.status, 413);
    assert_works(&server.http).await;
}

#[tokio::test]
async fn what_is_no_text_is_refused_and_not_repeated() {
    let server = TestServer::start().await;
    let bodies: [&[u8]; 10] = [
        b"\xFF\xFE",
        b"{\"query\":\"{ __typename } # ECHOME \xFF\"}",
        b"{\"query\":\"{ __typename } # ECHOME \xC0\xAF\"}",
        b"{\"query\":\"{ __typename } # ECHOME \xED\xA0\x80\"}",
        b"{\"query\":\"{ __typename } # ECHOME \\uD800\"}",
        b"{\"query\":\"{ __typename } # ECHOME \\uDC00\\uD800\"}",
        b"{\"query\":\"{ __typename } # ECHOME \0\"}",
        b"\0{\"query\":\"{ __typename } # ECHOME\"}",
        b"{\"query\":\"query($x: ID!) { product(id: $x) { id } }\",\"variables\":{\"x\":\"ECHOME\\uD800\"}}",
        b"{\"query\":\"{ __typename }\",\"ECHOME\":\"\\x\"}",
    ];
    for body in bodies {
        let answer = post(&server.http, &JSON, body.to_vec()).await;
        let shown = String::from_utf8_lossy(body);
        assert_eq!(answer.status, 400, "{shown}");
        assert_eq!(answer.code(), "BAD_USER_INPUT", "{shown}");
        assert!(!answer.text().contains("ECHOME"), "{}", answer.text());
        assert_eq!(answer.json()["data"], Value::Null);
    }
}

#[tokio::test]
async fn bytes_that_are_no_http_do_not_hurt() {
    let server = TestServer::start().await;
    for bytes in
        [&b"\0\0\0\0\r\n\r\n"[..], b"GET\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xFC\r\n\r\n"]
    {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        connection.write_all(bytes).await.unwrap();
        let answer = rest_of(&mut connection).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    assert_works(&server.http).await;
}
