//! The engine under the embedded store: tables in one folder, writes through one writer (see
//! [`super::writer`]), reads beside it on threads that may block, short ones on the spot while they are
//! quick (see [`super::pace`]).

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

pub use fjall::Slice as StoredKey;
use fjall::compaction::filter::{CompactionFilter, Context, Factory, ItemAccessor, Verdict};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};
use serde::de::DeserializeOwned;

use super::codec::{self, CodecError};
use super::keys::{Key, KeyParts};
use super::pace::Pace;
use super::writer::{Txn, Writer};
use crate::clock::{Clock, Timestamp};
use crate::fault;
use crate::storage::{OpenError, StoreError};
use crate::telemetry::Metrics;

/// The format of the folder that this version writes. It grows when an older version could
/// misread what a newer one wrote.
///
/// 2: products have rows in the read models of their categories.
pub(super) const FORMAT: u32 = 2;
/// The table that holds the folder's own data.
const META: &str = "meta";
/// The row of [`META`] that holds the format.
const FORMAT_KEY: &str = "format";
/// Memory for blocks read from disk.
const CACHE_BYTES: u64 = 32 << 20;
/// Size at which a table's rows in memory are written out as a file.
const MEMTABLE_BYTES: u64 = 16 << 20;
/// Most bytes of journal before tables are written out to shorten it; bounds recovery time.
const JOURNAL_BYTES: u64 = 128 << 20;

/// Rows of a short read: no more work than the rest of a request is.
const SHORT: usize = 50;
/// Rows that there is room for before the first of a list is read: a page.
const USUAL_ROWS: usize = 32;

/// A table of the embedded store.
#[derive(Clone)]
pub struct Table {
    pub(super) keyspace: Keyspace,
    pub(super) name: &'static str,
}

/// Tables in a folder that this process alone has open.
pub struct Engine {
    db: Database,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    writer: Writer,
    pace: Pace,
    format: u32,
}

impl Engine {
    /// The format that the folder had when it was opened.
    pub(super) fn format(&self) -> u32 {
        self.format
    }

    /// Notes that the folder has the newest format now.
    pub(super) async fn set_format(&self) -> Result<(), StoreError> {
        let db = self.db.clone();
        let set = move || {
            let meta = db.keyspace(META, KeyspaceCreateOptions::default)?;
            meta.insert(FORMAT_KEY, FORMAT.to_be_bytes())?;
            db.persist(PersistMode::SyncAll)
        };
        let done = tokio::task::spawn_blocking(set).await;
        let ended = |cause: String| StoreError::Fault { call: "format", cause };
        done.map_err(|error| ended(error.to_string()))?.map_err(|error| failed("format", &error))
    }

    /// Opens the folder, made if it is not there.
    pub fn open(
        dir: &Path,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, OpenError> {
        let broken = |cause: String| OpenError::Broken { dir: dir.display().to_string(), cause };
        std::fs::create_dir_all(dir).map_err(|error| broken(error.to_string()))?;
        let sweeper = Arc::new(DropWhatIsOver(clock.clone()));
        let db = Database::builder(dir)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(JOURNAL_BYTES)
            // The writer decides when to sync: once for a group of writes.
            .manual_journal_persist(true)
            .with_compaction_filter_factories(Arc::new(move |_| Some(sweeper.clone())))
            .open()
            .map_err(|error| match error {
                fjall::Error::Locked => OpenError::InUse(dir.display().to_string()),
                fjall::Error::InvalidVersion(found) => OpenError::TooNew {
                    dir: dir.display().to_string(),
                    found: format!("{found:?}"),
                    known: FORMAT,
                },
                error => broken(error.to_string()),
            })?;
        let format = check_format(&db, dir, &broken)?;
        let writer = Writer::start(db.clone(), clock.clone())
            .map_err(|error| broken(format!("no thread for the writer: {error}")))?;
        let pace = Pace::new(Instant::now());
        Ok(Self { db, clock, metrics, writer, pace, format })
    }

    /// Opens a table, made if it is not there.
    pub fn table(&self, name: &'static str) -> Result<Table, OpenError> {
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let keyspace = self.db.keyspace(name, options).map_err(|error| OpenError::Broken {
            dir: name.to_owned(),
            cause: error.to_string(),
        })?;
        Ok(Table { keyspace, name })
    }

    /// Whether writes are still accepted: after a failed write to disk, none is.
    pub fn ready(&self) -> Result<(), StoreError> {
        self.writer.ready()
    }

    /// Runs `read` on a thread that may block. `table` names what is read, for the metrics.
    pub async fn read<T: Send + 'static>(
        &self,
        table: &'static str,
        read: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let started = Instant::now();
        let (db, now) = (self.db.clone(), self.clock.now());
        let done = tokio::task::spawn_blocking(move || Reader::run(&db, now, read)).await;
        let (result, lookups) = done.unwrap_or_else(|error| (Err(ended(&error)), 0));
        self.metrics.store_read(table, started, result.is_ok(), lookups);
        result
    }

    /// The same for what may be a short read, of so many rows at the most: if it is, on the spot, unless
    /// such reads have to wait for the disk.
    pub async fn look<T: Send + 'static>(
        &self,
        table: &'static str,
        rows: usize,
        read: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let started = Instant::now();
        if rows > SHORT || !self.pace.is_quick(started) {
            return self.read(table, read).await;
        }
        // Others have their turn first, as they would have if this had to wait. Else a request of short
        // reads would be over in one turn, and be in nobody's way at the door however many there are:
        // they would all be let in and queue behind each other, and buyers, who have many turns, with
        // them.
        tokio::task::yield_now().await;
        let begun = Instant::now();
        let run = || Reader::run(&self.db, self.clock.now(), read);
        // As on another thread: what panics ends this read and nothing else.
        let done = std::panic::catch_unwind(AssertUnwindSafe(run));
        let (result, lookups) = done.unwrap_or_else(|_| (Err(ended(&"it panicked")), 0));
        self.pace.note(begun, Instant::now());
        self.metrics.store_read(table, started, result.is_ok(), lookups);
        result
    }

    /// Runs `write` on the writer's thread, alone, and returns once its effect is on disk. All of
    /// it happens, or (on an error) nothing. `table` names what is written, for the metrics.
    pub async fn write<T: Send + 'static>(
        &self,
        table: &'static str,
        write: impl FnOnce(&mut Txn<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let started = Instant::now();
        fault::writes(table);
        let result = self.writer.run(write).await;
        fault::written(table);
        self.metrics.store_write(table, started, result.is_ok());
        result
    }
}

/// Reads tables as they are at one moment: whatever it reads, it sees all of a write or nothing.
pub struct Reader {
    now: Timestamp,
    snapshot: Snapshot,
    /// Keys and ranges that were looked up.
    lookups: Cell<u32>,
}

/// The error of a read that did not come to its end.
fn ended(cause: &impl std::fmt::Display) -> StoreError {
    StoreError::Fault { call: "read", cause: cause.to_string() }
}

impl Reader {
    /// Reads; answers also with how many keys and ranges were looked up.
    fn run<T>(
        db: &Database,
        now: Timestamp,
        read: impl FnOnce(&Self) -> Result<T, StoreError>,
    ) -> (Result<T, StoreError>, u32) {
        let reader = Self { now, snapshot: db.snapshot(), lookups: Cell::new(0) };
        let result = read(&reader);
        (result, reader.lookups.get())
    }

    /// The row under a key, unless its life is over.
    pub fn get<T: DeserializeOwned>(
        &self,
        table: &Table,
        key: &Key,
    ) -> Result<Option<T>, StoreError> {
        self.count();
        let bytes = self.snapshot.get(&table.keyspace, key.as_bytes());
        match bytes.map_err(|error| failed(table.name, &error))? {
            Some(bytes) => codec::decode(&bytes, self.now).map_err(|error| corrupt(table, &error)),
            None => Ok(None),
        }
    }

    /// The first `limit` rows whose keys begin with `prefix`, in key order, with their keys.
    pub fn scan<T: DeserializeOwned>(
        &self,
        table: &Table,
        prefix: &Key,
        limit: usize,
    ) -> Result<Vec<(StoredKey, T)>, StoreError> {
        self.count();
        self.take(table, self.snapshot.prefix(&table.keyspace, prefix.as_bytes()), limit)
    }

    /// The first `limit` rows between two keys, both left out, from either end, with their keys.
    pub fn range<T: DeserializeOwned>(
        &self,
        table: &Table,
        (lower, upper): (&Key, &Key),
        descending: bool,
        limit: usize,
    ) -> Result<Vec<(StoredKey, T)>, StoreError> {
        if lower >= upper {
            return Ok(Vec::new());
        }
        self.count();
        let bounds = (Bound::Excluded(lower.as_bytes()), Bound::Excluded(upper.as_bytes()));
        let rows = self.snapshot.range::<&[u8], _>(&table.keyspace, bounds);
        if descending { self.take(table, rows.rev(), limit) } else { self.take(table, rows, limit) }
    }

    fn take<T: DeserializeOwned>(
        &self,
        table: &Table,
        items: impl Iterator<Item = fjall::Guard>,
        limit: usize,
    ) -> Result<Vec<(StoredKey, T)>, StoreError> {
        let mut rows = Vec::with_capacity(limit.min(USUAL_ROWS));
        for item in items {
            if rows.len() == limit {
                break;
            }
            let (key, value) = item.into_inner().map_err(|error| failed(table.name, &error))?;
            match codec::decode(&value, self.now) {
                Ok(Some(row)) => rows.push((key, row)),
                Ok(None) => {}
                Err(error) => return Err(corrupt(table, &error)),
            }
        }
        Ok(rows)
    }

    fn count(&self) {
        self.lookups.set(self.lookups.get().saturating_add(1));
    }

    /// The first text of a stored key.
    pub fn text<'k>(table: &Table, key: &'k [u8]) -> Result<Cow<'k, str>, StoreError> {
        Self::parts(table, key, KeyParts::text)
    }

    /// What `parts` finds in a stored key.
    pub fn parts<'k, T>(
        table: &Table,
        key: &'k [u8],
        parts: impl FnOnce(&mut KeyParts<'k>) -> Option<T>,
    ) -> Result<T, StoreError> {
        parts(&mut KeyParts::new(key)).ok_or_else(|| StoreError::Fault {
            call: table.name,
            cause: "a key that this version did not write".to_owned(),
        })
    }
}

pub(super) fn failed(call: &'static str, error: &fjall::Error) -> StoreError {
    StoreError::Unavailable { call, cause: error.to_string() }
}

pub(super) fn corrupt(table: &Table, error: &CodecError) -> StoreError {
    StoreError::Fault { call: table.name, cause: error.to_string() }
}

/// The format of the folder. Refuses a newer one than ours and marks a new folder with ours.
fn check_format(
    db: &Database,
    dir: &Path,
    broken: &impl Fn(String) -> OpenError,
) -> Result<u32, OpenError> {
    let io = |error: fjall::Error| broken(error.to_string());
    let meta = db.keyspace(META, KeyspaceCreateOptions::default).map_err(io)?;
    let Some(bytes) = meta.get(FORMAT_KEY).map_err(io)? else {
        meta.insert(FORMAT_KEY, FORMAT.to_be_bytes()).map_err(io)?;
        db.persist(PersistMode::SyncAll).map_err(io)?;
        return Ok(FORMAT);
    };
    match <[u8; 4]>::try_from(bytes.as_ref()).map(u32::from_be_bytes) {
        Ok(found) if found <= FORMAT => Ok(found),
        Ok(found) => Err(OpenError::TooNew {
            dir: dir.display().to_string(),
            found: found.to_string(),
            known: FORMAT,
        }),
        Err(_) => Err(broken("its format cannot be read".to_owned())),
    }
}

/// Removes rows whose life is over when their file is rewritten anyway. Readers never see them
/// before that either: this only gives the space back.
struct DropWhatIsOver(Arc<dyn Clock>);

impl Factory for DropWhatIsOver {
    fn name(&self) -> &'static str {
        "drop-what-is-over"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(DropBefore(self.0.now()))
    }
}

struct DropBefore(Timestamp);

impl CompactionFilter for DropBefore {
    fn filter_item(
        &mut self,
        item: ItemAccessor<'_>,
        _: &Context,
    ) -> fjall::compaction::filter::CompactionFilterResult {
        let over = codec::is_over(&item.value()?, self.0);
        Ok(if over { Verdict::Remove } else { Verdict::Keep })
    }
}
