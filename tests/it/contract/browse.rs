//! Pages of categories: the planner, both read models, splitting, healing, checking.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vitrina::cache::Tiers;
use vitrina::catalog::CatalogService;
use vitrina::catalog::model::browse::{
    CardRow, PageQuery, Position, PriceRange, Slice, Sort, Span,
};
use vitrina::catalog::model::buckets::{Axis, Bucket, Layout, Model, Phase};
use vitrina::catalog::model::{ProductDraft, ProductId};
use vitrina::catalog::service::check::check;
use vitrina::catalog::service::export::{Progress, walk};
use vitrina::catalog::service::split::{SplitOutcome, Splitter};
use vitrina::catalog::service::{CatalogCaches, Listed, Page};
use vitrina::catalog::store::Care;
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::page::CursorKey;
use vitrina::storage::Store;

use crate::support::gate::Gate;
use crate::support::stores::TestStore;
use crate::support::{Random, draft, seed};

crate::on_every_store!(
    pages_are_what_a_sorted_list_says,
    ranges_and_cursors_cut_exactly,
    a_merged_page_reads_little_more_than_it_shows,
    pages_stay_whole_while_everything_changes,
    what_moves_while_a_page_is_read_is_on_it_once,
    a_split_moves_every_row_and_leaves_none_behind,
    a_split_that_stopped_goes_on,
    two_splits_of_one_category_do_not_run_at_once,
    a_large_bucket_asks_to_be_split,
    rows_that_disagree_are_neither_served_nor_kept,
    a_check_mends_rows_and_counts,
    an_export_has_every_product_once_and_goes_on_after_a_split,
    a_layout_changes_only_from_the_one_before,
    leases_have_one_holder,
    the_root_key_stays,
);

/// Nothing is cached in these tests, so nobody acts on an old layout for longer than a page takes,
/// or than a write trusts the layout it has read.
const GRACE: Duration = Duration::from_millis(700);
const CATEGORY: &str = "Электроника «всё»";

fn service(store: &TestStore) -> CatalogService {
    service_on(store.store.clone(), store)
}

fn service_on(front: Arc<dyn Store>, store: &TestStore) -> CatalogService {
    let caches = CatalogCaches::new(&Tiers::Off, "t", true, &store.metrics);
    let (clock, cursors) = (Arc::new(SystemClock), CursorKey::derive(&[1; 32].into()));
    CatalogService::new(front, clock, cursors, caches)
}

fn id(text: &str) -> ProductId {
    ProductId::parse(text).unwrap()
}

fn query(sort: Sort) -> PageQuery {
    PageQuery {
        category: CATEGORY.into(),
        sort,
        range: PriceRange::default(),
        after: None,
        before: None,
        limit: 10,
        from_end: false,
    }
}

/// Prices that sit on the edges of buckets at every depth, many of them equal.
fn price(random: &mut Random) -> i64 {
    match random.below(5) {
        0 => 0,
        1 => 10_000_000,
        2 => {
            (i64::try_from(random.below(6)).unwrap() << 20)
                - i64::try_from(random.below(2)).unwrap()
        }
        3 => i64::try_from(random.below(40)).unwrap() * 99_900,
        _ => i64::try_from(random.below(20_000_000)).unwrap(),
    }
    .max(0)
}

fn random_draft(random: &mut Random, number: u64) -> ProductDraft {
    // Ids of many lengths and alphabets; the order of ids is that of their bytes.
    let id = match number % 4 {
        0 => format!("PROD-{number}"),
        1 => format!("товар {number} «ё»"),
        2 => format!("{number}{}", "я".repeat(40)),
        _ => format!("z\u{10FFFF}{number}"),
    };
    let mut draft = draft(&id, CATEGORY, price(random));
    draft.name = "Очень длинное имя ".repeat(1 + usize::try_from(random.below(15)).unwrap());
    draft.image_url = (random.below(2) == 0).then(|| format!("/images/{number}.svg"));
    draft
}

/// What a page shows: the place, the name and the picture.
type Shown = (Position, String, Option<String>);

fn shown(page: &Page) -> Vec<Shown> {
    let entry = |entry: &Listed| match entry {
        Listed::Row(row) => (entry.position(), row.name.clone(), row.image_url.clone()),
        Listed::Card(card) => (entry.position(), card.name.clone(), card.image_url.clone()),
    };
    page.entries.iter().map(entry).collect()
}

fn expected(drafts: &BTreeMap<String, ProductDraft>, sort: Sort, range: PriceRange) -> Vec<Shown> {
    let mut all: Vec<Shown> = drafts
        .values()
        .map(|draft| {
            let price = i64::try_from(draft.price.amount.mantissa()).unwrap();
            let place = Position { price, id: draft.id.as_str().into() };
            (place, draft.name.clone(), draft.image_url.clone())
        })
        .filter(|(place, ..)| range.min.is_none_or(|min| place.price >= min))
        .filter(|(place, ..)| range.max.is_none_or(|max| place.price <= max))
        .collect();
    all.sort();
    if sort == Sort::PriceDesc {
        all.reverse();
    }
    all
}

/// Pages through a list with random page sizes, from either end; everything in the list's order.
async fn page_through(
    service: &CatalogService,
    mut query: PageQuery,
    random: &mut Random,
) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    loop {
        query.limit = usize::try_from(1 + random.below(30)).unwrap();
        let with_cards = random.below(3) == 0;
        let page = service.page(&query, with_cards).await.unwrap();
        let entries = shown(&page);
        assert!(entries.len() == query.limit || !page.has_more, "a page in the middle is full");
        let edge = if query.from_end { entries.first() } else { entries.last() };
        let edge = edge.map(|(place, ..)| place.clone());
        if query.from_end {
            found.splice(0..0, entries);
            query.before = edge;
        } else {
            found.extend(entries);
            query.after = edge;
        }
        if !page.has_more {
            return found;
        }
    }
}

async fn fill(store: &TestStore, drafts: &BTreeMap<String, ProductDraft>) {
    let all: Vec<_> = drafts.values().cloned().collect();
    for batch in all.chunks(100) {
        store.upsert(batch.to_vec()).await;
    }
}

async fn lay_out(store: &TestStore, level: u8, finer: u8) {
    let map = store.store.category_map(CATEGORY).await.unwrap();
    assert_eq!(map, None, "only an empty category can be laid out like this");
    let mut layout = Layout { revision: 1, ..Layout::default() };
    layout.hash.level = level;
    layout.price.level += finer;
    assert!(store.store.change_layout(CATEGORY, &layout).await.unwrap());
}

async fn pages_are_what_a_sorted_list_says(store: &TestStore) {
    let mut random = Random(seed());
    let level = u8::try_from(random.below(5)).unwrap();
    lay_out(store, level, u8::try_from(random.below(12)).unwrap()).await;
    let mut drafts = BTreeMap::new();
    for number in 0..150 + random.below(150) {
        let draft = random_draft(&mut random, number);
        drafts.insert(draft.id.as_str().to_owned(), draft);
    }
    fill(store, &drafts).await;
    let service = service(store);
    for round in 0..3 {
        for sort in [Sort::PriceAsc, Sort::PriceDesc] {
            for from_end in [false, true] {
                let query = PageQuery { from_end, ..query(sort) };
                let found = page_through(&service, query, &mut random).await;
                assert_eq!(
                    found,
                    expected(&drafts, sort, PriceRange::default()),
                    "{round} {sort:?} {from_end}"
                );
            }
        }
        // Everything may change; the lists follow.
        let ids: Vec<_> = drafts.keys().cloned().collect();
        for id in ids {
            match random.below(6) {
                0 => {
                    let draft = drafts.remove(&id).unwrap();
                    assert_eq!(store.delete(std::slice::from_ref(&draft.id)).await, [draft.id]);
                }
                1 => {
                    let draft = drafts.get_mut(&id).unwrap();
                    draft.price.amount = rust_decimal::Decimal::new(price(&mut random), 2);
                    store.upsert(vec![draft.clone()]).await;
                }
                2 => {
                    // To another category, and half of them back.
                    let mut away = drafts[&id].clone();
                    "Книги".clone_into(&mut away.category);
                    store.upsert(vec![away]).await;
                    if random.below(2) == 0 {
                        store.upsert(vec![drafts[&id].clone()]).await;
                    } else {
                        drafts.remove(&id);
                    }
                }
                3 => {
                    let draft = drafts.get_mut(&id).unwrap();
                    draft.name = format!("Новое имя {}", random.below(9));
                    store.upsert(vec![draft.clone()]).await;
                }
                _ => {}
            }
        }
    }
    let count = store.store.category(CATEGORY).await.unwrap().unwrap().product_count;
    assert_eq!(count, drafts.len() as u64);
    assert_whole(store, drafts.len() as u64).await;
}

/// Every product has exactly one row in each read model, and a check finds nothing.
async fn assert_whole(store: &TestStore, products: u64) {
    let map = store.store.category_map(CATEGORY).await.unwrap().unwrap();
    assert!(!map.layout.is_splitting(), "{map:?}");
    assert_eq!(map.product_count, products);
    for model in Model::BOTH {
        let rows: u64 = map.buckets.iter().filter(|(b, _)| b.model == model).map(|(_, n)| n).sum();
        assert_eq!(rows, products, "rows that are counted: {map:?}");
        let rows = rows_of(store, model, &map.layout).await;
        assert_eq!(rows.len() as u64, products, "{model:?}");
        let ids: BTreeSet<_> = rows.iter().map(|row| row.id.clone()).collect();
        assert_eq!(ids.len(), rows.len(), "{model:?}: a product has one row");
    }
    let report = check(&store.store, &Later, &|_| {}).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.in_work, report.counts_busy), (0, 0), "{report:?}");
}

/// A clock by which everything that was written is settled.
struct Later;

impl Clock for Later {
    fn now(&self) -> Timestamp {
        SystemClock.now().after(Duration::from_secs(3_600))
    }
}

async fn rows_of(store: &TestStore, model: Model, layout: &Layout) -> Vec<CardRow> {
    let map = store.store.category_map(CATEGORY).await.unwrap().unwrap();
    let hash = (0..1_i64 << layout.hash.level).map(|number| Bucket { model: Model::Hash, number });
    let price = map.price_buckets().map(|(number, _)| Bucket { model: Model::Price, number });
    let buckets: Vec<_> = match model {
        Model::Hash => hash.collect(),
        Model::Price => price.collect(),
    };
    let slices = buckets.into_iter().map(|bucket| Slice {
        bucket,
        span: Span::of_prices(PriceRange::default()),
        descending: false,
        limit: 10_000,
    });
    let read = store.store.read_slices(CATEGORY, slices.collect(), Care::Fresh).await.unwrap();
    read.into_iter().flatten().collect()
}

async fn ranges_and_cursors_cut_exactly(store: &TestStore) {
    let mut random = Random(seed());
    lay_out(store, 2, 6).await;
    let mut drafts = BTreeMap::new();
    for number in 0..120 {
        let draft = random_draft(&mut random, number);
        drafts.insert(draft.id.as_str().to_owned(), draft);
    }
    fill(store, &drafts).await;
    let service = service(store);
    for _ in 0..40 {
        let (a, b) = (price(&mut random), price(&mut random));
        let end = |price: i64, random: &mut Random| (random.below(5) > 0).then_some(price);
        let range = PriceRange { min: end(a.min(b), &mut random), max: end(a.max(b), &mut random) };
        let sort = if random.below(2) == 0 { Sort::PriceAsc } else { Sort::PriceDesc };
        let all = expected(&drafts, sort, range);
        let from_end = random.below(2) == 0;
        let base = PageQuery { range, from_end, ..query(sort) };
        assert_eq!(page_through(&service, base.clone(), &mut random).await, all, "{base:?}");

        // Between two places, which need not be products of the list.
        let mut places: Vec<Position> = (0..2)
            .map(|_| Position {
                price: price(&mut random),
                id: format!("{}", random.below(99)).into(),
            })
            .chain(all.iter().map(|(place, ..)| place.clone()))
            .collect();
        let mut some =
            || places.swap_remove(usize::try_from(random.below(places.len() as u64)).unwrap());
        let (after, before) = (some(), some());
        let follows = |a: &Position, b: &Position| match sort {
            Sort::PriceAsc => a > b,
            Sort::PriceDesc => a < b,
        };
        let window: Vec<_> = all
            .iter()
            .filter(|(place, ..)| follows(place, &after) && follows(&before, place))
            .cloned()
            .collect();
        let cut = PageQuery { after: Some(after), before: Some(before), limit: 7, ..base };
        let page = service.page(&cut, false).await.unwrap();
        let part = if from_end {
            &window[window.len().saturating_sub(7)..]
        } else {
            &window[..window.len().min(7)]
        };
        assert_eq!(shown(&page), part, "{cut:?}");
        assert_eq!(page.has_more, window.len() > 7, "{cut:?}");
    }
    let unknown = PageQuery { category: "нет такой".into(), ..query(Sort::PriceAsc) };
    assert!(service.page(&unknown, false).await.unwrap().entries.is_empty());
}

/// Invariant 5, with writers, deleters and splits at work all the while.
async fn a_merged_page_reads_little_more_than_it_shows(store: &TestStore) {
    const LEVEL: u8 = 3;
    const BUCKETS: u32 = 1 << LEVEL;
    const PAGE: u32 = 24;
    let hash = Axis { level: LEVEL, ..Layout::default().hash };
    let layout = Layout::default().with(Model::Hash, hash);
    assert!(store.store.change_layout(CATEGORY, &layout).await.unwrap());
    // So far apart that a page from price buckets would read more of them than there are hash
    // buckets.
    let drafts: Vec<_> =
        (0..600).map(|n| draft(&format!("P{n}"), CATEGORY, n * 2_000_000)).collect();
    for batch in drafts.chunks(100) {
        store.upsert(batch.to_vec()).await;
    }
    let service = service(store);
    let mut query = PageQuery { limit: PAGE as usize, ..query(Sort::PriceAsc) };
    let (mut pages, mut rows) = (0, 0);
    loop {
        let page = service.page(&query, false).await.unwrap();
        let reads = page.reads.unwrap();
        assert_eq!((reads.model, reads.partitions), (Model::Hash, BUCKETS));
        // One page may be unlucky in how its rows fall into buckets …
        assert!(reads.rows <= PAGE + 4 * BUCKETS, "page {pages}: {reads:?}");
        (pages, rows) = (pages + 1, rows + reads.rows);
        query.after = page.entries.last().map(Listed::position);
        if !page.has_more {
            break;
        }
    }
    // … but not all of them: «about» is a tenth more.
    assert_eq!(pages, 25);
    assert!(10 * rows <= 11 * pages * (PAGE + 2 * BUCKETS), "{rows} rows in {pages} pages");
}

async fn pages_stay_whole_while_everything_changes(store: &TestStore) {
    let mut random = Random(seed());
    lay_out(store, 1, 3).await;
    let mut steady = BTreeMap::new();
    let mut moving = Vec::new();
    for number in 0..200 {
        let draft = random_draft(&mut random, number);
        if number % 4 == 0 {
            moving.push(draft);
        } else {
            steady.insert(draft.id.as_str().to_owned(), draft);
        }
    }
    fill(store, &steady).await;
    store.upsert(moving.clone()).await;
    let stop = Arc::new(AtomicBool::new(false));

    // One task changes what may change: prices, categories, presence; and renames what stays.
    let writer = tokio::spawn({
        let (store, stop) = (store.store.clone(), stop.clone());
        let renamed: Vec<_> = steady.values().cloned().collect();
        let mut random = Random(random.next());
        async move {
            while !stop.load(Ordering::Relaxed) {
                let at = usize::try_from(random.below(moving.len() as u64)).unwrap();
                let mut draft = moving[at].clone();
                draft.price.amount = rust_decimal::Decimal::new(price(&mut random), 2);
                if random.below(4) == 0 {
                    "Книги".clone_into(&mut draft.category);
                }
                if random.below(5) == 0 {
                    store.delete_products(&[draft.id.clone()], SystemClock.now()).await.unwrap();
                } else {
                    store.upsert_products(vec![draft], SystemClock.now()).await.unwrap();
                }
                let at = usize::try_from(random.below(renamed.len() as u64)).unwrap();
                store.upsert_products(vec![renamed[at].clone()], SystemClock.now()).await.unwrap();
            }
        }
    });
    // Another one splits, hash and price by turns.
    let splitter = tokio::spawn({
        let store = store.store.clone();
        async move {
            let splitter = Splitter::new(store, GRACE);
            for model in [Model::Hash, Model::Price, Model::Hash, Model::Price] {
                assert_eq!(splitter.split(CATEGORY, model).await.unwrap(), SplitOutcome::Done);
            }
        }
    });
    let service = service(store);
    let mut lists = 0;
    while !splitter.is_finished() {
        let sort = if random.below(2) == 0 { Sort::PriceAsc } else { Sort::PriceDesc };
        let query = PageQuery { from_end: random.below(2) == 0, ..query(sort) };
        let found = page_through(&service, query, &mut random).await;
        let places: Vec<_> = found.iter().map(|(place, ..)| place).collect();
        let in_order = |a: &&Position, b: &&Position| match sort {
            Sort::PriceAsc => a < b,
            Sort::PriceDesc => a > b,
        };
        assert!(places.is_sorted_by(in_order), "every place once, in order");
        let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
        for place in &places {
            *seen.entry(&place.id).or_default() += 1;
        }
        for id in steady.keys() {
            assert_eq!(seen.get(id.as_str()), Some(&1), "{id} was there all along");
        }
        lists += 1;
    }
    splitter.await.unwrap();
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    assert!(lists > 0);
    let map = store.store.category_map(CATEGORY).await.unwrap().unwrap();
    assert_eq!((map.layout.hash.level, map.layout.is_splitting()), (3, false), "{map:?}");
    let report = check(&store.store, &Later, &|_| {}).await.unwrap();
    // Counters may be off by what changed while rows were copied; rows never are.
    assert_eq!((report.rows_mended, report.ghosts), (0, 0), "{report:?}");
    assert_whole_after(store).await;
}

async fn assert_whole_after(store: &TestStore) {
    let products = store.store.category(CATEGORY).await.unwrap().unwrap().product_count;
    assert_whole(store, products).await;
}

async fn some_products(store: &TestStore, count: u64) -> BTreeMap<String, ProductDraft> {
    let mut random = Random(seed());
    let mut drafts = BTreeMap::new();
    for number in 0..count {
        let draft = random_draft(&mut random, number);
        drafts.insert(draft.id.as_str().to_owned(), draft);
    }
    fill(store, &drafts).await;
    drafts
}

/// Prices and categories change when a page has its rows and not yet its products.
async fn what_moves_while_a_page_is_read_is_on_it_once(store: &TestStore) {
    let mut drafts = some_products(store, 30).await;
    let mut random = Random(seed());
    let gate = Gate::new(store.store.clone());
    gate.holds_rows.store(true, Ordering::SeqCst);
    let service = service_on(gate.clone(), store);
    for round in 0..12 {
        let sort = if round % 2 == 0 { Sort::PriceAsc } else { Sort::PriceDesc };
        let whole = PageQuery { limit: 100, from_end: round % 3 == 0, ..query(sort) };
        // Where a page ends before the list does, what it has not reached is for the next one.
        let part = PageQuery { limit: 7, ..query(sort) };
        gate.open(false);
        let pages = async { tokio::join!(service.page(&whole, true), service.page(&part, true)) };
        let changes = async {
            gate.holds(2).await;
            for _ in 0..4 {
                let number = random.below(30);
                let mut moved = random_draft(&mut random, number);
                let (name, now) = (moved.id.as_str().to_owned(), SystemClock.now());
                if random.below(5) == 0 {
                    moved.category = "Прочее".into();
                    drafts.remove(&name);
                } else if let Some(draft) = drafts.get_mut(&name) {
                    *draft = moved.clone();
                } else {
                    // What comes into the category is for those who read after it.
                    continue;
                }
                store.store.upsert_products(vec![moved], now).await.unwrap();
            }
            gate.open(true);
        };
        let ((whole, part), ()) = tokio::join!(pages, changes);
        let expected = expected(&drafts, sort, PriceRange::default());
        assert_eq!(shown(&whole.unwrap()), expected, "round {round}");
        // Something may have come from beyond its end; whatever it shows is true and in order.
        let part = shown(&part.unwrap());
        assert!(part.is_sorted_by(|a, b| (sort == Sort::PriceAsc) == (a.0 < b.0)), "{part:?}");
        assert!(part.iter().all(|entry| expected.contains(entry)), "{part:?}");
        let last = part.last().unwrap();
        let passed = expected.iter().take_while(|entry| *entry != last);
        let was_missed = passed.filter(|entry| !part.contains(entry)).count();
        assert!(was_missed <= 4, "{was_missed} of round {round}");
    }
}

async fn a_split_moves_every_row_and_leaves_none_behind(store: &TestStore) {
    let drafts = some_products(store, 300).await;
    let splitter = Splitter::new(store.store.clone(), Duration::ZERO);
    let before = store.store.category_map(CATEGORY).await.unwrap().unwrap();
    for model in Model::BOTH {
        for _ in 0..3 {
            assert_eq!(splitter.split(CATEGORY, model).await.unwrap(), SplitOutcome::Done);
        }
    }
    let map = store.store.category_map(CATEGORY).await.unwrap().unwrap();
    assert_eq!(map.layout.hash.level, before.layout.hash.level + 3);
    assert_eq!(map.layout.price.level, before.layout.price.level + 3);
    assert!(map.price_buckets().count() > before.price_buckets().count());
    assert_whole(store, drafts.len() as u64).await;
    let found = page_through(&service(store), query(Sort::PriceAsc), &mut Random(7)).await;
    assert_eq!(found, expected(&drafts, Sort::PriceAsc, PriceRange::default()));
    assert_eq!(splitter.split("нет такой", Model::Hash).await.unwrap(), SplitOutcome::Nothing);
}

async fn a_split_that_stopped_goes_on(store: &TestStore) {
    let drafts = some_products(store, 120).await;
    let service = service(store);
    // A process died in each phase: whoever comes next finishes it.
    for model in Model::BOTH {
        for phase in [Phase::Copying, Phase::Draining, Phase::Cleaning] {
            let map = store.store.category_map(CATEGORY).await.unwrap().unwrap();
            let axis = *map.layout.axis(model);
            if phase == Phase::Copying {
                let begun = map.layout.with(model, Axis { phase, progress: 0, ..axis });
                assert!(store.store.change_layout(CATEGORY, &begun).await.unwrap());
            } else {
                stop_in(store, model, phase).await;
            }
            let found = page_through(&service, query(Sort::PriceAsc), &mut Random(7)).await;
            assert_eq!(
                found,
                expected(&drafts, Sort::PriceAsc, PriceRange::default()),
                "{phase:?}"
            );
            let splitter = Splitter::new(store.store.clone(), Duration::ZERO);
            assert_eq!(splitter.needed(CATEGORY, 20_000).await.unwrap(), Some(model), "{phase:?}");
            assert_eq!(splitter.split(CATEGORY, model).await.unwrap(), SplitOutcome::Done);
            let after = store.store.category_map(CATEGORY).await.unwrap().unwrap();
            assert_eq!(after.layout.axis(model).level, axis.level + 1, "{phase:?}");
            assert_whole(store, drafts.len() as u64).await;
        }
    }
}

/// Begins a split and stops it when it has come to a phase.
async fn stop_in(store: &TestStore, model: Model, phase: Phase) {
    // Long pauses between phases; it is dropped in the pause after the phase was reached.
    let splitter = Splitter::new(store.store.clone(), Duration::from_millis(150));
    let split = splitter.split(CATEGORY, model);
    let reached = async {
        loop {
            let map = store.store.category_map(CATEGORY).await.unwrap().unwrap();
            if map.layout.axis(model).phase == phase {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        done = split => panic!("the split was not stopped: {done:?}"),
        () = reached => {}
    }
    // A process that died lets its lease run out; nobody waits for that here.
    store.store.give_up_lease(&format!("split:{CATEGORY}"), splitter.holder()).await.unwrap();
}

async fn two_splits_of_one_category_do_not_run_at_once(store: &TestStore) {
    let drafts = some_products(store, 50).await;
    let splitters: Vec<_> =
        (0..4).map(|_| Splitter::new(store.store.clone(), Duration::from_millis(100))).collect();
    let outcomes = futures_util::future::join_all(
        splitters.iter().map(|splitter| splitter.split(CATEGORY, Model::Hash)),
    )
    .await;
    let done = outcomes.iter().filter(|o| matches!(o, Ok(SplitOutcome::Done))).count();
    let busy = outcomes.iter().filter(|o| matches!(o, Ok(SplitOutcome::Busy))).count();
    assert_eq!((done, busy), (1, 3), "{outcomes:?}");
    let map = store.store.category_map(CATEGORY).await.unwrap().unwrap();
    assert_eq!(map.layout.hash.level, 1, "it was split once");
    assert_whole(store, drafts.len() as u64).await;
}

async fn a_large_bucket_asks_to_be_split(store: &TestStore) {
    let drafts: Vec<_> = (0..60).map(|n| draft(&format!("P{n}"), CATEGORY, 100 * n)).collect();
    store.upsert(drafts).await;
    let splitter = Splitter::new(store.store.clone(), Duration::ZERO);
    assert_eq!(splitter.needed(CATEGORY, 100).await.unwrap(), None);
    assert_eq!(splitter.needed(CATEGORY, 59).await.unwrap(), Some(Model::Hash));
    assert_eq!(splitter.needed("нет такой", 1).await.unwrap(), None);
    vitrina::catalog::service::keeper::look(&store.store, &splitter, 20).await.unwrap();
    let map = store.store.category_map(CATEGORY).await.unwrap().unwrap();
    assert_eq!(map.layout.hash.level, 2, "60 rows in buckets of about 20");
    assert!(map.price_buckets().all(|(_, rows)| rows <= 20), "{map:?}");
    assert_whole(store, 60).await;
    // Equal prices cannot be told apart by any width: that is no reason to go on for ever.
    let equal: Vec<_> = (0..60).map(|n| draft(&format!("E{n}"), CATEGORY, 77_700_000)).collect();
    store.upsert(equal).await;
    vitrina::catalog::service::keeper::look(&store.store, &splitter, 30).await.unwrap();
    assert_whole(store, 120).await;
}

async fn rows_that_disagree_are_neither_served_nor_kept(store: &TestStore) {
    if store.store.rows_always_agree() {
        // There is no way to bring them about: a product and its rows are one transaction.
        return;
    }
    let drafts = some_products(store, 30).await;
    let map = store.store.category_map(CATEGORY).await.unwrap().unwrap();
    // What crashed writers leave: rows of nobody, rows at another price, in both read models.
    let old = SystemClock.now().micros() - 3_600_000_000;
    let mut ghosts = Vec::new();
    for (n, ghost_of) in ["никто", drafts.keys().next().unwrap()].into_iter().enumerate() {
        let row = CardRow {
            price: 12_345 + i64::try_from(n).unwrap(),
            currency: vitrina::money::Currency::RUB,
            id: id(ghost_of),
            name: "призрак".to_owned(),
            image_url: None,
            version: old,
        };
        for model in Model::BOTH {
            // Copied from nowhere to where they would stand.
            let from = Bucket { model, number: -1 };
            let level = map.layout.axis(model).level;
            store.store.copy_rows(CATEGORY, from, vec![row.clone()], level).await.unwrap();
        }
        ghosts.push(row);
    }
    let is_there = async |ghost: &CardRow| {
        let layout = map.layout;
        let mut there = Vec::new();
        for model in Model::BOTH {
            let rows = rows_of(store, model, &layout).await;
            there.push(rows.iter().any(|row| row.id == ghost.id && row.price == ghost.price));
        }
        there
    };
    assert_eq!(is_there(&ghosts[0]).await, [true, true], "the test brings them about");
    let service = service(store);
    for sort in [Sort::PriceAsc, Sort::PriceDesc] {
        let found = page_through(&service, query(sort), &mut Random(3)).await;
        assert_eq!(found, expected(&drafts, sort, PriceRange::default()));
    }
    // Whoever reads the place mends it, in the background; a narrow range reads both models.
    let narrow = PageQuery {
        range: PriceRange { min: Some(12_000), max: Some(13_000) },
        ..query(Sort::PriceAsc)
    };
    let is_served = |page: Arc<Page>| shown(&page).iter().any(|(_, name, _)| name == "призрак");
    while is_there(&ghosts[0]).await[0] || is_there(&ghosts[1]).await[0] {
        assert!(!is_served(service.page(&narrow, false).await.unwrap()));
        tokio::task::yield_now().await;
    }
    // The rest, which no page came across, is found by a check.
    let report = check(&store.store, &SystemClock, &|_| {}).await.unwrap();
    assert_eq!(report.rows_mended, 0, "{report:?}");
    for ghost in &ghosts {
        assert_eq!(is_there(ghost).await, [false, false]);
    }
    let report = check(&store.store, &Later, &|_| {}).await.unwrap();
    assert!(report.is_clean(), "{report:?}");
}

async fn a_check_mends_rows_and_counts(store: &TestStore) {
    let drafts = some_products(store, 80).await;
    let map = store.store.category_map(CATEGORY).await.unwrap().unwrap();
    let victims: Vec<_> = rows_of(store, Model::Price, &map.layout).await;
    for row in victims.iter().take(7) {
        let level = map.layout.price.level;
        let number = vitrina::catalog::model::buckets::price_bucket(row.price, level);
        let bucket = Bucket { model: Model::Price, number };
        store.store.remove_rows(CATEGORY, bucket, vec![row.clone()]).await.unwrap();
    }
    let mut wrong = vitrina::catalog::store::Counted { products: 5, ..Default::default() };
    wrong.rows.insert(Bucket { model: Model::Hash, number: 0 }, 3);
    let now = store.store.category_map(CATEGORY).await.unwrap().unwrap();
    assert!(store.store.mend_counts(CATEGORY, &now, &wrong).await.unwrap());
    assert_eq!(store.store.category(CATEGORY).await.unwrap().unwrap().product_count, 5);

    let looked = std::sync::atomic::AtomicU64::new(0);
    let progress = |more| {
        looked.fetch_add(more, Ordering::Relaxed);
    };
    let report = check(&store.store, &Later, &progress).await.unwrap();
    assert_eq!((report.products, report.rows, report.counts_mended), (80, 160, 1), "{report:?}");
    assert!(report.rows_mended >= 7, "{report:?}");
    assert_eq!(looked.load(Ordering::Relaxed), 240);
    assert_whole(store, drafts.len() as u64).await;
    // Counts that have changed meanwhile are left alone.
    assert!(!store.store.mend_counts(CATEGORY, &now, &wrong).await.unwrap());
}

/// Why a walk ended before its end.
#[derive(Debug)]
struct Stopped;

impl From<vitrina::storage::StoreError> for Stopped {
    fn from(error: vitrina::storage::StoreError) -> Self {
        panic!("{error}")
    }
}

async fn an_export_has_every_product_once_and_goes_on_after_a_split(store: &TestStore) {
    let drafts = some_products(store, 700).await;
    let mut seen: Vec<String> = Vec::new();
    let mut reached = Progress::default();
    // Stopped after the first step, as by a full disk.
    let stopped =
        walk::<Stopped>(&store.store, CATEGORY, Progress::default(), |products, progress| {
            seen.extend(products.iter().map(|p| p.id.as_str().to_owned()));
            reached = progress.clone();
            Err(Stopped)
        });
    assert!(stopped.await.is_err());
    assert!(!seen.is_empty() && seen.len() < 700, "{}", seen.len());
    let splitter = Splitter::new(store.store.clone(), Duration::ZERO);
    assert_eq!(splitter.split(CATEGORY, Model::Hash).await.unwrap(), SplitOutcome::Done);
    let rest = walk::<Stopped>(&store.store, CATEGORY, reached, |products, _| {
        seen.extend(products.iter().map(|p| p.id.as_str().to_owned()));
        Ok(())
    });
    rest.await.unwrap();
    seen.sort();
    assert_eq!(seen, drafts.into_keys().collect::<Vec<_>>());
}

async fn a_layout_changes_only_from_the_one_before(store: &TestStore) {
    let first = Layout { revision: 1, ..Layout::default() };
    assert!(store.store.change_layout(CATEGORY, &first).await.unwrap());
    assert!(!store.store.change_layout(CATEGORY, &first).await.unwrap());
    let third = Layout { revision: 3, ..Layout::default() };
    assert!(!store.store.change_layout(CATEGORY, &third).await.unwrap());
    let axis = Axis { level: 2, phase: Phase::Stable, progress: 0 };
    let next = first.with(Model::Hash, axis);
    let both = tokio::join!(
        store.store.change_layout(CATEGORY, &next),
        store.store.change_layout(CATEGORY, &next)
    );
    assert_eq!(u8::from(both.0.unwrap()) + u8::from(both.1.unwrap()), 1, "one of two wins");
    let map = store.store.category_map(CATEGORY).await.unwrap().unwrap();
    assert_eq!(map.layout, next);
    assert_eq!(store.store.categories().await.unwrap(), [], "it has no products yet");
}

async fn leases_have_one_holder(store: &TestStore) {
    let (a, b) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    let life = Duration::from_secs(1);
    let take = async |holder| store.store.take_lease("x", holder, life).await.unwrap();
    assert!(take(a).await);
    assert!(!take(b).await);
    assert!(take(a).await, "its holder renews it");
    store.store.give_up_lease("x", b).await.unwrap();
    assert!(!take(b).await, "only its holder gives it up");
    store.store.give_up_lease("x", a).await.unwrap();
    assert!(take(b).await);
    // It ends by itself: its holder may have died.
    while !take(a).await {
        tokio::task::yield_now().await;
    }
}

async fn the_root_key_stays(store: &TestStore) {
    let (first, second) = tokio::join!(store.store.root_key(), store.store.root_key());
    let first = first.unwrap();
    assert_eq!(first, second.unwrap());
    assert_ne!(first, [0; 32].into());
    assert_eq!(store.store.root_key().await.unwrap(), first);
}
