//! Ten times as many requests as the shop can answer.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use serde_json::json;

use super::audit::{Books, Harm};
use super::clients::{Crowd, Load};
use super::flood::{Flood, Flooded};
use super::record::{Kind, Stretch, millis, percentile};
use super::shop::{CATEGORY, Instances, PRODUCTS, Setting, ZONE};
use super::{by_version, is_long, stretch};
use crate::support::Random;
use crate::support::process::cpu_of;

/// Connections that bring the shop to its peak …
const AT_PEAK: usize = 64;
/// … and those of ten times as many clients: more than may be in work and wait.
const TOO_MANY: usize = 2_500;
/// In the short version few may wait, and so few are too many.
const FEW: [&str; 4] = ["--max-in-work", "8", "--max-waiting", "32"];
const TOO_MANY_FOR_FEW: usize = 150;
/// How many times the peak is asked for.
const TIMES: f64 = 10.0;
/// So much of the peak is to be answered all the while …
const GOODPUT: f64 = 0.8;
/// … and a checkout is to take so many times as long as alone, at the most.
const SLOWER: f64 = 3.0;
/// Two floods at once would be one.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
const BUYERS: Crowd =
    Crowd { browsing: 0, looking: 0, filling: 0, buying: 2, pause: Duration::from_millis(20) };

/// The server on one core and its clients on the other, so that they do not take what is measured
/// from each other; the long version only.
struct Cores;

impl Cores {
    const SERVER: usize = 0;

    fn divide() -> Option<Self> {
        is_long().then(|| {
            pin("1");
            Self
        })
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        pin("0,1");
    }
}

/// Puts all threads of this process on these cores.
fn pin(cores: &str) {
    let own = std::process::id().to_string();
    let mut command = std::process::Command::new("taskset");
    assert!(command.args(["-acp", cores, &own]).output().unwrap().status.success());
}

/// So much that the server is what is slow, and not those who ask.
const LARGE_PAGE: &str = "query Large($name: String!, $zone: String!, $price: PriceRange) {
    category(name: $name) { products(first: 48, price: $price) { nodes {
        id name description price { amount } attributes { name value }
        stock(geoZone: $zone) { available status } } } } }";

/// Pages that nobody asked for just before.
fn pages() -> Vec<String> {
    let mut random = Random(crate::support::seed());
    let page = |number| {
        let min = 100 + random.below(PRODUCTS * 3 / 4);
        // No two are the same, and none comes again within half a second: answers would be kept.
        let max = format!("{}.{:02}", 100_000 + number / 100, number % 100);
        let price = json!({ "min": format!("{min}.{:02}", random.below(100)), "max": max });
        let variables = json!({ "name": CATEGORY, "zone": ZONE, "price": price });
        json!({ "query": LARGE_PAGE, "variables": variables }).to_string()
    };
    (0..by_version(5_000, 60_000)).map(page).collect()
}

fn flood(instances: &Instances, connections: usize, rate: Option<f64>) -> Flood {
    let address = instances.server(0).base.trim_start_matches("http://").parse().unwrap();
    Flood { address, bodies: pages(), connections, rate, reconnects: false }
}

/// How busy the server and its clients are, of a core each.
struct Busy {
    server: f64,
    clients: f64,
}

impl Busy {
    fn at(instances: &Instances) -> [Duration; 2] {
        [instances.server(0).cpu(), cpu_of(std::process::id())]
    }

    fn between(before: [Duration; 2], after: [Duration; 2], time: Duration) -> Self {
        let [server, clients] = [0, 1].map(|which| {
            after[which].saturating_sub(before[which]).as_secs_f64() / time.as_secs_f64()
        });
        Self { server, clients }
    }
}

impl Display for Busy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { server, clients } = self;
        write!(f, "server {server:.2} and clients {clients:.2} of a core")
    }
}

/// Buyers for a time, perhaps beside a flood.
async fn buy(
    instances: &Instances,
    books: &mut Books,
    time: Duration,
    flood: Option<Flood>,
) -> (Stretch, Flooded, Harm, Busy) {
    let load = Load::start(instances.front(), BUYERS, "FIRE-000", crate::support::seed());
    let flood = flood.map(Flood::begin);
    // The first requests make connections, caches and the queue.
    tokio::time::sleep(time / 10).await;
    let (began, worked) = (Instant::now(), Busy::at(instances));
    tokio::time::sleep(time).await;
    let over = Instant::now();
    let busy = Busy::between(worked, Busy::at(instances), over - began);
    let flooded = match flood {
        Some(flood) => tokio::task::spawn_blocking(|| flood.end()).await.unwrap(),
        None => Flooded::default(),
    };
    let shared = load.end().await;
    let purchases = std::mem::take(&mut *shared.purchases.lock().unwrap());
    let harm = books.audit(&shared.front, &purchases).await;
    (shared.record.between(began, over), flooded, harm, busy)
}

/// What the shop can do: good answers a second.
struct Peak {
    pages: f64,
    /// Those to buyers among them.
    all: f64,
    checkout: Duration,
    busy: Busy,
}

impl Display for Peak {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { pages, all, checkout, busy } = self;
        let (buyers, checkout) = (all - pages, millis(*checkout));
        write!(
            f,
            "{pages:.0} pages/s and {buyers:.0} answers/s to buyers (checkout {checkout}; {busy})"
        )
    }
}

/// Brings the shop to its peak, with the buyers that are there during the flood, too.
async fn peak(instances: &Instances, books: &mut Books, reconnects: bool) -> Peak {
    let crowd = Flood { reconnects, ..flood(instances, by_version(8, AT_PEAK), None) };
    let (buyers, pages, harm, busy) = buy(instances, books, stretch(1.0, 10.0), Some(crowd)).await;
    assert_eq!(harm, Harm::default());
    assert_eq!((pages.shed.len(), pages.other.len()), (0, 0), "{:?}", pages.other);
    let (pages, checkout) = (pages.good_per_second(), buyers.percentile(Kind::Checkout, 95));
    Peak { pages, all: pages + buyers.per_second(), checkout, busy }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buyers_go_on_while_ten_times_too_many_browse() {
    flooded(false).await;
}

/// The same by clients that nobody can hold up, as each of their requests is a client of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buyers_go_on_while_ten_times_too_many_come_anew() {
    flooded(true).await;
}

async fn flooded(reconnects: bool) {
    let _alone = ALONE.lock().await;
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let cores = Cores::divide();
    let dir = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", dir.path().join("data").display());
    let core = cores.as_ref().map(|_| Cores::SERVER);
    let args = by_version(FEW.map(str::to_owned).to_vec(), Vec::new());
    let instances = Instances::open(Setting { args, core, ..Setting::of(&store) }, 1).await;
    let mut books = Books::default();

    let (alone, _, harm, _) = buy(&instances, &mut books, stretch(1.0, 10.0), None).await;
    assert_eq!(harm, Harm::default());
    let before = peak(&instances, &mut books, reconnects).await;

    let rate = before.pages * TIMES;
    let flood = flood(&instances, by_version(TOO_MANY_FOR_FEW, TOO_MANY), Some(rate));
    let flood = Flood { reconnects, ..flood };
    let memory = instances.server(0).memory();
    let (beside, flooded, harm, busy) =
        buy(&instances, &mut books, stretch(3.0, 60.0), Some(flood)).await;
    let memory = (memory, instances.server(0).peak_memory());
    let after = peak(&instances, &mut books, reconnects).await;

    println!(
        "{}",
        if reconnects { "each request on a new connection" } else { "connections that stay" }
    );
    println!("peak, with the buyers: {before} before it, {after} after it");
    println!(
        "asked for {:.0}/s: {:.0} good pages/s and {:.0} good answers/s to buyers, {} sent away (p95 {}), \
         p95 of a page {}, others {:?}; {busy}",
        flooded.sent_per_second(),
        flooded.good_per_second(),
        beside.per_second(),
        flooded.shed.len(),
        millis(flooded.slow_shed()),
        millis(percentile(flooded.good.clone(), 95)),
        flooded.other,
    );
    let goodput =
        (flooded.good_per_second() + beside.per_second()) / f64::midpoint(before.all, after.all);
    let checkout = |of: &Stretch| of.percentile(Kind::Checkout, 95);
    let slower = checkout(&beside).as_secs_f64() / checkout(&alone).as_secs_f64();
    println!(
        "goodput {goodput:.2} of the peak; checkouts: p95 {} alone ({}), {} beside ({}), {slower:.1} ×; \
         errors of buyers: {}; {harm}; memory {} → {} MB at most",
        millis(checkout(&alone)),
        alone.good_of(Kind::Checkout),
        millis(checkout(&beside)),
        beside.good_of(Kind::Checkout),
        beside.errors_in_words(),
        memory.0 >> 20,
        memory.1 >> 20,
    );
    assert_eq!(harm, Harm::default());
    assert!(flooded.other.is_empty(), "{:?}", flooded.other);
    assert!(!flooded.good.is_empty(), "some are answered");
    assert!(beside.good_of(Kind::Checkout) > 0, "buyers buy");
    beside.assert_no_errors(&["TIMEOUT"]);
    assert!(!flooded.shed.is_empty(), "the rest is sent away");
    if is_long() {
        assert!(goodput >= GOODPUT && slower <= SLOWER, "{goodput:.2} of the peak, {slower:.1} ×");
    }
}
