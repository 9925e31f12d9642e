//! Compares orders with their lists and events, checkouts with orders, and the stock with both; and
//! mends what disagrees. It may run beside a shop that sells.
//!
//! # Why the stock can be mended while it is sold
//!
//! Rows of stock are read first, each with its version and marks, then all orders. Units of an order
//! that its row still has a mark of count by the mark. Every other order that holds units was placed
//! before its mark left the row, and so before the row was read: the orders read after that have it.
//! So the sum is what the row should have, unless it has changed since; then its version has too, and
//! the condition of the write fails.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use uuid::Uuid;

use super::CheckoutService;
use super::model::{CheckoutState, reservation_of};
use crate::error::Error;
use crate::inventory::model::{Mark, StockKey, StockRow, Token};
use crate::orders::model::{Order, OrderStatus, UnitsStand};
use crate::storage::{Store, StoreError};

/// Most faults that are told one by one.
const MAX_TOLD: usize = 100;

/// What was found.
#[derive(Debug, Default)]
pub struct OrderReport {
    /// Orders that were looked at.
    pub orders: u64,
    /// Checkouts that were looked at.
    pub checkouts: u64,
    /// Rows of stock that hold something.
    pub rows: u64,
    /// Orders whose lists or events were mended.
    pub mended_orders: u64,
    /// Orders and checkouts that were finished or undone.
    pub finished: u64,
    /// Rows of stock whose reserved units were mended.
    pub mended_rows: u64,
    /// Rows that changed while they were looked at, and so were left alone.
    pub busy_rows: u64,
    /// What was wrong, for a person.
    pub faults: Vec<String>,
}

impl OrderReport {
    fn tell(&mut self, fault: String) {
        if self.faults.len() < MAX_TOLD {
            self.faults.push(fault);
        }
    }

    /// Whether nothing was wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Checks and mends.
pub async fn check(
    store: &Arc<dyn Store>,
    service: &Arc<CheckoutService>,
) -> Result<OrderReport, Error> {
    let mut report = OrderReport::default();
    // What was left half done comes first: it is no fault, but would look like one.
    finish(store, service, &mut report).await?;
    let rows = held_rows(store.as_ref()).await?;
    report.rows = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    let open = open_checkouts(store.as_ref()).await?;
    let mut sums: BTreeMap<StockKey, i64> = BTreeMap::new();
    let (mut after, mut known) = (None, HashSet::new());
    loop {
        let step = store.scan_orders(after).await?;
        for order in &step.orders {
            report.orders += 1;
            known.insert(order.id);
            compare(store.as_ref(), service, order, &mut report).await?;
            for (key, units) in holds(order) {
                let mark = rows.get(&key).and_then(|row| mark_of(row, order.id));
                if mark.is_none() {
                    *sums.entry(key).or_default() += units;
                }
            }
        }
        after = step.next;
        if after.is_none() {
            break;
        }
    }
    let missing: Vec<StockKey> =
        sums.keys().filter(|key| !rows.contains_key(key)).cloned().collect();
    for key in missing {
        report.tell(format!("{key}: orders hold units that the stock knows nothing of"));
    }
    for (key, row) in rows {
        let sum = sums.get(&key).copied().unwrap_or(0);
        stock(store.as_ref(), service, &key, row, sum, (&known, &open), &mut report).await?;
    }
    Ok(report)
}

/// Finishes or undoes what nobody works at any more.
async fn finish(
    store: &Arc<dyn Store>,
    service: &Arc<CheckoutService>,
    report: &mut OrderReport,
) -> Result<(), Error> {
    let mut after = None;
    loop {
        let step = store.scan_checkouts(after).await?;
        for checkout in &step.checkouts {
            report.checkouts += 1;
            match &checkout.state {
                CheckoutState::Open { until } if service.clock.now() >= *until => {
                    service.undo(checkout).await?;
                    report.finished += 1;
                    report.tell(format!("checkout {}: it was left open; undone", checkout.key));
                }
                CheckoutState::Accepted if store.order(checkout.order.id).await?.is_none() => {
                    service.complete(checkout).await?;
                    report.finished += 1;
                    let id = checkout.order.id;
                    report.tell(format!("order {id}: it was not written down; placed"));
                }
                _ => {}
            }
        }
        after = step.next;
        if after.is_none() {
            break;
        }
    }
    let mut after = None;
    loop {
        let step = store.scan_orders(after).await?;
        for order in &step.orders {
            let is_overdue =
                order.status == OrderStatus::Created && service.clock.now() >= order.payment_due_at;
            if (is_overdue || order.units.done().is_some()) && service.mend(order.id, false).await?
            {
                report.finished += 1;
                report.tell(format!("order {}: a change of it was left half done", order.id));
            }
        }
        after = step.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// The orders of checkouts that somebody works at.
async fn open_checkouts(store: &dyn Store) -> Result<HashSet<Uuid>, StoreError> {
    let (mut open, mut after) = (HashSet::new(), None);
    loop {
        let step = store.scan_checkouts(after).await?;
        let is_open = |state: &CheckoutState| {
            matches!(state, CheckoutState::Open { .. } | CheckoutState::Accepted)
        };
        open.extend(step.checkouts.iter().filter(|c| is_open(&c.state)).map(|c| c.order.id));
        after = step.next;
        if after.is_none() {
            return Ok(open);
        }
    }
}

/// The rows of stock that hold something or remember something.
async fn held_rows(store: &dyn Store) -> Result<HashMap<StockKey, StockRow>, StoreError> {
    let (mut rows, mut after) = (HashMap::new(), None);
    loop {
        let step = store.scan_products(0, 1, after).await?;
        for product in step.ids {
            for zone in store.stock_zones(&product).await? {
                let key = StockKey { product: product.clone(), zone };
                if let Some(row) = store.stock_row(&key).await?
                    && (row.level.reserved > 0 || !row.marks.is_empty())
                {
                    rows.insert(key, row);
                }
            }
        }
        after = step.next;
        if after.is_none() {
            return Ok(rows);
        }
    }
}

/// The units that the stock should hold for an order that its row has no mark of.
fn holds(order: &Order) -> Vec<(StockKey, i64)> {
    let is_held =
        matches!(order.units, UnitsStand::Held | UnitsStand::Releasing | UnitsStand::Leaving);
    let lines = reservation_of(order).ok().filter(|_| is_held);
    let lines = lines.map(|reservation| reservation.lines().to_vec()).unwrap_or_default();
    lines.into_iter().map(|line| (line.key, line.units)).collect()
}

fn mark_of(row: &StockRow, order: Uuid) -> Option<Mark> {
    row.marks.get(&Token::of_reservation(order)).copied()
}

async fn compare(
    store: &dyn Store,
    service: &Arc<CheckoutService>,
    order: &Order,
    report: &mut OrderReport,
) -> Result<(), Error> {
    if store.faults_of_order(order).await?.is_empty() {
        return Ok(());
    }
    // It may have been changed just now: that is no fault.
    let Some(now) = store.settled_order(order.id).await? else { return Ok(()) };
    let faults = service.mend_lists(&now).await?;
    if !faults.is_empty() {
        report.mended_orders += 1;
        report.tell(format!("order {}: {} differed; mended", now.id, faults.join(", ")));
    }
    Ok(())
}

/// Compares a row of stock with what orders and its own marks say, and mends it.
async fn stock(
    store: &dyn Store,
    service: &Arc<CheckoutService>,
    key: &StockKey,
    mut row: StockRow,
    sum: i64,
    (known, open): (&HashSet<Uuid>, &HashSet<Uuid>),
    report: &mut OrderReport,
) -> Result<(), Error> {
    let marks: Vec<_> = row.marks.iter().map(|(token, mark)| (token.clone(), *mark)).collect();
    let mut reserved = sum;
    for (token, mark) in marks {
        let Mark::Reserved(units) = mark else { continue };
        reserved += units;
        let Some(id) = token.order() else { continue };
        if known.contains(&id) || open.contains(&id) || store.order(id).await?.is_some() {
            continue;
        }
        report.tell(format!("{key}: {units} are held for {id}, which is no order; released"));
        service.release_token(key, &token).await?;
        report.mended_rows += 1;
        // It is another row now; what else is wrong with it is found the next time.
        return Ok(());
    }
    if row.level.reserved == reserved {
        return Ok(());
    }
    let before = row.level.reserved;
    let expected = row.level.version;
    row.level.reserved = reserved;
    row.level.version += 1;
    row.level.updated_at = service.clock.now().to_millis_precision();
    row.turn = None;
    let is_sound = (0..=row.level.quantity).contains(&reserved);
    if is_sound && store.change_stock(key, Some(expected), &row).await? {
        report.mended_rows += 1;
        report.tell(format!("{key}: {before} were reserved, orders hold {reserved}; mended"));
    } else if is_sound {
        report.busy_rows += 1;
    } else {
        let quantity = row.level.quantity;
        report.tell(format!(
            "{key}: orders hold {reserved} of {quantity}; this cannot be mended by itself"
        ));
    }
    Ok(())
}
