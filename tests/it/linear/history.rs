//! What was asked and told, and when: recorded by those who ask.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use super::model::{Answer, Call};

/// A call to one row, as its client saw it.
#[derive(Debug, Clone)]
pub struct Operation {
    pub client: String,
    pub row: String,
    pub call: Call,
    pub began: u64,
    /// `None`: the client does not know. It may have happened at any time since, and may yet.
    pub told: Option<(u64, Answer)>,
    /// The place, in its history, of a call that this one comes after: one answer may tell of a
    /// change and of the row as it was some time later.
    pub after: Option<usize>,
}

impl Operation {
    /// When its client was told.
    pub fn ended(&self) -> Option<u64> {
        self.told.as_ref().map(|(at, _)| *at)
    }

    pub fn answer(&self) -> Option<&Answer> {
        self.told.as_ref().map(|(_, answer)| answer)
    }
}

/// All that was recorded, in the order in which it began.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub operations: Vec<Operation>,
    /// What else happened, and when: for whoever reads it.
    pub events: Vec<(u64, String)>,
}

/// Records calls of concurrent clients. Its time is a counter: who reads it later, in whatever
/// thread, finds a greater number.
#[derive(Default)]
pub struct Recorder {
    time: AtomicU64,
    history: Mutex<History>,
    /// Calls that were answered, for whoever waits for a moment of the history.
    answers: watch::Sender<u64>,
    /// Calls that ended with an error.
    errors: watch::Sender<u64>,
    /// Whether nobody asks for anything any more.
    rests: watch::Sender<bool>,
}

/// A call that is under way.
#[derive(Debug, Clone, Copy)]
pub struct Begun(usize);

impl Recorder {
    fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a client asks; before it does.
    pub fn begin(&self, client: &str, row: &str, call: Call) -> Begun {
        self.begin_after(client, row, call, None)
    }

    /// Records a call that comes after another one of the same answer.
    pub fn begin_after(&self, client: &str, row: &str, call: Call, after: Option<Begun>) -> Begun {
        let mut history = self.history();
        let (client, row, began) = (client.to_owned(), row.to_owned(), self.now());
        let after = after.map(|Begun(at)| at);
        history.operations.push(Operation { client, row, call, began, told: None, after });
        Begun(history.operations.len() - 1)
    }

    /// Records what it was told; after it was. Who is never told anything records nothing.
    pub fn end(&self, Begun(at): Begun, answer: Answer) {
        let mut history = self.history();
        let now = self.now();
        history.operations[at].told = Some((now, answer));
        self.answers.send_modify(|answers| *answers += 1);
    }

    /// Records that a client was told of an error, which tells it nothing.
    pub fn failed(&self, client: &str, error: &impl std::fmt::Debug) {
        self.event(format!("{client} was told of an error: {error:?}"));
        self.errors.send_modify(|errors| *errors += 1);
    }

    /// Waits until so many more calls have been answered.
    pub async fn answers(&self, more: u64) {
        let goal = *self.answers.borrow() + more;
        let mut answers = self.answers.subscribe();
        self.unless_at_rest(answers.wait_for(|answers| *answers >= goal)).await;
    }

    /// Waits until one more client was told of an error.
    pub async fn an_error(&self) {
        let goal = *self.errors.borrow() + 1;
        let mut errors = self.errors.subscribe();
        self.unless_at_rest(errors.wait_for(|errors| *errors >= goal)).await;
    }

    /// Waits for a moment, but not when it cannot come any more because all have come to rest.
    pub async fn unless_at_rest(&self, moment: impl Future) {
        let mut rests = self.rests.subscribe();
        tokio::select! {
            _ = moment => {}
            _ = rests.wait_for(|rests| *rests) => {}
        }
    }

    /// Notes that clients begin to ask, or have come to rest.
    pub fn rests(&self, rests: bool) {
        self.rests.send_replace(rests);
    }

    /// Records calls that were done.
    pub fn done(&self, begun: &[Begun]) {
        for one in begun {
            self.end(*one, Answer::Done);
        }
    }

    /// Records that calls never were: their client knows that it did not get so far.
    pub fn never(&self, begun: &[Begun]) {
        let mut history = self.history();
        for Begun(at) in begun {
            // A read that nobody was told of is left out; so the places of the others stay.
            history.operations[*at].call = Call::Read;
        }
    }

    /// Records what was done to the clients or the store.
    pub fn event(&self, what: impl Into<String>) {
        let mut history = self.history();
        let now = self.now();
        history.events.push((now, what.into()));
    }

    /// What was recorded so far.
    pub fn recorded(&self) -> History {
        self.history().clone()
    }
}

impl History {
    /// The rows that were asked for anything.
    pub fn rows(&self) -> Vec<String> {
        let mut rows: Vec<_> = self.operations.iter().map(|one| one.row.clone()).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// The calls of one row. A call touches one row, so each row is right or wrong for itself.
    pub fn of_row(&self, row: &str) -> Vec<Operation> {
        let mut places = vec![None; self.operations.len()];
        let mut found = Vec::new();
        for (at, operation) in self.operations.iter().enumerate() {
            let is_nothing = operation.call == Call::Read && operation.told.is_none();
            if operation.row == row && !is_nothing {
                places[at] = Some(found.len());
                let after = operation.after.and_then(|at| places[at]);
                found.push(Operation { after, ..operation.clone() });
            }
        }
        found
    }

    /// Operations and events as lines in the order of their beginnings.
    pub fn lines(&self, operations: &[Operation]) -> String {
        let until = operations.iter().map(|one| one.ended().unwrap_or(one.began)).max();
        let line = |one: &Operation| {
            let told = one.told.as_ref().map_or_else(
                || "       never told".to_owned(),
                |(at, answer)| format!("{at:>5}  {answer}"),
            );
            (one.began, format!("{:>5} …{told:<48}  {:<10} {}", one.began, one.client, one.call))
        };
        let event = |(at, what): &(u64, String)| (*at, format!("{at:>5}  ——— {what}"));
        let events = self.events.iter().filter(|(at, _)| Some(*at) <= until);
        let mut lines: Vec<_> = operations.iter().map(line).chain(events.map(event)).collect();
        lines.sort_unstable();
        lines.iter().fold(String::new(), |mut text, (_, line)| {
            let _ = writeln!(text, "{line}");
            text
        })
    }
}
