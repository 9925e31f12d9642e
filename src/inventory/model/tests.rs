use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_794_736_800_000);

fn token(number: u8) -> Token {
    Token::of_reservation(uuid::Uuid::from_u128(number.into()))
}

fn row(quantity: i64) -> StockRow {
    let level = StockLevel { quantity, reserved: 0, version: 1, updated_at: NOW };
    StockRow { level, marks: BTreeMap::new(), turn: None }
}

fn later(row: Option<&StockRow>, asks: &[Ask], by: Duration) -> (Vec<Told>, Option<StockRow>) {
    let round = decide(row, asks, NOW.after(by));
    (round.told, round.after.or_else(|| row.cloned()))
}

fn told(row: &StockRow, ask: Ask) -> (Told, StockRow) {
    let (told, after) = later(Some(row), &[ask], Duration::ZERO);
    (told[0], after.unwrap())
}

fn numbers(row: &StockRow) -> (i64, i64) {
    (row.level.quantity, row.level.reserved)
}

#[test]
fn first_come_first_served_all_or_nothing() {
    let asks = [(1, 4), (2, 4), (3, 3), (4, 2), (5, 1)];
    let asks = asks.map(|(number, units)| Ask::Reserve(token(number), units));
    let round = decide(Some(&row(10)), &asks, NOW);
    let after = round.after.unwrap();
    let done = Told::Done(after.level);
    assert_eq!(round.told, [done, done, Told::Short(2), done, Told::Short(0)]);
    assert_eq!(numbers(&after), (10, 10));
    assert_eq!(after.level.version, 2, "one round, one version");
}

#[test]
fn a_token_counts_once() {
    let (_, held) = told(&row(10), Ask::Reserve(token(1), 3));
    let again = decide(Some(&held), &[Ask::Reserve(token(1), 3)], NOW);
    assert_eq!((again.told[0], again.after), (Told::Done(held.level), None));
    let (reused, _) = told(&held, Ask::Reserve(token(1), 4));
    assert_eq!(reused, Told::Reused);

    let (_, settled) = told(&held, Ask::Settle(token(1)));
    assert_eq!((numbers(&settled), settled.marks.len()), ((10, 3), 0), "it stands, unmarked");

    let release = || Ask::Release { token: token(1), units: 3, recorded: true };
    let (_, released) = told(&settled, release());
    assert_eq!(numbers(&released), (10, 0));
    let (again, after) = told(&released, release());
    assert_eq!((again, numbers(&after)), (Told::Done(released.level), (10, 0)));
    let (late, _) = told(&released, Ask::Reserve(token(1), 3));
    assert_eq!(late, Told::Undone);

    let (_, gone) = told(&settled, Ask::Commit(token(1), 3));
    assert_eq!(numbers(&gone), (7, 0));
    let (_, again) = told(&gone, Ask::Commit(token(1), 3));
    assert_eq!(numbers(&again), (7, 0));
    assert_eq!(told(&gone, release()).0, Told::Impossible);

    // Closed after its end, it is still known to be over: a process that was frozen comes late.
    for (over, numbers_then) in [(&released, (10, 0)), (&gone, (7, 0))] {
        // One who is late to note that it was held does not touch the end of it.
        assert_eq!(told(over, Ask::Settle(token(1))).1, *over);
        let (_, closed) = told(over, Ask::Close(token(1)));
        let (_, others) = told(&closed, Ask::Reserve(token(2), 2));
        let after = told(&others, release()).1;
        assert_eq!(numbers(&after), (numbers_then.0, 2));
        let (late, after) = told(&others, Ask::Commit(token(1), 3));
        assert_eq!((late, numbers(&after)), (Told::Undone, (numbers_then.0, 2)));
    }
}

#[test]
fn a_row_full_of_what_is_over_is_not_full() {
    let mut old = row(1_000_000);
    for n in 0..MAX_OPEN {
        let token = Token::of_reservation(uuid::Uuid::from_u128(1_000 + n as u128));
        old.marks.insert(token, Mark::Undone(NOW));
    }
    let (told, after) = later(Some(&old), &[Ask::Reserve(token(1), 1)], Duration::ZERO);
    assert!(matches!(told[0], Told::Done(_)));
    assert_eq!(after.unwrap().marks.len(), MAX_AGEING + 1);
    let (told, after) = later(Some(&old), &[Ask::Reserve(token(1), 1)], UNDONE_LIFE);
    assert!(matches!(told[0], Told::Done(_)));
    assert_eq!(after.unwrap().marks.len(), 1);
}

#[test]
fn settling_does_not_forget_that_a_token_was_undone() {
    let undo = Ask::Release { token: token(1), units: 3, recorded: false };
    let (_, undone) = told(&row(10), undo);
    let (_, settled) = told(&undone, Ask::Settle(token(1)));
    assert_eq!(told(&settled, Ask::Reserve(token(1), 3)).0, Told::Undone);
}

#[test]
fn what_counts_twice_if_forgotten_is_not_forgotten_by_its_age() {
    let year = Duration::from_secs(365 * 24 * 3_600);
    let (_, held) = told(&row(10), Ask::Reserve(token(1), 3));
    let (_, settled) = told(&held, Ask::Settle(token(1)));
    let (_, gone) = told(&settled, Ask::Commit(token(1), 3));
    let (_, after) = later(Some(&gone), &[Ask::Reserve(token(2), 1)], year);
    let (_, after) = later(after.as_ref(), &[Ask::Commit(token(1), 3)], year);
    assert_eq!(numbers(&after.unwrap()), (7, 1));
}

#[test]
fn who_comes_late_with_a_token_that_was_undone_gets_nothing() {
    let undo = Ask::Release { token: token(1), units: 3, recorded: false };
    let (_, undone) = told(&row(10), undo.clone());
    assert_eq!(numbers(&undone), (10, 0), "nothing was held");
    let (late, _) = later(Some(&undone), &[Ask::Reserve(token(1), 3)], UNDONE_LIFE / 2);
    assert_eq!(late, [Told::Undone]);
    let (_, held) = told(&row(10), Ask::Reserve(token(1), 3));
    let (_, freed) = told(&held, undo);
    assert_eq!(numbers(&freed), (10, 0));
    // … until everybody has given up; then the row forgets it with its next change.
    let (_, after) = later(Some(&freed), &[Ask::Reserve(token(2), 1)], UNDONE_LIFE * 2);
    assert_eq!(after.unwrap().marks.len(), 1);
}

#[test]
fn quantities_keep_above_what_is_reserved() {
    let (_, held) = told(&row(10), Ask::Reserve(token(1), 6));
    let set = |quantity| Ask::Set(Token::of_set(uuid::Uuid::new_v4()), quantity);
    assert_eq!(told(&held, set(5)).0, Told::Below { reserved: 6 });
    assert_eq!(numbers(&told(&held, set(6)).1), (6, 6));
    let adjust = |key, delta| Ask::Adjust(Token::of_adjustment(key), delta);
    assert_eq!(told(&held, adjust("a", -5)).0, Told::Below { reserved: 6 });
    let (_, fewer) = told(&held, adjust("a", -4));
    assert_eq!(numbers(&fewer), (6, 6));
    assert_eq!(numbers(&told(&fewer, adjust("a", -4)).1), (6, 6), "once for its key");
    assert_eq!(told(&fewer, adjust("a", -3)).0, Told::Reused);
    assert_eq!(told(&held, adjust("b", MAX_QUANTITY)).0, Told::TooMany);
    let (told, new) = later(None, &[set(4)], Duration::ZERO);
    assert_eq!((told[0], numbers(&new.clone().unwrap())), (Told::Done(new.unwrap().level), (4, 0)));
    let (told, none) = later(None, &[Ask::Reserve(token(1), 1)], Duration::ZERO);
    assert_eq!((told[0], none), (Told::Short(0), None));
}

#[test]
fn a_row_remembers_a_bounded_number_of_adjustments() {
    let asks: Vec<_> = (0..MAX_AGEING + 50)
        .map(|n| Ask::Adjust(Token::of_adjustment(&n.to_string()), 1))
        .collect();
    let (_, after) = later(None, &asks, Duration::ZERO);
    let (_, after) = later(after.as_ref(), &[Ask::Reserve(token(1), 1)], Duration::ZERO);
    assert_eq!(after.unwrap().marks.len(), MAX_AGEING + 1);
}

#[test]
fn a_full_row_makes_reservations_wait_and_nothing_else() {
    let mut full = row(1_000_000);
    for n in 0..MAX_OPEN {
        let id = uuid::Uuid::from_u128(1_000 + n as u128);
        full.marks.insert(Token::of_reservation(id), Mark::Reserved(1));
        full.level.reserved += 1;
    }
    assert_eq!(told(&full, Ask::Reserve(token(1), 1)).0, Told::Full);
    let one = Token::of_reservation(uuid::Uuid::from_u128(1_000));
    let (_, settled) = told(&full, Ask::Settle(one));
    assert!(matches!(told(&settled, Ask::Reserve(token(1), 1)).0, Told::Done(_)));
}

#[test]
fn marks_read_as_they_are_written() {
    for mark in [
        Mark::Reserved(3),
        Mark::Undone(NOW),
        Mark::Released(1),
        Mark::Committed(MAX_QUANTITY),
        Mark::Adjusted(-5, NOW),
        Mark::Set(NOW),
    ] {
        assert_eq!(Mark::parse(&mark.to_string()), Some(mark));
    }
    for rubbish in ["", "reserved", "reserved x", "reserved 1 2", "sold 1", "adjusted 1"] {
        assert_eq!(Mark::parse(rubbish), None, "{rubbish}");
    }
}

#[test]
fn lines_of_one_product_are_one() {
    let line = |product: &str, units| Line {
        key: StockKey {
            product: ProductId::new_unchecked(product),
            zone: GeoZone::new_unchecked("Москва"),
        },
        units,
    };
    let reservation =
        Reservation::new(token(1), [line("B", 2), line("A", 1), line("B", 3)]).unwrap();
    assert_eq!(reservation.lines(), [line("A", 1), line("B", 5)]);
    let fault = |lines: Vec<Line>| Reservation::new(token(1), lines).unwrap_err();
    assert_eq!(fault(vec![]), ReservationFault::Empty);
    assert_eq!(fault(vec![line("A", 0)]), ReservationFault::Units);
    assert_eq!(fault(vec![line("A", -1)]), ReservationFault::Units);
    let much = line("A", MAX_QUANTITY);
    assert_eq!(fault(vec![much.clone(), line("A", 1)]), ReservationFault::Units);
    assert_eq!(fault(vec![line("A", i64::MAX), line("A", i64::MAX)]), ReservationFault::Units);
    let many = (0..=MAX_LINES).map(|n| line(&n.to_string(), 1)).collect();
    assert_eq!(fault(many), ReservationFault::TooManyLines);
}

/// What an order believes about its reservation, as its own record would say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Believed {
    Nothing,
    Held,
    Settled,
    Released,
    Committed,
}

fn any_step() -> impl Strategy<Value = (u8, u8, i64, bool)> {
    (0_u8..8, 0_u8..6, 1_i64..6, any::<bool>())
}

proptest! {
    /// Orders that do what orders may, each step perhaps twice because its reply was lost, in
    /// rounds of any size: never below 0, never above the quantity, and every unit is accounted for.
    #[test]
    fn every_unit_is_accounted_for(
        steps in prop::collection::vec(any_step(), 1..120),
        round_sizes in prop::collection::vec(1_usize..9, 1..40),
    ) {
        let mut current = Some(row(20));
        let mut stocked = 20_i64;
        let mut beliefs: HashMap<u8, (Believed, i64)> = HashMap::new();
        let mut steps = steps.into_iter();
        for size in round_sizes.into_iter().cycle() {
            let mut asks: Vec<(u8, Ask, Believed)> = Vec::new();
            for (order, kind, units, twice) in steps.by_ref().take(size) {
                // An order does one thing at a time.
                if asks.iter().any(|(other, ..)| *other == order) {
                    continue;
                }
                let (belief, held) = *beliefs.entry(order).or_insert((Believed::Nothing, units));
                let token = token(order);
                let (ask, then) = match (kind, belief) {
                    (0 | 1, Believed::Nothing) => {
                        (Ask::Reserve(token, held), Believed::Held)
                    }
                    (2, Believed::Held) => (Ask::Settle(token), Believed::Settled),
                    (3, Believed::Held | Believed::Settled) => {
                        (Ask::Release { token, units: held, recorded: true }, Believed::Released)
                    }
                    (4, Believed::Held | Believed::Settled) => {
                        (Ask::Commit(token, held), Believed::Committed)
                    }
                    (5, _) => {
                        stocked += units;
                        let key = format!("{order}-{stocked}");
                        (Ask::Adjust(Token::of_adjustment(&key), units), belief)
                    }
                    _ => continue,
                };
                if twice {
                    asks.push((order, ask.clone(), then));
                }
                asks.push((order, ask, then));
            }
            if asks.is_empty() && steps.len() == 0 {
                break;
            }
            let round = decide(current.as_ref(), asks.iter().map(|(_, ask, _)| ask), NOW);
            for ((order, ask, then), told) in asks.iter().zip(&round.told) {
                match told {
                    Told::Done(_) => beliefs.get_mut(order).unwrap().0 = *then,
                    Told::Short(_) => prop_assert!(matches!(ask, Ask::Reserve(..))),
                    other => prop_assert!(false, "{ask:?} was told {other:?}"),
                }
            }
            current = round.after.or(current);
            let level = current.as_ref().unwrap().level;
            let sum = |of: &[Believed]| -> i64 {
                beliefs.values().filter(|(belief, _)| of.contains(belief)).map(|(_, n)| n).sum()
            };
            prop_assert_eq!(level.reserved, sum(&[Believed::Held, Believed::Settled]));
            prop_assert_eq!(level.quantity, stocked - sum(&[Believed::Committed]));
            prop_assert!(0 <= level.reserved && level.reserved <= level.quantity);
        }
    }
}
