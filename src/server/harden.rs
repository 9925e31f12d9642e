//! The headers that every answer has: what a browser must not make of it.

use std::sync::LazyLock;

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;

/// Which sites may load an answer as a part of their pages.
pub(super) const RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");
/// Which windows may reach into the one that shows an answer.
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Each holds unless whoever made the answer has said otherwise: a page has a policy of its own,
/// and pictures may be kept and shown anywhere.
const DEFAULTS: [(HeaderName, &str); 7] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // An answer that is opened as a page runs and loads nothing, and stands in no frame.
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "no-referrer"),
    // Most answers depend on who asks, the others on the moment.
    (CACHE_CONTROL, "no-store"),
    (RESOURCE_POLICY, "same-origin"),
    (OPENER_POLICY, "same-origin"),
];

/// The headers of an answer that has none of its own yet. To copy all of them takes a fraction of what it
/// takes to add one after the other.
pub(super) fn hardened() -> HeaderMap {
    static ALL: LazyLock<HeaderMap> = LazyLock::new(|| {
        let all = DEFAULTS.map(|(name, value)| (name, HeaderValue::from_static(value)));
        all.into_iter().collect()
    });
    ALL.clone()
}

/// Adds the headers that an answer lacks.
pub(super) fn harden(response: &mut Response) {
    let headers = response.headers_mut();
    // Nobody else sets this one: it came with all others.
    if headers.contains_key(OPENER_POLICY) {
        return;
    }
    for (name, value) in DEFAULTS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
