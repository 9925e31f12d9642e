//! The steps of an order, by staff and by whoever placed it, and where its units go.

use serde_json::{Value, json};

use super::{
    Shopper, available, clerk, code, codes, id_of, level, open_shop, ordered, until_available,
};
use crate::support::server::TestServer;

on_every_server! {
    an_order_goes_its_way_step_by_step_and_its_units_leave_once,
    a_cancelled_order_gives_its_units_back_once,
    the_orders_of_a_guest_are_the_customers_after_log_in,
}

const STATUSES: [&str; 6] = ["CREATED", "PAID", "PROCESSING", "SHIPPED", "DELIVERED", "CANCELLED"];

/// The steps that lead to a status.
fn path(status: &str) -> &'static [&'static str] {
    match status {
        "CREATED" => &[],
        "PAID" => &["PAID"],
        "PROCESSING" => &["PAID", "PROCESSING"],
        "SHIPPED" => &["PAID", "PROCESSING", "SHIPPED"],
        "DELIVERED" => &["PAID", "PROCESSING", "SHIPPED", "DELIVERED"],
        _ => &["CANCELLED"],
    }
}

fn events(order: &Value) -> Vec<&str> {
    order["timeline"].as_array().unwrap().iter().map(|e| e["type"].as_str().unwrap()).collect()
}

async fn an_order_goes_its_way_step_by_step_and_its_units_leave_once(server: &TestServer) {
    open_shop(server, &[("A", 10)]).await;
    let (customer, staff) = (Shopper::customer(server, "customer-1"), clerk(server));
    let order = customer.buy_of(&[("A", 3)], "key").await;
    let id = id_of(&order);
    assert_eq!((level(server, "A").await, available(server, "A").await), ((10, 3), 7));
    let mut before = order["updatedAt"].as_str().unwrap().to_owned();
    for (status, number) in
        [("PAID", None), ("PROCESSING", None), ("SHIPPED", Some("RU1")), ("DELIVERED", None)]
    {
        // What comes after the next is not to be had yet.
        let too_far = if status == "PAID" { "SHIPPED" } else { "CREATED" };
        let skipped = staff.advance(id, too_far, None).await;
        assert_eq!(codes(&skipped), [code("INVALID_TRANSITION", "to")]);
        assert_eq!(skipped["order"]["updatedAt"], json!(before));
        let stepped = ordered(staff.advance(id, status, number).await);
        assert_eq!(stepped["status"], status);
        assert!(stepped["updatedAt"].as_str() > Some(&before));
        before = stepped["updatedAt"].as_str().unwrap().to_owned();
        // Repeated, it changes nothing.
        assert_eq!(ordered(staff.advance(id, status, number).await), stepped);
        let seen = customer.order(id).await;
        assert_eq!((&seen["status"], &seen["updatedAt"]), (&json!(status), &json!(before)));
        assert_eq!(seen["paymentDueAt"], Value::Null, "it need not be paid any more");
    }
    assert_eq!((level(server, "A").await, available(server, "A").await), ((7, 0), 7));
    let order = customer.order(id).await;
    assert_eq!(order["trackingNumber"], "RU1");
    assert_eq!(events(&order), ["created", "paid", "processing", "shipped", "delivered"]);
    // Who of the staff it was is told to staff only.
    let whole = staff.order(id).await;
    assert_eq!(whole["timeline"][1]["actorId"], "manager-1");
    assert_eq!(whole["timeline"][1]["note"], "a note");
    assert_eq!(
        (&order["timeline"][1]["actor"], &order["timeline"][1]["actorId"]),
        (&json!("STAFF"), &Value::Null)
    );
    // Too late to be cancelled, by anybody.
    for who in [&customer, &staff] {
        let late = who.cancel(id, None).await;
        assert_eq!(codes(&late), [code("INVALID_TRANSITION", "id")]);
        assert_eq!(late["order"]["status"], "DELIVERED");
    }
    assert_eq!(level(server, "A").await, (7, 0));
    // Another parcel is another thing; so is a number without a parcel.
    let other = customer.buy_of(&[("A", 1)], "key-2").await;
    let id = id_of(&other);
    for status in ["PAID", "PROCESSING"] {
        let numbered = staff.advance(id, status, Some("RU2")).await;
        assert_eq!(codes(&numbered), [code("INVALID", "trackingNumber")]);
        assert_eq!(numbered["order"], Value::Null);
        ordered(staff.advance(id, status, None).await);
    }
    ordered(staff.advance(id, "SHIPPED", Some("RU2")).await);
    let again = staff.advance(id, "SHIPPED", Some("RU3")).await;
    assert_eq!(codes(&again), [code("INVALID_TRANSITION", "to")]);
    assert_eq!(again["order"]["trackingNumber"], "RU2");
    assert_eq!(ordered(staff.advance(id, "SHIPPED", None).await)["trackingNumber"], "RU2");
    assert_eq!(level(server, "A").await, (6, 0));
}

async fn a_cancelled_order_gives_its_units_back_once(server: &TestServer) {
    open_shop(server, &[("A", 10), ("B", 10)]).await;
    // The embedded store has one instance, which need not look whether another has changed its stock.
    let beside = server.beside(|_| {}).await;
    let other = if server.opened().is_shared() { &beside } else { server };
    let (guest, customer) = (Shopper::guest(server).await, Shopper::customer(server, "customer-1"));
    let staff = clerk(server);
    for (number, (owner, canceller, after)) in [
        (&guest, &guest, "CREATED"),
        (&customer, &customer, "PAID"),
        (&customer, &customer, "PROCESSING"),
        (&guest, &staff, "PAID"),
    ]
    .into_iter()
    .enumerate()
    {
        let order = owner.buy_of(&[("A", 3), ("B", 1)], &format!("key-{number}")).await;
        let id = id_of(&order);
        for status in path(after) {
            ordered(staff.advance(id, status, None).await);
        }
        assert_eq!((level(server, "A").await, level(server, "B").await), ((10, 3), (10, 1)));
        // Twice at once, where there are two instances through both, and again.
        let elsewhere = canceller.at(other);
        let (one, two) =
            tokio::join!(canceller.cancel(id, Some("Передумал")), elsewhere.cancel(id, None));
        let again = canceller.cancel(id, Some("Ещё раз")).await;
        for payload in [one, two, again] {
            assert_eq!(ordered(payload)["status"], "CANCELLED");
        }
        assert_eq!((level(server, "A").await, level(server, "B").await), ((10, 0), (10, 0)));
        until_available(server, "A", 10).await;
        let order = owner.order(id).await;
        assert_eq!(events(&order).iter().filter(|event| **event == "cancelled").count(), 1);
        assert_eq!(order["paymentDueAt"], Value::Null);
        let actor = &order["timeline"].as_array().unwrap().last().unwrap()["actor"];
        assert_eq!(*actor, if canceller.token == staff.token { "STAFF" } else { "CUSTOMER" });
        // It stays so, also for the key that it was bought with.
        assert_eq!(owner.buy(&format!("key-{number}")).await["status"], "CANCELLED");
        assert_eq!(level(server, "A").await, (10, 0));
    }
    // Others can buy what came back.
    let order = Shopper::customer(server, "customer-2").buy_of(&[("A", 10)], "key").await;
    assert_eq!((order["status"].as_str(), level(server, "A").await), (Some("CREATED"), (10, 10)));
}

#[tokio::test]
async fn of_all_steps_only_those_of_a_life_can_be_taken() {
    let server = TestServer::start().await;
    open_shop(&server, &[("A", 100)]).await;
    let (customer, staff) = (Shopper::customer(&server, "customer-1"), clerk(&server));
    let (mut held, mut left) = (0, 0);
    for from in STATUSES {
        for to in STATUSES {
            let order = customer.buy_of(&[("A", 1)], &format!("{from}-{to}")).await;
            let id = id_of(&order);
            for status in path(from) {
                ordered(staff.advance(id, status, None).await);
            }
            let is_possible = matches!(
                (from, to),
                ("CREATED", "PAID")
                    | ("PAID", "PROCESSING")
                    | ("PROCESSING", "SHIPPED")
                    | ("SHIPPED", "DELIVERED")
                    | ("CREATED" | "PAID" | "PROCESSING", "CANCELLED")
            );
            let payload = staff.advance(id, to, None).await;
            let stands = if is_possible { to } else { from };
            assert_eq!(payload["order"]["status"], stands, "{from} to {to}");
            let refused = [code("INVALID_TRANSITION", "to")];
            let expected = if is_possible || from == to { &[][..] } else { &refused };
            assert_eq!(codes(&payload), expected, "{from} to {to}");
            match stands {
                "SHIPPED" | "DELIVERED" => left += 1,
                "CANCELLED" => {}
                _ => held += 1,
            }
            assert_eq!(level(&server, "A").await, (100 - left, held), "{from} to {to}");
        }
    }
}

#[tokio::test]
async fn what_is_no_order_or_no_note_is_refused() {
    let server = TestServer::start().await;
    open_shop(&server, &[("A", 10)]).await;
    let (customer, staff) = (Shopper::customer(&server, "customer-1"), clerk(&server));
    for id in ["", "x", "01980000-0000-7000-8000-000000000001", &"1".repeat(1_000)] {
        assert_eq!(codes(&customer.cancel(id, None).await), [code("NOT_FOUND", "id")]);
        assert_eq!(codes(&staff.cancel(id, None).await), [code("NOT_FOUND", "id")]);
        assert_eq!(codes(&staff.advance(id, "PAID", None).await), [code("NOT_FOUND", "id")]);
        assert_eq!(staff.order(id).await, Value::Null);
    }
    let order = customer.buy_of(&[("A", 1)], "key").await;
    let id = id_of(&order);
    for (reason, expected) in
        [("", "BLANK"), (&"я".repeat(501), "TOO_LONG"), ("a\u{0}b", "INVALID")]
    {
        let payload = customer.cancel(id, Some(reason)).await;
        assert_eq!(codes(&payload), [code(expected, "reason")]);
        assert_eq!(payload["order"], Value::Null);
    }
    let long = staff.advance(id, "SHIPPED", Some(&"1".repeat(101))).await;
    assert_eq!(codes(&long), [code("TOO_LONG", "trackingNumber")]);
    assert_eq!(customer.order(id).await, order);
    let reason = "я".repeat(500);
    let cancelled = ordered(customer.cancel(id, Some(&reason)).await);
    assert_eq!(cancelled["timeline"][1]["note"], json!(reason));
}

async fn the_orders_of_a_guest_are_the_customers_after_log_in(server: &TestServer) {
    open_shop(server, &[("A", 100)]).await;
    let (guest, customer) = (Shopper::guest(server).await, Shopper::customer(server, "customer-1"));
    let stranger = Shopper::guest(server).await;
    let others = stranger.buy_of(&[("A", 1)], "key").await;
    let own = customer.buy_of(&[("A", 1)], "key").await;
    let first = guest.buy_of(&[("A", 2)], "key").await;
    let second = guest.buy_of(&[("A", 3)], "key-2").await;
    let cancelled = ordered(guest.cancel(id_of(&second), None).await);
    guest.put(&[("A", 4)]).await;
    for _ in 0..2 {
        super::done(customer.merge(&guest.token).await);
        let mut expected = [id_of(&second), id_of(&first), id_of(&own)].map(str::to_owned);
        let mut found = customer.orders().await;
        // Newest first, whoever placed it.
        assert_eq!(found[..2], expected[..2]);
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(guest.orders().await, [""; 0]);
    }
    for (order, status) in [(&first, "CREATED"), (&cancelled, "CANCELLED")] {
        let id = id_of(order);
        assert_eq!(guest.order(id).await, Value::Null);
        let moved = customer.order(id).await;
        assert_eq!((&moved["status"], &moved["lines"]), (&json!(status), &order["lines"]));
        assert_eq!(events(&moved).last(), Some(&"moved"));
    }
    assert_eq!(codes(&guest.cancel(id_of(&first), None).await), [code("NOT_FOUND", "id")]);
    assert_eq!(stranger.orders().await, [id_of(&others)]);
    assert_eq!(level(server, "A").await, (100, 4));
    ordered(customer.cancel(id_of(&first), None).await);
    assert_eq!(level(server, "A").await, (100, 2));
    // What the guest's session still buys is the customer's too, as soon as it is settled.
    let late = guest.buy_of(&[("A", 1)], "key-3").await;
    let began = std::time::Instant::now();
    while customer.order(id_of(&late)).await.is_null() {
        assert!(began.elapsed() < std::time::Duration::from_secs(10), "it is not handed over");
    }
    assert_eq!(guest.orders().await, [""; 0]);
    assert_eq!(customer.orders().await[0], id_of(&late));
}
