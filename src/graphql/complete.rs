//! An answer as the specification wants it. async-graphql puts fields in the order in which they
//! were ready and leaves out those that failed; here they come into the order of the query, a
//! field that failed is null, and null that must not be takes its parent with it.

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{BaseType, ExecutableDocument, Field, SelectionSet, Type};
use async_graphql::{Name, Value};

use super::cost::root_type;
use super::flatten::asked;
use super::index::SchemaIndex;

/// Completes the data that an operation gave. The document is flat: see [`super::flatten`]. Pieces
/// that were written at once are complete: see [`super::json`].
pub fn complete(data: &mut Value, document: &ExecutableDocument, index: &SchemaIndex) {
    let Some((_, operation)) = document.operations.iter().next() else { return };
    // With nothing to show, the executor shows null.
    if matches!(data, Value::Null) {
        *data = Value::Object(IndexMap::new());
    }
    let selection = &operation.node.selection_set.node;
    if !complete_value(data, None, root_type(operation.node.ty), selection, index) {
        *data = Value::Null;
    }
}

/// Completes a value of a type (`None`: an object that must be there, or one that the index does
/// not know). Answers false if it is null and must not be.
fn complete_value(
    value: &mut Value,
    ty: Option<&Type>,
    object: &str,
    selection: &SelectionSet,
    index: &SchemaIndex,
) -> bool {
    let is_nullable = ty.is_some_and(|ty| ty.nullable);
    let is_sound = match value {
        Value::Null => ty.is_none() || is_nullable,
        Value::List(items) => {
            let item_type = match ty.map(|ty| &ty.base) {
                Some(BaseType::List(item)) => Some(item.as_ref()),
                _ => None,
            };
            items.iter_mut().all(|item| complete_value(item, item_type, object, selection, index))
        }
        Value::Object(fields) => complete_object(fields, object, selection, index),
        _ => true,
    };
    if !is_sound && is_nullable {
        *value = Value::Null;
    }
    is_sound || is_nullable
}

fn complete_object(
    fields: &mut IndexMap<Name, Value>,
    object: &str,
    selection: &SelectionSet,
    index: &SchemaIndex,
) -> bool {
    let mut at = 0;
    for field in asked(selection) {
        let field: &Field = &field.node;
        let info = index.field(object, &field.name.node);
        let key = &field.response_key().node;
        match fields.get_index_of(key) {
            // Most answers are in order already.
            Some(found) if found == at => {}
            Some(found) => fields.move_index(found, at),
            // It failed. Of introspection, which the index does not know, nothing fails.
            None if info.is_none_or(|info| !info.ty.nullable) => return false,
            None => {
                fields.shift_insert(at, key.clone(), Value::Null);
            }
        }
        let inside = &field.selection_set.node;
        if !inside.items.is_empty() || info.is_some_and(|info| !info.ty.nullable) {
            let (ty, object) = info.map_or((None, ""), |info| (Some(&info.ty), &*info.output));
            if let Some((_, value)) = fields.get_index_mut(at)
                && !complete_value(value, ty, object, inside, index)
            {
                return false;
            }
        }
        at += 1;
    }
    // What nobody asked for stood in for nothing.
    fields.truncate(at);
    true
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;
    use serde_json::json;

    use super::*;

    const SCHEMA: &str = "type Query { a: A b: B! c: [B!] d: [B] n: Int }
                          type A { x: Int y: Int! b: B! } type B { x: Int y: Int! }";

    fn completed(query: &str, data: serde_json::Value) -> String {
        let mut data = Value::from_json(data).unwrap();
        complete(&mut data, &parse_query(query).unwrap(), &SchemaIndex::new(SCHEMA));
        serde_json::to_string(&data).unwrap()
    }

    #[test]
    fn fields_come_in_the_order_of_the_query() {
        let query = "{ d { y x } z: a { y x } n }";
        let data = json!({ "n": 1, "z": { "x": 2, "y": 3 }, "d": [{ "x": 4, "y": 5 }, null] });
        let expected = r#"{"d":[{"y":5,"x":4},null],"z":{"y":3,"x":2},"n":1}"#;
        assert_eq!(completed(query, data), expected);
    }

    #[test]
    fn a_field_that_failed_is_null_or_takes_its_parent_with_it() {
        for (query, data, expected) in [
            ("{ n a { x } }", json!({ "a": { "x": 1 } }), r#"{"n":null,"a":{"x":1}}"#),
            ("{ n }", json!(null), r#"{"n":null}"#),
            ("{ a { x y } n }", json!({ "a": { "x": 1 }, "n": 1 }), r#"{"a":null,"n":1}"#),
            ("{ a { b { y } } n }", json!({ "a": { "b": null }, "n": 1 }), r#"{"a":null,"n":1}"#),
            ("{ a { y } n }", json!({ "a": { "y": null }, "n": 1 }), r#"{"a":null,"n":1}"#),
            ("{ b { x } n }", json!({ "n": 1 }), "null"),
            ("{ c { y } n }", json!({ "c": [{ "y": 1 }, {}], "n": 1 }), r#"{"c":null,"n":1}"#),
            ("{ d { y } }", json!({ "d": [{ "y": 1 }, {}] }), r#"{"d":[{"y":1},null]}"#),
        ] {
            assert_eq!(completed(query, data), expected, "{query}");
        }
    }
}
