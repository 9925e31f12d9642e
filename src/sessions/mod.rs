//! Sessions: the visits of guests and customers, and the tokens that continue them.

pub mod cassandra;
pub mod embedded;
pub mod graphql;
pub mod model;
pub mod service;
pub mod store;

pub use service::SessionService;
pub use store::SessionStore;
