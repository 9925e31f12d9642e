//! Bounds on the shape of a parsed document: depth, aliases, root fields, directives, and how many
//! fields it has once every fragment stands in its place.
//!
//! Each fragment is measured once and its measure used at every spread, so that a fragment bomb
//! (fragments that each spread the next one twice) takes no longer than its text is long.

use std::collections::HashMap;

use async_graphql::Positioned;
use async_graphql::parser::types::{
    Directive, ExecutableDocument, OperationDefinition, Selection, SelectionSet,
};

use crate::config::Limits;
use crate::error::Error;

/// How often introspection may go from a type to the members of another one. The standard query
/// does it once; without a bound the answer grows with the power of it.
const MAX_INTROSPECTION_LISTS: usize = 3;
/// The fields of introspection that list a type's members.
const INTROSPECTION_LISTS: [&str; 4] = ["fields", "interfaces", "possibleTypes", "inputFields"];

/// The measure of a selection, fragments expanded.
#[derive(Debug, Clone, Copy, Default)]
struct Measure {
    /// Fields and spreads.
    nodes: usize,
    aliases: usize,
    /// Fields of the selection itself.
    width: usize,
    depth: usize,
    introspection_lists: usize,
    /// Whether it asks for the schema.
    introspects: bool,
}

impl Measure {
    fn add(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.aliases = self.aliases.saturating_add(other.aliases);
        self.width = self.width.saturating_add(other.width);
        self.depth = self.depth.max(other.depth);
        self.introspection_lists = self.introspection_lists.max(other.introspection_lists);
        self.introspects |= other.introspects;
    }
}

/// Checks the shape of all operations of a document together: each of them costs to check, though
/// only one is executed.
pub(super) fn check_shape(
    document: &ExecutableDocument,
    limits: &Limits,
    introspection: bool,
) -> Result<(), Error> {
    check_directives(document, limits)?;
    let mut walk = Walk { document, fragments: HashMap::new() };
    let mut sum = Measure::default();
    let mut operations = 0;
    for (_, operation) in document.operations.iter() {
        sum.add(walk.selection(&operation.node.selection_set.node)?);
        operations += 1;
    }
    for (found, limit, what) in [
        (operations, limits.operations, "operations"),
        (sum.nodes, limits.expanded_fields, "fields after its fragments are expanded"),
        (sum.aliases, limits.aliases, "aliases"),
        (sum.width, limits.root_fields, "root fields"),
        (sum.depth, limits.depth, "levels of fields"),
        (sum.introspection_lists, MAX_INTROSPECTION_LISTS, "levels of introspection"),
    ] {
        if found > limit {
            let message = format!("The document has more than {limit} {what}.");
            return Err(Error::QueryTooComplex(message));
        }
    }
    if sum.introspects && !introspection {
        return Err(Error::BadUserInput("Introspection is switched off.".to_owned()));
    }
    Ok(())
}

struct Walk<'a> {
    document: &'a ExecutableDocument,
    /// `None` while a fragment is being measured: meeting it again then is a cycle.
    fragments: HashMap<&'a str, Option<Measure>>,
}

impl<'a> Walk<'a> {
    /// Recursion is bounded by the nesting of the text, fragment by fragment, and by the number of
    /// fragments, of which each is entered once.
    fn selection(&mut self, selection: &'a SelectionSet) -> Result<Measure, Error> {
        let mut sum = Measure::default();
        for item in &selection.items {
            sum.add(match &item.node {
                Selection::Field(field) => {
                    let inside = self.selection(&field.node.selection_set.node)?;
                    let name = field.node.name.node.as_str();
                    let lists = INTROSPECTION_LISTS.contains(&name);
                    Measure {
                        nodes: inside.nodes.saturating_add(1),
                        aliases: inside
                            .aliases
                            .saturating_add(usize::from(field.node.alias.is_some())),
                        width: 1,
                        depth: inside.depth + 1,
                        introspection_lists: inside.introspection_lists + usize::from(lists),
                        introspects: inside.introspects || matches!(name, "__schema" | "__type"),
                    }
                }
                Selection::InlineFragment(inline) => {
                    self.selection(&inline.node.selection_set.node)?
                }
                Selection::FragmentSpread(spread) => {
                    let mut inside = self.fragment(&spread.node.fragment_name.node)?;
                    inside.nodes = inside.nodes.saturating_add(1);
                    inside
                }
            });
        }
        Ok(sum)
    }

    fn fragment(&mut self, name: &'a str) -> Result<Measure, Error> {
        match self.fragments.get(name) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => {
                let message = "A fragment of the document spreads itself.".to_owned();
                return Err(Error::BadUserInput(message));
            }
            None => {}
        }
        // The check against the schema says that a fragment is missing.
        let Some(fragment) = self.document.fragments.get(name) else {
            return Ok(Measure::default());
        };
        self.fragments.insert(name, None);
        let measure = self.selection(&fragment.node.selection_set.node)?;
        self.fragments.insert(name, Some(measure));
        Ok(measure)
    }
}

fn check_directives(document: &ExecutableDocument, limits: &Limits) -> Result<(), Error> {
    let count = |directives: &[Positioned<Directive>]| directives.len();
    let mut found = 0;
    for (_, operation) in document.operations.iter() {
        let OperationDefinition { directives, selection_set, variable_definitions, .. } =
            &operation.node;
        found += count(directives) + directives_inside(&selection_set.node);
        found += variable_definitions.iter().map(|v| count(&v.node.directives)).sum::<usize>();
    }
    for fragment in document.fragments.values() {
        found += count(&fragment.node.directives);
        found += directives_inside(&fragment.node.selection_set.node);
    }
    if found > limits.directives {
        let message = format!("The document has more than {} directives.", limits.directives);
        return Err(Error::QueryTooComplex(message));
    }
    Ok(())
}

fn directives_inside(selection: &SelectionSet) -> usize {
    let one = |item: &Positioned<Selection>| {
        let inside = match &item.node {
            Selection::Field(field) => directives_inside(&field.node.selection_set.node),
            Selection::InlineFragment(inline) => directives_inside(&inline.node.selection_set.node),
            Selection::FragmentSpread(_) => 0,
        };
        item.node.directives().len() + inside
    };
    selection.items.iter().map(one).sum()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use async_graphql::parser::parse_query;

    use super::*;

    fn check(text: &str) -> Result<(), Error> {
        check_shape(&parse_query(text).unwrap(), &Limits::default(), true)
    }

    fn bomb(levels: usize) -> String {
        let mut text = "{ ...F0 }".to_owned();
        for level in 0..levels {
            let next = level + 1;
            write!(text, " fragment F{level} on Query {{ ...F{next} ...F{next} }}").unwrap();
        }
        write!(text, " fragment F{levels} on Query {{ __typename }}").unwrap();
        text
    }

    #[test]
    fn a_fragment_bomb_is_refused_at_once_however_large() {
        assert!(check(&bomb(6)).is_ok());
        for levels in [24, 64, 200] {
            assert!(matches!(check(&bomb(levels)), Err(Error::QueryTooComplex(_))));
        }
    }

    #[test]
    fn cycles_are_refused() {
        for text in [
            "{ ...A } fragment A on Query { ...A }",
            "{ ...A } fragment A on Query { a { ...B } } fragment B on Query { b { ...A } }",
        ] {
            assert!(matches!(check(text), Err(Error::BadUserInput(_))), "{text}");
        }
    }

    #[test]
    fn introspection_does_not_multiply() {
        let nested = |n| {
            let (open, close) = ("fields { type { ".repeat(n), " } }".repeat(n));
            format!("{{ __schema {{ types {{ {open} name {close} }} }} }}")
        };
        assert!(check(&nested(3)).is_ok());
        assert!(check(&nested(4)).is_err());
    }
}
