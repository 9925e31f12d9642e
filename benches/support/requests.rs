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
    /// Always the same product.
    HotCard,
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
            Self::Card | Self::HotCard => card.as_str(),
            Self::FreshCard => CARD,
            Self::Page => PAGE,
        };
        let ids: Vec<String> = (0..DEFAULT_PRODUCTS).map(id_of).collect();
        let body = |variables| json!({ "query": query, "variables": variables }).to_string();
        match self {
            Self::HotCard => ids.iter().take(1).map(|id| body(json!({ "id": id }))).collect(),
            Self::Card | Self::FreshCard => {
                ids.iter().map(|id| body(json!({ "id": id }))).collect()
            }
            Self::Page => {
                ids.chunks_exact(PAGE_SIZE).map(|ids| body(json!({ "ids": ids }))).collect()
            }
        }
    }

    /// How the body of a good answer begins.
    pub(super) fn answer(self) -> &'static [u8] {
        match self {
            Self::Card | Self::HotCard | Self::FreshCard => br#"{"data":{"product":{"id":"PROD-"#,
            Self::Page => br#"{"data":{"products":[{"id":"PROD-"#,
        }
    }
}

/// Requests that are ready to be sent: of one kind, or a mix of several.
pub(super) struct Requests {
    parts: Vec<Part>,
    /// Of which part the next one is.
    draws: Cell<u64>,
}

/// Requests of one kind.
struct Part {
    /// How often they are sent, beside the other parts.
    weight: usize,
    /// How the body of a good answer begins.
    answer: &'static [u8],
    source: Source,
    order: Order,
    sent: Cell<u32>,
}

/// Where requests come from.
enum Source {
    /// All are there, each with the place of its stamp, if it has one.
    Ready(Vec<(Vec<u8>, Option<usize>)>),
    /// They are made as they are sent: for so many products that there is no room for all of them.
    Made { path: String, body: [String; 2], count: usize },
}

/// Which request comes next.
enum Order {
    /// Any of them.
    Random { draws: Cell<u64> },
    /// Any of the first `hot` in so many of a hundred cases, else any of the others.
    Skewed { hot: usize, percent: usize, draws: Cell<u64> },
    /// On each connection the same one for so many times, then the next that no connection has.
    InTurn { visit: usize, next: Cell<usize> },
    /// Each of them once, and then nothing.
    Once { next: Cell<usize> },
}

/// What a connection has sent of a part: how many, and which one last.
#[derive(Clone, Copy, Default)]
pub(super) struct Turn {
    sent: usize,
    place: usize,
}

/// A request: its part, and its place there.
pub(super) type Next = (usize, usize);

impl Requests {
    /// All requests of a kind, to a path.
    pub(super) fn new(kind: Kind, path: &str) -> Self {
        Self::of(&kind.bodies(), kind.answer(), path)
    }

    /// Requests with these bodies, whose answers begin like this, to a path.
    pub(super) fn of(bodies: &[String], answer: &'static [u8], path: &str) -> Self {
        let ready = bodies.iter().map(|body| ready(path, body, None)).collect();
        Self::part(answer, Source::Ready(ready), Order::Random { draws: Cell::new(0) })
    }

    /// The same, of which the first `hot` are asked for in so many of a hundred cases.
    pub(super) fn skewed(self, hot: usize, percent: usize) -> Self {
        let skew = |part| {
            let draws = Cell::new(0);
            Part { order: Order::Skewed { hot, percent, draws }, ..part }
        };
        Self { parts: self.parts.into_iter().map(skew).collect(), ..self }
    }

    /// Requests for any of the first `count` products, with a body that has a product's id between
    /// its two pieces.
    pub(super) fn of_products(
        count: usize,
        body: [String; 2],
        answer: &'static [u8],
        path: &str,
    ) -> Self {
        let source = Source::Made { path: path.to_owned(), body, count };
        Self::part(answer, source, Order::Random { draws: Cell::new(0) })
    }

    /// A request of each of these callers, who come with a token. A caller makes `visit` requests
    /// in a row, over one connection, and comes again after all the others.
    pub(super) fn of_callers(
        callers: &[(String, String)],
        answer: &'static [u8],
        path: &str,
        visit: usize,
    ) -> Self {
        let order = Order::InTurn { visit, next: Cell::new(0) };
        Self::part(answer, ready_of(callers, path), order)
    }

    /// One request of each of these callers, and then nothing.
    pub(super) fn once(callers: &[(String, String)], answer: &'static [u8], path: &str) -> Self {
        Self::part(answer, ready_of(callers, path), Order::Once { next: Cell::new(0) })
    }

    /// Several kinds in one load, each as often as its weight says.
    pub(super) fn mixed(kinds: Vec<(usize, Self)>) -> Self {
        let weigh = |(weight, kind): (usize, Self)| {
            kind.parts.into_iter().map(move |part| Part { weight, ..part })
        };
        Self { parts: kinds.into_iter().flat_map(weigh).collect(), draws: Cell::new(0) }
    }

    fn part(answer: &'static [u8], source: Source, order: Order) -> Self {
        let part = Part { weight: 1, answer, source, order, sent: Cell::new(0) };
        Self { parts: vec![part], draws: Cell::new(0) }
    }

    /// Puts other callers in the place of those who were sent once.
    pub(super) fn renew(&mut self, callers: &[(String, String)], path: &str) {
        for part in &mut self.parts {
            if let Order::Once { next } = &part.order {
                next.set(0);
                part.source = ready_of(callers, path);
            }
        }
    }

    /// The beginning of a connection, for each part.
    pub(super) fn turns(&self) -> Vec<Turn> {
        vec![Turn::default(); self.parts.len()]
    }

    /// Which request a connection sends next; `None` if there is nothing left to send.
    pub(super) fn next(&self, turns: &mut [Turn]) -> Option<Next> {
        let place = self.draw_part();
        let (part, turn) = (self.parts.get(place)?, turns.get_mut(place)?);
        turn.place = part.next(*turn)?;
        turn.sent += 1;
        Some((place, turn.place))
    }

    /// A part, drawn by its weight.
    fn draw_part(&self) -> usize {
        if self.parts.len() == 1 {
            return 0;
        }
        let mut drawn = draw(&self.draws, self.parts.iter().map(|part| part.weight).sum());
        let is_it = |part: &Part| {
            let is_it = drawn < part.weight;
            drawn = drawn.saturating_sub(part.weight);
            is_it
        };
        self.parts.iter().position(is_it).unwrap_or(0)
    }

    /// Puts a request in place of what is there.
    pub(super) fn write(&self, (part, place): Next, request: &mut Vec<u8>) {
        self.parts[part].write(place, request);
    }

    /// Whether a body answers a request.
    pub(super) fn is_answer(&self, (part, _): Next, body: &[u8]) -> bool {
        body.starts_with(self.parts[part].answer)
    }

    /// How many parts there are.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }
}

impl Part {
    fn next(&self, turn: Turn) -> Option<usize> {
        let len = match &self.source {
            Source::Ready(ready) => ready.len(),
            Source::Made { count, .. } => *count,
        };
        match &self.order {
            Order::Random { draws } => Some(draw(draws, len)),
            Order::Skewed { hot, percent, draws } if draw(draws, 100) < *percent => {
                Some(draw(draws, *hot))
            }
            Order::Skewed { hot, draws, .. } => Some(hot + draw(draws, len - hot)),
            Order::InTurn { visit, next } if turn.sent.is_multiple_of(*visit) => {
                Some(next.replace((next.get() + 1) % len))
            }
            Order::InTurn { .. } => Some(turn.place),
            Order::Once { next } => {
                let place = next.get();
                next.set(place + 1);
                Some(place).filter(|place| *place < len)
            }
        }
    }

    fn write(&self, place: usize, request: &mut Vec<u8>) {
        request.clear();
        match &self.source {
            Source::Ready(ready) => {
                let (bytes, stamp) = &ready[place];
                request.extend_from_slice(bytes);
                if let Some(at) = *stamp {
                    let number = self.sent.replace(self.sent.get().wrapping_add(1));
                    let number = format!("{number:08x}");
                    request[at..at + number.len()].copy_from_slice(number.as_bytes());
                }
            }
            Source::Made { path, body: [before, after], .. } => {
                let body = format!("{before}{}{after}", id_of(place as u64));
                *request = post(path, &body, None);
            }
        }
    }
}

fn draw(draws: &Cell<u64>, bound: usize) -> usize {
    let mut state = draws.get();
    let drawn = below(&mut state, bound);
    draws.set(state);
    drawn
}

/// A request of each of these callers.
fn ready_of(callers: &[(String, String)], path: &str) -> Source {
    Source::Ready(callers.iter().map(|(token, body)| ready(path, body, Some(token))).collect())
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
