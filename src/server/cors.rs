//! What a browser may do for pages of other sites: nothing, but for the sites that are named.
//!
//! A browser asks before it sends what a page could not send by itself, and shows a page only the
//! answers that say so. Credentials of its own (cookies) are never asked for: who asks is told by a
//! token that the page sends.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST,
    ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::app::App;

/// The methods that `/graphql` has.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST");
/// The headers that it looks at; browsers send others that are harmless without asking.
const HEADERS: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, x-request-id, apollo-require-preflight, x-requested-with, \
     x-apollo-operation-name, if-none-match",
);
/// The headers of an answer that a page may read beside its body.
const EXPOSED: HeaderValue = HeaderValue::from_static("x-request-id, retry-after, etag");
/// Seconds for which a browser does not ask again: as long as any of them remembers.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");
/// What the answer to a question depends on.
const VARY_ASKED: HeaderValue = HeaderValue::from_static(
    "origin, access-control-request-method, access-control-request-headers",
);

/// Answers what browsers ask before they send something for a page of another site, and says in
/// every answer whether such a page may see it. With no sites named there is no need of it.
pub(super) async fn share(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let origins = &app.config.origins;
    let origin = request.headers().get(ORIGIN).cloned();
    let origin = origin.filter(|origin| origin.to_str().is_ok_and(|text| origins.has(text)));
    let asks = request.method() == Method::OPTIONS
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    if asks {
        return preflight(origin);
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    // An answer that is kept for one site is not for another.
    headers.append(VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
    response
}

/// What a browser is told that asks for a page of this site; `None` is one that is not named.
fn preflight(origin: Option<HeaderValue>) -> Response {
    let Some(origin) = origin else {
        return (StatusCode::FORBIDDEN, [(VARY, VARY_ASKED)]).into_response();
    };
    let headers = [
        (ACCESS_CONTROL_ALLOW_ORIGIN, origin),
        (ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
        (ACCESS_CONTROL_MAX_AGE, MAX_AGE),
        (VARY, VARY_ASKED),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Whether a request may open a WebSocket. A browser lets a page of any site open one, without
/// asking; it only says where the page comes from. Programs that are no browsers say nothing.
pub(super) fn may_open(app: &App, headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return true };
    let (Ok(origin), None) = (origin.to_str(), origins.next()) else { return false };
    app.config.origins.has(origin) || is_own(origin, headers)
}

/// Whether a page comes from where the request goes to. Behind a proxy the scheme may be another
/// on this side of it, so only the host and port are compared.
fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let Some((scheme, from)) = origin.split_once("://") else { return false };
    let own_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(Ok(host)), None) = (hosts.next().map(HeaderValue::to_str), hosts.next()) else {
        return false;
    };
    let [from, host] = [from, host].map(|name| name.strip_suffix(own_port).unwrap_or(name));
    !from.is_empty() && from.eq_ignore_ascii_case(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_shop_itself_comes_from_where_it_asks() {
        for (origin, host, expected) in [
            ("http://localhost:8080", "localhost:8080", true),
            ("https://shop.example", "shop.example", true),
            ("https://shop.example", "Shop.Example:443", true),
            ("http://[::1]:8080", "[::1]:8080", true),
            ("https://shop.example", "shop.example:8443", false),
            ("http://localhost:8081", "localhost:8080", false),
            ("https://shop.example.evil", "shop.example", false),
            ("https://evil", "shop.example", false),
            ("null", "null", false),
            ("file://", "", false),
            ("http://", "", false),
            ("ftp://shop", "shop", false),
            ("", "", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            assert_eq!(is_own(origin, &headers), expected, "{origin} {host}");
        }
        assert!(!is_own("http://shop", &HeaderMap::new()));
    }
}
