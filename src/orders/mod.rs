//! Orders: what was bought, how it stands, and the history of each customer.

pub mod cassandra;
pub mod embedded;
pub mod graphql;
pub mod model;
pub mod service;
pub mod store;

pub use service::OrderService;
pub use store::OrderStore;
