//! Amounts of money: exact decimals with a currency, never floating point.

use std::fmt;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

/// Fraction digits of every price the shop keeps.
pub const PRICE_SCALE: u32 = 2;

/// A three-letter currency code of ISO 4217, such as `RUB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency([u8; 3]);

impl Currency {
    /// The Russian rouble, the shop's own currency.
    pub const RUB: Self = Self(*b"RUB");

    /// Reads a code of three capital letters; anything else is `None`.
    pub fn parse(code: &str) -> Option<Self> {
        let bytes: [u8; 3] = code.as_bytes().try_into().ok()?;
        bytes.iter().all(u8::is_ascii_uppercase).then_some(Self(bytes))
    }

    /// The code as text.
    pub fn as_str(&self) -> &str {
        // Only ASCII capitals get in, so this is always text.
        std::str::from_utf8(&self.0).unwrap_or("XXX")
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.as_str().to_owned()
    }
}

impl TryFrom<String> for Currency {
    type Error = String;

    fn try_from(code: String) -> Result<Self, Self::Error> {
        Self::parse(&code).ok_or_else(|| "a currency is three capital letters".to_owned())
    }
}

/// An exact amount in a currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Money {
    /// How much; prices carry exactly [`PRICE_SCALE`] fraction digits.
    pub amount: Decimal,
    /// Of which currency.
    pub currency: Currency,
}

impl Money {
    /// An amount of roubles.
    pub fn rub(amount: Decimal) -> Self {
        Self { amount, currency: Currency::RUB }
    }

    /// What so many units cost, each at this price.
    #[must_use]
    pub fn times(self, units: i64) -> Self {
        Self { amount: self.amount.saturating_mul(Decimal::from(units)), ..self }
    }
}
