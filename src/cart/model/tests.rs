use proptest::collection::vec;
use proptest::prelude::*;
use rust_decimal::Decimal;

use super::change::{RawChange, RawLine, refusals};
use super::*;
use crate::error::{ErrorCode, UserError};
use crate::owner::Owner;

const NOW: Timestamp = Timestamp::from_millis(1_794_736_800_000);

fn product(number: u8) -> ProductId {
    ProductId::new_unchecked(format!("P{number}"))
}

fn card(kopecks: i64) -> Card {
    let price = Money::rub(Decimal::new(kopecks, 2));
    Card { name: "Товар".to_owned(), price, image_url: None }
}

fn units(number: u8, units: i64) -> Units {
    Units { product: product(number), units, card: card(100) }
}

fn quantities(cart: &Cart) -> Vec<(&str, i64)> {
    cart.lines.iter().map(|line| (line.product.as_str(), line.units)).collect()
}

fn at(seconds: u64) -> Timestamp {
    NOW.after(Duration::from_secs(seconds))
}

fn operation(number: u128, seconds: u64, change: Change) -> Operation {
    Operation { id: Uuid::from_u128(number), at: at(seconds), is_keyed: true, change }
}

fn log(operations: Vec<Operation>) -> CartLog {
    CartLog { checkpoint: None, operations }
}

#[test]
fn operations_come_to_a_cart() {
    let order = Uuid::from_u128(9);
    let changes = [
        (Change::Add(vec![units(1, 2), units(2, 1)]), vec![("P1", 2), ("P2", 1)]),
        (Change::Add(vec![units(1, 3)]), vec![("P1", 5), ("P2", 1)]),
        (Change::Set(vec![units(3, 4), units(1, 1)], vec![product(2)]), vec![("P1", 1), ("P3", 4)]),
        (Change::Ordered { order, taken: vec![(product(3), 3)] }, vec![("P1", 1), ("P3", 1)]),
        (Change::Ordered { order, taken: vec![(product(3), 3)] }, vec![("P1", 1)]),
        (Change::Remove(vec![product(1), product(7)]), vec![]),
        (Change::Add(vec![units(1, 1)]), vec![("P1", 1)]),
        (Change::Clear, vec![]),
    ];
    let mut operations = Vec::new();
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        let number = u32::try_from(number).unwrap();
        operations.push(operation(number.into(), number.into(), change));
        assert_eq!(quantities(&log(operations.clone()).fold(at(100))), expected, "{number}");
    }
}

#[test]
fn a_cart_ends_thirty_days_after_it_was_touched_and_nothing_comes_back() {
    let day = |n: u64| n * 24 * 3_600;
    let added = operation(1, 0, Change::Add(vec![units(1, 1)]));
    let cart = log(vec![added.clone()]);
    assert_eq!(quantities(&cart.fold(at(day(30) - 1))), [("P1", 1)]);
    assert_eq!(cart.fold(at(day(30))), Cart::default());
    let later = operation(2, day(31), Change::Add(vec![units(2, 1)]));
    let cart = log(vec![added.clone(), later]).fold(at(day(32)));
    assert_eq!(quantities(&cart), [("P2", 1)], "what had ended stays ended");

    // To look at it on day 29 is to touch it, and what is written then is all of it.
    let (touched, _) = log(vec![added]).checkpoint_at(at(day(29)), true);
    let cart = CartLog { checkpoint: Some(touched), operations: Vec::new() };
    assert_eq!(quantities(&cart.fold(at(day(58)))), [("P1", 1)]);
    assert_eq!(cart.fold(at(day(59))), Cart::default());
}

#[test]
fn a_touched_cart_is_renewed_before_any_of_it_ends() {
    let cart = log(vec![operation(1, 0, Change::Add(vec![units(1, 1)]))]);
    assert!(!cart.wants_renewal(NOW.after(RENEW_AFTER / 2)));
    assert!(cart.wants_renewal(NOW.after(RENEW_AFTER)));
    // Whatever a cart is made of that was touched is at most a day older than the touch.
    assert!(KEPT >= CART_LIFE + RENEW_AFTER);
    assert!(LATE_AFTER < SETTLED_AFTER);
}

#[test]
fn a_take_over_takes_what_fits() {
    let full = (0..99).map(|number| units(number, 1)).chain([units(200, 998)]).collect();
    let taken = vec![units(200, 5), units(201, 1), units(0, 2)];
    let take = Change::TakeOver { from: Uuid::from_u128(1), lines: taken };
    let cart = log(vec![operation(1, 0, Change::Add(full)), operation(2, 1, take)]).fold(at(2));
    assert_eq!(cart.lines.len(), MAX_LINES);
    assert_eq!(cart.line(&product(200)).unwrap().units, MAX_UNITS);
    assert_eq!(cart.line(&product(0)).unwrap().units, 3);
    assert_eq!(cart.left_out, [(product(200), 4), (product(201), 1)]);
}

#[test]
fn what_a_cart_cannot_take_is_refused_with_a_code() {
    let lines = |lines: &[(&str, i64)]| {
        let line = |(product, quantity): &(&str, i64)| RawLine {
            product: (*product).to_owned(),
            quantity: *quantity,
        };
        lines.iter().map(line).collect::<Vec<_>>()
    };
    let cards = [1, 2].map(|number| (product(number), card(100))).into();
    let codes_of = |faults: &[UserError]| {
        let field = |fault: &UserError| fault.field.clone().unwrap().join(".");
        faults.iter().map(|fault| (fault.code, field(fault))).collect::<Vec<_>>()
    };
    let codes = |raw: RawChange| codes_of(&raw.check(&cards).err().unwrap_or_default());
    let fault = |code, field: &str| (code, field.to_owned());
    assert_eq!(codes(RawChange::Add(lines(&[("P1", 1), ("P1", 998)]))), []);
    assert_eq!(
        codes(RawChange::Add(lines(&[("P1", 0), ("", 1), ("P9", 1), ("P2", 999), ("P2", 999)]))),
        [
            fault(ErrorCode::Invalid, "lines.0.quantity"),
            fault(ErrorCode::Blank, "lines.1.productId"),
            fault(ErrorCode::NotFound, "lines.2.productId"),
            fault(ErrorCode::QuantityLimit, "lines.4.quantity"),
        ]
    );
    assert_eq!(codes(RawChange::Set(lines(&[("P1", 0), ("P9", 0), ("P2", 3)]))), []);
    assert_eq!(
        codes(RawChange::Set(lines(&[("P1", 1), ("P1", 0), ("P2", -1), ("P2", 1_000)]))),
        [
            fault(ErrorCode::Duplicate, "lines.1.productId"),
            fault(ErrorCode::Invalid, "lines.2.quantity"),
            fault(ErrorCode::Invalid, "lines.3.quantity"),
        ]
    );
    assert_eq!(codes(RawChange::Add(Vec::new())), [fault(ErrorCode::Blank, "lines")]);
    assert_eq!(
        codes(RawChange::Add(lines(&[("P1", 1); 101]))),
        [fault(ErrorCode::TooMany, "lines")]
    );
    assert_eq!(
        codes(RawChange::Remove(vec!["P1".to_owned(), "\u{7}".to_owned()])),
        [fault(ErrorCode::Invalid, "productIds.1")]
    );

    let full = (0..100).map(|number| units(number, 999)).collect();
    let cart = log(vec![operation(1, 0, Change::Add(full))]).fold(at(1));
    let refused = |change: Change| {
        let raw = RawChange::Add(lines(&[("P0", 1), ("P1", 1)]));
        let faults = refusals(&cart, &raw, &change);
        let place = [ErrorCode::QuantityLimit].map(|code| fault(code, "lines.1.quantity"));
        let with_place = codes_of(&faults);
        assert!(with_place.iter().all(|one| one.0 != ErrorCode::QuantityLimit || *one == place[0]));
        faults.iter().map(|fault| fault.code).collect::<Vec<_>>()
    };
    assert_eq!(refused(Change::Add(vec![units(1, 1)])), [ErrorCode::QuantityLimit]);
    assert_eq!(refused(Change::Add(vec![units(200, 1)])), [ErrorCode::CartFull]);
    assert_eq!(refused(Change::Set(vec![units(200, 1)], vec![product(1)])), []);
    assert_eq!(refused(Change::Set(vec![units(1, 5)], Vec::new())), []);
    let mut dollars = units(1, 5);
    dollars.card.price.currency = crate::money::Currency::parse("USD").unwrap();
    assert_eq!(refused(Change::Set(vec![dollars], Vec::new())), [ErrorCode::CurrencyMismatch]);
}

#[test]
fn what_was_asked_for_has_the_fingerprint_of_what_it_becomes() {
    let line = |product: &str, quantity| RawLine { product: product.to_owned(), quantity };
    let cards = [1, 2].map(|number| (product(number), card(100))).into();
    for raw in [
        RawChange::Add(vec![line("P1", 2), line("P2", 1), line("P1", 3)]),
        RawChange::Set(vec![line("P2", 0), line("P1", 3)]),
        RawChange::Remove(vec!["P1".to_owned(), "P1".to_owned(), "P9".to_owned()]),
        RawChange::Clear,
    ] {
        assert_eq!(raw.fingerprint(), raw.check(&cards).unwrap().fingerprint(), "{raw:?}");
    }
}

#[test]
fn a_name_of_a_cart_is_read_as_it_is_written() {
    for owner in [Owner::User("анна: 1".into()), Owner::Guest(Uuid::from_u128(7))] {
        assert_eq!(Owner::parse(&owner.to_string()), Some(owner));
    }
    let long = format!("user:{}", "x".repeat(256));
    for text in ["", "user:", "guest:", "guest:x", "staff:x", "user", "user:a\u{0}", &long] {
        assert_eq!(Owner::parse(text), None, "{text}");
    }
}

#[test]
fn a_fingerprint_is_of_what_was_asked_for() {
    let add = Change::Add(vec![units(1, 2), units(2, 3)]);
    let dearer = Units { card: card(777), ..units(1, 2) };
    assert_eq!(add.fingerprint(), Change::Add(vec![units(2, 3), dearer]).fingerprint());
    let others = [
        Change::Add(vec![units(1, 3), units(2, 2)]),
        Change::Add(vec![units(1, 2)]),
        Change::Set(vec![units(1, 2), units(2, 3)], Vec::new()),
        Change::Remove(vec![product(1), product(2)]),
        Change::Clear,
    ];
    for other in others {
        assert_ne!(add.fingerprint(), other.fingerprint(), "{other:?}");
    }
}

fn change() -> impl Strategy<Value = Change> {
    let lines = || vec((0..4_u8, 1..4_i64).prop_map(|(number, n)| units(number, n)), 1..3);
    let ids = || vec((0..4_u8).prop_map(product), 1..3);
    prop_oneof![
        4 => lines().prop_map(Change::Add),
        2 => (lines(), ids()).prop_map(|(lines, ids)| Change::Set(lines, ids)),
        1 => ids().prop_map(Change::Remove),
        1 => Just(Change::Clear),
        1 => lines().prop_map(|lines| Change::TakeOver { from: Uuid::nil(), lines }),
        1 => lines().prop_map(|lines| {
            let taken = lines.into_iter().map(|line| (line.product, line.units)).collect();
            Change::Ordered { order: Uuid::nil(), taken }
        }),
    ]
}

/// Operations one after another: mostly within a minute, at times after hours, seldom after weeks.
fn history() -> impl Strategy<Value = Vec<Operation>> {
    let pause = prop_oneof![8 => 0..20_u64, 2 => 60..90_000_u64, 1 => 1_000_000..4_000_000_u64];
    vec((change(), pause), 1..30).prop_map(|steps| {
        let mut seconds = 0;
        let step = |(number, (change, pause)): (usize, (Change, u64))| {
            seconds += pause + 1;
            operation(number as u128 + 1, seconds, change)
        };
        steps.into_iter().enumerate().map(step).collect()
    })
}

/// What is in a cart. When it came there is told by the copy of an operation that counts, and which
/// one that is may change.
fn content(cart: &Cart) -> (BTreeMap<ProductId, i64>, Vec<(ProductId, i64)>) {
    let lines = cart.lines.iter().map(|line| (line.product.clone(), line.units));
    (lines.collect(), cart.left_out.clone())
}

/// A copy of an operation, by a client that tries again before it is answered: it is later, but not
/// later than what is done after that.
fn double(history: &[Operation], which: prop::sample::Index, late: u64) -> Operation {
    let place = which.index(history.len());
    let mut double = history[place].clone();
    double.at = double.at.after(Duration::from_secs(late));
    if let Some(next) = history.get(place + 1) {
        double.at = double.at.min(Timestamp::from_micros(next.at.micros() - 1));
    }
    double
}

proptest! {
    #[test]
    fn neither_their_order_nor_how_often_they_come_matters(
        history in history(),
        doubles in vec((any::<prop::sample::Index>(), 0..60_u64), 0..10),
        order in any::<u64>(),
    ) {
        let end = history.last().unwrap().at.after(Duration::from_secs(60));
        let expected = log(history.clone()).fold(end);
        let mut delivered = history.clone();
        delivered.extend(doubles.iter().map(|(which, late)| double(&history, *which, *late)));
        delivered.sort_by_key(|operation| {
            (operation.id.as_u128() ^ u128::from(order)).wrapping_mul(u128::from(order | 1))
        });
        prop_assert_eq!(content(&log(delivered).fold(end)), content(&expected));
    }

    #[test]
    fn a_checkpoint_at_any_moment_changes_nothing(
        history in history(),
        doubles in vec((any::<prop::sample::Index>(), 0..400_u64), 0..8),
        moments in vec((any::<prop::sample::Index>(), 0..400_u64), 1..12),
    ) {
        let end = history.last().unwrap().at.after(Duration::from_secs(1_000));
        let expected = log(history.clone()).fold(end);
        let mut arriving = history.clone();
        arriving.extend(doubles.iter().map(|(which, late)| double(&history, *which, *late)));
        let moments = moments.into_iter().map(|(which, late)| {
            which.get(&history).at.after(Duration::from_secs(late))
        });
        let mut moments: Vec<_> = moments.collect();
        arriving.sort_by_key(|operation| operation.at);
        moments.sort_unstable();
        let mut kept = CartLog::default();
        let mut noted: BTreeMap<Uuid, Timestamp> = BTreeMap::new();
        // Whoever has read a checkpoint knows what it covers, and does not add it again.
        let is_added = |operation: &Operation, noted: &BTreeMap<Uuid, Timestamp>| {
            let since = noted.get(&operation.id);
            since.is_none_or(|since| operation.at <= since.after(LATE_AFTER))
        };
        let mut arriving = arriving.into_iter().peekable();
        for moment in moments {
            while let Some(operation) = arriving.next_if(|operation| operation.at <= moment) {
                if is_added(&operation, &noted) {
                    kept.operations.push(operation);
                }
            }
            let (checkpoint, notes) = kept.checkpoint_at(moment, false);
            for note in &notes {
                prop_assert!(!noted.contains_key(&note.id), "covered twice: {:?}", note);
                noted.insert(note.id, moment);
            }
            let with = CartLog { checkpoint: Some(checkpoint.clone()), ..kept.clone() };
            prop_assert_eq!(content(&kept.fold(end)), content(&with.fold(end)));
            let is_old = |since: &Timestamp| moment > since.after(SETTLED_AFTER * 3);
            prop_assert!(!checkpoint.covered.values().any(is_old), "it forgets");
            // Whoever asks again finds every operation: in the log, or by its note.
            for operation in &kept.operations {
                let id = operation.id;
                prop_assert!(kept.find(id).is_some() || noted.contains_key(&id), "{:?}", id);
            }
            kept.operations.retain(|operation| operation.at > checkpoint.until);
            kept.checkpoint = Some(checkpoint);
        }
        kept.operations.extend(arriving.filter(|operation| is_added(operation, &noted)));
        prop_assert_eq!(content(&kept.fold(end)), content(&expected));
    }
}
