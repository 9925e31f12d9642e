//! A page of 24: the first one, and those around the 1,000th, of categories of several sizes.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use serde_json::Value;

use super::connection::Connection;
use super::figures::{Round, Variant, float, median, print_table, ratios, thousands};
use super::http::{self, Until};
use super::requests::Requests;
use super::roles::SHOP;
use super::stand::{ANSWER, Inspector, PAGE, Stand, Told, body, deep_page};
use super::{Result, Settings};

/// Pages around the 1,000th that are asked for at random.
const PAGES: u64 = 200;
/// Requests to each variant before the first round counts.
const WARM_UP: u64 = 100;
/// How much longer the 1,000th page may take than the first.
const DEEP_TARGET: f64 = 1.2;
/// How much longer a page of the largest category may take than one of the smallest.
const SIZE_TARGET: f64 = 1.5;

/// A variant with what its rounds need.
struct Lane {
    variant: Variant,
    requests: Requests,
    connection: Connection,
    reads: Reads,
}

impl Lane {
    async fn open(name: String, bodies: &[String], address: SocketAddr) -> Result<Self> {
        let mut inspector = Inspector::open(address).await?;
        let mut reads = Reads::default();
        for body in bodies {
            // What counts is the second time: with caches, the first one fills them.
            inspector.look(body).await?;
            if let Some(page) = inspector.look(body).await?.told {
                reads.add(&page);
            }
        }
        Ok(Self {
            variant: Variant::new(name, 0),
            requests: Requests::of(bodies, ANSWER, SHOP),
            connection: Connection::open(address).await?,
            reads,
        })
    }
}

/// What the pages of a variant took.
#[derive(Default)]
pub(super) struct Reads {
    models: BTreeSet<String>,
    partitions: Vec<u64>,
    rows: Vec<u64>,
    calls: Vec<u64>,
}

impl Reads {
    pub(super) fn add(&mut self, page: &Told) {
        self.models.insert(page.model.clone());
        self.partitions.push(page.partitions);
        self.rows.push(page.rows);
        self.calls.push(page.calls);
    }

    /// The most partitions of any page.
    pub(super) fn most_partitions(&self) -> u64 {
        self.partitions.iter().copied().max().unwrap_or(0)
    }

    /// Read model, partitions, rows.
    pub(super) fn cells(&self) -> [String; 3] {
        let models: Vec<&str> = self.models.iter().map(String::as_str).collect();
        [models.join(", "), low_to_high(&self.partitions), low_to_high(&self.rows)]
    }
}

/// The smallest and the largest, with the median between them where they differ.
fn low_to_high(figures: &[u64]) -> String {
    match (figures.iter().min(), figures.iter().max()) {
        (Some(low), Some(high)) if low == high => low.to_string(),
        (Some(low), Some(high)) => {
            let middle = median(figures.iter().map(|figure| float(*figure)).collect());
            format!("{middle:.0} ({low}–{high})")
        }
        _ => "–".to_owned(),
    }
}

/// Which of the four variants of a size; their places in it.
#[derive(Clone, Copy)]
enum Place {
    First,
    Deep,
    CachedFirst,
    CachedDeep,
}

/// How many there are.
const PLACES: usize = 4;

/// Measures and prints.
pub(crate) async fn run(stand: &mut Stand, settings: &Settings) -> Result<()> {
    let mut lanes = Vec::new();
    for products in stand.sizes.clone() {
        let shelf = stand.fill(products).await?;
        let middle = deep_page(products);
        let mut inspector = Inspector::open(stand.plain()?).await?;
        let cursors = inspector.cursors_around(&shelf.name, middle, PAGES).await?;
        let first = [body(&shelf.name, PAGE, None, &Value::Null)];
        let deep: Vec<String> = cursors
            .iter()
            .map(|cursor| body(&shelf.name, PAGE, Some(cursor), &Value::Null))
            .collect();
        let (plain, cached) = (stand.plain()?, stand.cached()?);
        let name = |what: &str| format!("{} products, {what}", thousands(float(products)));
        let around = format!("around page {}", thousands(float(middle)));
        lanes.push(Lane::open(name("first page"), &first, plain).await?);
        lanes.push(Lane::open(name(&around), &deep, plain).await?);
        lanes.push(Lane::open(name("first page, caches on"), &first, cached).await?);
        lanes.push(Lane::open(name(&format!("{around}, caches on")), &deep, cached).await?);
    }
    for Lane { requests, connection, .. } in &mut lanes {
        let one = std::slice::from_mut(connection);
        http::load(one, requests, Until::Count(WARM_UP)).await?;
    }
    for _ in 0..settings.rounds {
        for Lane { variant, requests, connection, .. } in &mut lanes {
            let one = std::slice::from_mut(connection);
            variant.rounds.push(stand.worker.requests(one, requests, settings.round).await?);
        }
    }
    println!();
    print_lanes(stand, settings, &lanes);
    print_ratios(stand, &lanes);
    Ok(())
}

fn print_lanes(stand: &Stand, settings: &Settings, lanes: &[Lane]) {
    let columns =
        ["", "p50 ms", "p95 ms", "CPU µs/request", "model", "partitions", "rows", "store calls"];
    let mut rows = vec![columns.map(str::to_owned).to_vec()];
    for Lane { variant, reads, .. } in lanes {
        let of = |figure: fn(&Round) -> f64| median(variant.rounds.iter().map(figure).collect());
        let mut row = vec![
            variant.name.clone(),
            format!("{:.2}", of(|round| round.load.p50())),
            format!("{:.2}", of(|round| round.load.p95())),
            format!("{:.0}", of(Round::cpu_micros)),
        ];
        row.extend(reads.cells());
        row.push(low_to_high(&reads.calls));
        rows.push(row);
    }
    let load = settings.describe(1);
    print_table(&format!("{}, pages of {PAGE} over HTTP ({load})", stand.name), &rows);
}

fn print_ratios(stand: &Stand, lanes: &[Lane]) {
    let columns = ["", "p50", "p95", "CPU", "target", "met"];
    let mut rows = vec![columns.map(str::to_owned).to_vec()];
    let lane = |size: usize, place: Place| &lanes[size * PLACES + place as usize].variant;
    let mut compare = |what: String, of: &Variant, base: &Variant, target: f64| {
        let p50 = ratios(of, base, |round| round.load.p50());
        let p95 = ratios(of, base, |round| round.load.p95());
        let cpu = ratios(of, base, Round::cpu_micros);
        let is_met = p50.median() <= target && p95.median() <= target;
        rows.push(vec![
            what,
            p50.to_string(),
            p95.to_string(),
            cpu.to_string(),
            format!("{target}"),
            if is_met { "yes" } else { "NO" }.to_owned(),
        ]);
    };
    let count = |size: usize| thousands(float(stand.sizes[size]));
    for (size, products) in stand.sizes.iter().enumerate() {
        let middle = thousands(float(deep_page(*products)));
        let what = format!("{} products: page {middle} / first", count(size));
        compare(what, lane(size, Place::Deep), lane(size, Place::First), DEEP_TARGET);
    }
    let last = stand.sizes.len() - 1;
    for (what, place) in [
        ("first page", Place::First),
        ("deep page", Place::Deep),
        ("first page, caches on", Place::CachedFirst),
        ("deep page, caches on", Place::CachedDeep),
    ] {
        let what = format!("{} / {} products: {what}", count(last), count(0));
        compare(what, lane(last, place), lane(0, place), SIZE_TARGET);
    }
    print_table(&format!("{}, ratios of neighbouring rounds", stand.name), &rows);
}
