//! Tells whoever watches something that it has changed, here or through another instance.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use uuid::Uuid;

use crate::cache::{Notes, Tiers};
use crate::error::Error;
use crate::owner::Owner;

/// Most things of one kind that are watched at once.
const MAX_WATCHED: usize = 20_000;
/// The shortest time between two changes that one client is told of.
const COALESCE: Duration = Duration::from_millis(100);
/// How often what is watched is looked at, where other processes change it and cannot be heard.
const LOOK: Duration = Duration::from_secs(1);
/// The same in case a message was lost, in so many times [`LOOK`].
const SAFE_LOOKS: u32 = 15;
/// Looks that are under way at once.
const LOOKS_AT_ONCE: usize = 32;

/// Names what can be watched.
pub trait Watchable: Clone + Eq + Hash + Send + Sync + 'static {
    /// The name as a note to other instances.
    fn note(&self) -> String;
    /// Reads such a note.
    fn of_note(note: &str) -> Option<Self>;
}

impl Watchable for Owner {
    fn note(&self) -> String {
        self.to_string()
    }

    fn of_note(note: &str) -> Option<Self> {
        Self::parse(note)
    }
}

impl Watchable for Uuid {
    fn note(&self) -> String {
        self.simple().to_string()
    }

    fn of_note(note: &str) -> Option<Self> {
        Self::try_parse(note).ok()
    }
}

/// Looks at what is watched.
#[async_trait]
pub trait Look<K>: Send + Sync {
    /// A number that grows with every change; `None` if it cannot be told now.
    async fn newest(&self, key: &K) -> Option<i64>;
}

/// Something that is watched.
struct Watched {
    /// Counts up with every change.
    changes: watch::Sender<u64>,
    /// The newest change that whoever began to watch was shown, or a look has found.
    seen: Option<i64>,
}

/// What is watched. What nobody watches costs nothing.
pub struct Feed<K: Watchable> {
    watched: Mutex<HashMap<K, Watched>>,
    notes: Notes,
}

/// Watches something until it is dropped.
struct Watch<K: Watchable> {
    feed: Arc<Feed<K>>,
    key: K,
    /// Taken away with what is watched locked.
    changes: Option<watch::Receiver<u64>>,
}

impl<K: Watchable> Feed<K> {
    /// A feed of one kind of things. `shop` tells this shop's messages from others'; `is_shared`
    /// says that others change them too.
    pub fn open(
        look: impl Look<K> + 'static,
        tiers: &Tiers,
        shop: &str,
        kind: &str,
        is_shared: bool,
    ) -> Arc<Self> {
        let feed = Arc::new_cyclic(|this: &Weak<Self>| {
            let this = this.clone();
            let hear = move |note: &str| {
                let feed = this.upgrade();
                if let (Some(feed), Some(key)) = (&feed, K::of_note(note)) {
                    feed.tell(&key);
                }
                feed.is_some()
            };
            Self { watched: Mutex::default(), notes: Notes::open(tiers, shop, kind, hear) }
        });
        if is_shared {
            tokio::spawn(keep_looking(Arc::downgrade(&feed), look));
        }
        feed
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<K, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was changed here.
    pub fn changed(&self, key: &K) {
        self.tell(key);
        self.notes.send(key.note());
    }

    fn tell(&self, key: &K) {
        if let Some(watched) = self.watched().get(key) {
            watched.changes.send_modify(|count| *count += 1);
        }
    }

    /// Tells at once, and then whenever it may have changed. Watching begins at once.
    pub fn watch(
        self: &Arc<Self>,
        key: &K,
    ) -> Result<impl Stream<Item = ()> + Send + use<K>, Error> {
        let mut all = self.watched();
        if all.len() >= MAX_WATCHED && !all.contains_key(key) {
            return Err(Error::Unavailable);
        }
        let watched = all
            .entry(key.clone())
            .or_insert_with(|| Watched { changes: watch::channel(0).0, seen: None });
        let changes = Some(watched.changes.subscribe());
        let watch = Watch { feed: self.clone(), key: key.clone(), changes };
        let next = async |(mut watch, told): (Watch<K>, Option<Instant>)| {
            if let Some(told) = told {
                watch.changes.as_mut()?.changed().await.ok()?;
                sleep_until(told + COALESCE).await;
            }
            watch.changes.as_mut()?.mark_unchanged();
            Some(((), (watch, Some(Instant::now()))))
        };
        Ok(stream::unfold((watch, None), next).boxed())
    }

    /// It was read here. To who has just begun to watch it this is what there is; a change that
    /// comes before the first look at it is to be found by that look.
    pub fn shown(&self, key: &K, newest: i64) {
        if let Some(watched) = self.watched().get_mut(key) {
            watched.seen.get_or_insert(newest);
        }
    }

    /// Takes over what a look has found.
    fn found(&self, key: &K, newest: i64) {
        if let Some(watched) = self.watched().get_mut(key) {
            // Of one that nobody was shown yet it is not known whether that comes with this or
            // without: better twice than never.
            let is_new = watched.seen.is_none_or(|seen| seen < newest);
            watched.seen = watched.seen.max(Some(newest));
            if is_new {
                watched.changes.send_modify(|count| *count += 1);
            }
        }
    }
}

impl<K: Watchable> Drop for Watch<K> {
    fn drop(&mut self) {
        let mut all = self.feed.watched();
        self.changes = None;
        if all.get(&self.key).is_some_and(|watched| watched.changes.receiver_count() == 0) {
            all.remove(&self.key);
        }
    }
}

/// Looks at what is watched now and then, as long as there is a feed.
async fn keep_looking<K: Watchable>(feed: Weak<Feed<K>>, look: impl Look<K>) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = 0_u32;
    loop {
        ticks.tick().await;
        looks = looks.wrapping_add(1);
        let Some(open) = feed.upgrade() else { return };
        if open.notes.hears() && !looks.is_multiple_of(SAFE_LOOKS) {
            continue;
        }
        let keys: Vec<_> = open.watched().keys().cloned().collect();
        let (open, look) = (&open, &look);
        let one = async |key: K| {
            // One that fails is tried again soon; the store has told of it.
            if let Some(newest) = look.newest(&key).await {
                open.found(&key, newest);
            }
        };
        stream::iter(keys).map(one).buffer_unordered(LOOKS_AT_ONCE).collect::<()>().await;
    }
}
