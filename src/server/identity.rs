//! Who asks: bearer tokens of the shop's identity provider.

mod jwks;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use clap::ValueEnum;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use self::jwks::Jwks;
pub(crate) use self::jwks::check_file;
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

/// What is read of a token; its library looks at the rest.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    role: Role,
    exp: u64,
}

/// What a token of our own says.
#[derive(Serialize)]
struct OwnClaims<'a> {
    sub: &'a str,
    role: Role,
    exp: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aud: Option<&'a str>,
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
    /// The secret that signs, and the one before it.
    secrets: Vec<DecodingKey>,
    /// The keys of the identity provider.
    jwks: Option<Arc<Jwks>>,
    /// What a token must say, for each algorithm that is taken at all.
    rules: HashMap<Algorithm, Validation>,
}

/// One answer for every fault of a token: which one it was helps nobody but an attacker.
pub(super) const REFUSED: Error =
    Error::Unauthenticated("The token in the Authorization header is not valid.");

impl Identity {
    /// Accepts the tokens that the configuration says.
    pub fn new(config: &AuthConfig) -> Self {
        let secrets = [&config.jwt_secret, &config.jwt_secret_previous].into_iter().flatten();
        let secrets = secrets.map(|secret| DecodingKey::from_secret(secret.expose().as_bytes()));
        let taken = [Algorithm::HS256, Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];
        Self {
            secrets: secrets.collect(),
            jwks: config.jwks.clone().map(Jwks::new).map(Arc::new),
            rules: taken.map(|algorithm| (algorithm, rules(config, algorithm))).into(),
        }
    }

    /// Keeps the keys of the identity provider fresh for as long as it is polled.
    pub fn keep(&self) -> impl Future<Output = ()> + Send + use<> {
        let jwks = self.jwks.clone();
        async move {
            if let Some(jwks) = jwks {
                jwks.keep().await;
            }
        }
    }

    /// Who comes with this token; nobody, if with none.
    pub(super) async fn of_bearer(&self, token: Option<&str>) -> Result<Known, Error> {
        match token {
            Some(token) => self.verify(token).await,
            None => Ok(Known { viewer: Viewer::Anonymous, lasts: None }),
        }
    }

    /// Who a token says its bearer is. It fails with [`Error::Unavailable`] where that takes a key
    /// that could not be fetched: such a token may be good.
    pub async fn verify(&self, token: &str) -> Result<Known, Error> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| REFUSED)?;
        // Whoever writes `crit` wants a token refused by those who do not know what it names.
        if header.crit.is_some() {
            return Err(REFUSED);
        }
        let rules = self.rules.get(&header.alg).ok_or(REFUSED)?;
        // The header says what it wants to be verified as; which keys there are for that, and
        // that they are for nothing else, we say.
        let claims = if header.alg == Algorithm::HS256 {
            self.secrets.iter().find_map(|secret| claims(token, secret, rules))
        } else {
            let jwks = self.jwks.as_ref().ok_or(REFUSED)?;
            let key = jwks.key(header.alg, header.kid.as_deref()).await?;
            claims(token, &key.decoding, rules)
        };
        let claims = claims.ok_or(REFUSED)?;
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

/// What a token of this algorithm must say.
fn rules(config: &AuthConfig, algorithm: Algorithm) -> Validation {
    // Naming the one algorithm shuts out `none` and keys taken for another algorithm's.
    let mut rules = Validation::new(algorithm);
    rules.leeway = LEEWAY_SECONDS;
    rules.validate_nbf = true;
    let mut required = vec!["exp", "sub"];
    if let Some(issuer) = &config.issuer {
        rules.set_issuer(&[issuer]);
        required.push("iss");
    }
    rules.validate_aud = config.audience.is_some();
    if let Some(audience) = &config.audience {
        rules.set_audience(&[audience]);
        required.push("aud");
    }
    rules.set_required_spec_claims(&required);
    rules
}

/// What a token says, if it is signed with this key and says what it must.
fn claims(token: &str, key: &DecodingKey, rules: &Validation) -> Option<Claims> {
    jsonwebtoken::decode(token, key, rules).ok().map(|token| token.claims)
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
    let Some(secret) = &config.jwt_secret else {
        return Err("there is no secret to sign with".to_owned());
    };
    let exp = u64::try_from(expires.millis() / 1_000).unwrap_or(0);
    let (iss, aud) = (config.issuer.as_deref(), config.audience.as_deref());
    let claims = OwnClaims { sub: user, role, exp, iss, aud };
    let key = EncodingKey::from_secret(secret.expose().as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key)
        .map_err(|error| error.to_string())
}
