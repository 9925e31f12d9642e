//! Variables against the types their operation declares, as the specification asks before
//! anything is executed. Messages name the place, never the value.

use async_graphql::parser::types::{BaseType, Type, VariableDefinition};
use async_graphql::{Positioned, ScalarType, Value, Variables};

use super::index::{InputInfo, SchemaIndex};
use super::scalars::{DateTimeScalar, DecimalScalar};

/// Says what is wrong with the variables, if anything is; fills in defaults.
pub fn coerce(
    index: &SchemaIndex,
    definitions: &[Positioned<VariableDefinition>],
    variables: &mut Variables,
) -> Result<(), String> {
    for definition in definitions {
        let VariableDefinition { name, var_type, default_value, .. } = &definition.node;
        let path = Path::Root(&name.node);
        match variables.get(&name.node) {
            Some(value) => check_value(index, &var_type.node, value, &path)?,
            None => match default_value {
                Some(value) => {
                    variables.insert(name.node.clone(), value.node.clone());
                }
                None if var_type.node.nullable => {}
                None => return Err(path.fault("is required")),
            },
        }
    }
    Ok(())
}

/// Where in the variables a value stands; put into words only when something is wrong there.
enum Path<'a> {
    Root(&'a str),
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    fn write(&self, out: &mut String) {
        match self {
            Self::Root(name) => {
                out.push('$');
                out.push_str(name);
            }
            Self::Field(parent, name) => {
                parent.write(out);
                out.push('.');
                out.push_str(name);
            }
            Self::Item(parent, index) => {
                parent.write(out);
                out.push('.');
                out.push_str(&index.to_string());
            }
        }
    }

    fn fault(&self, fault: &str) -> String {
        let mut message = "Variable \"".to_owned();
        self.write(&mut message);
        message.push_str("\" ");
        message.push_str(fault);
        message.push('.');
        message
    }
}

fn check_value(
    index: &SchemaIndex,
    ty: &Type,
    value: &Value,
    path: &Path<'_>,
) -> Result<(), String> {
    if matches!(value, Value::Null) {
        return if ty.nullable { Ok(()) } else { Err(path.fault("must not be null")) };
    }
    match (&ty.base, value) {
        (BaseType::List(item), Value::List(values)) => {
            for (position, value) in values.iter().enumerate() {
                check_value(index, item, value, &Path::Item(path, position))?;
            }
            Ok(())
        }
        // A single value stands for a list of one.
        (BaseType::List(item), value) => check_value(index, item, value, path),
        (BaseType::Named(name), value) => match index.input(name) {
            Some(InputInfo::Scalar) => check_scalar(name, value, path),
            Some(InputInfo::Enum(names)) => match value {
                Value::String(text) if names.contains(text.as_str()) => Ok(()),
                Value::Enum(text) if names.contains(text) => Ok(()),
                _ => Err(path.fault(&format!("must be a value of the enum {name}"))),
            },
            Some(InputInfo::Object(fields)) => {
                let Value::Object(values) = value else {
                    return Err(path.fault(&format!("must be an object of type {name}")));
                };
                if values.keys().any(|key| !fields.contains_key(key)) {
                    return Err(path.fault(&format!("has a field that {name} does not know")));
                }
                for (field, info) in fields {
                    let path = Path::Field(path, field);
                    match values.get(field) {
                        Some(value) => check_value(index, &info.ty, value, &path)?,
                        None if info.ty.nullable || info.has_default => {}
                        None => return Err(path.fault("is required")),
                    }
                }
                Ok(())
            }
            // The document check refuses types that do not exist.
            None => Err(path.fault("has an unknown type")),
        },
    }
}

fn check_scalar(name: &str, value: &Value, path: &Path<'_>) -> Result<(), String> {
    let sound = match (name, value) {
        ("Int", Value::Number(number)) => {
            number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
        }
        ("Float", Value::Number(_))
        | ("String" | "ID", Value::String(_))
        | ("Boolean", Value::Boolean(_)) => true,
        ("ID", Value::Number(number)) => number.is_i64() || number.is_u64(),
        ("Int" | "Float" | "String" | "Boolean" | "ID", _) => false,
        // Asked here too, because their own refusal does not know the place.
        ("Decimal", value) => DecimalScalar::is_valid(value),
        ("DateTime", value) => DateTimeScalar::is_valid(value),
        _ => !matches!(value, Value::Object(_) | Value::List(_)),
    };
    if sound { Ok(()) } else { Err(path.fault(&format!("must be of type {name}"))) }
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;

    use super::*;
    use crate::graphql::ShopGraph;

    fn fault(query: &str, variables: serde_json::Value) -> Option<String> {
        let document = parse_query(query).unwrap();
        let (_, operation) = document.operations.iter().next().unwrap();
        let mut variables = Variables::from_json(variables);
        let graph = ShopGraph::new(true);
        coerce(graph.index(), &operation.node.variable_definitions, &mut variables).err()
    }

    #[test]
    fn accepts_what_the_types_say() {
        let query =
            "query($id: ID!, $ids: [ID!]! = [], $n: Int, $p: [ProductInput!]) { __typename }";
        let product = serde_json::json!({
            "id": 7, "name": "x", "category": "y", "price": { "amount": "1.00" },
            "attributes": [{ "name": "a", "value": "b" }],
        });
        let variables = serde_json::json!({ "id": "a", "ids": ["b", 1], "n": null, "p": product });
        assert_eq!(fault(query, variables), None);
    }

    #[test]
    fn names_the_place_and_not_the_value() {
        let query = "query($id: ID!, $n: Int, $p: [ProductInput!]) { __typename }";
        for (variables, message) in [
            (serde_json::json!({}), "Variable \"$id\" is required."),
            (serde_json::json!({ "id": null }), "Variable \"$id\" must not be null."),
            (serde_json::json!({ "id": {} }), "Variable \"$id\" must be of type ID."),
            (serde_json::json!({ "id": 1.5 }), "Variable \"$id\" must be of type ID."),
            (
                serde_json::json!({ "id": 1, "n": 2_147_483_648_u32 }),
                "Variable \"$n\" must be of type Int.",
            ),
            (
                serde_json::json!({ "id": 1, "p": {
                    "id": 1, "name": "x", "category": "y", "price": { "amount": true } } }),
                "Variable \"$p.price.amount\" must be of type Decimal.",
            ),
            (serde_json::json!({ "id": 1, "p": [{}, 1] }), "Variable \"$p.0."),
            (
                serde_json::json!({ "id": 1, "p": { "x": 1 } }),
                "Variable \"$p\" has a field that ProductInput does not know.",
            ),
        ] {
            let found = fault(query, variables).unwrap();
            assert!(found.starts_with(message), "{found}");
        }
    }
}
