//! What stock costs: many buyers of one row beside buyers who each write by themselves, reading it
//! through the caches, and how soon a change is seen by another instance.
//!
//! ```text
//! cargo bench --bench stock                            # everything
//! cargo bench --bench stock -- hot embedded            # some of it
//! scripts/servers start --cassandra 3 --redis --name bench > bench.env
//! . ./bench.env; export VITRINA_TEST_CASSANDRA VITRINA_TEST_REDIS
//! cargo bench --bench stock -- cassandra
//! ```
//!
//! Sections, each on the embedded store and, if a cluster is named, on Cassandra, with as many
//! copies as nodes are named (three at the most):
//!
//! - `hot`: reservations of one row, with few buyers and with many; on Cassandra beside the same
//!   buyers doing a conditional write each, and from three processes at once;
//! - `spread`: the same buyers on a thousand rows;
//! - `reads`: a level from memory, from Redis and from the store; hits of a skewed load;
//! - `fresh`: the time until an instance shows what another one has changed.
//!
//! Buyers settle what they have reserved, as a checkout does. `VITRINA_BENCH_CONNECTIONS` (buyers),
//! `VITRINA_BENCH_ROUNDS` and `VITRINA_BENCH_SECONDS` (of a round) change the load.

#[allow(dead_code, reason = "the rest of it is the other benchmarks'")]
mod support;

use std::process::ExitCode;

use support::{
    Defaults, Result, Settings, cassandra, main_of, reservations, stock_reads, unless_stopped,
    worker,
};

/// The sections, in the order they run.
const SECTIONS: [&str; 4] = ["hot", "spread", "reads", "fresh"];
/// The stores, in the order they are measured.
const STORES: [&str; 2] = ["embedded", "cassandra"];
/// What is measured unless told otherwise.
const DEFAULTS: Defaults = Defaults { connections: 1_000, products: 1_000, min_products: 1_000 };

fn main() -> ExitCode {
    main_of("stock", [&SECTIONS, &STORES], &DEFAULTS, async |[sections, stores], settings| {
        if stores.contains(&"embedded") {
            let folder = worker::folder()?;
            let store = format!("embedded:{}", folder.path().join("data").display());
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
            "hot" => reservations::hot(store, settings).await?,
            "spread" => reservations::spread(store, settings).await?,
            "reads" => stock_reads::reads(store, settings).await?,
            _ => stock_reads::fresh(store).await?,
        }
    }
    Ok(())
}
