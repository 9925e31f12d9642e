//! Stores that do not keep their contract: a checker that finds nothing wrong with them is worth
//! nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use uuid::Uuid;
use vitrina::clock::Timestamp;
use vitrina::geo_zone::GeoZone;
use vitrina::inventory::InventoryStore;
use vitrina::inventory::model::{Errand, Report, StockKey, StockLevel, StockRow};
use vitrina::product_id::ProductId;
use vitrina::storage::StoreError;

use crate::support::Random;
use crate::support::gate::forwarded_stock;

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// It reads a row and then writes it, whatever has come in between: units are sold twice.
    Oversells,
    /// It answers readers with the level before the last change, now and then.
    IsStale,
    /// It loses marks together with replies, now and then: what is asked again counts again.
    Forgets,
}

/// A store with a bug on top of a sound one.
pub struct Planted {
    bug: Bug,
    store: Arc<dyn InventoryStore>,
    random: Mutex<Random>,
    before: Mutex<HashMap<StockKey, StockLevel>>,
}

impl Planted {
    pub fn new(bug: Bug, store: Arc<dyn InventoryStore>, seed: u64) -> Arc<Self> {
        Arc::new(Self { bug, store, random: Mutex::new(Random(seed)), before: Mutex::default() })
    }

    fn happens(&self, bug: Bug, of: u64) -> bool {
        self.bug == bug && self.random.lock().unwrap().below(of) == 0
    }

    /// Writes a row whatever its version is.
    async fn overwrite(&self, key: &StockKey, after: &StockRow) -> Result<bool, StoreError> {
        loop {
            let Some(now) = self.store.stock_row(key).await? else { return Ok(false) };
            let (expected, mut after) = (now.level.version, after.clone());
            after.level.version = expected + 1;
            if self.store.change_stock(key, Some(expected), &after).await? {
                return Ok(true);
            }
        }
    }
}

forwarded_stock!(Planted by store {
} and {
    async fn stock_levels(&self, keys: &[StockKey]) -> Result<Vec<Option<StockLevel>>, StoreError> {
        let mut levels = self.store.stock_levels(keys).await?;
        if self.happens(Bug::IsStale, 4) {
            let before = self.before.lock().unwrap();
            for (key, level) in keys.iter().zip(&mut levels) {
                *level = before.get(key).copied().or(*level);
            }
        }
        Ok(levels)
    }

    async fn change_stock(
        &self,
        key: &StockKey,
        expected: Option<i64>,
        after: &StockRow,
    ) -> Result<bool, StoreError> {
        if self.bug == Bug::Oversells && expected.is_some() {
            return self.overwrite(key, after).await;
        }
        if self.happens(Bug::Forgets, 6)
            && let Some(before) = self.store.stock_row(key).await?
        {
            let forgetful = StockRow { marks: before.marks, ..after.clone() };
            self.store.change_stock(key, expected, &forgetful).await?;
            let (call, cause) = ("test", "no reply".to_owned());
            return Err(StoreError::Timeout { call, cause });
        }
        let before = self.store.stock_levels(std::slice::from_ref(key)).await?;
        let is_written = self.store.change_stock(key, expected, after).await?;
        if let (true, Some(before)) = (is_written, before[0]) {
            self.before.lock().unwrap().insert(key.clone(), before);
        }
        Ok(is_written)
    }
});
