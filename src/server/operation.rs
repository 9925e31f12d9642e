//! Operations, whatever brings them: found, checked, executed, told of in the log and the metrics.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_graphql::parser::types::{ExecutableDocument, OperationType};
use async_graphql::{
    Request as GraphQlRequest, Response as GraphQlResponse, ServerError, Variables,
};
use futures_util::FutureExt;
use futures_util::stream::{BoxStream, StreamExt};
use tokio::time::Instant;

use super::admission::Place;
use super::caller::Asking;
use super::document::{Document, DocumentHash, Operation, Refusal, hash_of};
use super::wire::{GraphRequest, Object};
use crate::app::{App, Shop};
use crate::digest::from_hex;
use crate::error::Error;
use crate::graphql::complete::complete;
use crate::graphql::{Caller, RequestContext, Rounds, Viewer, roots_of};
use crate::held::{Held, holding};
use crate::telemetry::{OperationLine, OperationReads, OperationStats, Outcome, Traffic};

/// What a request costs beside its operation.
pub(super) const REQUEST_COST: u64 = 5;
/// What a document costs that is refused.
const REFUSED_COST: u64 = 100;

/// Who asks for an operation, of which shop, and under which name.
pub(super) struct Asked<'a> {
    pub(super) shop: &'a Arc<Shop>,
    pub(super) caller: Caller,
    pub(super) id: &'a str,
}

/// An operation that passed every check.
pub(super) struct Ready {
    pub(super) operation: Arc<Operation>,
    flat: Arc<ExecutableDocument>,
    variables: Variables,
    /// What was taken out of the caller's share for it.
    pub(super) cost: u64,
}

impl Ready {
    /// Query, mutation or subscription.
    pub(super) fn kind(&self) -> OperationType {
        self.operation.kind
    }
}

/// An operation that may be executed now.
pub(super) struct Admitted {
    /// Its place among those that are; for as long as it is kept.
    pub(super) place: Place,
    /// Who asks for it.
    pub(super) caller: Caller,
    pub(super) ready: Ready,
}

/// Finds the operation that a request means, checks it, and lets it in when there is a place for it
/// and its caller has not had more than its share. The cheap comes first: of a request that finds no place
/// nothing is read from the store, not even who sent it.
pub(super) async fn admit(
    app: &App,
    shop: &Shop,
    request: GraphRequest,
    address: Option<IpAddr>,
    caller: impl Future<Output = Result<Asking, Error>>,
) -> Result<Admitted, Refusal> {
    let limited = |error| limited(app, error);
    shop.rates.take_from_address(address, REQUEST_COST).map_err(limited)?;
    let admitted = async {
        let document = match find_document(app, &request).await {
            Err(Refusal::One(error @ Error::BadUserInput(_))) if request.query.is_none() => {
                return Err(Refusal::Request(error));
            }
            found => found?,
        };
        let operation = document.operation(request.operation_name.as_deref())?;
        let place = app.admission.enter(operation.traffic).await.map_err(Refusal::Request)?;
        let caller = match caller.await.map_err(Refusal::Request)? {
            Asking::Known(caller) => caller,
            // What it asks for is everybody's, whoever it is.
            Asking::InDoubt(_) if operation.is_public => Caller::nobody(address),
            Asking::InDoubt(error) => return Err(Refusal::Request(error)),
        };
        let mut variables = request.variables.unwrap_or_default();
        let limits = &app.config.limits;
        let (flat, cost) = document.prepare(operation, &app.graph, &mut variables, limits)?;
        let taken = match &caller.viewer {
            Viewer::Anonymous => shop.rates.take(None, address, cost),
            Viewer::Guest(id) => shop.rates.take(Some(&[b"guest", id.as_bytes()]), address, cost),
            Viewer::Customer(id) | Viewer::Staff(id) => {
                shop.rates.take(Some(&[b"user", id.as_bytes()]), address, cost)
            }
        };
        taken.map_err(limited)?;
        let ready = Ready { operation: operation.clone(), flat, variables, cost };
        Ok(Admitted { place, caller, ready })
    };
    let admitted = admitted.await;
    if let Err(Refusal::One(_) | Refusal::Schema(_)) = &admitted {
        // To look through a document that is no good takes more than to answer a good one.
        shop.rates.charge_address(address, REFUSED_COST);
    }
    admitted
}

/// What a client is told that asks for more than its share.
pub(super) fn limited(app: &App, error: Error) -> Refusal {
    app.admission.note_other();
    app.metrics.pressure().limited();
    Refusal::Request(error)
}

/// The document that a request brings or, by its hash, means.
async fn find_document(app: &App, request: &GraphRequest) -> Result<Arc<Document>, Refusal> {
    let hash = named_hash(request)?;
    let Some(text) = &request.query else {
        let Some(hash) = hash else {
            let message = "The request has no `query`.".to_owned();
            return Err(Error::BadUserInput(message).into());
        };
        let known = app.documents.known(&hash, &app.metrics);
        return match known {
            Some(document) => Ok(document),
            None if app.documents.is_closed() => Err(NOT_TRUSTED),
            None => Err(Error::PersistedQueryNotFound.into()),
        };
    };
    let own = hash_of(text);
    if hash.is_some_and(|hash| hash != own) {
        let message = "The hash that the request names is not the hash of `query`.".to_owned();
        return Err(Error::BadUserInput(message).into());
    }
    match app.documents.known(&own, &app.metrics) {
        Some(document) => Ok(document),
        // Its text is not even looked at.
        None if app.documents.is_closed() => Err(NOT_TRUSTED),
        // Seldom, and large.
        None => Box::pin(app.documents.learn(own, text, &app.graph, &app.config)).await,
    }
}

const NOT_TRUSTED: Refusal = Refusal::Request(Error::DocumentNotTrusted);

/// The hash of the document that a request names, in either of the two ways in use.
fn named_hash(request: &GraphRequest) -> Result<Option<DocumentHash>, Error> {
    let wrong = |message: &str| Error::BadUserInput(message.to_owned());
    let persisted = request.extensions.as_ref().and_then(|e| e.0.persisted_query.as_ref());
    let persisted = persisted.map(|Object(persisted)| {
        from_hex(&persisted.sha256_hash)
            .filter(|_| persisted.version == 1)
            .ok_or_else(|| wrong("A persisted query has version 1 and a SHA-256 hash in hex."))
    });
    let id = request.document_id.as_ref().map(|id| {
        id.strip_prefix(ID_PREFIX)
            .and_then(from_hex)
            .ok_or_else(|| wrong("A documentId is `sha256:` and a SHA-256 hash in hex."))
    });
    match (persisted.transpose()?, id.transpose()?) {
        (Some(one), Some(other)) if one != other => {
            Err(wrong("documentId and persistedQuery name two documents."))
        }
        (persisted, id) => Ok(id.or(persisted)),
    }
}

/// What a `documentId` begins with, as the proposal for persisted documents over HTTP has it.
const ID_PREFIX: &str = "sha256:";

/// Runs the resolvers until the deadline, turns a panic into an error, and writes the operation's
/// line. Its place is free again when all of its work is over: a change may go on after that.
pub(super) async fn execute(
    app: &App,
    asked: Asked<'_>,
    (ready, place): (Ready, Place),
    deadline: Instant,
) -> Result<GraphQlResponse, Error> {
    let started = Instant::now();
    let (_place, held) = match ready.kind() {
        OperationType::Mutation => (None, Some(Arc::new(place) as Held)),
        _ => (Some(place), None),
    };
    let is_at_till = ready.operation.traffic == Traffic::Buying && app.admission.is_crowded();
    let (request, rounds, manner) = begin(app, asked, ready);
    // The executor's state is large; boxed, it is not copied each time a future is put into another.
    let execution = Box::pin(app.graph.execute(request));
    let run = holding(held, async move {
        let run = AssertUnwindSafe(rounds.drive(execution)).catch_unwind();
        OperationStats::collect(tokio::time::timeout_at(deadline, run)).await
    });
    let ended = if is_at_till { Box::pin(app.till.run(run)).await } else { Some(run.await) };
    let (result, reads) = match ended {
        Some((Ok(Ok(response)), reads)) => (Ok(manner.finish(response, &reads)), reads),
        Some((Ok(Err(_)), reads)) => (Err(manner.panicked()), reads),
        Some((Err(_), reads)) => (Err(Error::Timeout), reads),
        None => (Err(Error::Unavailable), OperationReads::default()),
    };
    let mut end = End::default();
    end.note(&result);
    manner.tell(started, &end, &reads, None);
    result
}

/// The executor's request for an operation, what drives it, and how its answers are made.
fn begin<'a>(
    app: &'a App,
    asked: Asked<'a>,
    ready: Ready,
) -> (GraphQlRequest, Arc<Rounds>, Manner<'a>) {
    let tells_reads = app.config.tells_reads || matches!(asked.caller.viewer, Viewer::Staff(_));
    let rounds = Arc::new(Rounds::default());
    let Ready { operation, flat, variables, .. } = ready;
    let context = RequestContext::new(asked.shop.clone(), asked.caller, flat.clone(), &rounds);
    let mut request = GraphQlRequest::new("").variables(variables).data(context);
    request.set_parsed_query(roots_of(&flat));
    (request, rounds, Manner { app, id: asked.id, operation, flat, tells_reads })
}

/// How the answers of an operation are made, and how it is told of.
struct Manner<'a> {
    app: &'a App,
    id: &'a str,
    operation: Arc<Operation>,
    flat: Arc<ExecutableDocument>,
    tells_reads: bool,
}

impl Manner<'_> {
    /// What the executor gave, as the client gets it.
    fn finish(&self, mut response: GraphQlResponse, reads: &OperationReads) -> GraphQlResponse {
        if self.tells_reads
            && let Ok(told) = async_graphql::to_value(reads)
        {
            response.extensions.insert("reads".to_owned(), told);
        }
        if reads.degraded {
            // Everybody may know: nothing is wrong with the answer, it only took longer.
            let cache = async_graphql::Value::List(vec!["cache".into()]);
            response.extensions.insert("degraded".to_owned(), cache);
        }
        complete(&mut response.data, &self.flat, self.app.graph.index());
        // They come as they happened; a client reads them in the order of its query.
        response.errors.sort_by_key(|e| e.locations.first().map(|at| (at.line, at.column)));
        response.errors.iter_mut().for_each(give_code);
        if response.errors.iter().any(|error| code_of(error) == Some("RATE_LIMITED")) {
            // By a category: what is limited as a whole is not executed.
            self.app.metrics.pressure().limited();
        }
        response
    }

    fn panicked(&self) -> Error {
        tracing::error!(request_id = self.id, "a resolver panicked");
        Error::Internal
    }

    /// Writes the operation's line and counts it.
    fn tell(&self, started: Instant, end: &End, reads: &OperationReads, events: Option<u64>) {
        self.app.metrics.operation(&OperationLine {
            request_id: self.id,
            name: self.operation.name.as_deref(),
            root: self.operation.root.clone(),
            outcome: end.outcome,
            code: end.code.as_deref(),
            took: started.elapsed(),
            reads,
            events,
        });
    }
}

/// Tells of an operation, by its name and its first root field, whose answer was at hand and needed
/// no execution.
pub(super) fn tell_kept(
    app: &App,
    id: &str,
    (name, root): (Option<&str>, &Arc<str>),
    started: Instant,
) {
    app.metrics.operation(&OperationLine {
        request_id: id,
        name,
        root: root.clone(),
        outcome: Outcome::Ok,
        code: None,
        took: started.elapsed(),
        reads: &OperationReads { cache_hits: 1, ..OperationReads::default() },
        events: None,
    });
}

/// How an operation ended: by its first error, and by the worst.
struct End {
    outcome: Outcome,
    code: Option<String>,
}

impl Default for End {
    fn default() -> Self {
        Self { outcome: Outcome::Ok, code: None }
    }
}

impl End {
    fn note(&mut self, result: &Result<GraphQlResponse, Error>) {
        match result {
            Ok(response) => response.errors.iter().filter_map(code_of).for_each(|c| self.add(c)),
            Err(error) => self.add(error.code()),
        }
    }

    fn add(&mut self, code: &str) {
        if Error::is_failure(code) {
            self.outcome = Outcome::Failed;
        } else if self.code.is_none() {
            self.outcome = Outcome::Refused;
        }
        self.code.get_or_insert_with(|| code.to_owned());
    }
}

/// A subscription that runs. It ends when it is dropped, and then writes its line.
pub(super) struct Watching<'a> {
    manner: Manner<'a>,
    rounds: Arc<Rounds>,
    answers: BoxStream<'static, GraphQlResponse>,
    started: Instant,
    end: End,
    reads: OperationReads,
    events: u64,
    is_over: bool,
}

/// What a subscription gives.
pub(super) enum Event {
    /// The answer for an event, its failures included.
    Answer(GraphQlResponse),
    /// There will be no more, because of these errors.
    Failed(Vec<ServerError>),
}

impl<'a> Watching<'a> {
    /// Begins a subscription.
    pub(super) fn new(app: &'a App, asked: Asked<'a>, ready: Ready) -> Self {
        let (request, rounds, manner) = begin(app, asked, ready);
        app.metrics.subscriptions().inc();
        Self {
            manner,
            rounds,
            answers: app.graph.watch(request),
            started: Instant::now(),
            end: End::default(),
            reads: OperationReads::default(),
            events: 0,
            is_over: false,
        }
    }

    /// Waits for the next event and resolves it; `None` when there will be no more.
    pub(super) async fn next(&mut self) -> Option<Event> {
        if self.is_over {
            return None;
        }
        let limit = self.manner.app.config.limits.deadline;
        let next = AssertUnwindSafe(self.rounds.drive(self.answers.next())).catch_unwind();
        let next = self.rounds.turn().within(limit, next);
        let (result, reads) = OperationStats::collect(next).await;
        let result = match result {
            Some(Ok(Some(response))) => Ok(self.manner.finish(response, &reads)),
            Some(Ok(None)) => return None,
            Some(Err(_)) => Err(self.manner.panicked()),
            // What is half resolved cannot be taken back; the client begins anew.
            None => Err(Error::Timeout),
        };
        self.reads.add(reads);
        self.end.note(&result);
        match result {
            Ok(response) if self.rounds.turn().is_open() => {
                self.events += 1;
                Some(Event::Answer(response))
            }
            // It could not be begun.
            Ok(response) => {
                self.is_over = true;
                Some(Event::Failed(response.errors))
            }
            Err(error) => {
                self.is_over = true;
                Some(Event::Failed(vec![(&error).into()]))
            }
        }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.manner.app.metrics.subscriptions().dec();
        self.manner.tell(self.started, &self.end, &self.reads, Some(self.events));
    }
}

/// An error without a code comes from async-graphql, about an argument whose value the schema's
/// types cannot take; it gets that code.
fn give_code(error: &mut ServerError) {
    if code_of(error).is_none() {
        error.extensions = ServerError::from(&Error::BadUserInput(String::new())).extensions;
    }
}

fn code_of(error: &ServerError) -> Option<&str> {
    match error.extensions.as_ref()?.get("code")? {
        async_graphql::Value::String(code) => Some(code),
        _ => None,
    }
}
