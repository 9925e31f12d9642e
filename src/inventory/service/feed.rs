//! Tells whoever watches a row that it has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::super::model::{StockKey, StockLevel};
use crate::error::Error;

/// The shortest time between two changes of a row that one client is told of; of those between,
/// only the last one counts.
const COALESCE: Duration = Duration::from_millis(100);
/// Most rows that are watched at once.
const MAX_WATCHED: usize = 20_000;

type Sender = watch::Sender<Option<StockLevel>>;

/// The rows that are watched. A row that nobody watches costs nothing.
#[derive(Default)]
pub(super) struct Feed {
    rows: Mutex<HashMap<StockKey, Sender>>,
}

/// Watches a row until it is dropped.
struct Watch {
    feed: Arc<Feed>,
    key: StockKey,
    /// Taken away with the row locked.
    levels: Option<watch::Receiver<Option<StockLevel>>>,
}

impl Feed {
    fn rows(&self) -> MutexGuard<'_, HashMap<StockKey, Sender>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells a level, if it is newer than what was told before.
    pub(super) fn tell(&self, key: &StockKey, level: StockLevel) {
        if let Some(sender) = self.rows().get(key) {
            sender.send_if_modified(|told| {
                let is_newer = told.is_none_or(|told| told.version < level.version);
                if is_newer {
                    *told = Some(level);
                }
                is_newer
            });
        }
    }

    /// The rows that are watched now.
    pub(super) fn watched(&self) -> Vec<StockKey> {
        self.rows().keys().cloned().collect()
    }

    fn watch(self: &Arc<Self>, key: StockKey) -> Result<Watch, Error> {
        let mut rows = self.rows();
        if rows.len() >= MAX_WATCHED && !rows.contains_key(&key) {
            return Err(Error::Unavailable);
        }
        let sender = rows.entry(key.clone()).or_insert_with(|| watch::channel(None).0);
        let levels = Some(sender.subscribe());
        Ok(Watch { feed: self.clone(), key, levels })
    }

    /// The levels of these rows as they change. Watching begins at once.
    pub(super) fn levels(
        self: &Arc<Self>,
        keys: &[StockKey],
    ) -> Result<impl Stream<Item = (StockKey, StockLevel)> + Send + use<>, Error> {
        let watches = keys.iter().map(|key| self.watch(key.clone()));
        let watches = watches.collect::<Result<Vec<_>, _>>()?;
        let one = |watch| Box::pin(stream::unfold((watch, None), next_level));
        Ok(stream::select_all(watches.into_iter().map(one)).map(|told| told))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut rows = self.feed.rows();
        self.levels = None;
        if rows.get(&self.key).is_some_and(|sender| sender.receiver_count() == 0) {
            rows.remove(&self.key);
        }
    }
}

type Told = Option<(Instant, i64)>;

async fn next_level(
    (mut watch, told): (Watch, Told),
) -> Option<((StockKey, StockLevel), (Watch, Told))> {
    if let Some((at, _)) = told {
        sleep_until(at + COALESCE).await;
    }
    loop {
        let levels = watch.levels.as_mut()?;
        let level = *levels.borrow_and_update();
        match level {
            Some(level) if told.is_none_or(|(_, version)| version < level.version) => {
                let told = Some((Instant::now(), level.version));
                return Some(((watch.key.clone(), level), (watch, told)));
            }
            _ => levels.changed().await.ok()?,
        }
    }
}
