//! Walking a whole category, hash bucket by hash bucket in parallel: for exports, a sitemap, …

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::super::model::browse::{CardRow, Position, PriceRange, Slice, Span};
use super::super::model::buckets::{Bucket, MAX_LEVEL, Model, Phase, hash_bucket};
use super::super::model::{MAX_LOOKUP, Product};
use super::super::store::Care;
use crate::storage::{Store, StoreError};

/// Hash buckets that are walked at once.
const BUCKETS_AT_ONCE: usize = 8;

/// How far a walk through a category has come: enough to go on later, also when the category has
/// been split meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Progress {
    /// The level whose buckets were walked.
    pub level: u8,
    /// The last row of each bucket that has been seen; `None` once the bucket has ended.
    pub buckets: BTreeMap<i64, Option<(i64, String)>>,
}

impl Progress {
    /// The same at another level: a bucket that came of a split goes on where its older half was.
    #[must_use]
    pub fn at_level(&self, level: u8) -> Self {
        let reached = level.min(self.level);
        let buckets = (0..1_i64 << level).filter_map(|bucket| {
            let older = bucket & ((1 << reached) - 1);
            self.buckets.get(&older).map(|at| (bucket, at.clone()))
        });
        Self { level, buckets: buckets.collect() }
    }
}

/// Walks a category from where `progress` says. `found` gets the products of a step together with
/// the progress after it, one step at a time. Every product that is there all along comes once; one
/// whose price changes meanwhile comes at its old place, its new one, both or neither.
pub async fn walk<E: From<StoreError>>(
    store: &Arc<dyn Store>,
    category: &str,
    mut progress: Progress,
    mut found: impl FnMut(Vec<Product>, &Progress) -> Result<(), E>,
) -> Result<(), E> {
    // Each time round the category has been split, so there are few.
    for _ in 0..=MAX_LEVEL {
        let Some(map) = store.category_map(category).await? else { return Ok(()) };
        let level = map.layout.hash.level.min(MAX_LEVEL);
        progress = progress.at_level(level);
        let open = (0..1_i64 << level).filter(|bucket| progress.buckets.get(bucket) != Some(&None));
        let buckets: Vec<_> = open
            .map(|bucket| {
                let at = progress.buckets.get(&bucket).cloned().flatten();
                steps(store.clone(), category.to_owned(), level, bucket, at).boxed()
            })
            .collect();
        let mut steps = stream::iter(buckets).flatten_unordered(BUCKETS_AT_ONCE);
        let mut was_split = false;
        while let Some(step) = steps.try_next().await? {
            let Some(step) = step else {
                was_split = true;
                break;
            };
            progress.buckets.insert(step.bucket, step.at);
            found(step.products, &progress)?;
        }
        if !was_split {
            return Ok(());
        }
    }
    let cause = "the category was split again and again".to_owned();
    Err(StoreError::Unavailable { call: "walk", cause }.into())
}

struct Step {
    bucket: i64,
    products: Vec<Product>,
    at: Option<(i64, String)>,
}

/// The steps through one bucket; `None` where the level is no longer the one that is read.
fn steps(
    store: Arc<dyn Store>,
    category: String,
    level: u8,
    number: i64,
    at: Option<(i64, String)>,
) -> impl futures_util::Stream<Item = Result<Option<Step>, StoreError>> {
    let mut span = Span::of_prices(PriceRange::default());
    if let Some((price, id)) = at {
        span.lower = Position { price, id: id.into() };
    }
    stream::try_unfold(Some(span), move |span| {
        let (store, category) = (store.clone(), category.clone());
        async move {
            let Some(mut span) = span else { return Ok(None) };
            let bucket = Bucket { model: Model::Hash, number };
            let slice = Slice { bucket, span: span.clone(), descending: false, limit: MAX_LOOKUP };
            let rows = store.read_slices(&category, vec![slice], Care::Fresh).await?;
            let rows = rows.into_iter().next().unwrap_or_default();
            // Looked at after the rows: what was taken away before is noticed.
            if !is_read(store.as_ref(), &category, level).await? {
                return Ok(Some((None, None)));
            }
            let has_ended = rows.len() < MAX_LOOKUP;
            let last = rows.last().map(CardRow::position);
            let is_here = |row: &CardRow| hash_bucket(&row.id, level) == number;
            let rows: Vec<_> = rows.into_iter().filter(is_here).collect();
            let ids: Vec<_> = rows.iter().map(|row| row.id.clone()).collect();
            let products = store.products(&ids).await?.into_iter().zip(&rows);
            let agrees = |(product, row): (Option<Product>, &CardRow)| {
                product.filter(|product| row.agrees(&category, Some(product)))
            };
            let products = products.filter_map(agrees).collect();
            let at = last.as_ref().filter(|_| !has_ended);
            let at = at.map(|last| (last.price, last.id.to_string()));
            if let Some(last) = last {
                span.lower = last;
            }
            let next = (!has_ended).then_some(span);
            Ok(Some((Some(Step { bucket: number, products, at }), next)))
        }
    })
}

/// Whether the hash buckets of a level have all rows.
async fn is_read(store: &dyn Store, category: &str, level: u8) -> Result<bool, StoreError> {
    let Some(map) = store.category_map(category).await? else { return Ok(true) };
    let axis = map.layout.hash;
    // While it drains, the level before is still written.
    Ok(axis.level == level || (axis.level == level + 1 && axis.phase == Phase::Draining))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_survives_a_split() {
        let at = |price| Some((price, "A".to_owned()));
        let progress = Progress { level: 1, buckets: [(0, at(5)), (1, None)].into() };
        let finer = progress.at_level(2);
        assert_eq!(finer.buckets, [(0, at(5)), (1, None), (2, at(5)), (3, None)].into());
        assert_eq!(progress.at_level(1), progress);
        assert_eq!(Progress::default().at_level(2).buckets, BTreeMap::new());
    }
}
