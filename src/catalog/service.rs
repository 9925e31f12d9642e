//! Use cases of the catalogue: what a resolver calls.

pub mod browse;
mod caches;
pub mod check;
pub mod export;
pub mod keeper;
pub mod split;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use self::browse::{PageReads, Scan, plan};
pub use self::caches::CatalogCaches;
use self::caches::{MapKey, PageKey};
use super::model::browse::{
    CardRow, CategoryMap, PageQuery, Position, PriceRange, Sort, Span, in_scan_order,
};
use super::model::buckets::Bucket;
use super::model::{
    CategoryInfo, MAX_BATCH, MAX_LOOKUP, Product, ProductId, RawProduct, check_batch,
};
use super::store::Care;
use crate::cache::Entry;
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, ErrorCode, UserError};
use crate::fault;
use crate::money::Money;
use crate::page::CursorKey;
use crate::storage::{Store, to_its_end};
use crate::telemetry::OperationStats;

/// A row that disagrees with its product is mended once it is so old that its writer cannot be
/// about to finish.
const REPAIR_AFTER: Duration = Duration::from_secs(60);
/// Repairs that run at once; a reader that finds more leaves them to the next one.
const MAX_REPAIRS: usize = 4;
/// Times that a page is read on, each time for twice as many rows, because rows of it were not to
/// be shown.
const MAX_ROUNDS: usize = 8;
/// The longest a page may take: it acts on one layout all the while, and a split waits no longer
/// than [`Store::layout_grace`].
const PAGE_TIME: Duration = Duration::from_secs(3);

/// Whether the writer of a row may still be at work.
fn is_young(row: &CardRow, now: Timestamp) -> bool {
    let young = i64::try_from(fault::hurried(REPAIR_AFTER).as_micros()).unwrap_or(i64::MAX);
    now.micros().saturating_sub(row.version) < young
}

/// The catalogue.
pub struct CatalogService {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    cursors: CursorKey,
    caches: Arc<CatalogCaches>,
    repairs: Arc<Semaphore>,
}

/// An entry of a page.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Listed {
    /// What the read model has of the product.
    Row(CardRow),
    /// The whole product.
    Card(Arc<Product>),
}

impl Listed {
    /// Which product it is.
    pub fn id(&self) -> &ProductId {
        match self {
            Self::Row(row) => &row.id,
            Self::Card(card) => &card.id,
        }
    }

    /// What it costs.
    pub fn money(&self) -> Money {
        match self {
            Self::Row(row) => row.money(),
            Self::Card(card) => card.price,
        }
    }

    /// Its place in the order of the category.
    pub fn position(&self) -> Position {
        match self {
            Self::Row(row) => row.position(),
            Self::Card(card) => Position { price: card.kopecks(), id: card.id.as_str().into() },
        }
    }
}

/// An end of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Before its first entry.
    Before,
    /// After its last entry.
    After,
}

/// A page of a category.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Page {
    /// Its products, in the order that was asked for.
    pub entries: Vec<Listed>,
    /// Whether there are more: after the last one, or before the first one of a page from the end.
    pub has_more: bool,
    /// What it took; `None` if nothing was read.
    pub reads: Option<PageReads>,
}

impl CatalogService {
    /// The catalogue of a store.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        cursors: CursorKey,
        caches: CatalogCaches,
    ) -> Self {
        let (caches, repairs) = (Arc::new(caches), Arc::new(Semaphore::new(MAX_REPAIRS)));
        Self { store, clock, cursors, caches, repairs }
    }

    /// The products with these ids, in their order; `None` where there is none.
    pub async fn products(&self, ids: &[ProductId]) -> Result<Vec<Option<Arc<Product>>>, Error> {
        self.caches.cards.get_many(ids, |missing| self.read_products(missing)).await
    }

    /// The same for a page, which is cached itself.
    async fn page_products(&self, ids: &[ProductId]) -> Result<Vec<Option<Arc<Product>>>, Error> {
        let (cards, age) = (&self.caches.cards, self.caches.part_age);
        cards.get_many_within(ids, age, |missing| self.read_products(missing)).await
    }

    async fn read_products(&self, ids: Vec<ProductId>) -> Result<Vec<Entry<Product>>, Error> {
        let products = if ids.len() <= MAX_LOOKUP {
            self.store.products(&ids).await?
        } else {
            let reads = ids.chunks(MAX_LOOKUP).map(|ids| self.store.products(ids));
            try_join_all(reads).await?.into_iter().flatten().collect()
        };
        let entry = |product: Option<Product>| Entry {
            // What is not there has no version; whatever is known to be newer stays.
            version: product.as_ref().map_or(0, |product| product.version),
            value: product.map(Arc::new),
        };
        Ok(products.into_iter().map(entry).collect())
    }

    async fn map(&self, category: &str) -> Result<Arc<Option<CategoryMap>>, Error> {
        let read = || async { Ok(self.store.page_map(category).await?) };
        self.caches.maps.get(category, MapKey, read).await
    }

    /// A page of a category. `with_cards` asks for whole products, not only for what the read
    /// models have.
    pub async fn page(&self, query: &PageQuery, with_cards: bool) -> Result<Arc<Page>, Error> {
        let read = || async {
            let page = tokio::time::timeout(PAGE_TIME, self.read_page(query, with_cards));
            let page = page.await.map_err(|_| Error::Timeout)??;
            if let Some(reads) = page.reads {
                OperationStats::page(reads.model.as_str(), reads.partitions, reads.rows);
            }
            Ok(page)
        };
        match PageKey::of(query, with_cards) {
            Some(key) => self.caches.pages.get(&query.category, key, read).await,
            None => {
                self.caches.pages.is_read(&query.category);
                read().await.map(Arc::new)
            }
        }
    }

    async fn read_page(&self, query: &PageQuery, with_cards: bool) -> Result<Page, Error> {
        let nothing = Page { entries: Vec::new(), has_more: false, reads: None };
        let (span, descending) = (query.span(), query.is_descending());
        if span.is_empty() {
            return Ok(nothing);
        }
        let map = self.map(&query.category).await?;
        let Some(map) = map.as_ref() else { return Ok(nothing) };
        let now = self.clock.now();
        // One more tells whether there are more.
        let wanted = query.limit + 1;
        let model = plan(map, &span, descending, wanted);
        let category = query.category.as_ref();
        let span = (&span, descending);
        let mut walk = Scan::new(self.store.as_ref(), category, map, span, model, Care::Usual);
        let compare = with_cards || !self.store.rows_always_agree();
        let mut entries = Vec::with_capacity(wanted);
        let mut ghosts = Vec::new();
        let mut moved = Vec::new();
        let mut has_ended = false;
        let mut reached = None;
        for round in 0..MAX_ROUNDS {
            let asked = ((wanted - entries.len()) << round).min(MAX_LOOKUP);
            let rows = walk.next(asked).await?;
            has_ended = rows.len() < asked;
            reached = if has_ended { None } else { rows.last().map(|(_, row)| row.position()) };
            if compare {
                // A row counts only where its product says so: that is also what makes a change of
                // price or category one step for whoever reads.
                let ids: Vec<_> = rows.iter().map(|(_, row)| row.id.clone()).collect();
                for ((bucket, row), card) in rows.into_iter().zip(self.page_products(&ids).await?) {
                    match card {
                        Some(card) if row.agrees(category, Some(&card)) => {
                            entries.push(Listed::Card(card));
                        }
                        card => {
                            moved.extend(card.filter(|card| card.version > row.version));
                            ghosts.push((bucket, row));
                        }
                    }
                }
            } else {
                entries.extend(rows.into_iter().map(|(_, row)| Listed::Row(row)));
            }
            if has_ended || entries.len() >= wanted {
                break;
            }
        }
        moved.retain(|card| card.category == query.category);
        put_moved(&mut entries, moved, span, reached.as_ref());
        if !has_ended && entries.len() < wanted {
            // Very much is changing here at this moment: no page rather than a wrong one.
            tracing::warn!(category, ghosts = ghosts.len(), "a page found no end of passing rows");
            return Err(Error::Unavailable);
        }
        let has_more = entries.len() > query.limit;
        entries.truncate(query.limit);
        if query.from_end {
            entries.reverse();
        }
        let (reads, found_empty) = (walk.reads(), std::mem::take(&mut walk.found_empty));
        self.repair(&query.category, ghosts, found_empty, now);
        Ok(Page { entries, has_more, reads: Some(reads) })
    }

    /// Whether the list of a page has a product beyond a place.
    pub async fn is_beyond(
        &self,
        query: &PageQuery,
        place: &Position,
        end: End,
    ) -> Result<bool, Error> {
        let mut probe = PageQuery { after: None, before: None, limit: 0, ..query.clone() };
        match end {
            End::After => probe.after = Some(place.clone()),
            End::Before => probe.before = Some(place.clone()),
        }
        probe.from_end = end == End::Before;
        Ok(self.page(&probe, false).await?.has_more)
    }

    /// Whether the list of a page has a product at a place.
    pub async fn is_listed(&self, query: &PageQuery, place: &Position) -> Result<bool, Error> {
        // No id has a control character: nothing lies between a place and this one.
        let next = Position { price: place.price, id: format!("{}\0", place.id).into() };
        let last_up_to = PageQuery {
            sort: Sort::PriceAsc,
            after: None,
            before: Some(next),
            limit: 1,
            from_end: true,
            ..query.clone()
        };
        let found = self.page(&last_up_to, false).await?;
        Ok(found.entries.first().is_some_and(|entry| entry.position() == *place))
    }

    /// Signs the cursors of pages.
    pub fn cursors(&self) -> &CursorKey {
        &self.cursors
    }

    /// Mends what a page came across, in the background.
    fn repair(
        &self,
        category: &Arc<str>,
        mut ghosts: Vec<(Bucket, CardRow)>,
        found_empty: Vec<Bucket>,
        now: Timestamp,
    ) {
        ghosts.retain(|(_, row)| !is_young(row, now));
        if ghosts.is_empty() && found_empty.is_empty() {
            return;
        }
        let Ok(permit) = self.repairs.clone().try_acquire_owned() else { return };
        let (store, category) = (self.store.clone(), category.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let mend = async {
                for (bucket, row) in ghosts {
                    if store.repair_row(&category, bucket, &row, now).await? {
                        let model = bucket.model.as_str();
                        tracing::info!(
                            id = row.id.as_str(),
                            model,
                            "a row without its product was mended"
                        );
                    }
                }
                for bucket in found_empty {
                    store.drop_empty_bucket(&category, bucket, now).await?;
                }
                Ok::<_, crate::storage::StoreError>(())
            };
            if let Err(error) = mend.await {
                tracing::warn!(%error, "a row could not be mended; the next reader tries again");
            }
        });
    }

    /// Writes a batch of products; all of it is checked before any of it is written.
    pub async fn upsert(
        &self,
        batch: Vec<RawProduct>,
    ) -> Result<Result<Vec<Product>, Vec<UserError>>, Error> {
        check_size("products", batch.len())?;
        let drafts = match check_batch(batch) {
            Ok(drafts) => drafts,
            Err(faults) => return Ok(Err(faults)),
        };
        let (store, caches, now) = (self.store.clone(), self.caches.clone(), self.clock.now());
        // To its end: what was written and not taken over would be shown as it was before.
        let write = async move {
            let names: HashSet<_> = drafts.iter().map(|draft| draft.category.clone()).collect();
            let written = store.upsert_products(drafts, now).await;
            match &written {
                Ok(written) => caches.written(written),
                // A part of it may be written.
                Err(_) => names.iter().for_each(|name| caches.changed(name)),
            }
            Ok(Ok(written?.into_iter().map(|written| written.product).collect()))
        };
        to_its_end("upsert", write).await
    }

    /// Deletes products; answers with the ids of those that were there.
    pub async fn delete(
        &self,
        ids: Vec<String>,
    ) -> Result<Result<Vec<ProductId>, Vec<UserError>>, Error> {
        check_size("ids", ids.len())?;
        let mut faults = Vec::new();
        let mut sound = Vec::with_capacity(ids.len());
        for (index, id) in ids.iter().enumerate() {
            match ProductId::parse(id) {
                // Named twice is deleted once.
                Ok(id) if sound.contains(&id) => {}
                Ok(id) => sound.push(id),
                Err(fault) => faults.push(UserError {
                    code: ErrorCode::Invalid,
                    field: Some(vec!["ids".to_owned(), index.to_string()]),
                    message: format!("Not a product id: {fault}."),
                }),
            }
        }
        if !faults.is_empty() {
            return Ok(Err(faults));
        }
        let (store, caches, now) = (self.store.clone(), self.caches.clone(), self.clock.now());
        let delete = async move {
            let deleted = store.delete_products(&sound, now).await?;
            caches.deleted(&deleted);
            Ok(Ok(deleted.into_iter().map(|deleted| deleted.id).collect()))
        };
        to_its_end("delete", delete).await
    }

    /// All categories that have products, by name.
    pub async fn categories(&self) -> Result<Arc<Vec<CategoryInfo>>, Error> {
        let read = || async { Ok(self.store.categories().await?) };
        self.caches.lists.get(caches::ALL, MapKey, read).await
    }

    /// One category, if it has products.
    pub async fn category(&self, name: &str) -> Result<Option<CategoryInfo>, Error> {
        // Not from the map of its buckets: that one is as large as the category has buckets.
        let read = || async { Ok(self.store.category(name).await?) };
        let info: Result<_, Error> = self.caches.infos.get(name, MapKey, read).await;
        Ok(info?.as_ref().clone())
    }

    /// The lowest and the highest price of a category, as its first and last product say.
    pub async fn price_range(&self, name: &Arc<str>) -> Result<Option<(Listed, Listed)>, Error> {
        let end = |from_end| PageQuery {
            category: name.clone(),
            sort: Sort::PriceAsc,
            range: PriceRange::default(),
            after: None,
            before: None,
            limit: 1,
            from_end,
        };
        let (low, high) = (end(false), end(true));
        let (low, high) = tokio::try_join!(self.page(&low, false), self.page(&high, false))?;
        Ok(low.entries.first().cloned().zip(high.entries.first().cloned()))
    }
}

/// Puts products that went to another place between the reading of their row and of themselves where
/// they are now, if the page has passed that place: it was too early for the new row and too late for
/// the old one, and a product that is only made cheaper would be nowhere.
fn put_moved(
    entries: &mut Vec<Listed>,
    moved: Vec<Arc<Product>>,
    (span, descending): (&Span, bool),
    reached: Option<&Position>,
) {
    for card in moved {
        let card = Listed::Card(card);
        let place = card.position();
        let follows = |other: &Position| in_scan_order(descending, other, &place).is_lt();
        let is_passed = span.has(&place) && !reached.is_some_and(follows);
        // One whose new row was read, too, is there already.
        if is_passed && !entries.iter().any(|entry| entry.position().id == place.id) {
            let at = entries.partition_point(|entry| follows(&entry.position()));
            entries.insert(at, card);
        }
    }
}

fn check_size(argument: &str, len: usize) -> Result<(), Error> {
    if len > MAX_BATCH {
        return Err(Error::argument(argument, format!("at most {MAX_BATCH} at once, got {len}")));
    }
    Ok(())
}
