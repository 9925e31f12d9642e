//! What an operation took, and its line in the log.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::Outcome;

/// What the log says of one operation: never its variables, its text or who asked.
pub(crate) struct OperationLine<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) root: Arc<str>,
    pub(crate) outcome: Outcome,
    pub(crate) code: Option<&'a str>,
    pub(crate) took: Duration,
    pub(crate) reads: &'a OperationReads,
    /// The events that a subscription has told of.
    pub(crate) events: Option<u64>,
}

/// What one operation has cost so far. It travels with the operation's task, so that a store can
/// count without knowing what it works for.
#[derive(Debug, Default)]
pub(crate) struct OperationStats {
    reads: Cell<u32>,
    lookups: Cell<u32>,
    cache_hits: Cell<u32>,
    pages: RefCell<Vec<PageStats>>,
    degraded: Cell<bool>,
}

/// What a page of a category took to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct PageStats {
    /// The read model that answered.
    pub(crate) model: &'static str,
    pub(crate) partitions: u32,
    pub(crate) rows: u32,
}

/// What an operation has cost.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OperationReads {
    /// Calls to the store that read.
    pub(crate) store_reads: u32,
    /// Keys and ranges that these looked up: on Cassandra one partition each.
    pub(crate) lookups: u32,
    /// Answers that needed none.
    pub(crate) cache_hits: u32,
    /// The pages of categories; at most [`MAX_PAGES_TOLD`].
    pub(crate) pages: Vec<PageStats>,
    /// Whether Redis was wanted and did not answer.
    #[serde(skip)]
    pub(crate) degraded: bool,
}

impl OperationReads {
    /// Adds what another event of the same subscription has cost.
    pub(crate) fn add(&mut self, event: Self) {
        self.store_reads = self.store_reads.saturating_add(event.store_reads);
        self.lookups = self.lookups.saturating_add(event.lookups);
        self.cache_hits = self.cache_hits.saturating_add(event.cache_hits);
        let room = MAX_PAGES_TOLD.saturating_sub(self.pages.len());
        self.pages.extend(event.pages.into_iter().take(room));
        self.degraded |= event.degraded;
    }
}

/// Pages of one operation that are told of.
const MAX_PAGES_TOLD: usize = 20;

tokio::task_local! {
    static OPERATION: OperationStats;
}

impl OperationStats {
    /// Runs an operation and answers with its result and what it has cost.
    pub(crate) async fn collect<F: Future>(operation: F) -> (F::Output, OperationReads) {
        let counted = async {
            let output = operation.await;
            let reads = OPERATION.with(|stats| OperationReads {
                store_reads: stats.reads.get(),
                lookups: stats.lookups.get(),
                cache_hits: stats.cache_hits.get(),
                pages: stats.pages.take(),
                degraded: stats.degraded.get(),
            });
            (output, reads)
        };
        OPERATION.scope(Self::default(), counted).await
    }

    /// Adds what a part of this operation has cost that ran in a task of its own.
    pub(crate) fn add(part: OperationReads) {
        let OperationReads { store_reads, lookups, cache_hits, pages, degraded } = part;
        Self::count(|stats| &stats.reads, store_reads);
        Self::count(|stats| &stats.lookups, lookups);
        Self::cache_hits(cache_hits);
        for PageStats { model, partitions, rows } in pages {
            Self::page(model, partitions, rows);
        }
        if degraded {
            Self::degraded();
        }
    }

    /// Notes what a page of a category took.
    pub(crate) fn page(model: &'static str, partitions: u32, rows: u32) {
        let _ = OPERATION.try_with(|stats| {
            let mut pages = stats.pages.borrow_mut();
            if pages.len() < MAX_PAGES_TOLD {
                pages.push(PageStats { model, partitions, rows });
            }
        });
    }

    /// Notes that Redis was wanted and did not answer.
    pub(crate) fn degraded() {
        let _ = OPERATION.try_with(|stats| stats.degraded.set(true));
    }

    /// Notes an answer that needed no read because the operation had read it before.
    pub(crate) fn cache_hit() {
        Self::cache_hits(1);
    }

    /// Counts a read of the store, and what it looked up.
    pub(crate) fn store_read(lookups: u32) {
        Self::count(|stats| &stats.reads, 1);
        Self::count(|stats| &stats.lookups, lookups);
    }

    /// Notes answers that needed no read because they were read before, by anybody.
    pub(crate) fn cache_hits(count: u32) {
        Self::count(|stats| &stats.cache_hits, count);
    }

    fn count(counter: impl Fn(&Self) -> &Cell<u32>, by: u32) {
        // Outside an operation (the demo, a migration) nobody asks.
        let _ = OPERATION.try_with(|stats| {
            let cell = counter(stats);
            cell.set(cell.get().saturating_add(by));
        });
    }
}
