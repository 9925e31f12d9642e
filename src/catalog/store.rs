//! What the catalogue needs of a store.

use async_trait::async_trait;

use super::model::{CategoryInfo, Product, ProductDraft, ProductId};
use crate::clock::Timestamp;
use crate::storage::StoreError;

/// The catalogue's contract with a store. Every implementation passes the same suite of tests
/// (`tests/it/contract/catalog.rs`).
#[async_trait]
pub trait CatalogStore: Send + Sync {
    /// The products with these ids, in the order of the ids; `None` where there is none. They are
    /// read in one round: concurrently where each is a trip over the network, one after another in
    /// the embedded store. At most [`MAX_LOOKUP`](super::model::MAX_LOOKUP) ids.
    async fn products(&self, ids: &[ProductId]) -> Result<Vec<Option<Product>>, StoreError>;

    /// Writes products, new or in place of what stood under their ids, and answers with what is
    /// kept now. An acknowledged write survives a crash. The ids of one batch differ. When two
    /// callers write one product at once, one of them comes later and its version is the larger
    /// one; the counts of categories follow.
    ///
    /// An error may leave a part of the batch written; writing the same batch again is safe.
    async fn upsert_products(
        &self,
        drafts: Vec<ProductDraft>,
        now: Timestamp,
    ) -> Result<Vec<Product>, StoreError>;

    /// Deletes the products with these ids and answers with the ids of those that were there.
    async fn delete_products(
        &self,
        ids: &[ProductId],
        now: Timestamp,
    ) -> Result<Vec<ProductId>, StoreError>;

    /// All categories that have products, by name; at most
    /// [`MAX_CATEGORIES`](super::model::MAX_CATEGORIES).
    async fn categories(&self) -> Result<Vec<CategoryInfo>, StoreError>;

    /// One category, if it has products.
    async fn category(&self, name: &str) -> Result<Option<CategoryInfo>, StoreError>;
}
