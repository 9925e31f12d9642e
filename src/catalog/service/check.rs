//! `vitrina check`: compares products with their rows and their counts, and mends what disagrees.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use super::super::model::MAX_LOOKUP;
use super::super::model::browse::{CategoryMap, PriceRange, Slice, Span};
use super::super::model::buckets::{Bucket, Model, bucket_at};
use super::super::store::{Care, Counted};
use super::is_young;
use crate::clock::Clock;
use crate::storage::{Store, StoreError};

/// Parts of the products that are walked at once.
const PARTS: u32 = 16;
/// Times that a category is counted until nothing has changed meanwhile.
const MAX_COUNTS: u32 = 3;
/// Products whose rows are looked at in one call …
const AT_ONCE: usize = 32;
/// … and calls of one part at a time.
const CALLS: usize = 4;

/// What a check found, all of it mended unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// Products that were looked at.
    pub products: u64,
    /// Rows that were looked at.
    pub rows: u64,
    /// Rows that were missing or showed something else than their product.
    pub rows_mended: u64,
    /// Rows without a product, or of one that stands elsewhere.
    pub ghosts: u64,
    /// Rows of changes that are going on right now; left alone.
    pub in_work: u64,
    /// Categories whose counts were wrong.
    pub counts_mended: u64,
    /// Categories whose counts could not be compared because they kept changing.
    pub counts_busy: u64,
}

impl CheckReport {
    /// Whether nothing had to be mended.
    pub fn is_clean(&self) -> bool {
        self.rows_mended == 0 && self.ghosts == 0 && self.counts_mended == 0
    }

    fn add(&mut self, other: Self) {
        self.products += other.products;
        self.rows += other.rows;
        self.rows_mended += other.rows_mended;
        self.ghosts += other.ghosts;
        self.in_work += other.in_work;
        self.counts_mended += other.counts_mended;
        self.counts_busy += other.counts_busy;
    }
}

/// Walks the whole catalogue. `progress` is told how many more products or rows have been looked
/// at.
pub async fn check(
    store: &Arc<dyn Store>,
    clock: &dyn Clock,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<CheckReport, StoreError> {
    let parts: Vec<_> =
        (0..PARTS).map(|part| check_products(store, clock, part, progress)).collect();
    let mut report = CheckReport::default();
    let mut products = stream::iter(parts).buffer_unordered(PARTS as usize);
    while let Some(part) = products.try_next().await? {
        report.add(part);
    }
    for name in store.category_names().await? {
        report.add(check_category(store, clock, &name, progress).await?);
    }
    Ok(report)
}

/// Sees that every product has its rows.
async fn check_products(
    store: &Arc<dyn Store>,
    clock: &dyn Clock,
    part: u32,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<CheckReport, StoreError> {
    let mut report = CheckReport::default();
    let mut after = None;
    loop {
        let step = store.scan_products(part, PARTS, after).await?;
        let ids = step.ids;
        report.products += ids.len() as u64;
        let mends: Vec<_> =
            ids.chunks(AT_ONCE).map(|ids| store.mend_rows(ids, clock.now())).collect();
        let mut mends = stream::iter(mends).buffer_unordered(CALLS);
        while let Some(mended) = mends.try_next().await? {
            report.rows_mended += mended;
        }
        progress(ids.len() as u64);
        after = step.next;
        if after.is_none() {
            return Ok(report);
        }
    }
}

/// Sees that every row of a category has its product, and that the counts are right.
async fn check_category(
    store: &Arc<dyn Store>,
    clock: &dyn Clock,
    name: &str,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<CheckReport, StoreError> {
    let mut report = CheckReport::default();
    for _ in 0..MAX_COUNTS {
        let Some(map) = store.category_map(name).await? else { return Ok(report) };
        let mut counted = Counted::default();
        let mut found = CheckReport::default();
        for bucket in all_buckets(&map) {
            let (more, sound) = check_bucket(store, clock, name, (&map, bucket), progress).await?;
            found.add(more);
            if sound.rows > 0 {
                counted.rows.insert(bucket, sound.rows);
            }
            counted.products += sound.products;
        }
        report.ghosts += found.ghosts;
        (report.rows, report.in_work) = (found.rows, found.in_work);
        let kept: BTreeMap<Bucket, u64> =
            map.buckets.iter().copied().filter(|(_, rows)| *rows > 0).collect();
        if kept == counted.rows && map.product_count == counted.products {
            return Ok(report);
        }
        // Only if nothing has changed since, what was found included, is the difference a fault.
        if store.mend_counts(name, &map, &counted).await? {
            report.counts_mended += 1;
            return Ok(report);
        }
    }
    report.counts_busy += 1;
    Ok(report)
}

/// Every bucket that may have rows: those that are listed, and all hash buckets.
fn all_buckets(map: &CategoryMap) -> Vec<Bucket> {
    let highest = map.layout.hash.swept().max().unwrap_or(0);
    let hash = (0..1_i64 << highest).map(|number| Bucket { model: Model::Hash, number });
    let listed = map.buckets.iter().map(|(bucket, _)| *bucket);
    let mut all: Vec<_> = hash.chain(listed).collect();
    all.sort_unstable();
    all.dedup();
    all
}

struct Sound {
    rows: u64,
    products: u64,
}

async fn check_bucket(
    store: &Arc<dyn Store>,
    clock: &dyn Clock,
    category: &str,
    (map, bucket): (&CategoryMap, Bucket),
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(CheckReport, Sound), StoreError> {
    let mut report = CheckReport::default();
    let mut sound = Sound { rows: 0, products: 0 };
    let span = Span::of_prices(PriceRange::default());
    let mut slice = Slice { bucket, span, descending: false, limit: MAX_LOOKUP };
    loop {
        let read = store.read_slices(category, vec![slice.clone()], Care::Fresh).await?;
        let rows = read.into_iter().next().unwrap_or_default();
        let ids: Vec<_> = rows.iter().map(|row| row.id.clone()).collect();
        let products = store.products(&ids).await?;
        let is_last = rows.len() < MAX_LOOKUP;
        if let Some(last) = rows.last() {
            slice.span.lower = last.position();
        }
        report.rows += rows.len() as u64;
        progress(rows.len() as u64);
        let axis = map.layout.axis(bucket.model);
        for (row, product) in rows.iter().zip(&products) {
            let at = |level| bucket_at(bucket.model, level, row.price, &row.id);
            let is_in_place = axis.swept().any(|level| at(level) == bucket);
            if is_in_place && row.agrees(category, product.as_ref()) {
                sound.rows += 1;
                // Each product has one hash bucket at the level that is read.
                if bucket.model == Model::Hash && at(axis.level) == bucket {
                    sound.products += 1;
                }
            } else if is_young(row, clock.now()) {
                report.in_work += 1;
            } else if !is_in_place {
                store.remove_rows(category, bucket, vec![row.clone()]).await?;
                report.ghosts += 1;
            } else if store.repair_row(category, bucket, row, clock.now()).await? {
                report.ghosts += 1;
            }
        }
        if is_last {
            return Ok((report, sound));
        }
    }
}
