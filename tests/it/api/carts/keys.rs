//! Idempotency keys: whatever is sent again happens once.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Shopper, done, fault, lines};
use crate::api::{faults, product, stock as sell};
use crate::support::server::TestServer;

on_every_server! {
    a_change_with_a_key_is_carried_out_once,
    many_requests_with_one_key_at_once_are_one,
}

/// The changes that take a key, by number.
async fn change(shopper: &Shopper, number: usize, key: Option<&str>) -> Value {
    match number {
        0 => shopper.add(&[("A", 2), ("B", 1)], key).await,
        1 => shopper.update(&[("A", 7), ("C", 1), ("B", 0)], key).await,
        2 => shopper.remove(&["C"], key).await,
        _ => shopper.clear(key).await,
    }
}

async fn a_change_with_a_key_is_carried_out_once(server: &TestServer) {
    sell(&server.http, &["A", "B", "C"].map(|id| product(id, "Дом", "10"))).await;
    for shopper in [Shopper::guest(server).await, Shopper::customer(server, "customer-1")] {
        for number in 0..4 {
            let key = format!("ключ {number}");
            let cart = done(change(&shopper, number, Some(&key)).await);
            assert_eq!(done(change(&shopper, number, Some(&key)).await), cart);
            // Also after something else has happened: it is not undone.
            let later = shopper.put(&[("A", 1), ("C", 1)]).await;
            assert_eq!(done(change(&shopper, number, Some(&key)).await), later);
            assert_eq!(shopper.cart().await, later);
            // Another input with the same key, or another change.
            for reused in [
                shopper.add(&[("A", 3), ("B", 1)], Some(&key)).await,
                shopper.add(&[("A", 2)], Some(&key)).await,
                shopper.update(&[("A", 2), ("B", 1)], Some(&key)).await,
                shopper.remove(&["A"], Some(&key)).await,
                change(&shopper, (number + 1) % 4, Some(&key)).await,
            ] {
                assert_eq!(faults(&reused), [fault("idempotencyKey", "KEY_REUSED")]);
                assert_eq!(reused["cart"], later);
            }
            assert_eq!(shopper.cart().await, later);
        }
        // The same in another order, or in several lines, is the same.
        let key = Some("порядок");
        let cart = done(shopper.add(&[("A", 2), ("B", 1)], key).await);
        assert_eq!(done(shopper.add(&[("B", 1), ("A", 1), ("A", 1)], key).await), cart);
        // A key that was refused was not used.
        let refused = shopper.add(&[("A", 999)], Some("нет")).await;
        assert_eq!(faults(&refused), [fault("lines.0.quantity", "QUANTITY_LIMIT")]);
        done(shopper.add(&[("A", 1)], Some("нет")).await);
    }
    // One owner's key is not another's.
    let (one, two) = (Shopper::guest(server).await, Shopper::guest(server).await);
    for shopper in [&one, &two, &Shopper::customer(server, "customer-2")] {
        let cart = done(shopper.add(&[("A", 5)], Some("общий")).await);
        assert_eq!(lines(&cart), [("A", 5)]);
    }
}

async fn many_requests_with_one_key_at_once_are_one(server: &TestServer) {
    sell(&server.http, &[product("A", "Дом", "10")]).await;
    let other = server.beside(|_| {}).await;
    for shopper in [Shopper::guest(server).await, Shopper::customer(server, "customer-1")] {
        let at_other = shopper.at(&other);
        let requests = (0..20).map(|n| {
            let shopper = if n % 2 == 0 { &shopper } else { &at_other };
            shopper.add(&[("A", 3)], Some("раз"))
        });
        for payload in join_all(requests).await {
            assert_eq!(lines(&done(payload)), [("A", 3)]);
        }
        assert_eq!(lines(&shopper.cart().await), [("A", 3)]);
        assert_eq!(lines(&at_other.cart().await), [("A", 3)]);
        // Without a key each counts, through whichever instance it comes.
        let requests = (0..20).map(|n| {
            let shopper = if n % 2 == 0 { &shopper } else { &at_other };
            shopper.add(&[("A", 1)], None)
        });
        join_all(requests).await.into_iter().for_each(|payload| drop(done(payload)));
        assert_eq!(lines(&at_other.cart().await), [("A", 23)]);
    }
}

#[tokio::test]
async fn a_key_is_a_text_of_its_own() {
    let server = TestServer::start().await;
    sell(&server.http, &["A", "B", "C"].map(|id| product(id, "Дом", "10"))).await;
    let shopper = Shopper::guest(&server).await;
    let before = shopper.put(&[("C", 1)]).await;
    let long = "к".repeat(256);
    for (key, code) in [
        ("", "BLANK"),
        (" \u{a0}", "BLANK"),
        (long.as_str(), "TOO_LONG"),
        ("a\u{0}b", "INVALID"),
        ("a\nb", "INVALID"),
    ] {
        for number in 0..4 {
            let payload = change(&shopper, number, Some(key)).await;
            assert_eq!(faults(&payload), [fault("idempotencyKey", code)], "{key:?}");
            assert_eq!(payload["cart"], before);
        }
    }
    assert_eq!(shopper.cart().await, before);
    // Keys that look alike are different ones.
    for (n, key) in ["k", "K", "k ", " k", &"к".repeat(255)].into_iter().enumerate() {
        let cart = done(shopper.add(&[("A", 1)], Some(key)).await);
        assert_eq!(cart["totalQuantity"], json!(n + 2), "{key:?}");
    }
}
