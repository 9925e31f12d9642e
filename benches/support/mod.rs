//! What the sections of the benchmarks share, and the sections.

pub(crate) mod card;
pub(crate) mod carts;
pub(crate) mod cassandra;
pub(crate) mod checkout;
pub(crate) mod fill;
pub(crate) mod growth;
pub(crate) mod hot;
pub(crate) mod listing;
pub(crate) mod mix;
pub(crate) mod range;
pub(crate) mod reservations;
pub(crate) mod stand;
pub(crate) mod start;
pub(crate) mod stock_reads;
pub(crate) mod upserts;
pub(crate) mod worker;

mod axis;
mod buyers;
mod card_driver;
mod cart_driver;
mod cart_worker;
mod checkout_worker;
mod clerk;
mod connection;
mod control;
mod cores;
mod database;
mod figures;
mod http;
mod lanes;
mod machine;
mod mix_tables;
mod mixed_worker;
mod plot;
mod process;
mod requests;
mod rival;
mod roles;
mod shelf;
mod window;
mod writes;

use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// Why a benchmark cannot go on, for a person.
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
/// A benchmark that cannot go on says why, cleans up and ends.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Rounds of every variant; their median is reported.
const ROUNDS: u64 = 5;
/// Length of a round. CPU time is counted in steps of 10 ms, which is well below 1 % of it.
const ROUND: Duration = Duration::from_secs(3);
/// The shortest round that can be asked for: a try whether everything works.
const MIN_ROUND: Duration = Duration::from_millis(100);
/// The longest one.
const MAX_ROUND: Duration = Duration::from_secs(3_600);

/// What a benchmark does unless told otherwise.
pub(crate) struct Defaults {
    /// Connections that are kept busy.
    pub(crate) connections: u64,
    /// Products.
    pub(crate) products: u64,
    /// The fewest products that make sense.
    pub(crate) min_products: u64,
}

/// What can be changed from outside.
pub(crate) struct Settings {
    /// Connections, and executions under way at once in the loop beside Cassandra.
    pub(crate) connections: usize,
    /// Rounds of every variant.
    pub(crate) rounds: u64,
    /// How long a round is.
    pub(crate) round: Duration,
    /// How many products are written: all that `load` writes, or those of the largest category.
    pub(crate) products: u64,
}

impl Settings {
    /// Reads the settings; one that makes no sense is an error.
    pub(crate) fn from_environment(defaults: &Defaults) -> Result<Self> {
        let connections = number("VITRINA_BENCH_CONNECTIONS", defaults.connections, 1..=1_000)?;
        let products = defaults.min_products..=vitrina::demo::MAX_PRODUCTS;
        Ok(Self {
            connections: usize::try_from(connections)?,
            rounds: number("VITRINA_BENCH_ROUNDS", ROUNDS, 1..=1_000)?,
            round: seconds("VITRINA_BENCH_SECONDS", ROUND)?,
            products: number("VITRINA_BENCH_PRODUCTS", defaults.products, products)?,
        })
    }

    /// The load in words, for the heading of a table.
    pub(crate) fn describe(&self, connections: usize) -> String {
        let plural = if connections == 1 { "" } else { "s" };
        let (rounds, seconds) = (self.rounds, self.round.as_secs_f64());
        format!("{connections} connection{plural}, median of {rounds} rounds of {seconds} s")
    }
}

fn number(variable: &str, default: u64, range: RangeInclusive<u64>) -> Result<u64> {
    let Ok(text) = std::env::var(variable) else { return Ok(default) };
    let (low, high) = (range.start(), range.end());
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("{variable} must be a number from {low} to {high}").into()),
    }
}

fn seconds(variable: &str, default: Duration) -> Result<Duration> {
    let Ok(text) = std::env::var(variable) else { return Ok(default) };
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let (low, high) = (MIN_ROUND.as_secs_f64(), MAX_ROUND.as_secs());
    seconds
        .filter(|time| (MIN_ROUND..=MAX_ROUND).contains(time))
        .ok_or_else(|| format!("{variable} must be a number from {low} to {high}").into())
}

/// A benchmark's `main`: does a worker's work if this process was started as one; else measures what
/// the command line names of `lists`.
pub(crate) fn main_of<const N: usize>(
    name: &str,
    lists: [&[&'static str]; N],
    defaults: &Defaults,
    measure: impl AsyncFnOnce([Vec<&'static str>; N], &Settings) -> Result<()>,
) -> ExitCode {
    if let Some(code) = roles::run_if_asked() {
        return code;
    }
    let measured = || -> Result<()> {
        let Some(named) = chosen(lists)? else {
            println!("{name}: run it with `cargo bench --bench {name}`");
            return Ok(());
        };
        let settings = Settings::from_environment(defaults)?;
        println!("{}\n", machine::describe());
        cores::leave_measured()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(measure(named, &settings))
    };
    match measured() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What the command line names of several lists; all of a list that it names nothing of. Cargo says
/// `--bench` when it runs benchmarks; when it runs every target as a test, a benchmark must not take
/// minutes: then there is nothing to do.
fn chosen<const N: usize>(lists: [&[&'static str]; N]) -> Result<Option<[Vec<&'static str>; N]>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        return Ok(None);
    }
    let words = || arguments.iter().map(String::as_str).filter(|argument| *argument != "--bench");
    if let Some(unknown) = words().find(|word| !lists.concat().contains(word)) {
        return Err(format!("no {unknown}; there are {}", lists.concat().join(", ")).into());
    }
    Ok(Some(lists.map(|list| {
        let named: Vec<_> =
            list.iter().copied().filter(|one| words().any(|word| word == *one)).collect();
        if named.is_empty() { list.to_vec() } else { named }
    })))
}

/// Does some work, unless a signal asks this process to stop meanwhile: then the work is dropped,
/// and with it its children and folders.
pub(crate) async fn unless_stopped(work: impl Future<Output = Result<()>>) -> Result<()> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => Err("interrupted".into()),
        _ = terminate.recv() => Err("told to stop".into()),
    }
}
