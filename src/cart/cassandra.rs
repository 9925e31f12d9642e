//! Carts on Cassandra.

use std::time::Duration;

use async_trait::async_trait;
use scylla::DeserializeRow;
use scylla::serialize::value::SerializeValue;
use scylla::value::MaybeUnset;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::model::{
    CartLog, CartOwner, Change, Checkpoint, HandOver, KEPT, KeyNote, MAX_UNFOLDED, Operation,
};
use super::store::{CartStore, LogPlace};
use crate::clock::Timestamp;
use crate::storage::cassandra::{Access, Batch, CassandraStore, Statement, Statements, seconds};
use crate::storage::{OpenError, StoreError};

const BY_USER: &str = "carts_by_user";
const BY_SESSION: &str = "carts_by_session";
const BY_DAY: &str = "carts_by_day";
/// A shopper waits for these.
const READ: Duration = Duration::from_secs(2);
const WRITE: Duration = Duration::from_secs(2);
/// Seldom, and a conditional write for all data centres.
const RECORD: Duration = Duration::from_secs(4);

/// The parts of a cart, in the order of their rows.
const CHECKPOINT: i8 = 0;
const NOTE: i8 = 2;
/// Rows that are read at once: the checkpoint, and more operations than one usually leaves. It makes
/// one read of what would be two, one after the other.
const FIRST_ROWS: i32 = 17;
/// Operations that are read at once where those were not all.
const MORE_ROWS: i32 = 500;

/// Operations of one moment that are passed over at the most where a page of the history goes on.
/// There is hardly ever more than one.
const SAME_MOMENT: i32 = 64;

/// The prepared statements of carts.
pub struct CartStatements {
    by_user: CartTable,
    by_session: CartTable,
    list: Statement,
    listed: Statement,
}

/// The statements of one of the two tables of carts.
struct CartTable {
    first: Statement,
    operations: Statement,
    note: Statement,
    add: Statement,
    /// The checkpoint and notes that go with it.
    put: Batch,
    hand_over: Statement,
    record: Statement,
}

/// The two tables differ in the name of their first column alone.
macro_rules! prepare_table {
    ($statements:expr, $name:expr, $table:literal, $owner:literal) => {{
        let of = $statements;
        let prepare = |cql, access, timeout| of.prepare($name, cql, access, timeout);
        let add = prepare(
            concat!(
                "INSERT INTO ks.",
                $table,
                " (",
                $owner,
                ", part, at, operation_id, body) ",
                "VALUES (?, 1, ?, ?, ?) USING TTL ?"
            ),
            Access::WriteQuorum,
            WRITE,
        )
        .await?;
        CartTable {
            first: prepare(
                concat!(
                    "SELECT part, at, operation_id, body FROM ks.",
                    $table,
                    " WHERE ",
                    $owner,
                    " = ? AND part < 2 LIMIT ?"
                ),
                Access::ReadQuorum,
                READ,
            )
            .await?,
            operations: prepare(
                concat!(
                    "SELECT part, at, operation_id, body FROM ks.",
                    $table,
                    " WHERE ",
                    $owner,
                    " = ? AND part = 1 AND at <= ? LIMIT ?"
                ),
                Access::ReadQuorum,
                READ,
            )
            .await?,
            note: prepare(
                concat!(
                    "SELECT fingerprint FROM ks.",
                    $table,
                    " WHERE ",
                    $owner,
                    " = ? AND part = 2 AND at = 0 AND operation_id = ?"
                ),
                Access::ReadQuorum,
                READ,
            )
            .await?,
            add,
            // Of two checkpoints the one that covers more stays, whichever is written later.
            put: of.batch(
                prepare(
                    concat!(
                        "INSERT INTO ks.",
                        $table,
                        " (",
                        $owner,
                        ", part, at, operation_id, body, fingerprint) ",
                        "VALUES (?, ?, 0, ?, ?, ?) USING TTL ? AND TIMESTAMP ?"
                    ),
                    Access::WriteQuorum,
                    WRITE,
                )
                .await?,
            ),
            hand_over: prepare(
                concat!(
                    "SELECT body FROM ks.",
                    $table,
                    " WHERE ",
                    $owner,
                    " = ? AND part = 3 AND at = ? AND operation_id = ?"
                ),
                Access::ReadQuorum,
                READ,
            )
            .await?,
            record: prepare(
                concat!(
                    "INSERT INTO ks.",
                    $table,
                    " (",
                    $owner,
                    ", part, at, operation_id, body) ",
                    "VALUES (?, 3, ?, ?, ?) IF NOT EXISTS USING TTL ?"
                ),
                Access::ConditionalEverywhere,
                RECORD,
            )
            .await?,
        }
    }};
}

impl CartStatements {
    /// Prepares all of them.
    pub async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let prepare = |cql, access, timeout| statements.prepare(BY_DAY, cql, access, timeout);
        Ok(Self {
            by_user: prepare_table!(statements, BY_USER, "carts_by_user", "user_id"),
            by_session: prepare_table!(statements, BY_SESSION, "carts_by_session", "session_id"),
            list: prepare(
                "INSERT INTO ks.carts_by_day (day, shard, owner) VALUES (?, ?, ?) USING TTL ?",
                Access::WriteQuorum,
                WRITE,
            )
            .await?,
            listed: prepare(
                "SELECT owner FROM ks.carts_by_day \
                 WHERE day = ? AND shard = ? AND owner > ? LIMIT ?",
                Access::ReadOne,
                READ,
            )
            .await?,
        })
    }

    fn table(&self, owner: &CartOwner) -> &CartTable {
        match owner {
            CartOwner::User(_) => &self.by_user,
            CartOwner::Guest(_) => &self.by_session,
        }
    }
}

/// An owner as the first column of its table.
enum OwnerKey<'a> {
    User(&'a str),
    Guest(Uuid),
}

impl SerializeValue for OwnerKey<'_> {
    fn serialize<'b>(
        &self,
        typ: &scylla::cluster::metadata::ColumnType<'_>,
        writer: scylla::serialize::writers::CellWriter<'b>,
    ) -> Result<
        scylla::serialize::writers::WrittenCellProof<'b>,
        scylla::serialize::SerializationError,
    > {
        match self {
            Self::User(user) => SerializeValue::serialize(user, typ, writer),
            Self::Guest(session) => SerializeValue::serialize(session, typ, writer),
        }
    }
}

fn key(owner: &CartOwner) -> OwnerKey<'_> {
    match owner {
        CartOwner::User(user) => OwnerKey::User(user),
        CartOwner::Guest(session) => OwnerKey::Guest(*session),
    }
}

#[derive(DeserializeRow)]
struct LogRow {
    part: i8,
    at: i64,
    operation_id: Uuid,
    body: Option<String>,
}

fn write<T: Serialize>(statement: &Statement, body: &T) -> Result<String, StoreError> {
    serde_json::to_string(body).map_err(|error| statement.unexpected(&error))
}

fn read<T: DeserializeOwned>(statement: &Statement, body: Option<String>) -> Result<T, StoreError> {
    let body = body.ok_or_else(|| statement.unexpected(&"a row without its body"))?;
    serde_json::from_str(&body).map_err(|error| statement.unexpected(&error))
}

/// What of an operation is not part of its key.
#[derive(Serialize, Deserialize)]
struct Body<C> {
    is_keyed: bool,
    change: C,
}

impl<'a> Body<&'a Change> {
    fn of(operation: &'a Operation) -> Self {
        Self { is_keyed: operation.is_keyed, change: &operation.change }
    }
}

fn operation(statement: &Statement, row: LogRow) -> Result<Operation, StoreError> {
    let Body { is_keyed, change } = read(statement, row.body)?;
    Ok(Operation { id: row.operation_id, at: Timestamp::from_micros(row.at), is_keyed, change })
}

impl CartTable {
    /// Operations from a moment back, until one that is covered, or there are too many.
    async fn more(&self, owner: &CartOwner, log: &mut CartLog) -> Result<(), StoreError> {
        let until = log.checkpoint.as_ref().map(|checkpoint| checkpoint.until);
        while let Some(last) = log.operations.last().map(|operation| operation.at)
            && Some(last) > until
            && log.operations.len() <= MAX_UNFOLDED
        {
            let values = (key(owner), last.micros(), MORE_ROWS);
            let rows: Vec<LogRow> = self.operations.rows(values).await?;
            let found = rows.len();
            for row in rows {
                log.operations.push(operation(&self.operations, row)?);
            }
            // Those of the last moment come twice, which a fold does not mind.
            if found < usize::try_from(MORE_ROWS).unwrap_or(usize::MAX) {
                break;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl CartStore for CassandraStore {
    async fn cart_log(&self, owner: &CartOwner) -> Result<CartLog, StoreError> {
        let table = self.carts.table(owner);
        let rows: Vec<LogRow> = table.first.rows((key(owner), FIRST_ROWS)).await?;
        let is_all = rows.len() < usize::try_from(FIRST_ROWS).unwrap_or(usize::MAX);
        let mut log = CartLog::default();
        for row in rows {
            if row.part == CHECKPOINT {
                log.checkpoint = Some(read(&table.first, row.body)?);
                continue;
            }
            // From here on everything is covered.
            let until = log.checkpoint.as_ref().map(|checkpoint| checkpoint.until.micros());
            if Some(row.at) <= until {
                return Ok(log);
            }
            log.operations.push(operation(&table.first, row)?);
        }
        if !is_all {
            table.more(owner, &mut log).await?;
        }
        Ok(log)
    }

    async fn cart_note(&self, owner: &CartOwner, id: Uuid) -> Result<Option<KeyNote>, StoreError> {
        let row: Option<(i64,)> = self.carts.table(owner).note.first((key(owner), id)).await?;
        Ok(row.map(|(fingerprint,)| KeyNote { id, fingerprint }))
    }

    async fn add_to_cart(
        &self,
        owner: &CartOwner,
        operation: &Operation,
    ) -> Result<(), StoreError> {
        let table = self.carts.table(owner);
        let body = write(&table.add, &Body::of(operation))?;
        let values = (key(owner), operation.at.micros(), operation.id, body, seconds(KEPT));
        table.add.run(values).await.map(drop)
    }

    async fn put_checkpoint(
        &self,
        owner: &CartOwner,
        checkpoint: &Checkpoint,
        notes: &[KeyNote],
    ) -> Result<(), StoreError> {
        let table = self.carts.table(owner);
        let body = write(&table.add, checkpoint)?;
        let (life, at) = (seconds(KEPT), checkpoint.until.micros().max(1));
        let row = |part, id, body, fingerprint| (key(owner), part, id, body, fingerprint, life, at);
        let mut rows = vec![row(CHECKPOINT, Uuid::nil(), MaybeUnset::Set(body), MaybeUnset::Unset)];
        rows.extend(
            notes.iter().map(|note| {
                row(NOTE, note.id, MaybeUnset::Unset, MaybeUnset::Set(note.fingerprint))
            }),
        );
        table.put.run(rows).await
    }

    async fn record_hand_over(
        &self,
        guest: Uuid,
        hand_over: &HandOver,
    ) -> Result<HandOver, StoreError> {
        let record = &self.carts.by_session.record;
        let body = write(record, hand_over)?;
        let number = i64::from(hand_over.number);
        let values = (guest, number, Uuid::nil(), body, seconds(KEPT));
        if record.applied(values).await? {
            return Ok(hand_over.clone());
        }
        let there = self.hand_over(guest, hand_over.number).await?;
        there.ok_or_else(|| record.unexpected(&"a hand-over that is recorded and not there"))
    }

    async fn hand_over(&self, guest: Uuid, number: u32) -> Result<Option<HandOver>, StoreError> {
        let statement = &self.carts.by_session.hand_over;
        let values = (guest, i64::from(number), Uuid::nil());
        let row: Option<(Option<String>,)> = statement.first(values).await?;
        row.map(|(body,)| read(statement, body)).transpose()
    }

    async fn cart_history(
        &self,
        owner: &CartOwner,
        after: Option<LogPlace>,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError> {
        let statement = &self.carts.table(owner).operations;
        let from = after.map_or(i64::MAX, |(at, _)| at.micros());
        let rows = i32::try_from(limit).unwrap_or(MORE_ROWS).saturating_add(SAME_MOMENT);
        let rows: Vec<LogRow> = statement.rows((key(owner), from, rows)).await?;
        let place = |row: &LogRow| (Timestamp::from_micros(row.at), row.operation_id);
        let known = rows.iter().position(|row| Some(place(row)) == after);
        let rows = rows.into_iter().skip(known.map_or(0, |known| known + 1)).take(limit);
        rows.map(|row| operation(statement, row)).collect()
    }

    async fn list_cart(&self, day: i64, shard: i8, owner: &CartOwner) -> Result<(), StoreError> {
        let day = i32::try_from(day).unwrap_or(i32::MAX);
        let values = (day, shard, owner.to_string(), seconds(KEPT));
        self.carts.list.run(values).await.map(drop)
    }

    async fn listed_carts(
        &self,
        day: i64,
        shard: i8,
        after: Option<&CartOwner>,
        limit: usize,
    ) -> Result<Vec<CartOwner>, StoreError> {
        let day = i32::try_from(day).unwrap_or(i32::MAX);
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let after = after.map(ToString::to_string).unwrap_or_default();
        let statement = &self.carts.listed;
        let rows: Vec<(String,)> = statement.rows((day, shard, after, limit)).await?;
        let wrong = || statement.unexpected(&"an owner that is none");
        rows.into_iter().map(|(text,)| CartOwner::parse(&text).ok_or_else(wrong)).collect()
    }
}
