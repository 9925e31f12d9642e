//! Which operations give everybody the same answer.
//!
//! It is said field by field, beside the resolver: `#[graphql(cache_control(max_age = 1))]`. A field
//! that does not say so is taken to depend on who asks. An operation is public if all of its fields
//! are, so one field that is not keeps the whole answer out of every cache. The age itself is in
//! seconds, the grain of the attribute; how long an answer is kept is decided by what it was made of
//! (see [`crate::cache::DerivedCache`]), and is less.

use std::collections::HashSet;

use async_graphql::Name;
use async_graphql::parser::types::{
    ExecutableDocument, OperationDefinition, OperationType, Selection, SelectionSet,
};

use super::cost::root_type;
use super::index::SchemaIndex;

/// Whether everybody who may ask for an operation gets the same answer. Decided for all fields that
/// it could have, whatever its conditions say.
pub fn is_public(
    index: &SchemaIndex,
    document: &ExecutableDocument,
    operation: &OperationDefinition,
) -> bool {
    let mut walk = Walk { index, document, seen: HashSet::new() };
    operation.ty == OperationType::Query
        && walk.selection(root_type(operation.ty), &operation.selection_set.node)
}

struct Walk<'a> {
    index: &'a SchemaIndex,
    document: &'a ExecutableDocument,
    /// The fragments that were looked at.
    seen: HashSet<&'a Name>,
}

impl<'a> Walk<'a> {
    fn selection(&mut self, parent: &str, selection: &'a SelectionSet) -> bool {
        selection.items.iter().all(|item| match &item.node {
            Selection::Field(field) => {
                let name = field.node.name.node.as_str();
                if name == "__typename" {
                    // What the root is called is not worth keeping.
                    return parent != root_type(OperationType::Query);
                }
                // Introspection is not in the index.
                let info = self.index.field(parent, name).filter(|info| info.is_public);
                info.is_some_and(|info| {
                    self.selection(&info.output, &field.node.selection_set.node)
                })
            }
            Selection::InlineFragment(fragment) => {
                let on = fragment.node.type_condition.as_ref();
                let parent = on.map_or(parent, |on| on.node.on.node.as_str());
                self.selection(parent, &fragment.node.selection_set.node)
            }
            Selection::FragmentSpread(spread) => {
                let name = &spread.node.fragment_name.node;
                let Some(fragment) = self.document.fragments.get(name) else { return false };
                let on = fragment.node.type_condition.node.on.node.as_str();
                !self.seen.insert(name) || self.selection(on, &fragment.node.selection_set.node)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;

    use super::super::ShopGraph;
    use super::*;

    fn is_public_text(text: &str) -> bool {
        let graph = ShopGraph::new(true);
        let document = parse_query(text).unwrap();
        let (_, operation) = document.operations.iter().next().unwrap();
        is_public(graph.index(), &document, &operation.node)
    }

    #[test]
    fn one_field_that_depends_on_who_asks_is_enough() {
        for public in [
            "{ product(id: 1) { __typename id price { amount } stock(geoZone: \"a\") { status } } }",
            "query Q { a: categories { name ... on Category { productCount } ...F } }
             fragment F on Category { products { edges { node { ...G } } pageInfo { endCursor } } }
             fragment G on Product { id }",
            "query($c: Boolean!) { product(id: 1) { id name @include(if: $c) } }",
        ] {
            assert!(is_public_text(public), "{public}");
        }
        for private in [
            "{ __typename }",
            "{ ...F product(id: 1) { id } } fragment F on Query { __typename }",
            "{ __schema { types { name } } }",
            "{ product(id: 1) { id } __type(name: \"Product\") { name } }",
            "{ product(id: 1) { id } viewer { id } }",
            "query($c: Boolean!) { product(id: 1) { id } cart @include(if: $c) { id } }",
            "{ ... { ...F } } fragment F on Query { ...G } fragment G on Query { cart { id } }",
            "{ cart { lines { product { id } } } }",
            "mutation { productsDelete(ids: []) { deletedIds } }",
            "subscription { stockChanged(productIds: [1], geoZone: \"a\") { available } }",
        ] {
            assert!(!is_public_text(private), "{private}");
        }
    }
}
