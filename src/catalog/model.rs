//! What a product is, and which products are acceptable. Pure rules; no I/O.

pub mod browse;
pub mod buckets;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use self::browse::kopecks;
use self::buckets::{Bucket, Kopecks, Layout};
use crate::clock::Timestamp;
use crate::error::{ErrorCode, UserError};
use crate::input::{Faults, TextFault, check_text};
use crate::money::{Money, PRICE_SCALE};
pub use crate::product_id::{MAX_ID_CHARS, ProductId};

/// Most characters of a product's name.
pub const MAX_NAME_CHARS: usize = 300;
/// Most characters of a description: some pages of text, yet a batch of 100 stays a small write.
pub const MAX_DESCRIPTION_CHARS: usize = 10_000;
/// Most characters of a category's name; it is part of keys.
pub const MAX_CATEGORY_CHARS: usize = 100;
/// Most attributes of one product.
pub const MAX_ATTRIBUTES: usize = 50;
/// Most characters of an attribute's name.
pub const MAX_ATTRIBUTE_NAME_CHARS: usize = 100;
/// Most characters of an attribute's value.
pub const MAX_ATTRIBUTE_VALUE_CHARS: usize = 1_000;
/// Most characters of an image address.
pub const MAX_IMAGE_URL_CHARS: usize = 2_000;
/// Highest price. It leaves room to multiply by any quantity and sum a cart without overflow.
pub const MAX_PRICE: Decimal = Decimal::from_parts(1_215_752_192, 23, 0, false, 0); // 100,000,000,000
/// Most products one call may write or delete.
pub const MAX_BATCH: usize = 100;
/// Most products one call may read.
pub const MAX_LOOKUP: usize = 250;
/// Most categories a shop may have: the list of them is one answer, not a paged one.
pub const MAX_CATEGORIES: usize = 1_000;

/// A named property of a product, such as «Цвет»: «чёрный».
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// What the property is called; unique within a product.
    pub name: String,
    /// What it is.
    pub value: String,
}

/// A product as staff hand it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProductDraft {
    /// The shop's key.
    pub id: ProductId,
    /// Shown on the card.
    pub name: String,
    /// Shown on the product's page.
    pub description: Option<String>,
    /// The category it stands in.
    pub category: String,
    /// What it costs.
    pub price: Money,
    /// Its properties.
    pub attributes: Vec<Attribute>,
    /// Where its picture is.
    pub image_url: Option<String>,
}

/// A product as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Product {
    /// The shop's key.
    pub id: ProductId,
    /// Shown on the card.
    pub name: String,
    /// Shown on the product's page.
    pub description: Option<String>,
    /// The category it stands in.
    pub category: Arc<str>,
    /// What it costs.
    pub price: Money,
    /// Its properties, by name.
    pub attributes: Vec<Attribute>,
    /// Where its picture is.
    pub image_url: Option<String>,
    /// When it was first written.
    pub created_at: Timestamp,
    /// When it was last written.
    pub updated_at: Timestamp,
    /// Grows with every write of the product; the larger one of two versions is the newer one.
    pub version: i64,
}

impl Product {
    /// The product that `draft` makes of what was there before.
    pub fn from_draft(draft: ProductDraft, before: &Before, now: Timestamp) -> Self {
        let version = before.next_version(now);
        let now = now.to_millis_precision();
        let ProductDraft { id, name, description, category, price, mut attributes, image_url } =
            draft;
        // Cassandra keeps attributes as a map, sorted by name: every store answers in that order.
        attributes.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            id,
            name,
            description,
            category: category.into(),
            price,
            attributes,
            image_url,
            created_at: before.product.as_ref().map_or(now, |product| product.created_at),
            updated_at: now,
            version,
        }
    }
}

/// How long a store remembers the version of a deleted product: longer than two clocks are ever
/// apart. A product written again meanwhile is then newer than the deleted one for every reader.
pub const GRAVE_LIFE: Duration = Duration::from_secs(24 * 3_600);

/// What stood under an id before a write.
#[derive(Debug, Clone, Default)]
pub struct Before {
    /// The product, if there was one.
    pub product: Option<Product>,
    /// Its version, or that of its deletion if it was deleted lately; 0 if nothing is known.
    pub version: i64,
}

impl Before {
    /// The version that a change made now gives: the time in microseconds, or one more than what
    /// it replaces where clocks disagree. So a write always wins over what its writer has read.
    pub fn next_version(&self, now: Timestamp) -> i64 {
        now.micros().max(self.version + 1)
    }

    /// The category it stood in.
    pub fn category(&self) -> Option<&Arc<str>> {
        self.product.as_ref().map(|product| &product.category)
    }
}

impl From<Product> for Before {
    fn from(product: Product) -> Self {
        Self { version: product.version, product: Some(product) }
    }
}

/// A category and how many products stand in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryInfo {
    /// Its name, which is its key.
    pub name: Arc<str>,
    /// How many products stand in it.
    pub product_count: u64,
}

/// By how much a set of writes changes what is counted of categories.
#[derive(Debug, Default)]
pub struct CountDeltas {
    products: HashMap<Arc<str>, i64>,
    rows: HashMap<(Arc<str>, Bucket), i64>,
}

impl CountDeltas {
    /// Notes that a product went from one category (or nowhere) to another (or nowhere).
    pub fn moved(&mut self, from: Option<&Arc<str>>, to: Option<&Arc<str>>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            *self.products.entry(from.clone()).or_default() -= 1;
        }
        if let Some(to) = to {
            *self.products.entry(to.clone()).or_default() += 1;
        }
    }

    /// Notes that a bucket of a category has so many rows more.
    pub fn rows(&mut self, category: &Arc<str>, bucket: Bucket, more: i64) {
        *self.rows.entry((category.clone(), bucket)).or_default() += more;
    }

    /// The categories whose product count changes, with the change.
    pub fn products_changed(&self) -> impl Iterator<Item = (&Arc<str>, i64)> {
        self.products.iter().map(|(name, delta)| (name, *delta)).filter(|(_, delta)| *delta != 0)
    }

    /// The buckets whose rows change in number, with the change.
    pub fn rows_changed(&self) -> impl Iterator<Item = (&Arc<str>, Bucket, i64)> {
        let changes = self.rows.iter().map(|((name, bucket), delta)| (name, *bucket, *delta));
        changes.filter(|(_, _, delta)| *delta != 0)
    }
}

/// What one write of a product does to the rows of the read models.
#[derive(Debug, Default)]
pub struct RowChanges {
    /// Where its row is to be put.
    pub put: Vec<Bucket>,
    /// Where older rows are to be taken away, by the price they stand at.
    pub take: Vec<(Bucket, Kopecks)>,
}

impl RowChanges {
    /// The changes in one category: from where the product stood in it to where it stands now.
    /// Either may be nothing.
    pub fn between(
        layout: &Layout,
        id: &ProductId,
        from: Option<Kopecks>,
        to: Option<Kopecks>,
    ) -> Self {
        let put = to.map(|price| layout.written(price, id)).unwrap_or_default();
        let swept = from.map(|price| (price, layout.swept(price, id)));
        let take = swept
            .into_iter()
            .flat_map(|(price, buckets)| buckets.into_iter().map(move |bucket| (bucket, price)));
        // A row that is written over needs no taking away.
        let stays =
            |(bucket, price): &(Bucket, Kopecks)| to == Some(*price) && put.contains(bucket);
        let take = take.filter(|place| !stays(place)).collect();
        Self { put, take }
    }
}

impl Product {
    /// Its price in hundredths.
    pub fn kopecks(&self) -> Kopecks {
        kopecks(self.price.amount)
    }
}

/// A product of a batch as it came from outside, before anything about it is known to be right.
#[derive(Debug, Clone)]
pub struct RawProduct {
    /// Text offered as the id.
    pub id: String,
    /// Offered name.
    pub name: String,
    /// Offered description.
    pub description: Option<String>,
    /// Offered category.
    pub category: String,
    /// Offered amount; `None` for a text that is no number.
    pub amount: Option<Decimal>,
    /// Offered currency code.
    pub currency: String,
    /// Offered attributes.
    pub attributes: Vec<Attribute>,
    /// Offered image address.
    pub image_url: Option<String>,
}

/// Checks a whole batch. Either every product of it is acceptable, or the answer lists everything
/// that is wrong, each fault with its path below `products`.
pub fn check_batch(batch: Vec<RawProduct>) -> Result<Vec<ProductDraft>, Vec<UserError>> {
    let mut faults = Faults::of("products");
    let mut seen = HashSet::new();
    let mut drafts = Vec::with_capacity(batch.len());
    for (index, raw) in batch.into_iter().enumerate() {
        faults.entry = index;
        if !seen.insert(raw.id.clone()) {
            faults.add(&["id"], ErrorCode::Duplicate, "The same id stands twice in this batch.");
        }
        drafts.extend(check_product(raw, &mut faults));
    }
    if faults.found.is_empty() { Ok(drafts) } else { Err(faults.found) }
}

fn check_product(raw: RawProduct, faults: &mut Faults) -> Option<ProductDraft> {
    let before = faults.found.len();
    faults.text(&["id"], &raw.id, MAX_ID_CHARS);
    faults.text(&["name"], &raw.name, MAX_NAME_CHARS);
    faults.text(&["category"], &raw.category, MAX_CATEGORY_CHARS);
    if let Some(description) = &raw.description
        && description.chars().count() > MAX_DESCRIPTION_CHARS
    {
        faults.too_long(&["description"], MAX_DESCRIPTION_CHARS);
    }
    if let Some(image_url) = &raw.image_url {
        faults.text(&["imageUrl"], image_url, MAX_IMAGE_URL_CHARS);
    }
    let amount = check_price(raw.amount, faults);
    let currency = crate::money::Currency::parse(&raw.currency);
    if currency.is_none() {
        let message = "A currency code is three capital letters, such as RUB.";
        faults.add(&["price", "currencyCode"], ErrorCode::Invalid, message);
    }
    check_attributes(&raw.attributes, faults);
    if faults.found.len() > before {
        return None;
    }
    Some(ProductDraft {
        id: ProductId::new_unchecked(raw.id),
        name: raw.name,
        description: raw.description,
        category: raw.category,
        price: Money { amount: amount?, currency: currency? },
        attributes: raw.attributes,
        image_url: raw.image_url,
    })
}

/// A price with exactly two fraction digits, however it was written (`5`, `5.0`, `5.000`).
fn check_price(amount: Option<Decimal>, faults: &mut Faults) -> Option<Decimal> {
    let path = ["price", "amount"];
    let Some(amount) = amount else {
        faults.add(&path, ErrorCode::Invalid, "A price is a decimal such as \"89990.00\".");
        return None;
    };
    if amount.is_sign_negative() && !amount.is_zero() {
        faults.add(&path, ErrorCode::Invalid, "A price must not be negative.");
        return None;
    }
    if amount > MAX_PRICE {
        faults.add(&path, ErrorCode::Invalid, "A price is at most 100000000000.");
        return None;
    }
    let mut exact = amount.normalize();
    if exact.scale() > PRICE_SCALE {
        faults.add(&path, ErrorCode::Invalid, "A price has at most 2 fraction digits.");
        return None;
    }
    exact.rescale(PRICE_SCALE);
    exact.set_sign_positive(true);
    Some(exact)
}

fn check_attributes(attributes: &[Attribute], faults: &mut Faults) {
    if attributes.len() > MAX_ATTRIBUTES {
        let message = format!("A product has at most {MAX_ATTRIBUTES} attributes.");
        faults.add(&["attributes"], ErrorCode::TooMany, &message);
    }
    let mut names = HashSet::new();
    for (index, attribute) in attributes.iter().enumerate() {
        let index = index.to_string();
        faults.text(&["attributes", &index, "name"], &attribute.name, MAX_ATTRIBUTE_NAME_CHARS);
        faults.text(&["attributes", &index, "value"], &attribute.value, MAX_ATTRIBUTE_VALUE_CHARS);
        if !names.insert(&attribute.name) {
            let message = "This product already has an attribute of that name.";
            faults.add(&["attributes", &index, "name"], ErrorCode::Duplicate, message);
        }
    }
}

/// Checks a category's name that a client asks for.
pub fn check_category_name(name: &str) -> Result<(), &'static str> {
    match check_text(name, MAX_CATEGORY_CHARS) {
        None => Ok(()),
        Some(TextFault::Blank) => Err("a category name must not be empty"),
        Some(TextFault::TooLong) => Err("a category name has at most 100 characters"),
        Some(TextFault::Control) => Err("a category name has no control characters"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(id: &str) -> RawProduct {
        RawProduct {
            id: id.to_owned(),
            name: "Телефон".to_owned(),
            description: None,
            category: "Электроника".to_owned(),
            amount: Some(Decimal::new(899_900, 1)),
            currency: "RUB".to_owned(),
            attributes: Vec::new(),
            image_url: None,
        }
    }

    fn paths(errors: &[UserError]) -> Vec<String> {
        errors.iter().map(|e| e.field.as_ref().unwrap().join(".")).collect()
    }

    #[test]
    fn keeps_prices_with_exactly_two_digits() {
        for (offered, kept) in
            [("5", "5.00"), ("5.1", "5.10"), ("5.100", "5.10"), ("0", "0.00"), ("-0.0", "0.00")]
        {
            let product = RawProduct { amount: offered.parse().ok(), ..raw("A") };
            let drafts = check_batch(vec![product]).unwrap();
            assert_eq!(drafts[0].price.amount.to_string(), kept);
        }
    }

    #[test]
    fn refuses_impossible_prices() {
        for amount in ["-0.01", "1.005", "100000000000.01", "1,50"] {
            let product = RawProduct { amount: amount.parse().ok(), ..raw("A") };
            assert_eq!(
                paths(&check_batch(vec![product]).unwrap_err()),
                ["products.0.price.amount"]
            );
        }
        assert_eq!(MAX_PRICE.to_string(), "100000000000");
    }

    #[test]
    fn reports_everything_that_is_wrong_at_once() {
        let attribute = |name: &str| Attribute { name: name.to_owned(), value: "x".to_owned() };
        let mut bad = raw("B");
        bad.name = "x".repeat(MAX_NAME_CHARS + 1);
        bad.currency = "rub".to_owned();
        bad.attributes = vec![attribute("Цвет"), attribute(""), attribute("Цвет")];
        let errors = check_batch(vec![raw("A"), bad, raw("A"), raw("a\u{0}b"), raw(" ")]);
        assert_eq!(
            paths(&errors.unwrap_err()),
            [
                "products.1.name",
                "products.1.price.currencyCode",
                "products.1.attributes.1.name",
                "products.1.attributes.2.name",
                "products.2.id",
                "products.3.id",
                "products.4.id",
            ]
        );
    }

    #[test]
    fn counts_characters_not_bytes() {
        let long = "я".repeat(MAX_ID_CHARS);
        assert!(ProductId::parse(&long).is_ok());
        assert!(ProductId::parse(&format!("{long}я")).is_err());
    }

    #[test]
    fn a_version_always_grows() {
        let now = Timestamp::from_micros(1_000);
        let draft = check_batch(vec![raw("A")]).unwrap().remove(0);
        let first = Product::from_draft(draft.clone(), &Before::default(), now);
        assert_eq!(first.version, 1_000);
        let earlier = Timestamp::from_micros(10);
        let second = Product::from_draft(draft, &first.clone().into(), earlier);
        assert_eq!(second.version, 1_001);
        assert_eq!(second.created_at, first.created_at);
    }
}
