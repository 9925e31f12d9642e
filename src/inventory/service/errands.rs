//! What a writer whose turn it is does for those who wait.
//!
//! In turns alone, only the buyers of one process at a time are served, and a round costs the same
//! for a third of them as for all. So a writer that waits puts what it is asked for beside the row,
//! as an errand for the one whose turn it is; that one takes it along in its next round and reports.
//!
//! # Why nothing is done twice, or after somebody was told that it was not
//!
//! Only the writer that an errand is for runs it, and only once: it remembers the numbers. (A writer
//! that begins anew has a new name.) Who gave it believes a report, or takes the errand back and does
//! it itself. When it is taken back, the other one may be about to write it all the same. But each
//! round decides only on errands that were read when the row was already known to be of the version
//! that the round is for. So whatever is written of an errand that was taken back is written on a
//! version from before that; and of the first version that is seen after it, no refusal is told until
//! the row has moved on. It is a write whose reply was lost, and is met like one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::super::model::{Ask, Errand, Report, StockKey, StockLevel, Told};
use super::super::store::InventoryStore;
use super::combiner::Waiting;

/// Most requests of others that one round takes along, beyond the first errand.
const MAX_TAKEN: usize = 2_000;
/// The time between two looks for a report, about.
pub(super) const REPORT_LOOK: Duration = Duration::from_millis(4);
/// An errand without a report is taken back after this time.
pub(super) const PATIENCE: Duration = Duration::from_millis(400);
/// After this time an errand is gone, whether it could be taken back or not: more than its life.
pub(super) const GONE: Duration = Duration::from_secs(4);

/// How long it is remembered which errands were run: far beyond their life.
const REMEMBER: Duration = Duration::from_secs(60);

/// An errand that is out, with those who wait for it.
pub(super) struct Sent {
    pub(super) to: Uuid,
    pub(super) number: i64,
    pub(super) at: Instant,
    pub(super) batch: Vec<Waiting>,
}

/// The errands that this writer has run for others.
#[derive(Default)]
pub(super) struct Errands {
    /// The last one of each writer, and when that was. Not forgotten when it is not seen any more: it
    /// may be seen again as long as one copy of it is left.
    run: HashMap<Uuid, (i64, Instant)>,
}

impl Errands {
    /// Those that are to be run by `me`. Whoever calls knows the version of the row already.
    pub(super) async fn wanted(
        &mut self,
        store: &dyn InventoryStore,
        key: &StockKey,
        me: Uuid,
    ) -> Vec<Errand> {
        // Who is not heard does it itself.
        let mut errands = store.errands(key).await.unwrap_or_default();
        self.run.retain(|_, (_, at)| at.elapsed() < REMEMBER);
        let mut taken = 0;
        errands.retain(|errand| {
            let is_new = self.run.get(&errand.from).is_none_or(|(last, _)| *last < errand.number);
            let is_wanted = is_new && errand.to == me && !errand.asks.is_empty();
            let fits = taken == 0 || taken + errand.asks.len() <= MAX_TAKEN;
            taken += if is_wanted && fits { errand.asks.len() } else { 0 };
            is_wanted && fits
        });
        errands
    }

    /// Reports what became of errands: what they were told, one after another, and the row after it;
    /// `None`: nothing was done.
    pub(super) fn report(
        &mut self,
        store: &Arc<dyn InventoryStore>,
        key: &StockKey,
        errands: &[Errand],
        outcome: Option<(StockLevel, &[Told])>,
    ) {
        let mut begin = 0;
        for Errand { from, number, asks, .. } in errands {
            let end = begin + asks.len();
            let report = match outcome {
                Some((level, told)) => Report::of(level, &told[begin..end]),
                None => Report::DECLINED,
            };
            begin = end;
            self.run.insert(*from, (*number, Instant::now()));
            let (store, key, from, number) = (store.clone(), key.clone(), *from, *number);
            // The next round does not wait for it. Who does not hear of it asks the row.
            tokio::spawn(async move { store.report_errand(&key, from, number, &report).await });
        }
    }
}

/// All that is asked in errands.
pub(super) fn asks(errands: &[Errand]) -> impl Iterator<Item = &Ask> {
    errands.iter().flat_map(|errand| &errand.asks)
}
