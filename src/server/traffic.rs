//! What operations are for. Under pressure those who buy are served before those who look around.

use std::collections::HashSet;

use async_graphql::Name;
use async_graphql::parser::types::{
    ExecutableDocument, OperationDefinition, Selection, SelectionSet,
};

use crate::telemetry::Traffic;

/// The root fields of somebody who buys or has bought.
const BUYING: [&str; 16] = [
    "cart",
    "cartChanged",
    "cartClear",
    "cartLinesAdd",
    "cartLinesRemove",
    "cartLinesUpdate",
    "cartMerge",
    "checkout",
    "order",
    "orderAdvance",
    "orderCancel",
    "orderStatusChanged",
    "orders",
    "sessionEnd",
    "sessionStart",
    "viewer",
];

/// What an operation is for. It counts as buying only if all of it is: else everybody would add a
/// look at the cart.
pub(super) fn traffic_of(
    document: &ExecutableDocument,
    operation: &OperationDefinition,
) -> Traffic {
    let mut walk = Walk { document, seen: HashSet::new() };
    if walk.is_buying(&operation.selection_set.node) { Traffic::Buying } else { Traffic::Browsing }
}

struct Walk<'a> {
    document: &'a ExecutableDocument,
    /// The fragments that were looked at.
    seen: HashSet<&'a Name>,
}

impl<'a> Walk<'a> {
    fn is_buying(&mut self, selection: &'a SelectionSet) -> bool {
        selection.items.iter().all(|item| match &item.node {
            Selection::Field(field) => BUYING.contains(&field.node.name.node.as_str()),
            Selection::InlineFragment(fragment) => {
                self.is_buying(&fragment.node.selection_set.node)
            }
            Selection::FragmentSpread(spread) => {
                let name = &spread.node.fragment_name.node;
                let Some(fragment) = self.document.fragments.get(name) else { return false };
                !self.seen.insert(name) || self.is_buying(&fragment.node.selection_set.node)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;

    use super::*;
    use crate::graphql::ShopGraph;

    fn traffic(text: &str) -> Traffic {
        let document = parse_query(text).unwrap();
        let (_, operation) = document.operations.iter().next().unwrap();
        traffic_of(&document, &operation.node)
    }

    #[test]
    fn an_operation_is_of_a_buyer_if_all_of_it_is() {
        assert_eq!(traffic("{ cart { id } viewer { id } }"), Traffic::Buying);
        assert_eq!(traffic("mutation { checkout { order { id } } }"), Traffic::Buying);
        assert_eq!(traffic("{ cart { id } product(id: 1) { id } }"), Traffic::Browsing);
        let spread = |a: &str| {
            traffic(&format!(
                "{{ ... {{ ...A }} ...A }} fragment A on Query {{ ...B }} fragment B on Query {{ {a} }}"
            ))
        };
        assert_eq!(spread("cart { id }"), Traffic::Buying);
        assert_eq!(spread("cart { id } product(id: 1) { id }"), Traffic::Browsing);
        assert_eq!(traffic("mutation { productsDelete(ids: []) { ids } }"), Traffic::Browsing);
    }

    #[test]
    fn every_name_is_one_of_the_schema() {
        let graph = ShopGraph::new(true);
        for name in BUYING {
            let known = ["Query", "Mutation", "Subscription"]
                .map(|root| graph.index().field(root, name).is_some());
            assert!(known.contains(&true), "{name}");
        }
    }
}
