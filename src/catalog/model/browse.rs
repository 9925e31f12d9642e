//! Pages of a category: the rows, their order, and which part of it a page is. Pure; no I/O.

use std::cmp::Ordering;
use std::sync::Arc;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use super::buckets::{Bucket, Kopecks, Layout, Model};
use super::{MAX_PRICE, Product, ProductId};
use crate::money::{Currency, Money, PRICE_SCALE};

/// A product's row in a read model: what a list of products shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardRow {
    /// What it costs.
    pub price: Kopecks,
    /// Of which currency.
    pub currency: Currency,
    /// The shop's key.
    pub id: ProductId,
    /// Shown on the card.
    pub name: String,
    /// Where its picture is.
    pub image_url: Option<String>,
    /// The product's version when the row was written.
    pub version: i64,
}

impl CardRow {
    /// The row of a product.
    pub fn of(product: &Product) -> Self {
        Self {
            price: kopecks(product.price.amount),
            currency: product.price.currency,
            id: product.id.clone(),
            name: product.name.clone(),
            image_url: product.image_url.clone(),
            version: product.version,
        }
    }

    /// Where the row stands in the order of the category.
    pub fn position(&self) -> Position {
        Position { price: self.price, id: self.id.as_str().into() }
    }

    /// What it costs.
    pub fn money(&self) -> Money {
        Money { amount: amount(self.price), currency: self.currency }
    }

    /// Whether this row shows what another one does, and is no older.
    pub fn shows(&self, other: &Self) -> bool {
        let Self { price, currency, id, name, image_url, version } = self;
        *price == other.price
            && *currency == other.currency
            && *id == other.id
            && *name == other.name
            && *image_url == other.image_url
            && *version >= other.version
    }

    /// Whether the product stands where this row says. A row of which that is not true was left
    /// behind by a writer that died, or is ahead of one that has not finished.
    pub fn agrees(&self, category: &str, product: Option<&Product>) -> bool {
        product.is_some_and(|product| {
            product.id == self.id
                && product.category.as_ref() == category
                && kopecks(product.price.amount) == self.price
        })
    }
}

/// The price as a whole number of hundredths. Stored prices have exactly two fraction digits.
pub fn kopecks(amount: Decimal) -> Kopecks {
    let mut exact = amount;
    exact.rescale(PRICE_SCALE);
    Kopecks::try_from(exact.mantissa()).unwrap_or(Kopecks::MAX)
}

/// The price of so many hundredths.
pub fn amount(price: Kopecks) -> Decimal {
    Decimal::new(price, PRICE_SCALE)
}

/// A place in the order of a category: by price, then by id. The empty id comes before all others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The price.
    pub price: Kopecks,
    /// The product's id; empty for a place between two prices.
    pub id: Arc<str>,
}

impl Position {
    /// The place before the first product of this price.
    pub fn before(price: Kopecks) -> Self {
        Self { price, id: "".into() }
    }
}

/// The order of a page's products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    /// The cheapest first.
    PriceAsc,
    /// The dearest first.
    PriceDesc,
}

/// Everything of a category between two places, both left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Beyond this.
    pub lower: Position,
    /// Up to, and without, this.
    pub upper: Position,
}

impl Span {
    /// All products whose price is in a range, both ends included.
    pub fn of_prices(range: PriceRange) -> Self {
        let highest = kopecks(MAX_PRICE);
        Self {
            lower: Position::before(range.min.unwrap_or(0).clamp(0, highest + 1)),
            upper: Position::before(range.max.unwrap_or(highest).clamp(-1, highest) + 1),
        }
    }

    /// Whether nothing can be in it.
    pub fn is_empty(&self) -> bool {
        self.lower >= self.upper
    }

    /// Whether a place is in it.
    pub fn has(&self, place: &Position) -> bool {
        self.lower < *place && *place < self.upper
    }

    /// Whether something from `low` up to, and without, `beyond` can be in it. Asked of every bucket
    /// of a category for every page, so it makes no [`Position`] to compare with.
    pub fn touches(&self, low: Kopecks, beyond: Kopecks) -> bool {
        let ends_after_low =
            low < self.upper.price || low == self.upper.price && !self.upper.id.is_empty();
        ends_after_low && beyond > self.lower.price
    }

    /// Whether everything from `low` up to, and without, `beyond` is in it.
    pub fn covers(&self, low: Kopecks, beyond: Kopecks) -> bool {
        let begins_by_low =
            self.lower.price < low || self.lower.price == low && self.lower.id.is_empty();
        begins_by_low && self.upper.price >= beyond
    }
}

/// A range of prices, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PriceRange {
    /// The lowest price.
    pub min: Option<Kopecks>,
    /// The highest price.
    pub max: Option<Kopecks>,
}

impl PriceRange {
    /// The range between two amounts; amounts between two kopecks narrow it.
    pub fn between(min: Option<Decimal>, max: Option<Decimal>) -> Self {
        Self {
            min: min.map(|min| hundredths(min, |hundredths| hundredths.ceil())),
            max: max.map(|max| hundredths(max, |hundredths| hundredths.floor())),
        }
    }
}

/// The amount in hundredths, made whole by `round`. What is too large for the arithmetic is beyond
/// every price all the more.
fn hundredths(amount: Decimal, round: impl Fn(Decimal) -> Decimal) -> Kopecks {
    let beyond = if amount.is_sign_negative() { -1 } else { Kopecks::MAX };
    let Some(exact) = amount.checked_mul(Decimal::ONE_HUNDRED) else { return beyond };
    let mut whole = round(exact);
    whole.rescale(0);
    Kopecks::try_from(whole.mantissa()).unwrap_or(beyond)
}

/// Which products of a category are asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PageQuery {
    /// The category.
    pub category: Arc<str>,
    /// The order of the page.
    pub sort: Sort,
    /// Only products of these prices.
    pub range: PriceRange,
    /// Only what comes after this place, in the order of the page.
    pub after: Option<Position>,
    /// Only what comes before this place, in the order of the page.
    pub before: Option<Position>,
    /// How many.
    pub limit: usize,
    /// The last ones instead of the first.
    pub from_end: bool,
}

impl PageQuery {
    /// Whether the rows are to be read from the highest price down.
    pub fn is_descending(&self) -> bool {
        (self.sort == Sort::PriceDesc) != self.from_end
    }

    /// The part of the category that it looks at.
    pub fn span(&self) -> Span {
        let mut span = Span::of_prices(self.range);
        let (low, high) = match self.sort {
            Sort::PriceAsc => (&self.after, &self.before),
            Sort::PriceDesc => (&self.before, &self.after),
        };
        if let Some(low) = low {
            span.lower = span.lower.max(low.clone());
        }
        if let Some(high) = high {
            span.upper = span.upper.min(high.clone());
        }
        span
    }
}

/// A part of one bucket to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The bucket.
    pub bucket: Bucket,
    /// The part of it.
    pub span: Span,
    /// From the highest price down.
    pub descending: bool,
    /// At most so many rows.
    pub limit: usize,
}

/// How two positions follow each other in a scan.
pub fn in_scan_order(descending: bool, a: &Position, b: &Position) -> Ordering {
    if descending { b.cmp(a) } else { a.cmp(b) }
}

/// What is known of a category without looking at its products.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryMap {
    /// How its rows are laid out.
    pub layout: Layout,
    /// How many products stand in it.
    pub product_count: u64,
    /// Its buckets and about how many rows each has, in order. All price buckets that may have
    /// rows are there, of any depth; hash buckets may be missing.
    pub buckets: Vec<(Bucket, u64)>,
}

impl CategoryMap {
    /// The price buckets that readers read, in the order of prices, with about how many rows each
    /// has.
    pub fn price_buckets(&self) -> impl DoubleEndedIterator<Item = (i64, u64)> {
        self.buckets_of(Model::Price)
    }

    /// The buckets of a model at the level that readers read.
    pub fn buckets_of(&self, model: Model) -> impl DoubleEndedIterator<Item = (i64, u64)> {
        let level = self.layout.axis(model).level;
        self.buckets.iter().filter_map(move |(bucket, rows)| {
            let is_read = match model {
                Model::Hash => bucket.number < 1 << level,
                Model::Price => super::buckets::depth_of(bucket.number) == level,
            };
            (bucket.model == model && is_read).then_some((bucket.number, *rows))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: &str, max: &str) -> PriceRange {
        let read = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
        PriceRange::between(read(min), read(max))
    }

    #[test]
    fn ranges_include_their_ends_and_nothing_between_two_kopecks() {
        assert_eq!(range("1.00", "2.5"), PriceRange { min: Some(100), max: Some(250) });
        assert_eq!(range("1.001", "2.509"), PriceRange { min: Some(101), max: Some(250) });
        assert_eq!(range("-3", ""), PriceRange { min: Some(-300), max: None });
        let huge = "79228162514264337593543950335";
        assert_eq!(range(huge, huge), PriceRange { min: Some(i64::MAX), max: Some(i64::MAX) });
        assert!(Span::of_prices(range(huge, huge)).is_empty());
        assert!(Span::of_prices(range("", "-1")).is_empty());
        assert!(!Span::of_prices(range("5", "5")).is_empty());
    }

    #[test]
    fn amounts_and_hundredths_are_the_same_thing() {
        for text in ["0.00", "0.01", "89990.00", "100000000000.00"] {
            let decimal: Decimal = text.parse().unwrap();
            assert_eq!(amount(kopecks(decimal)).to_string(), text);
        }
    }
}
