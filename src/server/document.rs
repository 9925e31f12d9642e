//! Documents: parsed and checked once, kept, and looked up by the hash of their text.

use std::sync::Arc;

use async_graphql::parser::parse_query;
use async_graphql::parser::types::{
    DocumentOperations, ExecutableDocument, OperationDefinition, OperationType, Selection,
    SelectionSet,
};
use async_graphql::{Name, Positioned, ServerError, Variables};
use aws_lc_rs::digest::{SHA256, digest};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::lexer::check_text;
use super::shape::check_shape;
use super::traffic::traffic_of;
use super::trusted::Trusted;
use crate::config::{Config, Limits};
use crate::error::Error;
use crate::graphql::cost::{Cost, cost};
use crate::graphql::flatten::{flatten, has_conditions};
use crate::graphql::public::is_public;
use crate::graphql::{ShopGraph, variables};
use crate::telemetry::{CacheResult, Metrics, Traffic};

/// Most faults of a document that are reported: enough to mend it, few enough to send.
const MAX_FAULTS: usize = 10;
/// How many bytes a token takes in a parsed document and in its flat form, at the most: a field of
/// two letters is a structure with a name, a place and four empty lists in each of them.
const TOKEN_BYTES: u64 = 768;
/// Documents the cache is laid out for at first.
const EXPECTED_DOCUMENTS: usize = 256;
/// The root of an operation whose root fields are all in fragments.
const NO_ROOT: &str = "fragment";

/// SHA-256 of a document's text; also what persisted queries are asked for by.
pub(super) type DocumentHash = [u8; 32];

/// The hash of a document's text.
pub(super) fn hash_of(text: &str) -> DocumentHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    hash
}

/// Why a document is refused.
#[derive(Debug)]
pub(super) enum Refusal {
    /// For one reason.
    One(Error),
    /// Because the request does not say which document it means.
    Request(Error),
    /// For what the schema says of it.
    Schema(Vec<ServerError>),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::One(error)
    }
}

impl From<Refusal> for Vec<ServerError> {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::One(error) | Refusal::Request(error) => vec![(&error).into()],
            Refusal::Schema(faults) => faults,
        }
    }
}

/// A document that passed every check that does not depend on variables.
pub(super) struct Document {
    parsed: ExecutableDocument,
    operations: Vec<Arc<Operation>>,
    /// Memory it takes, about.
    bytes: u64,
}

/// What is known of an operation before it is executed.
pub(super) struct Operation {
    /// Its name in the document.
    pub(super) name: Option<Arc<str>>,
    /// Query, mutation or subscription.
    pub(super) kind: OperationType,
    /// Its first root field, a name of the schema.
    pub(super) root: Arc<str>,
    /// What it is for.
    pub(super) traffic: Traffic,
    /// Whether everybody who may ask for it gets the same answer.
    pub(super) is_public: bool,
    /// It as it is executed, and its cost; `None` if variables decide which fields it has.
    flat: Option<(Arc<ExecutableDocument>, Cost)>,
}

impl Document {
    /// Parses and checks a text.
    pub(super) async fn new(
        text: &str,
        graph: &ShopGraph,
        (limits, introspection): (&Limits, bool),
    ) -> Result<Self, Refusal> {
        let tokens = check_text(text, limits.tokens)?;
        let parsed = parse_query(text).map_err(|error| syntax_error(&error))?;
        check_shape(&parsed, limits, introspection)?;
        graph.check(&parsed).await.map_err(schema_faults)?;
        let is_fixed = !has_conditions(&parsed);
        let none = Variables::default();
        let known = |(name, operation): (Option<&Name>, &Positioned<OperationDefinition>)| {
            let flat = is_fixed.then(|| {
                let flat = flatten(&parsed, operation, &none)?;
                let cost = cost(graph.index(), &flat, &none);
                Ok::<_, Error>((Arc::new(flat), cost))
            });
            Ok::<_, Error>(Arc::new(Operation {
                name: name.map(|name| Arc::from(name.as_str())),
                kind: operation.node.ty,
                root: root_of(&operation.node.selection_set.node),
                traffic: traffic_of(&parsed, &operation.node),
                is_public: is_public(graph.index(), &parsed, &operation.node),
                flat: flat.transpose()?,
            }))
        };
        let operations = parsed.operations.iter().map(known).collect::<Result<_, _>>()?;
        // Strings are kept as they are, in both forms.
        let bytes = u64::try_from(2 * text.len())
            .unwrap_or(u64::MAX)
            .saturating_add(u64::try_from(tokens).unwrap_or(u64::MAX).saturating_mul(TOKEN_BYTES));
        Ok(Self { parsed, operations, bytes })
    }

    /// The operation that a request means.
    pub(super) fn operation(&self, name: Option<&str>) -> Result<&Arc<Operation>, Error> {
        match (name, self.operations.as_slice()) {
            (None, [only]) => Ok(only),
            (None, _) => Err(Error::BadUserInput(
                "The document has several operations; operationName must say which.".to_owned(),
            )),
            (Some(name), operations) => operations
                .iter()
                .find(|operation| operation.name.as_deref() == Some(name))
                .ok_or_else(|| {
                    Error::BadUserInput("The document has no operation of that name.".to_owned())
                }),
        }
    }

    /// The operation as it is executed with these variables. Checks what depends on them: their
    /// types, and the cost where they take part in it; fills in their defaults.
    pub(super) fn prepare(
        &self,
        operation: &Operation,
        graph: &ShopGraph,
        variables: &mut Variables,
        limits: &Limits,
    ) -> Result<(Arc<ExecutableDocument>, u64), Error> {
        let definition = match &self.parsed.operations {
            DocumentOperations::Single(definition) => Some(definition),
            DocumentOperations::Multiple(definitions) => {
                operation.name.as_deref().and_then(|name| definitions.get(name))
            }
        };
        let definition = definition.ok_or(Error::Internal)?;
        variables::coerce(graph.index(), &definition.node.variable_definitions, variables)
            .map_err(Error::BadUserInput)?;
        let (flat, total) = match &operation.flat {
            Some((flat, known)) if !known.varies => (flat.clone(), known.total),
            Some((flat, _)) => (flat.clone(), cost(graph.index(), flat, variables).total),
            None => {
                let flat = flatten(&self.parsed, definition, variables)?;
                let total = cost(graph.index(), &flat, variables).total;
                (Arc::new(flat), total)
            }
        };
        check_flat(operation.kind, &flat, total, limits)?;
        Ok((flat, total))
    }

    /// Checks what [`Self::prepare`] would refuse whatever the variables are, for a document that
    /// is looked at before anybody asks for it.
    pub(super) fn check_unasked(&self, limits: &Limits) -> Result<(), Error> {
        for operation in &self.operations {
            if let Some((flat, cost)) = &operation.flat {
                let total = if cost.varies { 0 } else { cost.total };
                check_flat(operation.kind, flat, total, limits)?;
            }
        }
        Ok(())
    }
}

/// Checks a flat operation and its cost.
fn check_flat(
    kind: OperationType,
    flat: &ExecutableDocument,
    total: u64,
    limits: &Limits,
) -> Result<(), Error> {
    if kind == OperationType::Subscription && !has_one_field(flat) {
        let message = "A subscription has exactly one root field, and none of introspection.";
        return Err(Error::BadUserInput(message.to_owned()));
    }
    if total > limits.cost {
        let message = format!("The operation costs {total}, more than {}.", limits.cost);
        return Err(Error::QueryTooComplex(message));
    }
    Ok(())
}

/// Whether a flat operation has one root field, which is one of the schema's own.
fn has_one_field(flat: &ExecutableDocument) -> bool {
    let Some((_, operation)) = flat.operations.iter().next() else { return false };
    match operation.node.selection_set.node.items.as_slice() {
        [only] => match &only.node {
            Selection::Field(field) => !field.node.name.node.starts_with("__"),
            _ => false,
        },
        _ => false,
    }
}

fn root_of(selection: &SelectionSet) -> Arc<str> {
    let field = selection.items.iter().find_map(|item| match &item.node {
        Selection::Field(field) => Some(field.node.name.node.as_str()),
        _ => None,
    });
    Arc::from(field.unwrap_or(NO_ROOT))
}

/// Says where the text stops being GraphQL, and does not repeat any of it.
pub(super) fn syntax_error(error: &async_graphql::parser::Error) -> Refusal {
    let place = error.positions().next();
    let mut fault = ServerError::from(&Error::BadUserInput(match place {
        Some(place) => {
            format!("Syntax error at line {}, column {}.", place.line, place.column)
        }
        None => "Syntax error.".to_owned(),
    }));
    fault.locations.extend(place);
    Refusal::Schema(vec![fault])
}

fn schema_faults(mut faults: Vec<ServerError>) -> Refusal {
    faults.truncate(MAX_FAULTS);
    for fault in &mut faults {
        let coded = ServerError::from(&Error::BadUserInput(String::new()));
        fault.extensions = coded.extensions;
    }
    Refusal::Schema(faults)
}

#[derive(Clone)]
struct BySize;

impl Weighter<DocumentHash, Arc<Document>> for BySize {
    fn weight(&self, _: &DocumentHash, document: &Arc<Document>) -> u64 {
        document.bytes
    }
}

/// The documents that are executed: those seen lately, or those that are trusted and no others.
pub(crate) struct Documents {
    trusted: Option<Trusted>,
    cache: Cache<DocumentHash, Arc<Document>, BySize>,
}

impl Documents {
    /// The trusted ones where there are such, else a cache as large as the limits say.
    pub(crate) fn new(limits: &Limits, trusted: Option<Trusted>) -> Self {
        Self {
            trusted,
            cache: Cache::with_weighter(EXPECTED_DOCUMENTS, limits.document_cache_bytes, BySize),
        }
    }

    /// The document with this hash, if it is known.
    pub(super) fn known(&self, hash: &DocumentHash, metrics: &Metrics) -> Option<Arc<Document>> {
        let document = match &self.trusted {
            Some(trusted) => trusted.get(hash),
            None => self.cache.get(hash),
        };
        metrics.document(if document.is_some() { CacheResult::Hit } else { CacheResult::Miss });
        document
    }

    /// Whether nothing is executed but what is known.
    pub(crate) fn is_closed(&self) -> bool {
        self.trusted.is_some()
    }

    /// Parses, checks and keeps a text whose hash is not known.
    pub(super) async fn learn(
        &self,
        hash: DocumentHash,
        text: &str,
        graph: &ShopGraph,
        config: &Config,
    ) -> Result<Arc<Document>, Refusal> {
        let rules = (&config.limits, config.introspection);
        let document = Arc::new(Document::new(text, graph, rules).await?);
        self.cache.insert(hash, document.clone());
        Ok(document)
    }
}

#[cfg(test)]
mod tests;
