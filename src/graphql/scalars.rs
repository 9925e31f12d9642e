//! Scalars, and types that all domains use.

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::{
    InputObject, InputValueError, InputValueResult, Scalar, ScalarType, SimpleObject, Value,
};
use rust_decimal::Decimal;

use super::json::Json;
use super::leaf::{Leaf, LeafObject};
use crate::clock::Timestamp;
use crate::error::UserError;
use crate::money::Money;

/// Most characters of a decimal: far more than any price, few enough to parse at once.
const MAX_DECIMAL_CHARS: usize = 40;

/// An exact decimal number, or a text that was sent as one and is none. Whoever takes it says so
/// together with whatever else is wrong.
#[derive(Debug, Clone, Copy)]
pub struct DecimalScalar(Option<Decimal>);

/// An exact decimal number, sent as a string: `"89990.00"`. Whole numbers are accepted as input;
/// floating point numbers are not, because they are not exact.
#[Scalar(name = "Decimal")]
impl ScalarType for DecimalScalar {
    fn parse(value: Value) -> InputValueResult<Self> {
        match &value {
            Value::String(_) | Value::Number(_) => Ok(Self(Self::read(&value))),
            _ => Err(InputValueError::custom("a decimal is a string such as \"89990.00\"")),
        }
    }

    fn is_valid(value: &Value) -> bool {
        matches!(value, Value::String(_) | Value::Number(_))
    }

    fn to_value(&self) -> Value {
        self.0.map_or(Value::Null, |decimal| Value::String(decimal.to_string()))
    }
}

impl DecimalScalar {
    /// The number, if it is one.
    pub fn exact(self) -> Option<Decimal> {
        self.0
    }

    fn read(value: &Value) -> Option<Decimal> {
        match value {
            Value::String(text) if text.len() <= MAX_DECIMAL_CHARS => {
                // `from_str_exact` refuses what would have to be rounded.
                Decimal::from_str_exact(text).ok()
            }
            Value::Number(number) => number.as_i64().map(Decimal::from),
            _ => None,
        }
    }
}

/// A moment in UTC.
#[derive(Debug, Clone, Copy)]
pub struct DateTimeScalar(pub Timestamp);

/// A moment in UTC as RFC 3339: `"2026-11-15T10:00:00.000Z"`.
#[Scalar(name = "DateTime")]
impl ScalarType for DateTimeScalar {
    fn parse(value: Value) -> InputValueResult<Self> {
        Self::read(&value).ok_or_else(|| {
            InputValueError::custom("a time is RFC 3339, such as \"2026-11-15T10:00:00Z\"")
        })
    }

    fn is_valid(value: &Value) -> bool {
        Self::read(value).is_some()
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.to_string())
    }
}

impl DateTimeScalar {
    fn read(value: &Value) -> Option<Self> {
        let Value::String(text) = value else { return None };
        let time = chrono::DateTime::parse_from_rfc3339(text).ok()?;
        Some(Self(Timestamp::from_micros(time.timestamp_micros())))
    }
}

/// The first moment of a day in UTC.
#[derive(Debug, Clone, Copy)]
pub struct DateScalar(pub Timestamp);

/// A day in UTC: `"2026-11-15"`.
#[Scalar(name = "Date")]
impl ScalarType for DateScalar {
    fn parse(value: Value) -> InputValueResult<Self> {
        Self::read(&value)
            .ok_or_else(|| InputValueError::custom("a day is written as \"2026-11-15\""))
    }

    fn is_valid(value: &Value) -> bool {
        Self::read(value).is_some()
    }

    fn to_value(&self) -> Value {
        let text = self.0.to_string();
        Value::String(text.split('T').next().unwrap_or_default().to_owned())
    }
}

impl DateScalar {
    fn read(value: &Value) -> Option<Self> {
        let Value::String(text) = value else { return None };
        let day = chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
        let start = day.and_time(chrono::NaiveTime::MIN).and_utc();
        Some(Self(Timestamp::from_micros(start.timestamp_micros())))
    }
}

/// An amount of money.
#[derive(SimpleObject)]
#[graphql(name = "Money")]
pub struct MoneyShape {
    /// How much, exactly.
    #[graphql(cache_control(max_age = 1))]
    amount: DecimalScalar,
    /// The currency as a code of ISO 4217, such as `RUB`.
    #[graphql(cache_control(max_age = 1))]
    currency_code: String,
}

impl From<&Money> for MoneyShape {
    fn from(money: &Money) -> Self {
        Self {
            amount: DecimalScalar(Some(money.amount)),
            currency_code: money.currency.as_str().to_owned(),
        }
    }
}

/// An amount of money, in an answer.
pub type MoneyNode = Leaf<Arc<Money>>;

impl LeafObject for Money {
    type Shape<'a> = MoneyShape;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        match field.name.node.as_str() {
            "amount" => out.plain(self.amount),
            "currencyCode" => out.plain(self.currency),
            _ => false,
        }
    }
}

impl LeafObject for UserError {
    type Shape<'a> = &'a Self;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        match field.name.node.as_str() {
            "code" => out.name(self.code),
            "field" => out.value(&self.field),
            "message" => out.text(&self.message),
            _ => false,
        }
    }
}

/// An amount of money to be stored.
#[derive(Debug, InputObject)]
pub struct MoneyInput {
    /// How much, with at most 2 fraction digits.
    pub amount: DecimalScalar,
    /// The currency as a code of ISO 4217.
    #[graphql(default_with = "Some(\"RUB\".to_owned())")]
    pub currency_code: Option<String>,
}
