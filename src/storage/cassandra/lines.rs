//! The ways to the cluster: one for when little is under way, and one for when much is.
//!
//! The driver can let a call wait for a moment in case others come, and send them together. Among many
//! calls that saves a fifth of their CPU; for a call that is alone it costs as much, because threads go
//! to sleep and are woken for nothing. A session does one or the other, so there are two.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use scylla::client::session::Session;

use super::session::{Sending, connect_for};
use crate::config::CassandraConfig;
use crate::storage::OpenError;

/// While fewer calls than these are under way, another one does not wait for company.
const FEW: usize = 4;

/// Two sessions with one cluster.
pub(super) struct Lines {
    at_once: Arc<Session>,
    together: Arc<Session>,
    under_way: AtomicUsize,
}

impl Lines {
    /// Opens the other session beside one that sends calls together.
    pub(super) async fn open(
        together: Arc<Session>,
        config: &CassandraConfig,
    ) -> Result<Arc<Self>, OpenError> {
        let at_once = connect_for(config, Sending::AtOnce).await?;
        Ok(Arc::new(Self { at_once, together, under_way: AtomicUsize::new(0) }))
    }

    /// The session for one more call, which is under way until it is given back.
    pub(super) fn take(&self) -> Line<'_> {
        let others = self.under_way.fetch_add(1, Ordering::Relaxed);
        let session = if others < FEW { &self.at_once } else { &self.together };
        Line { session, under_way: &self.under_way }
    }

    /// The session for what is done seldom, and not for a request.
    pub(super) fn aside(&self) -> &Arc<Session> {
        &self.together
    }
}

/// A session, for one call.
pub(super) struct Line<'a> {
    session: &'a Session,
    under_way: &'a AtomicUsize,
}

impl Deref for Line<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}
