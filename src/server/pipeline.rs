//! The way of a GraphQL request over HTTP, from its bytes to its answer. Ours and not the extractor's of
//! async-graphql-axum, which executes mutations over GET and plain text, ignores the body limit,
//! and repeats whole queries in its errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_graphql::parser::types::OperationType;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ACCEPT, ALLOW, AUTHORIZATION};
use axum::http::{Extensions, HeaderMap, HeaderValue, Request, StatusCode};
use axum::response::Response;
use tokio::time::Instant;

use super::body::read_body;
use super::caller::{address, asking, origin};
use super::document::Refusal;
use super::identity::{authorization, bearer_of};
use super::operation::{Admitted, Asked, REQUEST_COST, admit, execute, limited};
use super::responses::{Kept, RawRequest, Way};
use super::wire::{self, GraphRequest, Media, Unheard, is_json};
use super::{graphiql, websocket};
use crate::app::App;
use crate::error::Error;

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
        let body = match read_body(&app, &parts.headers, body, app.config.limits.body_bytes).await {
            Ok(body) => body,
            Err((status, error)) => {
                let mut response = wire::with_status(status, media, &error);
                response.extensions_mut().insert(Unheard);
                return response;
            }
        };
        let raw = RawRequest { way: Way::Post, media, text: &body };
        let coming = Coming { headers: &parts.headers, extensions: &parts.extensions, id: &id };
        answer(&app, coming, raw, deadline, || GraphRequest::from_json(&body)).await
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
    if !is_program && accepts_html(&headers) && app.has_page() {
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
        let raw = RawRequest { way: Way::Get, media, text: query.as_bytes() };
        let coming = Coming { headers: &headers, extensions: &parts.extensions, id: &id };
        answer(&app, coming, raw, deadline, || request_from_query(query)).await
    };
    within(deadline, media, &id, work).await
}

/// What comes with a request beside its text.
#[derive(Clone, Copy)]
struct Coming<'a> {
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    id: &'a str,
}

/// Answers a request: with what is at hand, if that is for everybody and nobody in particular asks;
/// else by executing what `parse` makes of its text.
async fn answer(
    app: &App,
    coming: Coming<'_>,
    raw: RawRequest<'_>,
    deadline: Instant,
    parse: impl FnOnce() -> Result<GraphRequest, Error>,
) -> Response {
    let asked = Instant::now();
    let Coming { headers, extensions, id } = coming;
    // A token is looked at before anything is answered, and that takes a place.
    if let (Some(shop), false) = (app.shop(), headers.contains_key(AUTHORIZATION)) {
        let from = (address(app, headers, extensions), asked);
        match app.responses.at_hand((app, shop), raw, from, id).await {
            Some(Ok(kept)) => return wire::shared(raw, headers, &kept),
            Some(Err(refusal)) => return wire::refused(raw.media, &refusal),
            None => {}
        }
    }
    match parse() {
        // Its state is large, and what is at hand needs none of it.
        Ok(request) => Box::pin(work(app, coming, raw, (asked, deadline), request)).await,
        // To find out that it is none takes as much as a small one.
        Err(error) => {
            let taken = app.shop().map_or(Ok(()), |shop| {
                let from = address(app, headers, extensions);
                shop.rates.take_from_address(from, REQUEST_COST)
            });
            match taken {
                Ok(()) => wire::failed(raw.media, &error),
                Err(error) => wire::refused(raw.media, &limited(app, error)),
            }
        }
    }
}

/// Executes a request, unless its answer is at hand by now, and answers it.
async fn work(
    app: &App,
    Coming { headers, extensions, id }: Coming<'_>,
    raw: RawRequest<'_>,
    (asked, deadline): (Instant, Instant),
    request: GraphRequest,
) -> Response {
    let media = raw.media;
    let Some(shop) = app.opened().await else { return wire::failed(media, &Error::Unavailable) };
    let origin = origin(app, headers, extensions);
    let address = origin.address;
    let caller = async {
        let token = bearer_of(authorization(headers))?;
        asking(app, shop, token, origin).await
    };
    let Admitted { place, caller, ready } = match admit(app, shop, request, address, caller).await {
        Ok(admitted) => admitted,
        Err(refusal) => return wire::refused(media, &refusal),
    };
    match ready.kind() {
        OperationType::Query => {}
        OperationType::Mutation if raw.way == Way::Post => {}
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
    let may_share = app.responses.may_share(&ready, &caller);
    let (operation, cost) = (ready.operation.clone(), ready.cost);
    let asked_for = Asked { shop, caller, id };
    // It is handed on several times below; each would make room for all of it.
    let executed = Box::pin(execute(app, asked_for, (ready, place), deadline));
    if may_share {
        let make = || async {
            match executed.await {
                Ok(response) => Kept::of(&response, &operation, cost)
                    .ok_or_else(|| wire::executed(media, &response)),
                Err(error) => Err(wire::failed(media, &error)),
            }
        };
        match app.responses.share(app, raw, asked, id, make).await {
            Ok(kept) => wire::shared(raw, headers, &kept),
            Err(own) => own,
        }
    } else {
        match executed.await {
            Ok(response) => wire::executed(media, &response),
            Err(error) => wire::failed(media, &error),
        }
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

fn request_from_query(query: &str) -> Result<GraphRequest, Error> {
    let wrong = |what: &str| Error::BadUserInput(format!("The parameter `{what}` cannot be read."));
    let mut request = GraphRequest::default();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match name.as_ref() {
            "query" => request.query = Some(value.into_owned()),
            "documentId" => request.document_id = Some(value.into_owned()),
            "operationName" => request.operation_name = Some(value.into_owned()),
            "variables" => {
                request.variables = serde_json::from_str(&value).map_err(|_| wrong("variables"))?;
            }
            "extensions" => {
                request.extensions =
                    serde_json::from_str(&value).map_err(|_| wrong("extensions"))?;
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::wire::tests::any_json;
    use super::*;

    proptest! {
        #[test]
        fn any_parameters_are_a_request_or_a_fault(query in any::<String>(), json in any_json()) {
            let mut parameters = form_urlencoded::Serializer::new(String::new());
            for name in ["query", "operationName", "variables", "extensions", "other"] {
                parameters.append_pair(name, &json.to_string());
            }
            for text in [query.clone(), format!("query={query}"), parameters.finish()] {
                match request_from_query(&text) {
                    Ok(_) => {}
                    Err(fault) => prop_assert_eq!(fault.code(), "BAD_USER_INPUT"),
                }
            }
        }

        #[test]
        fn a_request_id_is_short_and_plain(given in vec(any::<u8>(), 0..100)) {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_bytes(&given) {
                headers.insert(REQUEST_ID, value);
            }
            let id = request_id(&headers);
            prop_assert!(!id.is_empty() && id.len() <= MAX_REQUEST_ID);
            prop_assert!(id.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c)));
        }
    }
}
