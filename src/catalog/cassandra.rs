//! The catalogue on Cassandra.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use rust_decimal::Decimal;
use scylla::DeserializeRow;
use scylla::value::{Counter, CqlDecimal, CqlTimestamp};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use super::model::{
    Attribute, Before, CategoryDeltas, CategoryInfo, GRAVE_LIFE, MAX_CATEGORIES, Product,
    ProductDraft, ProductId,
};
use super::store::CatalogStore;
use crate::clock::Timestamp;
use crate::money::{Currency, Money};
use crate::storage::cassandra::{Access, CassandraStore, Statement, Statements};
use crate::storage::{OpenError, StoreError};

/// Most reads or writes of one call that are under way at once: enough to hide the network, and
/// few enough not to flood a node's queue.
const CONCURRENCY: usize = 64;
/// Locks that products share; see [`CatalogStatements::lock`].
const LOCKS: usize = 4_096;
/// Reads of single rows.
const READ: Duration = Duration::from_secs(2);
/// Writes of single rows.
const WRITE: Duration = Duration::from_secs(3);
/// The list of all categories walks a small table.
const LIST: Duration = Duration::from_secs(4);

/// The prepared statements of the catalogue.
pub struct CatalogStatements {
    product: Statement,
    product_fresh: Statement,
    product_write: Statement,
    product_delete: Statement,
    category_add: Statement,
    categories: Statement,
    count: Statement,
    count_add: Statement,
    /// Categories known to have their row in `category_by_name`; rows are never taken away.
    known: Mutex<HashSet<Arc<str>>>,
    locks: Vec<AsyncMutex<()>>,
}

impl CatalogStatements {
    /// Prepares all of them.
    pub async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        // Every column of a row is written with the product's version as its timestamp, so of two
        // writes that race the larger version wins as a whole, on every replica.
        Ok(Self {
            product: statements.prepare("product_by_id", PRODUCT, Access::ReadOne, READ).await?,
            product_fresh: statements
                .prepare("product_by_id", PRODUCT, Access::ReadQuorum, READ)
                .await?,
            product_write: statements
                .prepare(
                    "product_by_id",
                    // Not an INSERT: it would leave an empty row when all columns are gone.
                    "UPDATE ks.product_by_id USING TIMESTAMP ? SET name = ?, description = ?, \
                     category = ?, price = ?, currency = ?, attrs = ?, image_url = ?, \
                     created_at = ?, updated_at = ?, version = ? WHERE product_id = ?",
                    Access::WriteQuorum,
                    WRITE,
                )
                .await?,
            product_delete: statements
                .prepare(
                    "product_by_id",
                    // What stays is the version, for a while: see `GRAVE_LIFE`.
                    "UPDATE ks.product_by_id USING TIMESTAMP ? AND TTL ? SET name = null, \
                     description = null, category = null, price = null, currency = null, \
                     attrs = null, image_url = null, created_at = null, updated_at = null, \
                     version = ? WHERE product_id = ?",
                    Access::WriteQuorum,
                    WRITE,
                )
                .await?,
            category_add: statements
                .prepare(
                    "category_by_name",
                    "INSERT INTO ks.category_by_name (category) VALUES (?) IF NOT EXISTS",
                    Access::Conditional,
                    WRITE,
                )
                .await?,
            categories: statements
                .prepare(
                    "category_by_name",
                    "SELECT category FROM ks.category_by_name LIMIT ?",
                    Access::ReadOne,
                    LIST,
                )
                .await?,
            count: statements
                .prepare(
                    "category_product_count",
                    "SELECT product_count FROM ks.category_product_count WHERE category = ?",
                    Access::ReadOne,
                    READ,
                )
                .await?,
            count_add: statements
                .prepare(
                    "category_product_count",
                    "UPDATE ks.category_product_count SET product_count = product_count + ? \
                     WHERE category = ?",
                    Access::CountQuorum,
                    WRITE,
                )
                .await?,
            known: Mutex::default(),
            locks: std::iter::repeat_with(AsyncMutex::default).take(LOCKS).collect(),
        })
    }

    /// Holds off other writers of these products in this process, so that each sees what the one
    /// before it wrote, and category counts stay right. Writers in other processes are told apart
    /// by versions; a count they both changed may then be off by one.
    ///
    /// Locks are taken in their order: two batches that share products cannot block each other.
    async fn lock(&self, ids: &[ProductId]) -> Vec<MutexGuard<'_, ()>> {
        let slot = |id: &ProductId| {
            let mut hasher = DefaultHasher::new();
            id.hash(&mut hasher);
            // Any spread will do; the remainder is below LOCKS and so fits.
            usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0)
        };
        let mut slots: Vec<_> = ids.iter().map(slot).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut guards = Vec::with_capacity(slots.len());
        for slot in slots {
            guards.push(self.locks[slot].lock().await);
        }
        guards
    }

    async fn read(&self, statement: &Statement, id: &ProductId) -> Result<Before, StoreError> {
        let rows = statement
            .run((id.as_str(),))
            .await?
            .into_rows_result()
            .map_err(|error| statement.unexpected(&error))?;
        let row: Option<ProductRow<'_>> =
            rows.maybe_first_row().map_err(|error| statement.unexpected(&error))?;
        row.map_or(Ok(Before::default()), |row| row.into_before(id.clone(), statement))
    }

    async fn read_many(
        &self,
        statement: &Statement,
        ids: &[ProductId],
    ) -> Result<Vec<Before>, StoreError> {
        // Gathered first: a lazy iterator of borrowing futures is more than the compiler can name.
        let reads: Vec<_> = ids.iter().map(|id| self.read(statement, id)).collect();
        stream::iter(reads).buffered(CONCURRENCY).try_collect().await
    }

    async fn write(&self, product: &Product) -> Result<(), StoreError> {
        let attrs: BTreeMap<&str, &str> =
            product.attributes.iter().map(|a| (a.name.as_str(), a.value.as_str())).collect();
        let values = (
            product.version,
            &product.name,
            &product.description,
            product.category.as_ref(),
            to_cql(product.price.amount),
            product.price.currency.as_str(),
            attrs,
            &product.image_url,
            CqlTimestamp(product.created_at.millis()),
            CqlTimestamp(product.updated_at.millis()),
            product.version,
            product.id.as_str(),
        );
        self.product_write.run(values).await.map(drop)
    }

    async fn delete(&self, id: &ProductId, version: i64) -> Result<(), StoreError> {
        let life = i32::try_from(GRAVE_LIFE.as_secs()).unwrap_or(i32::MAX);
        self.product_delete.run((version, life, version, id.as_str())).await.map(drop)
    }

    async fn add_category(&self, name: &Arc<str>) -> Result<(), StoreError> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known().contains(name) {
            return Ok(());
        }
        self.category_add.run((name.as_ref(),)).await?;
        let mut known = known();
        // It only spares a write: forgetting it all keeps it small.
        if known.len() >= MAX_CATEGORIES {
            known.clear();
        }
        known.insert(name.clone());
        Ok(())
    }

    async fn add_counts(&self, deltas: CategoryDeltas) -> Result<(), StoreError> {
        let adds: Vec<_> =
            deltas.into_changes().map(|(name, delta)| self.add_count(name, delta)).collect();
        stream::iter(adds).buffer_unordered(CONCURRENCY).try_collect().await
    }

    async fn add_count(&self, name: Arc<str>, delta: i64) -> Result<(), StoreError> {
        self.count_add.run((Counter(delta), name.as_ref())).await.map(drop)
    }

    async fn upsert(
        &self,
        drafts: Vec<ProductDraft>,
        now: Timestamp,
    ) -> Result<Vec<Product>, StoreError> {
        let ids: Vec<_> = drafts.iter().map(|draft| draft.id.clone()).collect();
        let _alone = self.lock(&ids).await;
        let before = self.read_many(&self.product_fresh, &ids).await?;
        let products: Vec<_> = drafts
            .into_iter()
            .zip(&before)
            .map(|(draft, before)| Product::from_draft(draft, before, now))
            .collect();
        let names: HashSet<_> = products.iter().map(|product| &product.category).collect();
        let adds: Vec<_> = names.into_iter().map(|name| self.add_category(name)).collect();
        stream::iter(adds).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;

        let writes: Vec<_> = products.iter().map(|product| self.write(product)).collect();
        let written: Vec<_> = stream::iter(writes).buffered(CONCURRENCY).collect().await;
        let mut deltas = CategoryDeltas::default();
        for ((before, after), written) in before.iter().zip(&products).zip(&written) {
            if written.is_ok() {
                deltas.moved(before.category(), Some(&after.category));
            }
        }
        self.add_counts(deltas).await?;
        written.into_iter().collect::<Result<(), _>>()?;
        Ok(products)
    }

    async fn delete_all(
        &self,
        ids: Vec<ProductId>,
        now: Timestamp,
    ) -> Result<Vec<ProductId>, StoreError> {
        let _alone = self.lock(&ids).await;
        let before = self.read_many(&self.product_fresh, &ids).await?;
        let there: Vec<_> =
            ids.iter().zip(&before).filter(|(_, before)| before.product.is_some()).collect();
        let deletes: Vec<_> =
            there.iter().map(|(id, before)| self.delete(id, before.next_version(now))).collect();
        let done: Vec<_> = stream::iter(deletes).buffered(CONCURRENCY).collect().await;
        let mut deltas = CategoryDeltas::default();
        for ((_, before), done) in there.iter().zip(&done) {
            if done.is_ok() {
                deltas.moved(before.category(), None);
            }
        }
        self.add_counts(deltas).await?;
        done.into_iter().collect::<Result<(), _>>()?;
        Ok(there.into_iter().map(|(id, _)| id.clone()).collect())
    }

    async fn count_of(&self, name: Arc<str>) -> Result<Option<CategoryInfo>, StoreError> {
        let rows = self
            .count
            .run((name.as_ref(),))
            .await?
            .into_rows_result()
            .map_err(|error| self.count.unexpected(&error))?;
        let row: Option<(Option<Counter>,)> =
            rows.maybe_first_row().map_err(|error| self.count.unexpected(&error))?;
        let count = row.and_then(|(count,)| count).map_or(0, |count| count.0);
        Ok(u64::try_from(count)
            .ok()
            .filter(|count| *count > 0)
            .map(|product_count| CategoryInfo { name, product_count }))
    }
}

const PRODUCT: &str = "SELECT name, description, category, price, currency, attrs, image_url, \
                       created_at, updated_at, version FROM ks.product_by_id WHERE product_id = ?";

/// A row of `product_by_id`; the id is known to whoever asks. Borrowed from the answer where it
/// can be.
#[derive(DeserializeRow)]
struct ProductRow<'a> {
    name: Option<&'a str>,
    description: Option<String>,
    category: Option<&'a str>,
    price: Option<CqlDecimal>,
    currency: Option<&'a str>,
    attrs: Option<BTreeMap<String, String>>,
    image_url: Option<String>,
    created_at: Option<CqlTimestamp>,
    updated_at: Option<CqlTimestamp>,
    version: Option<i64>,
}

impl ProductRow<'_> {
    fn into_before(self, id: ProductId, statement: &Statement) -> Result<Before, StoreError> {
        let version = self.version.unwrap_or(0);
        if self.name.is_none() {
            return Ok(Before { product: None, version });
        }
        let product = self.into_product(id);
        product.map(Before::from).ok_or_else(|| statement.unexpected(&"a row that is no product"))
    }

    fn into_product(self, id: ProductId) -> Option<Product> {
        let price =
            Money { amount: from_cql(&self.price?)?, currency: Currency::parse(self.currency?)? };
        let attributes = self.attrs.unwrap_or_default().into_iter();
        Some(Product {
            id,
            name: self.name?.to_owned(),
            description: self.description,
            category: self.category?.into(),
            price,
            attributes: attributes.map(|(name, value)| Attribute { name, value }).collect(),
            image_url: self.image_url,
            created_at: Timestamp::from_millis(self.created_at?.0),
            updated_at: Timestamp::from_millis(self.updated_at?.0),
            version: self.version?,
        })
    }
}

fn to_cql(amount: Decimal) -> CqlDecimal {
    let bytes = amount.mantissa().to_be_bytes();
    let scale = i32::try_from(amount.scale()).unwrap_or(i32::MAX);
    CqlDecimal::from_signed_be_bytes_slice_and_exponent(&bytes, scale)
}

fn from_cql(value: &CqlDecimal) -> Option<Decimal> {
    let (bytes, scale) = value.as_signed_be_bytes_slice_and_exponent();
    let sign = if bytes.first()? & 0x80 == 0 { 0x00 } else { 0xFF };
    let mut wide = [sign; 16];
    let start = wide.len().checked_sub(bytes.len())?;
    wide[start..].copy_from_slice(bytes);
    Decimal::try_from_i128_with_scale(i128::from_be_bytes(wide), u32::try_from(scale).ok()?).ok()
}

/// Runs a change of several rows to its end, also when whoever asked for it goes away: what it has
/// written by then would not be counted otherwise.
async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    let ended = |error: tokio::task::JoinError| StoreError::Fault {
        call: "change",
        cause: error.to_string(),
    };
    tokio::spawn(change).await.unwrap_or_else(|error| Err(ended(error)))
}

#[async_trait]
impl CatalogStore for CassandraStore {
    async fn products(&self, ids: &[ProductId]) -> Result<Vec<Option<Product>>, StoreError> {
        let catalog = &self.catalog;
        if let [id] = ids {
            // The common case needs no machinery for many.
            return Ok(vec![catalog.read(&catalog.product, id).await?.product]);
        }
        let found = catalog.read_many(&catalog.product, ids).await?;
        Ok(found.into_iter().map(|before| before.product).collect())
    }

    async fn upsert_products(
        &self,
        drafts: Vec<ProductDraft>,
        now: Timestamp,
    ) -> Result<Vec<Product>, StoreError> {
        let catalog = self.catalog.clone();
        to_its_end(async move { catalog.upsert(drafts, now).await }).await
    }

    async fn delete_products(
        &self,
        ids: &[ProductId],
        now: Timestamp,
    ) -> Result<Vec<ProductId>, StoreError> {
        let (catalog, ids) = (self.catalog.clone(), ids.to_vec());
        to_its_end(async move { catalog.delete_all(ids, now).await }).await
    }

    async fn categories(&self) -> Result<Vec<CategoryInfo>, StoreError> {
        let catalog = &self.catalog;
        let limit = i32::try_from(MAX_CATEGORIES).unwrap_or(i32::MAX);
        let rows = catalog
            .categories
            .run((limit,))
            .await?
            .into_rows_result()
            .map_err(|error| catalog.categories.unexpected(&error))?;
        let mut names = Vec::new();
        for row in rows.rows::<(String,)>().map_err(|e| catalog.categories.unexpected(&e))? {
            let (name,) = row.map_err(|error| catalog.categories.unexpected(&error))?;
            names.push(Arc::from(name));
        }
        let counts = names.into_iter().map(|name| catalog.count_of(name));
        let mut categories: Vec<CategoryInfo> = stream::iter(counts)
            .buffer_unordered(CONCURRENCY)
            .try_filter_map(|category| async { Ok(category) })
            .try_collect()
            .await?;
        categories.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(categories)
    }

    async fn category(&self, name: &str) -> Result<Option<CategoryInfo>, StoreError> {
        self.catalog.count_of(name.into()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_survive_the_trip() {
        for text in ["0.00", "0.01", "89990.00", "100000000000.00", "-1.50", "0.99", "1.28"] {
            let amount: Decimal = text.parse().unwrap();
            assert_eq!(from_cql(&to_cql(amount)).unwrap().to_string(), text);
        }
        let short = CqlDecimal::from_signed_be_bytes_slice_and_exponent(&[0x7F], 2);
        assert_eq!(from_cql(&short).unwrap().to_string(), "1.27");
        let huge = CqlDecimal::from_signed_be_bytes_slice_and_exponent(&[1; 17], 2);
        assert_eq!(from_cql(&huge), None);
    }
}
