//! Vitrina, the storefront backend of the online shop «Мобильный мир».
//!
//! # The modules
//!
//! Business is cut by domain, the platform under it by layer:
//!
//! - [`catalog`]: products and categories; [`inventory`]: how much there is of each;
//!   [`sessions`]: who visits; [`cart`]: what they want to buy; [`orders`]: what they have bought.
//!   Every domain has the same files: `model` (types and rules, no I/O), `store` (its contract with
//!   a store), `embedded` and `cassandra` (the two stores), `service` (use cases), `graphql` (thin
//!   types and resolvers).
//! - [`checkout`]: from a cart to an order, once; the only module that knows several domains.
//! - [`storage`]: what the stores share, the embedded engine, the Cassandra session.
//! - [`cache`]: read caches in memory and in Redis; they know nothing of what they keep.
//! - [`graphql`]: the schema put together from the domains, loaders, scalars, cost.
//! - [`server`]: HTTP, the GraphQL pipeline, identity, limits, health.
//! - [`app`] wires them together; [`cli`] is the command line; [`demo`] is the demo shop.
//!
//! # The way of one request
//!
//! Four steps and no way back. [`server`] turns bytes into a document that was parsed and checked
//! (once: it is kept by its hash), finds out who asks, and sets the deadline. `<domain>::graphql`
//! turns arguments into a call. `<domain>::service` knows the rules. `<domain>::embedded` or
//! `<domain>::cassandra` reads and writes. What many resolvers ask for one by one, the loaders of
//! [`graphql`] read in one round.

/// Answering a request is many small allocations; the system's allocator takes twice as long.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub mod app;
pub mod cache;
pub mod cart;
pub mod catalog;
pub mod chance;
pub mod checkout;
pub mod cli;
pub mod clock;
pub mod config;
mod crew;
pub mod demo;
pub mod digest;
pub mod error;
mod fault;
pub mod feed;
pub mod geo_zone;
pub mod graphql;
mod held;
pub mod input;
pub mod inventory;
mod locks;
pub mod money;
mod network;
pub mod orders;
pub mod owner;
pub mod page;
pub mod product_id;
pub mod rate;
pub mod root_key;
pub mod server;
pub mod sessions;
pub mod storage;
pub mod telemetry;
mod wakes;
