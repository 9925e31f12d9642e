//! Answers that are the same for everybody: kept for a moment, never for anybody else, and as HTTP
//! has it.

mod fresh;
mod identities;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use vitrina::config::{CacheConfig, Config};
use vitrina::rate::{Rate, RateLimits};
use vitrina::server::Role;

use super::carts::set_stock;
use super::sessions::{end, visit};
use super::{get, graphql_path, metric, post, product, staff, stock as sell};
use crate::support::gate::Gate;
use crate::support::http::{Answer, HttpClient};
use crate::support::server::{TestServer, token};
use crate::support::stores::TestStore;

const HIT: &str = "vitrina_responses_total{result=\"hit\"}";
const MISS: &str = "vitrina_responses_total{result=\"miss\"}";
const BYPASS: &str = "vitrina_responses_total{result=\"bypass\"}";
const CARD: &str = "{ product(id: 1) { id name price { amount } } }";
const JSON: (&str, &str) = ("content-type", "application/json");
const PREFLIGHT: (&str, &str) = ("apollo-require-preflight", "true");
/// What an answer says that is the same for everybody, and what all others say.
const SHARED: &str = "public, max-age=0, must-revalidate";
const OWN: &str = "no-store";
/// Longer than anything here takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);

async fn with_a_product(change: impl FnOnce(&mut Config)) -> TestServer {
    let server = TestServer::start_on(TestStore::embedded().await, change).await;
    sell(&server.http, &[product("1", "Книги", "10")]).await;
    server
}

/// Asks until an answer was at hand, which on a slow machine may take more than one try.
async fn until_at_hand(http: &HttpClient, ask: impl AsyncFn() -> Answer) -> Answer {
    let began = Instant::now();
    loop {
        let before = metric(http, HIT).await;
        let answer = ask().await;
        if metric(http, HIT).await > before {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "it is never at hand: {}", answer.text());
    }
}

#[tokio::test]
async fn an_answer_is_kept_and_told_of_like_any_other() {
    let server = with_a_product(|_| {}).await;
    let operations = "vitrina_operation_seconds_count{root=\"product\",outcome=\"ok\"}";
    let ask = async || server.http.query(CARD, json!({})).await;
    let first = ask().await;
    let at_hand = until_at_hand(&server.http, ask).await;
    assert_eq!(first.body, at_hand.body);
    for name in ["content-type", "cache-control", "etag", "vary", "x-content-type-options"] {
        assert_eq!(first.header(name), at_hand.header(name), "{name}");
        assert_ne!(first.header(name), "", "{name}");
    }
    assert_ne!(first.header("x-request-id"), at_hand.header("x-request-id"));
    let (hits, misses) = (metric(&server.http, HIT).await, metric(&server.http, MISS).await);
    assert_eq!(metric(&server.http, operations).await, hits + misses);
}

#[tokio::test]
async fn it_ends_after_half_a_second_in_any_case() {
    let server = with_a_product(|_| {}).await;
    let ask = async || server.http.query(CARD, json!({})).await;
    for _ in 0..3 {
        ask().await;
        let misses = metric(&server.http, MISS).await;
        tokio::time::sleep(Duration::from_millis(510)).await;
        ask().await;
        assert_eq!(metric(&server.http, MISS).await, misses + 1);
    }
}

#[tokio::test]
async fn only_what_has_neither_errors_nor_extensions_is_kept() {
    let server = with_a_product(|_| {}).await;
    for query in [
        "{ product(id: \"\") { id } }",
        "{ a: product(id: 1) { id } b: product(id: \"\") { id } }",
        "{ product(id: 1) { stock(geoZone: \"\") { available } } }",
    ] {
        for _ in 0..3 {
            let answer = server.http.query(query, json!({})).await;
            assert_eq!(answer.code(), "BAD_USER_INPUT");
            assert_eq!(answer.header("cache-control"), OWN);
            assert_eq!(answer.header("etag"), "");
        }
    }
    assert_eq!(metric(&server.http, HIT).await, 0);
    let misses = metric(&server.http, MISS).await;
    assert_eq!(misses, 9, "nobody waited for anybody either");
    // Staff are told what it took.
    for _ in 0..3 {
        let answer = server.http.query_as(&staff(), CARD, json!({})).await;
        assert!(answer.json()["extensions"]["reads"].is_object());
        assert_eq!(answer.header("cache-control"), OWN);
    }
    assert_eq!(metric(&server.http, HIT).await, 0);
    assert!(metric(&server.http, BYPASS).await >= 3);
}

#[tokio::test]
async fn it_can_be_turned_off() {
    let none = |config: &mut Config| config.limits.response_cache_bytes = 0;
    let no_caches = |config: &mut Config| config.cache = CacheConfig::Off;
    let told = |config: &mut Config| config.tells_reads = true;
    let changes: [&dyn Fn(&mut Config); 3] = [&none, &no_caches, &told];
    for change in changes {
        let server = with_a_product(change).await;
        for _ in 0..5 {
            let answer = server.http.query(CARD, json!({})).await;
            assert_eq!(answer.json()["data"]["product"]["id"], "1");
            assert_eq!(answer.header("cache-control"), OWN);
        }
        assert_eq!(metric(&server.http, HIT).await, 0);
    }
}

#[tokio::test]
async fn what_is_too_large_or_too_much_is_not_kept_and_answered_all_the_same() {
    let server = TestServer::start_on(TestStore::embedded().await, |config| {
        config.limits.response_cache_bytes = 16 << 10;
    })
    .await;
    let cards: Vec<_> = (0..100)
        .map(|n| {
            let mut card = product(&n.to_string(), "Книги", "1");
            card["description"] = json!("x".repeat(500));
            card
        })
        .collect();
    sell(&server.http, &cards).await;
    let all = "query($ids: [ID!]!) { products(ids: $ids) { id description } }";
    let ids: Vec<_> = (0..100).map(|n| n.to_string()).collect();
    for _ in 0..3 {
        let answer = server.http.query(all, json!({ "ids": ids })).await.json();
        assert_eq!(answer["data"]["products"].as_array().unwrap().len(), 100);
        for id in &ids {
            let answer = server.http.query(all, json!({ "ids": [id] })).await.json();
            assert_eq!(answer["data"]["products"][0]["id"], json!(id));
        }
    }
}

#[tokio::test]
async fn who_sends_a_bad_token_is_refused_also_if_the_answer_is_at_hand() {
    let server = with_a_product(|_| {}).await;
    let ask = async |token: Option<&str>| {
        server.http.post(token, &json!({ "query": CARD, "variables": {} })).await
    };
    let known = token("one", Role::Customer);
    let guest = visit(&server.http, None).await;
    let shared = until_at_hand(&server.http, async || ask(None).await).await;
    for good in [&known, &guest.token] {
        let answer = until_at_hand(&server.http, async || ask(Some(good)).await).await;
        assert_eq!(answer.body, shared.body);
    }
    end(&server.http, &guest.token, None).await;
    let torn = &known[..known.len() - 2];
    for bad in ["nonsense", torn, &guest.token] {
        until_at_hand(&server.http, async || ask(None).await).await;
        let answer = ask(Some(bad)).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (401, "UNAUTHENTICATED"));
        assert_eq!(answer.header("cache-control"), OWN);
    }
}

#[tokio::test]
async fn an_answer_at_hand_costs_what_it_would_cost_else() {
    let asked = async |cached: u64, with_token: bool| {
        let few = Some(Rate { per_second: 1, burst: 200 });
        let server = with_a_product(|config| {
            let (identity, address) = if with_token { (few, None) } else { (None, few) };
            config.rules.rates = RateLimits { identity, address, category: None, loopback: true };
            config.limits.response_cache_bytes = cached;
        });
        let server = server.await;
        let token = with_token.then(|| token("one", Role::Customer));
        for count in 0..200_u32 {
            let answer = server.http.post(token.as_deref(), &json!({ "query": CARD })).await;
            if answer.status == 429 {
                assert!(metric(&server.http, HIT).await > 0 || cached == 0);
                return count;
            }
        }
        panic!("it is never too much");
    };
    for with_token in [false, true] {
        let (kept, made) = (asked(1 << 20, with_token).await, asked(0, with_token).await);
        // What comes back while a slow machine asks is a part of an answer's cost.
        assert!(kept.abs_diff(made) <= 1, "{kept} {made}");
    }
}

#[tokio::test]
async fn a_client_that_has_the_answer_is_told_so() {
    let server = with_a_product(|_| {}).await;
    let path = graphql_path(&[("query", CARD)]);
    let ask = async |headers: &[(&str, &str)]| {
        let headers = [&[PREFLIGHT][..], headers].concat();
        get(&server.http, &path, &headers).await
    };
    let full = ask(&[]).await;
    assert_eq!((full.status.as_u16(), full.header("cache-control")), (200, SHARED));
    let tag = full.header("etag").to_owned();
    assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() > 20, "{tag}");
    let weak = format!("W/{tag}");
    let list = format!("\"other\", {tag}");
    for known in [tag.as_str(), &weak, &list, "*"] {
        let answer = ask(&[("if-none-match", known)]).await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (304, 0), "{known}");
        for name in ["cache-control", "etag", "vary"] {
            assert_eq!(answer.header(name), full.header(name), "{name}");
        }
        assert_ne!(answer.header("x-request-id"), "");
    }
    for other in ["\"other\"", "", &tag[1..]] {
        let answer = ask(&[("if-none-match", other)]).await;
        assert_eq!((answer.status.as_u16(), &answer.body), (200, &full.body), "{other}");
    }
    // By POST a condition does not mean that the answer is left out.
    let body = json!({ "query": CARD }).to_string();
    let posted = post(&server.http, &[JSON, ("if-none-match", &tag)], body).await;
    assert_eq!((posted.status.as_u16(), &posted.body), (200, &full.body));
    assert_eq!(posted.header("etag"), tag);
    // Another answer has another tag.
    sell(&server.http, &[product("1", "Книги", "11")]).await;
    let changed = ask(&[("if-none-match", &tag)]).await;
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), tag);
}

#[tokio::test]
async fn each_media_type_and_each_way_has_its_own_answer() {
    let server = with_a_product(|_| {}).await;
    let body = json!({ "query": CARD }).to_string();
    let path = graphql_path(&[("query", CARD)]);
    for _ in 0..3 {
        for media in ["application/json", "application/graphql-response+json"] {
            let accept = ("accept", media);
            let posted = post(&server.http, &[JSON, accept], body.clone()).await;
            let got = get(&server.http, &path, &[PREFLIGHT, accept]).await;
            for answer in [posted, got] {
                assert!(answer.header("content-type").starts_with(media));
                assert_eq!(answer.header("vary"), "accept, authorization");
                assert_eq!(answer.json()["data"]["product"]["id"], "1");
            }
        }
    }
    // What is in no form that there is, is refused although it is at hand.
    let refused = post(&server.http, &[JSON, ("accept", "text/html")], body.clone()).await;
    assert_eq!(refused.status, 406);
    assert_eq!(post(&server.http, &[], body).await.status, 415);
    assert_eq!(get(&server.http, &path, &[]).await.status, 400, "without the header it needs");
}

/// A shop whose reads can be held up.
async fn gated() -> (TestServer, std::sync::Arc<Gate>) {
    let mut store = TestStore::embedded().await;
    let gate = Gate::new(store.store.clone());
    store.store = gate.clone();
    let server = TestServer::start_on(store, |_| {}).await;
    sell(&server.http, &[product("1", "Книги", "10"), product("2", "Книги", "20")]).await;
    (server, gate)
}

const STOCK: &str =
    "{ product(id: 1) { price { amount } stock(geoZone: \"Тула\") { available } } }";
const STOCK_OF: &str = "query($id: ID!) {
    product(id: $id) { price { amount } stock(geoZone: \"Тула\") { available } } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_makes_it_and_the_others_wait_for_it() {
    let (server, gate) = gated().await;
    gate.open(false);
    let (reads, http) = (gate.reads(), &server.http);
    let ask = || {
        tokio::spawn({
            let http = http.clone();
            async move { http.query(STOCK, json!({})).await }
        })
    };
    let first = ask();
    gate.holds(1).await;
    let others: Vec<_> = (0..50).map(|_| ask()).collect();
    while metric(http, "vitrina_requests_in_work").await < 52 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    gate.open(true);
    let first = first.await.unwrap();
    for other in join_all(others).await {
        assert_eq!(other.unwrap().body, first.body);
    }
    assert_eq!(gate.reads(), reads + 1);
    assert_eq!((metric(http, MISS).await, metric(http, HIT).await), (1, 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_stranded_by_one_that_leaves() {
    let (server, gate) = gated().await;
    gate.open(false);
    let body = json!({ "query": STOCK, "variables": {} }).to_string();
    let head = format!(
        "POST /graphql HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut leaves = TcpStream::connect(server.address).await.unwrap();
    leaves.write_all(head.as_bytes()).await.unwrap();
    gate.holds(1).await;
    let ask = || {
        tokio::spawn({
            let http = server.http.clone();
            async move { http.query(STOCK, json!({})).await }
        })
    };
    let waiting: Vec<_> = (0..20).map(|_| ask()).collect();
    while metric(&server.http, "vitrina_requests_in_work").await < 22 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    drop(leaves);
    // The one that made it is given up, and one of those who wait begins anew.
    while metric(&server.http, "vitrina_requests_in_work").await > 21 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    gate.holds(1).await;
    gate.open(true);
    for answer in join_all(waiting).await {
        assert_eq!(answer.unwrap().json()["data"]["product"]["price"]["amount"], "10.00");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_while_an_answer_is_made_is_in_every_later_one() {
    let (server, gate) = gated().await;
    for n in 0..5 {
        // One whose stock nobody has asked for yet, so that it is read from the store.
        let id = format!("new-{n}");
        sell(&server.http, &[product(&id, "Книги", "10")]).await;
        let ask = || {
            let (http, variables) = (server.http.clone(), json!({ "id": id }));
            tokio::spawn(async move { http.query(STOCK_OF, variables).await.json() })
        };
        gate.open(false);
        let early = ask();
        gate.holds(1).await;
        // It has read, and is held up. Both changes are acknowledged meanwhile.
        set_stock(&server.http, &[(&id, "Тула", 7)]).await;
        sell(&server.http, &[product(&id, "Книги", "11")]).await;
        let late = ask();
        tokio::time::sleep(Duration::from_millis(20)).await;
        gate.open(true);
        early.await.unwrap();
        for answer in [late.await.unwrap(), ask().await.unwrap()] {
            let product = &answer["data"]["product"];
            assert_eq!(product["stock"]["available"], 7, "{answer}");
            assert_eq!(product["price"]["amount"], "11.00", "{answer}");
        }
    }
}
