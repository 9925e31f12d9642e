//! What of the catalogue is cached, and for how long.

use std::borrow::Cow;
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use super::super::model::browse::{CategoryMap, PageQuery, PriceRange, Sort};
use super::super::model::{CategoryInfo, Product, ProductId};
use super::super::store::{Deleted, Upserted};
use super::{Listed, Page};
use crate::cache::{CacheKey, CacheSettings, Entry, GroupCache, Tiers, VersionedCache};
use crate::telemetry::Metrics;

/// How old anything that is shown may be, as the shop's documents allow.
const MAX_AGE: Duration = Duration::from_millis(500);
/// How old a page or a map may be, and a card that a page is made of: together they are no older
/// than what is shown may be.
const PART_AGE: Duration = Duration::from_millis(250);
/// The same for cards of a store that no other process writes to. Every change of them goes through
/// this cache, so they are never old; without an age a fault would stay for ever.
const SOLE_AGE: Duration = Duration::from_secs(600);
/// Memory for cards: some ten thousand of them, more than are hot within half a second.
const CARD_BYTES: u64 = 32 << 20;
/// About how many cards that is.
const CARDS: usize = 16_384;
/// Memory for first pages.
const PAGE_BYTES: u64 = 16 << 20;
/// About how many pages that is.
const PAGES: usize = 1_024;
/// Memory for what is known of categories.
const MAP_BYTES: u64 = 8 << 20;
/// About how many categories are looked at within half a second.
const MAPS: usize = 256;

/// Memory for the list of all categories, and for each of them alone.
const LIST_BYTES: u64 = 1 << 20;

/// The caches of the catalogue.
pub struct CatalogCaches {
    /// How old a card may be that a page is made of.
    pub(super) part_age: Duration,
    pub(super) cards: VersionedCache<ProductId, Product>,
    pub(super) infos: GroupCache<MapKey, Option<CategoryInfo>>,
    pub(super) maps: GroupCache<MapKey, Option<CategoryMap>>,
    pub(super) pages: GroupCache<PageKey, Page>,
    pub(super) lists: GroupCache<MapKey, Vec<CategoryInfo>>,
}

/// The group of the list of all categories.
pub(super) const ALL: &str = "all";

impl CatalogCaches {
    /// Caches on these tiers. `shop` tells the keys of this shop's data from those of others;
    /// `is_shared` says that others change the data too.
    pub fn new(tiers: &Tiers, shop: &str, is_shared: bool, metrics: &Metrics) -> Self {
        let settings = |name, capacity_bytes, expected_entries| CacheSettings {
            name,
            prefix: format!("vitrina:{shop}"),
            max_age: PART_AGE,
            capacity_bytes,
            expected_entries,
            hot_asks: 0,
            announces: false,
        };
        // In Redis they outlive this process, and with it the change that it did not take over.
        let is_sole = !is_shared && matches!(tiers, Tiers::Memory);
        let (card_age, part_age) = if is_sole { (SOLE_AGE, SOLE_AGE) } else { (MAX_AGE, PART_AGE) };
        let cards = CacheSettings { max_age: card_age, ..settings("card", CARD_BYTES, CARDS) };
        let pages = settings("page", PAGE_BYTES, PAGES);
        let infos = settings("category", LIST_BYTES, MAPS);
        let maps = settings("category_map", MAP_BYTES, MAPS);
        let lists = settings("categories", LIST_BYTES, 1);
        Self {
            part_age,
            cards: VersionedCache::new(tiers, &cards, weigh_card, metrics),
            infos: GroupCache::new(tiers, &infos, weigh_info, metrics),
            maps: GroupCache::new(tiers, &maps, weigh_map, metrics),
            pages: GroupCache::new(tiers, &pages, weigh_page, metrics),
            lists: GroupCache::new(tiers, &lists, weigh_list, metrics),
        }
    }

    /// Takes over what was written.
    pub(super) fn written(&self, written: &[Upserted]) {
        for Upserted { product, category_before } in written {
            let entry = Entry { version: product.version, value: Some(Arc::new(product.clone())) };
            self.cards.put(product.id.clone(), entry);
            self.changed(&product.category);
            if let Some(before) = category_before.as_ref().filter(|b| **b != product.category) {
                self.changed(before);
            }
        }
    }

    /// Takes over what was deleted.
    pub(super) fn deleted(&self, deleted: &[Deleted]) {
        for Deleted { id, category, version } in deleted {
            self.cards.put(id.clone(), Entry { version: *version, value: None });
            self.changed(category);
        }
    }

    /// Forgets what is known of a category.
    pub(super) fn changed(&self, category: &str) {
        self.lists.invalidate(ALL);
        self.infos.invalidate(category);
        self.maps.invalidate(category);
        self.pages.invalidate(category);
    }
}

impl CacheKey for ProductId {
    fn redis_key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.as_str())
    }
}

/// A category has one map and one summary, and the shop one list of categories.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct MapKey;

impl CacheKey for MapKey {
    fn redis_key(&self) -> Cow<'_, str> {
        Cow::Borrowed("map")
    }
}

/// Tells the first pages of a category apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    sort: Sort,
    range: PriceRange,
    limit: usize,
    from_end: bool,
    with_cards: bool,
}

impl PageKey {
    /// The key of a page that begins or ends its list; pages in the middle are not cached.
    pub(super) fn of(query: &PageQuery, with_cards: bool) -> Option<Self> {
        let PageQuery { sort, range, limit, from_end, .. } = *query;
        let is_first = query.after.is_none() && query.before.is_none();
        is_first.then_some(Self { sort, range, limit, from_end, with_cards })
    }
}

impl CacheKey for PageKey {
    fn redis_key(&self) -> Cow<'_, str> {
        let Self { sort, range, limit, from_end, with_cards } = self;
        Cow::Owned(format!(
            "{sort:?}:{:?}:{:?}:{limit}:{from_end}:{with_cards}",
            range.min, range.max
        ))
    }
}

fn weigh_card(product: &Product) -> usize {
    let texts = product.name.len()
        + product.description.as_ref().map_or(0, String::len)
        + product.image_url.as_ref().map_or(0, String::len)
        + product.attributes.iter().map(|a| a.name.len() + a.value.len() + 48).sum::<usize>();
    size_of::<Product>() + texts
}

fn weigh_page(page: &Page) -> usize {
    let entry = |entry: &Listed| match entry {
        Listed::Row(row) => {
            size_of::<Listed>() + row.name.len() + row.image_url.as_ref().map_or(0, String::len)
        }
        Listed::Card(card) => size_of::<Listed>() + weigh_card(card),
    };
    size_of::<Page>() + page.entries.iter().map(entry).sum::<usize>()
}

#[allow(clippy::ptr_arg)] // The cache hands out what it keeps.
fn weigh_list(list: &Vec<CategoryInfo>) -> usize {
    list.iter().map(|category| size_of::<CategoryInfo>() + category.name.len()).sum()
}

#[allow(clippy::ref_option)] // The cache hands out what it keeps.
fn weigh_info(info: &Option<CategoryInfo>) -> usize {
    size_of::<CategoryInfo>() + info.as_ref().map_or(0, |category| category.name.len())
}

#[allow(clippy::ref_option)] // The cache hands out what it keeps.
fn weigh_map(map: &Option<CategoryMap>) -> usize {
    let buckets = map.as_ref().map_or(0, |map| map.buckets.len());
    size_of::<CategoryMap>() + buckets * 32
}
