//! Instances are killed at random moments while customers buy.

use std::time::{Duration, Instant};

use super::by_version;
use super::clients::Crowd;
use super::shop::{Instances, Setting};
use super::siege::{Siege, Times, print_head};
use crate::support::stores::{address_of, cassandra_config, drop_keyspace};
use crate::support::{Random, seed};
use vitrina::config::StoreConfig;

const CROWD: Crowd =
    Crowd { browsing: 2, looking: 0, filling: 2, buying: 6, pause: Duration::from_millis(10) };
/// The longest an instance lives before it is killed.
const LIFE: u64 = 600;

/// Kills instances in turn, so many times, each at a random moment of its life.
async fn kill_at_random(mut instances: Instances, count: usize, name: &str) {
    let times = Times {
        calm: Duration::from_secs(by_version(1, 5)),
        fault: Duration::ZERO,
        after: Duration::from_secs(by_version(1, 5)),
    };
    let deaths = by_version(6, 50);
    let mut siege = Siege::of(instances.front(), CROWD, times);
    let mut random = Random(seed());
    print_head();
    let outcome = siege
        .lay(
            &format!("{name} killed {deaths} times"),
            async || {
                for death in 0..deaths {
                    let life = Duration::from_millis(random.below(LIFE));
                    tokio::time::sleep_until((Instant::now() + life).into()).await;
                    instances.kill_and_restart(death % count).await;
                }
            },
            async || {},
        )
        .await;
    outcome.assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_instance_on_the_embedded_store_dies_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", dir.path().join("data").display());
    let instances = Instances::open(Setting::of(&store), 1).await;
    kill_at_random(instances, 1, "Vitrina (embedded store)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_on_cassandra_die_in_turn() {
    let Some(config) = cassandra_config() else { return };
    let store = address_of(&config);
    let instances = Instances::open(Setting::of(&store), 2).await;
    kill_at_random(instances, 2, "one of two Vitrinas (Cassandra)").await;
    drop_keyspace(&StoreConfig::Cassandra(config)).await;
}
