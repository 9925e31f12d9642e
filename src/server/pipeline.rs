//! The way of a GraphQL request over HTTP, from its bytes to its answer. Ours and not the extractor's of
//! async-graphql-axum, which executes mutations over GET and plain text, ignores the body limit,
//! and repeats whole queries in its errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_graphql::parser::types::OperationType;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ACCEPT, ALLOW, CONTENT_LENGTH};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::Instant;

use super::caller::{identify, origin};
use super::document::Refusal;
use super::identity::{authorization, bearer_of};
use super::operation::{Asked, execute, prepare};
use super::wire::{self, GraphRequest, Media, RequestExtensions, is_json};
use super::{graphiql, websocket};
use crate::app::App;
use crate::error::Error;
use crate::graphql::Origin;

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
                let from = (&parts.headers, origin(&parts.headers, &parts.extensions));
                answer(&app, from, media, (&id, deadline), request, true).await
            }
            Err(error) => wire::failed(media, &error),
        }
    };
    within(deadline, media, &id, work).await
}

/// `GET /graphql`: the page for a browser, queries and a WebSocket for a program.
pub(super) async fn get(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    let (parts, _) = request.into_parts();
    if websocket::is_asked_for(&parts.headers) {
        let id = request_id(&parts.headers);
        let response = websocket::open(&app, parts, id.clone()).await;
        return named(response, &id);
    }
    let (headers, query) = (parts.headers, parts.uri.query());
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
        match request_from_query(query) {
            Ok(request) => {
                let from = (&headers, origin(&headers, &parts.extensions));
                answer(&app, from, media, (&id, deadline), request, false).await
            }
            Err(error) => wire::failed(media, &error),
        }
    };
    within(deadline, media, &id, work).await
}

/// Executes a request and answers it. `may_change` is whether mutations are let through.
async fn answer(
    app: &App,
    (headers, origin): (&HeaderMap, Origin),
    media: Media,
    (id, deadline): (&str, Instant),
    request: GraphRequest,
    may_change: bool,
) -> Response {
    let Some(shop) = app.shop() else { return wire::failed(media, &Error::Unavailable) };
    let caller = async {
        let token = bearer_of(authorization(headers))?;
        identify(app, shop, token, origin).await
    };
    let caller = match caller.await {
        Ok((caller, _)) => caller,
        Err(error) => return wire::failed(media, &error),
    };
    let ready = match prepare(app, request).await {
        Ok(ready) => ready,
        Err(refusal) => return wire::refused(media, &refusal),
    };
    match ready.kind() {
        OperationType::Query => {}
        OperationType::Mutation if may_change => {}
        OperationType::Mutation => {
            let error = Error::BadUserInput("Mutations are taken by POST only.".to_owned());
            let mut response = wire::with_status(StatusCode::METHOD_NOT_ALLOWED, media, &error);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        OperationType::Subscription => {
            let message = "Subscriptions are taken over WebSocket only.".to_owned();
            return wire::refused(media, &Refusal::One(Error::BadUserInput(message)));
        }
    }
    let asked = Asked { shop, caller, id };
    match execute(app, asked, ready, deadline).await {
        Ok(response) => wire::executed(media, &response),
        Err(error) => wire::failed(media, &error),
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
