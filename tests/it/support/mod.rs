//! What the tests share.

pub mod cluster;
pub mod documents;
pub mod gate;
pub mod http;
pub mod process;
pub mod provider;
pub mod proxy;
pub mod redis;
pub mod server;
pub mod stores;
pub mod websocket;

use rust_decimal::Decimal;
use vitrina::catalog::model::{Attribute, ProductDraft, ProductId};
use vitrina::money::Money;

/// A product with this id, its price in kopecks.
pub fn draft(id: &str, category: &str, kopecks: i64) -> ProductDraft {
    ProductDraft {
        id: ProductId::parse(id).unwrap(),
        name: format!("Товар {id}"),
        description: Some("Описание".to_owned()),
        category: category.to_owned(),
        price: Money::rub(Decimal::new(kopecks, 2)),
        attributes: vec![Attribute {
            name: "Цвет".to_owned(), value: "чёрный".to_owned()
        }],
        image_url: None,
    }
}

/// A seed for a test's random choices: from `VITRINA_TEST_SEED`, else a new one. It is printed, and
/// cargo shows it when the test fails.
pub fn seed() -> u64 {
    let seed = std::env::var("VITRINA_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    println!("VITRINA_TEST_SEED={seed}");
    seed
}

/// Random choices from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
