//! `orders` and `ordersByPeriod` over HTTP: pages in both directions, bounds, filters and cursors.

use std::time::Duration;

use serde_json::{Value, json};
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::geo_zone::GeoZone;
use vitrina::orders::model::{Order, OrderStatus, day_of};
use vitrina::owner::Owner;

use super::{Shopper, clerk};
use crate::contract::orders::{DAY, before, order_at, place_all};
use crate::support::server::TestServer;

const ORDERS: &str = "query($first: Int, $after: String, $last: Int, $before: String,
        $from: DateTime, $to: DateTime) {
    orders(first: $first, after: $after, last: $last, before: $before, from: $from, to: $to) {
        edges { cursor node { id } } nodes { id }
        pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } }";
const PERIOD: &str = "query($day: Date!, $status: OrderStatus, $zone: String, $first: Int,
        $after: String) {
    ordersByPeriod(day: $day, status: $status, geoZone: $zone, first: $first, after: $after) {
        nodes { id } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } }";

on_every_server! {
    a_history_is_paged_in_both_directions,
    the_orders_of_a_day_are_paged_for_staff,
}

fn ids(page: &Value) -> Vec<String> {
    let nodes = page["nodes"].as_array().unwrap().iter();
    nodes.map(|order| order["id"].as_str().unwrap().to_owned()).collect()
}

fn ids_of<'a>(orders: impl IntoIterator<Item = &'a Order>) -> Vec<String> {
    orders.into_iter().map(|order| order.id.to_string()).collect()
}

/// Newest first.
fn sort(orders: &mut [Order]) {
    orders.sort_by_key(|order| std::cmp::Reverse(order.place()));
}

/// Orders of a customer over the last year, newest first.
async fn placed(server: &TestServer, user: &str, count: u32) -> Vec<Order> {
    let now = SystemClock.now();
    let owner = Owner::User(user.into());
    // Two of each moment.
    let orders = (0..count).map(|n| order_at(&owner, before(now, DAY * (n / 2 * 11 + 1))));
    let mut orders: Vec<_> = orders.collect();
    place_all(server.opened(), &orders).await;
    sort(&mut orders);
    orders
}

async fn page(shopper: &Shopper, variables: Value) -> Value {
    let page = shopper.data(ORDERS, variables).await["orders"].take();
    let edges: Vec<_> =
        page["edges"].as_array().unwrap().iter().map(|e| e["node"].clone()).collect();
    assert_eq!(json!(edges), page["nodes"]);
    let (first, last) = (page["edges"].get(0), page["edges"].as_array().unwrap().last());
    let cursor = |edge: Option<&Value>| edge.map_or(Value::Null, |edge| edge["cursor"].clone());
    assert_eq!(page["pageInfo"]["startCursor"], cursor(first));
    assert_eq!(page["pageInfo"]["endCursor"], cursor(last));
    page
}

async fn a_history_is_paged_in_both_directions(server: &TestServer) {
    let orders = placed(server, "customer-1", 30).await;
    placed(server, "customer-2", 4).await;
    let shopper = Shopper::customer(server, "customer-1");
    let all = ids_of(&orders);
    let whole = page(&shopper, json!({ "first": 100 })).await;
    assert_eq!(ids(&whole), all);
    assert_eq!(ids(&page(&shopper, json!({})).await), all[..20], "twenty, if nothing is said");
    let (from, to) = (orders[21].created_at, orders[4].created_at);
    let is_in = |order: &&Order| order.created_at >= from && order.created_at < to;
    let some = ids_of(orders.iter().filter(is_in));
    assert!(some.len() > 10 && some.len() < 20);
    for (bounds, expected) in
        [(json!({}), &all), (json!({ "from": from.to_string(), "to": to.to_string() }), &some)]
    {
        for size in [1, 7, 100] {
            for (count, cursor, has_more, edge) in [
                ("first", "after", "hasNextPage", "endCursor"),
                ("last", "before", "hasPreviousPage", "startCursor"),
            ] {
                let mut variables = bounds.clone();
                variables[count] = json!(size);
                let mut read: Vec<String> = Vec::new();
                loop {
                    let page = page(&shopper, variables.clone()).await;
                    let place = if count == "first" { read.len() } else { 0 };
                    read.splice(place..place, ids(&page));
                    if page["pageInfo"][has_more] == false {
                        break;
                    }
                    variables[cursor] = page["pageInfo"][edge].clone();
                }
                assert_eq!(read, *expected, "{count} {size} of {bounds}");
            }
        }
    }
    // A page in the middle knows that there is more on both sides.
    let after = whole["edges"][4]["cursor"].clone();
    let middle = page(&shopper, json!({ "first": 3, "after": after })).await;
    assert_eq!(ids(&middle), all[5..8]);
    let info = &middle["pageInfo"];
    assert_eq!((&info["hasNextPage"], &info["hasPreviousPage"]), (&json!(true), &json!(true)));
    let none = page(&shopper, json!({ "first": 0 })).await;
    assert_eq!((ids(&none), &none["pageInfo"]["hasNextPage"]), (vec![], &json!(true)));
    let turned = page(&shopper, json!({ "from": to.to_string(), "to": from.to_string() })).await;
    assert_eq!(ids(&turned), [""; 0], "nothing was placed after the end and before the start");
}

#[tokio::test]
async fn only_a_cursor_of_the_same_list_is_taken() {
    let server = TestServer::start().await;
    let orders = placed(&server, "customer-1", 8).await;
    placed(&server, "customer-2", 8).await;
    let (shopper, other) =
        (Shopper::customer(&server, "customer-1"), Shopper::customer(&server, "customer-2"));
    let from = orders[6].created_at.to_string();
    let cursor = |page: &Value| page["pageInfo"]["endCursor"].as_str().unwrap().to_owned();
    let own = cursor(&page(&shopper, json!({ "first": 2 })).await);
    let bounded = cursor(&page(&shopper, json!({ "first": 2, "from": from })).await);
    let foreign = cursor(&page(&other, json!({ "first": 2 })).await);
    let day = Timestamp::from_millis(orders[0].created_at.millis()).to_string();
    let day = day.split('T').next().unwrap();
    let period = clerk(&server).data(PERIOD, json!({ "day": day })).await;
    let of_a_day = cursor(&period["ordersByPeriod"]);
    let mut forged = own.clone().into_bytes();
    forged[3] = if forged[3] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    let try_with = async |variables: Value| {
        server.http.query_as(&shopper.token, ORDERS, variables).await.code()
    };
    for bad in [&forged, &foreign, &of_a_day, &bounded, "", "x", "мусор", &"A".repeat(600)] {
        let code = try_with(json!({ "first": 2, "after": bad })).await;
        assert_eq!(code, "INVALID_CURSOR", "{bad}");
        let code = try_with(json!({ "last": 2, "before": bad })).await;
        assert_eq!(code, "INVALID_CURSOR", "{bad}");
    }
    // The cursor of all is none of a list with bounds, nor of one with others.
    for bounds in [
        json!({ "after": own, "from": from }),
        json!({ "after": own, "to": from }),
        json!({ "after": bounded, "to": from }),
        json!({ "after": bounded, "from": orders[5].created_at.to_string(), "to": from }),
    ] {
        assert_eq!(try_with(bounds.clone()).await, "INVALID_CURSOR", "{bounds}");
    }
    assert_eq!(try_with(json!({ "after": own })).await, "");
    assert_eq!(try_with(json!({ "after": bounded, "from": from })).await, "");
    for bad in [
        json!({ "first": 101 }),
        json!({ "first": -1 }),
        json!({ "last": 101 }),
        json!({ "last": -1 }),
        json!({ "first": 1, "last": 1 }),
        json!({ "from": "gestern" }),
        json!({ "to": "2026-13-01T00:00:00Z" }),
    ] {
        assert_eq!(try_with(bad.clone()).await, "BAD_USER_INPUT", "{bad}");
    }
    // What was read before 1970 or after the end of time is nothing, not a fault.
    for (from, to) in [
        ("0001-01-01T00:00:00Z", "1969-01-01T00:00:00Z"),
        ("9999-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    ] {
        assert_eq!(ids(&page(&shopper, json!({ "from": from, "to": to })).await), [""; 0]);
    }
    let ages = json!({ "from": "0001-01-01T00:00:00Z", "to": "9999-12-31T23:59:59Z" });
    assert_eq!(ids(&page(&shopper, ages).await), ids_of(&orders));
}

async fn the_orders_of_a_day_are_paged_for_staff(server: &TestServer) {
    let day = day_of(SystemClock.now()) - 2;
    let start = Timestamp::from_millis(i64::from(day) * 24 * 3_600 * 1_000);
    let mut orders: Vec<Order> = Vec::new();
    for n in 0..40_u64 {
        let owner = Owner::User(format!("customer-{}", n % 7).into());
        let mut order = order_at(&owner, start.after(Duration::from_secs(n / 2 * 4_000)));
        order.zone = GeoZone::parse(if n % 3 == 0 { "Омск" } else { "Тула" }).unwrap();
        if n % 4 == 0 {
            order.status = OrderStatus::Paid;
        }
        orders.push(order);
    }
    place_all(server.opened(), &orders).await;
    let beside = order_at(&Owner::User("customer-1".into()), start.after(DAY));
    place_all(server.opened(), std::slice::from_ref(&beside)).await;
    sort(&mut orders);
    let staff = clerk(server);
    let text = start.to_string();
    let day = text.split('T').next().unwrap();
    for (status, zone) in [
        (None, None),
        (Some((OrderStatus::Paid, "PAID")), None),
        (None, Some("Омск")),
        (Some((OrderStatus::Created, "CREATED")), Some("Тула")),
        (Some((OrderStatus::Shipped, "SHIPPED")), None),
        (None, Some("Нигде")),
    ] {
        let is_wanted = |order: &&Order| {
            status.is_none_or(|(status, _)| order.status == status)
                && zone.is_none_or(|zone| order.zone.as_str() == zone)
        };
        let expected = ids_of(orders.iter().filter(is_wanted));
        for size in [1, 6, 100] {
            let mut variables = json!({ "day": day, "status": status.map(|(_, name)| name),
                                        "zone": zone, "first": size });
            let mut read = Vec::new();
            loop {
                let page = staff.data(PERIOD, variables.clone()).await["ordersByPeriod"].take();
                read.extend(ids(&page));
                if page["pageInfo"]["hasNextPage"] == false {
                    break;
                }
                variables["after"] = page["pageInfo"]["endCursor"].clone();
            }
            assert_eq!(read, expected, "{status:?} in {zone:?} by {size}");
        }
    }
    let page = staff.data(PERIOD, json!({ "day": day, "first": 2 })).await["ordersByPeriod"].take();
    let cursor = page["pageInfo"]["endCursor"].clone();
    let next_day = start.after(DAY).to_string();
    for (variables, code) in [
        (json!({ "day": day, "after": cursor, "status": "PAID" }), "INVALID_CURSOR"),
        (json!({ "day": day, "after": cursor, "zone": "Омск" }), "INVALID_CURSOR"),
        (json!({ "day": next_day.split('T').next(), "after": cursor }), "INVALID_CURSOR"),
        (json!({ "day": day, "after": "x" }), "INVALID_CURSOR"),
        (json!({ "day": day, "first": 101 }), "BAD_USER_INPUT"),
        (json!({ "day": day, "first": -1 }), "BAD_USER_INPUT"),
        (json!({ "day": day, "zone": "" }), "BAD_USER_INPUT"),
        (json!({ "day": "2026-02-30" }), "BAD_USER_INPUT"),
        (json!({ "day": text }), "BAD_USER_INPUT"),
        (json!({ "day": day, "after": cursor }), ""),
    ] {
        let answer = server.http.query_as(&staff.token, PERIOD, variables.clone()).await;
        assert_eq!(answer.code(), code, "{variables}");
    }
}
