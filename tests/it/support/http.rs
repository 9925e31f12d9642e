//! A small HTTP client.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

/// Longer than any answer takes, so that a test ends when a server hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// `extensions.code` of the first error; empty if there is none.
    pub fn code(&self) -> String {
        self.json()["errors"][0]["extensions"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// A client of one server.
#[derive(Clone)]
pub struct HttpClient {
    base: String,
    client: Client<HttpConnector, Body>,
}

impl HttpClient {
    /// A client of the server at `base`, such as `http://127.0.0.1:8080`.
    pub fn new(base: &str) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { base: base.to_owned(), client }
    }

    /// A client that speaks HTTP/2 from the first byte on.
    pub fn of_http2(base: &str) -> Self {
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        Self { base: base.to_owned(), client }
    }

    /// Sends any request; `request` has a path as its URI.
    pub async fn send(&self, request: Request<Body>) -> Result<Answer, String> {
        let (mut parts, body) = request.into_parts();
        parts.uri = format!("{}{}", self.base, parts.uri).parse().map_err(|e| format!("{e}"))?;
        let exchange = async {
            let response = self.client.request(Request::from_parts(parts, body)).await;
            let response = response.map_err(|error| format!("{error:?}"))?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|error| format!("{error:?}"))?.to_bytes();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| "no answer".to_owned())?
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap()
    }

    /// Posts a GraphQL request without a token.
    pub async fn query(&self, query: &str, variables: Value) -> Answer {
        self.post(None, &json!({ "query": query, "variables": variables })).await
    }

    /// Posts a GraphQL request with a token.
    pub async fn query_as(&self, token: &str, query: &str, variables: Value) -> Answer {
        self.post(Some(token), &json!({ "query": query, "variables": variables })).await
    }

    /// Posts any JSON to `/graphql`.
    pub async fn post(&self, token: Option<&str>, body: &Value) -> Answer {
        self.try_post(token, body).await.unwrap()
    }

    /// Posts any JSON to `/graphql`, to a server that may be gone.
    pub async fn try_post(&self, token: Option<&str>, body: &Value) -> Result<Answer, String> {
        let mut request = Request::post("/graphql").header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.send(request.body(Body::from(body.to_string())).unwrap()).await
    }
}
