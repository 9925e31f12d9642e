//! What an answer looks like, by the specification of GraphQL: order, nulls, merged fields.

use serde_json::{Value, json};

use super::{data, product, staff, stock};
use crate::support::server::TestServer;

/// A shop with the product `1`.
async fn shop() -> TestServer {
    let server = TestServer::start().await;
    stock(&server.http, &[product("1", "Книги", "1.5")]).await;
    server
}

#[tokio::test]
async fn an_answer_has_its_fields_in_the_order_of_the_query() {
    let server = shop().await;
    // The root fields wait for different reads, so they are not ready in this order.
    let query = r"{ z: categories { productCount name } __typename a: product(id: 1) { ...Card id }
                    y: products(ids: [1]) { price { currencyCode amount } id } }
                  fragment Card on Product { name category { productCount name } }";
    let answer = server.http.query(query, json!({})).await;
    assert_eq!(
        answer.text(),
        "{\"data\":{\"z\":[{\"productCount\":1,\"name\":\"Книги\"}],\"__typename\":\"Query\",\
         \"a\":{\"name\":\"Товар 1\",\"category\":{\"productCount\":1,\"name\":\"Книги\"},\
         \"id\":\"1\"},\"y\":[{\"price\":{\"currencyCode\":\"RUB\",\"amount\":\"1.50\"},\
         \"id\":\"1\"}]}}"
    );
}

#[tokio::test]
async fn a_field_that_fails_is_null_beside_the_others() {
    let server = shop().await;
    let query =
        r#"{ a: product(id: "") { id } b: product(id: 1) { id } c: product(id: "") { id } }"#;
    let answer = server.http.query(query, json!({})).await;
    assert_eq!(answer.status, 200);
    let answer = answer.json();
    assert_eq!(answer["data"], json!({ "a": null, "b": { "id": "1" }, "c": null }));
    let paths: Vec<_> = answer["errors"].as_array().unwrap().iter().map(|e| &e["path"]).collect();
    assert_eq!(paths, [&json!(["a"]), &json!(["c"])]);
    for error in answer["errors"].as_array().unwrap() {
        assert_eq!(error["extensions"]["code"], "BAD_USER_INPUT");
        assert!(error["locations"][0]["line"].is_u64());
    }
}

#[tokio::test]
async fn a_field_that_fails_alone_is_null_too() {
    let server = shop().await;
    let answer = server.http.query(r#"{ product(id: "") { id } }"#, json!({})).await.json();
    assert_eq!(answer["data"], json!({ "product": null }));
}

#[tokio::test]
async fn a_field_that_must_not_be_null_takes_its_parent_with_it() {
    let server = shop().await;
    let query = r#"{ products(ids: [""]) { id } b: product(id: 1) { id } }"#;
    let answer = server.http.query(query, json!({})).await.json();
    assert_eq!(answer["data"], Value::Null);
    assert!(answer.as_object().unwrap().contains_key("data"));
    assert_eq!(answer["errors"][0]["path"], json!(["products"]));
}

#[tokio::test]
async fn an_object_of_which_nothing_is_selected_is_empty_and_not_null() {
    let server = shop().await;
    let query = "query($no: Boolean!) { categories @include(if: $no) { name } }";
    let answer = server.http.query(query, json!({ "no": false })).await.json();
    assert_eq!(answer, json!({ "data": {} }));
    let query = "query($no: Boolean!) { product(id: 1) { id @include(if: $no) } }";
    let answer = server.http.query(query, json!({ "no": false })).await.json();
    assert_eq!(answer, json!({ "data": { "product": {} } }));
}

/// A product is written at once if nothing of it has to be waited for, and by its resolvers
/// otherwise: both ways give the same.
#[tokio::test]
async fn what_is_written_at_once_is_what_the_resolvers_give() {
    let server = TestServer::start().await;
    let mut full = product("1", "Книги", "1.5");
    full["description"] = json!("Строка\n«ещё»");
    full["imageUrl"] = json!("/images/1.svg");
    full["attributes"] =
        json!([{ "name": "Цвет", "value": "чёрный" }, { "name": "A", "value": "b" }]);
    stock(&server.http, &[full, product("2", "Книги", "0")]).await;
    let fields = "__typename id name description price { __typename amount c: currencyCode }
                  attributes { value __typename n: name } imageUrl createdAt updatedAt";
    let at_once =
        format!("{{ products(ids: [1, 2]) {{ {fields} category {{ __typename name }} }} }}");
    let waiting = format!(
        "{{ products(ids: [1, 2]) {{ {fields} category {{ __typename name productCount }} }} }}"
    );
    let at_once = data(&server.http, &at_once, json!({})).await;
    let mut waiting = data(&server.http, &waiting, json!({})).await;
    for product in waiting["products"].as_array_mut().unwrap() {
        let count = product["category"].as_object_mut().unwrap().remove("productCount");
        assert_eq!(count, Some(json!(2)));
    }
    assert_eq!(at_once, waiting);
    // Every field of the type is among them.
    let introspection = "{ __type(name: \"Product\") { fields { name } } }";
    let known = data(&server.http, introspection, json!({})).await;
    for field in known["__type"]["fields"].as_array().unwrap() {
        let name = field["name"].as_str().unwrap();
        // Stock is another domain's, and always waited for.
        if name.starts_with("stock") {
            continue;
        }
        assert!(at_once["products"][0].get(name).is_some(), "{name} is not compared");
    }
}

#[tokio::test]
async fn every_alias_is_the_clients_own() {
    let server = shop().await;
    let found =
        data(&server.http, "{ _nothing: product(id: 1) { _nothing: id } }", json!({})).await;
    assert_eq!(found, json!({ "_nothing": { "_nothing": "1" } }));
}

#[tokio::test]
async fn one_bad_name_does_not_fail_its_neighbours() {
    let server = shop().await;
    let query = r#"{ a: category(name: "") { name } b: category(name: "Книги") { name } }"#;
    let answer = server.http.query(query, json!({})).await.json();
    assert_eq!(answer["data"], json!({ "a": null, "b": { "name": "Книги" } }));
    assert_eq!(answer["errors"][0]["path"], json!(["a"]));
}

#[tokio::test]
async fn fields_of_one_name_are_one_field() {
    let server = shop().await;
    let query = "{ product(id: 1) { id } ...F product(id: 1) { price { currencyCode } } }
                 fragment F on Query { product(id: 1) { price { amount } name } }";
    let found = data(&server.http, query, json!({})).await;
    let price = json!({ "amount": "1.50", "currencyCode": "RUB" });
    assert_eq!(found["product"], json!({ "id": "1", "price": price, "name": "Товар 1" }));
}

#[tokio::test]
async fn a_mutation_that_is_named_twice_is_carried_out_once() {
    let server = shop().await;
    let query = "mutation {
        productsDelete(ids: [1]) { userErrors { code } }
        productsDelete(ids: [1]) { deletedIds }
    }";
    let answer = server.http.query_as(&staff(), query, json!({})).await.json();
    let expected = json!({ "productsDelete": { "userErrors": [], "deletedIds": ["1"] } });
    assert_eq!(answer["data"], expected);
}

#[tokio::test]
async fn skip_and_include_decide_what_is_asked() {
    let server = shop().await;
    let query = "query($yes: Boolean!, $no: Boolean = false) {
        a: product(id: 1) @skip(if: $yes) { id }
        b: product(id: 1) @include(if: $yes) { id name @include(if: $no) ... @skip(if: $no) { __typename } }
        ...F @include(if: $no)
    } fragment F on Query { categories { name } }";
    let found = data(&server.http, query, json!({ "yes": true })).await;
    assert_eq!(found, json!({ "b": { "id": "1", "__typename": "Product" } }));
}

#[tokio::test]
async fn defaults_stand_in_for_variables_that_are_left_out() {
    let server = shop().await;
    let query = "query($id: ID! = 1) { product(id: $id) { id } }";
    let found = data(&server.http, query, json!({})).await;
    assert_eq!(found["product"]["id"], "1");
    let found = data(&server.http, query, json!({ "id": "2" })).await;
    assert_eq!(found["product"], Value::Null);
    let refused = server.http.query(query, json!({ "id": null })).await;
    assert_eq!(refused.code(), "BAD_USER_INPUT");
}

#[tokio::test]
async fn one_value_stands_for_a_list_of_one() {
    let server = shop().await;
    let query = "query($ids: [ID!]!) { products(ids: $ids) { id } }";
    let found = data(&server.http, query, json!({ "ids": "1" })).await;
    assert_eq!(found["products"], json!([{ "id": "1" }]));
    let found = data(&server.http, "{ products(ids: 1) { id } }", json!({})).await;
    assert_eq!(found["products"], json!([{ "id": "1" }]));
}
