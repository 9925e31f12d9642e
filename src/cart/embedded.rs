//! Carts on the embedded store.

use async_trait::async_trait;
use uuid::Uuid;

use super::model::{
    CHECKPOINT_AFTER, CartLog, Checkpoint, HandOver, KEPT, KeyNote, MAX_LOG_ROWS, Operation,
};
use super::store::{CartStore, LogPlace};
use crate::owner::Owner;
use crate::storage::embedded::{EmbeddedStore, Engine, Key, Reader, StoredKey, Table, Txn};
use crate::storage::{OpenError, StoreError};

const BY_USER: &str = "carts_by_user";
const BY_SESSION: &str = "carts_by_session";
const BY_DAY: &str = "carts_by_day";

/// The parts of a cart, in the order of their keys.
const CHECKPOINT: i64 = 0;
const OPERATION: i64 = 1;
const NOTE: i64 = 2;
const HAND_OVER: i64 = 3;

/// The tables of carts.
#[derive(Clone)]
pub struct CartTables {
    users: Table,
    guests: Table,
    days: Table,
}

impl CartTables {
    /// Opens the tables, made if they are not there.
    pub fn open(engine: &Engine) -> Result<Self, OpenError> {
        Ok(Self {
            users: engine.table(BY_USER)?,
            guests: engine.table(BY_SESSION)?,
            days: engine.table(BY_DAY)?,
        })
    }

    /// The table of a cart, its name, and how the keys of a part of it begin.
    fn part(&self, owner: &Owner, part: i64) -> (Table, &'static str, Key) {
        let (table, name, key) = match owner {
            Owner::User(user) => (&self.users, BY_USER, Key::new().text(user)),
            Owner::Guest(session) => {
                (&self.guests, BY_SESSION, Key::new().text(&session.simple().to_string()))
            }
        };
        (table.clone(), name, key.int(part))
    }
}

/// Newest first.
fn place_key(part: &Key, (at, id): LogPlace) -> Key {
    part.clone().int(at.micros().saturating_neg()).text(&id.simple().to_string())
}

fn note_key(part: &Key, id: Uuid) -> Key {
    part.clone().text(&id.simple().to_string())
}

fn values<T>(rows: Vec<(StoredKey, T)>) -> Vec<T> {
    rows.into_iter().map(|(_, value)| value).collect()
}

fn too_long(call: &'static str) -> StoreError {
    StoreError::Fault { call, cause: "a log that is too long to be read".to_owned() }
}

#[async_trait]
impl CartStore for EmbeddedStore {
    async fn cart_log(&self, owner: &Owner) -> Result<CartLog, StoreError> {
        let (table, name, checkpoint) = self.carts.part(owner, CHECKPOINT);
        let (_, _, part) = self.carts.part(owner, OPERATION);
        let hand_overs = match owner {
            Owner::Guest(guest) => Some((*guest, self.carts.part(owner, HAND_OVER).2)),
            Owner::User(_) => None,
        };
        let read = move |reader: &Reader| {
            let checkpoint: Option<Checkpoint> = reader.get(&table, &checkpoint)?;
            let most = MAX_LOG_ROWS + 1;
            let rows: Vec<(StoredKey, Operation)> = match &checkpoint {
                None => reader.scan(&table, &part, most)?,
                Some(checkpoint) => {
                    let covered = part.clone().int(checkpoint.until.micros().saturating_neg());
                    reader.range(&table, (&part, &covered), false, most)?
                }
            };
            if rows.len() > MAX_LOG_ROWS {
                return Err(too_long(name));
            }
            let mut operations = values(rows);
            if let Some((guest, part)) = hand_overs {
                let records: Vec<(StoredKey, HandOver)> =
                    reader.scan(&table, &part, MAX_LOG_ROWS)?;
                operations.extend(values(records).into_iter().map(|one| one.operation(guest)));
            }
            Ok(CartLog { checkpoint, operations })
        };
        // Nearly always a checkpoint and a few operations.
        self.engine.look(name, CHECKPOINT_AFTER, read).await
    }

    async fn cart_note(&self, owner: &Owner, id: Uuid) -> Result<Option<KeyNote>, StoreError> {
        let (table, name, part) = self.carts.part(owner, NOTE);
        let key = note_key(&part, id);
        self.engine.look(name, 1, move |reader: &Reader| reader.get(&table, &key)).await
    }

    async fn add_to_cart(&self, owner: &Owner, operation: &Operation) -> Result<(), StoreError> {
        let (table, name, part) = self.carts.part(owner, OPERATION);
        let operation = operation.clone();
        let write = move |txn: &mut Txn<'_>| {
            let until = Some(operation.at.after(KEPT));
            txn.put(&table, place_key(&part, (operation.at, operation.id)), &operation, until)
        };
        self.engine.write(name, write).await
    }

    async fn put_checkpoint(
        &self,
        owner: &Owner,
        checkpoint: &Checkpoint,
        notes: &[KeyNote],
    ) -> Result<(), StoreError> {
        let (table, name, key) = self.carts.part(owner, CHECKPOINT);
        let (_, _, part) = self.carts.part(owner, NOTE);
        let (checkpoint, notes) = (checkpoint.clone(), notes.to_vec());
        let write = move |txn: &mut Txn<'_>| {
            let there: Option<Checkpoint> = txn.get(&table, &key)?;
            if there.is_some_and(|there| there.until > checkpoint.until) {
                return Ok(());
            }
            let until = Some(checkpoint.written_at.after(KEPT));
            for note in notes {
                txn.put(&table, note_key(&part, note.id), &note, until)?;
            }
            txn.put(&table, key, &checkpoint, until)
        };
        self.engine.write(name, write).await
    }

    async fn record_hand_over(&self, guest: Uuid, hand_over: &HandOver) -> Result<(), StoreError> {
        let (table, name, part) = self.carts.part(&Owner::Guest(guest), HAND_OVER);
        let hand_over = hand_over.clone();
        let write = move |txn: &mut Txn<'_>| {
            let key = part.int(hand_over.number.into());
            if txn.contains(&table, &key)? {
                return Ok(());
            }
            txn.put(&table, key, &hand_over, Some(hand_over.at.after(KEPT)))
        };
        self.engine.write(name, write).await
    }

    async fn cart_history(
        &self,
        owner: &Owner,
        after: Option<LogPlace>,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError> {
        let (table, name, part) = self.carts.part(owner, OPERATION);
        let (_, _, end) = self.carts.part(owner, OPERATION + 1);
        let read = move |reader: &Reader| {
            let begin = after.map_or_else(|| part.clone(), |place| place_key(&part, place));
            reader.range(&table, (&begin, &end), false, limit).map(values)
        };
        self.engine.read(name, read).await
    }

    async fn list_cart(&self, day: i64, shard: i8, owner: &Owner) -> Result<(), StoreError> {
        let (table, owner) = (self.carts.days.clone(), owner.to_string());
        let write = move |txn: &mut Txn<'_>| {
            let key = Key::new().int(day).int(shard.into()).text(&owner);
            let until = Some(txn.now().after(KEPT));
            txn.put(&table, key, &(), until)
        };
        self.engine.write(BY_DAY, write).await
    }

    async fn listed_carts(
        &self,
        day: i64,
        shard: i8,
        after: Option<&Owner>,
        limit: usize,
    ) -> Result<Vec<Owner>, StoreError> {
        let table = self.carts.days.clone();
        let part = Key::new().int(day).int(shard.into());
        let begin = after.map_or(part.clone(), |owner| part.clone().text(&owner.to_string()));
        let end = Key::new().int(day).int(i64::from(shard) + 1);
        let read = move |reader: &Reader| {
            let rows: Vec<(StoredKey, ())> = reader.range(&table, (&begin, &end), false, limit)?;
            let owner = |(key, ()): (StoredKey, ())| {
                Reader::parts(&table, &key, |parts| {
                    parts.int()?;
                    parts.int()?;
                    Owner::parse(&parts.text()?)
                })
            };
            rows.into_iter().map(owner).collect()
        };
        self.engine.read(BY_DAY, read).await
    }
}
