//! Starting and stopping: bad configuration, a folder in use, the demo, signals.

use std::process::Command;

use serde_json::json;
use vitrina::clock::{Clock, SystemClock};

use crate::support::process::{ServerProcess, run, vitrina};
use crate::support::provider::{Provider, Reply, SigningKey, key_set};
use crate::support::server::SECRET;

pub(super) fn fails_with(command: &mut Command, code: i32, words: &[&str]) {
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
fn a_configuration_of_tokens_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", dir.path().join("data").display());
    let serve = |settings: &[(&str, &str)]| {
        let mut command = vitrina(&["serve", "--listen", "127.0.0.1:0", "--store", &store]);
        command.envs(settings.iter().copied());
        command
    };
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let none = file("none.json", r#"{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"k"}]}"#);
    let broken = file("broken.json", r#"{"keys":["#);
    let missing = dir.path().join("missing.json").display().to_string();
    let own_folder = dir.path().display().to_string();
    for jwks in [&none, &broken, &missing, &own_folder] {
        fails_with(&mut serve(&[("VITRINA_JWKS", jwks)]), 2, &["--jwks", "VITRINA_JWKS", jwks]);
    }
    for jwks in ["", "ftp://a/keys", "http://"] {
        fails_with(&mut serve(&[("VITRINA_JWKS", jwks)]), 2, &["--jwks", "VITRINA_JWKS"]);
        fails_with(serve(&[]).args(["--jwks", jwks]), 2, &["--jwks", "VITRINA_JWKS"]);
    }
    let with = |name, value| [("VITRINA_JWT_SECRET", SECRET), (name, value)];
    for name in ["VITRINA_JWT_ISSUER", "VITRINA_JWT_AUDIENCE"] {
        fails_with(&mut serve(&with(name, "")), 2, &[name, "must not be empty"]);
    }
    let previous = "VITRINA_JWT_SECRET_PREVIOUS";
    fails_with(&mut serve(&with(previous, "hunter2")), 2, &[previous, "32"]);
    fails_with(&mut serve(&[(previous, SECRET)]), 2, &[previous, "VITRINA_JWT_SECRET,"]);
    assert!(!dir.path().join("data").exists(), "nothing was started");

    let mut token = vitrina(&["token", "--user", "me", "--store", &store]);
    token.env("VITRINA_JWKS", "https://id.example/keys");
    fails_with(&mut token, 2, &["VITRINA_JWT_SECRET", "identity provider"]);
}

#[tokio::test]
async fn with_keys_the_demo_makes_no_secret_and_no_token_reaches_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let key = SigningKey::ed("the-key-of-the-log-test");
    let keys = dir.path().join("keys.json");
    std::fs::write(&keys, key_set(&[&key]).to_string()).unwrap();
    let data = dir.path().join("data");
    let store = format!("embedded:{}", data.display());
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = vitrina(&["serve", "--listen", "127.0.0.1:0", "--store", &store]);
    command.args(["--jwks", keys.to_str().unwrap(), "--jwt-audience", "shop"]);
    let mut server = ServerProcess::spawn_with_log(&mut command, log.reopen().unwrap());
    assert!(!data.join("demo-secret").exists());
    let exp = SystemClock.now().millis() / 1_000 + 600;
    let claims = json!({ "sub": "me", "role": "staff", "exp": exp, "aud": "shop" });
    let good = key.sign(&claims);
    let mutation = "mutation { productsDelete(ids: [\"PROD-11000\"]) { deletedIds } }";
    let answer = server.http.query_as(&good, mutation, json!({})).await;
    assert_eq!(answer.json()["data"]["productsDelete"]["deletedIds"], json!(["PROD-11000"]));
    let bad = [
        key.sign_as(Some("an-unknown-key"), &claims),
        SigningKey::ed("the-key-of-the-log-test").sign(&claims),
        SigningKey::ec("another-kind").sign_as(None, &claims),
    ];
    for bad in &bad {
        assert_eq!(server.http.query_as(bad, mutation, json!({})).await.status, 401);
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let told = std::fs::read_to_string(log.path()).unwrap();
    assert!(told.contains("keys are known"), "it was written to: {told}");
    for token in bad.iter().chain([&good]) {
        for part in token.split('.') {
            assert!(!told.contains(part), "{told}");
        }
    }
    assert!(!told.contains("an-unknown-key"), "{told}");
}

#[tokio::test]
async fn a_server_whose_identity_provider_is_away_serves_and_goes_on_asking() {
    let dir = tempfile::tempdir().unwrap();
    let key = SigningKey::ed("k");
    let provider = Provider::start(Reply::Fault).await;
    let store = format!("embedded:{}", dir.path().display());
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = vitrina(&["serve", "--listen", "127.0.0.1:0", "--store", &store]);
    command.args(["--no-demo", "--jwks", &provider.url()]);
    let server = ServerProcess::spawn_with_log(&mut command, log.reopen().unwrap());
    provider.wait_for(1).await;
    let exp = SystemClock.now().millis() / 1_000 + 600;
    let token = key.sign(&json!({ "sub": "me", "role": "customer", "exp": exp }));
    let query = "{ categories { name } }";
    let answer = server.http.query_as(&token, query, json!({})).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (503, "UNAVAILABLE"));
    assert_eq!(server.http.query(query, json!({})).await.status, 200);
    loop {
        let told = std::fs::read_to_string(log.path()).unwrap();
        if told.contains("keys cannot be read") && told.contains("502") {
            break;
        }
        tokio::task::yield_now().await;
    }
    // It asks again by itself, sooner than a token might make it.
    provider.say(Reply::keys(&[&key]));
    let asked = provider.asked();
    provider.wait_for(asked + 1).await;
    let answer = loop {
        let answer = server.http.query_as(&token, query, json!({})).await;
        if answer.status != 503 {
            break answer;
        }
    };
    assert_eq!(answer.status, 200);
}

#[test]
fn outside_the_demo_a_missing_secret_is_a_configuration_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", dir.path().join("data").display());
    let mut command = vitrina(&["serve", "--no-demo", "--store", &store]);
    fails_with(&mut command, 2, &["VITRINA_JWT_SECRET", "VITRINA_JWKS"]);
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
    let store = format!("cassandra://{free}/k?rf=1");
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut server = ServerProcess::start_waiting(&store, log.reopen().unwrap()).await;
    let http = &server.http;
    let ready = http.get("/health/ready").await;
    assert_eq!(ready.status, 503);
    assert_eq!(ready.json()["ready"], json!(false));
    assert_eq!(http.get("/health/live").await.status, 200);
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
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0), "it can be stopped while it waits");
}
