//! Very many connections for events that do nothing but stay.

use std::net::SocketAddr;
use std::time::Instant;

use futures_util::stream::{self, StreamExt};
use serde_json::json;

use super::by_version;
use super::record::millis;
use super::shop::{Instances, Setting, ZONE, product, staff};
use crate::support::websocket::Socket;

/// Connections that are being made at once.
const AT_ONCE: usize = 32;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_sockets_take_little_and_are_told_when_something_happens() {
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let count = by_version(200, 10_000);
    let dir = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", dir.path().join("data").display());
    let most = ["--max-connections", "--max-connections-per-address", "--max-clients"];
    let args = most.iter().flat_map(|flag| [(*flag).to_owned(), (count + 100).to_string()]);
    let setting = Setting { args: args.collect(), ..Setting::of(&store) };
    let instances = Instances::open(setting, 1).await;
    let server = instances.server(0);
    let address: SocketAddr = server.base.trim_start_matches("http://").parse().unwrap();
    // What the first clients make the server allocate once is not theirs.
    let warm: Vec<_> = stream::iter(0..AT_ONCE)
        .map(|_| Socket::connect(address))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let memory = server.memory();
    let mut sockets: Vec<_> = stream::iter(0..count - warm.len())
        .map(|_| Socket::connect(address))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let each = |now: u64| now.saturating_sub(memory) / sockets.len() as u64;
    let idle = each(server.memory());
    let watch = "subscription($id: ID!, $zone: String!) {
        stockChanged(productIds: [$id], geoZone: $zone) { available } }";
    let watched = json!({ "id": product(0), "zone": ZONE });
    for socket in &mut sockets {
        socket.subscribe("1", watch, watched.clone()).await;
        socket.payload("next", "1").await;
    }
    let watching = server.memory().saturating_sub(memory) / sockets.len() as u64;
    let set = "mutation($s: [StockInput!]!) { stockSet(entries: $s) { userErrors { code } } }";
    let entry = json!({ "productId": product(0), "geoZone": ZONE, "quantity": 7 });
    let began = Instant::now();
    instances.front().must(&staff(), set, json!({ "s": [entry] })).await;
    for socket in &mut sockets {
        let told = socket.payload("next", "1").await;
        assert_eq!(told["data"]["stockChanged"]["available"], 7, "{told}");
    }
    println!(
        "{count} WebSockets: {} KiB each when idle, {} KiB when watching a product; a change reached all \
         within {}; memory {} → {} MB",
        idle >> 10,
        watching >> 10,
        millis(began.elapsed()),
        memory >> 20,
        server.memory() >> 20,
    );
}
