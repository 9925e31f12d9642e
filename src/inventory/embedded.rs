//! Stock on the embedded store.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::model::{Errand, MAX_ZONES, Mark, Report, StockKey, StockLevel, StockRow, Token};
use super::store::InventoryStore;
use crate::clock::Timestamp;
use crate::geo_zone::GeoZone;
use crate::product_id::ProductId;
use crate::storage::embedded::{EmbeddedStore, Engine, Key, Reader, StoredKey, Table, Txn};
use crate::storage::{OpenError, StoreError};

const STOCK: &str = "inventory_by_product_geo";
/// The marks of a row lie apart: whoever only looks at its numbers does not read them.
const MARKS: &str = "inventory_marks";

/// The tables of the inventory.
#[derive(Clone)]
pub struct InventoryTables {
    stock: Table,
    marks: Table,
}

impl InventoryTables {
    /// Opens the tables, made if they are not there.
    pub fn open(engine: &Engine) -> Result<Self, OpenError> {
        Ok(Self { stock: engine.table(STOCK)?, marks: engine.table(MARKS)? })
    }

    fn change(
        &self,
        txn: &mut Txn<'_>,
        key: Key,
        expected: Option<i64>,
        level: &StockLevel,
        marks: &Marks,
    ) -> Result<bool, StoreError> {
        let there: Option<StockLevel> = txn.get(&self.stock, &key)?;
        if there.map(|level| level.version) != expected {
            return Ok(false);
        }
        txn.put(&self.stock, key.clone(), level, None)?;
        txn.put(&self.marks, key, marks, None)?;
        Ok(true)
    }
}

/// A row of `inventory_marks`: tokens and what is remembered of them, as text.
#[derive(Serialize, Deserialize, Default)]
struct Marks {
    open: Vec<(Token, String)>,
}

fn row_key(key: &StockKey) -> Key {
    Key::new().text(key.product.as_str()).text(key.zone.as_str())
}

#[async_trait]
impl InventoryStore for EmbeddedStore {
    async fn stock_levels(&self, keys: &[StockKey]) -> Result<Vec<Option<StockLevel>>, StoreError> {
        let (table, count, keys) = (self.inventory.stock.clone(), keys.len(), keys.to_vec());
        let read = move |reader: &Reader| {
            keys.iter().map(|key| reader.get(&table, &row_key(key))).collect()
        };
        self.engine.look(STOCK, count, read).await
    }

    async fn stock_zones(&self, product: &ProductId) -> Result<Vec<GeoZone>, StoreError> {
        let (table, prefix) = (self.inventory.stock.clone(), Key::new().text(product.as_str()));
        let read = move |reader: &Reader| {
            let rows: Vec<(StoredKey, StockLevel)> = reader.scan(&table, &prefix, MAX_ZONES)?;
            let zone = |(key, _): (StoredKey, StockLevel)| {
                let zone = Reader::parts(&table, &key, |parts| {
                    parts.text()?;
                    parts.text()
                });
                zone.map(GeoZone::new_unchecked)
            };
            rows.into_iter().map(zone).collect()
        };
        self.engine.look(STOCK, MAX_ZONES, read).await
    }

    async fn stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError> {
        let (tables, key) = (self.inventory.clone(), row_key(key));
        let read = move |reader: &Reader| {
            let Some(level) = reader.get::<StockLevel>(&tables.stock, &key)? else {
                return Ok(None);
            };
            let kept: Marks = reader.get(&tables.marks, &key)?.unwrap_or_default();
            let mark = |(token, text): (Token, String)| Some((token, Mark::parse(&text)?));
            let marks: Option<BTreeMap<_, _>> = kept.open.into_iter().map(mark).collect();
            let cause = || "a mark that this version did not write".to_owned();
            let marks = marks.ok_or_else(|| StoreError::Fault { call: MARKS, cause: cause() })?;
            // One process has the folder: there are no turns.
            Ok(Some(StockRow { level, marks, turn: None }))
        };
        self.engine.look(MARKS, 2, read).await
    }

    async fn stock_turn(&self, key: &StockKey) -> Result<Option<(i64, Option<Uuid>)>, StoreError> {
        let levels = self.stock_levels(std::slice::from_ref(key)).await?;
        Ok(levels.into_iter().flatten().next().map(|level| (level.version, None)))
    }

    async fn stand_in_line(&self, _: &StockKey, _: Uuid, _: bool) -> Result<(), StoreError> {
        Ok(())
    }

    async fn line(&self, _: &StockKey) -> Result<Vec<Uuid>, StoreError> {
        Ok(Vec::new())
    }

    async fn give_errand(&self, _: &StockKey, _: &Errand) -> Result<(), StoreError> {
        Ok(())
    }

    async fn errands(&self, _: &StockKey) -> Result<Vec<Errand>, StoreError> {
        Ok(Vec::new())
    }

    async fn report_errand(
        &self,
        _: &StockKey,
        _: Uuid,
        _: i64,
        _: &Report,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    async fn errand_report(
        &self,
        _: &StockKey,
        _: Uuid,
    ) -> Result<Option<(i64, Report)>, StoreError> {
        Ok(None)
    }

    async fn settled_stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError> {
        // The writer runs one write after another: an empty one comes after all that were taken.
        self.engine.write(STOCK, |_| Ok(())).await?;
        self.stock_row(key).await
    }

    async fn change_stock(
        &self,
        key: &StockKey,
        expected: Option<i64>,
        after: &StockRow,
    ) -> Result<bool, StoreError> {
        let (tables, key, level) = (self.inventory.clone(), row_key(key), after.level);
        let open = after.marks.iter().map(|(token, mark)| (token.clone(), mark.to_string()));
        let marks = Marks { open: open.collect() };
        let write = move |txn: &mut Txn<'_>| tables.change(txn, key, expected, &level, &marks);
        self.engine.write(STOCK, write).await
    }

    async fn stock_up(&self, rows: Vec<(StockKey, i64)>, now: Timestamp) -> Result<(), StoreError> {
        let (tables, updated_at) = (self.inventory.clone(), now.to_millis_precision());
        let write = move |txn: &mut Txn<'_>| {
            for (key, quantity) in &rows {
                let level = StockLevel { quantity: *quantity, reserved: 0, version: 1, updated_at };
                tables.change(txn, row_key(key), None, &level, &Marks::default())?;
            }
            Ok(())
        };
        self.engine.write(STOCK, write).await
    }
}
