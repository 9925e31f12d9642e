//! The open connections: how many there are, from where, and how they are told to end.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::app::App;
use crate::config::SocketLimits;
use crate::error::Error;
use crate::telemetry::Metrics;

/// The open connections.
pub(crate) struct Sockets {
    connections: usize,
    connections_per_address: usize,
    metrics: Arc<Metrics>,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    open: watch::Sender<usize>,
    is_closing: watch::Sender<bool>,
}

impl Sockets {
    /// None yet, and at most as many as the limits say.
    pub(crate) fn new(limits: &SocketLimits, metrics: Arc<Metrics>) -> Self {
        Self {
            connections: limits.connections,
            connections_per_address: limits.connections_per_address,
            metrics,
            by_address: Mutex::default(),
            open: watch::channel(0).0,
            is_closing: watch::channel(false).0,
        }
    }

    /// Ends all connections, and waits until they have ended.
    pub(crate) async fn close(&self) {
        self.is_closing.send_replace(true);
        // The sender is this one's own and outlives the wait.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }

    /// Waits until connections have to end.
    pub(super) async fn closing(&self) {
        let _ = self.is_closing.subscribe().wait_for(|is_closing| *is_closing).await;
    }

    fn by_address(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in, if there is room.
    fn enter(&self, address: Option<IpAddr>) -> Result<(), Error> {
        // Locked to the end: all counts change together.
        let mut by_address = self.by_address();
        if *self.is_closing.borrow() || *self.open.borrow() >= self.connections {
            return Err(Error::Unavailable);
        }
        if let Some(address) = address {
            let open = by_address.entry(address).or_default();
            if *open >= self.connections_per_address {
                let most = self.connections_per_address;
                let message = format!("There are {most} connections from this address already.");
                return Err(Error::RateLimited(message));
            }
            *open += 1;
        }
        self.open.send_modify(|open| *open += 1);
        self.metrics.sockets().inc();
        Ok(())
    }

    fn leave(&self, address: Option<IpAddr>) {
        let mut by_address = self.by_address();
        if let Some(address) = address
            && let Some(open) = by_address.get_mut(&address)
        {
            *open -= 1;
            if *open == 0 {
                by_address.remove(&address);
            }
        }
        self.open.send_modify(|open| *open -= 1);
        self.metrics.sockets().dec();
    }
}

/// The place of a connection among the open ones; free again when it is dropped.
pub(super) struct Seat {
    app: Arc<App>,
    address: Option<IpAddr>,
}

impl Seat {
    /// A place for a connection from an address, where that is known.
    pub(super) fn take(app: &Arc<App>, address: Option<IpAddr>) -> Result<Self, Error> {
        let address = address.map(network);
        app.sockets.enter(address)?;
        Ok(Self { app: app.clone(), address })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.app.sockets.leave(self.address);
    }
}

/// What stands for one client: an IPv4 address, or an IPv6 network, of which a client has all
/// addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets() -> Sockets {
        let limits =
            SocketLimits { connections: 3, connections_per_address: 2, ..SocketLimits::default() };
        Sockets::new(&limits, Arc::default())
    }

    #[test]
    fn connections_are_counted_by_address_and_in_all() {
        let sockets = sockets();
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().ok());
        assert!(sockets.enter(one).is_ok() && sockets.enter(one).is_ok());
        assert!(matches!(sockets.enter(one), Err(Error::RateLimited(_))));
        assert!(sockets.enter(other).is_ok());
        assert!(matches!(sockets.enter(None), Err(Error::Unavailable)));
        sockets.leave(one);
        assert!(sockets.enter(None).is_ok());
        for address in [one, other, None] {
            sockets.leave(address);
        }
        assert!(sockets.by_address().is_empty());
        assert_eq!(*sockets.open.borrow(), 0);
    }

    #[tokio::test]
    async fn closing_waits_for_those_inside_and_lets_nobody_in() {
        let sockets = sockets();
        sockets.enter(None).unwrap();
        let leave = async {
            sockets.closing().await;
            assert!(matches!(sockets.enter(None), Err(Error::Unavailable)));
            sockets.leave(None);
        };
        tokio::join!(sockets.close(), leave);
    }

    #[test]
    fn a_client_is_an_address_or_a_network() {
        let network = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(network("10.0.0.1"), "10.0.0.1");
        assert_eq!(network("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}
