//! What browsing a category costs, near its beginning and far inside, while it is small, large and
//! being split, and what its read models cost those who write.
//!
//! ```text
//! cargo bench --bench pages                            # everything
//! cargo bench --bench pages -- pages range             # some sections
//! cargo bench --bench pages -- hot embedded            # on one store
//! VITRINA_TEST_CASSANDRA=127.0.0.1:9042 cargo bench --bench pages
//! VITRINA_BENCH_PRODUCTS=20000 VITRINA_BENCH_ROUNDS=1 VITRINA_BENCH_SECONDS=0.3 \
//!     cargo bench --bench pages                        # does it still work?
//! ```
//!
//! Sections, each on the embedded store and, if a cluster is named, on Cassandra:
//!
//! - `pages`: a page of 24 over HTTP, one at a time: the first one, and those around the 1,000th, of
//!   categories of three sizes;
//! - `range`: partitions and rows of pages of a hundredth of a category's prices;
//! - `hot`: many clients on one category while it is split by hash and then by price;
//! - `upserts`: batches of 100, new products and new prices, beside writing the cards alone.
//!
//! As in `cards`, machines differ and so do minutes: look at ratios, which are taken between
//! neighbours of one round.
//!
//! `VITRINA_BENCH_PRODUCTS` is the size of the largest category (a million); the others are a tenth
//! and a hundredth of it. `VITRINA_BENCH_CONNECTIONS` (clients of `hot`), `VITRINA_BENCH_ROUNDS` and
//! `VITRINA_BENCH_SECONDS` (of a round; may be a fraction) change the load.

#[allow(dead_code, reason = "the rest of it is the other benchmarks'")]
mod support;

use std::process::ExitCode;

use support::stand::Stand;
use support::{
    Defaults, Result, Settings, cassandra, hot, listing, main_of, range, unless_stopped, upserts,
};

/// The sections, in the order they run: what changes a category comes after what reads it.
const SECTIONS: [&str; 4] = ["pages", "range", "hot", "upserts"];
/// The stores, in the order they are measured.
const STORES: [&str; 2] = ["embedded", "cassandra"];
/// What is measured unless told otherwise.
const DEFAULTS: Defaults = Defaults {
    connections: 64,
    products: 1_000_000,
    // The smallest category then has 100 products: four pages.
    min_products: 10_000,
};

fn main() -> ExitCode {
    main_of("pages", [&SECTIONS, &STORES], &DEFAULTS, async |[sections, stores], settings| {
        run(&sections, &stores, settings).await
    })
}

async fn run(sections: &[&str], stores: &[&str], settings: &Settings) -> Result<()> {
    if stores.contains(&"embedded") {
        let (writing, reading): (Vec<&str>, _) =
            sections.iter().copied().partition(|section| *section == "upserts");
        // Writing is compared with a store that has nothing else in it, so it gets its own folder.
        for sections in [reading, writing].iter().filter(|sections| !sections.is_empty()) {
            let measured = async {
                let mut stand = Stand::embedded(settings).await?;
                run_on(&mut stand, sections, settings).await
            };
            unless_stopped(measured).await?;
        }
    }
    if stores.contains(&"cassandra") {
        let measured = async |store: &str| {
            let mut stand = Stand::cassandra(store, settings).await?;
            run_on(&mut stand, sections, settings).await
        };
        cassandra::with_keyspace(measured).await?;
    }
    Ok(())
}

async fn run_on(stand: &mut Stand, sections: &[&str], settings: &Settings) -> Result<()> {
    for section in sections {
        match *section {
            "pages" => listing::run(stand, settings).await?,
            "range" => range::run(stand).await?,
            "hot" => hot::run(stand, settings).await?,
            _ => upserts::run(stand, settings).await?,
        }
    }
    Ok(())
}
