//! What staff may change: a batch is stored whole or not at all, and everything wrong with it is
//! said at once.

use serde_json::{Value, json};

use super::{DELETE, UPSERT, data, delete, product, staff, stock, upsert};
use crate::support::http::Answer;
use crate::support::server::TestServer;

on_every_server! {
    everything_wrong_with_a_batch_is_said_at_once_and_nothing_is_stored,
    what_is_stored_again_replaces_what_was_there,
    deleting_keeps_the_order_and_can_be_repeated,
}

async fn everything_wrong_with_a_batch_is_said_at_once_and_nothing_is_stored(server: &TestServer) {
    let mut wrong = product("two", "Книги", "1.005");
    wrong["name"] = json!("");
    wrong["imageUrl"] = json!("x".repeat(2_001));
    wrong["description"] = json!("я".repeat(10_001));
    wrong["price"]["currencyCode"] = json!("руб");
    wrong["attributes"] = json!([
        { "name": "Цвет", "value": "чёрный" }, { "name": "Цвет", "value": "" },
    ]);
    let mut many = product("three", "К".repeat(101).as_str(), "-0.01");
    many["attributes"] = (0..51).map(|n| json!({ "name": n.to_string(), "value": "x" })).collect();
    let mut control = product("four", "Книги", "100000000000.01");
    control["id"] = json!("a\u{0}b");
    let batch = [product("one", "Книги", "1"), wrong, many, product("one", "Книги", "1"), control];
    let payload = upsert(&server.http, &batch).await;
    assert_eq!(payload["products"], json!([]));
    let mut faults: Vec<(String, String)> = payload["userErrors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| {
            assert_ne!(fault["message"], "");
            let path: Vec<_> =
                fault["field"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
            (path.join("."), fault["code"].as_str().unwrap().to_owned())
        })
        .collect();
    faults.sort();
    let faults: Vec<_> = faults.iter().map(|(path, code)| (path.as_str(), code.as_str())).collect();
    assert_eq!(
        faults,
        [
            ("products.1.attributes.1.name", "DUPLICATE"),
            ("products.1.attributes.1.value", "BLANK"),
            ("products.1.description", "TOO_LONG"),
            ("products.1.imageUrl", "TOO_LONG"),
            ("products.1.name", "BLANK"),
            ("products.1.price.amount", "INVALID"),
            ("products.1.price.currencyCode", "INVALID"),
            ("products.2.attributes", "TOO_MANY"),
            ("products.2.category", "TOO_LONG"),
            ("products.2.price.amount", "INVALID"),
            ("products.3.id", "DUPLICATE"),
            ("products.4.id", "INVALID"),
            ("products.4.price.amount", "INVALID"),
        ]
    );
    let left = r#"{ product(id: "one") { id } categories { name } }"#;
    let left = data(&server.http, left, json!({})).await;
    assert_eq!(left, json!({ "product": null, "categories": [] }));
}

async fn what_is_stored_again_replaces_what_was_there(server: &TestServer) {
    let query = "{ product(id: 1) {
        name description imageUrl attributes { name } price { amount } createdAt updatedAt } }";
    let mut card = product("1", "Книги", "10");
    card["description"] = json!("Старое");
    card["imageUrl"] = json!("https://example.com/1.png");
    card["attributes"] = json!([{ "name": "Цвет", "value": "белый" }]);
    stock(&server.http, &[card]).await;
    let first = data(&server.http, query, json!({})).await["product"].take();
    assert_eq!(first["description"], "Старое");

    // What the new card leaves out is gone, not left over from the old one.
    stock(&server.http, &[product("1", "Книги", "12.5")]).await;
    let second = data(&server.http, query, json!({})).await["product"].take();
    assert_eq!(second["description"], Value::Null);
    assert_eq!(second["imageUrl"], Value::Null);
    assert_eq!(second["attributes"], json!([]));
    assert_eq!(second["price"]["amount"], "12.50");
    assert_eq!(second["createdAt"], first["createdAt"]);
    assert!(second["updatedAt"].as_str() >= first["updatedAt"].as_str());
}

async fn deleting_keeps_the_order_and_can_be_repeated(server: &TestServer) {
    let cards = ["a", "b", "c"].map(|id| product(id, "Книги", "1"));
    stock(&server.http, &cards).await;
    let deleted = delete(&server.http, &["c", "нет", "a", "c"]).await;
    assert_eq!(deleted, json!({ "deletedIds": ["c", "a"], "userErrors": [] }));
    let again = delete(&server.http, &["c", "a"]).await;
    assert_eq!(again, json!({ "deletedIds": [], "userErrors": [] }));
    let left =
        data(&server.http, "{ products(ids: [\"a\", \"b\", \"c\"]) { id } }", json!({})).await;
    assert_eq!(left["products"], json!([null, { "id": "b" }, null]));

    // A product that comes back is a new one and is counted again.
    stock(&server.http, &[product("a", "Книги", "1")]).await;
    let count =
        data(&server.http, "{ category(name: \"Книги\") { productCount } }", json!({})).await;
    assert_eq!(count["category"]["productCount"], 2);
}

#[tokio::test]
async fn malformed_ids_are_named_and_nothing_is_deleted() {
    let server = TestServer::start().await;
    stock(&server.http, &[product("a", "Книги", "1")]).await;
    let long = "x".repeat(65);
    let mut payload = delete(&server.http, &["a", "", &long, "b\n"]).await;
    assert_eq!(payload["deletedIds"], json!([]));
    let faults = payload["userErrors"].as_array_mut().unwrap();
    let fields: Vec<_> = faults.iter_mut().map(|fault| fault["field"].take()).collect();
    assert_eq!(fields, [json!(["ids", "1"]), json!(["ids", "2"]), json!(["ids", "3"])]);
    assert!(!payload.to_string().contains(&long));
    let left = data(&server.http, "{ product(id: \"a\") { id } }", json!({})).await;
    assert_eq!(left["product"]["id"], "a");
}

#[tokio::test]
async fn a_batch_has_at_most_100_entries() {
    let server = TestServer::start().await;
    let batch = |count: usize| -> Vec<Value> {
        (0..count).map(|id| product(&id.to_string(), "Книги", "1")).collect()
    };
    stock(&server.http, &batch(100)).await;
    for (query, variables) in [
        (UPSERT, json!({ "products": batch(101) })),
        (DELETE, json!({ "ids": (0..101).collect::<Vec<_>>() })),
    ] {
        let refused = server.http.query_as(&staff(), query, variables).await;
        assert_eq!(refused.code(), "BAD_USER_INPUT");
        assert_eq!(refused.json()["data"], Value::Null);
    }
    let count =
        data(&server.http, "{ category(name: \"Книги\") { productCount } }", json!({})).await;
    assert_eq!(count["category"]["productCount"], 100);
}

#[tokio::test]
async fn an_empty_batch_changes_nothing() {
    let server = TestServer::start().await;
    assert_eq!(upsert(&server.http, &[]).await, json!({ "products": [], "userErrors": [] }));
    let nothing = json!({ "deletedIds": [], "userErrors": [] });
    assert_eq!(delete(&server.http, &[]).await, nothing);
}

#[tokio::test]
async fn what_is_no_exact_decimal_is_refused() {
    let server = TestServer::start().await;
    for amount in [
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!("ECHOME"),
        json!(""),
        json!(" 1"),
        json!("1,50"),
        json!("1e3"),
        json!("NaN"),
        json!("Infinity"),
        json!("0x10"),
        json!("+-1"),
        json!("٣"),
        json!("1".repeat(41)),
        json!(format!("0.{}1", "0".repeat(30))),
        json!("79228162514264337593543950336"),
        json!(true),
        json!(null),
        json!(["1"]),
        json!({ "ECHOME": 1 }),
    ] {
        let mut card = product("1", "Книги", "0");
        card["price"]["amount"] = amount.clone();
        let refused = server.http.query_as(&staff(), UPSERT, json!({ "products": [card] })).await;
        assert_refused(&refused, &amount);
    }
    // The same in the text of the document, where another check looks at it.
    for amount in ["1.5", "1e3", "\"ECHOME\"", "ECHOME", "true", "null", "[]", "{}", "-"] {
        let query = format!(
            "mutation {{ productsUpsert(products: [{{ id: 1, name: \"x\", category: \"y\", \
             price: {{ amount: {amount} }} }}]) {{ userErrors {{ message }} }} }}"
        );
        let refused = server.http.query_as(&staff(), &query, json!({})).await;
        assert_refused(&refused, &json!(amount));
    }
    let left = data(&server.http, "{ product(id: 1) { id } }", json!({})).await;
    assert_eq!(left["product"], Value::Null);
}

/// What could be an amount by its type is a fault of the batch, with its path; the rest is an error.
fn assert_refused(refused: &Answer, amount: &Value) {
    let text = refused.text();
    assert!(!text.contains("ECHOME"), "{text}");
    let errors = &refused.json()["data"]["productsUpsert"]["userErrors"];
    if errors.is_array() {
        assert_eq!(errors.as_array().unwrap().len(), 1, "{amount}: {text}");
        assert!(errors[0]["message"].as_str().unwrap().contains("decimal"), "{amount}: {text}");
    } else {
        assert_eq!(refused.code(), "BAD_USER_INPUT", "{amount}: {text}");
    }
}

#[tokio::test]
async fn an_amount_that_is_no_number_hides_no_other_fault() {
    let server = TestServer::start().await;
    let mut card = product("1", "Книги", "1,50");
    card["name"] = json!("");
    let batch = json!({ "products": [card, product("2", "", "-1")] });
    let answer = server.http.query_as(&staff(), UPSERT, batch).await.json();
    let errors = answer["data"]["productsUpsert"]["userErrors"].as_array().unwrap();
    let mut paths: Vec<_> = errors
        .iter()
        .map(|error| {
            let path = error["field"].as_array().unwrap().iter();
            path.map(|step| step.as_str().unwrap()).collect::<Vec<_>>().join(".")
        })
        .collect();
    paths.sort();
    let expected = ["0.name", "0.price.amount", "1.category", "1.price.amount"];
    assert_eq!(paths, expected.map(|path| format!("products.{path}")));
}

#[tokio::test]
async fn texts_at_their_limits_are_stored() {
    let server = TestServer::start().await;
    let id = "я".repeat(64);
    let mut card = product(&id, &"К".repeat(100), "100000000000");
    card["name"] = json!("ё".repeat(300));
    card["description"] = json!("ж".repeat(10_000));
    card["imageUrl"] = json!("x".repeat(2_000));
    card["attributes"] = (0..50)
        .map(|n| json!({ "name": format!("{n:0>100}"), "value": "щ".repeat(100) }))
        .collect();
    stock(&server.http, &[card]).await;
    let query = "query($id: ID!) { product(id: $id) { name description attributes { value } } }";
    let found = data(&server.http, query, json!({ "id": id })).await["product"].take();
    assert_eq!(found["name"], "ё".repeat(300));
    assert_eq!(found["description"], "ж".repeat(10_000));
    assert_eq!(found["attributes"].as_array().unwrap().len(), 50);
}

#[tokio::test]
async fn mutations_of_one_request_run_one_after_another() {
    let server = TestServer::start().await;
    let query = "mutation($a: [ProductInput!]!, $b: [ProductInput!]!) {
        first: productsUpsert(products: $a) { products { price { amount } } }
        gone: productsDelete(ids: [1]) { deletedIds }
        last: productsUpsert(products: $b) { products { price { amount } } }
    }";
    let batch = |amount| [product("1", "Книги", amount)];
    let variables = json!({ "a": batch("1"), "b": batch("2") });
    let answer = server.http.query_as(&staff(), query, variables).await.json();
    assert_eq!(
        answer["data"],
        json!({
            "first": { "products": [{ "price": { "amount": "1.00" } }] },
            "gone": { "deletedIds": ["1"] },
            "last": { "products": [{ "price": { "amount": "2.00" } }] },
        })
    );
}
