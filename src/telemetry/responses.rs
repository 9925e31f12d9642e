//! What the cache of answers counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabels {
    result: &'static str,
}

/// What the cache of answers counts. Found once: to look a counter up costs more than a hit.
#[derive(Debug, Clone)]
pub(crate) struct ResponseCounters {
    hits: Counter,
    misses: Counter,
    bypasses: Counter,
}

impl ResponseCounters {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let results: Family<ResponseLabels, Counter> = Family::default();
        registry.register(
            "responses",
            "Queries and mutations by whether their answer was at hand, had to be made, or is for \
             nobody else",
            results.clone(),
        );
        let counter = |result| results.get_or_create(&ResponseLabels { result }).clone();
        Self { hits: counter("hit"), misses: counter("miss"), bypasses: counter("bypass") }
    }

    /// Notes an answer that was at hand.
    pub(crate) fn hit(&self) {
        self.hits.inc();
    }

    /// Notes one that had to be made.
    pub(crate) fn missed(&self) {
        self.misses.inc();
    }

    /// Notes one that is for nobody else.
    pub(crate) fn bypassed(&self) {
        self.bypasses.inc();
    }
}
