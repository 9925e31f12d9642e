//! What an order is, the steps it takes, and where its history keeps it. Pure rules; no I/O.

use std::fmt;
use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::digest::{self, derived_id};
use crate::error::UserError;
use crate::geo_zone::GeoZone;
use crate::input::argument_fault;
use crate::money::Money;
use crate::owner::Owner;
use crate::product_id::ProductId;

/// How long orders are kept: a year, and room to look at the last day of it.
pub const KEPT: Duration = Duration::from_secs(400 * 24 * 3_600);
/// Most characters of a note or a reason.
pub const MAX_NOTE_CHARS: usize = 500;
/// Most characters of a tracking number.
pub const MAX_TRACKING_CHARS: usize = 100;
/// Most characters of the way an order is paid.
pub const MAX_METHOD_CHARS: usize = 40;
/// Most characters of a city, a street or a name.
const MAX_ADDRESS_CHARS: usize = 200;
/// Most characters of a postal code or a telephone number.
const MAX_SHORT_CHARS: usize = 40;
/// Most changes of one order that are kept: a life has five steps, and an order of a guest moves to
/// a customer once.
pub const MAX_CHANGES: usize = 16;
/// Most events of an order that are told: its changes, and what was heard of its payment.
pub const MAX_EVENTS: usize = 100;
/// Into how many shards the orders of a day are cut.
pub const DAY_SHARDS: i8 = 16;
/// Orders of a part of a history beyond which the next month begins a new one.
pub const MAX_PART_ROWS: usize = 1_000;
/// A month begins a part of its own only if that was decided so long before.
const PART_NOTICE: Duration = Duration::from_secs(24 * 3_600);

/// How an order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, async_graphql::Enum)]
#[serde(rename_all = "snake_case")]
pub enum OrderStatus {
    /// It was placed and waits for its payment.
    Created,
    /// It was paid.
    Paid,
    /// It is being packed.
    Processing,
    /// It is on its way.
    Shipped,
    /// It has arrived.
    Delivered,
    /// It will not be carried out; its units are free again.
    Cancelled,
}

impl OrderStatus {
    /// Every status.
    pub const ALL: [Self; 6] = [
        Self::Created,
        Self::Paid,
        Self::Processing,
        Self::Shipped,
        Self::Delivered,
        Self::Cancelled,
    ];

    /// As stores keep it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Paid => "paid",
            Self::Processing => "processing",
            Self::Shipped => "shipped",
            Self::Delivered => "delivered",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether an order that stands so may stand like that next.
    pub fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Created, Self::Paid)
                | (Self::Paid, Self::Processing)
                | (Self::Processing, Self::Shipped)
                | (Self::Shipped, Self::Delivered)
                | (Self::Created | Self::Paid | Self::Processing, Self::Cancelled)
        )
    }
}

/// Where the units of an order are. What stands as «being …» is to be carried out by whoever comes
/// first, and then noted as done: so it is done once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitsStand {
    /// They are held for it.
    Held,
    /// They are to be given back to the stock.
    Releasing,
    /// They are back.
    Released,
    /// They are to leave the stock for good.
    Leaving,
    /// They have left.
    Left,
}

impl UnitsStand {
    /// How they stand once what is to be done with them is done; `None` if nothing is.
    pub fn done(self) -> Option<Self> {
        match self {
            Self::Releasing => Some(Self::Released),
            Self::Leaving => Some(Self::Left),
            Self::Held | Self::Released | Self::Left => None,
        }
    }
}

/// Where an order goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The city.
    pub city: String,
    /// Street, house and flat.
    pub street: String,
    /// The postal code.
    pub postal_code: Option<String>,
    /// Who receives it.
    pub recipient: Option<String>,
    /// How to reach them.
    pub phone: Option<String>,
}

impl Address {
    /// What is wrong with it; `path` leads to it in the arguments.
    pub fn faults(&self, path: &[&str]) -> Vec<UserError> {
        let fields = [
            ("city", Some(&self.city), MAX_ADDRESS_CHARS),
            ("street", Some(&self.street), MAX_ADDRESS_CHARS),
            ("postalCode", self.postal_code.as_ref(), MAX_SHORT_CHARS),
            ("recipient", self.recipient.as_ref(), MAX_ADDRESS_CHARS),
            ("phone", self.phone.as_ref(), MAX_SHORT_CHARS),
        ];
        let fault = |(name, text, max): (&str, Option<&String>, usize)| {
            let path: Vec<&str> = path.iter().copied().chain([name]).collect();
            argument_fault(&path, text?, max)
        };
        fields.into_iter().filter_map(fault).collect()
    }
}

/// A product of an order, as it was when the order was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderLine {
    /// The product.
    pub product: ProductId,
    /// Its name then.
    pub name: String,
    /// How many units.
    pub units: i64,
    /// What one of them cost then.
    pub price: Money,
}

/// Who changed an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// The one who placed it.
    Customer,
    /// A member of staff, by the `sub` of the token.
    Staff(String),
    /// The payment service.
    Payment,
    /// The shop itself.
    Shop,
}

/// Something that happened to an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderEvent {
    /// Follows from what happened, so that it is noted once.
    pub id: Uuid,
    /// When.
    pub at: Timestamp,
    /// What: a status, or what was heard of a payment.
    pub kind: String,
    /// Who did it.
    pub actor: Actor,
    /// What they said.
    pub note: Option<String>,
}

impl OrderEvent {
    /// The moment of an event that follows the last change of its order: later than that, also if the
    /// clock of whoever made it was ahead, or both came in the same millisecond.
    pub fn moment(now: Timestamp, last: Option<&Self>) -> Timestamp {
        let after_last = last.map(|last| Timestamp::from_millis(last.at.millis() + 1));
        now.to_millis_precision().max(after_last.unwrap_or_default())
    }
}

/// An order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// A UUID of version 7: also the token under which its units are held.
    pub id: Uuid,
    /// Whose it is.
    pub owner: Owner,
    /// How it stands.
    pub status: OrderStatus,
    /// Where its units are.
    pub units: UnitsStand,
    /// The zone whose stock it takes from.
    pub zone: GeoZone,
    /// What was bought: each product once, in the order of their ids.
    pub lines: Vec<OrderLine>,
    /// What it costs.
    pub total: Money,
    /// Where it goes.
    pub address: Address,
    /// How it is to be paid.
    pub payment_method: String,
    /// When it was placed, to the millisecond.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// Unpaid by then, it is cancelled.
    pub payment_due_at: Timestamp,
    /// Where the parcel can be followed.
    pub tracking_number: Option<String>,
    /// The payment that was accepted for it, as the payment service names it.
    pub payment: Option<String>,
    /// The part of its owner's history that it is kept in.
    pub part: Month,
    /// All that changed it, oldest first.
    pub changes: Vec<OrderEvent>,
    /// Grows by one with every change.
    pub version: i64,
}

/// Where an order stands in a list: newest first, of one moment by the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderPlace {
    /// When it was placed.
    pub created_at: Timestamp,
    /// Its id.
    pub id: Uuid,
}

/// What a step is asked for.
#[derive(Debug, Clone)]
pub struct Step {
    /// How the order is to stand.
    pub to: OrderStatus,
    /// Who wants it.
    pub actor: Actor,
    /// Why.
    pub note: Option<String>,
    /// Where the parcel can be followed; with [`OrderStatus::Shipped`] only.
    pub tracking_number: Option<String>,
    /// The payment, as the payment service names it.
    pub payment: Option<String>,
}

impl Step {
    /// A step without more to say.
    pub fn new(to: OrderStatus, actor: Actor) -> Self {
        Self { to, actor, note: None, tracking_number: None, payment: None }
    }
}

/// What a step makes of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stepped {
    /// This.
    Changed(Box<Order>),
    /// It stands so already, by the same step.
    Same,
    /// It cannot be taken from where the order stands.
    Impossible,
}

impl Order {
    /// Its place in a list.
    pub fn place(&self) -> OrderPlace {
        OrderPlace { created_at: self.created_at, id: self.id }
    }

    /// Until when it waits for its payment; `None` if it does not.
    pub fn awaits_payment_until(&self) -> Option<Timestamp> {
        (self.status == OrderStatus::Created).then_some(self.payment_due_at)
    }

    /// The shard of its day.
    pub fn day_shard(&self) -> i8 {
        digest::shard_of(&self.id.simple().to_string(), DAY_SHARDS)
    }

    /// What becomes of it by a step. A step may be repeated, but not with another effect.
    pub fn step(&self, step: &Step, now: Timestamp) -> Stepped {
        if step.to == self.status {
            let is_same =
                |asked: &Option<String>, there: &Option<String>| asked.is_none() || asked == there;
            let same = is_same(&step.tracking_number, &self.tracking_number)
                && is_same(&step.payment, &self.payment);
            return if same { Stepped::Same } else { Stepped::Impossible };
        }
        if !self.status.may_become(step.to) || self.changes.len() >= MAX_CHANGES {
            return Stepped::Impossible;
        }
        let units = match step.to {
            OrderStatus::Cancelled => UnitsStand::Releasing,
            OrderStatus::Shipped => UnitsStand::Leaving,
            _ => self.units,
        };
        let payment = step.payment.clone().or_else(|| self.payment.clone());
        let tracking_number = step.tracking_number.clone().or_else(|| self.tracking_number.clone());
        let mut after = Self { status: step.to, units, payment, tracking_number, ..self.clone() };
        after.note_change(step.to.as_str(), step.actor.clone(), step.note.clone(), now);
        Stepped::Changed(Box::new(after))
    }

    /// It with its units as they stand once that is done; `None` if nothing is to be done.
    #[must_use]
    pub fn units_done(&self) -> Option<Self> {
        let units = self.units.done()?;
        Some(Self { units, version: self.version + 1, ..self.clone() })
    }

    /// It as it is, with a new version: a change of it that is late cannot happen any more.
    #[must_use]
    pub fn touched(&self) -> Self {
        Self { version: self.version + 1, ..self.clone() }
    }

    /// It as a customer's, in a part of that customer's history.
    #[must_use]
    pub fn moved_to(&self, owner: Owner, part: Month, now: Timestamp) -> Self {
        let mut after = Self { owner, part, ..self.clone() };
        after.note_change("moved", Actor::Customer, None, now);
        after
    }

    /// Notes the first thing that happens to it.
    pub fn note_creation(&mut self) {
        let at = self.created_at;
        self.version = 0;
        self.note_change(OrderStatus::Created.as_str(), Actor::Customer, None, at);
    }

    fn note_change(&mut self, kind: &str, actor: Actor, note: Option<String>, now: Timestamp) {
        self.version += 1;
        let at = OrderEvent::moment(now, self.changes.last());
        let id = event_id(self.id, &self.version.to_be_bytes());
        self.updated_at = at;
        self.changes.push(OrderEvent { id, at, kind: kind.to_owned(), actor, note });
    }
}

/// The id of an event of an order, by what tells it from the others.
pub fn event_id(order: Uuid, what: &[u8]) -> Uuid {
    derived_id(&[b"order event", order.as_bytes(), what])
}

/// A month: `202611`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Month(i32);

impl Month {
    /// The month of a moment.
    pub fn of(at: Timestamp) -> Self {
        let time = DateTime::<Utc>::from_timestamp_micros(at.micros()).unwrap_or_default();
        Self::new(time.year(), time.month())
    }

    fn new(year: i32, month: u32) -> Self {
        Self(year.saturating_mul(100).saturating_add(i32::try_from(month).unwrap_or(1)))
    }

    /// Takes what a store kept.
    pub fn from_number(number: i32) -> Self {
        Self(number)
    }

    /// What a store keeps.
    pub fn number(self) -> i32 {
        self.0
    }

    fn year(self) -> i32 {
        self.0.div_euclid(100)
    }

    /// The first moment of it.
    pub fn start(self) -> Timestamp {
        let month = u32::try_from(self.0.rem_euclid(100)).unwrap_or(1);
        let day = NaiveDate::from_ymd_opt(self.year(), month, 1).unwrap_or_default();
        let start = day.and_time(chrono::NaiveTime::MIN).and_utc();
        Timestamp::from_micros(start.timestamp_micros())
    }

    /// Until when it is known that a part of a history begins with it: as long as the last order is
    /// kept that such a part may have.
    pub fn kept_until(self) -> Timestamp {
        Self::new(self.year().saturating_add(1), 1).start().after(KEPT)
    }

    /// The month after it.
    #[must_use]
    pub fn next(self) -> Self {
        if self.0.rem_euclid(100) >= 12 { Self::new(self.year() + 1, 1) } else { Self(self.0 + 1) }
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The part of a history that an order placed at a moment belongs to, given the months in which
/// parts begin: the last that has begun in that year, or the year's first.
///
/// A year is one part, so that the history of somebody who buys once a month is not read month by
/// month. A part that has grown large ends with its month; see [`next_part`].
pub fn part_of(parts: &[Month], at: Timestamp) -> Month {
    let month = Month::of(at);
    let first = Month::new(month.year(), 1);
    let begun = parts.iter().copied().filter(|part| *part <= month && *part >= first);
    begun.max().unwrap_or(first)
}

/// Where the part after one that has grown large begins: a month that nobody can be about to place
/// an order in, or everybody would not agree on the part of that order.
pub fn next_part(now: Timestamp) -> Month {
    Month::of(now.after(PART_NOTICE)).next()
}

/// The whole days since 1970 at a moment.
pub fn day_of(at: Timestamp) -> i32 {
    let day = at.micros().div_euclid(24 * 3_600 * 1_000_000);
    i32::try_from(day).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
