//! Carts on Cassandra.

use std::hash::Hash;
use std::time::Duration;

use async_trait::async_trait;
use foldhash::{HashMap, HashMapExt};
use scylla::DeserializeRow;
use scylla::deserialize::value::DeserializeValue;
use scylla::serialize::value::SerializeValue;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::model::{CartLog, Change, Checkpoint, HandOver, KEPT, KeyNote, MAX_LOG_ROWS, Operation};
use super::store::{CartStore, LogPlace};
use crate::clock::Timestamp;
use crate::owner::Owner;
use crate::storage::cassandra::{
    Access, Batch, CassandraStore, Reads, Statement, Statements, seconds,
};
use crate::storage::{OpenError, StoreError};

const BY_USER: &str = "carts_by_user";
const BY_SESSION: &str = "carts_by_session";
const BY_DAY: &str = "carts_by_day";
/// A shopper waits for these.
const READ: Duration = Duration::from_secs(2);
const WRITE: Duration = Duration::from_secs(2);
/// Seldom, and a conditional write for all data centres.
const RECORD: Duration = Duration::from_secs(4);

/// The parts of a cart, in the order of their rows: 0 is the checkpoint, 1 what was handed over, 2
/// operations, 3 notes.
const CHECKPOINT: i8 = 0;
const HAND_OVER: i8 = 1;
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
    first_of_several: Statement,
    operations: Statement,
    hand_overs: Statement,
    note: Statement,
    add: Statement,
    add_notes: Batch,
    checkpoint: Statement,
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
                "VALUES (?, 2, ?, ?, ?) USING TTL ?"
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
                    " = ? AND part < 3 LIMIT ?"
                ),
                Access::ReadQuorum,
                READ,
            )
            .await?,
            first_of_several: prepare(
                concat!(
                    "SELECT ",
                    $owner,
                    ", part, at, operation_id, body FROM ks.",
                    $table,
                    " WHERE ",
                    $owner,
                    " IN ? AND part < 3 PER PARTITION LIMIT ?"
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
                    " = ? AND part = 2 AND at <= ? AND at > ? LIMIT ?"
                ),
                Access::ReadQuorum,
                READ,
            )
            .await?,
            hand_overs: prepare(
                concat!(
                    "SELECT part, at, operation_id, body FROM ks.",
                    $table,
                    " WHERE ",
                    $owner,
                    " = ? AND part = 1 LIMIT ?"
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
                    " = ? AND part = 3 AND at = 0 AND operation_id = ?"
                ),
                Access::ReadQuorum,
                READ,
            )
            .await?,
            add,
            add_notes: of.batch(
                prepare(
                    concat!(
                        "INSERT INTO ks.",
                        $table,
                        " (",
                        $owner,
                        ", part, at, operation_id, fingerprint) ",
                        "VALUES (?, 3, 0, ?, ?) USING TTL ?"
                    ),
                    Access::WriteQuorum,
                    WRITE,
                )
                .await?,
            ),
            // Of two checkpoints the one that covers more stays, whichever is written later.
            checkpoint: prepare(
                concat!(
                    "INSERT INTO ks.",
                    $table,
                    " (",
                    $owner,
                    ", part, at, operation_id, body) ",
                    "VALUES (?, 0, 0, ?, ?) USING TTL ? AND TIMESTAMP ?"
                ),
                Access::WriteQuorum,
                WRITE,
            )
            .await?,
            record: prepare(
                concat!(
                    "INSERT INTO ks.",
                    $table,
                    " (",
                    $owner,
                    ", part, at, operation_id, body) ",
                    "VALUES (?, 1, ?, ?, ?) IF NOT EXISTS USING TTL ?"
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
                Access::ReadQuorum,
                READ,
            )
            .await?,
        })
    }

    fn table(&self, owner: &Owner) -> &CartTable {
        match owner {
            Owner::User(_) => &self.by_user,
            Owner::Guest(_) => &self.by_session,
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

fn key(owner: &Owner) -> OwnerKey<'_> {
    match owner {
        Owner::User(user) => OwnerKey::User(user),
        Owner::Guest(session) => OwnerKey::Guest(*session),
    }
}

/// A row of a log.
#[derive(Clone, DeserializeRow)]
pub struct LogRow {
    part: i8,
    at: i64,
    operation_id: Uuid,
    body: Option<String>,
}

fn read<T: DeserializeOwned>(statement: &Statement, body: Option<String>) -> Result<T, StoreError> {
    let body = body.ok_or_else(|| statement.unexpected(&"a row without its body"))?;
    statement.of_json(&body)
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

fn hand_over(statement: &Statement, owner: &Owner, row: LogRow) -> Result<Operation, StoreError> {
    let Owner::Guest(guest) = owner else {
        return Err(statement.unexpected(&"a hand-over of a customer's cart"));
    };
    read(statement, row.body).map(|hand_over: HandOver| hand_over.operation(*guest))
}

/// A row of a log after its owner.
type OwnedRow<O> = (O, i8, i64, Uuid, Option<String>);

impl CartTable {
    /// The first rows of several logs.
    async fn first_of_several<O>(
        &self,
        owners: &[impl SerializeValue],
    ) -> Result<HashMap<O, Vec<LogRow>>, StoreError>
    where
        O: Eq + Hash + for<'frame, 'metadata> DeserializeValue<'frame, 'metadata>,
    {
        let mut logs: HashMap<O, Vec<LogRow>> = HashMap::with_capacity(owners.len());
        if owners.is_empty() {
            return Ok(logs);
        }
        let statement = &self.first_of_several;
        let rows: Vec<OwnedRow<O>> = statement.rows_for((owners, FIRST_ROWS), owners.len()).await?;
        for (owner, part, at, operation_id, body) in rows {
            logs.entry(owner).or_default().push(LogRow { part, at, operation_id, body });
        }
        Ok(logs)
    }

    /// The operations that were not among the first rows and are not covered.
    async fn more(
        &self,
        owner: &Owner,
        mut from: i64,
        log: &mut CartLog,
    ) -> Result<(), StoreError> {
        let until = log.checkpoint.as_ref().map_or(i64::MIN, |there| there.until.micros());
        while log.operations.len() <= MAX_LOG_ROWS {
            let values = (key(owner), from, until, MORE_ROWS);
            let rows: Vec<LogRow> = self.operations.rows(values).await?;
            let found = rows.len();
            let begin = from;
            for row in rows {
                // It begins with the moment where the rows before ended.
                let mut before = log.operations.iter().rev();
                if row.at == begin && before.any(|there| there.id == row.operation_id) {
                    continue;
                }
                from = row.at;
                log.operations.push(operation(&self.operations, row)?);
            }
            if found < usize::try_from(MORE_ROWS).unwrap_or(usize::MAX) {
                return Ok(());
            }
        }
        Err(self.operations.unexpected(&"a log that is too long to be read"))
    }
}

impl Reads for CartStatements {
    type Key = Owner;
    /// The first rows of a log.
    type Row = Vec<LogRow>;

    async fn one(&self, owner: &Owner) -> Result<Vec<LogRow>, StoreError> {
        self.table(owner).first.rows((key(owner), FIRST_ROWS)).await
    }

    async fn several(&self, owners: &[Owner]) -> Result<Vec<Vec<LogRow>>, StoreError> {
        let (mut users, mut guests) = (Vec::new(), Vec::new());
        for owner in owners {
            match owner {
                Owner::User(user) => users.push(&**user),
                Owner::Guest(session) => guests.push(*session),
            }
        }
        let of_users = self.by_user.first_of_several::<String>(&users);
        let of_guests = self.by_session.first_of_several::<Uuid>(&guests);
        let (mut of_users, mut of_guests) = tokio::try_join!(of_users, of_guests)?;
        let rows = owners.iter().map(|owner| match owner {
            Owner::User(user) => of_users.remove(&**user),
            Owner::Guest(session) => of_guests.remove(session),
        });
        Ok(rows.map(Option::unwrap_or_default).collect())
    }
}

#[async_trait]
impl CartStore for CassandraStore {
    async fn cart_log(&self, owner: &Owner) -> Result<CartLog, StoreError> {
        let table = self.carts.table(owner);
        let rows = self.cart_logs.read(owner).await?;
        let is_all = rows.len() < usize::try_from(FIRST_ROWS).unwrap_or(usize::MAX);
        let (mut log, mut last) = (CartLog::default(), i64::MAX);
        for row in rows {
            match row.part {
                CHECKPOINT => log.checkpoint = Some(read(&table.first, row.body)?),
                HAND_OVER => log.operations.push(hand_over(&table.first, owner, row)?),
                _ => {
                    let until = log.checkpoint.as_ref().map(|there| there.until.micros());
                    if Some(row.at) <= until {
                        // From here on everything is covered.
                        return Ok(log);
                    }
                    last = row.at;
                    log.operations.push(operation(&table.first, row)?);
                }
            }
        }
        if !is_all {
            if last == i64::MAX {
                // More hand-overs than were read at once.
                let most = i32::try_from(MAX_LOG_ROWS).unwrap_or(i32::MAX);
                log.operations.clear();
                for row in table.hand_overs.rows::<LogRow>((key(owner), most)).await? {
                    log.operations.push(hand_over(&table.hand_overs, owner, row)?);
                }
            }
            table.more(owner, last, &mut log).await?;
        }
        Ok(log)
    }

    async fn cart_note(&self, owner: &Owner, id: Uuid) -> Result<Option<KeyNote>, StoreError> {
        let row: Option<(i64,)> = self.carts.table(owner).note.first((key(owner), id)).await?;
        Ok(row.map(|(fingerprint,)| KeyNote { id, fingerprint }))
    }

    async fn add_to_cart(&self, owner: &Owner, operation: &Operation) -> Result<(), StoreError> {
        let table = self.carts.table(owner);
        let body = table.add.to_json(&Body::of(operation))?;
        let values = (key(owner), operation.at.micros(), operation.id, body, seconds(KEPT));
        table.add.run(values).await.map(drop)
    }

    async fn put_checkpoint(
        &self,
        owner: &Owner,
        checkpoint: &Checkpoint,
        notes: &[KeyNote],
    ) -> Result<(), StoreError> {
        let table = self.carts.table(owner);
        let life = seconds(KEPT);
        if !notes.is_empty() {
            let note = |note: &KeyNote| (key(owner), note.id, note.fingerprint, life);
            table.add_notes.run(notes.iter().map(note).collect()).await?;
        }
        let body = table.checkpoint.to_json(checkpoint)?;
        let values = (key(owner), Uuid::nil(), body, life, checkpoint.until.micros().max(1));
        table.checkpoint.run(values).await.map(drop)
    }

    async fn record_hand_over(&self, guest: Uuid, hand_over: &HandOver) -> Result<(), StoreError> {
        let record = &self.carts.by_session.record;
        let body = record.to_json(hand_over)?;
        let values = (guest, i64::from(hand_over.number), Uuid::nil(), body, seconds(KEPT));
        record.applied(values).await.map(drop)
    }

    async fn cart_history(
        &self,
        owner: &Owner,
        after: Option<LogPlace>,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError> {
        let statement = &self.carts.table(owner).operations;
        let from = after.map_or(i64::MAX, |(at, _)| at.micros());
        let rows = i32::try_from(limit).unwrap_or(MORE_ROWS).saturating_add(SAME_MOMENT);
        let rows: Vec<LogRow> = statement.rows((key(owner), from, i64::MIN, rows)).await?;
        let place = |row: &LogRow| (Timestamp::from_micros(row.at), row.operation_id);
        let known = rows.iter().position(|row| Some(place(row)) == after);
        let rows = rows.into_iter().skip(known.map_or(0, |known| known + 1)).take(limit);
        rows.map(|row| operation(statement, row)).collect()
    }

    async fn list_cart(&self, day: i64, shard: i8, owner: &Owner) -> Result<(), StoreError> {
        let day = i32::try_from(day).unwrap_or(i32::MAX);
        let values = (day, shard, owner.to_string(), seconds(KEPT));
        self.carts.list.run(values).await.map(drop)
    }

    async fn listed_carts(
        &self,
        day: i64,
        shard: i8,
        after: Option<&Owner>,
        limit: usize,
    ) -> Result<Vec<Owner>, StoreError> {
        let day = i32::try_from(day).unwrap_or(i32::MAX);
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let after = after.map(ToString::to_string).unwrap_or_default();
        let statement = &self.carts.listed;
        let rows: Vec<(String,)> = statement.rows((day, shard, after, limit)).await?;
        let wrong = || statement.unexpected(&"an owner that is none");
        rows.into_iter().map(|(text,)| Owner::parse(&text).ok_or_else(wrong)).collect()
    }
}
