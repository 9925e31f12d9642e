//! Who asks: with a token of the shop's identity provider, of a session, or with none.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::header::USER_AGENT;
use axum::http::{Extensions, HeaderMap};

use super::identity::{Known, REFUSED};
use crate::app::{App, Shop};
use crate::error::Error;
use crate::graphql::{Caller, Origin, Viewer};
use crate::sessions::model::TokenKey;

/// Where a request comes from. Without an address, as in a test without a socket, nothing of it is
/// known.
pub(super) fn origin(headers: &HeaderMap, extensions: &Extensions) -> Origin {
    let address = extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    Origin { address, user_agent: agent.map(str::to_owned) }
}

/// Who comes with this token, and for how long that is certain. A bad token is refused, not taken
/// for none.
pub(super) async fn identify(
    app: &App,
    shop: &Shop,
    token: Option<&str>,
    origin: Origin,
) -> Result<(Caller, Option<Duration>), Error> {
    if let Some(token) = token.filter(|token| TokenKey::is_meant(token)) {
        let session = shop.sessions.admit(token).await?.ok_or(REFUSED)?;
        let viewer = match &session.user {
            // Staff's rights come with a token of the identity provider only.
            Some(user) => Viewer::Customer(user.to_string()),
            None => Viewer::Guest(session.id),
        };
        return Ok((Caller { viewer, session: Some(session), origin }, None));
    }
    let Known { viewer, lasts } = app.identity.of_bearer(token).await?;
    Ok((Caller { viewer, session: None, origin }, lasts))
}
