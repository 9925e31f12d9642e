//! Who asks: bearer tokens of the shop's identity provider.

use std::time::{Duration, SystemTime};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use clap::ValueEnum;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::config::AuthConfig;
use crate::error::Error;
use crate::graphql::Viewer;

/// Longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 4_096;
/// How far two clocks may be apart.
const LEEWAY_SECONDS: u64 = 30;
/// Longest `sub`: it becomes part of keys.
const MAX_SUBJECT_BYTES: usize = 255;

/// What a bearer may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Buys.
    Customer,
    /// Runs the shop.
    Staff,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    sub: String,
    role: Role,
    exp: u64,
}

/// Who asks, and for how long that is certain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Who asks.
    pub viewer: Viewer,
    /// How long the token will go on being taken; `None` if there is none.
    pub lasts: Option<Duration>,
}

/// Tells who a request comes from.
pub struct Identity {
    key: DecodingKey,
    validation: Validation,
}

/// One answer for every fault of a token: which one it was helps nobody but an attacker.
pub(super) const REFUSED: Error =
    Error::Unauthenticated("The token in the Authorization header is not valid.");

impl Identity {
    /// Accepts the tokens that the configuration says.
    pub fn new(config: &AuthConfig) -> Self {
        // Naming the one algorithm shuts out `none` and keys taken for another algorithm's.
        let mut validation = Validation::new(Algorithm::HS256);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.validate_aud = false;
        validation.set_required_spec_claims(&["exp", "sub"]);
        let key = DecodingKey::from_secret(config.jwt_secret.expose().as_bytes());
        Self { key, validation }
    }

    /// Who comes with this token; a guest, if with none.
    pub(super) async fn of_bearer(&self, token: Option<&str>) -> Result<Known, Error> {
        match token {
            Some(token) => self.verify(token).await,
            None => Ok(Known { viewer: Viewer::Anonymous, lasts: None }),
        }
    }

    /// Who a token says its bearer is.
    pub async fn verify(&self, token: &str) -> Result<Known, Error> {
        let claims = jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation)
            .map_err(|_| REFUSED)?
            .claims;
        let sound = !claims.sub.is_empty()
            && claims.sub.len() <= MAX_SUBJECT_BYTES
            && !claims.sub.chars().any(char::is_control);
        if !sound {
            return Err(REFUSED);
        }
        let viewer = match claims.role {
            Role::Customer => Viewer::Customer(claims.sub),
            Role::Staff => Viewer::Staff(claims.sub),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ends = Duration::from_secs(claims.exp.saturating_add(LEEWAY_SECONDS));
        Ok(Known { viewer, lasts: Some(ends.saturating_sub(now)) })
    }
}

/// The values of `Authorization`; `None` is one that is no text.
pub(super) fn authorization(headers: &HeaderMap) -> impl Iterator<Item = Option<&str>> {
    headers.get_all(AUTHORIZATION).iter().map(|value| value.to_str().ok())
}

/// The token in the values of `Authorization`, wherever they stand; `None` is one that is no text.
/// Of two, nobody could say which one counts.
pub(super) fn bearer_of<'a>(
    mut values: impl Iterator<Item = Option<&'a str>>,
) -> Result<Option<&'a str>, Error> {
    let Some(value) = values.next() else { return Ok(None) };
    let token = value.and_then(bearer).ok_or(REFUSED)?;
    if values.next().is_some() || token.len() > MAX_TOKEN_BYTES {
        return Err(REFUSED);
    }
    Ok(Some(token))
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Makes a token as the identity provider would; for trying out.
pub fn sign_token(
    config: &AuthConfig,
    user: &str,
    role: Role,
    expires: Timestamp,
) -> Result<String, String> {
    let exp = u64::try_from(expires.millis() / 1_000).unwrap_or(0);
    let claims = Claims { sub: user.to_owned(), role, exp };
    let key = EncodingKey::from_secret(config.jwt_secret.expose().as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key)
        .map_err(|error| error.to_string())
}
