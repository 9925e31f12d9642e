//! Documents that nobody would write: whatever they hold, each check bounds the next one.

use std::fmt::Write;

use async_graphql::Value;
use async_graphql::parser::types::{BaseType, Directive, Field, Type};
use futures_util::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::server::lexer::MAX_NESTING;

/// Pieces of documents, among them everything that a lexer and a parser could disagree about.
const PIECES: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ":",
    "!",
    "=",
    "$",
    "@",
    "|",
    "&",
    "...",
    ".",
    ",",
    " ",
    "\n",
    "\r",
    "\t",
    "\u{FEFF}",
    "\u{0}",
    "\"",
    "\"\"",
    "\"\"\"",
    "\"\"\"\"",
    "\\",
    "\\\"",
    "\\\"\"\"",
    "\\u0041",
    "\\uD800",
    "#",
    "# }\n",
    "query",
    "mutation",
    "subscription",
    "fragment",
    "on",
    "true",
    "false",
    "null",
    "nulltrue",
    "0",
    "00",
    "-0",
    "0-0",
    "1.5",
    "1.",
    "1e5",
    "1e",
    "-",
    "+",
    "9007199254740993",
    "a",
    "__typename",
    "Query",
    "product",
    "products(ids: [1])",
    "id",
    "name",
    "F",
    "x: ",
    "ids:",
    "$v",
    "$v: [ID!]",
    "@skip(if: true)",
    "@include(if: $v)",
    "...F",
    "... on Query",
    "fragment F on Query {",
    "{ a ",
    "я",
    "\u{1F600}",
];

/// Where a soup is put, so that many a soup is a document.
const FRAMES: &[(&str, &str)] = &[
    ("", ""),
    ("{ ", " }"),
    ("{ a(x: [", "]) }"),
    ("{ a(x: {", "}) }"),
    ("{ a @skip(if: ", ") }"),
    ("query(", ") { a }"),
    ("query($v: ID = ", ") { a }"),
    ("{ a(x: \"", "\") }"),
    ("{ a(x: \"\"\"", "\"\"\") }"),
    ("{ ...F } fragment F on Query { ", " }"),
];

fn soup() -> impl Strategy<Value = String> {
    (select(FRAMES), vec(select(PIECES), 0..40))
        .prop_map(|((before, after), pieces)| format!("{before}{}{after}", pieces.concat()))
}

/// Values in a list, of which far more are documents than of the soups.
fn values() -> impl Strategy<Value = String> {
    let value =
        select(&["0", "1", "-1", "1.5", "true", "null", "A", "\"\"", "[", "]", " ", "\"x\""][..]);
    vec(value, 0..60).prop_map(|values| format!("{{ a(x: [{}]) }}", values.concat()))
}

fn limits() -> Limits {
    Limits::default()
}

/// What a parsed document holds: each part that must have had a token of its own, and how deep
/// brackets must have nested around them.
#[derive(Default)]
struct Held {
    parts: usize,
    nesting: usize,
}

impl Held {
    fn of(document: &ExecutableDocument) -> Self {
        let mut held = Self::default();
        for (_, operation) in document.operations.iter() {
            let OperationDefinition { variable_definitions, directives, selection_set, .. } =
                &operation.node;
            for variable in variable_definitions {
                held.part(1);
                held.ty(&variable.node.var_type.node, 1);
                held.directives(&variable.node.directives, 1);
                if let Some(default) = &variable.node.default_value {
                    held.value(&default.node, 1);
                }
            }
            held.directives(directives, 0);
            held.selection(&selection_set.node, 0);
        }
        for fragment in document.fragments.values() {
            held.part(0);
            held.directives(&fragment.node.directives, 0);
            held.selection(&fragment.node.selection_set.node, 0);
        }
        held
    }

    fn part(&mut self, nesting: usize) {
        self.parts += 1;
        self.nesting = self.nesting.max(nesting);
    }

    fn ty(&mut self, ty: &Type, nesting: usize) {
        self.part(nesting);
        if let BaseType::List(inner) = &ty.base {
            self.ty(inner, nesting + 1);
        }
    }

    fn value(&mut self, value: &Value, nesting: usize) {
        self.part(nesting);
        match value {
            Value::List(items) => items.iter().for_each(|item| self.value(item, nesting + 1)),
            Value::Object(fields) => {
                for value in fields.values() {
                    self.part(nesting + 1);
                    self.value(value, nesting + 1);
                }
            }
            _ => {}
        }
    }

    fn directives(&mut self, directives: &[Positioned<Directive>], nesting: usize) {
        for directive in directives {
            self.part(nesting);
            for (_, value) in &directive.node.arguments {
                self.part(nesting + 1);
                let value = value.node.clone().into_const_with(|_| Ok::<_, ()>(Value::Null));
                self.value(&value.unwrap(), nesting + 1);
            }
        }
    }

    fn selection(&mut self, selection: &SelectionSet, nesting: usize) {
        if selection.items.is_empty() {
            return;
        }
        self.part(nesting + 1);
        for item in &selection.items {
            self.part(nesting + 1);
            self.directives(item.node.directives(), nesting + 1);
            match &item.node {
                Selection::Field(field) => {
                    let Field { alias, arguments, selection_set, .. } = &field.node;
                    self.parts += usize::from(alias.is_some());
                    for (_, value) in arguments {
                        self.part(nesting + 2);
                        let value =
                            value.node.clone().into_const_with(|_| Ok::<_, ()>(Value::Null));
                        self.value(&value.unwrap(), nesting + 2);
                    }
                    self.selection(&selection_set.node, nesting + 1);
                }
                Selection::InlineFragment(inline) => {
                    self.selection(&inline.node.selection_set.node, nesting + 1);
                }
                Selection::FragmentSpread(_) => {}
            }
        }
    }
}

/// The parser makes no more of a text than was counted before.
fn assert_counted(text: &str) -> Result<(), TestCaseError> {
    let Ok(tokens) = check_text(text, limits().tokens) else { return Ok(()) };
    prop_assert!(tokens <= text.len());
    if let Ok(parsed) = parse_query(text) {
        let held = Held::of(&parsed);
        prop_assert!(held.parts <= tokens, "{} parts, {tokens} tokens: {text:?}", held.parts);
        prop_assert!(held.nesting <= MAX_NESTING, "{} deep: {text:?}", held.nesting);
    }
    Ok(())
}

/// Fragments `F0`, `F1`, … and an operation, each a list of picks; see [`write_selection`].
fn fragments() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(vec(any::<u8>(), 1..8), 1..7)
}

/// A selection from picks: fields, aliases, nested selections, inline fragments, and spreads of any
/// of `fragments` fragments, cycles included. Its names are such that some are sound by the schema.
fn write_selection(picks: &[u8], fragments: usize) -> String {
    let mut text = "{ __typename".to_owned();
    let mut open = 0;
    for pick in picks {
        let which = usize::from(pick / 8);
        match pick % 8 {
            0 => text.push_str(" __typename"),
            1 | 2 => write!(text, " a{which}: __typename").unwrap(),
            3 => {
                text.push_str(" viewer { __typename");
                open += 1;
            }
            4 => {
                text.push_str(" ... on Query { __typename");
                open += 1;
            }
            5 if open > 0 => {
                text.push_str(" }");
                open -= 1;
            }
            6 => text.push_str(" __typename @skip(if: true)"),
            _ if fragments > 0 => write!(text, " ...F{}", which % fragments).unwrap(),
            _ => {}
        }
    }
    text + &" }".repeat(open + 1)
}

fn write_document(selections: &[Vec<u8>]) -> String {
    let (operation, fragments) = selections.split_last().unwrap();
    let mut text = write_selection(operation, fragments.len());
    for (n, picks) in fragments.iter().enumerate() {
        let selection = write_selection(picks, fragments.len());
        write!(text, " fragment F{n} on Query {selection}").unwrap();
    }
    text
}

/// Measures a document the simple way: by walking through every fragment wherever it is spread.
struct Expansion<'a> {
    document: &'a ExecutableDocument,
    limit: usize,
    nodes: usize,
    aliases: usize,
    width: usize,
    depth: usize,
}

impl Expansion<'_> {
    /// `None` as soon as there are more nodes than the limit, as in a cycle there always are.
    fn walk(&mut self, selection: &SelectionSet, depth: usize) -> Option<()> {
        for item in &selection.items {
            match &item.node {
                Selection::Field(field) => {
                    self.node()?;
                    self.aliases += usize::from(field.node.alias.is_some());
                    self.width += usize::from(depth == 0);
                    self.depth = self.depth.max(depth + 1);
                    self.walk(&field.node.selection_set.node, depth + 1)?;
                }
                Selection::InlineFragment(inline) => {
                    self.walk(&inline.node.selection_set.node, depth)?;
                }
                Selection::FragmentSpread(spread) => {
                    self.node()?;
                    let fragment = &self.document.fragments[&spread.node.fragment_name.node];
                    self.walk(&fragment.node.selection_set.node, depth)?;
                }
            }
        }
        Some(())
    }

    fn node(&mut self) -> Option<()> {
        self.nodes += 1;
        (self.nodes <= self.limit).then_some(())
    }
}

/// The fields of a flat operation, and how deep they nest.
fn flat_size(selection: &SelectionSet) -> (usize, usize) {
    selection.items.iter().fold((0, 0), |(fields, depth), item| match &item.node {
        Selection::Field(field) => {
            let (inside, below) = flat_size(&field.node.selection_set.node);
            (fields + 1 + inside, depth.max(below + 1))
        }
        _ => panic!("an operation that is executed has fields only"),
    })
}

proptest! {
    #[test]
    fn any_text_is_taken_or_refused(text in any::<String>()) {
        assert_counted(&text)?;
    }

    #[test]
    fn any_bytes_that_are_a_text_are_taken_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        assert_counted(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn the_parser_finds_no_more_in_a_soup_than_was_counted(text in soup()) {
        assert_counted(&text)?;
    }

    #[test]
    fn the_parser_finds_no_more_in_a_list_than_was_counted(text in values()) {
        assert_counted(&text)?;
    }

    #[test]
    fn a_shape_is_measured_as_if_every_fragment_stood_in_its_place(
        selections in fragments(),
        expanded_fields in 1..200_usize,
        depth in 1..8_usize,
        aliases in 0..12_usize,
        root_fields in 1..40_usize,
    ) {
        let limits = Limits { depth, aliases, root_fields, expanded_fields, ..limits() };
        let text = write_document(&selections);
        let document = parse_query(&text).unwrap();
        let mut all = Expansion {
            document: &document,
            limit: limits.expanded_fields,
            nodes: 0,
            aliases: 0,
            width: 0,
            depth: 0,
        };
        let (_, operation) = document.operations.iter().next().unwrap();
        let is_within = all.walk(&operation.node.selection_set.node, 0).is_some()
            && all.aliases <= limits.aliases
            && all.width <= limits.root_fields
            && all.depth <= limits.depth;
        prop_assert_eq!(check_shape(&document, &limits, true).is_ok(), is_within, "{}", text);
    }

    #[test]
    fn what_is_taken_is_within_the_limits(
        texts in vec(prop_oneof![soup(), fragments().prop_map(|f| write_document(&f))], 1..8),
    ) {
        thread_local! {
            static GRAPH: ShopGraph = ShopGraph::new(true);
        }
        let limits = limits();
        for text in texts {
            GRAPH.with(|graph| {
                let learned = Document::new(&text, graph, (&limits, true)).now_or_never();
                let Ok(document) = learned.expect("checking waits for nobody") else {
                    return Ok(());
                };
                for operation in &document.operations {
                    let mut variables = Variables::default();
                    let flat = document.prepare(operation, graph, &mut variables, &limits);
                    let Ok((flat, _)) = flat else { continue };
                    let (_, flat_operation) = flat.operations.iter().next().unwrap();
                    let (fields, depth) = flat_size(&flat_operation.node.selection_set.node);
                    prop_assert!(fields <= limits.expanded_fields);
                    prop_assert!(depth <= limits.depth);
                    let cost = cost(graph.index(), &flat, &variables).total;
                    prop_assert!(cost <= limits.cost);
                }
                Ok(())
            })?;
        }
    }
}

/// Values that are not parted by anything are values all the same: a document of many must not be
/// taken for one of few, because the cache of documents weighs them by their number.
#[test]
fn a_long_list_weighs_what_it_takes() {
    let graph = ShopGraph::new(true);
    let limits = limits();
    let weigh = |value: &str| {
        let list = value.repeat(20_000 / value.len());
        let text = format!("{{ products(ids: [{list}]) {{ id }} }}");
        let document = Document::new(&text, &graph, (&limits, true)).now_or_never().unwrap();
        document.map(|document| document.bytes)
    };
    for value in ["0", "00", "1-", "-0", "true", "null", "false", "1.5-0"] {
        assert!(weigh(value).is_err(), "{value}");
    }
}
