//! What one request carries: who asks, and its loaders.

use std::net::IpAddr;
use std::sync::Arc;

use async_graphql::parser::types::ExecutableDocument;
use futures_util::stream::Stream;
use uuid::Uuid;

use super::events::events;
use super::loader::{Loader, Rounds};
use crate::app::Shop;
use crate::cart::graphql::CartFetch;
use crate::catalog::graphql::{CategoryFetch, CategoryListFetch, ProductFetch};
use crate::error::Error;
use crate::inventory::graphql::{StockFetch, ZonesFetch};
use crate::owner::Owner;
use crate::sessions::model::Session;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Viewer {
    /// Nobody in particular: the catalogue only.
    Anonymous,
    /// A guest, by the id of the session.
    Guest(Uuid),
    /// A customer, by the `sub` of the token.
    Customer(String),
    /// A member of staff, by the `sub` of the token.
    Staff(String),
}

/// Who asks, in which session and from where.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Who asks.
    pub viewer: Viewer,
    /// The session whose token was sent, if it was one of a session.
    pub session: Option<Arc<Session>>,
    /// From where.
    pub origin: Origin,
}

impl Caller {
    /// Somebody of whom only the address is known.
    pub(crate) fn nobody(address: Option<IpAddr>) -> Self {
        let origin = Origin { address, user_agent: None };
        Self { viewer: Viewer::Anonymous, session: None, origin }
    }
}

/// Where a request comes from.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The network address.
    pub address: Option<IpAddr>,
    /// What the client calls itself.
    pub user_agent: Option<String>,
}

/// The data of one request, for its resolvers.
pub struct RequestContext {
    /// The services.
    pub shop: Arc<Shop>,
    /// Who asks.
    pub caller: Caller,
    /// What is asked for.
    pub(super) flat: Arc<ExecutableDocument>,
    /// Carts.
    pub carts: Loader<CartFetch>,
    /// Product cards.
    pub products: Loader<ProductFetch>,
    /// Categories with their counts.
    pub categories: Loader<CategoryFetch>,
    /// All categories.
    pub category_lists: Loader<CategoryListFetch>,
    /// Stock of products in zones.
    pub stock: Loader<StockFetch>,
    /// The zones of products.
    pub zones: Loader<ZonesFetch>,
    rounds: Arc<Rounds>,
}

impl RequestContext {
    /// The context of a request for a flat document, which `rounds` drives.
    pub fn new(
        shop: Arc<Shop>,
        caller: Caller,
        flat: Arc<ExecutableDocument>,
        rounds: &Arc<Rounds>,
    ) -> Self {
        let catalog = || shop.catalog.clone();
        let products = Loader::new(ProductFetch(catalog()), rounds);
        let categories = Loader::new(CategoryFetch(catalog()), rounds);
        let category_lists = Loader::new(CategoryListFetch(catalog()), rounds);
        let stock = Loader::new(StockFetch(shop.inventory.clone()), rounds);
        let zones = Loader::new(ZonesFetch(shop.inventory.clone()), rounds);
        let carts = Loader::new(CartFetch(shop.carts.clone()), rounds);
        let rounds = rounds.clone();
        Self {
            shop,
            caller,
            flat,
            carts,
            products,
            categories,
            category_lists,
            stock,
            zones,
            rounds,
        }
    }

    /// The events of a subscription, on their way to be resolved. Every subscription's go through
    /// here: an event is shown with what is true when it comes, and not with what was read for the
    /// one before.
    pub fn events<S: Stream>(&self, source: S) -> impl Stream<Item = S::Item> + use<S> {
        events(self.rounds.clone(), source)
    }

    /// Whose carts and orders the caller's are.
    pub fn owner(&self) -> Result<Owner, Error> {
        match &self.caller.viewer {
            Viewer::Anonymous => Err(Error::Unauthenticated(
                "This needs a token: a customer's, or one that sessionStart gives to a guest.",
            )),
            Viewer::Guest(session) => Ok(Owner::Guest(*session)),
            Viewer::Customer(id) | Viewer::Staff(id) => Ok(Owner::User(id.as_str().into())),
        }
    }

    /// Lets staff through and nobody else.
    pub fn require_staff(&self) -> Result<(), Error> {
        match self.caller.viewer {
            Viewer::Staff(_) => Ok(()),
            Viewer::Customer(_) | Viewer::Guest(_) => {
                Err(Error::Forbidden("Only staff may do this."))
            }
            Viewer::Anonymous => {
                Err(Error::Unauthenticated("This needs a staff token in the Authorization header."))
            }
        }
    }
}

/// The context of the request that a resolver works for.
pub trait ContextExt<'a> {
    /// It is always there: the server puts it into every request.
    fn request(&self) -> Result<&'a RequestContext, Error>;
}

impl<'a> ContextExt<'a> for async_graphql::Context<'a> {
    fn request(&self) -> Result<&'a RequestContext, Error> {
        self.data_opt::<RequestContext>().ok_or(Error::Internal)
    }
}
