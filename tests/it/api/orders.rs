//! Checkout and orders over HTTP: what is bought, what it costs, and what is refused.

mod doors;
mod history;
mod hook;
mod steps;
mod time;
mod watch;

use futures_util::future::join_all;
use serde_json::{Value, json};
use vitrina::inventory::model::StockKey;

use super::carts::{Shopper, done, lines, set_stock};
use super::{data_for, delete, product, staff as manager, stock as sell};
use crate::support::server::TestServer;

/// All of an order.
const ORDER: &str = "fragment O on Order {
    id status geoZone createdAt updatedAt paymentDueAt trackingNumber paymentMethod
    total { amount currencyCode }
    shippingAddress { city street postalCode recipient phone }
    lines { productId name quantity unitPrice { amount } total { amount } product { id name } }
    timeline { id type at note actor actorId }
}";
const CHECKOUT: &str = "mutation($input: CheckoutInput!) { checkout(input: $input) {
    order { ...O } shortages { productId requested available }
    currentTotal { amount currencyCode } userErrors { code field message } } }";
const CANCEL: &str = "mutation($id: ID!, $reason: String) { orderCancel(id: $id, reason: $reason) {
    order { ...O } userErrors { code field message } } }";
const ADVANCE: &str = "mutation($id: ID!, $to: OrderStatus!, $note: String, $number: String) {
    orderAdvance(id: $id, to: $to, note: $note, trackingNumber: $number) {
        order { ...O } userErrors { code field message } } }";
const ZONE: &str = "Тула";

/// What a frontend sends, under a key.
fn input(key: &str) -> Value {
    let to = json!({ "city": "Тула", "street": "Ленина, 1", "postalCode": "300000",
                     "recipient": "Иван", "phone": "+7 900 000-00-00" });
    json!({ "idempotencyKey": key, "geoZone": ZONE, "shippingAddress": to,
            "paymentMethod": "card" })
}

impl Shopper {
    /// Calls `checkout`; its payload.
    async fn check_out(&self, input: &Value) -> Value {
        let query = format!("{CHECKOUT} {ORDER}");
        self.data(&query, json!({ "input": input })).await["checkout"].take()
    }

    /// Buys what is in the cart under a key; that must go well.
    async fn buy(&self, key: &str) -> Value {
        ordered(self.check_out(&input(key)).await)
    }

    /// Puts units in and buys them.
    async fn buy_of(&self, lines: &[(&str, i64)], key: &str) -> Value {
        self.put(lines).await;
        self.buy(key).await
    }

    async fn order(&self, id: &str) -> Value {
        let query = format!("query($id: ID!) {{ order(id: $id) {{ ...O }} }} {ORDER}");
        self.data(&query, json!({ "id": id })).await["order"].take()
    }

    /// The ids of the own orders.
    async fn orders(&self) -> Vec<String> {
        let data = self.data("{ orders { nodes { id } } }", json!({})).await;
        let nodes = data["orders"]["nodes"].as_array().unwrap().iter();
        nodes.map(|order| id_of(order).to_owned()).collect()
    }

    async fn cancel(&self, id: &str, reason: Option<&str>) -> Value {
        let variables = json!({ "id": id, "reason": reason });
        self.data(&format!("{CANCEL} {ORDER}"), variables).await["orderCancel"].take()
    }

    /// Calls `orderAdvance`, for staff; its payload.
    async fn advance(&self, id: &str, to: &str, number: Option<&str>) -> Value {
        let variables = json!({ "id": id, "to": to, "note": "a note", "number": number });
        self.data(&format!("{ADVANCE} {ORDER}"), variables).await["orderAdvance"].take()
    }
}

/// A member of staff.
fn clerk(server: &TestServer) -> Shopper {
    Shopper::new(server, &manager())
}

/// The order of a payload without errors.
fn ordered(mut payload: Value) -> Value {
    assert_eq!(payload["userErrors"], json!([]), "{payload}");
    payload["order"].take()
}

fn id_of(order: &Value) -> &str {
    order["id"].as_str().unwrap()
}

/// The codes of a payload's errors, with the path of each that has one.
fn codes(payload: &Value) -> Vec<(String, String)> {
    let path = |error: &Value| match error["field"].as_array() {
        Some(steps) => steps.iter().map(|s| s.as_str().unwrap()).collect::<Vec<_>>().join("."),
        None => String::new(),
    };
    let errors = payload["userErrors"].as_array().unwrap().iter();
    errors.map(|error| (error["code"].as_str().unwrap().to_owned(), path(error))).collect()
}

fn code(code: &str, path: &str) -> (String, String) {
    (code.to_owned(), path.to_owned())
}

/// What is there of a product and what is reserved, as the stock itself has it.
async fn level(server: &TestServer, product: &str) -> (i64, i64) {
    let (product, zone) = (product.parse_id(), vitrina::geo_zone::GeoZone::parse(ZONE).unwrap());
    let row = server.opened().stock_row(&StockKey { product, zone }).await.unwrap().unwrap();
    (row.level.quantity, row.level.reserved)
}

trait ParseId {
    fn parse_id(&self) -> vitrina::product_id::ProductId;
}

impl ParseId for str {
    fn parse_id(&self) -> vitrina::product_id::ProductId {
        vitrina::product_id::ProductId::parse(self).unwrap()
    }
}

/// What a shopper is shown as available.
async fn available(server: &TestServer, id: &str) -> i64 {
    let query = "query($id: ID!, $zone: String!) {
        product(id: $id) { stock(geoZone: $zone) { available } } }";
    let data = data_for(&server.http, None, query, json!({ "id": id, "zone": ZONE })).await;
    data["product"]["stock"]["available"].as_i64().unwrap()
}

/// Waits until so many are shown as available. What another instance has changed is shown within a
/// quarter of a second, on a machine that is not busy.
async fn until_available(server: &TestServer, id: &str, units: i64) {
    let began = std::time::Instant::now();
    loop {
        let shown = available(server, id).await;
        if shown == units {
            return;
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{shown} and not {units}");
    }
}

/// Sells these products at 10 each, and has so many units of each.
async fn open_shop(server: &TestServer, units: &[(&str, i64)]) {
    let products: Vec<_> = units.iter().map(|(id, _)| product(id, "Дом", "10")).collect();
    sell(&server.http, &products).await;
    let stock: Vec<_> = units.iter().map(|(id, units)| (*id, ZONE, *units)).collect();
    set_stock(&server.http, &stock).await;
}

on_every_server! {
    a_guest_and_a_customer_buy_what_is_in_their_carts,
    fifty_calls_with_one_key_are_one_order_and_fifty_equal_answers,
    the_cart_keeps_what_was_added_meanwhile,
    what_cannot_be_bought_is_told_with_all_that_is_needed_to_go_on,
    a_full_cart_is_bought_and_cancelled_as_a_whole,
}

async fn a_guest_and_a_customer_buy_what_is_in_their_carts(server: &TestServer) {
    sell(&server.http, &[product("B", "Дом", "3"), product("A", "Дом", "10.50")]).await;
    set_stock(&server.http, &[("A", ZONE, 50), ("B", ZONE, 50)]).await;
    for shopper in [Shopper::guest(server).await, Shopper::customer(server, "customer-1")] {
        assert_eq!(shopper.orders().await, [""; 0]);
        let (quantity, reserved) = level(server, "A").await;
        shopper.put(&[("B", 1), ("A", 2)]).await;
        shopper.put(&[("A", 3)]).await;
        let order = shopper.buy("key-1").await;
        assert_eq!(order["status"], "CREATED");
        assert_eq!(order["total"], json!({ "amount": "55.50", "currencyCode": "RUB" }));
        let line = |id: &str, quantity: i64, price: &str, total: &str| {
            let name = format!("Товар {id}");
            json!({ "productId": id, "name": name, "quantity": quantity,
                    "unitPrice": { "amount": price }, "total": { "amount": total },
                    "product": { "id": id, "name": name } })
        };
        let expected = json!([line("A", 5, "10.50", "52.50"), line("B", 1, "3.00", "3.00")]);
        assert_eq!(order["lines"], expected, "each product once, its units summed");
        assert_eq!(order["shippingAddress"], input("")["shippingAddress"]);
        assert_eq!((&order["geoZone"], &order["paymentMethod"]), (&json!(ZONE), &json!("card")));
        assert_eq!(
            (&order["trackingNumber"], &order["updatedAt"]),
            (&Value::Null, &order["createdAt"])
        );
        assert!(order["paymentDueAt"].as_str() > order["createdAt"].as_str());
        let [event] = &order["timeline"].as_array().unwrap()[..] else { panic!("{order}") };
        assert_eq!((&event["type"], &event["actor"]), (&json!("created"), &json!("CUSTOMER")));
        assert_eq!(lines(&shopper.cart().await), []);
        assert_eq!(level(server, "A").await, (quantity, reserved + 5));
        assert_eq!(shopper.order(id_of(&order)).await, order);
        assert_eq!(shopper.orders().await, [id_of(&order)]);
        // The same again is the same order, and takes nothing.
        assert_eq!(shopper.buy("key-1").await, order);
        assert_eq!(level(server, "A").await, (quantity, reserved + 5));
        assert_eq!(shopper.orders().await.len(), 1);

        // It stays what it was whatever becomes of its products.
        let mut dearer = product("A", "Дом", "99");
        dearer["name"] = json!("Новое имя");
        sell(&server.http, &[dearer]).await;
        delete(&server.http, &["B"]).await;
        let later = shopper.order(id_of(&order)).await;
        assert_eq!(later["total"], order["total"]);
        assert_eq!(later["lines"][0]["unitPrice"]["amount"], "10.50");
        assert_eq!(later["lines"][0]["name"], "Товар A");
        assert_eq!(later["lines"][1]["name"], "Товар B");
        assert_eq!(later["lines"][1]["total"]["amount"], "3.00");
        sell(&server.http, &[product("B", "Дом", "3"), product("A", "Дом", "10.50")]).await;
        // Another key is another order.
        let another = shopper.buy_of(&[("B", 1)], "key-2").await;
        assert_eq!(shopper.orders().await, [id_of(&another), id_of(&order)]);
    }
}

async fn fifty_calls_with_one_key_are_one_order_and_fifty_equal_answers(server: &TestServer) {
    open_shop(server, &[("A", 100)]).await;
    let other = server.beside(|_| {}).await;
    for shopper in [Shopper::guest(server).await, Shopper::customer(server, "customer-1")] {
        let (_, reserved) = level(server, "A").await;
        shopper.put(&[("A", 2)]).await;
        let elsewhere = shopper.at(&other);
        let (one, input) = (&shopper, input("key"));
        // A reply that was lost is asked for again, as a client does.
        let call = async |number: usize| {
            let caller = if number.is_multiple_of(2) { one } else { &elsewhere };
            for _ in 0..10 {
                let query = json!({ "query": format!("{CHECKOUT} {ORDER}"),
                                    "variables": { "input": input } });
                let mut answer = caller.http.post(Some(&caller.token), &query).await.json();
                if answer["errors"].is_null() {
                    return ordered(answer["data"]["checkout"].take());
                }
            }
            panic!("no answer")
        };
        let answers = join_all((0..50).map(call)).await;
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
        assert_eq!(shopper.orders().await, [id_of(&answers[0])]);
        assert_eq!(level(server, "A").await.1, reserved + 2);
        assert_eq!(lines(&shopper.cart().await), []);
        assert_eq!(elsewhere.buy("key").await, answers[0]);
    }
    // The key is the shopper's own.
    let stranger = Shopper::customer(server, "customer-2");
    assert_eq!(codes(&stranger.check_out(&input("key")).await), [code("CART_EMPTY", "")]);
}

async fn the_cart_keeps_what_was_added_meanwhile(server: &TestServer) {
    open_shop(server, &[("A", 100), ("B", 100)]).await;
    let shopper = Shopper::customer(server, "customer-1");
    shopper.put(&[("A", 3)]).await;
    // While it is bought, on another device.
    let (order, cart) = tokio::join!(shopper.buy("key-1"), shopper.put(&[("A", 1), ("B", 2)]));
    assert!(lines(&cart).contains(&("B", 2)));
    let bought: i64 =
        order["lines"].as_array().unwrap().iter().map(|l| l["quantity"].as_i64().unwrap()).sum();
    let left = shopper.cart().await["totalQuantity"].as_i64().unwrap();
    assert_eq!(bought + left, 6, "each unit is bought or in the cart");
    // What comes after it stays, also when the checkout is sent again.
    shopper.put(&[("A", 5)]).await;
    assert_eq!(shopper.buy("key-1").await["lines"], order["lines"]);
    assert_eq!(shopper.cart().await["totalQuantity"], left + 5);
}

async fn what_cannot_be_bought_is_told_with_all_that_is_needed_to_go_on(server: &TestServer) {
    open_shop(server, &[("A", 5), ("B", 1), ("C", 0), ("D", 9)]).await;
    let shopper = Shopper::customer(server, "customer-1");
    let empty = shopper.check_out(&input("key")).await;
    assert_eq!((codes(&empty), &empty["order"]), (vec![code("CART_EMPTY", "")], &Value::Null));

    // Another sum than the shopper saw; the key is free for the next try.
    shopper.put(&[("A", 2), ("D", 1)]).await;
    let with_total = |key: &str, total: &str| {
        let mut input = input(key);
        input["expectedTotal"] = json!(total);
        input
    };
    let changed = shopper.check_out(&with_total("key", "29.99")).await;
    assert_eq!(codes(&changed), [code("PRICE_CHANGED", "input.expectedTotal")]);
    assert_eq!(changed["currentTotal"], json!({ "amount": "30.00", "currencyCode": "RUB" }));
    assert_eq!((&changed["order"], level(server, "A").await), (&Value::Null, (5, 0)));
    sell(&server.http, &[product("A", "Дом", "11")]).await;
    let changed = shopper.check_out(&with_total("key", "30")).await;
    assert_eq!(changed["currentTotal"]["amount"], "32.00", "what it costs now");
    let order = ordered(shopper.check_out(&with_total("key", "32.0")).await);
    assert_eq!(order["total"]["amount"], "32.00");
    assert_eq!(level(server, "A").await, (5, 2));

    // The key of another checkout.
    for (field, value) in [
        ("geoZone", json!("Омск")),
        ("paymentMethod", json!("cash")),
        ("expectedTotal", json!("32.01")),
        ("expectedTotal", Value::Null),
    ] {
        let mut input = with_total("key", "32");
        input[field] = value;
        let reused = shopper.check_out(&input).await;
        assert_eq!(codes(&reused), [code("KEY_REUSED", "input.idempotencyKey")], "{field}");
        assert_eq!(reused["order"], Value::Null);
    }
    let mut input_of_another_street = with_total("key", "32");
    input_of_another_street["shippingAddress"]["street"] = json!("Ленина, 2");
    let reused = shopper.check_out(&input_of_another_street).await;
    assert_eq!(codes(&reused), [code("KEY_REUSED", "input.idempotencyKey")]);
    assert_eq!(ordered(shopper.check_out(&with_total("key", "32.00")).await), order);

    // Too little, of several at once: all of them are told, and nothing is held.
    shopper.put(&[("A", 4), ("B", 2), ("C", 1), ("D", 3)]).await;
    let short = shopper.check_out(&input("key-2")).await;
    let expected = [("A", 4, 3), ("B", 2, 1), ("C", 1, 0)].map(|(id, requested, available)| {
        json!({ "productId": id, "requested": requested, "available": available })
    });
    assert_eq!(short["shortages"], json!(expected));
    assert_eq!(codes(&short), vec![code("OUT_OF_STOCK", ""); 3]);
    assert_eq!(short["order"], Value::Null);
    for (id, expected) in [("A", (5, 2)), ("B", (1, 0)), ("C", (0, 0)), ("D", (9, 1))] {
        assert_eq!(level(server, id).await, expected, "{id}");
    }
    assert_eq!(lines(&shopper.cart().await).len(), 4, "the cart is as it was");
    // What was answered stays the answer; another key is another try.
    set_stock(&server.http, &[("A", ZONE, 50), ("B", ZONE, 50), ("C", ZONE, 50)]).await;
    assert_eq!(shopper.check_out(&input("key-2")).await, short);

    // A product that is gone meanwhile.
    delete(&server.http, &["B", "D"]).await;
    let gone = shopper.check_out(&input("key-3")).await;
    assert_eq!((codes(&gone), &gone["order"]), (vec![code("PRODUCT_GONE", ""); 2], &Value::Null));
    let text = gone["userErrors"].to_string();
    assert!(text.contains("B is") && text.contains("D is"), "{text}");
    done(shopper.remove(&["B", "D"], None).await);
    let order = shopper.buy("key-3").await;
    assert_eq!(order["total"]["amount"], "54.00");
    // A zone that has nothing of it.
    shopper.put(&[("A", 1)]).await;
    let mut nowhere = input("key-4");
    nowhere["geoZone"] = json!("Нигде");
    let short = shopper.check_out(&nowhere).await;
    assert_eq!(short["shortages"], json!([{ "productId": "A", "requested": 1, "available": 0 }]));
}

async fn a_full_cart_is_bought_and_cancelled_as_a_whole(server: &TestServer) {
    let ids: Vec<_> = (0..100).map(|number| format!("P{number:03}")).collect();
    open_shop(server, &ids.iter().map(|id| (id.as_str(), 5)).collect::<Vec<_>>()).await;
    let shopper = Shopper::customer(server, "customer-1");
    shopper.put(&ids.iter().map(|id| (id.as_str(), 2)).collect::<Vec<_>>()).await;
    let query = "mutation($input: CheckoutInput!) { checkout(input: $input) {
        order { id total { amount } lines { productId quantity } } userErrors { code } } }";
    let mut data = shopper.data(query, json!({ "input": input("key") })).await;
    let order = ordered(data["checkout"].take());
    assert_eq!(order["total"]["amount"], "2000.00");
    let expected: Vec<_> = ids.iter().map(|id| json!({ "productId": id, "quantity": 2 })).collect();
    assert_eq!(order["lines"], json!(expected));
    assert_eq!(lines(&shopper.cart().await), []);
    let cancel = "mutation($id: ID!) { orderCancel(id: $id) {
        order { status } userErrors { code } } }";
    for (held, is_cancelled) in [(2, false), (0, true)] {
        if is_cancelled {
            let mut data = shopper.data(cancel, json!({ "id": order["id"] })).await;
            assert_eq!(ordered(data["orderCancel"].take())["status"], "CANCELLED");
        }
        for id in &ids {
            assert_eq!(level(server, id).await, (5, held), "{id}");
        }
    }
}

#[tokio::test]
async fn everything_wrong_with_a_checkout_is_said_at_once() {
    let server = TestServer::start().await;
    open_shop(&server, &[("A", 5)]).await;
    let shopper = Shopper::customer(&server, "customer-1");
    shopper.put(&[("A", 1)]).await;
    let key = "input.idempotencyKey";
    for (bad, expected) in [
        ("", "BLANK"),
        ("   ", "BLANK"),
        ("\u{a0}", "BLANK"),
        (&"k".repeat(256), "TOO_LONG"),
        ("a b", "INVALID"),
        (" a", "INVALID"),
        ("a\u{2003}b", "INVALID"),
        ("a\nb", "INVALID"),
        ("a\u{0}b", "INVALID"),
        ("a\u{7f}", "INVALID"),
    ] {
        let payload = shopper.check_out(&input(bad)).await;
        assert_eq!(codes(&payload), [code(expected, key)], "{bad:?}");
        assert_eq!(payload["order"], Value::Null);
    }
    let mut wrong = input("");
    wrong["geoZone"] = json!("я".repeat(65));
    wrong["paymentMethod"] = json!("p".repeat(41));
    wrong["shippingAddress"] = json!({ "city": " ", "street": "я".repeat(201),
        "postalCode": "1".repeat(41), "recipient": "", "phone": "a\u{0}b" });
    let to = "input.shippingAddress";
    let expected = [
        code("BLANK", key),
        code("TOO_LONG", "input.geoZone"),
        code("BLANK", &format!("{to}.city")),
        code("TOO_LONG", &format!("{to}.street")),
        code("TOO_LONG", &format!("{to}.postalCode")),
        code("BLANK", &format!("{to}.recipient")),
        code("INVALID", &format!("{to}.phone")),
        code("TOO_LONG", "input.paymentMethod"),
    ];
    assert_eq!(codes(&shopper.check_out(&wrong).await), expected);
    // What is no sum at all is no checkout.
    let query = format!("{CHECKOUT} {ORDER}");
    for total in [json!("much"), json!(1.5), json!(""), json!("1e400")] {
        let mut input = input("key");
        input["expectedTotal"] = total.clone();
        let variables = json!({ "input": input });
        let answer = server.http.query_as(&shopper.token, &query, variables).await;
        assert_eq!(answer.code(), "BAD_USER_INPUT", "{total}");
    }
    assert_eq!((level(&server, "A").await, shopper.orders().await.len()), ((5, 0), 0));
    // The longest that may be, and nothing that need not be.
    let mut long = input(&"ключ-".repeat(51));
    long["shippingAddress"] = json!({ "city": "я".repeat(200), "street": "я".repeat(200) });
    long["paymentMethod"] = json!("p".repeat(40));
    let order = ordered(shopper.check_out(&long).await);
    assert_eq!(order["shippingAddress"]["phone"], Value::Null);
    assert_eq!(order["paymentMethod"], long["paymentMethod"]);
}
