//! The schema, put together from the domains, and what one request carries through it.

pub mod complete;
mod context;
pub mod cost;
mod events;
pub mod flatten;
pub mod index;
mod json;
mod leaf;
mod loader;
mod pages;
pub mod public;
mod roots;
mod scalars;
pub mod variables;

use async_graphql::extensions::{Extension, ExtensionContext, ExtensionFactory, NextExecute};
use async_graphql::parser::types::ExecutableDocument;
use async_graphql::registry::Registry;
use async_graphql::{
    MergedObject, MergedSubscription, OutputType, Request, Response, Schema, SchemaBuilder,
    ServerError, ValidationMode,
};
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use std::sync::Arc;

pub use context::{Caller, ContextExt, Origin, RequestContext, Viewer};
pub use events::Turn;
pub use flatten::{asks_for, inside};
pub use index::SchemaIndex;
pub use json::{Json, write_response};
#[cfg(test)]
pub(crate) use leaf::tests::assert_written_as_resolved;
pub use leaf::{AtOnce, Leaf, LeafObject, Leaves};
pub use loader::{Fetch, Foreseen, Loader, Rounds};
pub use pages::{Connection, Edge, ListNode, Page, PageEnds, PageInfo};
pub use roots::roots_of;
pub use scalars::{DateScalar, DateTimeScalar, DecimalScalar, MoneyInput, MoneyNode};

use self::roots::Whole;
use crate::cart::graphql::{CartMutation, CartQuery, CartSubscription};
use crate::catalog::graphql::{CatalogMutation, CatalogQuery};
use crate::checkout::graphql::CheckoutMutation;
use crate::inventory::graphql::{InventoryMutation, InventorySubscription};
use crate::orders::graphql::{OrderQuery, OrderSubscription};
use crate::sessions::graphql::{SessionMutation, SessionQuery};

/// Everything that can be asked.
#[derive(MergedObject, Default)]
pub struct Query(CatalogQuery, CartQuery, OrderQuery, SessionQuery);

/// Everything that can be changed.
#[derive(MergedObject, Default)]
pub struct Mutation(
    CatalogMutation,
    InventoryMutation,
    SessionMutation,
    CartMutation,
    CheckoutMutation,
);

/// Everything that can be watched.
#[derive(MergedSubscription, Default)]
pub struct Subscription(InventorySubscription, CartSubscription, OrderSubscription);

type ShopSchema = Schema<Whole<Query>, Whole<Mutation>, Subscription>;

/// The schema in the two forms that serving needs.
///
/// async-graphql checks a document against the schema each time it executes it, which costs more
/// than executing it. So a document is checked once, by `checker`, which executes nothing; after
/// that `executor` executes it and checks no more than what can differ between two executions.
/// What differs by its nature, the variables, is checked by [`variables`].
pub struct ShopGraph {
    executor: ShopSchema,
    checker: ShopSchema,
    index: SchemaIndex,
}

impl ShopGraph {
    /// Builds the schema. Without introspection, errors do not suggest names either.
    pub fn new(introspection: bool) -> Self {
        let builder = || {
            let (query, mutation) = (Whole(Query::default()), Whole(Mutation::default()));
            let mut builder: SchemaBuilder<_, _, _> =
                Schema::build(query, mutation, Subscription::default());
            if !introspection {
                builder = builder.disable_introspection().disable_suggestions();
            }
            builder
        };
        let executor = builder().validation_mode(ValidationMode::Fast).finish();
        let checker = builder().extension(CheckOnly).finish();
        let mut index = SchemaIndex::new(&executor.sdl());
        let mut registry = Registry::default();
        Query::create_type_info(&mut registry);
        index.publish(&registry);
        Self { executor, checker, index }
    }

    /// The types of the schema, as the document checks need them.
    pub fn index(&self) -> &SchemaIndex {
        &self.index
    }

    /// The schema as text, as `schema.graphql` has it.
    pub fn sdl(&self) -> String {
        self.executor.sdl()
    }

    /// Checks a document against all rules of the specification that do not depend on variables.
    pub async fn check(&self, document: &ExecutableDocument) -> Result<(), Vec<ServerError>> {
        let mut request = Request::new("");
        // All operations are checked; one has to be named because one is about to be executed.
        let first = document.operations.iter().next().and_then(|(name, _)| name);
        request.operation_name = first.map(ToString::to_string);
        request.set_parsed_query(document.clone());
        let response = self.checker.execute(request).await;
        if response.errors.is_empty() { Ok(()) } else { Err(response.errors) }
    }

    /// Executes a request whose document has passed [`ShopGraph::check`] and is reduced by [`roots_of`].
    pub fn execute(&self, request: Request) -> impl Future<Output = Response> + use<> {
        let executor = self.executor.clone();
        async move { executor.execute(request).await }
    }

    /// Begins a subscription whose document has passed [`ShopGraph::check`]: an answer for each
    /// event.
    pub fn watch(&self, request: Request) -> BoxStream<'static, Response> {
        self.executor.execute_stream(request)
    }
}

/// Ends a request after the checks.
struct CheckOnly;

impl ExtensionFactory for CheckOnly {
    fn create(&self) -> Arc<dyn Extension> {
        Arc::new(Self)
    }
}

#[async_trait]
impl Extension for CheckOnly {
    async fn execute(
        &self,
        _: &ExtensionContext<'_>,
        _: Option<&str>,
        _: NextExecute<'_>,
    ) -> Response {
        Response::default()
    }
}
