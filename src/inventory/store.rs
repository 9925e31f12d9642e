//! What stock needs of a store.

use async_trait::async_trait;
use uuid::Uuid;

use super::model::{Errand, Report, StockKey, StockLevel, StockRow};
use crate::clock::Timestamp;
use crate::geo_zone::GeoZone;
use crate::product_id::ProductId;
use crate::storage::StoreError;

/// The inventory's contract with a store. Rows change by [`change_stock`](Self::change_stock)
/// alone: one condition, one writer.
#[async_trait]
pub trait InventoryStore: Send + Sync {
    /// The numbers of these rows, in their order; `None` where a product is not sold in a zone.
    /// They are read concurrently, and are never older than what was acknowledged before the call.
    async fn stock_levels(&self, keys: &[StockKey]) -> Result<Vec<Option<StockLevel>>, StoreError>;

    /// The zones that a product is sold in, by name; at most
    /// [`MAX_ZONES`](super::model::MAX_ZONES).
    async fn stock_zones(&self, product: &ProductId) -> Result<Vec<GeoZone>, StoreError>;

    /// A row with its marks, never older than what was acknowledged before the call.
    async fn stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError>;

    /// The version of a row and whose turn it is, perhaps a moment old.
    async fn stock_turn(&self, key: &StockKey) -> Result<Option<(i64, Option<Uuid>)>, StoreError>;

    /// Says that a process wants to write a row that is another's turn, for a second or two; or
    /// that it does not any more.
    async fn stand_in_line(
        &self,
        key: &StockKey,
        process: Uuid,
        wants: bool,
    ) -> Result<(), StoreError>;

    /// The processes that want to write a row, perhaps as of a moment ago; at most
    /// [`MAX_IN_LINE`](super::model::MAX_IN_LINE).
    async fn line(&self, key: &StockKey) -> Result<Vec<Uuid>, StoreError>;

    /// Gives an errand in place of the one that its writer gave before. It is there for a second or
    /// two. On an error it may be there all the same.
    async fn give_errand(&self, key: &StockKey, errand: &Errand) -> Result<(), StoreError>;

    /// The errands of a row, never older than what was acknowledged before the call; at most
    /// [`MAX_IN_LINE`](super::model::MAX_IN_LINE).
    async fn errands(&self, key: &StockKey) -> Result<Vec<Errand>, StoreError>;

    /// Tells who gave an errand what became of it.
    async fn report_errand(
        &self,
        key: &StockKey,
        from: Uuid,
        number: i64,
        report: &Report,
    ) -> Result<(), StoreError>;

    /// The last report to a writer and the number of its errand, perhaps a moment old.
    async fn errand_report(
        &self,
        key: &StockKey,
        from: Uuid,
    ) -> Result<Option<(i64, Report)>, StoreError>;

    /// The row after a change whose reply was lost: whatever of it was under way has either
    /// happened or is never seen again without a change of the version.
    async fn settled_stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError>;

    /// Writes a row if its version is still `expected` (`None`: if there is none), and answers
    /// whether it was. On a [`StoreError::Timeout`] or [`StoreError::Unavailable`] it may have been
    /// written all the same, now or later.
    async fn change_stock(
        &self,
        key: &StockKey,
        expected: Option<i64>,
        after: &StockRow,
    ) -> Result<bool, StoreError>;

    /// Makes rows with these quantities where there are none; for filling a shop.
    async fn stock_up(&self, rows: Vec<(StockKey, i64)>, now: Timestamp) -> Result<(), StoreError>;
}
