//! Histories of real stores, and of stores that are wrong on purpose.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use vitrina::config::StoreConfig;
use vitrina::inventory::InventoryStore;

use super::checker::check;
use super::planted::{Bug, Planted};
use super::play::{Plan, play, tally};
use super::scene::{Instance, Scene};
use crate::contract::inventory::Lossy;
use crate::support::proxy::Proxy;
use crate::support::stores::{TestStore, drop_keyspace};
use crate::support::{Random, seed};

/// Histories of the embedded store.
const EMBEDDED: u64 = 30;
/// The same with lost replies, which take their time.
const LOSSY: u64 = 10;
/// Histories within which one of the replies that are lost is that of a write. Which one is lost is not
/// ours to say: reads are lost, too.
const ENOUGH_LOST: u64 = 30;
/// Histories of two instances on Cassandra.
const CASSANDRA: u64 = 4;
/// Histories in which replies are lost on their way from Cassandra.
const PROXY: u64 = 3;
/// Histories within which a store with a bug is found out.
const ENOUGH: u64 = 100;

pub fn histories(unless_told: u64) -> u64 {
    let told = std::env::var("VITRINA_TEST_HISTORIES").ok().and_then(|count| count.parse().ok());
    told.unwrap_or(unless_told)
}

/// Two rows with few units, so that some are refused, and calls enough to get into each other's way.
pub const PLAN: Plan = Plan { rows: 2, units: 6, clients: 2, steps: 5, stretches: 2 };

pub type Tally = BTreeMap<&'static str, u64>;

/// What the rows of a history are named after.
pub fn history_name(index: u64) -> String {
    format!("H{index}")
}

/// Plays histories that follow from a seed, so many, and checks each; what all of them came to.
pub async fn all_are_linearizable(
    instances: &[Instance],
    plan: Plan,
    (base, count): (u64, u64),
    trouble: impl AsyncFn(&Scene, usize),
) -> Tally {
    these_are_linearizable(instances, plan, (base, 0..count), &trouble).await
}

/// Plays those of them that have these numbers.
async fn these_are_linearizable(
    instances: &[Instance],
    plan: Plan,
    (base, numbers): (u64, Range<u64>),
    trouble: &impl AsyncFn(&Scene, usize),
) -> Tally {
    let (mut told, mut most) = (Tally::new(), 0);
    let count = numbers.end - numbers.start;
    for index in numbers {
        let mut random = Random(Random(base.wrapping_add(index)).next());
        let scene = play(instances, plan, &history_name(index), &mut random, trouble).await;
        let history = scene.recorder.recorded();
        match check(&history, plan.units) {
            Ok(attempts) => most = most.max(attempts),
            Err(fault) => panic!("history {index} of seed {base}: {fault}"),
        }
        assert_eq!(scene.odd(), 0, "history {index} of seed {base}: {:?}", history.events);
        tally(&history, &mut told);
    }
    println!("{count} histories, {most} attempts for the hardest: {told:?}");
    told
}

pub async fn nothing_happens(_: &Scene, _: usize) {}

/// A history in which nothing happens proves nothing.
pub fn assert_lively(told: &Tally, count: u64) {
    for what in ["reserved", "refused", "changed", "ended", "read"] {
        assert!(told.get(what).is_some_and(|times| *times >= count / 2), "{what}: {told:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_through_one_service() {
    let store = TestStore::embedded().await;
    let instances = [Instance::new("shop", store.store.clone())];
    let plan = Plan { clients: 4, ..PLAN };
    let count = histories(EMBEDDED);
    let told = all_are_linearizable(&instances, plan, (seed(), count), nothing_happens).await;
    assert_lively(&told, count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_with_lost_replies() {
    let store = TestStore::embedded().await;
    let seed = seed();
    let mut random = Random(seed);
    let mut lossy = || Lossy::new(store.store.clone(), random.next(), false);
    let (first, second) = (lossy(), lossy());
    let instances = [Instance::new("first", first.clone()), Instance::new("second", second)];
    let count = histories(LOSSY);
    let told = all_are_linearizable(&instances, PLAN, (seed, count), nothing_happens).await;
    assert_lively(&told, count);
    assert!(first.lost() >= count, "replies were lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_on_cassandra() {
    let Some(store) = TestStore::cassandra().await else { return };
    let other = store.open_again().await;
    let instances =
        [Instance::new("first", store.store.clone()), Instance::new("second", other.store.clone())];
    let count = histories(CASSANDRA);
    let told = all_are_linearizable(&instances, PLAN, (seed(), count), nothing_happens).await;
    assert_lively(&told, count);
    drop_keyspace(&store.config).await;
}

/// So many calls are answered before anything happens to those that follow.
pub const FIRST_ANSWERS: u64 = 4;

/// An instance that reaches Cassandra through a proxy, and one that reaches it by itself.
struct Behind {
    proxy: Proxy,
    instances: [Instance; 2],
    direct: TestStore,
}

impl Behind {
    async fn start() -> Option<Self> {
        let direct = TestStore::cassandra().await?;
        let StoreConfig::Cassandra(config) = &direct.config else { unreachable!() };
        let proxy = Proxy::start(&config.nodes).await;
        let config =
            vitrina::config::CassandraConfig { nodes: proxy.nodes.clone(), ..config.clone() };
        let behind = TestStore::open_on(StoreConfig::Cassandra(config)).await;
        // The control connection and those of the pool: none goes around it.
        assert!(proxy.connections() >= 2, "the driver goes around the proxy");
        let instances = [
            Instance::new("direct", direct.store.clone()),
            Instance::new("behind", behind.store.clone()),
        ];
        Some(Self { proxy, instances, direct })
    }

    async fn end(self) {
        let Self { proxy, instances, direct } = self;
        drop((instances, proxy));
        drop_keyspace(&direct.config).await;
    }
}

/// Replies are lost until one of them was, and the connection with it: a change may have happened,
/// and its writer does not know. In every other stretch all connections are cut at once, with
/// whatever was under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_cassandra_are_lost() {
    let Some(behind) = Behind::start().await else { return };
    let proxy = &behind.proxy;
    let lose_replies = async |scene: &Scene, stretch| {
        scene.recorder.answers(FIRST_ANSWERS).await;
        if stretch % 2 == 1 {
            scene.recorder.event("all connections are cut");
            return proxy.cut();
        }
        let a_lost_result = proxy.a_lost_result();
        proxy.lose_replies();
        scene.recorder.event("replies are lost from now on");
        scene.recorder.unless_at_rest(a_lost_result).await;
        scene.recorder.event("a reply was lost, and its connection is cut");
        proxy.pass();
    };
    let (base, count) = (seed(), histories(PROXY));
    let instances = &behind.instances;
    let told = these_are_linearizable(instances, PLAN, (base, 0..count), &lose_replies).await;
    assert_lively(&told, count);
    let mut played = count;
    while instances[1].doubts() == 0 && played < count + ENOUGH_LOST {
        these_are_linearizable(instances, PLAN, (base, played..played + 1), &lose_replies).await;
        played += 1;
    }
    let doubts = instances[1].doubts();
    println!("{} replies were lost; {doubts} writes were not answered", proxy.lost());
    assert!(doubts > 0, "every write was answered");
    behind.end().await;
}

/// A write is held back on its way until the driver has given it up; then it comes to life. Others
/// have written meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_cassandra_come_late() {
    let Some(behind) = Behind::start().await else { return };
    let proxy = &behind.proxy;
    let come_late = async |scene: &Scene, _| {
        scene.recorder.answers(FIRST_ANSWERS).await;
        proxy.hold_requests();
        scene.recorder.event("requests are held back from now on");
        scene.recorder.an_error().await;
        scene.recorder.event("what was held back is passed on");
        proxy.pass();
    };
    let count = histories(1);
    // Steps enough that some are left when requests are held back.
    let plan = Plan { rows: 1, steps: 10, stretches: 1, ..PLAN };
    all_are_linearizable(&behind.instances, plan, (seed(), count), come_late).await;
    assert!(proxy.held() > 0, "nothing was held back");
    behind.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_oversells_is_found_out() {
    let store = TestStore::embedded().await;
    let base = seed();
    for bug in [Bug::Oversells, Bug::IsStale, Bug::Forgets] {
        let planted: Arc<dyn InventoryStore> = Planted::new(bug, store.store.clone(), base);
        let instances =
            [Instance::new("first", planted.clone()), Instance::new("second", planted.clone())];
        let mut found = None;
        for index in 0..ENOUGH {
            let mut random = Random(Random(base.wrapping_add(index)).next());
            let name = format!("{bug:?}{index}");
            let scene = play(&instances, PLAN, &name, &mut random, nothing_happens).await;
            found = check(&scene.recorder.recorded(), PLAN.units).err();
            if found.is_some() {
                println!("{bug:?}, history {index}: {}", found.as_deref().unwrap_or_default());
                break;
            }
        }
        assert!(found.is_some_and(|fault| !fault.contains("undecided")), "{bug:?}");
    }
}
