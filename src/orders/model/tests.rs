use proptest::collection::vec;
use proptest::prelude::*;
use rust_decimal::Decimal;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_794_736_800_000);
const DAY: Duration = Duration::from_secs(24 * 3_600);

fn order() -> Order {
    let price = Money::rub(Decimal::new(99_900, 2));
    let product = ProductId::new_unchecked("P1");
    let mut order = Order {
        id: Uuid::from_u128(7),
        owner: Owner::User("me".into()),
        status: OrderStatus::Created,
        units: UnitsStand::Held,
        zone: GeoZone::new_unchecked("Тула"),
        lines: vec![OrderLine { product, name: "Товар".to_owned(), units: 2, price }],
        total: price.times(2),
        address: address(),
        payment_method: "card".to_owned(),
        created_at: NOW,
        updated_at: NOW,
        payment_due_at: NOW.after(DAY),
        tracking_number: None,
        payment: None,
        part: Month::of(NOW),
        changes: Vec::new(),
        version: 0,
    };
    order.note_creation();
    order
}

fn address() -> Address {
    let (city, street) = ("Тула".to_owned(), "Ленина, 1".to_owned());
    Address { city, street, postal_code: None, recipient: None, phone: None }
}

fn to(status: OrderStatus) -> Step {
    Step::new(status, Actor::Staff("manager".to_owned()))
}

fn changed(order: &Order, step: &Step) -> Order {
    match order.step(step, NOW) {
        Stepped::Changed(after) => *after,
        other => panic!("{:?} to {:?}: {other:?}", order.status, step.to),
    }
}

/// An order that has come to a status by the steps that lead there.
fn standing(status: OrderStatus) -> Order {
    use OrderStatus::{Cancelled, Created, Delivered, Paid, Processing, Shipped};
    let path: &[OrderStatus] = match status {
        Created => &[],
        Paid => &[Paid],
        Processing => &[Paid, Processing],
        Shipped => &[Paid, Processing, Shipped],
        Delivered => &[Paid, Processing, Shipped, Delivered],
        Cancelled => &[Cancelled],
    };
    path.iter().fold(order(), |order, status| changed(&order, &to(*status)))
}

#[test]
fn of_all_steps_only_those_of_a_life_are_possible() {
    use OrderStatus::{Cancelled, Created, Delivered, Paid, Processing, Shipped};
    let allowed = [
        (Created, Paid),
        (Paid, Processing),
        (Processing, Shipped),
        (Shipped, Delivered),
        (Created, Cancelled),
        (Paid, Cancelled),
        (Processing, Cancelled),
    ];
    for from in OrderStatus::ALL {
        for next in OrderStatus::ALL {
            let before = standing(from);
            let stepped = before.step(&to(next), NOW);
            let is_allowed = allowed.contains(&(from, next));
            assert_eq!(from.may_become(next), is_allowed, "{from:?} to {next:?}");
            match stepped {
                Stepped::Same => assert_eq!(from, next),
                Stepped::Impossible => assert!(!is_allowed && from != next, "{from:?} to {next:?}"),
                Stepped::Changed(after) => {
                    assert!(is_allowed, "{from:?} to {next:?}");
                    assert_eq!((after.status, after.version), (next, before.version + 1));
                    assert_eq!(after.changes.len(), before.changes.len() + 1);
                    let last = after.changes.last().unwrap();
                    assert_eq!((last.kind.as_str(), last.at), (next.as_str(), after.updated_at));
                    assert!(last.at > before.updated_at);
                    let kept = Order {
                        status: before.status,
                        units: before.units,
                        updated_at: before.updated_at,
                        changes: before.changes.clone(),
                        version: before.version,
                        ..*after
                    };
                    assert_eq!(kept, before, "nothing else changes");
                }
            }
        }
    }
}

#[test]
fn a_step_that_was_taken_may_be_repeated_but_not_with_another_effect() {
    let ship = |number: Option<&str>| Step {
        tracking_number: number.map(str::to_owned),
        ..to(OrderStatus::Shipped)
    };
    let shipped = changed(&standing(OrderStatus::Processing), &ship(Some("RU1")));
    assert_eq!(shipped.tracking_number.as_deref(), Some("RU1"));
    assert_eq!(shipped.step(&ship(Some("RU1")), NOW.after(DAY)), Stepped::Same);
    assert_eq!(shipped.step(&ship(None), NOW.after(DAY)), Stepped::Same);
    assert_eq!(shipped.step(&ship(Some("RU2")), NOW), Stepped::Impossible);
    let without = changed(&standing(OrderStatus::Processing), &ship(None));
    assert_eq!(without.step(&ship(Some("RU1")), NOW), Stepped::Impossible);

    let pay = |payment: Option<&str>| Step {
        payment: payment.map(str::to_owned),
        ..Step::new(OrderStatus::Paid, Actor::Payment)
    };
    let paid = changed(&order(), &pay(Some("payment 1")));
    assert_eq!(paid.payment.as_deref(), Some("payment 1"));
    assert_eq!(paid.step(&pay(Some("payment 1")), NOW), Stepped::Same);
    assert_eq!(paid.step(&pay(None), NOW), Stepped::Same);
    assert_eq!(paid.step(&pay(Some("payment 2")), NOW), Stepped::Impossible);
    let packed = changed(&paid, &to(OrderStatus::Processing));
    assert_eq!(packed.payment.as_deref(), Some("payment 1"), "it stays with the order");
    // Who says something else about the same step has not taken another one.
    let note = Some("again".to_owned());
    let again = Step { note, ..to(OrderStatus::Cancelled) };
    assert_eq!(standing(OrderStatus::Cancelled).step(&again, NOW), Stepped::Same);
}

#[test]
fn units_go_back_when_it_is_cancelled_and_leave_when_it_is_shipped() {
    use OrderStatus::{Cancelled, Created, Delivered, Paid, Processing, Shipped};
    for from in [Created, Paid, Processing] {
        let cancelled = changed(&standing(from), &to(Cancelled));
        assert_eq!(cancelled.units, UnitsStand::Releasing);
        let done = cancelled.units_done().unwrap();
        assert_eq!((done.units, done.version), (UnitsStand::Released, cancelled.version + 1));
        assert_eq!((done.changes.len(), done.units_done()), (cancelled.changes.len(), None));
    }
    for (status, units) in [
        (Created, UnitsStand::Held),
        (Paid, UnitsStand::Held),
        (Processing, UnitsStand::Held),
        (Shipped, UnitsStand::Leaving),
        (Delivered, UnitsStand::Leaving),
    ] {
        assert_eq!(standing(status).units, units);
    }
    let gone = standing(Shipped).units_done().unwrap();
    assert_eq!((gone.units, gone.units_done()), (UnitsStand::Left, None));
    let delivered = changed(&gone, &to(Delivered));
    assert_eq!(delivered.units, UnitsStand::Left, "they do not leave twice");
}

#[test]
fn a_life_does_not_grow_for_ever() {
    let mut order = order();
    for _ in 1..MAX_CHANGES {
        order = order.moved_to(order.owner.clone(), order.part, NOW);
    }
    assert_eq!(order.changes.len(), MAX_CHANGES);
    assert_eq!(order.step(&to(OrderStatus::Paid), NOW), Stepped::Impossible);
}

#[test]
fn changes_are_in_order_also_when_a_clock_is_behind() {
    let early = Timestamp::from_micros(NOW.micros() - 60_000_000);
    let paid = match order().step(&to(OrderStatus::Paid), early) {
        Stepped::Changed(paid) => *paid,
        other => panic!("{other:?}"),
    };
    let moved = paid.moved_to(Owner::User("you".into()), paid.part, early);
    assert_eq!(moved.changes.len(), 3);
    assert!(moved.changes.is_sorted_by(|one, next| one.at < next.at), "{:?}", moved.changes);
    assert_eq!(moved.updated_at, moved.changes[2].at);
    assert!(moved.changes.iter().all(|event| event.at == event.at.to_millis_precision()));
}

#[test]
fn an_event_has_the_same_id_whoever_notes_it_and_no_other_has_it() {
    let order = order();
    let (here, there) = (
        changed(&order, &to(OrderStatus::Cancelled)),
        match order.step(&Step::new(OrderStatus::Cancelled, Actor::Shop), NOW.after(DAY)) {
            Stepped::Changed(there) => *there,
            other => panic!("{other:?}"),
        },
    );
    assert_eq!(here.changes[1].id, there.changes[1].id, "of one version there is one event");
    // Kept by stores: it must not change from one version of the program to another.
    let known = Uuid::parse_str("1f5e112f-8a64-89b3-ba7a-72231ee037b0").unwrap();
    assert_eq!(event_id(order.id, b"payment 1"), known);
    assert_eq!(order.changes[0].id, event_id(order.id, &1_i64.to_be_bytes()));
    let mut ids = std::collections::HashSet::new();
    for order in 0..50 {
        for what in 0..50_i64 {
            assert!(ids.insert(event_id(Uuid::from_u128(order), &what.to_be_bytes())));
        }
    }
}

#[test]
fn an_address_is_checked_field_by_field() {
    assert_eq!(address().faults(&["input"]), []);
    let wrong = Address {
        city: " ".to_owned(),
        street: "я".repeat(201),
        postal_code: Some("1".repeat(41)),
        recipient: Some("a\u{0}b".to_owned()),
        phone: Some(String::new()),
    };
    let faults = wrong.faults(&["input", "to"]);
    let fields: Vec<_> =
        faults.iter().map(|fault| fault.field.clone().unwrap().join(".")).collect();
    let names = ["city", "street", "postalCode", "recipient", "phone"];
    assert_eq!(fields, names.map(|name| format!("input.to.{name}")));
    let longest = Address {
        street: "я".repeat(200),
        postal_code: Some("1".repeat(40)),
        phone: Some("1".repeat(40)),
        ..address()
    };
    assert_eq!(longest.faults(&[]), []);
}

#[test]
fn a_month_knows_its_start_and_the_next_one() {
    let at = |text: &str| {
        let time = DateTime::parse_from_rfc3339(text).unwrap();
        Timestamp::from_micros(time.timestamp_micros())
    };
    let december = Month::of(at("2026-12-31T23:59:59.999Z"));
    assert_eq!((december.number(), december.next().number()), (202_612, 202_701));
    assert_eq!(december.next().start(), at("2027-01-01T00:00:00Z"));
    assert_eq!(Month::of(at("2027-01-01T00:00:00Z")), december.next());
    assert_eq!(Month::from_number(202_602).start(), at("2026-02-01T00:00:00Z"));
    assert_eq!(day_of(at("1970-01-02T00:00:00Z")), 1);
    assert_eq!(day_of(at("1969-12-31T23:59:59Z")), -1);
}

/// A moment of the years 2000 to 2050.
fn moment() -> impl Strategy<Value = Timestamp> {
    (946_684_800_000_i64..2_524_608_000_000).prop_map(Timestamp::from_millis)
}

proptest! {
    #[test]
    fn months_follow_each_other_without_gaps(at in moment()) {
        let month = Month::of(at);
        prop_assert!(month.start() <= at && at < month.next().start());
        prop_assert!(month < month.next());
        prop_assert_eq!(Month::of(month.start()), month);
        let last = Timestamp::from_micros(month.next().start().micros() - 1);
        prop_assert_eq!(Month::of(last), month);
        prop_assert_eq!(Month::from_number(month.number()), month);
        prop_assert!(day_of(month.next().start()) - day_of(month.start()) >= 28);
    }

    #[test]
    fn a_part_begins_in_the_year_of_its_orders_and_never_after_them(
        at in moment(),
        parts in vec(moment(), 0..20),
    ) {
        let parts: Vec<Month> = parts.into_iter().map(Month::of).collect();
        let part = part_of(&parts, at);
        prop_assert!(part <= Month::of(at));
        prop_assert_eq!(part.year(), Month::of(at).year());
        prop_assert!(parts.contains(&part) || part.number() % 100 == 1);
        // In whatever order they are listed, and however often.
        let mut others = parts.clone();
        others.reverse();
        others.extend(parts);
        prop_assert_eq!(part_of(&others, at), part);
    }

    #[test]
    fn a_new_part_begins_at_least_a_day_from_now_and_within_two_months(now in moment()) {
        let part = next_part(now);
        prop_assert!(part.start() > now.after(PART_NOTICE));
        prop_assert!(part <= Month::of(now).next().next());
    }

    /// A history whose parts only ever begin in the future: whoever places an order may not have
    /// heard of the newest of them, if that was decided within the last day.
    #[test]
    fn all_agree_on_the_part_of_an_order_and_parts_are_ordered_like_time(
        start in moment(),
        steps in vec((0_u64..60 * 24, any::<bool>(), 0_u64..24), 1..60),
    ) {
        let mut now = start;
        // Each with the moment that it was decided at.
        let mut parts: Vec<(Timestamp, Month)> = Vec::new();
        let mut placed: Vec<(Timestamp, Month)> = Vec::new();
        for (hours, is_large, late) in steps {
            now = now.after(Duration::from_secs(hours * 3_600));
            if is_large {
                parts.push((now, next_part(now)));
            }
            // The list as somebody read it up to a day ago.
            let read = Timestamp::from_micros(now.micros() - i64::try_from(late).unwrap() * 3_600_000_000);
            let known = parts.iter().filter(|(decided, _)| *decided <= read).map(|(_, part)| *part);
            let part = part_of(&known.collect::<Vec<_>>(), now);
            let all: Vec<Month> = parts.iter().map(|(_, part)| *part).collect();
            prop_assert_eq!(part, part_of(&all, now), "placed at {} by a list of {}", now, read);
            placed.push((now, part));
        }
        let all: Vec<Month> = parts.iter().map(|(_, part)| *part).collect();
        for (at, part) in &placed {
            prop_assert_eq!(*part, part_of(&all, *at), "what was decided later moves nothing");
        }
        for pair in placed.windows(2) {
            prop_assert!(pair[0].1 <= pair[1].1, "{:?}", pair);
            if Month::of(pair[0].0) == Month::of(pair[1].0) {
                prop_assert_eq!(pair[0].1, pair[1].1, "a month is never cut");
            }
        }
    }
}
