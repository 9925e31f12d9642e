//! Products, the cards that shoppers see, and the categories they stand in.

pub mod cassandra;
pub mod embedded;
pub mod graphql;
pub mod model;
pub mod service;
pub mod store;

pub use service::CatalogService;
pub use store::CatalogStore;
