//! Categories on Cassandra: their layouts, changed by conditional writes, and their counts, which
//! are counters and so only nearly right; `vitrina check` sets them right.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use scylla::value::Counter;

use crate::catalog::model::browse::CategoryMap;
use crate::catalog::model::buckets::{Bucket, Layout, Model};
use crate::catalog::model::{CountDeltas, MAX_CATEGORIES};
use crate::catalog::store::Counted;
use crate::fault;
use crate::storage::cassandra::{Access, Statement, Statements};
use crate::storage::{OpenError, StoreError};

use super::CONCURRENCY;

/// Reads of single rows.
const READ: Duration = Duration::from_secs(2);
/// Writes of single rows.
const WRITE: Duration = Duration::from_secs(3);
/// A change of a layout asks all data centres.
const LAYOUT_WRITE: Duration = Duration::from_secs(8);
/// The list of all categories walks a small table.
const LIST: Duration = Duration::from_secs(4);

/// The statements about categories.
pub(super) struct CategoryStatements {
    add: Statement,
    names: Statement,
    layout: Statement,
    layout_change: Statement,
    count: Statement,
    count_add: Statement,
    rows: Statement,
    rows_add: Statement,
    rows_drop: Statement,
    /// Categories known to have their row in `category_by_name`; rows are never taken away.
    known: Mutex<HashSet<Arc<str>>>,
}

impl CategoryStatements {
    pub(super) async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let category =
            |cql, access, timeout| statements.prepare("category_by_name", cql, access, timeout);
        let count = |cql, access| statements.prepare("category_product_count", cql, access, WRITE);
        let rows = |cql, access| statements.prepare("category_bucket_count", cql, access, WRITE);
        Ok(Self {
            add: category(
                "INSERT INTO ks.category_by_name (category, revision) VALUES (?, 0) IF NOT EXISTS",
                Access::ConditionalEverywhere,
                LAYOUT_WRITE,
            )
            .await?,
            names: category(
                "SELECT category FROM ks.category_by_name LIMIT ?",
                Access::ReadOne,
                LIST,
            )
            .await?,
            layout: category(
                "SELECT revision, layout FROM ks.category_by_name WHERE category = ?",
                // Never older than what was acknowledged: rows are looked for where it says.
                Access::ReadQuorum,
                READ,
            )
            .await?,
            layout_change: category(
                "UPDATE ks.category_by_name SET revision = ?, layout = ? WHERE category = ? \
                 IF revision = ?",
                Access::ConditionalEverywhere,
                LAYOUT_WRITE,
            )
            .await?,
            count: count(
                "SELECT product_count FROM ks.category_product_count WHERE category = ?",
                Access::ReadQuorum,
            )
            .await?,
            count_add: count(
                "UPDATE ks.category_product_count SET product_count = product_count + ? \
                 WHERE category = ?",
                Access::CountQuorum,
            )
            .await?,
            rows: rows(
                "SELECT model, bucket, row_count FROM ks.category_bucket_count WHERE category = ?",
                Access::ReadQuorum,
            )
            .await?,
            rows_add: rows(
                "UPDATE ks.category_bucket_count SET row_count = row_count + ? \
                 WHERE category = ? AND model = ? AND bucket = ?",
                Access::CountQuorum,
            )
            .await?,
            rows_drop: rows(
                "DELETE FROM ks.category_bucket_count WHERE category = ? AND model = ? \
                 AND bucket = ?",
                Access::WriteQuorum,
            )
            .await?,
            known: Mutex::default(),
        })
    }

    /// Makes a category if it is not there.
    pub(super) async fn add(&self, name: &Arc<str>) -> Result<(), StoreError> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(name) {
            return Ok(());
        }
        // Asked first: a conditional write costs several times as much.
        if self.layout_row(name).await?.is_none() {
            self.add.run((name.as_ref(),)).await?;
        }
        let mut known = known();
        // It only spares a read: forgetting it all keeps it small.
        if known.len() >= MAX_CATEGORIES {
            known.clear();
        }
        known.insert(name.clone());
        Ok(())
    }

    /// The names of all categories.
    pub(super) async fn names(&self) -> Result<Vec<Arc<str>>, StoreError> {
        let limit = i32::try_from(MAX_CATEGORIES).unwrap_or(i32::MAX);
        let rows: Vec<(String,)> = self.names.rows((limit,)).await?;
        Ok(rows.into_iter().map(|(name,)| Arc::from(name)).collect())
    }

    async fn layout_row(&self, name: &str) -> Result<Option<(Option<i64>, Layout)>, StoreError> {
        let row: Option<(Option<i64>, Option<String>)> = self.layout.first((name,)).await?;
        let Some((revision, text)) = row else { return Ok(None) };
        let layout = match text {
            Some(text) => {
                serde_json::from_str(&text).map_err(|error| self.layout.unexpected(&error))?
            }
            None => Layout::default(),
        };
        Ok(Some((revision, layout)))
    }

    /// The layout of a category; that of a new one if it is not there.
    pub(super) async fn layout(&self, name: &str) -> Result<Layout, StoreError> {
        Ok(self.layout_row(name).await?.map(|(_, layout)| layout).unwrap_or_default())
    }

    /// The layouts of several categories.
    pub(super) async fn layouts(
        &self,
        names: impl IntoIterator<Item = Arc<str>>,
    ) -> Result<HashMap<Arc<str>, Layout>, StoreError> {
        let names: HashSet<Arc<str>> = names.into_iter().collect();
        let reads: Vec<_> = names
            .into_iter()
            .map(|name| async move { Ok((name.clone(), self.layout(&name).await?)) })
            .collect();
        stream::iter(reads).buffer_unordered(CONCURRENCY).try_collect().await
    }

    pub(super) async fn change_layout(&self, name: &str, to: &Layout) -> Result<bool, StoreError> {
        self.add(&name.into()).await?;
        let Some((revision, layout)) = self.layout_row(name).await? else { return Ok(false) };
        if layout.revision + 1 != to.revision {
            return Ok(false);
        }
        let text = serde_json::to_string(to).map_err(|error| self.layout.unexpected(&error))?;
        self.layout_change.applied((to.revision, text, name, revision)).await
    }

    /// How many products a category has.
    pub(super) async fn product_count(&self, name: &str) -> Result<u64, StoreError> {
        let row: Option<(Option<Counter>,)> = self.count.first((name,)).await?;
        let count = row.and_then(|(count,)| count).map_or(0, |count| count.0);
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// What is known of a category, given the price buckets that may have rows.
    pub(super) async fn map(
        &self,
        name: &str,
        listed: impl Future<Output = Result<Vec<i64>, StoreError>>,
    ) -> Result<Option<CategoryMap>, StoreError> {
        let (layout, product_count, buckets) = tokio::try_join!(
            self.layout_row(name),
            self.product_count(name),
            self.buckets(name, listed)
        )?;
        Ok(layout.map(|(_, layout)| CategoryMap { layout, product_count, buckets }))
    }

    /// The same as far as a page needs it: one with a single hash bucket is read from that, wherever
    /// its price buckets are, and no page asks how many products there are.
    pub(super) async fn page_map(
        &self,
        name: &str,
        listed: impl Future<Output = Result<Vec<i64>, StoreError>>,
    ) -> Result<Option<CategoryMap>, StoreError> {
        let Some((_, layout)) = self.layout_row(name).await? else { return Ok(None) };
        let is_small = layout.hash.level == 0;
        let buckets = if is_small { Vec::new() } else { self.buckets(name, listed).await? };
        Ok(Some(CategoryMap { layout, product_count: 0, buckets }))
    }

    /// The buckets of a category with about how many rows each has, in order.
    async fn buckets(
        &self,
        name: &str,
        listed: impl Future<Output = Result<Vec<i64>, StoreError>>,
    ) -> Result<Vec<(Bucket, u64)>, StoreError> {
        let rows = self.rows.rows::<(String, i64, Option<Counter>)>((name,));
        let (listed, counts) = tokio::try_join!(listed, rows)?;
        let mut buckets: BTreeMap<Bucket, u64> =
            listed.into_iter().map(|number| (Bucket { model: Model::Price, number }, 0)).collect();
        for (model, number, count) in counts {
            let Some(model) = Model::BOTH.into_iter().find(|m| m.as_str() == model) else {
                continue;
            };
            let rows = u64::try_from(count.map_or(0, |count| count.0)).unwrap_or(0);
            let bucket = Bucket { model, number };
            // A count alone does not put a price bucket on the list.
            if model == Model::Hash || buckets.contains_key(&bucket) {
                buckets.insert(bucket, rows);
            }
        }
        Ok(buckets.into_iter().collect())
    }

    /// Adds to the counts of products and rows.
    pub(super) async fn count(&self, deltas: &CountDeltas) -> Result<(), StoreError> {
        let products: Vec<_> = deltas
            .products_changed()
            .map(|(name, delta)| async move {
                let done = self.count_products(name, delta).await;
                done.inspect(|()| fault::point("upsert.count"))
            })
            .collect();
        stream::iter(products).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        let rows: Vec<_> = deltas
            .rows_changed()
            .map(|(name, bucket, delta)| async move {
                let done = self.count_rows(name, bucket, delta).await;
                done.inspect(|()| fault::point("upsert.row_count"))
            })
            .collect();
        stream::iter(rows).buffer_unordered(CONCURRENCY).try_collect().await
    }

    pub(super) async fn count_products(&self, name: &str, delta: i64) -> Result<(), StoreError> {
        self.count_add.run((Counter(delta), name)).await.map(drop)
    }

    pub(super) async fn count_rows(
        &self,
        name: &str,
        bucket: Bucket,
        delta: i64,
    ) -> Result<(), StoreError> {
        let values = (Counter(delta), name, bucket.model.as_str(), bucket.number);
        self.rows_add.run(values).await.map(drop)
    }

    /// Brings the counters to what was counted: they can only be added to.
    pub(super) async fn set_counts(&self, name: &str, counted: &Counted) -> Result<(), StoreError> {
        let row: Option<(Option<Counter>,)> = self.count.first((name,)).await?;
        let kept = row.and_then(|(count,)| count).map_or(0, |count| count.0);
        let missing = counted.products.cast_signed() - kept;
        if missing != 0 {
            self.count_products(name, missing).await?;
        }
        let rows: Vec<(String, i64, Option<Counter>)> = self.rows.rows((name,)).await?;
        let mut missing: BTreeMap<Bucket, i64> =
            counted.rows.iter().map(|(bucket, rows)| (*bucket, rows.cast_signed())).collect();
        for (model, number, count) in rows {
            let Some(model) = Model::BOTH.into_iter().find(|m| m.as_str() == model) else {
                continue;
            };
            let kept = count.map_or(0, |count| count.0);
            *missing.entry(Bucket { model, number }).or_default() -= kept;
        }
        for (bucket, delta) in missing.into_iter().filter(|(_, delta)| *delta != 0) {
            self.count_rows(name, bucket, delta).await?;
        }
        Ok(())
    }

    pub(super) async fn drop_count(&self, name: &str, bucket: Bucket) -> Result<(), StoreError> {
        self.rows_drop.run((name, bucket.model.as_str(), bucket.number)).await.map(drop)
    }
}
