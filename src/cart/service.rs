//! What can be done with carts.

mod abandoned;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use uuid::Uuid;

pub use self::abandoned::{AbandonedCart, AbandonedPage, ReportPlace};
use super::model::change::{RawChange, refusals};
use super::model::{
    CART_LIFE, Card, Cart, CartLine, CartLog, Change, HandOver, LATE_AFTER, MAX_UNFOLDED,
    Operation, Units, day_of, id_of_key, shard_of,
};
use super::store::{CartStore, LogPlace};
use crate::cache::Tiers;
use crate::chance;
use crate::clock::{Clock, Timestamp};
use crate::digest::derived_id;
use crate::error::{Error, ErrorCode, UserError};
use crate::feed::{Feed, Look};
use crate::input::{MAX_KEY_CHARS, argument_fault};
use crate::locks::Locks;
use crate::owner::Owner;
use crate::product_id::ProductId;
use crate::storage::{StoreError, to_its_end};

/// How often one call looks whether a guest's cart has something to hand over: once for what is
/// there, and once more for what came meanwhile.
const MAX_HAND_OVERS: usize = 3;

/// Most carts that are tidied up at once, beside what is asked for.
const MAX_BACKGROUND: usize = 256;

/// Carts of customers and guests.
pub struct CartService {
    store: Arc<dyn CartStore>,
    clock: Arc<dyn Clock>,
    /// Changes of one cart take turns.
    locks: Locks<Owner>,
    feed: Arc<Feed<Owner>>,
    background: Arc<Semaphore>,
}

/// Looks at carts that are watched.
struct CartLook(Arc<dyn CartStore>);

#[async_trait]
impl Look<Owner> for CartLook {
    async fn newest(&self, owner: &Owner) -> Option<i64> {
        let log = self.0.cart_log(owner).await.ok()?;
        Some(log.newest().unwrap_or_default().micros())
    }
}

/// What a change came to.
#[derive(Debug)]
pub struct Changed {
    /// The cart as it is now.
    pub cart: Cart,
    /// Why it is unchanged; empty if it was changed.
    pub errors: Vec<UserError>,
}

impl CartService {
    /// Carts on a store. `shop` tells this shop's messages from others'; `is_shared` says that
    /// others change the carts too.
    pub fn new(
        store: Arc<dyn CartStore>,
        clock: Arc<dyn Clock>,
        tiers: &Tiers,
        shop: &str,
        is_shared: bool,
    ) -> Arc<Self> {
        let feed = Feed::open(CartLook(store.clone()), tiers, shop, "carts", is_shared);
        let background = Arc::new(Semaphore::new(MAX_BACKGROUND));
        Arc::new(Self { store, clock, locks: Locks::default(), feed, background })
    }

    /// A cart as it is now. To look at it is to touch it.
    pub async fn cart(self: &Arc<Self>, owner: &Owner) -> Result<Cart, Error> {
        let asked = self.moment();
        let log = self.store.cart_log(owner).await?;
        Ok(self.look(owner, log, asked))
    }

    /// What a log that was just read comes to; what has to be done with it is done beside.
    fn look(self: &Arc<Self>, owner: &Owner, log: CartLog, asked: Moment) -> Cart {
        let now = asked.now;
        self.feed.shown(owner, log.newest().unwrap_or_default().micros());
        let cart = log.fold(now);
        if let (Owner::Guest(guest), false) = (owner, cart.on_their_way.is_empty()) {
            // Somebody has begun to hand it over and did not come to the end.
            let (guest, hand_overs) = (*guest, cart.on_their_way.clone());
            self.in_background(async move |service| service.deliver(guest, hand_overs).await);
        }
        if log.wants_touch(&cart, now) || log.wants_checkpoint(now) {
            let owner = owner.clone();
            self.in_background(async move |service| service.touch(&owner, &log, now).await);
        }
        cart
    }

    fn moment(&self) -> Moment {
        Moment { started: Instant::now(), now: self.clock.now() }
    }

    /// Carries out a change. With a key, it is carried out once, however often it is asked for.
    pub async fn change(
        self: &Arc<Self>,
        owner: &Owner,
        raw: &RawChange,
        cards: &HashMap<ProductId, Card>,
        key: Option<&str>,
    ) -> Result<Changed, Error> {
        let _turn = self.locks.lock(owner).await;
        let asked = self.moment();
        let now = asked.now;
        let log = self.store.cart_log(owner).await?;
        let fault = |key| argument_fault(&["idempotencyKey"], key, MAX_KEY_CHARS);
        let mut errors: Vec<_> = key.and_then(fault).into_iter().collect();
        let id = key.filter(|_| errors.is_empty()).map(id_of_key);
        if let Some(id) = id
            && let Some(known) = self.known(owner, &log, id).await?
        {
            // Before it is checked: what counts counts, also if its product is gone by now.
            errors.extend((known != raw.fingerprint()).then(key_reused));
            return Ok(Changed { cart: self.look(owner, log, asked), errors });
        }
        let change = raw.check(cards).map_err(|faults| errors.extend(faults)).ok();
        let Some(change) = change.filter(|_| errors.is_empty()) else {
            return Ok(Changed { cart: self.look(owner, log, asked), errors });
        };
        let errors = refusals(&log.fold(now), raw, &change);
        if !errors.is_empty() {
            return Ok(Changed { cart: self.look(owner, log, asked), errors });
        }
        if log.unfolded() >= MAX_UNFOLDED {
            self.look(owner, log, asked);
            let message = "This cart changes too often. Try again in a minute.".to_owned();
            return Err(Error::too_many(message));
        }
        let log = self.add(owner, log, asked, id, change).await?;
        Ok(Changed { cart: log.fold(now), errors: Vec::new() })
    }

    /// What was asked for under an id, if it counts already. The log is looked at first: what it has
    /// not has a note by now, or was never there.
    async fn known(
        &self,
        owner: &Owner,
        log: &CartLog,
        id: Uuid,
    ) -> Result<Option<i64>, StoreError> {
        if let Some(there) = log.find(id) {
            return Ok(Some(there.change.fingerprint()));
        }
        if log.checkpoint.is_none() {
            return Ok(None);
        }
        Ok(self.store.cart_note(owner, id).await?.map(|note| note.fingerprint))
    }

    /// Adds an operation to a log that was read after a moment, under the id by which it may be
    /// asked for again. Answers with the log as it is then.
    async fn add(
        self: &Arc<Self>,
        owner: &Owner,
        mut log: CartLog,
        asked: Moment,
        id: Option<Uuid>,
        change: Change,
    ) -> Result<CartLog, StoreError> {
        let now = asked.now;
        let operation = Operation {
            id: id.unwrap_or_else(chance::id),
            at: log.next_at(now),
            is_keyed: id.is_some(),
            change,
        };
        self.prepare(owner, &log, now).await?;
        self.store.add_to_cart(owner, &operation).await?;
        self.in_time(asked)?;
        log.operations.push(operation);
        self.feed.changed(owner);
        if log.wants_checkpoint(now) {
            let (log, owner) = (log.clone(), owner.clone());
            self.in_background(async move |service| service.touch(&owner, &log, now).await);
        }
        Ok(log)
    }

    /// Gets a cart ready to live on from a moment: lists it, and writes anew what is old. Before it
    /// is changed, so that a change that counts has both.
    async fn prepare(
        &self,
        owner: &Owner,
        log: &CartLog,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if log.wants_renewal(now) {
            self.touch(owner, log, now).await?;
        }
        self.list(owner, log, log.next_at(now)).await
    }

    /// Writes all that a cart is made of anew, as touched at a moment before it was read.
    async fn touch(&self, owner: &Owner, log: &CartLog, now: Timestamp) -> Result<(), StoreError> {
        self.list(owner, log, now).await?;
        let (checkpoint, notes) = log.checkpoint_at(now, true);
        self.store.put_checkpoint(owner, &checkpoint, &notes).await
    }

    /// Lists a cart under the day it is touched, unless it is there already.
    async fn list(&self, owner: &Owner, log: &CartLog, at: Timestamp) -> Result<(), StoreError> {
        if log.fold(at).touched_at.map(day_of) == Some(day_of(at)) {
            return Ok(());
        }
        self.store.list_cart(day_of(at), shard_of(owner), owner).await
    }

    /// Whether what was begun at a moment was written in time. A checkpoint may have passed by what
    /// comes later, and whoever froze meanwhile does not see that by one clock alone.
    fn in_time(&self, asked: Moment) -> Result<(), StoreError> {
        let is_late =
            asked.started.elapsed() > LATE_AFTER || self.clock.now() > asked.now.after(LATE_AFTER);
        if is_late {
            let cause = "the operation was written too late".to_owned();
            return Err(StoreError::Timeout { call: "cart", cause });
        }
        Ok(())
    }

    /// Puts what a guest has in the cart into a customer's, once, however often it is asked for and
    /// whatever dies in between.
    ///
    /// It is handed over by one conditional write, which is an operation of the guest's log: so of
    /// two who do it at once one does, and what is handed over is no longer the guest's. Then it is
    /// put into the customer's cart, under an id that follows from the hand-over.
    pub async fn merge(self: &Arc<Self>, guest: Uuid, user: Arc<str>) -> Result<Cart, Error> {
        let service = self.clone();
        to_its_end("merge", async move { service.hand_over(guest, user).await }).await
    }

    async fn hand_over(self: &Arc<Self>, guest: Uuid, user: Arc<str>) -> Result<Cart, Error> {
        let (from, to) = (Owner::Guest(guest), Owner::User(user.clone()));
        for _ in 0..MAX_HAND_OVERS {
            let cart = {
                let _turn = self.locks.lock(&from).await;
                let asked = self.moment();
                let log = self.store.cart_log(&from).await?;
                let cart = log.fold(asked.now);
                if cart.lines.is_empty() {
                    cart
                } else {
                    let units = |line: &CartLine| Units {
                        product: line.product.clone(),
                        units: line.units,
                        card: line.card.clone(),
                    };
                    let hand_over = HandOver {
                        number: log.next_hand_over(),
                        at: log.next_at(asked.now),
                        to: user.clone(),
                        lines: cart.lines.iter().map(units).collect(),
                    };
                    self.prepare(&from, &log, asked.now).await?;
                    self.store.record_hand_over(guest, &hand_over).await?;
                    self.in_time(asked)?;
                    self.feed.changed(&from);
                    // Perhaps somebody else's was there first.
                    let now = self.clock.now();
                    self.store.cart_log(&from).await?.fold(now)
                }
            };
            if cart.on_their_way.is_empty() {
                break;
            }
            self.deliver(guest, cart.on_their_way).await?;
        }
        self.cart(&to).await
    }

    /// Brings what was handed over to its customers.
    async fn deliver(
        self: &Arc<Self>,
        guest: Uuid,
        hand_overs: Vec<HandOver>,
    ) -> Result<(), StoreError> {
        for hand_over in hand_overs {
            let change = Change::TakeOver { from: guest, lines: hand_over.lines.clone() };
            let to = Owner::User(hand_over.to.clone());
            self.add_once(&to, hand_over.operation_id(guest), change).await?;
            let from = Owner::Guest(guest);
            let _turn = self.locks.lock(&from).await;
            let asked = self.moment();
            let log = self.store.cart_log(&from).await?;
            if log.fold(asked.now).on_their_way.contains(&hand_over) {
                self.add(&from, log, asked, None, Change::HandedOver(hand_over)).await?;
            }
        }
        Ok(())
    }

    /// Takes what became an order out of a cart, once, however often it is asked for. The id of
    /// the operation follows from the order, which was made of the cart as it was at a moment.
    pub async fn ordered(
        self: &Arc<Self>,
        owner: &Owner,
        id: Uuid,
        order: Uuid,
        since: Timestamp,
        taken: Vec<(ProductId, i64)>,
    ) -> Result<(), Error> {
        self.add_once(owner, id, Change::Ordered { order, taken: taken.clone() }).await?;
        if let Owner::Guest(guest) = owner {
            self.ordered_and_handed_over(*guest, id, order, since, &taken).await?;
        }
        Ok(())
    }

    /// Takes what a guest has ordered out of the cart of the customer who got it meanwhile: between
    /// the moment the order was made of the cart, and the one when the cart was told.
    async fn ordered_and_handed_over(
        self: &Arc<Self>,
        guest: Uuid,
        id: Uuid,
        order: Uuid,
        since: Timestamp,
        taken: &[(ProductId, i64)],
    ) -> Result<(), Error> {
        let log = self.store.cart_log(&Owner::Guest(guest)).await?;
        let Some(told) = log.find(id).map(|operation| operation.at) else { return Ok(()) };
        let hand_overs = log.operations.iter().filter_map(|operation| match &operation.change {
            Change::HandOver(hand_over) if since < hand_over.at && hand_over.at < told => {
                Some(hand_over.clone())
            }
            _ => None,
        });
        for hand_over in hand_overs.collect::<Vec<_>>() {
            let units = |product: &ProductId| {
                let lines = hand_over.lines.iter().filter(|line| line.product == *product);
                lines.map(|line| line.units).sum::<i64>()
            };
            let both = taken.iter().map(|(product, n)| (product.clone(), units(product).min(*n)));
            let both: Vec<_> = both.filter(|(_, units)| *units > 0).collect();
            if both.is_empty() {
                continue;
            }
            let to = Owner::User(hand_over.to.clone());
            let number = hand_over.number.to_be_bytes();
            let id = derived_id(&[b"ordered and handed over", id.as_bytes(), &number]);
            // It cannot be taken out before it is there.
            self.deliver(guest, vec![hand_over]).await?;
            self.add_once(&to, id, Change::Ordered { order, taken: both }).await?;
        }
        Ok(())
    }

    /// Adds an operation under an id, unless it is there.
    async fn add_once(
        self: &Arc<Self>,
        owner: &Owner,
        id: Uuid,
        change: Change,
    ) -> Result<(), StoreError> {
        let _turn = self.locks.lock(owner).await;
        let asked = self.moment();
        let log = self.store.cart_log(owner).await?;
        if self.known(owner, &log, id).await?.is_none() {
            self.add(owner, log, asked, Some(id), change).await?;
        }
        Ok(())
    }

    /// What happened to a cart, newest first, from a place on.
    pub async fn history(
        &self,
        owner: &Owner,
        after: Option<LogPlace>,
        limit: usize,
    ) -> Result<Vec<Operation>, Error> {
        let mut found = self.store.cart_history(owner, after, limit).await?;
        let now = self.clock.now();
        found.retain(|operation| now < operation.at.after(CART_LIFE));
        Ok(found)
    }

    /// Tells whenever a cart may have changed, here or through another instance; at once for the
    /// first time.
    pub fn changes(
        &self,
        owner: &Owner,
    ) -> Result<impl futures_util::Stream<Item = ()> + Send + use<>, Error> {
        self.feed.watch(owner)
    }

    /// Waits until nothing is done any more that nobody waits for.
    pub async fn at_rest(&self) {
        let all = u32::try_from(MAX_BACKGROUND).unwrap_or(u32::MAX);
        // It is never closed.
        let _ = self.background.acquire_many(all).await;
    }

    /// Does what nobody waits for. If it fails, or too much is being done, the next who comes does
    /// it.
    fn in_background<F, Fut>(self: &Arc<Self>, work: F)
    where
        F: FnOnce(Arc<Self>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        let Ok(permit) = self.background.clone().try_acquire_owned() else { return };
        let work = work(self.clone());
        tokio::spawn(async move {
            if let Err(error) = work.await {
                tracing::warn!(%error, "a cart was not tidied up");
            }
            drop(permit);
        });
    }
}

/// A moment before something was read: by a clock that runs evenly, and by the one that operations
/// are put in order by.
#[derive(Clone, Copy)]
struct Moment {
    started: Instant,
    now: Timestamp,
}

fn key_reused() -> UserError {
    let message = "This key was used for another change of the cart.".to_owned();
    let field = Some(vec!["idempotencyKey".to_owned()]);
    UserError { code: ErrorCode::KeyReused, field, message }
}
