//! What orders need of a store.

use async_trait::async_trait;
use uuid::Uuid;

use super::model::{Month, Order, OrderEvent, OrderPlace};
use crate::owner::Owner;
use crate::storage::{Due, StoreError};

/// Which orders of a part of a history, and in which direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Only those that come after this place, in the order of the list.
    pub after: Option<OrderPlace>,
    /// Only those that come before this place.
    pub before: Option<OrderPlace>,
    /// From the end of the list on.
    pub from_end: bool,
    /// How many.
    pub limit: usize,
}

impl Slice {
    /// Those of a history's parts, which are given newest first, that the slice can reach, in the
    /// order in which they are read.
    pub fn parts(&self, parts: &[Month]) -> Vec<Month> {
        let newer = [None].into_iter().chain(parts.iter().copied().map(Some));
        let reaches = |(part, newer): &(Month, Option<Month>)| {
            let begins_in_time = self.after.is_none_or(|after| part.start() <= after.created_at);
            let ends_in_time = match (newer, self.before) {
                (Some(newer), Some(before)) => newer.start() > before.created_at,
                _ => true,
            };
            begins_in_time && ends_in_time
        };
        let reached = parts.iter().copied().zip(newer).filter(reaches);
        let mut wanted: Vec<_> = reached.map(|(part, _)| part).collect();
        if self.from_end {
            wanted.reverse();
        }
        wanted
    }
}

/// What was read of a history.
#[derive(Debug, Default)]
pub struct Stretch {
    /// The orders, from the end that was asked for.
    pub orders: Vec<Order>,
    /// The parts that were read.
    pub parts: u32,
}

impl Stretch {
    /// What is missing of a slice; `None` if nothing is.
    pub fn rest(&self, slice: Slice) -> Option<Slice> {
        let limit = slice.limit.saturating_sub(self.orders.len());
        (limit > 0).then_some(Slice { limit, ..slice })
    }

    /// Adds what was read of a part.
    pub fn add(&mut self, orders: Vec<Order>) {
        self.orders.extend(orders);
        self.parts += 1;
    }
}

/// Orders that are scanned at once, and where to go on.
#[derive(Debug, Default)]
pub struct ScannedOrders {
    /// The orders.
    pub orders: Vec<Order>,
    /// Where to go on; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// The contract of orders with a store. Lists are newest first. What is read is never older than
/// what was acknowledged before the call, also where a list has its own copy of an order.
#[async_trait]
pub trait OrderStore: Send + Sync {
    /// An order.
    async fn order(&self, id: Uuid) -> Result<Option<Order>, StoreError>;

    /// An order after a change whose reply was lost: whatever of it was under way has either
    /// happened or never will without a change of the version.
    async fn settled_order(&self, id: Uuid) -> Result<Option<Order>, StoreError>;

    /// Places an order: its events, its place in every list, that it is due when its payment is, and
    /// its state, which is not there before all the rest is. To do it again changes nothing, also if the order has changed since.
    async fn place_order(&self, order: &Order, payment_due: &Due) -> Result<(), StoreError>;

    /// Changes an order if it is still of the version of `before`, with its lists and events, and
    /// answers whether it was. `due` is noted before: whoever comes at that time mends what was
    /// left half done. On an error it may have been changed all the same, now or later, and its
    /// lists and events may be left behind.
    async fn change_order(
        &self,
        before: &Order,
        after: &Order,
        due: &Due,
    ) -> Result<bool, StoreError>;

    /// Writes the lists and events of an order as its state has them. It can be repeated, and a
    /// late one never undoes a newer one.
    async fn mend_order(&self, order: &Order) -> Result<(), StoreError>;

    /// What the lists and events have that differs from the state of an order, in a word each; for
    /// checking.
    async fn faults_of_order(&self, order: &Order) -> Result<Vec<&'static str>, StoreError>;

    /// Notes an event beside those that changed the order; the order need not be there.
    async fn add_order_event(&self, order: Uuid, event: &OrderEvent) -> Result<(), StoreError>;

    /// The newest events of an order, perhaps a moment old.
    async fn order_events(&self, order: Uuid, limit: usize) -> Result<Vec<OrderEvent>, StoreError>;

    /// The months in which parts of a history begin, newest first.
    async fn history_parts(&self, owner: &Owner) -> Result<Vec<Month>, StoreError>;

    /// Has a part of a history begin in a month that is still to come.
    async fn begin_history_part(&self, owner: &Owner, part: Month) -> Result<(), StoreError>;

    /// Orders of a part of a history.
    async fn orders_of(
        &self,
        owner: &Owner,
        part: Month,
        slice: Slice,
    ) -> Result<Vec<Order>, StoreError>;

    /// Orders of a history, whatever parts they lie in: reads the list of its parts, and then those
    /// that the slice lies in, one after the other. A store that can does it in one go.
    async fn history(&self, owner: &Owner, slice: Slice) -> Result<Stretch, StoreError> {
        let parts = self.history_parts(owner).await?;
        let mut stretch = Stretch::default();
        for part in slice.parts(&parts) {
            let Some(rest) = stretch.rest(slice) else { break };
            stretch.add(self.orders_of(owner, part, rest).await?);
        }
        Ok(stretch)
    }

    /// The orders that were placed on a day, those of a shard, from a place on.
    async fn orders_on(
        &self,
        day: i32,
        shard: i8,
        after: Option<OrderPlace>,
        limit: usize,
    ) -> Result<Vec<Order>, StoreError>;

    /// Notes that a guest has become a customer: orders that are placed from now on under the
    /// guest's session are the customer's.
    async fn claim_guest(&self, guest: Uuid, user: &str) -> Result<(), StoreError>;

    /// The customer that a guest has become.
    async fn claimant(&self, guest: Uuid) -> Result<Option<String>, StoreError>;

    /// All orders, piece by piece in no order that means anything, from a place on.
    async fn scan_orders(&self, after: Option<Vec<u8>>) -> Result<ScannedOrders, StoreError>;
}
