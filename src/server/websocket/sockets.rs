//! The open connections: how many there are, from where, and how they are told to end.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::watch;

use super::super::seats::{Full, Seat, Seats};
use crate::app::App;
use crate::config::SocketLimits;
use crate::error::Error;
use crate::telemetry::Metrics;

/// The open connections.
pub(crate) struct Sockets {
    seats: Arc<Seats>,
    most_per_address: usize,
    metrics: Arc<Metrics>,
    is_closing: watch::Sender<bool>,
}

impl Sockets {
    /// None yet, and at most as many as the limits say.
    pub(crate) fn new(limits: &SocketLimits, metrics: Arc<Metrics>) -> Self {
        Self {
            seats: Seats::new(limits.connections, limits.connections_per_address),
            most_per_address: limits.connections_per_address,
            metrics,
            is_closing: watch::channel(false).0,
        }
    }

    /// Ends all connections, and waits until they have ended.
    pub(crate) async fn close(&self) {
        self.is_closing.send_replace(true);
        self.seats.empty().await;
    }

    /// Waits until connections have to end.
    pub(super) async fn closing(&self) {
        let _ = self.is_closing.subscribe().wait_for(|is_closing| *is_closing).await;
    }

    /// Lets a connection in, if there is room.
    fn enter(&self, address: Option<IpAddr>) -> Result<Seat, Error> {
        if *self.is_closing.borrow() {
            return Err(Error::Unavailable);
        }
        self.seats.take(address).map_err(|full| match full {
            Full::All => Error::Unavailable,
            Full::OfAddress => Error::too_many(format!(
                "There are {} connections from this address already.",
                self.most_per_address
            )),
        })
    }
}

/// An open connection, among the others; it leaves them when it is dropped.
pub(super) struct Open {
    app: Arc<App>,
    _seat: Seat,
}

impl Open {
    /// Lets a connection in from an address, where that is known.
    pub(super) fn enter(app: &Arc<App>, address: Option<IpAddr>) -> Result<Self, Error> {
        let seat = app.sockets.enter(address)?;
        app.sockets.metrics.sockets().inc();
        Ok(Self { app: app.clone(), _seat: seat })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.app.sockets.metrics.sockets().dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn closing_waits_for_those_inside_and_lets_nobody_in() {
        let sockets = Sockets::new(&SocketLimits::default(), Arc::default());
        let inside = sockets.enter(None).unwrap();
        let leave = async {
            sockets.closing().await;
            assert!(matches!(sockets.enter(None), Err(Error::Unavailable)));
            drop(inside);
        };
        tokio::join!(sockets.close(), leave);
    }

    #[test]
    fn of_one_address_there_are_so_many_and_no_more() {
        let limits =
            SocketLimits { connections: 3, connections_per_address: 1, ..SocketLimits::default() };
        let sockets = Sockets::new(&limits, Arc::default());
        let address = "10.0.0.1".parse().ok();
        let _first = sockets.enter(address).unwrap();
        assert!(matches!(sockets.enter(address), Err(Error::RateLimited { .. })));
        let _others = [sockets.enter(None).unwrap(), sockets.enter(None).unwrap()];
        assert!(matches!(sockets.enter(None), Err(Error::Unavailable)));
    }
}
