//! Orders on the embedded store. Lists have no copies: they name orders, and an order is read where
//! it stands.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::model::{KEPT, MAX_EVENTS, Month, Order, OrderEvent, OrderPlace, day_of};
use super::store::{OrderStore, ScannedOrders, Slice, Stretch};
use crate::clock::Timestamp;
use crate::owner::Owner;
use crate::storage::embedded::{EmbeddedStore, Engine, Key, Reader, StoredKey, Table, Txn};
use crate::storage::{Due, OpenError, StoreError};

const STATE: &str = "order_state_by_id";
const EVENTS: &str = "order_events_by_id";
const BY_USER: &str = "orders_by_user";
const PARTS: &str = "order_months_by_user";
const BY_PERIOD: &str = "orders_by_period";
const CLAIMS: &str = "customer_by_session";
/// Orders of one step of a scan.
const SCAN_STEP: usize = 500;
/// Most parts of a history: one for each month that is kept, and some.
const MAX_PARTS: usize = 100;

/// The tables of orders.
#[derive(Clone)]
pub struct OrderTables {
    state: Table,
    events: Table,
    by_user: Table,
    parts: Table,
    by_period: Table,
    claims: Table,
}

/// A row of `customer_by_session`.
#[derive(Serialize, Deserialize)]
struct Claim {
    user: String,
}

/// A row of a list: the order it stands for.
#[derive(Serialize, Deserialize)]
struct Listed {
    id: Uuid,
}

fn state_key(id: Uuid) -> Key {
    Key::new().text(&id.simple().to_string())
}

fn event_key(order: Uuid, event: &OrderEvent) -> Key {
    state_key(order).int(event.at.micros().saturating_neg()).text(&event.id.simple().to_string())
}

fn part_key(owner: &Owner, part: i32) -> Key {
    Key::new().text(&owner.to_string()).int(part.into())
}

fn period_key(day: i32, shard: i8) -> Key {
    Key::new().int(day.into()).int(shard.into())
}

/// Newest first, and of one moment the greatest id first.
fn in_list(list: Key, place: OrderPlace) -> Key {
    let id = format!("{:032x}", !place.id.as_u128());
    list.int(place.created_at.micros().saturating_neg()).text(&id)
}

impl OrderTables {
    /// Opens the tables, made if they are not there.
    pub fn open(engine: &Engine) -> Result<Self, OpenError> {
        Ok(Self {
            state: engine.table(STATE)?,
            events: engine.table(EVENTS)?,
            by_user: engine.table(BY_USER)?,
            parts: engine.table(PARTS)?,
            by_period: engine.table(BY_PERIOD)?,
            claims: engine.table(CLAIMS)?,
        })
    }

    fn put(&self, txn: &mut Txn<'_>, order: &Order) -> Result<(), StoreError> {
        let until = Some(order.created_at.after(KEPT));
        txn.put(&self.state, state_key(order.id), order, until)?;
        for event in &order.changes {
            txn.put(&self.events, event_key(order.id, event), event, until)?;
        }
        let listed = Listed { id: order.id };
        let part = order.part.number();
        // Not only as long as this order: others of the part may be kept longer.
        let part_until = Some(order.part.kept_until());
        txn.put(&self.parts, part_key(&order.owner, part.saturating_neg()), &part, part_until)?;
        txn.put(
            &self.by_user,
            in_list(part_key(&order.owner, part), order.place()),
            &listed,
            until,
        )?;
        let day = period_key(day_of(order.created_at), order.day_shard());
        txn.put(&self.by_period, in_list(day, order.place()), &listed, until)
    }

    fn parts(&self, reader: &Reader, owner: &Owner) -> Result<Vec<Month>, StoreError> {
        let prefix = Key::new().text(&owner.to_string());
        let rows: Vec<(StoredKey, i32)> = reader.scan(&self.parts, &prefix, MAX_PARTS)?;
        Ok(rows.into_iter().map(|(_, month)| Month::from_number(month)).collect())
    }

    fn of_part(
        &self,
        reader: &Reader,
        owner: &Owner,
        part: Month,
        slice: Slice,
    ) -> Result<Vec<Order>, StoreError> {
        let list = part_key(owner, part.number());
        let bound = |place: Option<OrderPlace>| place.map(|at| in_list(list.clone(), at));
        let lower = bound(slice.after).unwrap_or_else(|| list.clone());
        let end = || part_key(owner, part.number().saturating_add(1));
        let upper = bound(slice.before).unwrap_or_else(end);
        self.listed(reader, &self.by_user, (&lower, &upper), slice.from_end, slice.limit)
    }

    /// Orders of a list between two of its keys.
    fn listed(
        &self,
        reader: &Reader,
        list: &Table,
        between: (&Key, &Key),
        descending: bool,
        limit: usize,
    ) -> Result<Vec<Order>, StoreError> {
        let rows: Vec<(StoredKey, Listed)> = reader.range(list, between, descending, limit)?;
        let order = |(_, row): (StoredKey, Listed)| {
            reader.get::<Order>(&self.state, &state_key(row.id)).transpose()
        };
        rows.into_iter().filter_map(order).collect()
    }
}

#[async_trait]
impl OrderStore for EmbeddedStore {
    async fn order(&self, id: Uuid) -> Result<Option<Order>, StoreError> {
        let table = self.orders.state.clone();
        self.engine.look(STATE, 1, move |reader: &Reader| reader.get(&table, &state_key(id))).await
    }

    async fn settled_order(&self, id: Uuid) -> Result<Option<Order>, StoreError> {
        // The writer runs one write after another: an empty one comes after all that were taken.
        self.engine.write(STATE, |_| Ok(())).await?;
        self.order(id).await
    }

    async fn place_order(&self, order: &Order, payment_due: &Due) -> Result<(), StoreError> {
        let (tables, due_table) = (self.orders.clone(), self.due.clone());
        let (order, due) = (order.clone(), payment_due.clone());
        let write = move |txn: &mut Txn<'_>| {
            if txn.contains(&tables.state, &state_key(order.id))? {
                return Ok(());
            }
            due_table.add_to(txn, &due)?;
            tables.put(txn, &order)
        };
        self.engine.write(STATE, write).await
    }

    async fn change_order(
        &self,
        before: &Order,
        after: &Order,
        due: &Due,
    ) -> Result<bool, StoreError> {
        let (tables, due_table) = (self.orders.clone(), self.due.clone());
        let (before, after, due) = (before.clone(), after.clone(), due.clone());
        let write = move |txn: &mut Txn<'_>| {
            let there: Option<Order> = txn.get(&tables.state, &state_key(before.id))?;
            if there.is_none_or(|there| there.version != before.version) {
                return Ok(false);
            }
            due_table.add_to(txn, &due)?;
            if (&before.owner, before.part) != (&after.owner, after.part) {
                let part = part_key(&before.owner, before.part.number());
                txn.delete(&tables.by_user, in_list(part, before.place()));
            }
            tables.put(txn, &after)?;
            Ok(true)
        };
        self.engine.write(STATE, write).await
    }

    async fn mend_order(&self, order: &Order) -> Result<(), StoreError> {
        let (tables, id) = (self.orders.clone(), order.id);
        let write = move |txn: &mut Txn<'_>| {
            // As it is now: whoever comes late undoes nothing.
            let there: Option<Order> = txn.get(&tables.state, &state_key(id))?;
            there.map_or(Ok(()), |order| tables.put(txn, &order))
        };
        self.engine.write(STATE, write).await
    }

    async fn faults_of_order(&self, order: &Order) -> Result<Vec<&'static str>, StoreError> {
        let (tables, order) = (self.orders.clone(), order.clone());
        let read = move |reader: &Reader| {
            let mut faults = Vec::new();
            let is_there = |table: &Table, key: Key| {
                reader.get::<serde::de::IgnoredAny>(table, &key).map(|row| row.is_some())
            };
            for event in &order.changes {
                if !is_there(&tables.events, event_key(order.id, event))? {
                    faults.push("event");
                }
            }
            let part = order.part.number();
            if !is_there(&tables.parts, part_key(&order.owner, part.saturating_neg()))? {
                faults.push("part of the history");
            }
            let place = order.place();
            if !is_there(&tables.by_user, in_list(part_key(&order.owner, part), place))? {
                faults.push("history");
            }
            let day = period_key(day_of(order.created_at), order.day_shard());
            if !is_there(&tables.by_period, in_list(day, place))? {
                faults.push("period");
            }
            Ok(faults)
        };
        self.engine.read(STATE, read).await
    }

    async fn add_order_event(&self, order: Uuid, event: &OrderEvent) -> Result<(), StoreError> {
        let (table, event) = (self.orders.events.clone(), event.clone());
        let write = move |txn: &mut Txn<'_>| {
            txn.put(&table, event_key(order, &event), &event, Some(event.at.after(KEPT)))
        };
        self.engine.write(EVENTS, write).await
    }

    async fn order_events(&self, order: Uuid, limit: usize) -> Result<Vec<OrderEvent>, StoreError> {
        let table = self.orders.events.clone();
        let read = move |reader: &Reader| {
            let rows: Vec<(StoredKey, OrderEvent)> =
                reader.scan(&table, &state_key(order), limit.min(MAX_EVENTS))?;
            Ok(rows.into_iter().map(|(_, event)| event).collect())
        };
        self.engine.look(EVENTS, limit, read).await
    }

    async fn history_parts(&self, owner: &Owner) -> Result<Vec<Month>, StoreError> {
        let (tables, owner) = (self.orders.clone(), owner.clone());
        self.engine.look(PARTS, 1, move |reader: &Reader| tables.parts(reader, &owner)).await
    }

    async fn begin_history_part(&self, owner: &Owner, part: Month) -> Result<(), StoreError> {
        let (table, until) = (self.orders.parts.clone(), part.kept_until());
        let part = part.number();
        let key = part_key(owner, part.saturating_neg());
        let write = move |txn: &mut Txn<'_>| txn.put(&table, key, &part, Some(until));
        self.engine.write(PARTS, write).await
    }

    async fn orders_of(
        &self,
        owner: &Owner,
        part: Month,
        slice: Slice,
    ) -> Result<Vec<Order>, StoreError> {
        let (tables, owner) = (self.orders.clone(), owner.clone());
        let read = move |reader: &Reader| tables.of_part(reader, &owner, part, slice);
        self.engine.look(BY_USER, slice.limit, read).await
    }

    async fn history(&self, owner: &Owner, slice: Slice) -> Result<Stretch, StoreError> {
        let (tables, owner) = (self.orders.clone(), owner.clone());
        let read = move |reader: &Reader| {
            let mut stretch = Stretch::default();
            for part in slice.parts(&tables.parts(reader, &owner)?) {
                let Some(rest) = stretch.rest(slice) else { break };
                stretch.add(tables.of_part(reader, &owner, part, rest)?);
            }
            Ok(stretch)
        };
        self.engine.look(BY_USER, slice.limit, read).await
    }

    async fn orders_on(
        &self,
        day: i32,
        shard: i8,
        after: Option<OrderPlace>,
        limit: usize,
    ) -> Result<Vec<Order>, StoreError> {
        let tables = self.orders.clone();
        let (list, end) = (period_key(day, shard), period_key(day, shard.saturating_add(1)));
        let read = move |reader: &Reader| {
            let lower = after.map_or_else(|| list.clone(), |at| in_list(list.clone(), at));
            tables.listed(reader, &tables.by_period, (&lower, &end), false, limit)
        };
        self.engine.read(BY_PERIOD, read).await
    }

    async fn claim_guest(&self, guest: Uuid, user: &str) -> Result<(), StoreError> {
        let (table, claim) = (self.orders.claims.clone(), Claim { user: user.to_owned() });
        let write = move |txn: &mut Txn<'_>| {
            let until: Timestamp = txn.now().after(KEPT);
            txn.put(&table, state_key(guest), &claim, Some(until))
        };
        self.engine.write(CLAIMS, write).await
    }

    async fn claimant(&self, guest: Uuid) -> Result<Option<String>, StoreError> {
        let table = self.orders.claims.clone();
        let read = move |reader: &Reader| reader.get::<Claim>(&table, &state_key(guest));
        Ok(self.engine.look(CLAIMS, 1, read).await?.map(|claim| claim.user))
    }

    async fn scan_orders(&self, after: Option<Vec<u8>>) -> Result<ScannedOrders, StoreError> {
        let table = self.orders.state.clone();
        let read = move |reader: &Reader| {
            let after = after.as_deref().map(|key| Reader::text(&table, key)).transpose()?;
            let lower = after.map_or_else(Key::new, |text| Key::new().text(&text));
            let rows: Vec<(StoredKey, Order)> =
                reader.range(&table, (&lower, &Key::last()), false, SCAN_STEP)?;
            let next = rows.last().filter(|_| rows.len() == SCAN_STEP).map(|(key, _)| key.to_vec());
            Ok(ScannedOrders { orders: rows.into_iter().map(|(_, order)| order).collect(), next })
        };
        self.engine.read(STATE, read).await
    }
}
