//! Many who ask at the same moment, whose rows are read together on Cassandra: each gets its own.

use futures_util::future::join_all;
use serde_json::{Value, json};
use vitrina::config::{CacheConfig, StoreConfig};

use super::carts::{Shopper, set_stock};
use super::{data, metric, product, stock as sell};
use crate::support::server::TestServer;

const ZONE: &str = "Москва";
/// More than may be asked for by one statement, on each of the threads of a small machine.
const SHOPPERS: usize = 100;
/// How often all of them ask at once.
const ROUNDS: usize = 5;
/// Every so many shoppers one has changed its cart more often than is read of a log at first.
const BUSY: usize = 20;
const CHANGES: i64 = 25;

const CARD: &str = "query($id: ID!, $zone: String!) {
    product(id: $id) { id name price { amount } stock(geoZone: $zone) { available } } }";
const CART: &str = "{ cart { lines { productId quantity } } viewer { kind } }";

fn id(number: usize) -> String {
    format!("PROD-{number}")
}

/// What there is of a product: nothing of every third, which is not sold in the zone.
fn units(number: usize) -> Option<i64> {
    (!number.is_multiple_of(3)).then(|| i64::try_from(number).unwrap() + 1)
}

/// A card that somebody gets. Every seventh product is not there.
fn card(number: usize) -> Value {
    if number.is_multiple_of(7) {
        return json!({ "product": null });
    }
    json!({ "product": {
        "id": id(number), "name": format!("Товар {}", id(number)),
        "price": { "amount": format!("{number}.00") },
        "stock": units(number).map(|units| json!({ "available": units })),
    } })
}

async fn calls(http: &crate::support::http::HttpClient, table: &str) -> u64 {
    let series = format!("vitrina_store_call_seconds_count{{table=\"{table}\",kind=\"read\"}}");
    metric(http, &series).await
}

async fn everybody_who_asks_at_once_gets_their_own(server: &TestServer) {
    let there: Vec<usize> = (0..SHOPPERS).filter(|number| number % 7 != 0).collect();
    for part in there.chunks(50) {
        let products: Vec<_> =
            part.iter().map(|n| product(&id(*n), "Книги", &n.to_string())).collect();
        sell(&server.http, &products).await;
        let levels: Vec<_> = part.iter().filter_map(|n| Some((id(*n), units(*n)?))).collect();
        let entries: Vec<_> =
            levels.iter().map(|(id, units)| (id.as_str(), ZONE, *units)).collect();
        set_stock(&server.http, &entries).await;
    }
    // Guests and customers, whose carts are in different tables.
    let mut shoppers = Vec::new();
    for number in 0..SHOPPERS {
        let shopper = match number % 2 {
            0 => Shopper::guest(server).await,
            _ => Shopper::customer(server, &format!("u-{number}")),
        };
        let changes = if number % BUSY == 1 { CHANGES } else { 1 };
        let product = id(there[number % there.len()]);
        for _ in 0..changes {
            shopper.put(&[(&product, 2)]).await;
        }
        shoppers.push((shopper, json!([{ "productId": product, "quantity": 2 * changes }])));
    }

    // An instance that knows nothing; the store counts its calls where it was opened.
    let fresh = server.beside(|config| config.cache = CacheConfig::Off).await;
    let asked = u64::try_from(SHOPPERS * ROUNDS).unwrap();
    let tables = ["product_by_id", "inventory_by_product_geo", "user_sessions"];
    let before = join_all(tables.map(|table| calls(&server.http, table))).await;
    for _ in 0..ROUNDS {
        let cards = (0..SHOPPERS).map(async |number| {
            let told = data(&fresh.http, CARD, json!({ "id": id(number), "zone": ZONE })).await;
            assert_eq!(told, card(number));
        });
        let carts = shoppers.iter().enumerate().map(async |(number, (shopper, lines))| {
            let told = shopper.at(&fresh).data(CART, json!({})).await;
            assert_eq!(told["cart"]["lines"], *lines, "{number}");
            let kind = if number % 2 == 0 { "GUEST" } else { "CUSTOMER" };
            assert_eq!(told["viewer"]["kind"], kind);
        });
        tokio::join!(join_all(cards), join_all(carts));
    }
    if let StoreConfig::Cassandra(_) = server.store() {
        for (table, before) in tables.into_iter().zip(before) {
            let made = calls(&server.http, table).await - before;
            assert!(0 < made && made < asked / 2, "{table}: {made} calls, {asked} asked");
        }
    }
}

on_every_server!(everybody_who_asks_at_once_gets_their_own);
