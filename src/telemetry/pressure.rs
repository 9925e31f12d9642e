//! Counters of clients and requests for which there was no room.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Traffic;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TrafficLabels {
    traffic: Traffic,
}

/// What more clients and requests than there is room for count.
pub(crate) struct Pressure {
    connections: Gauge,
    browsing_places: Gauge,
    refused: Counter,
    shed: Family<TrafficLabels, Counter>,
    limited: Counter,
}

impl Pressure {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let this = Self {
            connections: Gauge::default(),
            browsing_places: Gauge::default(),
            refused: Counter::default(),
            shed: Family::default(),
            limited: Counter::default(),
        };
        registry.register("connections", "Connections that are open", this.connections.clone());
        registry.register(
            "browsing_places",
            "Operations of those who browse that may be worked on at once, for now",
            this.browsing_places.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections for which there was no place",
            this.refused.clone(),
        );
        registry.register(
            "shed",
            "Operations that were sent away because too much was in work, by what they are for",
            this.shed.clone(),
        );
        registry.register(
            "rate_limited",
            "Operations of clients that had asked for more than their share",
            this.limited.clone(),
        );
        this
    }

    /// The open connections.
    pub(crate) fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// How many of those who browse may be worked for at once.
    pub(crate) fn browsing_places(&self) -> &Gauge {
        &self.browsing_places
    }

    /// Notes a connection for which there was no place.
    pub(crate) fn refused(&self) {
        self.refused.inc();
    }

    /// Notes an operation that was sent away because too much was in work.
    pub(crate) fn shed(&self, traffic: Traffic) {
        self.shed.get_or_create(&TrafficLabels { traffic }).inc();
    }

    /// Notes an operation of a client that had asked for more than its share.
    pub(crate) fn limited(&self) {
        self.limited.inc();
    }
}
