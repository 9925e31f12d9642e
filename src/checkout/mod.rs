//! From a cart to an order, once, whatever dies in between; and what becomes of an order after that.
//! The only module that knows several domains.

pub mod cassandra;
pub mod check;
pub mod embedded;
pub mod graphql;
pub mod model;
pub mod service;
pub mod store;
pub mod sweeper;

pub use service::CheckoutService;
pub use store::CheckoutStore;
