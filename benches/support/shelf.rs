//! Made-up categories for browsing: the products of the demo shop, all in one category, with prices
//! spread over many sizes. The same on every machine.

use vitrina::catalog::model::browse::amount;
use vitrina::catalog::model::buckets::Kopecks;
use vitrina::catalog::model::{ProductDraft, ProductId};
use vitrina::demo::catalogue;
use vitrina::money::Money;

use super::requests::below;

/// The lowest price, in kopecks: 100 roubles.
const LOWEST: f64 = 10_000.0;
/// The highest price by the lowest: up to 200,000 roubles.
const SPREAD: f64 = 2_000.0;
/// Steps between the two: far more than there are products.
const STEPS: u32 = 1 << 31;
/// Tells the draws of a product from those of its neighbours, and those of its later prices.
const STRIDE: u64 = 0x2545_F491_4F6C_DD1D;

/// A made-up category.
#[derive(Clone)]
pub(super) struct Shelf {
    /// The name of the category.
    pub(super) name: String,
}

impl Shelf {
    /// The category of this name; one word.
    pub(super) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// The category that is filled with so many products and then only read.
    pub(super) fn of(products: u64) -> Self {
        Self::new(format!("Полка-{products}"))
    }

    /// The `index`-th product at its first price.
    pub(super) fn product(&self, index: u64) -> ProductDraft {
        self.product_at(index, 0)
    }

    /// The `index`-th product at one of its prices.
    pub(super) fn product_at(&self, index: u64, revision: u64) -> ProductDraft {
        ProductDraft {
            id: ProductId::new_unchecked(format!("{}-{index:08}", self.name)),
            category: self.name.clone(),
            price: Money::rub(amount(self.price(index, revision))),
            ..catalogue::product(index)
        }
    }

    /// A price of the `index`-th product. There are as many between 100 and 200 roubles as between
    /// 100,000 and 200,000.
    pub(super) fn price(&self, index: u64, revision: u64) -> Kopecks {
        let seed = self
            .name
            .bytes()
            .fold(0, |seed: u64, byte| seed.wrapping_mul(STRIDE).wrapping_add(u64::from(byte)));
        let mut draws = index
            .wrapping_add(revision.wrapping_mul(STRIDE))
            .wrapping_mul(STRIDE)
            .wrapping_add(seed);
        let step = u32::try_from(below(&mut draws, STEPS as usize)).unwrap_or(0);
        let price = LOWEST * SPREAD.powf(f64::from(step) / f64::from(STEPS));
        #[allow(clippy::cast_possible_truncation, reason = "at most 20,000,000 kopecks")]
        let kopecks = price as Kopecks;
        kopecks
    }

    /// The first prices of so many products, in order.
    pub(super) fn prices(&self, products: u64) -> Vec<Kopecks> {
        let mut prices: Vec<_> = (0..products).map(|index| self.price(index, 0)).collect();
        prices.sort_unstable();
        prices
    }
}
