//! What all processes of a schedule share: the rows of the store, writes that are still under way,
//! and the rules that hold at every moment.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;
use uuid::Uuid;
use vitrina::cart::model::{CartLog, Checkpoint, HandOver, KeyNote, Operation};
use vitrina::catalog::model::Product;
use vitrina::checkout::model::Checkout;
use vitrina::clock::Timestamp;
use vitrina::inventory::model::{Errand, Mark, Report, StockKey, StockRow, Token};
use vitrina::orders::model::{Month, Order, OrderEvent, OrderPlace, UnitsStand, day_of};
use vitrina::owner::Owner;
use vitrina::product_id::ProductId;
use vitrina::storage::Due;

/// A store that does not keep its contract: the simulation has to notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Rows of stock are written whatever their version.
    Stock,
    /// Orders are.
    Order,
    /// Checkouts are.
    Checkout,
}

/// What a conditional write is for: a settled read of it ends what is under way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Checkout(Owner, String),
    Order(Uuid),
    Stock(StockKey),
}

/// A write whose reply was lost and that has not happened yet.
pub struct Ghost {
    pub target: Option<Target>,
    pub effect: Box<dyn FnOnce(&mut World) + Send>,
}

/// A copy of an order in a list; every column has its own time, as in Cassandra.
#[derive(Debug, Clone, Default)]
pub struct Copied {
    pub order: Option<Order>,
    written: i64,
    pub is_marked: bool,
    marked: i64,
    deleted: i64,
}

impl Copied {
    fn write(&mut self, order: &Order, time: i64) {
        if time >= self.written {
            (self.order, self.written) = (Some(order.clone()), time);
        }
        if time >= self.marked {
            (self.is_marked, self.marked) = (false, time);
        }
    }

    fn mark(&mut self, time: i64) {
        if time >= self.marked {
            (self.is_marked, self.marked) = (true, time);
        }
    }

    /// The order that is copied here, and whether its state may be newer; `None` if there is no row.
    pub fn row(&self) -> Option<(Option<&Order>, bool)> {
        let order = self.order.as_ref().filter(|_| self.written > self.deleted);
        let is_marked = self.is_marked && self.marked > self.deleted;
        (order.is_some() || is_marked).then_some((order, is_marked))
    }
}

/// A cart as it is kept. What a checkpoint covers stays, for whoever checks.
#[derive(Debug, Default)]
pub struct CartRows {
    pub checkpoint: Option<Checkpoint>,
    pub operations: BTreeMap<(Timestamp, Uuid), Operation>,
    pub notes: BTreeMap<Uuid, KeyNote>,
    pub hand_overs: BTreeMap<u32, HandOver>,
}

impl CartRows {
    /// All operations of which `is_wanted`, as a log.
    pub fn log(&self, owner: &Owner, is_wanted: impl Fn(&Operation) -> bool) -> CartLog {
        let mut operations: Vec<Operation> =
            self.operations.values().filter(|one| is_wanted(one)).cloned().collect();
        if let Owner::Guest(guest) = owner {
            let records = self.hand_overs.values().cloned();
            operations.extend(records.map(|record| record.operation(*guest)));
        }
        CartLog { checkpoint: None, operations }
    }
}

#[derive(Default)]
pub struct World {
    pub products: BTreeMap<ProductId, Product>,
    /// What there was in the beginning.
    pub stocked: BTreeMap<StockKey, i64>,
    pub stock: BTreeMap<StockKey, StockRow>,
    pub line: BTreeMap<StockKey, BTreeMap<Uuid, Instant>>,
    pub errands: BTreeMap<StockKey, BTreeMap<Uuid, Errand>>,
    pub reports: BTreeMap<Uuid, (i64, Report)>,
    pub checkouts: BTreeMap<(Owner, String), Checkout>,
    pub orders: BTreeMap<Uuid, Order>,
    pub events: BTreeMap<Uuid, BTreeMap<(Timestamp, Uuid), OrderEvent>>,
    pub parts: BTreeMap<Owner, BTreeSet<Month>>,
    pub history: BTreeMap<(Owner, Month, OrderPlace), Copied>,
    pub days: BTreeMap<(i32, i8, OrderPlace), Copied>,
    pub claims: BTreeMap<Uuid, String>,
    /// By shard; with the number of the write, and whether it is there.
    pub due: BTreeMap<(i8, Due), (u64, bool)>,
    pub swept: Option<Timestamp>,
    pub carts: BTreeMap<Owner, CartRows>,
    pub ghosts: BTreeMap<u64, Ghost>,
    pub bug: Option<Bug>,
    /// The first rule that was broken.
    pub broken: Option<String>,
    pub log: Option<Vec<String>>,
    pub writes: u64,
    pub calls: u64,
}

/// The write time of a copy: as the Cassandra store has it.
fn copy_time(order: &Order) -> i64 {
    order.created_at.micros() + order.version * 2
}

impl World {
    /// The number of the next write: of two that touch the same, the later one counts.
    pub fn next_write(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            log.push(text());
        }
    }

    pub fn set_due(&mut self, due: Due, number: u64, is_there: bool) {
        let there = self.due.entry((due.shard(), due)).or_default();
        if there.0 < number {
            *there = (number, is_there);
        }
    }

    pub fn change_stock(&mut self, key: StockKey, expected: Option<i64>, after: StockRow) -> bool {
        let version = self.stock.get(&key).map(|row| row.level.version);
        let applies = version == expected || self.bug == Some(Bug::Stock);
        if applies {
            self.stock.insert(key, after);
        }
        applies
    }

    pub fn change_checkout(&mut self, expected: Option<i64>, after: Checkout) -> bool {
        let key = (after.owner.clone(), after.key.to_string());
        let version = self.checkouts.get(&key).map(|there| there.version);
        let applies = version == expected || self.bug == Some(Bug::Checkout);
        if applies {
            self.checkouts.insert(key, after);
        }
        applies
    }

    pub fn change_order(&mut self, expected: i64, after: Order) -> bool {
        let version = self.orders.get(&after.id).map(|there| there.version);
        let applies = version == Some(expected) || self.bug == Some(Bug::Order);
        if applies {
            self.orders.insert(after.id, after);
        }
        applies
    }

    pub fn write_events(&mut self, order: Uuid, events: &[OrderEvent]) {
        let there = self.events.entry(order).or_default();
        there.extend(events.iter().map(|event| ((event.at, event.id), event.clone())));
    }

    pub fn copy_to_history(&mut self, order: &Order) {
        let key = (order.owner.clone(), order.part, order.place());
        self.history.entry(key).or_default().write(order, copy_time(order));
    }

    pub fn copy_to_day(&mut self, order: &Order) {
        let key = (day_of(order.created_at), order.day_shard(), order.place());
        self.days.entry(key).or_default().write(order, copy_time(order));
    }

    pub fn mark_history(&mut self, order: &Order) {
        let key = (order.owner.clone(), order.part, order.place());
        self.history.entry(key).or_default().mark(copy_time(order) + 1);
    }

    pub fn mark_day(&mut self, order: &Order) {
        let key = (day_of(order.created_at), order.day_shard(), order.place());
        self.days.entry(key).or_default().mark(copy_time(order) + 1);
    }

    pub fn unlist(&mut self, before: &Order, after: &Order) {
        let key = (before.owner.clone(), before.part, before.place());
        let copied = self.history.entry(key).or_default();
        copied.deleted = copied.deleted.max(copy_time(after));
    }

    /// What of the lists and events of an order differs from its state.
    pub fn faults_of(&self, order: &Order) -> Vec<&'static str> {
        let mut faults = Vec::new();
        let events = self.events.get(&order.id);
        let is_noted = |event: &OrderEvent| {
            events.is_some_and(|events| events.get(&(event.at, event.id)) == Some(event))
        };
        if !order.changes.iter().all(is_noted) {
            faults.push("event");
        }
        if !self.parts.get(&order.owner).is_some_and(|parts| parts.contains(&order.part)) {
            faults.push("part of the history");
        }
        let history = self.history.get(&(order.owner.clone(), order.part, order.place()));
        let day = (day_of(order.created_at), order.day_shard(), order.place());
        for (copied, name) in [(history, "history"), (self.days.get(&day), "period")] {
            // One that is marked costs a read of the state, and is no fault.
            if copied.and_then(Copied::row).and_then(|(copy, _)| copy) != Some(order) {
                faults.push(name);
            }
        }
        faults
    }

    fn mark_of(&self, key: &StockKey, order: Uuid) -> Option<Mark> {
        self.stock.get(key)?.marks.get(&Token::of_reservation(order)).copied()
    }

    /// The rows and units of an order.
    pub fn units_of(order: &Order) -> impl Iterator<Item = (StockKey, i64)> {
        order.lines.iter().map(|line| {
            let key = StockKey { product: line.product.clone(), zone: order.zone.clone() };
            (key, line.units)
        })
    }

    /// Checks what holds at every moment: the numbers of each row are those that its marks and the
    /// orders come to.
    pub fn check_stock(&mut self) {
        for (key, row) in &self.stock {
            let (mut held, mut left) = (0, 0);
            for mark in row.marks.values() {
                match mark {
                    Mark::Reserved(units) => held += units,
                    Mark::Committed(units) => left += units,
                    _ => {}
                }
            }
            for order in self.orders.values() {
                let units: i64 =
                    Self::units_of(order).filter(|(of, _)| of == key).map(|(_, n)| n).sum();
                match (order.units, self.mark_of(key, order.id)) {
                    // Before it is recorded that they have left, the mark tells.
                    (UnitsStand::Left, None | Some(Mark::Undone(_))) => left += units,
                    (UnitsStand::Held | UnitsStand::Releasing | UnitsStand::Leaving, None) => {
                        held += units;
                    }
                    _ => {}
                }
            }
            let (stocked, level) = (self.stocked[key], row.level);
            let is_sound = 0 <= level.reserved && level.reserved <= level.quantity;
            if !is_sound || level.reserved != held || level.quantity != stocked - left {
                let fault = format!(
                    "{key}: of {stocked} units {left} have left and {held} are held, but the row \
                     has {} and {} reserved: {row:?}",
                    level.quantity, level.reserved
                );
                self.broken.get_or_insert(fault);
                return;
            }
        }
    }
}
