//! The integration tests: one binary, so that they are linked once.
//!
//! - `contract`: what every store must do, run on each of them;
//! - `api`: the shop over HTTP;
//! - `faults`: processes that are killed;
//! - `fire`: everything at once, by clients who go on while servers die and are flooded;
//! - `simulation`: the checkout on a store that fails, by schedules that follow from seeds;
//! - `linear`: recorded histories of stock, held against what a row is to one client at a time;
//! - `layout`: the rules of the source tree.

// A test may panic, and its parts are nobody else's interface.
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

mod api;
mod contract;
mod faults;
mod fire;
mod layout;
mod linear;
mod simulation;
mod support;
