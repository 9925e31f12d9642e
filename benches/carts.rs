//! What carts cost: changing one and looking at it, after many operations, and among many others.
//!
//! ```text
//! cargo bench --bench carts                            # everything
//! cargo bench --bench carts -- long embedded           # some of it
//! VITRINA_TEST_CASSANDRA=127.0.0.1:9042 cargo bench --bench carts -- cassandra
//! VITRINA_BENCH_CARTS=500000 cargo bench --bench carts -- many cassandra
//! ```
//!
//! Sections, each on the embedded store and, if a cluster is named, on Cassandra:
//!
//! - `operations`: `cart` and `cartLinesAdd` of guests over HTTP; beside a bare axum handler of the
//!   same process that gives the bytes of a cart, or on Cassandra beside a loop in a process of its
//!   own that only runs the prepared statements of each;
//! - `long`: `cart` after ten thousand operations beside `cart` after ten;
//! - `many`: both among many carts beside both among few.
//!
//! A guest makes eight requests in a row, for which the session is read once; the loops beside it
//! read it as often. `VITRINA_BENCH_CONNECTIONS`, `VITRINA_BENCH_ROUNDS` and
//! `VITRINA_BENCH_SECONDS` (of a round) change the load, `VITRINA_BENCH_CARTS` how many carts are
//! many.

#[allow(dead_code, reason = "the rest of it is the other benchmarks'")]
mod support;

use std::process::ExitCode;

use support::{Defaults, Result, Settings, carts, cassandra, main_of, unless_stopped, worker};

/// The sections, in the order they run.
const SECTIONS: [&str; 3] = ["operations", "long", "many"];
/// The stores, in the order they are measured.
const STORES: [&str; 2] = ["embedded", "cassandra"];
/// What is measured unless told otherwise.
const DEFAULTS: Defaults = Defaults {
    connections: 32,
    products: vitrina::demo::DEFAULT_PRODUCTS,
    min_products: vitrina::demo::DEFAULT_PRODUCTS,
};

fn main() -> ExitCode {
    main_of("carts", [&SECTIONS, &STORES], &DEFAULTS, async |[sections, stores], settings| {
        if stores.contains(&"embedded") {
            let folder = worker::folder()?;
            let store = |name| format!("embedded:{}", folder.path().join(name).display());
            let (first, second) = (store("first"), store("second"));
            unless_stopped(run_on([&first, &second], &sections, settings)).await?;
        }
        if stores.contains(&"cassandra") {
            cassandra::with_keyspaces(async |stores| run_on(stores, &sections, settings).await)
                .await?;
        }
        Ok(())
    })
}

/// Runs the sections on two stores that are empty: one for what has few carts all the time.
async fn run_on([store, few]: [&str; 2], sections: &[&str], settings: &Settings) -> Result<()> {
    for section in sections {
        match *section {
            "operations" => carts::operations(store, settings).await?,
            "long" => carts::long(store, settings).await?,
            _ => carts::many([few, store], settings).await?,
        }
    }
    Ok(())
}
