//! What becomes of orders that nobody pays, and of checkouts that nobody finishes.

use std::time::Duration;

use rust_decimal::Decimal;
use serde_json::{Value, json};
use vitrina::checkout::model::{Checkout, CheckoutRequest, CheckoutState, LEASE, reservation_of};
use vitrina::checkout::sweeper::Sweeper;
use vitrina::clock::{Clock, ManualClock};
use vitrina::config::ShopRules;
use vitrina::inventory::service::Reserved;
use vitrina::money::Money;
use vitrina::orders::model::{Address, OrderLine};
use vitrina::owner::Owner;
use vitrina::storage::{Due, Task};

use super::{
    ParseId, Shopper, ZONE, available, clerk, hook, id_of, input, level, open_shop, ordered,
};
use crate::contract::orders::order_at;
use crate::support::server::TestServer;

at_any_time! {
    an_order_that_is_not_paid_in_time_is_cancelled_and_its_units_are_back,
    a_checkout_that_nobody_finished_is_undone_or_becomes_its_order,
    what_happens_in_one_millisecond_is_told_in_its_order,
}

/// What somebody leaves who dies in the middle of a checkout of two units of `A`, under a key and a
/// state.
async fn leave(
    server: &TestServer,
    clock: &ManualClock,
    (user, key): (&str, &str),
    state: impl Fn(Checkout) -> CheckoutState,
) -> Checkout {
    let (now, owner) = (clock.now(), Owner::User(user.into()));
    let request = input(key);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let to = &request["shippingAddress"];
    let request = CheckoutRequest {
        key: key.to_owned(),
        zone: ZONE.to_owned(),
        address: Address {
            city: text(&to["city"]),
            street: text(&to["street"]),
            postal_code: Some(text(&to["postalCode"])),
            recipient: Some(text(&to["recipient"])),
            phone: Some(text(&to["phone"])),
        },
        payment_method: text(&request["paymentMethod"]),
        expected_total: None,
    };
    let price = Money::rub(Decimal::new(1_000, 2));
    let line =
        OrderLine { product: "A".parse_id(), name: "Товар A".to_owned(), units: 2, price };
    let mut order = order_at(&owner, now);
    order.lines = vec![line];
    order.total = price.times(2);
    order.payment_due_at = now.after(ShopRules::default().payment_within);
    let until = now.after(LEASE);
    let mut checkout = Checkout {
        owner: owner.clone(),
        key: key.into(),
        request: request.fingerprint(),
        state: CheckoutState::Open { until },
        order,
        due_at: until,
        changed_at: now,
        version: 1,
    };
    checkout.state = state(checkout.clone());
    let due = Due { at: until, task: Task::Checkout { owner, key: key.into() } };
    assert!(server.opened().change_checkout(None, &checkout, Some(&due)).await.unwrap());
    let reservation = reservation_of(&checkout.order).unwrap();
    let reserved = server.shop().inventory.reserve(&reservation).await.unwrap();
    assert_eq!(reserved, Reserved::Held);
    checkout
}

async fn a_checkout_that_nobody_finished_is_undone_or_becomes_its_order(
    server: &TestServer,
    clock: &ManualClock,
) {
    open_shop(server, &[("A", 10)]).await;
    let shoppers = ["swept", "asked", "kept", "told"].map(|user| Shopper::customer(server, user));
    for shopper in &shoppers {
        shopper.put(&[("A", 2)]).await;
    }
    let [swept, asked, kept, told] = &shoppers;
    let open = |checkout: Checkout| checkout.state;
    let first = leave(server, clock, ("swept", "key"), open).await;
    let second = leave(server, clock, ("asked", "key"), open).await;
    let third = leave(server, clock, ("kept", "key"), |_| CheckoutState::Accepted).await;
    let fourth = leave(server, clock, ("told", "key"), |_| CheckoutState::Accepted).await;
    assert_eq!(level(server, "A").await, (10, 8));
    // Who asks for one that was accepted gets the order; nobody has to wait for that.
    let order = told.buy("key").await;
    assert_eq!(id_of(&order), fourth.order.id.to_string());
    assert_eq!(told.orders().await, [id_of(&order)]);
    assert_eq!(super::lines(&told.cart().await), []);
    // Before its lease is over nobody touches one that is open.
    let mut sweeper = Sweeper::new(server.shop().checkout.clone());
    clock.advance(LEASE.saturating_sub(Duration::from_secs(1)));
    sweep(&mut sweeper).await;
    assert_eq!(level(server, "A").await, (10, 8));
    clock.advance(Duration::from_secs(1));
    // After it, whoever asks undoes it and begins anew, under another order's id.
    let order = asked.buy("key").await;
    assert_ne!(id_of(&order), second.order.id.to_string());
    assert_eq!(level(server, "A").await, (10, 8), "once, not twice");
    sweep(&mut sweeper).await;
    assert_eq!(level(server, "A").await, (10, 6), "that of nobody is free");
    assert_eq!(kept.orders().await, [third.order.id.to_string()]);
    assert_eq!(super::lines(&kept.cart().await), []);
    assert_eq!(swept.orders().await, [""; 0]);
    assert_eq!(super::lines(&swept.cart().await), [("A", 2)], "the cart is as it was");
    // One that died and comes to life gets nothing for what was undone.
    let late = reservation_of(&first.order).unwrap();
    let reserved = server.shop().inventory.reserve(&late).await.unwrap();
    assert_eq!(reserved, Reserved::Undone);
    let order = swept.buy("key").await;
    assert_ne!(id_of(&order), first.order.id.to_string());
    assert_eq!(level(server, "A").await, (10, 8));
    for shopper in &shoppers {
        let order = shopper.buy("key").await;
        assert_eq!(shopper.orders().await, [id_of(&order)]);
        ordered(shopper.cancel(id_of(&order), None).await);
    }
    assert_eq!((level(server, "A").await, available(server, "A").await), ((10, 0), 10));
}

/// Handles all that is due by now. A sweep looks at so many minutes at once and no further.
async fn sweep(sweeper: &mut Sweeper) {
    for _ in 0..5 {
        sweeper.sweep().await.unwrap();
    }
}

async fn an_order_that_is_not_paid_in_time_is_cancelled_and_its_units_are_back(
    server: &TestServer,
    clock: &ManualClock,
) {
    open_shop(server, &[("A", 10)]).await;
    let (guest, customer) = (Shopper::guest(server).await, Shopper::customer(server, "customer-1"));
    let staff = clerk(server);
    let within = ShopRules::default().payment_within;
    let unpaid =
        [guest.buy_of(&[("A", 1)], "key").await, customer.buy_of(&[("A", 2)], "key").await];
    let paid = customer.buy_of(&[("A", 3)], "key-2").await;
    ordered(staff.advance(id_of(&paid), "PAID", None).await);
    let cancelled = customer.buy_of(&[("A", 1)], "key-3").await;
    let cancelled = ordered(customer.cancel(id_of(&cancelled), None).await);
    let mut sweeper = Sweeper::new(server.shop().checkout.clone());
    sweep(&mut sweeper).await;
    clock.advance(within.saturating_sub(Duration::from_secs(1)));
    let later = customer.buy_of(&[("A", 1)], "key-4").await;
    sweep(&mut sweeper).await;
    for (owner, order) in [&guest, &customer].into_iter().zip(&unpaid) {
        assert_eq!(owner.order(id_of(order)).await, *order, "there is a second left");
    }
    assert_eq!(level(server, "A").await, (10, 7));

    clock.advance(Duration::from_secs(1));
    // Several who sweep do it once.
    let mut others = [
        Sweeper::new(server.shop().checkout.clone()),
        Sweeper::new(server.shop().checkout.clone()),
    ];
    let [one, two] = &mut others;
    tokio::join!(sweep(&mut sweeper), sweep(one), sweep(two));
    for (owner, order) in [&guest, &customer].into_iter().zip(&unpaid) {
        let order = owner.order(id_of(order)).await;
        assert_eq!((&order["status"], &order["paymentDueAt"]), (&json!("CANCELLED"), &Value::Null));
        let [_, event] = &order["timeline"].as_array().unwrap()[..] else { panic!("{order}") };
        assert_eq!((&event["type"], &event["actor"]), (&json!("cancelled"), &json!("SHOP")));
        assert_eq!(event["note"], "It was not paid in time.");
    }
    assert_eq!((level(server, "A").await, available(server, "A").await), ((10, 4), 6));
    assert_eq!(customer.order(id_of(&paid)).await["status"], "PAID");
    assert_eq!(customer.order(id_of(&cancelled)).await, cancelled);
    assert_eq!(customer.order(id_of(&later)).await["status"], "CREATED");
    // A payment that comes too late is not taken.
    let late = staff.advance(id_of(&unpaid[0]), "PAID", None).await;
    assert_eq!(super::codes(&late), [super::code("INVALID_TRANSITION", "to")]);
    // By and by the last one too, by a sweeper that begins anew where the others ended.
    clock.advance(within);
    sweep(&mut Sweeper::new(server.shop().checkout.clone())).await;
    assert_eq!(customer.order(id_of(&later)).await["status"], "CANCELLED");
    assert_eq!(level(server, "A").await, (10, 3));
    sweep(&mut sweeper).await;
    assert_eq!(level(server, "A").await, (10, 3));
}

async fn what_happens_in_one_millisecond_is_told_in_its_order(
    server: &TestServer,
    _: &ManualClock,
) {
    open_shop(server, &[("A", 10)]).await;
    let (customer, staff) = (Shopper::customer(server, "customer-1"), clerk(server));
    let order = customer.buy_of(&[("A", 2)], "key").await;
    let id = id_of(&order);
    for n in 0..3 {
        assert_eq!(hook::tell(server, &format!("failed {n}"), "failed", id).await.0, 200);
    }
    assert_eq!(hook::tell(server, "paid", "paid", id).await.0, 200);
    assert_eq!(hook::tell(server, "another", "paid", id).await.0, 409);
    ordered(staff.advance(id, "PROCESSING", None).await);
    assert_eq!(hook::tell(server, "refund", "refunded", id).await.0, 200);
    let told = customer.order(id).await;
    let failed = ["payment failed"; 3];
    let expected = ["paid", "payment refused", "processing", "payment refunded", "cancelled"];
    assert_eq!(hook::events(&told), [&["created"], &failed[..], &expected].concat());
}
