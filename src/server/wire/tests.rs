//! Requests that nobody would send.

use axum::http::HeaderName;
use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::*;

/// Any JSON, with the keys that requests and messages have among its keys.
pub(in crate::server) fn any_json() -> impl Strategy<Value = Value> {
    let names = &[
        "query",
        "operationName",
        "variables",
        "extensions",
        "persistedQuery",
        "version",
        "sha256Hash",
        "type",
        "id",
        "payload",
        "orderId",
        "amount",
        "currencyCode",
    ][..];
    let texts = &["subscribe", "ping", "paid", "1.50", "RUB", "{ __typename }", ""][..];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        select(texts).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        let key = prop_oneof![3 => select(names).prop_map(str::to_owned), 1 => any::<String>()];
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            hash_map(key, inner, 0..6).prop_map(Value::from_iter),
        ]
    })
}

/// Whether JSON has the form of a request.
fn is_request(json: &Value) -> bool {
    let Some(fields) = json.as_object() else { return false };
    let is = |value: Option<&Value>, sound: fn(&Value) -> bool| {
        value.is_none_or(|value| value.is_null() || sound(value))
    };
    let is_persisted = |query: &Value| {
        query["version"].as_u64().is_some_and(|version| u32::try_from(version).is_ok())
            && query["sha256Hash"].is_string()
            && query.is_object()
    };
    is(fields.get("query"), Value::is_string)
        && is(fields.get("operationName"), Value::is_string)
        && is(fields.get("variables"), Value::is_object)
        && is(fields.get("extensions"), Value::is_object)
        && fields
            .get("extensions")
            .and_then(|extensions| extensions.get("persistedQuery"))
            .is_none_or(|query| query.is_null() || is_persisted(query))
}

fn assert_bad_input(result: Result<GraphRequest, Error>) -> Result<(), TestCaseError> {
    match result {
        Ok(_) => Ok(()),
        Err(Error::BadUserInput(message)) => {
            prop_assert!(message.len() < 250, "{}", message);
            Ok(())
        }
        Err(other) => Err(TestCaseError::fail(format!("{other:?}"))),
    }
}

#[test]
fn a_list_is_no_request() {
    for body in [
        json!(["{ a }", null, null, null]),
        json!({ "query": "{ a }", "extensions": [null] }),
        json!({ "query": "{ a }", "extensions": { "persistedQuery": [1, "0".repeat(64)] } }),
        json!({ "query": "{ a }", "variables": [] }),
    ] {
        assert!(GraphRequest::from_json(body.to_string().as_bytes()).is_err(), "{body}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_a_fault(bytes in vec(any::<u8>(), 0..200)) {
        assert_bad_input(GraphRequest::from_json(&bytes))?;
    }

    #[test]
    fn any_json_is_a_request_if_it_has_its_form(json in any_json()) {
        let result = GraphRequest::from_json(json.to_string().as_bytes());
        prop_assert_eq!(result.is_ok(), is_request(&json), "{}", json);
        assert_bad_input(result)?;
    }

    #[test]
    fn a_request_that_is_cut_or_damaged_is_no_panic(
        json in any_json(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = json!({ "query": "{ a }", "variables": json }).to_string().into_bytes();
        let at = at.index(bytes.len());
        prop_assert!(GraphRequest::from_json(&bytes[..at]).is_err());
        bytes[at] = byte;
        assert_bad_input(GraphRequest::from_json(&bytes))?;
    }

    #[test]
    fn any_headers_are_negotiated(
        values in vec(
            prop_oneof![
                vec(any::<u8>(), 0..40),
                "(application/(json|graphql-response[+]json|[*])|[*]/[*]|text/html|;q=[0-9.a]{0,3}|;|,| |charset=\"?utf-8){0,6}"
                    .prop_map(String::into_bytes),
            ],
            0..4,
        ),
    ) {
        let mut headers = HeaderMap::new();
        for value in values.iter().filter_map(|value| HeaderValue::from_bytes(value).ok()) {
            for name in [ACCEPT, CONTENT_TYPE] as [HeaderName; 2] {
                headers.append(name, value.clone());
            }
        }
        let _ = (Media::accepted(&headers), is_json(&headers));
        if headers.is_empty() {
            prop_assert_eq!(Media::accepted(&headers), Some(Media::Json));
            prop_assert!(!is_json(&headers));
        }
    }
}
