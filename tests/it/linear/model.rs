//! What a row of stock is to those who use it one after another: the rules that every history is
//! held against. They are written down a second time here, in their own words and without the
//! shop's code; a test compares the two.
//!
//! Two things differ from what a row does, on purpose. A reservation that was settled is remembered,
//! although its row keeps no mark of it: nobody asks for it again, so one that takes effect once more
//! is a fault. And a version is only compared with those seen before, because several changes may
//! share one, and a process may write a row only to say whose turn it is.

use std::collections::BTreeMap;
use std::fmt;

/// Names a reservation or an adjustment within a history.
pub type Name = u16;

/// What a client asks of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Call {
    Reserve(Name, i64),
    /// What a reservation of several rows does to the others when one of them has too little.
    TakeBack(Name),
    Settle(Name),
    Close(Name),
    /// `recorded`: the client knows that the units were held.
    Release {
        name: Name,
        units: i64,
        recorded: bool,
    },
    Commit(Name, i64),
    Set(i64),
    Adjust(Name, i64),
    Read,
}

/// What it is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    Done,
    /// There are only so many.
    Short(i64),
    Undone,
    /// More are reserved than the quantity would be.
    Below,
    /// Nothing of the kind is reserved.
    Impossible,
    Seen(Seen),
}

/// What a reader sees of a row; some see more than others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    pub available: i64,
    pub quantity: Option<i64>,
    pub version: Option<i64>,
    pub marks: Option<BTreeMap<Name, Mark>>,
}

/// What is known of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mark {
    Reserved(i64),
    /// Held, and the row need not remember it.
    Settled,
    Released,
    Committed(i64),
    Undone,
}

/// A row at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub quantity: i64,
    pub reserved: i64,
    marks: BTreeMap<Name, Mark>,
    adjusted: BTreeMap<Name, i64>,
    /// The last version that somebody saw …
    version: i64,
    /// … and whether the row has changed since.
    has_changed: bool,
}

impl State {
    /// A row that has just been stocked.
    pub fn stocked(quantity: i64) -> Self {
        Self {
            quantity,
            reserved: 0,
            marks: BTreeMap::new(),
            adjusted: BTreeMap::new(),
            version: 0,
            has_changed: true,
        }
    }

    fn available(&self) -> i64 {
        self.quantity - self.reserved
    }

    /// The row after a call, if the call can be answered like this now. Of a call that was not
    /// answered nothing is asked.
    pub fn after(&self, call: &Call, answer: Option<&Answer>) -> Option<Self> {
        if *call == Call::Read {
            return match answer {
                Some(Answer::Seen(seen)) => self.seen(seen),
                _ => Some(self.clone()),
            };
        }
        let mut next = self.clone();
        let told = next.change(call);
        if next != *self {
            next.has_changed = true;
        }
        answer.is_none_or(|answer| *answer == told).then_some(next)
    }

    fn seen(&self, seen: &Seen) -> Option<Self> {
        let is_so = seen.available == self.available()
            && seen.quantity.is_none_or(|quantity| quantity == self.quantity)
            && seen.marks.as_ref().is_none_or(|marks| marks.iter().eq(self.shown_marks()));
        if !is_so {
            return None;
        }
        let Some(version) = seen.version else { return Some(self.clone()) };
        let is_later =
            if self.has_changed { version > self.version } else { version >= self.version };
        is_later.then(|| Self { version, has_changed: false, ..self.clone() })
    }

    /// The marks that a row shows.
    fn shown_marks(&self) -> impl Iterator<Item = (&Name, &Mark)> {
        self.marks.iter().filter(|(_, mark)| **mark != Mark::Settled)
    }

    /// Does what is asked; what the client is told.
    pub fn change(&mut self, call: &Call) -> Answer {
        match *call {
            Call::Reserve(name, units) => self.reserve(name, units),
            Call::TakeBack(name) => {
                if let Some(Mark::Reserved(units)) = self.marks.get(&name) {
                    self.reserved -= units;
                    self.marks.remove(&name);
                }
                Answer::Done
            }
            Call::Settle(name) => {
                if let Some(mark @ Mark::Reserved(_)) = self.marks.get_mut(&name) {
                    *mark = Mark::Settled;
                }
                Answer::Done
            }
            Call::Close(name) => {
                if let Some(mark @ (Mark::Released | Mark::Committed(_))) =
                    self.marks.get_mut(&name)
                {
                    *mark = Mark::Undone;
                }
                Answer::Done
            }
            Call::Release { name, units, recorded } => self.release(name, units, recorded),
            Call::Commit(name, units) => {
                let units = match self.marks.get(&name) {
                    Some(Mark::Reserved(held)) => *held,
                    Some(Mark::Settled) | None if self.reserved >= units => units,
                    Some(Mark::Settled) | None => return Answer::Impossible,
                    Some(Mark::Committed(_)) => return Answer::Done,
                    Some(Mark::Released | Mark::Undone) => return Answer::Undone,
                };
                self.reserved -= units;
                self.quantity -= units;
                self.marks.insert(name, Mark::Committed(units));
                Answer::Done
            }
            Call::Set(quantity) if quantity < self.reserved => Answer::Below,
            Call::Set(quantity) => {
                self.quantity = quantity;
                Answer::Done
            }
            Call::Adjust(name, _) if self.adjusted.contains_key(&name) => Answer::Done,
            Call::Adjust(_, delta) if self.quantity + delta < self.reserved => Answer::Below,
            Call::Adjust(name, delta) => {
                self.quantity += delta;
                self.adjusted.insert(name, delta);
                Answer::Done
            }
            Call::Read => Answer::Done,
        }
    }

    fn reserve(&mut self, name: Name, units: i64) -> Answer {
        match self.marks.get(&name) {
            Some(Mark::Reserved(_) | Mark::Settled | Mark::Committed(_)) => Answer::Done,
            Some(Mark::Released | Mark::Undone) => Answer::Undone,
            None if self.available() < units => Answer::Short(self.available()),
            None => {
                self.reserved += units;
                self.marks.insert(name, Mark::Reserved(units));
                Answer::Done
            }
        }
    }

    fn release(&mut self, name: Name, units: i64, recorded: bool) -> Answer {
        let over = if recorded { Mark::Released } else { Mark::Undone };
        let units = match self.marks.get(&name) {
            Some(Mark::Reserved(held)) => *held,
            Some(Mark::Released | Mark::Undone) => return Answer::Done,
            Some(Mark::Committed(_)) => return Answer::Impossible,
            Some(Mark::Settled) | None if !recorded => 0,
            Some(Mark::Settled) | None if self.reserved < units => return Answer::Impossible,
            Some(Mark::Settled) | None => units,
        };
        self.reserved -= units;
        self.marks.insert(name, over);
        Answer::Done
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reserve(name, units) => write!(f, "reserve {units} for #{name}"),
            Self::TakeBack(name) => write!(f, "take #{name} back"),
            Self::Settle(name) => write!(f, "settle #{name}"),
            Self::Close(name) => write!(f, "close #{name}"),
            Self::Release { name, units, recorded: true } => {
                write!(f, "release {units} of #{name}, recorded")
            }
            Self::Release { name, units, recorded: false } => {
                write!(f, "release {units} of #{name}, if held")
            }
            Self::Commit(name, units) => write!(f, "sell {units} of #{name}"),
            Self::Set(quantity) => write!(f, "set to {quantity}"),
            Self::Adjust(name, delta) => write!(f, "adjust by {delta:+} under key {name}"),
            Self::Read => write!(f, "read"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => write!(f, "done"),
            Self::Short(there) => write!(f, "short: there are {there}"),
            Self::Undone => write!(f, "undone"),
            Self::Below => write!(f, "below what is reserved"),
            Self::Impossible => write!(f, "impossible"),
            Self::Seen(Seen { available, quantity, version, marks }) => {
                write!(f, "{available} available")?;
                if let Some(quantity) = quantity {
                    write!(f, " of {quantity}")?;
                }
                if let Some(version) = version {
                    write!(f, ", version {version}")?;
                }
                marks.as_ref().map_or(Ok(()), |marks| write!(f, ", {marks:?}"))
            }
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quantity, reserved, marks, .. } = self;
        write!(f, "{} available of {quantity}, {reserved} reserved, {marks:?}", self.available())
    }
}
