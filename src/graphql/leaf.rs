//! Objects of which every field is at hand. async-graphql makes a boxed future of each field of an
//! object; these are written at once, which is most of the cost of a card with its attributes.

use std::borrow::Cow;

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{Field, Selection};
use async_graphql::registry::Registry;
use async_graphql::{
    ContextSelectionSet, OutputType, Positioned, ServerError, ServerResult, Value,
};

/// An object whose fields need no waiting.
pub trait LeafObject: Send + Sync {
    /// The type in the schema, with the descriptions of its fields.
    type Shape: OutputType;

    /// The value of a field; `None` for one that [`LeafObject::Shape`] does not have.
    fn field(&self, name: &str) -> Option<Value>;
}

impl<T: LeafObject> LeafObject for &T {
    type Shape = T::Shape;

    fn field(&self, name: &str) -> Option<Value> {
        T::field(self, name)
    }
}

/// Puts a [`LeafObject`] into an answer. The operation is flat (see [`super::flatten`]): there are
/// no fragments to look into.
pub struct Leaf<T>(pub T);

impl<T: LeafObject> OutputType for Leaf<T> {
    fn type_name() -> Cow<'static, str> {
        T::Shape::type_name()
    }

    fn create_type_info(registry: &mut Registry) -> String {
        T::Shape::create_type_info(registry)
    }

    async fn resolve(
        &self,
        ctx: &ContextSelectionSet<'_>,
        _: &Positioned<Field>,
    ) -> ServerResult<Value> {
        let items = &ctx.item.node.items;
        let mut fields = IndexMap::with_capacity(items.len());
        for item in items {
            let Selection::Field(field) = &item.node else { continue };
            let name = field.node.name.node.as_str();
            let value = if name == "__typename" {
                Some(Value::String(Self::type_name().into_owned()))
            } else {
                self.0.field(name)
            };
            // The schema's rules let no other name through.
            let value = value.ok_or_else(|| ServerError::new("no such field", Some(item.pos)))?;
            fields.insert(field.node.response_key().node.clone(), value);
        }
        Ok(Value::Object(fields))
    }
}
