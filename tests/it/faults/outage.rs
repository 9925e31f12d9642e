//! Too few nodes answer, and the cluster itself has not noticed yet; or none is there at all.

use std::process::Stdio;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use futures_util::future::join_all;
use serde_json::json;
use vitrina::config::{CassandraConfig, StoreConfig};
use vitrina::inventory::model::StockKey;
use vitrina::storage::StoreError;

use crate::contract::inventory::key;
use crate::support::process::ServerProcess;
use crate::support::proxy::Proxy;
use crate::support::stores::{TestStore, address_of, drop_keyspace};

/// The shop itself, on a cluster that is not there when it is started, comes, goes and comes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shop_waits_for_its_cluster_and_outlives_its_absence() {
    let Some(direct) = TestStore::cassandra().await else { return };
    let StoreConfig::Cassandra(config) = &direct.config else { unreachable!() };
    let proxy = Proxy::start(&config.nodes).await;
    proxy.leave().await;
    let behind = CassandraConfig { nodes: proxy.nodes.clone(), ..config.clone() };
    let mut server = ServerProcess::start_waiting(&address_of(&behind), Stdio::null()).await;
    let until = async |wanted: StatusCode| {
        while server.http.get("/health/ready").await.status != wanted {
            tokio::time::sleep(LOOK).await;
        }
    };
    let ask = async || {
        let answer = server.http.query("{ categories { name } }", json!({})).await;
        (answer.status, answer.code())
    };
    let (good, none) = ((StatusCode::OK, String::new()), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ask().await, (none, "UNAVAILABLE".to_owned()));
    for _ in 0..2 {
        until(none).await;
        proxy.come_back();
        until(StatusCode::OK).await;
        assert_eq!(ask().await, good);
        proxy.leave().await;
    }
    until(none).await;
    assert_ne!(ask().await, good);
    assert_eq!(server.http.get("/health/live").await.status, StatusCode::OK);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0), "it can be stopped meanwhile");
    drop_keyspace(&direct.config).await;
}

/// Pause between two looks at a server.
const LOOK: Duration = Duration::from_millis(20);
/// What a read of stock waits for at the most, if nobody tells it to give up.
const OWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Reads that come after the cluster was given up.
const LATER: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_falls_silent_is_given_up_and_taken_back() {
    let Some(direct) = TestStore::cassandra().await else { return };
    let StoreConfig::Cassandra(config) = &direct.config else { unreachable!() };
    let proxy = Proxy::start(&config.nodes).await;
    let config = CassandraConfig { nodes: proxy.nodes.clone(), ..config.clone() };
    let behind = TestStore::open_on(StoreConfig::Cassandra(config)).await;
    let row: StockKey = key("PROD-1");
    let read = || behind.store.stock_row(&row);
    let given_up =
        || behind.metrics.encode().lines().any(|line| line == "vitrina_store_given_up 1");
    read().await.unwrap();
    assert!(!given_up());

    proxy.hold_requests();
    // Nobody is answered, and sooner or later somebody is told without having waited.
    while !given_up() {
        for answer in join_all((0..4).map(|_| read())).await {
            answer.unwrap_err();
        }
    }
    let began = Instant::now();
    for _ in 0..LATER {
        let told = read().await.unwrap_err();
        assert!(matches!(told, StoreError::Unavailable { .. }), "{told}");
    }
    assert!(began.elapsed() < OWN_TIMEOUT, "{LATER} refusals took longer than one time-out");
    behind.store.ready().await.unwrap_err();

    proxy.pass();
    while read().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!given_up());
    drop_keyspace(&direct.config).await;
}
