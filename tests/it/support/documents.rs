//! Requests made from the schema: every field, argument and input type of it, with fragments,
//! aliases, conditions and variables, from a list of choices that a test makes up.

use std::collections::HashMap;
use std::fmt::Write;

use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{
    BaseType, FieldDefinition, InputValueDefinition, Type, TypeKind, TypeSystemDefinition,
};
use serde_json::{Map, Value, json};
use vitrina::graphql::ShopGraph;

/// Fragments that each spread the next one twice.
pub fn bomb(levels: usize) -> String {
    let mut text = String::new();
    for level in 0..levels {
        let next = level + 1;
        write!(text, " fragment F{level} on Query {{ ...F{next} ...F{next} }}").unwrap();
    }
    write!(text, " fragment F{levels} on Query {{ __typename }}").unwrap();
    text
}

/// How deep fields nest at the most: beyond the server's limit too.
const MAX_DEPTH: usize = 17;
/// Texts, some of which the shop knows and some of which it must refuse.
const TEXTS: &[&str] = &[
    "1",
    "2",
    "Книги",
    "Москва",
    "key-1",
    "key-2",
    "RUB",
    "card",
    "",
    " ",
    "404",
    "\u{0}",
    "\u{202E}",
    "a\"\\\n",
    "00000000-0000-7000-8000-000000000000",
    "2026-11-15",
    "2026-11-15T10:00:00Z",
    "9999-12-31T23:59:59Z",
    "1.50",
    "-0.001",
    "1e400",
    "79228162514264337593543950336",
    "ß😀",
];
const NUMBERS: &[i64] = &[
    1,
    2,
    0,
    -1,
    3,
    10,
    100,
    101,
    999,
    1_000,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 31,
    i64::MIN,
];

/// Choices, one after the other; when they are used up, always the first one: the simplest.
pub struct Choices<'a>(std::slice::Iter<'a, u8>);

impl<'a> Choices<'a> {
    pub fn new(choices: &'a [u8]) -> Self {
        Self(choices.iter())
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0.next().map_or(0, |choice| usize::from(*choice) % bound)
    }

    /// True once in `times`; never when the choices are used up.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    fn of<'b, T>(&mut self, items: &'b [T]) -> &'b T {
        &items[self.below(items.len())]
    }

    fn are_used_up(&self) -> bool {
        self.0.len() == 0
    }
}

/// The types of the schema by name.
pub struct Types {
    objects: HashMap<String, Vec<FieldDefinition>>,
    inputs: HashMap<String, Vec<InputValueDefinition>>,
    enums: HashMap<String, Vec<String>>,
}

impl Types {
    pub fn of_the_shop() -> Self {
        let mut types =
            Self { objects: HashMap::new(), inputs: HashMap::new(), enums: HashMap::new() };
        for definition in parse_schema(ShopGraph::new(true).sdl()).unwrap().definitions {
            let TypeSystemDefinition::Type(ty) = definition else { continue };
            let name = ty.node.name.node.to_string();
            match ty.node.kind {
                TypeKind::Object(object) => {
                    let fields = object.fields.into_iter().map(|field| field.node).collect();
                    types.objects.insert(name, fields);
                }
                TypeKind::InputObject(object) => {
                    let fields = object.fields.into_iter().map(|field| field.node).collect();
                    types.inputs.insert(name, fields);
                }
                TypeKind::Enum(values) => {
                    let names = values.values.iter().map(|value| value.node.value.node.to_string());
                    types.enums.insert(name, names.collect());
                }
                _ => {}
            }
        }
        types
    }

    /// A request, as it is posted.
    pub fn request(&self, choices: &mut Choices<'_>) -> Value {
        let (kind, root) = match choices.below(12) {
            0..6 => ("query", "Query"),
            6..11 => ("mutation", "Mutation"),
            _ => ("subscription", "Subscription"),
        };
        let mut writing = Writing {
            types: self,
            choices,
            fragments: Vec::new(),
            declared: String::new(),
            variables: Map::new(),
        };
        let selection = writing.selection(root, 0);
        let Writing { fragments, declared, variables, .. } = writing;
        let declared = if declared.is_empty() { declared } else { format!("({declared})") };
        let mut text = format!("{kind} {declared} {selection}");
        for (n, (ty, selection)) in fragments.iter().enumerate() {
            write!(text, " fragment F{n} on {ty} {selection}").unwrap();
        }
        json!({ "query": text, "variables": variables })
    }
}

/// A value, which can be written as GraphQL and as JSON.
enum Sample {
    Json(Value),
    Enum(String),
    List(Vec<Sample>),
    Object(Vec<(String, Sample)>),
}

impl Sample {
    fn graphql(&self) -> String {
        match self {
            // A string of JSON is one of GraphQL.
            Self::Json(value) => value.to_string(),
            Self::Enum(name) => name.clone(),
            Self::List(items) => {
                format!("[{}]", items.iter().map(Self::graphql).collect::<Vec<_>>().join(" "))
            }
            Self::Object(fields) => {
                let field = |(name, value): &(String, Self)| format!("{name}: {}", value.graphql());
                format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(" "))
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Json(value) => value.clone(),
            Self::Enum(name) => json!(name),
            Self::List(items) => items.iter().map(Self::json).collect(),
            Self::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), value.json())).collect()
            }
        }
    }
}

struct Writing<'a, 'b> {
    types: &'a Types,
    choices: &'a mut Choices<'b>,
    /// The type and the selection of each fragment; a selection is empty while it is written.
    fragments: Vec<(String, String)>,
    declared: String,
    variables: Map<String, Value>,
}

impl Writing<'_, '_> {
    fn selection(&mut self, ty: &str, depth: usize) -> String {
        let mut text = "{".to_owned();
        for _ in 0..=self.choices.below(4) {
            text.push(' ');
            match self.choices.below(10) {
                8 => {
                    let condition = self.condition();
                    let bare = self.choices.once_in(2);
                    let on = if bare { String::new() } else { format!(" on {ty}") };
                    let inside = self.selection(ty, depth);
                    write!(text, "...{on}{condition} {inside}").unwrap();
                }
                9 => {
                    let n = self.fragment(ty, depth);
                    write!(text, "...F{n}{}", self.condition()).unwrap();
                }
                _ => text.push_str(&self.field(ty, depth)),
            }
            if self.choices.are_used_up() {
                break;
            }
        }
        text + " }"
    }

    /// The number of a fragment on this type: one that is there, perhaps not yet at its end, which
    /// makes a cycle, or a new one.
    fn fragment(&mut self, ty: &str, depth: usize) -> usize {
        let finished = !self.choices.once_in(20);
        let known = self
            .fragments
            .iter()
            .position(|(on, selection)| on == ty && (!finished || !selection.is_empty()));
        if let Some(known) = known {
            return known;
        }
        self.fragments.push((ty.to_owned(), String::new()));
        let n = self.fragments.len() - 1;
        self.fragments[n].1 = self.selection(ty, depth);
        n
    }

    fn field(&mut self, ty: &str, depth: usize) -> String {
        let fields = &self.types.objects[ty];
        if self.choices.are_used_up() || depth >= MAX_DEPTH || self.choices.once_in(12) {
            return "__typename".to_owned();
        }
        let field = self.choices.of(fields);
        let mut text = String::new();
        // Few names, so that some are used twice.
        if self.choices.once_in(3) {
            write!(text, "a{}: ", self.choices.below(6)).unwrap();
        }
        text.push_str(&field.name.node);
        let arguments = self.arguments(&field.arguments);
        if !arguments.is_empty() {
            write!(text, "({arguments})").unwrap();
        }
        text.push_str(&self.condition());
        let inside = base_of(&field.ty.node);
        if self.types.objects.contains_key(inside) {
            write!(text, " {}", self.selection(inside, depth + 1)).unwrap();
        }
        text
    }

    fn condition(&mut self) -> String {
        if !self.choices.once_in(8) {
            return String::new();
        }
        let directive = *self.choices.of(&["@include", "@skip"]);
        let value = self.choices.once_in(2);
        let value = match self.choices.below(3) {
            0 => value.to_string(),
            _ => self.variable("Boolean!", json!(value)),
        };
        format!(" {directive}(if: {value})")
    }

    fn variable(&mut self, ty: &str, value: Value) -> String {
        let name = format!("v{}", self.variables.len());
        write!(self.declared, "${name}: {ty} ").unwrap();
        self.variables.insert(name.clone(), value);
        format!("${name}")
    }

    fn arguments(
        &mut self,
        definitions: &[async_graphql::Positioned<InputValueDefinition>],
    ) -> String {
        let mut written = Vec::new();
        for definition in definitions {
            let InputValueDefinition { name, ty, .. } = &definition.node;
            if ty.node.nullable && !self.choices.once_in(3) {
                continue;
            }
            let value = self.value(&ty.node);
            let value = match self.choices.below(2) {
                0 => value.graphql(),
                _ => self.variable(&ty.node.to_string(), value.json()),
            };
            written.push(format!("{}: {value}", name.node));
        }
        written.join(" ")
    }

    fn value(&mut self, ty: &Type) -> Sample {
        if ty.nullable && self.choices.once_in(8) {
            return Sample::Json(Value::Null);
        }
        let name = match &ty.base {
            BaseType::List(inner) => {
                let length = self.choices.below(4);
                return Sample::List((0..length).map(|_| self.value(inner)).collect());
            }
            BaseType::Named(name) => name.as_str(),
        };
        if let Some(names) = self.types.enums.get(name) {
            return Sample::Enum(self.choices.of(names).clone());
        }
        if let Some(fields) = self.types.inputs.get(name) {
            let mut written = Vec::new();
            for field in fields {
                if !field.ty.node.nullable || self.choices.once_in(2) {
                    let value = self.value(&field.ty.node);
                    written.push((field.name.node.to_string(), value));
                }
            }
            return Sample::Object(written);
        }
        Sample::Json(match name {
            "Int" => json!(self.choices.of(NUMBERS)),
            "Boolean" => json!(self.choices.once_in(2)),
            "ID" if self.choices.once_in(4) => json!(self.choices.of(NUMBERS)),
            "Decimal" if self.choices.once_in(3) => json!("1.50"),
            _ => json!(self.choices.of(TEXTS)),
        })
    }
}

fn base_of(ty: &Type) -> &str {
    match &ty.base {
        BaseType::List(inner) => base_of(inner),
        BaseType::Named(name) => name,
    }
}
