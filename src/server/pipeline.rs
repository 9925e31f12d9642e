//! The way of a GraphQL request from its bytes to its answer. Ours and not the extractor's of
//! async-graphql-axum, which executes mutations over GET and plain text, ignores the body limit,
//! and repeats whole queries in its errors.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_graphql::parser::types::{ExecutableDocument, OperationType};
use async_graphql::{
    Request as GraphQlRequest, Response as GraphQlResponse, ServerError, Variables,
};
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::header::{ACCEPT, ALLOW, CONTENT_LENGTH};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::Response;
use futures_util::FutureExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::Instant;

use super::document::{Document, Operation, Refusal, hash_of};
use super::wire::{self, GraphRequest, Media, PersistedQuery, RequestExtensions};
use super::{graphiql, wire::is_json};
use crate::app::{App, Shop};
use crate::error::Error;
use crate::graphql::complete::complete;
use crate::graphql::{RequestContext, Rounds, Viewer};
use crate::telemetry::{OperationLine, OperationStats, Outcome};

/// A browser sends none of these by itself to another site: a GET with one of them comes from a
/// program that meant it (and, across sites, from one that the preflight let through).
const PREFLIGHT_HEADERS: [&str; 3] =
    ["x-requested-with", "apollo-require-preflight", "x-apollo-operation-name"];
/// The header that names a request, in and out.
const REQUEST_ID: &str = "x-request-id";
/// Longest request id that is taken over from a client.
const MAX_REQUEST_ID: usize = 64;

/// `POST /graphql`
pub(super) async fn post(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let id = request_id(&parts.headers);
    let deadline = Instant::now() + app.config.limits.deadline;
    let Some(media) = Media::accepted(&parts.headers) else { return not_acceptable(&id) };
    let work = async {
        if !is_json(&parts.headers) {
            let error = Error::BadUserInput("Send application/json.".to_owned());
            return wire::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, media, &error);
        }
        let body = match read_body(&parts.headers, body, app.config.limits.body_bytes).await {
            Ok(body) => body,
            Err((status, error)) => return wire::with_status(status, media, &error),
        };
        match GraphRequest::from_json(&body) {
            Ok(request) => {
                answer(&app, &parts.headers, media, (&id, deadline), request, true).await
            }
            Err(error) => wire::failed(media, &error),
        }
    };
    within(deadline, media, &id, work).await
}

/// `GET /graphql`: the page for a browser, queries for a program.
pub(super) async fn get(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let is_program = PREFLIGHT_HEADERS.iter().any(|name| headers.contains_key(*name));
    if !is_program && accepts_html(&headers) {
        // A browser that follows a link with a query gets the page, which executes nothing.
        return graphiql::page();
    }
    let id = request_id(&headers);
    let deadline = Instant::now() + app.config.limits.deadline;
    let Some(media) = Media::accepted(&headers) else { return not_acceptable(&id) };
    let work = async {
        let Some(query) = query.filter(|query| !query.is_empty()) else {
            let error = Error::BadUserInput("Send a query, by POST.".to_owned());
            return wire::with_status(StatusCode::BAD_REQUEST, media, &error);
        };
        if !is_program {
            let error = Error::BadUserInput(
                "A query by GET needs the header Apollo-Require-Preflight.".to_owned(),
            );
            return wire::with_status(StatusCode::BAD_REQUEST, media, &error);
        }
        match request_from_query(&query) {
            Ok(request) => answer(&app, &headers, media, (&id, deadline), request, false).await,
            Err(error) => wire::failed(media, &error),
        }
    };
    within(deadline, media, &id, work).await
}

/// Who asks for an operation, under which name, and until when the answer is of use.
struct Asked<'a> {
    viewer: Viewer,
    id: &'a str,
    deadline: Instant,
}

/// Executes a request and answers it. `may_change` is whether mutations are let through.
async fn answer(
    app: &App,
    headers: &HeaderMap,
    media: Media,
    (id, deadline): (&str, Instant),
    request: GraphRequest,
    may_change: bool,
) -> Response {
    let Some(shop) = app.shop() else { return wire::failed(media, &Error::Unavailable) };
    let viewer = match app.identity.viewer(headers) {
        Ok(viewer) => viewer,
        Err(error) => return wire::failed(media, &error),
    };
    let document = match find_document(app, &request).await {
        Ok(document) => document,
        Err(Refusal::One(error @ Error::BadUserInput(_))) if request.query.is_none() => {
            return wire::failed(media, &error);
        }
        Err(refusal) => return wire::refused(media, &refusal),
    };
    let mut variables = request.variables.unwrap_or_default();
    let checked = document.operation(request.operation_name.as_deref()).and_then(|operation| {
        let limits = &app.config.limits;
        let flat = document.prepare(operation, &app.graph, &mut variables, limits)?;
        Ok((operation, flat))
    });
    let (operation, flat) = match checked {
        Ok(checked) => checked,
        Err(error) => return wire::refused(media, &Refusal::One(error)),
    };
    match operation.kind {
        OperationType::Query => {}
        OperationType::Mutation if may_change => {}
        OperationType::Mutation => {
            let error = Error::BadUserInput("Mutations are taken by POST only.".to_owned());
            let mut response = wire::with_status(StatusCode::METHOD_NOT_ALLOWED, media, &error);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        OperationType::Subscription => {
            let message = "Subscriptions are not taken over this transport.".to_owned();
            return wire::refused(media, &Refusal::One(Error::BadUserInput(message)));
        }
    }
    let asked = Asked { viewer, id, deadline };
    match execute(app, shop, asked, operation, &flat, variables).await {
        Ok(response) => wire::executed(media, &response),
        Err(error) => wire::failed(media, &error),
    }
}

/// The document that a request brings or, by its hash, means.
async fn find_document(app: &App, request: &GraphRequest) -> Result<Arc<Document>, Refusal> {
    let persisted = request.extensions.as_ref().and_then(|e| e.persisted_query.as_ref());
    let hash = persisted.map(persisted_hash).transpose()?;
    let Some(text) = &request.query else {
        let Some(hash) = hash else {
            let message = "The request has no `query`.".to_owned();
            return Err(Error::BadUserInput(message).into());
        };
        let known = app.documents.known(&hash, &app.metrics);
        return known.ok_or(Refusal::One(Error::PersistedQueryNotFound));
    };
    let own = hash_of(text);
    if hash.is_some_and(|hash| hash != own) {
        let message = "The persisted query's hash is not the hash of `query`.".to_owned();
        return Err(Error::BadUserInput(message).into());
    }
    match app.documents.known(&own, &app.metrics) {
        Some(document) => Ok(document),
        None => app.documents.learn(own, text, &app.graph, &app.config).await,
    }
}

fn persisted_hash(persisted: &PersistedQuery) -> Result<[u8; 32], Error> {
    let wrong = || {
        let message = "A persisted query has version 1 and a SHA-256 hash in hex.".to_owned();
        Error::BadUserInput(message)
    };
    let text = persisted.sha256_hash.as_bytes();
    if persisted.version != 1 || text.len() != 64 {
        return Err(wrong());
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return Err(wrong()) };
        *byte = high << 4 | low;
    }
    Ok(hash)
}

/// Runs the resolvers until the deadline, turns a panic into an error, and writes the operation's
/// line.
async fn execute(
    app: &App,
    shop: &Arc<Shop>,
    asked: Asked<'_>,
    operation: &Operation,
    flat: &ExecutableDocument,
    variables: Variables,
) -> Result<GraphQlResponse, Error> {
    let started = Instant::now();
    let tells_reads = app.config.tells_reads || matches!(asked.viewer, Viewer::Staff(_));
    let rounds = Arc::new(Rounds::default());
    let mut request = GraphQlRequest::new("").variables(variables).data(RequestContext::new(
        shop.clone(),
        asked.viewer,
        &rounds,
    ));
    // The executor takes the document apart, so it gets a copy.
    request.set_parsed_query(flat.clone());
    // The executor's state is large; boxed, it is not copied each time a future is put into another.
    let execution = Box::pin(app.graph.execute(request));
    let run = AssertUnwindSafe(rounds.drive(execution)).catch_unwind();
    let run = tokio::time::timeout_at(asked.deadline, run);
    let (result, reads) = OperationStats::collect(run).await;
    let result = match result {
        Ok(Ok(mut response)) => {
            if tells_reads && let Ok(told) = async_graphql::to_value(&reads) {
                response.extensions.insert("reads".to_owned(), told);
            }
            if reads.degraded {
                // Everybody may know: nothing is wrong with the answer, it only took longer.
                let cache = async_graphql::Value::List(vec!["cache".into()]);
                response.extensions.insert("degraded".to_owned(), cache);
            }
            complete(&mut response.data, flat, app.graph.index());
            // They come as they happened; a client reads them in the order of its query.
            response.errors.sort_by_key(|e| e.locations.first().map(|at| (at.line, at.column)));
            response.errors.iter_mut().for_each(give_code);
            Ok(response)
        }
        Ok(Err(_)) => {
            tracing::error!(request_id = asked.id, "a resolver panicked");
            Err(Error::Internal)
        }
        Err(_) => Err(Error::Timeout),
    };
    let codes = || result.iter().flat_map(|response| &response.errors).filter_map(code_of);
    let code = result.as_ref().err().map(Error::code).or_else(|| codes().next());
    let outcome = match code {
        None => Outcome::Ok,
        Some(code) if Error::is_failure(code) || codes().any(Error::is_failure) => Outcome::Failed,
        Some(_) => Outcome::Refused,
    };
    app.metrics.operation(&OperationLine {
        request_id: asked.id,
        name: operation.name.as_deref(),
        root: operation.root.clone(),
        outcome,
        code,
        took: started.elapsed(),
        reads: &reads,
    });
    result
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

/// Gives up when the deadline has passed, and names the request in the answer.
async fn within(
    deadline: Instant,
    media: Media,
    id: &str,
    work: impl Future<Output = Response>,
) -> Response {
    let response = match tokio::time::timeout_at(deadline, work).await {
        Ok(response) => response,
        Err(_) => {
            tracing::warn!(request_id = id, "deadline passed");
            wire::failed(media, &Error::Timeout)
        }
    };
    named(response, id)
}

fn named(mut response: Response, id: &str) -> Response {
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Reads a body up to the limit, whether its length was announced or not.
async fn read_body(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<Bytes, (StatusCode, Error)> {
    let too_large = || {
        let message = format!("The body has more than {limit} bytes.");
        (StatusCode::PAYLOAD_TOO_LARGE, Error::BadUserInput(message))
    };
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > limit) {
        return Err(too_large());
    }
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => {
            let message = "The body could not be read.".to_owned();
            Err((StatusCode::BAD_REQUEST, Error::BadUserInput(message)))
        }
    }
}

fn request_from_query(query: &str) -> Result<GraphRequest, Error> {
    let wrong = |what: &str| Error::BadUserInput(format!("The parameter `{what}` cannot be read."));
    let mut request =
        GraphRequest { query: None, operation_name: None, variables: None, extensions: None };
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "query" => request.query = Some(value.into_owned()),
            "operationName" => request.operation_name = Some(value.into_owned()),
            "variables" => {
                request.variables = serde_json::from_str(&value).map_err(|_| wrong("variables"))?;
            }
            "extensions" => {
                let extensions: Option<RequestExtensions> =
                    serde_json::from_str(&value).map_err(|_| wrong("extensions"))?;
                request.extensions = extensions;
            }
            _ => {}
        }
    }
    Ok(request)
}

fn accepts_html(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|v| v.to_str().is_ok_and(|v| v.contains("text/html")))
}

fn not_acceptable(id: &str) -> Response {
    let message = "The answer is application/graphql-response+json or application/json.";
    let error = Error::BadUserInput(message.to_owned());
    named(wire::with_status(StatusCode::NOT_ACCEPTABLE, Media::Json, &error), id)
}

/// The client's own id where it is a plain one, else one that is unique to this process's life.
fn request_id(headers: &HeaderMap) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static PROCESS: std::sync::LazyLock<u32> =
        std::sync::LazyLock::new(|| uuid::Uuid::new_v4().as_fields().0);
    let sound = |id: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        !id.is_empty() && id.len() <= MAX_REQUEST_ID && id.chars().all(plain)
    };
    match headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(sound) {
        Some(id) => id.to_owned(),
        None => format!("{:08x}-{:x}", *PROCESS, NEXT.fetch_add(1, Ordering::Relaxed)),
    }
}
