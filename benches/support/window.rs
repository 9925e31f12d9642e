//! What people ask for who look around: cards and pages of a category, with what there is to buy in
//! their zone.

use std::net::SocketAddr;

use serde_json::{Value, json};
use vitrina::demo::catalogue::{CATEGORIES, id_of};

use super::Result;
use super::requests::Requests;
use super::roles::SHOP;
use super::stand::{ANSWER as PAGE_ANSWER, Inspector, PAGE, body as plain_page};

/// The zone of all shoppers.
pub(super) const ZONE: &str = "Москва";
/// Pages of each category that are looked at, from its first one on: few people leaf further. The
/// same number whatever the size of the shop, so that sizes can be compared.
const PAGES: usize = 5;
/// Stands for an id while a body is made.
const MARK: &str = "<id>";

/// A card with its stock.
const CARD: &str = "query Card($id: ID!, $zone: String!) { product(id: $id) { id name \
                    category { name } price { amount currencyCode } attributes { name value } \
                    stock(geoZone: $zone) { available status } } }";
/// How the answer begins.
const CARD_ANSWER: &[u8] = br#"{"data":{"product":{"id":"PROD-"#;
/// A page of a category with its stock.
const WINDOW: &str = "query Window($name: String!, $first: Int!, $after: String, $zone: String!) \
                      { category(name: $name) { products(first: $first, after: $after) { \
                      nodes { id name price { amount } imageUrl \
                      stock(geoZone: $zone) { available status } } \
                      pageInfo { hasNextPage endCursor } } } }";

/// The body of a request for a card.
fn card_body(id: &str) -> String {
    json!({ "query": CARD, "variables": { "id": id, "zone": ZONE } }).to_string()
}

/// The bodies of requests for the cards of the first products.
pub(super) fn card_bodies(products: u64) -> Vec<String> {
    (0..products).map(|place| card_body(&id_of(place))).collect()
}

/// Requests for the cards of the first products, made as they are sent: of a million there would be
/// half a gigabyte.
pub(super) fn cards(products: u64) -> Result<Requests> {
    let body = card_body(MARK);
    let (before, after) = body.split_once(MARK).ok_or("a body without an id")?;
    let body = [before.to_owned(), after.to_owned()];
    Ok(Requests::of_products(usize::try_from(products)?, body, CARD_ANSWER, SHOP))
}

/// The bodies of requests for the first pages of all categories of a shop.
pub(super) async fn page_bodies(shop: SocketAddr) -> Result<Vec<String>> {
    let mut inspector = Inspector::open(shop).await?;
    let mut bodies = Vec::new();
    for name in CATEGORIES {
        let mut after: Option<String> = None;
        for _ in 0..PAGES {
            let variables = json!({ "name": name, "first": PAGE, "after": after, "zone": ZONE });
            bodies.push(json!({ "query": WINDOW, "variables": variables }).to_string());
            // A cursor is the same with and without stock.
            let page =
                inspector.look(&plain_page(name, PAGE, after.as_deref(), &Value::Null)).await?;
            if page.next.is_none() {
                break;
            }
            after = page.next;
        }
    }
    Ok(bodies)
}

/// Requests with bodies of cards, to a path.
pub(super) fn card_requests(bodies: &[String], path: &str) -> Requests {
    Requests::of(bodies, CARD_ANSWER, path)
}

/// Requests with bodies of pages, to a path.
pub(super) fn page_requests(bodies: &[String], path: &str) -> Requests {
    Requests::of(bodies, PAGE_ANSWER, path)
}
