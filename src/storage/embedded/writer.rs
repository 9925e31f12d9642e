//! One writer for all tables: it runs writes one after another, so each may read before it
//! writes, and commits all that are waiting as one group with one sync to disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use fjall::{Database, PersistMode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::codec;
use super::engine::{Table, corrupt, failed};
use super::keys::Key;
use crate::clock::{Clock, Timestamp};
use crate::storage::StoreError;

/// Most writes that wait for the writer; one more is refused, for the caller to try again later.
const MAX_WAITING: usize = 16_384;
/// Most writes committed with one sync. It bounds how long the first of a group waits for the last.
const MAX_GROUP: usize = 1_024;

/// A write as the writer sees it: run it against the group, and get back what tells its caller.
type Job = Box<dyn FnOnce(&mut Txn<'_>) -> Finish + Send>;
/// Tells the caller of a write how the group's commit went.
type Finish = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// The handle of the writer's thread.
pub(super) struct Writer {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Set when a commit failed: what is on disk is then unknown, and no write is taken any more.
    broken: Arc<AtomicBool>,
}

impl Writer {
    pub(super) fn start(db: Database, clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let (jobs, waiting) = sync_channel(MAX_WAITING);
        let broken = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn({
            let broken = broken.clone();
            move || write_groups(&db, clock.as_ref(), &waiting, &broken)
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), broken })
    }

    pub(super) fn ready(&self) -> Result<(), StoreError> {
        if self.broken.load(Ordering::Acquire) {
            return Err(StoreError::Unavailable {
                call: "write",
                cause: "an earlier write to disk failed; restart to recover".to_owned(),
            });
        }
        Ok(())
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        write: impl FnOnce(&mut Txn<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ready()?;
        let (tell, told) = oneshot::channel();
        let job: Job = Box::new(move |txn| {
            let result = write(txn);
            if result.is_err() {
                txn.forget();
            }
            Box::new(move |committed| {
                // A caller that went away no longer wants to know.
                let _ = tell.send(committed.and(result));
            })
        });
        let gone = |cause: &str| StoreError::Unavailable { call: "write", cause: cause.to_owned() };
        let Some(jobs) = &self.jobs else { return Err(gone("the writer is stopping")) };
        jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => gone("too many writes are waiting"),
            TrySendError::Disconnected(_) => gone("the writer has stopped"),
        })?;
        told.await.unwrap_or_else(|_| Err(gone("the writer has stopped")))
    }
}

impl Drop for Writer {
    /// Lets the writer finish what it has taken, so that the folder is free when this returns.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_groups(db: &Database, clock: &dyn Clock, waiting: &Receiver<Job>, broken: &AtomicBool) {
    // Should a write panic, the thread ends with it, and whoever asks must learn that.
    let _guard = BrokenOnPanic(broken);
    while let Ok(first) = waiting.recv() {
        let mut group = Rows::default();
        let mut finish = Vec::new();
        let now = clock.now();
        for job in std::iter::once(first).chain(waiting.try_iter()).take(MAX_GROUP) {
            let mut txn = Txn { group: &group, now, own: Rows::default() };
            finish.push(job(&mut txn));
            let own = txn.own;
            group.extend(own);
        }
        let committed = commit(group, db);
        if committed.is_err() {
            broken.store(true, Ordering::Release);
        }
        for tell in finish {
            tell(committed.clone());
        }
    }
}

struct BrokenOnPanic<'a>(&'a AtomicBool);

impl Drop for BrokenOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// The bytes of a row; `None` is a row that is deleted.
type Value = Option<Vec<u8>>;

/// Rows that are written and not on disk yet, by table id and key.
type Rows = HashMap<(u64, Key), (Table, Value)>;

fn commit(rows: Rows, db: &Database) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut batch = db.batch().durability(Some(PersistMode::SyncData));
    for ((_, key), (table, value)) in rows {
        match value {
            Some(value) => batch.insert(&table.keyspace, key.as_bytes(), value),
            None => batch.remove(&table.keyspace, key.as_bytes()),
        }
    }
    batch.commit().map_err(|error| failed("commit", &error))
}

/// One write: sees the tables as all writes before it left them, and its own changes.
pub struct Txn<'a> {
    group: &'a Rows,
    now: Timestamp,
    own: Rows,
}

impl Txn<'_> {
    /// The moment of the write.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The row under a key as it is now, this write's own changes included.
    pub fn get<T: DeserializeOwned>(
        &self,
        table: &Table,
        key: &Key,
    ) -> Result<Option<T>, StoreError> {
        let decode =
            |bytes: &[u8]| codec::decode(bytes, self.now).map_err(|error| corrupt(table, &error));
        let place = (table.keyspace.id(), key.clone());
        if let Some((_, value)) = self.own.get(&place).or_else(|| self.group.get(&place)) {
            return value.as_deref().map_or(Ok(None), decode);
        }
        match table.keyspace.get(key.as_bytes()).map_err(|error| failed(table.name, &error))? {
            Some(bytes) => decode(&bytes),
            None => Ok(None),
        }
    }

    /// Whether there is a row under a key now.
    pub fn contains(&self, table: &Table, key: &Key) -> Result<bool, StoreError> {
        self.get::<serde::de::IgnoredAny>(table, key).map(|row| row.is_some())
    }

    /// Writes a row that lives until `until`, or for ever.
    pub fn put<T: Serialize>(
        &mut self,
        table: &Table,
        key: Key,
        row: &T,
        until: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let value = codec::encode(row, until).map_err(|error| corrupt(table, &error))?;
        self.own.insert((table.keyspace.id(), key), (table.clone(), Some(value)));
        Ok(())
    }

    /// Deletes a row.
    pub fn delete(&mut self, table: &Table, key: Key) {
        self.own.insert((table.keyspace.id(), key), (table.clone(), None));
    }

    fn forget(&mut self) {
        self.own.clear();
    }
}
