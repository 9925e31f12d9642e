//! The integration tests: one binary, so that they are linked once.
//!
//! - `contract`: what every store must do, run on each of them;
//! - `api`: the shop over HTTP;
//! - `faults`: processes that are killed;
//! - `layout`: the rules of the source tree.

mod api;
mod contract;
mod faults;
mod layout;
mod support;
