//! What is asked: the product card of the README, and a page of 24 of them.

use std::cell::Cell;

use serde_json::json;
use vitrina::demo::DEFAULT_PRODUCTS;
use vitrina::demo::catalogue::id_of;

/// A card. Its name has room for a number, for documents that differ every time.
const CARD: &str = "query Card_00000000($id: ID!) { product(id: $id) { id name \
                    category { name } price { amount currencyCode } attributes { name value } } }";
/// The part of a body that a number takes the place of.
pub(super) const STAMP: &str = "_00000000";
/// A page of a listing.
const PAGE: &str = "query Page($ids: [ID!]!) { products(ids: $ids) { id name \
                    category { name } price { amount currencyCode } attributes { name value } } }";
/// Cards on a page.
pub(super) const PAGE_SIZE: usize = 24;

/// What the client says it takes. It decides the media type of the answer.
pub(super) const ACCEPT: &str = "application/json";
/// What the client says it sends.
pub(super) const CONTENT_TYPE: &str = "application/json";

/// The kinds of requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One product, always with the same document.
    Card,
    /// One product, each time with a document that was never seen before.
    FreshCard,
    /// 24 products, always with the same document.
    Page,
}

impl Kind {
    /// The bodies of all requests of this kind: together they ask for every product of the demo
    /// (that fills a page).
    pub(super) fn bodies(self) -> Vec<String> {
        let card = CARD.replace(STAMP, "");
        let query = match self {
            Self::Card => card.as_str(),
            Self::FreshCard => CARD,
            Self::Page => PAGE,
        };
        let ids: Vec<String> = (0..DEFAULT_PRODUCTS).map(id_of).collect();
        let body = |variables| json!({ "query": query, "variables": variables }).to_string();
        match self {
            Self::Card | Self::FreshCard => {
                ids.iter().map(|id| body(json!({ "id": id }))).collect()
            }
            Self::Page => {
                ids.chunks_exact(PAGE_SIZE).map(|ids| body(json!({ "ids": ids }))).collect()
            }
        }
    }

    /// How the body of a good answer begins.
    fn answer(self) -> &'static [u8] {
        match self {
            Self::Card | Self::FreshCard => br#"{"data":{"product":{"id":"PROD-"#,
            Self::Page => br#"{"data":{"products":[{"id":"PROD-"#,
        }
    }
}

/// Requests of one kind, ready to be sent.
pub(super) struct Requests {
    /// How the body of a good answer begins.
    answer: &'static [u8],
    /// Each with the place of its stamp, if it has one.
    ready: Vec<(Vec<u8>, Option<usize>)>,
    order: Order,
    sent: Cell<u32>,
}

/// Which request comes next.
enum Order {
    /// Any of them.
    Random { draws: Cell<u64> },
    /// On each connection the same one for so many times, then the next that no connection has.
    InTurn { visit: usize, next: Cell<usize> },
}

impl Requests {
    /// All requests of a kind, to a path.
    pub(super) fn new(kind: Kind, path: &str) -> Self {
        Self::of(&kind.bodies(), kind.answer(), path)
    }

    /// Requests with these bodies, whose answers begin like this, to a path.
    pub(super) fn of(bodies: &[String], answer: &'static [u8], path: &str) -> Self {
        let ready = bodies.iter().map(|body| ready(path, body, None)).collect();
        Self { answer, ready, order: Order::Random { draws: Cell::new(0) }, sent: Cell::new(0) }
    }

    /// A request of each of these callers, who come with a token. A caller makes `visit` requests
    /// in a row, over one connection, and comes again after all the others.
    pub(super) fn of_callers(
        callers: &[(String, String)],
        answer: &'static [u8],
        path: &str,
        visit: usize,
    ) -> Self {
        let ready = callers.iter().map(|(token, body)| ready(path, body, Some(token))).collect();
        let order = Order::InTurn { visit, next: Cell::new(0) };
        Self { answer, ready, order, sent: Cell::new(0) }
    }

    /// Which request a connection sends after so many, the last of which was the one at `place`.
    pub(super) fn next(&self, place: usize, sent: usize) -> usize {
        match &self.order {
            Order::Random { draws } => {
                let mut state = draws.get();
                let drawn = below(&mut state, self.ready.len());
                draws.set(state);
                drawn
            }
            Order::InTurn { visit, next } if sent.is_multiple_of(*visit) => {
                next.replace((next.get() + 1) % self.ready.len())
            }
            Order::InTurn { .. } => place,
        }
    }

    /// Puts a request in place of what is there.
    pub(super) fn write(&self, place: usize, request: &mut Vec<u8>) {
        let (bytes, stamp) = &self.ready[place];
        request.clear();
        request.extend_from_slice(bytes);
        if let Some(at) = *stamp {
            let number = self.sent.replace(self.sent.get().wrapping_add(1));
            let number = format!("{number:08x}");
            request[at..at + number.len()].copy_from_slice(number.as_bytes());
        }
    }

    /// Whether a body answers one of these requests.
    pub(super) fn is_answer(&self, body: &[u8]) -> bool {
        body.starts_with(self.answer)
    }
}

/// A request, and the place of its stamp, if it has one.
fn ready(path: &str, body: &str, token: Option<&str>) -> (Vec<u8>, Option<usize>) {
    let request = post(path, body, token);
    let body_at = request.len() - body.len();
    // The number comes after the `_`.
    let stamp = body.find(STAMP).map(|at| body_at + at + 1);
    (request, stamp)
}

/// A request as it goes over a connection.
pub(super) fn post(path: &str, body: &str, token: Option<&str>) -> Vec<u8> {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    format!(
        "POST {path} HTTP/1.1\r\nhost: shop\r\naccept: {ACCEPT}\r\n\
         content-type: {CONTENT_TYPE}\r\n{}content-length: {}\r\n\r\n{body}",
        token.unwrap_or_default(),
        body.len()
    )
    .into_bytes()
}

/// The next draw below `bound` of a stream of draws (splitmix64).
pub(super) fn below(state: &mut u64, bound: usize) -> usize {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut draw = *state;
    draw = (draw ^ (draw >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    draw = (draw ^ (draw >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    draw ^= draw >> 31;
    // The remainder is below a `usize` and so fits.
    usize::try_from(draw % bound as u64).unwrap_or(0)
}
