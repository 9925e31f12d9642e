//! What checkouts and the sweeper count.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CheckoutLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SweptLabels {
    task: &'static str,
    result: &'static str,
}

/// What checkouts and the sweeper count.
#[derive(Debug, Clone, Default)]
pub struct CheckoutCounters {
    outcomes: Family<CheckoutLabels, Counter>,
    swept: Family<SweptLabels, Counter>,
    pending: Gauge,
}

impl CheckoutCounters {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let checkouts = Self::default();
        registry.register(
            "checkouts",
            "Checkouts that became orders, were refused or given up, or were finished by the sweeper",
            checkouts.outcomes.clone(),
        );
        registry.register(
            "swept",
            "What was due, by kind and by what the look at it came to",
            checkouts.swept.clone(),
        );
        registry.register(
            "overdue",
            "What was due and could not be done in the last round of this instance",
            checkouts.pending.clone(),
        );
        checkouts
    }

    fn outcome(&self, outcome: &'static str) {
        self.outcomes.get_or_create(&CheckoutLabels { outcome }).inc();
    }

    /// Notes a checkout that became an order.
    pub(crate) fn placed(&self) {
        self.outcome("placed");
    }

    /// Notes one that found too little.
    pub(crate) fn refused(&self) {
        self.outcome("refused");
    }

    /// Notes one that was given up.
    pub(crate) fn undone(&self) {
        self.outcome("undone");
    }

    /// Notes one that another process had left and that was finished.
    pub(crate) fn finished(&self) {
        self.outcome("finished");
    }

    /// Notes something that was due, and what the look at it came to.
    pub(crate) fn swept(&self, task: &'static str, result: &'static str) {
        self.swept.get_or_create(&SweptLabels { task, result }).inc();
    }

    /// Notes how much is overdue.
    pub(crate) fn pending(&self, count: usize) {
        self.pending.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
