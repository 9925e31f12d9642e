//! Looking at carts and changing them: beside as little as it could take, after many operations,
//! and among many carts.

use std::time::Duration;

use futures_util::future::try_join_all;
use serde_json::{Value, json};
use vitrina::demo::catalogue::id_of;
use vitrina::server::Role as ViewerRole;

use super::cart_worker::{BARE_CART, customer};
use super::cassandra::kind;
use super::connection::Connection;
use super::figures::{
    Ratios, Round, Variant, float, print_table, print_variants, ratios, thousands,
};
use super::http;
use super::requests::{Requests, STAMP, post};
use super::roles::{SHOP, token};
use super::worker::{Role, Worker, folder, schedule};
use super::{Result, Settings, number};

/// A cart as its page shows it.
const CART: &str = "{ cart { id totalQuantity subtotal { amount } \
                    lines { productId name quantity unitPrice { amount } } } }";
/// How the answer begins.
const CART_ANSWER: &[u8] = br#"{"data":{"cart":{"id":""#;
/// Putting a unit of a product into a cart, as a product's page does.
const ADD: &str = "mutation Add($lines: [CartLineInput!]!, $key: String) { \
                   cartLinesAdd(lines: $lines, idempotencyKey: $key) { \
                   userErrors { code } cart { totalQuantity } } }";
/// How the answer begins.
const ADD_ANSWER: &[u8] = br#"{"data":{"cartLinesAdd":{"userErrors":[],"cart":{"totalQuantity":"#;
/// Beginning to visit as a guest.
const START: &str = "mutation { sessionStart { token } }";

/// Lines of a cart, each put there by an operation.
pub(super) const LINES: u64 = 3;
/// Products that are bought: few enough for all of them to be known to the cache, so that what is
/// measured is carts.
pub(super) const PRODUCTS: u64 = 24;
/// Visitors who take turns: so many that their carts stay short, as nothing of a cart is folded within a
/// minute.
pub(super) const VISITORS: u64 = 32_768;
/// Requests that a visitor makes in a row.
pub(super) const VISIT: usize = 8;

/// Operations of a short cart …
const SHORT: u64 = 10;
/// … and of a long one.
const LONG: u64 = 10_000;
/// Carts of each length.
const LONG_CARTS: u64 = 8;
/// How long making them may take.
const MAKE_WITHIN: Duration = Duration::from_secs(1_800);

/// The variable that says how many carts are many.
const CARTS: &str = "VITRINA_BENCH_CARTS";
/// What the shop is judged by.
const MANY: u64 = 500_000;
/// The same for Cassandra unless told otherwise: one node takes minutes for more.
const MANY_ON_CASSANDRA: u64 = 100_000;
/// The most that can be asked for.
const MAX_CARTS: u64 = 10_000_000;
/// Carts that are written before it is told how far it has come.
const SLICE: u64 = 50_000;
/// How long that may take.
const SLICE_WITHIN: Duration = Duration::from_secs(300);
/// How long a store is left alone after it was filled: it goes on sorting for a while.
const REST: Duration = Duration::from_secs(10);

/// What the 95th percentile may be on the embedded store, in milliseconds.
const P95_TARGET: f64 = 10.0;
/// How much CPU the server may need, by that of the driver.
const CPU_TARGET: f64 = 3.0;
/// How much longer a look at a long cart may take than at a short one.
const LONG_TARGET: f64 = 1.5;
/// How much longer anything may take among many carts.
const MANY_TARGET: f64 = 1.2;

/// The product of a line of a caller's cart, by its place in the demo catalogue.
pub(super) fn place_of(caller: u64, line: u64) -> u64 {
    (caller + line) % PRODUCTS
}

/// The body of a request for a cart.
pub(super) fn cart_body() -> String {
    json!({ "query": CART }).to_string()
}

/// The body of a request that adds a unit to a line of a caller's cart.
pub(super) fn add_body(caller: u64, line: u64, key: &str) -> String {
    let line = json!({ "productId": id_of(place_of(caller, line)), "quantity": 1 });
    json!({ "query": ADD, "variables": { "lines": [line], "key": key } }).to_string()
}

/// Looks of callers at their carts, by the callers' tokens.
fn looks(tokens: &[String], path: &str, visit: usize) -> Requests {
    let callers: Vec<_> = tokens.iter().map(|token| (token.clone(), cart_body())).collect();
    Requests::of_callers(&callers, CART_ANSWER, path, visit)
}

/// Changes of callers' carts, each with a key of its own that begins with a name.
pub(super) fn adds(tokens: &[String], path: &str, name: &str) -> Requests {
    let key = format!("{name}{STAMP}");
    let callers =
        (0..).zip(tokens).map(|(caller, token)| (token.clone(), add_body(caller, 0, &key)));
    Requests::of_callers(&callers.collect::<Vec<_>>(), ADD_ANSWER, path, VISIT)
}

/// A variant with what its rounds need.
pub(super) struct Lane<'a> {
    variant: Variant,
    worker: &'a Worker,
    requests: &'a Requests,
    connections: Vec<Connection>,
}

impl<'a> Lane<'a> {
    /// A lane to one of the worker's ports.
    pub(super) async fn open(
        (name, base): (String, usize),
        (worker, port): (&'a Worker, usize),
        requests: &'a Requests,
        settings: &Settings,
    ) -> Result<Self> {
        let connections = http::connect(worker.address(port)?, settings.connections).await?;
        Ok(Self { variant: Variant::new(name, base), worker, requests, connections })
    }
}

/// Runs the rounds of lanes in turn.
pub(super) async fn rounds<const N: usize>(
    mut lanes: [Lane<'_>; N],
    settings: &Settings,
) -> Result<[Variant; N]> {
    for (time, counts) in schedule(settings) {
        for Lane { variant, worker, requests, connections } in &mut lanes {
            let round = worker.requests(connections, requests, time).await?;
            if counts {
                variant.rounds.push(round);
            }
        }
    }
    Ok(lanes.map(|lane| lane.variant))
}

/// Prints figures beside what they may be at the most.
pub(super) fn print_targets(figures: &[(String, Ratios, f64)]) {
    let columns = ["", "median (min–max)", "target", "met"];
    let mut rows = vec![columns.map(str::to_owned).to_vec()];
    for (name, figure, target) in figures {
        let met = if figure.median() <= *target { "yes" } else { "NO" };
        rows.push(vec![name.clone(), figure.to_string(), target.to_string(), met.to_owned()]);
    }
    print_table("Targets", &rows);
}

/// Measures looks and changes of guests.
pub(crate) async fn operations(store: &str, settings: &Settings) -> Result<()> {
    let folder = folder()?;
    let shop = Worker::start(Role::Carts, store, folder.path()).await?;
    let mut connections = http::connect(shop.address(0)?, settings.connections).await?;
    let guests = guests(&mut connections).await?;
    let bare = looks(&guests, BARE_CART, VISIT);
    let (looks, adds) = (looks(&guests, SHOP, VISIT), adds(&guests, SHOP, "bench"));
    let what = format!("{}, {} guests, over HTTP", kind(store), thousands(float(VISITORS)));
    if !store.starts_with("cassandra") {
        let lanes = [
            Lane::open(
                ("bare handler, bytes of a cart".to_owned(), 0),
                (&shop, 1),
                &bare,
                settings,
            )
            .await?,
            Lane::open(("cart".to_owned(), 0), (&shop, 0), &looks, settings).await?,
            Lane::open(("cartLinesAdd".to_owned(), 0), (&shop, 0), &adds, settings).await?,
        ];
        let variants = rounds(lanes, settings).await?;
        print_variants(&format!("{what} ({})", settings.describe(settings.connections)), &variants);
        let p95 = |variant: &Variant| {
            let figures = variant.rounds.iter().map(|round| round.load.p95());
            (format!("{}: p95 ms", variant.name), Ratios::new(figures.collect()), P95_TARGET)
        };
        print_targets(&[p95(&variants[1]), p95(&variants[2])]);
        return Ok(());
    }
    let mut driver = Worker::start(Role::DriveCarts, store, folder.path()).await?;
    let mut loads = vec![1, settings.connections];
    loads.dedup();
    for at_once in loads {
        let mut variants = [
            Variant::new("the driver alone, read of the log", 0),
            Variant::new("cart", 0),
            Variant::new("the driver alone, read of the log and insert", 2),
            Variant::new("cartLinesAdd", 2),
        ];
        for (time, counts) in schedule(settings) {
            let order = |way: &str| format!("{way} {at_once} {}", time.as_millis());
            let rounds = [
                driver.measured(&order("cart"), time).await?,
                shop.requests(&mut connections[..at_once], &looks, time).await?,
                driver.measured(&order("add"), time).await?,
                shop.requests(&mut connections[..at_once], &adds, time).await?,
            ];
            if counts {
                for (variant, round) in variants.iter_mut().zip(rounds) {
                    variant.rounds.push(round);
                }
            }
        }
        print_variants(&format!("{what} ({})", settings.describe(at_once)), &variants);
        let cpu = |of: &Variant| {
            let ratios = ratios(of, &variants[of.base], Round::cpu_micros);
            (format!("{}: CPU by the driver's", of.name), ratios, CPU_TARGET)
        };
        print_targets(&[cpu(&variants[1]), cpu(&variants[3])]);
    }
    Ok(())
}

/// Begins sessions of guests and puts something into their carts; the tokens.
pub(super) async fn guests(connections: &mut [Connection]) -> Result<Vec<String>> {
    let each = VISITORS.div_ceil(connections.len() as u64);
    let begun = (0..).zip(connections).map(|(place, connection)| async move {
        let mut tokens = Vec::new();
        for guest in place * each..VISITORS.min((place + 1) * each) {
            tokens.push(welcome(connection, guest).await?);
        }
        Ok::<_, super::Error>(tokens)
    });
    Ok(try_join_all(begun).await?.concat())
}

async fn welcome(connection: &mut Connection, guest: u64) -> Result<String> {
    let body = json!({ "query": START }).to_string();
    let (status, answer) = connection.send(&post(SHOP, &body, None)).await?;
    let read: Value = serde_json::from_slice(answer)?;
    let token = read["data"]["sessionStart"]["token"].as_str();
    let token = token.ok_or_else(|| format!("no session: status {status}, {read}"))?.to_owned();
    for line in 0..LINES {
        let body = add_body(guest, line, &line.to_string());
        let (status, answer) = connection.send(&post(SHOP, &body, Some(&token))).await?;
        if !answer.starts_with(ADD_ANSWER) {
            let answer = String::from_utf8_lossy(answer);
            return Err(format!("nothing was added: status {status}, {answer}").into());
        }
    }
    Ok(token)
}

/// The tokens of every `step`-th of the customers of a name.
fn customers(name: &str, count: u64, step: u64) -> Result<Vec<String>> {
    let numbers = (0..count).map(|place| customer(name, place * step));
    numbers.map(|user| token(&user, ViewerRole::Customer)).collect()
}

/// Measures looks at carts after few operations and after many.
pub(crate) async fn long(store: &str, settings: &Settings) -> Result<()> {
    let folder = folder()?;
    let mut shop = Worker::start(Role::Carts, store, folder.path()).await?;
    for (name, operations) in [("short", SHORT), ("long", LONG)] {
        let order = format!("make {name} {LONG_CARTS} {operations}");
        let report = shop.order(&order, MAKE_WITHIN).await?;
        let words: Vec<&str> = report.split(' ').collect();
        let [millis, unfolded, ids] = words.as_slice() else {
            return Err(format!("a report that cannot be read: {report}").into());
        };
        println!(
            "{}: {LONG_CARTS} carts of {} operations made in {:.1} s; {unfolded} operations are not \
             covered by a checkpoint, which names {ids} ids",
            kind(store),
            thousands(float(operations)),
            millis.parse::<f64>()? / 1e3
        );
    }
    println!();
    tokio::time::sleep(REST).await;
    let short = looks(&customers("short", LONG_CARTS, 1)?, SHOP, 1);
    let long = looks(&customers("long", LONG_CARTS, 1)?, SHOP, 1);
    let name = |operations| format!("cart after {} operations", thousands(float(operations)));
    let lanes = [
        Lane::open((name(SHORT), 0), (&shop, 0), &short, settings).await?,
        Lane::open((name(LONG), 0), (&shop, 0), &long, settings).await?,
    ];
    let variants = rounds(lanes, settings).await?;
    let load = settings.describe(settings.connections);
    print_variants(&format!("{}, {LONG_CARTS} carts each ({load})", kind(store)), &variants);
    let compare = |figure: &str, of: fn(&Round) -> f64| {
        let ratios = ratios(&variants[1], &variants[0], of);
        (format!("long by short: {figure}"), ratios, LONG_TARGET)
    };
    print_targets(&[
        compare("p50", |round| round.load.p50()),
        compare("p95", |round| round.load.p95()),
        compare("CPU", Round::cpu_micros),
    ]);
    Ok(())
}

/// Measures looks and changes among few carts and among many, each on a store of their own.
pub(crate) async fn many(stores: [&str; 2], settings: &Settings) -> Result<()> {
    let is_cluster = stores[1].starts_with("cassandra");
    let default = if is_cluster { MANY_ON_CASSANDRA } else { MANY };
    let many = number(CARTS, default, VISITORS..=MAX_CARTS)?;
    if many < MANY {
        println!(
            "*** {} carts instead of {}: set {CARTS} for more. ***",
            thousands(float(many)),
            thousands(float(MANY))
        );
    }
    let folder = folder()?;
    let mut shops = Vec::new();
    let mut requests = Vec::new();
    for (store, count) in stores.into_iter().zip([VISITORS, many]) {
        let mut shop = Worker::start(Role::Carts, store, folder.path()).await?;
        fill(&mut shop, store, count).await?;
        shops.push(shop);
        let visitors = customers("shopper", VISITORS, count / VISITORS)?;
        requests.push((looks(&visitors, SHOP, VISIT), adds(&visitors, SHOP, "bench")));
    }
    println!();
    tokio::time::sleep(REST).await;
    let name = |what: &str, count| format!("{what}, {} carts", thousands(float(count)));
    let look = |place: usize, count| {
        let name = (name("cart", count), 0);
        Lane::open(name, (&shops[place], 0), &requests[place].0, settings)
    };
    let add = |place: usize, count| {
        let name = (name("cartLinesAdd", count), 2);
        Lane::open(name, (&shops[place], 0), &requests[place].1, settings)
    };
    let lanes = [
        look(0, VISITORS).await?,
        look(1, many).await?,
        add(0, VISITORS).await?,
        add(1, many).await?,
    ];
    let variants = rounds(lanes, settings).await?;
    let load = settings.describe(settings.connections);
    let heading = format!(
        "{}, carts of {LINES} operations, {} customers take turns ({load})",
        kind(stores[1]),
        thousands(float(VISITORS))
    );
    print_variants(&heading, &variants);
    let p95 = |what: &str, of: &Variant| {
        let ratios = ratios(of, &variants[of.base], |round| round.load.p95());
        (format!("{what}, many by few: p95"), ratios, MANY_TARGET)
    };
    print_targets(&[p95("cart", &variants[1]), p95("cartLinesAdd", &variants[3])]);
    Ok(())
}

/// Fills a store with carts, and tells how far it has come.
async fn fill(shop: &mut Worker, store: &str, carts: u64) -> Result<()> {
    let mut millis = 0;
    for first in (0..carts).step_by(usize::try_from(SLICE)?) {
        let last = carts.min(first + SLICE);
        let order = format!("fill shopper {first} {last}");
        millis += shop.order(&order, SLICE_WITHIN).await?.parse::<u32>()?;
        eprintln!("{} of {} carts", thousands(float(last)), thousands(float(carts)));
    }
    let seconds = f64::from(millis) / 1e3;
    println!(
        "{}: {} carts of {LINES} operations written in {seconds:.1} s",
        kind(store),
        thousands(float(carts))
    );
    Ok(())
}
