//! The end of a process that is told to stop, while clients go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use hyper_util::client::legacy::Client as Http;
use hyper_util::rt::TokioExecutor;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::support::http::HttpClient;
use crate::support::process::{ServerProcess, vitrina};
use crate::support::server::SECRET;
use crate::support::stores::{address_of, cassandra_config, drop_keyspace};
use vitrina::config::StoreConfig;

const TIME: Duration = Duration::from_secs(20);
/// How long a server waits for its clients, less what may have passed between its clock and ours.
const WAITS: Duration = Duration::from_secs(9);

/// The status of `/health/ready`, on a connection of its own; `None` if there is none to be had.
async fn readiness(base: &str) -> Option<u16> {
    let request = Request::get("/health/ready").body(Body::empty()).unwrap();
    HttpClient::new(base).send(request).await.ok().map(|answer| answer.status.as_u16())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_is_not_ready_sends_clients_away_and_finishes_what_it_has_begun() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &["--no-demo"]);
    let address = server.base.trim_start_matches("http://").to_owned();
    assert_eq!(readiness(&server.base).await, Some(200));
    // One client is in the middle of its request, another one is connected and quiet.
    let body = json!({ "query": "{ __typename }" }).to_string();
    let mut busy = TcpStream::connect(&address).await.unwrap();
    let head = format!(
        "POST /graphql HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{{",
        body.len()
    );
    busy.write_all(head.as_bytes()).await.unwrap();
    let mut quiet = TcpStream::connect(&address).await.unwrap();
    quiet.write_all(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut some = [0; 4_096];
    let read = quiet.read(&mut some).await.unwrap();
    let first = String::from_utf8_lossy(&some[..read]).into_owned();
    assert!(first.starts_with("HTTP/1.1 200") && !first.contains("connection: close"), "{first}");

    server.signal("TERM");
    // It still listens, so that whoever sends clients here learns of it.
    let mut status = Some(200);
    while status == Some(200) {
        status = readiness(&server.base).await;
    }
    assert_eq!(status, Some(503));
    quiet.write_all(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut last = String::new();
    quiet.read_to_string(&mut last).await.unwrap();
    assert!(last.starts_with("HTTP/1.1 200") && last.contains("connection: close"), "{last}");
    busy.write_all(&body.as_bytes()[1..]).await.unwrap();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("{\"data\":{\"__typename\":\"Query\"}}"), "{answer}");
    assert!(server.ends_within(TIME).await);
    assert_eq!(server.wait(), Some(0));
    assert_eq!(readiness(&server.base).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_stuck_does_not_keep_a_server_from_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &["--no-demo"]);
    let address = server.base.trim_start_matches("http://").to_owned();
    // It never sends the rest: its deadline of 5 s ends it.
    let mut stuck = TcpStream::connect(&address).await.unwrap();
    let head = "POST /graphql HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
                content-length: 10\r\n\r\n{";
    stuck.write_all(head.as_bytes()).await.unwrap();
    server.signal("TERM");
    assert!(server.ends_within(TIME).await);
    assert_eq!(server.wait(), Some(0));
}

/// Nothing else ends this one: it is answered in time, and its connection gives signs of life.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_take_its_answer_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(&dir.path().join("data"), &["--no-demo"]);
    let mut http = Http::builder(TokioExecutor::new());
    let http = http.http2_only(true).http2_initial_stream_window_size(1).build_http();
    let request = Request::get(format!("{}/schema.graphql", server.base)).body(Body::empty());
    let untaken = http.request(request.unwrap()).await.unwrap();
    assert_eq!(untaken.status(), 200);
    let told = Instant::now();
    server.signal("TERM");
    assert!(server.ends_within(TIME).await);
    assert_eq!(server.wait(), Some(0));
    assert!(told.elapsed() > WAITS, "it was the bound that ended it: {:?}", told.elapsed());
    drop(untaken);
}

/// A client that keeps its connections, and asks another instance where it cannot connect: it is refused, or
/// cut off while the system ends the listener. Any other failure is a request that was lost.
struct Client {
    bases: [String; 2],
    done: AtomicUsize,
    lost: std::sync::Mutex<Vec<String>>,
    stop: AtomicBool,
    progress: Notify,
}

impl Client {
    async fn run(self: Arc<Self>, number: usize) {
        let instances = self.bases.clone().map(|base| HttpClient::new(&base));
        let query = json!({ "query": "mutation { sessionStart { session { id } } }" });
        let mut turn = number;
        while !self.stop.load(Ordering::Relaxed) {
            turn += 1;
            let mut answer = instances[turn % 2].try_post(None, &query).await;
            if answer.as_ref().is_err_and(|error| error.contains("Error(Connect,")) {
                answer = instances[(turn + 1) % 2].try_post(None, &query).await;
            }
            match answer {
                Ok(answer) if answer.status == 200 && answer.code().is_empty() => {
                    self.done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(answer) => self.lose(format!("{} {}", answer.status, answer.text())),
                Err(error) => self.lose(error),
            }
            self.progress.notify_one();
        }
    }

    fn lose(&self, why: String) {
        self.lost.lock().unwrap().push(why);
    }

    /// Waits until so many more requests have been answered.
    async fn go_on_for(&self, more: usize) {
        let until = self.done.load(Ordering::Relaxed) + more;
        while self.done.load(Ordering::Relaxed) < until && self.lost.lock().unwrap().is_empty() {
            self.progress.notified().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_no_request() {
    let Some(config) = cassandra_config() else { return };
    let keyspace = StoreConfig::Cassandra(config.clone());
    let store = address_of(&config);
    let start = |listen: &str| {
        let mut command = vitrina(&["serve", "--no-demo", "--listen", listen, "--store", &store]);
        ServerProcess::spawn(command.env("VITRINA_JWT_SECRET", SECRET))
    };
    let mut servers = [start("127.0.0.1:0"), start("127.0.0.1:0")];
    let bases = [servers[0].base.clone(), servers[1].base.clone()];
    let client = Arc::new(Client {
        bases: bases.clone(),
        done: AtomicUsize::new(0),
        lost: std::sync::Mutex::default(),
        stop: AtomicBool::new(false),
        progress: Notify::new(),
    });
    let clients: Vec<_> = (0..4).map(|n| tokio::spawn(client.clone().run(n))).collect();
    for round in 0..2 {
        for (server, base) in servers.iter_mut().zip(&bases) {
            client.go_on_for(50).await;
            server.signal("TERM");
            assert!(server.ends_within(TIME).await, "round {round}");
            assert_eq!(server.wait(), Some(0));
            client.go_on_for(50).await;
            *server = start(base.trim_start_matches("http://"));
        }
    }
    client.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let lost = client.lost.lock().unwrap().clone();
    assert!(lost.is_empty(), "{} lost: {}", lost.len(), lost[0]);
    drop(servers);
    drop_keyspace(&keyspace).await;
}
