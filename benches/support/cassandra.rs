//! The same card on Cassandra, beside a loop that only runs its prepared statement.
//!
//! It is measured with one request at a time and with all connections busy, because the driver
//! puts what is under way at once into few writes and wake-ups: the loop, which has nothing else to
//! do, then spends several times less on each execution.

use std::time::Duration;

use vitrina::config::StoreConfig;
use vitrina::storage;

use super::database::Database;
use super::figures::{Variant, print_variants};
use super::http;
use super::requests::{Kind, Requests};
use super::roles::SHOP;
use super::worker::{Role, Worker, folder, schedule};
use super::{Result, Settings, unless_stopped};

/// The variable that names the cluster, as for the tests.
const CLUSTER: &str = "VITRINA_TEST_CASSANDRA";
/// Dropping a keyspace waits for all nodes to agree.
const DROP_WITHIN: Duration = Duration::from_secs(60);

/// Copies of each row: one for each node that is named, up to what a shop has.
const MAX_COPIES: usize = 3;

/// What a store is, for a heading.
pub(super) fn kind(store: &str) -> String {
    match store.rsplit_once("rf=") {
        Some((_, "1")) => "Cassandra, one copy".to_owned(),
        Some((_, copies)) => format!("Cassandra, {copies} copies"),
        None => "Embedded store".to_owned(),
    }
}

/// Measures and prints, if there is a cluster; says loudly if there is none.
pub(crate) async fn run(settings: &Settings) -> Result<()> {
    with_keyspace(async |store| measure(store, settings).await).await
}

/// Does something with a store in a keyspace of its own, if there is a cluster, and drops it
/// afterwards; says loudly if there is none.
pub(crate) async fn with_keyspace(work: impl AsyncFnOnce(&str) -> Result<()>) -> Result<()> {
    with_keyspaces(async |[store]: [&str; 1]| work(store).await).await
}

/// The same with several stores.
pub(crate) async fn with_keyspaces<const N: usize>(
    work: impl AsyncFnOnce([&str; N]) -> Result<()>,
) -> Result<()> {
    let nodes = std::env::var(CLUSTER).unwrap_or_default();
    if nodes.is_empty() {
        println!("*** NOT MEASURED: Cassandra. Set {CLUSTER} to host:port of a node in dc1. ***\n");
        return Ok(());
    }
    let copies = nodes.split(',').count().min(MAX_COPIES);
    let keyspaces: [String; N] =
        std::array::from_fn(|_| format!("bench_{}", uuid::Uuid::new_v4().simple()));
    let stores = keyspaces
        .each_ref()
        .map(|keyspace| format!("cassandra://{nodes}/{keyspace}?dc=dc1&rf={copies}"));
    let all = stores.each_ref().map(String::as_str);
    let work = Database::aside(all[0], unless_stopped(work(all)));
    let mut done = work.await;
    // Whatever happened, the cluster is left as it was found.
    for (store, keyspace) in stores.iter().zip(&keyspaces) {
        done = done.and(drop_keyspace(store, keyspace).await);
    }
    done
}

async fn measure(store: &str, settings: &Settings) -> Result<()> {
    let folder = folder()?;
    // The first one makes and fills the tables that the second one reads.
    let shop = Worker::start(Role::Serve, store, folder.path()).await?;
    let mut driver = Worker::start(Role::Drive, store, folder.path()).await?;
    let mut connections = http::connect(shop.address(0)?, settings.connections).await?;
    let requests = Requests::new(Kind::Card, SHOP);
    let mut loads = vec![1, settings.connections];
    loads.dedup();
    for at_once in loads {
        let mut variants = [
            Variant::new("the driver alone, prepared statement", 0),
            Variant::new("card over HTTP, repeated document", 0),
        ];
        for (time, counts) in schedule(settings) {
            let rounds = [
                driver.executions(at_once, time).await?,
                shop.requests(&mut connections[..at_once], &requests, time).await?,
            ];
            if counts {
                for (variant, round) in variants.iter_mut().zip(rounds) {
                    variant.rounds.push(round);
                }
            }
        }
        let load = settings.describe(at_once);
        print_variants(&format!("Cassandra, one copy, 2,000 products ({load})"), &variants);
    }
    Ok(())
}

async fn drop_keyspace(store: &str, keyspace: &str) -> Result<()> {
    let StoreConfig::Cassandra(config) = StoreConfig::parse(store)? else {
        return Ok(());
    };
    let dropped = async {
        let session = storage::cassandra::connect(&config).await?;
        session.query_unpaged(format!("DROP KEYSPACE IF EXISTS \"{keyspace}\""), ()).await?;
        Ok(())
    };
    tokio::time::timeout(DROP_WITHIN, dropped).await?
}
