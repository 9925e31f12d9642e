//! Stock: how many units of a product there are in each geo zone, and who has been promised some.

pub mod cassandra;
pub mod embedded;
pub mod graphql;
pub mod model;
pub mod service;
pub mod store;

pub use service::InventoryService;
pub use store::InventoryStore;
