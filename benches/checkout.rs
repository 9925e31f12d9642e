//! What buying costs, and looking at what was bought.
//!
//! ```text
//! cargo bench --bench checkout                            # everything
//! cargo bench --bench checkout -- history embedded        # some of it
//! VITRINA_TEST_CASSANDRA=127.0.0.1:9042 cargo bench --bench checkout -- hot cassandra
//! ```
//!
//! Sections, each on the embedded store and, if a cluster is named, on Cassandra:
//!
//! - `spread`: checkouts of carts with 3 lines, of 10,000 products; and how many calls of the store
//!   each takes;
//! - `hot`: 1,000 buyers of one product, through the whole checkout, with the buyers of a row
//!   combined and with a conditional write for each;
//! - `history`: `orders(first: 20)` over HTTP of a customer with 10 orders and of one with 10,000, over
//!   twelve months; the first page and the hundredth.
//!
//! Checkouts are asked for in the process of the shop, without HTTP; carts are filled before, and
//! every checkout is of a cart of its own. `VITRINA_BENCH_CONNECTIONS`, `VITRINA_BENCH_ROUNDS` and
//! `VITRINA_BENCH_SECONDS` (of a round) change the load, `VITRINA_BENCH_PRODUCTS` how many products
//! there are.

#[allow(dead_code, reason = "the rest of it is the other benchmarks'")]
mod support;

use std::process::ExitCode;

use support::{Defaults, Result, Settings, cassandra, checkout, main_of, unless_stopped, worker};

/// The sections, in the order they run.
const SECTIONS: [&str; 3] = ["spread", "hot", "history"];
/// The stores, in the order they are measured.
const STORES: [&str; 2] = ["embedded", "cassandra"];
/// What is measured unless told otherwise.
const DEFAULTS: Defaults = Defaults { connections: 32, products: 10_000, min_products: 100 };

fn main() -> ExitCode {
    main_of("checkout", [&SECTIONS, &STORES], &DEFAULTS, async |[sections, stores], settings| {
        if stores.contains(&"embedded") {
            let folder = worker::folder()?;
            let store = format!("embedded:{}", folder.path().join("shop").display());
            unless_stopped(run_on(&store, &sections, settings)).await?;
        }
        if stores.contains(&"cassandra") {
            cassandra::with_keyspace(async |store| run_on(store, &sections, settings).await)
                .await?;
        }
        Ok(())
    })
}

async fn run_on(store: &str, sections: &[&str], settings: &Settings) -> Result<()> {
    for section in sections {
        match *section {
            "spread" => checkout::spread(store, settings).await?,
            "hot" => checkout::hot(store, settings).await?,
            _ => checkout::history(store, settings).await?,
        }
    }
    Ok(())
}
