//! What operations are for. Under pressure those who buy are served before those who look around.

use async_graphql::Positioned;
use async_graphql::parser::types::{OperationDefinition, Selection};

use crate::telemetry::Traffic;

/// The root fields of somebody who buys or has bought.
const BUYING: [&str; 13] = [
    "cart",
    "cartClear",
    "cartLinesAdd",
    "cartLinesRemove",
    "cartLinesUpdate",
    "cartMerge",
    "checkout",
    "order",
    "orderAdvance",
    "orderCancel",
    "orders",
    "sessionStart",
    "viewer",
];

/// What an operation is for. It counts as buying only if all of it is: else everybody would add a
/// look at the cart.
pub(super) fn traffic_of(operation: &OperationDefinition) -> Traffic {
    let is_buying = |item: &Positioned<Selection>| match &item.node {
        Selection::Field(field) => BUYING.contains(&field.node.name.node.as_str()),
        _ => false,
    };
    if operation.selection_set.node.items.iter().all(is_buying) {
        Traffic::Buying
    } else {
        Traffic::Browsing
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
        traffic_of(&operation.node)
    }

    #[test]
    fn an_operation_is_of_a_buyer_if_all_of_it_is() {
        assert_eq!(traffic("{ cart { id } viewer { id } }"), Traffic::Buying);
        assert_eq!(traffic("mutation { checkout { order { id } } }"), Traffic::Buying);
        assert_eq!(traffic("{ cart { id } product(id: 1) { id } }"), Traffic::Browsing);
        assert_eq!(
            traffic("{ cart { id } ...A } fragment A on Query { cart { id } }"),
            Traffic::Browsing
        );
        assert_eq!(traffic("mutation { productsDelete(ids: []) { ids } }"), Traffic::Browsing);
    }

    #[test]
    fn every_name_is_one_of_the_schema() {
        let graph = ShopGraph::new(true);
        for name in BUYING {
            let known = ["Query", "Mutation"].map(|root| graph.index().field(root, name).is_some());
            assert!(known.contains(&true), "{name}");
        }
    }
}
