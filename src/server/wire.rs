//! GraphQL over HTTP: what a request must look like, and what an answer looks like.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use async_graphql::{Response as GraphResponse, ServerError, Variables};
use axum::body::Body;
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, RETRY_AFTER, VARY,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::document::Refusal;
use super::harden::hardened;
use super::responses::{Kept, RawRequest, Way};
use crate::error::Error;
use crate::graphql::write_response;

/// Every answer depends on these headers of its request: staff are told more than others.
const DEPENDS_ON: HeaderValue = HeaderValue::from_static("accept, authorization");
/// Whoever keeps an answer that is the same for everybody asks before it is shown again: it may be
/// half a second old, and the shortest time that could be named here is a second.
const SHARED: HeaderValue = HeaderValue::from_static("public, max-age=0, must-revalidate");
/// Headers that an answer has beside those that all have.
const OWN_HEADERS: usize = 5;

/// A GraphQL request as JSON.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GraphRequest {
    pub(super) query: Option<String>,
    /// The document's name where it is not sent itself: `sha256:` and its hash.
    pub(super) document_id: Option<String>,
    pub(super) operation_name: Option<String>,
    #[serde(default)]
    pub(super) variables: Option<Variables>,
    pub(super) extensions: Option<Object<RequestExtensions>>,
}

/// The extensions that this server knows.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestExtensions {
    pub(super) persisted_query: Option<Object<PersistedQuery>>,
}

/// An automatic persisted query.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PersistedQuery {
    pub(super) version: u32,
    pub(super) sha256_hash: String,
}

/// What is read from a JSON object and from nothing else. By itself serde takes a list of the fields'
/// values for a structure too, which is neither what specifications say nor what anybody means.
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

impl GraphRequest {
    /// Reads the body of a POST. Errors say what is wrong, not with which text.
    pub(super) fn from_json(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            let message = "Batches are not accepted; send one request at a time.".to_owned();
            return Err(Error::BadUserInput(message));
        }
        let request = serde_json::from_slice::<Object<Self>>(bytes).map(|request| request.0);
        request.map_err(|error| {
            Error::BadUserInput(if error.is_data() {
                "The body must be a JSON object with a string `query` or `documentId` and, where \
                 they are given, a string `operationName` and objects `variables` and \
                 `extensions`."
                    .to_owned()
            } else {
                format!("The body is not JSON: line {}, column {}.", error.line(), error.column())
            })
        })
    }
}

/// The two media types of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Media {
    /// `application/json`: a well-formed request is answered with 200, whatever comes of it.
    Json,
    /// `application/graphql-response+json`: the status tells whether there is data.
    GraphResponse,
}

impl Media {
    /// What the client accepts, of what there is. `None`: nothing of it.
    pub(super) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let mut any = false;
        let mut json = false;
        let mut given = false;
        for value in headers.get_all(ACCEPT) {
            given = true;
            let Ok(value) = value.to_str() else { continue };
            for range in value.split(',') {
                let mut parts = range.split(';').map(str::trim);
                let kind = parts.next().unwrap_or_default();
                let refused = parts.any(|part| {
                    part.strip_prefix("q=").and_then(|q| q.parse().ok()) == Some(0.0_f32)
                });
                match kind.to_ascii_lowercase().as_str() {
                    _ if refused => {}
                    "application/graphql-response+json" => return Some(Self::GraphResponse),
                    "application/json" => json = true,
                    "*/*" | "application/*" => any = true,
                    _ => {}
                }
            }
        }
        (json || any || !given).then_some(Self::Json)
    }

    fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json; charset=utf-8",
            Self::GraphResponse => "application/graphql-response+json; charset=utf-8",
        })
    }
}

/// Whether the body is said to be JSON in UTF-8.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.eq_ignore_ascii_case("charset").then(|| value.trim_matches('"'))
    });
    kind.eq_ignore_ascii_case("application/json")
        && charset.is_none_or(|charset| charset.eq_ignore_ascii_case("utf-8"))
}

#[derive(Serialize)]
struct Errors<'a> {
    errors: &'a [ServerError],
}

/// The answer to a request that was executed.
pub(super) fn executed(media: Media, response: &GraphResponse) -> Response {
    json(StatusCode::OK, media, write_response(response))
}

/// An answer that is the same for everybody. A client that has it already is told so if it asked by
/// GET: of other methods the condition would mean that nothing is to be done, so there it is ignored.
pub(super) fn shared(raw: RawRequest<'_>, headers: &HeaderMap, kept: &Kept) -> Response {
    let is_known = raw.way == Way::Get && knows(headers, &kept.tag);
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Response::new(Body::from(kept.body.clone()))
    };
    let headers = response.headers_mut();
    *headers = usual();
    if !is_known {
        headers.insert(CONTENT_TYPE, raw.media.content_type());
    }
    headers.insert(CACHE_CONTROL, SHARED);
    headers.insert(ETAG, kept.tag.clone());
    headers.insert(VARY, DEPENDS_ON);
    response
}

/// Whether a client says that it has an answer with this tag.
fn knows(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().any(|value| {
        let known = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        known
            .map(|known| known.strip_prefix(b"W/").unwrap_or(known))
            .any(|known| known == b"*" || known == tag.as_bytes())
    })
}

/// The answer to a well-formed request whose document or variables are refused.
pub(super) fn refused(media: Media, refusal: &Refusal) -> Response {
    let status = match media {
        Media::Json => StatusCode::OK,
        Media::GraphResponse => StatusCode::BAD_REQUEST,
    };
    match refusal {
        Refusal::One(error) => errors(status, media, &[error.into()]),
        Refusal::Request(error) => failed(media, error),
        Refusal::Schema(faults) => errors(status, media, faults),
    }
}

/// The answer to a request that was not executed because of something outside its document.
pub(super) fn failed(media: Media, error: &Error) -> Response {
    let status = match error {
        Error::Unauthenticated(_) => StatusCode::UNAUTHORIZED,
        Error::Forbidden(_) => StatusCode::FORBIDDEN,
        Error::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
        Error::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Error::Unavailable | Error::Overloaded { .. } => StatusCode::SERVICE_UNAVAILABLE,
        Error::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Error::PersistedQueryNotFound => return refused(media, &Refusal::One(error.clone())),
        Error::BadUserInput(_)
        | Error::DocumentNotTrusted
        | Error::InvalidCursor
        | Error::QueryTooComplex(_) => StatusCode::BAD_REQUEST,
    };
    with_status(status, media, error)
}

/// When the client of an answer was told to come back.
#[derive(Clone, Copy)]
pub(super) struct ComeBackAfter(pub(super) Duration);

/// The answer to a client that was not listened to until it had said everything.
#[derive(Clone, Copy)]
pub(super) struct Unheard;

/// An error with a status of its own.
pub(super) fn with_status(status: StatusCode, media: Media, error: &Error) -> Response {
    let mut response = errors(status, media, &[error.into()]);
    if let Some(wait) = error.wait() {
        // In whole seconds, of which a part is too short.
        let seconds = wait.as_millis().div_ceil(1_000).max(1);
        if let Ok(seconds) = HeaderValue::try_from(seconds.to_string()) {
            response.headers_mut().insert(RETRY_AFTER, seconds);
            response.extensions_mut().insert(ComeBackAfter(wait));
        }
    }
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer"));
    }
    response
}

fn errors(status: StatusCode, media: Media, errors: &[ServerError]) -> Response {
    // Errors are texts and numbers; they always can be written.
    json(status, media, serde_json::to_vec(&Errors { errors }).unwrap_or_default())
}

fn json(status: StatusCode, media: Media, body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    *headers = usual();
    headers.insert(CONTENT_TYPE, media.content_type());
    headers.insert(VARY, DEPENDS_ON);
    response
}

/// The headers that all answers have, and room for others.
fn usual() -> HeaderMap {
    let mut headers = hardened();
    headers.reserve(OWN_HEADERS);
    headers
}

#[cfg(test)]
pub(super) mod tests;
