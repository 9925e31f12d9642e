//! An answer that depends on who asks is never given to anybody else: every field of the schema, asked
//! for by everybody, in turns.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write;

use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{
    BaseType, FieldDefinition, Type, TypeKind, TypeSystemDefinition,
};
use serde_json::{Value, json};
use vitrina::clock::{Clock, SystemClock};
use vitrina::graphql::ShopGraph;

use super::super::carts::{Shopper, set_stock};
use super::super::{data, metric, product, staff, stock as sell};
use super::{BYPASS, HIT, OWN, SHARED};
use crate::support::http::{Answer, HttpClient};
use crate::support::server::TestServer;
use crate::support::stores::TestStore;

/// The only questions whose answers are the same for everybody.
const PUBLIC_ROOTS: [&str; 4] = ["product", "products", "categories", "category"];
/// The only objects that such an answer is made of; all of their fields are.
const PUBLIC_TYPES: [&str; 9] = [
    "Attribute",
    "Category",
    "CategoryPriceRange",
    "Money",
    "PageInfo",
    "Product",
    "ProductConnection",
    "ProductEdge",
    "Stock",
];

fn objects() -> HashMap<String, Vec<FieldDefinition>> {
    let definitions = parse_schema(ShopGraph::new(true).sdl()).unwrap().definitions.into_iter();
    let object = |definition| match definition {
        TypeSystemDefinition::Type(ty) => match ty.node.kind {
            TypeKind::Object(object) => {
                let fields = object.fields.into_iter().map(|field| field.node).collect();
                Some((ty.node.name.node.to_string(), fields))
            }
            _ => None,
        },
        _ => None,
    };
    definitions.filter_map(object).collect()
}

fn base_of(ty: &Type) -> &str {
    match &ty.base {
        BaseType::Named(name) => name,
        BaseType::List(inner) => base_of(inner),
    }
}

#[test]
fn every_field_that_can_be_reached_is_declared_or_private() {
    let (objects, graph) = (objects(), ShopGraph::new(true));
    let (mut seen, mut queue) = (HashSet::new(), VecDeque::from(["Query"]));
    let mut public = 0;
    while let Some(object) = queue.pop_front() {
        if !seen.insert(object) {
            continue;
        }
        for field in &objects[object] {
            let name = field.name.node.as_str();
            let info = graph.index().field(object, name).unwrap();
            let expected = match object {
                "Query" => PUBLIC_ROOTS.contains(&name),
                object => PUBLIC_TYPES.contains(&object),
            };
            // Whoever adds a field decides: beside the field, and here.
            assert_eq!(info.is_public, expected, "{object}.{name}");
            public += usize::from(expected);
            if objects.contains_key(base_of(&field.ty.node)) {
                queue.push_back(base_of(&field.ty.node));
            }
        }
    }
    assert!(PUBLIC_TYPES.iter().all(|object| seen.contains(object)) && public > 30);
    // What is changed or watched is nobody's to keep.
    for (object, name, info) in graph.index().fields() {
        if !seen.contains(object) {
            assert!(!info.is_public, "{object}.{name}");
        }
    }
}

/// What is asked of fields that need it.
struct Known {
    order: String,
    day: String,
}

impl Known {
    fn argument(&self, field: &str, name: &str) -> Option<String> {
        Some(match (field, name) {
            ("products", "ids") => "[\"1\", \"2\", \"none\"]".to_owned(),
            ("product", "id") => "\"1\"".to_owned(),
            ("order", "id") => format!("\"{}\"", self.order),
            ("category", "name") => "\"Книги\"".to_owned(),
            ("stock", "geoZone") => "\"Москва\"".to_owned(),
            ("ordersByPeriod", "day") => format!("\"{}\"", self.day),
            ("abandonedCarts", "idleForMinutes") => "1".to_owned(),
            ("cartHistory", "cartId") => "\"user:one\"".to_owned(),
            _ => return None,
        })
    }

    fn field(&self, field: &FieldDefinition) -> String {
        let name = field.name.node.as_str();
        let given = field.arguments.iter().filter_map(|argument| {
            let argument = argument.node.name.node.as_str();
            Some(format!("{argument}: {}", self.argument(name, argument)?))
        });
        let given: Vec<_> = given.collect();
        if given.is_empty() { name.to_owned() } else { format!("{name}({})", given.join(" ")) }
    }

    /// For every field that can be reached, a query for it alone; and for every root, one for
    /// everything below it that is no list of its own.
    fn queries(&self) -> Vec<(String, String)> {
        let objects = objects();
        let mut found = Vec::new();
        let (mut seen, mut queue) =
            (HashSet::new(), VecDeque::from([("Query".to_owned(), vec![])]));
        while let Some((object, path)) = queue.pop_front() {
            let root = path.first().cloned();
            if !seen.insert((root.clone(), object.clone())) {
                continue;
            }
            for field in &objects[&object] {
                let mut path: Vec<String> = path.clone();
                path.push(self.field(field));
                let inside = base_of(&field.ty.node).to_owned();
                let is_object = objects.contains_key(&inside);
                let mut query = path.join(" { ");
                query.push_str(if is_object { " { __typename }" } else { "" });
                let depth = path.len() - 1;
                write!(query, "{}", " }".repeat(depth)).unwrap();
                let root = path[0].split('(').next().unwrap().to_owned();
                found.push((root, format!("{{ {query} }}")));
                if is_object {
                    queue.push_back((inside, path));
                }
            }
        }
        found
    }
}

async fn ask(http: &HttpClient, token: Option<&str>, query: &str) -> Answer {
    http.post(token, &json!({ "query": query, "variables": {} })).await
}

/// What of an answer must be the same whether it was kept or not: not what it took to make it.
fn told(answer: &Answer) -> Value {
    let mut told = answer.json();
    told.as_object_mut().unwrap().remove("extensions");
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_what_is_for_somebody_else() {
    let server = TestServer::start_on(TestStore::embedded().await, |_| {}).await;
    // The same shop, where nothing is kept.
    let plain = server.beside(|config| config.limits.response_cache_bytes = 0).await;
    let http = &server.http;
    sell(http, &[product("1", "Книги", "10"), product("2", "Игры", "20")]).await;
    set_stock(http, &[("1", "Москва", 90), ("1", "СПб", 3), ("2", "Москва", 50)]).await;
    let customers = ["one", "other"].map(|id| Shopper::customer(&server, id));
    let guests = [Shopper::guest(&server).await, Shopper::guest(&server).await];
    let mut order = String::new();
    for (units, shopper) in customers.iter().chain(&guests).enumerate() {
        let units = i64::try_from(units + 1).unwrap();
        shopper.put(&[("1", units)]).await;
        let input = json!({ "idempotencyKey": "k", "geoZone": "Москва", "paymentMethod": "card",
                            "shippingAddress": { "city": "Тула", "street": "Ленина, 1" } });
        let checkout = "mutation($input: CheckoutInput!) {
            checkout(input: $input) { order { id } userErrors { code message } } }";
        let bought = shopper.data(checkout, json!({ "input": input })).await;
        if units == 1 {
            order = bought["checkout"]["order"]["id"].as_str().unwrap().to_owned();
        }
        shopper.put(&[("2", units)]).await;
    }
    let day = SystemClock.now().to_string().split('T').next().unwrap().to_owned();
    let queries = Known { order, day }.queries();
    assert!(queries.len() > 150, "{}", queries.len());
    let manager = staff();
    let mut callers: Vec<Option<&str>> = vec![None];
    callers.extend(customers.iter().chain(&guests).map(|shopper| Some(shopper.token.as_str())));
    callers.push(Some(&manager));
    let mut differ = 0;
    for (root, query) in &queries {
        let is_public = PUBLIC_ROOTS.contains(&root.as_str());
        let mut answers = Vec::new();
        // Twice around: the second time everything that may be is at hand.
        for caller in callers.iter().chain(&callers) {
            let answer = ask(http, *caller, query).await;
            let expected = ask(&plain.http, *caller, query).await;
            assert_eq!(told(&answer), told(&expected), "{query}");
            assert_eq!(answer.status, expected.status, "{query}");
            let is_staff = *caller == Some(manager.as_str());
            let is_shared = is_public && !is_staff;
            assert_eq!(
                answer.header("cache-control"),
                if is_shared { SHARED } else { OWN },
                "{query}: {}",
                answer.text()
            );
            assert_eq!(answer.headers.contains_key("etag"), is_shared, "{query}");
            if is_shared {
                assert!(!answer.text().contains("extensions"), "{query}");
            }
            answers.push(told(&answer).to_string());
        }
        let different: HashSet<_> = answers.iter().collect();
        assert!(!is_public || different.len() == 1, "{query}");
        differ += usize::from(different.len() > 1);
    }
    assert!(differ > 60, "only {differ} answers depended on who asked");
    assert!(metric(http, HIT).await > 100);
    assert!(metric(http, BYPASS).await > 100);
}

#[tokio::test]
async fn a_document_has_an_answer_for_each_of_its_variables_and_operations() {
    let server = TestServer::start().await;
    sell(&server.http, &[product("1", "Книги", "10"), product("2", "Игры", "20")]).await;
    set_stock(&server.http, &[("1", "Москва", 9), ("1", "СПб", 3)]).await;
    let query = "query A($id: ID!, $zone: String!) {
            product(id: $id) { id stock(geoZone: $zone) { geoZone available } } }
        query B($id: ID!, $with: Boolean = false) {
            product(id: $id) { name category @include(if: $with) { name } } }";
    for _ in 0..3 {
        for (zone, available) in [("Москва", json!(9)), ("СПб", json!(3)), ("Тула", Value::Null)]
        {
            let variables = json!({ "id": "1", "zone": zone });
            let body = json!({ "query": query, "operationName": "A", "variables": variables });
            let answer = server.http.post(None, &body).await.json();
            let stock = &answer["data"]["product"]["stock"];
            assert_eq!(stock["available"], available, "{answer}");
            assert!(stock.is_null() || stock["geoZone"] == zone, "{answer}");
        }
        for with in [true, false] {
            let variables = json!({ "id": "2", "with": with });
            let body = json!({ "query": query, "operationName": "B", "variables": variables });
            let answer = server.http.post(None, &body).await;
            assert_eq!(answer.json()["data"]["product"].get("category").is_some(), with);
            assert_eq!(answer.header("cache-control"), SHARED);
        }
    }
    let typename = data(&server.http, "{ __typename }", json!({})).await;
    assert_eq!(typename, json!({ "__typename": "Query" }));
}
