//! Too few nodes answer, and the cluster itself has not noticed yet.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use vitrina::config::{CassandraConfig, StoreConfig};
use vitrina::inventory::model::StockKey;
use vitrina::storage::StoreError;

use crate::contract::inventory::key;
use crate::support::proxy::Proxy;
use crate::support::stores::{TestStore, drop_keyspace};

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
