//! Looking at stock: what it costs through each tier, and how soon a change is seen elsewhere.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::figures::{Load, Variant, float, print_table, print_variants, thousands};
use super::reservations::rest;
use super::worker::{Role, Worker, folder, schedule};
use super::{Result, Settings};

/// Rows that are looked at.
const ROWS: usize = 1_000;
/// Rows of the skewed load.
const MANY_ROWS: usize = 16_384;
/// Readers at once.
const READERS: usize = 32;
/// How long the skewed load is kept up before it is counted, and while it is.
const SKEWED: Duration = Duration::from_secs(3);
/// Changes whose way is timed.
const CHANGES: i64 = 300;
/// The quantity before them: more than the other sections have reserved of the row.
const BASE: i64 = 900_000_000;
/// How long a step may take.
const WITHIN: Duration = Duration::from_secs(120);

/// Measures reads through each tier.
pub(crate) async fn reads(store: &str, settings: &Settings) -> Result<()> {
    rest(store).await;
    let folder = folder()?;
    let mut worker = Worker::start(Role::Buyers, store, folder.path()).await?;
    worker.order(&format!("stock {MANY_ROWS}"), WITHIN).await?;
    let ways: &[&str] =
        if has_redis() { &["store", "redis", "memory"] } else { &["store", "memory"] };
    let mut variants: Vec<_> =
        ways.iter().map(|way| Variant::new(format!("from {way}"), 0)).collect();
    for (time, counts) in schedule(settings) {
        for (way, variant) in ways.iter().zip(&mut variants) {
            let order = format!("read {way} {ROWS} {READERS} {}", time.as_millis());
            let round = worker.measured(&order, time).await?;
            if counts {
                variant.rounds.push(round);
            }
        }
    }
    let kind = super::cassandra::kind(store);
    let heading = format!("{kind}, a level of one of 1,000 rows, {READERS} readers");
    print_variants(&heading, &variants);

    let order = format!("look {MANY_ROWS} {READERS} {}", SKEWED.as_millis());
    let mut counts = [0_u64; 5];
    // Two instances share a Redis; an embedded store has one.
    let mut workers = vec![worker];
    if store.starts_with("cassandra") {
        workers.push(Worker::start(Role::Buyers, store, folder.path()).await?);
    }
    for is_counted in [false, true] {
        let reports = workers.iter_mut().map(|worker| worker.order(&order, WITHIN));
        for report in try_join_all(reports).await? {
            for (sum, count) in counts.iter_mut().zip(report.split(' ')) {
                *sum += if is_counted { count.parse::<u64>()? } else { 0 };
            }
        }
    }
    let [looks, memory, missed, redis, read] = counts;
    let share = |part: u64| format!("{:.2} %", 100.0 * float(part) / float(looks.max(1)));
    // What is too seldom asked for goes past Redis.
    let cold = missed.saturating_sub(redis + read);
    let rows = vec![
        ["", "rows looked at", "share"].map(str::to_owned).to_vec(),
        vec!["in memory".to_owned(), thousands(float(memory)), share(memory)],
        vec!["in Redis".to_owned(), thousands(float(redis)), share(redis)],
        vec!["not in Redis".to_owned(), thousands(float(read)), share(read)],
        vec![
            "seldom asked for, or waited for another".to_owned(),
            thousands(float(cold)),
            share(cold),
        ],
    ];
    print_table(
        &format!("{kind}, pages of 24 cards, half of the looks at a hundredth of 16,384 rows"),
        &rows,
    );
    Ok(())
}

fn has_redis() -> bool {
    std::env::var(super::worker::REDIS_OF_TESTS).is_ok_and(|url| !url.is_empty())
}

/// Times the way of changes from one instance to another.
pub(crate) async fn fresh(store: &str) -> Result<()> {
    if !store.starts_with("cassandra") || !has_redis() {
        println!("*** NOT MEASURED: freshness between instances needs Cassandra and Redis. ***\n");
        return Ok(());
    }
    rest(store).await;
    let folder = folder()?;
    let mut here = Worker::start(Role::Buyers, store, folder.path()).await?;
    here.order("stock 1", WITHIN).await?;
    let mut there = Worker::start(Role::Buyers, store, folder.path()).await?;
    let mut times = Vec::new();
    let started = Instant::now();
    for change in BASE + 1..=BASE + CHANGES {
        let (set, until) = (format!("set {change}"), format!("until {change}"));
        let acknowledged = async {
            here.order(&set, WITHIN).await?;
            Ok::<_, super::Error>(Instant::now())
        };
        let seen = async {
            there.order(&until, WITHIN).await?;
            Ok(Instant::now())
        };
        let (acknowledged, seen) = tokio::try_join!(acknowledged, seen)?;
        times.push(seen.saturating_duration_since(acknowledged));
    }
    let load = Load::new(started.elapsed(), times);
    let kind = super::cassandra::kind(store);
    let row = [load.p50(), load.p95(), load.p99()].map(|time| format!("{time:.2}")).to_vec();
    let rows = vec![["p50 ms", "p95 ms", "p99 ms"].map(str::to_owned).to_vec(), row];
    let heading = format!(
        "{kind} and Redis, from an acknowledged change in one process to another one showing it \
         ({CHANGES} changes; target: p99 at most 250 ms)"
    );
    print_table(&heading, &rows);
    Ok(())
}
