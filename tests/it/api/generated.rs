//! Requests that are made from the schema: whatever one asks for, it is answered or refused.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use vitrina::server::Role;

use super::{data, product, staff, stock};
use crate::support::documents::{Choices, Types};
use crate::support::http::Answer;
use crate::support::server::{TestServer, token};
use crate::support::stores::TestStore;

/// Requests of a run. `PROPTEST_CASES` asks for more.
const REQUESTS: u32 = 500;
/// Choices of a request at the most: enough for a hundred fields.
const MAX_CHOICES: usize = 400;
/// What an operation may cost here: little, so that some cost more.
const MAX_COST: u64 = 400;
/// The most fields of an answer. The cost takes a list without a bound of its own for ten long; the
/// names that requests make here let categories and zones grow to twice as many, one in the other.
const MAX_FIELDS: u64 = 8 * MAX_COST;

/// The codes of what a client may do wrong. All others are the server's fault.
const REFUSALS: [&str; 5] =
    ["BAD_USER_INPUT", "INVALID_CURSOR", "UNAUTHENTICATED", "FORBIDDEN", "QUERY_TOO_COMPLEX"];

/// How many fields an answer has, at all levels.
fn fields(data: &Value) -> u64 {
    match data {
        Value::Object(inside) => inside.values().map(|value| 1 + fields(value)).sum(),
        Value::Array(items) => items.iter().map(fields).sum(),
        _ => 0,
    }
}

fn check(request: &Value, answer: &Answer) -> Result<(), TestCaseError> {
    let told = || format!("{request}\nis answered {} {}", answer.status, answer.text());
    prop_assert!(answer.status.as_u16() < 500, "{}", told());
    let Ok(body) = serde_json::from_slice::<Value>(&answer.body) else {
        return Err(TestCaseError::fail(told()));
    };
    for error in body["errors"].as_array().into_iter().flatten() {
        let code = error["extensions"]["code"].as_str().unwrap_or_default();
        prop_assert!(REFUSALS.contains(&code), "{}", told());
    }
    prop_assert!(body["errors"].is_array() || body["data"].is_object(), "{}", told());
    prop_assert!(fields(&body["data"]) <= MAX_FIELDS, "{}", told());
    Ok(())
}

/// A token of each kind of caller, and none.
async fn callers(server: &TestServer) -> [Option<String>; 4] {
    let begun = data(&server.http, "mutation { sessionStart { token } }", json!({})).await;
    let guest = begun["sessionStart"]["token"].as_str().unwrap().to_owned();
    [Some(staff()), Some(guest), Some(token("customer-1", Role::Customer)), None]
}

#[test]
fn every_request_is_answered_or_refused() {
    let runtime = Runtime::new().unwrap();
    let (server, callers) = runtime.block_on(async {
        let limited = |config: &mut vitrina::config::Config| config.limits.cost = MAX_COST;
        let server = TestServer::start_on(TestStore::embedded().await, limited).await;
        let cards: Vec<_> = (1..10).map(|n| product(&n.to_string(), "Книги", "10")).collect();
        stock(&server.http, &cards).await;
        let callers = callers(&server).await;
        (server, callers)
    });
    let types = Types::of_the_shop();
    let (asked, answered) = (Cell::new(0), Cell::new(0));
    let config = Config { source_file: Some(file!()), ..Config::default() };
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { config.cases } else { REQUESTS };
    let mut runner = TestRunner::new(Config { cases, ..config });
    let result = runner.run(&vec(any::<u8>(), 0..MAX_CHOICES), |choices| {
        let mut choices = Choices::new(&choices);
        let caller = &callers[choices.below(callers.len())];
        let request = types.request(&mut choices);
        let answer = runtime.block_on(server.http.post(caller.as_deref(), &request));
        asked.set(asked.get() + 1);
        answered.set(answered.get() + u32::from(answer.json()["data"].is_object()));
        check(&request, &answer)
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    // Else the requests would be refused before they come to anything.
    let (asked, answered) = (asked.get(), answered.get());
    assert!(answered * 10 > asked, "only {answered} of {asked} requests were carried out");
    runtime.block_on(async {
        let found = data(&server.http, "{ product(id: \"nowhere\") { id } }", json!({})).await;
        assert_eq!(found, json!({ "product": null }));
    });
}
