//! Who asks: with a token of the shop's identity provider, of a session, or with none.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::http::header::USER_AGENT;
use axum::http::{Extensions, HeaderMap};

use super::identity::{Known, REFUSED};
use crate::app::{App, Shop};
use crate::error::Error;
use crate::graphql::{Caller, Origin, Viewer};
use crate::sessions::model::TokenKey;

/// Where proxies say for whom they ask.
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Where a request comes from. Without an address, as in a test without a socket, nothing of it is
/// known.
pub(super) fn origin(app: &App, headers: &HeaderMap, extensions: &Extensions) -> Origin {
    let address = address(app, headers, extensions);
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok());
    Origin { address, user_agent: agent.map(str::to_owned) }
}

/// The network address of it alone.
pub(super) fn address(app: &App, headers: &HeaderMap, extensions: &Extensions) -> Option<IpAddr> {
    let connected = extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    forwarded(headers, app.config.limits.proxies).or(connected)
}

/// For whom the outermost of so many proxies asks. Each adds whom it was asked by to the end of a
/// list; what stands before that, the client may have made up.
fn forwarded(headers: &HeaderMap, proxies: usize) -> Option<IpAddr> {
    let told = headers.get_all(FORWARDED_FOR).iter().rev();
    let mut told = told.flat_map(|value| value.to_str().unwrap_or_default().rsplit(','));
    told.nth(proxies.checked_sub(1)?)?.trim().parse().ok()
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

/// Who asks, as far as it can be found out.
pub(super) enum Asking {
    /// So much is certain.
    Known(Caller),
    /// Somebody with the token of a session that cannot be looked up now, and why not.
    InDoubt(Error),
}

/// Who asks with this token.
pub(super) async fn asking(
    app: &App,
    shop: &Shop,
    token: Option<&str>,
    origin: Origin,
) -> Result<Asking, Error> {
    let is_of_session = token.is_some_and(TokenKey::is_meant);
    match identify(app, shop, token, origin).await {
        Ok((caller, _)) => Ok(Asking::Known(caller)),
        Err(error @ (Error::Unavailable | Error::Timeout)) if is_of_session => {
            Ok(Asking::InDoubt(error))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_proxies_say_is_believed() {
        let mut headers = HeaderMap::new();
        headers.append(FORWARDED_FOR, "1.1.1.1, 2.2.2.2".parse().unwrap());
        headers.append(FORWARDED_FOR, "3.3.3.3".parse().unwrap());
        let told = |proxies| forwarded(&headers, proxies).map(|address| address.to_string());
        assert_eq!(told(0), None);
        assert_eq!(told(1).as_deref(), Some("3.3.3.3"));
        assert_eq!(told(2).as_deref(), Some("2.2.2.2"));
        assert_eq!(told(4), None);
        assert_eq!(forwarded(&HeaderMap::new(), 1), None);
        headers.append(FORWARDED_FOR, "unknown".parse().unwrap());
        assert_eq!(forwarded(&headers, 1), None);
    }
}
