//! The embedded engine: life times, conditional writes, groups, locks and formats.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use vitrina::clock::{ManualClock, SystemClock, Timestamp};
use vitrina::storage::embedded::{Engine, Key, Table};
use vitrina::storage::{OpenError, StoreError};
use vitrina::telemetry::Metrics;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn open(dir: &std::path::Path, clock: &Arc<ManualClock>) -> Result<Engine, OpenError> {
    Engine::open(dir, clock.clone(), Arc::new(Metrics::default()))
}

fn key(text: &str) -> Key {
    Key::new().text(text)
}

async fn get(engine: &Engine, table: &Table, text: &str) -> Option<u64> {
    let (table, key) = (table.clone(), key(text));
    engine.read("numbers", move |reader| reader.get(&table, &key)).await.unwrap()
}

/// Adds one to a number: a write that depends on what it reads.
async fn add_one(engine: &Engine, table: &Table, text: &str) -> Result<u64, StoreError> {
    let (table, key) = (table.clone(), key(text));
    let add = engine.write("numbers", move |txn| {
        let next = txn.get::<u64>(&table, &key)?.unwrap_or(0) + 1;
        txn.put(&table, key, &next, None)?;
        Ok(next)
    });
    add.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_read_first_lose_nothing_however_many_run_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START));
    let engine = open(dir.path(), &clock).unwrap();
    let table = engine.table("numbers").unwrap();
    let all = join_all((0..500).map(|_| add_one(&engine, &table, "n"))).await;
    let mut seen: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=500).collect::<Vec<_>>());
    // A table keeps its folder open as the engine does.
    drop((engine, table));
    let engine = open(dir.path(), &clock).unwrap();
    let table = engine.table("numbers").unwrap();
    assert_eq!(get(&engine, &table, "n").await, Some(500));
}

#[tokio::test]
async fn a_write_that_fails_leaves_nothing_and_its_neighbours_everything() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), &Arc::new(ManualClock::new(START))).unwrap();
    let table = engine.table("numbers").unwrap();
    let failing = {
        let table = table.clone();
        engine.write("numbers", move |txn| {
            txn.put(&table, key("n"), &1_000_u64, None)?;
            txn.put(&table, key("m"), &1_000_u64, None)?;
            assert_eq!(txn.get::<u64>(&table, &key("n"))?, Some(1_000), "sees its own changes");
            Err::<(), _>(StoreError::Fault { call: "test", cause: "on purpose".to_owned() })
        })
    };
    let (one, failed, two) =
        tokio::join!(add_one(&engine, &table, "n"), failing, add_one(&engine, &table, "n"));
    assert_eq!((one.unwrap(), two.unwrap()), (1, 2));
    assert!(matches!(failed, Err(StoreError::Fault { .. })));
    assert_eq!(get(&engine, &table, "m").await, None);
}

#[tokio::test]
async fn what_is_over_is_not_served_nor_seen_by_a_write() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START));
    let engine = open(dir.path(), &clock).unwrap();
    let table = engine.table("numbers").unwrap();
    let until = Timestamp::from_micros(START.micros() + 1_000_000);
    let put = {
        let table = table.clone();
        move |txn: &mut vitrina::storage::embedded::Txn<'_>| {
            txn.put(&table, key("short"), &7_u64, Some(until))?;
            txn.put(&table, key("long"), &8_u64, None)
        }
    };
    engine.write("numbers", put).await.unwrap();
    clock.advance(Duration::from_micros(999_999));
    assert_eq!(get(&engine, &table, "short").await, Some(7));
    clock.advance(Duration::from_micros(1));
    assert_eq!(get(&engine, &table, "short").await, None);
    assert_eq!(get(&engine, &table, "long").await, Some(8));
    let rows = {
        let table = table.clone();
        engine.read("numbers", move |reader| reader.scan::<u64>(&table, &Key::new(), 10)).await
    };
    assert_eq!(rows.unwrap().into_iter().map(|(_, row)| row).collect::<Vec<_>>(), [8]);
    assert_eq!(add_one(&engine, &table, "short").await.unwrap(), 1, "starts anew");
}

#[tokio::test]
async fn a_folder_in_use_is_refused_and_free_again_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(START));
    let first = open(dir.path(), &clock).unwrap();
    assert!(matches!(open(dir.path(), &clock), Err(OpenError::InUse(_))));
    drop(first);
    open(dir.path(), &clock).unwrap();
}

#[test]
fn a_folder_of_a_newer_version_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(Engine::open(dir.path(), Arc::new(SystemClock), Arc::new(Metrics::default())).unwrap());
    {
        // What a later version would have written.
        let db = fjall::Database::builder(dir.path()).open().unwrap();
        let meta = db.keyspace("meta", fjall::KeyspaceCreateOptions::default).unwrap();
        meta.insert("format", 99_u32.to_be_bytes()).unwrap();
        db.persist(fjall::PersistMode::SyncAll).unwrap();
    }
    for _ in 0..2 {
        let opened = Engine::open(dir.path(), Arc::new(SystemClock), Arc::new(Metrics::default()));
        match opened.map(drop) {
            Err(OpenError::TooNew { found, .. }) => assert_eq!(found, "99"),
            other => panic!("{other:?}"),
        }
    }
}
