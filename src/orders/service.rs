//! What can be asked of orders. What changes them is the checkout's, which knows their units too.

use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use futures_util::stream::Stream;
use uuid::Uuid;

use super::model::{
    DAY_SHARDS, MAX_EVENTS, MAX_PART_ROWS, Month, Order, OrderEvent, OrderPlace, OrderStatus,
    next_part, part_of,
};
use super::store::{OrderStore, Slice, Stretch};
use crate::cache::Tiers;
use crate::clock::{Clock, Timestamp};
use crate::error::Error;
use crate::feed::{Feed, Look};
use crate::geo_zone::GeoZone;
use crate::owner::Owner;
use crate::storage::StoreError;
use crate::telemetry::OperationStats;

/// Most orders of a day that are looked at for one page. A page that is not full by then ends there,
/// and its last cursor goes on.
const MAX_LOOKS: usize = 2_000;
/// One in so many orders counts the part of the history that it is placed in.
const COUNT_ONE_IN: u128 = 64;

/// Which orders of a history are asked for.
#[derive(Debug, Clone, Default)]
pub struct HistoryQuery {
    /// Only those placed then or later.
    pub from: Option<Timestamp>,
    /// Only those placed before.
    pub to: Option<Timestamp>,
    /// Only what comes after this place in the list.
    pub after: Option<OrderPlace>,
    /// Only what comes before this place.
    pub before: Option<OrderPlace>,
    /// The last ones instead of the first.
    pub from_end: bool,
    /// How many.
    pub limit: usize,
}

/// A page of orders, newest first.
#[derive(Debug, Default)]
pub struct OrderPage {
    /// The orders.
    pub orders: Vec<Order>,
    /// Whether there is more after the page.
    pub has_next: bool,
    /// Whether there is more before the page.
    pub has_previous: bool,
    /// Where to go on if that is further than the last order.
    pub next: Option<OrderPlace>,
}

/// What orders of a day are asked for.
#[derive(Debug, Clone, Default)]
pub struct DayQuery {
    /// The day, counted from 1970.
    pub day: i32,
    /// Only those that stand so.
    pub status: Option<OrderStatus>,
    /// Only those of this zone.
    pub zone: Option<GeoZone>,
    /// Only what comes after this place.
    pub after: Option<OrderPlace>,
    /// How many.
    pub limit: usize,
}

/// Orders as they are read and watched.
pub struct OrderService {
    store: Arc<dyn OrderStore>,
    clock: Arc<dyn Clock>,
    feed: Arc<Feed<Uuid>>,
}

/// Looks at orders that are watched.
struct OrderLook(Arc<dyn OrderStore>);

#[async_trait]
impl Look<Uuid> for OrderLook {
    async fn newest(&self, id: &Uuid) -> Option<i64> {
        Some(self.0.order(*id).await.ok()??.version)
    }
}

impl OrderService {
    /// Orders on a store. `shop` tells this shop's messages from others'; `is_shared` says that
    /// others change the orders too.
    pub fn new(
        store: Arc<dyn OrderStore>,
        clock: Arc<dyn Clock>,
        tiers: &Tiers,
        shop: &str,
        is_shared: bool,
    ) -> Arc<Self> {
        let feed = Feed::open(OrderLook(store.clone()), tiers, shop, "orders", is_shared);
        Arc::new(Self { store, clock, feed })
    }

    /// An order as it is now.
    pub async fn order(&self, id: Uuid) -> Result<Option<Order>, Error> {
        let order = self.store.order(id).await?;
        if let Some(order) = &order {
            self.feed.shown(&id, order.version);
        }
        Ok(order)
    }

    /// What happened to an order, oldest first.
    pub async fn timeline(&self, order: &Order) -> Result<Vec<OrderEvent>, Error> {
        let mut events = self.store.order_events(order.id, MAX_EVENTS).await?;
        // What the order itself knows may not have been copied yet.
        for change in &order.changes {
            if !events.iter().any(|event| event.id == change.id) {
                events.push(change.clone());
            }
        }
        // Of two of the same millisecond, what was only noted came first: a note is put after all
        // changes that were there, and a change does not know of notes.
        let is_change = |event: &OrderEvent| order.changes.iter().any(|one| one.id == event.id);
        events.sort_by_cached_key(|event| (event.at, is_change(event), event.id));
        // A message that came twice at once may have been noted at two moments: the first counts.
        let mut told = HashSet::with_capacity(events.len());
        events.retain(|event| told.insert(event.id));
        Ok(events)
    }

    /// Tells whenever an order may have changed, here or through another instance; at once for the
    /// first time.
    pub fn changes(&self, id: Uuid) -> Result<impl Stream<Item = ()> + Send + use<>, Error> {
        self.feed.watch(&id)
    }

    /// An order was changed here.
    pub fn changed(&self, id: Uuid) {
        self.feed.changed(&id);
    }

    /// The part of a history that an order placed at a moment belongs to.
    pub async fn part_for(&self, owner: &Owner, at: Timestamp) -> Result<Month, StoreError> {
        Ok(part_of(&self.store.history_parts(owner).await?, at))
    }

    /// Sees to it that the part of the history that an order was placed in does not grow for ever.
    pub async fn look_at_part(&self, order: &Order) -> Result<(), StoreError> {
        if !order.id.as_u128().is_multiple_of(COUNT_ONE_IN) {
            return Ok(());
        }
        let slice = Slice { after: None, before: None, from_end: false, limit: MAX_PART_ROWS };
        let rows = self.store.orders_of(&order.owner, order.part, slice).await?.len();
        if rows >= MAX_PART_ROWS {
            self.store.begin_history_part(&order.owner, next_part(self.clock.now())).await?;
        }
        Ok(())
    }

    /// A page of a history.
    pub async fn history(&self, owner: &Owner, query: &HistoryQuery) -> Result<OrderPage, Error> {
        let whole_millis =
            |at: Timestamp| Timestamp::from_millis((at.micros() + 999).div_euclid(1_000));
        let bound = |at: Timestamp| OrderPlace { created_at: whole_millis(at), id: Uuid::nil() };
        // The list is newest first: what comes after a place was placed before it.
        let after = [query.after, query.to.map(bound)].into_iter().flatten().min();
        let before = [query.before, query.from.map(bound)].into_iter().flatten().max();
        // One more tells whether there is a next page.
        let limit = query.limit + 1;
        let slice = Slice { after, before, from_end: query.from_end, limit };
        let Stretch { mut orders, parts } = self.store.history(owner, slice).await?;
        let is_more = orders.len() > query.limit;
        orders.truncate(query.limit);
        let rows = u32::try_from(orders.len()).unwrap_or(u32::MAX);
        // The list of parts is a partition too.
        OperationStats::page("history", parts + 1, rows);
        let (has_next, has_previous) = if query.from_end {
            orders.reverse();
            (query.before.is_some(), is_more)
        } else {
            (is_more, query.after.is_some())
        };
        Ok(OrderPage { orders, has_next, has_previous, next: None })
    }

    /// The orders of a day, newest first.
    pub async fn on_day(&self, query: &DayQuery) -> Result<OrderPage, Error> {
        let (mut place, mut found, mut looks) = (query.after, Vec::new(), 0);
        let is_wanted = |order: &Order| {
            query.status.is_none_or(|status| order.status == status)
                && query.zone.as_ref().is_none_or(|zone| order.zone == *zone)
        };
        let (mut partitions, mut is_more) = (0, true);
        while is_more && found.len() <= query.limit && looks < MAX_LOOKS {
            let limit = query.limit + 1;
            let reads =
                (0..DAY_SHARDS).map(|shard| self.store.orders_on(query.day, shard, place, limit));
            let shards = try_join_all(reads).await?;
            partitions += u32::try_from(shards.len()).unwrap_or(u32::MAX);
            // Of a shard that may have more, nothing is known beyond its last order.
            let full = shards.iter().filter(|orders| orders.len() >= limit);
            let horizon = full.filter_map(|orders| orders.last().map(Order::place)).max();
            is_more = horizon.is_some();
            let orders = shards.into_iter().flatten();
            let known = |order: &Order| horizon.is_none_or(|end| order.place() >= end);
            let mut sorted: BinaryHeap<Ordered> = orders.filter(known).map(Ordered).collect();
            while let Some(Ordered(order)) = sorted.pop() {
                if found.len() > query.limit {
                    break;
                }
                place = Some(order.place());
                looks += 1;
                if is_wanted(&order) {
                    found.push(order);
                }
            }
        }
        let rows = u32::try_from(looks).unwrap_or(u32::MAX);
        OperationStats::page("period", partitions, rows);
        let has_extra = found.len() > query.limit;
        found.truncate(query.limit);
        // Where nothing was left over, it goes on where it was last looked.
        let next = if has_extra { None } else { place.filter(|_| is_more) };
        let has_next = has_extra || next.is_some();
        Ok(OrderPage { orders: found, has_next, has_previous: query.after.is_some(), next })
    }
}

/// An order by its place: the greatest is the newest.
struct Ordered(Order);

impl PartialEq for Ordered {
    fn eq(&self, other: &Self) -> bool {
        self.0.place() == other.0.place()
    }
}

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.place().cmp(&other.0.place())
    }
}
