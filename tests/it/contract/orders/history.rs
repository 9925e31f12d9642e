//! Histories and the orders of a day, page by page, against a sorted list as the model.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use uuid::Uuid;
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::geo_zone::GeoZone;
use vitrina::orders::OrderService;
use vitrina::orders::model::{DAY_SHARDS, Month, Order, OrderPlace, OrderStatus, day_of, part_of};
use vitrina::orders::service::{DayQuery, HistoryQuery, OrderPage};
use vitrina::orders::store::Slice;
use vitrina::owner::Owner;

use super::{AT_ONCE, DAY, before, change, new_user, order_at, place, place_all, service, stepped};
use crate::support::stores::TestStore;
use crate::support::{Random, seed};

crate::on_every_store!(
    orders_of_one_millisecond_have_one_order_in_both_directions,
    a_history_read_page_by_page_has_every_order_once_in_order,
    a_history_that_grows_and_changes_meanwhile_loses_nothing_and_repeats_nothing,
    the_orders_of_a_day_are_one_list_whatever_is_asked_of_them,
);

/// Newest first.
fn sort(orders: &mut [Order]) {
    orders.sort_by_key(|order| std::cmp::Reverse(order.place()));
}

fn ids(orders: &[Order]) -> Vec<Uuid> {
    orders.iter().map(|order| order.id).collect()
}

async fn orders_of_one_millisecond_have_one_order_in_both_directions(store: &TestStore) {
    let (orders, store) = (service(store), store.store.as_ref());
    let now = SystemClock.now().to_millis_precision();
    for owner in [new_user(), Owner::Guest(Uuid::new_v4())] {
        let mut placed: Vec<_> = (0..40).map(|_| order_at(&owner, now)).collect();
        // And one on either side of them.
        placed.push(order_at(&owner, before(now, Duration::from_millis(1))));
        placed.push(order_at(&owner, now.after(Duration::from_millis(1))));
        place_all(store, &placed).await;
        sort(&mut placed);
        for limit in [1, 7, 41, 42, 100] {
            for from_end in [false, true] {
                let (mut read, mut place): (Vec<Order>, Option<OrderPlace>) = (Vec::new(), None);
                loop {
                    let (after, before) = if from_end { (None, place) } else { (place, None) };
                    let slice = Slice { after, before, from_end, limit };
                    let part = placed[0].part;
                    let some = store.orders_of(&owner, part, slice).await.unwrap();
                    place = some.last().map(Order::place).or(place);
                    let is_last = some.len() < limit;
                    read.extend(some);
                    if is_last {
                        break;
                    }
                }
                if from_end {
                    read.reverse();
                }
                assert_eq!(ids(&read), ids(&placed), "{limit}, from the end: {from_end}");
            }
        }
        // The moment itself as a bound: `from` has all of them, `to` none.
        let query = HistoryQuery { from: Some(now), limit: 100, ..HistoryQuery::default() };
        assert_eq!(ids(&orders.history(&owner, &query).await.unwrap().orders), ids(&placed[..41]));
        let query = HistoryQuery { to: Some(now), limit: 100, ..HistoryQuery::default() };
        assert_eq!(ids(&orders.history(&owner, &query).await.unwrap().orders), ids(&placed[41..]));
    }
}

/// Reads a list to its end, page by page; `check` looks at each page.
async fn walk(
    orders: &OrderService,
    owner: &Owner,
    query: &HistoryQuery,
    random: &mut Random,
) -> Vec<Order> {
    let mut read: Vec<Order> = Vec::new();
    let mut query = query.clone();
    loop {
        query.limit = usize::try_from(1 + random.below(12)).unwrap();
        let page = orders.history(owner, &query).await.unwrap();
        assert!(page.orders.len() <= query.limit);
        let is_more = if query.from_end { page.has_previous } else { page.has_next };
        let is_behind = if query.from_end { page.has_next } else { page.has_previous };
        let cursor = if query.from_end { query.before } else { query.after };
        assert_eq!(is_behind, cursor.is_some());
        assert!(page.orders.len() == query.limit || !is_more, "a short page is the last");
        if query.from_end {
            query.before = page.orders.first().map(Order::place).or(query.before);
            read.splice(0..0, page.orders);
        } else {
            query.after = page.orders.last().map(Order::place).or(query.after);
            read.extend(page.orders);
        }
        if !is_more {
            return read;
        }
    }
}

/// A bound that may lie on an order, beside it, between two of them or far away.
fn bound(random: &mut Random, placed: &[Order]) -> Option<Timestamp> {
    let which = usize::try_from(random.below(placed.len() as u64)).unwrap();
    let at = placed[which].created_at.micros();
    Some(match random.below(8) {
        0 | 1 => return None,
        2 | 3 => Timestamp::from_micros(at),
        4 => Timestamp::from_micros(at + 1),
        5 => Timestamp::from_micros(at - 1),
        6 => Month::of(Timestamp::from_micros(at)).start(),
        _ => Timestamp::from_micros(at + i64::try_from(random.below(1 << 42)).unwrap()),
    })
}

async fn a_history_read_page_by_page_has_every_order_once_in_order(store: &TestStore) {
    let mut random = Random(seed());
    let (orders, store) = (service(store), store.store.as_ref());
    let first = before(SystemClock.now(), 390 * DAY);
    for round in 0..4 {
        let owner = if round % 2 == 0 { new_user() } else { Owner::Guest(Uuid::new_v4()) };
        // Months of three years; some of them begin parts of their own, decided before.
        let moment = |random: &mut Random| {
            first.after(Duration::from_secs(random.below(3 * 365 * 24 * 3_600)))
        };
        let parts = (0..round * 4).map(|_| Month::of(moment(&mut random)));
        let parts: Vec<Month> = parts.collect();
        for part in &parts {
            store.begin_history_part(&owner, *part).await.unwrap();
        }
        let mut placed = Vec::new();
        while placed.len() < 70 {
            let at = moment(&mut random);
            // Now and then several of one moment.
            for _ in 0..=random.below(12).saturating_sub(8) {
                let mut order = order_at(&owner, at);
                order.part = part_of(&parts, at);
                placed.push(order);
            }
        }
        place_all(store, &placed).await;
        sort(&mut placed);
        for _ in 0..12 {
            let (from, to) = (bound(&mut random, &placed), bound(&mut random, &placed));
            let is_in = |order: &&Order| {
                from.is_none_or(|from| order.created_at >= from)
                    && to.is_none_or(|to| order.created_at < to)
            };
            let model: Vec<Order> = placed.iter().filter(is_in).cloned().collect();
            for from_end in [false, true] {
                let query = HistoryQuery { from, to, from_end, ..HistoryQuery::default() };
                let read = walk(&orders, &owner, &query, &mut random).await;
                assert_eq!(read, model, "round {round}, {from:?} to {to:?}, {from_end}");
            }
            // Between two places, from either end.
            if model.len() > 2 {
                let one = usize::try_from(random.below(model.len() as u64 - 1)).unwrap();
                let rest = (model.len() - one - 1) as u64;
                let other = one + 1 + usize::try_from(random.below(rest)).unwrap();
                let between = &model[one + 1..other];
                let limit = usize::try_from(random.below(10)).unwrap();
                let query = HistoryQuery {
                    from,
                    to,
                    after: Some(model[one].place()),
                    before: Some(model[other].place()),
                    from_end: false,
                    limit,
                };
                let page = orders.history(&owner, &query).await.unwrap();
                assert_eq!(page.orders, between[..limit.min(between.len())]);
                assert_eq!(page.has_next, between.len() > limit);
                let query = HistoryQuery { from_end: true, ..query };
                let page = orders.history(&owner, &query).await.unwrap();
                assert_eq!(page.orders, between[between.len().saturating_sub(limit)..]);
                assert_eq!(page.has_previous, between.len() > limit);
            }
        }
        let nobody = orders.history(&new_user(), &HistoryQuery::default()).await.unwrap();
        assert!(nobody.orders.is_empty() && !nobody.has_next && !nobody.has_previous);
    }
}

/// The next step of a random life.
fn next_step(order: &Order, random: &mut Random) -> Option<Order> {
    let next: Vec<_> =
        OrderStatus::ALL.into_iter().filter(|next| order.status.may_become(*next)).collect();
    let which = usize::try_from(random.below(next.len().max(1) as u64)).unwrap();
    Some(stepped(order, *next.get(which)?, "meanwhile"))
}

async fn a_history_that_grows_and_changes_meanwhile_loses_nothing_and_repeats_nothing(
    store: &TestStore,
) {
    let mut random = Random(seed());
    let (orders, store) = (service(store), store.store.as_ref());
    let now = SystemClock.now();
    for from_end in [false, true, false, true] {
        let owner = new_user();
        let placed = (0..60).map(|_| {
            order_at(&owner, before(now, Duration::from_secs(60 + random.below(380 * 24 * 3_600))))
        });
        let mut placed: Vec<Order> = placed.collect();
        place_all(store, &placed).await;
        sort(&mut placed);
        let expected = ids(&placed);
        // As it was acknowledged last.
        let mut there: HashMap<Uuid, Order> =
            placed.into_iter().map(|order| (order.id, order)).collect();
        let (mut read, mut place_of): (Vec<Order>, Option<OrderPlace>) = (Vec::new(), None);
        let mut grown = 0_u64;
        loop {
            let (after, before) = if from_end { (None, place_of) } else { (place_of, None) };
            let limit = usize::try_from(1 + random.below(9)).unwrap();
            let query = HistoryQuery { after, before, from_end, limit, ..HistoryQuery::default() };
            let known: HashMap<Uuid, i64> =
                there.iter().map(|(id, order)| (*id, order.version)).collect();
            let which = usize::try_from(random.below(expected.len() as u64)).unwrap();
            let changing = there[&expected[which]].clone();
            let after = next_step(&changing, &mut random);
            grown += 1;
            let new = order_at(&owner, now.after(Duration::from_millis(grown)));
            let meanwhile = async {
                place(store, &new).await;
                if let Some(after) = &after {
                    change(store, &changing, after).await;
                }
            };
            let (page, ()) = tokio::join!(orders.history(&owner, &query), meanwhile);
            let page = page.unwrap();
            for order in &page.orders {
                let version = known.get(&order.id).copied().unwrap_or(1);
                assert!(order.version >= version, "older than what was acknowledged: {order:?}");
            }
            there.insert(changing.id, after.unwrap_or(changing));
            let is_more = if from_end { page.has_previous } else { page.has_next };
            let edge = if from_end { page.orders.first() } else { page.orders.last() };
            place_of = edge.map(Order::place).or(place_of);
            if from_end {
                read.splice(0..0, page.orders);
            } else {
                read.extend(page.orders);
            }
            // New ones come at the front for ever: it ends where the old ones do.
            let is_through = read.iter().filter(|order| known.contains_key(&order.id)).count();
            if !is_more || from_end && is_through >= expected.len() {
                break;
            }
        }
        assert!(read.is_sorted_by(|one, next| one.place() > next.place()));
        let old: Vec<Uuid> = ids(&read).into_iter().filter(|id| expected.contains(id)).collect();
        assert_eq!(old, expected, "from the end: {from_end}");
        // As they stand at the end.
        let query = HistoryQuery { limit: 1_000, ..HistoryQuery::default() };
        let page = orders.history(&owner, &query).await.unwrap();
        for order in page.orders.iter().filter(|order| expected.contains(&order.id)) {
            assert_eq!(*order, there[&order.id]);
        }
    }
}

/// Reads the orders of a day to their end.
async fn walk_day(orders: &OrderService, query: &DayQuery, random: &mut Random) -> Vec<Order> {
    let (mut read, mut query): (Vec<Order>, _) = (Vec::new(), query.clone());
    loop {
        query.limit = usize::try_from(1 + random.below(12)).unwrap();
        let page: OrderPage = orders.on_day(&query).await.unwrap();
        assert!(page.orders.len() <= query.limit);
        assert_eq!(page.has_previous, query.after.is_some());
        let end = page.next.or(page.orders.last().map(Order::place));
        read.extend(page.orders);
        if !page.has_next {
            return read;
        }
        assert!(end.is_some() && end != query.after, "it goes on");
        query.after = end;
    }
}

async fn the_orders_of_a_day_are_one_list_whatever_is_asked_of_them(store: &TestStore) {
    let mut random = Random(seed());
    let (orders, store) = (service(store), store.store.as_ref());
    let today = SystemClock.now();
    let day = day_of(today) - 3;
    let start = Timestamp::from_millis(i64::from(day) * 24 * 3_600 * 1_000);
    let zones = ["Тула", "Омск", "Казань"].map(|zone| GeoZone::parse(zone).unwrap());
    let mut placed = Vec::new();
    for n in 0..180_u32 {
        // The first and the last moment of the day, and some of one moment.
        let millis = match n {
            0 => 0,
            1 => 24 * 3_600 * 1_000 - 1,
            2..40 => 1_000 * random.below(5),
            _ => random.below(24 * 3_600 * 1_000),
        };
        let mut order = order_at(&new_user(), start.after(Duration::from_millis(millis)));
        order.zone = zones[usize::try_from(random.below(3)).unwrap()].clone();
        placed.push(order);
    }
    let beside = [
        order_at(&new_user(), before(start, Duration::from_millis(1))),
        order_at(&new_user(), start.after(DAY)),
    ];
    place_all(store, &placed).await;
    place_all(store, &beside).await;
    let changes = placed.iter().map(|order| {
        let mut order = order.clone();
        let mut path = vec![order.clone()];
        for _ in 0..random.below(3) {
            if let Some(next) = next_step(&order, &mut random) {
                path.push(next.clone());
                order = next;
            }
        }
        path
    });
    let changes: Vec<_> = changes.collect();
    stream::iter(&changes)
        .for_each_concurrent(AT_ONCE, async |path| {
            for pair in path.windows(2) {
                change(store, &pair[0], &pair[1]).await;
            }
        })
        .await;
    let mut placed: Vec<Order> = changes.into_iter().filter_map(|mut path| path.pop()).collect();
    sort(&mut placed);
    let shards: BTreeMap<i8, usize> = placed.iter().fold(BTreeMap::new(), |mut shards, order| {
        *shards.entry(order.day_shard()).or_default() += 1;
        shards
    });
    assert!(shards.len() > 8 && shards.keys().all(|shard| (0..DAY_SHARDS).contains(shard)));
    let mut statuses: Vec<Option<OrderStatus>> = OrderStatus::ALL.map(Some).to_vec();
    statuses.push(None);
    for status in statuses {
        let nowhere = GeoZone::parse("Нигде").unwrap();
        for zone in [None, Some(zones[0].clone()), Some(zones[1].clone()), Some(nowhere)] {
            let is_wanted = |order: &&Order| {
                status.is_none_or(|status| order.status == status)
                    && zone.as_ref().is_none_or(|zone| order.zone == *zone)
            };
            let model: Vec<Order> = placed.iter().filter(is_wanted).cloned().collect();
            let query = DayQuery { day, status, zone: zone.clone(), after: None, limit: 0 };
            let read = walk_day(&orders, &query, &mut random).await;
            assert_eq!(ids(&read), ids(&model), "{status:?} in {zone:?}");
            assert_eq!(read, model);
        }
    }
    for (day, expected) in [(day - 1, &beside[0]), (day + 1, &beside[1])] {
        let query = DayQuery { day, limit: 10, ..DayQuery::default() };
        assert_eq!(orders.on_day(&query).await.unwrap().orders, std::slice::from_ref(expected));
    }
}

/// A day with more orders than one page looks at: what is rare is found all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_rare_on_a_busy_day_is_found_over_several_short_pages() {
    let store = TestStore::embedded().await;
    let (orders, opened) = (service(&store), store.store.as_ref());
    let day = day_of(SystemClock.now()) - 1;
    let start = Timestamp::from_millis(i64::from(day) * 24 * 3_600 * 1_000);
    let at = |n: u64| start.after(Duration::from_secs(n));
    let owner = new_user();
    let mut placed: Vec<_> = (0..4_500).map(|n| order_at(&owner, at(n))).collect();
    let zone = GeoZone::parse("Омск").unwrap();
    for n in [0, 1, 2_200, 4_499] {
        placed[n].zone = zone.clone();
    }
    stream::iter(&placed).for_each_concurrent(200, |order| place(opened, order)).await;
    let mut query = DayQuery { day, zone: Some(zone), limit: 3, ..DayQuery::default() };
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let page = orders.on_day(&query).await.unwrap();
        query.after = page.next.or(page.orders.last().map(Order::place));
        found.extend(page.orders);
        pages += 1;
        if !page.has_next {
            break;
        }
    }
    assert_eq!(ids(&found), [4_499, 2_200, 1, 0].map(|n: usize| placed[n].id));
    assert!((3..10).contains(&pages), "{pages}");
}
