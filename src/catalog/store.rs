//! What the catalogue needs of a store.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::model::browse::{CardRow, CategoryMap, Slice};
use super::model::buckets::{Bucket, Layout};
use super::model::{CategoryInfo, Product, ProductDraft, ProductId};
use crate::clock::Timestamp;
use crate::storage::StoreError;

/// How sure a read has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// May be a moment old.
    Usual,
    /// Sees everything that was acknowledged here.
    Fresh,
    /// Sees everything that was acknowledged anywhere; fails when a part of the store is away.
    Whole,
}

/// Part of the way through all products: see [`CatalogStore::scan_products`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanStep {
    /// The products of this step.
    pub ids: Vec<ProductId>,
    /// Where the next step begins; `None` at the end.
    pub next: Option<String>,
}

/// Counts of a category as they were found by counting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// Its products.
    pub products: u64,
    /// The rows of its buckets.
    pub rows: BTreeMap<Bucket, u64>,
}

/// The catalogue's contract with a store. Every implementation passes the same suite of tests
/// (`tests/it/contract/`).
#[async_trait]
pub trait CatalogStore: Send + Sync {
    /// The products with these ids, in the order of the ids; `None` where there is none. They are
    /// read concurrently. At most [`MAX_LOOKUP`](super::model::MAX_LOOKUP) ids.
    async fn products(&self, ids: &[ProductId]) -> Result<Vec<Option<Product>>, StoreError>;

    /// Writes products, new or in place of what stood under their ids, and answers with what is
    /// kept now. An acknowledged write survives a crash. The ids of one batch differ. When two
    /// callers write one product at once, one of them comes later and its version is the larger
    /// one; the rows of both read models and the counts of categories follow.
    ///
    /// An error may leave a part of the batch written; writing the same batch again is safe.
    async fn upsert_products(
        &self,
        drafts: Vec<ProductDraft>,
        now: Timestamp,
    ) -> Result<Vec<Upserted>, StoreError>;

    /// Deletes the products with these ids; answers with those that were there and with the
    /// versions of their deletion.
    async fn delete_products(
        &self,
        ids: &[ProductId],
        now: Timestamp,
    ) -> Result<Vec<Deleted>, StoreError>;

    /// All categories that have products, by name; at most
    /// [`MAX_CATEGORIES`](super::model::MAX_CATEGORIES).
    async fn categories(&self) -> Result<Vec<CategoryInfo>, StoreError>;

    /// The names of all categories that have or had products.
    async fn category_names(&self) -> Result<Vec<Arc<str>>, StoreError>;

    /// One category, if it has products.
    async fn category(&self, name: &str) -> Result<Option<CategoryInfo>, StoreError>;

    /// What is known of a category without looking at its products; `None` if there never was one
    /// of this name.
    async fn category_map(&self, name: &str) -> Result<Option<CategoryMap>, StoreError>;

    /// What has to be known of a category to read a page of it: how it is laid out and, where it has
    /// several hash buckets, its price buckets. The rest may be left out.
    async fn page_map(&self, name: &str) -> Result<Option<CategoryMap>, StoreError> {
        self.category_map(name).await
    }

    /// Whether a product and its rows change as one, so that rows never have to be compared with
    /// their products.
    fn rows_always_agree(&self) -> bool;

    /// Parts of buckets of one category, each in its order.
    async fn read_slices(
        &self,
        category: &str,
        slices: Vec<Slice>,
        care: Care,
    ) -> Result<Vec<Vec<CardRow>>, StoreError>;

    /// Changes the layout of a category, made if it is not there, unless another change came
    /// first; answers whether it did.
    async fn change_layout(&self, category: &str, to: &Layout) -> Result<bool, StoreError>;

    /// Copies rows that stand in `from` to their buckets at another level, where they are missing
    /// there. Rows that are no longer in `from` stay away.
    async fn copy_rows(
        &self,
        category: &str,
        from: Bucket,
        rows: Vec<CardRow>,
        level: u8,
    ) -> Result<(), StoreError>;

    /// Takes rows out of a bucket, each only if it is still of this version.
    async fn remove_rows(
        &self,
        category: &str,
        bucket: Bucket,
        rows: Vec<CardRow>,
    ) -> Result<(), StoreError>;

    /// Takes a price bucket off the list of buckets that have rows, if it has none. `now` is the
    /// moment from before it was found empty.
    async fn drop_empty_bucket(
        &self,
        category: &str,
        bucket: Bucket,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// Takes a whole price bucket away, its rows and its count. Nobody may be reading or writing it.
    async fn drop_bucket(&self, category: &str, bucket: Bucket) -> Result<(), StoreError>;

    /// Puts the rows of products where they belong, from the products as they are now. Answers
    /// with how many rows were missing or different.
    async fn mend_rows(&self, ids: &[ProductId], now: Timestamp) -> Result<u64, StoreError>;

    /// Takes a row away if its product, as it is now, does not stand there, and sees that the
    /// product has its rows. Answers whether the row was taken away. Not for a row that was written
    /// a moment ago: its product may be about to follow.
    async fn repair_row(
        &self,
        category: &str,
        bucket: Bucket,
        row: &CardRow,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// A step through part `part` of `parts` of all products, in no particular order. `after` is
    /// where the step before ended.
    async fn scan_products(
        &self,
        part: u32,
        parts: u32,
        after: Option<String>,
    ) -> Result<ScanStep, StoreError>;

    /// Sets what is counted of a category to what was found by counting, as long as the counts
    /// still are those of `before`. Answers whether they were.
    async fn mend_counts(
        &self,
        category: &str,
        before: &CategoryMap,
        counted: &Counted,
    ) -> Result<bool, StoreError>;
}

/// A product that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upserted {
    /// What is kept now.
    pub product: Product,
    /// The category it stood in before, if it was there.
    pub category_before: Option<Arc<str>>,
}

/// A product that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// Its id.
    pub id: ProductId,
    /// The category it stood in.
    pub category: Arc<str>,
    /// The version of the deletion: newer than that of the product.
    pub version: i64,
}
