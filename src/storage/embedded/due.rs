//! What is due, on the embedded store: by shard, then by time.

use serde::{Deserialize, Serialize};

use super::engine::{Engine, Reader, StoredKey, Table};
use super::keys::Key;
use super::writer::Txn;
use crate::clock::Timestamp;
use crate::storage::{Due, DueRead, OpenError, StoreError, Task};

const DUE: &str = "due_by_slot";
const SWEPT: &str = "due_swept";
/// The only row of [`SWEPT`].
const ALL: &str = "all";

/// The tables of what is due.
#[derive(Clone)]
pub(crate) struct DueTables {
    due: Table,
    swept: Table,
}

/// A row of `due_swept`.
#[derive(Serialize, Deserialize)]
struct SweptRow {
    until: Timestamp,
}

fn key(due: &Due) -> Key {
    Key::new().int(due.shard().into()).int(due.at.micros()).text(&due.task.to_text())
}

impl DueTables {
    pub(super) fn open(engine: &Engine) -> Result<Self, OpenError> {
        Ok(Self { due: engine.table(DUE)?, swept: engine.table(SWEPT)? })
    }

    /// Notes it as part of another write.
    pub(crate) fn add_to(&self, txn: &mut Txn<'_>, due: &Due) -> Result<(), StoreError> {
        txn.put(&self.due, key(due), &(), None)
    }

    pub(super) async fn add(&self, engine: &Engine, due: &Due) -> Result<(), StoreError> {
        let (this, due) = (self.clone(), due.clone());
        engine.write(DUE, move |txn: &mut Txn<'_>| this.add_to(txn, &due)).await
    }

    pub(super) async fn remove(&self, engine: &Engine, due: &Due) -> Result<(), StoreError> {
        let (table, key) = (self.due.clone(), key(due));
        let write = move |txn: &mut Txn<'_>| {
            txn.delete(&table, key);
            Ok(())
        };
        engine.write(DUE, write).await
    }

    pub(super) async fn read(
        &self,
        engine: &Engine,
        shard: i8,
        (from, until): (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<DueRead, StoreError> {
        let table = self.due.clone();
        let read = move |reader: &Reader| {
            let bound = |micros: i64| Key::new().int(shard.into()).int(micros);
            let (lower, upper) = (bound(from.micros()), bound(until.micros().saturating_add(1)));
            let rows: Vec<(StoredKey, ())> =
                reader.range(&table, (&lower, &upper), false, limit)?;
            let due = |(key, ()): (StoredKey, ())| {
                Reader::parts(&table, &key, |parts| {
                    parts.int()?;
                    let at = Timestamp::from_micros(parts.int()?);
                    Some(Due { at, task: Task::parse(&parts.text()?)? })
                })
            };
            let due: Vec<Due> = rows.into_iter().map(due).collect::<Result<_, _>>()?;
            let until = due.last().filter(|_| due.len() >= limit).map_or(until, |last| last.at);
            Ok(DueRead { due, until })
        };
        engine.read(DUE, read).await
    }

    pub(super) async fn swept(&self, engine: &Engine) -> Result<Option<Timestamp>, StoreError> {
        let table = self.swept.clone();
        let read = move |reader: &Reader| reader.get::<SweptRow>(&table, &Key::new().text(ALL));
        Ok(engine.read(SWEPT, read).await?.map(|row| row.until))
    }

    pub(super) async fn set_swept(
        &self,
        engine: &Engine,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        let table = self.swept.clone();
        let write = move |txn: &mut Txn<'_>| {
            txn.put(&table, Key::new().text(ALL), &SweptRow { until }, None)
        };
        engine.write(SWEPT, write).await
    }
}
