//! Loaders: what many resolvers of one request ask for one by one is read in one round.
//!
//! async-graphql's own loader gathers keys for a time and then loads; a timer has a grain of a
//! millisecond, which is longer than a read takes. Here nothing waits: the request's task runs all
//! resolvers as far as they go, and when none can go on every key of the round is known. Then the
//! round is read, in the same task. See [`Rounds::drive`].

use std::hash::Hash;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use foldhash::{HashMap, HashMapExt};
use futures_util::future::{BoxFuture, poll_fn};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::oneshot;

use super::events::Turn;
use crate::error::Error;
use crate::telemetry::OperationStats;
use crate::wakes::{OwnTurns, OwnWakes};

/// Reads many rows at once for a [`Loader`].
#[async_trait]
pub trait Fetch: Send + Sync + 'static {
    /// What a row is asked for by.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// The row.
    type Row: Clone + Send + Sync + 'static;

    /// The rows with these keys, in their order, all different; `None` where there is none.
    async fn fetch(&self, keys: &[Self::Key]) -> Result<Vec<Option<Self::Row>>, Error>;
}

type Answer<T> = Result<Option<T>, Error>;

struct Entry<T> {
    progress: Progress<T>,
    /// Whether a resolver has asked for it, and not only somebody who foresaw that one would.
    is_asked_for: bool,
}

enum Progress<T> {
    Loading(Vec<oneshot::Sender<Answer<T>>>),
    Loaded(Answer<T>),
}

impl<T: Clone> Progress<T> {
    /// The answer, or something to wait for it with.
    fn ask(&mut self) -> Asked<T> {
        match self {
            Self::Loaded(answer) => Asked::Known(answer.clone()),
            Self::Loading(waiting) => {
                let (tell, told) = oneshot::channel();
                waiting.push(tell);
                Asked::Waiting(told)
            }
        }
    }
}

/// Rows that were foreseen.
#[must_use]
pub struct Foreseen<T>(Option<oneshot::Receiver<Answer<T>>>);

impl<T> Foreseen<T> {
    /// Waits until they have been read, so that they are [known](Loader::known).
    pub async fn read(self) {
        if let Some(told) = self.0 {
            // What became of it is seen by those who ask.
            let _ = told.await;
        }
    }
}

struct State<F: Fetch> {
    entries: HashMap<F::Key, Entry<F::Row>>,
    /// Keys of the round that is being gathered.
    round: Vec<F::Key>,
    /// The age of [`Rounds`] that all of this belongs to.
    age: u64,
}

/// Loads rows for one request, or one event of a subscription: each key is read once, however
/// often it is asked for.
pub struct Loader<F: Fetch> {
    shared: Arc<Shared<F>>,
    rounds: Arc<Rounds>,
}

struct Shared<F: Fetch> {
    fetch: F,
    state: Mutex<State<F>>,
}

impl<F: Fetch> Loader<F> {
    /// A loader for the request that `rounds` drives.
    pub fn new(fetch: F, rounds: &Arc<Rounds>) -> Self {
        let state = State { entries: HashMap::new(), round: Vec::new(), age: rounds.age() };
        Self {
            shared: Arc::new(Shared { fetch, state: Mutex::new(state) }),
            rounds: rounds.clone(),
        }
    }

    /// The row with this key.
    pub async fn load(&self, key: F::Key) -> Answer<F::Row> {
        match self.ask(key) {
            Asked::Known(answer) => answer,
            // The sender goes away unanswered only if the fetch panicked.
            Asked::Waiting(answer) => answer.await.unwrap_or(Err(Error::Internal)),
        }
    }

    /// The rows with these keys, in their order.
    pub async fn load_many(
        &self,
        keys: impl IntoIterator<Item = F::Key>,
    ) -> Result<Vec<Option<F::Row>>, Error> {
        // All are asked for before the first is awaited, so that they are of one round.
        let asked: Vec<_> = keys.into_iter().map(|key| self.ask(key)).collect();
        let mut rows = Vec::with_capacity(asked.len());
        for one in asked {
            rows.push(match one {
                Asked::Known(answer) => answer?,
                Asked::Waiting(answer) => answer.await.unwrap_or(Err(Error::Internal))?,
            });
        }
        Ok(rows)
    }

    /// Has rows read with those that are asked for now, because somebody will ask for them when
    /// there is one of those.
    pub fn foresee(&self, keys: impl IntoIterator<Item = F::Key>) -> Foreseen<F::Row> {
        let mut state = self.state();
        let mut last = None;
        for key in keys {
            self.enter(&mut state, key.clone());
            last = Some(key);
        }
        // All that are new are of one round, and told of at once.
        let entry = last.and_then(|key| state.entries.get_mut(&key));
        Foreseen(match entry.map(|entry| entry.progress.ask()) {
            Some(Asked::Waiting(told)) => Some(told),
            Some(Asked::Known(_)) | None => None,
        })
    }

    /// The row with this key if it has been read without a fault; `None` if somebody would have to
    /// wait for it, or to be told why there is none. It is not counted as a hit: what is made of it may
    /// have to be made once more.
    pub fn known(&self, key: &F::Key) -> Option<Option<F::Row>> {
        match &self.state().entries.get(key)?.progress {
            Progress::Loaded(answer) => answer.clone().ok(),
            Progress::Loading(_) => None,
        }
    }

    fn ask(&self, key: F::Key) -> Asked<F::Row> {
        let mut state = self.state();
        let entry = self.enter(&mut state, key);
        if std::mem::replace(&mut entry.is_asked_for, true) {
            OperationStats::cache_hit();
        }
        entry.progress.ask()
    }

    /// What is known in the present age.
    fn state(&self) -> MutexGuard<'_, State<F>> {
        let mut state = lock(&self.shared.state);
        let age = self.rounds.age();
        if state.age != age {
            state.age = age;
            state.entries.clear();
            state.round.clear();
        }
        state
    }

    /// The entry of a key, which is read with the next round if it is new.
    fn enter<'s>(&self, state: &'s mut State<F>, key: F::Key) -> &'s mut Entry<F::Row> {
        let State { entries, round, .. } = state;
        entries.entry(key).or_insert_with_key(|key| {
            round.push(key.clone());
            if round.len() == 1 {
                self.rounds.add(Box::pin(read_round(self.shared.clone())));
            }
            Entry { progress: Progress::Loading(Vec::new()), is_asked_for: false }
        })
    }
}

enum Asked<T> {
    Known(Answer<T>),
    Waiting(oneshot::Receiver<Answer<T>>),
}

async fn read_round<F: Fetch>(shared: Arc<Shared<F>>) {
    let keys = std::mem::take(&mut lock(&shared.state).round);
    let answers = shared.fetch.fetch(&keys).await;
    let mut state = lock(&shared.state);
    let answers: Vec<Answer<F::Row>> = match answers {
        Ok(rows) => rows.into_iter().map(Ok).collect(),
        Err(error) => keys.iter().map(|_| Err(error.clone())).collect(),
    };
    for (key, answer) in keys.into_iter().zip(answers) {
        // Gone if the loader had to forget meanwhile.
        let Some(entry) = state.entries.get_mut(&key) else { continue };
        let before = std::mem::replace(&mut entry.progress, Progress::Loaded(answer.clone()));
        if let Progress::Loading(waiting) = before {
            for tell in waiting {
                // A resolver that was dropped no longer wants to know.
                let _ = tell.send(answer.clone());
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rounds of one request that are waiting to be read.
#[derive(Default)]
pub struct Rounds {
    waiting: Mutex<Vec<BoxFuture<'static, ()>>>,
    /// How often the loaders had to forget.
    age: AtomicU64,
    turn: Turn,
}

impl Rounds {
    fn add(&self, round: BoxFuture<'static, ()>) {
        lock(&self.waiting).push(round);
    }

    fn age(&self) -> u64 {
        self.age.load(Ordering::Relaxed)
    }

    /// Whether the operation waits for an event.
    pub fn turn(&self) -> &Turn {
        &self.turn
    }

    /// Has all loaders forget what they have read, and what they were about to.
    pub(super) fn forget(&self) {
        lock(&self.waiting).clear();
        self.age.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs `request`; whenever it can go no further by itself, reads the rounds it asked for.
    pub async fn drive<R: Future>(&self, request: R) -> R::Output {
        let mut request = pin!(request);
        let mut reading = FuturesUnordered::new();
        let mut own = OwnWakes::default();
        poll_fn(|context| {
            let (wakes, waker) = own.of(context);
            let mut turns = OwnTurns::default();
            loop {
                wakes.begin();
                if let Poll::Ready(output) = request.as_mut().poll(&mut Context::from_waker(waker))
                {
                    return Poll::Ready(output);
                }
                // The executor does not run all objects of a long list at once, but some and then, after
                // a word to its task, others: not all keys of the round are known before it is silent.
                if !wakes.is_woken() {
                    reading.extend(std::mem::take(&mut *lock(&self.waiting)));
                    match reading.poll_next_unpin(context) {
                        // A round has been read: resolvers can go on.
                        Poll::Ready(Some(())) => continue,
                        Poll::Ready(None) | Poll::Pending if wakes.end() => return Poll::Pending,
                        Poll::Ready(None) | Poll::Pending => {}
                    }
                }
                if !turns.may_go_on(context) {
                    wakes.end();
                    return Poll::Pending;
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    /// Notes the rounds it is asked for; has rows for even numbers.
    #[derive(Default, Clone)]
    struct Even(Arc<Mutex<Vec<Vec<u32>>>>);

    #[async_trait]
    impl Fetch for Even {
        type Key = u32;
        type Row = String;

        async fn fetch(&self, keys: &[u32]) -> Result<Vec<Option<String>>, Error> {
            self.0.lock().unwrap().push(keys.to_vec());
            tokio::task::yield_now().await;
            Ok(keys.iter().map(|key| (key % 2 == 0).then(|| key.to_string())).collect())
        }
    }

    fn loader() -> (Even, Arc<Rounds>, Loader<Even>) {
        let (fetch, rounds) = (Even::default(), Arc::new(Rounds::default()));
        (fetch.clone(), rounds.clone(), Loader::new(fetch, &rounds))
    }

    #[tokio::test]
    async fn what_is_asked_at_once_is_read_in_one_round_and_each_key_once() {
        let (fetch, rounds, loader) = loader();
        let asked = [4, 7, 4, 2, 4].map(|key| loader.load(key));
        let rows: Vec<_> =
            rounds.drive(join_all(asked)).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(
            rows,
            [Some("4"), None, Some("4"), Some("2"), Some("4")].map(|row| row.map(str::to_owned))
        );
        assert_eq!(*fetch.0.lock().unwrap(), [vec![4, 7, 2]]);
    }

    #[tokio::test]
    async fn a_long_list_is_one_round_too() {
        let (fetch, rounds, loader) = loader();
        // As the executor resolves a list of objects: the fields of each run side by side, and an
        // object of which all wait says so to the list, which pauses when two have.
        let object = async |key: u32| {
            let field = loader.load(key);
            std::iter::once(field).collect::<FuturesUnordered<_>>().collect::<Vec<_>>().await
        };
        let objects = (0..100).map(object);
        assert_eq!(rounds.drive(join_all(objects)).await.len(), 100);
        let read = fetch.0.lock().unwrap().clone();
        assert_eq!(read.iter().map(Vec::len).collect::<Vec<_>>(), [100]);
    }

    #[tokio::test]
    async fn what_was_loaded_is_not_read_again() {
        let (fetch, rounds, loader) = loader();
        let twice = async {
            loader.load_many([2, 3]).await.unwrap();
            loader.load_many([3, 2, 6]).await.unwrap()
        };
        let rows = rounds.drive(twice).await;
        assert_eq!(rows, [None, Some("2".to_owned()), Some("6".to_owned())]);
        assert_eq!(*fetch.0.lock().unwrap(), [vec![2, 3], vec![6]]);
    }

    #[tokio::test]
    async fn what_is_foreseen_is_read_with_what_is_asked_for_and_counts_for_whoever_asks() {
        let (fetch, rounds, loader) = loader();
        let asks = async {
            let foreseen = loader.foresee([4, 4]);
            assert_eq!(loader.known(&4), None);
            let first = loader.load(2).await.unwrap();
            foreseen.read().await;
            assert_eq!(loader.known(&4), Some(Some("4".to_owned())));
            (first, loader.load(4).await.unwrap(), loader.load(4).await.unwrap())
        };
        let (rows, reads) = OperationStats::collect(rounds.drive(asks)).await;
        assert_eq!(rows, (Some("2".to_owned()), Some("4".to_owned()), Some("4".to_owned())));
        assert_eq!(*fetch.0.lock().unwrap(), [vec![4, 2]]);
        // The second one who asked.
        assert_eq!(reads.cache_hits, 1);
    }

    #[tokio::test]
    async fn what_was_forgotten_is_read_again_also_if_nobody_had_waited_for_it() {
        let (fetch, rounds, loader) = loader();
        rounds.drive(loader.load(2)).await.unwrap();
        // Asked for, and given up before it was read.
        drop(loader.ask(4));
        rounds.forget();
        let rows = rounds.drive(loader.load_many([2, 4])).await.unwrap();
        assert_eq!(rows, [Some("2".to_owned()), Some("4".to_owned())]);
        assert_eq!(*fetch.0.lock().unwrap(), [vec![2], vec![2, 4]]);
    }
}
