//! Carts: nothing acknowledged is lost, nothing counts twice, whatever runs beside it; and nothing
//! outlives its life.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use rust_decimal::Decimal;
use tokio::sync::RwLock;
use uuid::Uuid;
use vitrina::cache::Tiers;
use vitrina::cart::model::change::{RawChange, RawLine};
use vitrina::cart::model::{
    Card, Cart, CartLog, Change, Checkpoint, HandOver, KeyNote, Operation, Units, day_of,
};
use vitrina::cart::store::LogPlace;
use vitrina::cart::{CartService, CartStore};
use vitrina::clock::{Clock, ManualClock, SystemClock, Timestamp};
use vitrina::config::StoreConfig;
use vitrina::error::{Error, ErrorCode};
use vitrina::money::Money;
use vitrina::product_id::ProductId;
use vitrina::storage::{self, StoreError};

use crate::support::stores::{TestStore, drop_keyspace};
use crate::support::{Random, seed};
use vitrina::owner::Owner;

crate::on_every_store!(
    a_log_is_read_as_it_was_written,
    the_checkpoint_that_covers_more_stays,
    a_hand_over_is_recorded_once,
    the_history_is_paged,
    carts_are_listed_by_day,
    many_clients_of_one_cart,
    a_key_is_known_after_thousands_of_operations,
    merges_race_with_adds,
    a_merge_that_is_interrupted_goes_on,
    what_was_ordered_is_taken_out_wherever_it_went,
    nobody_overruns_a_cart,
);

const DAY: Duration = Duration::from_secs(24 * 3_600);

fn product(text: &str) -> ProductId {
    ProductId::parse(text).unwrap()
}

fn card() -> Card {
    let price = Money::rub(Decimal::new(99_900, 2));
    Card { name: "Товар".to_owned(), price, image_url: Some("/images/x.svg".to_owned()) }
}

fn units(text: &str, units: i64) -> Units {
    Units { product: product(text), units, card: card() }
}

fn operation(at: Timestamp, change: Change) -> Operation {
    Operation { id: Uuid::new_v4(), at, is_keyed: true, change }
}

fn owners() -> [Owner; 2] {
    let guest = Uuid::new_v4();
    // One of each kind with the same text: they are two carts.
    [Owner::Guest(guest), Owner::User(guest.simple().to_string().into())]
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(SystemClock.now()))
}

fn service(store: Arc<dyn CartStore>, clock: Arc<dyn Clock>) -> Arc<CartService> {
    CartService::new(store, clock, &Tiers::Off, "test", false)
}

fn quantities(cart: &Cart) -> BTreeMap<String, i64> {
    cart.lines.iter().map(|line| (line.product.to_string(), line.units)).collect()
}

fn raw(lines: &[(&str, i64)]) -> Vec<RawLine> {
    let line = |(product, quantity): &(&str, i64)| RawLine {
        product: (*product).to_owned(),
        quantity: *quantity,
    };
    lines.iter().map(line).collect()
}

/// Carries out a change of products that there are; what came of it.
async fn change(
    service: &Arc<CartService>,
    owner: &Owner,
    raw: &RawChange,
    key: Option<&str>,
) -> Result<(Cart, Vec<ErrorCode>), Error> {
    let cards: HashMap<_, _> = raw.products().into_iter().map(|id| (id, card())).collect();
    let changed = service.change(owner, raw, &cards, key).await?;
    Ok((changed.cart, changed.errors.iter().map(|error| error.code).collect()))
}

async fn add(service: &Arc<CartService>, owner: &Owner, product: &str, units: i64) {
    let raw = RawChange::Add(raw(&[(product, units)]));
    let (_, errors) = change(service, owner, &raw, None).await.unwrap();
    assert_eq!(errors, []);
}

async fn a_log_is_read_as_it_was_written(store: &TestStore) {
    let store = &store.store;
    let now = SystemClock.now();
    for owner in owners() {
        assert_eq!(store.cart_log(&owner).await.unwrap(), CartLog::default());
        // As many as are read at once, more, and many more.
        let mut written = Vec::new();
        for count in [1_u64, 16, 17, 40, 600] {
            let new = (written.len() as u64..count).map(|number| {
                let change = match number % 5 {
                    0 => Change::Add(vec![units("P1", 2), units("П2", 1)]),
                    1 => Change::Set(vec![units("P1", 5)], vec![product("P3")]),
                    2 => Change::Remove(vec![product("P1")]),
                    3 => Change::TakeOver { from: Uuid::new_v4(), lines: vec![units("P4", 9)] },
                    _ => Change::Clear,
                };
                operation(now.after(Duration::from_micros(number)), change)
            });
            let new: Vec<_> = new.collect();
            join_all(new.iter().map(|operation| store.add_to_cart(&owner, operation)))
                .await
                .into_iter()
                .collect::<Result<Vec<_>, _>>()
                .unwrap();
            written.extend(new);
            let read = store.cart_log(&owner).await.unwrap();
            assert_eq!(
                read.fold(now),
                CartLog { checkpoint: None, operations: written.clone() }.fold(now)
            );
            let log = CartLog { checkpoint: None, operations: written.clone() };
            assert_eq!(read.unfolded(), log.unfolded());
            for operation in &written {
                assert_eq!(read.find(operation.id), Some(operation));
            }
        }
        let log = CartLog { checkpoint: None, operations: written.clone() };
        let settled = now.after(Duration::from_secs(60) + Duration::from_micros(580));
        let (checkpoint, notes) = log.checkpoint_at(settled, true);
        assert_eq!(notes.len(), 581);
        store.put_checkpoint(&owner, &checkpoint, &notes).await.unwrap();
        let read = store.cart_log(&owner).await.unwrap();
        assert_eq!(read.checkpoint.as_ref(), Some(&checkpoint));
        let ids: BTreeSet<_> = read.operations.iter().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), 19, "those that it does not cover");
        let mut expected = log.fold(now);
        expected.touched_at = Some(settled);
        assert_eq!(read.fold(now), expected);
        for (note, operation) in notes.iter().zip(&written) {
            assert_eq!(note.id, operation.id);
            assert_eq!(store.cart_note(&owner, note.id).await.unwrap().as_ref(), Some(note));
        }
        assert_eq!(store.cart_note(&owner, written[590].id).await.unwrap(), None);
        assert_eq!(store.cart_note(&owner, Uuid::new_v4()).await.unwrap(), None);
    }
}

async fn the_checkpoint_that_covers_more_stays(store: &TestStore) {
    let store = &store.store;
    let now = SystemClock.now();
    let at = |seconds| now.after(Duration::from_secs(seconds));
    for owner in owners() {
        let mut log = CartLog::default();
        for number in 0..10 {
            let add = operation(at(number), Change::Add(vec![units("P", 1)]));
            store.add_to_cart(&owner, &add).await.unwrap();
            log.operations.push(add);
        }
        for (moment, covers) in [(65, 6), (62, 6), (67, 8), (60, 8)] {
            let (checkpoint, notes) = log.checkpoint_at(at(moment), false);
            store.put_checkpoint(&owner, &checkpoint, &notes).await.unwrap();
            let read = store.cart_log(&owner).await.unwrap();
            let units = read.checkpoint.as_ref().unwrap().cart.total_units();
            assert_eq!((units, read.fold(now).total_units()), (covers, 10), "{moment}");
        }
    }
}

async fn a_hand_over_is_recorded_once(store: &TestStore) {
    let (store, guest) = (&store.store, Uuid::new_v4());
    let (at, owner) = (SystemClock.now(), Owner::Guest(guest));
    let recorded = async || {
        let log = store.cart_log(&owner).await.unwrap();
        let hand_overs =
            log.operations.into_iter().filter_map(|operation| match operation.change {
                Change::HandOver(hand_over) => Some(hand_over),
                _ => None,
            });
        let mut hand_overs: Vec<_> = hand_overs.collect();
        hand_overs.sort_by_key(|hand_over| hand_over.number);
        hand_overs
    };
    let mut expected = Vec::new();
    for number in 0..20 {
        assert_eq!(store.cart_log(&owner).await.unwrap().next_hand_over(), number);
        let proposals = (0..4).map(|n| HandOver {
            number,
            at,
            to: format!("user {n}").into(),
            lines: vec![units("P", n + 1)],
        });
        let proposals: Vec<_> = proposals.collect();
        join_all(proposals.iter().map(async |proposal| {
            // Racing conditional writes may time out; whoever comes again changes nothing.
            while store.record_hand_over(guest, proposal).await.is_err() {}
        }))
        .await;
        let there = recorded().await;
        assert_eq!(there.len(), expected.len() + 1);
        assert_eq!(there[..expected.len()], expected, "those before are as they were");
        assert!(proposals.contains(there.last().unwrap()));
        expected = there;
    }
    // More of them than are read at once, and operations behind them.
    let add = operation(at, Change::Add(vec![units("P", 1)]));
    store.add_to_cart(&owner, &add).await.unwrap();
    let log = store.cart_log(&owner).await.unwrap();
    assert_eq!((log.operations.len(), log.find(add.id)), (21, Some(&add)));
}

async fn the_history_is_paged(store: &TestStore) {
    let store = &store.store;
    let now = SystemClock.now();
    for owner in owners() {
        let mut written: Vec<_> = (0..30)
            .map(|number| {
                // Some of them of one moment.
                let at = now.after(Duration::from_secs(number / 3));
                operation(at, Change::Add(vec![units(&format!("P{number}"), 1)]))
            })
            .collect();
        for operation in &written {
            store.add_to_cart(&owner, operation).await.unwrap();
        }
        for page in [1, 4, 100] {
            let (mut read, mut after): (Vec<Operation>, Option<LogPlace>) = (Vec::new(), None);
            loop {
                let some = store.cart_history(&owner, after, page).await.unwrap();
                let is_last = some.len() < page;
                after = some.last().map(|operation| (operation.at, operation.id));
                read.extend(some);
                if is_last {
                    break;
                }
            }
            assert!(read.is_sorted_by(|one, next| one.at >= next.at), "newest first");
            read.sort_by_key(|operation| operation.id);
            written.sort_by_key(|operation| operation.id);
            assert_eq!(read, written, "pages of {page}");
        }
    }
}

async fn carts_are_listed_by_day(store: &TestStore) {
    let store = &store.store;
    let day = day_of(SystemClock.now());
    let mut listed: Vec<_> = (0..25).flat_map(|_| owners()).collect();
    for owner in &listed {
        store.list_cart(day, 3, owner).await.unwrap();
        store.list_cart(day, 3, owner).await.unwrap();
    }
    store.list_cart(day, 4, &owners()[0]).await.unwrap();
    store.list_cart(day + 1, 3, &owners()[0]).await.unwrap();
    let (mut read, mut after): (Vec<Owner>, _) = (Vec::new(), None);
    loop {
        let some = store.listed_carts(day, 3, after.as_ref(), 7).await.unwrap();
        let Some(last) = some.last() else { break };
        after = Some(last.clone());
        read.extend(some);
    }
    read.sort();
    listed.sort();
    assert_eq!(read, listed);
}

/// What one client of a cart does, and what it must come to. The products are its own, so nobody
/// else decides; one product is everybody's, and is only added to.
struct Client {
    number: usize,
    random: Random,
    own: BTreeMap<String, i64>,
    shared: i64,
    /// What was carried out under a key, to be sent again at any time.
    sent: Vec<(RawChange, String)>,
}

impl Client {
    fn next(&mut self) -> RawChange {
        let name = format!("C{}P{}", self.number, self.random.below(3));
        let some = i64::try_from(self.random.below(5)).unwrap();
        match self.random.below(6) {
            0 | 1 => {
                *self.own.entry(name.clone()).or_default() += some + 1;
                RawChange::Add(raw(&[(&name, some + 1)]))
            }
            2 => {
                self.own.insert(name.clone(), some);
                RawChange::Set(raw(&[(&name, some)]))
            }
            3 => {
                self.own.remove(&name);
                RawChange::Remove(vec![name])
            }
            _ => {
                self.shared += some + 1;
                // Two lines of one product add up.
                RawChange::Add(raw(&[("S", 1), ("S", some)][..if some > 0 { 2 } else { 1 }]))
            }
        }
    }
}

async fn many_clients_of_one_cart(store: &TestStore) {
    let mut random = Random(seed());
    for round in 0..4 {
        let clock = clock();
        let services = [0, 1].map(|_| service(store.store.clone(), clock.clone()));
        let owner = &owners()[round % 2];
        // The clock is put forward only while nothing is under way: no operation takes a minute.
        let gate = &RwLock::new(());
        let clients = (0..4).map(|number| {
            let random = Random(random.next());
            Client { number, random, own: BTreeMap::new(), shared: 0, sent: Vec::new() }
        });
        let run = async |mut client: Client| {
            for step in 0..25 {
                let service = &services[usize::try_from(client.random.below(2)).unwrap()];
                let (raw, mode) = (client.next(), client.random.below(4));
                let key = format!("{} {step}", client.number);
                let key = (mode > 0).then_some(key.as_str());
                {
                    let _open = gate.read().await;
                    let deliver = |service| change(service, owner, &raw, key);
                    // Sent twice at once, through two instances.
                    let twice = (mode == 1).then(|| join_all(services.iter().map(deliver)));
                    let told = match twice {
                        Some(twice) => twice.await,
                        None => vec![deliver(service).await],
                    };
                    for told in told {
                        assert_eq!(told.unwrap().1, [], "round {round}");
                    }
                    if !client.sent.is_empty() && client.random.below(3) == 0 {
                        let which = client.random.below(client.sent.len() as u64);
                        let (raw, key) = &client.sent[usize::try_from(which).unwrap()];
                        let again = change(service, owner, raw, Some(key)).await.unwrap();
                        assert_eq!(again.1, [], "round {round}: {key} again");
                    }
                }
                if let Some(key) = key {
                    client.sent.push((raw, key.to_owned()));
                }
                if client.random.below(4) == 0 {
                    let _closed = gate.write().await;
                    let seconds =
                        [1, 45, 61, 7_200][usize::try_from(client.random.below(4)).unwrap()];
                    clock.advance(Duration::from_secs(seconds));
                }
            }
            client
        };
        let clients = join_all(clients.map(run)).await;
        let mut expected = BTreeMap::new();
        for client in &clients {
            expected.extend(client.own.clone().into_iter().filter(|(_, units)| *units > 0));
            *expected.entry("S".to_owned()).or_default() += client.shared;
        }
        expected.retain(|_, units| *units > 0);
        for service in &services {
            assert_eq!(quantities(&service.cart(owner).await.unwrap()), expected, "round {round}");
        }
        // The same from a checkpoint of everything.
        clock.advance(Duration::from_secs(120));
        let log = store.store.cart_log(owner).await.unwrap();
        let (checkpoint, notes) = log.checkpoint_at(clock.now(), false);
        store.store.put_checkpoint(owner, &checkpoint, &notes).await.unwrap();
        let log = store.store.cart_log(owner).await.unwrap();
        assert_eq!(log.unfolded(), 0);
        assert_eq!(quantities(&log.fold(clock.now())), expected, "round {round}");
    }
}

async fn a_key_is_known_after_thousands_of_operations(store: &TestStore) {
    let clock = clock();
    let service = service(store.store.clone(), clock.clone());
    let owner = &owners()[1];
    let first = RawChange::Add(raw(&[("P0", 1)]));
    let (_, errors) = change(&service, owner, &first, Some("the first")).await.unwrap();
    assert_eq!(errors, []);
    for number in 0..300_u64 {
        clock.advance(Duration::from_secs(20));
        let name = format!("P{}", number % 7);
        add(&service, owner, &name, 1).await;
    }
    let before = service.cart(owner).await.unwrap();
    let log = store.store.cart_log(owner).await.unwrap();
    assert!(log.checkpoint.is_some() && log.unfolded() < 100, "{} unfolded", log.unfolded());
    assert_eq!(log.find(vitrina::cart::model::id_of_key("the first")), None);
    let again = change(&service, owner, &first, Some("the first")).await.unwrap();
    assert_eq!(again, (before.clone(), vec![]));
    let other = RawChange::Add(raw(&[("P0", 2)]));
    let reused = change(&service, owner, &other, Some("the first")).await.unwrap();
    assert_eq!(reused, (before, vec![ErrorCode::KeyReused]));
}

async fn merges_race_with_adds(store: &TestStore) {
    let mut random = Random(seed());
    for round in 0..4 {
        let clock = Arc::new(SystemClock);
        let services = [0, 1].map(|_| service(store.store.clone(), clock.clone()));
        let (guest, user): (_, Arc<str>) = (Uuid::new_v4(), format!("user {round}").into());
        let (from, to) = (&Owner::Guest(guest), &Owner::User(user.clone()));
        add(&services[0], to, "P0", 5).await;
        let adds = (0..24).map(|n| (format!("P{}", random.below(4)), n % 3 + 1));
        let adds: Vec<(String, i64)> = adds.collect();
        let adding = adds.chunks(8).enumerate().map(|(number, adds)| {
            let service = &services[number % 2];
            async move {
                for (product, units) in adds {
                    add(service, from, product, *units).await;
                }
            }
        });
        let merging = (0..4).map(|number| {
            let (service, user) = (&services[number % 2], user.clone());
            async move {
                for _ in 0..3 {
                    // Racing conditional writes may time out; it is asked for again.
                    while service.merge(guest, user.clone()).await.is_err() {}
                }
            }
        });
        tokio::join!(join_all(adding), join_all(merging));
        while services[0].merge(guest, user.clone()).await.is_err() {}
        let mut expected = BTreeMap::from([("P0".to_owned(), 5)]);
        for (product, units) in adds {
            *expected.entry(product).or_default() += units;
        }
        let merged = services[1].cart(to).await.unwrap();
        assert_eq!(quantities(&merged), expected, "round {round}");
        assert_eq!(quantities(&services[1].cart(from).await.unwrap()), BTreeMap::new());
    }
}

/// A store that fails once: at the n-th call, before it does anything or after it has done it.
struct FailsOnce {
    store: Arc<dyn CartStore>,
    calls: AtomicI64,
    has_effect: bool,
}

impl FailsOnce {
    /// Whether this is the call.
    fn is_it(&self) -> bool {
        self.calls.fetch_sub(1, Ordering::SeqCst) == 0
    }

    fn failure<T>() -> Result<T, StoreError> {
        Err(StoreError::Timeout { call: "test", cause: "no reply".to_owned() })
    }
}

macro_rules! fails_once {
    ($(fn $call:ident($($name:ident: $argument:ty),*) -> $answer:ty;)+) => {
        #[async_trait]
        impl CartStore for FailsOnce {
            $(async fn $call(&self, $($name: $argument),*) -> Result<$answer, StoreError> {
                let is_it = self.is_it();
                if is_it && !self.has_effect {
                    return Self::failure();
                }
                let answer = self.store.$call($($name),*).await?;
                if is_it { Self::failure() } else { Ok(answer) }
            })+
        }
    };
}

fails_once! {
    fn cart_log(owner: &Owner) -> CartLog;
    fn cart_note(owner: &Owner, id: Uuid) -> Option<KeyNote>;
    fn add_to_cart(owner: &Owner, operation: &Operation) -> ();
    fn put_checkpoint(owner: &Owner, checkpoint: &Checkpoint, notes: &[KeyNote]) -> ();
    fn record_hand_over(guest: Uuid, hand_over: &HandOver) -> ();
    fn cart_history(owner: &Owner, after: Option<LogPlace>, limit: usize) -> Vec<Operation>;
    fn list_cart(day: i64, shard: i8, owner: &Owner) -> ();
    fn listed_carts(day: i64, shard: i8, after: Option<&Owner>, limit: usize) -> Vec<Owner>;
}

async fn a_merge_that_is_interrupted_goes_on(store: &TestStore) {
    let clock = Arc::new(SystemClock);
    let sound = service(store.store.clone(), clock.clone());
    let mut failures = 0;
    for call in 0.. {
        let mut has_failed = false;
        for has_effect in [false, true] {
            let user: Arc<str> = format!("user {call} {has_effect}").into();
            let (guest, to) = (Uuid::new_v4(), Owner::User(user.clone()));
            add(&sound, &Owner::Guest(guest), "P1", 2).await;
            add(&sound, &to, "P1", 1).await;
            let calls = AtomicI64::new(call);
            let failing = Arc::new(FailsOnce { store: store.store.clone(), calls, has_effect });
            let merged = service(failing, clock.clone()).merge(guest, user.clone()).await;
            has_failed |= merged.is_err();
            failures += u32::from(merged.is_err());
            let from = Owner::Guest(guest);
            let mut expected = BTreeMap::from([("P1".to_owned(), 3)]);
            if call % 3 == 1 {
                // The guest goes on meanwhile.
                add(&sound, &from, "P2", 1).await;
                expected.insert("P2".to_owned(), 1);
            } else if call % 3 == 2 {
                // The guest has seen that the merge failed, and takes something out: if it was
                // still there, it stays out.
                let was_there = !sound.cart(&from).await.unwrap().lines.is_empty();
                let out = RawChange::Remove(vec!["P1".to_owned()]);
                change(&sound, &from, &out, None).await.unwrap();
                expected.insert("P1".to_owned(), if was_there { 1 } else { 3 });
            }
            // Asked for again, as often as one likes.
            sound.merge(guest, user.clone()).await.unwrap();
            let cart = sound.merge(guest, user.clone()).await.unwrap();
            assert_eq!(quantities(&cart), expected, "call {call}, with effect: {has_effect}");
            let left = sound.cart(&from).await.unwrap();
            assert_eq!((left.lines.len(), left.on_their_way.len()), (0, 0));
        }
        if !has_failed {
            // There are no more calls than this.
            assert!(failures > 10, "{failures}");
            return;
        }
    }
}

/// A guest orders, and logs in before or after the cart was told of the order.
async fn what_was_ordered_is_taken_out_wherever_it_went(store: &TestStore) {
    let service = service(store.store.clone(), Arc::new(SystemClock));
    for is_told_late in [false, true] {
        let user: Arc<str> = format!("late {is_told_late}").into();
        let (guest, to) = (Uuid::new_v4(), Owner::User(user.clone()));
        let from = Owner::Guest(guest);
        add(&service, &from, "P1", 2).await;
        add(&service, &to, "P1", 1).await;
        let (id, order) = (Uuid::new_v4(), Uuid::new_v4());
        let (since, taken) = (SystemClock.now(), vec![(product("P1"), 2)]);
        let tell = || service.ordered(&from, id, order, since, taken.clone());
        if !is_told_late {
            tell().await.unwrap();
        }
        // What came into the cart after it was made an order of goes on to the customer.
        add(&service, &from, "P2", 3).await;
        service.merge(guest, user.clone()).await.unwrap();
        for _ in 0..2 {
            tell().await.unwrap();
            let cart = service.merge(guest, user.clone()).await.unwrap();
            let expected = BTreeMap::from([("P1".to_owned(), 1), ("P2".to_owned(), 3)]);
            assert_eq!(quantities(&cart), expected, "told late: {is_told_late}");
        }
    }
}

async fn nobody_overruns_a_cart(store: &TestStore) {
    let service = service(store.store.clone(), Arc::new(SystemClock));
    let owner = &owners()[0];
    // Of thirty at once, each asking for 100 of the same, nine fit.
    let asks = (0..30).map(|_| async {
        let ask = RawChange::Add(raw(&[("P", 100)]));
        change(&service, owner, &ask, None).await.unwrap().1
    });
    let told = join_all(asks).await;
    assert_eq!(told.iter().filter(|errors| errors.is_empty()).count(), 9);
    let refused = told.iter().filter(|errors| **errors == [ErrorCode::QuantityLimit]).count();
    assert_eq!(refused, 21);
    assert_eq!(service.cart(owner).await.unwrap().total_units(), 900);
}

/// Life times, by a clock that the test puts forward.
async fn a_cart_lives_for_thirty_days_after_the_last_touch(
    store: &Arc<dyn CartStore>,
    clock: &Arc<ManualClock>,
) {
    let service = service(store.clone(), clock.clone());
    for (touch, owner) in owners().into_iter().enumerate() {
        let untouched = Owner::Guest(Uuid::new_v4());
        let begun = clock.now();
        add(&service, &owner, "P1", 1).await;
        add(&service, &untouched, "P1", 1).await;
        clock.advance(DAY / 2);
        add(&service, &owner, "P2", 2).await;
        clock.advance(28 * DAY + DAY / 2);
        let mut whole = BTreeMap::from([("P1".to_owned(), 1), ("P2".to_owned(), 2)]);
        if touch == 0 {
            // To change it is to touch it.
            add(&service, &owner, "P3", 1).await;
            whole.insert("P3".to_owned(), 1);
        } else {
            assert_eq!(quantities(&service.cart(&owner).await.unwrap()), whole);
            // That is written down beside the answer.
            let is_touched = async || {
                let cart = store.cart_log(&owner).await.unwrap().fold(clock.now());
                cart.touched_at >= Some(begun.after(29 * DAY))
            };
            while !is_touched().await {
                tokio::task::yield_now().await;
            }
        }
        clock.advance(2 * DAY);
        assert_eq!(quantities(&service.cart(&owner).await.unwrap()), whole, "day 31");
        assert_eq!(service.cart(&untouched).await.unwrap().lines, [], "it was not touched");
        add(&service, &untouched, "P9", 1).await;
        let anew = service.cart(&untouched).await.unwrap();
        assert_eq!(quantities(&anew), BTreeMap::from([("P9".to_owned(), 1)]));
        clock.advance(31 * DAY);
        assert_eq!(service.cart(&owner).await.unwrap(), Cart::default());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cart_lives_for_thirty_days_embedded() {
    let clock = clock();
    let store = TestStore::embedded_with(clock.clone()).await;
    let carts: Arc<dyn CartStore> = store.store.clone();
    a_cart_lives_for_thirty_days_after_the_last_touch(&carts, &clock).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cart_lives_for_thirty_days_cassandra() {
    let Some(store) = TestStore::cassandra().await else { return };
    let clock = clock();
    let carts: Arc<dyn CartStore> = store.store.clone();
    a_cart_lives_for_thirty_days_after_the_last_touch(&carts, &clock).await;

    // Cassandra itself keeps what a touched cart is made of for longer than the cart lives.
    let clock = self::clock();
    let service = service(carts.clone(), clock.clone());
    let owner = Owner::User("me".into());
    add(&service, &owner, "P1", 1).await;
    clock.advance(2 * DAY);
    add(&service, &owner, "P2", 1).await;
    let StoreConfig::Cassandra(config) = &store.config else { unreachable!() };
    let session = storage::cassandra::connect(config).await.unwrap();
    let cql = format!(
        "SELECT part, at, TTL(body) FROM \"{}\".carts_by_user WHERE user_id = 'me'",
        config.keyspace
    );
    let rows = session.query_unpaged(cql, ()).await.unwrap().into_rows_result().unwrap();
    let rows: Vec<(i8, i64, Option<i32>)> = rows.rows().unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(rows.iter().filter(|(part, ..)| *part == 0).count(), 1, "{rows:?}");
    let covered = carts.cart_log(&owner).await.unwrap().checkpoint.unwrap().until.micros();
    let needed = rows.iter().filter(|(part, at, _)| *part == 0 || (*part == 2 && *at > covered));
    let thirty_days = i32::try_from((30 * DAY).as_secs()).unwrap();
    for (part, at, life) in needed {
        assert!(life.is_some_and(|life| life > thirty_days), "{part} {at} {life:?}");
    }
    drop_keyspace(&store.config).await;
}
