//! Carts over HTTP: what is in them, what it costs now, and what they refuse.

mod doors;
mod keys;
mod merge;
mod staff;
mod watch;

use serde_json::{Value, json};
use vitrina::server::Role;

use super::sessions::{visit, visit_with};
use super::{data_for, delete, faults, product, staff as manager, stock as sell};
use crate::support::http::HttpClient;
use crate::support::server::{TestServer, token};
use crate::support::stores::TestStore;

/// All of a cart. Its notices are those of the session's zone.
const CART: &str = "fragment C on Cart {
    id totalQuantity updatedAt expiresAt ...P
    notices { code productId message quantity priceWhenAdded { amount } currentPrice { amount } }
} fragment P on Cart {
    subtotal { amount currencyCode }
    lines { productId name imageUrl quantity addedAt product { id name price { amount } }
            unitPrice { amount } priceWhenAdded { amount } total { amount currencyCode } }
}";
/// A cart with its notices, and without them: then its products are read before anything is written.
const BOTH_WAYS: &str = "cart { ...C } alone: cart { ...P }";
const STOCK: &str = "mutation($entries: [StockInput!]!) {
    stockSet(entries: $entries) { userErrors { code message } } }";

/// Whoever has a token, at one instance of the shop.
#[derive(Clone)]
pub(super) struct Shopper {
    pub(super) http: HttpClient,
    pub(super) token: String,
}

impl Shopper {
    pub(super) fn new(server: &TestServer, token: &str) -> Self {
        Self { http: server.http.clone(), token: token.to_owned() }
    }

    pub(super) fn customer(server: &TestServer, id: &str) -> Self {
        Self::new(server, &token(id, Role::Customer))
    }

    pub(super) async fn guest(server: &TestServer) -> Self {
        Self::new(server, &visit(&server.http, None).await.token)
    }

    /// The same at another instance.
    pub(super) fn at(&self, server: &TestServer) -> Self {
        Self::new(server, &self.token)
    }

    pub(super) async fn data(&self, query: &str, variables: Value) -> Value {
        data_for(&self.http, Some(&self.token), query, variables).await
    }

    pub(super) async fn cart(&self) -> Value {
        both_ways(self.data(&format!("{{ {BOTH_WAYS} }} {CART}"), json!({})).await)
    }

    async fn badge(&self) -> i64 {
        let data = self.data("{ cart { totalQuantity } }", json!({})).await;
        data["cart"]["totalQuantity"].as_i64().unwrap()
    }

    /// Calls a mutation by its name, with the declarations of its variables; its payload.
    async fn change(&self, name: &str, variables: Value) -> Value {
        self.data(&mutation(name), variables).await[name].take()
    }

    async fn add(&self, lines: &[(&str, i64)], key: Option<&str>) -> Value {
        self.change("cartLinesAdd", json!({ "lines": input(lines), "key": key })).await
    }

    async fn update(&self, lines: &[(&str, i64)], key: Option<&str>) -> Value {
        self.change("cartLinesUpdate", json!({ "lines": input(lines), "key": key })).await
    }

    pub(super) async fn remove(&self, ids: &[&str], key: Option<&str>) -> Value {
        self.change("cartLinesRemove", json!({ "ids": ids, "key": key })).await
    }

    async fn clear(&self, key: Option<&str>) -> Value {
        self.change("cartClear", json!({ "key": key })).await
    }

    pub(super) async fn merge(&self, guest: &str) -> Value {
        self.change("cartMerge", json!({ "guest": guest })).await
    }

    /// Puts units in; that must go well.
    pub(super) async fn put(&self, lines: &[(&str, i64)]) -> Value {
        done(self.add(lines, None).await)
    }
}

/// The text of a mutation of carts.
fn mutation(name: &str) -> String {
    let (declared, given) = match name {
        "cartLinesAdd" | "cartLinesUpdate" => {
            ("($lines: [CartLineInput!]!, $key: String)", "(lines: $lines, idempotencyKey: $key)")
        }
        "cartLinesRemove" => {
            ("($ids: [ID!]!, $key: String)", "(productIds: $ids, idempotencyKey: $key)")
        }
        "cartClear" => ("($key: String)", "(idempotencyKey: $key)"),
        "cartMerge" => ("($guest: String!)", "(guestToken: $guest)"),
        other => panic!("{other} is no mutation of carts"),
    };
    let payload = format!("{{ {BOTH_WAYS} userErrors {{ code field message }} }}");
    format!("mutation{declared} {{ {name}{given} {payload} }} {CART}")
}

fn input(lines: &[(&str, i64)]) -> Vec<Value> {
    let line = |(id, quantity): &(&str, i64)| json!({ "productId": id, "quantity": quantity });
    lines.iter().map(line).collect()
}

/// The cart of a payload without errors.
pub(super) fn done(payload: Value) -> Value {
    assert_eq!(payload["userErrors"], json!([]), "{payload}");
    both_ways(payload)
}

/// The cart, which is the same by both ways.
fn both_ways(mut shown: Value) -> Value {
    for field in ["subtotal", "lines"] {
        assert_eq!(shown["alone"][field], shown["cart"][field], "{shown}");
    }
    shown["cart"].take()
}

/// The lines of a cart: products and units.
pub(super) fn lines(cart: &Value) -> Vec<(&str, i64)> {
    let lines = cart["lines"].as_array().unwrap().iter();
    lines.map(|l| (l["productId"].as_str().unwrap(), l["quantity"].as_i64().unwrap())).collect()
}

/// The notices of a cart, of a code.
fn notices<'a>(cart: &'a Value, code: &str) -> Vec<&'a Value> {
    cart["notices"].as_array().unwrap().iter().filter(|notice| notice["code"] == code).collect()
}

fn fault(path: &str, code: &str) -> (String, String) {
    (path.to_owned(), code.to_owned())
}

pub(super) async fn set_stock(http: &HttpClient, entries: &[(&str, &str, i64)]) {
    let entry = |(id, zone, quantity): &(&str, &str, i64)| json!({ "productId": id, "geoZone": zone, "quantity": quantity });
    let entries: Vec<_> = entries.iter().map(entry).collect();
    let set = data_for(http, Some(&manager()), STOCK, json!({ "entries": entries })).await;
    assert_eq!(set["stockSet"]["userErrors"], json!([]));
}

/// Sells products of this price under these ids.
async fn sell_all(http: &HttpClient, ids: &[String]) {
    for ids in ids.chunks(100) {
        let products: Vec<_> = ids.iter().map(|id| product(id, "Книги", "10")).collect();
        sell(http, &products).await;
    }
}

fn many(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("P{n:03}")).collect()
}

/// So many units of each.
fn of_each(ids: &[String], units: i64) -> Vec<(&str, i64)> {
    ids.iter().map(|id| (id.as_str(), units)).collect()
}

on_every_server! {
    a_cart_is_filled_changed_and_emptied,
    prices_and_stock_are_those_of_now_and_notices_tell_of_them,
}

async fn a_cart_is_filled_changed_and_emptied(server: &TestServer) {
    let mut lamp = product("A", "Дом", "10.50");
    lamp["imageUrl"] = json!("https://shop.example/a.webp");
    sell(&server.http, &[lamp, product("B", "Дом", "3"), product("C", "Дом", "7")]).await;
    set_stock(&server.http, &[("A", "Тула", 50), ("B", "Тула", 50), ("C", "Тула", 50)]).await;
    let guest = Shopper::guest(server).await;
    let customer = Shopper::customer(server, "customer-1");
    let session = Shopper::new(server, &visit(&server.http, Some(&customer.token)).await.token);
    for (shopper, other_device) in [(&guest, &guest), (&customer, &session)] {
        let empty = shopper.cart().await;
        assert_eq!(lines(&empty), []);
        assert_eq!((&empty["updatedAt"], &empty["expiresAt"]), (&Value::Null, &Value::Null));
        assert_eq!(empty["subtotal"], json!({ "amount": "0.00", "currencyCode": "RUB" }));

        let cart = shopper.put(&[("A", 2), ("B", 1), ("A", 3)]).await;
        assert_eq!(lines(&cart), [("A", 5), ("B", 1)]);
        let line = &cart["lines"][0];
        assert_eq!(
            (&line["name"], &line["imageUrl"]),
            (&json!("Товар A"), &json!("https://shop.example/a.webp"))
        );
        assert_eq!(
            line["product"],
            json!({ "id": "A", "name": "Товар A", "price": { "amount": "10.50" } })
        );
        assert_eq!(line["unitPrice"]["amount"], "10.50");
        assert_eq!(line["priceWhenAdded"]["amount"], "10.50");
        assert_eq!(line["total"], json!({ "amount": "52.50", "currencyCode": "RUB" }));
        assert_eq!(line["addedAt"], cart["updatedAt"]);
        assert_eq!(cart["subtotal"], json!({ "amount": "55.50", "currencyCode": "RUB" }));
        assert_eq!((&cart["totalQuantity"], &cart["notices"]), (&json!(6), &json!([])));
        assert_eq!(other_device.cart().await, cart, "as it is stored");

        let cart = done(other_device.update(&[("A", 1), ("C", 4), ("B", 0)], None).await);
        assert_eq!(lines(&cart), [("A", 1), ("C", 4)]);
        assert_eq!(cart["lines"][0]["addedAt"], line["addedAt"], "it was there before");
        assert_eq!(shopper.cart().await, cart);
        // What is not there is nothing wrong.
        let cart = done(shopper.remove(&["A", "Нет такого", "A"], None).await);
        assert_eq!(lines(&cart), [("C", 4)]);
        let cart = done(shopper.clear(None).await);
        assert_eq!(lines(&cart), []);
        assert_eq!(other_device.badge().await, 0);
        shopper.put(&[("B", 2)]).await;
        assert_eq!(lines(&other_device.cart().await), [("B", 2)]);
    }
    let id = guest.cart().await["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("guest:"), "{id}");
    assert_eq!(customer.cart().await["id"], "user:customer-1");
}

async fn prices_and_stock_are_those_of_now_and_notices_tell_of_them(server: &TestServer) {
    let http = &server.http;
    sell(http, &["A", "B", "C"].map(|id| product(id, "Дом", "10"))).await;
    set_stock(http, &[("A", "Тула", 9), ("B", "Тула", 9), ("C", "Тула", 9), ("A", "Омск", 1)])
        .await;
    let shopper = Shopper::customer(server, "customer-1");
    shopper.put(&[("A", 3), ("B", 2), ("C", 1)]).await;
    let mut dearer = product("A", "Дом", "12.34");
    dearer["name"] = json!("Новое имя");
    sell(http, &[dearer]).await;
    delete(http, &["B"]).await;
    let cart = shopper.cart().await;
    let line = &cart["lines"][0];
    assert_eq!((&line["name"], &line["product"]["name"]), (&json!("Товар A"), &json!("Новое имя")));
    assert_eq!(line["unitPrice"]["amount"], "12.34");
    assert_eq!(line["total"]["amount"], "37.02");
    assert_eq!(line["priceWhenAdded"]["amount"], "10.00");
    let gone = &cart["lines"][1];
    assert_eq!((&gone["product"], &gone["name"]), (&Value::Null, &json!("Товар B")));
    assert_eq!(
        (&gone["unitPrice"]["amount"], &gone["total"]["amount"]),
        (&json!("10.00"), &json!("20.00"))
    );
    assert_eq!(cart["subtotal"]["amount"], "47.02", "without the one that is gone");
    assert_eq!(cart["totalQuantity"], 6);
    let [changed, missing] = &cart["notices"].as_array().unwrap()[..] else {
        panic!("{}", cart["notices"])
    };
    assert_eq!((&changed["code"], &changed["productId"]), (&json!("PRICE_CHANGED"), &json!("A")));
    assert_eq!(changed["priceWhenAdded"]["amount"], "10.00");
    assert_eq!(changed["currentPrice"]["amount"], "12.34");
    assert_eq!((&missing["code"], &missing["productId"]), (&json!("PRODUCT_GONE"), &json!("B")));
    // To set it again is to accept the new price.
    let cart = done(shopper.update(&[("A", 3)], None).await);
    assert_eq!(notices(&cart, "PRICE_CHANGED"), [&Value::Null; 0]);
    assert_eq!(cart["lines"][0]["name"], "Новое имя");
    done(shopper.remove(&["B"], None).await);

    // The zone of the argument counts, then the session's, then the one that has most.
    let jwt = shopper.token.clone();
    let away = visit_with(http, Some(&jwt), json!({ "geoZone": "Омск" })).await;
    let away = Shopper::new(server, &away.token);
    let of_zone = "query($zone: String) {
        cart { notices(geoZone: $zone) { code productId quantity } } }";
    let short = |id: &str, left: i64| json!({ "code": "NOT_ENOUGH_STOCK", "productId": id, "quantity": left });
    for (who, zone, expected) in [
        (&shopper, None, json!([])),
        (&shopper, Some("Омск"), json!([short("A", 1), short("C", 0)])),
        (&shopper, Some("Нигде"), json!([short("A", 0), short("C", 0)])),
        (&away, None, json!([short("A", 1), short("C", 0)])),
        (&away, Some("Тула"), json!([])),
    ] {
        let data = who.data(of_zone, json!({ "zone": zone })).await;
        assert_eq!(data["cart"]["notices"], expected, "{zone:?}");
    }
    set_stock(http, &[("A", "Тула", 2), ("C", "Тула", 0)]).await;
    let data = shopper.data(of_zone, json!({})).await;
    assert_eq!(data["cart"]["notices"], json!([short("A", 2), short("C", 0)]));
    for zone in ["", " ", "a\u{0}b", &"я".repeat(65)] {
        let answer = http.query_as(&jwt, of_zone, json!({ "zone": zone })).await;
        assert_eq!(answer.code(), "BAD_USER_INPUT", "{zone:?}");
    }
}

#[tokio::test]
async fn everything_wrong_with_lines_is_said_at_once_and_nothing_is_changed() {
    let server = TestServer::start().await;
    sell(&server.http, &[product("A", "Дом", "10"), product("B", "Дом", "3")]).await;
    let shopper = Shopper::customer(&server, "customer-1");
    let before = shopper.put(&[("A", 1)]).await;
    let long = "x".repeat(65);
    let wrong = [
        ("A", 0),
        ("A", -1),
        ("A", 1_000),
        ("A", 2_147_483_647),
        ("Нет такого", 1),
        ("", 1),
        (&long, 1),
        ("a\u{0}b", -5),
    ];
    let named = |path: &str, code: &str| fault(&format!("lines.{path}"), code);
    let common = [
        named("1.quantity", "INVALID"),
        named("2.quantity", "INVALID"),
        named("3.quantity", "INVALID"),
        named("4.productId", "NOT_FOUND"),
        named("5.productId", "BLANK"),
        named("6.productId", "TOO_LONG"),
        named("7.productId", "INVALID"),
        named("7.quantity", "INVALID"),
    ];
    let added = shopper.add(&wrong, Some("")).await;
    let mut expected = vec![fault("idempotencyKey", "BLANK"), named("0.quantity", "INVALID")];
    expected.extend(common.clone());
    assert_eq!(faults(&added), expected);
    // 0 units is a way to take something out.
    let updated = shopper.update(&wrong, None).await;
    assert_eq!(faults(&updated), common);
    let removed = shopper.remove(&["A", "", &long, "a\u{7f}b"], None).await;
    let expected = [
        fault("productIds.1", "BLANK"),
        fault("productIds.2", "TOO_LONG"),
        fault("productIds.3", "INVALID"),
    ];
    assert_eq!(faults(&removed), expected);
    let twice = shopper.update(&[("A", 2), ("B", 1), ("A", 2)], None).await;
    assert_eq!(faults(&twice), [named("2.productId", "DUPLICATE")]);
    let twice = shopper.update(&[("A", 0), ("A", 2)], None).await;
    assert_eq!(faults(&twice), [named("1.productId", "DUPLICATE")]);
    for payload in [added, updated, removed, twice] {
        assert_eq!(payload["cart"], before);
    }
    let ids = many(101);
    for (payload, path, code) in [
        (shopper.add(&[], None).await, "lines", "BLANK"),
        (shopper.update(&[], None).await, "lines", "BLANK"),
        (shopper.remove(&[], None).await, "productIds", "BLANK"),
        (shopper.add(&of_each(&ids, 1), None).await, "lines", "TOO_MANY"),
        (shopper.update(&of_each(&ids, 0), None).await, "lines", "TOO_MANY"),
        (
            shopper.remove(&ids.iter().map(String::as_str).collect::<Vec<_>>(), None).await,
            "productIds",
            "TOO_MANY",
        ),
    ] {
        assert_eq!(faults(&payload), [fault(path, code)]);
        assert_eq!(payload["cart"], before);
    }
    // 2³¹ is no Int at all, and neither is a fraction or a text.
    for quantity in [json!(1_i64 << 31), json!(-1_i64 - (1 << 31)), json!(1.5), json!("1")] {
        let variables = json!({ "lines": [{ "productId": "A", "quantity": quantity }] });
        let answer =
            server.http.query_as(&shopper.token, &mutation("cartLinesAdd"), variables).await;
        assert_eq!(answer.code(), "BAD_USER_INPUT", "{quantity}");
    }
    assert_eq!(shopper.cart().await, before);
}

#[tokio::test]
async fn a_cart_has_so_many_lines_and_units_and_one_currency() {
    let server = TestServer::start().await;
    let ids = many(101);
    sell_all(&server.http, &ids).await;
    let mut dollars = product("USD", "Книги", "5");
    dollars["price"]["currencyCode"] = json!("USD");
    sell(&server.http, &[dollars]).await;
    let shopper = Shopper::guest(&server).await;
    let refused = async |payload: Value, codes: &[&str]| {
        let told = faults(&payload);
        let told: Vec<_> = told.iter().map(|(path, code)| (path.as_str(), code.as_str())).collect();
        let place =
            |code: &&str| if *code == "QUANTITY_LIMIT" { "lines.0.quantity" } else { "lines" };
        let expected: Vec<_> = codes.iter().map(|code| (place(code), *code)).collect();
        assert_eq!(told, expected, "{}", payload["userErrors"]);
        assert_eq!(payload["cart"], shopper.cart().await);
    };
    // Units: what is there and what comes, in however many lines.
    assert_eq!(lines(&shopper.put(&[("P000", 500), ("P000", 499)]).await), [("P000", 999)]);
    refused(shopper.add(&[("P000", 1)], None).await, &["QUANTITY_LIMIT"]).await;
    let sum = shopper.add(&[("P001", 998), ("P001", 1), ("P001", 1)], None).await;
    assert_eq!(faults(&sum), [fault("lines.2.quantity", "QUANTITY_LIMIT")]);
    refused(shopper.add(&[("P000", 999)], None).await, &["QUANTITY_LIMIT"]).await;
    assert_eq!(shopper.badge().await, 999);
    done(shopper.update(&[("P000", 999)], None).await);
    done(shopper.update(&[("P000", 1)], None).await);
    // One currency, unless what is in another goes.
    refused(shopper.add(&[("USD", 1)], None).await, &["CURRENCY_MISMATCH"]).await;
    refused(shopper.update(&[("USD", 1)], None).await, &["CURRENCY_MISMATCH"]).await;
    let cart = done(shopper.update(&[("USD", 1), ("P000", 0)], None).await);
    assert_eq!(cart["subtotal"], json!({ "amount": "5.00", "currencyCode": "USD" }));
    refused(shopper.add(&[("P000", 1), ("USD", 1)], None).await, &["CURRENCY_MISMATCH"]).await;
    done(shopper.clear(None).await);
    refused(shopper.add(&[("P000", 1), ("USD", 1)], None).await, &["CURRENCY_MISMATCH"]).await;
    // Lines.
    let cart = shopper.put(&of_each(&ids[..100], 1)).await;
    assert_eq!(cart["lines"].as_array().unwrap().len(), 100);
    refused(shopper.add(&[("P100", 1)], None).await, &["CART_FULL"]).await;
    refused(
        shopper.add(&[("P000", 999), ("P100", 1)], None).await,
        &["CART_FULL", "QUANTITY_LIMIT"],
    )
    .await;
    refused(shopper.update(&[("P100", 1)], None).await, &["CART_FULL"]).await;
    shopper.put(&[("P099", 998)]).await;
    let cart = done(shopper.update(&[("P100", 1), ("P000", 0)], None).await);
    assert_eq!(cart["lines"].as_array().unwrap().len(), 100);
    assert_eq!(cart["totalQuantity"], 98 + 999 + 1);
}

/// What an answer took, as its extensions tell.
fn reads(answer: &Value) -> i64 {
    answer["extensions"]["reads"]["storeReads"].as_i64().unwrap()
}

#[tokio::test]
async fn a_cart_is_read_in_two_rounds_however_long_it_is() {
    let store = TestStore::embedded().await;
    let server = TestServer::start_on(store, |config| config.tells_reads = true).await;
    let ids = many(100);
    sell_all(&server.http, &ids).await;
    let stock: Vec<_> = ids.iter().map(|id| (id.as_str(), "Тула", 5)).collect();
    set_stock(&server.http, &stock).await;
    let shopper = Shopper::guest(&server).await;
    shopper.put(&of_each(&ids, 1)).await;
    // What an instance that has nothing in memory reads for this.
    let cold = async |query: &str| {
        let cold = server.beside(|config| config.tells_reads = true).await;
        let variables = if query.contains("$ids") { json!({ "ids": ids }) } else { json!({}) };
        let answer = cold.http.query_as(&shopper.token, query, variables).await;
        assert_eq!(answer.code(), "", "{}", answer.text());
        reads(&answer.json())
    };
    assert_eq!(cold("{ cart { totalQuantity } }").await, 1);
    assert_eq!(cold("{ a: cart { totalQuantity } b: cart { id lines { name } } }").await, 1);
    // The cart, and then what the products of all its lines take when they are asked for at once.
    let products = cold("query($ids: [ID!]!) { products(ids: $ids) { id } }").await;
    assert!(products < 10, "{products} reads for 100 products");
    let priced = "lines { product { id } unitPrice { amount } total { amount } }
        subtotal { amount }";
    assert_eq!(cold(&format!("{{ cart {{ {priced} }} }}")).await, 1 + products);
    assert_eq!(cold("{ cart { lines { product { id } } } }").await, 1 + products);
    let stocked = "lines { product { id stock(geoZone: \"Тула\") { available } } }";
    assert_eq!(cold(&format!("{{ cart {{ {stocked} }} }}")).await, 1 + products + 1);
    // Stock of all lines is one more, in the same round as the products.
    let whole = format!("{{ cart {{ {priced} notices(geoZone: \"Тула\") {{ code }} }} }}");
    assert_eq!(cold(&whole).await, 1 + products + 1);
    // Staff are told without that.
    let answer = server.http.query_as(&manager(), "{ cart { totalQuantity } }", json!({})).await;
    assert_eq!(reads(&answer.json()), 1);
}
