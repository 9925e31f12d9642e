//! Histories of a cluster of three whose nodes freeze and die. They take minutes and a cluster that
//! may be hurt, so they run only where `VITRINA_TEST_CLUSTER` gives its name:
//!
//! ```sh
//! exports=$(scripts/servers start --cassandra 3 --name hurt) && eval "$exports"
//! VITRINA_TEST_CLUSTER=hurt cargo test --test it -- linear::nodes
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};

use vitrina::config::StoreConfig;

use super::runs::{FIRST_ANSWERS, PLAN, all_are_linearizable, assert_lively, histories};
use super::scene::{Instance, Scene};
use crate::support::cluster::{Cluster, NODES};
use crate::support::seed;
use crate::support::stores::{TestStore, drop_keyspace};

/// Histories of each kind of trouble.
const HISTORIES: u64 = 6;

/// The cluster that may be hurt, and two instances on it.
async fn open() -> Option<(Cluster, [Instance; 2], TestStore)> {
    let (cluster, config) = Cluster::open()?;
    let first = TestStore::open_on(StoreConfig::Cassandra(config)).await;
    let second = first.open_again().await;
    let instances = [
        Instance::new("first", first.store.clone()),
        Instance::new("second", second.store.clone()),
    ];
    Some((cluster, instances, first))
}

/// One node after the other.
fn a_node() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::SeqCst) % NODES + 1
}

/// One node is away at a time: with two of three nothing can be decided.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// So many calls are answered while a node is away.
const ANSWERS_WITHOUT: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_freeze_and_thaw() {
    let _alone = ALONE.lock().await;
    let Some((cluster, instances, store)) = open().await else { return };
    let freeze = async |scene: &Scene, _| {
        scene.recorder.answers(FIRST_ANSWERS).await;
        let node = a_node();
        cluster.signal(node, "STOP");
        scene.recorder.event(format!("node {node} freezes"));
        scene.recorder.answers(ANSWERS_WITHOUT).await;
        cluster.signal(node, "CONT");
        scene.recorder.event(format!("node {node} thaws"));
    };
    let count = histories(HISTORIES);
    let told = all_are_linearizable(&instances, PLAN, (seed(), count), freeze).await;
    assert_lively(&told, count);
    drop_keyspace(&store.config).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_die_and_come_back() {
    let _alone = ALONE.lock().await;
    let Some((cluster, instances, store)) = open().await else { return };
    let kill = async |scene: &Scene, _| {
        scene.recorder.answers(FIRST_ANSWERS).await;
        let node = a_node();
        cluster.signal(node, "KILL");
        scene.recorder.event(format!("node {node} is killed"));
        scene.recorder.answers(ANSWERS_WITHOUT).await;
        // It comes back among those who go on; the script waits until all see each other.
        cluster.start(node);
        scene.recorder.event(format!("node {node} is back"));
    };
    let count = histories(HISTORIES);
    let told = all_are_linearizable(&instances, PLAN, (seed(), count), kill).await;
    assert_lively(&told, count);
    drop_keyspace(&store.config).await;
}
