//! `orderStatusChanged`: an order as it is now, and whenever its status changes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vitrina::config::{CacheConfig, Config, RedisConfig};

use super::{Shopper, clerk, id_of, open_shop, ordered};
use crate::support::redis::shared_redis;
use crate::support::server::TestServer;
use crate::support::stores::TestStore;
use crate::support::websocket::Socket;

pub(super) const WATCH: &str = "subscription($id: ID!) {
    orderStatusChanged(id: $id) { id status trackingNumber lines { product { id } } } }";
/// Longer than a change takes to be told of.
const SOON: Duration = Duration::from_secs(10);
/// Long enough to be sure that nothing is told: longer than an instance waits until it looks.
const A_WHILE: Duration = Duration::from_millis(1_500);

on_every_server! {
    each_change_of_status_is_told_once_to_the_owner_and_to_staff,
    a_change_through_one_instance_reaches_a_client_of_another,
    whoever_an_order_was_handed_over_from_is_told_no_more,
}

async fn watch(server: &TestServer, token: &str, id: &str) -> Socket {
    let mut socket = Socket::connect_as(server.address, token).await;
    socket.subscribe("s", WATCH, json!({ "id": id })).await;
    socket
}

/// The status that the next event tells of.
async fn told(socket: &mut Socket) -> String {
    let payload = socket.payload("next", "s").await;
    assert_eq!(payload["errors"], Value::Null, "{payload}");
    payload["data"]["orderStatusChanged"]["status"].as_str().unwrap().to_owned()
}

async fn each_change_of_status_is_told_once_to_the_owner_and_to_staff(server: &TestServer) {
    open_shop(server, &[("A", 10)]).await;
    let (guest, staff) = (Shopper::guest(server).await, clerk(server));
    let order = guest.buy_of(&[("A", 1)], "key").await;
    let id = id_of(&order);
    let mut sockets =
        [watch(server, &guest.token, id).await, watch(server, &staff.token, id).await];
    for socket in &mut sockets {
        assert_eq!(told(socket).await, "CREATED", "at once");
    }
    for status in ["PAID", "PROCESSING", "SHIPPED", "DELIVERED"] {
        let number = (status == "SHIPPED").then_some("RU1");
        ordered(staff.advance(id, status, number).await);
        for socket in &mut sockets {
            assert_eq!(told(socket).await, status);
        }
        // Repeated, it is no change.
        ordered(staff.advance(id, status, number).await);
    }
    // Of another order they are told nothing.
    guest.buy_of(&[("A", 1)], "key-2").await;
    for socket in &mut sockets {
        assert_eq!(socket.next_within(A_WHILE).await, None);
    }
    // Who begins to watch late is told how it stands.
    assert_eq!(told(&mut watch(server, &guest.token, id).await).await, "DELIVERED");
}

/// Where the store is a cluster, an instance looks by itself. The embedded store has one instance.
async fn a_change_through_one_instance_reaches_a_client_of_another(server: &TestServer) {
    if !server.opened().is_shared() {
        return;
    }
    let other = server.beside(|_| {}).await;
    open_shop(server, &[("A", 10)]).await;
    let (customer, staff) = (Shopper::customer(server, "customer-1"), clerk(server));
    let order = customer.buy_of(&[("A", 1)], "key").await;
    let mut socket = watch(&other, &customer.token, id_of(&order)).await;
    assert_eq!(told(&mut socket).await, "CREATED");
    for status in ["PAID", "PROCESSING", "CANCELLED"] {
        ordered(staff.advance(id_of(&order), status, None).await);
        assert_eq!(told(&mut socket).await, status);
    }
}

async fn whoever_an_order_was_handed_over_from_is_told_no_more(server: &TestServer) {
    open_shop(server, &[("A", 10)]).await;
    let (guest, customer) = (Shopper::guest(server).await, Shopper::customer(server, "customer-1"));
    let order = guest.buy_of(&[("A", 1)], "key").await;
    let mut socket = watch(server, &guest.token, id_of(&order)).await;
    assert_eq!(told(&mut socket).await, "CREATED");
    super::done(customer.merge(&guest.token).await);
    assert_eq!(socket.payload("complete", "s").await, Value::Null);
    let mut socket = watch(server, &customer.token, id_of(&order)).await;
    assert_eq!(told(&mut socket).await, "CREATED");
    ordered(customer.cancel(id_of(&order), None).await);
    assert_eq!(told(&mut socket).await, "CANCELLED");
}

fn with_redis(redis: RedisConfig) -> impl FnOnce(&mut Config) {
    move |config| config.cache = CacheConfig::Redis(redis)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_tell_each_other_through_redis() {
    let Some(redis) = shared_redis() else { return };
    // On one store in one process, so that nobody looks: what is told was heard.
    let server = TestServer::start_on(TestStore::embedded().await, with_redis(redis.clone())).await;
    let other = server.beside(with_redis(redis)).await;
    open_shop(&server, &[("A", 100)]).await;
    let (customer, staff) = (Shopper::customer(&server, "customer-1"), clerk(&server));
    // Listening begins in the background; what was said before that is not heard.
    let began = Instant::now();
    for number in 0.. {
        let order = customer.buy_of(&[("A", 1)], &format!("key-{number}")).await;
        let mut socket = watch(&other, &customer.token, id_of(&order)).await;
        assert_eq!(told(&mut socket).await, "CREATED");
        ordered(staff.advance(id_of(&order), "PAID", None).await);
        if socket.next_within(Duration::from_millis(300)).await.is_some() {
            ordered(customer.cancel(id_of(&order), None).await);
            assert_eq!(told(&mut socket).await, "CANCELLED");
            return;
        }
        assert!(began.elapsed() < SOON, "nothing is heard");
    }
}
