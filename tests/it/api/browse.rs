//! `Category.products`: pages, cursors, ranges, and what is refused.

use serde_json::{Value, json};
use vitrina::config::CacheConfig;
use vitrina::server::Role;

use super::{data, delete, metric, product, staff, stock};
use crate::support::process::ServerProcess;
use crate::support::server::{TestServer, token};
use crate::support::stores::TestStore;
use crate::support::{Random, seed};

const PAGE: &str = "query($name: String!, $first: Int, $after: String, $last: Int, $before: String,
                          $sort: ProductSort, $price: PriceRange) {
    category(name: $name) {
        products(first: $first, after: $after, last: $last, before: $before, sort: $sort,
                 price: $price) {
            edges { cursor node { id price { amount } } }
            nodes { id }
            pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
        }
    }
}";

on_every_server! {
    pages_lead_both_ways_through_a_category,
    page_info_is_exact,
    cursors_belong_to_their_list,
    pages_show_whole_products_and_follow_changes_at_once,
    staff_are_told_what_a_page_took,
}

/// A page of «Книги» with these arguments.
async fn page(server: &TestServer, mut arguments: Value) -> Value {
    arguments["name"] = json!("Книги");
    data(&server.http, PAGE, arguments).await["category"]["products"].take()
}

fn ids(page: &Value) -> Vec<String> {
    let nodes = page["nodes"].as_array().unwrap().iter();
    nodes.map(|node| node["id"].as_str().unwrap().to_owned()).collect()
}

/// Books A, B, C, … for 1, 2, 3, … roubles.
async fn books(server: &TestServer, count: u8) {
    let books: Vec<_> = (0..count)
        .map(|n| product(&char::from(b'A' + n).to_string(), "Книги", &format!("{}", n + 1)))
        .collect();
    stock(&server.http, &books).await;
}

async fn pages_lead_both_ways_through_a_category(server: &TestServer) {
    books(server, 26).await;
    let first = page(server, json!({})).await;
    assert_eq!(ids(&first).len(), 20, "the default");
    assert_eq!(first["edges"][0]["node"], json!({ "id": "A", "price": { "amount": "1.00" } }));
    let info = &first["pageInfo"];
    assert_eq!(info["startCursor"], first["edges"][0]["cursor"]);
    assert_eq!(info["endCursor"], first["edges"][19]["cursor"]);
    assert_eq!((&info["hasNextPage"], &info["hasPreviousPage"]), (&json!(true), &json!(false)));
    let second = page(server, json!({ "after": info["endCursor"] })).await;
    assert_eq!(ids(&second), ["U", "V", "W", "X", "Y", "Z"]);
    let info = &second["pageInfo"];
    assert_eq!((&info["hasNextPage"], &info["hasPreviousPage"]), (&json!(false), &json!(true)));
    let back = page(server, json!({ "last": 3, "before": info["startCursor"] })).await;
    assert_eq!(ids(&back), ["R", "S", "T"]);
    let last = page(server, json!({ "last": 2, "sort": "PRICE_DESC" })).await;
    assert_eq!(ids(&last), ["B", "A"]);
    let some = page(server, json!({ "first": 3, "price": { "min": "24.50", "max": "26" } })).await;
    assert_eq!(ids(&some), ["Y", "Z"], "both ends are included");
    let one = page(server, json!({ "price": { "min": "7", "max": 7 }, "sort": null })).await;
    assert_eq!(ids(&one), ["G"]);
    let none = page(server, json!({ "price": { "min": "7.01", "max": "7.99" } })).await;
    assert_eq!(ids(&none), [""; 0]);
    assert_eq!(none["pageInfo"]["endCursor"], Value::Null);
    let nothing = page(server, json!({ "first": 0 })).await;
    assert_eq!((ids(&nothing).len(), &nothing["pageInfo"]["hasNextPage"]), (0, &json!(true)));
    let range = "{ category(name: \"Книги\") { priceRange { min { amount } max { amount currencyCode } } } }";
    let range = data(&server.http, range, json!({})).await["category"]["priceRange"].take();
    let (min, max) =
        (json!({ "amount": "1.00" }), json!({ "amount": "26.00", "currencyCode": "RUB" }));
    assert_eq!(range, json!({ "min": min, "max": max }));
}

async fn page_info_is_exact(server: &TestServer) {
    let mut random = Random(seed());
    books(server, 9).await;
    let all = page(server, json!({ "first": 100 })).await;
    let cursors: Vec<_> =
        all["edges"].as_array().unwrap().iter().map(|edge| edge["cursor"].clone()).collect();
    // A cursor stays good when its product is gone.
    delete(&server.http, &["D"]).await;
    let left = ["A", "B", "C", "E", "F", "G", "H", "I"];
    for _ in 0..60 {
        let some = |random: &mut Random| {
            let at = usize::try_from(random.below(12)).unwrap();
            (at < cursors.len()).then_some(at)
        };
        let (after, before) = (some(&mut random), some(&mut random));
        let size = usize::try_from(random.below(6)).unwrap();
        let from_end = random.below(2) == 0;
        let letter = |at: usize| char::from(b'A' + u8::try_from(at).unwrap()).to_string();
        let inside = |id: &&&str| {
            after.is_none_or(|at| **id > letter(at).as_str())
                && before.is_none_or(|at| **id < letter(at).as_str())
        };
        let window: Vec<&str> = left.iter().filter(inside).copied().collect();
        let expected = if from_end {
            &window[window.len().saturating_sub(size)..]
        } else {
            &window[..window.len().min(size)]
        };
        let (first, last) = if from_end { (None, Some(size)) } else { (Some(size), None) };
        let arguments = json!({
            "first": first, "last": last, "after": after.map(|at| cursors[at].clone()),
            "before": before.map(|at| cursors[at].clone()),
        });
        let found = page(server, arguments).await;
        assert_eq!(ids(&found), expected, "{after:?} {before:?} {size} {from_end}");
        // Of an empty page nothing can be said beyond its own cursors; see the test above.
        if let (Some(first), Some(last)) = (expected.first(), expected.last()) {
            let info = &found["pageInfo"];
            assert_eq!(info["hasPreviousPage"], json!(first != &left[0]), "{found}");
            assert_eq!(info["hasNextPage"], json!(last != &left[7]), "{found}");
        } else if size > 0 && (after.is_some() || before.is_some()) && after < before {
            let beyond = left.iter().any(|id| before.is_some_and(|at| *id >= letter(at).as_str()));
            assert_eq!(found["pageInfo"]["hasNextPage"], json!(beyond), "{found}");
        }
    }
}

async fn cursors_belong_to_their_list(server: &TestServer) {
    books(server, 5).await;
    stock(&server.http, &[product("X", "Игры", "3")]).await;
    let range = json!({ "min": "1", "max": "4" });
    let first = page(server, json!({ "first": 2, "price": range })).await;
    let cursor = first["pageInfo"]["endCursor"].as_str().unwrap();
    let next = page(server, json!({ "first": 9, "price": range, "after": cursor })).await;
    assert_eq!(ids(&next), ["C", "D"]);

    let flipped = format!("{}{}", if cursor.starts_with('A') { "B" } else { "A" }, &cursor[1..]);
    let foreign = "AAAAAAAAAGQAAAAAAAAAAAAAAAAAAAAAAA";
    for arguments in [
        json!({ "name": "Книги", "after": cursor }),
        json!({ "name": "Книги", "after": cursor, "price": { "min": "1" } }),
        json!({ "name": "Книги", "after": cursor, "price": range, "sort": "PRICE_DESC" }),
        json!({ "name": "Игры", "after": cursor, "price": range }),
        json!({ "name": "Книги", "after": &cursor[..cursor.len() - 1], "price": range }),
        json!({ "name": "Книги", "after": flipped, "price": range }),
        json!({ "name": "Книги", "before": foreign, "last": 1 }),
        json!({ "name": "Книги", "after": "" }),
        json!({ "name": "Книги", "after": "\u{0}ё" }),
        json!({ "name": "Книги", "after": "A".repeat(50_000) }),
    ] {
        let answer = server.http.query(PAGE, arguments.clone()).await;
        assert_eq!(answer.code(), "INVALID_CURSOR", "{}", answer.text());
        assert_eq!(answer.json()["data"]["category"], Value::Null);
        assert!(answer.body.len() < 1_000, "nothing is repeated");
    }
}

async fn pages_show_whole_products_and_follow_changes_at_once(server: &TestServer) {
    let mut book = product("A", "Книги", "10");
    book["attributes"] = json!([{ "name": "Автор", "value": "Гоголь" }]);
    book["imageUrl"] = json!("/a.svg");
    stock(&server.http, &[book.clone(), product("B", "Книги", "20")]).await;
    let whole = "{ category(name: \"Книги\") { productCount products(first: 2) {
        nodes { id imageUrl attributes { value } description createdAt category { name productCount } }
        edges { node { name category { name } __typename } }
    } } }";
    let found = data(&server.http, whole, json!({})).await["category"].take();
    let first = &found["products"]["nodes"][0];
    assert_eq!(first["attributes"], json!([{ "value": "Гоголь" }]));
    assert_eq!(first["imageUrl"], json!("/a.svg"));
    assert_eq!(first["category"], json!({ "name": "Книги", "productCount": 2 }));
    assert_ne!(first["createdAt"], json!("1970-01-01T00:00:00.000Z"));
    let edge = json!({ "node": {
        "name": "Товар B", "category": { "name": "Книги" }, "__typename": "Product" } });
    assert_eq!(found["products"]["edges"][1], edge);

    // A write through this instance is seen by the next page, cached or not.
    for round in 0..5 {
        let price = format!("{}.00", 30 + round);
        book["price"]["amount"] = json!(price);
        stock(&server.http, &[book.clone()]).await;
        let found = page(server, json!({ "last": 1 })).await;
        assert_eq!(found["edges"][0]["node"], json!({ "id": "A", "price": { "amount": price } }));
    }
    delete(&server.http, &["A"]).await;
    assert_eq!(ids(&page(server, json!({})).await), ["B"]);
    stock(&server.http, &[product("B", "Игры", "1")]).await;
    let gone = data(&server.http, PAGE, json!({ "name": "Книги" })).await;
    assert_eq!(gone["category"], Value::Null, "an empty category is none");
}

async fn staff_are_told_what_a_page_took(server: &TestServer) {
    books(server, 10).await;
    let query = "{ category(name: \"Книги\") { products(first: 5, price: { min: \"2\" }) { nodes { id } } } }";
    let answer = server.http.query_as(&staff(), query, json!({})).await.json();
    let page = &answer["extensions"]["reads"]["pages"][0];
    assert_eq!(page["model"], "hash", "{answer}");
    assert_eq!((&page["partitions"], &page["rows"]), (&json!(1), &json!(6)), "{answer}");
    for anybody in [None, Some(token("someone", Role::Customer))] {
        let body = json!({ "query": query });
        let answer = server.http.post(anybody.as_deref(), &body).await.json();
        assert_eq!(answer["extensions"], Value::Null, "{answer}");
    }
}

#[tokio::test]
async fn arguments_that_make_no_sense_are_refused() {
    let server = TestServer::start().await;
    books(&server, 3).await;
    for arguments in [
        json!({ "first": -1 }),
        json!({ "first": 101 }),
        json!({ "first": 1_000_000_000 }),
        json!({ "first": 2_147_483_648_u32 }),
        json!({ "first": "5" }),
        json!({ "last": -1 }),
        json!({ "last": 101 }),
        json!({ "first": 1, "last": 1 }),
        json!({ "price": { "min": "2", "max": "1" } }),
        json!({ "price": { "min": "1,5" } }),
        json!({ "price": { "max": "много" } }),
        json!({ "price": { "max": true } }),
        json!({ "price": { "low": "1" } }),
        json!({ "sort": "NAME" }),
    ] {
        let mut variables = arguments.clone();
        variables["name"] = json!("Книги");
        let answer = server.http.query(PAGE, variables).await;
        let code = answer.code();
        assert!(
            ["BAD_USER_INPUT", "QUERY_TOO_COMPLEX"].contains(&code.as_str()),
            "{arguments}: {}",
            answer.text()
        );
        assert!(!answer.text().contains("много"), "{}", answer.text());
    }
    // Ends that no price reaches are ranges like others.
    for (range, count) in [
        (json!({ "min": "-5" }), 3),
        (json!({ "max": "-5" }), 0),
        (json!({ "min": "79228162514264337593543950335" }), 0),
        (json!({ "max": "79228162514264337593543950335" }), 3),
        (json!({ "min": "1.999", "max": "2.001" }), 1),
    ] {
        let found = page(&server, json!({ "price": range })).await;
        assert_eq!(ids(&found).len(), count, "{range}");
    }
    let none = data(&server.http, PAGE, json!({ "name": "нет такой" })).await;
    assert_eq!(none["category"], Value::Null);
}

#[tokio::test]
async fn pages_within_pages_are_bounded_by_their_cost() {
    let server = TestServer::start().await;
    books(&server, 3).await;
    let nested = |first: u32| {
        format!(
            "{{ category(name: \"Книги\") {{ products(first: {first}) {{ nodes {{ category {{ \
             products(first: {first}) {{ nodes {{ id }} }} }} }} }} }} }}"
        )
    };
    assert_eq!(server.http.query(&nested(100), json!({})).await.code(), "QUERY_TOO_COMPLEX");
    let found = data(&server.http, &nested(20), json!({})).await;
    let inner = &found["category"]["products"]["nodes"][2]["category"]["products"]["nodes"];
    assert_eq!(inner.as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_hot_first_page_is_read_by_one_request() {
    let server = TestServer::start().await;
    books(&server, 5).await;
    let reads =
        "vitrina_store_call_seconds_count{table=\"products_by_category_bucket\",kind=\"read\"}";
    let before = metric(&server.http, reads).await;
    let query = "{ category(name: \"Книги\") { products { nodes { id } } } }";
    let asked = (0..50).map(|_| data(&server.http, query, json!({})));
    let found = futures_util::future::join_all(asked).await;
    assert!(found.iter().all(|one| *one == found[0]));
    assert_eq!(metric(&server.http, reads).await - before, 1);
}

#[tokio::test]
async fn a_cursor_survives_a_change_of_buckets() {
    let store = TestStore::embedded().await;
    let shop = store.store.clone();
    let server = TestServer::start_on(store, |config| config.cache = CacheConfig::Off).await;
    books(&server, 12).await;
    let cursor = page(&server, json!({ "first": 4 })).await["pageInfo"]["endCursor"].take();
    let splitter =
        vitrina::catalog::service::split::Splitter::new(shop.clone(), std::time::Duration::ZERO);
    for model in vitrina::catalog::model::buckets::Model::BOTH {
        for _ in 0..3 {
            splitter.split("Книги", model).await.unwrap();
        }
    }
    let next = page(&server, json!({ "first": 3, "after": cursor })).await;
    assert_eq!(ids(&next), ["E", "F", "G"]);
}

#[tokio::test]
async fn a_cursor_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let page = "query($after: String) { category(name: \"Книги\") {
        products(first: 2, after: $after) { nodes { id } pageInfo { endCursor } } } }";
    let mut server = ServerProcess::start(dir.path(), &[]);
    let first = data(&server.http, page, json!({})).await;
    let cursor = first["category"]["products"]["pageInfo"]["endCursor"].clone();
    let second = data(&server.http, page, json!({ "after": cursor })).await;
    server.kill();
    // The secret of tokens is another one, too.
    let server = ServerProcess::start_demo(dir.path());
    assert_eq!(data(&server.http, page, json!({ "after": cursor })).await, second);
}
