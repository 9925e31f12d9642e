//! Tokens of an identity provider: which keys verify them, and where the keys come from.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures_util::future::join_all;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use vitrina::config::{AuthConfig, JwksConfig};

use super::identity::{assert_token_refused, claims, public_query};
use crate::support::provider::{Provider, Reply, SigningKey, key_set};
use crate::support::server::{TestServer, token};
use crate::support::stores::TestStore;
use crate::support::websocket::Socket;
use vitrina::server::Role;

/// Longer than any test takes.
const NEVER: Duration = Duration::from_secs(3_600);

/// A shop that knows the keys at `source` and no secret; they are looked at again whenever a token
/// names an unknown one, unless `change` says otherwise.
async fn shop(source: &str, change: impl FnOnce(&mut JwksConfig)) -> TestServer {
    let mut jwks = JwksConfig::parse(source).unwrap();
    jwks.refresh_limit = Duration::ZERO;
    change(&mut jwks);
    let auth = AuthConfig { jwks: Some(jwks), ..AuthConfig::default() };
    TestServer::start_on(TestStore::embedded().await, |config| config.auth = auth).await
}

/// A file with a key set.
fn file(keys: &Value) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), keys.to_string()).unwrap();
    file
}

fn staff_of(key: &SigningKey) -> String {
    key.sign(&claims(&json!({})))
}

async fn assert_taken(server: &TestServer, token: &str, why: &str) {
    let answer = public_query(server, &[&format!("Bearer {token}")]).await;
    assert_eq!(answer.status, 200, "{why}: {}", answer.text());
}

async fn assert_unavailable(server: &TestServer, token: &str, why: &str) {
    let answer = public_query(server, &[&format!("Bearer {token}")]).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (503, "UNAVAILABLE"), "{why}");
    assert!(!answer.text().contains(token), "{why}");
    assert_eq!(public_query(server, &[]).await.status, 200, "without a token all is well");
}

/// A token with any header over a sound payload.
fn assembled(header: &Value, signature: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{signature}", part(header), part(&claims(&json!({}))))
}

#[tokio::test]
async fn each_kind_of_key_signs_tokens_of_its_algorithm() {
    let keys = [SigningKey::rsa("r"), SigningKey::ec("e"), SigningKey::ed("o")];
    let file = file(&key_set(&keys.each_ref()));
    let server = shop(file.path().to_str().unwrap(), |_| {}).await;
    for key in &keys {
        let mutation = "mutation { productsDelete(ids: []) { deletedIds } }";
        let answer = server.http.query_as(&staff_of(key), mutation, json!({})).await;
        assert_eq!(answer.json()["errors"], Value::Null, "staff may: {:?}", key.algorithm);
        assert_taken(&server, &key.sign_as(None, &claims(&json!({}))), "the only such key").await;
        for changes in [
            json!({ "exp": null }),
            json!({ "exp": super::identity::now() - 45 }),
            json!({ "nbf": super::identity::now() + 60 }),
            json!({ "role": "admin" }),
            json!({ "sub": "" }),
        ] {
            let token = key.sign(&claims(&changes));
            assert_token_refused(&server, &token, &changes.to_string()).await;
        }
    }
    assert_token_refused(&server, &token("me", Role::Staff), "there is no secret").await;
}

#[tokio::test]
async fn a_secret_and_keys_stand_side_by_side() {
    let key = SigningKey::ed("k");
    let file = file(&key_set(&[&key]));
    let jwks = JwksConfig::parse(file.path().to_str().unwrap()).unwrap();
    let store = TestStore::embedded().await;
    let server = TestServer::start_on(store, |config| config.auth.jwks = Some(jwks)).await;
    assert_taken(&server, &token("me", Role::Staff), "the secret's").await;
    assert_taken(&server, &staff_of(&key), "the provider's").await;
}

#[tokio::test]
async fn a_key_is_never_taken_for_another_algorithms() {
    let (rsa, ec, ed) = (SigningKey::rsa("r"), SigningKey::ec("e"), SigningKey::ed("o"));
    let mut keys = key_set(&[&rsa, &ec, &ed]);
    let shared = "a secret in a public list, which is none";
    let oct = json!({ "kty": "oct", "kid": "s", "k": URL_SAFE_NO_PAD.encode(shared) });
    keys["keys"].as_array_mut().unwrap().push(oct);
    let file = file(&keys);
    // With a secret of its own too, so that HS256 is known at all.
    let jwks = JwksConfig::parse(file.path().to_str().unwrap()).unwrap();
    let store = TestStore::embedded().await;
    let server = TestServer::start_on(store, |config| config.auth.jwks = Some(jwks)).await;
    assert_taken(&server, &staff_of(&rsa), "the keys are known").await;

    // What everybody knows, taken for the secret of HS256.
    let hs256 = |secret: &[u8], id: &str| {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some(id.to_owned());
        jsonwebtoken::encode(&header, &claims(&json!({})), &EncodingKey::from_secret(secret))
            .unwrap()
    };
    let public = rsa.jwk();
    let modulus = public["n"].as_str().unwrap();
    let modulus_bytes = URL_SAFE_NO_PAD.decode(modulus).unwrap();
    let text = STANDARD.encode(&rsa.public_der).into_bytes();
    let lines: Vec<_> = text.chunks(64).map(String::from_utf8_lossy).collect();
    let pem =
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"));
    let json = public.to_string();
    for secret in [
        pem.as_bytes(),
        pem.trim_end().as_bytes(),
        &rsa.public_der,
        &modulus_bytes,
        modulus.as_bytes(),
        json.as_bytes(),
    ] {
        assert_token_refused(&server, &hs256(secret, "r"), "a public key as a secret").await;
    }
    assert_token_refused(&server, &hs256(shared.as_bytes(), "s"), "a secret of the list").await;

    // A sound signature under the name of another algorithm, or of none.
    for key in [&rsa, &ec, &ed] {
        let sound = staff_of(key);
        let signature = sound.rsplit('.').next().unwrap();
        for algorithm in
            ["none", "None", "HS256", "RS256", "RS384", "PS256", "ES256", "ES384", "EdDSA", "x", ""]
        {
            if json!(key.algorithm) == json!(algorithm) {
                continue;
            }
            for signature in ["", signature] {
                let header = json!({ "typ": "JWT", "alg": algorithm, "kid": key.id });
                let token = assembled(&header, signature);
                assert_token_refused(&server, &token, &header.to_string()).await;
            }
        }
    }
    // Algorithms of the same family, rightly signed.
    for algorithm in [Algorithm::RS384, Algorithm::RS512, Algorithm::PS256] {
        let mut header = Header::new(algorithm);
        header.kid = Some(rsa.id.clone());
        let token = jsonwebtoken::encode(&header, &claims(&json!({})), &rsa.key).unwrap();
        assert_token_refused(&server, &token, "another algorithm of RSA").await;
    }
}

#[tokio::test]
async fn the_key_that_a_token_names_must_have_signed_it() {
    let (first, second) = (SigningKey::ec("1"), SigningKey::ec("2"));
    let rsa = SigningKey::rsa("r");
    let file = file(&key_set(&[&first, &second, &rsa]));
    let server = shop(file.path().to_str().unwrap(), |_| {}).await;
    let claims = claims(&json!({}));
    assert_taken(&server, &first.sign(&claims), "the first").await;
    assert_taken(&server, &second.sign(&claims), "the second").await;
    assert_token_refused(&server, &first.sign_as(Some("2"), &claims), "the other's name").await;
    assert_token_refused(&server, &first.sign_as(Some("r"), &claims), "that of another kind").await;
    assert_token_refused(&server, &first.sign_as(Some("3"), &claims), "nobody's").await;
    assert_token_refused(&server, &first.sign_as(Some(""), &claims), "an empty one").await;
    assert_token_refused(&server, &first.sign_as(None, &claims), "none, of two").await;
    let stranger = SigningKey::ec("1");
    assert_token_refused(&server, &stranger.sign(&claims), "a stranger's key").await;
    assert_token_refused(&server, &SigningKey::ed("9").sign_as(None, &claims), "no EdDSA").await;

    // What a token brings along is no reason to believe it.
    let mut header = Header::new(Algorithm::ES256);
    header.jwk = serde_json::from_value(stranger.jwk()).unwrap();
    header.jku = Some("http://127.0.0.1:1/keys".to_owned());
    for id in [None, Some("1".to_owned())] {
        header.kid = id;
        let token = jsonwebtoken::encode(&header, &claims, &stranger.key).unwrap();
        assert_token_refused(&server, &token, "a key in the token").await;
    }
}

#[tokio::test]
async fn a_file_with_new_keys_needs_no_restart() {
    let (old, new) = (SigningKey::ed("old"), SigningKey::ed("new"));
    let file = file(&key_set(&[&old]));
    let server = shop(file.path().to_str().unwrap(), |_| {}).await;
    assert_taken(&server, &staff_of(&old), "before").await;
    assert_token_refused(&server, &staff_of(&new), "before").await;
    std::fs::write(file.path(), key_set(&[&old, &new]).to_string()).unwrap();
    assert_taken(&server, &staff_of(&new), "both").await;
    assert_taken(&server, &staff_of(&old), "both").await;
    std::fs::write(file.path(), "{ half a docum").unwrap();
    assert_unavailable(&server, &staff_of(&SigningKey::ed("newest")), "a broken file").await;
    assert_taken(&server, &staff_of(&old), "what is known stays").await;
    let newest = SigningKey::ed("newest");
    std::fs::write(file.path(), key_set(&[&newest]).to_string()).unwrap();
    assert_taken(&server, &staff_of(&newest), "after").await;
    assert_token_refused(&server, &staff_of(&old), "after").await;
}

#[tokio::test]
async fn new_keys_of_a_provider_are_fetched_when_a_token_names_one() {
    let (old, new) = (SigningKey::rsa("old"), SigningKey::ec("new"));
    let provider = Provider::start(Reply::keys(&[&old])).await;
    let server = shop(&provider.url(), |_| {}).await;
    assert_eq!(provider.asked(), 0, "nobody needed a key");
    assert_taken(&server, &staff_of(&old), "before").await;
    assert_taken(&server, &staff_of(&old), "before").await;
    assert_eq!(provider.asked(), 1, "what is known is not asked for");
    provider.say(Reply::keys(&[&new]));
    assert_taken(&server, &staff_of(&new), "after").await;
    assert_eq!(provider.asked(), 2);
    assert_token_refused(&server, &staff_of(&old), "after").await;
    assert_eq!(provider.asked(), 3);
}

#[tokio::test]
async fn made_up_keys_do_not_make_the_server_ask_again_and_again() {
    let key = SigningKey::ed("k");
    let provider = Provider::start(Reply::keys(&[&key])).await;
    let server = shop(&provider.url(), |jwks| jwks.refresh_limit = NEVER).await;
    let tokens: Vec<_> = (0..200)
        .map(|_| key.sign_as(Some(&uuid::Uuid::new_v4().to_string()), &claims(&json!({}))))
        .collect();
    join_all(tokens.iter().map(|token| assert_token_refused(&server, token, "made up"))).await;
    assert_eq!(provider.asked(), 1, "all of them together");
    assert_taken(&server, &staff_of(&key), "the known key").await;
    // Within the limit even a good token with a new key has to wait.
    let new = SigningKey::ed("new");
    provider.say(Reply::keys(&[&key, &new]));
    assert_token_refused(&server, &staff_of(&new), "too soon").await;
    assert_eq!(provider.asked(), 1);
}

#[tokio::test]
async fn all_wait_for_one_answer_which_does_not_hang_on_who_asked_first() {
    let key = SigningKey::ed("k");
    let leave = Arc::new(Semaphore::new(0));
    let held = Reply::Held(leave.clone(), key_set(&[&key]).to_string());
    let provider = Provider::start(held).await;
    let server = Arc::new(shop(&provider.url(), |jwks| jwks.refresh_limit = NEVER).await);
    let token = staff_of(&key);
    let ask = || {
        let (server, token) = (server.clone(), token.clone());
        tokio::spawn(async move { assert_taken(&server, &token, "it waits").await })
    };
    let first = ask();
    provider.wait_for(1).await;
    first.abort();
    let others: Vec<_> = (0..20).map(|_| ask()).collect();
    leave.add_permits(1);
    for other in others {
        other.await.unwrap();
    }
    assert_eq!(provider.asked(), 1);
}

#[tokio::test]
async fn a_provider_that_is_away_is_no_reason_to_call_a_token_bad() {
    let key = SigningKey::ed("k");
    let provider = Provider::start(Reply::Fault).await;
    let server = shop(&provider.url(), |_| {}).await;
    assert_unavailable(&server, &staff_of(&key), "away").await;
    let mut socket = Socket::open(server.address).await;
    let payload = json!({ "Authorization": format!("Bearer {}", staff_of(&key)) });
    socket.send(&json!({ "type": "connection_init", "payload": payload })).await;
    assert_eq!(socket.close_code().await, 1013);
    // What no key would make good is refused all the same.
    assert_token_refused(&server, "a.b.c", "no token").await;
    assert_token_refused(&server, &token("me", Role::Staff), "no secret").await;
    provider.say(Reply::keys(&[&key]));
    assert_taken(&server, &staff_of(&key), "back").await;
    Socket::connect_as(server.address, &staff_of(&key)).await;
    provider.say(Reply::Fault);
    assert_unavailable(&server, &staff_of(&SigningKey::ed("new")), "away again").await;
    assert_taken(&server, &staff_of(&key), "what is known stays").await;

    // A port that nobody listens on.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = shop(&format!("http://{free}/keys"), |_| {}).await;
    assert_unavailable(&server, &staff_of(&key), "nobody there").await;
}

#[tokio::test]
async fn an_answer_that_is_no_key_set_changes_nothing() {
    let (key, new) = (SigningKey::ed("k"), SigningKey::ed("new"));
    let good = key_set(&[&new]).to_string();
    let huge = json!({ "keys": [new.jwk()], "padding": "x".repeat(300 << 10) }).to_string();
    let many: Vec<_> = (0..65).map(|_| new.jwk()).collect();
    let provider = Provider::start(Reply::keys(&[&key])).await;
    let server = shop(&provider.url(), |jwks| jwks.fetch_within = Duration::from_millis(300)).await;
    assert_taken(&server, &staff_of(&key), "at first").await;
    for (why, reply) in [
        ("nothing", Reply::Body(String::new())),
        ("no JSON", Reply::Body("<html>Sign in</html>".to_owned())),
        ("no keys", Reply::Body(r#"{"keys":[]}"#.to_owned())),
        ("another document", Reply::Body(r#"{"issuer":"x"}"#.to_owned())),
        ("too long", Reply::Body(huge)),
        ("too many keys", Reply::Body(json!({ "keys": many }).to_string())),
        ("too slow", Reply::Held(Arc::new(Semaphore::new(0)), good.clone())),
        ("elsewhere", Reply::Elsewhere(good.clone())),
    ] {
        let asked = provider.asked();
        provider.say(reply);
        assert_unavailable(&server, &staff_of(&new), why).await;
        assert_eq!(provider.asked(), asked + 1, "{why}: once, and nowhere else");
        assert_taken(&server, &staff_of(&key), why).await;
    }
    provider.say(Reply::Body(good));
    assert_taken(&server, &staff_of(&new), "at last").await;
}
