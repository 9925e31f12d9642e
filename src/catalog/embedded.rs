//! The catalogue on the embedded store. A product, its rows in both read models and all counts
//! change in one transaction.

mod rows;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use rust_decimal::Decimal;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::model::browse::{CardRow, CategoryMap, Slice};
use super::model::buckets::{Bucket, Layout};
use super::model::{
    Attribute, Before, CategoryInfo, CountDeltas, GRAVE_LIFE, MAX_CATEGORIES, Product,
    ProductDraft, ProductId,
};
use super::store::{Care, CatalogStore, Counted, Deleted, ScanStep, Upserted};
use crate::clock::Timestamp;
use crate::fault;
use crate::money::{Currency, Money};
use crate::storage::embedded::{EmbeddedStore, Engine, Key, Reader, StoredKey, Table, Txn};
use crate::storage::{OpenError, StoreError};

const PRODUCTS: &str = "product_by_id";
const GRAVES: &str = "deleted_product_by_id";
const CATEGORIES: &str = "category_by_name";
/// Products that one thread reads; more are read by several at once.
const READS_PER_THREAD: usize = 32;
/// Products of one step of a scan.
const SCAN_STEP: usize = 1_000;

/// The tables of the catalogue.
#[derive(Clone)]
pub struct CatalogTables {
    /// `((product_id))`
    products: Table,
    /// `((product_id))`: the versions of products that were deleted lately.
    graves: Table,
    /// `((category))`
    categories: Table,
    /// `((category, bucket), price, product_id)`
    by_hash: Table,
    /// `((category, price_bucket), price, product_id)`
    by_price: Table,
    /// `((category))`: how many rows each bucket has.
    counts: Table,
}

impl CatalogTables {
    /// Opens the tables, made if they are not there.
    pub fn open(engine: &Engine) -> Result<Self, OpenError> {
        Ok(Self {
            products: engine.table(PRODUCTS)?,
            graves: engine.table(GRAVES)?,
            categories: engine.table(CATEGORIES)?,
            by_hash: engine.table(rows::BY_HASH)?,
            by_price: engine.table(rows::BY_PRICE)?,
            counts: engine.table(rows::COUNTS)?,
        })
    }

    fn before(&self, txn: &Txn<'_>, id: &ProductId) -> Result<Before, StoreError> {
        let row: Option<ProductRow> = txn.get(&self.products, &product_key(id))?;
        if let Some(row) = row {
            return Ok(row.into_product(id.clone()).into());
        }
        let grave: Option<i64> = txn.get(&self.graves, &product_key(id))?;
        Ok(Before { product: None, version: grave.unwrap_or(0) })
    }

    fn category(&self, txn: &Txn<'_>, name: &str) -> Result<CategoryRow, StoreError> {
        Ok(txn.get(&self.categories, &Key::new().text(name))?.unwrap_or_default())
    }

    fn count(&self, txn: &mut Txn<'_>, deltas: &CountDeltas) -> Result<(), StoreError> {
        for (name, delta) in deltas.products_changed() {
            let key = Key::new().text(name);
            let mut row = self.category(txn, name)?;
            row.product_count = row.product_count.saturating_add_signed(delta);
            if row.product_count == 0 {
                txn.delete(&self.categories, key);
            } else {
                txn.put(&self.categories, key, &row, None)?;
            }
        }
        self.count_rows(txn, deltas)
    }

    fn upsert(
        &self,
        txn: &mut Txn<'_>,
        drafts: Vec<ProductDraft>,
        now: Timestamp,
    ) -> Result<Vec<Upserted>, StoreError> {
        let mut deltas = CountDeltas::default();
        let mut layouts = rows::Layouts::default();
        let mut written = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let before = self.before(txn, &draft.id)?;
            let after = Product::from_draft(draft, &before, now);
            deltas.moved(before.category(), Some(&after.category));
            txn.put(&self.products, product_key(&after.id), &ProductRow::of(&after), None)?;
            let category_before = before.category().cloned();
            let change = (before.product.as_ref(), Some(&after));
            self.move_rows(txn, &mut layouts, change, &mut deltas)?;
            written.push(Upserted { product: after, category_before });
        }
        self.count(txn, &deltas)?;
        Ok(written)
    }

    fn delete(
        &self,
        txn: &mut Txn<'_>,
        ids: Vec<ProductId>,
        now: Timestamp,
    ) -> Result<Vec<Deleted>, StoreError> {
        let mut deltas = CountDeltas::default();
        let mut layouts = rows::Layouts::default();
        let mut deleted = Vec::new();
        for id in ids {
            let before = self.before(txn, &id)?;
            let version = before.next_version(now);
            let Some(product) = before.product else { continue };
            deltas.moved(Some(&product.category), None);
            txn.delete(&self.products, product_key(&id));
            let until = now.after(GRAVE_LIFE);
            txn.put(&self.graves, product_key(&id), &version, Some(until))?;
            self.move_rows(txn, &mut layouts, (Some(&product), None), &mut deltas)?;
            deleted.push(Deleted { id, category: product.category, version });
        }
        self.count(txn, &deltas)?;
        Ok(deleted)
    }
}

fn product_key(id: &ProductId) -> Key {
    Key::new().text(id.as_str())
}

/// A row of `product_by_id`; the id is its key.
#[derive(Serialize, Deserialize)]
struct ProductRow {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    category: String,
    price: Decimal,
    currency: Currency,
    attrs: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image_url: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    version: i64,
}

impl ProductRow {
    fn of(product: &Product) -> Self {
        let attrs = product.attributes.iter();
        Self {
            name: product.name.clone(),
            description: product.description.clone(),
            category: product.category.as_ref().to_owned(),
            price: product.price.amount,
            currency: product.price.currency,
            attrs: attrs.map(|a| (a.name.clone(), a.value.clone())).collect(),
            image_url: product.image_url.clone(),
            created_at: product.created_at,
            updated_at: product.updated_at,
            version: product.version,
        }
    }

    fn into_product(self, id: ProductId) -> Product {
        let attributes = self.attrs.into_iter();
        Product {
            id,
            name: self.name,
            description: self.description,
            category: self.category.into(),
            price: Money { amount: self.price, currency: self.currency },
            attributes: attributes.map(|(name, value)| Attribute { name, value }).collect(),
            image_url: self.image_url,
            created_at: self.created_at,
            updated_at: self.updated_at,
            version: self.version,
        }
    }
}

/// A row of `category_by_name`; the name is its key.
#[derive(Serialize, Deserialize, Default)]
struct CategoryRow {
    product_count: u64,
    #[serde(default)]
    layout: Layout,
}

#[async_trait]
impl CatalogStore for EmbeddedStore {
    async fn products(&self, ids: &[ProductId]) -> Result<Vec<Option<Product>>, StoreError> {
        let all = ids.len();
        let reads = ids.chunks(READS_PER_THREAD).map(|ids| {
            let (table, ids) = (self.catalog.products.clone(), ids.to_vec());
            let read = move |reader: &Reader| {
                let one = |id: ProductId| {
                    let row: Option<ProductRow> = reader.get(&table, &product_key(&id))?;
                    Ok(row.map(|row| row.into_product(id)))
                };
                ids.into_iter().map(one).collect::<Result<Vec<_>, _>>()
            };
            self.engine.look(PRODUCTS, all, read)
        });
        Ok(try_join_all(reads).await?.into_iter().flatten().collect())
    }

    async fn upsert_products(
        &self,
        drafts: Vec<ProductDraft>,
        now: Timestamp,
    ) -> Result<Vec<Upserted>, StoreError> {
        let tables = self.catalog.clone();
        self.engine.write(PRODUCTS, move |txn| tables.upsert(txn, drafts, now)).await
    }

    async fn delete_products(
        &self,
        ids: &[ProductId],
        now: Timestamp,
    ) -> Result<Vec<Deleted>, StoreError> {
        let (tables, ids) = (self.catalog.clone(), ids.to_vec());
        self.engine.write(PRODUCTS, move |txn| tables.delete(txn, ids, now)).await
    }

    async fn categories(&self) -> Result<Vec<CategoryInfo>, StoreError> {
        let table = self.catalog.categories.clone();
        let read = move |reader: &Reader| {
            let rows = reader.scan::<CategoryRow>(&table, &Key::new(), MAX_CATEGORIES)?;
            let category = |(key, row): (StoredKey, CategoryRow)| {
                let name = Reader::text(&table, &key)?.into();
                Ok(CategoryInfo { name, product_count: row.product_count })
            };
            // A category may be laid out before its first product comes.
            let rows = rows.into_iter().filter(|(_, row)| row.product_count > 0);
            rows.map(category).collect()
        };
        self.engine.read(CATEGORIES, read).await
    }

    async fn category_names(&self) -> Result<Vec<Arc<str>>, StoreError> {
        let table = self.catalog.categories.clone();
        let read = move |reader: &Reader| {
            let rows = reader.scan::<CategoryRow>(&table, &Key::new(), MAX_CATEGORIES)?;
            let name = |(key, _): (StoredKey, _)| Reader::text(&table, &key).map(Arc::from);
            rows.into_iter().map(name).collect()
        };
        self.engine.read(CATEGORIES, read).await
    }

    async fn category(&self, name: &str) -> Result<Option<CategoryInfo>, StoreError> {
        let table = self.catalog.categories.clone();
        let name: Arc<str> = name.into();
        let read = move |reader: &Reader| {
            let row: Option<CategoryRow> = reader.get(&table, &Key::new().text(&name))?;
            let row = row.filter(|row| row.product_count > 0);
            Ok(row.map(|row| CategoryInfo { name, product_count: row.product_count }))
        };
        self.engine.look(CATEGORIES, 1, read).await
    }

    async fn category_map(&self, name: &str) -> Result<Option<CategoryMap>, StoreError> {
        let (tables, name) = (self.catalog.clone(), name.to_owned());
        self.engine.look(CATEGORIES, 1, move |reader| tables.map(reader, &name)).await
    }

    fn rows_always_agree(&self) -> bool {
        true
    }

    async fn read_slices(
        &self,
        category: &str,
        slices: Vec<Slice>,
        _: Care,
    ) -> Result<Vec<Vec<CardRow>>, StoreError> {
        let (tables, category) = (self.catalog.clone(), category.to_owned());
        let table = slices.first().map_or(rows::BY_HASH, |slice| rows::name_of(slice.bucket.model));
        let rows = slices.iter().map(|slice| slice.limit).sum();
        let read = move |reader: &Reader| {
            slices.iter().map(|slice| tables.slice(reader, &category, slice)).collect()
        };
        self.engine.look(table, rows, read).await
    }

    async fn change_layout(&self, category: &str, to: &Layout) -> Result<bool, StoreError> {
        let (tables, name, to) = (self.catalog.clone(), category.to_owned(), *to);
        let write = move |txn: &mut Txn<'_>| {
            let mut row = tables.category(txn, &name)?;
            if row.layout.revision + 1 != to.revision {
                return Ok(false);
            }
            row.layout = to;
            txn.put(&tables.categories, Key::new().text(&name), &row, None)?;
            Ok(true)
        };
        self.engine.write(CATEGORIES, write).await
    }

    async fn copy_rows(
        &self,
        category: &str,
        from: Bucket,
        rows: Vec<CardRow>,
        level: u8,
    ) -> Result<(), StoreError> {
        let (tables, category) = (self.catalog.clone(), category.into());
        let write = move |txn: &mut Txn<'_>| tables.copy_rows(txn, &category, from, &rows, level);
        self.engine.write(rows::name_of(from.model), write).await
    }

    async fn remove_rows(
        &self,
        category: &str,
        bucket: Bucket,
        rows: Vec<CardRow>,
    ) -> Result<(), StoreError> {
        let (tables, category) = (self.catalog.clone(), category.into());
        let write = move |txn: &mut Txn<'_>| tables.remove_rows(txn, &category, bucket, &rows);
        self.engine.write(rows::name_of(bucket.model), write).await
    }

    async fn drop_empty_bucket(&self, _: &str, _: Bucket, _: Timestamp) -> Result<(), StoreError> {
        // The list is the table of counts, which is always exact.
        Ok(())
    }

    async fn drop_bucket(&self, category: &str, bucket: Bucket) -> Result<(), StoreError> {
        loop {
            let (tables, name) = (self.catalog.clone(), category.to_owned());
            let some = move |reader: &Reader| tables.some_rows(reader, &name, bucket);
            let rows = self.engine.read(rows::name_of(bucket.model), some).await?;
            if rows.is_empty() {
                return Ok(());
            }
            self.remove_rows(category, bucket, rows).await?;
            fault::point("split.dropped");
        }
    }

    async fn mend_rows(&self, ids: &[ProductId], _: Timestamp) -> Result<u64, StoreError> {
        let (tables, ids) = (self.catalog.clone(), ids.to_vec());
        let write = move |txn: &mut Txn<'_>| {
            let mut products = Vec::with_capacity(ids.len());
            for id in ids {
                products.extend(tables.before(txn, &id)?.product);
            }
            tables.mend_rows(txn, &products)
        };
        self.engine.write(PRODUCTS, write).await
    }

    async fn repair_row(
        &self,
        category: &str,
        bucket: Bucket,
        row: &CardRow,
        _: Timestamp,
    ) -> Result<bool, StoreError> {
        let (tables, row) = (self.catalog.clone(), row.clone());
        let category: Arc<str> = category.into();
        let write = move |txn: &mut Txn<'_>| {
            let product = tables.before(txn, &row.id)?.product;
            if row.agrees(&category, product.as_ref()) {
                return Ok(false);
            }
            tables.remove_rows(txn, &category, bucket, &[row])?;
            if let Some(product) = product {
                tables.mend_rows(txn, std::slice::from_ref(&product))?;
            }
            Ok(true)
        };
        self.engine.write(rows::name_of(bucket.model), write).await
    }

    async fn scan_products(
        &self,
        part: u32,
        _: u32,
        after: Option<String>,
    ) -> Result<ScanStep, StoreError> {
        if part > 0 {
            // One disk, one walk: the first part is all of it.
            return Ok(ScanStep { ids: Vec::new(), next: None });
        }
        let table = self.catalog.products.clone();
        let read = move |reader: &Reader| {
            let lower = after.map_or(Key::new(), |id| Key::new().text(&id));
            let found: Vec<(_, IgnoredAny)> =
                reader.range(&table, (&lower, &Key::last()), false, SCAN_STEP)?;
            let is_last = found.len() < SCAN_STEP;
            let id = |(key, _): (StoredKey, _)| {
                let id = Reader::text(&table, &key)?;
                Ok(ProductId::new_unchecked(id))
            };
            let ids: Vec<_> = found.into_iter().map(id).collect::<Result<_, _>>()?;
            let last = ids.last().map(|id| id.as_str().to_owned());
            Ok(ScanStep { ids, next: last.filter(|_| !is_last) })
        };
        self.engine.read(PRODUCTS, read).await
    }

    async fn mend_counts(
        &self,
        category: &str,
        before: &CategoryMap,
        counted: &Counted,
    ) -> Result<bool, StoreError> {
        let (tables, name) = (self.catalog.clone(), category.to_owned());
        let (before, counted) = (before.clone(), counted.clone());
        let write = move |txn: &mut Txn<'_>| tables.mend_counts(txn, &name, &before, &counted);
        self.engine.write(CATEGORIES, write).await
    }
}
