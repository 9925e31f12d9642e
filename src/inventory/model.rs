//! What stock is, and what many requests at once make of a row of it. Pure rules; no I/O.
//!
//! # Tokens
//!
//! Whoever changes a row names the change by a token, and the row keeps a mark of it. So a change
//! that is asked for again is found and not made again, and after a lost reply the row itself tells
//! whether it happened. The life of a reservation, as its row shows it:
//!
//! | mark | means | leaves the row |
//! |---|---|---|
//! | `reserved n` | units are held, and the row alone knows it | by [`Ask::Settle`], once the caller has recorded it |
//! | (none) | nothing, or it was recorded and settled: the caller knows which | |
//! | `released n`, `committed n` | the units are back, or gone for good | by [`Ask::Close`], once that is recorded; `undone` takes its place |
//! | `undone` | whoever comes late with this token is to be refused | after [`UNDONE_LIFE`] |
//!
//! A mark that would make a repeated change count twice if it went away never goes by its age.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::{ErrorCode, UserError};
use crate::geo_zone::{GeoZone, MAX_ZONE_CHARS};
use crate::input::{Faults, MAX_KEY_CHARS};
use crate::product_id::{MAX_ID_CHARS, ProductId};

/// Most units of a product in a zone.
pub const MAX_QUANTITY: i64 = 1_000_000_000;
/// Most zones a product is sold in: all of them are one answer, not a paged one.
pub const MAX_ZONES: usize = 100;
/// Most entries one call of staff may bring.
pub const MAX_BATCH: usize = 100;
/// Most rows that one reservation touches: as many as a cart has lines.
pub const MAX_LINES: usize = 100;
/// Most processes that are seen to stand in line for a row.
pub const MAX_IN_LINE: usize = 100;
/// Most characters of the reason of an adjustment.
pub const MAX_REASON_CHARS: usize = 300;
/// Most marks of a row that have to be settled. Reservations wait when it is full: a row is written
/// whole, and whoever reserves also settles soon.
pub const MAX_OPEN: usize = 10_000;
/// How long somebody may come late with a token that is over: far beyond every deadline, and long
/// enough for a process that was frozen.
pub const UNDONE_LIFE: Duration = Duration::from_secs(15 * 60);
/// How long an adjustment may be repeated and still be found.
pub const ADJUSTED_LIFE: Duration = Duration::from_secs(24 * 3_600);
/// How long the reply to `stockSet` may stay away; more than clocks are ever apart.
const SET_LIFE: Duration = Duration::from_secs(3_600);
/// Most marks of a row of each kind that goes by its age; beyond it the oldest go sooner.
const MAX_AGEING: usize = 1_000;

/// Names a row of stock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StockKey {
    /// What is sold.
    pub product: ProductId,
    /// Where.
    pub zone: GeoZone,
}

impl fmt::Display for StockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.product, self.zone.as_str())
    }
}

/// The numbers of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockLevel {
    /// Units in the zone's warehouse.
    pub quantity: i64,
    /// Of these, units that are promised to somebody. Never more than `quantity`, never below 0.
    pub reserved: i64,
    /// Grows by one with every change of the row.
    pub version: i64,
    /// When that was.
    pub updated_at: Timestamp,
}

impl StockLevel {
    /// Units that can be bought.
    pub fn available(&self) -> i64 {
        self.quantity - self.reserved
    }
}

/// Names a change of a row, once and for all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(Arc<str>);

impl Token {
    /// The token of a reservation, by the id of its order.
    pub fn of_reservation(id: uuid::Uuid) -> Self {
        Self(format!("r/{}", id.simple()).into())
    }

    /// The id of the order that a reservation is for; `None` for any other token.
    pub fn order(&self) -> Option<uuid::Uuid> {
        uuid::Uuid::try_parse(self.0.strip_prefix("r/")?).ok()
    }

    /// The token of an adjustment, by the idempotency key of its caller.
    pub fn of_adjustment(key: &str) -> Self {
        Self(format!("a/{key}").into())
    }

    /// The token of one call of `stockSet`.
    pub fn of_set(id: uuid::Uuid) -> Self {
        Self(format!("s/{}", id.simple()).into())
    }

    /// Takes a text that a store kept.
    pub fn new_unchecked(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text that a store keeps.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a row remembers of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// So many units are held for it.
    Reserved(i64),
    /// It is not to hold anything any more.
    Undone(Timestamp),
    /// So many units that were held for it are free again.
    Released(i64),
    /// So many units that were held for it have left.
    Committed(i64),
    /// The quantity was changed by so much.
    Adjusted(i64, Timestamp),
    /// The quantity was set.
    Set(Timestamp),
}

impl Mark {
    /// Which kind of mark that goes by its age it is.
    fn ageing_kind(self) -> Option<usize> {
        match self {
            Self::Reserved(_) | Self::Released(_) | Self::Committed(_) => None,
            Self::Undone(_) => Some(0),
            Self::Adjusted(..) => Some(1),
            Self::Set(_) => Some(2),
        }
    }

    /// Until when it has to be remembered; `None`: until it is settled.
    fn until(self) -> Option<Timestamp> {
        match self {
            Self::Reserved(_) | Self::Released(_) | Self::Committed(_) => None,
            Self::Undone(at) => Some(at.after(UNDONE_LIFE)),
            Self::Adjusted(_, at) => Some(at.after(ADJUSTED_LIFE)),
            Self::Set(at) => Some(at.after(SET_LIFE)),
        }
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (kind, first, second) = (words.next()?, words.next()?, words.next());
        let number: i64 = first.parse().ok()?;
        Some(match (kind, second) {
            ("reserved", None) => Self::Reserved(number),
            ("undone", None) => Self::Undone(Timestamp::from_millis(number)),
            ("released", None) => Self::Released(number),
            ("committed", None) => Self::Committed(number),
            ("set", None) => Self::Set(Timestamp::from_millis(number)),
            ("adjusted", Some(at)) => {
                Self::Adjusted(number, Timestamp::from_millis(at.parse().ok()?))
            }
            _ => return None,
        })
    }
}

impl fmt::Display for Mark {
    /// Words, so that a person who looks at a row in trouble can read them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserved(n) => write!(f, "reserved {n}"),
            Self::Undone(at) => write!(f, "undone {}", at.millis()),
            Self::Released(n) => write!(f, "released {n}"),
            Self::Committed(n) => write!(f, "committed {n}"),
            Self::Adjusted(delta, at) => write!(f, "adjusted {delta} {}", at.millis()),
            Self::Set(at) => write!(f, "set {}", at.millis()),
        }
    }
}

/// A row of stock with all that it remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockRow {
    /// Its numbers.
    pub level: StockLevel,
    /// The changes that may still be asked for again.
    pub marks: BTreeMap<Token, Mark>,
    /// The process whose turn it is to write the row, where several do.
    pub turn: Option<uuid::Uuid>,
}

/// A change that somebody asks of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Hold units, all or none.
    Reserve(Token, i64),
    /// The caller has recorded that its units are held: the row need not remember it.
    Settle(Token),
    /// The caller has recorded that they were released or have left. It is another thing than
    /// [`Ask::Settle`], which may come late from somebody who does not know of that end.
    Close(Token),
    /// Free what this very call has reserved before, and remember nothing of it.
    TakeBack(Token),
    /// Free units that were reserved. `recorded`: the caller has recorded that they were, so where
    /// there is no mark it was settled; otherwise no mark means that nothing was reserved yet, and
    /// nothing will be.
    Release {
        /// The reservation.
        token: Token,
        /// Its units.
        units: i64,
        /// Whether it is certain that they were reserved.
        recorded: bool,
    },
    /// Reserved units leave for good.
    Commit(Token, i64),
    /// The quantity is this much.
    Set(Token, i64),
    /// The quantity is so much more, or less.
    Adjust(Token, i64),
}

/// What becomes of an [`Ask`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// It is done, or was before; the row as it is now.
    Done(StockLevel),
    /// There are not enough units; so many there are.
    Short(i64),
    /// The token was given up.
    Undone,
    /// More are reserved than the quantity would be.
    Below {
        /// So many are.
        reserved: i64,
    },
    /// The quantity would be above [`MAX_QUANTITY`].
    TooMany,
    /// The token stands for another change.
    Reused,
    /// Nothing of the kind is reserved: the caller's records are wrong.
    Impossible,
    /// The row has as many open marks as it can keep; it has to wait.
    Full,
}

/// What a writer of a row asks another one to do, whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errand {
    /// Who gives it. A writer has one errand at a time; the next takes the place of the one before.
    pub from: uuid::Uuid,
    /// Who is to run it: nobody else does.
    pub to: uuid::Uuid,
    /// Tells it from others of the same writer: a later one has a larger number.
    pub number: i64,
    /// What is to be done; nothing withdraws the one before.
    pub asks: Vec<Ask>,
}

/// What became of an [`Errand`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The row after it; `None` if nothing of it was done, and nothing will be.
    pub level: Option<StockLevel>,
    /// By their places, those asks that were not simply done.
    pub others: Vec<(usize, Told)>,
}

impl Report {
    /// Nothing was done.
    pub const DECLINED: Self = Self { level: None, others: Vec::new() };

    /// The report of an errand that was run.
    pub fn of(level: StockLevel, told: &[Told]) -> Self {
        let others = told.iter().copied().enumerate();
        let others = others.filter(|(_, told)| !matches!(told, Told::Done(_))).collect();
        Self { level: Some(level), others }
    }

    /// For each of so many asks, what became of it; `None` if nothing was done.
    pub fn told(&self, asks: usize) -> Option<Vec<Told>> {
        let mut told = vec![Told::Done(self.level?); asks];
        for (place, other) in &self.others {
            *told.get_mut(*place)? = *other;
        }
        Some(told)
    }
}

/// What a row becomes, and what its callers are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// For each [`Ask`], in their order.
    pub told: Vec<Told>,
    /// The row after it; `None` if it stays as it is.
    pub after: Option<StockRow>,
}

/// Decides what requests make of a row: first come, first served, each all or nothing. `None` is a
/// row that is not there.
pub fn decide<'a>(
    before: Option<&StockRow>,
    asks: impl IntoIterator<Item = &'a Ask>,
    now: Timestamp,
) -> Round {
    let now = now.to_millis_precision();
    let mut work = Work {
        exists: before.is_some(),
        row: before.cloned().unwrap_or_else(|| StockRow {
            level: StockLevel { quantity: 0, reserved: 0, version: 0, updated_at: now },
            marks: BTreeMap::new(),
            turn: None,
        }),
        has_changed: false,
        now,
    };
    work.forget();
    // Every answer shows the row as the round leaves it, so levels are filled in at the end.
    let told: Vec<_> = asks.into_iter().map(|ask| work.ask(ask)).collect();
    if work.has_changed {
        work.row.level.version += 1;
        work.row.level.updated_at = now;
    }
    let level = work.row.level;
    let fill = |told| if matches!(told, Told::Done(_)) { Told::Done(level) } else { told };
    let told = told.into_iter().map(fill).collect();
    Round { told, after: work.has_changed.then_some(work.row) }
}

struct Work {
    exists: bool,
    row: StockRow,
    has_changed: bool,
    now: Timestamp,
}

impl Work {
    fn done(&self) -> Told {
        Told::Done(self.row.level)
    }

    fn mark(&mut self, token: &Token, mark: Mark) -> Told {
        self.row.marks.insert(token.clone(), mark);
        self.has_changed = true;
        self.exists = true;
        self.done()
    }

    fn ask(&mut self, ask: &Ask) -> Told {
        match ask {
            Ask::Reserve(token, units) => self.reserve(token, *units),
            Ask::Settle(token) => {
                if let Some(Mark::Reserved(_)) = self.row.marks.get(token) {
                    self.row.marks.remove(token);
                    self.has_changed = true;
                }
                self.done()
            }
            Ask::Close(token) => {
                // Somebody may be about to do the same again, and must find that it is over.
                if let Some(Mark::Released(_) | Mark::Committed(_)) = self.row.marks.get(token) {
                    self.mark(token, Mark::Undone(self.now));
                }
                self.done()
            }
            Ask::TakeBack(token) => {
                if let Some(Mark::Reserved(units)) = self.row.marks.get(token) {
                    self.row.level.reserved -= units;
                    self.row.marks.remove(token);
                    self.has_changed = true;
                }
                self.done()
            }
            Ask::Release { token, units, recorded } => self.release(token, *units, *recorded),
            Ask::Commit(token, units) => self.commit(token, *units),
            Ask::Set(token, quantity) => self.set(token, *quantity),
            Ask::Adjust(token, delta) => self.adjust(token, *delta),
        }
    }

    fn reserve(&mut self, token: &Token, units: i64) -> Told {
        match self.row.marks.get(token) {
            Some(Mark::Reserved(held) | Mark::Committed(held)) if *held == units => self.done(),
            Some(Mark::Undone(_) | Mark::Released(_)) => Told::Undone,
            Some(_) => Told::Reused,
            None if self.row.level.available() < units => Told::Short(self.row.level.available()),
            None if self.is_full() => Told::Full,
            None => {
                self.row.level.reserved += units;
                self.mark(token, Mark::Reserved(units))
            }
        }
    }

    fn release(&mut self, token: &Token, units: i64, recorded: bool) -> Told {
        let ended = |units| if recorded { Mark::Released(units) } else { Mark::Undone(self.now) };
        match self.row.marks.get(token).copied() {
            Some(Mark::Reserved(held)) => {
                self.row.level.reserved -= held;
                self.mark(token, ended(held))
            }
            Some(Mark::Committed(_)) => Told::Impossible,
            // Also `undone`, which is what is left of one that was settled after its end.
            Some(_) => self.done(),
            None if !recorded && !self.exists => self.done(),
            None if !recorded => self.mark(token, ended(0)),
            None if self.row.level.reserved < units => Told::Impossible,
            None => {
                self.row.level.reserved -= units;
                self.mark(token, ended(units))
            }
        }
    }

    fn commit(&mut self, token: &Token, units: i64) -> Told {
        let units = match self.row.marks.get(token) {
            Some(Mark::Reserved(held)) => *held,
            Some(Mark::Committed(_)) => return self.done(),
            Some(_) => return Told::Undone,
            None if self.row.level.reserved < units => return Told::Impossible,
            None => units,
        };
        self.row.level.reserved -= units;
        self.row.level.quantity -= units;
        self.mark(token, Mark::Committed(units))
    }

    fn set(&mut self, token: &Token, quantity: i64) -> Told {
        let level = &mut self.row.level;
        if self.row.marks.contains_key(token) || (self.exists && level.quantity == quantity) {
            return self.done();
        }
        if quantity > MAX_QUANTITY {
            return Told::TooMany;
        }
        if quantity < level.reserved {
            return Told::Below { reserved: level.reserved };
        }
        level.quantity = quantity;
        self.mark(token, Mark::Set(self.now))
    }

    fn adjust(&mut self, token: &Token, delta: i64) -> Told {
        match self.row.marks.get(token) {
            Some(Mark::Adjusted(before, _)) if *before == delta => return self.done(),
            Some(_) => return Told::Reused,
            None => {}
        }
        let level = &mut self.row.level;
        let quantity = level.quantity.saturating_add(delta);
        if quantity > MAX_QUANTITY {
            return Told::TooMany;
        }
        if quantity < level.reserved {
            return Told::Below { reserved: level.reserved };
        }
        level.quantity = quantity;
        self.mark(token, Mark::Adjusted(delta, self.now))
    }

    /// Whether the row has as many marks that have to be settled as it can keep.
    fn is_full(&self) -> bool {
        let marks = &self.row.marks;
        marks.len() >= MAX_OPEN
            && marks.values().filter(|mark| mark.until().is_none()).count() >= MAX_OPEN
    }

    /// Forgets what need not be remembered any more. That alone is no reason to write the row.
    fn forget(&mut self) {
        let now = self.now;
        self.row.marks.retain(|_, mark| mark.until().is_none_or(|until| until > now));
        let mut ageing: [Vec<(Timestamp, &Token)>; 3] = Default::default();
        for (token, mark) in &self.row.marks {
            if let (Some(kind), Some(until)) = (mark.ageing_kind(), mark.until()) {
                ageing[kind].push((until, token));
            }
        }
        let mut oldest = Vec::new();
        for marks in ageing.iter_mut().filter(|marks| marks.len() > MAX_AGEING) {
            marks.sort_unstable();
            let spare = marks.len() - MAX_AGEING;
            oldest.extend(marks[..spare].iter().map(|(_, token)| (*token).clone()));
        }
        for token in oldest {
            self.row.marks.remove(&token);
        }
    }
}

/// Units that a reservation holds in one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The row.
    pub key: StockKey,
    /// The units, at least 1.
    pub units: i64,
}

/// What an order holds: its token, and the units of each row, each row once and in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Names it in every row.
    pub token: Token,
    lines: Vec<Line>,
}

/// Why there can be no such reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReservationFault {
    /// It holds nothing.
    #[error("a reservation has at least one line")]
    Empty,
    /// It touches too many rows.
    #[error("a reservation has at most {MAX_LINES} lines")]
    TooManyLines,
    /// It holds less than one unit of something, or more than there can be.
    #[error("a line holds at least 1 unit, and at most {MAX_QUANTITY}")]
    Units,
}

impl Reservation {
    /// A reservation of these units. What is named on several lines is summed up: two lines of one
    /// product must not both be checked against the same units.
    pub fn new(
        token: Token,
        lines: impl IntoIterator<Item = Line>,
    ) -> Result<Self, ReservationFault> {
        let mut sums: BTreeMap<StockKey, i64> = BTreeMap::new();
        for Line { key, units } in lines {
            let sum = sums.entry(key).or_default();
            *sum = sum.saturating_add(units);
            if units < 1 || *sum > MAX_QUANTITY {
                return Err(ReservationFault::Units);
            }
            if sums.len() > MAX_LINES {
                return Err(ReservationFault::TooManyLines);
            }
        }
        if sums.is_empty() {
            return Err(ReservationFault::Empty);
        }
        let lines = sums.into_iter().map(|(key, units)| Line { key, units }).collect();
        Ok(Self { token, lines })
    }

    /// Its lines: each row once, in the order of the keys.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

/// A row that has fewer units than were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The row.
    pub key: StockKey,
    /// Units that were asked for.
    pub requested: i64,
    /// Units that there are.
    pub available: i64,
}

/// An entry of staff as it came from outside.
#[derive(Debug, Clone)]
pub struct RawEntry {
    /// Text offered as the product's id.
    pub product: String,
    /// Offered zone.
    pub zone: String,
    /// What is to happen.
    pub change: RawChange,
}

/// What an entry of staff asks for.
#[derive(Debug, Clone)]
pub enum RawChange {
    /// This quantity.
    Set(i64),
    /// So much more or less, once for the key.
    Adjust {
        /// By how much.
        delta: i64,
        /// Why, for the log.
        reason: Option<String>,
        /// Names the adjustment.
        key: String,
    },
}

/// Checks a batch of staff. Either every entry is acceptable, or the answer lists everything that
/// is wrong. `new_token` makes the tokens of entries that bring none.
pub fn check_entries(
    batch: &[RawEntry],
    mut new_token: impl FnMut() -> Token,
) -> Result<Vec<(StockKey, Ask)>, Vec<UserError>> {
    let mut faults = Faults::of("entries");
    let mut seen = std::collections::HashSet::new();
    let mut asks = Vec::with_capacity(batch.len());
    for (index, entry) in batch.iter().enumerate() {
        faults.entry = index;
        faults.text(&["productId"], &entry.product, MAX_ID_CHARS);
        faults.text(&["geoZone"], &entry.zone, MAX_ZONE_CHARS);
        let ask = match &entry.change {
            RawChange::Set(quantity) => {
                if !(0..=MAX_QUANTITY).contains(quantity) {
                    let message = format!("A quantity is at least 0 and at most {MAX_QUANTITY}.");
                    faults.add(&["quantity"], ErrorCode::Invalid, &message);
                }
                Ask::Set(new_token(), *quantity)
            }
            RawChange::Adjust { delta, reason, key } => {
                if *delta == 0 || delta.abs() > MAX_QUANTITY {
                    let message = format!("A delta is not 0 and at most {MAX_QUANTITY}.");
                    faults.add(&["delta"], ErrorCode::Invalid, &message);
                }
                if let Some(reason) = reason {
                    faults.text(&["reason"], reason, MAX_REASON_CHARS);
                }
                faults.text(&["idempotencyKey"], key, MAX_KEY_CHARS);
                Ask::Adjust(Token::of_adjustment(key), *delta)
            }
        };
        // One quantity for a row; adjustments of a row differ by their keys.
        let name = match &ask {
            Ask::Adjust(token, _) => Some(token.clone()),
            _ => None,
        };
        let key = StockKey {
            product: ProductId::new_unchecked(entry.product.as_str()),
            zone: GeoZone::new_unchecked(entry.zone.as_str()),
        };
        if !seen.insert((key.clone(), name)) {
            let message = "The same product and zone stand twice in this batch.";
            faults.add(&["productId"], ErrorCode::Duplicate, message);
        }
        asks.push((key, ask));
    }
    if faults.found.is_empty() { Ok(asks) } else { Err(faults.found) }
}

#[cfg(test)]
mod tests;
