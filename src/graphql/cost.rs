//! What an operation costs, before it is executed: a field is 1, and what stands inside a list
//! counts as often as the list may be long.

use std::collections::HashMap;

use async_graphql::parser::types::{
    Field, FragmentDefinition, OperationType, Selection, SelectionSet,
};
use async_graphql::{Name, Positioned, Value, Variables};

use super::index::{FieldInfo, SchemaIndex};

/// How long a page is if the client does not say.
const DEFAULT_PAGE: u64 = 20;
/// How long a list without a bound of its own is taken to be.
const ASSUMED_LIST: u64 = 10;

/// The fragments of a document.
pub type Fragments = HashMap<Name, Positioned<FragmentDefinition>>;

/// What an operation costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The sum.
    pub total: u64,
    /// Whether variables took part, so that it may be another sum with others.
    pub varies: bool,
}

/// The cost of an operation with these variables. The document's expansion must have been bounded
/// before: this walks all of it (a fragment's cost is kept, not found again at each spread).
pub fn cost(
    index: &SchemaIndex,
    fragments: &Fragments,
    kind: OperationType,
    selection: &SelectionSet,
    variables: &Variables,
) -> Cost {
    let root = match kind {
        OperationType::Query => "Query",
        OperationType::Mutation => "Mutation",
        OperationType::Subscription => "Subscription",
    };
    let mut walk = Walk { index, fragments, variables, varies: false, known: HashMap::new() };
    let total = walk.selection(root, selection);
    Cost { total, varies: walk.varies }
}

struct Walk<'a> {
    index: &'a SchemaIndex,
    fragments: &'a Fragments,
    variables: &'a Variables,
    varies: bool,
    known: HashMap<&'a str, u64>,
}

impl<'a> Walk<'a> {
    fn selection(&mut self, parent: &str, selection: &'a SelectionSet) -> u64 {
        let mut sum = 0_u64;
        for item in &selection.items {
            sum = sum.saturating_add(match &item.node {
                Selection::Field(field) => self.field(parent, &field.node),
                Selection::InlineFragment(inline) => {
                    let condition = inline.node.type_condition.as_ref();
                    let parent = condition.map_or(parent, |c| c.node.on.node.as_str());
                    self.selection(parent, &inline.node.selection_set.node)
                }
                Selection::FragmentSpread(spread) => self.fragment(&spread.node.fragment_name.node),
            });
        }
        sum
    }

    fn fragment(&mut self, name: &'a Name) -> u64 {
        if let Some(known) = self.known.get(name.as_str()) {
            return *known;
        }
        let Some(fragment) = self.fragments.get(name) else { return 0 };
        let parent = fragment.node.type_condition.node.on.node.as_str();
        let sum = self.selection(parent, &fragment.node.selection_set.node);
        self.known.insert(name.as_str(), sum);
        sum
    }

    fn field(&mut self, parent: &str, field: &'a Field) -> u64 {
        let info = self.index.field(parent, &field.name.node);
        let selection = &field.selection_set.node;
        if selection.items.is_empty() {
            return 1;
        }
        // Types that the index does not know are introspection's; its lists are the schema's own.
        let Some(info) = info else { return self.selection("", selection).saturating_add(1) };
        let inside = self.selection(&info.output, selection);
        inside.saturating_mul(self.length(parent, info, field)).saturating_add(1)
    }

    fn length(&mut self, parent: &str, info: &FieldInfo, field: &'a Field) -> u64 {
        if info.is_page {
            let asked = self.argument(field, "first").or_else(|| self.argument(field, "last"));
            return match asked {
                Some(Value::Number(n)) => n.as_u64().unwrap_or(0).max(1),
                _ => DEFAULT_PAGE,
            };
        }
        let is_part_of_page = parent.ends_with("Connection");
        if !info.is_list || is_part_of_page {
            return 1;
        }
        let list = info.list_argument.clone();
        match list.and_then(|name| self.argument(field, &name)) {
            Some(Value::List(items)) => u64::try_from(items.len()).unwrap_or(u64::MAX).max(1),
            // A single value stands for a list of one.
            Some(Value::Null) | None => ASSUMED_LIST,
            Some(_) => 1,
        }
    }

    fn argument(&mut self, field: &Field, name: &str) -> Option<Value> {
        let value = &field.get_argument(name)?.node;
        let variables = self.variables;
        let mut varies = false;
        let value = value.clone().into_const_with(|name| {
            varies = true;
            Ok::<_, ()>(variables.get(&name).cloned().unwrap_or_default())
        });
        self.varies |= varies;
        value.ok()
    }
}
