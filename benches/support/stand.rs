//! A store with a worker that serves it, and the categories that are measured on it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use vitrina::server::Role as ViewerRole;

use super::connection::Connection;
use super::figures::{float, thousands};
use super::requests::post;
use super::roles::{SHOP, token};
use super::shelf::Shelf;
use super::worker::{Role, Worker, folder};
use super::{Result, Settings};

/// Products of a page.
pub(super) const PAGE: usize = 24;
/// The longest page: the quickest way to a place deep inside a category.
const LONGEST: usize = 100;
/// Longest time for a thousand products: filling that hangs must end.
const THOUSAND_WITHIN: Duration = Duration::from_secs(5);
/// Time for the rest.
const REST_WITHIN: Duration = Duration::from_secs(60);

/// How the body of a page begins.
pub(super) const ANSWER: &[u8] = br#"{"data":{"category":{"products":{"nodes":[{"id":""#;

/// A page as a shop window shows it.
const QUERY: &str = "query Page($name: String!, $first: Int!, $after: String, $price: PriceRange) \
                     { category(name: $name) { products(first: $first, after: $after, \
                     price: $price) { nodes { id name price { amount } imageUrl } \
                     pageInfo { hasNextPage endCursor } } } }";

/// A store with its worker.
pub(crate) struct Stand {
    /// What store it is, for headings.
    pub(super) name: &'static str,
    /// Sizes of the categories that are browsed, the smallest first.
    pub(super) sizes: Vec<u64>,
    /// The size of the one that is split, and of the one that is written.
    pub(super) hot_size: u64,
    pub(super) worker: Worker,
    filled: HashSet<u64>,
    _folder: TempDir,
}

impl Stand {
    /// An empty embedded store.
    pub(crate) async fn embedded(settings: &Settings) -> Result<Self> {
        let folder = folder()?;
        let store = format!("embedded:{}", folder.path().join("data").display());
        let largest = settings.products;
        let sizes = vec![largest / 100, largest / 10, largest];
        Self::start("Embedded store", &store, folder, sizes, largest / 10).await
    }

    /// An empty keyspace. Categories are smaller: one node takes a thousand products a second or
    /// two.
    pub(crate) async fn cassandra(store: &str, settings: &Settings) -> Result<Self> {
        let largest = settings.products;
        let sizes = vec![largest / 100, largest / 10];
        Self::start("Cassandra, one copy", store, folder()?, sizes, largest / 50).await
    }

    async fn start(
        name: &'static str,
        store: &str,
        folder: TempDir,
        sizes: Vec<u64>,
        hot_size: u64,
    ) -> Result<Self> {
        let worker = Worker::start(Role::Clerk, store, folder.path()).await?;
        Ok(Self { name, sizes, hot_size, worker, filled: HashSet::new(), _folder: folder })
    }

    /// Fills the category of this size, unless it is there.
    pub(super) async fn fill(&mut self, products: u64) -> Result<Shelf> {
        let shelf = Shelf::of(products);
        if self.filled.insert(products) {
            let order = format!("fill {} {products}", shelf.name);
            let millis: u32 = self.worker.order(&order, time_for(products)?).await?.parse()?;
            let seconds = f64::from(millis) / 1e3;
            let (count, rate) = (float(products), float(products) / seconds);
            println!(
                "{}: {} products in one category written in {seconds:.1} s, {} a second",
                self.name,
                thousands(count),
                thousands(rate)
            );
        }
        Ok(shelf)
    }

    /// Where the shop without caches is …
    pub(super) fn plain(&self) -> Result<SocketAddr> {
        self.worker.address(0)
    }

    /// … and the one with the caches of the default configuration.
    pub(super) fn cached(&self) -> Result<SocketAddr> {
        self.worker.address(1)
    }
}

/// How long filling may take.
pub(super) fn time_for(products: u64) -> Result<Duration> {
    Ok(REST_WITHIN + THOUSAND_WITHIN * u32::try_from(products.div_ceil(1_000))?)
}

/// The page that is meant by «the 1,000th»: in a small category, the one in its middle.
pub(super) fn deep_page(products: u64) -> u64 {
    1_000.min(products / (2 * PAGE as u64))
}

/// The body of a request for a page; `price` is a range of prices or null.
pub(super) fn body(name: &str, first: usize, after: Option<&str>, price: &Value) -> String {
    let variables = json!({ "name": name, "first": first, "after": after, "price": price });
    json!({ "query": QUERY, "variables": variables }).to_string()
}

/// A page.
pub(super) struct Page {
    /// How many products it has.
    pub(super) len: usize,
    /// Its last product's cursor, if there is a page after it.
    pub(super) next: Option<String>,
    /// What it took; `None` if it came from a cache.
    pub(super) told: Option<Told>,
}

/// What a page took to read.
pub(super) struct Told {
    /// The read model that answered.
    pub(super) model: String,
    /// Its buckets that were read.
    pub(super) partitions: u64,
    /// The rows that were read.
    pub(super) rows: u64,
    /// All calls to the store of this request.
    pub(super) calls: u64,
}

/// Reads pages as staff, who are told what they took.
pub(super) struct Inspector {
    connection: Connection,
    token: String,
}

impl Inspector {
    /// Connects.
    pub(super) async fn open(address: SocketAddr) -> Result<Self> {
        let token = token("bench", ViewerRole::Staff)?;
        Ok(Self { connection: Connection::open(address).await?, token })
    }

    /// Reads a page.
    pub(super) async fn look(&mut self, body: &str) -> Result<Page> {
        let request = post(SHOP, body, Some(&self.token));
        let (status, answer) = self.connection.send(&request).await?;
        let read = || -> Option<Page> {
            let answer: Value = serde_json::from_slice(answer).ok()?;
            let products = &answer["data"]["category"]["products"];
            let info = &products["pageInfo"];
            let has_next = info["hasNextPage"].as_bool()?;
            let reads = &answer["extensions"]["reads"];
            let told = || {
                let page = reads["pages"].get(0)?;
                Some(Told {
                    model: page["model"].as_str()?.to_owned(),
                    partitions: page["partitions"].as_u64()?,
                    rows: page["rows"].as_u64()?,
                    calls: reads["storeReads"].as_u64()?,
                })
            };
            Some(Page {
                len: products["nodes"].as_array()?.len(),
                next: info["endCursor"].as_str().filter(|_| has_next).map(str::to_owned),
                told: told(),
            })
        };
        read().ok_or_else(|| {
            let text = String::from_utf8_lossy(answer);
            format!("an answer that is no page: status {status}, {text}").into()
        })
    }

    /// The cursors at the beginnings of pages that follow each other, of which the one in the
    /// middle is `middle`.
    pub(super) async fn cursors_around(
        &mut self,
        name: &str,
        middle: u64,
        pages: u64,
    ) -> Result<Vec<String>> {
        let half = (pages / 2).min(middle.saturating_sub(1));
        let mut left = (middle - half) * PAGE as u64;
        let mut after = None;
        while left > 0 {
            let step = usize::try_from(left)?.min(LONGEST);
            let page = self.look(&body(name, step, after.as_deref(), &Value::Null)).await?;
            after = Some(page.next.ok_or("a category that ends too soon")?);
            left -= page.len as u64;
        }
        let mut cursors = Vec::from_iter(after);
        while (cursors.len() as u64) < 2 * half {
            let last = cursors.last().map(String::as_str);
            let Some(next) = self.look(&body(name, PAGE, last, &Value::Null)).await?.next else {
                break;
            };
            cursors.push(next);
        }
        Ok(cursors)
    }
}
