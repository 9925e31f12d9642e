//! What a browser lets pages do: those of other sites, those of named sites, and what it must not
//! make of an answer.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use vitrina::config::Origins;

use super::{DELETE, get, graphql_path, post, product, staff, stock};
use crate::support::http::Answer;
use crate::support::server::TestServer;
use crate::support::stores::TestStore;
use crate::support::websocket::Socket;

const SHOP: &str = "https://shop.example";
const OTHER: &str = "https://evil.example";
const JSON: (&str, &str) = ("content-type", "application/json");
const TYPENAME: &str = r#"{"query":"{ __typename }"}"#;

async fn serve() -> TestServer {
    let origins = Origins::parse("https://shop.example,http://localhost:5173").unwrap();
    TestServer::start_on(TestStore::embedded().await, |config| config.origins = origins).await
}

/// What a browser asks before it sends a request of a page.
async fn preflight(server: &TestServer, path: &str, origin: &str) -> Answer {
    let request = Request::options(path)
        .header("origin", origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type");
    server.http.send(request.body(Body::empty()).unwrap()).await.unwrap()
}

fn cors_headers(answer: &Answer) -> Vec<&str> {
    let names = answer.headers.keys().map(axum::http::HeaderName::as_str);
    names.filter(|name| name.starts_with("access-control")).collect()
}

#[tokio::test]
async fn without_named_sites_nothing_is_said_to_browsers() {
    let server = TestServer::start().await;
    for path in ["/graphql", "/schema.graphql", "/metrics", "/nope"] {
        let answer = preflight(&server, path, SHOP).await;
        assert!([404, 405].contains(&answer.status.as_u16()), "{path}: {}", answer.status);
        assert!(cors_headers(&answer).is_empty(), "{path}");
    }
    let answer = post(&server.http, &[JSON, ("origin", SHOP)], TYPENAME).await;
    assert_eq!(answer.status, 200);
    assert!(cors_headers(&answer).is_empty());
    assert!(!answer.header("vary").contains("origin"));
}

#[tokio::test]
async fn pages_of_named_sites_may_ask() {
    let server = serve().await;
    for origin in [SHOP, "http://localhost:5173"] {
        let asked = preflight(&server, "/graphql", origin).await;
        assert_eq!(asked.status, 204);
        assert_eq!(asked.header("access-control-allow-origin"), origin);
        assert_eq!(asked.header("access-control-allow-methods"), "GET, POST");
        let allowed = asked.header("access-control-allow-headers");
        for header in ["authorization", "content-type", "x-request-id", "apollo-require-preflight"]
        {
            assert!(allowed.split(", ").any(|name| name == header), "{header}: {allowed}");
        }
        assert!(asked.header("access-control-max-age").parse::<u32>().unwrap() > 0);
        assert!(asked.header("vary").contains("origin"));
        assert_eq!(asked.header("access-control-allow-credentials"), "", "tokens are no cookies");

        for (headers, body) in [(vec![JSON], TYPENAME), (vec![JSON], "{"), (vec![], TYPENAME)] {
            let headers: Vec<_> = headers.into_iter().chain([("origin", origin)]).collect();
            let answer = post(&server.http, &headers, body).await;
            // Also of a refusal: a page must be able to read why.
            assert_eq!(answer.header("access-control-allow-origin"), origin);
            let exposed = answer.header("access-control-expose-headers");
            assert_eq!(exposed, "x-request-id, retry-after, etag");
            let vary: Vec<_> = answer.headers.get_all("vary").iter().collect();
            assert!(vary.iter().any(|value| *value == "origin"), "{vary:?}");
        }
    }
    // Other routes are for no page of another site.
    assert!(cors_headers(&preflight(&server, "/metrics", SHOP).await).is_empty());
    let answer = get(&server.http, "/schema.graphql", &[("origin", SHOP)]).await;
    assert!(cors_headers(&answer).is_empty());
}

#[tokio::test]
async fn pages_of_other_sites_may_not() {
    let server = serve().await;
    for origin in [
        OTHER,
        "null",
        "*",
        "",
        "http://shop.example",
        "https://shop.example:8443",
        "https://shop.example.evil.example",
        "https://evilshop.example",
        "HTTPS://SHOP.EXAMPLE",
        "https://shop.example/",
        "https://shop.example, https://evil.example",
    ] {
        let asked = preflight(&server, "/graphql", origin).await;
        assert_eq!(asked.status, 403, "{origin}");
        assert!(cors_headers(&asked).is_empty(), "{origin}");
        let answer = post(&server.http, &[JSON, ("origin", origin)], TYPENAME).await;
        assert!(cors_headers(&answer).is_empty(), "{origin}");
        let vary = answer.headers.get_all("vary");
        assert!(vary.iter().any(|value| value == "origin"), "a cache must not mix them up");
    }
    // A program sends no origin, and is none of a browser's business.
    let answer = post(&server.http, &[JSON], TYPENAME).await;
    assert_eq!((answer.status.as_u16(), cors_headers(&answer).len()), (200, 0));
}

#[tokio::test]
async fn a_websocket_is_opened_by_pages_of_the_shop_and_of_named_sites() {
    let (plain, named) = (TestServer::start().await, serve().await);
    let own = |server: &TestServer| format!("http://{}", server.address);
    for (server, origin, expected) in [
        (&plain, own(&plain), Ok(())),
        (&plain, format!("https://{}", plain.address), Ok(())),
        (&plain, SHOP.to_owned(), Err(403)),
        (&plain, "null".to_owned(), Err(403)),
        (&plain, String::new(), Err(403)),
        (&plain, own(&named), Err(403)),
        (&named, own(&named), Ok(())),
        (&named, SHOP.to_owned(), Ok(())),
        (&named, OTHER.to_owned(), Err(403)),
        (&named, "https://shop.example.evil.example".to_owned(), Err(403)),
    ] {
        let opened = Socket::try_open(server.address, &[("origin", &origin)]).await;
        assert_eq!(opened.map(drop), expected, "{origin}");
    }
    assert!(Socket::try_open(named.address, &[]).await.is_ok(), "a program says no origin");
    let headers = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "graphql-transport-ws"),
        ("origin", OTHER),
    ];
    let refused = get(&plain.http, "/graphql", &headers).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (403, "FORBIDDEN"));
    let two =
        [headers[0], headers[1], headers[2], headers[3], headers[4], headers[5], ("origin", SHOP)];
    assert_eq!(get(&named.http, "/graphql", &two).await.status, 403, "which of the two?");
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing_without_asking_first() {
    let server = serve().await;
    stock(&server.http, &[product("1", "Книги", "1")]).await;
    let bearer = format!("Bearer {}", staff());
    let body = json!({ "query": DELETE, "variables": { "ids": ["1"] } }).to_string();
    let variables = json!({ "ids": ["1"] }).to_string();
    let parameters = [("query", DELETE), ("variables", variables.as_str())];
    let form = graphql_path(&parameters).split_off("/graphql?".len());
    let multipart = format!(
        "--x\r\ncontent-disposition: form-data; name=\"operations\"\r\n\r\n{body}\r\n\
         --x\r\ncontent-disposition: form-data; name=\"map\"\r\n\r\n{{}}\r\n--x--\r\n"
    );
    // All that a form or a script can send to another site without a preflight.
    for (kind, body) in [
        ("text/plain", body.as_str()),
        ("text/plain; charset=application/json", &body),
        ("application/x-www-form-urlencoded", &form),
        ("application/x-www-form-urlencoded", &body),
        ("multipart/form-data; boundary=x", &multipart),
        ("multipart/form-data; boundary=x; application/json", &body),
        ("application/x-www-form-urlencoded, application/json", &body),
        ("", &body),
    ] {
        for origin in [OTHER, SHOP, "null"] {
            let headers = [("content-type", kind), ("authorization", &bearer), ("origin", origin)];
            let answer = post(&server.http, &headers, body.to_owned()).await;
            assert_eq!((answer.status.as_u16(), answer.code().as_str()), (415, "BAD_USER_INPUT"));
        }
    }
    let path = graphql_path(&parameters);
    for extra in [vec![], vec![("content-type", "text/plain")], vec![("accept", "image/*,*/*")]] {
        let headers = [("authorization", bearer.as_str()), ("origin", OTHER)];
        let headers: Vec<_> = headers.into_iter().chain(extra).collect();
        assert_eq!(get(&server.http, &path, &headers).await.status, 400);
    }
    for method in ["HEAD", "GET"] {
        let request = Request::builder().method(method).uri(&path);
        let request = request.header("authorization", &bearer).header("x-requested-with", "x");
        let answer = server.http.send(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status, 405, "{method}");
    }
    let left = server.http.query("{ product(id: 1) { id } }", json!({})).await.json();
    assert_eq!(left["data"]["product"]["id"], "1");
}

#[tokio::test]
async fn every_answer_says_what_a_browser_must_not_make_of_it() {
    let server = serve().await;
    let html = [("accept", "text/html")];
    let asset = {
        let page = get(&server.http, "/graphql", &html).await.text();
        let (_, rest) = page.split_once("\"/graphiql/").unwrap();
        format!("/graphiql/{}", rest.split_once('"').unwrap().0)
    };
    let query = graphql_path(&[("query", "{ __typename }")]);
    let program = [("apollo-require-preflight", "x")];
    let mut answers = vec![
        ("the page", get(&server.http, "/graphql", &html).await, 200),
        ("a file of it", get(&server.http, &asset, &[]).await, 200),
        ("no file of it", get(&server.http, "/graphiql/nope", &[]).await, 404),
        ("a query by GET", get(&server.http, &query, &program).await, 200),
        ("one without the header", get(&server.http, &query, &[]).await, 400),
        ("a query", post(&server.http, &[JSON], TYPENAME).await, 200),
        ("a refusal", post(&server.http, &[JSON], "{").await, 400),
        ("a form", post(&server.http, &[], "").await, 415),
        ("not acceptable", post(&server.http, &[JSON, ("accept", "x/y")], TYPENAME).await, 406),
        ("a bad token", post(&server.http, &[JSON, ("authorization", "x")], TYPENAME).await, 401),
        ("a preflight", preflight(&server, "/graphql", SHOP).await, 204),
        ("a refused one", preflight(&server, "/graphql", OTHER).await, 403),
        ("a websocket", get(&server.http, "/graphql", &[("upgrade", "websocket")]).await, 400),
        (
            "a hook",
            server
                .http
                .send(Request::post("/hooks/payment").body(Body::empty()).unwrap())
                .await
                .unwrap(),
            401,
        ),
        ("a hook by GET", get(&server.http, "/hooks/payment", &[]).await, 405),
    ];
    for (path, status) in [
        ("/schema.graphql", 200),
        ("/health/live", 200),
        ("/health/ready", 200),
        ("/metrics", 200),
        ("/images/PROD-12345.svg", 200),
        ("/images/nope.svg", 404),
        ("/nope", 404),
        ("/", 404),
    ] {
        answers.push((path, get(&server.http, path, &[]).await, status));
    }
    for (what, answer, status) in &answers {
        assert_eq!(answer.status, *status, "{what}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(answer.header(name), value, "{what}: {name}");
            assert_eq!(answer.headers.get_all(name).iter().count(), 1, "{what}: {name}");
        }
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'"), "{what}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{what}: {policy}");
        let may_be_kept = ["the page", "a file of it", "/images/PROD-12345.svg"].contains(what);
        let cache = answer.header("cache-control");
        assert_eq!(cache != "no-store", may_be_kept, "{what}: {cache}");
        let is_picture = *what == "/images/PROD-12345.svg";
        let sites = if is_picture { "cross-origin" } else { "same-origin" };
        assert_eq!(answer.header("cross-origin-resource-policy"), sites, "{what}");
    }
}
