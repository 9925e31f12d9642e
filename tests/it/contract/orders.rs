//! Orders: placed once, changed from one version to the next, and in every list as they stand.

mod buyers;
mod due;
mod history;
mod records;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use rust_decimal::Decimal;
use uuid::Uuid;
use vitrina::cache::Tiers;
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::config::StoreConfig;
use vitrina::geo_zone::GeoZone;
use vitrina::money::Money;
use vitrina::orders::OrderService;
use vitrina::orders::model::{
    Actor, Address, MAX_EVENTS, Month, Order, OrderEvent, OrderLine, OrderStatus, Step, Stepped,
    UnitsStand, day_of, event_id, part_of,
};
use vitrina::orders::store::Slice;
use vitrina::owner::Owner;
use vitrina::product_id::ProductId;
use vitrina::storage::cassandra::connect;
use vitrina::storage::{Due, Store, Task};

use crate::support::stores::TestStore;

crate::on_every_store!(
    placing_an_order_again_changes_nothing_also_after_it_has_changed,
    of_several_who_change_an_order_at_once_one_does_and_lists_and_events_follow,
    a_moved_order_is_in_the_history_of_its_new_owner_only,
    what_is_noted_beside_the_changes_is_told_once_and_newest_first,
    a_guest_who_has_become_a_customer_is_known,
    what_the_lists_of_an_order_lack_is_found_and_mended,
    a_scan_finds_every_order,
);

pub const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Writes of a test that are under way at once.
const AT_ONCE: usize = 16;

fn new_user() -> Owner {
    Owner::User(format!("user {}", Uuid::new_v4()).into())
}

/// So long before a moment.
pub fn before(at: Timestamp, by: Duration) -> Timestamp {
    at.before(by)
}

/// An order as it is placed at a moment, in the part of a year.
pub fn order_at(owner: &Owner, at: Timestamp) -> Order {
    let at = at.to_millis_precision();
    let millis = u64::try_from(at.millis()).unwrap();
    let nanos = u32::try_from(millis % 1_000 * 1_000_000).unwrap();
    let seed = uuid::Timestamp::from_unix(uuid::NoContext, millis / 1_000, nanos);
    let price = Money::rub(Decimal::new(99_900, 2));
    let line = |id: &str, units| OrderLine {
        product: ProductId::parse(id).unwrap(),
        name: format!("Товар {id}"),
        units,
        price,
    };
    let mut order = Order {
        id: Uuid::new_v7(seed),
        owner: owner.clone(),
        status: OrderStatus::Created,
        units: UnitsStand::Held,
        zone: GeoZone::parse("Тула").unwrap(),
        lines: vec![line("P1", 2), line("П2", 1)],
        total: price.times(3),
        address: Address {
            city: "Тула".to_owned(),
            street: "Ленина, 1".to_owned(),
            postal_code: Some("300000".to_owned()),
            recipient: None,
            phone: None,
        },
        payment_method: "card".to_owned(),
        created_at: at,
        updated_at: at,
        payment_due_at: at.after(DAY),
        tracking_number: None,
        payment: None,
        part: part_of(&[], at),
        changes: Vec::new(),
        version: 0,
    };
    order.note_creation();
    order
}

fn due_of(order: &Order) -> Due {
    Due { at: order.payment_due_at, task: Task::Payment(order.id) }
}

async fn place(store: &dyn Store, order: &Order) {
    store.place_order(order, &due_of(order)).await.unwrap();
}

pub async fn place_all(store: &dyn Store, orders: &[Order]) {
    stream::iter(orders).for_each_concurrent(AT_ONCE, |order| place(store, order)).await;
}

/// What becomes of an order by a step, with a note.
fn stepped(order: &Order, to: OrderStatus, note: &str) -> Order {
    let step =
        Step { note: Some(note.to_owned()), ..Step::new(to, Actor::Staff("manager-1".to_owned())) };
    match order.step(&step, SystemClock.now()) {
        Stepped::Changed(after) => *after,
        other => panic!("{:?} to {to:?}: {other:?}", order.status),
    }
}

/// Changes an order, which nobody else does.
async fn change(store: &dyn Store, before: &Order, after: &Order) {
    // A reply may be lost; whoever comes again finds what is there.
    while !store.change_order(before, after, &due_of(before)).await.unwrap_or(false) {
        if store.settled_order(before.id).await.unwrap().as_ref() == Some(after) {
            store.mend_order(after).await.unwrap();
            return;
        }
    }
}

fn all(limit: usize) -> Slice {
    Slice { after: None, before: None, from_end: false, limit }
}

fn service(store: &TestStore) -> Arc<OrderService> {
    let (orders, clock) = (store.store.clone(), Arc::new(SystemClock));
    OrderService::new(orders, clock, &Tiers::Off, "test", false)
}

/// An order as everything that shows orders shows it, newest event first.
async fn assert_everywhere(store: &dyn Store, order: &Order) {
    assert_eq!(store.order(order.id).await.unwrap().as_ref(), Some(order));
    assert_eq!(store.settled_order(order.id).await.unwrap().as_ref(), Some(order));
    assert!(store.history_parts(&order.owner).await.unwrap().contains(&order.part));
    let history = store.orders_of(&order.owner, order.part, all(100)).await.unwrap();
    assert_eq!(history.iter().filter(|there| there.id == order.id).collect::<Vec<_>>(), [order]);
    let (day, shard) = (day_of(order.created_at), order.day_shard());
    let listed = store.orders_on(day, shard, None, 100).await.unwrap();
    assert_eq!(listed.iter().filter(|there| there.id == order.id).collect::<Vec<_>>(), [order]);
    let events = store.order_events(order.id, MAX_EVENTS).await.unwrap();
    assert_eq!(events, order.changes.iter().rev().cloned().collect::<Vec<_>>());
    assert_eq!(store.faults_of_order(order).await.unwrap(), [""; 0]);
}

async fn placing_an_order_again_changes_nothing_also_after_it_has_changed(store: &TestStore) {
    let store = store.store.as_ref();
    for owner in [new_user(), Owner::Guest(Uuid::new_v4())] {
        let order = order_at(&owner, SystemClock.now());
        assert_eq!(store.order(order.id).await.unwrap(), None);
        assert_eq!(store.history_parts(&owner).await.unwrap(), []);
        for _ in 0..3 {
            place(store, &order).await;
            assert_everywhere(store, &order).await;
        }
        join_all((0..4).map(|_| place(store, &order))).await;
        assert_everywhere(store, &order).await;
        let due = due_of(&order);
        let found = store.due(due.shard(), (due.at, due.at), 10).await.unwrap();
        assert_eq!(found.due, std::slice::from_ref(&due));
        // As it was placed, by somebody who comes late: how it stands stays.
        let mut there = order.clone();
        for to in [OrderStatus::Paid, OrderStatus::Processing, OrderStatus::Cancelled] {
            let after = stepped(&there, to, "a note");
            change(store, &there, &after).await;
            assert_everywhere(store, &after).await;
            place(store, &order).await;
            assert_everywhere(store, &after).await;
            there = after;
        }
        let done = there.units_done().unwrap();
        change(store, &there, &done).await;
        place(store, &order).await;
        assert_everywhere(store, &done).await;
    }
}

async fn of_several_who_change_an_order_at_once_one_does_and_lists_and_events_follow(
    store: &TestStore,
) {
    let store = store.store.as_ref();
    let mut order = order_at(&new_user(), SystemClock.now());
    place(store, &order).await;
    let unknown = order_at(&order.owner, SystemClock.now());
    let paid = stepped(&unknown, OrderStatus::Paid, "");
    assert!(!store.change_order(&unknown, &paid, &due_of(&unknown)).await.unwrap());
    assert_eq!(store.order(unknown.id).await.unwrap(), None, "what is not there is not changed");
    let mut first = None;
    for to in
        [OrderStatus::Paid, OrderStatus::Processing, OrderStatus::Shipped, OrderStatus::Delivered]
    {
        let proposals: Vec<_> = (0..6).map(|n| stepped(&order, to, &format!("by {n}"))).collect();
        let due = due_of(&order);
        let changes = proposals.iter().map(|after| store.change_order(&order, after, &due));
        let told = join_all(changes).await;
        let there = store.settled_order(order.id).await.unwrap().unwrap();
        let winners: Vec<_> = proposals
            .iter()
            .zip(&told)
            .filter(|(_, told)| matches!(told, Ok(true)))
            .map(|(after, _)| after)
            .collect();
        assert!(winners.len() <= 1, "{told:?}");
        assert!(winners.iter().all(|winner| **winner == there), "{told:?}");
        if told.iter().any(Result::is_err) {
            // A reply was lost: what it came to may not have been copied, or not have happened.
            if there == order {
                change(store, &order, &proposals[0]).await;
            }
            let there = store.settled_order(order.id).await.unwrap().unwrap();
            store.mend_order(&there).await.unwrap();
        } else {
            assert_eq!(winners.len(), 1, "{told:?}");
        }
        let there = store.order(order.id).await.unwrap().unwrap();
        assert!(proposals.contains(&there));
        assert_everywhere(store, &there).await;
        // One that is stale changes nothing, and what it had marked is shown as it stands.
        let stale = first.get_or_insert((order.clone(), there.clone())).clone();
        assert!(!store.change_order(&stale.0, &stale.1, &due).await.unwrap());
        assert!(!store.change_order(&order, &proposals[1], &due).await.unwrap());
        assert_everywhere(store, &there).await;
        // A late copy of what was before takes nobody's place.
        store.mend_order(&there).await.unwrap();
        assert_everywhere(store, &there).await;
        order = there;
    }
}

async fn a_moved_order_is_in_the_history_of_its_new_owner_only(store: &TestStore) {
    let store = store.store.as_ref();
    let (guest, user) = (Owner::Guest(Uuid::new_v4()), new_user());
    let now = SystemClock.now();
    let orders: Vec<_> = (0..5).map(|n| order_at(&guest, before(now, DAY * n))).collect();
    place_all(store, &orders).await;
    let own = order_at(&user, now);
    place(store, &own).await;
    for order in &orders {
        let part = part_of(&store.history_parts(&user).await.unwrap(), order.created_at);
        let moved = order.moved_to(user.clone(), part, SystemClock.now());
        change(store, order, &moved).await;
        assert_everywhere(store, &moved).await;
        // Whoever still has it as the guest's cannot bring it back.
        let late = stepped(order, OrderStatus::Cancelled, "late");
        assert!(!store.change_order(order, &late, &due_of(order)).await.unwrap());
        place(store, order).await;
        assert_everywhere(store, &moved).await;
        let left = store.orders_of(&guest, order.part, all(100)).await.unwrap();
        assert!(!left.iter().any(|there| there.id == order.id), "{left:?}");
    }
    for part in store.history_parts(&guest).await.unwrap() {
        assert_eq!(store.orders_of(&guest, part, all(100)).await.unwrap(), []);
    }
    assert_everywhere(store, &own).await;
}

async fn what_is_noted_beside_the_changes_is_told_once_and_newest_first(store: &TestStore) {
    let (orders, store) = (service(store), store.store.as_ref());
    let order = order_at(&new_user(), SystemClock.now());
    let event = |n: u64| OrderEvent {
        id: event_id(order.id, format!("payment {n}").as_bytes()),
        at: order.created_at.after(Duration::from_millis(n + 1)),
        kind: "payment failed".to_owned(),
        actor: Actor::Payment,
        note: n.is_multiple_of(2).then(|| format!("Заметка {n}")),
    };
    // Before the order is there, and more than once.
    for n in [0, 0, 1, 0, 2] {
        store.add_order_event(order.id, &event(n)).await.unwrap();
    }
    let told = store.order_events(order.id, MAX_EVENTS).await.unwrap();
    assert_eq!(told, [event(2), event(1), event(0)]);
    place(store, &order).await;
    let told = store.order_events(order.id, MAX_EVENTS).await.unwrap();
    assert_eq!(told, [event(2), event(1), event(0), order.changes[0].clone()]);
    assert_eq!(store.order_events(order.id, 2).await.unwrap(), [event(2), event(1)]);
    let timeline = orders.timeline(&order).await.unwrap();
    assert_eq!(timeline, [order.changes[0].clone(), event(0), event(1), event(2)]);
    // What the order knows is told, whether or not it was copied.
    let paid = stepped(&order, OrderStatus::Paid, "");
    let timeline = orders.timeline(&paid).await.unwrap();
    assert_eq!(timeline.iter().filter(|event| event.kind == "paid").count(), 1);
    assert_eq!(timeline.len(), 5);
    // Noted by two at once, each by its own clock: the first is told.
    let late = OrderEvent { at: event(2).at.after(Duration::from_millis(1)), ..event(2) };
    store.add_order_event(order.id, &late).await.unwrap();
    let timeline = orders.timeline(&order).await.unwrap();
    assert_eq!(timeline, [order.changes[0].clone(), event(0), event(1), event(2)]);
    let others = order_at(&order.owner, SystemClock.now());
    assert_eq!(store.order_events(others.id, MAX_EVENTS).await.unwrap(), []);
}

async fn a_guest_who_has_become_a_customer_is_known(store: &TestStore) {
    let store = store.store.as_ref();
    let (guest, other) = (Uuid::new_v4(), Uuid::new_v4());
    assert_eq!(store.claimant(guest).await.unwrap(), None);
    for _ in 0..2 {
        store.claim_guest(guest, "Покупатель: 1").await.unwrap();
        assert_eq!(store.claimant(guest).await.unwrap().as_deref(), Some("Покупатель: 1"));
    }
    assert_eq!(store.claimant(other).await.unwrap(), None);
}

/// What somebody who dies may leave of an order: the lists and events do not know of it, or know of
/// an older version, or say that it is being changed.
async fn what_the_lists_of_an_order_lack_is_found_and_mended(store: &TestStore) {
    let (config, store) = (&store.config, store.store.as_ref());
    let order = order_at(&new_user(), SystemClock.now());
    let lacking = ["event", "part of the history", "history", "period"];
    assert_eq!(store.faults_of_order(&order).await.unwrap(), lacking);
    // The embedded store writes all of an order or nothing; there is no way to damage one.
    let StoreConfig::Cassandra(config) = config else {
        store.mend_order(&order).await.unwrap();
        assert_eq!(store.order(order.id).await.unwrap(), None, "nothing comes of nothing");
        place(store, &order).await;
        return assert_everywhere(store, &order).await;
    };
    let session = connect(config).await.unwrap();
    let keyspace = &config.keyspace;
    let set_state = async |order: &Order| {
        let set = format!(
            "INSERT INTO \"{keyspace}\".order_state_by_id (order_id, user_id, status, version, \
             body) VALUES (?, ?, ?, ?, ?)"
        );
        let body = serde_json::to_string(order).unwrap();
        let (owner, status) = (order.owner.to_string(), order.status.as_str());
        let values = (order.id, owner, status, order.version, body);
        session.query_unpaged(set, values).await.unwrap();
    };
    set_state(&order).await;
    assert_eq!(store.faults_of_order(&order).await.unwrap(), lacking);
    store.mend_order(&order).await.unwrap();
    assert_everywhere(store, &order).await;

    // Changed, and died before the lists were told.
    let paid = stepped(&order, OrderStatus::Paid, "");
    set_state(&paid).await;
    assert_eq!(store.faults_of_order(&paid).await.unwrap(), ["event", "history", "period"]);
    store.mend_order(&paid).await.unwrap();
    assert_everywhere(store, &paid).await;
    store.mend_order(&order).await.unwrap();
    assert_everywhere(store, &paid).await;

    // Marked, and died before it was changed: a list looks at the order itself, and shows it.
    let time = paid.created_at.micros() + paid.version * 2 + 1;
    let created = scylla::value::CqlTimestamp(paid.created_at.millis());
    let mark = format!(
        "UPDATE \"{keyspace}\".orders_by_user USING TIMESTAMP ? SET changing = true \
         WHERE user_id = ? AND month = ? AND created_at = ? AND order_id = ?"
    );
    let values = (time, paid.owner.to_string(), paid.part.number(), created, paid.id);
    session.query_unpaged(mark, values).await.unwrap();
    let mark = format!(
        "UPDATE \"{keyspace}\".orders_by_period USING TIMESTAMP ? SET changing = true \
         WHERE day = ? AND shard = ? AND created_at = ? AND order_id = ?"
    );
    let values = (time, day_of(paid.created_at), paid.day_shard(), created, paid.id);
    session.query_unpaged(mark, values).await.unwrap();
    // The copy is the order, so there is nothing to mend; and the next change takes the mark away.
    assert_everywhere(store, &paid).await;
    let packed = stepped(&paid, OrderStatus::Processing, "");
    set_state(&packed).await;
    assert_eq!(
        store.orders_of(&packed.owner, packed.part, all(9)).await.unwrap(),
        std::slice::from_ref(&packed)
    );
    assert_eq!(store.faults_of_order(&packed).await.unwrap(), ["event", "history", "period"]);
    store.mend_order(&packed).await.unwrap();
    assert_everywhere(store, &packed).await;
}

async fn a_scan_finds_every_order(store: &TestStore) {
    let store = store.store.as_ref();
    assert!(store.scan_orders(None).await.unwrap().next.is_none());
    let owners = [new_user(), Owner::Guest(Uuid::new_v4())];
    let now = SystemClock.now();
    // More than one step has.
    let orders =
        (0..520_u32).map(|n| order_at(&owners[n as usize % 2], before(now, DAY * (n % 300))));
    let mut orders: Vec<_> = orders.collect();
    place_all(store, &orders).await;
    let (mut found, mut after, mut steps) = (Vec::new(), None, 0);
    loop {
        let step = store.scan_orders(after).await.unwrap();
        found.extend(step.orders);
        after = step.next;
        steps += 1;
        if after.is_none() {
            break;
        }
    }
    assert!(steps > 1);
    found.sort_by_key(|order| order.id);
    orders.sort_by_key(|order| order.id);
    assert_eq!(found, orders);
}

/// The part of a history is kept as long as the newest order in it, whatever is changed last.
#[tokio::test]
async fn a_history_shows_its_orders_as_long_as_they_are_kept() {
    use vitrina::clock::ManualClock;
    let january = Month::from_number(202_601).start().after(4 * DAY);
    let clock = Arc::new(ManualClock::new(january));
    let store = TestStore::embedded_with(clock.clone()).await;
    let owner = new_user();
    let old = order_at(&owner, clock.now());
    place(store.store.as_ref(), &old).await;
    clock.advance(300 * DAY);
    let new = order_at(&owner, clock.now());
    place(store.store.as_ref(), &new).await;
    assert_eq!(new.part, old.part);
    // The old one is delivered at last.
    let paid = stepped(&old, OrderStatus::Paid, "");
    change(store.store.as_ref(), &old, &paid).await;
    clock.advance(101 * DAY);
    let orders = OrderService::new(store.store.clone(), clock, &Tiers::Off, "test", false);
    assert_eq!(orders.order(old.id).await.unwrap(), None, "kept for 400 days");
    assert_eq!(orders.order(new.id).await.unwrap().as_ref(), Some(&new));
    let query = vitrina::orders::service::HistoryQuery { limit: 10, ..Default::default() };
    let page = orders.history(&owner, &query).await.unwrap();
    assert_eq!(page.orders, [new]);
}
