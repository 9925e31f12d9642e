//! The public keys of the identity provider: where they come from, when they are asked for again,
//! and which of them a token may be verified with.

mod fetch;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::REFUSED;
use crate::config::{JwksConfig, JwksSource};
use crate::error::Error;

/// Most bytes of a key set.
const MAX_DOCUMENT_BYTES: usize = 256 << 10;
/// Most keys of a key set: a provider has a handful, and each is looked at for each token.
const MAX_KEYS: usize = 64;
/// Bytes of an RSA modulus: fewer can be broken, and more take too long.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1_024;
/// Bytes of a point of P-256 as it is written in full: a mark and two coordinates.
const P256_BYTES: usize = 65;
/// Bytes of a public key of Ed25519.
const ED25519_BYTES: usize = 32;
/// Pause after the first failure; it doubles with each.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest pause between failures.
const RETRY_AT_LAST: Duration = Duration::from_secs(60);

/// A key that verifies, and what with.
pub(super) struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    /// The key as it is used.
    pub(super) decoding: DecodingKey,
}

impl Key {
    /// A key of a key set, if it is one that we use. The algorithm is decided by what the key is: a
    /// token that names another is not verified with it.
    fn new(jwk: &Jwk) -> Option<Self> {
        let algorithm = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => Algorithm::RS256,
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                Algorithm::ES256
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                Algorithm::EdDSA
            }
            // Among them `oct`: a secret that stands in a public list is none.
            _ => return None,
        };
        let common = &jwk.common;
        let is_for_us = common
            .public_key_use
            .as_ref()
            .is_none_or(|u| *u == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|o| o.contains(&KeyOperations::Verify))
            && common.key_algorithm.is_none_or(|a| a == KeyAlgorithm::from(algorithm));
        let decoding = DecodingKey::from_jwk(jwk).ok().filter(|_| is_for_us)?;
        let fits = match decoding.kind() {
            DecodingKeyKind::RsaModulusExponent { n, .. } => RSA_BYTES.contains(&n.len()),
            DecodingKeyKind::SecretOrDer(key) if algorithm == Algorithm::ES256 => {
                key.len() == P256_BYTES
            }
            DecodingKeyKind::SecretOrDer(key) => key.len() == ED25519_BYTES,
        };
        fits.then(|| Self { id: common.key_id.clone(), algorithm, decoding })
    }
}

/// What a look for a token's key comes to.
enum Found {
    /// It is this one.
    Key(Arc<Key>),
    /// There is none, and newer keys would not change that.
    Never,
    /// There is none among those that are known.
    NotYet,
}

/// The keys of one document.
#[derive(Default)]
struct KeySet(Vec<Arc<Key>>);

impl KeySet {
    /// Reads a document. Keys that are not for us are passed over; a document without any other is
    /// taken for a mistake of its author's.
    fn parse(document: &[u8]) -> Result<Self, &'static str> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<serde_json::Value>,
        }
        if document.len() > MAX_DOCUMENT_BYTES {
            return Err("it is longer than 256 KiB");
        }
        let Ok(Document { keys }) = serde_json::from_slice(document) else {
            return Err("it is not a JSON Web Key Set");
        };
        if keys.len() > MAX_KEYS {
            return Err("it has more than 64 keys");
        }
        let jwks = keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
        let keys: Vec<_> = jwks.filter_map(|jwk| Key::new(&jwk)).map(Arc::new).collect();
        if keys.is_empty() {
            return Err("it has no key for RS256, ES256 or EdDSA");
        }
        Ok(Self(keys))
    }

    fn find(&self, algorithm: Algorithm, id: Option<&str>) -> Found {
        let mut fitting = self.0.iter().filter(|key| key.algorithm == algorithm);
        let Some(id) = id else {
            // Trying one after another would let the keys of one purpose sign for another's.
            return match (fitting.next(), fitting.next()) {
                (Some(key), None) => Found::Key(key.clone()),
                _ => Found::Never,
            };
        };
        let named = |key: &&Arc<Key>| key.id.as_deref() == Some(id);
        match fitting.find(named) {
            Some(key) => Found::Key(key.clone()),
            None if self.0.iter().any(|key| named(&key)) => Found::Never,
            None => Found::NotYet,
        }
    }
}

/// What is known of the provider's keys.
#[derive(Default)]
struct State {
    /// The keys, once they were read.
    keys: Option<KeySet>,
    /// When they were last asked for.
    asked: Option<Instant>,
    /// They are being asked for.
    is_asking: bool,
    /// They could not be read the last time.
    has_failed: bool,
}

impl State {
    fn find(&self, algorithm: Algorithm, id: Option<&str>) -> Found {
        self.keys.as_ref().map_or(Found::NotYet, |keys| keys.find(algorithm, id))
    }

    /// Takes over what was read. Keys that are known stay if there are no others.
    fn take(&mut self, read: Result<KeySet, String>) {
        self.is_asking = false;
        match read {
            Ok(keys) => {
                if self.keys.is_none() || self.has_failed {
                    tracing::info!(keys = keys.0.len(), "the identity provider's keys are known");
                }
                self.keys = Some(keys);
                self.has_failed = false;
            }
            Err(fault) => {
                let known = self.keys.as_ref().map_or(0, |keys| keys.0.len());
                tracing::warn!(fault, known, "the identity provider's keys cannot be read");
                self.has_failed = true;
            }
        }
    }
}

/// The keys of an identity provider.
pub(super) struct Jwks {
    config: JwksConfig,
    state: watch::Sender<State>,
}

impl Jwks {
    /// Keys that nobody has asked for yet.
    pub(super) fn new(config: JwksConfig) -> Self {
        Self { config, state: watch::Sender::default() }
    }

    /// The key of a token with this algorithm and `kid`.
    pub(super) async fn key(
        self: &Arc<Self>,
        algorithm: Algorithm,
        id: Option<&str>,
    ) -> Result<Arc<Key>, Error> {
        let mut found = self.state.borrow().find(algorithm, id);
        if matches!(found, Found::NotYet) {
            self.refresh(self.config.refresh_limit).await;
            found = self.state.borrow().find(algorithm, id);
        }
        match found {
            Found::Key(key) => Ok(key),
            // The token may be good; who could tell does not answer.
            Found::NotYet if self.state.borrow().has_failed => Err(Error::Unavailable),
            Found::Never | Found::NotYet => Err(REFUSED),
        }
    }

    /// Keeps the keys fresh for as long as it is polled.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut retry_after = RETRY_AFTER;
        loop {
            self.refresh(Duration::ZERO).await;
            if self.state.borrow().has_failed {
                sleep(retry_after).await;
                retry_after = (2 * retry_after).min(RETRY_AT_LAST);
            } else {
                retry_after = RETRY_AFTER;
                sleep(self.config.refresh_every).await;
            }
        }
    }

    /// Asks for the keys if they were not asked for since `limit`, and waits while they are being
    /// asked for, by whomever.
    async fn refresh(self: &Arc<Self>, limit: Duration) {
        let mut state = self.state.subscribe();
        let begins = self.state.send_if_modified(|state| {
            let is_due = state.asked.is_none_or(|asked| asked.elapsed() >= limit);
            let begins = is_due && !state.is_asking;
            if begins {
                (state.asked, state.is_asking) = (Some(Instant::now()), true);
            }
            begins
        });
        if begins {
            // A task of its own: a client that goes away must not take the keys of others along.
            let jwks = self.clone();
            tokio::spawn(async move {
                let reading = jwks.clone();
                let reading = tokio::spawn(async move { reading.read().await });
                // Should it panic, nobody must wait for it for ever.
                let read = reading.await.unwrap_or_else(|_| Err("reading has failed".to_owned()));
                jwks.state.send_modify(|state| state.take(read));
            });
        }
        // It fails only when there is nobody left to ask.
        let _ = state.wait_for(|state| !state.is_asking).await;
    }

    /// Reads the keys from where they are.
    async fn read(&self) -> Result<KeySet, String> {
        let work = async {
            match &self.config.source {
                JwksSource::Address(address) => fetch::fetch(address, MAX_DOCUMENT_BYTES).await,
                JwksSource::File(path) => {
                    let path = path.clone();
                    let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
                    read.map_err(|_| "reading was given up".to_owned())?
                }
            }
        };
        let Ok(document) = timeout(self.config.fetch_within, work).await else {
            return Err("there was no answer in time".to_owned());
        };
        KeySet::parse(&document?).map_err(str::to_owned)
    }
}

/// Whether a file holds keys that can be used; if not, why.
pub(crate) fn check_file(path: &Path) -> Result<(), String> {
    let fault = |fault: &str| format!("the file {} cannot be used: {fault}", path.display());
    let document = read_file(path).map_err(|error| fault(&error))?;
    KeySet::parse(&document).map(drop).map_err(fault)
}

/// Reads a file, one byte further than it may be long at the most.
fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let mut document = Vec::new();
    let most = u64::try_from(MAX_DOCUMENT_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    std::fs::File::open(path)
        .and_then(|file| file.take(most).read_to_end(&mut document))
        .map_err(|error| error.to_string())?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn base64(bytes: usize) -> String {
        use base64::Engine;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(vec![7; bytes])
    }

    fn rsa(id: &str) -> Value {
        json!({ "kty": "RSA", "kid": id, "n": base64(256), "e": "AQAB" })
    }

    fn ec(id: &str) -> Value {
        json!({ "kty": "EC", "crv": "P-256", "kid": id, "x": base64(32), "y": base64(32) })
    }

    fn ed(id: &str) -> Value {
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": base64(32) })
    }

    /// A key with some of its members changed.
    fn with(mut key: Value, changes: Value) -> Value {
        let Value::Object(changes) = changes else { panic!("{changes}") };
        key.as_object_mut().unwrap().extend(changes);
        key
    }

    fn parse(keys: &[Value]) -> Result<KeySet, &'static str> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
    }

    #[test]
    fn a_key_is_for_the_algorithm_of_its_kind() {
        let keys = parse(&[rsa("r"), ec("e"), ed("o")]).unwrap_or_default();
        let kinds = [("r", Algorithm::RS256), ("e", Algorithm::ES256), ("o", Algorithm::EdDSA)];
        for (id, own) in kinds {
            for (_, algorithm) in kinds {
                let found = keys.find(algorithm, Some(id));
                let is_right = match found {
                    Found::Key(key) => own == algorithm && key.id.as_deref() == Some(id),
                    Found::Never => own != algorithm,
                    Found::NotYet => false,
                };
                assert!(is_right, "{id} {algorithm:?}");
            }
            assert!(matches!(keys.find(own, None), Found::Key(_)), "the one of its algorithm");
            assert!(matches!(keys.find(own, Some("x")), Found::NotYet));
        }
        let two = parse(&[ed("1"), ed("2")]).unwrap_or_default();
        assert!(matches!(two.find(Algorithm::EdDSA, None), Found::Never), "which one?");
        assert!(matches!(two.find(Algorithm::RS256, None), Found::Never));
    }

    #[test]
    fn keys_that_are_not_for_us_are_passed_over() {
        for key in [
            json!({ "kty": "oct", "kid": "k", "k": base64(32) }),
            json!({ "kty": "oct", "kid": "k", "k": base64(32), "alg": "HS256", "use": "sig" }),
            json!({ "kty": "RSA", "kid": "k" }),
            json!("a key"),
            json!(null),
            with(rsa("k"), json!({ "use": "enc" })),
            with(rsa("k"), json!({ "use": "" })),
            with(rsa("k"), json!({ "alg": "RS512" })),
            with(rsa("k"), json!({ "alg": "PS256" })),
            with(rsa("k"), json!({ "alg": "HS256" })),
            with(rsa("k"), json!({ "key_ops": ["encrypt"] })),
            with(rsa("k"), json!({ "n": base64(128) })),
            with(rsa("k"), json!({ "n": base64(4_096) })),
            with(rsa("k"), json!({ "n": "not base64!" })),
            with(rsa("k"), json!({ "kid": 7 })),
            with(ec("k"), json!({ "crv": "P-384" })),
            with(ec("k"), json!({ "crv": "secp256k1" })),
            with(ec("k"), json!({ "x": base64(31) })),
            with(ec("k"), json!({ "alg": "ES384" })),
            with(ed("k"), json!({ "crv": "X25519" })),
            with(ed("k"), json!({ "x": base64(33) })),
            with(ed("k"), json!({ "alg": "ES256" })),
        ] {
            let Ok(keys) = parse(&[key.clone(), ed("good")]) else { panic!("{key}") };
            assert_eq!(keys.0.len(), 1, "{key}");
            assert!(parse(std::slice::from_ref(&key)).is_err(), "{key}");
        }
        let whole = json!({ "use": "sig", "alg": "RS256", "key_ops": ["verify"], "x5t": "x" });
        assert!(parse(&[with(rsa("k"), whole)]).is_ok());
    }

    #[test]
    fn a_document_has_its_limits() {
        let many = |n: usize| (0..n).map(|i| ed(&i.to_string())).collect::<Vec<_>>();
        assert!(parse(&many(MAX_KEYS)).is_ok());
        assert!(parse(&many(MAX_KEYS + 1)).is_err());
        let padded = |bytes: usize| {
            let text = json!({ "keys": [ed("k")], "padding": "x".repeat(bytes) }).to_string();
            KeySet::parse(text.as_bytes()).is_ok()
        };
        assert!(padded(MAX_DOCUMENT_BYTES - 200));
        assert!(!padded(MAX_DOCUMENT_BYTES));
        for text in ["", "{}", "[]", "{\"keys\":[]}", "{\"keys\":{}}", "<html>"] {
            assert!(KeySet::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(KeySet::parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_with_unknown_keys_bring_about_one_look_in_ten_seconds() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let write = |id: &str| {
            let text = json!({ "keys": [ed(id)] }).to_string();
            std::fs::write(file.path(), text).unwrap();
        };
        let jwks = JwksConfig::parse(file.path().to_str().unwrap()).map(Jwks::new).unwrap();
        let jwks = Arc::new(jwks);
        let is_known = async |id: &str| jwks.key(Algorithm::EdDSA, Some(id)).await.is_ok();
        write("1");
        assert!(is_known("1").await);
        write("2");
        assert!(!is_known("2").await, "it was looked for a moment ago");
        tokio::time::advance(Duration::from_millis(9_900)).await;
        assert!(!is_known("2").await);
        assert!(is_known("1").await, "what is known needs no look");
        tokio::time::advance(Duration::from_millis(100)).await;
        assert!(is_known("2").await);
        assert!(!is_known("1").await, "one that was taken back");
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_looked_at_every_ten_minutes_and_soon_after_a_failure() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let jwks = JwksConfig::parse(file.path().to_str().unwrap()).map(Jwks::new).unwrap();
        let jwks = Arc::new(jwks);
        let mut seen = jwks.state.subscribe();
        let keeper = tokio::spawn(jwks.clone().keep());
        let began = Instant::now();
        let mut last = None;
        // Time stands still while something is being done, and passes while all wait.
        let mut next = async || {
            let is_next = |state: &State| state.asked != last && !state.is_asking;
            let state = seen.wait_for(is_next).await.unwrap();
            last = state.asked;
            (last.map(|asked| asked.duration_since(began).as_secs()), state.has_failed)
        };
        let mut looks = Vec::new();
        for _ in 0..9 {
            looks.push(next().await);
        }
        assert_eq!(
            looks,
            [0, 1, 3, 7, 15, 31, 63, 123, 183].map(|at| (Some(at), true)),
            "an empty file has no keys"
        );
        std::fs::write(file.path(), json!({ "keys": [ed("k")] }).to_string()).unwrap();
        assert_eq!([next().await, next().await], [(Some(243), false), (Some(843), false)]);
        std::fs::write(file.path(), "").unwrap();
        assert_eq!([next().await, next().await], [(Some(1_443), true), (Some(1_444), true)]);
        assert!(jwks.key(Algorithm::EdDSA, Some("k")).await.is_ok(), "what is known stays");
        keeper.abort();
    }
}
