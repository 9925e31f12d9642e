//! An operation as it is executed: fragments in their places, fields of one name made one, and
//! what `@skip` and `@include` leave out left out.
//!
//! async-graphql does each of these itself while it executes, but resolves two fields of one name
//! twice (a mutation would happen twice) and takes a variable's default for absent in `@include`.

use std::collections::HashMap;

use async_graphql::parser::types::{
    Directive, DocumentOperations, ExecutableDocument, Field, FragmentDefinition,
    OperationDefinition, Selection, SelectionSet,
};
use async_graphql::{Name, Positioned, Value, Variables};

use crate::error::Error;

/// The key of a field that stands where everything else was left out: async-graphql takes an
/// object of which nothing is asked for null.
///
/// No client can write it.
const NOTHING: &str = "-";

/// The operation alone, flat, as a document of its own. The types of the schema are all objects,
/// so a fragment that the schema's rules let through applies wherever it is spread.
///
/// The document's expansion must have been bounded before.
pub fn flatten(
    document: &ExecutableDocument,
    operation: &Positioned<OperationDefinition>,
    variables: &Variables,
) -> Result<ExecutableDocument, Error> {
    let walk = Walk { fragments: &document.fragments, variables };
    let mut flat = OperationDefinition {
        ty: operation.node.ty,
        variable_definitions: operation.node.variable_definitions.clone(),
        directives: Vec::new(),
        selection_set: Positioned::new(SelectionSet::default(), operation.pos),
    };
    flat.selection_set.node = walk.flat(&[&operation.node.selection_set.node])?;
    Ok(ExecutableDocument {
        operations: DocumentOperations::Single(Positioned::new(flat, operation.pos)),
        fragments: HashMap::new(),
    })
}

/// Whether anything of the document depends on a directive.
pub fn has_conditions(document: &ExecutableDocument) -> bool {
    fn inside(selection: &SelectionSet) -> bool {
        selection.items.iter().any(|item| {
            !item.node.directives().is_empty()
                || match &item.node {
                    Selection::Field(field) => inside(&field.node.selection_set.node),
                    Selection::InlineFragment(inline) => inside(&inline.node.selection_set.node),
                    Selection::FragmentSpread(_) => false,
                }
        })
    }
    document.operations.iter().any(|(_, operation)| inside(&operation.node.selection_set.node))
        || document.fragments.values().any(|f| inside(&f.node.selection_set.node))
}

struct Walk<'a> {
    fragments: &'a HashMap<Name, Positioned<FragmentDefinition>>,
    variables: &'a Variables,
}

/// Fields of one response key: the first of them, and what all of them ask for inside.
type Gathered<'a> = (&'a Positioned<Field>, Vec<&'a SelectionSet>);

impl<'a> Walk<'a> {
    fn flat(&self, selections: &[&'a SelectionSet]) -> Result<SelectionSet, Error> {
        let mut fields = Vec::new();
        let mut places = HashMap::new();
        for selection in selections {
            self.gather(selection, &mut fields, &mut places)?;
        }
        let mut items = Vec::with_capacity(fields.len().max(1));
        for (field, inside) in fields {
            let Field { alias, name, arguments, selection_set, .. } = &field.node;
            let is_leaf = selection_set.node.items.is_empty();
            let inside = if is_leaf { SelectionSet::default() } else { self.flat(&inside)? };
            let flat = Field {
                alias: alias.clone(),
                name: name.clone(),
                arguments: arguments.clone(),
                directives: Vec::new(),
                selection_set: Positioned::new(inside, selection_set.pos),
            };
            let flat = Positioned::new(flat, field.pos);
            items.push(Positioned::new(Selection::Field(flat), field.pos));
        }
        if items.is_empty() {
            items.push(nothing());
        }
        Ok(SelectionSet { items })
    }

    fn gather(
        &self,
        selection: &'a SelectionSet,
        fields: &mut Vec<Gathered<'a>>,
        places: &mut HashMap<&'a str, usize>,
    ) -> Result<(), Error> {
        for item in &selection.items {
            if !self.is_included(item.node.directives())? {
                continue;
            }
            match &item.node {
                Selection::Field(field) => {
                    let key = field.node.response_key().node.as_str();
                    let place = *places.entry(key).or_insert(fields.len());
                    match fields.get_mut(place) {
                        None => fields.push((field, vec![&field.node.selection_set.node])),
                        Some((first, _)) if !is_same(&first.node, &field.node) => {
                            let message = format!("Different fields are both named \"{key}\".");
                            return Err(Error::BadUserInput(message));
                        }
                        Some((_, insides)) => insides.push(&field.node.selection_set.node),
                    }
                }
                Selection::InlineFragment(inline) => {
                    self.gather(&inline.node.selection_set.node, fields, places)?;
                }
                Selection::FragmentSpread(spread) => {
                    if let Some(fragment) = self.fragments.get(&spread.node.fragment_name.node) {
                        self.gather(&fragment.node.selection_set.node, fields, places)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn is_included(&self, directives: &[Positioned<Directive>]) -> Result<bool, Error> {
        for directive in directives {
            let wanted = match directive.node.name.node.as_str() {
                "include" => true,
                "skip" => false,
                _ => continue,
            };
            let condition = directive.node.get_argument("if").and_then(|condition| {
                let value = |name| self.variables.get(&name).cloned().ok_or(());
                condition.node.clone().into_const_with(value).ok()
            });
            match condition {
                Some(Value::Boolean(condition)) if condition == wanted => {}
                Some(Value::Boolean(_)) => return Ok(false),
                _ => {
                    let message = "The condition of @skip or @include must be true or false.";
                    return Err(Error::BadUserInput(message.to_owned()));
                }
            }
        }
        Ok(true)
    }
}

/// Whether two fields of one response key ask for the same. The schema's rules look one level
/// deep only.
fn is_same(a: &Field, b: &Field) -> bool {
    a.name.node == b.name.node
        && a.arguments.len() == b.arguments.len()
        && a.arguments.iter().all(|(name, value)| {
            b.get_argument(&name.node).is_some_and(|other| other.node == value.node)
        })
}

fn nothing() -> Positioned<Selection> {
    let at = async_graphql::Pos::default();
    let field = Field {
        alias: Some(Positioned::new(Name::new(NOTHING), at)),
        name: Positioned::new(Name::new("__typename"), at),
        arguments: Vec::new(),
        directives: Vec::new(),
        selection_set: Positioned::new(SelectionSet::default(), at),
    };
    Positioned::new(Selection::Field(Positioned::new(field, at)), at)
}

/// The fields of a flat selection that the client asked for.
pub(super) fn asked(selection: &SelectionSet) -> impl Iterator<Item = &Positioned<Field>> {
    selection.items.iter().filter_map(|item| match &item.node {
        Selection::Field(field) if is_asked(&field.node) => Some(field),
        _ => None,
    })
}

/// Whether a flat selection asks for one of these fields.
pub fn asks_for(selection: &SelectionSet, names: &[&str]) -> bool {
    asked(selection).any(|field| names.contains(&field.node.name.node.as_str()))
}

/// What a flat selection asks for inside the fields of a name.
pub fn inside<'s>(
    selection: &'s SelectionSet,
    name: &'s str,
) -> impl Iterator<Item = &'s SelectionSet> {
    let fields = asked(selection).filter(move |field| field.node.name.node == name);
    fields.map(|field| &field.node.selection_set.node)
}

/// Whether a field of a flat operation was asked for by the client.
fn is_asked(field: &Field) -> bool {
    field.alias.as_ref().is_none_or(|alias| alias.node != NOTHING)
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;

    use super::*;

    fn shown(selection: &SelectionSet) -> String {
        let one = |item: &Positioned<Selection>| match &item.node {
            Selection::Field(field) => {
                let inside = &field.node.selection_set.node;
                let key = &field.node.response_key().node;
                if inside.items.is_empty() {
                    key.to_string()
                } else {
                    format!("{key}{{{}}}", shown(inside))
                }
            }
            _ => "not flat".to_owned(),
        };
        selection.items.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    fn try_flat(text: &str, variables: serde_json::Value) -> Result<String, Error> {
        let document = parse_query(text).unwrap();
        let (_, operation) = document.operations.iter().next().unwrap();
        let flat = flatten(&document, operation, &Variables::from_json(variables))?;
        let (_, operation) = flat.operations.iter().next().unwrap();
        Ok(shown(&operation.node.selection_set.node))
    }

    fn flat(text: &str, variables: serde_json::Value) -> String {
        try_flat(text, variables).unwrap()
    }

    #[test]
    fn different_fields_of_one_name_and_conditions_of_no_truth_are_refused() {
        let none = || serde_json::json!({ "x": null });
        for text in [
            "{ a { x: b } a { x: c } }",
            "{ a { b(n: 1) } ...F } fragment F on Q { a { b(n: 2) } }",
            "{ a { b(n: 1) } a { b } }",
            "query($x: Boolean) { a @include(if: $x) }",
        ] {
            assert!(try_flat(text, none()).is_err(), "{text}");
        }
        assert_eq!(flat("{ a { b(n: 1, m: 2) } a { b(m: 2, n: 1) c } }", none()), "a{b c}");
    }

    #[test]
    fn fragments_go_in_their_places_and_fields_of_one_name_are_one() {
        let text = "{ z: a { c ...F } b ...G z: a { y } } \
                    fragment F on X { d { h } c } fragment G on Q { b z: a { d { g } } last }";
        assert_eq!(flat(text, serde_json::json!({})), "z{c d{h g} y} b last");
    }

    #[test]
    fn conditions_are_decided() {
        let text = "query($yes: Boolean!, $no: Boolean!) { a @skip(if: $yes) b @include(if: $yes) \
                    ... @include(if: $no) { c } d @skip(if: $no) { e @include(if: $no) } \
                    f @include(if: true) @skip(if: true) }";
        assert_eq!(flat(text, serde_json::json!({ "yes": true, "no": false })), "b d{-}");
    }
}
