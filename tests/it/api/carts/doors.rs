//! Whose cart is whose: every door of carts, tried with everybody's token.

use serde_json::{Value, json};
use vitrina::server::Role;

use super::{Shopper, input, mutation};
use crate::api::sessions::visit;
use crate::api::{product, staff, stock as sell};
use crate::support::server::{TestServer, token};
use crate::support::websocket::Socket;

const WATCH: &str = "subscription { cartChanged { id totalQuantity } }";
const ABANDONED: &str = "{ abandonedCarts(idleForMinutes: 1) { nodes { id } } }";
const HISTORY: &str = "query($id: ID!) { cartHistory(cartId: $id) { nodes { id } } }";

/// Every operation on carts, with variables that are sound.
fn operations(guest: &str, cart: &str) -> Vec<(String, Value)> {
    let lines = input(&[("A", 1)]);
    vec![
        ("{ cart { id lines { productId } } }".to_owned(), json!({})),
        (ABANDONED.to_owned(), json!({})),
        (HISTORY.to_owned(), json!({ "id": cart })),
        (mutation("cartLinesAdd"), json!({ "lines": lines })),
        (mutation("cartLinesUpdate"), json!({ "lines": lines })),
        (mutation("cartLinesRemove"), json!({ "ids": ["A"] })),
        (mutation("cartClear"), json!({})),
        (mutation("cartMerge"), json!({ "guest": guest })),
    ]
}

fn is_for_staff(query: &str) -> bool {
    query.contains("abandonedCarts") || query.contains("cartHistory")
}

#[tokio::test]
async fn nobody_gets_at_the_cart_of_another() {
    let server = TestServer::start().await;
    let http = &server.http;
    sell(http, &[product("A", "Дом", "10"), product("B", "Дом", "10")]).await;
    let victims = [Shopper::guest(&server).await, Shopper::customer(&server, "victim")];
    let mut before = Vec::new();
    for victim in &victims {
        before.push(victim.put(&[("A", 3), ("B", 4)]).await);
    }
    let guest = Shopper::guest(&server).await;
    let customer = token("customer-1", Role::Customer);
    let session = visit(http, Some(&customer)).await.token;
    let demoted = visit(http, Some(&staff())).await.token;
    // A name that looks like another's id of a cart is a name all the same.
    let namesake = token(before[0]["id"].as_str().unwrap(), Role::Customer);
    let sly = token("user:victim", Role::Customer);
    let manager = staff();
    let callers = [&guest.token, &customer, &session, &demoted, &namesake, &sly, &manager]
        .map(String::as_str);
    for cart in &before {
        let id = cart["id"].as_str().unwrap();
        for (query, variables) in operations(&guest.token, id) {
            let answer = http.query(&query, variables.clone()).await;
            assert_eq!(answer.code(), "UNAUTHENTICATED", "{query}");
            assert!(!answer.text().contains(id), "{}", answer.text());
            for caller in callers {
                let answer = http.query_as(caller, &query, variables.clone()).await;
                // A guest's cart takes nothing over.
                let is_forbidden = is_for_staff(&query) && caller != manager
                    || query.contains("cartMerge") && caller == guest.token;
                let expected = if is_forbidden { "FORBIDDEN" } else { "" };
                assert_eq!(answer.code(), expected, "{query}: {}", answer.text());
                let shown = answer.text();
                assert!(!shown.contains(&format!("\"{id}\"")), "{query}: {shown}");
                assert!(!shown.contains("vs1."), "{query}: {shown}");
            }
        }
    }
    for (victim, before) in victims.iter().zip(&before) {
        assert_eq!(victim.cart().await, *before);
    }
}

#[tokio::test]
async fn a_subscription_shows_the_own_cart_only() {
    let server = TestServer::start().await;
    sell(&server.http, &[product("A", "Дом", "10")]).await;
    let victim = Shopper::customer(&server, "victim");
    victim.put(&[("A", 3)]).await;
    let mut nobody = Socket::connect(server.address).await;
    nobody.subscribe("s", WATCH, json!({})).await;
    let errors = nobody.payload("error", "s").await;
    assert_eq!(errors[0]["extensions"]["code"], "UNAUTHENTICATED", "{errors}");
    let guest = Shopper::guest(&server).await;
    for (token, own) in [
        (&guest.token, guest.cart().await["id"].clone()),
        (&token("customer-1", Role::Customer), json!("user:customer-1")),
        (&staff(), json!("user:manager-1")),
    ] {
        let mut socket = Socket::connect_as(server.address, token).await;
        socket.subscribe("s", WATCH, json!({})).await;
        let told = socket.payload("next", "s").await;
        assert_eq!(told["data"]["cartChanged"], json!({ "id": own, "totalQuantity": 0 }));
    }
}
