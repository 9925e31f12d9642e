//! GraphQL over HTTP: methods, media types, status codes.

use serde_json::{Value, json};

use super::{DELETE, get, graphql_path, post, product, staff, stock};
use crate::support::server::TestServer;

const JSON: (&str, &str) = ("content-type", "application/json");
const PREFLIGHT: (&str, &str) = ("apollo-require-preflight", "true");
const TYPENAME: &str = r#"{"query":"{ __typename }"}"#;

#[tokio::test]
async fn status_and_media_type_follow_what_the_client_accepts() {
    let server = TestServer::start().await;
    let (json_type, graph_type) = ("application/json", "application/graphql-response+json");
    let with_data = TYPENAME;
    let partial = r#"{"query":"{ __typename product(id: \"\") { id } }"}"#;
    let not_valid = r#"{"query":"{ nope }"}"#;
    let no_syntax = r#"{"query":"{"}"#;
    let bad_variable = r#"{"query":"query($id: ID!) { product(id: $id) { id } }"}"#;
    let bad_operation = r#"{"query":"{ __typename }","operationName":"X"}"#;
    for (body, json_status, graph_status) in [
        (with_data, 200, 200),
        (partial, 200, 200),
        (not_valid, 200, 400),
        (no_syntax, 200, 400),
        (bad_variable, 200, 400),
        (bad_operation, 200, 400),
        // What is no GraphQL request at all is a 400 in both.
        ("", 400, 400),
        ("{", 400, 400),
        ("null", 400, 400),
        ("\"x\"", 400, 400),
        ("{}", 400, 400),
        (r#"{"query":null}"#, 400, 400),
        (r#"{"query":7}"#, 400, 400),
        (r#"{"query":"{ __typename }","variables":[]}"#, 400, 400),
        (r#"{"query":"{ __typename }","variables":"{}"}"#, 400, 400),
        (r#"{"query":"{ __typename }","operationName":7}"#, 400, 400),
        (r#"{"query":"{ __typename }","extensions":[]}"#, 400, 400),
        (r#"{"query":"{ __typename }"} trailing"#, 400, 400),
        (r#"{"query":"{ __typename }","query":"{ __typename }"}"#, 400, 400),
    ] {
        for (accept, media, status) in [
            ("application/json", json_type, json_status),
            ("*/*", json_type, json_status),
            ("application/*;q=0.1", json_type, json_status),
            ("application/graphql-response+json", graph_type, graph_status),
            ("application/graphql-response+json, application/json;q=0.9", graph_type, graph_status),
            ("application/json;q=0.9, application/graphql-response+json", graph_type, graph_status),
            ("text/html, Application/JSON", json_type, json_status),
        ] {
            let answer = post(&server.http, &[JSON, ("accept", accept)], body).await;
            assert_eq!(answer.status, status, "{accept}: {body}");
            let expected = format!("{media}; charset=utf-8");
            assert_eq!(answer.header("content-type"), expected, "{accept}: {body}");
            assert_eq!(answer.header("cache-control"), "no-store");
            assert!(answer.json()["data"].is_object() || answer.code() == "BAD_USER_INPUT");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_not_accepted_is_not_sent() {
    let server = TestServer::start().await;
    for accept in ["text/html", "image/png, text/*", "application/xml", "application/json;q=0", ""]
    {
        let answer = post(&server.http, &[JSON, ("accept", accept)], TYPENAME).await;
        assert_eq!(answer.status, 406, "{accept}");
        assert_eq!(answer.code(), "BAD_USER_INPUT");
    }
    let answer = post(&server.http, &[JSON], TYPENAME).await;
    assert_eq!(answer.header("content-type"), "application/json; charset=utf-8");
}

#[tokio::test]
async fn a_post_is_json_in_utf_8_or_refused() {
    let server = TestServer::start().await;
    for accepted in [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "Application/JSON; charset=\"utf-8\"",
    ] {
        let answer = post(&server.http, &[("content-type", accepted)], TYPENAME).await;
        assert_eq!(answer.status, 200, "{accepted}");
    }
    for refused in [
        // What a form of another site can send without a preflight.
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
        "application/json; charset=latin1",
        "application/json; charset=utf-16",
        "application/graphql",
        "application/jsonp",
        "",
    ] {
        let answer = post(&server.http, &[("content-type", refused)], TYPENAME).await;
        assert_eq!(answer.status, 415, "{refused}");
        assert_eq!(answer.code(), "BAD_USER_INPUT");
    }
    assert_eq!(post(&server.http, &[], TYPENAME).await.status, 415);
}

#[tokio::test]
async fn a_form_changes_nothing() {
    let server = TestServer::start().await;
    stock(&server.http, &[product("1", "Книги", "1")]).await;
    let bearer = format!("Bearer {}", staff());
    let body = json!({ "query": DELETE, "variables": { "ids": ["1"] } }).to_string();
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let headers = [("content-type", kind), ("authorization", &bearer)];
        assert_eq!(post(&server.http, &headers, body.clone()).await.status, 415);
    }
    assert_eq!(name_of_product(&server).await, "Товар 1");
}

async fn name_of_product(server: &TestServer) -> Value {
    let answer = server.http.query("{ product(id: 1) { name } }", json!({})).await;
    answer.json()["data"]["product"]["name"].take()
}

#[tokio::test]
async fn a_batch_is_refused() {
    let server = TestServer::start().await;
    for body in ["[]", "[{\"query\":\"{ __typename }\"}]", " \n\t[{}, {}]", "["] {
        let answer = post(&server.http, &[JSON], body).await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.code(), "BAD_USER_INPUT");
    }
}

#[tokio::test]
async fn a_query_by_get_needs_a_header_that_forces_a_preflight() {
    let server = TestServer::start().await;
    let path = graphql_path(&[("query", "{ __typename }")]);
    let refused = get(&server.http, &path, &[]).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.code(), "BAD_USER_INPUT");
    // Headers that a page of another site may send without asking.
    let simple = [("accept-language", "ru"), ("content-type", "text/plain")];
    assert_eq!(get(&server.http, &path, &simple).await.status, 400);
    for header in ["apollo-require-preflight", "x-requested-with", "x-apollo-operation-name"] {
        let answer = get(&server.http, &path, &[(header, "x")]).await;
        assert_eq!(answer.status, 200, "{header}");
        assert_eq!(answer.json(), json!({ "data": { "__typename": "Query" } }));
    }
}

#[tokio::test]
async fn a_get_takes_variables_and_an_operation_name() {
    let server = TestServer::start().await;
    stock(&server.http, &[product("ключ&1", "Книги", "1")]).await;
    let query = "query A { a: __typename } query B($id: ID!) { b: product(id: $id) { id } }";
    let variables = json!({ "id": "ключ&1" }).to_string();
    let path = graphql_path(&[("query", query), ("operationName", "B"), ("variables", &variables)]);
    let answer = get(&server.http, &path, &[PREFLIGHT]).await;
    assert_eq!(answer.json(), json!({ "data": { "b": { "id": "ключ&1" } } }));
    let path = graphql_path(&[("query", query), ("operationName", "A")]);
    let answer = get(&server.http, &path, &[PREFLIGHT]).await;
    assert_eq!(answer.json(), json!({ "data": { "a": "Query" } }));
    let path = graphql_path(&[("query", query)]);
    assert_eq!(get(&server.http, &path, &[PREFLIGHT]).await.code(), "BAD_USER_INPUT");
}

#[tokio::test]
async fn malformed_parameters_of_a_get_are_refused() {
    let server = TestServer::start().await;
    for parameters in [
        [("query", "{ __typename }"), ("variables", "ECHOME")],
        [("query", "{ __typename }"), ("variables", "[\"ECHOME\"]")],
        [("query", "{ __typename }"), ("extensions", "ECHOME")],
        [("query", "{ __typename ECHOME("), ("operationName", "")],
        [("operationName", "ECHOME"), ("variables", "{}")],
    ] {
        let answer = get(&server.http, &graphql_path(&parameters), &[PREFLIGHT]).await;
        assert_eq!(answer.code(), "BAD_USER_INPUT", "{parameters:?}");
        assert!(!answer.text().contains("ECHOME"), "{}", answer.text());
    }
    // Bytes that are no text in UTF-8.
    let answer = get(&server.http, "/graphql?query=%7B%FF%FE%7D", &[PREFLIGHT]).await;
    assert_eq!(answer.code(), "BAD_USER_INPUT");
}

#[tokio::test]
async fn a_mutation_by_get_is_refused_and_changes_nothing() {
    let server = TestServer::start().await;
    stock(&server.http, &[product("1", "Книги", "1")]).await;
    let bearer = format!("Bearer {}", staff());
    let mutation = "mutation M { productsDelete(ids: [1]) { deletedIds } }";
    let both = format!("query Q {{ __typename }} {mutation}");
    for parameters in
        [[("query", mutation), ("operationName", "M")], [("query", &both), ("operationName", "M")]]
    {
        let headers = [PREFLIGHT, ("authorization", &bearer)];
        let refused = get(&server.http, &graphql_path(&parameters), &headers).await;
        assert_eq!(refused.status, 405);
        assert_eq!(refused.header("allow"), "POST");
        assert_eq!(refused.code(), "BAD_USER_INPUT");
        assert_eq!(refused.json()["data"], Value::Null);
    }
    assert_eq!(name_of_product(&server).await, "Товар 1");
    // The query beside it is let through.
    let path = graphql_path(&[("query", &both), ("operationName", "Q")]);
    assert_eq!(get(&server.http, &path, &[PREFLIGHT]).await.status, 200);
}

#[tokio::test]
async fn other_methods_are_refused() {
    let server = TestServer::start().await;
    for method in ["PUT", "DELETE", "PATCH"] {
        let request = axum::http::Request::builder().method(method).uri("/graphql");
        let request = request.header("content-type", "application/json").body(TYPENAME.into());
        let answer = server.http.send(request.unwrap()).await.unwrap();
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.header("allow").contains("POST"), "{method}");
    }
}

#[tokio::test]
async fn an_answer_names_its_request() {
    let server = TestServer::start().await;
    for id in ["a", "7f3e-1.b:c_D", &"x".repeat(64)] {
        let answer = post(&server.http, &[JSON, ("x-request-id", id)], TYPENAME).await;
        assert_eq!(answer.header("x-request-id"), id);
        let answer = post(&server.http, &[JSON, ("x-request-id", id)], "{").await;
        assert_eq!(answer.header("x-request-id"), id);
    }
    let mut made = std::collections::HashSet::new();
    for _ in 0..10 {
        let answer = post(&server.http, &[JSON], TYPENAME).await;
        assert!(made.insert(answer.header("x-request-id").to_owned()));
    }
    assert!(!made.contains(""));
}

#[tokio::test]
async fn a_request_id_that_could_forge_a_log_line_is_replaced() {
    let server = TestServer::start().await;
    for id in ["", " ", "a b", "a\tb", "a\"b", "a=b", "<script>", "{\"x\":1}", &"x".repeat(65)] {
        let answer = post(&server.http, &[JSON, ("x-request-id", id)], TYPENAME).await;
        let given = answer.header("x-request-id");
        assert_ne!(given, id);
        assert!(!given.is_empty() && given.len() <= 64, "{given}");
        assert!(given.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{given}");
    }
}
