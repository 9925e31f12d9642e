//! Stock over HTTP: what shoppers are shown, and what staff may change.

use serde_json::{Value, json};

use super::{data, delete, faults, product, staff, stock as sell};
use crate::support::gate::Gate;
use crate::support::http::HttpClient;
use crate::support::server::{TestServer, token};
use crate::support::stores::TestStore;
use vitrina::config::CacheConfig;
use vitrina::server::Role;

on_every_server! {
    a_product_shows_its_stock_in_every_zone,
    stock_is_the_same_by_every_way_to_it,
    what_is_set_is_shown_at_once,
    an_adjustment_is_carried_out_once_for_its_key,
    everything_wrong_with_a_batch_is_said_at_once_and_nothing_is_changed,
    only_staff_may_change_stock,
    stock_outlives_its_product,
}

const SET: &str = "mutation($entries: [StockInput!]!) { stockSet(entries: $entries) {
    stocks { geoZone available status product { id } } userErrors { code field message } } }";
const ADJUST: &str = "mutation($entries: [StockAdjustInput!]!) { stockAdjust(entries: $entries) {
    stocks { geoZone available } userErrors { code field message } } }";
const SHOWN: &str = "query($id: ID!, $zone: String!) { product(id: $id) {
    stock(geoZone: $zone) { available status geoZone updatedAt product { name } }
    stocks { geoZone available } } }";

fn entry(product: &str, zone: &str, quantity: i64) -> Value {
    json!({ "productId": product, "geoZone": zone, "quantity": quantity })
}

fn delta(product: &str, delta: i64, key: &str) -> Value {
    json!({ "productId": product, "geoZone": "Москва", "delta": delta, "idempotencyKey": key })
}

/// Calls a mutation as staff; its payload.
async fn change(http: &HttpClient, mutation: &str, entries: &[Value]) -> Value {
    let answer = http.query_as(&staff(), mutation, json!({ "entries": entries })).await;
    let mut answer = answer.json();
    assert_eq!(answer["errors"], Value::Null, "{answer}");
    let data = answer["data"].as_object_mut().unwrap();
    data.values_mut().next().unwrap().take()
}

async fn a_product_shows_its_stock_in_every_zone(server: &TestServer) {
    sell(&server.http, &[product("A", "Книги", "10"), product("B", "Книги", "20")]).await;
    let entries = [entry("A", "СПб", 5), entry("A", "Москва", 6), entry("A", "Казань", 0)];
    let payload = change(&server.http, SET, &entries).await;
    assert_eq!(payload["userErrors"], json!([]));
    assert_eq!(payload["stocks"][0]["product"]["id"], "A");
    let shown = data(&server.http, SHOWN, json!({ "id": "A", "zone": "Москва" })).await;
    let stock = &shown["product"]["stock"];
    assert_eq!((&stock["available"], &stock["status"]), (&json!(6), &json!("IN_STOCK")));
    assert_eq!(stock["product"]["name"], "Товар A");
    assert!(stock["updatedAt"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        shown["product"]["stocks"],
        json!([
            { "geoZone": "Казань", "available": 0 },
            { "geoZone": "Москва", "available": 6 },
            { "geoZone": "СПб", "available": 5 },
        ])
    );
    let statuses = "{ a: product(id: \"A\") { few: stock(geoZone: \"СПб\") { status }
        none: stock(geoZone: \"Казань\") { status } unknown: stock(geoZone: \"Омск\") { status } }
        b: product(id: \"B\") { stocks { geoZone } stock(geoZone: \"Москва\") { available } } }";
    assert_eq!(
        data(&server.http, statuses, json!({})).await,
        json!({
            "a": { "few": { "status": "LOW_STOCK" }, "none": { "status": "OUT_OF_STOCK" },
                   "unknown": null },
            "b": { "stocks": [], "stock": null },
        })
    );
    let blank = "{ product(id: \"A\") { stock(geoZone: \" \") { available } } }";
    let answer = server.http.query(blank, json!({})).await.json();
    assert_eq!(answer["errors"][0]["extensions"]["code"], "BAD_USER_INPUT", "{answer}");
    assert_eq!(answer["data"]["product"]["stock"], Value::Null);
}

/// What is read ahead is written with its product; what is asked for beside it waits for others.
async fn stock_is_the_same_by_every_way_to_it(server: &TestServer) {
    let products: Vec<_> = ["A", "B", "C"].map(|id| product(id, "Книги", "10")).into();
    sell(&server.http, &products).await;
    let entries = [entry("A", "Москва", 6), entry("B", "Москва", 0), entry("B", "Тула", 3)];
    change(&server.http, SET, &entries).await;
    let asked = "id here: stock(geoZone: $zone) { available status geoZone } \
                 there: stock(geoZone: \"Тула\") { __typename available status }";
    let waits = format!("{asked} stocks {{ geoZone }}");
    let query = format!(
        "query($zone: String = \"Москва\", $ids: [ID!]!) {{
            category(name: \"Книги\") {{ products(first: 3) {{
                nodes {{ {asked} }} edges {{ node {{ {asked} }} }} pageInfo {{ hasNextPage }}
            }} }}
            waits: category(name: \"Книги\") {{ products(first: 3) {{ nodes {{ {waits} }} }} }}
            products(ids: $ids) {{ {asked} }}
            product(id: \"B\") {{ {asked} }}
        }}"
    );
    let given = json!({ "ids": ["A", "B", "C"], "zone": "Москва" });
    let shown = data(&server.http, &query, given).await;
    let stock = |here: Value, there: Value| json!({ "here": here, "there": there });
    let told = |available, status| json!({ "available": available, "status": status });
    let (mut a, mut b, mut there) =
        (told(6, "IN_STOCK"), told(0, "OUT_OF_STOCK"), told(3, "LOW_STOCK"));
    (a["geoZone"], b["geoZone"]) = ("Москва".into(), "Москва".into());
    there["__typename"] = "Stock".into();
    let mut wanted = [stock(a, Value::Null), stock(b, there), stock(Value::Null, Value::Null)];
    for (product, id) in wanted.iter_mut().zip(["A", "B", "C"]) {
        product["id"] = id.into();
    }
    let page = &shown["category"]["products"];
    assert_eq!(page["nodes"], json!(wanted));
    let edges = page["edges"].as_array().unwrap().iter().map(|edge| edge["node"].clone());
    assert_eq!(edges.collect::<Vec<_>>(), wanted);
    assert_eq!(page["pageInfo"]["hasNextPage"], false);
    assert_eq!(shown["products"], json!(wanted));
    assert_eq!(shown["product"], wanted[1]);
    let mut waited = shown["waits"]["products"]["nodes"].clone();
    for product in waited.as_array_mut().unwrap() {
        product.as_object_mut().unwrap().remove("stocks").unwrap();
    }
    assert_eq!(waited, json!(wanted));
    // By the variable's default, and with a zone that is none.
    let defaults = data(&server.http, &query, json!({ "ids": ["A", "B", "C"] })).await;
    assert_eq!(defaults, shown);
    let variables = json!({ "ids": ["A"], "zone": "" });
    let answer = server.http.query(&query, variables).await.json();
    let places: Vec<_> = answer["errors"].as_array().unwrap().iter().map(|e| &e["path"]).collect();
    assert!(places.contains(&&json!(["category", "products", "nodes", 2, "here"])), "{answer}");
    assert!(places.contains(&&json!(["products", 0, "here"])), "{answer}");
    assert_eq!(answer["data"]["products"][0]["here"], Value::Null);
    assert_eq!(answer["data"]["products"][0]["id"], "A");
}

async fn what_is_set_is_shown_at_once(server: &TestServer) {
    sell(&server.http, &[product("A", "Книги", "10")]).await;
    let query = "{ product(id: \"A\") { stock(geoZone: \"Москва\") { available }
        stocks { available } } }";
    for quantity in [3, 0, 1_000_000_000, 7] {
        let payload = change(&server.http, SET, &[entry("A", "Москва", quantity)]).await;
        assert_eq!(payload["stocks"][0]["available"], quantity, "{payload}");
        let shown = data(&server.http, query, json!({})).await;
        assert_eq!(shown["product"]["stock"]["available"], quantity);
        assert_eq!(shown["product"]["stocks"][0]["available"], quantity);
    }
}

async fn an_adjustment_is_carried_out_once_for_its_key(server: &TestServer) {
    sell(&server.http, &[product("A", "Книги", "10")]).await;
    let available = |payload: &Value| payload["stocks"][0]["available"].clone();
    let mut first = delta("A", 5, "поставка 1");
    first["reason"] = json!("поставка");
    for _ in 0..3 {
        let payload = change(&server.http, ADJUST, &[first.clone()]).await;
        assert_eq!(available(&payload), 5, "{payload}");
    }
    assert_eq!(available(&change(&server.http, ADJUST, &[delta("A", -2, "бой")]).await), 3);
    let reused = change(&server.http, ADJUST, &[delta("A", 6, "поставка 1")]).await;
    let expected = ("entries.0.idempotencyKey".to_owned(), "KEY_REUSED".to_owned());
    assert_eq!(faults(&reused), [expected]);
    let below = change(&server.http, ADJUST, &[delta("A", -4, "слишком")]).await;
    assert_eq!(faults(&below), [("entries.0.delta".to_owned(), "BELOW_RESERVED".to_owned())]);
    let above = change(&server.http, ADJUST, &[delta("A", 1_000_000_000, "много")]).await;
    assert_eq!(faults(&above), [("entries.0.delta".to_owned(), "INVALID".to_owned())]);
}

async fn everything_wrong_with_a_batch_is_said_at_once_and_nothing_is_changed(server: &TestServer) {
    sell(&server.http, &[product("A", "Книги", "10")]).await;
    let batch = [
        entry("A", "Москва", 1),
        entry("A", "Москва", 2),
        entry("Нет такого", "Москва", 1),
        entry("A", "", -1),
        entry("A", &"я".repeat(65), 1_000_000_001),
        entry("", "a\u{0}b", 1),
    ];
    let payload = change(&server.http, SET, &batch).await;
    let expected = [
        ("entries.1.productId", "DUPLICATE"),
        ("entries.2.productId", "NOT_FOUND"),
        ("entries.3.geoZone", "BLANK"),
        ("entries.3.quantity", "INVALID"),
        ("entries.4.geoZone", "TOO_LONG"),
        ("entries.4.quantity", "INVALID"),
        ("entries.5.geoZone", "INVALID"),
        ("entries.5.productId", "BLANK"),
    ];
    assert_eq!(faults(&payload), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    let mut wrong = delta("A", 0, "");
    wrong["reason"] = json!("х".repeat(301));
    let payload = change(&server.http, ADJUST, &[wrong, delta("A", 1, &"k".repeat(256))]).await;
    let expected = [
        ("entries.0.delta", "INVALID"),
        ("entries.0.idempotencyKey", "BLANK"),
        ("entries.0.reason", "TOO_LONG"),
        ("entries.1.idempotencyKey", "TOO_LONG"),
    ];
    assert_eq!(faults(&payload), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    let shown = data(&server.http, SHOWN, json!({ "id": "A", "zone": "Москва" })).await;
    assert_eq!(shown["product"]["stocks"], json!([]));
    let many: Vec<_> = (0..101).map(|n| entry("A", &n.to_string(), 1)).collect();
    let answer = server.http.query_as(&staff(), SET, json!({ "entries": many })).await.json();
    assert_eq!(answer["errors"][0]["extensions"]["code"], "BAD_USER_INPUT", "{answer}");
    // 2³¹ is no Int at all.
    let huge = json!({ "entries": [entry("A", "Москва", 1 << 31)] });
    let answer = server.http.query_as(&staff(), SET, huge).await.json();
    assert_eq!(answer["errors"][0]["extensions"]["code"], "BAD_USER_INPUT", "{answer}");
    // A hundred zones and no more.
    let zones: Vec<_> = (0..100).map(|n| entry("A", &format!("Зона {n}"), 1)).collect();
    assert_eq!(change(&server.http, SET, &zones).await["userErrors"], json!([]));
    let payload = change(&server.http, SET, &[entry("A", "Ещё одна", 1)]).await;
    assert_eq!(faults(&payload), [("entries.0.geoZone".to_owned(), "TOO_MANY".to_owned())]);
}

async fn only_staff_may_change_stock(server: &TestServer) {
    let variables = || json!({ "entries": [entry("A", "Москва", 1)] });
    let customer = token("customer-1", Role::Customer);
    let answer = server.http.query_as(&customer, SET, variables()).await.json();
    assert_eq!(answer["errors"][0]["extensions"]["code"], "FORBIDDEN");
    let answer = server.http.query(SET, variables()).await.json();
    assert_eq!(answer["errors"][0]["extensions"]["code"], "UNAUTHENTICATED");
    let adjust = json!({ "entries": [delta("A", 1, "k")] });
    let answer = server.http.query_as(&customer, ADJUST, adjust).await.json();
    assert_eq!(answer["errors"][0]["extensions"]["code"], "FORBIDDEN");
}

async fn stock_outlives_its_product(server: &TestServer) {
    sell(&server.http, &[product("A", "Книги", "10")]).await;
    change(&server.http, SET, &[entry("A", "Москва", 4)]).await;
    delete(&server.http, &["A"]).await;
    let payload = change(&server.http, SET, &[entry("A", "Москва", 5)]).await;
    assert_eq!(faults(&payload), [("entries.0.productId".to_owned(), "NOT_FOUND".to_owned())]);
    sell(&server.http, &[product("A", "Книги", "10")]).await;
    let shown = data(&server.http, SHOWN, json!({ "id": "A", "zone": "Москва" })).await;
    assert_eq!(shown["product"]["stock"]["available"], 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stock_of_a_card_is_read_together_with_it() {
    let mut store = TestStore::embedded().await;
    let gate = Gate::new(store.store.clone());
    store.store = gate.clone();
    let server = TestServer::start_on(store, |config| config.cache = CacheConfig::Off).await;
    sell(&server.http, &[product("A", "Книги", "10")]).await;
    change(&server.http, SET, &[entry("A", "Москва", 4)]).await;
    let query = "query($id: ID!, $zone: String!, $not: Boolean!) { product(id: $id) {
        ...Card other: stock(geoZone: \"Тула\") @skip(if: $not) { available } } }
        fragment Card on Product { name stock(geoZone: $zone) { available } }";
    // Both are under way before either is there; what is left out is not read.
    for (id, seen) in
        [("A", json!({ "name": "Товар A", "stock": { "available": 4 } })), ("B", json!(null))]
    {
        gate.open(false);
        let (http, variables) =
            (server.http.clone(), json!({ "id": id, "zone": "Москва", "not": true }));
        let shown = tokio::spawn(async move { data(&http, query, variables).await });
        gate.holds(2).await;
        gate.open(true);
        assert_eq!(shown.await.unwrap()["product"], seen);
    }
    // A zone that is none is told of by the field, as ever.
    let variables = json!({ "id": "A", "zone": "", "not": true });
    let answer = server.http.query(query, variables).await.json();
    assert_eq!(answer["errors"][0]["path"], json!(["product", "stock"]));
    assert_eq!(answer["errors"][0]["extensions"]["code"], "BAD_USER_INPUT");
}
