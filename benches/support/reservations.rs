//! Reservations a second: of one row, and of a thousand.

use std::time::Duration;

use futures_util::future::try_join_all;

use super::figures::{Load, Ratios, float, median, print_table, thousands};
use super::worker::{Role, Worker, folder, schedule};
use super::{Result, Settings};

/// Fewer buyers than the many.
const FEW: usize = 64;
/// Rows of the spread load.
const ROWS: usize = 1_000;
/// Processes that share a row.
const PROCESSES: usize = 3;
/// How long a cluster is left alone before what comes next is measured.
const REST: Duration = Duration::from_secs(10);
/// How long making the rows may take.
const STOCK_WITHIN: Duration = Duration::from_secs(120);

/// A way to buy, and its rounds: reservations a second, p50 and p99 in milliseconds, errors.
struct Way {
    name: String,
    rounds: Vec<(f64, f64, f64)>,
    errors: u64,
    cpu: Vec<f64>,
}

impl Way {
    fn new(name: String) -> Self {
        Self { name, rounds: Vec::new(), errors: 0, cpu: Vec::new() }
    }

    fn row(&self, base: Option<&Self>) -> Vec<String> {
        let of =
            |figure: fn(&(f64, f64, f64)) -> f64| median(self.rounds.iter().map(figure).collect());
        let ratio = base.map_or("1".to_owned(), |base| {
            let pairs = self.rounds.iter().zip(&base.rounds);
            Ratios::new(pairs.map(|(way, base)| way.0 / base.0).collect()).to_string()
        });
        vec![
            self.name.clone(),
            thousands(of(|round| round.0)),
            ratio,
            format!("{:.1}", of(|round| round.1)),
            format!("{:.1}", of(|round| round.2)),
            format!("{:.0}", median(self.cpu.clone())),
            self.errors.to_string(),
        ]
    }
}

const COLUMNS: [&str; 7] =
    ["", "reservations/s", "ratio (min–max)", "p50 ms", "p99 ms", "CPU µs each", "errors"];

/// Buys in one round, from all workers at once.
async fn round(
    workers: &mut [Worker],
    way: &mut Way,
    order: &str,
    (time, counts): (Duration, bool),
) -> Result<()> {
    let order = format!("{order} {}", time.as_millis());
    let rounds = workers.iter_mut().map(|worker| worker.measured(&order, time));
    let rounds = try_join_all(rounds).await?;
    let mut errors = 0;
    for worker in workers.iter_mut() {
        errors += worker.order("errors", STOCK_WITHIN).await?.parse::<u64>()?;
    }
    if counts {
        let loads: Vec<Load> = rounds.iter().map(|round| round.load).collect();
        let worst = |of: fn(&Load) -> f64| loads.iter().map(of).fold(0.0, f64::max);
        let sum = loads.iter().map(Load::per_second).sum();
        way.rounds.push((sum, worst(Load::p50), worst(Load::p99)));
        way.errors += errors;
        let done: u64 = loads.iter().map(|load| load.done).sum();
        let cpu: f64 = rounds.iter().map(|round| round.cpu.as_secs_f64()).sum();
        way.cpu.push(cpu * 1e6 / float(done.max(1)));
    }
    Ok(())
}

/// Measures buyers of one row.
pub(crate) async fn hot(store: &str, settings: &Settings) -> Result<()> {
    let folder = folder()?;
    let is_shared = store.starts_with("cassandra");
    let mut workers = vec![Worker::start(Role::Buyers, store, folder.path()).await?];
    workers[0].order("stock 1", STOCK_WITHIN).await?;
    for buyers in [FEW, settings.connections] {
        rest(store).await;
        let mut plain = Way::new(format!("a conditional write each, {buyers} buyers"));
        let mut combined = Way::new(format!("combined, {buyers} buyers"));
        for part in schedule(settings) {
            let order = format!("buy combined {buyers} 1");
            round(&mut workers, &mut combined, &order, part).await?;
        }
        // After all of them: what so many conditional writes leave to be done keeps a cluster busy
        // for a while.
        for part in schedule(settings).filter(|_| is_shared) {
            let order = format!("buy plain {buyers} 1");
            round(&mut workers, &mut plain, &order, part).await?;
        }
        let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
        if is_shared {
            rows.push(plain.row(None));
        }
        rows.push(combined.row(is_shared.then_some(&plain)));
        print_table(&heading(store, settings, "one row"), &rows);
    }
    if is_shared {
        rest(store).await;
        let buyers = settings.connections;
        let mut alone = Way::new(format!("one process, {buyers} buyers"));
        let mut three =
            Way::new(format!("{PROCESSES} processes, {} buyers each", buyers / PROCESSES));
        for _ in 1..PROCESSES {
            workers.push(Worker::start(Role::Buyers, store, folder.path()).await?);
        }
        for part in schedule(settings) {
            let order = format!("buy combined {buyers} 1");
            round(&mut workers[..1], &mut alone, &order, part).await?;
            let order = format!("buy combined {} 1", buyers / PROCESSES);
            round(&mut workers, &mut three, &order, part).await?;
        }
        let rows =
            vec![COLUMNS.map(str::to_owned).to_vec(), alone.row(None), three.row(Some(&alone))];
        print_table(&heading(store, settings, "one row"), &rows);
    }
    Ok(())
}

/// Measures buyers of a thousand rows.
pub(crate) async fn spread(store: &str, settings: &Settings) -> Result<()> {
    rest(store).await;
    let folder = folder()?;
    let mut workers = vec![Worker::start(Role::Buyers, store, folder.path()).await?];
    workers[0].order(&format!("stock {ROWS}"), STOCK_WITHIN).await?;
    let buyers = settings.connections;
    let mut plain = Way::new(format!("a conditional write each, {buyers} buyers"));
    let mut combined = Way::new(format!("combined, {buyers} buyers"));
    for part in schedule(settings) {
        round(&mut workers, &mut plain, &format!("buy plain {buyers} {ROWS}"), part).await?;
        round(&mut workers, &mut combined, &format!("buy combined {buyers} {ROWS}"), part).await?;
    }
    let rows =
        vec![COLUMNS.map(str::to_owned).to_vec(), plain.row(None), combined.row(Some(&plain))];
    print_table(&heading(store, settings, "1,000 rows"), &rows);
    Ok(())
}

/// Lets a cluster come to rest.
pub(super) async fn rest(store: &str) {
    if store.starts_with("cassandra") {
        tokio::time::sleep(REST).await;
    }
}

fn heading(store: &str, settings: &Settings, what: &str) -> String {
    let kind = super::cassandra::kind(store);
    let (rounds, seconds) = (settings.rounds, settings.round.as_secs_f64());
    format!("{kind}, reservations of {what} (median of {rounds} rounds of {seconds} s)")
}
