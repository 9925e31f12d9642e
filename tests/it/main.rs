//! The integration tests: one binary, so that they are linked once.
//!
//! - `contract`: what every store must do, run on each of them;
//! - `api`: the shop over HTTP;
//! - `faults`: processes that are killed;
//! - `simulation`: the checkout on a store that fails, by schedules that follow from seeds;
//! - `layout`: the rules of the source tree.

// A test may panic, and its parts are nobody else's interface.
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

mod api;
mod contract;
mod faults;
mod layout;
mod simulation;
mod support;
