//! The lists of orders: histories, the months that their parts begin with, and days. Each has a copy of
//! every order in it.

use std::time::Duration;

use scylla::DeserializeRow;
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::super::model::{Month, Order, OrderPlace, day_of};
use super::super::store::Slice;
use super::millis;
use crate::clock::Timestamp;
use crate::owner::Owner;
use crate::storage::cassandra::{Access, Statement, Statements, to_cql};
use crate::storage::{OpenError, StoreError};

const BY_USER: &str = "orders_by_user";
const PARTS: &str = "order_months_by_user";
const BY_PERIOD: &str = "orders_by_period";
/// A shopper waits for these.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Most parts of a history: one for each month that is kept, and some.
const MAX_PARTS: i32 = 100;
/// A time after every order, in milliseconds.
const END_OF_TIME: i64 = 253_402_300_799_000;

/// The prepared statements of the lists.
pub(super) struct ListStatements {
    parts: Statement,
    add_part: Statement,
    history: HistoryStatements,
    day: DayStatements,
}

/// Those of histories.
struct HistoryStatements {
    page: Statement,
    page_from_end: Statement,
    row: Statement,
    list: Statement,
    mark: Statement,
    unlist: Statement,
}

/// Those of days.
struct DayStatements {
    page: Statement,
    row: Statement,
    list: Statement,
    mark: Statement,
}

impl HistoryStatements {
    async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let prepare = |cql, access| statements.prepare(BY_USER, cql, access, TIMEOUT);
        Ok(Self {
            page: prepare(
                "SELECT created_at, order_id, body, changing FROM ks.orders_by_user \
                 WHERE user_id = ? AND month = ? AND (created_at, order_id) < (?, ?) \
                 AND (created_at, order_id) > (?, ?) LIMIT ?",
                Access::ReadQuorum,
            )
            .await?,
            page_from_end: prepare(
                "SELECT created_at, order_id, body, changing FROM ks.orders_by_user \
                 WHERE user_id = ? AND month = ? AND (created_at, order_id) < (?, ?) \
                 AND (created_at, order_id) > (?, ?) ORDER BY created_at ASC, order_id ASC LIMIT ?",
                Access::ReadQuorum,
            )
            .await?,
            row: prepare(
                "SELECT created_at, order_id, body, changing FROM ks.orders_by_user \
                 WHERE user_id = ? AND month = ? AND created_at = ? AND order_id = ?",
                Access::ReadQuorum,
            )
            .await?,
            list: prepare(
                "INSERT INTO ks.orders_by_user (user_id, month, created_at, order_id, status, \
                 geo_zone, total_amount, currency, body, changing) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, false) USING TIMESTAMP ?",
                Access::WriteQuorum,
            )
            .await?,
            mark: prepare(
                "UPDATE ks.orders_by_user USING TIMESTAMP ? SET changing = true \
                 WHERE user_id = ? AND month = ? AND created_at = ? AND order_id = ?",
                Access::WriteQuorum,
            )
            .await?,
            unlist: prepare(
                "DELETE FROM ks.orders_by_user USING TIMESTAMP ? \
                 WHERE user_id = ? AND month = ? AND created_at = ? AND order_id = ?",
                Access::WriteQuorum,
            )
            .await?,
        })
    }
}

impl DayStatements {
    async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let prepare = |cql, access| statements.prepare(BY_PERIOD, cql, access, TIMEOUT);
        Ok(Self {
            page: prepare(
                "SELECT created_at, order_id, body, changing FROM ks.orders_by_period \
                 WHERE day = ? AND shard = ? AND (created_at, order_id) < (?, ?) LIMIT ?",
                Access::ReadQuorum,
            )
            .await?,
            row: prepare(
                "SELECT created_at, order_id, body, changing FROM ks.orders_by_period \
                 WHERE day = ? AND shard = ? AND created_at = ? AND order_id = ?",
                Access::ReadQuorum,
            )
            .await?,
            list: prepare(
                "INSERT INTO ks.orders_by_period (day, shard, created_at, order_id, user_id, \
                 status, geo_zone, total_amount, currency, body, changing) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, false) USING TIMESTAMP ?",
                Access::WriteQuorum,
            )
            .await?,
            mark: prepare(
                "UPDATE ks.orders_by_period USING TIMESTAMP ? SET changing = true \
                 WHERE day = ? AND shard = ? AND created_at = ? AND order_id = ?",
                Access::WriteQuorum,
            )
            .await?,
        })
    }
}

impl ListStatements {
    pub(super) async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let parts = |cql, access| statements.prepare(PARTS, cql, access, TIMEOUT);
        Ok(Self {
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
            history: HistoryStatements::prepare(statements).await?,
            day: DayStatements::prepare(statements).await?,
        })
    }

    pub(super) async fn parts(&self, owner: &Owner) -> Result<Vec<Month>, StoreError> {
        let rows: Vec<(i32,)> = self.parts.rows((owner.to_string(), MAX_PARTS)).await?;
        Ok(rows.into_iter().map(|(month,)| Month::from_number(month)).collect())
    }

    pub(super) async fn add_part(&self, owner: &Owner, part: Month) -> Result<(), StoreError> {
        self.add_part.run((owner.to_string(), part.number())).await.map(drop)
    }

    /// Rows of a part of a history.
    pub(super) async fn history(
        &self,
        owner: &Owner,
        part: Month,
        slice: Slice,
    ) -> Result<Vec<ListRow>, StoreError> {
        let (latest, top, earliest, low) = bounds(slice.after, slice.before);
        let limit = i32::try_from(slice.limit).unwrap_or(i32::MAX);
        let values = (owner.to_string(), part.number(), latest, top, earliest, low, limit);
        let history = &self.history;
        let page = if slice.from_end { &history.page_from_end } else { &history.page };
        page.rows(values).await
    }

    /// Rows of a shard of a day.
    pub(super) async fn day(
        &self,
        day: i32,
        shard: i8,
        after: Option<OrderPlace>,
        limit: usize,
    ) -> Result<Vec<ListRow>, StoreError> {
        let (latest, top, ..) = bounds(after, None);
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        self.day.page.rows((day, shard, latest, top, limit)).await
    }

    /// The copies of an order: in the history, and in the day.
    pub(super) async fn copies(&self, order: &Order) -> Result<[Option<Order>; 2], StoreError> {
        let (owner, created) = (order.owner.to_string(), millis(order.created_at));
        let row = self.history.row.first((owner, order.part.number(), created, order.id));
        let (day, shard) = (day_of(order.created_at), order.day_shard());
        let day_row = self.day.row.first((day, shard, created, order.id));
        let (row, day_row): (Option<ListRow>, Option<ListRow>) = tokio::try_join!(row, day_row)?;
        let copy = |row: Option<ListRow>| {
            let body = row.and_then(|row| row.body);
            body.map(|body| self.history.row.of_json(&body)).transpose()
        };
        Ok([copy(row)?, copy(day_row)?])
    }

    /// Writes the copies of an order, and the part of the history that it is in.
    pub(super) async fn copy(&self, order: &Order) -> Result<(), StoreError> {
        let body = self.history.list.to_json(order)?;
        let (created, time) = (millis(order.created_at), copy_time(order, order.version));
        let (owner, part) = (order.owner.to_string(), order.part.number());
        let (zone, currency) = (order.zone.as_str(), order.total.currency.as_str());
        let (status, amount) = (order.status.as_str(), to_cql(order.total.amount));
        let list =
            (&owner, part, created, order.id, status, zone, amount.clone(), currency, &body, time);
        let (day, shard) = (day_of(order.created_at), order.day_shard());
        let list_day =
            (day, shard, created, order.id, &owner, status, zone, amount, currency, &body, time);
        tokio::try_join!(
            self.add_part.run((&owner, part)),
            self.history.list.run(list),
            self.day.list.run(list_day),
        )
        .map(drop)
    }

    /// Marks the copies of an order that is about to be changed.
    pub(super) async fn mark(&self, order: &Order) -> Result<(), StoreError> {
        let (created, owner) = (millis(order.created_at), order.owner.to_string());
        let time = copy_time(order, order.version) + 1;
        let (day, shard) = (day_of(order.created_at), order.day_shard());
        tokio::try_join!(
            self.history.mark.run((time, &owner, order.part.number(), created, order.id)),
            self.day.mark.run((time, day, shard, created, order.id)),
        )
        .map(drop)
    }

    /// Takes an order that has moved out of the history that it was in.
    pub(super) async fn unlist(&self, before: &Order, after: &Order) -> Result<(), StoreError> {
        if (&before.owner, before.part) == (&after.owner, after.part) {
            return Ok(());
        }
        let (time, owner) = (copy_time(after, after.version), before.owner.to_string());
        let (part, created) = (before.part.number(), millis(before.created_at));
        self.history.unlist.run((time, owner, part, created, before.id)).await.map(drop)
    }

    /// The order of a row, unless that may be older than the state.
    pub(super) fn order(&self, row: &ListRow) -> Result<Option<Order>, StoreError> {
        let body = row.body.as_ref().filter(|_| row.changing != Some(true));
        body.map(|body| self.history.page.of_json(body)).transpose()
    }
}

/// A row of a list.
#[derive(DeserializeRow)]
pub(super) struct ListRow {
    created_at: CqlTimestamp,
    pub(super) order_id: Uuid,
    body: Option<String>,
    changing: Option<bool>,
}

impl ListRow {
    pub(super) fn place(&self) -> OrderPlace {
        OrderPlace { created_at: Timestamp::from_millis(self.created_at.0), id: self.order_id }
    }
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
    let place = |at: OrderPlace| (at.created_at.millis(), at.id);
    let (latest, top) = after.map_or((END_OF_TIME, Uuid::nil()), place);
    let (earliest, low) = before.map_or((0, Uuid::nil()), place);
    (CqlTimestamp(latest), top, CqlTimestamp(earliest), low)
}
