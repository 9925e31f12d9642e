//! What never leaves the process: secrets, in any form; and what others chose, as it is.

use std::io::Read;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::start::fails_with;
use crate::support::process::{ServerProcess, run, vitrina};
use crate::support::server::SECRET;

/// Every secret that can be configured, each of them with this in it.
const MARKER: &str = "hunter2";

fn secret(name: &str) -> String {
    format!("{MARKER}-{name}-{}", "x".repeat(40))
}

#[test]
fn no_secret_is_shown_by_help_or_by_an_error() {
    let with_secrets = |args: &[&str]| {
        let mut command = vitrina(args);
        for name in [
            "VITRINA_JWT_SECRET",
            "VITRINA_JWT_SECRET_PREVIOUS",
            "VITRINA_PAYMENT_SECRET",
            "VITRINA_CASSANDRA_PASSWORD",
        ] {
            command.env(name, secret(name));
        }
        command.env("VITRINA_CACHE", format!("redis://shop:{MARKER}@127.0.0.1:1"));
        command.env("VITRINA_STORE", format!("cassandra://shop:{MARKER}@127.0.0.1:1/k"));
        command.env("VITRINA_JWKS", format!("https://shop:{MARKER}@id.example/keys"));
        command
    };
    for command in ["serve", "migrate", "demo", "token", "check", "category", "export", "documents"]
    {
        for args in [&[command, "--help"][..], &[command, "-h"], &[command, "--nope"], &[command]] {
            let output = run(&mut with_secrets(args));
            let told = [output.stdout, output.stderr].concat();
            let told = String::from_utf8(told).unwrap();
            assert!(!told.is_empty(), "{args:?}");
            assert!(!told.contains(MARKER), "{args:?}: {told}");
        }
    }
}

#[test]
fn the_payment_service_does_not_know_what_signs_tokens() {
    for name in ["VITRINA_JWT_SECRET", "VITRINA_JWT_SECRET_PREVIOUS"] {
        let mut command = vitrina(&["serve", "--store", "embedded:/nowhere/at/all"]);
        command.env("VITRINA_JWT_SECRET", SECRET).env(name, secret("one"));
        command.env("VITRINA_PAYMENT_SECRET", secret("one"));
        fails_with(&mut command, 2, &["VITRINA_PAYMENT_SECRET", "tokens"]);
    }
}

/// Serves with every secret set and with a Redis that is away; what it logs goes to a file.
fn serve(dir: &std::path::Path, format: &str) -> (ServerProcess, tempfile::NamedTempFile) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let store = format!("embedded:{}", dir.join("data").display());
    let mut command = vitrina(&["serve", "--no-demo", "--listen", "127.0.0.1:0"]);
    command.args(["--store", &store, "--log", format]);
    command.env("VITRINA_CACHE", format!("redis://shop:{MARKER}@127.0.0.1:1"));
    for name in ["VITRINA_JWT_SECRET", "VITRINA_JWT_SECRET_PREVIOUS", "VITRINA_PAYMENT_SECRET"] {
        command.env(name, secret(name));
    }
    (ServerProcess::spawn_with_log(&mut command, log.reopen().unwrap()), log)
}

/// Sends bytes as they are, and reads what comes until the connection is closed.
async fn raw(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer).await;
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_has_no_secret_and_nothing_raw_of_what_clients_send() {
    for format in ["text", "json"] {
        let dir = tempfile::tempdir().unwrap();
        let (mut server, log) = serve(dir.path(), format);
        let address: SocketAddr = server.base.trim_start_matches("http://").parse().unwrap();
        let forged = "x\n2026-01-01T00:00:00Z  INFO vitrina: forged\u{1b}[2J\u{9b}\u{202e}";
        // What a name can be, it is; the rest is refused.
        let long = "N".repeat(100);
        for name in [long.as_str(), "Plain"] {
            let body = json!({ "query": format!("query {name} {{ __typename }}") });
            assert_eq!(server.http.post(None, &body).await.status, 200);
        }
        for body in [
            json!({ "query": format!("query {forged} {{ __typename }}") }),
            json!({ "query": format!("query {} {{ __typename }}", "N".repeat(5_000)) }),
            json!({ "query": "query A { __typename }", "operationName": forged }),
            json!({ "query": "{ product(id: \"\") { id } }", "variables": { "a": forged } }),
            json!({ "query": "query($id: ID!) { product(id: $id) { id } }",
                    "variables": { "id": forged } }),
            json!({ "query": "query($n: String!) { category(name: $n) { name } }",
                    "variables": { "n": forged } }),
            json!({ "query": "mutation($z: String!) { sessionStart(input: { deviceType: $z }) \
                             { token userErrors { code } } }", "variables": { "z": forged } }),
        ] {
            server.http.post(None, &body).await;
            server.http.post(Some("forged"), &body).await;
        }
        // Headers that no client library would send.
        let body = r#"{"query":"{ __typename }"}"#;
        for header in [
            "x-request-id: a\u{9b}31m forged",
            "x-request-id: \u{202e}forged",
            "x-request-id: a\tforged",
            "user-agent: forged\u{9b}31m",
            "authorization: Bearer forged\u{9b}",
            "host: forged\u{9b}31m",
            "x-forwarded-for: forged",
            "origin: forged",
        ] {
            let length = body.len();
            let request = format!(
                "POST /graphql HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{header}\r\n\
                 content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            raw(address, request.as_bytes()).await;
        }
        raw(address, b"GET /forged%0a%1b[2J HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .await;
        raw(address, b"FORGED /graphql HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
        raw(address, b"\x1b[2Jforged\n\n").await;
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));

        let mut told = String::new();
        log.reopen().unwrap().read_to_string(&mut told).unwrap();
        assert!(told.contains("Redis does not answer") && told.contains("operation"), "{told}");
        assert!(told.contains(&long) && told.contains("Plain"), "{told}");
        assert!(!told.contains(MARKER), "{told}");
        assert!(!told.contains("forged"), "{told}");
        let raw = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!told.contains(raw), "{told:?}");
        for line in told.lines() {
            assert!(line.len() < 1_000, "{line}");
            if format == "json" {
                assert!(serde_json::from_str::<Value>(line).unwrap().is_object(), "{line}");
            } else {
                assert!(line.starts_with("20"), "{line}");
            }
        }
    }
}
