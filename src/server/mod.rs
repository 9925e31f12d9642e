//! HTTP and WebSocket: bytes in, bytes out. Routes, the GraphQL pipeline, identity, limits, health.

mod accept;
mod admission;
mod body;
mod caller;
mod comeback;
mod connection;
mod cors;
mod document;
mod graphiql;
mod harden;
mod health;
mod identity;
mod images;
mod lexer;
mod operation;
mod payment;
mod pipeline;
mod responses;
mod seats;
mod shape;
mod till;
mod traffic;
mod trusted;
mod websocket;
mod wire;

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

pub use accept::{listen, serve};
pub(crate) use admission::Admission;
pub use admission::WorkLimits;
pub(crate) use body::Arriving;
pub(crate) use document::Documents;
pub(crate) use health::Health;
pub(crate) use identity::check_file as check_jwks_file;
pub use identity::{Identity, Known, Role, sign_token};
pub(crate) use responses::Responses;
pub(crate) use till::Till;
pub use trusted::Trusted;
pub(crate) use trusted::{Folder, MANIFEST, faults};
pub(crate) use websocket::Sockets;

use crate::app::App;

/// All routes of the server.
pub fn router(app: Arc<App>) -> Router {
    let mut graphql = get(pipeline::get).post(pipeline::post);
    if !app.config.origins.is_empty() {
        graphql = graphql.layer(from_fn_with_state(app.clone(), cors::share));
    }
    Router::new()
        .route("/graphql", graphql)
        .route("/graphiql/{*path}", get(graphiql::asset))
        .route("/schema.graphql", get(schema))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(metrics))
        .route("/images/{file}", get(images::image))
        .route("/hooks/payment", post(payment::hook))
        // One layer for what every request needs: each is polled as often as a request is.
        .layer(from_fn_with_state(app.clone(), attend))
        .with_state(app)
}

/// Counts and times every request by its route, which is one of the few above, and gives its answer
/// the headers that all have.
async fn attend(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let route = match request.extensions().get::<MatchedPath>().map(MatchedPath::as_str) {
        Some("/graphql") => "/graphql",
        Some("/metrics") => "/metrics",
        Some(path) if path.starts_with("/health") => "/health",
        Some(path) if path.starts_with("/images") => "/images",
        Some(path) if path.starts_with("/hooks") => "/hooks",
        Some(_) => "/static",
        None => "unknown",
    };
    let in_work = InWork::enter(&app);
    let mut response = next.run(request).await;
    drop(in_work);
    harden::harden(&mut response);
    app.metrics.http_request(route, response.status().as_u16(), started);
    response
}

/// A request being worked on; it also ends when the client goes away.
struct InWork<'a>(&'a App);

impl<'a> InWork<'a> {
    fn enter(app: &'a App) -> Self {
        app.metrics.in_work().inc();
        Self(app)
    }
}

impl Drop for InWork<'_> {
    fn drop(&mut self) {
        self.0.metrics.in_work().dec();
    }
}

async fn schema(State(app): State<Arc<App>>) -> Response {
    if !app.config.introspection {
        return axum::http::StatusCode::NOT_FOUND.into_response();
    }
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], app.graph.sdl()).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], app.metrics.encode()).into_response()
}
