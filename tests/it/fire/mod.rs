//! The shop under fire: clients go on while servers die, freeze and are flooded, and afterwards the
//! books are audited.
//!
//! With every run of the tests a short version is run, which asserts what must hold on any machine:
//! what clients are told, and that no unit is oversold, no order lost or doubled. The long one is
//! run by hand and prints the table of `docs/reliability.md`:
//!
//! ```sh
//! scripts/fire [nodes|redis|deaths|overload|sockets|attacks|linear ...]
//! ```

mod attacks;
mod audit;
mod clients;
#[allow(dead_code, reason = "the rest of it is the benchmarks'")]
#[path = "../../../benches/support/connection.rs"]
mod connection;
mod deaths;
mod flood;
mod nodes;
mod overload;
mod record;
mod redis;
mod shop;
mod siege;
mod sockets;

use std::time::Duration;

/// Whether this is the long version. Its figures are those of a machine that does nothing else.
fn is_long() -> bool {
    std::env::var("VITRINA_FIRE").as_deref() == Ok("long")
}

/// One of two, by the version that is run.
fn by_version<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// How long a stretch of a test is, in seconds.
fn stretch(short: f64, long: f64) -> Duration {
    Duration::from_secs_f64(by_version(short, long))
}
