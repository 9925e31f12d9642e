//! The order of an answer's fields: that of the query, as the specification says. async-graphql
//! puts them in the order in which they were ready.

use std::collections::HashMap;

use async_graphql::parser::types::{FragmentDefinition, Selection, SelectionSet};
use async_graphql::{Name, Positioned, Value};

type Fragments = HashMap<Name, Positioned<FragmentDefinition>>;

/// Puts the fields of `value` and of everything in it in the order of the selection. Fields with
/// one response key are one field: the first one says where it stands, all say what is in it.
pub fn restore(value: &mut Value, selection: &SelectionSet, fragments: &Fragments) {
    restore_all(value, &[selection], fragments);
}

fn restore_all(value: &mut Value, selections: &[&SelectionSet], fragments: &Fragments) {
    match value {
        Value::List(items) => {
            for item in items {
                restore_all(item, selections, fragments);
            }
        }
        Value::Object(fields) => {
            let mut asked: Vec<(&Name, Vec<&SelectionSet>)> = Vec::with_capacity(fields.len());
            for selection in selections {
                collect(selection, fragments, &mut asked);
            }
            // Most answers are in order already; sorting them would only cost.
            let mut at = 0;
            for (key, inside) in &asked {
                // Not there: of a fragment on another type, or left out by a directive.
                let Some(found) = fields.get_index_of(*key) else { continue };
                if found != at {
                    fields.move_index(found, at);
                }
                at += 1;
                if !inside.is_empty()
                    && let Some(value) = fields.get_mut(*key)
                {
                    restore_all(value, inside, fragments);
                }
            }
        }
        _ => {}
    }
}

fn collect<'a>(
    selection: &'a SelectionSet,
    fragments: &'a Fragments,
    asked: &mut Vec<(&'a Name, Vec<&'a SelectionSet>)>,
) {
    for item in &selection.items {
        match &item.node {
            Selection::Field(field) => {
                let key = &field.node.response_key().node;
                let inside = &field.node.selection_set.node;
                let inside = (!inside.items.is_empty()).then_some(inside);
                match asked.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, insides)) => insides.extend(inside),
                    None => asked.push((key, inside.into_iter().collect())),
                }
            }
            Selection::InlineFragment(inline) => {
                collect(&inline.node.selection_set.node, fragments, asked);
            }
            Selection::FragmentSpread(spread) => {
                if let Some(fragment) = fragments.get(&spread.node.fragment_name.node) {
                    collect(&fragment.node.selection_set.node, fragments, asked);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;

    use super::*;

    #[test]
    fn follows_the_query_through_lists_aliases_and_fragments() {
        let query =
            "{ z: a { c ...F } b a2: a { y } ... { last } } fragment F on X { d c { e f } }";
        let document = parse_query(query).unwrap();
        let (_, operation) = document.operations.iter().next().unwrap();
        let mut value = Value::from_json(serde_json::json!({
            "last": 1, "a2": { "y": null }, "b": 2,
            "z": [{ "d": 3, "c": { "f": 4, "e": 5 } }, null],
        }))
        .unwrap();
        restore(&mut value, &operation.node.selection_set.node, &document.fragments);
        assert_eq!(
            serde_json::to_string(&value).unwrap(),
            r#"{"z":[{"c":{"e":5,"f":4},"d":3},null],"b":2,"a2":{"y":null},"last":1}"#
        );
    }
}
