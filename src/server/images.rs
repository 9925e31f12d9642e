//! Pictures of the demo shop, drawn when they are asked for.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use super::harden::RESOURCE_POLICY;
use crate::demo;

/// `GET /images/PROD-12345.svg`
pub(super) async fn image(Path(file): Path<String>) -> Response {
    let index = file.strip_suffix(".svg").and_then(demo::catalogue::index_of);
    let Some(index) = index else { return StatusCode::NOT_FOUND.into_response() };
    let headers = [
        (CONTENT_TYPE, "image/svg+xml"),
        (CACHE_CONTROL, "public, max-age=86400"),
        // A picture opened as a page of its own runs and loads nothing.
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
        // The pages of the shop's frontends are on other sites.
        (RESOURCE_POLICY, "cross-origin"),
    ];
    (headers, demo::images::svg(index)).into_response()
}
