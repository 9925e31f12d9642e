//! Whether a history can be told as a story of one thing after another (Wing and Gong's search, with
//! Lowe's memory of what was tried).
//!
//! A history of a row is linearizable if its calls can be put in an order in which each one comes
//! after all that had ended before it began, and in which the sequential rules give the answers
//! that were given. A call that was never answered stands anywhere after its beginning, or nowhere.
//! The search puts one call after another; what it remembers is which calls it has put and what the
//! row has come to, because how it got there makes no difference for the rest.

use std::collections::HashSet;

use super::history::{History, Operation};
use super::model::{Call, State};

/// Most calls of one row: their set is a number.
pub const MAX_CALLS: usize = 128;
/// Most times that a call is put after others: a second or two of a debug build. The histories of
/// these tests take a few thousand at the most.
const MAX_ATTEMPTS: usize = 100_000;

/// What a history of a row is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    /// No order explains it. The state in which the longest attempt ended is for whoever looks for
    /// the fault.
    Broken {
        last: String,
    },
    /// It was given up after [`MAX_ATTEMPTS`], or has more than [`MAX_CALLS`]: that is no pass.
    Undecided,
}

/// Judges the calls of one row, which began with so many units.
pub fn judge(operations: &[Operation], units: i64) -> Verdict {
    search(operations, units).0
}

/// The same; and how often a call was put after others.
fn search(operations: &[Operation], units: i64) -> (Verdict, usize) {
    let mut attempts = 0;
    if operations.len() > MAX_CALLS {
        return (Verdict::Undecided, attempts);
    }
    let answered = set(operations, |one| one.told.is_some());
    let (mut tried, mut stack) = (HashSet::new(), vec![(0_u128, State::stocked(units))]);
    let mut deepest = (0, State::stocked(units));
    while let Some((put, state)) = stack.pop() {
        if put & answered == answered {
            return (Verdict::Linearizable, attempts);
        }
        if attempts >= MAX_ATTEMPTS {
            return (Verdict::Undecided, attempts);
        }
        if (put & answered).count_ones() >= deepest.0 {
            deepest = ((put & answered).count_ones(), state.clone());
        }
        // Whoever ended first of those that are left comes before all that began later.
        let is_left = |at: usize| put & (1 << at) == 0;
        let left = || operations.iter().enumerate().filter(|(at, _)| is_left(*at));
        let first_end = left().filter_map(|(_, one)| one.ended()).min().unwrap_or(u64::MAX);
        let may_be_next = |one: &Operation| {
            one.began < first_end && one.after.is_none_or(|before| !is_left(before))
        };
        // The last one that is pushed is tried first: those that were answered, the earliest first.
        let mut next: Vec<_> = left().filter(|(_, one)| may_be_next(one)).collect();
        next.sort_unstable_by_key(|(_, one)| std::cmp::Reverse(one.ended().unwrap_or(u64::MAX)));
        attempts += next.len();
        for (at, one) in next {
            let Some(after) = state.after(&one.call, one.answer()) else { continue };
            // Who was told nothing and changes nothing may as well not have happened; others
            // may wait for it.
            let is_idle = one.told.is_none() && after == state && !is_waited_for(operations, at);
            if !is_idle {
                let attempt = (put | 1 << at, after);
                if tried.insert(attempt.clone()) {
                    stack.push(attempt);
                }
            }
        }
    }
    (Verdict::Broken { last: deepest.1.to_string() }, attempts)
}

fn set(operations: &[Operation], is_in: impl Fn(&Operation) -> bool) -> u128 {
    let members = operations.iter().enumerate().filter(|(_, one)| is_in(one));
    members.fold(0, |set, (at, _)| set | 1 << at)
}

fn is_waited_for(operations: &[Operation], at: usize) -> bool {
    operations.iter().any(|one| one.after == Some(at))
}

/// Checks all rows of a history, each of which began with so many units; how many attempts the
/// hardest of them took. The error is for a person: the row, and the least of its history that is
/// wrong already.
pub fn check(history: &History, units: i64) -> Result<usize, String> {
    let mut most = 0;
    for row in history.rows() {
        let operations = history.of_row(&row);
        let (verdict, attempts) = search(&operations, units);
        most = most.max(attempts);
        match verdict {
            Verdict::Linearizable => {}
            Verdict::Undecided => {
                let lines = history.lines(&operations);
                return Err(format!("{row}, with {units} at first: undecided\n{lines}"));
            }
            Verdict::Broken { .. } => {
                let (least, last) = least(&operations, units);
                let (lines, all) = (history.lines(&least), history.lines(&operations));
                return Err(format!(
                    "{row}, with {units} at first: no order of these calls explains all answers\n\
                     began …  told\n{lines}the longest attempt came to: {last}\n\
                     all calls of the row:\n{all}"
                ));
            }
        }
    }
    Ok(most)
}

/// The least of a broken history that is broken still: up to the first answer that cannot be
/// explained, and without calls that change nothing and are not needed to see it.
fn least(operations: &[Operation], units: i64) -> (Vec<Operation>, String) {
    let broken = |operations: &[Operation]| match judge(operations, units) {
        Verdict::Broken { last } => Some(last),
        _ => None,
    };
    let mut ends: Vec<_> = operations.iter().filter_map(Operation::ended).collect();
    ends.sort_unstable();
    // What is so at a moment stays so: the first such moment is found by halving.
    let first = ends.partition_point(|end| broken(&until(operations, *end)).is_none());
    let mut least =
        ends.get(first).map_or_else(|| operations.to_vec(), |end| until(operations, *end));
    for at in (0..least.len()).rev() {
        if changes_nothing(&least[at]) && !is_waited_for(&least, at) {
            let fewer = without(&least, at);
            if broken(&fewer).is_some() {
                least = fewer;
            }
        }
    }
    let last = broken(&least).unwrap_or_default();
    (least, last)
}

/// What had happened up to a moment.
fn until(operations: &[Operation], moment: u64) -> Vec<Operation> {
    // In the order of their beginnings, so the places of those that are kept stay.
    let begun = operations.iter().take_while(|one| one.began <= moment).cloned();
    begun
        .map(|one| {
            let told = one.told.filter(|(at, _)| *at <= moment);
            Operation { told, ..one }
        })
        .collect()
}

fn without(operations: &[Operation], out: usize) -> Vec<Operation> {
    let mut fewer = operations.to_vec();
    fewer.remove(out);
    for one in &mut fewer {
        one.after = one.after.map(|at| if at > out { at - 1 } else { at });
    }
    fewer
}

/// Whether the row is the same with and without it, whatever it is: then a history that is broken
/// without it is broken.
fn changes_nothing(one: &Operation) -> bool {
    use super::model::Answer::{Below, Impossible, Short, Undone};
    one.call == Call::Read || matches!(one.answer(), Some(Short(_) | Undone | Below | Impossible))
}
