//! Reads that requests of one thread make at the same moment, made by one statement.
//!
//! A statement costs the cluster, and us, several times what one more key in it does. So whoever wants
//! something lets those have their turn who are ready now, and then all that was asked for meanwhile is
//! read at once. Where nobody else is ready nothing is gathered and nothing is waited for: a single key is
//! read by a statement of its own, which goes straight to a node that has it.
//!
//! Nobody is told anything older than that, as what is read is read after everybody has asked. When
//! one statement for several fails, each is read by itself: what is wrong with one of them is not the
//! others' fault.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;
use futures_util::future::join_all;
use tokio::sync::oneshot;

use super::statement::KEYS_AT_ONCE;
use crate::crew;
use crate::storage::StoreError;
use crate::telemetry::OperationStats;

/// Places in which threads gather. Two of them may share one, which only costs them something.
const PLACES: usize = 64;

/// What can be read one by one, and several at once.
pub(crate) trait Reads: Send + Sync + 'static {
    /// What it is asked for by.
    type Key: Clone + Eq + Hash + Send + Sync + 'static;
    /// What there is of it.
    type Row: Clone + Send + 'static;

    /// Reads one.
    fn one(&self, key: &Self::Key) -> impl Future<Output = Result<Self::Row, StoreError>> + Send;

    /// Reads up to [`KEYS_AT_ONCE`] different ones, in their order.
    fn several(
        &self,
        keys: &[Self::Key],
    ) -> impl Future<Output = Result<Vec<Self::Row>, StoreError>> + Send;
}

type Answer<R> = Result<<R as Reads>::Row, StoreError>;
/// What is asked for, and who wants to know: no more than the operations in work ask for.
type Waiting<R> = HashMap<<R as Reads>::Key, Vec<oneshot::Sender<Answer<R>>>>;

/// Gathers reads of one kind.
pub(crate) struct Gather<R: Reads>(Arc<Gathering<R>>);

struct Gathering<R: Reads> {
    reads: Arc<R>,
    places: Vec<Mutex<Waiting<R>>>,
}

impl<R: Reads> Gather<R> {
    pub(crate) fn new(reads: Arc<R>) -> Self {
        let places = std::iter::repeat_with(Mutex::default).take(PLACES).collect();
        Self(Arc::new(Gathering { reads, places }))
    }

    /// Reads one, with those that others ask for now.
    pub(crate) async fn read(&self, key: &R::Key) -> Answer<R> {
        // Only a thread that serves clients has others who ask.
        let Some(member) = crew::member() else { return self.0.reads.one(key).await };
        let (tell, told) = oneshot::channel();
        let place = member % PLACES;
        let is_first = {
            let mut waiting = self.0.waiting(place);
            let is_first = waiting.is_empty();
            waiting.entry(key.clone()).or_default().push(tell);
            is_first
        };
        if is_first {
            let round = Round(Some((self.0.clone(), place)));
            // Its first turn comes after that of everybody who is ready.
            tokio::spawn(round.read());
        }
        let answer = told.await.unwrap_or_else(|_| {
            let cause = "the thread that reads has ended".to_owned();
            Err(StoreError::Unavailable { call: "gather", cause })
        });
        OperationStats::store_read(1);
        answer
    }
}

/// The next statement of a place. If it is given up before it is made, as when its thread ends, whoever waits
/// for it is told so, and whoever comes then begins another.
struct Round<R: Reads>(Option<(Arc<Gathering<R>>, usize)>);

impl<R: Reads> Drop for Round<R> {
    fn drop(&mut self) {
        if let Some((gathering, place)) = self.0.take() {
            drop(gathering.take(place));
        }
    }
}

impl<R: Reads> Round<R> {
    /// Reads all that was asked for so far.
    async fn read(mut self) {
        if let Some((gathering, place)) = self.0.take() {
            let waiting = gathering.take(place);
            gathering.read(waiting).await;
        }
    }
}

impl<R: Reads> Gathering<R> {
    fn waiting(&self, place: usize) -> MutexGuard<'_, Waiting<R>> {
        self.places[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, place: usize) -> Waiting<R> {
        std::mem::take(&mut *self.waiting(place))
    }

    async fn read(&self, mut waiting: Waiting<R>) {
        // Whoever has left wants to know nothing.
        waiting.retain(|_, tell| {
            tell.retain(|tell| !tell.is_closed());
            !tell.is_empty()
        });
        let (keys, tell): (Vec<_>, Vec<_>) = waiting.into_iter().unzip();
        let parts = keys.chunks(KEYS_AT_ONCE).map(|keys| self.read_part(keys));
        let answers = join_all(parts).await.into_iter().flatten();
        for (answer, mut tell) in answers.zip(tell) {
            let last = tell.pop();
            for tell in tell {
                let _ = tell.send(answer.clone());
            }
            if let Some(tell) = last {
                let _ = tell.send(answer);
            }
        }
    }

    async fn read_part(&self, keys: &[R::Key]) -> Vec<Answer<R>> {
        if keys.len() > 1
            && let Ok(rows) = self.reads.several(keys).await
        {
            return rows.into_iter().map(Ok).collect();
        }
        join_all(keys.iter().map(|key| self.reads.one(key))).await
    }
}

#[cfg(test)]
mod tests;
