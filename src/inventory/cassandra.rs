//! Stock on Cassandra. Only conditional writes touch the table: a plain write beside one can
//! vanish.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use foldhash::HashMap;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use scylla::DeserializeRow;
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::model::{
    Errand, MAX_IN_LINE, MAX_ZONES, Mark, Report, StockKey, StockLevel, StockRow, Token,
};
use super::store::InventoryStore;
use crate::clock::Timestamp;
use crate::geo_zone::GeoZone;
use crate::product_id::ProductId;
use crate::storage::cassandra::{
    Access, CassandraStore, KEYS_AT_ONCE, Reads, Statement, Statements,
};
use crate::storage::{OpenError, StoreError};

const TABLE: &str = "inventory_by_product_geo";
const LINE: &str = "inventory_line_by_row";
const ERRANDS: &str = "inventory_errands_by_row";
/// Most reads or writes of one call that are under way at once.
const CONCURRENCY: usize = 64;
/// Reads of single rows.
const READ: Duration = Duration::from_secs(2);
/// Conditional writes, and the reads that settle what became of one.
const CHANGE: Duration = Duration::from_secs(2);
/// What is only a courtesy is not waited for.
const COURTESY: Duration = Duration::from_millis(250);
/// How long, in seconds, a process stands in line that does not say so again.
const IN_LINE: i32 = 2;

/// The prepared statements of the inventory.
pub struct InventoryStatements {
    level: Statement,
    levels: Statement,
    zones: Statement,
    row: Statement,
    turn: Statement,
    line: Statement,
    line_join: Statement,
    line_leave: Statement,
    errand_give: Statement,
    errands: Statement,
    errand_report: Statement,
    errand_reported: Statement,
    settled_row: Statement,
    add: Statement,
    change: Statement,
}

const ROW: &str = "SELECT quantity, reserved, version, updated_at, open_tokens, turn_of \
                   FROM ks.inventory_by_product_geo WHERE product_id = ? AND geo_zone = ?";

impl InventoryStatements {
    /// Prepares all of them.
    pub async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let prepare = |cql, access, timeout| statements.prepare(TABLE, cql, access, timeout);
        let line = |cql, access| statements.prepare(LINE, cql, access, COURTESY);
        let errand = |cql, access| statements.prepare(ERRANDS, cql, access, COURTESY);
        Ok(Self {
            level: prepare(
                "SELECT quantity, reserved, version, updated_at \
                 FROM ks.inventory_by_product_geo WHERE product_id = ? AND geo_zone = ?",
                Access::ReadQuorum,
                READ,
            )
            .await?,
            levels: prepare(
                "SELECT product_id, quantity, reserved, version, updated_at \
                 FROM ks.inventory_by_product_geo WHERE product_id IN ? AND geo_zone = ?",
                Access::ReadQuorum,
                READ,
            )
            .await?,
            zones: prepare(
                "SELECT geo_zone FROM ks.inventory_by_product_geo WHERE product_id = ? LIMIT ?",
                Access::ReadQuorum,
                READ,
            )
            .await?,
            row: prepare(ROW, Access::ReadQuorum, READ).await?,
            turn: prepare(
                "SELECT version, turn_of FROM ks.inventory_by_product_geo \
                 WHERE product_id = ? AND geo_zone = ?",
                Access::ReadOne,
                COURTESY,
            )
            .await?,
            line: line(
                "SELECT process FROM ks.inventory_line_by_row \
                 WHERE product_id = ? AND geo_zone = ? LIMIT ?",
                Access::ReadOne,
            )
            .await?,
            line_join: line(
                "INSERT INTO ks.inventory_line_by_row (product_id, geo_zone, process) \
                 VALUES (?, ?, ?) USING TTL ?",
                Access::WriteQuorum,
            )
            .await?,
            line_leave: line(
                "DELETE FROM ks.inventory_line_by_row \
                 WHERE product_id = ? AND geo_zone = ? AND process = ?",
                Access::WriteQuorum,
            )
            .await?,
            // The errand's number is its timestamp: a later one wins on every replica, whichever
            // node's clock is ahead.
            errand_give: errand(
                "INSERT INTO ks.inventory_errands_by_row \
                 (product_id, geo_zone, writer, runner, number, asks) VALUES (?, ?, ?, ?, ?, ?) \
                 USING TIMESTAMP ? AND TTL ?",
                Access::WriteQuorum,
            )
            .await?,
            errands: errand(
                "SELECT writer, runner, number, asks FROM ks.inventory_errands_by_row \
                 WHERE product_id = ? AND geo_zone = ? LIMIT ?",
                Access::ReadQuorum,
            )
            .await?,
            errand_report: errand(
                "UPDATE ks.inventory_errands_by_row USING TIMESTAMP ? AND TTL ? \
                 SET reported = ?, report = ? \
                 WHERE product_id = ? AND geo_zone = ? AND writer = ?",
                Access::WriteQuorum,
            )
            .await?,
            errand_reported: errand(
                "SELECT reported, report FROM ks.inventory_errands_by_row \
                 WHERE product_id = ? AND geo_zone = ? AND writer = ?",
                Access::ReadOne,
            )
            .await?,
            settled_row: prepare(ROW, Access::ReadSerial, CHANGE).await?,
            add: prepare(
                "INSERT INTO ks.inventory_by_product_geo (product_id, geo_zone, quantity, \
                 reserved, version, updated_at, open_tokens, turn_of) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?) \
                 IF NOT EXISTS",
                Access::Conditional,
                CHANGE,
            )
            .await?,
            change: prepare(
                "UPDATE ks.inventory_by_product_geo SET quantity = ?, reserved = ?, version = ?, \
                 updated_at = ?, open_tokens = ?, turn_of = ? WHERE product_id = ? AND geo_zone = ? \
                 IF version = ?",
                Access::Conditional,
                CHANGE,
            )
            .await?,
        })
    }

    async fn level(&self, key: &StockKey) -> Result<Option<StockLevel>, StoreError> {
        let statement = &self.level;
        let row: Option<LevelColumns> =
            statement.first((key.product.as_str(), key.zone.as_str())).await?;
        let wrong = || statement.unexpected(&"a row that is no stock");
        row.map(|row| level(row).ok_or_else(wrong)).transpose()
    }

    /// Those of a few products that are sold in a zone.
    async fn levels<'a>(
        &self,
        zone: &'a GeoZone,
        products: &[&'a ProductId],
    ) -> Result<Vec<((&'a ProductId, &'a GeoZone), StockLevel)>, StoreError> {
        let statement = &self.levels;
        let keys: Vec<&str> = products.iter().map(|product| product.as_str()).collect();
        let rows: Vec<KeyedLevelColumns> =
            statement.rows_for((keys, zone.as_str()), products.len()).await?;
        let known: HashMap<&str, &'a ProductId> =
            products.iter().map(|product| (product.as_str(), *product)).collect();
        let wrong = || statement.unexpected(&"a row that is no stock");
        let found = rows.into_iter().map(|(id, quantity, reserved, version, updated_at)| {
            let product = known.get(id.as_str()).ok_or_else(wrong)?;
            let level = level((quantity, reserved, version, updated_at)).ok_or_else(wrong)?;
            Ok(((*product, zone), level))
        });
        found.collect()
    }

    async fn read(
        &self,
        statement: &Statement,
        key: &StockKey,
    ) -> Result<Option<StockRow>, StoreError> {
        let row: Option<RowColumns> =
            statement.first((key.product.as_str(), key.zone.as_str())).await?;
        let wrong = || statement.unexpected(&"a row that is no stock");
        row.map(|row| row.into_row().ok_or_else(wrong)).transpose()
    }
}

#[derive(DeserializeRow)]
struct RowColumns {
    quantity: Option<i64>,
    reserved: Option<i64>,
    version: Option<i64>,
    updated_at: Option<CqlTimestamp>,
    open_tokens: Option<BTreeMap<String, String>>,
    turn_of: Option<Uuid>,
}

impl RowColumns {
    fn into_row(self) -> Option<StockRow> {
        let numbers = (self.quantity, self.reserved, self.version, self.updated_at);
        let mark = |(token, text): (String, String)| {
            Some((Token::new_unchecked(token), Mark::parse(&text)?))
        };
        let marks = self.open_tokens.unwrap_or_default().into_iter().map(mark);
        let marks = marks.collect::<Option<_>>()?;
        Some(StockRow { level: level(numbers)?, marks, turn: self.turn_of })
    }
}

/// An errand as its row has it: who gave it, who is to run it, its number, what is asked.
type ErrandColumns = (Uuid, Option<Uuid>, Option<i64>, Option<String>);

type LevelColumns = (Option<i64>, Option<i64>, Option<i64>, Option<CqlTimestamp>);

/// The same after the id of a product.
type KeyedLevelColumns = (String, Option<i64>, Option<i64>, Option<i64>, Option<CqlTimestamp>);

fn level((quantity, reserved, version, updated_at): LevelColumns) -> Option<StockLevel> {
    Some(StockLevel {
        quantity: quantity?,
        reserved: reserved?,
        version: version?,
        updated_at: Timestamp::from_millis(updated_at?.0),
    })
}

impl Reads for InventoryStatements {
    type Key = StockKey;
    type Row = Option<StockLevel>;

    async fn one(&self, key: &StockKey) -> Result<Option<StockLevel>, StoreError> {
        self.level(key).await
    }

    async fn several(&self, keys: &[StockKey]) -> Result<Vec<Option<StockLevel>>, StoreError> {
        let mut zones: BTreeMap<&GeoZone, Vec<&ProductId>> = BTreeMap::new();
        for key in keys {
            zones.entry(&key.zone).or_default().push(&key.product);
        }
        let parts = zones.iter().flat_map(|(zone, products)| {
            products.chunks(KEYS_AT_ONCE).map(|products| self.levels(zone, products))
        });
        let parts: Vec<_> = parts.collect();
        let parts: Vec<Vec<_>> =
            stream::iter(parts).buffer_unordered(CONCURRENCY).try_collect().await?;
        let found: HashMap<(&ProductId, &GeoZone), StockLevel> =
            parts.into_iter().flatten().collect();
        Ok(keys.iter().map(|key| found.get(&(&key.product, &key.zone)).copied()).collect())
    }
}

#[async_trait]
impl InventoryStore for CassandraStore {
    async fn stock_levels(&self, keys: &[StockKey]) -> Result<Vec<Option<StockLevel>>, StoreError> {
        if let [key] = keys {
            return Ok(vec![self.levels.read(key).await?]);
        }
        self.inventory.several(keys).await
    }

    async fn stock_zones(&self, product: &ProductId) -> Result<Vec<GeoZone>, StoreError> {
        let limit = i32::try_from(MAX_ZONES).unwrap_or(i32::MAX);
        let rows: Vec<(String,)> = self.inventory.zones.rows((product.as_str(), limit)).await?;
        Ok(rows.into_iter().map(|(zone,)| GeoZone::new_unchecked(zone)).collect())
    }

    async fn stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError> {
        self.inventory.read(&self.inventory.row, key).await
    }

    async fn stock_turn(&self, key: &StockKey) -> Result<Option<(i64, Option<Uuid>)>, StoreError> {
        let values = (key.product.as_str(), key.zone.as_str());
        let row: Option<(Option<i64>, Option<Uuid>)> = self.inventory.turn.first(values).await?;
        Ok(row.and_then(|(version, turn)| Some((version?, turn))))
    }

    async fn stand_in_line(
        &self,
        key: &StockKey,
        process: Uuid,
        wants: bool,
    ) -> Result<(), StoreError> {
        let (product, zone) = (key.product.as_str(), key.zone.as_str());
        let done = if wants {
            self.inventory.line_join.run((product, zone, process, IN_LINE)).await
        } else {
            self.inventory.line_leave.run((product, zone, process)).await
        };
        done.map(drop)
    }

    async fn line(&self, key: &StockKey) -> Result<Vec<Uuid>, StoreError> {
        let limit = i32::try_from(MAX_IN_LINE).unwrap_or(i32::MAX);
        let values = (key.product.as_str(), key.zone.as_str(), limit);
        let rows: Vec<(Uuid,)> = self.inventory.line.rows(values).await?;
        Ok(rows.into_iter().map(|(process,)| process).collect())
    }

    async fn give_errand(&self, key: &StockKey, errand: &Errand) -> Result<(), StoreError> {
        let Errand { from, to, number, asks } = errand;
        let statement = &self.inventory.errand_give;
        let asks = serde_json::to_string(asks).map_err(|error| statement.unexpected(&error))?;
        let (product, zone) = (key.product.as_str(), key.zone.as_str());
        let values = (product, zone, from, to, number, asks, number, IN_LINE);
        statement.run(values).await.map(drop)
    }

    async fn errands(&self, key: &StockKey) -> Result<Vec<Errand>, StoreError> {
        let limit = i32::try_from(MAX_IN_LINE).unwrap_or(i32::MAX);
        let values = (key.product.as_str(), key.zone.as_str(), limit);
        let rows: Vec<ErrandColumns> = self.inventory.errands.rows(values).await?;
        // What another version has written in words that are not known here is not run.
        let errand = |(from, to, number, asks): ErrandColumns| {
            let asks = serde_json::from_str(&asks?).ok()?;
            Some(Errand { from, to: to?, number: number?, asks })
        };
        Ok(rows.into_iter().filter_map(errand).collect())
    }

    async fn report_errand(
        &self,
        key: &StockKey,
        from: Uuid,
        number: i64,
        report: &Report,
    ) -> Result<(), StoreError> {
        let statement = &self.inventory.errand_report;
        let report = serde_json::to_string(report).map_err(|error| statement.unexpected(&error))?;
        let (product, zone) = (key.product.as_str(), key.zone.as_str());
        let values = (number, IN_LINE, number, report, product, zone, from);
        statement.run(values).await.map(drop)
    }

    async fn errand_report(
        &self,
        key: &StockKey,
        from: Uuid,
    ) -> Result<Option<(i64, Report)>, StoreError> {
        let values = (key.product.as_str(), key.zone.as_str(), from);
        let row: Option<(Option<i64>, Option<String>)> =
            self.inventory.errand_reported.first(values).await?;
        Ok(row.and_then(|(number, report)| Some((number?, serde_json::from_str(&report?).ok()?))))
    }

    async fn settled_stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError> {
        self.inventory.read(&self.inventory.settled_row, key).await
    }

    async fn change_stock(
        &self,
        key: &StockKey,
        expected: Option<i64>,
        after: &StockRow,
    ) -> Result<bool, StoreError> {
        let StockLevel { quantity, reserved, version, updated_at } = after.level;
        let updated_at = CqlTimestamp(updated_at.millis());
        let marks = after.marks.iter().map(|(token, mark)| (token.as_str(), mark.to_string()));
        let marks: BTreeMap<_, _> = marks.collect();
        let (product, zone) = (key.product.as_str(), key.zone.as_str());
        let statements = &self.inventory;
        match expected {
            None => {
                let values =
                    (product, zone, quantity, reserved, version, updated_at, marks, after.turn);
                statements.add.applied(values).await
            }
            Some(expected) => {
                let turn = after.turn;
                let values =
                    (quantity, reserved, version, updated_at, marks, turn, product, zone, expected);
                statements.change.applied(values).await
            }
        }
    }

    async fn stock_up(&self, rows: Vec<(StockKey, i64)>, now: Timestamp) -> Result<(), StoreError> {
        let adds: Vec<_> = rows
            .iter()
            .map(|(key, quantity)| async move {
                let level =
                    StockLevel { quantity: *quantity, reserved: 0, version: 1, updated_at: now };
                let row = StockRow { level, marks: BTreeMap::new(), turn: None };
                self.change_stock(key, None, &row).await.map(drop)
            })
            .collect();
        stream::iter(adds).buffer_unordered(CONCURRENCY).try_collect().await
    }
}
