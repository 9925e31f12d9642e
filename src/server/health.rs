//! Whether the process lives, and whether it can serve.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use crate::app::App;

/// Longer than the store's own check may take, shorter than a probe waits.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Serialize)]
pub(super) struct Readiness {
    ready: bool,
    /// What the shop waits for or misses; empty when it is ready.
    missing: Vec<&'static str>,
}

/// The process runs and answers.
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// The shop can serve right now: asked of the store at every call, not remembered.
pub(super) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, Json<Readiness>) {
    let missing = match app.shop() {
        _ if app.is_stopping() => Some("this instance: it is stopping"),
        None => Some("store: it is being opened"),
        Some(shop) => match tokio::time::timeout(CHECK_TIMEOUT, shop.store.ready()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                tracing::warn!(%error, "not ready");
                Some("store: it does not answer")
            }
            Err(_) => Some("store: it does not answer in time"),
        },
    };
    let status = if missing.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let readiness = Readiness { ready: missing.is_none(), missing: missing.into_iter().collect() };
    (status, Json(readiness))
}
