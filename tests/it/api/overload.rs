//! More than the shop can do, and more than one client may ask for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vitrina::config::{CacheConfig, Config};
use vitrina::owner::Owner;
use vitrina::rate::{Rate, RateLimits};
use vitrina::server::{Role, WorkLimits};

use super::carts::{Shopper, set_stock};
use super::failures::{CHECKOUT, serve_silent};
use super::{UPSERT, product, staff, stock as sell};
use crate::support::gate::Gate;
use crate::support::http::{Answer, HttpClient};
use crate::support::redis::{PrivateRedis, shared_redis};
use crate::support::server::{TestServer, token};
use crate::support::stores::TestStore;

const BROWSE: &str = "{ product(id: 1) { name } }";
const CART: &str = "{ cart { lines { quantity } } }";
const PAGE: &str = "query($name: String!) {
    category(name: $name) { products(first: 10) { nodes { id } } } }";

/// The value of a gauge or counter in the metrics.
async fn metric(http: &HttpClient, name: &str) -> u64 {
    let metrics = http.get("/metrics").await.text();
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name} is not in {metrics}")).parse().unwrap()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect(what);
}

fn one_at_a_time(config: &mut Config) {
    config.limits.work = WorkLimits { in_work: 1, waiting: 0 };
    config.limits.deadline = Duration::from_secs(20);
}

/// Takes the place, as soon as it is not somebody else's who is just looking whether it is taken.
async fn get_stuck(http: HttpClient) {
    while http.query(BROWSE, json!({})).await.status == 503 {}
}

/// When those who are sent away are told to come back while they are few, in milliseconds.
const SOON: std::ops::RangeInclusive<u64> = 500..=1_000;

#[tokio::test]
async fn what_is_too_much_is_sent_away_at_once_and_buyers_have_places_of_their_own() {
    let server = serve_silent(one_at_a_time).await;
    let stuck = tokio::spawn(get_stuck(server.http.clone()));
    let mut refused = None;
    until("the place is taken", async || {
        let request = json!({ "query": "{ __typename }" });
        let answer = server.http.post(None, &request).await;
        refused = (answer.status == 503).then_some(answer);
        refused.is_some()
    })
    .await;
    let refused = refused.unwrap();
    assert_eq!((refused.code().as_str(), refused.header("retry-after")), ("UNAVAILABLE", "1"));
    let told = refused.json()["errors"][0]["extensions"]["retryAfterMs"].as_u64();
    assert!(told.is_some_and(|told| SOON.contains(&told)), "{told:?}");
    let none = "{ viewer { id } }";
    let buyer = server.http.query(none, json!({})).await;
    assert_eq!(buyer.status, 200, "{}", buyer.text());
    let mixed = server.http.query("{ viewer { id } __typename }", json!({})).await;
    assert_eq!(mixed.status, 503, "it is no buyer who also looks around");
    assert!(metric(&server.http, "vitrina_shed_total{traffic=\"browsing\"}").await >= 2);
    assert_eq!(server.http.get("/health/live").await.status, 200);
    stuck.abort();
}

#[tokio::test]
async fn who_does_not_wait_is_sent_away_no_sooner_and_may_buy_meanwhile() {
    let server = serve_silent(one_at_a_time).await;
    let stuck = tokio::spawn(get_stuck(server.http.clone()));
    // One connection, which is used again and again.
    let client = HttpClient::new(&format!("http://{}", server.address));
    let mut told = Instant::now();
    until("the place is taken", async || {
        told = Instant::now();
        client.query("{ __typename }", json!({})).await.status == 503
    })
    .await;
    assert_eq!(client.query("{ viewer { id } }", json!({})).await.status, 200);
    assert_eq!(client.query("{ __typename }", json!({})).await.status, 503);
    assert!(told.elapsed() >= Duration::from_millis(*SOON.start()), "{:?}", told.elapsed());
    stuck.abort();
}

#[tokio::test]
async fn no_work_goes_on_for_a_client_that_has_left() {
    let server = serve_silent(one_at_a_time).await;
    let client = tokio::spawn(get_stuck(HttpClient::new(&format!("http://{}", server.address))));
    until("it is in work", async || {
        server.http.query("{ __typename }", json!({})).await.status == 503 && !client.is_finished()
    })
    .await;
    // It hangs up.
    client.abort();
    until("its place is free", async || {
        server.http.query("{ __typename }", json!({})).await.status == 200
    })
    .await;
    assert_eq!(metric(&server.http, "vitrina_requests_in_work").await, 1, "only this one");
}

/// A shop with one place for each kind, whose checkouts are held up in the middle, and a buyer who has begun
/// one and left.
async fn left_in_the_middle() -> (TestServer, Arc<Gate>, Shopper) {
    let mut store = TestStore::embedded().await;
    let gate = Gate::new(store.store.clone());
    store.store = gate.clone();
    let server = TestServer::start_on(store, |config| {
        one_at_a_time(config);
        config.cache = CacheConfig::Off;
    })
    .await;
    sell(&server.http, &[product("A", "Книги", "10")]).await;
    set_stock(&server.http, &[("A", "Тула", 5)]).await;
    let buyer = Shopper::customer(&server, "buyer");
    buyer.put(&[("A", 1)]).await;
    gate.open(false);
    let input = json!({ "idempotencyKey": "k", "geoZone": "Тула", "paymentMethod": "card",
                        "shippingAddress": { "city": "Тула", "street": "Ленина, 1" } });
    let client = tokio::spawn({
        let buyer = buyer.clone();
        async move { buyer.data(CHECKOUT, json!({ "input": input })).await }
    });
    gate.holds(1).await;
    client.abort();
    until("its client has left", async || {
        metric(&server.http, "vitrina_requests_in_work").await == 1
    })
    .await;
    (server, gate, buyer)
}

/// A change that has begun comes to its end, and until then nobody else has its place.
#[tokio::test]
async fn what_is_finished_for_a_client_that_has_left_keeps_its_place() {
    let (server, gate, buyer) = left_in_the_middle().await;
    let viewer = async || server.http.query("{ viewer { id } }", json!({})).await.status;
    assert_eq!(viewer().await, 503, "its place is taken");
    gate.open(true);
    until("its place is free", async || viewer().await == 200).await;
    until("there is an order", async || {
        let orders = buyer.data("{ orders { nodes { status } } }", json!({})).await;
        orders["orders"]["nodes"] == json!([{ "status": "CREATED" }])
    })
    .await;
}

#[tokio::test]
async fn a_server_that_stops_finishes_what_was_begun_by_clients_that_have_left() {
    let (mut server, gate, _) = left_in_the_middle().await;
    let owner = Owner::User("buyer".into());
    let is_ordered = async |server: &TestServer| {
        let store = server.opened();
        match store.checkout(&owner, "k").await.unwrap() {
            Some(checkout) => store.order(checkout.order.id).await.unwrap().is_some(),
            None => false,
        }
    };
    assert!(!is_ordered(&server).await);
    server.stop();
    // With nobody inside it would have ended by then.
    let stopped = async |server: &TestServer| {
        until("it has stopped", async || server.has_stopped()).await;
    };
    let too_soon = tokio::time::timeout(Duration::from_secs(4), stopped(&server)).await;
    assert!(too_soon.is_err(), "it did not wait");
    gate.open(true);
    stopped(&server).await;
    assert!(is_ordered(&server).await);
}

fn limited(change: impl FnOnce(&mut RateLimits)) -> impl FnOnce(&mut Config) {
    let mut rates = RateLimits { identity: None, address: None, category: None, loopback: true };
    change(&mut rates);
    move |config| config.rules.rates = rates
}

/// So much that a few requests use it up, and no test waits for it to come back.
const FEW: Option<Rate> = Some(Rate { per_second: 1, burst: 60 });

/// Asks until it is too much; how often that went well, and the refusal.
async fn ask(http: &HttpClient, token: Option<&str>, query: &str) -> (usize, Answer) {
    for count in 0..100 {
        let answer = http.post(token, &json!({ "query": query })).await;
        if answer.code() == "RATE_LIMITED" {
            return (count, answer);
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    panic!("it is never too much");
}

#[tokio::test]
async fn who_asks_too_much_is_told_when_to_come_back() {
    let server =
        TestServer::start_on(TestStore::embedded().await, limited(|r| r.identity = FEW)).await;
    let [one, other] = ["one", "other"].map(|user| token(user, Role::Customer));
    let (count, refusal) = ask(&server.http, Some(&one), CART).await;
    assert!(count >= 1);
    assert_eq!(refusal.status, 429);
    let wait = refusal.json()["errors"][0]["extensions"]["retryAfterMs"].as_u64().unwrap();
    assert_eq!(refusal.header("retry-after"), wait.div_ceil(1_000).max(1).to_string());
    let (again, _) = ask(&server.http, Some(&other), CART).await;
    assert_eq!(again, count, "another customer has a share of its own");
    for _ in 0..20 {
        assert_eq!(server.http.query(BROWSE, json!({})).await.status, 200, "nobody has none");
    }
    assert_eq!(metric(&server.http, "vitrina_rate_limited_total").await, 2);
}

#[tokio::test]
async fn who_had_its_share_and_does_not_wait_is_made_to() {
    let server =
        TestServer::start_on(TestStore::embedded().await, limited(|r| r.identity = FEW)).await;
    let one = token("one", Role::Customer);
    ask(&server.http, Some(&one), CART).await;
    // On the same connection, as there is one at a time.
    let began = Instant::now();
    let (count, _) = ask(&server.http, Some(&one), CART).await;
    assert_eq!(count, 0);
    assert!(began.elapsed() >= Duration::from_millis(100), "{:?}", began.elapsed());
    // What can be answered is not held up.
    assert_eq!(server.http.query(BROWSE, json!({})).await.status, 200);
}

#[tokio::test]
async fn an_address_has_a_share_whoever_asks_and_pays_for_documents_that_are_refused() {
    let few = Some(Rate { per_second: 1, burst: 250 });
    let server =
        TestServer::start_on(TestStore::embedded().await, limited(|r| r.address = few)).await;
    for _ in 0..3 {
        server.http.query("{ nothing }", json!({})).await;
    }
    let answer = server.http.query(BROWSE, json!({})).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (429, "RATE_LIMITED"));
    let known = token("one", Role::Customer);
    assert_eq!(server.http.query_as(&known, CART, json!({})).await.status, 429);
}

#[tokio::test]
async fn behind_proxies_an_address_is_the_one_that_they_name() {
    let server = TestServer::start_on(TestStore::embedded().await, |config| {
        limited(|rates| rates.address = FEW)(config);
        config.limits.proxies = 1;
    })
    .await;
    let ask_from = async |address: &str| {
        let request = Request::post("/graphql")
            .header("content-type", "application/json")
            .header("x-forwarded-for", format!("10.9.9.9, {address}"))
            .body(Body::from(json!({ "query": BROWSE }).to_string()));
        server.http.send(request.unwrap()).await.unwrap().status
    };
    while ask_from("10.0.0.1").await != 429 {}
    assert_eq!(ask_from("10.0.0.2").await, 200);
}

#[tokio::test]
async fn a_hot_category_does_not_take_what_others_need() {
    let server =
        TestServer::start_on(TestStore::embedded().await, limited(|r| r.category = FEW)).await;
    let products = [product("1", "Книги", "1"), product("2", "Игры", "1")];
    server.http.query_as(&staff(), UPSERT, json!({ "products": products })).await;
    let page = async |name: &str| server.http.query(PAGE, json!({ "name": name })).await;
    let mut count = 0;
    let refusal = loop {
        let answer = page("Книги").await;
        if !answer.code().is_empty() {
            break answer;
        }
        count += 1;
    };
    assert!(count >= 1);
    assert_eq!((refusal.status.as_u16(), refusal.code().as_str()), (200, "RATE_LIMITED"));
    assert_eq!(refusal.json()["data"]["category"]["products"], json!(null));
    assert_eq!(page("Игры").await.code(), "");
}

/// Uses up a share at one of two instances on one Redis. The other has little left to give.
async fn share(change: fn(&mut RateLimits), code: impl AsyncFn(&HttpClient) -> String) {
    let Some(redis) = shared_redis() else { return };
    let change = |config: &mut Config| {
        limited(change)(config);
        config.cache = CacheConfig::Redis(redis.clone());
        // An answer that is kept takes nothing out of the share of its category.
        config.limits.response_cache_bytes = 0;
    };
    let a = TestServer::start_on(TestStore::embedded().await, change).await;
    let b = a.beside(change).await;
    let products = [product("1", "Книги", "1")];
    a.http.query_as(&staff(), UPSERT, json!({ "products": products })).await;
    let [mut here, mut there] = [0; 2];
    while code(&a.http).await.is_empty() {
        here += 1;
        assert!(here < 4_000, "nothing is taken out of the share");
    }
    while code(&b.http).await.is_empty() {
        there += 1;
        assert!(there < here / 2, "it gives a share of its own: {there} beside {here}");
        // They tell each other ten times a second.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Enough for many requests, and none of it comes back while they are made.
const SOME: Option<Rate> = Some(Rate { per_second: 1, burst: 4_000 });

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_on_one_redis_give_a_client_one_share() {
    let known = token("one", Role::Customer);
    share(
        |rates| rates.identity = SOME,
        async |http| http.query_as(&known, CART, json!({})).await.code(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_on_one_redis_give_an_address_one_share() {
    share(|rates| rates.address = SOME, async |http| http.query(BROWSE, json!({})).await.code())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_on_one_redis_give_a_category_one_share() {
    share(
        |rates| rates.category = SOME,
        async |http| http.query(PAGE, json!({ "name": "Книги" })).await.code(),
    )
    .await;
}

/// The ids of those who are connected to a Redis to ask it, and how often it refused to store something.
fn seen_by(redis: &PrivateRedis) -> (Vec<String>, u64) {
    let clients = redis.command(&["CLIENT", "LIST", "TYPE", "normal"]);
    let ours = clients.lines().filter(|client| !client.contains("cmd=client"));
    let ids = ours.filter_map(|client| Some(client.split_once(' ')?.0.to_owned())).collect();
    let errors = redis.command(&["INFO", "errorstats"]);
    let refused = errors.lines().find_map(|line| line.strip_prefix("errorstat_OOM:count="));
    (ids, refused.map_or(0, |count| count.trim().parse().unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_redis_is_not_given_up_for_shares_that_it_cannot_keep() {
    let Some(redis) = PrivateRedis::start(&["--maxmemory", "1"]) else { return };
    let server = TestServer::start_on(TestStore::embedded().await, |config| {
        limited(|rates| rates.identity = Some(Rate { per_second: 1_000, burst: 1_000 }))(config);
        config.cache = CacheConfig::Redis(redis.config());
    })
    .await;
    let known = token("u", Role::Customer);
    // One that is slow may be given up, but not whenever it is tried.
    until("the connection outlives ten refusals", async || {
        let (connected, refused) = seen_by(&redis);
        until("ten shares are refused", async || {
            server.http.query_as(&known, CART, json!({})).await;
            seen_by(&redis).1 >= refused + 10
        })
        .await;
        !connected.is_empty() && seen_by(&redis).0 == connected
    })
    .await;
}

#[tokio::test]
async fn requests_that_are_none_take_from_the_share_of_an_address_too() {
    let few = Some(Rate { per_second: 1, burst: 60 });
    let server =
        TestServer::start_on(TestStore::embedded().await, limited(|r| r.address = few)).await;
    let mut codes = Vec::new();
    for _ in 0..100 {
        let request = Request::post("/graphql").header("content-type", "application/json");
        let answer = server.http.send(request.body(Body::from("{")).unwrap()).await.unwrap();
        codes.push(answer.code());
        if answer.status == 429 {
            break;
        }
    }
    assert_eq!(codes.pop().as_deref(), Some("RATE_LIMITED"));
    assert!(!codes.is_empty() && codes.iter().all(|code| code == "BAD_USER_INPUT"), "{codes:?}");
}

/// Whether a session has ended cannot be found out; what is everybody's is told all the same.
#[tokio::test]
async fn a_guest_sees_the_catalogue_while_sessions_cannot_be_read() {
    let mut store = TestStore::embedded().await;
    let gate = Gate::new(store.store.clone());
    store.store = gate.clone();
    let server = TestServer::start_on(store, |config| config.cache = CacheConfig::Off).await;
    sell(&server.http, &[product("A", "Книги", "10")]).await;
    let guest = Shopper::guest(&server).await;
    gate.loses_sessions.store(true, Ordering::SeqCst);
    let card = "{ product(id: \"A\") { name } }";
    assert_eq!(guest.data(card, json!({})).await["product"]["name"], "Товар A");
    for own in ["{ viewer { kind } }", CART, "{ viewer { kind } product(id: \"A\") { name } }"] {
        assert_eq!(
            server.http.query_as(&guest.token, own, json!({})).await.code(),
            "UNAVAILABLE",
            "{own}"
        );
    }
    let forged = server.http.query_as("vs1.forged", card, json!({})).await;
    assert_eq!(forged.code(), "UNAUTHENTICATED");
    gate.loses_sessions.store(false, Ordering::SeqCst);
    assert_eq!(guest.data("{ viewer { kind } }", json!({})).await["viewer"]["kind"], "GUEST");
}

#[tokio::test]
async fn there_are_so_many_connections_and_the_next_is_told_to_come_back() {
    let server = TestServer::start_on(TestStore::embedded().await, |config| {
        config.limits.connections.all = 2;
    })
    .await;
    let first = TcpStream::connect(server.address).await.unwrap();
    let _second = TcpStream::connect(server.address).await.unwrap();
    let mut third = TcpStream::connect(server.address).await.unwrap();
    let mut told = String::new();
    third.read_to_string(&mut told).await.unwrap();
    assert!(told.starts_with("HTTP/1.1 503 "), "{told}");
    assert!(told.contains("retry-after: 1\r\n"), "{told}");
    drop(first);
    until("a place is free", async || {
        let request = Request::get("/health/live").body(Body::empty()).unwrap();
        server.http.send(request).await.is_ok_and(|answer| answer.status == 200)
    })
    .await;
}

#[tokio::test]
async fn who_dawdles_is_cut_off_and_who_is_quiet_is_not() {
    let server = TestServer::start_on(TestStore::embedded().await, |config| {
        config.limits.connections.head_within = Duration::from_millis(300);
        config.limits.deadline = Duration::from_millis(300);
    })
    .await;
    let mut quiet = TcpStream::connect(server.address).await.unwrap();
    // One that was answered at once, and then says nothing, is not taken for one that is slow.
    let mut answered = TcpStream::connect(server.address).await.unwrap();
    ask_whether_it_lives(&mut answered).await;
    let mut told = Vec::new();
    for slow in ["GET /health/live HT", "GET /health/live HTTP/1.1\r\nhost: a\r\nx: "] {
        let mut client = TcpStream::connect(server.address).await.unwrap();
        client.write_all(slow.as_bytes()).await.unwrap();
        told.clear();
        client.read_to_end(&mut told).await.unwrap();
        assert!(told.is_empty(), "{}", String::from_utf8_lossy(&told));
    }
    // One that does not send its body is told why.
    let mut client = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /graphql HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
                content-length: 100\r\n\r\n{";
    client.write_all(head.as_bytes()).await.unwrap();
    client.read_to_end(&mut told).await.unwrap();
    let told = String::from_utf8_lossy(&told).into_owned();
    assert!(told.contains("504") && told.contains("TIMEOUT"), "{told}");
    // These have said nothing all the while.
    for client in [&mut quiet, &mut answered] {
        for _ in 0..2 {
            ask_whether_it_lives(client).await;
        }
    }
}

async fn ask_whether_it_lives(client: &mut TcpStream) {
    client.write_all(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = [0; 15];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    let mut rest = [0; 4_096];
    assert!(client.read(&mut rest).await.unwrap() > 0);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off() {
    let server = TestServer::start_on(TestStore::embedded().await, |config| {
        config.limits.connections.take_within = Duration::from_millis(300);
    })
    .await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    // Asks for the schema again and again and reads none of it, until the buffers are full.
    let request = b"GET /schema.graphql HTTP/1.1\r\nhost: a\r\n\r\n";
    let cut = async { while client.write_all(request).await.is_ok() {} };
    tokio::time::timeout(Duration::from_secs(20), cut).await.expect("it is cut off");
}

#[tokio::test]
async fn http_2_is_spoken_too() {
    let server = TestServer::start().await;
    let http = HttpClient::of_http2(&format!("http://{}", server.address));
    let asked = (0..50).map(|_| http.query("{ __typename }", json!({})));
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (200, "{\"data\":{\"__typename\":\"Query\"}}".to_owned())
        );
    }
    assert_eq!(metric(&server.http, "vitrina_connections").await, 2);
}

#[tokio::test]
async fn connections_that_nobody_uses_are_closed() {
    let quiet = |config: &mut Config| {
        config.limits.connections.quiet_within = Duration::from_millis(300);
    };
    let server = TestServer::start_on(TestStore::embedded().await, quiet).await;
    let connections = async || metric(&server.http, "vitrina_connections").await;
    // A client of HTTP/2 that answers when it is asked for a sign of life …
    let http = HttpClient::of_http2(&format!("http://{}", server.address));
    assert_eq!(http.query("{ __typename }", json!({})).await.status, 200);
    // … one of HTTP/1 that stays after its answer …
    let mut alone = TcpStream::connect(server.address).await.unwrap();
    ask_whether_it_lives(&mut alone).await;
    // … and one that never says a word.
    let silent = TcpStream::connect(server.address).await.unwrap();
    // There is the one that asks for this.
    until("they are closed", async || connections().await == 1).await;
    for mut closed in [alone, silent] {
        assert_eq!(closed.read(&mut [0; 1_024]).await.unwrap(), 0);
    }
}
