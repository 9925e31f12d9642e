//! A guest's cart that goes to the customer's at log-in: all of it, once.

use futures_util::future::join_all;
use serde_json::Value;
use vitrina::server::Role;

use super::{Shopper, done, fault, lines, many, mutation, notices, of_each, sell_all};
use crate::api::sessions::{end, visit};
use crate::api::{faults, product, stock as sell};
use crate::support::server::{TestServer, token};

on_every_server! {
    what_a_guest_has_goes_to_the_customer_once,
    what_does_not_fit_is_left_out_and_told,
}

async fn what_a_guest_has_goes_to_the_customer_once(server: &TestServer) {
    sell(&server.http, &["A", "B", "C"].map(|id| product(id, "Дом", "10"))).await;
    let other = server.beside(|_| {}).await;
    let guest = Shopper::guest(server).await;
    let customer = Shopper::customer(server, "customer-1");
    // Of nothing comes nothing.
    assert_eq!(lines(&done(customer.merge(&guest.token).await)), []);
    customer.put(&[("A", 1), ("C", 1)]).await;
    guest.put(&[("A", 2), ("B", 3)]).await;
    let merged = [("A", 3), ("C", 1), ("B", 3)];
    for _ in 0..3 {
        assert_eq!(lines(&done(customer.merge(&guest.token).await)), merged);
        assert_eq!(lines(&guest.cart().await), []);
    }
    assert_eq!(lines(&customer.cart().await), merged);
    // What the guest adds after it is the guest's, and goes over the next time.
    guest.put(&[("B", 1)]).await;
    assert_eq!(lines(&customer.cart().await), merged);
    assert_eq!(lines(&guest.cart().await), [("B", 1)]);
    let session = visit(&server.http, Some(&customer.token)).await;
    let device = Shopper::new(&other, &session.token);
    let cart = done(device.merge(&guest.token).await);
    assert_eq!(lines(&cart), [("A", 3), ("C", 1), ("B", 4)]);

    // Many at once, through both instances.
    done(customer.clear(None).await);
    for round in 1..=2_i64 {
        guest.put(&[("A", 2), ("B", 3)]).await;
        let at_other = customer.at(&other);
        let requests = (0..10).map(|n| {
            let customer = if n % 2 == 0 { &customer } else { &at_other };
            customer.merge(&guest.token)
        });
        join_all(requests).await.into_iter().for_each(|payload| drop(done(payload)));
        for customer in [&customer, &at_other] {
            assert_eq!(lines(&customer.cart().await), [("A", 2 * round), ("B", 3 * round)]);
        }
        assert_eq!(lines(&guest.cart().await), []);
    }

    // Two customers at once: one of them has it.
    guest.put(&[("C", 4)]).await;
    let rivals = [Shopper::customer(server, "rival-1"), Shopper::customer(&other, "rival-2")];
    join_all(rivals.iter().map(|rival| rival.merge(&guest.token))).await;
    let mut badges = join_all(rivals.iter().map(Shopper::badge)).await;
    badges.sort_unstable();
    assert_eq!(badges, [0, 4]);
    assert_eq!(guest.badge().await, 0);
}

async fn what_does_not_fit_is_left_out_and_told(server: &TestServer) {
    let ids = many(120);
    sell_all(&server.http, &ids).await;
    let guest = Shopper::guest(server).await;
    let customer = Shopper::customer(server, "customer-1");
    customer.put(&of_each(&ids[..60], 600)).await;
    guest.put(&of_each(&ids[59..119], 500)).await;
    let cart = done(customer.merge(&guest.token).await);
    // One was there already, 40 found a place and 19 did not.
    assert_eq!(cart["lines"].as_array().unwrap().len(), 100);
    assert_eq!(lines(&cart)[59], ("P059", 999));
    assert_eq!(lines(&cart)[99], ("P099", 500));
    let left = notices(&cart, "MERGE_LEFT_OUT");
    let told = |notice: &&Value| {
        (notice["productId"].as_str().unwrap().to_owned(), notice["quantity"].as_i64().unwrap())
    };
    let mut expected = vec![("P059".to_owned(), 101)];
    expected.extend(ids[100..119].iter().map(|id| (id.clone(), 500)));
    assert_eq!(left.iter().map(told).collect::<Vec<_>>(), expected);
    assert_eq!(guest.badge().await, 0);
    // Until the next change, and repeating it is none.
    let again = done(customer.merge(&guest.token).await);
    assert_eq!((lines(&again), notices(&again, "MERGE_LEFT_OUT")), (lines(&cart), left));
    let cart = done(customer.remove(&["P000"], None).await);
    assert_eq!(notices(&cart, "MERGE_LEFT_OUT"), [&Value::Null; 0]);
}

#[tokio::test]
async fn a_cart_keeps_to_one_currency_when_it_is_merged() {
    let server = TestServer::start().await;
    let mut dollars = product("USD", "Дом", "5");
    dollars["price"]["currencyCode"] = "USD".into();
    sell(&server.http, &[product("A", "Дом", "10"), dollars]).await;
    let guest = Shopper::guest(&server).await;
    let customer = Shopper::customer(&server, "customer-1");
    guest.put(&[("USD", 3)]).await;
    customer.put(&[("A", 1)]).await;
    let cart = done(customer.merge(&guest.token).await);
    // A subtotal without them, and nobody told, would give them away.
    assert_eq!(lines(&cart), [("A", 1)]);
    let left = notices(&cart, "MERGE_LEFT_OUT");
    assert_eq!((&left[0]["productId"], &left[0]["quantity"]), (&"USD".into(), &3.into()));
    // Into an empty one they go.
    let other = Shopper::customer(&server, "customer-2");
    guest.put(&[("USD", 3)]).await;
    assert_eq!(lines(&done(other.merge(&guest.token).await)), [("USD", 3)]);
}

#[tokio::test]
async fn only_the_token_of_a_guest_whose_session_goes_on_is_merged() {
    let server = TestServer::start().await;
    let abroad = TestServer::start().await;
    sell(&server.http, &[product("A", "Дом", "10")]).await;
    let customer = Shopper::customer(&server, "customer-1");
    let before = customer.put(&[("A", 1)]).await;
    let (guest, ended) = (Shopper::guest(&server).await, Shopper::guest(&server).await);
    for guest in [&guest, &ended] {
        guest.put(&[("A", 5)]).await;
    }
    end(&server.http, &ended.token, None).await;
    let victim = Shopper::customer(&server, "customer-2");
    victim.put(&[("A", 7)]).await;
    let session = visit(&server.http, Some(&victim.token)).await;
    let own = visit(&server.http, Some(&customer.token)).await;
    let id = guest.cart().await["id"].as_str().unwrap().to_owned();
    for bad in [
        &ended.token,
        &victim.token,
        &session.token,
        &own.token,
        &customer.token,
        &token("manager-1", Role::Staff),
        &Shopper::guest(&abroad).await.token,
        &guest.token[..guest.token.len() - 1],
        &format!("{}A", guest.token),
        &format!("Bearer {}", guest.token),
        &id,
        id.trim_start_matches("guest:"),
        "",
        "vs1.",
        "мусор\u{0}",
        &"x".repeat(20_000),
    ] {
        let payload = customer.merge(bad).await;
        assert_eq!(faults(&payload), [fault("guestToken", "INVALID")], "{bad:.80}");
        assert_eq!(payload["cart"], before);
        let text = payload.to_string();
        assert!(bad.len() < 40 || !text.contains(bad), "the token is repeated");
    }
    assert_eq!(victim.badge().await, 7);
    assert_eq!(guest.badge().await, 5);
    // Into a guest's cart nothing is merged, and into nobody's neither.
    let merge = mutation("cartMerge");
    let variables = serde_json::json!({ "guest": guest.token });
    let another = Shopper::guest(&server).await;
    let http = &server.http;
    for token in [&another.token, &guest.token] {
        assert_eq!(http.query_as(token, &merge, variables.clone()).await.code(), "FORBIDDEN");
    }
    assert_eq!(http.query(&merge, variables).await.code(), "UNAUTHENTICATED");
    assert_eq!(guest.badge().await, 5);
}
