//! What the program tells about itself: log lines and metrics.

mod checkouts;
mod lines;
mod log;
mod operations;
mod plain;
mod pressure;
mod responses;

use std::sync::Arc;
use std::time::Instant;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

pub use self::checkouts::CheckoutCounters;
pub use self::log::{LogGuard, init};
pub(crate) use self::operations::{OperationLine, OperationReads, OperationStats, PageStats};
pub(crate) use self::pressure::Pressure;
pub(crate) use self::responses::ResponseCounters;

/// Upper bounds of the time histograms, in seconds: from a hit in memory to the request deadline.
const SECONDS: [f64; 14] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];
/// Whether a store call reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// It reads.
    Read,
    /// It writes.
    Write,
}

/// How a request or operation ended. A fixed set, as every label of a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Without errors.
    Ok,
    /// The client asked for something it cannot have.
    Refused,
    /// The server could not do it.
    Failed,
}

/// Label values as lower-case words.
macro_rules! label_values {
    ($($label:ident { $($value:ident = $text:literal),+ })+) => {$(
        impl $label {
            fn as_str(self) -> &'static str {
                match self { $(Self::$value => $text),+ }
            }
        }

        impl EncodeLabelValue for $label {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
                self.as_str().encode(encoder)
            }
        }
    )+};
}

/// What an operation is for. Those who buy are served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// Carts, checkouts, orders and sessions.
    Buying,
    /// Everything else.
    Browsing,
}

label_values! {
    Traffic { Buying = "buying", Browsing = "browsing" }
    CallKind { Read = "read", Write = "write" }
    Outcome { Ok = "ok", Refused = "refused", Failed = "failed" }
    CacheResult { Hit = "hit", Miss = "miss" }
    CacheTier { Memory = "memory", Redis = "redis" }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreLabels {
    table: &'static str,
    kind: CallKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HttpLabels {
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    /// The first root field: a name of the schema, so clients cannot make up new ones.
    root: Arc<str>,
    outcome: Outcome,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All metrics of the process.
pub struct Metrics {
    registry: Registry,
    http: Histograms<HttpLabels>,
    operations: Histograms<OperationLabels>,
    store_calls: Histograms<StoreLabels>,
    store_failures: Family<StoreLabels, Counter>,
    documents: Family<DocumentLabels, Counter>,
    cache_lookups: Family<CacheLabels, Counter>,
    in_work: Gauge,
    pressure: Pressure,
    responses: ResponseCounters,
    stock: StockCounters,
    checkouts: CheckoutCounters,
    redis_in_use: Gauge,
    store_given_up: Gauge,
    degraded: Counter,
    sockets: Gauge,
    subscriptions: Gauge,
    slow_consumers: Counter,
}

/// What the writers of stock rows count.
#[derive(Debug, Clone, Default)]
pub(crate) struct StockCounters {
    rounds: Counter,
    requests: Counter,
    lost: Counter,
    doubts: Counter,
    handed: Counter,
}

impl StockCounters {
    /// Notes requests that another process has carried out.
    pub(crate) fn handed(&self, requests: usize) {
        self.handed.inc_by(u64::try_from(requests).unwrap_or(u64::MAX));
    }

    /// Requests that another process has carried out so far.
    #[cfg(test)]
    pub(crate) fn handed_total(&self) -> u64 {
        self.handed.get()
    }

    /// Notes a round that was written, and how many requests it answered.
    pub(crate) fn round(&self, requests: usize) {
        self.rounds.inc();
        self.requests.inc_by(u64::try_from(requests).unwrap_or(u64::MAX));
    }

    /// Notes a round that another process was ahead of.
    pub(crate) fn lost(&self) {
        self.lost.inc();
    }

    /// Notes a round whose reply was lost.
    pub(crate) fn doubt(&self) {
        self.doubts.inc();
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DocumentLabels {
    cache: CacheResult,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    cache: &'static str,
    tier: CacheTier,
    result: CacheResult,
}

/// Where a read cache keeps its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheTier {
    /// In this process.
    Memory,
    /// In Redis.
    Redis,
}

/// The counters of one tier of a read cache, found once and kept.
#[derive(Debug, Clone)]
pub(crate) struct CacheCounters {
    hits: Counter,
    misses: Counter,
}

impl CacheCounters {
    /// Notes keys that were there and keys that were not, for the metrics and for the operation.
    pub(crate) fn note(&self, hits: usize, misses: usize) {
        if hits > 0 {
            self.hits.inc_by(u64::try_from(hits).unwrap_or(u64::MAX));
            OperationStats::cache_hits(u32::try_from(hits).unwrap_or(u32::MAX));
        }
        if misses > 0 {
            self.misses.inc_by(u64::try_from(misses).unwrap_or(u64::MAX));
        }
    }
}

/// Whether a cache had what was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheResult {
    /// It had it.
    Hit,
    /// It had not.
    Miss,
}

impl Default for Metrics {
    fn default() -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        let mut registry = Registry::with_prefix("vitrina");
        let http = Family::new_with_constructor(histogram);
        let operations = Family::new_with_constructor(histogram);
        let store_calls = Family::new_with_constructor(histogram);
        let store_failures = Family::default();
        let documents = Family::default();
        let cache_lookups = Family::default();
        let in_work = Gauge::default();
        registry.register_with_unit(
            "http_request",
            "Time to answer an HTTP request, by route and status",
            Unit::Seconds,
            http.clone(),
        );
        registry.register_with_unit(
            "operation",
            "Time to execute a GraphQL operation, by its first root field and outcome",
            Unit::Seconds,
            operations.clone(),
        );
        registry.register_with_unit(
            "store_call",
            "Time of a call to the store, by table",
            Unit::Seconds,
            store_calls.clone(),
        );
        registry.register(
            "store_failures",
            "Calls to the store that failed, by table",
            store_failures.clone(),
        );
        registry.register(
            "documents",
            "GraphQL documents, by whether they had been parsed and checked before",
            documents.clone(),
        );
        registry.register(
            "cache_lookups",
            "Keys that a read cache was asked for, by cache, tier and whether it had them",
            cache_lookups.clone(),
        );
        registry.register("requests_in_work", "HTTP requests being worked on", in_work.clone());
        let pressure = Pressure::register(&mut registry);
        let responses = ResponseCounters::register(&mut registry);
        let stock = StockCounters::default();
        for (name, help, counter) in [
            ("stock_rounds", "Conditional writes of stock rows", &stock.rounds),
            ("stock_requests", "Requests that these writes have answered", &stock.requests),
            ("stock_lost_rounds", "Writes that another process was ahead of", &stock.lost),
            ("stock_doubts", "Writes whose reply was lost", &stock.doubts),
            ("stock_handed", "Requests that another process has carried out", &stock.handed),
        ] {
            registry.register(name, help, counter.clone());
        }
        let checkouts = CheckoutCounters::register(&mut registry);
        let degraded = Counter::default();
        let help = "Operations that wanted Redis and did without";
        registry.register("degraded_operations", help, degraded.clone());
        let (redis_in_use, store_given_up) = (Gauge::default(), Gauge::default());
        let (sockets, subscriptions) = (Gauge::default(), Gauge::default());
        for (name, help, gauge) in [
            (
                "redis_in_use",
                "1 while Redis answers, 0 while it is left alone or there is none",
                &redis_in_use,
            ),
            ("store_given_up", "1 while too few nodes of the cluster answer", &store_given_up),
            ("websocket_connections", "WebSocket connections that are open", &sockets),
            ("subscriptions", "Subscriptions that run", &subscriptions),
        ] {
            registry.register(name, help, gauge.clone());
        }
        let slow_consumers = Counter::default();
        registry.register(
            "slow_consumers",
            "WebSocket connections dropped because their client did not take what was sent",
            slow_consumers.clone(),
        );
        Self {
            registry,
            http,
            operations,
            store_calls,
            store_failures,
            documents,
            cache_lookups,
            in_work,
            pressure,
            responses,
            stock,
            checkouts,
            redis_in_use,
            store_given_up,
            degraded,
            sockets,
            subscriptions,
            slow_consumers,
        }
    }
}

impl Metrics {
    /// The metrics in the text format that Prometheus reads.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.registry);
        out
    }

    /// Notes a call to the store that read, and how many keys and ranges it looked up, for the
    /// metrics and for the operation it is part of.
    pub fn store_read(&self, table: &'static str, started: Instant, ok: bool, lookups: u32) {
        self.store_call(table, CallKind::Read, started, ok);
        OperationStats::store_read(lookups);
    }

    /// The same for one that wrote.
    pub fn store_write(&self, table: &'static str, started: Instant, ok: bool) {
        self.store_call(table, CallKind::Write, started, ok);
    }

    fn store_call(&self, table: &'static str, kind: CallKind, started: Instant, ok: bool) {
        let labels = StoreLabels { table, kind };
        self.store_calls.get_or_create(&labels).observe(started.elapsed().as_secs_f64());
        if !ok {
            self.store_failures.get_or_create(&labels).inc();
        }
    }

    /// Notes whether a document had been seen before.
    pub(crate) fn document(&self, cache: CacheResult) {
        self.documents.get_or_create(&DocumentLabels { cache }).inc();
    }

    /// The counters of one tier of a read cache.
    pub(crate) fn cache(&self, cache: &'static str, tier: CacheTier) -> CacheCounters {
        let counter =
            |result| self.cache_lookups.get_or_create(&CacheLabels { cache, tier, result }).clone();
        CacheCounters { hits: counter(CacheResult::Hit), misses: counter(CacheResult::Miss) }
    }

    pub(crate) fn http_request(&self, route: &'static str, status: u16, started: Instant) {
        let labels = HttpLabels { route, status };
        self.http.get_or_create(&labels).observe(started.elapsed().as_secs_f64());
    }

    pub(crate) fn stock(&self) -> &StockCounters {
        &self.stock
    }

    /// What checkouts count.
    pub fn checkouts(&self) -> &CheckoutCounters {
        &self.checkouts
    }

    /// Notes whether Redis is in use.
    pub(crate) fn redis_in_use(&self, in_use: bool) {
        self.redis_in_use.set(in_use.into());
    }

    /// Notes whether the cluster was given up.
    pub(crate) fn store_given_up(&self, is_out: bool) {
        self.store_given_up.set(is_out.into());
    }

    /// What more clients and requests than there is room for count.
    pub(crate) fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    /// What the cache of answers counts.
    pub(crate) fn responses(&self) -> &ResponseCounters {
        &self.responses
    }

    pub(crate) fn in_work(&self) -> &Gauge {
        &self.in_work
    }

    /// The open WebSocket connections.
    pub(crate) fn sockets(&self) -> &Gauge {
        &self.sockets
    }

    /// The running subscriptions.
    pub(crate) fn subscriptions(&self) -> &Gauge {
        &self.subscriptions
    }

    /// Notes a WebSocket connection whose client did not take what was sent.
    pub(crate) fn slow_consumer(&self) {
        self.slow_consumers.inc();
    }

    /// Notes a finished operation, and writes its line to the log.
    pub(crate) fn operation(&self, line: &OperationLine<'_>) {
        let seconds = line.took.as_secs_f64();
        let labels = OperationLabels { root: line.root.clone(), outcome: line.outcome };
        self.operations.get_or_create(&labels).observe(seconds);
        if line.reads.degraded {
            self.degraded.inc();
        }
        // Of several pages, the sums; and the read model of the first.
        let pages = line.reads.pages.first().map(|first| {
            let sum = |of: fn(&PageStats) -> u32| line.reads.pages.iter().map(of).sum::<u32>();
            (first.model, sum(|page| page.partitions), sum(|page| page.rows))
        });
        tracing::info!(
            target: "vitrina::operation",
            request_id = line.request_id,
            name = line.name,
            root = &*line.root,
            outcome = line.outcome.as_str(),
            code = line.code,
            ms = (seconds * 1e6).round() / 1e3,
            reads = line.reads.store_reads,
            cache_hits = line.reads.cache_hits,
            degraded = line.reads.degraded.then_some("cache"),
            model = pages.map(|pages| pages.0),
            partitions = pages.map(|pages| pages.1),
            rows = pages.map(|pages| pages.2),
            events = line.events,
            "operation"
        );
    }
}
