//! What checkouts need of a store.

use async_trait::async_trait;

use super::model::Checkout;
use crate::owner::Owner;
use crate::storage::{Due, StoreError};

/// Checkouts that are scanned at once, and where to go on.
#[derive(Debug, Default)]
pub struct ScannedCheckouts {
    /// The checkouts.
    pub checkouts: Vec<Checkout>,
    /// Where to go on; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// The contract of checkouts with a store. A checkout is kept for [`KEPT`](super::model::KEPT) after
/// its last change.
#[async_trait]
pub trait CheckoutStore: Send + Sync {
    /// The checkout under a key, never older than what was acknowledged before the call.
    async fn checkout(&self, owner: &Owner, key: &str) -> Result<Option<Checkout>, StoreError>;

    /// The same after a change whose reply was lost: whatever of it was under way has either
    /// happened or never will without a change of the version.
    async fn settled_checkout(
        &self,
        owner: &Owner,
        key: &str,
    ) -> Result<Option<Checkout>, StoreError>;

    /// Writes a checkout if its version is still `expected` (`None`: if there is none), and answers
    /// whether it was. What is `due` is noted before. On an error it may have been written all the
    /// same, now or later.
    async fn change_checkout(
        &self,
        expected: Option<i64>,
        after: &Checkout,
        due: Option<&Due>,
    ) -> Result<bool, StoreError>;

    /// All checkouts, piece by piece in no order that means anything, from a place on.
    async fn scan_checkouts(&self, after: Option<Vec<u8>>) -> Result<ScannedCheckouts, StoreError>;
}
