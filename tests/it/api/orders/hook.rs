//! The payment hook: who is believed, what counts and how often.

use std::fmt::Write as _;

use aws_lc_rs::hmac;
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use vitrina::clock::{Clock, SystemClock};

use super::{Shopper, available, clerk, id_of, level, open_shop, ordered};
use crate::support::http::{Answer, HttpClient};
use crate::support::server::{SECRET, TestServer};
use crate::support::stores::TestStore;

on_every_server! {
    a_payment_counts_once_however_often_it_is_told,
    what_the_payment_service_says_of_an_order_is_in_its_timeline,
}

/// Seconds since 1970, so many from now.
fn stamp(seconds: i64) -> String {
    (SystemClock.now().millis() / 1_000 + seconds).to_string()
}

fn sign(secret: &str, stamp: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{stamp}.{body}").as_bytes());
    tag.as_ref().iter().fold("v1=".to_owned(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

pub(super) async fn post(http: &HttpClient, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = Request::post("/hooks/payment");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    http.send(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap()
}

/// Sends a text as the payment service does; the status and the code.
async fn send(http: &HttpClient, body: &str) -> (u16, String) {
    let stamp = stamp(0);
    let signature = sign(SECRET, &stamp, body);
    told(
        &post(http, &[("vitrina-timestamp", &stamp), ("vitrina-signature", &signature)], body)
            .await,
    )
}

fn told(answer: &Answer) -> (u16, String) {
    (answer.status.as_u16(), answer.json()["code"].as_str().unwrap().to_owned())
}

fn answer(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

pub(super) fn message(id: &str, kind: &str, order: &str, amount: &str) -> Value {
    json!({ "id": id, "type": kind, "orderId": order, "amount": amount, "currencyCode": "RUB" })
}

/// What a message of a payment comes to.
pub(super) async fn tell(server: &TestServer, id: &str, kind: &str, order: &str) -> (u16, String) {
    send(&server.http, &message(id, kind, order, "20.00").to_string()).await
}

pub(super) fn events(order: &Value) -> Vec<&str> {
    order["timeline"].as_array().unwrap().iter().map(|e| e["type"].as_str().unwrap()).collect()
}

async fn a_payment_counts_once_however_often_it_is_told(server: &TestServer) {
    open_shop(server, &[("A", 10)]).await;
    let (customer, staff) = (Shopper::customer(server, "customer-1"), clerk(server));
    let order = customer.buy_of(&[("A", 2)], "key").await;
    let id = id_of(&order);
    let (one, two) = tokio::join!(tell(server, "p1", "paid", id), tell(server, "p1", "paid", id));
    assert_eq!((one, two), (answer(200, "OK"), answer(200, "OK")));
    let paid = customer.order(id).await;
    assert_eq!((&paid["status"], events(&paid)), (&json!("PAID"), vec!["created", "paid"]));
    assert_eq!(paid["timeline"][1]["actor"], "PAYMENT");
    assert_eq!(paid["paymentDueAt"], Value::Null);
    // Sent again, also long after, it is the same payment; another one is refused.
    for status in ["PROCESSING", "SHIPPED", "DELIVERED"] {
        assert_eq!(tell(server, "p1", "paid", id).await, answer(200, "OK"));
        assert_eq!(tell(server, "p2", "paid", id).await, answer(409, "NOT_PAYABLE"));
        ordered(staff.advance(id, status, None).await);
    }
    let order = customer.order(id).await;
    let refused = events(&order).iter().filter(|event| **event == "payment refused").count();
    assert_eq!(refused, 1, "noted once: {order}");
    assert_eq!(events(&order).iter().filter(|event| **event == "paid").count(), 1);
    assert_eq!(level(server, "A").await, (8, 0));
    // The money for one that was cancelled is not taken.
    let order = customer.buy_of(&[("A", 2)], "key-2").await;
    let id = id_of(&order);
    ordered(customer.cancel(id, None).await);
    assert_eq!(tell(server, "p3", "paid", id).await, answer(409, "NOT_PAYABLE"));
    assert_eq!(customer.order(id).await["status"], "CANCELLED");
    assert_eq!(level(server, "A").await, (8, 0));
}

async fn what_the_payment_service_says_of_an_order_is_in_its_timeline(server: &TestServer) {
    open_shop(server, &[("A", 10)]).await;
    let (customer, staff) = (Shopper::customer(server, "customer-1"), clerk(server));
    let order = customer.buy_of(&[("A", 2)], "key").await;
    let id = id_of(&order);
    // It did not work; the customer tries again.
    for _ in 0..2 {
        assert_eq!(tell(server, "p1", "failed", id).await, answer(200, "OK"));
    }
    assert_eq!(customer.order(id).await["status"], "CREATED");
    // Another sum, or another currency.
    let wrong = message("p2", "paid", id, "19.99");
    assert_eq!(send(&server.http, &wrong.to_string()).await, answer(422, "WRONG_AMOUNT"));
    let mut dollars = message("p3", "paid", id, "20.00");
    dollars["currencyCode"] = json!("USD");
    assert_eq!(send(&server.http, &dollars.to_string()).await, answer(422, "WRONG_AMOUNT"));
    assert_eq!(customer.order(id).await["status"], "CREATED");
    // However it is written.
    let plain = message("p4", "paid", id, "20");
    assert_eq!(send(&server.http, &plain.to_string()).await, answer(200, "OK"));
    let paid = customer.order(id).await;
    let expected = ["created", "payment failed", "payment refused", "payment refused", "paid"];
    assert_eq!(events(&paid), expected);
    assert_eq!(paid["timeline"][1]["note"], "The customer may try again. (p1)");
    // The money went back: what has not left is cancelled, and its units are free.
    for _ in 0..2 {
        assert_eq!(tell(server, "r1", "refunded", id).await, answer(200, "OK"));
    }
    let refunded = customer.order(id).await;
    assert_eq!(refunded["status"], "CANCELLED");
    assert_eq!(events(&refunded)[5..], ["payment refunded", "cancelled"]);
    assert_eq!((level(server, "A").await, available(server, "A").await), ((10, 0), 10));
    // What has left has left.
    let order = customer.buy_of(&[("A", 2)], "key-2").await;
    let id = id_of(&order);
    assert_eq!(tell(server, "p5", "paid", id).await, answer(200, "OK"));
    for status in ["PROCESSING", "SHIPPED"] {
        ordered(staff.advance(id, status, None).await);
    }
    assert_eq!(tell(server, "r2", "refunded", id).await, answer(200, "OK"));
    let order = customer.order(id).await;
    assert_eq!(
        (&order["status"], events(&order).last()),
        (&json!("SHIPPED"), Some(&"payment refunded"))
    );
    assert_eq!(level(server, "A").await, (8, 0));
}

#[tokio::test]
async fn only_what_is_signed_and_fresh_is_believed() {
    let server = TestServer::start().await;
    open_shop(&server, &[("A", 10)]).await;
    let customer = Shopper::customer(&server, "customer-1");
    let order = customer.buy_of(&[("A", 2)], "key").await;
    let body = message("p1", "paid", id_of(&order), "20.00").to_string();
    let now = stamp(0);
    let good = sign(SECRET, &now, &body);
    let (past, future) = (stamp(-310), stamp(310));
    let (stale, early) = (sign(SECRET, &past, &body), sign(SECRET, &future, &body));
    let stranger = sign("another secret, not the one of the shop", &now, &body);
    let other = sign(SECRET, &now, &message("p1", "paid", id_of(&order), "0.01").to_string());
    let upper = good.to_uppercase();
    for (stamp, signature) in [
        (now.as_str(), stranger.as_str()),
        (&now, &other),
        (&now, &good[..good.len() - 1]),
        (&now, &good[3..]),
        (&now, &upper),
        (&now, "v1="),
        (&now, ""),
        (&past, &stale),
        (&future, &early),
        (&past, &good),
        ("", &good),
        ("now", &good),
        ("99999999999999999999", &good),
    ] {
        let headers = [("vitrina-timestamp", stamp), ("vitrina-signature", signature)];
        let refused = told(&post(&server.http, &headers, &body).await);
        assert_eq!(refused, answer(401, "BAD_SIGNATURE"), "{stamp} {signature}");
    }
    for headers in
        [&[][..], &[("vitrina-timestamp", now.as_str())], &[("vitrina-signature", &good)]]
    {
        assert_eq!(told(&post(&server.http, headers, &body).await), answer(401, "BAD_SIGNATURE"));
    }
    assert_eq!(customer.order(id_of(&order)).await, order, "nothing has happened to it");
    // Replayed while it is fresh, the same message is the same payment.
    for _ in 0..2 {
        let headers = [("vitrina-timestamp", now.as_str()), ("vitrina-signature", &good)];
        assert_eq!(told(&post(&server.http, &headers, &body).await), answer(200, "OK"));
    }
    assert_eq!(events(&customer.order(id_of(&order)).await), ["created", "paid"]);
    let answer = server.http.get("/hooks/payment").await;
    assert_eq!(answer.status, 405, "a browser that comes by pays nothing");
}

#[tokio::test]
async fn what_is_no_message_is_told_so() {
    let server = TestServer::start().await;
    let id = "01980000-0000-7000-8000-000000000001";
    let with = |name: &str, value: Value| {
        let mut message = message("p1", "paid", id, "20.00");
        message[name] = value;
        message.to_string()
    };
    for bad in [
        String::new(),
        "{}".to_owned(),
        "[]".to_owned(),
        "null".to_owned(),
        "{\"id\":".to_owned(),
        "\u{0}".to_owned(),
        with("id", json!("")),
        with("id", json!("p".repeat(256))),
        with("id", json!("a\u{0}b")),
        with("id", json!(1)),
        with("type", json!("PAID")),
        with("type", json!("stolen")),
        with("orderId", json!("x")),
        with("orderId", Value::Null),
        with("amount", json!(20.0)),
        with("amount", json!("much")),
        with("amount", json!("")),
        with("currencyCode", json!("рубль")),
        with("currencyCode", json!("")),
    ] {
        assert_eq!(send(&server.http, &bad).await, answer(400, "BAD_MESSAGE"), "{bad:.80}");
    }
    assert_eq!(tell(&server, "p1", "paid", id).await, answer(404, "UNKNOWN_ORDER"));
    assert_eq!(tell(&server, "p1", "paid", id).await, answer(404, "UNKNOWN_ORDER"));
    let long = with("note", json!("x".repeat(17 << 10)));
    assert_eq!(send(&server.http, &long).await, answer(413, "TOO_LARGE"));
    let room = with("note", json!("x".repeat(15 << 10)));
    assert_eq!(send(&server.http, &room).await, answer(404, "UNKNOWN_ORDER"));
}

#[tokio::test]
async fn a_shop_without_a_payment_service_has_no_hook() {
    let store = TestStore::embedded().await;
    let server = TestServer::start_on(store, |config| config.payment_secret = None).await;
    let body = message("p1", "paid", "x", "1").to_string();
    assert_eq!(send(&server.http, &body).await, answer(404, "NOT_CONFIGURED"));
    assert_eq!(told(&post(&server.http, &[], "").await), answer(404, "NOT_CONFIGURED"));
    // A secret that is nothing would be everybody's.
    let now = stamp(0);
    let signature = sign("", &now, &body);
    let headers = [("vitrina-timestamp", now.as_str()), ("vitrina-signature", &signature)];
    assert_eq!(told(&post(&server.http, &headers, &body).await), answer(404, "NOT_CONFIGURED"));
}
