//! Who may do what, and which tokens are believed.

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use vitrina::clock::{Clock, SystemClock};
use vitrina::config::{AuthConfig, Secret};
use vitrina::server::{Role, sign_token};

use super::{DELETE, UPSERT, data, post, product, staff, stock};
use crate::support::http::Answer;
use crate::support::server::{SECRET, TestServer, token};
use crate::support::stores::TestStore;

pub(super) fn now() -> i64 {
    SystemClock.now().micros() / 1_000_000
}

fn signed_with(algorithm: Algorithm, secret: &str, claims: &Value) -> String {
    let key = EncodingKey::from_secret(secret.as_bytes());
    jsonwebtoken::encode(&Header::new(algorithm), claims, &key).unwrap()
}

fn signed(claims: &Value) -> String {
    signed_with(Algorithm::HS256, SECRET, claims)
}

/// The claims of a member of staff, with some of them changed; null takes one away.
pub(super) fn claims(changes: &Value) -> Value {
    let mut claims = json!({ "sub": "manager-1", "role": "staff", "exp": now() + 600 });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

/// A query that anybody may ask, with these values of Authorization.
pub(super) async fn public_query(server: &TestServer, authorization: &[&str]) -> Answer {
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(authorization.iter().map(|value| ("authorization", *value)));
    post(&server.http, &headers, r#"{"query":"{ __typename }"}"#).await
}

async fn assert_refused(server: &TestServer, authorization: &[&str], why: &str) {
    let answer = public_query(server, authorization).await;
    assert_eq!(answer.status, 401, "{why}");
    assert_eq!(answer.code(), "UNAUTHENTICATED", "{why}");
    assert_eq!(answer.header("www-authenticate"), "Bearer", "{why}");
    assert_eq!(answer.json()["data"], Value::Null, "{why}");
    for value in authorization {
        let token = value.rsplit(' ').next().unwrap();
        assert!(token.is_empty() || !answer.text().contains(token), "{why}: the token is repeated");
    }
}

pub(super) async fn assert_token_refused(server: &TestServer, token: &str, why: &str) {
    assert_refused(server, &[&format!("Bearer {token}")], why).await;
}

#[tokio::test]
async fn only_staff_may_change_the_catalogue() {
    let server = TestServer::start().await;
    stock(&server.http, &[product("kept", "Книги", "1")]).await;
    let customer = token("user-1", Role::Customer);
    for (query, variables) in [
        (UPSERT, json!({ "products": [product("new", "Книги", "1")] })),
        (DELETE, json!({ "ids": ["kept"] })),
        // Who may not change anything is not told what would be wrong with it either.
        (DELETE, json!({ "ids": [""] })),
    ] {
        let refused = server.http.query(query, variables.clone()).await;
        assert_eq!(refused.code(), "UNAUTHENTICATED");
        assert_eq!(refused.json()["data"], Value::Null);
        let refused = server.http.query_as(&customer, query, variables).await;
        assert_eq!(refused.code(), "FORBIDDEN");
        assert_eq!(refused.json()["data"], Value::Null);
    }
    let left = data(&server.http, "{ products(ids: [\"kept\", \"new\"]) { id } }", json!({})).await;
    assert_eq!(left["products"], json!([{ "id": "kept" }, null]));
}

#[tokio::test]
async fn everybody_with_a_good_token_or_none_may_read() {
    let server = TestServer::start().await;
    assert_eq!(public_query(&server, &[]).await.status, 200);
    for token in [staff(), token("user-1", Role::Customer), token("покупатель", Role::Customer)]
    {
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let answer = public_query(&server, &[&format!("{scheme} {token}")]).await;
            assert_eq!(answer.status, 200, "{scheme}");
        }
    }
}

#[tokio::test]
async fn what_is_no_bearer_token_is_refused_even_for_a_public_query() {
    let server = TestServer::start().await;
    let good = staff();
    for value in [
        "",
        "Bearer",
        "Bearer ",
        "Bearer garbage",
        "Bearer a.b.c",
        "Bearer ..",
        "Bearer \u{fffd}",
        "Basic dXNlcjpwYXNzd29yZA==",
        &good,
        &format!("Token {good}"),
        &format!("Bearer Bearer {good}"),
        &format!("Bearer {good} {good}"),
        &format!("Bearer {good}, Bearer {good}"),
    ] {
        assert_refused(&server, &[value], value).await;
    }
}

#[tokio::test]
async fn two_authorization_headers_are_refused_even_if_both_are_good() {
    let server = TestServer::start().await;
    let good = format!("Bearer {}", staff());
    assert_refused(&server, &[&good, &good], "the same twice").await;
    assert_refused(&server, &[&good, "Bearer garbage"], "good and bad").await;
    assert_refused(&server, &["Bearer garbage", &good], "bad and good").await;
}

#[tokio::test]
async fn a_token_that_was_tampered_with_is_refused() {
    let server = TestServer::start().await;
    let customer = token("user-1", Role::Customer);
    let parts = |token: &str| token.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (own, foreign) = (parts(&customer), parts(&staff()));
    for (why, token) in [
        ("the payload of another token", format!("{}.{}.{}", own[0], foreign[1], own[2])),
        ("no signature", format!("{}.{}.", own[0], own[1])),
        ("two parts", format!("{}.{}", own[0], own[1])),
        ("four parts", format!("{customer}.{}", own[2])),
        ("cut short", customer[..customer.len() - 2].to_owned()),
        ("in another case", customer.to_uppercase()),
    ] {
        assert_token_refused(&server, &token, why).await;
    }
}

#[tokio::test]
async fn a_token_of_another_secret_or_algorithm_is_refused() {
    let server = TestServer::start().await;
    let claims = claims(&json!({}));
    let other = "another secret of sufficient length";
    assert_token_refused(&server, &signed_with(Algorithm::HS256, other, &claims), "secret").await;
    assert_token_refused(&server, &signed_with(Algorithm::HS256, "", &claims), "no secret").await;
    assert_token_refused(&server, &signed_with(Algorithm::HS512, SECRET, &claims), "HS512").await;

    // {"alg":"none","typ":"JWT"} and the same in capitals, before a sound payload.
    let sound = signed(&claims);
    let (_, rest) = sound.split_once('.').unwrap();
    let (payload, signature) = rest.split_once('.').unwrap();
    for header in ["eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0", "eyJhbGciOiJOT05FIiwidHlwIjoiSldUIn0"] {
        for signature in ["", signature] {
            assert_token_refused(&server, &format!("{header}.{payload}.{signature}"), "none").await;
        }
    }
}

#[tokio::test]
async fn a_token_with_missing_or_impossible_claims_is_refused() {
    let server = TestServer::start().await;
    for changes in [
        json!({ "exp": null }),
        json!({ "sub": null }),
        json!({ "role": null }),
        json!({ "role": "admin" }),
        json!({ "role": "Staff" }),
        json!({ "role": ["staff"] }),
        json!({ "role": "" }),
        json!({ "sub": "" }),
        json!({ "sub": 7 }),
        json!({ "sub": "a\nb" }),
        json!({ "sub": "x".repeat(256) }),
        json!({ "exp": "never" }),
        json!({ "exp": -1 }),
        json!({ "exp": 0 }),
        json!({ "exp": now() - 45 }),
        json!({ "nbf": now() + 60 }),
        json!({ "nbf": "later" }),
    ] {
        let token = signed(&claims(&changes));
        assert_token_refused(&server, &token, &changes.to_string()).await;
    }
}

#[tokio::test]
async fn the_secret_before_is_taken_and_the_one_before_that_is_not() {
    let [newest, previous, oldest] = ["newest", "previous", "oldest"].map(|name| name.repeat(6));
    let auth = AuthConfig::new(Secret::new(newest.as_str())).unwrap();
    let auth = auth.with_previous(Secret::new(previous.as_str())).unwrap();
    let store = TestStore::embedded().await;
    let server = TestServer::start_on(store, |config| config.auth = auth.clone()).await;
    let signed = |secret: &str| signed_with(Algorithm::HS256, secret, &claims(&json!({})));
    for secret in [&newest, &previous] {
        let answer = public_query(&server, &[&format!("Bearer {}", signed(secret))]).await;
        assert_eq!(answer.status, 200, "{secret}");
    }
    assert_token_refused(&server, &signed(&oldest), "the oldest").await;
    assert_token_refused(&server, &signed(SECRET), "a stranger's").await;
    let expired = claims(&json!({ "exp": now() - 45 }));
    let expired = signed_with(Algorithm::HS256, &previous, &expired);
    assert_token_refused(&server, &expired, "the previous, expired").await;
    // What signs is the newest.
    let expires = SystemClock.now();
    let made = sign_token(&auth, "me", Role::Staff, expires).unwrap();
    let only = AuthConfig::new(Secret::new(newest)).unwrap();
    assert_eq!(made, sign_token(&only, "me", Role::Staff, expires).unwrap());
}

#[tokio::test]
async fn issuer_and_audience_must_be_right_where_they_are_configured() {
    let mut auth = AuthConfig::new(Secret::new(SECRET)).unwrap();
    auth.issuer = Some("https://id.example".to_owned());
    auth.audience = Some("shop".to_owned());
    let store = TestStore::embedded().await;
    let server = TestServer::start_on(store, |config| config.auth = auth.clone()).await;
    let signed = |iss: Value, aud: Value| signed(&claims(&json!({ "iss": iss, "aud": aud })));
    let (iss, aud) = (json!("https://id.example"), json!("shop"));
    for aud in [aud.clone(), json!(["shop"]), json!(["other", "shop"])] {
        let token = signed(iss.clone(), aud.clone());
        let answer = public_query(&server, &[&format!("Bearer {token}")]).await;
        assert_eq!(answer.status, 200, "{aud}");
    }
    for wrong in [
        Value::Null,
        json!(""),
        json!("other"),
        json!("SHOP"),
        json!(["other"]),
        json!([]),
        json!(7),
        json!({ "shop": true }),
    ] {
        let why = wrong.to_string();
        assert_token_refused(&server, &signed(iss.clone(), wrong.clone()), &why).await;
        assert_token_refused(&server, &signed(wrong, aud.clone()), &why).await;
    }
    // `vitrina token` makes such as are taken.
    let expires = SystemClock.now().after(std::time::Duration::from_secs(60));
    let token = sign_token(&auth, "me", Role::Customer, expires).unwrap();
    assert_eq!(public_query(&server, &[&format!("Bearer {token}")]).await.status, 200);
}

#[tokio::test]
async fn a_token_that_must_be_understood_further_is_refused() {
    let server = TestServer::start().await;
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let mut header = Header::new(Algorithm::HS256);
    header.crit = Some(vec!["exp".to_owned()]);
    let token = jsonwebtoken::encode(&header, &claims(&json!({})), &key).unwrap();
    assert_token_refused(&server, &token, "crit").await;
}

#[tokio::test]
async fn clocks_may_be_half_a_minute_apart() {
    let server = TestServer::start().await;
    // Well within the half minute, so that a slow machine is not taken for a wrong clock.
    for changes in [
        json!({ "exp": now() - 10 }),
        json!({ "nbf": now() + 15 }),
        json!({ "nbf": now() - 60, "iat": now(), "aud": "shop", "jti": "1" }),
        json!({ "sub": "x".repeat(255) }),
    ] {
        let token = signed(&claims(&changes));
        let answer = public_query(&server, &[&format!("Bearer {token}")]).await;
        assert_eq!(answer.status, 200, "{changes}");
    }
}

#[tokio::test]
async fn a_token_of_more_than_four_kibibytes_is_not_looked_at() {
    let server = TestServer::start().await;
    let padded = |bytes: usize| signed(&claims(&json!({ "padding": "x".repeat(bytes) })));
    let fits = padded(2_800);
    assert!(fits.len() <= 4_096);
    assert_eq!(public_query(&server, &[&format!("Bearer {fits}")]).await.status, 200);
    let too_long = padded(3_000);
    assert!(too_long.len() > 4_096);
    assert_token_refused(&server, &too_long, "over the limit").await;
    assert_token_refused(&server, &padded(10_000), "far over the limit").await;
    let answer = public_query(&server, &[&format!("Bearer {}", padded(60_000))]).await;
    assert_eq!(answer.status, 431, "more than a head may have");
}

#[tokio::test]
async fn a_bad_token_is_refused_over_get_too() {
    let server = TestServer::start().await;
    let path = super::graphql_path(&[("query", "{ __typename }")]);
    let headers = [("apollo-require-preflight", "1"), ("authorization", "Bearer x")];
    let answer = super::get(&server.http, &path, &headers).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (401, "UNAUTHENTICATED"));
}
