//! What a checkout is, and what becomes of it. Pure rules; no I/O.
//!
//! # The life of a checkout
//!
//! | state | means | next |
//! |---|---|---|
//! | `open` | somebody works at it until its lease ends; units may be held under its order's id | `accepted`, `refused`; `undone` by whoever finds it after its lease |
//! | `accepted` | all units are held: it is an order, whoever writes it down | stays |
//! | `refused` | there was too little; nothing is held | stays |
//! | `undone` | it was given up; what is held is to be released | `open` with another order's id, by a call with the key |
//!
//! Every change is conditional on the version, so of two who work at one checkout one decides. An
//! attempt has an order id of its own, so what a slow one still reserves is not mistaken for what a
//! later one counts on.

use std::sync::Arc;
use std::time::Duration;

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::digest::digest_of;
use crate::error::{ErrorCode, UserError};
use crate::geo_zone::{GeoZone, MAX_ZONE_CHARS};
use crate::input::{MAX_KEY_CHARS, argument_fault};
use crate::inventory::model::{Line, Reservation, ReservationFault, Shortage, StockKey, Token};
use crate::money::Money;
use crate::orders::model::{Address, MAX_METHOD_CHARS, Order};
use crate::owner::Owner;

/// How long a checkout is kept after it last changed: its key is known for a week.
pub const KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How long whoever has begun a checkout may take. After that it is given up, by whoever comes.
pub const LEASE: Duration = Duration::from_secs(10);

/// What a client asks for, as it came from outside.
#[derive(Debug, Clone)]
pub struct CheckoutRequest {
    /// Names the request: sent again, it is carried out once.
    pub key: String,
    /// Where to buy.
    pub zone: String,
    /// Where it goes.
    pub address: Address,
    /// How it is to be paid.
    pub payment_method: String,
    /// What the shopper saw as the total.
    pub expected_total: Option<Decimal>,
}

impl CheckoutRequest {
    /// What is wrong with it, all at once.
    pub fn faults(&self) -> Vec<UserError> {
        let mut faults = Vec::new();
        faults.extend(argument_fault(&["input", "idempotencyKey"], &self.key, MAX_KEY_CHARS));
        if faults.is_empty() && self.key.chars().any(char::is_whitespace) {
            let field = Some(vec!["input".to_owned(), "idempotencyKey".to_owned()]);
            let message = "A key has no white space.".to_owned();
            faults.push(UserError { code: ErrorCode::Invalid, field, message });
        }
        faults.extend(argument_fault(&["input", "geoZone"], &self.zone, MAX_ZONE_CHARS));
        faults.extend(self.address.faults(&["input", "shippingAddress"]));
        let method = &self.payment_method;
        faults.extend(argument_fault(&["input", "paymentMethod"], method, MAX_METHOD_CHARS));
        faults
    }

    /// Tells what is asked for from other things, under whatever key.
    pub fn fingerprint(&self) -> String {
        let Address { city, street, postal_code, recipient, phone } = &self.address;
        let expected = self.expected_total.map(|total| total.normalize().to_string());
        let texts = [
            Some(&self.zone),
            Some(city),
            Some(street),
            postal_code.as_ref(),
            recipient.as_ref(),
            phone.as_ref(),
            Some(&self.payment_method),
            expected.as_ref(),
        ];
        let mut parts: Vec<&[u8]> = Vec::new();
        for text in texts {
            // Nothing is not the same as an empty text.
            parts.push(if text.is_some() { b"+" } else { b"-" });
            parts.push(text.map_or(b"", |text| text.as_bytes()));
        }
        u128::from_be_bytes(digest_of(&parts)).to_string()
    }
}

/// A product of which there was too little.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Short {
    /// The product.
    pub product: crate::product_id::ProductId,
    /// Units that were asked for.
    pub requested: i64,
    /// Units that there were.
    pub available: i64,
}

impl From<Shortage> for Short {
    fn from(Shortage { key, requested, available }: Shortage) -> Self {
        Self { product: key.product, requested, available }
    }
}

/// How a checkout stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckoutState {
    /// Somebody works at it until then.
    Open {
        /// The end of the lease.
        until: Timestamp,
    },
    /// It is an order.
    Accepted,
    /// There was too little of these.
    Refused(Vec<Short>),
    /// It was given up.
    Undone,
}

impl CheckoutState {
    /// In a word, for whoever looks at the table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open { .. } => "open",
            Self::Accepted => "accepted",
            Self::Refused(_) => "refused",
            Self::Undone => "undone",
        }
    }
}

/// A checkout under its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkout {
    /// Whose.
    pub owner: Owner,
    /// The idempotency key.
    pub key: Arc<str>,
    /// What was asked for; see [`CheckoutRequest::fingerprint`].
    pub request: String,
    /// How it stands.
    pub state: CheckoutState,
    /// The order as it is accepted, with lines and prices.
    pub order: Order,
    /// When somebody looks whether it was finished.
    pub due_at: Timestamp,
    /// When it last changed.
    pub changed_at: Timestamp,
    /// Grows by one with every change.
    pub version: i64,
}

impl Checkout {
    /// It in another state.
    #[must_use]
    pub fn turned(&self, state: CheckoutState, now: Timestamp) -> Self {
        Self { state, version: self.version + 1, changed_at: now, ..self.clone() }
    }
}

/// The units of an order.
pub fn reservation_of(order: &Order) -> Result<Reservation, ReservationFault> {
    let line = |line: &crate::orders::model::OrderLine| Line {
        key: StockKey { product: line.product.clone(), zone: order.zone.clone() },
        units: line.units,
    };
    Reservation::new(Token::of_reservation(order.id), order.lines.iter().map(line))
}

/// The id of the operation by which an order takes its units out of the cart.
pub fn cart_operation_id(order: Uuid) -> Uuid {
    crate::digest::derived_id(&[b"ordered", order.as_bytes()])
}

/// How a checkout ended, for the client.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It is this order.
    Order(Box<Order>),
    /// It is none.
    Refused(Refusal),
}

/// Why a checkout is no order, with what a client needs to go on.
#[derive(Debug, Clone, Default)]
pub struct Refusal {
    /// Why.
    pub errors: Vec<UserError>,
    /// Products of which there is too little.
    pub shortages: Vec<Short>,
    /// What the cart costs now.
    pub total: Option<Money>,
}

impl Refusal {
    /// One reason.
    pub fn because(code: ErrorCode, field: Option<&[&str]>, message: impl Into<String>) -> Self {
        let field = field.map(|path| path.iter().map(|&step| step.to_owned()).collect());
        let error = UserError { code, field, message: message.into() };
        Self { errors: vec![error], ..Self::default() }
    }

    /// There is too little.
    pub fn out_of_stock(shortages: Vec<Short>, zone: &GeoZone) -> Self {
        let message = |short: &Short| {
            let Short { product, requested, available } = short;
            format!("Of {product} there are {available} in {}, not {requested}.", zone.as_str())
        };
        let error = |short: &Short| UserError {
            code: ErrorCode::OutOfStock,
            field: None,
            message: message(short),
        };
        Self { errors: shortages.iter().map(error).collect(), shortages, total: None }
    }
}
