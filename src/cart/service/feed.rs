//! Tells whoever watches a cart that it has changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::super::model::CartOwner;
use super::super::store::CartStore;
use crate::cache::{Notes, Tiers};
use crate::clock::Timestamp;
use crate::error::Error;

/// Most carts that are watched at once.
const MAX_WATCHED: usize = 20_000;
/// The shortest time between two changes that one client is told of.
const COALESCE: Duration = Duration::from_millis(100);
/// How often carts that are watched are looked at, where other processes change them and cannot be
/// heard.
const LOOK: Duration = Duration::from_secs(1);
/// The same in case a message was lost, in so many times [`LOOK`].
const SAFE_LOOKS: u32 = 15;
/// Carts that are looked at at once.
const LOOKS_AT_ONCE: usize = 32;

/// A cart that is watched.
struct Watched {
    /// Counts up with every change.
    changes: watch::Sender<u64>,
    /// The newest operation that whoever began to watch was shown, or a look has found.
    seen: Option<Timestamp>,
}

/// The carts that are watched. A cart that nobody watches costs nothing.
pub(super) struct Feed {
    carts: Mutex<HashMap<CartOwner, Watched>>,
    notes: Notes,
}

/// Watches a cart until it is dropped.
struct Watch {
    feed: Arc<Feed>,
    owner: CartOwner,
    /// Taken away with the carts locked.
    changes: Option<watch::Receiver<u64>>,
}

impl Feed {
    pub(super) fn open(
        store: Arc<dyn CartStore>,
        tiers: &Tiers,
        shop: &str,
        is_shared: bool,
    ) -> Arc<Self> {
        let feed = Arc::new_cyclic(|this: &Weak<Self>| {
            let this = this.clone();
            let hear = move |note: &str| {
                let feed = this.upgrade();
                if let (Some(feed), Some(owner)) = (&feed, CartOwner::parse(note)) {
                    feed.tell(&owner);
                }
                feed.is_some()
            };
            Self { carts: Mutex::default(), notes: Notes::open(tiers, shop, "carts", hear) }
        });
        if is_shared {
            tokio::spawn(keep_looking(Arc::downgrade(&feed), store));
        }
        feed
    }

    fn carts(&self) -> MutexGuard<'_, HashMap<CartOwner, Watched>> {
        self.carts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cart was changed here.
    pub(super) fn changed(&self, owner: &CartOwner) {
        self.tell(owner);
        self.notes.send(owner.to_string());
    }

    fn tell(&self, owner: &CartOwner) {
        if let Some(watched) = self.carts().get(owner) {
            watched.changes.send_modify(|count| *count += 1);
        }
    }

    /// Tells at once, and then whenever the cart may have changed. Watching begins at once.
    pub(super) fn watch(
        self: &Arc<Self>,
        owner: &CartOwner,
    ) -> Result<impl Stream<Item = ()> + Send + use<>, Error> {
        let mut carts = self.carts();
        if carts.len() >= MAX_WATCHED && !carts.contains_key(owner) {
            return Err(Error::Unavailable);
        }
        let watched = carts
            .entry(owner.clone())
            .or_insert_with(|| Watched { changes: watch::channel(0).0, seen: None });
        let changes = Some(watched.changes.subscribe());
        let watch = Watch { feed: self.clone(), owner: owner.clone(), changes };
        let next = async |(mut watch, told): (Watch, Option<Instant>)| {
            if let Some(told) = told {
                watch.changes.as_mut()?.changed().await.ok()?;
                sleep_until(told + COALESCE).await;
            }
            watch.changes.as_mut()?.mark_unchanged();
            Some(((), (watch, Some(Instant::now()))))
        };
        Ok(stream::unfold((watch, None), next).boxed())
    }

    /// A cart was read here. To who has just begun to watch it this is what there is; a change
    /// that comes before the first look at it is to be found by that look.
    pub(super) fn shown(&self, owner: &CartOwner, newest: Option<Timestamp>) {
        if let Some(watched) = self.carts().get_mut(owner) {
            watched.seen.get_or_insert(newest.unwrap_or_default());
        }
    }

    /// Takes over what a look has found.
    fn found(&self, owner: &CartOwner, newest: Option<Timestamp>) {
        if let Some(watched) = self.carts().get_mut(owner) {
            let newest = newest.unwrap_or_default();
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

impl Drop for Watch {
    fn drop(&mut self) {
        let mut carts = self.feed.carts();
        self.changes = None;
        if carts.get(&self.owner).is_some_and(|watched| watched.changes.receiver_count() == 0) {
            carts.remove(&self.owner);
        }
    }
}

/// Looks at watched carts now and then, as long as there is a feed.
async fn keep_looking(feed: Weak<Feed>, store: Arc<dyn CartStore>) {
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
        let owners: Vec<_> = open.carts().keys().cloned().collect();
        let look = async |owner: CartOwner| {
            // One that fails is tried again soon; the store has told of it.
            if let Ok(log) = store.cart_log(&owner).await {
                open.found(&owner, log.newest());
            }
        };
        stream::iter(owners).map(look).buffer_unordered(LOOKS_AT_ONCE).collect::<()>().await;
    }
}
