//! Many requests for one row, one conditional write.
//!
//! A conditional write on one row does not get faster when more of them wait for it: they only get
//! into each other's way. So in each process a row that is asked for has one writer. It takes all
//! requests that wait, lets [`decide`] say what becomes of them, and writes the outcome at once,
//! on the condition that the row is still of the version that it was decided on. While that is
//! under way, the next requests gather.
//!
//! # When the reply is lost
//!
//! The write may have happened, or may yet happen. The row is read so that whatever was under way
//! is settled, and the same requests are decided again on what was found: those that had happened
//! have left their tokens in the row and are told so; the others are written on the condition of
//! the version found. Should the lost write come to life after all, one of the two conditions fails.
//! As long as the row is of the version that a lost write was for, nobody is told anything that is
//! not written: where there is nothing to write, the version alone is.
//!
//! # When other processes write the row too
//!
//! They take turns, each for many rounds; see [`super::turns`]. Those who wait have their requests
//! carried out by the one whose turn it is; see [`super::errands`]. One that dies holds the others up
//! for a moment and nothing else.

mod waiting;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use uuid::Uuid;

use super::super::model::{Ask, Round, StockKey, StockLevel, StockRow, Told, decide};
use super::super::store::InventoryStore;
use super::errands::{Errands, asks};
use super::turns::{Turns, about};
use crate::chance;
use crate::clock::Clock;
use crate::error::Error;
use crate::storage::StoreError;
use crate::telemetry::StockCounters;

/// Most buyers of one round, and as many others. It bounds what one write carries, and so how long
/// it takes.
const MAX_ROUND: usize = 1_000;
/// Most buyers that wait for one row, and as many others; one more is refused, for its caller to try
/// again later.
const MAX_WAITING: usize = 20_000;
/// Most rows that are written at once, or remembered between two writes.
const MAX_ROWS: usize = 50_000;
/// The longest a request waits: shorter than a client's own patience, longer than one lost reply
/// takes to be settled.
const MAX_WAIT: Duration = Duration::from_secs(4);
/// How long a row is remembered after its last write, so that the next one needs no read.
const REMEMBER: Duration = Duration::from_secs(1);
/// After a round of at least so many, those who ask again at once are let come before the next one
/// begins; else they would be cut into two rounds that each take as long as one …
const CROWD: usize = 8;
/// … as long as others have something to do, and so often at the most.
const MAX_YIELDS: usize = 64;
/// How long a process whose turn it is waits for somebody to come before it lets others have it.
const TURN_LINGER: Duration = Duration::from_millis(5);
/// The pause after a store that did not answer, about; it doubles up to [`MAX_FAILED_PAUSE`].
const FAILED_PAUSE: Duration = Duration::from_millis(20);
/// The longest such pause.
const MAX_FAILED_PAUSE: Duration = Duration::from_millis(500);

/// What is told whenever a row has changed: before those who changed it.
/// With the change comes a moment before it was made.
pub(super) type OnChange = Box<dyn Fn(&StockKey, StockLevel, Instant) + Send + Sync>;

/// The writers of all rows.
pub(super) struct Combiner {
    shared: Arc<Shared>,
    /// Whether requests for a row wait for each other; see [`Combiner::apart`].
    combines: bool,
}

struct Shared {
    store: Arc<dyn InventoryStore>,
    clock: Arc<dyn Clock>,
    counters: StockCounters,
    on_change: OnChange,
    rows: Mutex<HashMap<StockKey, Arc<Queue>>>,
}

/// Those who wait for one row.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Lines>,
    came: Notify,
}

/// Buyers stand apart from everybody else: a row that is full is waited for by those who buy, and
/// must not be kept full by them.
#[derive(Default)]
struct Lines {
    others: VecDeque<Waiting>,
    buyers: VecDeque<Waiting>,
}

impl Lines {
    fn len(&self) -> usize {
        self.others.len() + self.buyers.len()
    }

    fn line_of(&mut self, ask: &Ask) -> &mut VecDeque<Waiting> {
        if matches!(ask, Ask::Reserve(..)) { &mut self.buyers } else { &mut self.others }
    }
}

pub(super) struct Waiting {
    ask: Ask,
    until: Instant,
    tell: oneshot::Sender<Result<Told, Error>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Combiner {
    pub(super) fn new(
        store: Arc<dyn InventoryStore>,
        clock: Arc<dyn Clock>,
        counters: StockCounters,
        on_change: OnChange,
    ) -> Self {
        let rows = Mutex::default();
        let shared = Arc::new(Shared { store, clock, counters, on_change, rows });
        Self { shared, combines: true }
    }

    /// The same with a conditional write for each request, to measure what combining is worth.
    pub(super) fn apart(self) -> Self {
        Self { combines: false, ..self }
    }

    /// Asks a row for a change and waits for what becomes of it. An error says nothing of whether
    /// it happened; asking again with the same token does.
    pub(super) async fn ask(&self, key: &StockKey, ask: Ask) -> Result<Told, Error> {
        let until = Instant::now() + MAX_WAIT;
        let (tell, told) = oneshot::channel();
        self.enqueue(key, Waiting { ask, until, tell })?;
        match timeout_at(until, told).await {
            Ok(Ok(told)) => told,
            // The writer of the row has panicked.
            Ok(Err(_)) => Err(Error::Internal),
            Err(_) => Err(Error::Timeout),
        }
    }

    fn enqueue(&self, key: &StockKey, waiting: Waiting) -> Result<(), Error> {
        let mut rows = lock(&self.shared.rows);
        if let Some(queue) = rows.get(key).filter(|_| self.combines) {
            let mut queued = lock(&queue.waiting);
            let line = queued.line_of(&waiting.ask);
            if line.len() >= MAX_WAITING {
                return Err(Error::Unavailable);
            }
            line.push_back(waiting);
            queue.came.notify_one();
            return Ok(());
        }
        if rows.len() >= MAX_ROWS {
            return Err(Error::Unavailable);
        }
        let queue = Arc::new(Queue::default());
        lock(&queue.waiting).line_of(&waiting.ask).push_back(waiting);
        if self.combines {
            rows.insert(key.clone(), queue.clone());
        }
        drop(rows);
        let writer = Writer {
            row: Row { key: key.clone(), queue, shared: self.shared.clone() },
            known: None,
            turns: Turns::new(chance::id()),
            errands: Errands::default(),
            number: 0,
            failures: 0,
            doubt: None,
            told: 0,
            last_round: 0,
        };
        tokio::spawn(writer.run());
        Ok(())
    }
}

/// A row that is being written. Dropped, also by a panic, it lets the next request begin anew.
struct Row {
    key: StockKey,
    queue: Arc<Queue>,
    shared: Arc<Shared>,
}

impl Drop for Row {
    fn drop(&mut self) {
        let mut rows = lock(&self.shared.rows);
        if rows.get(&self.key).is_some_and(|queue| Arc::ptr_eq(queue, &self.queue)) {
            rows.remove(&self.key);
        }
    }
}

/// The row as this process knows it.
struct Known {
    row: Option<StockRow>,
    /// Whether it was read after the requests of this round had come.
    is_fresh: bool,
}

/// A write whose reply was lost. It may still come to life, until the row is of another version than
/// it was for.
#[derive(Clone, Copy)]
enum Doubt {
    /// It was for this version; `None`: that there is no row.
    At(Option<i64>),
    /// Another writer's, for no later version than the one that is read next.
    Before,
}

/// Writes one row for all who ask for it.
struct Writer {
    row: Row,
    known: Option<Known>,
    turns: Turns,
    errands: Errands,
    /// The number of this writer's last errand.
    number: i64,
    failures: u32,
    doubt: Option<Doubt>,
    /// The newest version that was told of.
    told: i64,
    /// Requests of the last round.
    last_round: usize,
}

impl Writer {
    async fn run(mut self) {
        loop {
            if self.known.is_none() && self.turns.has_company() {
                self.wait().await;
            }
            self.let_them_come().await;
            let batch = self.gather();
            self.last_round = batch.len();
            if !batch.is_empty() {
                self.round(batch).await;
                continue;
            }
            let has_turn = self.has_turn();
            let patience = if has_turn { TURN_LINGER } else { REMEMBER };
            let came = timeout(patience, self.row.queue.came.notified()).await;
            if came.is_ok() {
                continue;
            }
            if self.doubt.is_some() {
                self.settle_doubt().await;
            } else if has_turn {
                self.end_turn().await;
            } else if self.retire() {
                let Self { row: Row { key, shared, .. }, turns, .. } = &mut self;
                turns.leave(shared.store.as_ref(), key).await;
                return;
            }
        }
    }

    /// Gives those who were just answered the chance to ask again.
    async fn let_them_come(&self) {
        if self.last_round < CROWD {
            return;
        }
        for _ in 0..MAX_YIELDS {
            if lock(&self.row.queue.waiting).len() >= self.last_round {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Whether the others believe that it is this process's turn.
    fn has_turn(&self) -> bool {
        let row = self.known.as_ref().and_then(|known| known.row.as_ref());
        row.is_some_and(|row| row.turn == Some(self.turns.me()))
    }

    /// Nobody here wants the row: says so to the others.
    async fn end_turn(&mut self) {
        let Some(Known { row: Some(row), .. }) = self.known.take() else { return };
        self.turns.end();
        let (store, key) = (self.row.shared.store.clone(), self.row.key.clone());
        let turn = self.turns.successor(store.as_ref(), &key).await;
        // If one of them fails, the others find out by themselves.
        self.touch(Some(row), turn).await;
        self.turns.leave(store.as_ref(), &key).await;
    }

    /// Writes a row as it is, with a new version: a write that was lost cannot happen any more.
    /// Answers whether it was written.
    async fn touch(&mut self, row: Option<StockRow>, turn: Option<Uuid>) -> bool {
        let expected = row.as_ref().map(|row| row.level.version);
        let updated_at = self.row.shared.clock.now().to_millis_precision();
        let mut row = row.unwrap_or_else(|| StockRow {
            level: StockLevel { quantity: 0, reserved: 0, version: 0, updated_at },
            marks: BTreeMap::new(),
            turn: None,
        });
        row.level.version += 1;
        row.turn = turn;
        let since = Instant::now();
        let written = self.row.shared.store.change_stock(&self.row.key, expected, &row).await;
        let is_written = matches!(written, Ok(true));
        if is_written {
            self.doubt = None;
            self.turns.won(row.level.version);
            self.changed(row.level, since);
            self.known = Some(Known { row: Some(row), is_fresh: false });
        } else if written.is_err() {
            self.doubt = Some(Doubt::At(expected));
        }
        is_written
    }

    /// Nobody waits, but a lost write may still come to life.
    async fn settle_doubt(&mut self) {
        let read = self.row.shared.store.settled_stock_row(&self.row.key).await;
        if let Ok(row) = read
            && self.is_doubtful(row.as_ref())
        {
            self.touch(row, None).await;
        }
    }

    /// Whether a lost write may still come to life, given the row as it was read.
    fn is_doubtful(&mut self, row: Option<&StockRow>) -> bool {
        let version = row.map(|row| row.level.version);
        self.doubt = match self.doubt {
            Some(Doubt::At(expected)) if expected != version => None,
            Some(_) => Some(Doubt::At(version)),
            None => None,
        };
        self.doubt.is_some()
    }

    /// Tells of a level, if it is newer than what was told before.
    fn changed(&mut self, level: StockLevel, since: Instant) {
        if level.version > self.told {
            self.told = level.version;
            (self.row.shared.on_change)(&self.row.key, level, since);
        }
    }

    /// Ends, unless somebody has come meanwhile.
    fn retire(&self) -> bool {
        // With the rows locked nobody can come; the row itself goes with its writer.
        let mut rows = lock(&self.row.shared.rows);
        let is_idle = lock(&self.row.queue.waiting).len() == 0;
        if is_idle && rows.get(&self.row.key).is_some_and(|one| Arc::ptr_eq(one, &self.row.queue)) {
            rows.remove(&self.row.key);
        }
        is_idle
    }

    /// Those who wait, in the order they came; without those who have gone away or are too late.
    fn gather(&self) -> Vec<Waiting> {
        let now = Instant::now();
        let mut batch = Vec::new();
        let mut queued = lock(&self.row.queue.waiting);
        let Lines { others, buyers } = &mut *queued;
        for line in [others, buyers] {
            let full = batch.len() + MAX_ROUND;
            while batch.len() < full
                && let Some(waiting) = line.pop_front()
            {
                if waiting.until <= now {
                    let _ = waiting.tell.send(Err(Error::Timeout));
                } else if !waiting.tell.is_closed() {
                    batch.push(waiting);
                }
            }
        }
        batch
    }

    /// Puts those who could not be served back to where they were.
    fn put_back(&self, batch: Vec<Waiting>) {
        let mut queued = lock(&self.row.queue.waiting);
        for waiting in batch.into_iter().rev() {
            queued.line_of(&waiting.ask).push_front(waiting);
        }
    }

    async fn round(&mut self, batch: Vec<Waiting>) {
        let since = Instant::now();
        let known = match self.known.take() {
            Some(known) => known,
            None => match self.row.shared.store.stock_row(&self.row.key).await {
                Ok(row) => {
                    self.turns.saw(row.as_ref().map_or(0, |row| row.level.version));
                    Known { row, is_fresh: true }
                }
                Err(error) => return self.failed(batch, &error).await,
            },
        };
        let (store, key) = (self.row.shared.store.clone(), self.row.key.clone());
        let errands = if self.turns.has_company() {
            // Not before the version is known: see the module of errands.
            self.errands.wanted(store.as_ref(), &key, self.turns.me()).await
        } else {
            Vec::new()
        };
        let now = self.row.shared.clock.now();
        let own = batch.iter().map(|waiting| &waiting.ask);
        let Round { mut told, after } = decide(known.row.as_ref(), own.chain(asks(&errands)), now);
        let errands_told = told.split_off(batch.len());
        let Some(mut after) = after else {
            if self.is_doubtful(known.row.as_ref()) {
                self.put_back(batch);
                if !self.touch(known.row, None).await {
                    sleep(about(FAILED_PAUSE)).await;
                }
            } else if known.is_fresh {
                if let Some(row) = &known.row {
                    self.changed(row.level, since);
                }
                self.known = Some(Known { is_fresh: false, ..known });
                self.answer(batch, told).await;
                // Read before they were: they are not to be refused by it.
                self.errands.report(&store, &key, &errands, None);
            } else {
                // Nobody is refused by what may be out of date: the next round reads.
                self.put_back(batch);
            }
            return;
        };
        let expected = known.row.as_ref().map(|row| row.level.version);
        after.turn = self.turns.next(store.as_ref(), &key).await;
        match store.change_stock(&key, expected, &after).await {
            Ok(true) => {
                self.row.shared.counters.round(batch.len() + errands_told.len());
                self.errands.report(&store, &key, &errands, Some((after.level, &errands_told)));
                self.changed(after.level, since);
                (self.failures, self.doubt) = (0, None);
                self.turns.won(after.level.version);
                // If it is another's turn now, that one will have written it.
                let is_mine = after.turn.is_none_or(|turn| turn == self.turns.me());
                self.known = is_mine.then_some(Known { row: Some(after), is_fresh: false });
                self.answer(batch, told).await;
            }
            Ok(false) => {
                self.row.shared.counters.lost();
                self.put_back(batch);
                self.turns.lost().await;
            }
            Err(StoreError::Fault { call, cause }) => {
                tracing::error!(row = %key, call, cause, "a row of stock cannot be written");
                self.doubt = Some(Doubt::At(expected));
                for waiting in batch {
                    let _ = waiting.tell.send(Err(Error::Internal));
                }
            }
            Err(error) => {
                self.row.shared.counters.doubt();
                self.doubt = Some(Doubt::At(expected));
                tracing::warn!(row = %key, %error, "a change of stock was not answered");
                match store.settled_stock_row(&key).await {
                    Ok(row) => {
                        // Others may join the round that follows: to them it is not fresh.
                        self.known = Some(Known { row, is_fresh: false });
                        self.put_back(batch);
                    }
                    Err(error) => self.failed(batch, &error).await,
                }
            }
        }
    }

    /// Tells everybody; who found the row full waits for the next round.
    async fn answer(&mut self, batch: Vec<Waiting>, told: Vec<Told>) {
        let mut full = Vec::new();
        for (waiting, told) in batch.into_iter().zip(told) {
            if told == Told::Full {
                full.push(waiting);
            } else {
                // A caller that went away no longer wants to know.
                let _ = waiting.tell.send(Ok(told));
            }
        }
        if !full.is_empty() {
            self.put_back(full);
            sleep(FAILED_PAUSE).await;
        }
    }

    async fn failed(&mut self, batch: Vec<Waiting>, error: &StoreError) {
        self.put_back(batch);
        let pause = FAILED_PAUSE.saturating_mul(1 << self.failures.min(5)).min(MAX_FAILED_PAUSE);
        self.failures += 1;
        tracing::warn!(row = %self.row.key, %error, "a row of stock cannot be read");
        sleep(about(pause)).await;
    }
}
