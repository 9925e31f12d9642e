//! Objects written at once. async-graphql makes a boxed future of each field of an object, and a map
//! of what they give; where every field that is asked for is at hand, that is most of the cost of a
//! card. Here such an object goes straight to JSON, and of one that has to wait for something only
//! that is resolved.

use std::borrow::Cow;
use std::ops::Deref;

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{Field, SelectionSet};
use async_graphql::registry::Registry;
use async_graphql::resolver_utils::resolve_list;
use async_graphql::{
    ContainerType, ContextSelectionSet, OutputType, Positioned, ServerResult, Value,
};
use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};

use super::flatten::asked;
use super::json::Json;

/// An object of which some fields need no waiting.
pub trait LeafObject: Send + Sync {
    /// The type in the schema, with the descriptions of its fields and a resolver for each.
    type Shape<'a>: ContainerType + From<&'a Self>
    where
        Self: 'a;

    /// Writes what the field's resolver would give, if that is at hand; answers whether it was. A
    /// test holds the two together.
    fn write(&self, field: &Field, out: &mut Json) -> bool;
}

/// What can perhaps be written at once.
pub trait AtOnce: OutputType {
    /// Writes it as far as it is asked for; answers whether all of that was at hand.
    fn write(&self, _selection: &SelectionSet, _out: &mut Json) -> bool {
        false
    }
}

/// Puts a [`LeafObject`] into an answer: what is at hand at once, the rest by its resolvers.
#[derive(Clone)]
pub struct Leaf<T>(pub T);

impl<T: Deref<Target: LeafObject + Sized> + Send + Sync> AtOnce for Leaf<T> {
    fn write(&self, selection: &SelectionSet, out: &mut Json) -> bool {
        out.object(&*self.0, selection)
    }
}

impl<T: Deref<Target: LeafObject + Sized> + Send + Sync> OutputType for Leaf<T> {
    fn type_name() -> Cow<'static, str> {
        <T::Target as LeafObject>::Shape::type_name()
    }

    fn create_type_info(registry: &mut Registry) -> String {
        <T::Target as LeafObject>::Shape::create_type_info(registry)
    }

    async fn resolve(
        &self,
        ctx: &ContextSelectionSet<'_>,
        _: &Positioned<Field>,
    ) -> ServerResult<Value> {
        resolve_object(ctx, &*self.0).await
    }
}

/// Writes the fields that are at hand, and waits for the others. The operation is flat (see
/// [`super::flatten`]): there are no fragments to look into, and no directives.
async fn resolve_object<T: LeafObject>(
    ctx: &ContextSelectionSet<'_>,
    object: &T,
) -> ServerResult<Value> {
    let selection = &ctx.item.node;
    let mut out = Json::of(ctx);
    let mut values = Vec::with_capacity(selection.items.len());
    let mut waiting = Vec::new();
    out.raw(b"{");
    for (place, field) in asked(selection).enumerate() {
        out.key(place, &field.node);
        let begin = out.len();
        if out.field(object, &field.node) {
            values.push(Some(begin..out.len()));
        } else {
            out.cut(begin);
            values.push(None);
            waiting.push(field);
        }
    }
    out.raw(b"}");
    let written = Bytes::from(out.into_bytes());
    if waiting.is_empty() {
        return Ok(Value::Binary(written));
    }
    let shape = &T::Shape::from(object);
    // Boxed because types lead to each other: a product to its stock, and that to the product.
    let resolve = |field| -> BoxFuture<'_, ServerResult<Option<Value>>> {
        Box::pin(async move {
            let ctx = ctx.with_field(field);
            shape.resolve_field(&ctx).await
        })
    };
    let mut waited = join_all(waiting.into_iter().map(resolve)).await.into_iter();
    let mut fields = IndexMap::with_capacity(values.len());
    for (field, value) in asked(selection).zip(values) {
        let value = match value {
            Some(range) => Value::Binary(written.slice(range)),
            None => match waited.next() {
                Some(Ok(value)) => value.unwrap_or_default(),
                // What failed is left out; see [`super::complete`].
                Some(Err(error)) => {
                    ctx.add_error(error);
                    continue;
                }
                None => continue,
            },
        };
        fields.insert(field.node.response_key().node.clone(), value);
    }
    Ok(Value::Object(fields))
}

impl<A: AtOnce> AtOnce for Option<A> {
    fn write(&self, selection: &SelectionSet, out: &mut Json) -> bool {
        match self {
            Some(there) => there.write(selection, out),
            None => out.null(),
        }
    }
}

/// A list that is written at once if all that is asked of it is at hand.
pub struct Leaves<A>(pub Vec<A>);

impl<A> FromIterator<A> for Leaves<A> {
    fn from_iter<I: IntoIterator<Item = A>>(items: I) -> Self {
        Self(items.into_iter().collect())
    }
}

impl<A: AtOnce> OutputType for Leaves<A> {
    fn type_name() -> Cow<'static, str> {
        Vec::<A>::type_name()
    }

    fn qualified_type_name() -> String {
        <Vec<A> as OutputType>::qualified_type_name()
    }

    fn create_type_info(registry: &mut Registry) -> String {
        <Vec<A> as OutputType>::create_type_info(registry)
    }

    async fn resolve(
        &self,
        ctx: &ContextSelectionSet<'_>,
        field: &Positioned<Field>,
    ) -> ServerResult<Value> {
        let mut out = Json::of(ctx);
        if out.list(&self.0, &ctx.item.node) {
            return Ok(Value::Binary(out.into_bytes().into()));
        }
        resolve_list(ctx, field, &self.0, Some(self.0.len())).await
    }
}

#[cfg(test)]
pub(crate) mod tests;
