//! The rows of the two read models, and how many there are, as keys of the embedded store.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CatalogTables, CategoryRow};
use crate::catalog::model::browse::{CardRow, CategoryMap, Position, PriceRange, Slice, Span};
use crate::catalog::model::buckets::{Bucket, Layout, Model, bucket_at};
use crate::catalog::model::{CountDeltas, Product, ProductId, RowChanges};
use crate::catalog::store::Counted;
use crate::money::Currency;
use crate::storage::StoreError;
use crate::storage::embedded::{Key, Reader, StoredKey, Table, Txn};

pub(super) const BY_HASH: &str = "products_by_category_bucket";
pub(super) const BY_PRICE: &str = "products_by_category_price";
pub(super) const COUNTS: &str = "category_bucket_count";

/// Rows that are taken away at once when a bucket goes.
const DROP_STEP: usize = 1_000;

/// The name of a read model's table.
pub(super) fn name_of(model: Model) -> &'static str {
    match model {
        Model::Hash => BY_HASH,
        Model::Price => BY_PRICE,
    }
}

/// The layouts of the categories that a write has met so far.
#[derive(Default)]
pub(super) struct Layouts(HashMap<Arc<str>, Layout>);

/// A row of a read model; price and id are in its key.
#[derive(Serialize, Deserialize, PartialEq)]
struct Fields {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image_url: Option<String>,
    currency: Currency,
    version: i64,
}

impl Fields {
    fn of(row: &CardRow) -> Self {
        Self {
            name: row.name.clone(),
            image_url: row.image_url.clone(),
            currency: row.currency,
            version: row.version,
        }
    }
}

fn partition(category: &str, bucket: Bucket) -> Key {
    Key::new().text(category).int(bucket.number)
}

fn key_at(category: &str, bucket: Bucket, at: &Position) -> Key {
    partition(category, bucket).int(at.price).text(&at.id)
}

fn key(category: &str, bucket: Bucket, row: &CardRow) -> Key {
    partition(category, bucket).int(row.price).text(row.id.as_str())
}

/// How many rows each bucket of a category has: one row for all of them. Every page of the category
/// reads it whole, and every write changes it; rows of their own would leave behind versions that a
/// scan has to walk over. A bucket without rows has no count.
#[derive(Serialize, Deserialize, Default)]
struct Counts {
    hash: BTreeMap<i64, u64>,
    price: BTreeMap<i64, u64>,
}

impl Counts {
    fn of(&self, model: Model) -> &BTreeMap<i64, u64> {
        match model {
            Model::Hash => &self.hash,
            Model::Price => &self.price,
        }
    }

    fn get(&self, bucket: Bucket) -> Option<u64> {
        self.of(bucket.model).get(&bucket.number).copied()
    }

    fn set(&mut self, bucket: Bucket, rows: u64) {
        let counts = match bucket.model {
            Model::Hash => &mut self.hash,
            Model::Price => &mut self.price,
        };
        if rows == 0 {
            counts.remove(&bucket.number);
        } else {
            counts.insert(bucket.number, rows);
        }
    }

    fn all(&self) -> impl Iterator<Item = (Bucket, u64)> {
        Model::BOTH.into_iter().flat_map(|model| {
            self.of(model).iter().map(move |(&number, &rows)| (Bucket { model, number }, rows))
        })
    }
}

impl CatalogTables {
    fn rows(&self, model: Model) -> &Table {
        match model {
            Model::Hash => &self.by_hash,
            Model::Price => &self.by_price,
        }
    }

    fn layout(
        &self,
        txn: &Txn<'_>,
        layouts: &mut Layouts,
        category: &Arc<str>,
    ) -> Result<Layout, StoreError> {
        if let Some(layout) = layouts.0.get(category) {
            return Ok(*layout);
        }
        let layout = self.category(txn, category)?.layout;
        layouts.0.insert(category.clone(), layout);
        Ok(layout)
    }

    /// Moves the rows of a product from where it stood to where it stands now.
    pub(super) fn move_rows(
        &self,
        txn: &mut Txn<'_>,
        layouts: &mut Layouts,
        (before, after): (Option<&Product>, Option<&Product>),
        deltas: &mut CountDeltas,
    ) -> Result<(), StoreError> {
        let left =
            before.filter(|before| after.is_none_or(|after| after.category != before.category));
        if let Some(left) = left {
            let layout = self.layout(txn, layouts, &left.category)?;
            let changes = RowChanges::between(&layout, &left.id, Some(left.kopecks()), None);
            self.change_rows(txn, &left.category, &changes, &CardRow::of(left), deltas)?;
        }
        if let Some(after) = after {
            let layout = self.layout(txn, layouts, &after.category)?;
            let from = before.filter(|before| before.category == after.category);
            let from = from.map(Product::kopecks);
            let changes = RowChanges::between(&layout, &after.id, from, Some(after.kopecks()));
            self.change_rows(txn, &after.category, &changes, &CardRow::of(after), deltas)?;
        }
        Ok(())
    }

    fn change_rows(
        &self,
        txn: &mut Txn<'_>,
        category: &Arc<str>,
        changes: &RowChanges,
        row: &CardRow,
        deltas: &mut CountDeltas,
    ) -> Result<(), StoreError> {
        for &(bucket, price) in &changes.take {
            let at = Position { price, id: row.id.as_str().into() };
            let key = key_at(category, bucket, &at);
            if txn.contains(self.rows(bucket.model), &key)? {
                txn.delete(self.rows(bucket.model), key);
                deltas.rows(category, bucket, -1);
            }
        }
        for &bucket in &changes.put {
            self.put_row(txn, category, bucket, row, deltas)?;
        }
        Ok(())
    }

    fn put_row(
        &self,
        txn: &mut Txn<'_>,
        category: &Arc<str>,
        bucket: Bucket,
        row: &CardRow,
        deltas: &mut CountDeltas,
    ) -> Result<(), StoreError> {
        let (table, key) = (self.rows(bucket.model), key(category, bucket, row));
        if !txn.contains(table, &key)? {
            deltas.rows(category, bucket, 1);
        }
        txn.put(table, key, &Fields::of(row), None)
    }

    /// Keeps the number of rows of each bucket.
    pub(super) fn count_rows(
        &self,
        txn: &mut Txn<'_>,
        deltas: &CountDeltas,
    ) -> Result<(), StoreError> {
        let mut changed: HashMap<&str, Counts> = HashMap::new();
        for (category, bucket, delta) in deltas.rows_changed() {
            let counts = match changed.entry(category) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(self.counts(txn, category)?),
            };
            let before = counts.get(bucket).unwrap_or(0);
            counts.set(bucket, before.saturating_add_signed(delta));
        }
        changed
            .into_iter()
            .try_for_each(|(category, counts)| self.put_counts(txn, category, &counts))
    }

    fn counts(&self, txn: &Txn<'_>, category: &str) -> Result<Counts, StoreError> {
        Ok(txn.get(&self.counts, &Key::new().text(category))?.unwrap_or_default())
    }

    fn put_counts(
        &self,
        txn: &mut Txn<'_>,
        category: &str,
        counts: &Counts,
    ) -> Result<(), StoreError> {
        let key = Key::new().text(category);
        if counts.all().next().is_none() {
            txn.delete(&self.counts, key);
            return Ok(());
        }
        txn.put(&self.counts, key, counts, None)
    }

    pub(super) fn map(
        &self,
        reader: &Reader,
        category: &str,
    ) -> Result<Option<CategoryMap>, StoreError> {
        let name = Key::new().text(category);
        let row: Option<CategoryRow> = reader.get(&self.categories, &name)?;
        let Some(row) = row else { return Ok(None) };
        let counts: Option<Counts> = reader.get(&self.counts, &name)?;
        Ok(Some(CategoryMap {
            layout: row.layout,
            product_count: row.product_count,
            buckets: counts.iter().flat_map(Counts::all).collect(),
        }))
    }

    pub(super) fn slice(
        &self,
        reader: &Reader,
        category: &str,
        slice: &Slice,
    ) -> Result<Vec<CardRow>, StoreError> {
        let table = self.rows(slice.bucket.model);
        let lower = key_at(category, slice.bucket, &slice.span.lower);
        let upper = key_at(category, slice.bucket, &slice.span.upper);
        let found: Vec<(_, Fields)> =
            reader.range(table, (&lower, &upper), slice.descending, slice.limit)?;
        let row = |(key, fields): (StoredKey, Fields)| {
            let (price, id) = Reader::parts(table, &key, |parts| {
                let (_, _, price) = (parts.text()?, parts.int()?, parts.int()?);
                Some((price, parts.text()?))
            })?;
            Ok(CardRow {
                price,
                currency: fields.currency,
                id: ProductId::new_unchecked(id),
                name: fields.name,
                image_url: fields.image_url,
                version: fields.version,
            })
        };
        found.into_iter().map(row).collect()
    }

    /// Some rows of a bucket, for taking them away.
    pub(super) fn some_rows(
        &self,
        reader: &Reader,
        category: &str,
        bucket: Bucket,
    ) -> Result<Vec<CardRow>, StoreError> {
        let span = Span::of_prices(PriceRange::default());
        let slice = Slice { bucket, span, descending: false, limit: DROP_STEP };
        self.slice(reader, category, &slice)
    }

    pub(super) fn copy_rows(
        &self,
        txn: &mut Txn<'_>,
        category: &Arc<str>,
        from: Bucket,
        rows: &[CardRow],
        level: u8,
    ) -> Result<(), StoreError> {
        let mut deltas = CountDeltas::default();
        for row in rows {
            let to = bucket_at(from.model, level, row.price, &row.id);
            // Writers keep both levels in step, so what stands in one belongs into the other.
            let there = txn.contains(self.rows(from.model), &key(category, from, row))?;
            if there && !txn.contains(self.rows(to.model), &key(category, to, row))? {
                self.put_row(txn, category, to, row, &mut deltas)?;
            }
        }
        self.count_rows(txn, &deltas)
    }

    pub(super) fn remove_rows(
        &self,
        txn: &mut Txn<'_>,
        category: &Arc<str>,
        bucket: Bucket,
        rows: &[CardRow],
    ) -> Result<(), StoreError> {
        let mut deltas = CountDeltas::default();
        for row in rows {
            let (table, key) = (self.rows(bucket.model), key(category, bucket, row));
            let there: Option<Fields> = txn.get(table, &key)?;
            if there.is_some_and(|there| there.version == row.version) {
                txn.delete(table, key);
                deltas.rows(category, bucket, -1);
            }
        }
        self.count_rows(txn, &deltas)
    }

    pub(super) fn mend_rows(
        &self,
        txn: &mut Txn<'_>,
        products: &[Product],
    ) -> Result<u64, StoreError> {
        let mut layouts = Layouts::default();
        let mut deltas = CountDeltas::default();
        let mut unlisted: HashMap<&Arc<str>, Counts> = HashMap::new();
        let mut mended = 0;
        for product in products {
            let (row, category) = (CardRow::of(product), &product.category);
            if !unlisted.contains_key(category) {
                unlisted.insert(category, self.counts(txn, category)?);
            }
            let layout = self.layout(txn, &mut layouts, category)?;
            for bucket in layout.written(row.price, &row.id) {
                let table = self.rows(bucket.model);
                let there: Option<Fields> = txn.get(table, &key(category, bucket, &row))?;
                let is_listed = unlisted.get(category).is_some_and(|c| c.get(bucket).is_some());
                if there != Some(Fields::of(&row)) {
                    mended += 1;
                    self.put_row(txn, category, bucket, &row, &mut deltas)?;
                } else if !is_listed {
                    // A bucket without a count is not looked into; how many there are is counted
                    // later.
                    mended += 1;
                    deltas.rows(category, bucket, 1);
                }
            }
        }
        self.count_rows(txn, &deltas)?;
        Ok(mended)
    }

    pub(super) fn mend_counts(
        &self,
        txn: &mut Txn<'_>,
        category: &str,
        before: &CategoryMap,
        counted: &Counted,
    ) -> Result<bool, StoreError> {
        let mut row = self.category(txn, category)?;
        let mut same = row.product_count == before.product_count;
        let mut counts = self.counts(txn, category)?;
        for (bucket, rows) in &before.buckets {
            same &= counts.get(*bucket) == Some(*rows);
        }
        if !same {
            return Ok(false);
        }
        let gone = before.buckets.iter().map(|(bucket, _)| (*bucket, 0));
        let found = counted.rows.iter().map(|(bucket, rows)| (*bucket, *rows));
        for (bucket, rows) in gone.chain(found) {
            counts.set(bucket, rows);
        }
        self.put_counts(txn, category, &counts)?;
        row.product_count = counted.products;
        if row.product_count == 0 {
            txn.delete(&self.categories, Key::new().text(category));
        } else {
            txn.put(&self.categories, Key::new().text(category), &row, None)?;
        }
        Ok(true)
    }
}
