//! Many clients on one category while it is split, by hash and then by price.
//!
//! Nothing is written meanwhile, so every page must stay what it was before, to the byte; one that
//! does not is an error.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;

use super::connection::Connection;
use super::figures::{Load, float, print_table, thousands};
use super::http;
use super::requests::{below, post};
use super::roles::SHOP;
use super::stand::{ANSWER, Inspector, PAGE, Stand, body, deep_page};
use super::{Result, Settings};

/// Pages that the clients read, at random.
const PAGES: u64 = 400;
/// A split waits for its grace three times, and there are two.
const GRACES: u32 = 6;
/// The load before the splits is measured for no longer than so many times all rounds.
const MAX_BEFORE: u32 = 3;
/// How much slower pages may become.
const TARGET: f64 = 2.0;
/// How long a split may take for each thousand products, beyond its graces.
const THOUSAND_WITHIN: Duration = Duration::from_secs(2);
/// And besides.
const REST_WITHIN: Duration = Duration::from_secs(120);

/// A request and the answer it must get.
struct Known {
    request: Vec<u8>,
    answer: Vec<u8>,
}

/// What the clients saw for a while.
struct Seen {
    load: Load,
    errors: u64,
    first_error: Option<String>,
    cpu: Duration,
}

/// Measures and prints.
pub(crate) async fn run(stand: &mut Stand, settings: &Settings) -> Result<()> {
    let products = stand.hot_size;
    let shelf = stand.fill(products).await?;
    let pages = known_pages(stand, &shelf.name, products).await?;
    let mut clients = http::connect(stand.cached()?, settings.connections).await?;
    let grace: u64 = stand.worker.order("grace", REST_WITHIN).await?.parse()?;
    let rounds = u32::try_from(settings.rounds)?;
    let length = (Duration::from_millis(grace) * GRACES).min(settings.round * rounds * MAX_BEFORE);
    let within = REST_WITHIN + THOUSAND_WITHIN * u32::try_from(products.div_ceil(1_000))?;

    let for_a_while = async |_: &mut Stand| {
        tokio::time::sleep(length).await;
        Ok(0)
    };
    let before = while_busy(stand, &mut clients, &pages, for_a_while).await?.0;
    let by = async |stand: &mut Stand, model: &str| -> Result<u32> {
        let order = format!("split {} {model}", shelf.name);
        Ok(stand.worker.order(&order, within).await?.parse()?)
    };
    let (hash, hash_took) =
        while_busy(stand, &mut clients, &pages, async |stand| by(stand, "hash").await).await?;
    let (price, price_took) =
        while_busy(stand, &mut clients, &pages, async |stand| by(stand, "price").await).await?;
    let after = while_busy(stand, &mut clients, &pages, for_a_while).await?.0;

    let columns = [
        "",
        "seconds",
        "pages/s",
        "p50 ms",
        "p95 ms",
        "p95 / before",
        "met",
        "CPU µs/page",
        "errors",
    ];
    let mut table = vec![columns.map(str::to_owned).to_vec()];
    let (took_hash, took_price) = (f64::from(hash_took) / 1e3, f64::from(price_took) / 1e3);
    for (name, seen) in [
        ("before".to_owned(), &before),
        (format!("split by hash ({took_hash:.1} s)"), &hash),
        (format!("split by price ({took_price:.1} s)"), &price),
        ("after".to_owned(), &after),
    ] {
        let ratio = seen.load.p95() / before.load.p95();
        table.push(vec![
            name,
            format!("{:.1}", seen.load.elapsed.as_secs_f64()),
            thousands(seen.load.per_second()),
            format!("{:.1}", seen.load.p50()),
            format!("{:.1}", seen.load.p95()),
            format!("{ratio:.2}"),
            if ratio <= TARGET { "yes" } else { "NO" }.to_owned(),
            format!("{:.0}", seen.cpu.as_secs_f64() * 1e6 / float(seen.load.done.max(1))),
            seen.errors.to_string(),
        ]);
    }
    println!();
    let heading = format!(
        "{}, {} clients on random pages of one category of {} products, caches on (target: p95 at \
         most {TARGET} × of before, no errors)",
        stand.name,
        settings.connections,
        thousands(float(products))
    );
    print_table(&heading, &table);
    let first = [&before, &hash, &price, &after].into_iter().find_map(|s| s.first_error.as_ref());
    if let Some(error) = first {
        println!("The first error: {error}\n");
    }
    Ok(())
}

/// Pages around the deep one, with their answers.
async fn known_pages(stand: &Stand, name: &str, products: u64) -> Result<Vec<Known>> {
    let mut inspector = Inspector::open(stand.plain()?).await?;
    let cursors = inspector.cursors_around(name, deep_page(products), PAGES).await?;
    let mut connection = Connection::open(stand.plain()?).await?;
    let mut known = Vec::new();
    for cursor in &cursors {
        let request = post(SHOP, &body(name, PAGE, Some(cursor), &Value::Null), None);
        let (status, answer) = connection.send(&request).await?;
        if status != 200 || !answer.starts_with(ANSWER) {
            return Err(format!("no page: {}", String::from_utf8_lossy(answer)).into());
        }
        let answer = answer.to_vec();
        known.push(Known { request, answer });
    }
    Ok(known)
}

/// Keeps all clients busy as long as something else takes.
async fn while_busy<T>(
    stand: &mut Stand,
    clients: &mut [Connection],
    pages: &[Known],
    work: impl AsyncFnOnce(&mut Stand) -> Result<T>,
) -> Result<(Seen, T)> {
    let before = stand.worker.spent()?;
    let address = stand.cached()?;
    let is_over = Cell::new(false);
    let started = Instant::now();
    let busy = clients.iter_mut().enumerate().map(async |(seed, client)| {
        let mut draws = seed as u64;
        let (mut times, mut errors, mut first_error) = (Vec::new(), 0_u64, None);
        while !is_over.get() {
            let page = &pages[below(&mut draws, pages.len())];
            let sent = Instant::now();
            let error = match client.send(&page.request).await {
                Ok((200, answer)) if answer == page.answer => None,
                Ok((status, answer)) => {
                    Some(format!("status {status}, {}", String::from_utf8_lossy(answer)))
                }
                Err(error) => {
                    // What is left of an answer must not be taken for the next one.
                    if let Ok(fresh) = Connection::open(address).await {
                        *client = fresh;
                    }
                    Some(error.to_string())
                }
            };
            times.push(sent.elapsed());
            if let Some(error) = error {
                errors += 1;
                first_error.get_or_insert(error);
            }
        }
        (times, errors, first_error)
    });
    let work = async {
        let done = work(stand).await;
        is_over.set(true);
        done
    };
    let (seen, done) = tokio::join!(join_all(busy), work);
    let done = done?;
    let elapsed = started.elapsed();
    let errors = seen.iter().map(|(_, errors, _)| errors).sum();
    let first_error = seen.iter().find_map(|(_, _, error)| error.clone());
    let times = seen.into_iter().flat_map(|(times, _, _)| times).collect();
    let cpu = stand.worker.spent()?.since(before).cpu;
    Ok((Seen { load: Load::new(elapsed, times), errors, first_error, cpu }, done))
}
