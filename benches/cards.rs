//! What a product card costs, how fast the shop is there, and how fast it takes a catalogue.
//!
//! ```text
//! cargo bench --bench cards                            # everything
//! cargo bench --bench cards -- card start              # some sections
//! cargo bench --profile release --bench cards          # with the profile that ships
//! VITRINA_BENCH_PRODUCTS=1000000 cargo bench --bench cards -- load
//! VITRINA_TEST_CASSANDRA=127.0.0.1:9042 cargo bench --bench cards -- cassandra
//! ```
//!
//! Sections:
//!
//! - `card`: a card over HTTP on the embedded store, beside a bare axum handler of the same process
//!   that gives the same bytes;
//! - `cassandra`: the same card on Cassandra, beside a loop that only runs its prepared statement;
//! - `start`: from starting the binary to being ready, and its memory;
//! - `load`: `vitrina demo` into an empty folder.
//!
//! Machines differ, and so does one machine from minute to minute. What can be compared is the
//! ratio of two variants whose rounds alternate within one run, so that is what is reported. The
//! figure to look at is CPU time of the server process per request: requests per second and times
//! also depend on the load generator, which runs on the same machine and keeps every connection
//! busy.
//!
//! `VITRINA_BENCH_CONNECTIONS`, `VITRINA_BENCH_ROUNDS` and `VITRINA_BENCH_SECONDS` (of a round; may
//! be a fraction) change the load.

#[allow(dead_code, reason = "the rest of it is the other benchmarks'")]
mod support;

use std::process::ExitCode;

use support::{Defaults, Result, Settings, card, cassandra, fill, main_of, start, unless_stopped};

/// The sections, in the order they run.
const SECTIONS: [&str; 4] = ["card", "cassandra", "start", "load"];
/// What is measured unless told otherwise.
const DEFAULTS: Defaults = Defaults {
    connections: 32,
    // A million is what the shop is judged by and takes longer.
    products: 100_000,
    min_products: 1,
};

fn main() -> ExitCode {
    main_of("cards", [&SECTIONS], &DEFAULTS, async |[sections], settings| {
        run(&sections, settings).await
    })
}

async fn run(sections: &[&str], settings: &Settings) -> Result<()> {
    for section in SECTIONS.iter().filter(|section| sections.contains(section)) {
        match *section {
            "card" => unless_stopped(card::run(settings)).await?,
            // It has more to clean up than what is dropped.
            "cassandra" => cassandra::run(settings).await?,
            "start" => unless_stopped(start::run()).await?,
            _ => unless_stopped(fill::run(settings)).await?,
        }
    }
    Ok(())
}
