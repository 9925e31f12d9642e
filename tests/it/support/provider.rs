//! An identity provider: keys that sign, and a server that tells the public ones.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
};
use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// What stands before the PKCS#1 form of an RSA key of 2048 bits in its PKCS#8 form.
const PKCS8_RSA_2048_HEADER_BYTES: usize = 26;

/// A key that signs tokens, made for the test.
pub struct SigningKey {
    pub id: String,
    pub algorithm: Algorithm,
    pub key: EncodingKey,
    /// The public key as certificates have it; of an RSA key only.
    pub public_der: Vec<u8>,
}

impl SigningKey {
    /// A key for RS256. Making one takes a moment.
    pub fn rsa(id: &str) -> Self {
        let pair = rsa::KeyPair::generate(KeySize::Rsa2048).unwrap();
        let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let key = EncodingKey::from_rsa_der(&der.as_ref()[PKCS8_RSA_2048_HEADER_BYTES..]);
        let public_der: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        let public_der = public_der.as_ref().to_vec();
        Self { id: id.to_owned(), algorithm: Algorithm::RS256, key, public_der }
    }

    /// A key for ES256.
    pub fn ec(id: &str) -> Self {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap();
        let key = EncodingKey::from_ec_der(der.as_ref());
        Self { id: id.to_owned(), algorithm: Algorithm::ES256, key, public_der: Vec::new() }
    }

    /// A key for `EdDSA`.
    pub fn ed(id: &str) -> Self {
        let der = Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap();
        let key = EncodingKey::from_ed_der(der.as_ref());
        Self { id: id.to_owned(), algorithm: Algorithm::EdDSA, key, public_der: Vec::new() }
    }

    /// The public key.
    pub fn jwk(&self) -> Value {
        let jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        let mut jwk = serde_json::to_value(jwk).unwrap();
        jwk["kid"] = self.id.as_str().into();
        jwk["use"] = "sig".into();
        jwk
    }

    /// A token that names its key.
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_as(Some(&self.id), claims)
    }

    /// A token that names any key, or none.
    pub fn sign_as(&self, id: Option<&str>, claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = id.map(str::to_owned);
        jsonwebtoken::encode(&header, claims, &self.key).unwrap()
    }
}

/// The document with these keys.
pub fn key_set(keys: &[&SigningKey]) -> Value {
    json!({ "keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>() })
}

/// What the provider answers.
#[derive(Clone)]
pub enum Reply {
    /// This.
    Body(String),
    /// That it cannot.
    Fault,
    /// That what was asked for is elsewhere; there it is indeed.
    Elsewhere(String),
    /// This, once it is let to.
    Held(Arc<Semaphore>, String),
}

impl Reply {
    pub fn keys(keys: &[&SigningKey]) -> Self {
        Self::Body(key_set(keys).to_string())
    }
}

/// A provider that stops when it is dropped.
pub struct Provider {
    pub address: SocketAddr,
    reply: Arc<Mutex<Reply>>,
    asked: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Provider {
    pub async fn start(reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let reply = Arc::new(Mutex::new(reply));
        let (count, asked) = watch::channel(0);
        let (told, total) = (reply.clone(), Arc::new(AtomicUsize::new(0)));
        let answer = move |uri: Uri| {
            count.send_replace(total.fetch_add(1, Ordering::Relaxed) + 1);
            answer(uri, told.lock().unwrap().clone())
        };
        let router = Router::new().fallback(answer);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, reply, asked, task }
    }

    /// Where its keys are.
    pub fn url(&self) -> String {
        format!("http://{}/keys", self.address)
    }

    /// Changes the answer.
    pub fn say(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }

    /// How often it was asked.
    pub fn asked(&self) -> usize {
        *self.asked.borrow()
    }

    /// Waits until it was asked so often.
    pub async fn wait_for(&self, times: usize) {
        self.asked.clone().wait_for(|asked| *asked >= times).await.unwrap();
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(uri: Uri, reply: Reply) -> Response {
    match reply {
        Reply::Body(body) => body.into_response(),
        Reply::Fault => StatusCode::BAD_GATEWAY.into_response(),
        Reply::Elsewhere(body) if uri.path() == "/elsewhere" => body.into_response(),
        Reply::Elsewhere(_) => Redirect::temporary("/elsewhere").into_response(),
        Reply::Held(leave, body) => {
            drop(leave.acquire().await.unwrap());
            body.into_response()
        }
    }
}
