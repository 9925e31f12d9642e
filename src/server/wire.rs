//! GraphQL over HTTP: what a request must look like, and what an answer looks like.

use async_graphql::{Response as GraphResponse, ServerError, Variables};
use axum::body::Body;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::document::Refusal;
use crate::error::Error;

/// A GraphQL request as JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GraphRequest {
    pub(super) query: Option<String>,
    pub(super) operation_name: Option<String>,
    #[serde(default)]
    pub(super) variables: Option<Variables>,
    pub(super) extensions: Option<RequestExtensions>,
}

/// The extensions that this server knows.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestExtensions {
    pub(super) persisted_query: Option<PersistedQuery>,
}

/// An automatic persisted query.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PersistedQuery {
    pub(super) version: u32,
    pub(super) sha256_hash: String,
}

impl GraphRequest {
    /// Reads the body of a POST. Errors say what is wrong, not with which text.
    pub(super) fn from_json(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            let message = "Batches are not accepted; send one request at a time.".to_owned();
            return Err(Error::BadUserInput(message));
        }
        serde_json::from_slice(bytes).map_err(|error| {
            Error::BadUserInput(if error.is_data() {
                "The body must be a JSON object with a string `query` and, where they are given, \
                 a string `operationName` and objects `variables` and `extensions`."
                    .to_owned()
            } else {
                format!("The body is not JSON: line {}, column {}.", error.line(), error.column())
            })
        })
    }
}

/// The two media types of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    match serde_json::to_vec(response) {
        Ok(body) => json(StatusCode::OK, media, body),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written");
            failed(media, &Error::Internal)
        }
    }
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
        Error::RateLimited(_) => StatusCode::TOO_MANY_REQUESTS,
        Error::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Error::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Error::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Error::PersistedQueryNotFound => return refused(media, &Refusal::One(error.clone())),
        Error::BadUserInput(_) | Error::InvalidCursor | Error::QueryTooComplex(_) => {
            StatusCode::BAD_REQUEST
        }
    };
    with_status(status, media, error)
}

/// An error with a status of its own.
pub(super) fn with_status(status: StatusCode, media: Media, error: &Error) -> Response {
    let mut response = errors(status, media, &[error.into()]);
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
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
    let mut response = (status, Body::from(body)).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media.content_type());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(VARY, HeaderValue::from_static("accept, authorization"));
    response
}
