//! What a cart is: operations in the order of their time, and what they come to. Pure rules; no
//! I/O.
//!
//! Nobody changes a cart; an operation is added to its log. So of two that happen at once neither is
//! lost, and one that is added twice, by a client that tries again, is one: it has the same id, and
//! [`fold`](CartLog::fold) counts an id once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::digest::{self, derived_id, digest_of};
use crate::money::Money;
use crate::owner::Owner;
use crate::product_id::ProductId;

pub mod change;
mod log;

pub use self::log::{CartLog, Checkpoint};

/// How long a cart lives after it was last touched.
pub const CART_LIFE: Duration = Duration::from_secs(30 * DAY.as_secs());
/// How long what a cart is made of is kept: longer than the cart by [`RENEW_AFTER`] and some, so
/// that all of it is there as long as the cart is.
pub const KEPT: Duration = Duration::from_secs(32 * DAY.as_secs());
/// What a touched cart is made of is written anew when some of it is older than this.
pub const RENEW_AFTER: Duration = DAY;
/// That somebody looks at a cart is noted so often at the most.
pub const TOUCH_EVERY: Duration = Duration::from_secs(600);
/// A checkpoint covers operations that are older than this. An operation has its time before it is
/// written, and is written soon after or not at all: none comes so late.
pub const SETTLED_AFTER: Duration = Duration::from_secs(60);
/// So long after its time an operation that was written is not believed to count. What is left to
/// [`SETTLED_AFTER`] is for clocks that are apart.
pub const LATE_AFTER: Duration = Duration::from_secs(20);
/// So many operations that are settled are worth a checkpoint.
pub const CHECKPOINT_AFTER: usize = 8;
/// Most lines that operations speak of which no checkpoint covers; one that speaks of none counts
/// for one. More than that in a minute is no shopper.
pub const MAX_UNFOLDED: usize = 2_000;
/// Most rows of a log that are read: those, and what several processes may add at the same moment.
/// A longer one is a fault, for what is not read would be forgotten.
pub const MAX_LOG_ROWS: usize = 5_000;
/// Into how many parts the carts of a day are cut.
pub const SHARDS: i8 = 16;
/// Most lines of a cart.
pub const MAX_LINES: usize = 100;
/// Most units of one product in a cart.
pub const MAX_UNITS: i64 = 999;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// What a line shows of its product, as it was when it was put into the cart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The product's name.
    pub name: String,
    /// Its price.
    pub price: Money,
    /// Its picture.
    pub image_url: Option<String>,
}

/// Units of a product that an operation speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units {
    /// The product.
    pub product: ProductId,
    /// How many; never below 1.
    pub units: i64,
    /// The product as it was then.
    pub card: Card,
}

/// What an operation does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Puts units into the cart, beside those that are there.
    Add(Vec<Units>),
    /// Has so many units in the cart, whatever was there, and none of the others named.
    Set(Vec<Units>, Vec<ProductId>),
    /// Takes products out.
    Remove(Vec<ProductId>),
    /// Takes everything out.
    Clear,
    /// Takes out what became an order. What was added meanwhile stays.
    Ordered {
        /// The order.
        order: Uuid,
        /// What it took.
        taken: Vec<(ProductId, i64)>,
    },
    /// Takes out what goes to a customer's cart. What was added meanwhile stays.
    HandOver(HandOver),
    /// Notes that the customer's cart has got what was handed over.
    HandedOver(HandOver),
    /// Puts in what a guest's cart handed over, as far as there is room.
    TakeOver {
        /// The guest's session.
        from: Uuid,
        /// What it had.
        lines: Vec<Units>,
    },
}

/// What a guest's cart hands over to a customer's. Its record is the operation: a conditional write
/// under its number, so of several who hand a cart over at once one does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// The how-manieth time this is, from 0, of those that are still kept.
    pub number: u32,
    /// When.
    pub at: Timestamp,
    /// The customer.
    pub to: Arc<str>,
    /// What.
    pub lines: Vec<Units>,
}

impl HandOver {
    /// The id of its operations, in the guest's cart and in the customer's: the same, whoever
    /// carries it out.
    pub fn operation_id(&self, from: Uuid) -> Uuid {
        // The number alone may come again when everything of the guest's cart has ended.
        let (number, at) = (self.number.to_be_bytes(), self.at.micros().to_be_bytes());
        derived_id(&[b"hand over", from.as_bytes(), &number, &at])
    }

    /// It as an operation of the guest's log.
    pub fn operation(self, from: Uuid) -> Operation {
        let (id, at) = (self.operation_id(from), self.at);
        Operation { id, at, is_keyed: false, change: Change::HandOver(self) }
    }
}

/// The id that a client's idempotency key gives an operation.
pub fn id_of_key(key: &str) -> Uuid {
    derived_id(&[b"key", key.as_bytes()])
}

impl Change {
    /// Tells what was asked for from other things, whatever products were called and cost then.
    pub fn fingerprint(&self) -> i64 {
        let units = |lines: &[Units]| -> Vec<(ProductId, i64)> {
            lines.iter().map(|line| (line.product.clone(), line.units)).collect()
        };
        let gone = |ids: &[ProductId]| ids.iter().map(|id| (id.clone(), 0)).collect();
        let (kind, named): (&str, Vec<(ProductId, i64)>) = match self {
            Self::Add(lines) => ("add", units(lines)),
            Self::Set(lines, removed) => ("set", [units(lines), gone(removed)].concat()),
            Self::Remove(ids) => ("remove", gone(ids)),
            Self::Clear => ("clear", Vec::new()),
            Self::Ordered { taken, .. } => ("ordered", taken.clone()),
            Self::HandOver(hand_over) => ("hand over", units(&hand_over.lines)),
            Self::HandedOver(hand_over) => ("handed over", units(&hand_over.lines)),
            Self::TakeOver { lines, .. } => ("take over", units(lines)),
        };
        let named = named.iter().map(|(product, units)| (product.as_str(), *units));
        fingerprint(kind, named)
    }

    /// How many lines it speaks of.
    fn weight(&self) -> usize {
        let lines = match self {
            Self::Add(lines) | Self::TakeOver { lines, .. } => lines.len(),
            Self::Set(lines, removed) => lines.len() + removed.len(),
            Self::Remove(products) => products.len(),
            Self::Clear => 0,
            Self::Ordered { taken, .. } => taken.len(),
            Self::HandOver(hand_over) | Self::HandedOver(hand_over) => hand_over.lines.len(),
        };
        lines.max(1)
    }
}

/// Tells one thing asked for from another: what is to be done, and with how many of which products.
/// Several lines of one product are one with their sum.
fn fingerprint<'a>(kind: &str, named: impl Iterator<Item = (&'a str, i64)>) -> i64 {
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for (product, units) in named {
        let sum = sums.entry(product).or_default();
        *sum = sum.saturating_add(units);
    }
    let units: Vec<_> = sums.values().map(|units| units.to_be_bytes()).collect();
    let mut parts = vec![kind.as_bytes()];
    for (product, units) in sums.keys().zip(&units) {
        parts.extend([product.as_bytes(), units.as_slice()]);
    }
    i64::from_be_bytes(digest_of(&parts))
}

/// An entry of a cart's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Derived from the client's idempotency key where there is one.
    pub id: Uuid,
    /// When. Operations count in this order; of one moment, in the order of their ids.
    pub at: Timestamp,
    /// Whether it may be asked for again under its id, and is to be known then.
    pub is_keyed: bool,
    /// What.
    pub change: Change,
}

/// What is remembered of an operation that may be asked for again, when the operation itself is not
/// looked at any more. It is written with the checkpoint that covers it, and so tells that it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyNote {
    /// The id of the operation.
    pub id: Uuid,
    /// What was asked for with it; see [`Change::fingerprint`].
    pub fingerprint: i64,
}

/// A line of a cart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CartLine {
    /// The product.
    pub product: ProductId,
    /// How many units.
    pub units: i64,
    /// The product as it was when it was last added or set.
    pub card: Card,
    /// When it was first put in.
    pub added_at: Timestamp,
}

/// What a log comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cart {
    /// The lines, those that have been there longest first.
    pub lines: Vec<CartLine>,
    /// When it was last changed; `None` if it never was, or not within its life.
    pub changed_at: Option<Timestamp>,
    /// When it was last changed or looked at.
    pub touched_at: Option<Timestamp>,
    /// What the last take-over found no room for; until the next change.
    pub left_out: Vec<(ProductId, i64)>,
    /// What was handed over and the customer's cart may not have got yet.
    pub on_their_way: Vec<HandOver>,
}

impl Cart {
    /// All units.
    pub fn total_units(&self) -> i64 {
        self.lines.iter().map(|line| line.units).sum()
    }

    /// When it ends if it is not touched again.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.touched_at.map(|at| at.after(CART_LIFE))
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|end| now >= end)
    }

    /// The line of a product.
    pub fn line(&self, product: &ProductId) -> Option<&CartLine> {
        self.lines.iter().find(|line| line.product == *product)
    }

    /// What the cart is after an operation.
    pub fn apply(&mut self, operation: &Operation) {
        let at = operation.at;
        if self.is_over(at) {
            // What was there then is gone, whether or not somebody has cleared it away.
            *self =
                Self { on_their_way: std::mem::take(&mut self.on_their_way), ..Self::default() };
        }
        if !matches!(operation.change, Change::HandedOver(_)) {
            self.left_out.clear();
            self.changed_at = self.changed_at.max(Some(at));
        }
        match &operation.change {
            Change::Add(lines) => {
                for line in lines {
                    self.put(line, at, true);
                }
            }
            Change::Set(lines, removed) => {
                for line in lines {
                    self.put(line, at, false);
                }
                self.lines.retain(|line| !removed.contains(&line.product));
            }
            Change::Remove(products) => {
                self.lines.retain(|line| !products.contains(&line.product));
            }
            Change::Clear => self.lines.clear(),
            Change::Ordered { taken, .. } => self.take(taken.iter().map(|(id, n)| (id, *n))),
            Change::HandOver(hand_over) => {
                self.take(hand_over.lines.iter().map(|line| (&line.product, line.units)));
                self.on_their_way.push(hand_over.clone());
            }
            Change::HandedOver(done) => self.on_their_way.retain(|other| other != done),
            Change::TakeOver { lines, .. } => self.take_over(lines, at),
        }
        self.touched_at = self.touched_at.max(Some(at));
    }

    fn put(&mut self, put: &Units, at: Timestamp, is_more: bool) {
        match self.lines.iter_mut().find(|line| line.product == put.product) {
            Some(line) => {
                line.units = if is_more { line.units + put.units } else { put.units };
                line.card = put.card.clone();
            }
            None => self.lines.push(CartLine {
                product: put.product.clone(),
                units: put.units,
                card: put.card.clone(),
                added_at: at,
            }),
        }
    }

    fn take<'a>(&mut self, taken: impl Iterator<Item = (&'a ProductId, i64)>) {
        for (product, units) in taken {
            if let Some(line) = self.lines.iter_mut().find(|line| line.product == *product) {
                line.units -= units;
            }
        }
        self.lines.retain(|line| line.units > 0);
    }

    fn take_over(&mut self, lines: &[Units], at: Timestamp) {
        // A sum of two currencies would be none.
        let own = self.lines.first().map(|line| line.card.price.currency);
        let currency = own.or(lines.first().map(|line| line.card.price.currency));
        for line in lines {
            let there = self.line(&line.product).map(|line| line.units);
            let is_full = there.is_none() && self.lines.len() >= MAX_LINES;
            let is_out = is_full || Some(line.card.price.currency) != currency;
            let room = if is_out { 0 } else { (MAX_UNITS - there.unwrap_or(0)).max(0) };
            let fits = line.units.min(room);
            if fits > 0 {
                self.put(&Units { units: fits, ..line.clone() }, at, true);
            }
            if fits < line.units {
                self.left_out.push((line.product.clone(), line.units - fits));
            }
        }
    }
}

/// The whole days since 1970 at a moment: under which a cart that was touched then is listed.
pub fn day_of(moment: Timestamp) -> i64 {
    moment.micros().div_euclid(i64::try_from(DAY.as_micros()).unwrap_or(i64::MAX))
}

/// The shard of the day that a cart is listed in. The same on every machine and in every version.
pub fn shard_of(owner: &Owner) -> i8 {
    digest::shard_of(&owner.to_string(), SHARDS)
}

#[cfg(test)]
mod tests;
