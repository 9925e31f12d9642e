//! The steps of an order after it was placed, and where its units go with them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{CheckoutService, MAX_TRIES, payment_due, reservation};
use crate::chance;
use crate::error::Error;
use crate::fault;
use crate::inventory::service::Standing;
use crate::orders::model::{Actor, Order, OrderStatus, Step, Stepped, UnitsStand};
use crate::orders::store::Slice;
use crate::owner::Owner;
use crate::storage::{Due, StoreError, Task, to_its_end};

/// How long whoever changes an order may take until somebody looks whether it was done.
const CHANGE_LEASE: Duration = Duration::from_secs(5);
/// An order that was read so long ago is read again before its units are touched: the stock may have
/// forgotten by then that they were.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Orders of a guest that are handed over at once.
const HAND_OVERS: usize = 100;

/// What became of the wish to change an order.
#[derive(Debug)]
pub enum Changed {
    /// It stands so now.
    Done(Box<Order>),
    /// There is no such order, or it is none of the caller's business.
    NotFound,
    /// It cannot be changed so from how it stands.
    Impossible(Box<Order>),
}

impl CheckoutService {
    /// Has an order take a step, if `may` says that it is the caller's business. A step that was
    /// taken before is taken once.
    pub async fn step(
        self: &Arc<Self>,
        id: Uuid,
        step: Step,
        may: impl Fn(&Order) -> bool + Send + 'static,
    ) -> Result<Changed, Error> {
        let service = self.clone();
        to_its_end("order", async move { service.take_step(id, &step, may).await }).await
    }

    async fn take_step(
        &self,
        id: Uuid,
        step: &Step,
        may: impl Fn(&Order) -> bool,
    ) -> Result<Changed, Error> {
        let mut there = self.store.order(id).await?;
        for _ in 0..MAX_TRIES {
            let Some(order) = there.filter(&may) else { return Ok(Changed::NotFound) };
            let after = match order.step(step, self.clock.now()) {
                Stepped::Changed(after) => after,
                Stepped::Same => return Ok(Changed::Done(Box::new(order))),
                Stepped::Impossible => return Ok(Changed::Impossible(Box::new(order))),
            };
            let due = self.soon(id);
            if self.change(&order, &after, &due).await? {
                let read = Instant::now();
                // If that fails it is due, and done then.
                let moved = self.move_units(*after.clone(), read, &due).await;
                let done = moved.unwrap_or(*after);
                self.wind_up_change(&order, &done, &due).await;
                return Ok(Changed::Done(Box::new(done)));
            }
            there = self.store.settled_order(id).await?;
        }
        Err(Error::Unavailable)
    }

    /// When somebody looks whether a change of an order was finished.
    fn soon(&self, id: Uuid) -> Due {
        let [.., a, b, c, d] = chance::id().into_bytes();
        let task = Task::Change(id, u32::from_be_bytes([a, b, c, d]));
        Due { at: self.clock.now().after(fault::hurried(CHANGE_LEASE)), task }
    }

    /// Changes an order that was just read; answers whether it was.
    async fn change(&self, before: &Order, after: &Order, due: &Due) -> Result<bool, StoreError> {
        let changed = match self.store.change_order(before, after, due).await {
            Ok(changed) => changed,
            Err(error) => match self.store.settled_order(before.id).await? {
                Some(there) if there == *after => {
                    // It was, but its lists may not know.
                    self.store.mend_order(&there).await?;
                    true
                }
                Some(there) if there.version != before.version => false,
                _ => return Err(error),
            },
        };
        if changed {
            self.orders.changed(after.id);
        }
        Ok(changed)
    }

    /// Nobody has to look at an order any more because of a change that is done.
    async fn wind_up_change(&self, before: &Order, after: &Order, due: &Due) {
        let is_settled = after.units.done().is_none();
        let left_unpaid =
            before.status == OrderStatus::Created && after.status != OrderStatus::Created;
        let payment = payment_due(before);
        for (due, is_over) in [(due, is_settled), (&payment, left_unpaid && is_settled)] {
            if is_over && let Err(error) = self.store.remove_due(due).await {
                tracing::debug!(%error, "what is done is still noted as due");
            }
        }
    }

    /// Does with the units of an order what is to be done with them, notes that, and lets the stock
    /// forget. `read` is a moment before the order was read; it was noted as `due` before.
    async fn move_units(
        &self,
        mut order: Order,
        mut read: Instant,
        due: &Due,
    ) -> Result<Order, Error> {
        let reservation = reservation(&order)?;
        for _ in 0..MAX_TRIES {
            let Some(done) = order.units_done() else {
                if matches!(order.units, UnitsStand::Released | UnitsStand::Left) {
                    self.inventory.close(&reservation).await?;
                }
                return Ok(order);
            };
            if read.elapsed() < MAX_AGE {
                match order.units {
                    UnitsStand::Releasing => {
                        self.inventory.release(&reservation, Standing::Recorded).await?;
                    }
                    UnitsStand::Leaving => self.inventory.commit(&reservation).await?,
                    UnitsStand::Held | UnitsStand::Released | UnitsStand::Left => {}
                }
                if self.change(&order, &done, due).await? {
                    order = done;
                    continue;
                }
            }
            read = Instant::now();
            match self.store.settled_order(order.id).await? {
                Some(there) => order = there,
                None => return Err(Error::Internal),
            }
        }
        Err(Error::Unavailable)
    }

    /// Finishes what was left half done with an order, and cancels it if it was not paid in time.
    /// Answers whether there was anything to do. `is_change`: because somebody has noted that it is
    /// about to be changed.
    pub(in super::super) async fn mend(
        self: &Arc<Self>,
        id: Uuid,
        is_change: bool,
    ) -> Result<bool, Error> {
        let read = Instant::now();
        // One that was never placed is a checkout's to place.
        let Some(order) = self.store.settled_order(id).await? else { return Ok(false) };
        let is_unpaid =
            order.status == OrderStatus::Created && self.clock.now() >= order.payment_due_at;
        if is_unpaid {
            let note = Some("It was not paid in time.".to_owned());
            let step = Step { note, ..Step::new(OrderStatus::Cancelled, Actor::Shop) };
            self.take_step(id, &step, |order| order.status == OrderStatus::Created).await?;
            return Ok(true);
        }
        let was_behind = !self.mend_lists(&order).await?.is_empty();
        let had_units = order.units.done().is_some();
        let soon = self.soon(id);
        if is_change && !had_units {
            // Whoever has noted this may be about to change the order, and nobody would look at it
            // after that.
            self.change(&order, &order.touched(), &soon).await?;
        }
        self.move_units(order, read, &soon).await?;
        if had_units || is_change {
            self.store.remove_due(&soon).await?;
        }
        Ok(had_units || was_behind)
    }

    /// Has the lists and events of an order say what its state says. Answers with what did not.
    pub(in super::super) async fn mend_lists(
        &self,
        order: &Order,
    ) -> Result<Vec<&'static str>, Error> {
        let faults = self.store.faults_of_order(order).await?;
        if !faults.is_empty() {
            self.store.mend_order(order).await?;
        }
        Ok(faults)
    }

    /// A guest has become a customer: the guest's orders are the customer's, those that are being
    /// placed too.
    pub async fn claim(self: &Arc<Self>, guest: Uuid, user: Arc<str>) -> Result<(), Error> {
        let service = self.clone();
        let claim = async move {
            let at = service.clock.now().after(fault::hurried(CHANGE_LEASE));
            let due = Due { at, task: Task::Claim(guest) };
            service.store.add_due(&due).await?;
            // First: whoever places an order after this finds it, and what was placed before is
            // found below.
            service.store.claim_guest(guest, &user).await?;
            service.hand_over_all(guest).await?;
            Ok::<_, Error>(service.store.remove_due(&due).await?)
        };
        to_its_end("claim", claim).await
    }

    /// Hands all orders of a guest who has become a customer over.
    pub(in super::super) async fn hand_over_all(&self, guest: Uuid) -> Result<(), Error> {
        let Some(user) = self.store.claimant(guest).await? else { return Ok(()) };
        let owner = Owner::Guest(guest);
        for part in self.store.history_parts(&owner).await? {
            let mut after = None;
            loop {
                let slice = Slice { after, before: None, from_end: false, limit: HAND_OVERS };
                let orders = self.store.orders_of(&owner, part, slice).await?;
                for order in &orders {
                    self.hand_over(order.id, &user).await?;
                }
                after = orders.last().map(Order::place);
                if orders.len() < HAND_OVERS {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Hands an order over to a customer, if it is still a guest's.
    pub(super) async fn hand_over(&self, id: Uuid, user: &str) -> Result<(), Error> {
        let owner = Owner::User(user.into());
        for _ in 0..MAX_TRIES {
            let Some(order) = self.store.settled_order(id).await? else { return Ok(()) };
            if matches!(order.owner, Owner::User(_)) {
                return Ok(());
            }
            let part = self.orders.part_for(&owner, order.created_at).await?;
            let after = order.moved_to(owner.clone(), part, self.clock.now());
            let due = self.soon(id);
            if self.change(&order, &after, &due).await? {
                self.wind_up_change(&order, &after, &due).await;
                return Ok(());
            }
        }
        Err(Error::Unavailable)
    }
}
