//! The steps of a split on Cassandra: rows are copied to their new buckets and taken out of the old
//! ones.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::{CONCURRENCY, CatalogStatements};
use crate::catalog::model::browse::{CardRow, PriceRange, Slice, Span};
use crate::catalog::model::buckets::{Bucket, Model, bucket_at};
use crate::catalog::store::Care;
use crate::clock::Timestamp;
use crate::fault;
use crate::storage::StoreError;

/// A price bucket leaves the list only if it was last put there longer ago than any write takes.
const LIST_MARGIN: Duration = Duration::from_secs(300);

impl CatalogStatements {
    pub(super) async fn copy_rows(
        &self,
        category: &str,
        from: Bucket,
        rows: &[CardRow],
        level: u8,
    ) -> Result<(), StoreError> {
        let mut targets: BTreeMap<Bucket, Vec<&CardRow>> = BTreeMap::new();
        for row in rows {
            targets.entry(bucket_at(from.model, level, row.price, &row.id)).or_default().push(row);
        }
        for (bucket, rows) in targets {
            // What writers have put there since the split began is counted already.
            let (Some(first), Some(last)) = (rows.first(), rows.last()) else { continue };
            let mut span =
                Span::of_prices(PriceRange { min: Some(first.price), max: Some(last.price) });
            let mut there = HashSet::new();
            loop {
                let slice =
                    Slice { bucket, span: span.clone(), descending: false, limit: rows.len() };
                let found = self.rows.slices(category, &[slice], Care::Whole).await?;
                let found = found.into_iter().next().unwrap_or_default();
                let is_last = found.len() < rows.len();
                if let Some(last) = found.last() {
                    span.lower = last.position();
                }
                there.extend(found.iter().map(CardRow::position));
                if is_last {
                    break;
                }
            }
            let missing = rows.iter().filter(|row| !there.contains(&row.position())).count();
            let newest = rows.iter().map(|row| row.version).max();
            if let (Model::Price, Some(newest)) = (bucket.model, newest) {
                self.rows.list(category, bucket.number, newest).await?;
                fault::point("split.list");
            }
            // Those that are there as well: perhaps not on every replica.
            let puts: Vec<_> = rows
                .into_iter()
                .map(|row| async move {
                    let done = self.rows.put(category, bucket, row, row.version, true).await;
                    done.inspect(|()| fault::point("split.row"))
                })
                .collect();
            stream::iter(puts).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
            fault::point("split.rows");
            if missing > 0 {
                let missing = i64::try_from(missing).unwrap_or(i64::MAX);
                self.categories.count_rows(category, bucket, missing).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn remove_rows(
        &self,
        category: &str,
        bucket: Bucket,
        rows: &[CardRow],
    ) -> Result<(), StoreError> {
        let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        self.rows.take_rows(category, bucket, rows).await?;
        fault::point("split.taken");
        self.categories.count_rows(category, bucket, -count).await
    }

    pub(super) async fn drop_empty_bucket(
        &self,
        category: &str,
        bucket: Bucket,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let span = Span::of_prices(PriceRange::default());
        let slice = Slice { bucket, span, descending: false, limit: 1 };
        let rows = self.rows.slices(category, &[slice], Care::Whole).await?;
        if rows.iter().all(Vec::is_empty) {
            let margin = i64::try_from(LIST_MARGIN.as_micros()).unwrap_or(i64::MAX);
            self.rows.unlist(category, bucket.number, now.micros() - margin).await?;
        }
        Ok(())
    }

    pub(super) async fn drop_bucket(
        &self,
        category: &str,
        bucket: Bucket,
    ) -> Result<(), StoreError> {
        self.rows.drop(category, bucket).await?;
        fault::point("split.unlisted");
        self.categories.drop_count(category, bucket).await
    }
}
