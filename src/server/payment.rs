//! The payment hook: signed messages of the payment service.
//!
//! `Vitrina-Timestamp` has the seconds since 1970, `Vitrina-Signature` is `v1=` and the HMAC-SHA256
//! in hex, under the shared secret, of the time stamp, a dot, and the body.

use std::sync::Arc;

use aws_lc_rs::{constant_time, hmac};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use rust_decimal::Decimal;
use serde::Deserialize;
use uuid::Uuid;

use super::body::read_body;
use super::wire::{Object, Unheard};
use crate::app::App;
use crate::checkout::service::{PaymentKind, PaymentNotice, PaymentOutcome};
use crate::clock::{Clock, SystemClock};
use crate::config::Secret;
use crate::digest::hex;
use crate::error::Error;
use crate::input::{MAX_KEY_CHARS, check_text};
use crate::money::{Currency, Money};

/// How far the time stamp of a message may be from now.
const TOLERANCE_SECONDS: u64 = 300;
/// Most bytes of a message.
const MAX_BODY: usize = 16 << 10;

const TIMESTAMP: &str = "vitrina-timestamp";
const SIGNATURE: &str = "vitrina-signature";
const FORM: &str = "v1=";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    id: String,
    #[serde(rename = "type")]
    kind: Kind,
    order_id: String,
    amount: String,
    currency_code: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Paid,
    Failed,
    Refunded,
}

fn refuse(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(serde_json::json!({ "code": code, "message": message }))).into_response()
}

/// Takes a message of the payment service.
pub(super) async fn hook(State(app): State<Arc<App>>, request: Request) -> Response {
    let Some(secret) = &app.config.payment_secret else {
        let message = "This shop has no payment service: VITRINA_PAYMENT_SECRET is not set.";
        return refuse(StatusCode::NOT_FOUND, "NOT_CONFIGURED", message);
    };
    let (parts, body) = request.into_parts();
    let reading = read_body(&app, &parts.headers, body, MAX_BODY);
    let body = match tokio::time::timeout(app.config.limits.deadline, reading).await {
        Ok(Ok(body)) => body,
        Ok(Err((status, error))) => {
            let code = match status {
                StatusCode::PAYLOAD_TOO_LARGE => "TOO_LARGE",
                StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
                _ => "BAD_MESSAGE",
            };
            let mut response = refuse(status, code, error.message());
            response.extensions_mut().insert(Unheard);
            return response;
        }
        Err(_) => {
            return refuse(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", "The message did not come.");
        }
    };
    let now = SystemClock.now().millis().div_euclid(1_000);
    if !is_signed(secret, &parts.headers, &body, now) {
        let message = "The signature or its time is not right.";
        return refuse(StatusCode::UNAUTHORIZED, "BAD_SIGNATURE", message);
    }
    let notice = match parse(&body) {
        Ok(notice) => notice,
        Err(message) => return refuse(StatusCode::BAD_REQUEST, "BAD_MESSAGE", message),
    };
    let Some(shop) = app.opened().await else { return failed(&Error::Unavailable) };
    let deadline = app.config.limits.deadline;
    match tokio::time::timeout(deadline, shop.checkout.payment(notice)).await {
        Ok(Ok(PaymentOutcome::Taken)) => {
            (StatusCode::OK, Json(serde_json::json!({ "code": "OK" }))).into_response()
        }
        Ok(Ok(PaymentOutcome::UnknownOrder)) => {
            refuse(StatusCode::NOT_FOUND, "UNKNOWN_ORDER", "There is no such order.")
        }
        Ok(Ok(PaymentOutcome::WrongAmount)) => {
            let message = "The order costs another amount.";
            refuse(StatusCode::UNPROCESSABLE_ENTITY, "WRONG_AMOUNT", message)
        }
        Ok(Ok(PaymentOutcome::NotPayable)) => {
            let message = "The order was cancelled, or paid by another payment.";
            refuse(StatusCode::CONFLICT, "NOT_PAYABLE", message)
        }
        Ok(Err(error)) => failed(&error),
        Err(_) => failed(&Error::Timeout),
    }
}

fn failed(error: &Error) -> Response {
    let status = match error {
        Error::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    refuse(status, error.code(), error.message())
}

/// Whether the payment service has sent this, about now.
fn is_signed(secret: &Secret, headers: &HeaderMap, body: &Bytes, now: i64) -> bool {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(stamp), Some(signature)) = (header(TIMESTAMP), header(SIGNATURE)) else {
        return false;
    };
    let Ok(sent) = stamp.parse::<i64>() else { return false };
    if now.abs_diff(sent) > TOLERANCE_SECONDS {
        return false;
    }
    let expected = sign(secret, stamp, body);
    let given = signature.strip_prefix(FORM).unwrap_or_default();
    constant_time::verify_slices_are_equal(given.as_bytes(), expected.as_bytes()).is_ok()
}

/// The signature of a message, in hex.
fn sign(secret: &Secret, stamp: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes());
    let mut signing = hmac::Context::with_key(&key);
    signing.update(stamp.as_bytes());
    signing.update(b".");
    signing.update(body);
    hex(signing.sign().as_ref())
}

fn parse(body: &[u8]) -> Result<PaymentNotice, &'static str> {
    let Object(message) = serde_json::from_slice::<Object<Message>>(body).map_err(|_| {
        "A message is JSON with id, type (paid, failed or refunded), orderId, amount and \
         currencyCode."
    })?;
    if check_text(&message.id, MAX_KEY_CHARS).is_some() {
        return Err("id has 1 to 255 visible characters.");
    }
    let order = Uuid::try_parse(&message.order_id).map_err(|_| "orderId is the id of an order.")?;
    let amount = Decimal::from_str_exact(&message.amount)
        .map_err(|_| "amount is a text such as \"89990.00\".")?;
    let currency = Currency::parse(&message.currency_code)
        .ok_or("currencyCode is a code of ISO 4217, such as RUB.")?;
    let kind = match message.kind {
        Kind::Paid => PaymentKind::Paid,
        Kind::Failed => PaymentKind::Failed,
        Kind::Refunded => PaymentKind::Refunded,
    };
    Ok(PaymentNotice { id: message.id, kind, order, amount: Money { amount, currency } })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::wire::tests::any_json;
    use super::*;

    fn headers(stamp: &str, signature: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(TIMESTAMP, stamp.parse().unwrap());
        headers.insert(SIGNATURE, signature.parse().unwrap());
        headers
    }

    #[test]
    fn only_what_was_signed_just_now_is_taken() {
        let (secret, body) = (Secret::new("s".repeat(32)), Bytes::from_static(b"{}"));
        let signature = format!("v1={}", sign(&secret, "1000", &body));
        let good = headers("1000", &signature);
        for (now, is_taken) in
            [(1000, true), (1300, true), (700, true), (1301, false), (699, false)]
        {
            assert_eq!(is_signed(&secret, &good, &body, now), is_taken, "{now}");
        }
        assert!(!is_signed(&secret, &good, &Bytes::from_static(b"{ }"), 1000), "another body");
        assert!(!is_signed(&secret, &headers("1001", &signature), &body, 1000), "another time");
        assert!(!is_signed(&Secret::new("t".repeat(32)), &good, &body, 1000), "another secret");
        for wrong in ["", "v1=", &signature[3..], &signature.replace("v1=", "v2=")] {
            assert!(!is_signed(&secret, &headers("1000", wrong), &body, 1000), "{wrong}");
        }
        assert!(!is_signed(&secret, &HeaderMap::new(), &body, 1000));
        assert!(!is_signed(&secret, &headers("-9223372036854775808", "v1=0"), &body, i64::MAX));
    }

    #[test]
    fn the_signature_is_that_of_the_specification() {
        // printf '1000.{}' | openssl dgst -sha256 -hmac ssssssssssssssssssssssssssssssss
        let secret = Secret::new("s".repeat(32));
        let expected = "3b20f4e8ff286a644da8fa3ba461e2803384471efa2f5de2896a73b2f3be7ade";
        assert_eq!(sign(&secret, "1000", b"{}"), expected);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_a_fault(bytes in vec(any::<u8>(), 0..200), json in any_json()) {
            let _ = (parse(&bytes), parse(json.to_string().as_bytes()));
        }

        #[test]
        fn any_fields_are_a_message_or_a_fault(
            id in any::<String>(),
            order in prop_oneof![any::<String>(), any::<u128>().prop_map(|n| Uuid::from_u128(n).to_string())],
            amount in prop_oneof![any::<String>(), "-?[0-9]{0,40}[.]?[0-9]{0,40}(e[0-9]{1,3})?"],
            currency in prop_oneof![any::<String>(), "[A-Z]{2,4}", Just("RUB".to_owned())],
        ) {
            let message = json!({
                "id": id, "type": "paid", "orderId": order, "amount": amount,
                "currencyCode": currency,
            });
            if let Ok(notice) = parse(message.to_string().as_bytes()) {
                prop_assert!(!notice.id.is_empty() && notice.id.chars().count() <= MAX_KEY_CHARS);
                // An amount is taken exactly as it was written, or not at all.
                let digits = |text: &str| text.trim_start_matches(['-', '+']).to_owned();
                let written = digits(&amount);
                let written = written.trim_start_matches('0');
                let kept = digits(&notice.amount.amount.to_string());
                prop_assert_eq!(kept.trim_start_matches('0'), written.trim_end_matches('.'));
            }
            let values: Vec<_> = ["id", "type", "orderId", "amount", "currencyCode"]
                .map(|name| message[name].clone())
                .to_vec();
            prop_assert!(parse(json!(values).to_string().as_bytes()).is_err(), "a list is no message");
        }

        #[test]
        fn any_headers_are_a_signature_or_none(
            stamp in prop_oneof![any::<String>(), any::<i64>().prop_map(|n| n.to_string())],
            signature in prop_oneof![any::<String>(), "v1=[0-9a-f]{60,66}"],
            now in any::<i64>(),
        ) {
            let mut headers = HeaderMap::new();
            for (name, value) in [(TIMESTAMP, stamp), (SIGNATURE, signature)] {
                if let Ok(value) = HeaderValue::from_str(&value) {
                    headers.insert(name, value);
                }
            }
            let (secret, body) = (Secret::new("s".repeat(32)), Bytes::from_static(b"{}"));
            prop_assert!(!is_signed(&secret, &headers, &body, now));
        }
    }
}
