//! Scalars and the types of money.

use async_graphql::{
    InputObject, InputValueError, InputValueResult, Object, Scalar, ScalarType, Value,
};
use rust_decimal::Decimal;

use crate::clock::Timestamp;
use crate::money::Money;

/// Most characters of a decimal: far more than any price, few enough to parse at once.
const MAX_DECIMAL_CHARS: usize = 40;

/// An exact decimal number, sent as a string: `"89990.00"`. Whole numbers are accepted as input;
/// floating point numbers are not, because they are not exact.
#[derive(Debug, Clone, Copy)]
pub struct DecimalScalar(pub Decimal);

/// An exact decimal number, sent as a string: `"89990.00"`. Whole numbers are accepted as input;
/// floating point numbers are not, because they are not exact.
#[Scalar(name = "Decimal")]
impl ScalarType for DecimalScalar {
    fn parse(value: Value) -> InputValueResult<Self> {
        let parsed = match &value {
            Value::String(text) if text.len() <= MAX_DECIMAL_CHARS => {
                // `from_str_exact` refuses what would have to be rounded.
                Decimal::from_str_exact(text).ok()
            }
            Value::Number(number) => number.as_i64().map(Decimal::from),
            _ => None,
        };
        parsed
            .map(Self)
            .ok_or_else(|| InputValueError::custom("a decimal is a string such as \"89990.00\""))
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.to_string())
    }
}

/// A moment in UTC as RFC 3339: `"2026-11-15T10:00:00.000Z"`.
#[derive(Debug, Clone, Copy)]
pub struct DateTimeScalar(pub Timestamp);

/// A moment in UTC as RFC 3339: `"2026-11-15T10:00:00.000Z"`.
#[Scalar(name = "DateTime")]
impl ScalarType for DateTimeScalar {
    fn parse(value: Value) -> InputValueResult<Self> {
        let Value::String(text) = &value else {
            return Err(InputValueError::expected_type(value));
        };
        chrono::DateTime::parse_from_rfc3339(text)
            .map(|time| Self(Timestamp::from_micros(time.timestamp_micros())))
            .map_err(|_| {
                InputValueError::custom("a time is RFC 3339, such as \"2026-11-15T10:00:00Z\"")
            })
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.to_string())
    }
}

/// An amount of money.
pub struct MoneyNode(pub Money);

/// An amount of money.
#[Object(name = "Money")]
impl MoneyNode {
    /// How much, exactly.
    async fn amount(&self) -> DecimalScalar {
        DecimalScalar(self.0.amount)
    }

    /// The currency as a code of ISO 4217, such as `RUB`.
    async fn currency_code(&self) -> &str {
        self.0.currency.as_str()
    }
}

/// An amount of money to be stored.
#[derive(Debug, InputObject)]
pub struct MoneyInput {
    /// How much, with at most 2 fraction digits.
    pub amount: DecimalScalar,
    /// The currency as a code of ISO 4217.
    #[graphql(default = "RUB")]
    pub currency_code: String,
}
