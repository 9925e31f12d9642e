//! Sees to it that categories grow: splits what has become too large, and finishes what another
//! process began and left.

use std::sync::Arc;
use std::time::Duration;

use super::split::{SplitOutcome, Splitter};
use crate::storage::{Store, StoreError};

/// Pause between two looks at all categories.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Looks after the categories of a store for as long as it is polled. A bucket with more than
/// `split_rows` rows is split.
pub async fn keep(store: Arc<dyn Store>, split_rows: u64) {
    let splitter = Splitter::new(store.clone(), store.layout_grace());
    loop {
        if let Err(error) = look(&store, &splitter, split_rows).await {
            tracing::warn!(%error, "categories could not be looked after; the next look is soon");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Splits every category that needs it, as far as it is needed.
pub async fn look(
    store: &Arc<dyn Store>,
    splitter: &Splitter,
    split_rows: u64,
) -> Result<(), StoreError> {
    for name in store.category_names().await? {
        while let Some(model) = splitter.needed(&name, split_rows).await? {
            if splitter.split(&name, model).await? != SplitOutcome::Done {
                break;
            }
        }
    }
    Ok(())
}
