//! Processes that die between two writes of a change of the catalogue, or of a split.

use std::collections::BTreeMap;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use vitrina::cache::Tiers;
use vitrina::catalog::CatalogService;
use vitrina::catalog::model::browse::{PageQuery, PriceRange, Sort};
use vitrina::catalog::model::buckets::{Model, Phase};
use vitrina::catalog::service::CatalogCaches;
use vitrina::catalog::service::check::check;
use vitrina::catalog::service::split::{SplitOutcome, Splitter};
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::config::StoreConfig;
use vitrina::page::CursorKey;
use vitrina::server::Role;
use vitrina::storage::{self, Store};
use vitrina::telemetry::Metrics;

use crate::support::http::HttpClient;
use crate::support::process::{ServerProcess, run, vitrina};
use crate::support::server::token;
use crate::support::stores::{address_of, cassandra_config};
use crate::support::{Random, draft, seed};

/// Every place between two writes of an upsert or a delete on Cassandra. (On the embedded store
/// they are one write.)
const UPSERT_FAULTS: [&str; 17] = [
    "upsert.category",
    "upsert.listed",
    "upsert.list",
    "upsert.row:1",
    "upsert.row:3",
    "upsert.rows",
    "upsert.product:1",
    "upsert.product:3",
    "upsert.products",
    "upsert.take:1",
    "upsert.take:2",
    "upsert.taken",
    "upsert.count",
    "upsert.row_count:1",
    "upsert.row_count:2",
    "delete.product",
    "delete.products",
];
/// Every place between two steps of a split, of either model.
const SPLIT_FAULTS: [&str; 8] = [
    "split.copying",
    "split.copied:1",
    "split.copied:2",
    "split.draining",
    "split.cleaning",
    "split.cleaned:1",
    "split.cleaned:2",
    "split.stable",
];
/// Every place between two writes of one step. On the embedded store a step is one write, except
/// for a bucket that goes as a whole.
const EMBEDDED_STEP_FAULTS: [(Model, &str); 2] =
    [(Model::Price, "split.dropped:1"), (Model::Price, "split.dropped:2")];
const CASSANDRA_STEP_FAULTS: [(Model, &str); 17] = [
    (Model::Hash, "split.row:1"),
    (Model::Hash, "split.row:20"),
    (Model::Hash, "split.rows:1"),
    (Model::Hash, "split.rows:2"),
    (Model::Hash, "split.take:1"),
    (Model::Hash, "split.take:20"),
    (Model::Hash, "split.taken:1"),
    (Model::Hash, "split.taken:2"),
    (Model::Price, "split.list:1"),
    (Model::Price, "split.list:2"),
    (Model::Price, "split.row:1"),
    (Model::Price, "split.row:20"),
    (Model::Price, "split.rows"),
    (Model::Price, "split.dropped:1"),
    (Model::Price, "split.dropped:2"),
    (Model::Price, "split.unlisted:1"),
    (Model::Price, "split.unlisted:2"),
];
const CATEGORIES: [&str; 2] = ["Стойкие", "Хрупкие"];
const PRODUCTS: u64 = 24;
const SPLIT_PRODUCTS: i64 = 100;
/// Most of the time they wait for leases to run out.
const SPLITS_AT_ONCE: usize = 6;

const UPSERT: &str = "mutation($p: [ProductInput!]!, $gone: [ID!]!) {
    productsUpsert(products: $p) { userErrors { message } }
    productsDelete(ids: $gone) { userErrors { message } }
}";
const TRUTH: &str = "query($ids: [ID!]!) {
    products(ids: $ids) { id name price { amount } category { name } }
}";
const PAGE: &str = "query($name: String!, $after: String, $sort: ProductSort!) {
    category(name: $name) { products(first: 7, after: $after, sort: $sort) {
        nodes { id name price { amount } category { name } } pageInfo { hasNextPage endCursor }
    } }
}";

fn ids() -> Vec<String> {
    let new = UPSERT_FAULTS.iter().map(|fault| format!("new by {fault}"));
    (0..PRODUCTS + 8).map(|n| format!("P{n}")).chain(new).collect()
}

/// Whatever happened, a category shows exactly the products that say they stand in it.
async fn assert_lists_agree(http: &HttpClient, after: &str) {
    let answer = http.query(TRUTH, json!({ "ids": ids() })).await.json();
    let products = answer["data"]["products"].as_array().unwrap();
    let mut truth: BTreeMap<String, Value> = BTreeMap::new();
    for product in products.iter().filter(|product| !product.is_null()) {
        truth.insert(product["id"].as_str().unwrap().to_owned(), product.clone());
    }
    for sort in ["PRICE_ASC", "PRICE_DESC"] {
        let mut listed = BTreeMap::new();
        for name in CATEGORIES {
            let mut after_cursor = Value::Null;
            loop {
                let variables = json!({ "name": name, "after": after_cursor, "sort": sort });
                let answer = http.query(PAGE, variables).await.json();
                let page = &answer["data"]["category"]["products"];
                if page.is_null() {
                    // A count may be behind after a crash; a category that has none is not shown.
                    break;
                }
                for node in page["nodes"].as_array().unwrap() {
                    let id = node["id"].as_str().unwrap().to_owned();
                    let before = listed.insert(id, node.clone());
                    assert_eq!(before, None, "{after}: {node} is listed twice");
                }
                if page["pageInfo"]["hasNextPage"] != true {
                    break;
                }
                after_cursor = page["pageInfo"]["endCursor"].clone();
            }
        }
        assert_eq!(listed, truth, "after {after}, {sort}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_between_two_writes_leaves_the_lists_whole() {
    let Some(config) = cassandra_config() else { return };
    let mut random = Random(seed());
    let store = address_of(&config);
    let staff = token("staff", Role::Staff);
    let product = |n: u64, random: &mut Random| {
        let category = CATEGORIES[usize::try_from(random.below(2)).unwrap()];
        let price = json!({ "amount": format!("{}.00", random.below(40) * 5_000) });
        let name = format!("Имя {}", random.below(1_000));
        json!({ "id": format!("P{n}"), "name": name, "category": category, "price": price })
    };
    {
        let server = ServerProcess::start_with(&store, &[]);
        let all: Vec<_> = (0..PRODUCTS).map(|n| product(n, &mut random)).collect();
        let variables = json!({ "p": all, "gone": [] });
        let answer = server.http.query_as(&staff, UPSERT, variables).await;
        assert_eq!(answer.json()["errors"], Value::Null, "{}", answer.text());
        assert_lists_agree(&server.http, "the first products").await;
    }
    let mut before = "nothing";
    for fault in UPSERT_FAULTS {
        let hurry = [("VITRINA_FAULT", fault), ("VITRINA_FAULT_HURRY", "1")];
        let mut server = ServerProcess::start_with(&store, &hurry);
        assert_lists_agree(&server.http, before).await;
        // Moved, renamed, new and deleted ones, in one request.
        let some: Vec<_> = (0..8)
            .map(|_| random.below(PRODUCTS + 8))
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        let mut changed: Vec<_> = some.iter().map(|n| product(*n, &mut random)).collect();
        // Something that was there is deleted, and counts change, whatever chance says.
        let mut gone: Vec<_> = (0..3).map(|_| format!("P{}", random.below(PRODUCTS))).collect();
        gone.push(format!("P{}", some[0]));
        let mut new = product(0, &mut random);
        new["id"] = format!("new by {fault}").into();
        changed.push(new);
        let body = json!({ "query": UPSERT, "variables": { "p": changed, "gone": gone } });
        let answer = server.http.try_post(Some(&staff), &body).await;
        assert!(
            answer.is_err(),
            "{fault}: it dies before it answers: {:?}",
            answer.unwrap().text()
        );
        assert_eq!(server.wait(), None, "{fault}: by a signal");
        before = fault;
    }
    {
        let server = ServerProcess::start_with(&store, &[("VITRINA_FAULT_HURRY", "1")]);
        assert_lists_agree(&server.http, before).await;
    }
    // Whatever readers did not come across is mended by a check; then there is nothing left.
    let checked = || {
        let output = run(vitrina(&["check", "--store", &store]).env("VITRINA_FAULT_HURRY", "1"));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // Rows that a process left a moment ago are taken for those of one that is still at work.
    let mut told = checked();
    while told.contains("left alone") {
        told = checked();
    }
    let last = checked();
    assert!(last.contains("Nothing to mend."), "{told}\n{last}");
    let server = ServerProcess::start_with(&store, &[]);
    assert_lists_agree(&server.http, "the check").await;
    for name in CATEGORIES {
        let query = "query($name: String!) { category(name: $name) { productCount products(first: 100) { nodes { id } } } }";
        let answer = server.http.query(query, json!({ "name": name })).await.json();
        let category = &answer["data"]["category"];
        let listed = category["products"]["nodes"].as_array().map_or(0, Vec::len);
        assert_eq!(category["productCount"].as_u64().unwrap_or(0), listed as u64, "{name}");
    }
}

/// A clock by which everything that was written is settled.
struct Later;

impl Clock for Later {
    fn now(&self) -> Timestamp {
        SystemClock.now().after(Duration::from_secs(3_600))
    }
}

/// All products of a category as a shopper pages through them.
async fn all_listed(store: &Arc<dyn Store>, category: &str) -> Vec<String> {
    let caches = CatalogCaches::new(&Tiers::Off, "t", true, &Metrics::default());
    let (clock, cursors) = (Arc::new(SystemClock), CursorKey::derive(&[1; 32].into()));
    let service = CatalogService::new(store.clone(), clock, cursors, caches);
    let mut query = PageQuery {
        category: category.into(),
        sort: Sort::PriceAsc,
        range: PriceRange::default(),
        after: None,
        before: None,
        limit: 30,
        from_end: false,
    };
    let mut listed = Vec::new();
    loop {
        let page = service.page(&query, false).await.unwrap();
        listed.extend(page.entries.iter().map(|entry| entry.position().id.to_string()));
        query.after = page.entries.last().map(vitrina::catalog::service::Listed::position);
        if !page.has_more {
            return listed;
        }
    }
}

async fn open(text: &str) -> Arc<dyn Store> {
    let config = StoreConfig::parse(text).unwrap();
    storage::open(&config, Arc::new(SystemClock), Arc::new(Metrics::default())).await.unwrap()
}

/// A process that splits one model of a category, and dies at a place if it is told to.
async fn split(text: &str, category: &str, model: Model, fault: Option<&str>) -> Output {
    let mut command =
        vitrina(&["category", "split", category, "--model", model.as_str(), "--store", text]);
    command.env("VITRINA_FAULT_HURRY", "1");
    if let Some(fault) = fault {
        command.env("VITRINA_FAULT", fault);
    }
    tokio::task::spawn_blocking(move || run(&mut command)).await.unwrap()
}

/// A category of its own whose split dies at one place, and is then taken to its end.
async fn a_split_dies_and_goes_on(text: &str, model: Model, fault: &str) {
    let category = &format!("{} {fault}", model.as_str());
    let store = open(text).await;
    let drafts: Vec<_> = (0..SPLIT_PRODUCTS)
        .map(|n| draft(&format!("{category} {n}"), category, (n % 97) * 77_777))
        .collect();
    store.upsert_products(drafts, SystemClock.now()).await.unwrap();
    // Several buckets, so that there is a second one to come to.
    let splitter = Splitter::new(store.clone(), Duration::ZERO);
    for model in Model::BOTH {
        assert_eq!(splitter.split(category, model).await.unwrap(), SplitOutcome::Done);
    }
    let listed = all_listed(&store, category).await;
    assert_eq!(i64::try_from(listed.len()), Ok(SPLIT_PRODUCTS));
    let level = async |store: &Arc<dyn Store>| {
        let map = store.category_map(category).await.unwrap().unwrap();
        *map.layout.axis(model)
    };
    let before = level(&store).await;
    drop((splitter, store));

    let output = split(text, category, model, Some(fault)).await;
    assert_eq!(output.status.code(), None, "{category}: it dies there: {output:?}");
    let store = open(text).await;
    assert_eq!(all_listed(&store, category).await, listed, "{category}: after its death");
    drop(store);
    // The lease of the one that died has to run out first.
    loop {
        let output = split(text, category, model, None).await;
        assert!(output.status.success(), "{output:?}");
        if !String::from_utf8_lossy(&output.stdout).contains("another process") {
            break;
        }
    }
    let store = open(text).await;
    assert_eq!(all_listed(&store, category).await, listed, "{category}: after all");
    let after = level(&store).await;
    assert!(after.phase == Phase::Stable && after.level > before.level, "{category}: {after:?}");
}

async fn assert_one_row_each(text: &str, categories: u64) {
    let report = check(&open(text).await, &Later, &|_| {}).await.unwrap();
    assert_eq!((report.rows_mended, report.ghosts), (0, 0), "{report:?}");
    let rows = categories * SPLIT_PRODUCTS.unsigned_abs() * 2;
    assert_eq!(report.rows, rows, "one row in each read model, none left behind: {report:?}");
}

/// Every place, in the split of each model that has it.
fn split_places(steps: &[(Model, &'static str)]) -> Vec<(Model, &'static str)> {
    let phases = Model::BOTH.into_iter().flat_map(|model| SPLIT_FAULTS.map(|fault| (model, fault)));
    phases.chain(steps.iter().copied()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_that_dies_goes_on_embedded() {
    let deaths = split_places(&EMBEDDED_STEP_FAULTS).into_iter().map(async |(model, fault)| {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("embedded:{}", dir.path().display());
        a_split_dies_and_goes_on(&text, model, fault).await;
        assert_one_row_each(&text, 1).await;
    });
    stream::iter(deaths).buffer_unordered(SPLITS_AT_ONCE).collect::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_that_dies_goes_on_cassandra() {
    let Some(config) = cassandra_config() else { return };
    let text = &address_of(&config);
    drop(open(text).await);
    let places = split_places(&CASSANDRA_STEP_FAULTS);
    let count = places.len() as u64;
    let deaths =
        places.into_iter().map(|(model, fault)| a_split_dies_and_goes_on(text, model, fault));
    stream::iter(deaths).buffer_unordered(SPLITS_AT_ONCE).collect::<()>().await;
    assert_one_row_each(text, count).await;
}
