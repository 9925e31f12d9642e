//! Carts: a log of operations for each owner, folded when it is read.

pub mod cassandra;
pub mod embedded;
pub mod graphql;
pub mod model;
pub mod service;
pub mod store;

pub use service::CartService;
pub use store::CartStore;
