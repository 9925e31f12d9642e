//! What can be done with a cart that is to be bought, and with an order.
//!
//! # A checkout
//!
//! 1. It is recorded under its key, with lines and prices as accepted: who comes with the key again
//!    finds it.
//! 2. The units are reserved, under the id of the order.
//! 3. It is recorded that all of them are: from here on it is an order, whoever writes it down.
//! 4. The cart is told, and the order is placed, its state last: where that is, all of it is. Then
//!    the stock may forget that the units were reserved.
//!
//! Before the first step it is noted when to look whether the last was taken. Whoever looks finds
//! one that was accepted, and takes the steps after that; or one that was not, and undoes it.

mod orders;
mod payments;

use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

pub use self::orders::Changed;
pub use self::payments::{PaymentKind, PaymentNotice, PaymentOutcome};
use super::model::{
    Checkout, CheckoutRequest, CheckoutState, LEASE, Outcome, Refusal, Short, cart_operation_id,
    reservation_of,
};
use super::store::CheckoutStore;
use crate::cart::CartService;
use crate::catalog::CatalogStore;
use crate::chance;
use crate::clock::Clock;
use crate::error::{Error, ErrorCode, UserError};
use crate::fault;
use crate::geo_zone::GeoZone;
use crate::inventory::InventoryService;
use crate::inventory::model::{Line, Reservation, StockKey, Token};
use crate::inventory::service::{Reserved, Standing};
use crate::locks::Locks;
use crate::money::{Money, PRICE_SCALE};
use crate::orders::model::{Order, OrderLine, OrderStatus, UnitsStand};
use crate::orders::{OrderService, OrderStore};
use crate::owner::Owner;
use crate::product_id::ProductId;
use crate::storage::{Due, DueStore, Task, to_its_end};
use crate::telemetry::CheckoutCounters;

/// The longest a call waits for another that checks out the same cart.
const MAX_WAIT: Duration = Duration::from_secs(4);
/// The longest it tries after it came; what it has begun by then goes on.
const MAX_WORK: Duration = Duration::from_secs(8);
/// How often it looks meanwhile.
const LOOK: Duration = Duration::from_millis(50);
/// How often a change is tried whose reply was lost.
const MAX_TRIES: usize = 4;
/// Checkouts whose last step is under way at once, beside what is asked for. Of more, it is left to
/// the sweeper.
const MAX_BACKGROUND: usize = 1_024;

/// What a checkout needs of a store beside the domains' own services.
pub trait SagaStore: OrderStore + CheckoutStore + DueStore {}

impl<S: OrderStore + CheckoutStore + DueStore + ?Sized> SagaStore for S {}

/// Checkouts, and changes of orders.
pub struct CheckoutService {
    pub(super) store: Arc<dyn SagaStore>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) counters: CheckoutCounters,
    catalog: Arc<dyn CatalogStore>,
    inventory: Arc<InventoryService>,
    carts: Arc<CartService>,
    orders: Arc<OrderService>,
    payment_within: Duration,
    /// Checkouts of one cart take turns, so that who clicks twice with two keys finds the cart
    /// empty the second time.
    locks: Locks<Owner>,
    background: Arc<Semaphore>,
}

/// What [`CheckoutService`] works with.
pub struct Parts {
    /// Orders, checkouts and what is due.
    pub store: Arc<dyn SagaStore>,
    /// What products cost.
    pub catalog: Arc<dyn CatalogStore>,
    /// The stock.
    pub inventory: Arc<InventoryService>,
    /// The carts.
    pub carts: Arc<CartService>,
    /// The orders.
    pub orders: Arc<OrderService>,
}

/// What became of the wish to work at a checkout.
enum Begun {
    /// It is this caller's.
    Mine(Box<Checkout>),
    /// Somebody else was first.
    Theirs,
    /// It is not to be.
    Refused(Refusal),
}

impl CheckoutService {
    /// Checkouts. An order that is not paid within `payment_within` is cancelled.
    pub fn new(
        parts: Parts,
        clock: Arc<dyn Clock>,
        payment_within: Duration,
        counters: CheckoutCounters,
    ) -> Arc<Self> {
        let Parts { store, catalog, inventory, carts, orders } = parts;
        let background = Arc::new(Semaphore::new(MAX_BACKGROUND));
        Arc::new(Self {
            store,
            clock,
            counters,
            catalog,
            inventory,
            carts,
            orders,
            payment_within,
            locks: Locks::default(),
            background,
        })
    }

    /// Buys what is in a cart: once for the key, however often it is asked for. An error tells
    /// nothing; asking again tells what became of it.
    pub async fn checkout(
        self: &Arc<Self>,
        owner: Owner,
        request: CheckoutRequest,
    ) -> Result<Outcome, Error> {
        let errors = request.faults();
        if !errors.is_empty() {
            return Ok(Outcome::Refused(Refusal { errors, ..Refusal::default() }));
        }
        let service = self.clone();
        to_its_end("checkout", async move { service.run(&owner, &request).await }).await
    }

    async fn run(
        self: &Arc<Self>,
        owner: &Owner,
        request: &CheckoutRequest,
    ) -> Result<Outcome, Error> {
        let (started, fingerprint) = (Instant::now(), request.fingerprint());
        let turn = timeout(MAX_WAIT, self.locks.lock(owner)).await;
        let _turn = turn.map_err(|_| Error::Timeout)?;
        let mut there = self.store.checkout(owner, &request.key).await?;
        while started.elapsed() < MAX_WORK {
            let known = there.as_ref().map(|there| there.version);
            let begun = match there {
                None => self.begin(owner, request, &fingerprint, None).await?,
                Some(there) if there.request != fingerprint => {
                    let message = "This key was used for another checkout.";
                    let field: &[&str] = &["input", "idempotencyKey"];
                    let refusal = Refusal::because(ErrorCode::KeyReused, Some(field), message);
                    return Ok(Outcome::Refused(refusal));
                }
                Some(there) => match &there.state {
                    CheckoutState::Accepted => return self.outcome(&there).await,
                    CheckoutState::Refused(shortages) => {
                        return Ok(refused(shortages.clone(), &there.order.zone));
                    }
                    CheckoutState::Undone => {
                        // Before its order's id is forgotten.
                        self.release(&there.order).await?;
                        self.begin(owner, request, &fingerprint, Some(&there)).await?
                    }
                    CheckoutState::Open { until } if self.clock.now() < *until => {
                        sleep(LOOK).await;
                        Begun::Theirs
                    }
                    CheckoutState::Open { .. } => {
                        self.undo(&there).await?;
                        Begun::Theirs
                    }
                },
            };
            match begun {
                Begun::Refused(refusal) => {
                    // Another process may have begun it since, and taken what was in the cart.
                    there = self.store.settled_checkout(owner, &request.key).await?;
                    if there.as_ref().map(|there| there.version) == known {
                        return Ok(Outcome::Refused(refusal));
                    }
                    continue;
                }
                Begun::Mine(mine) => {
                    if let Some(outcome) = self.drive(&mine).await? {
                        return Ok(outcome);
                    }
                }
                Begun::Theirs => {}
            }
            there = self.store.settled_checkout(owner, &request.key).await?;
        }
        Err(Error::Timeout)
    }

    /// Records a checkout as begun, in the place of one that was undone where there is one.
    async fn begin(
        &self,
        owner: &Owner,
        request: &CheckoutRequest,
        fingerprint: &str,
        undone: Option<&Checkout>,
    ) -> Result<Begun, Error> {
        let order = match self.draft(owner, request).await? {
            Ok(order) => order,
            Err(refusal) => return Ok(Begun::Refused(refusal)),
        };
        let now = self.clock.now().to_millis_precision();
        let until = now.after(fault::hurried(LEASE));
        let checkout = Checkout {
            owner: owner.clone(),
            key: request.key.as_str().into(),
            request: fingerprint.to_owned(),
            state: CheckoutState::Open { until },
            order,
            due_at: until,
            changed_at: now,
            version: undone.map_or(1, |undone| undone.version + 1),
        };
        let expected = undone.map(|undone| undone.version);
        let due = due_of(&checkout);
        match self.store.change_checkout(expected, &checkout, Some(&due)).await {
            // So late that whoever looks has looked: it is given up in the next round.
            Ok(true) if self.clock.now() >= until => Ok(Begun::Theirs),
            Ok(true) => Ok(Begun::Mine(Box::new(checkout))),
            Ok(false) => Ok(Begun::Theirs),
            Err(error) => {
                let there = self.store.settled_checkout(owner, &request.key).await?;
                match there {
                    // As it was written: somebody may have given it up meanwhile.
                    Some(there) if there == checkout => Ok(Begun::Mine(Box::new(there))),
                    Some(_) => Ok(Begun::Theirs),
                    None => Err(error.into()),
                }
            }
        }
    }

    /// The order that a cart would be now, at the prices of now.
    async fn draft(
        &self,
        owner: &Owner,
        request: &CheckoutRequest,
    ) -> Result<Result<Order, Refusal>, Error> {
        let created_at = self.clock.now().to_millis_precision();
        let cart = self.carts.cart(owner);
        let part = async { Ok(self.orders.part_for(owner, created_at).await?) };
        let (cart, part) = tokio::try_join!(cart, part)?;
        if cart.lines.is_empty() {
            let message = "There is nothing in the cart.";
            return Ok(Err(Refusal::because(ErrorCode::CartEmpty, None, message)));
        }
        let mut lines: Vec<(ProductId, i64)> =
            cart.lines.iter().map(|line| (line.product.clone(), line.units)).collect();
        lines.sort();
        let ids: Vec<ProductId> = lines.iter().map(|(product, _)| product.clone()).collect();
        // From the store and not from a cache: what is accepted is what it costs now.
        let products = self.catalog.products(&ids).await?;
        let (mut bought, mut gone) = (Vec::with_capacity(lines.len()), Vec::new());
        for ((product, units), found) in lines.into_iter().zip(products) {
            match found {
                Some(card) => {
                    bought.push(OrderLine { product, name: card.name, units, price: card.price });
                }
                None => gone.push(UserError {
                    code: ErrorCode::ProductGone,
                    field: None,
                    message: format!("{product} is no longer sold. Take it out of the cart."),
                }),
            }
        }
        let Some(total) = total_of(&bought).filter(|_| gone.is_empty()) else {
            if gone.is_empty() {
                let message = "All products of an order have prices in one currency.";
                return Ok(Err(Refusal::because(ErrorCode::CurrencyMismatch, None, message)));
            }
            return Ok(Err(Refusal { errors: gone, ..Refusal::default() }));
        };
        if request.expected_total.is_some_and(|expected| expected != total.amount) {
            let Money { amount, currency } = total;
            let message = format!("The cart costs {amount} {currency} now.");
            let field: &[&str] = &["input", "expectedTotal"];
            let refusal = Refusal::because(ErrorCode::PriceChanged, Some(field), message);
            return Ok(Err(Refusal { total: Some(total), ..refusal }));
        }
        let mut order = Order {
            id: chance::id_at(created_at),
            owner: owner.clone(),
            status: OrderStatus::Created,
            units: UnitsStand::Held,
            zone: GeoZone::new_unchecked(request.zone.as_str()),
            lines: bought,
            total,
            address: request.address.clone(),
            payment_method: request.payment_method.clone(),
            created_at,
            updated_at: created_at,
            payment_due_at: created_at.after(self.payment_within),
            tracking_number: None,
            payment: None,
            part,
            changes: Vec::new(),
            version: 0,
        };
        order.note_creation();
        Ok(Ok(order))
    }

    /// Takes the steps of a checkout that is this caller's. `None` if it was given up by somebody
    /// else meanwhile.
    async fn drive(self: &Arc<Self>, checkout: &Checkout) -> Result<Option<Outcome>, Error> {
        let reservation = reservation(&checkout.order)?;
        match self.inventory.reserve(&reservation).await {
            Ok(Reserved::Held) => {
                let Some(accepted) = self.turn_to(checkout, CheckoutState::Accepted).await? else {
                    self.release(&checkout.order).await?;
                    return Ok(None);
                };
                self.counters.placed();
                // Where the cart was not told, it stays due.
                if self.place(&accepted).await? {
                    self.complete_in_background(accepted.clone());
                }
                Ok(Some(Outcome::Order(Box::new(accepted.order))))
            }
            Ok(Reserved::Short(shortages)) => {
                let shortages: Vec<Short> = shortages.into_iter().map(Into::into).collect();
                let state = CheckoutState::Refused(shortages.clone());
                let Some(ended) = self.turn_to(checkout, state).await? else { return Ok(None) };
                self.counters.refused();
                self.forget(&ended).await;
                Ok(Some(refused(shortages, &checkout.order.zone)))
            }
            Ok(Reserved::Undone) => Ok(None),
            Err(error) => {
                // Whether anything is held is not known; it is not to be. If this fails too, it is
                // due.
                let _ = self.undo(checkout).await;
                Err(error)
            }
        }
    }

    /// Turns a checkout to another state, if it still stands as it is known here. Answers with it,
    /// or `None` if somebody else has turned it.
    async fn turn_to(
        &self,
        checkout: &Checkout,
        state: CheckoutState,
    ) -> Result<Option<Checkout>, Error> {
        let after = checkout.turned(state, self.clock.now());
        let mut failed = None;
        for _ in 0..MAX_TRIES {
            match self.store.change_checkout(Some(checkout.version), &after, None).await {
                Ok(true) => return Ok(Some(after)),
                // The first to ask may have been this very call, whose reply was lost.
                Ok(false) if failed.is_none() => return Ok(None),
                Ok(false) => {}
                Err(error) => failed = Some(error),
            }
            let there = self.store.settled_checkout(&checkout.owner, &checkout.key).await?;
            match there {
                Some(there) if there == after => return Ok(Some(after)),
                Some(there) if there.version == checkout.version => {}
                _ => return Ok(None),
            }
        }
        Err(failed.map_or(Error::Timeout, Error::from))
    }

    /// Gives up a checkout that nobody works at any more, and frees what it may hold. One that was
    /// given up before is turned once more: somebody may be about to begin it anew.
    pub(super) async fn undo(&self, checkout: &Checkout) -> Result<(), Error> {
        if let Some(undone) = self.turn_to(checkout, CheckoutState::Undone).await? {
            if checkout.state != CheckoutState::Undone {
                self.counters.undone();
            }
            self.release(&undone.order).await?;
            self.forget(&undone).await;
        }
        Ok(())
    }

    /// Frees whatever is held for an order that is not to be.
    pub(super) async fn release(&self, order: &Order) -> Result<(), Error> {
        self.inventory.release(&reservation(order)?, Standing::Unknown).await
    }

    /// Frees what a row of stock holds for an order that there is not.
    pub(super) async fn release_token(&self, key: &StockKey, token: &Token) -> Result<(), Error> {
        let line = Line { key: key.clone(), units: 1 };
        let reservation = Reservation::new(token.clone(), [line]).map_err(|_| Error::Internal)?;
        self.inventory.release(&reservation, Standing::Unknown).await
    }

    /// What an accepted checkout came to. Where nobody has written the order down, or not all of it,
    /// it is now.
    async fn outcome(self: &Arc<Self>, checkout: &Checkout) -> Result<Outcome, Error> {
        let order = match self.store.order(checkout.order.id).await? {
            Some(order) => order,
            None => {
                self.place(checkout).await?;
                checkout.order.clone()
            }
        };
        Ok(Outcome::Order(Box::new(order)))
    }

    /// Tells the cart of an accepted checkout, and writes the order down; answers whether the cart
    /// could be told. To do it again changes nothing.
    async fn place(&self, checkout: &Checkout) -> Result<bool, Error> {
        let order = &checkout.order;
        let taken = order.lines.iter().map(|line| (line.product.clone(), line.units)).collect();
        let operation = cart_operation_id(order.id);
        // Before the order is there, so that whoever finds it need not wonder whether the cart was
        // told. A cart that cannot be reached does not undo an order; it is told when the checkout is
        // due.
        let (owner, since) = (&checkout.owner, order.created_at);
        let told = self.carts.ordered(owner, operation, order.id, since, taken).await;
        let is_told = told.is_ok();
        if !is_told {
            tracing::warn!(order = %order.id, "a cart does not know yet that it was ordered");
        }
        self.store.place_order(order, &payment_due(order)).await?;
        Ok(is_told)
    }

    /// Takes all steps after the acceptance of a checkout. To do it again changes nothing.
    pub(super) async fn complete(&self, checkout: &Checkout) -> Result<(), Error> {
        if !self.place(checkout).await? {
            return Err(Error::Unavailable);
        }
        self.wind_up(checkout).await
    }

    /// The steps that no client waits for.
    async fn wind_up(&self, checkout: &Checkout) -> Result<(), Error> {
        let order = &checkout.order;
        self.inventory.settle(&reservation(order)?).await?;
        if let Owner::Guest(guest) = checkout.owner
            && let Some(user) = self.store.claimant(guest).await?
        {
            // The guest has logged in while this was under way.
            self.hand_over(order.id, &user).await?;
        }
        self.orders.look_at_part(order).await?;
        self.forget(checkout).await;
        Ok(())
    }

    fn complete_in_background(self: &Arc<Self>, checkout: Checkout) {
        let Ok(permit) = self.background.clone().try_acquire_owned() else { return };
        let service = self.clone();
        tokio::spawn(async move {
            // It was logged, and is due.
            let _ = service.wind_up(&checkout).await;
            drop(permit);
        });
    }

    /// Nobody has to look at a checkout any more.
    pub(super) async fn forget(&self, checkout: &Checkout) {
        if let Err(error) = self.store.remove_due(&due_of(checkout)).await {
            // Whoever looks finds nothing to do.
            tracing::debug!(%error, "what is done is still noted as due");
        }
    }
}

/// When somebody looks whether a checkout was finished.
fn due_of(checkout: &Checkout) -> Due {
    let task = Task::Checkout { owner: checkout.owner.clone(), key: checkout.key.clone() };
    Due { at: checkout.due_at, task }
}

/// When somebody looks whether an order was paid.
fn payment_due(order: &Order) -> Due {
    Due { at: order.payment_due_at, task: Task::Payment(order.id) }
}

fn reservation(order: &Order) -> Result<Reservation, Error> {
    reservation_of(order).map_err(|error| {
        tracing::error!(order = %order.id, %error, "an order that cannot be");
        Error::Internal
    })
}

fn refused(shortages: Vec<Short>, zone: &GeoZone) -> Outcome {
    Outcome::Refused(Refusal::out_of_stock(shortages, zone))
}

/// What lines cost together; `None` if they are in several currencies, or there are none.
fn total_of(lines: &[OrderLine]) -> Option<Money> {
    let currency = lines.first()?.price.currency;
    let mut amount = Decimal::new(0, PRICE_SCALE);
    for line in lines {
        if line.price.currency != currency {
            return None;
        }
        amount = amount.checked_add(line.price.times(line.units).amount)?;
    }
    Some(Money { amount, currency })
}
