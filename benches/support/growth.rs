//! What grows with the shop and with the number of its clients: CPU of a request, and memory.

use std::path::Path;

use vitrina::demo::DEFAULT_PRODUCTS;

use super::cassandra::kind;
use super::figures::{Round, Variant, float, megabytes, print_markdown, ratios, thousands};
use super::lanes::{COLUMNS, Lane, cells};
use super::plot::{self, Panel};
use super::stand::time_for;
use super::window::{cards, page_bodies, page_requests};
use super::worker::{Role, Worker, folder, schedule};
use super::{Result, Settings};

/// Products of the shops that are compared.
pub(crate) const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];
/// The most on Cassandra: one node takes minutes for so many.
const MOST_ON_CASSANDRA: u64 = 100_000;
/// Connections that are open.
const CONNECTIONS: [usize; 5] = [1, 10, 100, 1_000, 10_000];
/// Files that a process has open beside its connections: its store, its log, and what it waits with.
const OTHER_FILES: usize = 512;
/// What is measured of each size, in the order of the lanes: whether it is cards or pages, and whether
/// of the shop without caches.
const LOADS: [(&str, bool, bool); 4] = [
    ("card with stock", true, false),
    ("category page of 24 with stock", false, false),
    ("card with stock, nothing cached", true, true),
    ("category page of 24 with stock, nothing cached", false, true),
];

/// A shop of some size, or with some number of connections.
struct Point {
    /// How many there are of what grows.
    count: u64,
    worker: Worker,
    lanes: Vec<Lane>,
    /// Memory before the first request, in bytes.
    ready: u64,
}

impl Point {
    /// Memory now, in megabytes.
    fn memory(&self) -> Result<f64> {
        Ok(megabytes(self.worker.memory()?))
    }
}

/// Measures and prints. There is a store for each size, and one for connections; all empty.
pub(crate) async fn run(stores: [&str; SIZES.len() + 1], settings: &Settings) -> Result<()> {
    let folder = folder()?;
    let [sized @ .., last] = stores;
    let mut panels = of_products(sized, folder.path(), settings).await?;
    panels.extend(of_connections(last, folder.path(), settings).await?);
    let title = format!("{}: CPU and memory of the server as the shop grows", kind(last));
    plot::write("growth", last, &plot::lines(&title, &panels))
}

/// The sizes that are measured; says loudly which are not.
fn sizes(store: &str, settings: &Settings) -> Vec<u64> {
    let is_cluster = store.starts_with("cassandra");
    let most =
        if is_cluster { settings.products.min(MOST_ON_CASSANDRA) } else { settings.products };
    for size in SIZES.into_iter().filter(|size| *size > most) {
        let size = thousands(float(size));
        if is_cluster && most == MOST_ON_CASSANDRA {
            println!("*** NOT MEASURED: {size} products, too many for one node. ***\n");
        } else {
            println!(
                "*** NOT MEASURED: {size} products. Set VITRINA_BENCH_PRODUCTS for them. ***\n"
            );
        }
    }
    let sizes: Vec<u64> = SIZES.into_iter().filter(|size| *size <= most).collect();
    if sizes.is_empty() { vec![most] } else { sizes }
}

/// A worker on a store that another one has filled: filling leaves memory behind that serving does
/// not need.
async fn filled(store: &str, products: u64, folder: &Path) -> Result<Worker> {
    let mut filler = Worker::start(Role::Mixed, store, folder).await?;
    filler.order(&format!("fill {products}"), time_for(products)?).await?;
    filler.finish().await?;
    Worker::start(Role::Mixed, store, folder).await
}

async fn of_products(
    stores: [&str; SIZES.len()],
    folder: &Path,
    settings: &Settings,
) -> Result<Vec<Panel>> {
    let all = settings.connections;
    let mut points: Vec<Point> = Vec::new();
    for (count, store) in sizes(stores[0], settings).into_iter().zip(stores) {
        let worker = filled(store, count, folder).await?;
        let (ready, pages) = (worker.memory()?, page_bodies(worker.address(0)?).await?);
        let mut lanes = Vec::new();
        for (name, is_card, is_plain) in LOADS {
            let address = worker.address(usize::from(is_plain))?;
            let requests =
                if is_card { cards(count)? } else { page_requests(&pages, super::roles::SHOP) };
            let variant = Variant::new(name, 0);
            lanes.push(Lane::open(variant, address, requests, (all, all)).await?);
        }
        points.push(Point { count, worker, lanes, ready });
    }
    for round in schedule(settings) {
        // The sizes are neighbours: it is they that are compared.
        for load in 0..LOADS.len() {
            for Point { worker, lanes, .. } in &mut points {
                lanes[load].round(worker, round).await?;
            }
        }
    }
    let what = kind(stores[0]);
    let load = settings.describe(all);
    print_points(
        &format!("{what}, shops of several sizes ({load})"),
        ("products", "CPU / smallest shop"),
        &points,
    );
    print_memory(&format!("{what}, memory of the server"), "products", &points)?;
    plotted(&points, ("products", "products in the shop (logarithmic)"))
}

/// The numbers of connections that this process may have open; says loudly which are left out.
fn connections() -> Result<Vec<usize>> {
    let wanted = CONNECTIONS.iter().sum::<usize>() + OTHER_FILES;
    // Workers inherit it.
    let limit = rlimit::increase_nofile_limit(wanted as u64)?;
    let mut open = OTHER_FILES;
    let mut fitting = Vec::new();
    for count in CONNECTIONS {
        open += count;
        if open as u64 <= limit {
            fitting.push(count);
        } else {
            println!(
                "*** NOT MEASURED: {} connections. This process may open {limit} files and needs \
                 {open}: raise the limit (ulimit -n). ***\n",
                thousands(float(count as u64))
            );
        }
    }
    Ok(fitting)
}

/// Every number of connections has a server of its own, so that its memory is.
async fn of_connections(store: &str, folder: &Path, settings: &Settings) -> Result<Vec<Panel>> {
    let mut points: Vec<Point> = Vec::new();
    for count in connections()? {
        // Processes share a keyspace, but not a folder.
        let own = if store.starts_with("cassandra") {
            store.to_owned()
        } else {
            format!("{store}-{count}")
        };
        let worker = filled(&own, DEFAULT_PRODUCTS, folder).await?;
        let (ready, busy) = (worker.memory()?, count.min(settings.connections));
        let name = format!("card with stock, {busy} busy at once");
        let (variant, requests) = (Variant::new(name, 0), cards(DEFAULT_PRODUCTS)?);
        let lane = Lane::open(variant, worker.address(0)?, requests, (count, busy)).await?;
        points.push(Point { count: count as u64, worker, lanes: vec![lane], ready });
    }
    for round in schedule(settings) {
        for Point { worker, lanes, .. } in &mut points {
            lanes[0].round(worker, round).await?;
        }
    }
    let what = kind(store);
    let (rounds, seconds) = (settings.rounds, settings.round.as_secs_f64());
    print_points(
        &format!(
            "{what}, 2,000 products, connections that are open and take turns (median of {rounds} \
             rounds of {seconds} s)"
        ),
        ("connections", "CPU / one connection"),
        &points,
    );
    print_memory(&format!("{what}, memory of the server"), "connections", &points)?;
    plotted(&points, ("connections", "connections that are open (logarithmic)"))
}

/// A row for each load of each point.
fn print_points(heading: &str, (what, beside): (&str, &str), points: &[Point]) {
    let names =
        ["", what].into_iter().chain(COLUMNS).chain(["failed", "store calls/request", beside]);
    let mut rows = vec![names.map(str::to_owned).collect::<Vec<_>>()];
    let loads = points.first().map_or(0, |point| point.lanes.len());
    for load in 0..loads {
        for point in points {
            let lane = &point.lanes[load];
            let mut row = vec![lane.variant.name.clone(), thousands(float(point.count))];
            row.extend(cells(&lane.variant));
            row.push(thousands(float(lane.failed)));
            row.push(format!("{:.2}", lane.calls()));
            let base = &points[0].lanes[load].variant;
            row.push(ratios(&lane.variant, base, Round::cpu_micros).to_string());
            rows.push(row);
        }
    }
    print_markdown(heading, &rows);
    let mut lanes = points.iter().flat_map(|point| &point.lanes);
    if let Some(failure) = lanes.find_map(|lane| lane.first_failure.as_ref()) {
        println!("The first failure: {failure}\n");
    }
}

fn print_memory(heading: &str, what: &str, points: &[Point]) -> Result<()> {
    let names = [what, "when ready, MB", "after all rounds, MB"];
    let mut rows = vec![names.map(str::to_owned).to_vec()];
    for point in points {
        rows.push(vec![
            thousands(float(point.count)),
            format!("{:.0}", megabytes(point.ready)),
            format!("{:.0}", point.memory()?),
        ]);
    }
    print_markdown(heading, &rows);
    Ok(())
}

/// A panel for the CPU of each load, and one for memory.
fn plotted(points: &[Point], (what, x): (&str, &'static str)) -> Result<Vec<Panel>> {
    let at: Vec<f64> = points.iter().map(|point| float(point.count)).collect();
    let loads = points.first().map_or(0, |point| point.lanes.len());
    let line = |load: usize| {
        let lanes = points.iter().map(|point| &point.lanes[load].variant);
        let name = if loads == 1 { "card with stock" } else { LOADS[load].0 };
        let name = name.replace("category page of 24", "page of 24");
        (name, lanes.map(|variant| variant.median(Round::cpu_micros)).collect())
    };
    let after = points.iter().map(Point::memory).collect::<Result<_>>()?;
    let ready = points.iter().map(|point| megabytes(point.ready)).collect();
    Ok(vec![
        Panel {
            title: format!("CPU, by {what}"),
            x,
            y: if loads > 1 { "µs per request (logarithmic)" } else { "µs per request" },
            is_log: loads > 1,
            at: at.clone(),
            lines: (0..loads).map(line).collect(),
        },
        Panel {
            title: format!("Memory, by {what}"),
            x,
            y: "resident, MB",
            is_log: false,
            at,
            lines: vec![("after all rounds".to_owned(), after), ("when ready".to_owned(), ready)],
        },
    ])
}
