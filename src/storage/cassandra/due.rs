//! What is due, on Cassandra: a partition for each minute and shard, so that who looks for what is
//! due now does not wade through what was removed before.

use std::time::Duration;

use super::statement::{Access, Statement, Statements};
use crate::clock::Timestamp;
use crate::storage::{Due, DueRead, OpenError, StoreError, Task};

const TABLE: &str = "due_by_slot";
const SWEPT: &str = "due_swept";
const TIMEOUT: Duration = Duration::from_secs(2);
/// The time of one partition, in microseconds.
const SLOT_MICROS: i64 = 60_000_000;
/// Most partitions that are read by one call.
const MAX_SLOTS: i32 = 30;

pub(super) struct DueStatements {
    add: Statement,
    remove: Statement,
    read: Statement,
    swept: Statement,
    set_swept: Statement,
}

fn slot(at: Timestamp) -> i32 {
    i32::try_from(at.micros().div_euclid(SLOT_MICROS)).unwrap_or(i32::MAX)
}

impl DueStatements {
    pub(super) async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let prepare = |cql, access| statements.prepare(TABLE, cql, access, TIMEOUT);
        let swept = |cql, access| statements.prepare(SWEPT, cql, access, TIMEOUT);
        Ok(Self {
            add: prepare(
                "INSERT INTO ks.due_by_slot (slot, shard, at, task) VALUES (?, ?, ?, ?)",
                Access::WriteQuorum,
            )
            .await?,
            remove: prepare(
                "DELETE FROM ks.due_by_slot WHERE slot = ? AND shard = ? AND at = ? AND task = ?",
                Access::WriteQuorum,
            )
            .await?,
            read: prepare(
                "SELECT at, task FROM ks.due_by_slot \
                 WHERE slot = ? AND shard = ? AND at >= ? AND at <= ? LIMIT ?",
                Access::ReadQuorum,
            )
            .await?,
            swept: swept("SELECT until FROM ks.due_swept WHERE name = 'all'", Access::ReadQuorum)
                .await?,
            set_swept: swept(
                "INSERT INTO ks.due_swept (name, until) VALUES ('all', ?)",
                Access::WriteQuorum,
            )
            .await?,
        })
    }

    pub(super) async fn add(&self, due: &Due) -> Result<(), StoreError> {
        let values = (slot(due.at), due.shard(), due.at.micros(), due.task.to_text());
        self.add.run(values).await.map(drop)
    }

    pub(super) async fn remove(&self, due: &Due) -> Result<(), StoreError> {
        let values = (slot(due.at), due.shard(), due.at.micros(), due.task.to_text());
        self.remove.run(values).await.map(drop)
    }

    pub(super) async fn read(
        &self,
        shard: i8,
        (from, until): (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<DueRead, StoreError> {
        let last = slot(until).min(slot(from).saturating_add(MAX_SLOTS));
        let mut found = Vec::new();
        for slot in slot(from)..=last {
            let rows = i32::try_from(limit - found.len()).unwrap_or(i32::MAX);
            let values = (slot, shard, from.micros(), until.micros(), rows);
            for (at, text) in self.read.rows::<(i64, String)>(values).await? {
                let wrong = || self.read.unexpected(&"a task that this version does not know");
                let task = Task::parse(&text).ok_or_else(wrong)?;
                found.push(Due { at: Timestamp::from_micros(at), task });
            }
            if found.len() >= limit {
                break;
            }
        }
        let until = match found.last() {
            Some(last) if found.len() >= limit => last.at,
            // The end of the last partition that was read.
            _ => until.min(Timestamp::from_micros((i64::from(last) + 1) * SLOT_MICROS - 1)),
        };
        Ok(DueRead { due: found, until })
    }

    pub(super) async fn swept(&self) -> Result<Option<Timestamp>, StoreError> {
        let row: Option<(i64,)> = self.swept.first(()).await?;
        Ok(row.map(|(until,)| Timestamp::from_micros(until)))
    }

    pub(super) async fn set_swept(&self, until: Timestamp) -> Result<(), StoreError> {
        self.set_swept.run((until.micros(),)).await.map(drop)
    }
}
