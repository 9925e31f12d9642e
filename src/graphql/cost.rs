//! What an operation costs, before it is executed: a field is 1, and what stands inside a list
//! counts as often as the list may be long.

use async_graphql::parser::types::{
    ExecutableDocument, Field, OperationDefinition, OperationType, Selection, SelectionSet,
};
use async_graphql::{Value, Variables};

use super::index::{FieldInfo, SchemaIndex};

/// How long a page is if the client does not say.
const DEFAULT_PAGE: u64 = 20;
/// What a page costs beside its entries: it reads several parts of the store, however short it is.
pub const PAGE_COST: u64 = 20;
/// What a look beyond the end of a page costs.
const PROBE_COST: u64 = 10;
/// What a look at the schema costs: its lists are as long as the schema is large.
const SCHEMA_COST: u64 = 200;
/// How long a list without a bound of its own is taken to be.
const ASSUMED_LIST: u64 = 10;

/// What an operation costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The sum.
    pub total: u64,
    /// Whether variables took part, so that it may be another sum with others.
    pub varies: bool,
}

/// The name of the type that an operation starts from.
pub fn root_type(kind: OperationType) -> &'static str {
    match kind {
        OperationType::Query => "Query",
        OperationType::Mutation => "Mutation",
        OperationType::Subscription => "Subscription",
    }
}

/// The cost of a flat document's operation with these variables, defaults filled in.
pub fn cost(index: &SchemaIndex, document: &ExecutableDocument, variables: &Variables) -> Cost {
    let mut walk = Walk { index, variables, varies: false };
    let mut total = 0_u64;
    for (_, operation) in document.operations.iter() {
        let OperationDefinition { ty, selection_set, .. } = &operation.node;
        total = total.saturating_add(walk.selection(root_type(*ty), &selection_set.node));
    }
    Cost { total, varies: walk.varies }
}

struct Walk<'a> {
    index: &'a SchemaIndex,
    variables: &'a Variables,
    varies: bool,
}

impl Walk<'_> {
    fn selection(&mut self, parent: &str, selection: &SelectionSet) -> u64 {
        let fields = selection.items.iter().filter_map(|item| match &item.node {
            Selection::Field(field) => Some(&field.node),
            _ => None,
        });
        fields.fold(0, |sum: u64, field| sum.saturating_add(self.field(parent, field)))
    }

    fn field(&mut self, parent: &str, field: &Field) -> u64 {
        let info = self.index.field(parent, &field.name.node);
        let selection = &field.selection_set.node;
        if selection.items.is_empty() {
            let is_probe = parent == "PageInfo" && field.name.node.starts_with("has");
            return if is_probe { PROBE_COST } else { 1 };
        }
        // Types that the index does not know are introspection's; its lists are the schema's own.
        let Some(info) = info else {
            let own = if field.name.node.starts_with("__") { SCHEMA_COST } else { 1 };
            return self.selection("", selection).saturating_add(own);
        };
        let inside = self.selection(&info.output, selection);
        let own = if info.is_page { PAGE_COST } else { 1 };
        inside.saturating_mul(self.length(parent, info, field)).saturating_add(own)
    }

    fn length(&mut self, parent: &str, info: &FieldInfo, field: &Field) -> u64 {
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
