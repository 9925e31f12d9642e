//! Sessions over HTTP and WebSocket: who a token belongs to, how long, and what ends it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use uuid::Uuid;
use vitrina::clock::{Clock, ManualClock};
use vitrina::server::Role;

use super::{data_for, faults, in_time, metric, post, product, staff, stock};
use crate::support::http::HttpClient;
use crate::support::server::{TestServer, token};
use crate::support::websocket::Socket;

const START: &str = "mutation($input: SessionInput) { sessionStart(input: $input) {
    token session { id deviceType geoZone createdAt lastActivity current }
    userErrors { code field message } } }";
const END: &str = "mutation($id: ID) {
    sessionEnd(id: $id) { endedId userErrors { code field message } } }";
const VIEWER: &str = "{ viewer { kind id
    sessions { id deviceType geoZone createdAt lastActivity current } } }";
/// Writes of sessions, as `/metrics` counts them.
const WRITES: &str = "vitrina_store_call_seconds_count{table=\"user_sessions\",kind=\"write\"}";
/// Longer than anything here takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// How soon a session that was ended is refused everywhere.
const EVERYWHERE: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A session that has begun.
pub(super) struct Visit {
    pub(super) token: String,
    pub(super) id: String,
}

/// Calls `sessionStart`; its payload.
async fn start(http: &HttpClient, jwt: Option<&str>, input: Value) -> Value {
    data_for(http, jwt, START, json!({ "input": input })).await["sessionStart"].take()
}

/// Begins a session of a guest, or of whom a token of the identity provider names.
pub(super) async fn visit(http: &HttpClient, jwt: Option<&str>) -> Visit {
    visit_with(http, jwt, Value::Null).await
}

/// The same with what the frontend knows of its visitor.
pub(super) async fn visit_with(http: &HttpClient, jwt: Option<&str>, input: Value) -> Visit {
    let payload = start(http, jwt, input).await;
    assert_eq!(payload["userErrors"], json!([]), "{payload}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    Visit { token: text(&payload["token"]), id: text(&payload["session"]["id"]) }
}

async fn viewer(http: &HttpClient, token: Option<&str>) -> Value {
    data_for(http, token, VIEWER, json!({})).await["viewer"].take()
}

/// Calls `sessionEnd`; its payload.
pub(super) async fn end(http: &HttpClient, token: &str, id: Option<&str>) -> Value {
    data_for(http, Some(token), END, json!({ "id": id })).await["sessionEnd"].take()
}

/// Ends the session that a token belongs to.
async fn end_own(http: &HttpClient, visit: &Visit) {
    let ended = end(http, &visit.token, None).await;
    assert_eq!(ended, json!({ "endedId": visit.id, "userErrors": [] }));
}

async fn is_let_in(http: &HttpClient, token: &str) -> bool {
    let answer = http.query_as(token, "{ viewer { kind } }", json!({})).await;
    if answer.status == 200 {
        return true;
    }
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (401, "UNAUTHENTICATED"));
    assert_eq!(answer.json()["data"], Value::Null);
    assert!(!answer.text().contains(token), "the token is repeated: {}", answer.text());
    false
}

fn ids(viewer: &Value) -> Vec<&str> {
    let sessions = viewer["sessions"].as_array().unwrap().iter();
    sessions.map(|session| session["id"].as_str().unwrap()).collect()
}

at_any_time! {
    visitors_are_told_who_they_are,
    a_session_ends_without_activity_and_a_guest_may_come_back,
}

on_every_server! {
    a_session_that_was_ended_is_refused_everywhere,
}

async fn visitors_are_told_who_they_are(server: &TestServer, clock: &ManualClock) {
    let (http, began) = (&server.http, clock.now());
    let nobody = json!({ "kind": "ANONYMOUS", "id": null, "sessions": [] });
    assert_eq!(viewer(http, None).await, nobody);

    let input = json!({ "deviceType": "web", "geoZone": "Москва" });
    let payload = start(http, None, input).await;
    let guest = payload["token"].as_str().unwrap();
    let shown = json!({ "id": payload["session"]["id"], "deviceType": "web", "geoZone": "Москва",
        "createdAt": began.to_string(), "lastActivity": began.to_string(), "current": true });
    assert_eq!(payload["session"], shown);
    assert_eq!(payload["userErrors"], json!([]));
    assert!(guest.is_ascii() && !guest.contains(shown["id"].as_str().unwrap()));
    let told = json!({ "kind": "GUEST", "id": shown["id"], "sessions": [shown] });
    assert_eq!(viewer(http, Some(guest)).await, told);

    // A customer with two devices: each sees both, the newer first, and knows its own.
    let jwt = token("customer-1", Role::Customer);
    let phone = visit_with(http, Some(&jwt), json!({ "deviceType": "ios" })).await;
    clock.advance(Duration::from_secs(30));
    let laptop = visit(http, Some(&jwt)).await;
    for (token, current) in
        [(&jwt, [false, false]), (&laptop.token, [true, false]), (&phone.token, [false, true])]
    {
        let told = viewer(http, Some(token)).await;
        assert_eq!((&told["kind"], &told["id"]), (&json!("CUSTOMER"), &json!("customer-1")));
        assert_eq!(ids(&told), [&laptop.id, &phone.id]);
        assert_eq!([0, 1].map(|n| told["sessions"][n]["current"] == true), current);
        assert_eq!(told["sessions"][1]["deviceType"], "ios");
        assert_eq!(told["sessions"][0]["deviceType"], Value::Null);
        assert_eq!(told["sessions"][1]["createdAt"], began.to_string());
        assert_eq!(told["sessions"][0]["createdAt"], clock.now().to_string());
    }

    let told = viewer(http, Some(&staff())).await;
    assert_eq!(told, json!({ "kind": "STAFF", "id": "manager-1", "sessions": [] }));
    // A session has no more rights than a customer's, whoever began it.
    let session = visit(http, Some(&staff())).await;
    let told = viewer(http, Some(&session.token)).await;
    assert_eq!((&told["kind"], &told["id"]), (&json!("CUSTOMER"), &json!("manager-1")));
    assert_eq!(ids(&viewer(http, Some(&staff())).await), [&session.id]);

    // One that was ended is not listed any more.
    end_own(http, &laptop).await;
    assert_eq!(ids(&viewer(http, Some(&jwt)).await), [&phone.id]);
}

/// Waits until the store knows that a session was used now: that is noted in the background.
async fn until_noted(server: &TestServer, visit: &Visit, clock: &ManualClock) {
    let (id, began) = (Uuid::parse_str(&visit.id).unwrap(), Instant::now());
    let now = clock.now().to_millis_precision();
    while server.opened().session(id).await.unwrap().unwrap().last_activity != now {
        assert!(began.elapsed() < PATIENCE, "it is not noted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn a_session_ends_without_activity_and_a_guest_may_come_back(
    server: &TestServer,
    clock: &ManualClock,
) {
    let (http, began) = (&server.http, clock.now());
    let jwt = token("customer-1", Role::Customer);
    let guest = visit(http, None).await;
    let (busy, idle) = (visit(http, Some(&jwt)).await, visit(http, Some(&jwt)).await);
    // Activity keeps a session alive; without it, it ends after a day.
    for step in 1..=3 {
        clock.advance(20 * HOUR);
        assert!(is_let_in(http, &busy.token).await, "step {step}");
        until_noted(server, &busy, clock).await;
    }
    assert!(!is_let_in(http, &idle.token).await);
    let told = viewer(http, Some(&busy.token)).await;
    assert_eq!(ids(&told), [&busy.id]);
    assert_eq!(told["sessions"][0]["createdAt"], began.to_string());
    assert_eq!(told["sessions"][0]["lastActivity"], clock.now().to_string());
    let newer = visit(http, None).await;
    clock.advance(25 * HOUR);
    assert!(!is_let_in(http, &busy.token).await);
    assert_eq!(viewer(http, Some(&jwt)).await["sessions"], json!([]));

    // The guest comes back as the same one, in a session that begins now.
    for guest in [&newer, &guest] {
        let told = viewer(http, Some(&guest.token)).await;
        assert_eq!((&told["kind"], &told["id"]), (&json!("GUEST"), &json!(guest.id)));
        assert_eq!(ids(&told), [&guest.id]);
        assert_eq!(told["sessions"][0]["createdAt"], clock.now().to_string());
        until_noted(server, guest, clock).await;
    }
    // For thirty days after that, and no longer.
    clock.advance((30 * 24 - 1) * HOUR);
    assert!(is_let_in(http, &guest.token).await);
    until_noted(server, &guest, clock).await;
    clock.advance(31 * 24 * HOUR);
    assert!(!is_let_in(http, &guest.token).await);
}

async fn a_session_that_was_ended_is_refused_everywhere(server: &TestServer) {
    let other = server.beside(|_| {}).await;
    let jwt = token("customer-1", Role::Customer);
    let (guest, own) = (visit(&server.http, None).await, visit(&server.http, Some(&jwt)).await);
    let distant = visit(&server.http, Some(&jwt)).await;
    for visit in [&guest, &own, &distant] {
        // The other instance knows it too, and would remember it.
        assert!(is_let_in(&other.http, &visit.token).await);
    }
    end_own(&server.http, &guest).await;
    end_own(&server.http, &own).await;
    let ended = end(&server.http, &jwt, Some(&distant.id)).await;
    let began = Instant::now();
    assert_eq!(ended, json!({ "endedId": distant.id, "userErrors": [] }));
    for visit in [&guest, &own, &distant] {
        assert!(!is_let_in(&server.http, &visit.token).await, "at once where it was ended");
    }
    for visit in [&guest, &own, &distant] {
        loop {
            // What counts is when it was asked, not how long a busy machine takes to answer.
            let asked = began.elapsed();
            if !is_let_in(&other.http, &visit.token).await {
                break;
            }
            assert!(asked < EVERYWHERE, "let in {asked:?} after it was ended");
        }
    }
    // It stays so, also once nobody remembers.
    tokio::time::sleep(EVERYWHERE).await;
    for visit in [&guest, &own, &distant] {
        assert!(!is_let_in(&server.http, &visit.token).await);
        assert!(!is_let_in(&other.http, &visit.token).await);
    }
    assert_eq!(viewer(&other.http, Some(&jwt)).await["sessions"], json!([]));
}

#[tokio::test]
async fn what_is_wrong_with_the_input_is_told_and_nothing_is_begun() {
    let server = TestServer::start().await;
    let jwt = token("customer-1", Role::Customer);
    let (device, zone) = ("input.deviceType", "input.geoZone");
    for (input, expected) in [
        (json!({ "deviceType": "" }), vec![(device, "BLANK")]),
        (json!({ "deviceType": "x".repeat(41) }), vec![(device, "TOO_LONG")]),
        (json!({ "deviceType": "a\u{7}b" }), vec![(device, "INVALID")]),
        (json!({ "geoZone": " \t" }), vec![(zone, "BLANK")]),
        (json!({ "geoZone": "я".repeat(65) }), vec![(zone, "TOO_LONG")]),
        (
            json!({ "deviceType": "a\nb", "geoZone": "a\u{0}b" }),
            vec![(device, "INVALID"), (zone, "INVALID")],
        ),
    ] {
        for jwt in [None, Some(jwt.as_str())] {
            let payload = start(&server.http, jwt, input.clone()).await;
            let owned = |(path, code): &(&str, &str)| ((*path).to_owned(), (*code).to_owned());
            assert_eq!(faults(&payload), expected.iter().map(owned).collect::<Vec<_>>());
            assert_eq!((&payload["token"], &payload["session"]), (&Value::Null, &Value::Null));
        }
    }
    let unknown = json!({ "query": START, "variables": { "input": { "userId": "admin" } } });
    assert_eq!(server.http.post(None, &unknown).await.code(), "BAD_USER_INPUT");
    assert_eq!(viewer(&server.http, Some(&jwt)).await["sessions"], json!([]));
    assert_eq!(metric(&server.http, WRITES).await, 0);
    // The longest that are taken.
    let input = json!({ "deviceType": "ы".repeat(40), "geoZone": "я".repeat(64) });
    visit_with(&server.http, Some(&jwt), input).await;
    visit_with(&server.http, None, json!({})).await;
    assert_eq!(metric(&server.http, WRITES).await, 2);
}

#[tokio::test]
async fn a_session_is_ended_by_its_owner_and_nobody_else() {
    let server = TestServer::start().await;
    let http = &server.http;
    let (jwt, other) = (token("customer-1", Role::Customer), token("customer-2", Role::Customer));
    let (own, foreign) = (visit(http, Some(&jwt)).await, visit(http, Some(&other)).await);
    let (guest, stranger) = (visit(http, None).await, visit(http, None).await);
    let gone = visit(http, Some(&jwt)).await;
    end_own(http, &gone).await;
    let unknown = Uuid::new_v4().simple().to_string();
    let mut told = Vec::new();
    for (token, others) in [
        (&jwt, [&foreign.id, &guest.id]),
        (&own.token, [&foreign.id, &guest.id]),
        (&guest.token, [&own.id, &stranger.id]),
        (&staff(), [&own.id, &guest.id]),
    ] {
        let sound = others.into_iter().chain([&gone.id, &unknown]).map(String::as_str);
        for id in sound.chain(["", "nonsense", "customer-1", &"f".repeat(1_000)]) {
            told.push(end(http, token, Some(id)).await);
        }
    }
    // All the same: nobody learns which of them exist.
    assert!(told.iter().all(|payload| *payload == told[0]), "{told:?}");
    assert_eq!(told[0]["endedId"], Value::Null);
    assert_eq!(faults(&told[0]), [("id".to_owned(), "NOT_FOUND".to_owned())]);
    for visit in [&own, &foreign, &guest, &stranger] {
        assert!(is_let_in(http, &visit.token).await);
        assert_eq!(http.query(END, json!({ "id": visit.id })).await.code(), "UNAUTHENTICATED");
        assert!(is_let_in(http, &visit.token).await);
    }
    assert_eq!(http.query(END, json!({})).await.code(), "UNAUTHENTICATED");
    // A token of the identity provider belongs to no session; which one is meant has to be said.
    for jwt in [&jwt, &staff()] {
        let payload = end(http, jwt, None).await;
        assert_eq!(faults(&payload), [("id".to_owned(), "BLANK".to_owned())]);
    }
    // The customer's own, from the other device; by any spelling of its id.
    let second = visit(http, Some(&jwt)).await;
    let spelled = Uuid::parse_str(&second.id).unwrap().to_string();
    let ended = end(http, &own.token, Some(&spelled)).await;
    assert_eq!(ended, json!({ "endedId": second.id, "userErrors": [] }));
    assert!(!is_let_in(http, &second.token).await);
    assert_eq!(end(http, &jwt, Some(&own.id)).await["endedId"], own.id.as_str());
    assert!(!is_let_in(http, &own.token).await);
    assert_eq!(end(http, &guest.token, Some(&guest.id)).await["endedId"], guest.id.as_str());
    assert!(!is_let_in(http, &guest.token).await);
}

#[tokio::test]
async fn a_session_begins_no_other_and_has_no_rights_of_staff() {
    let server = TestServer::start().await;
    let http = &server.http;
    let customer = visit(http, Some(&token("customer-1", Role::Customer))).await;
    let manager = visit(http, Some(&staff())).await;
    for visit in [&customer, &manager] {
        let answer = http.query_as(&visit.token, START, json!({})).await;
        assert_eq!(answer.code(), "FORBIDDEN");
        assert!(!answer.text().contains("vs1."), "{}", answer.text());
        for (query, variables) in [
            (super::UPSERT, json!({ "products": [product("A", "Книги", "1")] })),
            (super::DELETE, json!({ "ids": ["A"] })),
            ("{ abandonedCarts(idleForMinutes: 1) { nodes { id } } }", json!({})),
            ("{ cartHistory(cartId: \"user:manager-1\") { nodes { id } } }", json!({})),
        ] {
            let answer = http.query_as(&visit.token, query, variables).await;
            assert_eq!(answer.code(), "FORBIDDEN", "{query}");
            assert!(answer.json()["extensions"]["reads"].is_null(), "{}", answer.text());
        }
    }
    // A guest may: that is somebody else then.
    let guest = visit(http, None).await;
    let another = visit(http, Some(&guest.token)).await;
    assert_ne!(another.id, guest.id);
    assert_eq!(viewer(http, Some(&another.token)).await["kind"], "GUEST");
}

#[tokio::test]
async fn what_is_no_token_of_this_shop_is_refused() {
    let server = TestServer::start().await;
    let abroad = TestServer::start().await;
    let (http, jwt) = (&server.http, token("customer-1", Role::Customer));
    let good = visit(http, None).await.token;
    let customer = visit(http, Some(&jwt)).await.token;
    let body = good.strip_prefix("vs1.").unwrap();
    let mut bad = vec![
        visit(&abroad.http, None).await.token,
        visit(&abroad.http, Some(&jwt)).await.token,
        good[..good.len() - 1].to_owned(),
        good[..good.len() / 2].to_owned(),
        format!("{good}A"),
        format!("{good}{good}"),
        format!("{good}.{good}"),
        format!("{good}="),
        good.to_uppercase(),
        body.to_owned(),
        format!("vs2.{body}"),
        format!("vs1.vs1.{body}"),
        "vs1.".to_owned(),
        format!("vs1.{}", "A".repeat(43)),
        format!("vs1.{}", "A".repeat(4_000)),
        // The id of one and the signature of the other.
        format!("{}{}", &good[..26], &customer[26..]),
        // A sound token of the identity provider that is made to look like one of a session.
        format!("vs1.{jwt}"),
        format!("{good}.{jwt}"),
    ];
    for place in 0..good.len() {
        let mut changed = good.clone().into_bytes();
        changed[place] = if changed[place] == b'A' { b'B' } else { b'A' };
        bad.push(String::from_utf8(changed).unwrap());
    }
    for token in &bad {
        assert!(!is_let_in(http, token).await, "{token}");
    }
    for token in bad.iter().take(6) {
        let mut socket = Socket::open(server.address).await;
        let payload = json!({ "Authorization": format!("Bearer {token}") });
        socket.send(&json!({ "type": "connection_init", "payload": payload })).await;
        assert_eq!(socket.close_code().await, 4403, "{token}");
    }
    assert!(is_let_in(http, &good).await && is_let_in(http, &customer).await);
}

#[tokio::test]
async fn browser_and_address_are_noted() {
    let server = TestServer::start().await;
    let body = json!({ "query": START }).to_string();
    let long = "Mozilla/5.0 ".repeat(100);
    for (agent, kept) in [
        (None, None),
        (Some("Vitrina iOS/3"), Some("Vitrina iOS/3".to_owned())),
        (Some(long.as_str()), Some(long[..300].to_owned())),
    ] {
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(agent.map(|agent| ("user-agent", agent)));
        let answer = post(&server.http, &headers, body.clone()).await.json();
        let id = answer["data"]["sessionStart"]["session"]["id"].as_str().unwrap();
        let session = server.opened().session(Uuid::parse_str(id).unwrap()).await;
        let noted = session.unwrap().unwrap().noted;
        assert_eq!(noted.user_agent, kept);
        assert_eq!(noted.address.as_deref(), Some("127.0.0.1"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn activity_is_noted_once_a_minute() {
    let (server, clock) = in_time().await;
    let http = &server.http;
    let guest = visit(http, None).await;
    assert_eq!(metric(http, WRITES).await, 1);
    for minute in 1..=3_u64 {
        clock.advance(Duration::from_secs(59));
        is_let_in(http, &guest.token).await;
        assert_eq!(metric(http, WRITES).await, minute, "too early");
        clock.advance(Duration::from_secs(1));
        let asked = (0..20).map(|_| is_let_in(http, &guest.token));
        let asked = futures_util::future::join_all(asked).await;
        assert!(asked.into_iter().all(|is| is));
        // It is noted in the background.
        let began = Instant::now();
        while metric(http, WRITES).await <= minute {
            assert!(began.elapsed() < PATIENCE, "it is not noted");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        is_let_in(http, &guest.token).await;
        assert_eq!(metric(http, WRITES).await, minute + 1, "once for all of them");
        let told = viewer(http, Some(&guest.token)).await;
        assert_eq!(told["sessions"][0]["lastActivity"], clock.now().to_string());
    }
}

const WATCH: &str = "subscription {
    stockChanged(productIds: [\"A\"], geoZone: \"Тула\") { available } }";
const SET: &str = "mutation($quantity: Int!) { stockSet(entries: [
    { productId: \"A\", geoZone: \"Тула\", quantity: $quantity }]) { userErrors { code } } }";

#[tokio::test]
async fn a_connection_ends_with_its_session() {
    let server = TestServer::start().await;
    let http = &server.http;
    stock(http, &[product("A", "Книги", "10")]).await;
    let set = async |quantity: i32| {
        let set = data_for(http, Some(&staff()), SET, json!({ "quantity": quantity })).await;
        assert_eq!(set["stockSet"]["userErrors"], json!([]));
    };
    set(1).await;
    let jwt = token("customer-1", Role::Customer);
    for jwt in [None, Some(jwt.as_str())] {
        let (ended, asking) = (visit(http, jwt).await, visit(http, jwt).await);
        let going = visit(http, jwt).await;
        let mut watching = Socket::connect_as(server.address, &ended.token).await;
        let mut quiet = Socket::connect_as(server.address, &asking.token).await;
        let mut other = Socket::connect_as(server.address, &going.token).await;
        for socket in [&mut watching, &mut other] {
            socket.subscribe("s", WATCH, json!({})).await;
            socket.payload("next", "s").await;
        }
        end_own(http, &ended).await;
        end_own(http, &asking).await;
        set(7).await;
        let told = other.payload("next", "s").await;
        assert_eq!(told["data"]["stockChanged"]["available"], 7);
        assert_eq!(watching.closed_at_once().await, (4403, "session ended".to_owned()));
        quiet.subscribe("q", "{ viewer { kind } }", json!({})).await;
        assert_eq!(quiet.closed_at_once().await, (4403, "session ended".to_owned()));
        set(1).await;
        other.payload("next", "s").await;
    }
}
