//! The checker itself, on histories that are known to be right or wrong; and its rules, compared
//! with those of the shop.

use std::collections::BTreeMap;

use vitrina::clock::{Clock, SystemClock};
use vitrina::inventory::model::{self as shop, Ask, StockLevel, StockRow, Told, decide};

use super::checker::{MAX_CALLS, Verdict, check, judge};
use super::history::{History, Operation};
use super::model::{Answer, Call, Mark, Seen, State};
use super::scene::{mark_of, token};
use crate::support::{Random, seed};

const ROW: &str = "A";

fn told(client: &str, span: std::ops::Range<u64>, call: Call, answer: Answer) -> Operation {
    let (client, row) = (client.to_owned(), ROW.to_owned());
    Operation { client, row, call, began: span.start, told: Some((span.end, answer)), after: None }
}

/// A call that was never answered.
fn lost(client: &str, began: u64, call: Call) -> Operation {
    Operation { told: None, ..told(client, began..began, call, Answer::Done) }
}

fn available(available: i64) -> Answer {
    Answer::Seen(Seen { available, ..Seen::default() })
}

fn at_version(available: i64, version: i64) -> Answer {
    Answer::Seen(Seen { available, version: Some(version), ..Seen::default() })
}

fn release(name: u16, units: i64) -> Call {
    Call::Release { name, units, recorded: false }
}

fn verdict(units: i64, operations: &[Operation]) -> Verdict {
    let verdict = judge(operations, units);
    let history = History { operations: operations.to_vec(), events: Vec::new() };
    assert_eq!(check(&history, units).is_ok(), verdict == Verdict::Linearizable);
    verdict
}

#[track_caller]
fn accepted(units: i64, operations: &[Operation]) {
    assert_eq!(verdict(units, operations), Verdict::Linearizable);
}

#[track_caller]
fn rejected(units: i64, operations: &[Operation]) {
    assert!(matches!(verdict(units, operations), Verdict::Broken { .. }));
}

#[test]
fn what_can_be_told_one_after_another_is_accepted() {
    accepted(5, &[]);
    // Two at once, of which only one fits: in either order.
    for (first, second) in [(Answer::Done, Answer::Short(1)), (Answer::Short(1), Answer::Done)] {
        accepted(
            3,
            &[
                told("a", 0..3, Call::Reserve(1, 2), first),
                told("b", 1..2, Call::Reserve(2, 2), second),
            ],
        );
    }
    // A reader beside a writer sees either; one that reads twice sees them in this order.
    for seen in [[3, 3], [3, 2], [2, 2]] {
        accepted(
            3,
            &[
                told("a", 0..9, Call::Reserve(1, 1), Answer::Done),
                told("b", 1..2, Call::Read, available(seen[0])),
                told("b", 3..4, Call::Read, available(seen[1])),
            ],
        );
    }
    // One token, asked for twice, counts once, also when it was settled between.
    accepted(
        3,
        &[
            told("a", 0..1, Call::Reserve(1, 2), Answer::Done),
            told("a", 2..3, Call::Reserve(1, 2), Answer::Done),
            told("a", 4..5, Call::Settle(1), Answer::Done),
            told("a", 6..7, Call::Read, available(1)),
            told("a", 8..9, Call::Commit(1, 2), Answer::Done),
            told("a", 10..11, Call::Read, available(1)),
        ],
    );
}

#[test]
fn a_call_without_an_answer_happened_some_time_later_or_never() {
    let begun = lost("a", 0, Call::Reserve(1, 2));
    for seen in [[3, 3], [3, 1], [1, 1]] {
        let reads = [(1..2, seen[0]), (3..4, seen[1])];
        let reads = reads.map(|(span, seen)| told("b", span, Call::Read, available(seen)));
        accepted(3, &[&[begun.clone()][..], &reads].concat());
    }
    let reads = |seen: [i64; 2]| {
        [(1..2, seen[0]), (3..4, seen[1])]
            .map(|(span, seen)| told("b", span, Call::Read, available(seen)))
    };
    // What has happened does not unhappen, and nothing happens before it was asked for.
    rejected(3, &[&[begun.clone()][..], &reads([1, 3])].concat());
    rejected(3, &[&reads([1, 1])[..], &[lost("a", 5, Call::Reserve(1, 2))]].concat());
    // Whoever gave it up has seen to it that it does not happen any more.
    let given_up = told("a", 1..2, release(1, 2), Answer::Done);
    accepted(3, &[begun.clone(), given_up.clone(), told("b", 3..4, Call::Read, available(3))]);
    rejected(3, &[begun, given_up, told("b", 3..4, Call::Read, available(1))]);
}

#[test]
fn a_stale_read_is_rejected() {
    let bought = told("a", 0..1, Call::Reserve(1, 1), Answer::Done);
    rejected(3, &[bought.clone(), told("b", 2..3, Call::Read, available(3))]);
    // The same number is not the same row.
    let back = told("a", 2..3, release(1, 1), Answer::Done);
    let first = told("b", 4..5, Call::Read, at_version(3, 7));
    accepted(3, &[bought.clone(), back.clone(), first.clone()]);
    rejected(3, &[first, told("b", 6..7, Call::Read, at_version(3, 6))]);
    let between = told("a", 6..7, Call::Adjust(1, 1), Answer::Done);
    let read = |span, available| told("b", span, Call::Read, at_version(available, 7));
    rejected(3, &[read(4..5, 3), between.clone(), read(8..9, 4)]);
    // A refusal tells of the row like a read.
    rejected(3, &[bought, told("b", 2..3, Call::Reserve(2, 5), Answer::Short(3))]);
}

#[test]
fn a_lost_update_is_rejected() {
    // Both have added to what they read, and the second one has overwritten the first.
    rejected(
        3,
        &[
            told("a", 0..4, Call::Adjust(1, 2), Answer::Done),
            told("b", 1..3, Call::Adjust(2, 5), Answer::Done),
            told("c", 5..6, Call::Read, available(8)),
        ],
    );
}

#[test]
fn a_token_that_counts_twice_is_rejected() {
    let seen = |units| told("c", 9..10, Call::Read, available(units));
    for second in [1..5, 2..3] {
        let twice = [
            told("a", 0..1, Call::Reserve(1, 1), Answer::Done),
            told("b", second.start + 1..second.end + 3, Call::Reserve(1, 1), Answer::Done),
        ];
        accepted(3, &[&twice[..], &[seen(2)]].concat());
        rejected(3, &[&twice[..], &[seen(1)]].concat());
    }
    // Also by a call that was lost, and when its row does not remember it any more.
    let settled = [
        lost("a", 0, Call::Reserve(1, 1)),
        told("a", 1..2, Call::Reserve(1, 1), Answer::Done),
        told("a", 3..4, Call::Settle(1), Answer::Done),
    ];
    accepted(3, &[&settled[..], &[seen(2)]].concat());
    rejected(3, &[&settled[..], &[seen(1)]].concat());
    let adjusted = [lost("a", 0, Call::Adjust(1, 4)), lost("a", 1, Call::Adjust(1, 4))];
    accepted(3, &[&adjusted[..], &[seen(7)]].concat());
    rejected(3, &[&adjusted[..], &[seen(11)]].concat());
}

#[test]
fn an_oversell_is_rejected_and_told_of_briefly() {
    let mut operations = vec![
        told("a", 0..1, Call::Read, available(2)),
        told("b", 2..3, Call::Adjust(1, 1), Answer::Done),
        told("a", 4..9, Call::Reserve(1, 2), Answer::Done),
        told("b", 5..8, Call::Reserve(2, 2), Answer::Done),
        told("c", 6..7, Call::Reserve(3, 9), Answer::Short(3)),
        told("c", 10..11, Call::Read, available(1)),
    ];
    rejected(2, &operations);
    let history = History { operations: operations.clone(), events: Vec::new() };
    let fault = check(&history, 2).unwrap_err();
    let least = fault.split("all calls").next().unwrap();
    let lines: Vec<_> = least.lines().filter(|line| line.contains('…')).skip(1).collect();
    // Up to the answer that cannot be, without those that change nothing.
    assert_eq!(lines.len(), 3, "{fault}");
    assert!(fault.contains("reserve 2 for #2"), "{fault}");
    // A buyer that was told nothing may have got nothing.
    operations[2].told = None;
    accepted(2, &operations);
}

#[test]
fn rows_are_judged_each_for_itself() {
    let other = |one: Operation| Operation { row: "B".to_owned(), ..one };
    let sound = [
        told("a", 0..1, Call::Reserve(1, 2), Answer::Done),
        other(told("a", 2..3, Call::Reserve(1, 2), Answer::Done)),
    ];
    let history = |operations: &[Operation]| History {
        operations: operations.to_vec(),
        events: vec![(4, "the clients go home".to_owned())],
    };
    assert!(check(&history(&sound), 2).is_ok());
    let wrong = other(told("b", 5..6, Call::Read, available(1)));
    let fault = check(&history(&[&sound[..], &[wrong]].concat()), 2).unwrap_err();
    assert!(fault.starts_with("B, with 2 at first"), "{fault}");
    assert!(fault.contains("the clients go home"), "{fault}");
}

#[test]
fn a_history_that_is_too_much_is_no_pass() {
    let read = |at: usize| {
        let at = u64::try_from(at).unwrap();
        told("a", 2 * at..2 * at + 1, Call::Read, available(3))
    };
    let many: Vec<_> = (0..=MAX_CALLS).map(read).collect();
    accepted(3, &many[1..]);
    assert_eq!(verdict(3, &many), Verdict::Undecided);
    // All at once, each of them possible at any time, and in the end something that is not.
    let mut at_once: Vec<_> =
        (0..40_u16).map(|name| lost("a", u64::from(name), Call::Adjust(name, 1))).collect();
    at_once.push(told("b", 50..51, Call::Read, available(1_000)));
    assert_eq!(judge(&at_once, 3), Verdict::Undecided);
}

/// What the shop's own rules ask for.
fn ask(call: &Call) -> Option<Ask> {
    Some(match *call {
        Call::Reserve(name, units) => Ask::Reserve(token(name), units),
        Call::TakeBack(name) => Ask::TakeBack(token(name)),
        Call::Settle(name) => Ask::Settle(token(name)),
        Call::Close(name) => Ask::Close(token(name)),
        Call::Release { name, units, recorded } => {
            Ask::Release { token: token(name), units, recorded }
        }
        Call::Commit(name, units) => Ask::Commit(token(name), units),
        Call::Set(quantity) => Ask::Set(shop::Token::of_set(uuid::Uuid::new_v4()), quantity),
        Call::Adjust(name, delta) => {
            Ask::Adjust(shop::Token::of_adjustment(&name.to_string()), delta)
        }
        Call::Read => return None,
    })
}

/// Any call; the units and the delta of a name are always the same.
fn any_call(random: &mut Random) -> Call {
    let name = u16::try_from(random.below(4)).unwrap();
    let units = i64::from(name) + 1;
    let recorded = random.below(2) == 0;
    match random.below(9) {
        0..=2 => Call::Reserve(name, units),
        3 => Call::TakeBack(name),
        4 => Call::Close(name),
        5 => Call::Release { name, units, recorded },
        6 => Call::Commit(name, units),
        7 => Call::Set(i64::try_from(random.below(8)).unwrap()),
        _ => Call::Adjust(name, units - 3),
    }
}

/// The rules are written twice; one after another, both say the same. (Settling is left out: there
/// the checker remembers more than a row does, on purpose.)
#[test]
fn the_rules_are_those_of_the_shop() {
    let (mut random, now) = (Random(seed()), SystemClock.now());
    for _ in 0..500 {
        let level = StockLevel { quantity: 5, reserved: 0, version: 1, updated_at: now };
        let mut row = StockRow { level, marks: BTreeMap::new(), turn: None };
        let mut state = State::stocked(5);
        for _ in 0..30 {
            let call = any_call(&mut random);
            let round = decide(Some(&row), ask(&call).iter(), now);
            let shop = match round.told[0] {
                Told::Done(_) => Answer::Done,
                Told::Short(available) => Answer::Short(available),
                Told::Undone => Answer::Undone,
                Told::Below { .. } => Answer::Below,
                Told::Impossible => Answer::Impossible,
                told => panic!("{call}: {told:?}"),
            };
            let before = state.to_string();
            assert_eq!(state.change(&call), shop, "{call}, after {before}");
            row = round.after.unwrap_or(row);
            let marks = row.marks.iter().filter_map(|(token, mark)| mark_of(token, *mark));
            let seen = Seen {
                available: row.level.available(),
                quantity: Some(row.level.quantity),
                version: None,
                marks: Some(marks.collect::<BTreeMap<u16, Mark>>()),
            };
            let read = state.after(&Call::Read, Some(&Answer::Seen(seen)));
            assert!(read.is_some(), "{call}, after {before}: {state}, but {row:?}");
        }
    }
}
