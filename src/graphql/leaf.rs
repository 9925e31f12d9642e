//! Objects written at once. async-graphql makes a boxed future of each field of an object; where
//! every field that is asked for is at hand, that is most of the cost of a card.

use std::borrow::Cow;

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{Field, Selection, SelectionSet};
use async_graphql::registry::Registry;
use async_graphql::{ContextSelectionSet, OutputType, Positioned, ServerResult, Value};

/// An object of which some fields need no waiting.
pub trait LeafObject: Send + Sync {
    /// The type in the schema, with the descriptions of its fields and a resolver for each.
    type Shape<'a>: OutputType + From<&'a Self>
    where
        Self: 'a;

    /// The value of a field; `None` for one that has to be waited for.
    fn field(&self, field: &Field) -> Option<Value>;
}

/// The object as far as it is asked for; `None` if something of it has to be waited for. The
/// operation is flat (see [`super::flatten`]): there are no fragments to look into.
pub fn write_object<T: LeafObject>(object: &T, selection: &SelectionSet) -> Option<Value> {
    let mut fields = IndexMap::with_capacity(selection.items.len());
    for item in &selection.items {
        let Selection::Field(field) = &item.node else { continue };
        let value = if field.node.name.node == "__typename" {
            Value::String(T::Shape::type_name().into_owned())
        } else {
            object.field(&field.node)?
        };
        fields.insert(field.node.response_key().node.clone(), value);
    }
    Some(Value::Object(fields))
}

/// Puts a [`LeafObject`] into an answer: at once if that can be, else by its resolvers.
#[derive(Clone)]
pub struct Leaf<T>(pub T);

impl<T: std::ops::Deref<Target: LeafObject + Sized> + Send + Sync> OutputType for Leaf<T> {
    fn type_name() -> Cow<'static, str> {
        <T::Target as LeafObject>::Shape::type_name()
    }

    fn create_type_info(registry: &mut Registry) -> String {
        <T::Target as LeafObject>::Shape::create_type_info(registry)
    }

    async fn resolve(
        &self,
        ctx: &ContextSelectionSet<'_>,
        field: &Positioned<Field>,
    ) -> ServerResult<Value> {
        match write_object(&*self.0, &ctx.item.node) {
            Some(object) => Ok(object),
            None => <T::Target as LeafObject>::Shape::from(&*self.0).resolve(ctx, field).await,
        }
    }
}
