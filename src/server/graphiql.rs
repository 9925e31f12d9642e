//! GraphiQL: the page that a browser gets at `/graphql`, and its files under `/graphiql/`.
//!
//! The build script decides which page it is. With a built `web/dist` everything comes from this
//! server and works with no internet; otherwise the page loads the same version from the CDN.

use axum::body::Body;
use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

// `EMBEDDED`, `PAGE` and `ASSETS`: (name, content type, bytes).
include!(concat!(env!("OUT_DIR"), "/web_assets.rs"));

/// What the page may load. Only this server may see a token that is typed into it, and no other
/// site may frame it. Monaco, the editor, sets inline styles and has its fonts in the style sheet.
const POLICY: &str = if EMBEDDED {
    "default-src 'none'; script-src 'self'; worker-src 'self'; connect-src 'self'; \
     style-src 'self' 'unsafe-inline'; font-src data:; img-src 'self' data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
} else {
    // An import map can only be inline, and its empty module is a `data:` address. The page is a
    // constant, so nothing foreign can get into what this allows. The CDN starts workers from blobs.
    "default-src 'none'; script-src 'self' 'unsafe-inline' data: https://esm.sh; \
     worker-src blob: https://esm.sh; connect-src 'self' https://esm.sh; \
     style-src 'self' 'unsafe-inline' https://esm.sh; font-src data: https://esm.sh; \
     img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
};

/// The names of built files carry a hash of their content, so they never go stale.
const ASSET_CACHE: &str = if EMBEDDED { "public, max-age=31536000, immutable" } else { "no-cache" };

/// The GraphiQL page.
pub(crate) fn page() -> Response {
    // Not cached: after an upgrade the page must name the new files at once.
    let mut response = file(PAGE, "text/html; charset=utf-8", "no-cache");
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// A file of the page: `GET /graphiql/{*path}`.
pub(crate) async fn asset(Path(path): Path<String>) -> Response {
    let Some((_, content_type, bytes)) = ASSETS.iter().find(|(name, ..)| *name == path) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let mut response = file(bytes, content_type, ASSET_CACHE);
    if EMBEDDED {
        // Stored gzipped only. Every browser that runs GraphiQL reads it, and nobody else asks.
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn file(bytes: &'static [u8], content_type: &'static str, cache: &'static str) -> Response {
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, cache),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_asks_only_for_files_that_exist() {
        let page = std::str::from_utf8(PAGE).unwrap();
        let asked: Vec<&str> = page
            .split("\"/graphiql/")
            .skip(1)
            .filter_map(|rest| rest.split_once('"').map(|(name, _)| name))
            .collect();
        assert!(!asked.is_empty());
        for name in asked {
            assert!(ASSETS.iter().any(|(asset, ..)| *asset == name), "{name} is missing");
        }
        assert!(!page.contains("{{"), "a placeholder was left in");
    }

    #[test]
    fn no_site_may_frame_the_page_and_nothing_may_be_evaluated() {
        let response = page();
        let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe-eval"));
        assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
    }

    #[test]
    fn an_unknown_file_is_not_found() {
        let future = asset(Path("../Cargo.toml".to_owned()));
        let response = futures_util::FutureExt::now_or_never(future).unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
    }
}
