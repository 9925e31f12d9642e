//! What a shop does when everything happens at once, and what grows with it.
//!
//! ```text
//! cargo bench --bench mixed                            # everything
//! cargo bench --bench mixed -- mix embedded            # some of it
//! VITRINA_TEST_CASSANDRA=127.0.0.1:9042 cargo bench --bench mixed -- mix cassandra
//! VITRINA_BENCH_PRODUCTS=1000000 cargo bench --bench mixed -- growth embedded
//! VITRINA_BENCH_PLOTS=docs cargo bench --bench mixed   # plots as well
//! ```
//!
//! Sections, each on the embedded store and, if a cluster is named, on Cassandra:
//!
//! - `mix`: cards of which some are hot, any cards and pages of categories with their stock (with the
//!   caches of the default configuration and with nothing cached), changes of carts, histories and
//!   checkouts over HTTP, each alone and then all of them in one load; beside bare axum handlers of
//!   the same process that give the same bytes and, on Cassandra, beside a loop in a process of its
//!   own that only runs the prepared statements;
//! - `growth`: cards and pages with their stock in shops of 10,000, 100,000 and 1,000,000 products,
//!   and cards while 1 to 10,000 connections are open: CPU of a request and memory of the server.
//!
//! As in `cards`, machines differ and so do minutes: look at ratios, which are taken between
//! neighbours of one round. `docs/performance.md` tells how to read the tables.
//!
//! `VITRINA_BENCH_CONNECTIONS`, `VITRINA_BENCH_ROUNDS` and `VITRINA_BENCH_SECONDS` (of a round; may
//! be a fraction) change the load, `VITRINA_BENCH_PRODUCTS` is the size of the largest shop of
//! `growth`, and `VITRINA_BENCH_PLOTS` names a folder for plots. `VITRINA_BENCH_PIN=1` gives what is
//! measured a core for itself and leaves the others to the load generator and the cluster.

#[allow(dead_code, reason = "the rest of it is the other benchmarks'")]
mod support;

use std::process::ExitCode;

use support::{
    Defaults, Result, Settings, cassandra, growth, main_of, mix, unless_stopped, worker,
};

/// The sections, in the order they run.
const SECTIONS: [&str; 2] = ["mix", "growth"];
/// The stores, in the order they are measured.
const STORES: [&str; 2] = ["embedded", "cassandra"];
/// A store for each section, and in `growth` one for each size and one for connections.
const PLACES: usize = growth::SIZES.len() + 2;
/// What is measured unless told otherwise.
const DEFAULTS: Defaults = Defaults {
    connections: 32,
    // A million is what the shop is judged by and takes longer.
    products: 100_000,
    // Every category then has a page.
    min_products: 1_000,
};

fn main() -> ExitCode {
    main_of("mixed", [&SECTIONS, &STORES], &DEFAULTS, async |[sections, stores], settings| {
        if stores.contains(&"embedded") {
            let folder = worker::folder()?;
            let places: [String; PLACES] = std::array::from_fn(|place| {
                format!("embedded:{}", folder.path().join(place.to_string()).display())
            });
            let places = places.each_ref().map(String::as_str);
            unless_stopped(run_on(places, &sections, settings)).await?;
        }
        if stores.contains(&"cassandra") {
            cassandra::with_keyspaces(async |places| run_on(places, &sections, settings).await)
                .await?;
        }
        Ok(())
    })
}

/// Runs the sections on stores that are empty.
async fn run_on(places: [&str; PLACES], sections: &[&str], settings: &Settings) -> Result<()> {
    let [first, rest @ ..] = places;
    for section in sections {
        match *section {
            "mix" => mix::run(first, settings).await?,
            _ => growth::run(rest, settings).await?,
        }
    }
    Ok(())
}
