//! A cart as it is kept: a checkpoint, and the operations after it.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    CHECKPOINT_AFTER, Cart, Change, KeyNote, Operation, RENEW_AFTER, SETTLED_AFTER, TOUCH_EVERY,
};
use crate::clock::Timestamp;

/// What the operations up to a moment come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// It covers the operations up to this moment.
    pub until: Timestamp,
    /// When it was written.
    pub written_at: Timestamp,
    /// What they come to.
    pub cart: Cart,
    /// Those of its operations that may turn up again with a later time, by a client that tried
    /// twice and a process that had not seen this checkpoint; with the moment since when a
    /// checkpoint has covered them.
    pub covered: BTreeMap<Uuid, Timestamp>,
}

/// A cart as it is kept: a checkpoint, and the operations after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CartLog {
    /// The newest checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// Operations, in any order; also ones that the checkpoint covers, and ones that stand twice.
    pub operations: Vec<Operation>,
}

impl CartLog {
    /// The operations after the checkpoint, in any order, copies among them.
    fn after_checkpoint(&self) -> impl Iterator<Item = &Operation> {
        let checkpoint = self.checkpoint.as_ref();
        self.operations.iter().filter(move |operation| {
            checkpoint.is_none_or(|checkpoint| {
                operation.at > checkpoint.until && !checkpoint.covered.contains_key(&operation.id)
            })
        })
    }

    /// The operations after the checkpoint in the order in which they count, each once.
    fn in_order(&self) -> Vec<&Operation> {
        let mut operations: Vec<_> = self.after_checkpoint().collect();
        operations.sort_unstable_by_key(|operation| (operation.at, operation.id));
        let mut seen = HashSet::with_capacity(operations.len());
        // Of copies the last one counts: each has the time before its writer looked for others, so
        // none is later than what was done once one of them was acknowledged.
        operations.reverse();
        operations.retain(|operation| seen.insert(operation.id));
        operations.reverse();
        operations
    }

    fn start(&self) -> Cart {
        self.checkpoint.as_ref().map(|checkpoint| checkpoint.cart.clone()).unwrap_or_default()
    }

    /// What it comes to at a moment.
    pub fn fold(&self, now: Timestamp) -> Cart {
        let mut cart = self.start();
        self.in_order().into_iter().for_each(|operation| cart.apply(operation));
        if cart.is_over(now) {
            return Cart { on_their_way: cart.on_their_way, ..Cart::default() };
        }
        cart
    }

    /// The operation of an id, if no checkpoint covers it.
    pub fn find(&self, id: Uuid) -> Option<&Operation> {
        self.after_checkpoint().find(|operation| operation.id == id)
    }

    /// The time of an operation that is added now: after everything that is there, also if it was
    /// put there by a process whose clock is ahead.
    pub fn next_at(&self, now: Timestamp) -> Timestamp {
        self.newest().map_or(now, |last| now.max(Timestamp::from_micros(last.micros() + 1)))
    }

    /// The time of the newest operation.
    pub fn newest(&self) -> Option<Timestamp> {
        let last = self.operations.iter().map(|operation| operation.at).max();
        last.max(self.checkpoint.as_ref().map(|checkpoint| checkpoint.until))
    }

    /// The lines that operations speak of which no checkpoint covers.
    pub fn unfolded(&self) -> usize {
        self.after_checkpoint().map(|operation| operation.change.weight()).sum()
    }

    /// The number of the next hand-over.
    pub fn next_hand_over(&self) -> u32 {
        let numbers = self.operations.iter().filter_map(|operation| match &operation.change {
            Change::HandOver(hand_over) => Some(hand_over.number + 1),
            _ => None,
        });
        numbers.max().unwrap_or(0)
    }

    /// Whether enough has come together since the last checkpoint.
    pub fn wants_checkpoint(&self, now: Timestamp) -> bool {
        let settled = settled_until(now);
        self.after_checkpoint().filter(|operation| operation.at <= settled).count()
            >= CHECKPOINT_AFTER
    }

    /// Whether a look at it now has to be noted; with what it comes to.
    pub fn wants_touch(&self, cart: &Cart, now: Timestamp) -> bool {
        cart.touched_at
            .is_some_and(|touched| now >= touched.after(TOUCH_EVERY) || self.wants_renewal(now))
    }

    /// Whether something of it is so old that a touch has to renew it.
    pub fn wants_renewal(&self, now: Timestamp) -> bool {
        let written = self.checkpoint.as_ref().map(|checkpoint| checkpoint.written_at);
        let operations = self.after_checkpoint().map(|operation| operation.at);
        let oldest = operations.chain(written).min();
        oldest.is_some_and(|oldest| now >= oldest.after(RENEW_AFTER))
    }

    /// A checkpoint that covers what is settled at a moment before which the log was read, and the
    /// notes of what it is the first to cover; with `touch`, the cart counts as touched then.
    pub fn checkpoint_at(&self, now: Timestamp, touch: bool) -> (Checkpoint, Vec<KeyNote>) {
        let before = self.checkpoint.as_ref();
        let until = Some(settled_until(now)).max(before.map(|before| before.until));
        let until = until.unwrap_or_default();
        let (mut cart, mut notes) = (self.start(), Vec::new());
        // A copy of an operation comes from somebody who read the log before it was covered, and is
        // soon written: once that time is covered too, there will be none.
        let may_come_again = |since: Timestamp| until <= since.after(SETTLED_AFTER);
        let mut covered = before.map(|before| before.covered.clone()).unwrap_or_default();
        covered.retain(|_, since| may_come_again(*since));
        for operation in self.in_order().into_iter().filter(|operation| operation.at <= until) {
            cart.apply(operation);
            if operation.is_keyed {
                let fingerprint = operation.change.fingerprint();
                notes.push(KeyNote { id: operation.id, fingerprint });
                covered.insert(operation.id, now);
            }
        }
        if touch && !cart.is_over(now) {
            cart.touched_at = cart.touched_at.max(Some(now));
        }
        (Checkpoint { until, written_at: now, cart, covered }, notes)
    }
}

fn settled_until(now: Timestamp) -> Timestamp {
    now.before(SETTLED_AFTER)
}
