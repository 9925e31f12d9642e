//! Putting rows right on Cassandra, from the products as they are.

use std::collections::{HashMap, HashSet};

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::{CONCURRENCY, CatalogStatements};
use crate::catalog::model::browse::CardRow;
use crate::catalog::model::buckets::{Bucket, Layout, Model};
use crate::catalog::model::{Product, ProductId};
use crate::clock::Timestamp;
use crate::storage::StoreError;

impl CatalogStatements {
    /// Puts the rows of a product where they belong. Answers with how many were not.
    async fn mend(
        &self,
        product: &Product,
        (layout, listed): &(Layout, HashSet<i64>),
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let row = CardRow::of(product);
        let name = product.category.as_ref();
        let mut mended = 0;
        for bucket in layout.written(row.price, &product.id) {
            let found = self.rows.row(name, bucket, row.price, &product.id).await?;
            let is_listed = bucket.model == Model::Hash || listed.contains(&bucket.number);
            if is_listed && found.as_ref().is_some_and(|found| found.shows(&row)) {
                continue;
            }
            if !is_listed {
                self.rows.list(name, bucket.number, now.micros()).await?;
            }
            // Newer than what stands there, or was taken away from there.
            let newest = found.map_or(row.version, |found| row.version.max(found.version));
            let row = CardRow { version: now.micros().max(newest + 1), ..row.clone() };
            self.rows.put(name, bucket, &row, row.version, false).await?;
            mended += 1;
        }
        Ok(mended)
    }

    pub(super) async fn mend_all(
        &self,
        ids: &[ProductId],
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let found = self.read_many(&self.product_fresh, ids).await?;
        let products: Vec<_> = found.into_iter().filter_map(|before| before.product).collect();
        let mut places = HashMap::new();
        for product in &products {
            if !places.contains_key(&product.category) {
                self.categories.add(&product.category).await?;
                let layout = self.categories.layout(&product.category).await?;
                let listed = self.rows.listed(&product.category).await?.into_iter().collect();
                places.insert(product.category.clone(), (layout, listed));
            }
        }
        let mends: Vec<_> =
            products.iter().map(|p| self.mend(p, &places[&p.category], now)).collect();
        let mended: Vec<u64> =
            stream::iter(mends).buffer_unordered(CONCURRENCY).try_collect().await?;
        Ok(mended.into_iter().sum())
    }

    pub(super) async fn repair_row(
        &self,
        category: &str,
        bucket: Bucket,
        row: &CardRow,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        // Everywhere: what is only late in this data centre must not be taken for lost.
        let product = self.read(&self.product_whole, &row.id).await?.product;
        if row.agrees(category, product.as_ref()) {
            return Ok(false);
        }
        self.rows.take_rows(category, bucket, std::slice::from_ref(row)).await?;
        self.mend_all(std::slice::from_ref(&row.id), now).await?;
        Ok(true)
    }
}
