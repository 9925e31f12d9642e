//! Orders on Cassandra.
//!
//! The state of an order is the truth: it is written once as it was placed, and then by conditional
//! writes only. Lists have copies. A copy is written with a time that follows from the order's
//! version, so a late one never takes the place of a newer one. Before an order is changed its copies
//! are marked; whoever reads a marked one looks at the state. So a process that dies in between
//! leaves a copy that costs one read more, and never one that is wrong.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use scylla::DeserializeRow;
use scylla::value::CqlTimestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::model::{Actor, MAX_EVENTS, Month, Order, OrderEvent, OrderPlace, day_of};
use super::store::{OrderStore, ScannedOrders, Slice};
use crate::clock::Timestamp;
use crate::owner::Owner;
use crate::storage::cassandra::{Access, Batch, CassandraStore, Statement, Statements, to_cql};
use crate::storage::{Due, DueStore, OpenError, StoreError};

const STATE: &str = "order_state_by_id";
const EVENTS: &str = "order_events_by_id";
const BY_USER: &str = "orders_by_user";
const PARTS: &str = "order_months_by_user";
const BY_PERIOD: &str = "orders_by_period";
const CLAIMS: &str = "customer_by_session";
/// A shopper waits for these.
const READ: Duration = Duration::from_secs(2);
const WRITE: Duration = Duration::from_secs(2);
/// Orders of one step of a scan.
const SCAN_STEP: i32 = 500;
/// Most parts of a history: one for each month that is kept, and some.
const MAX_PARTS: i32 = 100;
/// How often a page is read on because rows of it were not to be shown.
const MAX_ROUNDS: usize = 8;
/// So long before an order was placed is the write time of its first state: before that of every
/// conditional write, whatever the clocks of the nodes show.
const STATE_TIME_BEFORE: Duration = Duration::from_secs(24 * 3_600);
/// A time after every order, in milliseconds.
const END_OF_TIME: i64 = 253_402_300_799_000;

/// The prepared statements of orders.
pub struct OrderStatements {
    state: Statement,
    settled: Statement,
    place: Statement,
    change: Statement,
    scan: Statement,
    events: Statement,
    add_events: Batch,
    parts: Statement,
    add_part: Statement,
    history: Statement,
    history_from_end: Statement,
    list: Statement,
    mark: Statement,
    unlist: Statement,
    day: Statement,
    list_day: Statement,
    mark_day: Statement,
    claim: Statement,
    claimant: Statement,
    row: Statement,
    day_row: Statement,
}

impl OrderStatements {
    /// Prepares all of them.
    pub async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let state = |cql, access| statements.prepare(STATE, cql, access, READ);
        let events = |cql, access| statements.prepare(EVENTS, cql, access, READ);
        let parts = |cql, access| statements.prepare(PARTS, cql, access, READ);
        let user = |cql, access| statements.prepare(BY_USER, cql, access, WRITE);
        let period = |cql, access| statements.prepare(BY_PERIOD, cql, access, WRITE);
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
            parts: parts(
                "SELECT month FROM ks.order_months_by_user WHERE user_id = ? LIMIT ?",
                Access::ReadQuorum,
            )
            .await?,
            add_part: parts(
                "INSERT INTO ks.order_months_by_user (user_id, month) VALUES (?, ?)",
                Access::WriteQuorum,
            )
            .await?,
            history: user(
                "SELECT created_at, order_id, body, changing FROM ks.orders_by_user \
                 WHERE user_id = ? AND month = ? AND (created_at, order_id) < (?, ?) \
                 AND (created_at, order_id) > (?, ?) LIMIT ?",
                Access::ReadQuorum,
            )
            .await?,
            history_from_end: user(
                "SELECT created_at, order_id, body, changing FROM ks.orders_by_user \
                 WHERE user_id = ? AND month = ? AND (created_at, order_id) < (?, ?) \
                 AND (created_at, order_id) > (?, ?) ORDER BY created_at ASC, order_id ASC LIMIT ?",
                Access::ReadQuorum,
            )
            .await?,
            list: user(
                "INSERT INTO ks.orders_by_user (user_id, month, created_at, order_id, status, \
                 geo_zone, total_amount, currency, body, changing) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, false) USING TIMESTAMP ?",
                Access::WriteQuorum,
            )
            .await?,
            mark: user(
                "UPDATE ks.orders_by_user USING TIMESTAMP ? SET changing = true \
                 WHERE user_id = ? AND month = ? AND created_at = ? AND order_id = ?",
                Access::WriteQuorum,
            )
            .await?,
            unlist: user(
                "DELETE FROM ks.orders_by_user USING TIMESTAMP ? \
                 WHERE user_id = ? AND month = ? AND created_at = ? AND order_id = ?",
                Access::WriteQuorum,
            )
            .await?,
            day: period(
                "SELECT created_at, order_id, body, changing FROM ks.orders_by_period \
                 WHERE day = ? AND shard = ? AND (created_at, order_id) < (?, ?) LIMIT ?",
                Access::ReadQuorum,
            )
            .await?,
            list_day: period(
                "INSERT INTO ks.orders_by_period (day, shard, created_at, order_id, user_id, \
                 status, geo_zone, total_amount, currency, body, changing) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, false) USING TIMESTAMP ?",
                Access::WriteQuorum,
            )
            .await?,
            mark_day: period(
                "UPDATE ks.orders_by_period USING TIMESTAMP ? SET changing = true \
                 WHERE day = ? AND shard = ? AND created_at = ? AND order_id = ?",
                Access::WriteQuorum,
            )
            .await?,
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
            row: user(
                "SELECT created_at, order_id, body, changing FROM ks.orders_by_user \
                 WHERE user_id = ? AND month = ? AND created_at = ? AND order_id = ?",
                Access::ReadQuorum,
            )
            .await?,
            day_row: period(
                "SELECT created_at, order_id, body, changing FROM ks.orders_by_period \
                 WHERE day = ? AND shard = ? AND created_at = ? AND order_id = ?",
                Access::ReadQuorum,
            )
            .await?,
        })
    }

    async fn read(&self, statement: &Statement, id: Uuid) -> Result<Option<Order>, StoreError> {
        let row: Option<(Option<String>,)> = statement.first((id,)).await?;
        row.and_then(|(body,)| body).map(|body| parse(statement, &body)).transpose()
    }

    /// The order of a row of a list: its copy, or the state where that may be newer. `belongs`
    /// tells whether it still stands in that list.
    async fn of_row(
        &self,
        statement: &Statement,
        row: ListRow,
        belongs: impl Fn(&Order) -> bool,
    ) -> Result<Option<Order>, StoreError> {
        match row.body {
            Some(body) if row.changing != Some(true) => parse(statement, &body).map(Some),
            _ => Ok(self.read(&self.state, row.order_id).await?.filter(belongs)),
        }
    }

    async fn write_events(&self, order: Uuid, events: &[OrderEvent]) -> Result<(), StoreError> {
        let row = |event: &OrderEvent| {
            let payload = Payload { actor: event.actor.clone(), note: event.note.clone() };
            let payload = serde_json::to_string(&payload);
            let payload = payload.map_err(|error| self.events.unexpected(&error))?;
            Ok((order, millis(event.at), event.id, event.kind.clone(), payload))
        };
        let rows = events.iter().map(row).collect::<Result<Vec<_>, StoreError>>()?;
        self.add_events.run(rows).await
    }

    /// Writes all that is copied from the state of an order.
    async fn copy(&self, order: &Order) -> Result<(), StoreError> {
        let body = body(&self.list, order)?;
        let (created, time) = (millis(order.created_at), copy_time(order, order.version));
        let owner = order.owner.to_string();
        let (zone, currency) = (order.zone.as_str(), order.total.currency.as_str());
        let (status, part) = (order.status.as_str(), order.part.number());
        let amount = to_cql(order.total.amount);
        let list =
            (&owner, part, created, order.id, status, zone, amount.clone(), currency, &body, time);
        let (day, shard) = (day_of(order.created_at), order.day_shard());
        let list_day =
            (day, shard, created, order.id, &owner, status, zone, amount, currency, &body, time);
        tokio::try_join!(
            self.write_events(order.id, &order.changes),
            self.add_part.run((&owner, part)),
            self.list.run(list),
            self.list_day.run(list_day),
        )
        .map(drop)
    }

    /// Marks the copies of an order that is about to be changed.
    async fn mark(&self, order: &Order) -> Result<(), StoreError> {
        let (created, owner) = (millis(order.created_at), order.owner.to_string());
        let time = copy_time(order, order.version) + 1;
        let (day, shard) = (day_of(order.created_at), order.day_shard());
        tokio::try_join!(
            self.mark.run((time, &owner, order.part.number(), created, order.id)),
            self.mark_day.run((time, day, shard, created, order.id)),
        )
        .map(drop)
    }
}

#[derive(DeserializeRow)]
struct ListRow {
    created_at: CqlTimestamp,
    order_id: Uuid,
    body: Option<String>,
    changing: Option<bool>,
}

impl ListRow {
    fn place(&self) -> OrderPlace {
        OrderPlace { created_at: Timestamp::from_millis(self.created_at.0), id: self.order_id }
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

fn parse(statement: &Statement, body: &str) -> Result<Order, StoreError> {
    serde_json::from_str(body).map_err(|error| statement.unexpected(&error))
}

fn body(statement: &Statement, order: &Order) -> Result<String, StoreError> {
    serde_json::to_string(order).map_err(|error| statement.unexpected(&error))
}

/// The write time of a copy of an order of a version. The mark of one that is about to be changed
/// lies between that of its version and that of the next.
fn copy_time(order: &Order, version: i64) -> i64 {
    order.created_at.micros() + version * 2
}

/// The bounds of a page: what comes after a place in a list was placed before it.
fn bounds(
    after: Option<OrderPlace>,
    before: Option<OrderPlace>,
) -> (CqlTimestamp, Uuid, CqlTimestamp, Uuid) {
    let (latest, top) =
        after.map_or((END_OF_TIME, Uuid::nil()), |at| (at.created_at.millis(), at.id));
    let (earliest, low) = before.map_or((0, Uuid::nil()), |at| (at.created_at.millis(), at.id));
    (CqlTimestamp(latest), top, CqlTimestamp(earliest), low)
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
            body(&statements.place, order)?,
            order.created_at.micros() - before,
        );
        // That it is due comes first: an order must not be there without ever being looked at.
        self.add_due(payment_due).await?;
        statements.place.run(values).await?;
        statements.copy(order).await
    }

    async fn change_order(
        &self,
        before: &Order,
        after: &Order,
        due: &Due,
    ) -> Result<bool, StoreError> {
        let statements = &self.orders;
        tokio::try_join!(self.add_due(due), statements.mark(before))?;
        let values = (
            after.owner.to_string(),
            after.status.as_str(),
            after.version,
            body(&statements.change, after)?,
            before.id,
            before.version,
        );
        if !statements.change.applied(values).await? {
            return Ok(false);
        }
        let moved = async {
            if (&before.owner, before.part) == (&after.owner, after.part) {
                return Ok(());
            }
            let (time, owner) = (copy_time(after, after.version), before.owner.to_string());
            let (part, created) = (before.part.number(), millis(before.created_at));
            statements.unlist.run((time, owner, part, created, before.id)).await.map(drop)
        };
        if let Err(error) = tokio::try_join!(statements.copy(after), moved) {
            // It has changed; what was not copied is marked, and due.
            tracing::warn!(%error, order = %after.id, "the lists of an order are left behind");
        }
        Ok(true)
    }

    async fn mend_order(&self, order: &Order) -> Result<(), StoreError> {
        self.orders.copy(order).await
    }

    async fn faults_of_order(&self, order: &Order) -> Result<Vec<&'static str>, StoreError> {
        let statements = &self.orders;
        let mut faults = Vec::new();
        let events = self.order_events(order.id, MAX_EVENTS).await?;
        if order.changes.iter().any(|change| !events.contains(change)) {
            faults.push("event");
        }
        if !self.history_parts(&order.owner).await?.contains(&order.part) {
            faults.push("part of the history");
        }
        let (owner, created) = (order.owner.to_string(), millis(order.created_at));
        let values = (owner, order.part.number(), created, order.id);
        let row: Option<ListRow> = statements.row.first(values).await?;
        let (day, shard) = (day_of(order.created_at), order.day_shard());
        let values = (day, shard, created, order.id);
        let day_row: Option<ListRow> = statements.day_row.first(values).await?;
        for (row, name) in [(row, "history"), (day_row, "period")] {
            let copy = match row.filter(|row| row.changing != Some(true)) {
                Some(ListRow { body: Some(body), .. }) => Some(parse(&statements.row, &body)?),
                _ => None,
            };
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
                let Payload { actor, note } =
                    serde_json::from_str(&payload).map_err(|error| statement.unexpected(&error))?;
                Ok(OrderEvent { id, at: Timestamp::from_millis(at.0), kind, actor, note })
            };
        rows.into_iter().map(event).collect()
    }

    async fn history_parts(&self, owner: &Owner) -> Result<Vec<Month>, StoreError> {
        let values = (owner.to_string(), MAX_PARTS);
        let rows: Vec<(i32,)> = self.orders.parts.rows(values).await?;
        Ok(rows.into_iter().map(|(month,)| Month::from_number(month)).collect())
    }

    async fn begin_history_part(&self, owner: &Owner, part: Month) -> Result<(), StoreError> {
        self.orders.add_part.run((owner.to_string(), part.number())).await.map(drop)
    }

    async fn orders_of(
        &self,
        owner: &Owner,
        part: Month,
        slice: Slice,
    ) -> Result<Vec<Order>, StoreError> {
        let statements = &self.orders;
        let statement =
            if slice.from_end { &statements.history_from_end } else { &statements.history };
        let (user, month) = (owner.to_string(), part.number());
        let (mut found, mut slice) = (Vec::new(), slice);
        for _ in 0..MAX_ROUNDS {
            let missing = slice.limit - found.len();
            let (latest, top, earliest, low) = bounds(slice.after, slice.before);
            let limit = i32::try_from(missing).unwrap_or(i32::MAX);
            let values = (&user, month, latest, top, earliest, low, limit);
            let rows: Vec<ListRow> = statement.rows(values).await?;
            let (count, last) = (rows.len(), rows.last().map(ListRow::place));
            let belongs = |order: &Order| order.owner == *owner && order.part == part;
            let reads = rows.into_iter().map(|row| statements.of_row(statement, row, belongs));
            found.extend(try_join_all(reads).await?.into_iter().flatten());
            if count < missing || found.len() >= slice.limit {
                break;
            }
            // Some are not to be shown: there may be others behind them.
            if slice.from_end { slice.before = last } else { slice.after = last }
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
        let statements = &self.orders;
        let (latest, top, ..) = bounds(after, None);
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let rows: Vec<ListRow> = statements.day.rows((day, shard, latest, top, limit)).await?;
        // An order never leaves the day it was placed on.
        let reads = rows.into_iter().map(|row| statements.of_row(&statements.day, row, |_| true));
        Ok(try_join_all(reads).await?.into_iter().flatten().collect())
    }

    async fn claim_guest(&self, guest: Uuid, user: &str) -> Result<(), StoreError> {
        self.orders.claim.run((guest, user)).await.map(drop)
    }

    async fn claimant(&self, guest: Uuid) -> Result<Option<String>, StoreError> {
        let row: Option<(Option<String>,)> = self.orders.claimant.first((guest,)).await?;
        Ok(row.and_then(|(user,)| user))
    }

    async fn scan_orders(&self, after: Option<Vec<u8>>) -> Result<ScannedOrders, StoreError> {
        let statement = &self.orders.scan;
        let wrong = || statement.unexpected(&"a place that this store did not give");
        let from = match after {
            Some(bytes) => i64::from_be_bytes(bytes.try_into().map_err(|_| wrong())?),
            None => i64::MIN,
        };
        let rows: Vec<(i64, Option<String>)> = statement.rows((from, SCAN_STEP)).await?;
        let is_last = rows.len() < usize::try_from(SCAN_STEP).unwrap_or(0);
        let next = rows.last().filter(|_| !is_last).map(|(token, _)| token.to_be_bytes().to_vec());
        let bodies = rows.into_iter().filter_map(|(_, body)| body);
        let orders = bodies.map(|body| parse(statement, &body)).collect::<Result<_, _>>()?;
        Ok(ScannedOrders { orders, next })
    }
}
