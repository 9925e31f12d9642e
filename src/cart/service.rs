//! What can be done with carts.

mod abandoned;
mod feed;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

pub use self::abandoned::{AbandonedCart, AbandonedPage, ReportPlace};
use self::feed::Feed;
use super::model::change::{RawChange, refusals};
use super::model::{
    CART_LIFE, Card, Cart, CartLog, CartOwner, Change, HandOver, LATE_AFTER, MAX_UNFOLDED,
    Operation, Units, day_of, id_of_key, shard_of,
};
use super::store::{CartStore, LogPlace};
use crate::cache::Tiers;
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, ErrorCode, UserError};
use crate::input::{MAX_KEY_CHARS, argument_fault};
use crate::product_id::ProductId;
use crate::storage::{StoreError, to_its_end};

/// Changes of one cart take turns within a process. So many locks are shared by all carts.
const LOCKS: usize = 1_024;
/// How often one call looks whether a guest's cart has something to hand over: once for what is
/// there, and once more for what came meanwhile.
const MAX_HAND_OVERS: usize = 3;

/// Carts of customers and guests.
pub struct CartService {
    store: Arc<dyn CartStore>,
    clock: Arc<dyn Clock>,
    locks: Vec<Mutex<()>>,
    feed: Arc<Feed>,
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
        let feed = Feed::open(store.clone(), tiers, shop, is_shared);
        let locks = (0..LOCKS).map(|_| Mutex::new(())).collect();
        Arc::new(Self { store, clock, locks, feed })
    }

    /// A cart as it is now. To look at it is to touch it.
    pub async fn cart(self: &Arc<Self>, owner: &CartOwner) -> Result<Cart, Error> {
        let now = self.clock.now();
        let log = self.store.cart_log(owner).await?;
        let cart = log.fold(now);
        if cart.touched_at.is_some() && log.wants_renewal(now) {
            // The day's first look at it.
            self.in_background(owner, async move |service, owner| {
                service.renew(&owner, &log, now).await
            });
        } else if log.wants_checkpoint(now) {
            self.in_background(owner, async move |service, owner| {
                service.checkpoint(&owner, &log, now, false).await
            });
        }
        if let (CartOwner::Guest(guest), false) = (owner, cart.on_their_way.is_empty()) {
            // Somebody has begun to hand it over and did not come to the end.
            let (guest, numbers) = (*guest, cart.on_their_way.clone());
            self.in_background(owner, async move |service, _| {
                service.deliver(guest, &numbers).await
            });
        }
        Ok(cart)
    }

    /// Carries out a change. With a key, it is carried out once, however often it is asked for.
    pub async fn change(
        self: &Arc<Self>,
        owner: &CartOwner,
        raw: &RawChange,
        cards: &HashMap<ProductId, Card>,
        key: Option<&str>,
    ) -> Result<Changed, Error> {
        let fault = |key| argument_fault(&["idempotencyKey"], key, MAX_KEY_CHARS);
        let mut errors: Vec<_> = key.and_then(fault).into_iter().collect();
        let change = raw.check(cards).map_err(|faults| errors.extend(faults)).ok();
        let Some(change) = change.filter(|_| errors.is_empty()) else {
            return Ok(Changed { cart: self.cart(owner).await?, errors });
        };
        let turn = self.turn(owner).await;
        let id = key.map(id_of_key);
        let log = self.store.cart_log(owner).await?;
        let known = match id {
            Some(id) => self.known(owner, &log, id).await?,
            None => None,
        };
        let now = self.clock.now();
        let cart = log.fold(now);
        if let Some(known) = known {
            let is_same = known == change.fingerprint();
            let errors = if is_same { Vec::new() } else { vec![key_reused()] };
            return Ok(Changed { cart, errors });
        }
        let errors = refusals(&cart, &change);
        if !errors.is_empty() {
            return Ok(Changed { cart, errors });
        }
        if log.unfolded() >= MAX_UNFOLDED {
            let message = "This cart changes too often. Try again in a minute.".to_owned();
            return Err(Error::RateLimited(message));
        }
        let log = self.add(owner, log, id, change).await?;
        drop(turn);
        Ok(Changed { cart: log.fold(now), errors: Vec::new() })
    }

    /// What was asked for under an id, if it counts already. The log is looked at first: what it has
    /// not has a note by now, or was never there.
    async fn known(
        &self,
        owner: &CartOwner,
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

    /// Adds an operation to a log that was just read, under the id by which it may be asked for
    /// again. Answers with the log as it is then.
    async fn add(
        self: &Arc<Self>,
        owner: &CartOwner,
        mut log: CartLog,
        id: Option<Uuid>,
        change: Change,
    ) -> Result<CartLog, StoreError> {
        let started = Instant::now();
        let now = self.clock.now();
        let touched_before = log.fold(now).touched_at;
        let operation = Operation {
            id: id.unwrap_or_else(Uuid::new_v4),
            at: log.next_at(now),
            is_keyed: id.is_some(),
            change,
        };
        let add = self.store.add_to_cart(owner, &operation);
        let list = self.list(owner, touched_before, operation.at);
        let renew = async {
            // Not in the background: the cart lives on from now, so all of it must.
            if !log.wants_renewal(now) {
                return Ok(());
            }
            self.checkpoint(owner, &log, now, false).await
        };
        tokio::try_join!(add, list, renew)?;
        if started.elapsed() > LATE_AFTER {
            // A checkpoint may have passed it over meanwhile.
            let cause = "the operation was written too late".to_owned();
            return Err(StoreError::Timeout { call: "cart", cause });
        }
        log.operations.push(operation);
        self.feed.changed(owner);
        if log.wants_checkpoint(now) {
            let log = log.clone();
            self.in_background(owner, async move |service, owner| {
                service.checkpoint(&owner, &log, now, false).await
            });
        }
        Ok(log)
    }

    /// Lists a cart under the day it was touched, unless it is there already.
    async fn list(
        &self,
        owner: &CartOwner,
        before: Option<Timestamp>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        if before.map(day_of) == Some(day_of(at)) {
            return Ok(());
        }
        self.store.list_cart(day_of(at), shard_of(owner), owner).await
    }

    /// Writes all that a cart is made of anew, as touched at a moment.
    async fn renew(
        &self,
        owner: &CartOwner,
        log: &CartLog,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let before = log.fold(now).touched_at;
        self.checkpoint(owner, log, now, true).await?;
        self.list(owner, before, now).await
    }

    async fn checkpoint(
        &self,
        owner: &CartOwner,
        log: &CartLog,
        now: Timestamp,
        touch: bool,
    ) -> Result<(), StoreError> {
        let (checkpoint, notes) = log.checkpoint_at(now, touch);
        self.store.put_checkpoint(owner, &checkpoint, &notes).await
    }

    /// Puts what a guest has in the cart into a customer's, once, however often it is asked for and
    /// whatever dies in between.
    ///
    /// What is handed over is recorded first, by a conditional write: so two who do it at once hand
    /// over the same. Then it is taken out of the guest's cart and put into the customer's, both
    /// under an id that follows from the record.
    pub async fn merge(self: &Arc<Self>, guest: Uuid, user: Arc<str>) -> Result<Cart, Error> {
        let service = self.clone();
        to_its_end("merge", async move { service.hand_over(guest, user).await }).await
    }

    async fn hand_over(self: &Arc<Self>, guest: Uuid, user: Arc<str>) -> Result<Cart, Error> {
        let (from, to) = (CartOwner::Guest(guest), CartOwner::User(user.clone()));
        for _ in 0..MAX_HAND_OVERS {
            let cart = {
                let _turn = self.turn(&from).await;
                let log = self.store.cart_log(&from).await?;
                let now = self.clock.now();
                let cart = log.fold(now);
                if cart.lines.is_empty() {
                    cart
                } else {
                    let units = |line: &super::model::CartLine| Units {
                        product: line.product.clone(),
                        units: line.units,
                        card: line.card.clone(),
                    };
                    let hand_over = HandOver {
                        number: cart.hand_overs,
                        at: log.next_at(now),
                        to: user.clone(),
                        lines: cart.lines.iter().map(units).collect(),
                    };
                    let recorded = self.store.record_hand_over(guest, &hand_over).await?;
                    let id = recorded.operation_id(guest);
                    let change = Change::HandOver(recorded);
                    let log = self.add(&from, log, Some(id), change).await?;
                    log.fold(now)
                }
            };
            if cart.on_their_way.is_empty() {
                break;
            }
            self.deliver(guest, &cart.on_their_way).await?;
        }
        self.cart(&to).await
    }

    /// Brings what was handed over to its customer.
    async fn deliver(self: &Arc<Self>, guest: Uuid, numbers: &[u32]) -> Result<(), StoreError> {
        for &number in numbers {
            if let Some(hand_over) = self.store.hand_over(guest, number).await? {
                let id = hand_over.operation_id(guest);
                let to = CartOwner::User(hand_over.to.clone());
                let _turn = self.turn(&to).await;
                let log = self.store.cart_log(&to).await?;
                if self.known(&to, &log, id).await?.is_none() {
                    let change = Change::TakeOver { from: guest, lines: hand_over.lines };
                    self.add(&to, log, Some(id), change).await?;
                }
            }
            let from = CartOwner::Guest(guest);
            let _turn = self.turn(&from).await;
            let log = self.store.cart_log(&from).await?;
            self.add(&from, log, None, Change::HandedOver { number }).await?;
        }
        Ok(())
    }

    /// What happened to a cart, newest first, from a place on.
    pub async fn history(
        &self,
        owner: &CartOwner,
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
        owner: &CartOwner,
    ) -> Result<impl futures_util::Stream<Item = ()> + Send + use<>, Error> {
        self.feed.watch(owner)
    }

    async fn turn(&self, owner: &CartOwner) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        owner.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0);
        self.locks[place].lock().await
    }

    /// Does what nobody waits for. If it fails, the next who comes does it.
    fn in_background<F, Fut>(self: &Arc<Self>, owner: &CartOwner, work: F)
    where
        F: FnOnce(Arc<Self>, CartOwner) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), StoreError>> + Send + 'static,
    {
        let (service, owner) = (self.clone(), owner.clone());
        tokio::spawn(async move {
            if let Err(error) = work(service, owner).await {
                tracing::warn!(%error, "a cart was not tidied up");
            }
        });
    }
}

fn key_reused() -> UserError {
    let message = "This key was used for another change of the cart.".to_owned();
    let field = Some(vec!["idempotencyKey".to_owned()]);
    UserError { code: ErrorCode::KeyReused, field, message }
}
