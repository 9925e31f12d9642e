//! Places that clients take: so many in all, and so many for one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::network::network;

/// Places for the connections of clients.
pub(crate) struct Seats {
    most: usize,
    most_per_address: usize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
    taken: watch::Sender<usize>,
}

/// Why a client gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// All places are taken.
    All,
    /// Those of the client's address are.
    OfAddress,
}

impl Seats {
    /// So many places, all free.
    pub(crate) fn new(most: usize, most_per_address: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_per_address,
            by_address: Mutex::default(),
            taken: watch::channel(0).0,
        })
    }

    /// A place for a client; one whose address is not known has no share to exceed.
    pub(crate) fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Seat, Full> {
        let address = address.map(network);
        // Locked to the end: all counts change together.
        let mut by_address = self.by_address();
        if *self.taken.borrow() >= self.most {
            return Err(Full::All);
        }
        if let Some(address) = address {
            let taken = by_address.get(&address).copied().unwrap_or_default();
            if taken >= self.most_per_address {
                return Err(Full::OfAddress);
            }
            by_address.insert(address, taken + 1);
        }
        self.taken.send_modify(|taken| *taken += 1);
        Ok(Seat { seats: self.clone(), address })
    }

    /// Waits until all places are free.
    pub(crate) async fn empty(&self) {
        // The sender is this one's own and outlives the wait.
        let _ = self.taken.subscribe().wait_for(|taken| *taken == 0).await;
    }

    fn by_address(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place that is taken; free again when it is dropped.
pub(crate) struct Seat {
    seats: Arc<Seats>,
    address: Option<IpAddr>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut by_address = self.seats.by_address();
        if let Some(address) = self.address
            && let Some(taken) = by_address.get_mut(&address)
        {
            *taken -= 1;
            if *taken == 0 {
                by_address.remove(&address);
            }
        }
        self.seats.taken.send_modify(|taken| *taken -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_are_counted_by_address_and_in_all() {
        let seats = Seats::new(3, 2);
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().ok());
        let first = seats.take(one).unwrap();
        let rest = [seats.take(one).unwrap(), seats.take(other).unwrap()];
        assert_eq!(seats.take(None).err(), Some(Full::All));
        drop(first);
        let again = seats.take(one).unwrap();
        drop(rest);
        let full = [seats.take(one).unwrap(), again];
        assert_eq!(seats.take(one).err(), Some(Full::OfAddress));
        drop(full);
        seats.empty().await;
        assert!(seats.by_address().is_empty());
    }
}
