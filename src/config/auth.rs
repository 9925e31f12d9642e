//! Who may sign tokens.

use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;

use super::{ConfigError, Secret};

/// Who may sign tokens: the shop itself with a secret, an identity provider with its keys, or both.
#[derive(Debug, Clone, Default)]
pub struct AuthConfig {
    /// The HS256 secret that signs, and whose tokens are taken.
    pub jwt_secret: Option<Secret>,
    /// The secret before that one. Its tokens are still taken, and it signs nothing.
    pub jwt_secret_previous: Option<Secret>,
    /// The public keys of an identity provider.
    pub jwks: Option<JwksConfig>,
    /// The `iss` that every token must have.
    pub issuer: Option<String>,
    /// The `aud` that every token must have, alone or among others.
    pub audience: Option<String>,
}

/// Fewest bytes of an HS256 secret: as many as its hash has, or it can be guessed.
pub const MIN_SECRET_BYTES: usize = 32;
/// The variable with the secret that signs.
pub const JWT_SECRET: &str = "VITRINA_JWT_SECRET";
/// The variable with the secret before it.
pub const JWT_SECRET_PREVIOUS: &str = "VITRINA_JWT_SECRET_PREVIOUS";

impl AuthConfig {
    /// Takes the tokens of one secret.
    pub fn new(jwt_secret: Secret) -> Result<Self, ConfigError> {
        let jwt_secret = Some(strong(JWT_SECRET, jwt_secret)?);
        Ok(Self { jwt_secret, ..Self::default() })
    }

    /// Takes the tokens of the secret before as well: whoever still has one is not turned away.
    pub fn with_previous(mut self, secret: Secret) -> Result<Self, ConfigError> {
        self.jwt_secret_previous = Some(strong(JWT_SECRET_PREVIOUS, secret)?);
        Ok(self)
    }
}

fn strong(setting: &'static str, secret: Secret) -> Result<Secret, ConfigError> {
    if secret.expose().len() < MIN_SECRET_BYTES {
        let fault = format!("the secret must have at least {MIN_SECRET_BYTES} bytes");
        return Err(ConfigError::new(setting, fault));
    }
    Ok(secret)
}

/// Where the public keys of the identity provider are (a JSON Web Key Set), and how often they are
/// asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwksConfig {
    /// Where they are.
    pub source: JwksSource,
    /// How long an address has to answer.
    pub fetch_within: Duration,
    /// How often they are looked at by themselves. A key that was taken back is believed this long.
    pub refresh_every: Duration,
    /// How much time lies between two looks that tokens with unknown keys bring about. All such
    /// tokens share it: they cost nothing to make up.
    pub refresh_limit: Duration,
}

/// Where a key set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksSource {
    /// In a file of this machine.
    File(PathBuf),
    /// At an `http://` or `https://` address.
    Address(Uri),
}

/// The setting that [`JwksConfig::parse`] speaks of.
pub const JWKS: &str = "--jwks / VITRINA_JWKS";

impl JwksConfig {
    /// Reads the path of a file or an address.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |fault: &str| ConfigError::new(JWKS, fault);
        let is_address = text.starts_with("http://") || text.starts_with("https://");
        let source = if is_address {
            let address: Uri = text.parse().map_err(|_| wrong("is not an address"))?;
            // It would be shown to everybody who sees the processes of the machine.
            if address.authority().is_some_and(|authority| authority.as_str().contains('@')) {
                return Err(wrong("must not hold a password; keys that verify are no secret"));
            }
            JwksSource::Address(address)
        } else if text.is_empty() || text.contains("://") {
            return Err(wrong(
                "must be a file, or an address that begins with https:// or http://",
            ));
        } else {
            JwksSource::File(text.into())
        };
        Ok(Self {
            source,
            fetch_within: Duration::from_secs(3),
            refresh_every: Duration::from_secs(600),
            refresh_limit: Duration::from_secs(10),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_where_the_keys_are() {
        let source = |text: &str| JwksConfig::parse(text).map(|config| config.source);
        assert_eq!(source("/etc/keys.json"), Ok(JwksSource::File("/etc/keys.json".into())));
        assert_eq!(source("keys.json"), Ok(JwksSource::File("keys.json".into())));
        for address in ["http://127.0.0.1:81/a", "https://id.example/.well-known/jwks.json?a=b"] {
            assert_eq!(source(address), Ok(JwksSource::Address(Uri::from_static(address))));
        }
        for text in ["", "ftp://a/b", "http://", "https:///a", "http://a b", "http://u:hunter2@a"] {
            let error = source(text).expect_err(text);
            assert_eq!(error.setting, JWKS, "{text}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
