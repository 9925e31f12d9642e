//! Where a product's rows stand in the two read models of a category, and how a category grows.
//!
//! *Hash buckets*: bucket `hash(id) mod 2^level`. *Price buckets*: the price axis is halved again
//! and again; the bucket of depth `d` that a price falls into has the number `2^d + i`, where `i`
//! counts the intervals of that depth from zero. So a bucket `b` splits into `2b` and `2b + 1`, and
//! no number is used by two depths.
//!
//! A split never makes a reader look at two levels. Writers write the next level beside the one
//! that is read, the older rows are copied, readers change over, and only when nobody can be
//! reading the level before any more are its rows taken away; see [`Phase`].

use serde::{Deserialize, Serialize};

use super::ProductId;

/// A price in hundredths: exact, and in the order of the prices.
pub type Kopecks = i64;

/// The most times a category is split by hash: 64 buckets.
pub const MAX_LEVEL: u8 = 6;
/// The price axis has `2^44` kopecks: more than [`MAX_PRICE`](super::MAX_PRICE).
const PRICE_BITS: u8 = 44;
/// Where a category starts: price buckets 10,485.76 wide.
const FIRST_DEPTH: u8 = 24;
/// The finest price buckets: a single price each.
pub const MAX_DEPTH: u8 = PRICE_BITS;
/// Price buckets up to which a category is split by price, and pages read from them: their list is
/// one small partition.
pub const MAX_PRICE_BUCKETS: usize = 4_096;
/// Rows beyond which a bucket is split.
pub const SPLIT_ROWS: u64 = 20_000;

/// Which of the two read models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Model {
    /// `products_by_category_bucket`
    Hash,
    /// `products_by_category_price`
    Price,
}

impl Model {
    /// Both, in the order in which they are written and split.
    pub const BOTH: [Self; 2] = [Self::Hash, Self::Price];

    /// Its name, for people and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Price => "price",
        }
    }
}

/// A bucket of a read model: a partition, together with the category's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Bucket {
    /// The read model.
    pub model: Model,
    /// The number of the bucket in it.
    pub number: i64,
}

/// The hash that spreads products over buckets: the first four bytes of the SHA-256 of the id, as a
/// big-endian number. The same on every machine and in every version; stored rows depend on it.
pub fn spread(id: &ProductId) -> u32 {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, id.as_str().as_bytes());
    let mut first = [0; 4];
    first.copy_from_slice(&digest.as_ref()[..4]);
    u32::from_be_bytes(first)
}

/// The hash bucket of a product at a level.
pub fn hash_bucket(id: &ProductId, level: u8) -> i64 {
    i64::from(spread(id)) & ((1 << level) - 1)
}

/// The price bucket of a price at a depth.
pub fn price_bucket(price: Kopecks, depth: u8) -> i64 {
    (1 << depth) + (price >> (PRICE_BITS - depth))
}

/// The depth that a price bucket belongs to.
pub fn depth_of(price_bucket: i64) -> u8 {
    u8::try_from(price_bucket.max(1).ilog2()).unwrap_or(MAX_DEPTH)
}

/// The lowest price of a price bucket, and the lowest one beyond it.
pub fn price_span(price_bucket: i64) -> (Kopecks, Kopecks) {
    let depth = depth_of(price_bucket);
    let width = 1 << (PRICE_BITS - depth);
    let low = (price_bucket - (1 << depth)) * width;
    (low, low + width)
}

/// How far the change from one level to the next has come. Between two phases the split waits
/// until nobody can still be acting on the phase before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// No split runs: rows stand at `level`.
    Stable,
    /// Readers read `level`; writers write `level` and `level + 1`; older rows are being copied to
    /// the latter.
    Copying,
    /// Everything is copied and `level` is the new one already. Writers still write the one before
    /// as well, for readers that have not heard of it.
    Draining,
    /// Nobody reads the level before any more; what stands there is being taken away.
    Cleaning,
}

impl Phase {
    /// The name, for people and for the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Copying => "copying",
            Self::Draining => "draining",
            Self::Cleaning => "cleaning",
        }
    }

    /// The phase of this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Stable, Self::Copying, Self::Draining, Self::Cleaning]
            .into_iter()
            .find(|phase| phase.as_str() == name)
    }
}

/// How one read model of a category is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// The level that readers read: the hash level, or the depth of price buckets.
    pub level: u8,
    /// How far a split has come.
    pub phase: Phase,
    /// Buckets below this number have been copied or cleaned in this phase.
    pub progress: i64,
}

impl Axis {
    const fn stable(level: u8) -> Self {
        Self { level, phase: Phase::Stable, progress: 0 }
    }

    /// The levels that a writer writes.
    pub fn written(&self) -> impl Iterator<Item = u8> + use<> {
        let other = match self.phase {
            Phase::Stable | Phase::Cleaning => None,
            Phase::Copying => Some(self.level + 1),
            Phase::Draining => Some(self.level - 1),
        };
        std::iter::once(self.level).chain(other)
    }

    /// The levels at which an older row may stand: where a writer deletes.
    pub fn swept(&self) -> impl Iterator<Item = u8> + use<> {
        let other = match self.phase {
            Phase::Stable => None,
            Phase::Copying => Some(self.level + 1),
            Phase::Draining | Phase::Cleaning => Some(self.level - 1),
        };
        std::iter::once(self.level).chain(other)
    }
}

/// How a category's rows are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Grows with every change of the layout; a change names the one it replaces.
    pub revision: i64,
    /// The hash buckets.
    pub hash: Axis,
    /// The price buckets.
    pub price: Axis,
}

impl Default for Layout {
    /// How every category starts.
    fn default() -> Self {
        Self { revision: 0, hash: Axis::stable(0), price: Axis::stable(FIRST_DEPTH) }
    }
}

impl Layout {
    /// The layout of one read model.
    pub fn axis(&self, model: Model) -> &Axis {
        match model {
            Model::Hash => &self.hash,
            Model::Price => &self.price,
        }
    }

    /// The same for changing it.
    pub fn axis_mut(&mut self, model: Model) -> &mut Axis {
        match model {
            Model::Hash => &mut self.hash,
            Model::Price => &mut self.price,
        }
    }

    /// The layout with one axis changed, as the next revision.
    #[must_use]
    pub fn with(mut self, model: Model, axis: Axis) -> Self {
        *self.axis_mut(model) = axis;
        self.revision += 1;
        self
    }

    /// A layout whose buckets stay below [`SPLIT_ROWS`] for about this many products, for a
    /// category that has none yet.
    #[must_use]
    pub fn for_products(products: u64) -> Self {
        let mut layout = Self::default();
        while layout.hash.level < MAX_LEVEL && products >> layout.hash.level > SPLIT_ROWS {
            layout.hash.level += 1;
            // Prices are not spread as evenly as hashes.
            layout.price.level += 1;
        }
        layout
    }

    /// Whether any split runs.
    pub fn is_splitting(&self) -> bool {
        Model::BOTH.iter().any(|&model| self.axis(model).phase != Phase::Stable)
    }

    /// Where a writer puts the rows of a product.
    pub fn written(&self, price: Kopecks, id: &ProductId) -> Vec<Bucket> {
        self.places(price, id, |axis| axis.written().collect())
    }

    /// Where rows of a product may stand.
    pub fn swept(&self, price: Kopecks, id: &ProductId) -> Vec<Bucket> {
        self.places(price, id, |axis| axis.swept().collect())
    }

    fn places(
        &self,
        price: Kopecks,
        id: &ProductId,
        levels: impl Fn(&Axis) -> Vec<u8>,
    ) -> Vec<Bucket> {
        let mut places = Vec::with_capacity(4);
        for model in Model::BOTH {
            for level in levels(self.axis(model)) {
                let bucket = bucket_at(model, level, price, id);
                // Half of the products stay in their hash bucket when the level grows.
                if !places.contains(&bucket) {
                    places.push(bucket);
                }
            }
        }
        places
    }
}

/// The bucket of a product at a level of a read model.
pub fn bucket_at(model: Model, level: u8, price: Kopecks, id: &ProductId) -> Bucket {
    let number = match model {
        Model::Hash => hash_bucket(id, level),
        Model::Price => price_bucket(price, level),
    };
    Bucket { model, number }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_hash_is_the_one_that_stored_rows_depend_on() {
        // SHA-256("PROD-12345") begins with these four bytes.
        let id = ProductId::new_unchecked("PROD-12345");
        let hex = format!("{:08x}", spread(&id));
        assert_eq!(hex, "f7c618ec");
    }

    proptest! {
        #[test]
        fn a_hash_bucket_splits_in_two(id in "[A-Z0-9-]{1,12}", level in 0..MAX_LEVEL) {
            let id = ProductId::new_unchecked(id);
            let (before, after) = (hash_bucket(&id, level), hash_bucket(&id, level + 1));
            prop_assert!(after == before || after == before + (1 << level));
        }

        #[test]
        fn a_price_bucket_splits_in_two(price in 0..10_000_000_000_001_i64, depth in 20..MAX_DEPTH) {
            let (before, after) = (price_bucket(price, depth), price_bucket(price, depth + 1));
            prop_assert!(after == 2 * before || after == 2 * before + 1);
            prop_assert_eq!(depth_of(before), depth);
            let (low, beyond) = price_span(before);
            prop_assert!((low..beyond).contains(&price));
        }

        #[test]
        fn price_buckets_are_in_the_order_of_prices(
            a in 0..10_000_000_000_001_i64, b in 0..10_000_000_000_001_i64, depth in 20..=MAX_DEPTH,
        ) {
            prop_assert_eq!(
                (price_bucket(a, depth).cmp(&price_bucket(b, depth))).then(a.cmp(&b)),
                a.cmp(&b)
            );
        }
    }

    #[test]
    fn a_bulk_layout_keeps_buckets_small() {
        assert_eq!(Layout::for_products(20_000), Layout::default());
        assert_eq!(Layout::for_products(450_000).hash.level, 5);
        assert_eq!(Layout::for_products(100_000_000).hash.level, MAX_LEVEL);
    }
}
