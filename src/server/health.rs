//! Whether the process lives, and whether it can serve.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::app::{App, Shop};

/// Longer than the store's own check may take, shorter than a probe waits.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Serialize)]
pub(super) struct Readiness {
    ready: bool,
    /// What the shop waits for or misses; empty when it is ready.
    missing: Vec<&'static str>,
}

/// What was found out just now is not asked again for so long: anybody may ask, as often as they like.
const KNOWN_FOR: Duration = Duration::from_millis(100);

/// What the shop misses, as it was found out last, and when. One looks and the others wait for it.
#[derive(Default)]
pub(crate) struct Health(Mutex<Option<(Instant, Option<&'static str>)>>);

impl Health {
    async fn missing(&self, shop: &Shop) -> Option<&'static str> {
        let mut known = self.0.lock().await;
        if let Some((at, missing)) = *known
            && at.elapsed() < KNOWN_FOR
        {
            return missing;
        }
        let missing = match tokio::time::timeout(CHECK_TIMEOUT, shop.store.ready()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                tracing::warn!(%error, "not ready");
                Some("store: it does not answer")
            }
            Err(_) => Some("store: it does not answer in time"),
        };
        *known = Some((Instant::now(), missing));
        missing
    }
}

/// The process runs and answers.
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// The shop can serve right now.
pub(super) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, Json<Readiness>) {
    let missing = match app.shop() {
        _ if app.is_stopping() => Some("this instance: it is stopping"),
        None => Some("store: it is being opened"),
        Some(shop) => app.health.missing(shop).await,
    };
    let status = if missing.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let readiness = Readiness { ready: missing.is_none(), missing: missing.into_iter().collect() };
    (status, Json(readiness))
}
