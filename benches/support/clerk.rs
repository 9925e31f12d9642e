//! The worker that serves made-up categories, and does with them what it is told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use vitrina::catalog::model::MAX_BATCH;
use vitrina::catalog::model::buckets::{Layout, Model};
use vitrina::catalog::service::split::{SplitOutcome, Splitter};
use vitrina::clock::{Clock, SystemClock};
use vitrina::config::CacheConfig;
use vitrina::storage::{self, Store};
use vitrina::telemetry::Metrics;

use super::Result;
use super::roles::{config, control, open, shop};
use super::shelf::Shelf;
use super::writes::{WRITERS, Writes};

/// Serves two shops on one store, the first without caches, the second with those of the default
/// configuration, and carries orders out until the benchmark is gone:
///
/// - `fill NAME PRODUCTS`: writes the first products of a category; reports milliseconds;
/// - `grace`: reports the milliseconds that a split waits between two phases;
/// - `split NAME MODEL`: splits a category; reports milliseconds;
/// - `prepare PRODUCTS`: gets ready for writing, with so many products that are there already;
/// - `write WAY CHANGE MILLISECONDS`: writes for so long; reports what it did;
/// - `repeats`: reports how many batches of it had to be written again.
pub(super) async fn work() -> Result<()> {
    let mut control = control().await?;
    let metrics = Arc::new(Metrics::default());
    let plain = config(CacheConfig::Off)?;
    let store = storage::open(&plain.store, Arc::new(SystemClock), metrics.clone()).await?;
    let place = plain.store.clone();
    let plain = open(&shop(plain, store.clone(), &metrics).await?).await?;
    let cached = shop(config(CacheConfig::Memory)?, store.clone(), &metrics).await?;
    control.tell(&format!("{plain} {}", open(&cached).await?)).await?;
    let mut writes = None;
    while let Some(order) = control.hear().await? {
        let words: Vec<&str> = order.split(' ').collect();
        let started = Instant::now();
        let done = || started.elapsed().as_millis().to_string();
        let report = match (words.as_slice(), &writes) {
            (["fill", name, products], _) => {
                fill(store.as_ref(), &Shelf::new(*name), products.parse()?).await?;
                done()
            }
            (["grace"], _) => store.layout_grace().as_millis().to_string(),
            (["split", name, model], _) => {
                split(&store, name, model).await?;
                done()
            }
            (["prepare", products], _) => {
                let ready = Writes::prepare(&place, store.clone(), products.parse()?).await?;
                writes = Some(Arc::new(ready));
                done()
            }
            (["write", way, change, millis], Some(writes)) => {
                let time = Duration::from_millis(millis.parse()?);
                writes.run(way.parse()?, change.parse()?, time).await?.to_string()
            }
            (["repeats"], Some(writes)) => writes.repeats().to_string(),
            _ => return Err(format!("an order that cannot be read: {order}").into()),
        };
        control.tell(&report).await?;
    }
    Ok(())
}

/// Lays a category out for so many products and writes them, as the demo does.
pub(super) async fn fill(store: &dyn Store, shelf: &Shelf, products: u64) -> Result<()> {
    let layout = Layout { revision: 1, ..Layout::for_products(products) };
    if layout.hash.level > 0 && store.category_map(&shelf.name).await?.is_none() {
        store.change_layout(&shelf.name, &layout).await?;
    }
    let batches = (0..products).step_by(MAX_BATCH).map(|first| {
        let last = (first + MAX_BATCH as u64).min(products);
        async move {
            let drafts = (first..last).map(|index| shelf.product(index)).collect();
            store.upsert_products(drafts, SystemClock.now()).await.map(drop)
        }
    });
    // Gathered first: a lazy iterator of borrowing futures is more than the compiler can name.
    let batches: Vec<_> = batches.collect();
    Ok(stream::iter(batches).buffer_unordered(WRITERS).try_collect().await?)
}

async fn split(store: &Arc<dyn Store>, name: &str, model: &str) -> Result<()> {
    let model = Model::BOTH.into_iter().find(|known| known.as_str() == model);
    let model = model.ok_or("no such read model")?;
    let splitter = Splitter::new(store.clone(), store.layout_grace());
    match splitter.split(name, model).await? {
        SplitOutcome::Done => Ok(()),
        other => Err(format!("the split came to {other:?}").into()),
    }
}
