//! The catalogue on Cassandra.

mod categories;
mod growing;
mod mending;
mod rows;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use scylla::DeserializeRow;
use scylla::cluster::metadata::ColumnType;
use scylla::deserialize::value::{DeserializeValue, MapIterator};
use scylla::deserialize::{DeserializationError, FrameSlice, TypeCheckError};
use scylla::value::{CqlDecimal, CqlTimestamp};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};

use self::categories::CategoryStatements;
use self::rows::RowStatements;
use super::model::browse::{CardRow, CategoryMap, Slice};
use super::model::buckets::{Bucket, Layout, Model};
use super::model::{
    Attribute, Before, CategoryInfo, CountDeltas, GRAVE_LIFE, Product, ProductDraft, ProductId,
    RowChanges,
};
use super::store::{Care, CatalogStore, Counted, Deleted, ScanStep, Upserted};
use crate::clock::Timestamp;
use crate::fault;
use crate::money::{Currency, Money};
use crate::storage::cassandra::{
    Access, CassandraStore, KEYS_AT_ONCE, Reads, Statement, Statements, from_cql, to_cql,
};
use crate::storage::{OpenError, StoreError, to_its_end};

/// Most reads or writes of one call that are under way at once: enough to hide the network, and
/// few enough not to flood a node's queue.
const CONCURRENCY: usize = 64;
/// Locks that products share; see [`CatalogStatements::lock`].
const LOCKS: usize = 4_096;
/// Reads of single rows.
const READ: Duration = Duration::from_secs(2);
/// Writes of single rows.
const WRITE: Duration = Duration::from_secs(3);
/// A step of a walk through all products.
const SCAN: Duration = Duration::from_secs(8);
/// Products of one step of a walk.
const SCAN_STEP: i32 = 500;
/// A write that has taken longer than this looks at the layouts again before its products follow
/// their rows.
const LAYOUT_TRUST: Duration = Duration::from_millis(500);
/// How often it does so before it gives up.
const LAYOUT_LOOKS: u32 = 4;
/// A write whose products followed their rows later than this sees that the rows are still there:
/// a reader may have taken them for what a dead process left.
const SETTLE: Duration = Duration::from_secs(10);

/// The prepared statements of the catalogue.
pub struct CatalogStatements {
    product: Statement,
    products: Statement,
    product_fresh: Statement,
    product_whole: Statement,
    product_write: Statement,
    product_delete: Statement,
    scan: Statement,
    categories: CategoryStatements,
    rows: RowStatements,
    locks: Vec<AsyncMutex<()>>,
}

impl CatalogStatements {
    /// Prepares all of them.
    pub async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        // Every column of a row is written with the product's version as its timestamp, so of two
        // writes that race the larger version wins as a whole, on every replica.
        Ok(Self {
            product: statements.prepare("product_by_id", PRODUCT, Access::ReadOne, READ).await?,
            products: statements.prepare("product_by_id", PRODUCTS, Access::ReadOne, READ).await?,
            product_fresh: statements
                .prepare("product_by_id", PRODUCT, Access::ReadQuorum, READ)
                .await?,
            product_whole: statements
                .prepare("product_by_id", PRODUCT, Access::ReadAll, SCAN)
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
            scan: statements
                .prepare("product_by_id", SCAN_PRODUCTS, Access::ReadQuorum, SCAN)
                .await?,
            categories: CategoryStatements::prepare(statements).await?,
            rows: RowStatements::prepare(statements).await?,
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

    /// Reads a few products at once, in the order of their ids.
    async fn read_part(&self, ids: &[ProductId]) -> Result<Vec<Option<Product>>, StoreError> {
        let statement = &self.products;
        let keys: Vec<&str> = ids.iter().map(ProductId::as_str).collect();
        let answer = statement.run_for((keys,), ids.len()).await?;
        let answer = answer.into_rows_result().map_err(|error| statement.unexpected(&error))?;
        let known: foldhash::HashMap<&str, &ProductId> =
            ids.iter().map(|id| (id.as_str(), id)).collect();
        let mut found = foldhash::HashMap::default();
        for row in answer.rows().map_err(|error| statement.unexpected(&error))? {
            let row: ProductRow<'_> = row.map_err(|error| statement.unexpected(&error))?;
            let Some(&id) = known.get(row.product_id) else { continue };
            found.insert(id, row.into_before(id.clone(), statement)?.product);
        }
        let mut products: Vec<Option<Product>> = Vec::with_capacity(ids.len());
        for id in ids {
            // An id may be there twice.
            let again = || products.iter().flatten().find(|before| before.id == *id).cloned();
            products.push(found.remove(id).flatten().or_else(again));
        }
        Ok(products)
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
        self.product_write.run(values).await?;
        fault::point("upsert.product");
        Ok(())
    }

    async fn delete(&self, id: &ProductId, version: i64) -> Result<(), StoreError> {
        let life = i32::try_from(GRAVE_LIFE.as_secs()).unwrap_or(i32::MAX);
        self.product_delete.run((version, life, version, id.as_str())).await?;
        fault::point("delete.product");
        Ok(())
    }

    /// Writes products after their rows, and takes the rows before them away after that: a row
    /// counts only where its product says so, so the product's own write moves it from the old
    /// place to the new one at once, and whatever a crash leaves behind is not served.
    async fn upsert(
        &self,
        drafts: Vec<ProductDraft>,
        now: Timestamp,
    ) -> Result<Vec<Upserted>, StoreError> {
        let ids: Vec<_> = drafts.iter().map(|draft| draft.id.clone()).collect();
        let asked = Instant::now();
        let _alone = self.lock(&ids).await;
        // A version tells how old a write is: the wait for others does not count.
        let now = now.after(asked.elapsed());
        let locked = Instant::now();
        let before = self.read_many(&self.product_fresh, &ids).await?;
        let products: Vec<_> = drafts
            .into_iter()
            .zip(&before)
            .map(|(draft, before)| Product::from_draft(draft, before, now))
            .collect();
        let names: HashSet<_> = products.iter().map(|product| &product.category).collect();
        let adds: Vec<_> = names.into_iter().map(|name| self.categories.add(name)).collect();
        stream::iter(adds).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
        fault::point("upsert.category");
        let layouts = self.put_rows(&before, &products).await?;
        fault::point("upsert.rows");

        let writes: Vec<_> = products.iter().map(|product| self.write(product)).collect();
        let written: Vec<_> = stream::iter(writes).buffered(CONCURRENCY).collect().await;
        fault::point("upsert.products");
        let changes = before.iter().zip(&products).zip(&written);
        let changes = changes.filter(|(_, written)| written.is_ok());
        let changes: Vec<_> = changes
            .map(|((before, after), _)| (before.product.as_ref(), Some(after), after.version))
            .collect();
        let followed = self.follow(&layouts, &changes).await;
        if locked.elapsed() > SETTLE {
            self.mend_all(&ids, now.after(locked.elapsed())).await?;
        }
        written.into_iter().collect::<Result<(), _>>()?;
        followed?;
        let category_before = before.iter().map(|before| before.category().cloned());
        let upserted = products.into_iter().zip(category_before);
        Ok(upserted
            .map(|(product, category_before)| Upserted { product, category_before })
            .collect())
    }

    /// Puts the rows of products where the layouts say, and answers with the layouts.
    async fn put_rows(
        &self,
        before: &[Before],
        products: &[Product],
    ) -> Result<HashMap<Arc<str>, Layout>, StoreError> {
        let left = before.iter().filter_map(|before| before.category().cloned());
        let names = products.iter().map(|product| product.category.clone()).chain(left);
        let names: Vec<_> = names.collect();
        let mut read_at = Instant::now();
        let mut layouts = self.categories.layouts(names.clone()).await?;
        for _ in 0..LAYOUT_LOOKS {
            let mut lists: BTreeMap<(&str, i64), i64> = BTreeMap::new();
            let mut puts = Vec::with_capacity(products.len());
            for product in products {
                let layout = layouts.get(&product.category).copied().unwrap_or_default();
                let to = Some(product.kopecks());
                let changes = RowChanges::between(&layout, &product.id, None, to);
                for bucket in changes.put.iter().filter(|bucket| bucket.model == Model::Price) {
                    let newest = lists.entry((&product.category, bucket.number)).or_default();
                    *newest = product.version.max(*newest);
                }
                puts.push((product, changes));
            }
            // The list comes first: a bucket that is not on it is not looked into.
            let lists: Vec<_> = lists
                .into_iter()
                .map(|((name, bucket), version)| self.rows.list(name, bucket, version))
                .collect();
            stream::iter(lists).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
            fault::point("upsert.list");
            let puts: Vec<_> = puts
                .iter()
                .map(|(product, changes)| async move {
                    self.rows.put_all(&product.category, changes, &CardRow::of(product)).await
                })
                .collect();
            stream::iter(puts).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
            if read_at.elapsed() < LAYOUT_TRUST {
                return Ok(layouts);
            }
            // It took long: a split may have begun that does not know of these rows.
            read_at = Instant::now();
            let again = self.categories.layouts(names.clone()).await?;
            let is_same = again == layouts;
            layouts = again;
            if is_same {
                return Ok(layouts);
            }
        }
        Err(StoreError::Timeout { call: "rows", cause: "the layout kept changing".to_owned() })
    }

    /// After the products: takes away the rows they had before, and counts.
    async fn follow(
        &self,
        layouts: &HashMap<Arc<str>, Layout>,
        changes: &[(Option<&Product>, Option<&Product>, i64)],
    ) -> Result<(), StoreError> {
        let mut deltas = CountDeltas::default();
        let mut takes = Vec::new();
        for &(before, after, version) in changes {
            deltas.moved(before.map(|p| &p.category), after.map(|p| &p.category));
            let place = |product: &Product| {
                (layouts.get(&product.category).copied().unwrap_or_default(), product.kopecks())
            };
            let stays =
                before.zip(after).filter(|(before, after)| before.category == after.category);
            if let Some(before) = before {
                let (layout, from) = place(before);
                let to = stays.map(|(_, after)| after.kopecks());
                let changes = RowChanges::between(&layout, &before.id, Some(from), to);
                for &(bucket, _) in &changes.take {
                    deltas.rows(&before.category, bucket, -1);
                }
                if !changes.take.is_empty() {
                    takes.push((before, changes, version));
                }
            }
            if let Some(after) = after {
                let (layout, to) = place(after);
                let held = stays.map(|(before, _)| layout.swept(before.kopecks(), &before.id));
                let is_same_price = stays.is_some_and(|(before, _)| before.kopecks() == to);
                for bucket in layout.written(to, &after.id) {
                    if !(is_same_price && held.as_ref().is_some_and(|held| held.contains(&bucket)))
                    {
                        deltas.rows(&after.category, bucket, 1);
                    }
                }
            }
        }
        let takes: Vec<_> = takes
            .iter()
            .map(|(before, changes, version)| {
                self.rows.take_all(&before.category, changes, &before.id, *version)
            })
            .collect();
        let gone: Vec<_> = stream::iter(takes).buffer_unordered(CONCURRENCY).collect().await;
        fault::point("upsert.taken");
        // A row that could not be taken away is not served; what was written is counted.
        self.categories.count(&deltas).await?;
        gone.into_iter().collect()
    }

    async fn delete_all(
        &self,
        ids: Vec<ProductId>,
        now: Timestamp,
    ) -> Result<Vec<Deleted>, StoreError> {
        let asked = Instant::now();
        let _alone = self.lock(&ids).await;
        let now = now.after(asked.elapsed());
        let before = self.read_many(&self.product_fresh, &ids).await?;
        let there: Vec<_> = before
            .iter()
            .filter_map(|before| Some((before.product.as_ref()?, before.next_version(now))))
            .collect();
        let names = there.iter().map(|(product, _)| product.category.clone());
        let layouts = self.categories.layouts(names).await?;
        let deletes: Vec<_> =
            there.iter().map(|(product, version)| self.delete(&product.id, *version)).collect();
        let done: Vec<_> = stream::iter(deletes).buffered(CONCURRENCY).collect().await;
        fault::point("delete.products");
        let changes = there.iter().zip(&done).filter(|(_, done)| done.is_ok());
        let changes: Vec<_> =
            changes.map(|((product, version), _)| (Some(*product), None, *version)).collect();
        let followed = self.follow(&layouts, &changes).await;
        done.into_iter().collect::<Result<(), _>>()?;
        followed?;
        let gone = there.into_iter().map(|(product, version)| Deleted {
            id: product.id.clone(),
            category: product.category.clone(),
            version,
        });
        Ok(gone.collect())
    }

    async fn category_info(&self, name: Arc<str>) -> Result<Option<CategoryInfo>, StoreError> {
        let product_count = self.categories.product_count(&name).await?;
        Ok((product_count > 0).then_some(CategoryInfo { name, product_count }))
    }
}

impl Reads for CatalogStatements {
    type Key = ProductId;
    type Row = Option<Product>;

    async fn one(&self, id: &ProductId) -> Result<Option<Product>, StoreError> {
        Ok(self.read(&self.product, id).await?.product)
    }

    async fn several(&self, ids: &[ProductId]) -> Result<Vec<Option<Product>>, StoreError> {
        self.read_part(ids).await
    }
}

const SCAN_PRODUCTS: &str = "SELECT token(product_id), product_id FROM ks.product_by_id \
                             WHERE token(product_id) > ? AND token(product_id) <= ? LIMIT ?";

/// The columns of [`ProductRow`].
macro_rules! select_product {
    ($which:literal) => {
        concat!(
            "SELECT product_id, name, description, category, price, currency, attrs, image_url, \
             created_at, updated_at, version FROM ks.product_by_id WHERE product_id ",
            $which
        )
    };
}

const PRODUCT: &str = select_product!("= ?");
const PRODUCTS: &str = select_product!("IN ?");

/// A map of texts as attributes, in the order of their names, which is the order of maps.
struct Attributes(Vec<Attribute>);

/// As it comes.
type Texts<'frame, 'metadata> = MapIterator<'frame, 'metadata, &'frame str, &'frame str>;

impl<'frame, 'metadata> DeserializeValue<'frame, 'metadata> for Attributes {
    fn type_check(typ: &ColumnType<'_>) -> Result<(), TypeCheckError> {
        Texts::type_check(typ)
    }

    fn deserialize(
        typ: &'metadata ColumnType<'metadata>,
        value: Option<FrameSlice<'frame>>,
    ) -> Result<Self, DeserializationError> {
        let attributes = Texts::deserialize(typ, value)?.map(|member| {
            let (name, value) = member?;
            Ok(Attribute { name: name.to_owned(), value: value.to_owned() })
        });
        attributes.collect::<Result<_, _>>().map(Self)
    }
}

/// A row of `product_by_id`. Borrowed from the answer where it can be.
#[derive(DeserializeRow)]
struct ProductRow<'a> {
    product_id: &'a str,
    name: Option<&'a str>,
    description: Option<String>,
    category: Option<&'a str>,
    price: Option<CqlDecimal>,
    currency: Option<&'a str>,
    attrs: Option<Attributes>,
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
        Some(Product {
            id,
            name: self.name?.to_owned(),
            description: self.description,
            category: self.category?.into(),
            price,
            attributes: self.attrs.map(|attributes| attributes.0).unwrap_or_default(),
            image_url: self.image_url,
            created_at: Timestamp::from_millis(self.created_at?.0),
            updated_at: Timestamp::from_millis(self.updated_at?.0),
            version: self.version?,
        })
    }
}

#[async_trait]
impl CatalogStore for CassandraStore {
    async fn products(&self, ids: &[ProductId]) -> Result<Vec<Option<Product>>, StoreError> {
        let catalog = &self.catalog;
        if let [id] = ids {
            return Ok(vec![self.products.read(id).await?]);
        }
        let parts: Vec<_> = ids.chunks(KEYS_AT_ONCE).map(|part| catalog.read_part(part)).collect();
        stream::iter(parts).buffered(CONCURRENCY).try_concat().await
    }

    async fn upsert_products(
        &self,
        drafts: Vec<ProductDraft>,
        now: Timestamp,
    ) -> Result<Vec<Upserted>, StoreError> {
        let catalog = self.catalog.clone();
        // What it has written when its caller goes away would not be counted otherwise.
        to_its_end("upsert", async move { catalog.upsert(drafts, now).await }).await
    }

    async fn delete_products(
        &self,
        ids: &[ProductId],
        now: Timestamp,
    ) -> Result<Vec<Deleted>, StoreError> {
        let (catalog, ids) = (self.catalog.clone(), ids.to_vec());
        to_its_end("delete", async move { catalog.delete_all(ids, now).await }).await
    }

    async fn categories(&self) -> Result<Vec<CategoryInfo>, StoreError> {
        let names = self.catalog.categories.names().await?;
        let counts: Vec<_> =
            names.into_iter().map(|name| self.catalog.category_info(name)).collect();
        let mut categories: Vec<CategoryInfo> = stream::iter(counts)
            .buffer_unordered(CONCURRENCY)
            .try_filter_map(|category| async { Ok(category) })
            .try_collect()
            .await?;
        categories.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(categories)
    }

    async fn category_names(&self) -> Result<Vec<Arc<str>>, StoreError> {
        self.catalog.categories.names().await
    }

    async fn category(&self, name: &str) -> Result<Option<CategoryInfo>, StoreError> {
        self.catalog.category_info(name.into()).await
    }

    async fn category_map(&self, name: &str) -> Result<Option<CategoryMap>, StoreError> {
        // Four reads at once make a large future.
        Box::pin(self.catalog.categories.map(name, self.catalog.rows.listed(name))).await
    }

    async fn page_map(&self, name: &str) -> Result<Option<CategoryMap>, StoreError> {
        Box::pin(self.catalog.categories.page_map(name, self.catalog.rows.listed(name))).await
    }

    fn rows_always_agree(&self) -> bool {
        false
    }

    async fn read_slices(
        &self,
        category: &str,
        slices: Vec<Slice>,
        care: Care,
    ) -> Result<Vec<Vec<CardRow>>, StoreError> {
        self.catalog.rows.slices(category, &slices, care).await
    }

    async fn change_layout(&self, category: &str, to: &Layout) -> Result<bool, StoreError> {
        self.catalog.categories.change_layout(category, to).await
    }

    async fn copy_rows(
        &self,
        category: &str,
        from: Bucket,
        rows: Vec<CardRow>,
        level: u8,
    ) -> Result<(), StoreError> {
        self.catalog.copy_rows(category, from, &rows, level).await
    }

    async fn remove_rows(
        &self,
        category: &str,
        bucket: Bucket,
        rows: Vec<CardRow>,
    ) -> Result<(), StoreError> {
        self.catalog.remove_rows(category, bucket, &rows).await
    }

    async fn drop_empty_bucket(
        &self,
        category: &str,
        bucket: Bucket,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.catalog.drop_empty_bucket(category, bucket, now).await
    }

    async fn drop_bucket(&self, category: &str, bucket: Bucket) -> Result<(), StoreError> {
        self.catalog.drop_bucket(category, bucket).await
    }

    async fn mend_rows(&self, ids: &[ProductId], now: Timestamp) -> Result<u64, StoreError> {
        self.catalog.mend_all(ids, now).await
    }

    async fn repair_row(
        &self,
        category: &str,
        bucket: Bucket,
        row: &CardRow,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.catalog.repair_row(category, bucket, row, now).await
    }

    async fn scan_products(
        &self,
        part: u32,
        parts: u32,
        after: Option<String>,
    ) -> Result<ScanStep, StoreError> {
        let catalog = &self.catalog;
        // Tokens are spread evenly over all numbers of 64 bits.
        let bound = |part: u32| {
            let share = (1_i128 << 64) * i128::from(part) / i128::from(parts.max(1));
            i64::try_from(i128::from(i64::MIN) + share).unwrap_or(i64::MAX)
        };
        let from = match after {
            Some(token) => token.parse().map_err(|error| catalog.scan.unexpected(&error))?,
            None => bound(part),
        };
        let found: Vec<(i64, String)> =
            catalog.scan.rows((from, bound(part + 1), SCAN_STEP)).await?;
        let is_last = found.len() < usize::try_from(SCAN_STEP).unwrap_or(0);
        let next = found.last().map(|(token, _)| token.to_string()).filter(|_| !is_last);
        let ids = found.into_iter().map(|(_, id)| ProductId::new_unchecked(id)).collect();
        Ok(ScanStep { ids, next })
    }

    async fn mend_counts(
        &self,
        category: &str,
        before: &CategoryMap,
        counted: &Counted,
    ) -> Result<bool, StoreError> {
        let catalog = &self.catalog;
        if self.category_map(category).await?.as_ref() != Some(before) {
            return Ok(false);
        }
        catalog.categories.set_counts(category, counted).await?;
        Ok(true)
    }
}
