//! Starting and stopping: bad configuration, a folder in use, the demo, signals.

use std::process::Command;

use serde_json::json;

use crate::support::process::{ServerProcess, run, vitrina};
use crate::support::server::SECRET;

fn fails_with(command: &mut Command, code: i32, words: &[&str]) {
    let output = run(command);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{told}");
    for word in words {
        assert!(told.contains(word), "{word:?} is not in {told:?}");
    }
    assert!(output.stdout.is_empty(), "nothing was started");
}

#[test]
fn bad_configuration_is_a_sentence_that_names_the_setting_and_exit_code_2() {
    let secret = |args: &[&str]| {
        let mut command = vitrina(args);
        command.env("VITRINA_JWT_SECRET", SECRET);
        command
    };
    fails_with(&mut secret(&["serve", "--store", "mongodb://x"]), 2, &["--store", "VITRINA_STORE"]);
    fails_with(&mut secret(&["serve", "--listen", "nowhere"]), 2, &["--listen"]);
    fails_with(&mut secret(&["serve", "--log", "xml"]), 2, &["--log"]);
    fails_with(&mut secret(&["serve", "--max-body-bytes", "1"]), 2, &["--max-body-bytes"]);
    fails_with(&mut secret(&["serve", "--unknown"]), 2, &["--unknown"]);
    fails_with(&mut secret(&["demo", "--products", "0"]), 2, &["--products"]);
    fails_with(
        vitrina(&["serve"]).env("VITRINA_JWT_SECRET", "short"),
        2,
        &["VITRINA_JWT_SECRET", "32"],
    );
    fails_with(secret(&["serve"]).env("VITRINA_LISTEN", "x"), 2, &["--listen"]);
    fails_with(secret(&["serve"]).env("VITRINA_JWKS", "x"), 2, &["VITRINA_JWKS"]);
    let cassandra = "cassandra://127.0.0.1:1/k?rf=1";
    fails_with(
        secret(&["serve", "--store", cassandra]).env("VITRINA_CASSANDRA_USER", "u"),
        2,
        &["VITRINA_CASSANDRA_PASSWORD"],
    );
    let missing = "cassandra://127.0.0.1:1/k?rf=1&ca=/does/not/exist.pem";
    fails_with(&mut secret(&["migrate", "--store", missing]), 2, &["/does/not/exist.pem"]);
    fails_with(&mut secret(&["token", "--user", ""]), 2, &["--user"]);
}

#[test]
fn outside_the_demo_a_missing_secret_is_a_configuration_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", dir.path().join("data").display());
    let mut command = vitrina(&["serve", "--no-demo", "--store", &store]);
    fails_with(&mut command, 2, &["VITRINA_JWT_SECRET"]);
    let mut command = vitrina(&["serve", "--store", "cassandra://127.0.0.1:1/k?rf=1"]);
    fails_with(&mut command, 2, &["VITRINA_JWT_SECRET"]);
    let mut command = vitrina(&["token", "--user", "me", "--store", &store]);
    fails_with(&mut command, 2, &["VITRINA_JWT_SECRET", "no demo is running"]);
    assert!(!dir.path().join("data").exists(), "nothing was started");
}

#[tokio::test]
async fn a_second_process_on_the_same_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(dir.path(), &["--no-demo"]);
    let store = format!("embedded:{}", dir.path().display());
    let mut second = vitrina(&["serve", "--listen", "127.0.0.1:0", "--store", &store]);
    fails_with(second.env("VITRINA_JWT_SECRET", SECRET), 1, &["in use by another process"]);
    fails_with(&mut vitrina(&["demo", "--store", &store]), 1, &["in use by another process"]);
    assert_eq!(server.http.get("/health/ready").await.status, 200);
}

#[tokio::test]
async fn an_address_in_use_is_refused_with_its_setting() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let store = format!("embedded:{}", dir.path().join("data").display());
    let mut command = vitrina(&["serve", "--listen", &listen, "--store", &store]);
    fails_with(command.env("VITRINA_JWT_SECRET", SECRET), 1, &["--listen", &listen]);
    assert!(!dir.path().join("data").exists(), "nothing was started");
}

#[tokio::test]
async fn an_empty_store_is_filled_with_the_demo_unless_told_not_to() {
    let categories = "{ categories { name productCount } product(id: \"PROD-12345\") { name } }";
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(&dir.path().join("empty"), &["--no-demo"]);
    let answer = server.http.query(categories, json!({})).await.json();
    assert_eq!(answer["data"], json!({ "categories": [], "product": null }));
    server.kill();

    let filled = dir.path().join("filled");
    let mut server = ServerProcess::start(&filled, &[]);
    let first = server.http.query(categories, json!({})).await.json();
    let counts = first["data"]["categories"].as_array().unwrap();
    assert_eq!(counts.len(), 12);
    let sum: u64 = counts.iter().map(|c| c["productCount"].as_u64().unwrap()).sum();
    assert_eq!(sum, 2_000);
    assert!(first["data"]["product"]["name"].is_string());
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0), "a server that is told to stop ends well");

    let server = ServerProcess::start(&filled, &[]);
    let again = server.http.query(categories, json!({})).await.json();
    assert_eq!(first, again, "a filled store is left as it is");
}

#[tokio::test]
async fn the_demo_makes_a_secret_for_its_run_that_the_token_command_finds() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", dir.path().display());
    let token = || {
        let output =
            run(&mut vitrina(&["token", "--user", "me", "--role", "staff", "--store", &store]));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let mutation = "mutation { productsDelete(ids: [\"PROD-11000\"]) { deletedIds } }";
    let mut server = ServerProcess::start_demo(dir.path());
    let answer = server.http.query_as(&token(), mutation, json!({})).await;
    assert_eq!(answer.json()["data"]["productsDelete"]["deletedIds"], json!(["PROD-11000"]));
    let old = token();
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    assert_eq!(token(), "", "the secret is gone with the run");

    let server = ServerProcess::start_demo(dir.path());
    let answer = server.http.query_as(&old, mutation, json!({})).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (401, "UNAUTHENTICATED"));
}

#[tokio::test]
async fn health_is_also_a_command() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(dir.path(), &["--no-demo"]);
    let address = server.base.trim_start_matches("http://").to_owned();
    let health = || run(&mut vitrina(&["health", "--listen", &address])).status.code();
    assert_eq!(health(), Some(0));
    server.kill();
    assert_eq!(health(), Some(1));
}

#[tokio::test]
async fn a_server_whose_cluster_is_away_says_so_and_goes_on_waiting() {
    // A port that nobody listens on.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listen = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let store = format!("cassandra://{free}/k?rf=1");
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut child = vitrina(&["serve", "--listen", &listen.to_string(), "--store", &store])
        .env("VITRINA_JWT_SECRET", SECRET)
        .stderr(log.reopen().unwrap())
        .spawn()
        .unwrap();
    let http = crate::support::http::HttpClient::new(&format!("http://{listen}"));
    let get = |path: &str| axum::http::Request::get(path).body(axum::body::Body::empty()).unwrap();
    // It listens at once; until it does, connections are refused.
    let ready = loop {
        match http.send(get("/health/ready")).await {
            Ok(answer) => break answer,
            Err(_) => tokio::task::yield_now().await,
        }
        assert!(child.try_wait().unwrap().is_none(), "it waits, it does not end");
    };
    assert_eq!(ready.status, 503);
    assert_eq!(ready.json()["ready"], json!(false));
    assert_eq!(http.send(get("/health/live")).await.unwrap().status, 200);
    let answer = http.query("{ categories { name } }", json!({})).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (503, "UNAVAILABLE"));
    let waits = loop {
        let told = std::fs::read_to_string(log.path()).unwrap();
        if told.contains("waiting for Cassandra") {
            break told;
        }
        tokio::task::yield_now().await;
    };
    assert!(waits.contains(&free.to_string()), "it says for whom: {waits}");
    assert!(
        std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap().success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(0), "it can be stopped while it waits");
}
