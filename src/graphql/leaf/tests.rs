//! Holds what is written at once and what resolvers give together, for the tests of all domains.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_graphql::parser::parse_query;
use async_graphql::{EmptyMutation, EmptySubscription, Object, Schema, Variables};
use serde_json::Value as JsonValue;

use super::*;
use crate::error::{ErrorCode, UserError};
use crate::graphql::flatten::flatten;
use crate::graphql::write_response;
use crate::money::Money;

/// An object as its resolvers give it.
struct Resolved<T>(Arc<T>);

impl<T: LeafObject + 'static> OutputType for Resolved<T> {
    fn type_name() -> Cow<'static, str> {
        T::Shape::type_name()
    }

    fn create_type_info(registry: &mut Registry) -> String {
        T::Shape::create_type_info(registry)
    }

    async fn resolve(
        &self,
        ctx: &ContextSelectionSet<'_>,
        field: &Positioned<Field>,
    ) -> ServerResult<Value> {
        T::Shape::from(&*self.0).resolve(ctx, field).await
    }
}

struct Both<T>(Arc<T>);

#[Object(name = "Query")]
impl<T: LeafObject + 'static> Both<T> {
    async fn written(&self) -> Leaf<Arc<T>> {
        Leaf(self.0.clone())
    }

    async fn resolved(&self) -> Resolved<T> {
        Resolved(self.0.clone())
    }
}

/// Checks that the object is written at once with these fields, as its resolvers give it, and that
/// its type has no other fields but those that are waited for.
pub(crate) async fn assert_written_as_resolved<T: LeafObject + 'static>(
    object: T,
    fields: &str,
    waiting: &[&str],
) {
    let type_name = T::Shape::type_name();
    let object = Arc::new(object);
    let asked = format!("{{ written {{ __typename {fields} }} }}");
    let document = parse_query(asked).unwrap();
    let (_, operation) = document.operations.iter().next().unwrap();
    let flat = flatten(&document, operation, &Variables::default()).unwrap();
    let (_, operation) = flat.operations.iter().next().unwrap();
    let root = asked_of(&operation.node.selection_set.node);
    let is_at_hand = Json::default().object(&*object, &root.node.selection_set.node);
    assert!(is_at_hand, "not all of {type_name} is at hand");

    let schema = Schema::new(Both(object), EmptyMutation, EmptySubscription);
    let query = format!(
        "{{ written {{ __typename {fields} }} resolved {{ __typename {fields} }}
            __type(name: \"{type_name}\") {{ fields {{ name }} }} }}"
    );
    let response = schema.execute(query).await;
    assert_eq!(response.errors, [], "{type_name}");
    let answer: JsonValue = serde_json::from_slice(&write_response(&response)).unwrap();
    let data = &answer["data"];
    assert_eq!(data["written"], data["resolved"], "{type_name}");
    let known = data["__type"]["fields"].as_array().unwrap();
    let known: BTreeSet<_> = known.iter().map(|field| field["name"].as_str().unwrap()).collect();
    let written = data["written"].as_object().unwrap().keys().map(String::as_str);
    let told: BTreeSet<_> = written.filter(|name| !name.starts_with("__")).collect();
    let told: BTreeSet<_> = told.into_iter().chain(waiting.iter().copied()).collect();
    assert_eq!(told, known, "{type_name}");
}

fn asked_of(selection: &SelectionSet) -> &Positioned<Field> {
    asked(selection).next().unwrap()
}

#[tokio::test]
async fn money_and_faults() {
    let price = Money::rub("89990.50".parse().unwrap());
    assert_written_as_resolved(price, "amount currencyCode", &[]).await;
    for field in [None, Some(vec!["lines".to_owned(), "0".to_owned()])] {
        let message = "Строка\n«ещё» \"и\"".to_owned();
        let fault = UserError { code: ErrorCode::TooLong, field, message };
        assert_written_as_resolved(fault, "code field message", &[]).await;
    }
}
