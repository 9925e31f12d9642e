//! Whose order is whose: every door of orders, tried by everybody.

use serde_json::{Value, json};
use vitrina::clock::{Clock, SystemClock};

use super::hook::{message, post};
use super::watch::WATCH;
use super::{ADVANCE, CANCEL, CHECKOUT, ORDER, Shopper, clerk, id_of, input, open_shop};
use crate::api::sessions::visit;
use crate::support::server::TestServer;
use crate::support::websocket::Socket;

on_every_server! { nobody_gets_through_a_door_of_orders_that_is_not_theirs }

/// Who tries.
const CALLERS: [&str; 5] = ["nobody", "guest", "another customer", "owner", "staff"];

/// What each of them is told at each door.
const DOORS: [(&str, [&str; 5]); 8] = [
    ("checkout", ["UNAUTHENTICATED", "CART_EMPTY", "CART_EMPTY", "CART_EMPTY", "CART_EMPTY"]),
    ("order", ["UNAUTHENTICATED", "null", "null", "the order", "the order"]),
    ("orders", ["UNAUTHENTICATED", "nothing", "nothing", "the order", "nothing"]),
    ("ordersByPeriod", ["UNAUTHENTICATED", "FORBIDDEN", "FORBIDDEN", "FORBIDDEN", "the order"]),
    ("orderCancel", ["UNAUTHENTICATED", "NOT_FOUND", "NOT_FOUND", "CANCELLED", "CANCELLED"]),
    ("orderAdvance", ["UNAUTHENTICATED", "FORBIDDEN", "FORBIDDEN", "FORBIDDEN", "PAID"]),
    (
        "orderStatusChanged",
        ["UNAUTHENTICATED", "BAD_USER_INPUT", "BAD_USER_INPUT", "CREATED", "CREATED"],
    ),
    ("payment hook", ["BAD_SIGNATURE"; 5]),
];

/// In a word, what a caller is told at a door of an order.
async fn knock(server: &TestServer, door: &str, token: Option<&str>, id: &str) -> String {
    let http = &server.http;
    let ask = async |query: String, variables: Value| {
        let body = json!({ "query": query, "variables": variables });
        let answer = http.post(token, &body).await.json();
        match answer["errors"][0]["extensions"]["code"].as_str() {
            Some(code) => {
                assert!(!answer.to_string().contains(id), "{answer}");
                Err(code.to_owned())
            }
            None => Ok(answer["data"].clone()),
        }
    };
    let listed = |nodes: &Value| {
        let is_there = nodes.as_array().unwrap().iter().any(|order| order["id"] == id);
        if is_there { "the order" } else { "nothing" }.to_owned()
    };
    let payload = |payload: &Value| match payload["userErrors"][0]["code"].as_str() {
        Some(code) => {
            assert_eq!(payload["order"], Value::Null, "{payload}");
            code.to_owned()
        }
        None => payload["order"]["status"].as_str().unwrap().to_owned(),
    };
    let told = match door {
        "checkout" => {
            let variables = json!({ "input": input("a-key-of-its-own") });
            ask(format!("{CHECKOUT} {ORDER}"), variables)
                .await
                .map(|data| payload(&data["checkout"]))
        }
        "order" => {
            let query = format!("query($id: ID!) {{ order(id: $id) {{ ...O }} }} {ORDER}");
            let data = ask(query, json!({ "id": id })).await;
            data.map(|data| if data["order"].is_null() { "null" } else { "the order" }.to_owned())
        }
        "orders" => {
            let data = ask("{ orders(first: 100) { nodes { id } } }".to_owned(), json!({})).await;
            data.map(|data| listed(&data["orders"]["nodes"]))
        }
        "ordersByPeriod" => {
            let query = "query($day: Date!) { ordersByPeriod(day: $day, first: 100) {
                nodes { id } } }";
            let now = SystemClock.now().to_string();
            let day = now.split('T').next().unwrap();
            let data = ask(query.to_owned(), json!({ "day": day })).await;
            data.map(|data| listed(&data["ordersByPeriod"]["nodes"]))
        }
        "orderCancel" => {
            let data = ask(format!("{CANCEL} {ORDER}"), json!({ "id": id })).await;
            data.map(|data| payload(&data["orderCancel"]))
        }
        "orderAdvance" => {
            let variables = json!({ "id": id, "to": "PAID" });
            let data = ask(format!("{ADVANCE} {ORDER}"), variables).await;
            data.map(|data| payload(&data["orderAdvance"]))
        }
        "orderStatusChanged" => {
            let mut socket = match token {
                Some(token) => Socket::connect_as(server.address, token).await,
                None => Socket::connect(server.address).await,
            };
            socket.subscribe("s", WATCH, json!({ "id": id })).await;
            let message = socket.next().await;
            let errors = if message["type"] == "error" {
                &message["payload"]
            } else {
                &message["payload"]["errors"]
            };
            match errors[0]["extensions"]["code"].as_str() {
                Some(code) => Err(code.to_owned()),
                None => {
                    let order = &message["payload"]["data"]["orderStatusChanged"];
                    Ok(order["status"].as_str().unwrap().to_owned())
                }
            }
        }
        "payment hook" => {
            // A token of the shop is no signature of the payment service.
            let bearer = token.map(|token| format!("Bearer {token}"));
            let stamp = (SystemClock.now().millis() / 1_000).to_string();
            let mut headers = vec![("vitrina-timestamp", stamp.as_str())];
            if let (Some(bearer), Some(token)) = (&bearer, token) {
                headers.push(("authorization", bearer));
                headers.push(("vitrina-signature", token));
            }
            let body = message("p1", "paid", id, "10.00").to_string();
            let answer = post(&server.http, &headers, &body).await;
            Ok(answer.json()["code"].as_str().unwrap().to_owned())
        }
        other => panic!("{other} is no door"),
    };
    told.unwrap_or_else(|code| code)
}

async fn nobody_gets_through_a_door_of_orders_that_is_not_theirs(server: &TestServer) {
    open_shop(server, &[("A", 1_000)]).await;
    let customer = Shopper::customer(server, "owner");
    // The owner may be a guest, or come with the token of a session.
    let device = visit(&server.http, Some(&customer.token)).await;
    let owners = [
        (Shopper::guest(server).await, None),
        (customer, Some(Shopper::new(server, &device.token))),
    ];
    let (guest, staff) = (Shopper::guest(server).await, clerk(server));
    let other = Shopper::customer(server, "another customer");
    let mut number = 0;
    for (owner, device) in &owners {
        for (door, expected) in DOORS {
            for (caller, expected) in CALLERS.into_iter().zip(expected) {
                let mut tokens = vec![match caller {
                    "nobody" => None,
                    "guest" => Some(&guest.token),
                    "another customer" => Some(&other.token),
                    "owner" => Some(&owner.token),
                    _ => Some(&staff.token),
                }];
                if caller == "owner" {
                    tokens.extend(device.iter().map(|device| Some(&device.token)));
                }
                for token in tokens {
                    number += 1;
                    let order = owner.buy_of(&[("A", 1)], &format!("key-{number}")).await;
                    let id = id_of(&order);
                    let token = token.map(String::as_str);
                    let told = knock(server, door, token, id).await;
                    assert_eq!(told, expected, "{door} of an order by {caller}");
                    let is_changed = ["CANCELLED", "PAID"].contains(&expected);
                    if !is_changed {
                        assert_eq!(owner.order(id).await, order, "{door} by {caller}");
                    }
                    // So that all that are left find room in one page.
                    owner.cancel(id, None).await;
                }
            }
        }
    }
}
