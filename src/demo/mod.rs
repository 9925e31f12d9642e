//! The demo shop: a catalogue that is the same on every machine, for trying out and for measuring.

pub mod catalogue;
pub mod images;
mod tables;

use std::collections::HashMap;
use std::ops::Range;

use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::catalog::model::MAX_BATCH;
use crate::catalog::model::buckets::Layout;
use crate::clock::Clock;
use crate::geo_zone::GeoZone;
use crate::inventory::model::StockKey;
use crate::product_id::ProductId;
use crate::storage::{Store, StoreError};

/// Products of the demo shop, unless told otherwise.
pub const DEFAULT_PRODUCTS: u64 = 2_000;
/// Most products that can be asked for; the shop is built for ten million.
pub const MAX_PRODUCTS: u64 = 10_000_000;
/// Batches that are written at once: enough to keep a store busy, and a bound on memory.
const BATCHES_AT_ONCE: usize = 16;
/// Products that are looked at to learn how large each category will be.
const LAYOUT_SAMPLE: u64 = 2_000;

/// Writes the first `products` products of the demo catalogue; tells `progress` how many more have
/// been written each time some have. Doing it again writes the same products again.
pub async fn fill(
    store: &dyn Store,
    products: u64,
    clock: &dyn Clock,
    progress: impl Fn(u64),
) -> Result<(), StoreError> {
    lay_out(store, products).await?;
    let batch = MAX_BATCH as u64;
    let batches = (0..products).step_by(MAX_BATCH).map(|first| {
        let last = (first + batch).min(products);
        async move {
            // Stock first: a product that is shown has it.
            store.stock_up(stock(first..last), clock.now()).await?;
            let drafts = (first..last).map(catalogue::product).collect();
            store.upsert_products(drafts, clock.now()).await?;
            Ok(last - first)
        }
    });
    stream::iter(batches)
        .buffer_unordered(BATCHES_AT_ONCE)
        .try_for_each(|written| {
            progress(written);
            std::future::ready(Ok(()))
        })
        .await
}

/// The stock of these products in all zones.
pub fn stock(products: Range<u64>) -> Vec<(StockKey, i64)> {
    let mut rows = Vec::new();
    for index in products {
        let product = ProductId::new_unchecked(catalogue::id_of(index));
        rows.extend(catalogue::stock(index).into_iter().map(|(zone, units)| {
            let zone = GeoZone::new_unchecked(zone);
            (StockKey { product: product.clone(), zone }, i64::from(units))
        }));
    }
    rows
}

/// Lays out categories that are not there yet for what is about to come, so that none of them has
/// to be split as it grows.
async fn lay_out(store: &dyn Store, products: u64) -> Result<(), StoreError> {
    let mut counts: HashMap<String, u64> = HashMap::new();
    // A part tells the shares of all categories.
    let sample = products.min(LAYOUT_SAMPLE);
    for index in 0..sample {
        *counts.entry(catalogue::product(index).category).or_default() += 1;
    }
    for (name, count) in counts {
        let layout =
            Layout { revision: 1, ..Layout::for_products(count * products / sample.max(1)) };
        if layout.hash.level > 0 && store.category_map(&name).await?.is_none() {
            store.change_layout(&name, &layout).await?;
        }
    }
    Ok(())
}
