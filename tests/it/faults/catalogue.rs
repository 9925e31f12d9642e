//! Processes that die between two writes of a change of the catalogue, or of a split.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use vitrina::cache::Tiers;
use vitrina::catalog::CatalogService;
use vitrina::catalog::model::browse::{PageQuery, PriceRange, Sort};
use vitrina::catalog::model::buckets::Model;
use vitrina::catalog::service::CatalogCaches;
use vitrina::catalog::service::check::check;
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::config::StoreConfig;
use vitrina::page::CursorKey;
use vitrina::server::Role;
use vitrina::storage::{self, Store};
use vitrina::telemetry::Metrics;

use crate::support::http::HttpClient;
use crate::support::process::{ServerProcess, run, vitrina};
use crate::support::server::token;
use crate::support::stores::cassandra_config;
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
/// Every place between two steps of a split.
const SPLIT_FAULTS: [&str; 9] = [
    "split.copying",
    "split.copied:1",
    "split.copied:2",
    "split.draining",
    "split.cleaning",
    "split.cleaned:1",
    "split.cleaned:2",
    "split.stable",
    "split.copied:1",
];
/// Every place between two writes of one step. On the embedded store a step is one write, except
/// for a bucket that goes as a whole.
const EMBEDDED_STEP_FAULTS: [&str; 1] = ["split.dropped"];
const CASSANDRA_STEP_FAULTS: [&str; 10] = [
    "split.row:1",
    "split.row:20",
    "split.rows",
    "split.take:1",
    "split.take:20",
    "split.taken",
    "split.list",
    "split.dropped",
    "split.unlisted:1",
    "split.unlisted:2",
];
const CATEGORIES: [&str; 2] = ["Стойкие", "Хрупкие"];
const PRODUCTS: u64 = 24;

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
    let store = format!("cassandra://{}/{}?dc=dc1&rf=1", config.nodes.join(","), config.keyspace);
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
        SystemClock.now().after(std::time::Duration::from_secs(3_600))
    }
}

/// All products of the category as a shopper pages through them.
async fn all_listed(store: &Arc<dyn Store>) -> Vec<String> {
    let caches = CatalogCaches::new(&Tiers::Off, "t", true, &Metrics::default());
    let (clock, cursors) = (Arc::new(SystemClock), CursorKey::derive(&[1; 32]));
    let service = CatalogService::new(store.clone(), clock, cursors, caches);
    let mut query = PageQuery {
        category: CATEGORIES[0].into(),
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

async fn splits_survive_crashes(text: &str, step_faults: &[&str]) {
    let config = StoreConfig::parse(text).unwrap();
    let open = async || {
        let metrics = Arc::new(Metrics::default());
        storage::open(&config, Arc::new(SystemClock), metrics).await.unwrap()
    };
    let store = open().await;
    let drafts: Vec<_> =
        (0..250).map(|n| draft(&format!("P{n}"), CATEGORIES[0], (n % 97) * 77_777)).collect();
    for batch in drafts.chunks(100) {
        store.upsert_products(batch.to_vec(), SystemClock.now()).await.unwrap();
    }
    let listed = all_listed(&store).await;
    assert_eq!(listed.len(), drafts.len());
    drop(store);
    let split = |fault: Option<&str>| {
        let mut command = vitrina(&["category", "split", CATEGORIES[0], "--store", text]);
        command.env("VITRINA_FAULT_HURRY", "1");
        if let Some(fault) = fault {
            command.env("VITRINA_FAULT", fault);
        }
        run(&mut command)
    };
    let mut deaths = 0;
    let faults: Vec<_> = SPLIT_FAULTS.iter().chain(step_faults).collect();
    for fault in &faults {
        // The lease of the one that died has to run out first.
        let output = loop {
            let output = split(Some(fault));
            if !String::from_utf8_lossy(&output.stdout).contains("another process") {
                break output;
            }
        };
        deaths += usize::from(output.status.code().is_none());
        let store = open().await;
        assert_eq!(all_listed(&store).await, listed, "after {fault}");
    }
    // Some are reached only in the split of one of the two models.
    assert!(deaths + 3 >= faults.len(), "most of the places are reached: {deaths}");
    while String::from_utf8_lossy(&split(None).stdout).contains("another process") {}
    let store = open().await;
    assert_eq!(all_listed(&store).await, listed);
    let map = store.category_map(CATEGORIES[0]).await.unwrap().unwrap();
    assert!(!map.layout.is_splitting(), "{map:?}");
    assert!(map.layout.hash.level >= 2 && map.buckets_of(Model::Price).count() > 4, "{map:?}");
    let report = check(&store, &Later, &|_| {}).await.unwrap();
    assert_eq!((report.rows_mended, report.ghosts), (0, 0), "{report:?}");
    assert_eq!(report.rows, 500, "one row in each read model, none left behind: {report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_that_dies_goes_on_embedded() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", dir.path().display());
    splits_survive_crashes(&store, &EMBEDDED_STEP_FAULTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_that_dies_goes_on_cassandra() {
    let Some(config) = cassandra_config() else { return };
    let store = format!("cassandra://{}/{}?dc=dc1&rf=1", config.nodes.join(","), config.keyspace);
    splits_survive_crashes(&store, &CASSANDRA_STEP_FAULTS).await;
}
