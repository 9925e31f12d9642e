//! The catalogue on the embedded store.

use std::sync::Arc;

use async_trait::async_trait;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::model::{
    Attribute, Before, CategoryDeltas, CategoryInfo, GRAVE_LIFE, MAX_CATEGORIES, Product,
    ProductDraft, ProductId,
};
use super::store::CatalogStore;
use crate::clock::Timestamp;
use crate::money::{Currency, Money};
use crate::storage::embedded::{EmbeddedStore, Engine, Key, Reader, Table, Txn};
use crate::storage::{OpenError, StoreError};

const PRODUCTS: &str = "product_by_id";
const GRAVES: &str = "deleted_product_by_id";
const CATEGORIES: &str = "category_by_name";

/// The tables of the catalogue.
#[derive(Clone)]
pub struct CatalogTables {
    /// `((product_id))`
    products: Table,
    /// `((product_id))`: the versions of products that were deleted lately.
    graves: Table,
    /// `((category))`
    categories: Table,
}

impl CatalogTables {
    /// Opens the tables, made if they are not there.
    pub fn open(engine: &Engine) -> Result<Self, OpenError> {
        Ok(Self {
            products: engine.table(PRODUCTS)?,
            graves: engine.table(GRAVES)?,
            categories: engine.table(CATEGORIES)?,
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

    fn count(&self, txn: &mut Txn<'_>, deltas: CategoryDeltas) -> Result<(), StoreError> {
        for (name, delta) in deltas.into_changes() {
            let key = Key::new().text(&name);
            let row: Option<CategoryRow> = txn.get(&self.categories, &key)?;
            let product_count = row.map_or(0, |row| row.product_count).saturating_add_signed(delta);
            if product_count == 0 {
                txn.delete(&self.categories, key);
            } else {
                txn.put(&self.categories, key, &CategoryRow { product_count }, None)?;
            }
        }
        Ok(())
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
#[derive(Serialize, Deserialize)]
struct CategoryRow {
    product_count: u64,
}

#[async_trait]
impl CatalogStore for EmbeddedStore {
    async fn products(&self, ids: &[ProductId]) -> Result<Vec<Option<Product>>, StoreError> {
        let tables = self.catalog.clone();
        let ids = ids.to_vec();
        let read = move |reader: &Reader| {
            let one = |id: ProductId| {
                let row: Option<ProductRow> = reader.get(&tables.products, &product_key(&id))?;
                Ok(row.map(|row| row.into_product(id)))
            };
            ids.into_iter().map(one).collect()
        };
        self.engine.read(PRODUCTS, read).await
    }

    async fn upsert_products(
        &self,
        drafts: Vec<ProductDraft>,
        now: Timestamp,
    ) -> Result<Vec<Product>, StoreError> {
        let tables = self.catalog.clone();
        let write = move |txn: &mut Txn<'_>| {
            let mut deltas = CategoryDeltas::default();
            let mut products = Vec::with_capacity(drafts.len());
            for draft in drafts {
                let before = tables.before(txn, &draft.id)?;
                let after = Product::from_draft(draft, &before, now);
                deltas.moved(before.category(), Some(&after.category));
                let row = ProductRow::of(&after);
                txn.put(&tables.products, product_key(&after.id), &row, None)?;
                products.push(after);
            }
            tables.count(txn, deltas)?;
            Ok(products)
        };
        self.engine.write(PRODUCTS, write).await
    }

    async fn delete_products(
        &self,
        ids: &[ProductId],
        now: Timestamp,
    ) -> Result<Vec<ProductId>, StoreError> {
        let tables = self.catalog.clone();
        let ids = ids.to_vec();
        let write = move |txn: &mut Txn<'_>| {
            let mut deltas = CategoryDeltas::default();
            let mut deleted = Vec::new();
            for id in ids {
                let before = tables.before(txn, &id)?;
                if before.product.is_some() {
                    deltas.moved(before.category(), None);
                    txn.delete(&tables.products, product_key(&id));
                    let version = before.next_version(now);
                    let until = now.after(GRAVE_LIFE);
                    txn.put(&tables.graves, product_key(&id), &version, Some(until))?;
                    deleted.push(id);
                }
            }
            tables.count(txn, deltas)?;
            Ok(deleted)
        };
        self.engine.write(PRODUCTS, write).await
    }

    async fn categories(&self) -> Result<Vec<CategoryInfo>, StoreError> {
        let table = self.catalog.categories.clone();
        let read = move |reader: &Reader| {
            let rows = reader.scan::<CategoryRow>(&table, &Key::new(), MAX_CATEGORIES)?;
            let category = |(key, row): (Vec<u8>, CategoryRow)| {
                let name = Reader::first_text(&table, &key)?.into();
                Ok(CategoryInfo { name, product_count: row.product_count })
            };
            rows.into_iter().map(category).collect()
        };
        self.engine.read(CATEGORIES, read).await
    }

    async fn category(&self, name: &str) -> Result<Option<CategoryInfo>, StoreError> {
        let table = self.catalog.categories.clone();
        let name: Arc<str> = name.into();
        let read = move |reader: &Reader| {
            let row: Option<CategoryRow> = reader.get(&table, &Key::new().text(&name))?;
            Ok(row.map(|row| CategoryInfo { name, product_count: row.product_count }))
        };
        self.engine.read(CATEGORIES, read).await
    }
}
