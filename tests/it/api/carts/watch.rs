//! `cartChanged`: a cart as it is now, and whenever it changes on another device.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vitrina::config::{CacheConfig, Config, RedisConfig};

use super::Shopper;
use crate::api::sessions::visit;
use crate::api::{product, stock as sell};
use crate::support::redis::shared_redis;
use crate::support::server::TestServer;
use crate::support::stores::{TestStore, drop_keyspace};
use crate::support::websocket::Socket;

const WATCH: &str = "subscription { cartChanged { id totalQuantity lines { product { id } } } }";
/// Longer than a change takes to be told of.
const SOON: Duration = Duration::from_secs(10);
/// Long enough to be sure that nothing is told: longer than an instance waits until it looks.
const A_WHILE: Duration = Duration::from_millis(1_500);

on_every_server! {
    is_told_of_what_there_is_and_of_each_change,
    a_change_through_one_instance_reaches_a_client_of_another,
}

/// Watches the cart of whoever has a token.
async fn watch(server: &TestServer, token: &str) -> Socket {
    let mut socket = Socket::connect_as(server.address, token).await;
    socket.subscribe("s", WATCH, json!({})).await;
    socket
}

/// The units that the next event tells of.
async fn told(socket: &mut Socket) -> Value {
    let mut payload = socket.payload("next", "s").await;
    assert_eq!(payload["errors"], Value::Null, "{payload}");
    payload["data"]["cartChanged"]["totalQuantity"].take()
}

/// Reads events until one tells of so many units. One may be told twice: where others write too, an
/// instance also looks by itself.
async fn until_told(socket: &mut Socket, units: i64) {
    let began = Instant::now();
    while told(socket).await != units {
        assert!(began.elapsed() < SOON);
    }
}

/// Reads what is still told, all of which must be of so many units, until nothing is.
async fn until_quiet(socket: &mut Socket, units: i64) {
    while let Some(message) = socket.next_within(A_WHILE).await {
        let told = &message["payload"]["data"]["cartChanged"]["totalQuantity"];
        assert_eq!(*told, units, "{message}");
    }
}

async fn is_told_of_what_there_is_and_of_each_change(server: &TestServer) {
    sell(&server.http, &["A", "B"].map(|id| product(id, "Дом", "10"))).await;
    let customer = Shopper::customer(server, "customer-1");
    let phone = visit(&server.http, Some(&customer.token)).await;
    let guest = Shopper::guest(server).await;
    let stranger = Shopper::customer(server, "customer-2");
    customer.put(&[("A", 2)]).await;
    let mut at_phone = watch(server, &phone.token).await;
    let mut at_guest = watch(server, &guest.token).await;
    assert_eq!(told(&mut at_phone).await, 2, "at once");
    assert_eq!(told(&mut at_guest).await, 0);
    for units in 3..6 {
        customer.put(&[("A", 1)]).await;
        until_told(&mut at_phone, units).await;
    }
    customer.remove(&["A"], None).await;
    until_told(&mut at_phone, 0).await;
    guest.put(&[("B", 4)]).await;
    until_told(&mut at_guest, 4).await;
    customer.merge(&guest.token).await;
    until_told(&mut at_phone, 4).await;
    until_told(&mut at_guest, 0).await;
    // Nobody is told of another's, and a refused change is none.
    until_quiet(&mut at_phone, 4).await;
    until_quiet(&mut at_guest, 0).await;
    stranger.put(&[("A", 1)]).await;
    customer.add(&[("Нет такого", 1)], None).await;
    customer.add(&[("B", 999)], None).await;
    customer.cart().await;
    assert_eq!(at_phone.next_within(A_WHILE).await, None);
    assert_eq!(at_guest.next_within(Duration::from_millis(10)).await, None);
}

/// Where the store is a cluster, an instance looks by itself. The embedded store has one instance.
async fn a_change_through_one_instance_reaches_a_client_of_another(server: &TestServer) {
    if !server.opened().is_shared() {
        return;
    }
    let other = server.beside(|_| {}).await;
    sell(&server.http, &[product("A", "Дом", "10")]).await;
    for shopper in [Shopper::guest(server).await, Shopper::customer(server, "customer-1")] {
        let mut socket = watch(&other, &shopper.token).await;
        assert_eq!(told(&mut socket).await, 0);
        for units in 1..4 {
            // Also one that comes before the other instance has looked for the first time.
            shopper.put(&[("A", 1)]).await;
            until_told(&mut socket, units).await;
        }
    }
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
    sell(&server.http, &[product("A", "Дом", "10")]).await;
    let shopper = Shopper::customer(&server, "customer-1");
    let mut socket = watch(&other, &shopper.token).await;
    assert_eq!(told(&mut socket).await, 0);
    // Listening begins in the background; what was said before that is not heard.
    let began = Instant::now();
    let mut units = 0;
    loop {
        shopper.put(&[("A", 1)]).await;
        units += 1;
        if socket.next_within(Duration::from_millis(300)).await.is_some() {
            break;
        }
        assert!(began.elapsed() < SOON, "nothing is heard");
    }
    for _ in 0..3 {
        shopper.put(&[("A", 1)]).await;
        units += 1;
        until_told(&mut socket, units).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_of_a_cluster_tell_each_other_through_redis() {
    let Some(redis) = shared_redis() else { return };
    let Some(store) = TestStore::cassandra().await else { return };
    let again = store.open_again().await;
    let server = TestServer::start_on(store, with_redis(redis.clone())).await;
    let other = TestServer::start_on(again, with_redis(redis)).await;
    sell(&server.http, &[product("A", "Дом", "10")]).await;
    let guest = Shopper::guest(&server).await;
    let mut socket = watch(&other, &guest.token).await;
    assert_eq!(told(&mut socket).await, 0);
    for units in 1..5 {
        guest.put(&[("A", 1)]).await;
        until_told(&mut socket, units).await;
    }
    drop_keyspace(server.store()).await;
}
