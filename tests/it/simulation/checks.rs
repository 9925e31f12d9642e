//! The rules that hold once everything has come to its end, and those of answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use uuid::Uuid;
use vitrina::cart::model::{Change, Operation, id_of_key};
use vitrina::checkout::model::{Checkout, CheckoutState};
use vitrina::inventory::model::{Mark, StockKey};
use vitrina::orders::model::{Order, OrderStatus, UnitsStand};
use vitrina::owner::Owner;
use vitrina::storage::Task;

use super::schedule::{Answer, Clients, Scene, Told};
use super::world::World;

fn ensure(is_so: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(fault()) }
}

/// What a client is told is what is recorded, at that moment and for ever.
pub fn answered(world: &World, place: &(Owner, String), answer: &Answer) -> Result<(), String> {
    let there = world.checkouts.get(place);
    let (id, state) = (there.map(|there| there.order.id), there.map(|there| &there.state));
    let is_so = match answer {
        Answer::Order(order) => {
            state == Some(&CheckoutState::Accepted)
                && id == Some(*order)
                && world.orders.contains_key(order)
        }
        Answer::Short => matches!(state, Some(CheckoutState::Refused(_))),
        // This is not recorded, and may be so before another call finds more. But where nothing
        // else could empty the cart, it was emptied by the very order that is not told of.
        Answer::Empty => {
            let is_accepted = |(other, checkout): &(&(Owner, String), &Checkout)| {
                other.0 == place.0 && checkout.state == CheckoutState::Accepted
            };
            let is_only = world.checkouts.iter().filter(is_accepted).count() == 1;
            let is_handed =
                world.carts.get(&place.0).is_some_and(|cart| !cart.hand_overs.is_empty());
            state != Some(&CheckoutState::Accepted) || !is_only || is_handed
        }
    };
    ensure(is_so, || format!("{place:?} was told {answer:?}, but it is {id:?} {state:?}"))
}

/// Checks a schedule after its end.
pub fn at_the_end(scene: &Scene) -> Result<Told, String> {
    {
        let mut world = scene.world.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = scene.clients.lock().unwrap_or_else(PoisonError::into_inner);
        world.check_stock();
        if let Some(fault) = &world.broken {
            return Err(fault.clone());
        }
        checkouts(&world, &clients)?;
        stock(&world)?;
        for order in world.orders.values() {
            one_order(&world, order)?;
        }
        lists(&world)?;
        acknowledged(&world, &clients)?;
        carts(scene, &world, &clients)?;
        let now = scene.now();
        for ((_, due), _) in world.due.iter().filter(|(_, (_, is_there))| *is_there) {
            let is_payment = |order: &Order| order.payment_due_at == due.at && due.at > now;
            let is_sound = match &due.task {
                Task::Payment(id) => world.orders.get(id).is_some_and(is_payment),
                _ => false,
            };
            ensure(is_sound, || format!("{due:?} is still due at {now}"))?;
        }
    }
    Ok(scene.told())
}

fn checkouts(world: &World, clients: &Clients) -> Result<(), String> {
    for (place, answers) in &clients.answers {
        for answer in answers.iter().filter(|answer| **answer != Answer::Empty) {
            answered(world, place, answer)?;
        }
    }
    let mut accepted = BTreeSet::new();
    for (place, checkout) in &world.checkouts {
        let is_open = matches!(checkout.state, CheckoutState::Open { .. });
        ensure(!is_open, || format!("{place:?} is still open"))?;
        if checkout.state == CheckoutState::Accepted {
            let order = world.orders.get(&checkout.order.id);
            let has_units = order.is_some_and(|order| order.lines == checkout.order.lines);
            ensure(has_units, || format!("{place:?} is accepted and no order: {order:?}"))?;
            accepted.insert(checkout.order.id);
        }
    }
    let orders: BTreeSet<Uuid> = world.orders.keys().copied().collect();
    ensure(accepted == orders, || format!("accepted {accepted:?}, but orders are {orders:?}"))
}

/// All units are where the orders say, and the rows remember nothing that is open.
fn stock(world: &World) -> Result<(), String> {
    let mut held: BTreeMap<StockKey, i64> = BTreeMap::new();
    for order in world.orders.values().filter(|order| order.units == UnitsStand::Held) {
        for (key, units) in World::units_of(order) {
            *held.entry(key).or_default() += units;
        }
    }
    for (key, row) in &world.stock {
        let held = held.get(key).copied().unwrap_or(0);
        ensure(row.level.reserved == held, || format!("{key}: {held} are held, not {row:?}"))?;
        let is_open = |mark: &&Mark| !matches!(mark, Mark::Undone(_));
        let open = row.marks.values().find(is_open);
        ensure(open.is_none(), || format!("{key}: {row:?} has a mark that nobody settles"))?;
    }
    Ok(())
}

fn one_order(world: &World, order: &Order) -> Result<(), String> {
    let units = match order.status {
        OrderStatus::Cancelled => UnitsStand::Released,
        OrderStatus::Shipped | OrderStatus::Delivered => UnitsStand::Left,
        _ => UnitsStand::Held,
    };
    ensure(order.units == units, || format!("its units are not {units:?}: {order:?}"))?;
    let faults = world.faults_of(order);
    ensure(faults.is_empty(), || format!("lists differ in {faults:?} from {order:?}"))
}

/// No list shows an order that is not in it.
fn lists(world: &World) -> Result<(), String> {
    for ((owner, part, place), copied) in &world.history {
        let order = world.orders.get(&place.id);
        let belongs = order.is_some_and(|order| order.owner == *owner && order.part == *part);
        let row = copied.row();
        let is_shown = matches!(row, Some((Some(_), false)));
        ensure(belongs || !is_shown, || {
            format!("the history of {owner} shows {row:?}, but that is {order:?}")
        })?;
    }
    Ok(())
}

/// What clients were told has happened.
fn acknowledged(world: &World, clients: &Clients) -> Result<(), String> {
    for (id, status) in &clients.steps {
        let order = &world.orders[id];
        let is_noted = order.changes.iter().any(|change| change.kind == status.as_str());
        ensure(is_noted, || format!("{status:?} was acknowledged, but {order:?}"))?;
    }
    for (id, payment) in &clients.paid {
        let order = &world.orders[id];
        let is_noted = order.payment.as_ref() == Some(payment);
        ensure(is_noted, || format!("{payment} was acknowledged, but {order:?}"))?;
    }
    for (guest, user) in &clients.claimed {
        let left = world.orders.values().find(|order| order.owner == Owner::Guest(*guest));
        ensure(left.is_none(), || format!("{user} does not have {left:?}"))?;
    }
    Ok(())
}

/// Each order has taken its units out of its cart once, nothing that was added is lost, and a
/// checkpoint comes to the same as all that it covers.
fn carts(scene: &Scene, world: &World, clients: &Clients) -> Result<(), String> {
    let mut taken: BTreeMap<Uuid, &Owner> = BTreeMap::new();
    for (owner, rows) in &world.carts {
        let everything = rows.log(owner, |_| true);
        for operation in &everything.operations {
            if let Change::Ordered { order, .. } = &operation.change {
                taken.insert(*order, owner);
            }
        }
        let until = rows.checkpoint.as_ref().map(|checkpoint| checkpoint.until);
        let is_after = |operation: &Operation| until.is_none_or(|until| operation.at > until);
        let mut kept = rows.log(owner, is_after);
        kept.checkpoint.clone_from(&rows.checkpoint);
        let units = |log: &vitrina::cart::model::CartLog| -> BTreeMap<String, i64> {
            let cart = log.fold(scene.now());
            cart.lines.iter().map(|line| (line.product.as_str().to_owned(), line.units)).collect()
        };
        let (whole, shown) = (units(&everything), units(&kept));
        ensure(whole == shown, || format!("the cart of {owner} is {shown:?}, not {whole:?}"))?;
        // Where nobody buys the same twice, nothing but what was bought or handed over is missing.
        let mut sums: BTreeMap<String, i64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for operation in everything.operations.iter().filter(|one| seen.insert(one.id)) {
            match &operation.change {
                Change::Add(lines) | Change::TakeOver { lines, .. } => {
                    for line in lines {
                        *sums.entry(line.product.as_str().to_owned()).or_default() += line.units;
                    }
                }
                Change::Ordered { taken, .. } => {
                    for (product, units) in taken {
                        *sums.entry(product.as_str().to_owned()).or_default() -= units;
                    }
                }
                Change::HandOver(hand_over) => {
                    for line in &hand_over.lines {
                        *sums.entry(line.product.as_str().to_owned()).or_default() -= line.units;
                    }
                }
                _ => {}
            }
        }
        for (product, sum) in sums {
            let there = shown.get(&product).copied().unwrap_or(0);
            ensure(there >= sum, || format!("{owner}: {there} of {product}, not {sum}"))?;
        }
    }
    for checkout in world.checkouts.values().filter(|one| one.state == CheckoutState::Accepted) {
        let from = taken.remove(&checkout.order.id);
        let is_taken = from == Some(&checkout.owner);
        ensure(is_taken, || format!("{} was not taken out of its cart", checkout.order.id))?;
    }
    ensure(taken.is_empty(), || format!("carts gave {taken:?}, which are no orders"))?;
    for (owner, key) in &clients.added {
        let id = id_of_key(key);
        let operations = &world.carts[owner].operations;
        let is_there = operations.values().any(|operation| operation.id == id);
        ensure(is_there, || format!("{owner}: {key} was acknowledged and is not there"))?;
    }
    Ok(())
}
