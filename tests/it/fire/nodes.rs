//! Nodes of a cluster of three die and freeze under a mixed load. This takes minutes and a cluster
//! that may be hurt; see [`crate::support::cluster`].

use std::time::Duration;

use axum::http::StatusCode;

use super::clients::Crowd;
use super::record::{Kind, millis};
use super::shop::{Instances, Setting};
use super::siege::{Siege, Times, print_head};
use super::{by_version, stretch};
use crate::support::cluster::{Cluster, NODES};
use crate::support::redis::PrivateRedis;
use crate::support::stores::address_of;

/// What a cluster of three on two cores carries without being the one that is slow.
const CROWD: Crowd =
    Crowd { browsing: 7, looking: 1, filling: 3, buying: 3, pause: Duration::from_millis(40) };
/// A read that one node does not answer is answered by another one before its own time-out of two
/// seconds.
const OTHER_NODE_WITHIN: Duration = Duration::from_millis(1_900);
/// An answer that says no comes within a request's deadline of five seconds.
const NO_WITHIN: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shop_goes_on_while_nodes_die_and_freeze() {
    let Some((cluster, config)) = Cluster::open() else { return };
    let Some(redis) = PrivateRedis::start(&[]) else { return };
    let store = address_of(&config);
    let cache = format!("redis://127.0.0.1:{}", redis.port());
    let instances = Instances::open(Setting { cache, ..Setting::of(&store) }, 2).await;
    let times =
        Times { calm: stretch(5.0, 10.0), fault: stretch(5.0, 15.0), after: stretch(5.0, 15.0) };
    let mut siege = Siege::of(instances.front(), CROWD, times);
    print_head();
    // In the short version one stands for all.
    for node in by_version(2..=2, 1..=NODES) {
        let outcome = siege
            .lay(
                &format!("node {node} of 3 frozen"),
                async || cluster.signal(node, "STOP"),
                async || cluster.signal(node, "CONT"),
            )
            .await;
        outcome.assert_nothing_lost();
        assert!(outcome.fault.good() > 0, "two of three nodes are enough");
        // A third of the reads go to the silent node first.
        let p95 = outcome.fault.percentile(Kind::Browse, 95);
        println!("p95 of browsing meanwhile: {}", millis(p95));
        assert!(p95 < OTHER_NODE_WITHIN, "nobody asked another node in time: {p95:?}");
        let outcome = siege
            .lay(
                &format!("node {node} of 3 killed"),
                async || cluster.signal(node, "KILL"),
                async || tokio::task::block_in_place(|| cluster.start(node)),
            )
            .await;
        outcome.assert_nothing_lost();
        assert!(outcome.fault.good() > 0, "two of three nodes are enough");
    }
    let ready = async || instances.server(0).http.get("/health/ready").await;
    let outcome = siege
        .lay(
            "nodes 2 and 3 of 3 killed",
            async || {
                cluster.signal(2, "KILL");
                cluster.signal(3, "KILL");
                while ready().await.status == StatusCode::OK {}
                let told = ready().await.text();
                assert!(told.contains("store: "), "{told}");
            },
            async || {
                tokio::task::block_in_place(|| {
                    cluster.start(2);
                    cluster.start(3);
                });
            },
        )
        .await;
    outcome.assert_nothing_lost();
    for code in outcome.fault.errors().keys() {
        assert!(["UNAVAILABLE", "TIMEOUT"].contains(code), "{code}");
    }
    assert!(outcome.fault.slowest_error < NO_WITHIN, "{:?}", outcome.fault.slowest_error);
    let cards = (outcome.calm.good_of(Kind::Card), outcome.fault.good_of(Kind::Card));
    println!("cards without stock while two nodes of three are dead: {} → {}", cards.0, cards.1);
    assert!(cards.1 > cards.0 / 2, "what needs one copy goes on: {cards:?}");
    assert_eq!(ready().await.status, StatusCode::OK, "without a restart");
}
