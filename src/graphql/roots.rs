//! An operation as the executor gets it: its root fields, with nothing inside them.
//!
//! With each execution async-graphql copies the document, walks through all of it to check it once more,
//! and drops it. That was a sixth of the work of a card that is in no cache. So what is asked for inside of
//! root fields stays with the request, shared with all who ask the same, and each root field is exchanged for its whole when
//! its resolver is called.

use std::borrow::Cow;
use std::collections::HashMap;

use async_graphql::parser::types::{
    DocumentOperations, ExecutableDocument, Field, OperationDefinition, OperationType, Selection,
    SelectionSet,
};
use async_graphql::registry::Registry;
use async_graphql::{
    ContainerType, Context, ContextSelectionSet, ObjectType, OutputType, Pos, Positioned,
    ServerResult, Value,
};

use super::context::RequestContext;

/// The root fields of a flat document alone (see [`super::flatten`]). A subscription is copied whole:
/// what it gives is resolved elsewhere. So are fields of introspection, which async-graphql resolves
/// before anybody is asked.
pub fn roots_of(flat: &ExecutableDocument) -> ExecutableDocument {
    let DocumentOperations::Single(operation) = &flat.operations else { return flat.clone() };
    let OperationDefinition { ty, variable_definitions, selection_set, .. } = &operation.node;
    if *ty == OperationType::Subscription {
        return flat.clone();
    }
    let items = selection_set.node.items.iter().enumerate().map(|(place, item)| {
        let Selection::Field(field) = &item.node else { return item.clone() };
        let Field { alias, name, .. } = &field.node;
        if name.node.starts_with("__") {
            return item.clone();
        }
        let empty = Field {
            alias: alias.clone(),
            name: name.clone(),
            arguments: Vec::new(),
            directives: Vec::new(),
            selection_set: Positioned::new(SelectionSet::default(), place_mark(place)),
        };
        Positioned::new(Selection::Field(Positioned::new(empty, field.pos)), item.pos)
    });
    let roots = OperationDefinition {
        ty: *ty,
        variable_definitions: variable_definitions.clone(),
        directives: Vec::new(),
        selection_set: Positioned::new(SelectionSet { items: items.collect() }, selection_set.pos),
    };
    ExecutableDocument {
        operations: DocumentOperations::Single(Positioned::new(roots, operation.pos)),
        fragments: HashMap::new(),
    }
}

/// Where a root field stands among the others. Its selection has no position of its own that anybody
/// wants to know: that of an error is the field's.
fn place_mark(place: usize) -> Pos {
    Pos { line: place, column: 0 }
}

/// The whole of a root field.
fn whole<'a>(ctx: &Context<'a>) -> Option<&'a Positioned<Field>> {
    let flat = &ctx.data_opt::<RequestContext>()?.flat;
    let DocumentOperations::Single(operation) = &flat.operations else { return None };
    let root = &ctx.item.node;
    match &operation.node.selection_set.node.items.get(root.selection_set.pos.line)?.node {
        Selection::Field(field) if field.pos == ctx.item.pos => Some(field),
        _ => None,
    }
}

/// A root of the schema whose resolvers see all that is asked for.
pub(super) struct Whole<T>(pub(super) T);

impl<T: ObjectType> ContainerType for Whole<T> {
    async fn resolve_field(&self, ctx: &Context<'_>) -> ServerResult<Option<Value>> {
        let mut ctx = ctx.clone();
        if let Some(field) = whole(&ctx) {
            ctx.item = field;
        }
        self.0.resolve_field(&ctx).await
    }
}

impl<T: ObjectType> OutputType for Whole<T> {
    fn type_name() -> Cow<'static, str> {
        T::type_name()
    }

    fn create_type_info(registry: &mut Registry) -> String {
        T::create_type_info(registry)
    }

    async fn resolve(
        &self,
        ctx: &ContextSelectionSet<'_>,
        field: &Positioned<Field>,
    ) -> ServerResult<Value> {
        self.0.resolve(ctx, field).await
    }
}

impl<T: ObjectType> ObjectType for Whole<T> {}
