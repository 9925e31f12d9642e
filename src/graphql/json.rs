//! Answers as JSON. What needs no waiting is written where it is resolved, and goes through the
//! executor as a piece that is finished; the rest is written when the answer is.
//!
//! async-graphql has no value for JSON that is there already. Its value for bytes carries it: no
//! scalar of ours is made of bytes.

use std::fmt::Display;
use std::io::Write;

use async_graphql::parser::types::{Field, SelectionSet};
use async_graphql::resolver_utils::EnumType;
use async_graphql::{ContextBase, ContextSelectionSet, OutputType, Response, Value};
use serde::Serialize;

use super::context::RequestContext;
use super::flatten::asked;
use super::leaf::{AtOnce, LeafObject};

/// The most room that is made for a list because its first item is long.
const MOST_FORESEEN: usize = 64 << 10;
/// Room for an object of usual size, so that its buffer does not grow step by step.
const USUAL_BYTES: usize = 512;

/// JSON that is being written. What writes a value answers whether it was at hand; what was written
/// of one that was not is of no use.
pub struct Json<'c> {
    bytes: Vec<u8>,
    /// The request that it answers; in a test there may be none.
    ctx: Option<&'c ContextSelectionSet<'c>>,
}

impl Default for Json<'_> {
    fn default() -> Self {
        Self { bytes: Vec::with_capacity(USUAL_BYTES), ctx: None }
    }
}

impl<'c> Json<'c> {
    /// A part of the answer to a request: what its loaders have read is at hand, too.
    pub(super) fn of(ctx: &'c ContextSelectionSet<'c>) -> Self {
        Self { ctx: Some(ctx), ..Self::default() }
    }

    /// The data of the request that it answers.
    pub fn request(&self) -> Option<&'c RequestContext> {
        self.ctx.and_then(ContextBase::data_opt)
    }

    /// The text that a field is given for an argument, if it is one and is told in the request:
    /// what a resolver makes of anything else is its own affair.
    pub fn text_argument(&self, field: &Field, name: &str) -> Option<String> {
        let variables = &self.ctx?.query_env.variables;
        let told = field.get_argument(name)?.node.clone();
        match told.into_const_with(|name| variables.get(&name).cloned().ok_or(())) {
            Ok(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// A text.
    pub fn text(&mut self, text: &str) -> bool {
        self.value(text)
    }

    /// A text, or null.
    pub fn text_or_null(&mut self, text: Option<&str>) -> bool {
        match text {
            Some(text) => self.text(text),
            None => self.null(),
        }
    }

    /// A text of which nothing has to be escaped: an id of our own making, a number, a time.
    pub fn plain(&mut self, value: impl Display) -> bool {
        // Writing to memory does not fail.
        let _ = write!(self.bytes, "\"{value}\"");
        true
    }

    /// The same, or null.
    pub fn plain_or_null(&mut self, value: Option<impl Display>) -> bool {
        match value {
            Some(value) => self.plain(value),
            None => self.null(),
        }
    }

    /// A value of an enum.
    pub fn name<T: EnumType>(&mut self, value: T) -> bool {
        let item = T::items().iter().find(|item| item.value == value);
        item.is_some_and(|item| self.plain(item.name))
    }

    /// A number, a list of texts or whatever else can be written as it is.
    pub fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> bool {
        // Writing to memory does not fail.
        serde_json::to_writer(&mut self.bytes, value).is_ok()
    }

    /// Nothing.
    pub fn null(&mut self) -> bool {
        self.raw(b"null")
    }

    /// An object, as far as it is asked for.
    pub fn object<T: LeafObject>(&mut self, object: &T, selection: &SelectionSet) -> bool {
        self.raw(b"{");
        for (place, field) in asked(selection).enumerate() {
            self.key(place, &field.node);
            if !self.field(object, &field.node) {
                return false;
            }
        }
        self.raw(b"}")
    }

    /// A list of objects.
    pub fn objects<T: LeafObject>(&mut self, objects: &[T], selection: &SelectionSet) -> bool {
        self.each(objects, |out, object| out.object(object, selection))
    }

    /// A list of what can perhaps be written at once.
    pub fn list<'a, A: AtOnce + 'a>(
        &mut self,
        items: impl IntoIterator<Item = &'a A>,
        selection: &SelectionSet,
    ) -> bool {
        self.each(items, |out, item| item.write(selection, out))
    }

    /// A list of anything, each written by itself.
    pub fn each<I>(
        &mut self,
        items: impl IntoIterator<Item = I>,
        write: impl Fn(&mut Self, I) -> bool,
    ) -> bool {
        self.raw(b"[");
        let (begin, mut items) = (self.len(), items.into_iter());
        for place in 0.. {
            let Some(item) = items.next() else { break };
            if place == 1 {
                // The others are about as long as the first.
                let room = (self.len() - begin).saturating_mul(items.size_hint().0 + 1);
                self.bytes.reserve(room.saturating_add(room / 4).min(MOST_FORESEEN));
            }
            if place > 0 {
                self.raw(b",");
            }
            if !write(self, item) {
                return false;
            }
        }
        self.raw(b"]")
    }

    /// A field's value.
    pub(super) fn field<T: LeafObject>(&mut self, object: &T, field: &Field) -> bool {
        if field.name.node == "__typename" {
            return self.plain(T::Shape::type_name());
        }
        object.write(field, self)
    }

    /// What stands before the value of the field at a place among others.
    pub(super) fn key(&mut self, place: usize, field: &Field) {
        self.raw(if place == 0 { b"\"" } else { b",\"" });
        // Of a name nothing has to be escaped.
        self.raw(field.response_key().node.as_bytes());
        self.raw(b"\":");
    }

    /// How much has been written.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes back what was written after so much.
    pub(super) fn cut(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> bool {
        self.bytes.extend_from_slice(bytes);
        true
    }

    /// What was written.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A value of the executor's, with the pieces in it that are finished.
    fn answer(&mut self, value: &Value) -> bool {
        match value {
            Value::Null => self.null(),
            Value::Number(number) => self.value(number),
            Value::String(text) => self.text(text),
            Value::Boolean(is_so) => self.value(is_so),
            Value::Binary(piece) => self.raw(piece),
            Value::Enum(name) => self.text(name),
            Value::List(items) => self.each(items, Self::answer),
            Value::Object(fields) => self.entries(fields.iter()),
        }
    }

    fn entries<'a, K: AsRef<str>>(
        &mut self,
        entries: impl Iterator<Item = (K, &'a Value)>,
    ) -> bool {
        self.raw(b"{");
        for (place, (name, value)) in entries.enumerate() {
            if place > 0 {
                self.raw(b",");
            }
            self.text(name.as_ref());
            self.raw(b":");
            self.answer(value);
        }
        self.raw(b"}")
    }
}

/// An answer as it goes to the client, with what async-graphql itself would write.
pub fn write_response(response: &Response) -> Vec<u8> {
    let mut out = Json::default();
    out.raw(b"{\"data\":");
    out.answer(&response.data);
    if !response.extensions.is_empty() {
        out.raw(b",\"extensions\":");
        out.entries(response.extensions.iter());
    }
    if !response.errors.is_empty() {
        out.raw(b",\"errors\":");
        out.value(&response.errors);
    }
    out.raw(b"}");
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use async_graphql::ServerError;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_written_as_its_library_writes_it() {
        let data = json!({ "a": [1, -2.5, true, null, "«я»\n\"\\\u{1}"], "b": {}, "c": [] });
        let mut response = Response::new(Value::from_json(data).unwrap());
        let same = |response: &Response| {
            let written = String::from_utf8(write_response(response)).unwrap();
            assert_eq!(written, serde_json::to_string(response).unwrap());
        };
        same(&response);
        response.extensions.insert("reads\"".to_owned(), Value::from(1));
        same(&response);
        response.errors.push(ServerError::new("no", None));
        same(&response);
        same(&Response::from_errors(vec![ServerError::new("no", None)]));
    }
}
