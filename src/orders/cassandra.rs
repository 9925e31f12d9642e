//! Orders on Cassandra.
//!
//! The state of an order is the truth: it is written once as it was placed, and then by conditional
//! writes only. Lists have copies. A copy is written with a time that follows from the order's
//! version, so a late one never takes the place of a newer one. Before an order is changed its copies
//! are marked; whoever reads a marked one looks at the state. So a process that dies in between
//! leaves a copy that costs one read more, and never one that is wrong.

mod lists;

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use scylla::value::CqlTimestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use self::lists::{ListRow, ListStatements};
use super::model::{Actor, MAX_EVENTS, Month, Order, OrderEvent, OrderPlace};
use super::store::{OrderStore, ScannedOrders, Slice};
use crate::clock::Timestamp;
use crate::owner::Owner;
use crate::storage::cassandra::{Access, Batch, CassandraStore, Statement, Statements, to_cql};
use crate::storage::{Due, DueStore, OpenError, StoreError};

const STATE: &str = "order_state_by_id";
const EVENTS: &str = "order_events_by_id";
const CLAIMS: &str = "customer_by_session";
/// A shopper waits for these.
const READ: Duration = Duration::from_secs(2);
const WRITE: Duration = Duration::from_secs(2);
/// Orders of one step of a scan.
const SCAN_STEP: i32 = 500;
/// How often a page is read on because rows of it were not to be shown.
const MAX_ROUNDS: usize = 8;
/// So long before an order was placed is the write time of its first state: before that of every
/// conditional write, whatever the clocks of the nodes show.
const STATE_TIME_BEFORE: Duration = Duration::from_secs(24 * 3_600);

/// The prepared statements of orders.
pub struct OrderStatements {
    state: Statement,
    settled: Statement,
    place: Statement,
    change: Statement,
    scan: Statement,
    events: Statement,
    add_events: Batch,
    claim: Statement,
    claimant: Statement,
    lists: ListStatements,
}

impl OrderStatements {
    /// Prepares all of them.
    pub async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let state = |cql, access| statements.prepare(STATE, cql, access, READ);
        let events = |cql, access| statements.prepare(EVENTS, cql, access, READ);
        let claims = |cql, access| statements.prepare(CLAIMS, cql, access, WRITE);
        Ok(Self {
            state: state(
                "SELECT body FROM ks.order_state_by_id WHERE order_id = ?",
                Access::ReadQuorum,
            )
            .await?,
            settled: state(
                "SELECT body FROM ks.order_state_by_id WHERE order_id = ?",
                Access::ReadSerial,
            )
            .await?,
            place: state(
                "INSERT INTO ks.order_state_by_id (order_id, user_id, status, geo_zone, \
                 total_amount, currency, version, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?) \
                 USING TIMESTAMP ?",
                Access::WriteQuorum,
            )
            .await?,
            change: state(
                "UPDATE ks.order_state_by_id SET user_id = ?, status = ?, version = ?, body = ? \
                 WHERE order_id = ? IF version = ?",
                Access::Conditional,
            )
            .await?,
            scan: state(
                "SELECT token(order_id), body FROM ks.order_state_by_id \
                 WHERE token(order_id) > ? LIMIT ?",
                Access::ReadQuorum,
            )
            .await?,
            events: events(
                "SELECT event_time, event_id, event_type, payload FROM ks.order_events_by_id \
                 WHERE order_id = ? LIMIT ?",
                Access::ReadOne,
            )
            .await?,
            add_events: statements.batch(
                events(
                    "INSERT INTO ks.order_events_by_id (order_id, event_time, event_id, \
                     event_type, payload) VALUES (?, ?, ?, ?, ?)",
                    Access::WriteQuorum,
                )
                .await?,
            ),
            claim: claims(
                "INSERT INTO ks.customer_by_session (session_id, user_id) VALUES (?, ?)",
                Access::WriteQuorum,
            )
            .await?,
            claimant: claims(
                "SELECT user_id FROM ks.customer_by_session WHERE session_id = ?",
                Access::ReadQuorum,
            )
            .await?,
            lists: Box::pin(ListStatements::prepare(statements)).await?,
        })
    }

    async fn read(&self, statement: &Statement, id: Uuid) -> Result<Option<Order>, StoreError> {
        let row: Option<(Option<String>,)> = statement.first((id,)).await?;
        row.and_then(|(body,)| body).map(|body| statement.of_json(&body)).transpose()
    }

    /// The orders of rows of a list: their copies, or the state where that may be newer. `belongs`
    /// tells whether one still stands in that list.
    async fn of_rows(
        &self,
        rows: Vec<ListRow>,
        belongs: impl Fn(&Order) -> bool,
    ) -> Result<Vec<Order>, StoreError> {
        let (mut orders, mut marked) = (Vec::with_capacity(rows.len()), Vec::new());
        for (place, row) in rows.iter().enumerate() {
            let copy = self.lists.order(row)?;
            if copy.is_none() {
                marked.push((place, row.order_id));
            }
            orders.push(copy);
        }
        let states = marked.iter().map(|(_, id)| self.read(&self.state, *id));
        for ((place, _), state) in marked.iter().zip(try_join_all(states).await?) {
            orders[*place] = state.filter(&belongs);
        }
        Ok(orders.into_iter().flatten().collect())
    }

    async fn write_events(&self, order: Uuid, events: &[OrderEvent]) -> Result<(), StoreError> {
        let row = |event: &OrderEvent| {
            let payload = Payload { actor: event.actor.clone(), note: event.note.clone() };
            let payload = self.events.to_json(&payload)?;
            Ok((order, millis(event.at), event.id, event.kind.clone(), payload))
        };
        let rows = events.iter().map(row).collect::<Result<Vec<_>, StoreError>>()?;
        self.add_events.run(rows).await
    }

    /// Writes all that is copied from the state of an order.
    async fn copy(&self, order: &Order) -> Result<(), StoreError> {
        let events = self.write_events(order.id, &order.changes);
        tokio::try_join!(events, self.lists.copy(order)).map(drop)
    }
}

/// What of an event is not a column of its own.
#[derive(Serialize, Deserialize)]
struct Payload {
    actor: Actor,
    note: Option<String>,
}

fn millis(at: Timestamp) -> CqlTimestamp {
    CqlTimestamp(at.millis())
}

#[async_trait]
impl OrderStore for CassandraStore {
    async fn order(&self, id: Uuid) -> Result<Option<Order>, StoreError> {
        self.orders.read(&self.orders.state, id).await
    }

    async fn settled_order(&self, id: Uuid) -> Result<Option<Order>, StoreError> {
        self.orders.read(&self.orders.settled, id).await
    }

    async fn place_order(&self, order: &Order, payment_due: &Due) -> Result<(), StoreError> {
        let statements = &self.orders;
        let before = i64::try_from(STATE_TIME_BEFORE.as_micros()).unwrap_or(0);
        let values = (
            order.id,
            order.owner.to_string(),
            order.status.as_str(),
            order.zone.as_str(),
            to_cql(order.total.amount),
            order.total.currency.as_str(),
            order.version,
            statements.place.to_json(order)?,
            order.created_at.micros() - before,
        );
        // The state comes last. An order must not be there without ever being looked at; and whoever
        // finds the state takes the lists to be whole.
        tokio::try_join!(self.add_due(payment_due), statements.copy(order))?;
        statements.place.run(values).await.map(drop)
    }

    async fn change_order(
        &self,
        before: &Order,
        after: &Order,
        due: &Due,
    ) -> Result<bool, StoreError> {
        let statements = &self.orders;
        tokio::try_join!(self.add_due(due), statements.lists.mark(before))?;
        let values = (
            after.owner.to_string(),
            after.status.as_str(),
            after.version,
            statements.change.to_json(after)?,
            before.id,
            before.version,
        );
        if !statements.change.applied(values).await? {
            return Ok(false);
        }
        // It has changed, but what was not copied is to be mended: what is due must stay so.
        tokio::try_join!(statements.copy(after), statements.lists.unlist(before, after))?;
        Ok(true)
    }

    async fn mend_order(&self, order: &Order) -> Result<(), StoreError> {
        self.orders.copy(order).await
    }

    async fn faults_of_order(&self, order: &Order) -> Result<Vec<&'static str>, StoreError> {
        let mut faults = Vec::new();
        let events = self.order_events(order.id, MAX_EVENTS).await?;
        if order.changes.iter().any(|change| !events.contains(change)) {
            faults.push("event");
        }
        if !self.history_parts(&order.owner).await?.contains(&order.part) {
            faults.push("part of the history");
        }
        // Whether they are marked does not matter: a mark that no change followed stays until the
        // next one, and costs a read of the state.
        let copies = self.orders.lists.copies(order).await?;
        for (copy, name) in copies.iter().zip(["history", "period"]) {
            if copy.as_ref() != Some(order) {
                faults.push(name);
            }
        }
        Ok(faults)
    }

    async fn add_order_event(&self, order: Uuid, event: &OrderEvent) -> Result<(), StoreError> {
        self.orders.write_events(order, std::slice::from_ref(event)).await
    }

    async fn order_events(&self, order: Uuid, limit: usize) -> Result<Vec<OrderEvent>, StoreError> {
        let statement = &self.orders.events;
        let limit = i32::try_from(limit.min(MAX_EVENTS)).unwrap_or(i32::MAX);
        let rows: Vec<(CqlTimestamp, Uuid, Option<String>, Option<String>)> =
            statement.rows((order, limit)).await?;
        let event =
            |(at, id, kind, payload): (CqlTimestamp, Uuid, Option<String>, Option<String>)| {
                let wrong = || statement.unexpected(&"an event without its columns");
                let (kind, payload) = (kind.ok_or_else(wrong)?, payload.ok_or_else(wrong)?);
                let Payload { actor, note } = statement.of_json(&payload)?;
                Ok(OrderEvent { id, at: Timestamp::from_millis(at.0), kind, actor, note })
            };
        rows.into_iter().map(event).collect()
    }

    async fn history_parts(&self, owner: &Owner) -> Result<Vec<Month>, StoreError> {
        self.orders.lists.parts(owner).await
    }

    async fn begin_history_part(&self, owner: &Owner, part: Month) -> Result<(), StoreError> {
        self.orders.lists.add_part(owner, part).await
    }

    async fn orders_of(
        &self,
        owner: &Owner,
        part: Month,
        slice: Slice,
    ) -> Result<Vec<Order>, StoreError> {
        let (mut found, mut rest) = (Vec::new(), slice);
        for _ in 0..MAX_ROUNDS {
            rest.limit = slice.limit - found.len();
            let rows = self.orders.lists.history(owner, part, rest).await?;
            let (is_last, last) = (rows.len() < rest.limit, rows.last().map(ListRow::place));
            let belongs = |order: &Order| order.owner == *owner && order.part == part;
            found.extend(self.orders.of_rows(rows, belongs).await?);
            if is_last || found.len() >= slice.limit {
                break;
            }
            // Some are not to be shown: there may be others behind them.
            if slice.from_end {
                rest.before = last;
            } else {
                rest.after = last;
            }
        }
        Ok(found)
    }

    async fn orders_on(
        &self,
        day: i32,
        shard: i8,
        after: Option<OrderPlace>,
        limit: usize,
    ) -> Result<Vec<Order>, StoreError> {
        let rows = self.orders.lists.day(day, shard, after, limit).await?;
        // An order never leaves the day it was placed on.
        self.orders.of_rows(rows, |_| true).await
    }

    async fn claim_guest(&self, guest: Uuid, user: &str) -> Result<(), StoreError> {
        self.orders.claim.run((guest, user)).await.map(drop)
    }

    async fn claimant(&self, guest: Uuid) -> Result<Option<String>, StoreError> {
        let row: Option<(Option<String>,)> = self.orders.claimant.first((guest,)).await?;
        Ok(row.and_then(|(user,)| user))
    }

    async fn scan_orders(&self, after: Option<Vec<u8>>) -> Result<ScannedOrders, StoreError> {
        let (orders, next) = self.orders.scan.scan_json(after, SCAN_STEP).await?;
        Ok(ScannedOrders { orders, next })
    }
}
