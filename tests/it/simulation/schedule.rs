//! One schedule: who does what, and when. All of it follows from a seed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use rust_decimal::Decimal;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;
use vitrina::cart::model::Card;
use vitrina::cart::model::change::{RawChange, RawLine};
use vitrina::catalog::model::Product;
use vitrina::checkout::model::{CheckoutRequest, Outcome};
use vitrina::checkout::service::{Changed, PaymentKind, PaymentNotice, PaymentOutcome};
use vitrina::clock::{Clock, Timestamp};
use vitrina::error::{Error, ErrorCode};
use vitrina::geo_zone::GeoZone;
use vitrina::inventory::model::{StockKey, StockLevel, StockRow};
use vitrina::money::Money;
use vitrina::orders::model::{Actor, Address, Order, OrderStatus, Step};
use vitrina::owner::Owner;
use vitrina::product_id::ProductId;

use super::checks;
use super::process::{Process, Settings, SimClock};
use super::world::{Bug, World};
use crate::support::Random;

const ZONE: &str = "Москва";
/// A schedule that takes longer hangs.
const MAX_TIME: Duration = Duration::from_secs(7_200);
/// The end waits for all that is still under way, and for the sweeper to look back once.
const SETTLING: Duration = Duration::from_secs(130);
/// How often the last process sweeps.
const SWEEP_EVERY: Duration = Duration::from_secs(13);

/// What a client was told of a checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is this order, of so many units.
    Order(Uuid),
    /// There was too little.
    Short,
    /// There was nothing in the cart. This alone is not kept.
    Empty,
}

/// What clients know.
#[derive(Default)]
pub struct Clients {
    pub answers: BTreeMap<(Owner, String), Vec<Answer>>,
    /// Steps of orders that were acknowledged.
    pub steps: Vec<(Uuid, OrderStatus)>,
    /// Payments that were.
    pub paid: Vec<(Uuid, String)>,
    /// Guests who have become customers.
    pub claimed: Vec<(Uuid, String)>,
    /// Units that were acknowledged to be in a cart, by the key of the change.
    pub added: Vec<(Owner, String)>,
}

/// What schedules came to.
#[derive(Debug, Default)]
pub struct Told {
    pub checkouts: u64,
    pub orders: u64,
    pub refused: u64,
    pub cancelled: u64,
    pub left: u64,
    pub claimed: u64,
    pub kills: u64,
}

impl Told {
    pub fn add(&mut self, other: &Self) {
        self.checkouts += other.checkouts;
        self.orders += other.orders;
        self.refused += other.refused;
        self.cancelled += other.cancelled;
        self.left += other.left;
        self.claimed += other.claimed;
        self.kills += other.kills;
    }
}

/// What all who take part in a schedule share.
pub struct Scene {
    pub world: Arc<Mutex<World>>,
    pub clients: Mutex<Clients>,
    pub settings: Settings,
    processes: Mutex<Vec<Arc<Process>>>,
    cards: HashMap<ProductId, Card>,
    /// So many times faster than usual everybody is.
    pace: u64,
    kills: Mutex<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the schedule of a seed. Answers with what it came to or which rule it broke, and with what
/// happened if that is to be logged.
pub fn run(seed: u64, bug: Option<Bug>, is_logged: bool) -> (Result<Told, String>, Vec<String>) {
    #[cfg(debug_assertions)]
    vitrina::chance::seed(Some(seed));
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    let world = World { bug, log: is_logged.then(Vec::new), ..World::default() };
    let world = Arc::new(Mutex::new(world));
    let ran = runtime.unwrap().block_on(async {
        let scene = play(seed, world.clone());
        timeout(MAX_TIME, scene).await.unwrap_or_else(|_| Err("it does not end".to_owned()))
    });
    #[cfg(debug_assertions)]
    vitrina::chance::seed(None);
    let mut world = lock(&world);
    // The first rule that was broken is the cause of the others.
    let ran = world.broken.take().map_or(ran, Err);
    (ran, world.log.take().unwrap_or_default())
}

async fn play(seed: u64, world: Arc<Mutex<World>>) -> Result<Told, String> {
    let mut random = Random(seed);
    let began = Instant::now();
    let cards = fill(&mut lock(&world), &mut random, began);
    let faults = [0, 10, 30, 80, 150][pick(&mut random, 5)];
    let payment_within = Duration::from_secs([15, 60, 1_200][pick(&mut random, 3)]);
    let settings = Settings { world: world.clone(), began, faults, payment_within };
    let scene = Arc::new(Scene {
        world,
        clients: Mutex::default(),
        settings,
        processes: Mutex::default(),
        cards,
        pace: [1, 1, 8, 40][pick(&mut random, 4)],
        kills: Mutex::default(),
    });
    for number in 0..2 + random.below(2) {
        scene.begin(format!("p{number}"), &mut random);
    }
    let mut tasks = Vec::new();
    let owners = 2 + random.below(3);
    for number in 0..owners {
        let guest = (random.below(2) == 0).then(|| Uuid::from_u128(u128::from(number) + 1));
        let owner = guest.map_or_else(|| Owner::User(format!("u{number}").into()), Owner::Guest);
        tasks.push(tokio::spawn(shop(scene.clone(), owner, Random(random.next()))));
        if let Some(guest) = guest.filter(|_| random.below(2) == 0) {
            tasks.push(tokio::spawn(log_in(scene.clone(), guest, Random(random.next()))));
        }
    }
    tasks.push(tokio::spawn(serve(scene.clone(), Random(random.next()))));
    tasks.push(tokio::spawn(disturb(scene.clone(), Random(random.next()))));
    let sweeping = tokio::spawn(sweep(scene.clone(), Random(random.next())));
    for done in join_all(tasks).await {
        done.map_err(|error| format!("a task has panicked: {error}"))?;
    }
    sweeping.abort();
    scene.end(&mut random).await?;
    checks::at_the_end(&scene)
}

/// Puts products on the shelves.
fn fill(world: &mut World, random: &mut Random, began: Instant) -> HashMap<ProductId, Card> {
    let now = SimClock { began, ahead: 0 }.now();
    let mut cards = HashMap::new();
    for number in 0..2 + random.below(3) {
        let id = ProductId::parse(&format!("A{number}")).unwrap();
        let (name, price) = (format!("Товар {number}"), Money::rub(Decimal::new(10_000, 2)));
        let product = Product {
            id: id.clone(),
            name: name.clone(),
            description: None,
            category: "Телефоны".into(),
            price,
            attributes: Vec::new(),
            image_url: None,
            created_at: now,
            updated_at: now,
            version: 1,
        };
        world.products.insert(id.clone(), product);
        cards.insert(id.clone(), Card { name, price, image_url: None });
        let quantity = 1 + i64::try_from(random.below(8)).unwrap();
        let key = StockKey { product: id, zone: GeoZone::parse(ZONE).unwrap() };
        let level = StockLevel { quantity, reserved: 0, version: 1, updated_at: now };
        let row = StockRow { level, marks: BTreeMap::new(), turn: None };
        world.stocked.insert(key.clone(), quantity);
        world.stock.insert(key, row);
    }
    cards
}

fn millis(random: &mut Random, below: u64) -> Duration {
    Duration::from_millis(random.below(below))
}

/// An index below `bound`.
fn pick(random: &mut Random, bound: usize) -> usize {
    usize::try_from(random.below(bound as u64)).unwrap()
}

fn request(key: &str) -> CheckoutRequest {
    let address = Address {
        city: "Москва".to_owned(),
        street: "Тверская, 1".to_owned(),
        postal_code: None,
        recipient: None,
        phone: None,
    };
    CheckoutRequest {
        key: key.to_owned(),
        zone: ZONE.to_owned(),
        address,
        payment_method: "card".to_owned(),
        expected_total: None,
    }
}

impl Scene {
    pub fn now(&self) -> Timestamp {
        SimClock { began: self.settings.began, ahead: 0 }.now()
    }

    /// Starts a process.
    fn begin(&self, name: String, random: &mut Random) {
        // Clocks are never quite the same.
        let ahead = i64::try_from(random.below(400)).unwrap() - 200;
        let process = Process::start(&self.settings, name, random.next(), ahead);
        lock(&self.processes).push(process);
    }

    fn any(&self, random: &mut Random) -> Arc<Process> {
        let processes = lock(&self.processes);
        let index = pick(random, processes.len());
        processes[index].clone()
    }

    /// Takes up to so many milliseconds, at the pace of the schedule.
    async fn rest(&self, random: &mut Random, below: u64) {
        sleep(millis(random, below.div_ceil(self.pace))).await;
    }

    fn broken(&self, fault: String) {
        lock(&self.world).broken.get_or_insert(fault);
    }

    /// An error that no store explains.
    fn look_at(&self, what: &str, error: &Error) {
        if matches!(error, Error::Internal) {
            self.broken(format!("{what}: an internal error"));
        }
    }

    async fn checkout(&self, process: &Process, owner: &Owner, key: &str, patience: Duration) {
        process.store.note(|| format!("CHECKOUT {owner} {key}"));
        let call = process.checkout.checkout(owner.clone(), request(key));
        let answer = match timeout(patience, call).await {
            Ok(Ok(Outcome::Order(order))) => Answer::Order(order.id),
            Ok(Ok(Outcome::Refused(refusal))) => {
                match refusal.errors.first().map(|error| error.code) {
                    Some(ErrorCode::OutOfStock) => Answer::Short,
                    Some(ErrorCode::CartEmpty) => Answer::Empty,
                    _ => return self.broken(format!("{owner} {key}: {refusal:?}")),
                }
            }
            Ok(Err(error)) => {
                process.store.note(|| format!("CHECKOUT {owner} {key}: {error:?}"));
                return self.look_at("checkout", &error);
            }
            Err(_) => return process.store.note(|| format!("CHECKOUT {owner} {key}: gave up")),
        };
        process.store.note(|| format!("CHECKOUT {owner} {key}: {answer:?}"));
        let place = (owner.clone(), key.to_owned());
        let checked = checks::answered(&lock(&self.world), &place, &answer);
        if let Err(fault) = checked {
            self.broken(fault);
        }
        lock(&self.clients).answers.entry(place).or_default().push(answer);
    }

    /// Puts units into a cart, until that is acknowledged.
    async fn add(&self, owner: &Owner, key: &str, random: &mut Random) {
        let products: Vec<String> =
            lock(&self.world).products.keys().map(|id| id.as_str().to_owned()).collect();
        let mut lines = Vec::new();
        for product in products {
            if random.below(2) == 0 {
                lines.push(RawLine {
                    product,
                    quantity: 1 + i64::try_from(random.below(3)).unwrap(),
                });
            }
        }
        if lines.is_empty() {
            return;
        }
        let change = RawChange::Add(lines);
        for _ in 0..6 {
            let process = self.any(random);
            let call = process.carts.change(owner, &change, &self.cards, Some(key));
            match timeout(Duration::from_secs(5), call).await {
                Ok(Ok(changed)) => {
                    let (lines, errors) = (&changed.cart.lines, &changed.errors);
                    process.store.note(|| format!("ADD {owner} {key} {errors:?} {lines:?}"));
                    if !errors.is_empty() {
                        self.broken(format!("{owner} {key}: {errors:?}"));
                    }
                    return lock(&self.clients).added.push((owner.clone(), key.to_owned()));
                }
                Ok(Err(error)) => self.look_at("add", &error),
                Err(_) => {}
            }
        }
    }

    /// Lets a process without faults bring everything to its end.
    async fn end(&self, random: &mut Random) -> Result<(), String> {
        for process in lock(&self.processes).iter() {
            if random.below(2) == 0 {
                process.store.kill();
            } else {
                process.store.heal();
            }
        }
        let settings = Settings { faults: 0, ..self.settings.clone() };
        let last = Process::start(&settings, "last".to_owned(), random.next(), 0);
        last.store.note(|| "THE END".to_owned());
        self.sweep_up(&last, SETTLING).await?;
        let open: Vec<(Owner, String)> = lock(&self.clients)
            .answers
            .iter()
            .filter(|(_, answers)| answers.is_empty())
            .map(|(place, _)| place.clone())
            .collect();
        for (owner, key) in open {
            self.checkout(&last, &owner, &key, Duration::from_secs(60)).await;
            if lock(&self.clients).answers[&(owner.clone(), key.clone())].is_empty() {
                return Err(format!("{owner} {key}: no answer, though nothing fails"));
            }
        }
        self.sweep_up(&last, Duration::from_secs(30)).await?;
        if random.below(2) == 0 {
            let within = self.settings.payment_within + Duration::from_secs(10);
            sleep(within).await;
            self.sweep_up(&last, Duration::from_secs(75)).await?;
        }
        Ok(())
    }

    async fn sweep_up(&self, last: &Process, at_least: Duration) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < at_least {
            sleep(SWEEP_EVERY).await;
            let swept = last.sweeper.lock().await.sweep().await;
            swept.map_err(|error| format!("sweeping: {error:?}, though nothing fails"))?;
        }
        Ok(())
    }

    pub fn told(&self) -> Told {
        let (world, clients) = (lock(&self.world), lock(&self.clients));
        let stands =
            |status| world.orders.values().filter(|order| order.status == status).count() as u64;
        let refused = clients.answers.values().filter(|answers| answers.contains(&Answer::Short));
        Told {
            checkouts: clients.answers.len() as u64,
            orders: world.orders.len() as u64,
            refused: refused.count() as u64,
            cancelled: stands(OrderStatus::Cancelled),
            left: stands(OrderStatus::Shipped) + stands(OrderStatus::Delivered),
            claimed: clients.claimed.len() as u64,
            kills: *lock(&self.kills),
        }
    }
}

/// A shopper: fills the cart, and buys it under a key by several calls at once.
async fn shop(scene: Arc<Scene>, owner: Owner, mut random: Random) {
    for round in 0..=random.below(3) {
        scene.rest(&mut random, 4_000).await;
        scene.add(&owner, &format!("a{round}"), &mut random).await;
        let keys = if random.below(5) == 0 { 2 } else { 1 };
        let mut calls = Vec::new();
        for number in 0..keys {
            let key = format!("k{round}.{number}");
            lock(&scene.clients).answers.entry((owner.clone(), key.clone())).or_default();
            for _ in 0..=random.below(3) {
                let (scene, owner, key) = (&scene, &owner, key.clone());
                let mut random = Random(random.next());
                calls.push(async move {
                    for _ in 0..=random.below(3) {
                        let spread = [1, 200, 3_000][pick(&mut random, 3)];
                        scene.rest(&mut random, spread).await;
                        let patience = [500, 5_000, 20_000][pick(&mut random, 3)];
                        let process = scene.any(&mut random);
                        let patience = Duration::from_millis(patience);
                        scene.checkout(&process, owner, &key, patience).await;
                    }
                });
            }
        }
        join_all(calls).await;
    }
}

/// A guest who becomes a customer, in the midst of it.
async fn log_in(scene: Arc<Scene>, guest: Uuid, mut random: Random) {
    scene.rest(&mut random, 12_000).await;
    let user = format!("of {}", guest.as_u128());
    for _ in 0..8 {
        let process = scene.any(&mut random);
        process.store.note(|| format!("CLAIM {guest}"));
        let name: Arc<str> = user.as_str().into();
        let merge = process.carts.merge(guest, name.clone());
        let both = async { tokio::try_join!(merge, process.checkout.claim(guest, name.clone())) };
        match timeout(Duration::from_secs(15), both).await {
            Ok(Ok(_)) => {
                process.store.note(|| format!("CLAIM {guest}: done"));
                return lock(&scene.clients).claimed.push((guest, user));
            }
            Ok(Err(error)) => scene.look_at("claim", &error),
            Err(_) => {}
        }
        sleep(millis(&mut random, 2_000)).await;
    }
}

/// The payment service, staff, and customers who have changed their minds; several at once.
async fn serve(scene: Arc<Scene>, mut random: Random) {
    for number in 0..6 + random.below(10) {
        scene.rest(&mut random, 2_500).await;
        let orders: Vec<_> = lock(&scene.world).orders.values().cloned().collect();
        if orders.is_empty() {
            continue;
        }
        let order = &orders[pick(&mut random, orders.len())];
        let wishes = (0..=random.below(3)).map(|_| Random(random.next()));
        // Payments are told of again now and then.
        let payment = format!("payment {}", number / 2);
        join_all(wishes.map(|random| scene.wish(order, &payment, random))).await;
    }
}

impl Scene {
    /// Wants something of an order.
    async fn wish(&self, order: &Order, payment: &str, mut random: Random) {
        sleep(millis(&mut random, 60)).await;
        let (process, patience) = (self.any(&mut random), Duration::from_secs(10));
        let next = match order.status {
            OrderStatus::Created => OrderStatus::Paid,
            OrderStatus::Paid => OrderStatus::Processing,
            OrderStatus::Processing => OrderStatus::Shipped,
            _ => OrderStatus::Delivered,
        };
        let wish = random.below(8);
        process.store.note(|| format!("WISH {} {wish} next {next:?}", order.id));
        let kind = match wish {
            7 => Some(PaymentKind::Refunded),
            6 => None,
            _ => (next == OrderStatus::Paid).then_some(PaymentKind::Paid),
        };
        if let Some(kind) = kind {
            let id = format!("{payment} {}", random.below(2));
            let (order, amount) = (order.id, order.total);
            let notice = PaymentNotice { id: id.clone(), kind, order, amount };
            match timeout(patience, process.checkout.payment(notice)).await {
                Ok(Ok(PaymentOutcome::Taken)) if kind == PaymentKind::Paid => {
                    process.store.note(|| format!("WISH {order} {id} taken"));
                    lock(&self.clients).paid.push((order, id));
                }
                Ok(Err(error)) => self.look_at("payment", &error),
                _ => {}
            }
            return;
        }
        let to = if wish == 6 { OrderStatus::Cancelled } else { next };
        let step = Step::new(to, Actor::Staff("s".to_owned()));
        match timeout(patience, process.checkout.step(order.id, step, |_| true)).await {
            Ok(Ok(Changed::Done(_))) => {
                process.store.note(|| format!("WISH {} {to:?} done", order.id));
                lock(&self.clients).steps.push((order.id, to));
            }
            Ok(Ok(Changed::NotFound)) => self.broken(format!("order {} is gone", order.id)),
            Ok(Ok(Changed::Impossible(_))) | Err(_) => {}
            Ok(Err(error)) => self.look_at("step", &error),
        }
    }
}

/// Kills and freezes processes, and starts others in their place.
async fn disturb(scene: Arc<Scene>, mut random: Random) {
    for number in 0..random.below(5) {
        scene.rest(&mut random, 9_000).await;
        let mut fresh = Random(random.next());
        let index = {
            let processes = lock(&scene.processes);
            pick(&mut random, processes.len())
        };
        if random.below(3) == 0 {
            let frozen = lock(&scene.processes)[index].clone();
            let pause = millis(&mut random, 30_000);
            frozen.store.note(|| format!("FROZEN for {pause:?}"));
            frozen.store.freeze(pause);
            continue;
        }
        let dead = lock(&scene.processes).swap_remove(index);
        dead.store.note(|| "KILLED".to_owned());
        dead.store.kill();
        *lock(&scene.kills) += 1;
        scene.begin(format!("q{number}"), &mut fresh);
    }
}

/// The sweepers of all processes. Two may believe that it is theirs to sweep.
async fn sweep(scene: Arc<Scene>, mut random: Random) {
    loop {
        sleep(millis(&mut random, 4_000)).await;
        let process = scene.any(&mut random);
        tokio::spawn(async move {
            let Ok(mut sweeper) = process.sweeper.try_lock() else { return };
            // It tries again.
            let _ = sweeper.sweep().await;
        });
    }
}
