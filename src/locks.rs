//! Those who want to work at the same thing take turns, within this process.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// A lock for each thing that somebody works at or waits for; there are as many as such calls.
pub(crate) struct Locks<K: Eq + Hash> {
    locks: Mutex<HashMap<K, Arc<AsyncMutex<()>>>>,
}

/// Held until it is dropped.
pub(crate) struct Locked<'a, K: Eq + Hash> {
    all: &'a Locks<K>,
    key: K,
    lock: Option<Arc<AsyncMutex<()>>>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K: Eq + Hash> Default for Locks<K> {
    fn default() -> Self {
        Self { locks: Mutex::default() }
    }
}

impl<K: Eq + Hash + Clone> Locks<K> {
    fn map(&self) -> MutexGuard<'_, HashMap<K, Arc<AsyncMutex<()>>>> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else has it; who comes first has it first.
    pub(crate) async fn lock(&self, key: &K) -> Locked<'_, K> {
        let lock = self.map().entry(key.clone()).or_default().clone();
        // Made before it is waited for: who stops waiting leaves nothing behind.
        let mut locked =
            Locked { all: self, key: key.clone(), lock: Some(lock.clone()), guard: None };
        locked.guard = Some(lock.lock_owned().await);
        locked
    }
}

impl<K: Eq + Hash> Drop for Locked<'_, K> {
    fn drop(&mut self) {
        (self.guard, self.lock) = (None, None);
        let mut locks = self.all.locks.lock().unwrap_or_else(PoisonError::into_inner);
        // A lock is handed out with the map locked: if nobody else has it now, nobody will.
        if locks.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn one_at_a_time_for_one_thing_and_nothing_is_left_behind() {
        let locks = Locks::default();
        let first = locks.lock(&1).await;
        let _other = locks.lock(&2).await;
        let moment = Duration::from_millis(10);
        assert!(timeout(moment, locks.lock(&1)).await.is_err(), "somebody else has it");
        drop(first);
        let second = timeout(moment, locks.lock(&1)).await.expect("it is free");
        assert_eq!(locks.map().len(), 2);
        drop(second);
        assert_eq!(locks.map().len(), 1);
    }
}
