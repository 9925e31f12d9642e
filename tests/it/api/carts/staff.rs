//! What staff see of carts: those that nobody has come back to, and what happened to one.

use std::time::Duration;

use serde_json::{Value, json};
use vitrina::clock::{Clock, ManualClock};

use super::{Shopper, done};
use crate::api::{data_for, product, staff, stock as sell};
use crate::support::http::HttpClient;
use crate::support::server::TestServer;

const ABANDONED: &str = "query($idle: Int!, $first: Int, $after: String) {
    abandonedCarts(idleForMinutes: $idle, first: $first, after: $after) {
        nodes { id userId lineCount idleSince subtotal { amount } cart { id totalQuantity } }
        pageInfo { hasNextPage hasPreviousPage endCursor } } }";
const HISTORY: &str = "query($id: ID!, $first: Int, $after: String) {
    cartHistory(cartId: $id, first: $first, after: $after) {
        nodes { id at type orderId otherCartId lines { productId name quantity } }
        pageInfo { hasNextPage hasPreviousPage endCursor } } }";
const HOUR: Duration = Duration::from_secs(3_600);

at_any_time! {
    carts_that_nobody_comes_back_to_are_reported_once,
    the_history_of_a_cart_is_told_newest_first,
}

/// Reads a list to its end in pages of a length.
async fn pages(http: &HttpClient, query: &str, variables: &Value, first: usize) -> Vec<Value> {
    let (mut found, mut after) = (Vec::new(), Value::Null);
    loop {
        let mut variables = variables.clone();
        (variables["first"], variables["after"]) = (json!(first), after.clone());
        let mut data = data_for(http, Some(&staff()), query, variables).await;
        let page = data.as_object_mut().unwrap().values_mut().next().unwrap();
        let nodes = page["nodes"].as_array().unwrap();
        assert!(nodes.len() <= first);
        assert_eq!(page["pageInfo"]["hasPreviousPage"], json!(!after.is_null()));
        found.extend(nodes.iter().cloned());
        if page["pageInfo"]["hasNextPage"] == false {
            return found;
        }
        after = page["pageInfo"]["endCursor"].take();
        assert!(found.len() < 1_000, "it has no end");
    }
}

/// The report of carts that are idle for so many minutes: the same, however it is read.
async fn report(http: &HttpClient, idle: i64) -> Vec<Value> {
    let variables = json!({ "idle": idle });
    let whole = pages(http, ABANDONED, &variables, 100).await;
    for first in [1, 2] {
        assert_eq!(pages(http, ABANDONED, &variables, first).await, whole);
    }
    // Those of the latest days first.
    let days: Vec<_> =
        whole.iter().map(|cart| &cart["idleSince"].as_str().unwrap()[..10]).collect();
    assert!(days.iter().rev().is_sorted(), "{days:?}");
    whole
}

/// The same as the ids of its carts, sorted.
async fn reported(http: &HttpClient, idle: i64) -> Vec<String> {
    let report = report(http, idle).await;
    let mut ids: Vec<_> = report.iter().map(|c| c["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

async fn carts_that_nobody_comes_back_to_are_reported_once(
    server: &TestServer,
    clock: &ManualClock,
) {
    let http = &server.http;
    sell(http, &[product("A", "Дом", "10")]).await;
    let mut shoppers = vec![
        // Ids of an identity provider may look like anything.
        Shopper::customer(server, "auth0|5f7c:8"),
        Shopper::customer(server, "клиент 2"),
        Shopper::guest(server).await,
    ];
    for n in 0..4 {
        shoppers.push(Shopper::customer(server, &format!("customer-{n}")));
    }
    assert_eq!(report(http, 1).await, [Value::Null; 0]);
    let (mut ids, mut touched) = (Vec::new(), Vec::new());
    for shopper in &shoppers {
        let cart = shopper.put(&[("A", 2)]).await;
        ids.push(cart["id"].as_str().unwrap().to_owned());
        touched.push(clock.now().to_string());
        clock.advance(7 * HOUR);
    }
    let sorted = |ids: &[String]| {
        let mut ids = ids.to_vec();
        ids.sort();
        ids
    };
    clock.advance(2 * HOUR);
    assert_eq!(reported(http, 60).await, sorted(&ids));
    let whole = report(http, 60).await;
    let cart = whole.iter().find(|cart| cart["id"] == "user:клиент 2").unwrap();
    let shown = json!({ "id": "user:клиент 2", "userId": "клиент 2", "lineCount": 1,
        "idleSince": touched[1], "subtotal": { "amount": "20.00" },
        "cart": { "id": "user:клиент 2", "totalQuantity": 2 } });
    assert_eq!(*cart, shown);
    let guest = whole.iter().find(|cart| cart["id"] == ids[2].as_str()).unwrap();
    assert_eq!(guest["userId"], Value::Null);
    // The last was touched 9 hours ago, the one before it 16.
    assert_eq!(reported(http, 9 * 60).await, sorted(&ids));
    assert_eq!(reported(http, 9 * 60 + 1).await, sorted(&ids[..6]));
    assert_eq!(reported(http, 16 * 60 + 1).await, sorted(&ids[..5]));

    // Two are changed, one is emptied, one is looked at; staff who look do not count.
    shoppers[0].put(&[("A", 1)]).await;
    shoppers[3].put(&[("A", 1)]).await;
    done(shoppers[1].clear(None).await);
    assert_eq!(shoppers[2].cart().await["totalQuantity"], 2, "a guest who comes back finds it");
    // That it was looked at is noted in the background.
    server.shop().carts.at_rest().await;
    assert_eq!(reported(http, 60).await, sorted(&ids[4..]));
    // An hour later they stand there again, each once; the empty one does not.
    clock.advance(HOUR);
    let left: Vec<_> = ids.iter().filter(|id| **id != ids[1]).cloned().collect();
    assert_eq!(reported(http, 60).await, sorted(&left));
    // Carts do not live for ever.
    clock.advance((30 * 24 - 2) * HOUR);
    assert_eq!(
        reported(http, 30 * 24 * 60 - 60).await,
        sorted(&[ids[0].clone(), ids[2].clone(), ids[3].clone()])
    );
    clock.advance(2 * HOUR);
    assert_eq!(reported(http, 1).await, [""; 0]);
    assert_eq!(shoppers[0].badge().await, 0);
}

async fn the_history_of_a_cart_is_told_newest_first(server: &TestServer, clock: &ManualClock) {
    let http = &server.http;
    sell(http, &["A", "B"].map(|id| product(id, "Дом", "10"))).await;
    let guest = Shopper::guest(server).await;
    let customer = Shopper::customer(server, "auth0|5f7c:8");
    let began = clock.now();
    guest.put(&[("B", 4)]).await;
    customer.put(&[("A", 2)]).await;
    clock.advance(HOUR);
    done(customer.update(&[("B", 3), ("A", 0)], None).await);
    // In one moment.
    for _ in 0..3 {
        customer.put(&[("A", 1)]).await;
    }
    done(customer.remove(&["B"], None).await);
    clock.advance(HOUR);
    done(customer.merge(&guest.token).await);
    done(customer.clear(None).await);
    let guest_id = guest.cart().await["id"].take();
    for (id, types) in [
        (
            json!("user:auth0|5f7c:8"),
            vec!["CLEARED", "TAKEN_OVER", "REMOVED", "ADDED", "ADDED", "ADDED", "SET", "ADDED"],
        ),
        (guest_id.clone(), vec!["HANDED_OVER", "ADDED"]),
        (json!("user:nobody"), vec![]),
    ] {
        let variables = json!({ "id": id });
        let whole = pages(http, HISTORY, &variables, 100).await;
        let shown: Vec<_> = whole.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(shown, types);
        for first in [1, 2, 3] {
            assert_eq!(pages(http, HISTORY, &variables, first).await, whole, "pages of {first}");
        }
    }
    let whole = pages(http, HISTORY, &json!({ "id": "user:auth0|5f7c:8" }), 100).await;
    let line = |id: &str, name: Value, quantity: i64| json!({ "productId": id, "name": name, "quantity": quantity });
    assert_eq!(whole[7]["lines"], json!([line("A", json!("Товар A"), 2)]));
    assert_eq!(whole[7]["at"], began.to_string());
    assert_eq!(
        whole[6]["lines"],
        json!([line("B", json!("Товар B"), 3), line("A", Value::Null, 0)])
    );
    assert_eq!(whole[1]["otherCartId"], guest_id);
    assert_eq!(whole[1]["lines"], json!([line("B", json!("Товар B"), 4)]));
    assert_eq!(whole[0]["lines"], json!([]));
    let whole = pages(http, HISTORY, &json!({ "id": guest_id }), 100).await;
    assert_eq!(whole[0]["otherCartId"], "user:auth0|5f7c:8");
}

#[tokio::test]
async fn cursors_and_arguments_are_checked() {
    let server = TestServer::start().await;
    let http = &server.http;
    sell(http, &["A", "B"].map(|id| product(id, "Дом", "10"))).await;
    let shoppers = [Shopper::customer(&server, "c1"), Shopper::customer(&server, "c2")];
    for shopper in &shoppers {
        shopper.put(&[("A", 1)]).await;
        shopper.put(&[("B", 1)]).await;
    }
    let code = async |query: &str, variables: Value| {
        let answer = http.query_as(&staff(), query, variables).await;
        answer.code()
    };
    for idle in [0, -1, 43_201, i32::MAX, i32::MIN] {
        assert_eq!(code(ABANDONED, json!({ "idle": idle })).await, "BAD_USER_INPUT", "{idle}");
    }
    assert_eq!(code(ABANDONED, json!({ "idle": 43_200 })).await, "");
    for first in [-1, 101] {
        assert_eq!(code(ABANDONED, json!({ "idle": 1, "first": first })).await, "BAD_USER_INPUT");
        let variables = json!({ "id": "user:c1", "first": first });
        assert_eq!(code(HISTORY, variables).await, "BAD_USER_INPUT");
    }
    for id in ["", "c1", "user:", "user", "guest:", "guest:c1", "admin:c1", ":c1"] {
        assert_eq!(code(HISTORY, json!({ "id": id })).await, "BAD_USER_INPUT", "{id}");
    }
    // A cursor belongs to its list, and a forged one to none.
    let page =
        data_for(http, Some(&staff()), HISTORY, json!({ "id": "user:c1", "first": 1 })).await;
    let cursor = page["cartHistory"]["pageInfo"]["endCursor"].as_str().unwrap();
    let category = "{ category(name: \"Дом\") { products(first: 1) { pageInfo { endCursor } } } }";
    let page = data_for(http, None, category, json!({})).await;
    let foreign = page["category"]["products"]["pageInfo"]["endCursor"].as_str().unwrap();
    let mut forged = cursor.to_owned().into_bytes();
    forged[3] = if forged[3] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    for after in [foreign, &forged, &cursor[1..], "", "user:c2", &"A".repeat(600)] {
        let variables = json!({ "id": "user:c1", "after": after });
        assert_eq!(code(HISTORY, variables).await, "INVALID_CURSOR", "{after}");
        let variables = json!({ "idle": 1, "after": after });
        assert_eq!(code(ABANDONED, variables).await, "INVALID_CURSOR", "{after}");
    }
    let variables = json!({ "id": "user:c2", "after": cursor });
    assert_eq!(code(HISTORY, variables).await, "INVALID_CURSOR");
    assert_eq!(code(ABANDONED, json!({ "idle": 1, "after": cursor })).await, "INVALID_CURSOR");
    assert_eq!(code(HISTORY, json!({ "id": "user:c1", "after": cursor })).await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_of_the_report_belongs_to_its_idle_time() {
    let (server, clock) = crate::api::in_time().await;
    let http = &server.http;
    sell(http, &[product("A", "Дом", "10")]).await;
    for n in 0..3 {
        Shopper::customer(&server, &format!("c{n}")).put(&[("A", 1)]).await;
    }
    clock.advance(HOUR);
    let page = data_for(http, Some(&staff()), ABANDONED, json!({ "idle": 5, "first": 1 })).await;
    let cursor = &page["abandonedCarts"]["pageInfo"]["endCursor"];
    assert!(cursor.is_string(), "{page}");
    for (idle, code) in [(5, ""), (6, "INVALID_CURSOR")] {
        let variables = json!({ "idle": idle, "after": cursor });
        assert_eq!(http.query_as(&staff(), ABANDONED, variables).await.code(), code);
    }
}
