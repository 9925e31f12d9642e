//! What carts need of a store.

use async_trait::async_trait;
use uuid::Uuid;

use super::model::{CartLog, Checkpoint, HandOver, KeyNote, Operation};
use crate::clock::Timestamp;
use crate::owner::Owner;
use crate::storage::StoreError;

/// Where in the log of a cart to go on.
pub type LogPlace = (Timestamp, Uuid);

/// A cart's contract with a store. What is written is kept for [`KEPT`](super::model::KEPT).
#[async_trait]
pub trait CartStore: Send + Sync {
    /// The newest checkpoint of a cart, all operations after it (perhaps with some before), and all
    /// hand-overs that are kept; never older than what was acknowledged before the call. More than
    /// [`MAX_LOG_ROWS`](super::model::MAX_LOG_ROWS) are a fault.
    async fn cart_log(&self, owner: &Owner) -> Result<CartLog, StoreError>;

    /// The note of an operation that a checkpoint covers, if it was one that may be asked for again.
    async fn cart_note(&self, owner: &Owner, id: Uuid) -> Result<Option<KeyNote>, StoreError>;

    /// Adds an operation. To add it again changes nothing.
    async fn add_to_cart(&self, owner: &Owner, operation: &Operation) -> Result<(), StoreError>;

    /// Writes the notes of what a checkpoint covers, and then the checkpoint, unless there is one
    /// that covers more: whoever sees it sees the notes.
    async fn put_checkpoint(
        &self,
        owner: &Owner,
        checkpoint: &Checkpoint,
        notes: &[KeyNote],
    ) -> Result<(), StoreError>;

    /// Hands a guest's cart over, unless a hand-over of this number is there. The record is an
    /// operation of the guest's log. On an error it may be there all the same, now or later.
    async fn record_hand_over(&self, guest: Uuid, hand_over: &HandOver) -> Result<(), StoreError>;

    /// The operations of a cart that are still kept, newest first, from a place on; without records
    /// of hand-overs.
    async fn cart_history(
        &self,
        owner: &Owner,
        after: Option<LogPlace>,
        limit: usize,
    ) -> Result<Vec<Operation>, StoreError>;

    /// Lists a cart as touched on a day (see [`day_of`](super::model::day_of)).
    async fn list_cart(&self, day: i64, shard: i8, owner: &Owner) -> Result<(), StoreError>;

    /// The carts that were touched on a day, and perhaps again later: those of a shard, in an order
    /// that does not change, from one on.
    async fn listed_carts(
        &self,
        day: i64,
        shard: i8,
        after: Option<&Owner>,
        limit: usize,
    ) -> Result<Vec<Owner>, StoreError>;
}
