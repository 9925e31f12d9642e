//! A process's way to the store: every call may fail, stall, be heard of late or not at all.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;
use vitrina::cart::CartStore;
use vitrina::cart::model::{CartLog, Checkpoint, HandOver, KeyNote, Operation};
use vitrina::cart::store::LogPlace;
use vitrina::catalog::CatalogStore;
use vitrina::catalog::model::browse::{CardRow, CategoryMap, Slice as CardSlice};
use vitrina::catalog::model::buckets::{Bucket, Layout};
use vitrina::catalog::model::{CategoryInfo, Product, ProductDraft};
use vitrina::catalog::store::{Care, Counted, Deleted, ScanStep, Upserted};
use vitrina::checkout::CheckoutStore;
use vitrina::checkout::model::Checkout;
use vitrina::checkout::store::ScannedCheckouts;
use vitrina::clock::Timestamp;
use vitrina::geo_zone::GeoZone;
use vitrina::inventory::InventoryStore;
use vitrina::inventory::model::{Errand, Report, StockKey, StockLevel, StockRow};
use vitrina::orders::OrderStore;
use vitrina::orders::model::{Month, Order, OrderEvent, OrderPlace};
use vitrina::orders::store::{ScannedOrders, Slice};
use vitrina::owner::Owner;
use vitrina::product_id::ProductId;
use vitrina::storage::{Due, DueRead, DueStore, StoreError};

use super::world::{Copied, Ghost, Target, World};
use crate::support::Random;

/// The longest a lost conditional write stays under way.
const MAX_LATE: u64 = 40_000;
/// The longest a write of a cart does: an operation is written soon after its time or not at all.
const MAX_LATE_CART: u64 = 8_000;
/// Calls of the store in one schedule; a usual one has some thousands.
const MAX_CALLS: u64 = 200_000;
/// How long who stands in line for a row is seen there.
const IN_LINE: Duration = Duration::from_secs(2);

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    /// It has no effect, and an error.
    Lost,
    /// It has its effect, and an error.
    Unheard,
    /// It has an error, and its effect after so many milliseconds.
    Late(u64),
}

pub struct SimStore {
    world: Arc<Mutex<World>>,
    name: String,
    began: Instant,
    random: Mutex<Random>,
    /// Of a thousand calls, how many fail.
    faults: AtomicU64,
    is_dead: AtomicBool,
    frozen: Mutex<Option<Instant>>,
}

impl SimStore {
    pub fn new(
        world: Arc<Mutex<World>>,
        name: String,
        seed: u64,
        faults: u64,
        began: Instant,
    ) -> Self {
        Self {
            world,
            name,
            began,
            random: Mutex::new(Random(seed)),
            faults: AtomicU64::new(faults),
            is_dead: AtomicBool::new(false),
            frozen: Mutex::default(),
        }
    }

    /// From now on nothing fails.
    pub fn heal(&self) {
        self.faults.store(0, Ordering::SeqCst);
        *self.frozen.lock().unwrap() = None;
    }

    /// From now on no call has an effect, or comes back.
    pub fn kill(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
    }

    /// No call goes on before that is over.
    pub fn freeze(&self, pause: Duration) {
        *self.frozen.lock().unwrap() = Some(Instant::now() + pause);
    }

    pub fn note(&self, text: impl FnOnce() -> String) {
        let (at, name) = (self.began.elapsed().as_millis(), &self.name);
        self.world().note(|| format!("{at:>7} {name}: {}", text()));
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn below(&self, bound: u64) -> u64 {
        self.random.lock().unwrap().below(bound)
    }

    /// Lets others go first, now and then for longer; for ever if the process is dead.
    async fn pause(&self) {
        let faults = self.faults.load(Ordering::SeqCst);
        for _ in 0..self.below(4) {
            yield_now().await;
        }
        match self.below(4_000) {
            // Longer than a lease.
            0 if faults > 0 => sleep(Duration::from_millis(self.below(14_000))).await,
            1..=100 => sleep(Duration::from_millis(1 + self.below(40))).await,
            _ => {}
        }
        let frozen = *self.frozen.lock().unwrap();
        if let Some(until) = frozen.filter(|until| *until > Instant::now()) {
            sleep_until(until).await;
        }
        if self.is_dead.load(Ordering::SeqCst) || self.runs_away() {
            pending::<()>().await;
        }
    }

    /// Whether so much was asked of the store that nobody will ever be content.
    fn runs_away(&self) -> bool {
        let mut world = self.world();
        world.calls += 1;
        if world.calls > MAX_CALLS {
            world.broken.get_or_insert("it comes to no rest".to_owned());
        }
        world.calls > MAX_CALLS
    }

    fn fate(&self, max_late: u64) -> Fate {
        if self.below(1_000) >= self.faults.load(Ordering::SeqCst) {
            return Fate::Done;
        }
        match self.below(3) {
            0 => Fate::Lost,
            1 => Fate::Unheard,
            // Mostly soon.
            _ => {
                let most = if self.below(4) == 0 { max_late } else { 1_500 };
                Fate::Late(1 + self.below(most))
            }
        }
    }

    async fn failed(&self, call: &'static str) -> StoreError {
        let cause = "simulated".to_owned();
        if self.below(3) == 0 {
            self.pause().await;
            return StoreError::Unavailable { call, cause };
        }
        sleep(Duration::from_millis(self.below(2_000))).await;
        self.pause().await;
        StoreError::Timeout { call, cause }
    }

    async fn read<T: Debug>(
        &self,
        call: &'static str,
        read: impl FnOnce(&mut World) -> T,
    ) -> Result<T, StoreError> {
        self.pause().await;
        let fate = self.fate(1);
        if fate != Fate::Done {
            self.note(|| format!("{call} fails"));
            return Err(self.failed(call).await);
        }
        let found = read(&mut self.world());
        self.note(|| format!("{call} -> {}", short(&found)));
        self.pause().await;
        Ok(found)
    }

    /// A read after which nothing of what was under way is.
    async fn settled<T: Debug>(
        &self,
        call: &'static str,
        target: Target,
        read: impl FnOnce(&mut World) -> T,
    ) -> Result<T, StoreError> {
        self.read(call, |world| {
            let of_target = |ghost: &Ghost| ghost.target.as_ref() == Some(&target);
            let ghosts: Vec<u64> = world
                .ghosts
                .iter()
                .filter(|(_, ghost)| of_target(ghost))
                .map(|(number, _)| *number)
                .collect();
            for number in ghosts {
                let Some(ghost) = world.ghosts.remove(&number) else { continue };
                if self.below(2) == 0 {
                    (ghost.effect)(world);
                    world.check_stock();
                }
            }
            read(world)
        })
        .await
    }

    async fn write<T: Debug>(
        &self,
        call: &'static str,
        target: Option<Target>,
        max_late: u64,
        effect: impl FnOnce(&mut World) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.pause().await;
        let fate = self.fate(max_late);
        let about = target.clone();
        let told = match fate {
            Fate::Done | Fate::Unheard => {
                let mut world = self.world();
                let told = effect(&mut world);
                if matches!(target, Some(Target::Order(_) | Target::Stock(_))) {
                    world.check_stock();
                }
                Some(told)
            }
            Fate::Lost => None,
            Fate::Late(after) => {
                self.haunt(call, target, after, effect);
                None
            }
        };
        self.note(|| format!("{call} {about:?} {fate:?} -> {}", short(&told)));
        match told {
            Some(told) if fate == Fate::Done => {
                self.pause().await;
                Ok(told)
            }
            _ => Err(self.failed(call).await),
        }
    }

    fn haunt<T: Debug>(
        &self,
        call: &'static str,
        target: Option<Target>,
        after: u64,
        effect: impl FnOnce(&mut World) -> T + Send + 'static,
    ) {
        let (world, began) = (self.world.clone(), self.began);
        let number = self.world().next_write();
        let name = format!("{} late {call} {target:?}", self.name);
        let effect = Box::new(move |world: &mut World| {
            let told = effect(world);
            world.note(|| format!("{:>7} {name} -> {told:?}", began.elapsed().as_millis()));
        });
        self.world().ghosts.insert(number, Ghost { target, effect });
        tokio::spawn(async move {
            sleep(Duration::from_millis(after)).await;
            let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(ghost) = world.ghosts.remove(&number) {
                (ghost.effect)(&mut world);
                world.check_stock();
            }
        });
    }

    async fn set_due(&self, due: &Due, is_there: bool) -> Result<(), StoreError> {
        let (due, number) = (due.clone(), self.world().next_write());
        let call = if is_there { "add_due" } else { "remove_due" };
        self.note(|| format!("{call} {} at {}", due.task.to_text(), due.at));
        self.write(call, None, MAX_LATE, move |world| world.set_due(due, number, is_there)).await
    }

    /// Writes all copies of an order.
    async fn copy(&self, order: &Order) -> Result<(), StoreError> {
        let of = |effect: fn(&mut World, &Order)| {
            let order = order.clone();
            self.write("copy", None, MAX_LATE, move |world| effect(world, &order))
        };
        tokio::try_join!(
            of(|world, order| world.write_events(order.id, &order.changes)),
            of(|world, order| {
                world.parts.entry(order.owner.clone()).or_default().insert(order.part);
            }),
            of(World::copy_to_history),
            of(World::copy_to_day),
        )
        .map(drop)
    }

    async fn mark(&self, order: &Order) -> Result<(), StoreError> {
        let of = |effect: fn(&mut World, &Order)| {
            let order = order.clone();
            self.write("mark", None, MAX_LATE, move |world| effect(world, &order))
        };
        tokio::try_join!(of(World::mark_history), of(World::mark_day)).map(drop)
    }

    /// The orders of rows of a list, by their copies or where those are marked by their states.
    async fn orders_of_rows(
        &self,
        rows: Vec<(OrderPlace, Copied)>,
        belongs: impl Fn(&Order) -> bool,
    ) -> Result<Vec<Order>, StoreError> {
        let mut found = Vec::new();
        for (place, copied) in rows {
            match copied.row() {
                None => {}
                Some((Some(order), false)) => found.push(order.clone()),
                Some(_) => found.extend(self.order(place.id).await?.filter(&belongs)),
            }
        }
        Ok(found)
    }
}

fn short(told: &impl Debug) -> String {
    let text = format!("{told:?}");
    if text.chars().count() <= 300 { text } else { text.chars().take(300).collect() }
}

fn key_of(owner: &Owner, key: &str) -> (Owner, String) {
    (owner.clone(), key.to_owned())
}

#[async_trait]
impl DueStore for SimStore {
    async fn add_due(&self, due: &Due) -> Result<(), StoreError> {
        self.set_due(due, true).await
    }

    async fn remove_due(&self, due: &Due) -> Result<(), StoreError> {
        self.set_due(due, false).await
    }

    async fn due(
        &self,
        shard: i8,
        (from, until): (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<DueRead, StoreError> {
        self.read("due", |world| {
            let there = world.due.iter().filter(|((of, due), (_, is_there))| {
                *is_there && *of == shard && (from..=until).contains(&due.at)
            });
            let due: Vec<Due> = there.map(|((_, due), _)| due.clone()).take(limit).collect();
            let until = due.last().filter(|_| due.len() >= limit).map_or(until, |last| last.at);
            DueRead { due, until }
        })
        .await
    }

    async fn swept(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read("swept", |world| world.swept).await
    }

    async fn set_swept(&self, until: Timestamp) -> Result<(), StoreError> {
        self.write("set_swept", None, MAX_LATE, move |world| world.swept = Some(until)).await
    }
}

#[async_trait]
impl CheckoutStore for SimStore {
    async fn checkout(&self, owner: &Owner, key: &str) -> Result<Option<Checkout>, StoreError> {
        let place = key_of(owner, key);
        self.read("checkout", |world| world.checkouts.get(&place).cloned()).await
    }

    async fn settled_checkout(
        &self,
        owner: &Owner,
        key: &str,
    ) -> Result<Option<Checkout>, StoreError> {
        let place = key_of(owner, key);
        let target = Target::Checkout(owner.clone(), key.to_owned());
        let read = |world: &mut World| world.checkouts.get(&place).cloned();
        self.settled("settled_checkout", target, read).await
    }

    async fn change_checkout(
        &self,
        expected: Option<i64>,
        after: &Checkout,
        due: Option<&Due>,
    ) -> Result<bool, StoreError> {
        if let Some(due) = due {
            self.add_due(due).await?;
        }
        let target = Target::Checkout(after.owner.clone(), after.key.to_string());
        let (state, order) = (after.state.name(), after.order.id);
        self.note(|| format!("change_checkout {expected:?} to {state}, order {order}"));
        let after = after.clone();
        let change = move |world: &mut World| world.change_checkout(expected, after);
        self.write("change_checkout", Some(target), MAX_LATE, change).await
    }

    async fn scan_checkouts(&self, _: Option<Vec<u8>>) -> Result<ScannedCheckouts, StoreError> {
        panic!("not part of the simulation")
    }
}

#[async_trait]
impl OrderStore for SimStore {
    async fn order(&self, id: Uuid) -> Result<Option<Order>, StoreError> {
        self.read("order", |world| world.orders.get(&id).cloned()).await
    }

    async fn settled_order(&self, id: Uuid) -> Result<Option<Order>, StoreError> {
        let read = |world: &mut World| world.orders.get(&id).cloned();
        self.settled("settled_order", Target::Order(id), read).await
    }

    async fn place_order(&self, order: &Order, payment_due: &Due) -> Result<(), StoreError> {
        self.add_due(payment_due).await?;
        let placed = order.clone();
        // Older than every change, and no conditional write: a settled read does not wait for it.
        let place = move |world: &mut World| {
            world.orders.entry(placed.id).or_insert(placed);
            world.check_stock();
        };
        self.write("place_order", None, MAX_LATE, place).await?;
        self.copy(order).await
    }

    async fn change_order(
        &self,
        before: &Order,
        after: &Order,
        due: &Due,
    ) -> Result<bool, StoreError> {
        tokio::try_join!(self.add_due(due), self.mark(before))?;
        let (version, changed) = (before.version, after.clone());
        let (status, units) = (after.status, after.units);
        self.note(|| format!("change_order {} {version} to {status:?} {units:?}", before.id));
        let change = move |world: &mut World| world.change_order(version, changed);
        let target = Some(Target::Order(before.id));
        if !self.write("change_order", target, MAX_LATE, change).await? {
            return Ok(false);
        }
        let moved = async {
            if (&before.owner, before.part) == (&after.owner, after.part) {
                return Ok(());
            }
            let (before, after) = (before.clone(), after.clone());
            let unlist = move |world: &mut World| world.unlist(&before, &after);
            self.write("unlist", None, MAX_LATE, unlist).await
        };
        tokio::try_join!(self.copy(after), moved)?;
        Ok(true)
    }

    async fn mend_order(&self, order: &Order) -> Result<(), StoreError> {
        self.copy(order).await
    }

    async fn faults_of_order(&self, order: &Order) -> Result<Vec<&'static str>, StoreError> {
        self.read("faults_of_order", |world| world.faults_of(order)).await
    }

    async fn add_order_event(&self, order: Uuid, event: &OrderEvent) -> Result<(), StoreError> {
        let events = [event.clone()];
        let add = move |world: &mut World| world.write_events(order, &events);
        self.write("add_order_event", None, MAX_LATE, add).await
    }

    async fn order_events(&self, order: Uuid, limit: usize) -> Result<Vec<OrderEvent>, StoreError> {
        self.read("order_events", |world| {
            let events = world.events.get(&order).into_iter().flat_map(BTreeMap::values);
            events.rev().take(limit).cloned().collect()
        })
        .await
    }

    async fn history_parts(&self, owner: &Owner) -> Result<Vec<Month>, StoreError> {
        self.read("history_parts", |world| {
            world.parts.get(owner).into_iter().flatten().rev().copied().collect()
        })
        .await
    }

    async fn begin_history_part(&self, owner: &Owner, part: Month) -> Result<(), StoreError> {
        let owner = owner.clone();
        let begin = move |world: &mut World| {
            world.parts.entry(owner).or_default().insert(part);
        };
        self.write("begin_history_part", None, MAX_LATE, begin).await
    }

    async fn orders_of(
        &self,
        owner: &Owner,
        part: Month,
        slice: Slice,
    ) -> Result<Vec<Order>, StoreError> {
        assert!(slice.after.is_none() && slice.before.is_none() && !slice.from_end);
        let rows = self.read("orders_of", |world| {
            let mine = world
                .history
                .iter()
                .rev()
                .filter(|((other, month, _), _)| other == owner && *month == part);
            mine.map(|((.., place), copied)| (*place, copied.clone())).collect::<Vec<_>>()
        });
        let rows = rows.await?;
        self.orders_of_rows(rows, |order| order.owner == *owner && order.part == part).await
    }

    async fn orders_on(
        &self,
        _: i32,
        _: i8,
        _: Option<OrderPlace>,
        _: usize,
    ) -> Result<Vec<Order>, StoreError> {
        panic!("not part of the simulation")
    }

    async fn claim_guest(&self, guest: Uuid, user: &str) -> Result<(), StoreError> {
        let user = user.to_owned();
        let claim = move |world: &mut World| {
            world.claims.insert(guest, user);
        };
        self.write("claim_guest", None, MAX_LATE, claim).await
    }

    async fn claimant(&self, guest: Uuid) -> Result<Option<String>, StoreError> {
        self.read("claimant", |world| world.claims.get(&guest).cloned()).await
    }

    async fn scan_orders(&self, _: Option<Vec<u8>>) -> Result<ScannedOrders, StoreError> {
        panic!("not part of the simulation")
    }
}

#[async_trait]
impl InventoryStore for SimStore {
    async fn stock_levels(&self, keys: &[StockKey]) -> Result<Vec<Option<StockLevel>>, StoreError> {
        self.read("stock_levels", |world| {
            keys.iter().map(|key| world.stock.get(key).map(|row| row.level)).collect()
        })
        .await
    }

    async fn stock_zones(&self, _: &ProductId) -> Result<Vec<GeoZone>, StoreError> {
        panic!("not part of the simulation")
    }

    async fn stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError> {
        self.read("stock_row", |world| world.stock.get(key).cloned()).await
    }

    async fn stock_turn(&self, key: &StockKey) -> Result<Option<(i64, Option<Uuid>)>, StoreError> {
        self.read("stock_turn", |world| {
            world.stock.get(key).map(|row| (row.level.version, row.turn))
        })
        .await
    }

    async fn stand_in_line(
        &self,
        key: &StockKey,
        process: Uuid,
        wants: bool,
    ) -> Result<(), StoreError> {
        let key = key.clone();
        let stand = move |world: &mut World| {
            let line = world.line.entry(key).or_default();
            if wants {
                line.insert(process, Instant::now() + IN_LINE);
            } else {
                line.remove(&process);
            }
        };
        self.write("stand_in_line", None, 1_000, stand).await
    }

    async fn line(&self, key: &StockKey) -> Result<Vec<Uuid>, StoreError> {
        self.read("line", |world| {
            let now = Instant::now();
            let line = world.line.get(key).into_iter().flatten();
            line.filter(|(_, until)| **until > now).map(|(process, _)| *process).collect()
        })
        .await
    }

    async fn give_errand(&self, key: &StockKey, errand: &Errand) -> Result<(), StoreError> {
        let (key, errand) = (key.clone(), errand.clone());
        let give = move |world: &mut World| {
            let errands = world.errands.entry(key).or_default();
            // A later one wins, whichever arrives first.
            if errands.get(&errand.from).is_none_or(|before| before.number < errand.number) {
                errands.insert(errand.from, errand);
            }
        };
        self.write("give_errand", None, 1_000, give).await
    }

    async fn errands(&self, key: &StockKey) -> Result<Vec<Errand>, StoreError> {
        self.read("errands", |world| {
            world
                .errands
                .get(key)
                .into_iter()
                .flat_map(|errands| errands.values().cloned())
                .collect()
        })
        .await
    }

    async fn report_errand(
        &self,
        _: &StockKey,
        from: Uuid,
        number: i64,
        report: &Report,
    ) -> Result<(), StoreError> {
        let report = report.clone();
        let tell = move |world: &mut World| {
            let last = world.reports.get(&from).map_or(0, |(last, _)| *last);
            if last < number {
                world.reports.insert(from, (number, report));
            }
        };
        self.write("report_errand", None, 1_000, tell).await
    }

    async fn errand_report(
        &self,
        _: &StockKey,
        from: Uuid,
    ) -> Result<Option<(i64, Report)>, StoreError> {
        self.read("errand_report", |world| world.reports.get(&from).cloned()).await
    }

    async fn settled_stock_row(&self, key: &StockKey) -> Result<Option<StockRow>, StoreError> {
        let read = |world: &mut World| world.stock.get(key).cloned();
        self.settled("settled_stock_row", Target::Stock(key.clone()), read).await
    }

    async fn change_stock(
        &self,
        key: &StockKey,
        expected: Option<i64>,
        after: &StockRow,
    ) -> Result<bool, StoreError> {
        self.note(|| format!("change_stock {key} {expected:?} to {}", short(after)));
        let (place, after) = (key.clone(), after.clone());
        let change = move |world: &mut World| world.change_stock(place, expected, after);
        self.write("change_stock", Some(Target::Stock(key.clone())), MAX_LATE, change).await
    }

    async fn stock_up(&self, _: Vec<(StockKey, i64)>, _: Timestamp) -> Result<(), StoreError> {
        panic!("not part of the simulation")
    }
}

#[async_trait]
impl CartStore for SimStore {
    async fn cart_log(&self, owner: &Owner) -> Result<CartLog, StoreError> {
        self.read("cart_log", |world| {
            let Some(rows) = world.carts.get(owner) else { return CartLog::default() };
            let checkpoint = rows.checkpoint.clone();
            let until = checkpoint.as_ref().map(|checkpoint| checkpoint.until);
            let is_after = |operation: &Operation| until.is_none_or(|until| operation.at > until);
            CartLog { checkpoint, ..rows.log(owner, is_after) }
        })
        .await
    }

    async fn cart_note(&self, owner: &Owner, id: Uuid) -> Result<Option<KeyNote>, StoreError> {
        self.read("cart_note", |world| world.carts.get(owner)?.notes.get(&id).copied()).await
    }

    async fn add_to_cart(&self, owner: &Owner, operation: &Operation) -> Result<(), StoreError> {
        self.note(|| format!("add_to_cart {owner} {}", short(operation)));
        let (owner, operation) = (owner.clone(), operation.clone());
        let add = move |world: &mut World| {
            let rows = world.carts.entry(owner).or_default();
            rows.operations.insert((operation.at, operation.id), operation);
        };
        self.write("add_to_cart", None, MAX_LATE_CART, add).await
    }

    async fn put_checkpoint(
        &self,
        owner: &Owner,
        checkpoint: &Checkpoint,
        notes: &[KeyNote],
    ) -> Result<(), StoreError> {
        let (of, notes) = (owner.clone(), notes.to_vec());
        let note = move |world: &mut World| {
            let there = &mut world.carts.entry(of).or_default().notes;
            there.extend(notes.into_iter().map(|note| (note.id, note)));
        };
        self.write("cart notes", None, MAX_LATE_CART, note).await?;
        let (of, checkpoint) = (owner.clone(), checkpoint.clone());
        let put = move |world: &mut World| {
            let there = &mut world.carts.entry(of).or_default().checkpoint;
            if there.as_ref().is_none_or(|there| there.until <= checkpoint.until) {
                *there = Some(checkpoint);
            }
        };
        self.write("put_checkpoint", None, MAX_LATE_CART, put).await
    }

    async fn record_hand_over(&self, guest: Uuid, hand_over: &HandOver) -> Result<(), StoreError> {
        let hand_over = hand_over.clone();
        let record = move |world: &mut World| {
            let rows = world.carts.entry(Owner::Guest(guest)).or_default();
            rows.hand_overs.entry(hand_over.number).or_insert(hand_over);
        };
        self.write("record_hand_over", None, MAX_LATE_CART, record).await
    }

    async fn cart_history(
        &self,
        _: &Owner,
        _: Option<LogPlace>,
        _: usize,
    ) -> Result<Vec<Operation>, StoreError> {
        panic!("not part of the simulation")
    }

    async fn list_cart(&self, _: i64, _: i8, _: &Owner) -> Result<(), StoreError> {
        self.write("list_cart", None, 1_000, |_| ()).await
    }

    async fn listed_carts(
        &self,
        _: i64,
        _: i8,
        _: Option<&Owner>,
        _: usize,
    ) -> Result<Vec<Owner>, StoreError> {
        panic!("not part of the simulation")
    }
}

/// Calls that no checkout makes.
macro_rules! unused {
    ($(fn $call:ident($($argument:ty),*) -> $answer:ty;)+) => {
        #[async_trait]
        impl CatalogStore for SimStore {
            async fn products(
                &self,
                ids: &[ProductId],
            ) -> Result<Vec<Option<Product>>, StoreError> {
                self.read("products", |world| {
                    ids.iter().map(|id| world.products.get(id).cloned()).collect()
                })
                .await
            }

            fn rows_always_agree(&self) -> bool {
                panic!("not part of the simulation")
            }

            $(async fn $call(&self, $(_: $argument),*) -> Result<$answer, StoreError> {
                panic!("not part of the simulation")
            })+
        }
    };
}

unused! {
    fn upsert_products(Vec<ProductDraft>, Timestamp) -> Vec<Upserted>;
    fn delete_products(&[ProductId], Timestamp) -> Vec<Deleted>;
    fn categories() -> Vec<CategoryInfo>;
    fn category_names() -> Vec<Arc<str>>;
    fn category(&str) -> Option<CategoryInfo>;
    fn category_map(&str) -> Option<CategoryMap>;
    fn read_slices(&str, Vec<CardSlice>, Care) -> Vec<Vec<CardRow>>;
    fn change_layout(&str, &Layout) -> bool;
    fn copy_rows(&str, Bucket, Vec<CardRow>, u8) -> ();
    fn remove_rows(&str, Bucket, Vec<CardRow>) -> ();
    fn drop_empty_bucket(&str, Bucket, Timestamp) -> ();
    fn drop_bucket(&str, Bucket) -> ();
    fn mend_rows(&[ProductId], Timestamp) -> u64;
    fn repair_row(&str, Bucket, &CardRow, Timestamp) -> bool;
    fn scan_products(u32, u32, Option<String>) -> ScanStep;
    fn mend_counts(&str, &CategoryMap, &Counted) -> bool;
}
