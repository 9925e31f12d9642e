//! The ways to the cluster.
//!
//! A thread that serves clients has a session of its own (see [`crate::crew`]): nobody has to be woken to
//! send a call or to take its answer in. All others share one. The driver lets a call wait until those who
//! could make another one right now have had their turn, and sends them together: for a thread that serves
//! many clients that takes a fifth off a request.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use scylla::client::session::Session;
use scylla::errors::ExecutionError;

use super::session::connect;
use crate::config::CassandraConfig;
use crate::crew;

/// The pause after a thread could not open its session. Meanwhile it uses the one that all share.
const PAUSE: Duration = Duration::from_secs(1);

/// Sessions with one cluster.
pub(super) struct Lines {
    number: u64,
    config: CassandraConfig,
    shared: Arc<Session>,
}

/// A thread's own session, once it is open. It is the thread's as long as that lives.
type Own = OnceLock<Arc<Session>>;

thread_local! {
    /// This thread's own, by the numbers of their [`Lines`].
    static OWN: RefCell<Vec<(u64, Arc<Own>)>> = const { RefCell::new(Vec::new()) };
}

impl Lines {
    /// The session that is there, and those that threads will have of their own.
    pub(super) fn new(shared: Arc<Session>, config: CassandraConfig) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { number, config, shared })
    }

    /// Makes a call over the session of this thread; over the one that all share if that has no connection
    /// (any more), as nothing was sent then.
    pub(super) async fn call<T, F>(
        &self,
        make: impl Fn(Arc<Session>) -> F,
    ) -> Result<T, ExecutionError>
    where
        F: Future<Output = Result<T, ExecutionError>>,
    {
        if let Some(own) = self.own() {
            match make(own).await {
                Err(ExecutionError::ConnectionPoolError(_) | ExecutionError::EmptyPlan) => {}
                done => return done,
            }
        }
        make(self.shared.clone()).await
    }

    /// The session for what is done seldom, and not for a request.
    pub(super) fn aside(&self) -> &Session {
        &self.shared
    }

    /// The session of this thread, if it is one that has its own. It is opened when it is first wanted.
    fn own(&self) -> Option<Arc<Session>> {
        crew::member()?;
        OWN.with_borrow_mut(|all| {
            if let Some((_, own)) = all.iter().find(|(of, _)| *of == self.number) {
                return own.get().cloned();
            }
            let own = Arc::new(Own::new());
            tokio::spawn(open_own(Arc::downgrade(&own), self.config.clone()));
            all.push((self.number, own));
            None
        })
    }
}

/// Opens the session of this thread, for as long as the thread is there.
async fn open_own(own: Weak<Own>, config: CassandraConfig) {
    loop {
        let opened = connect(&config).await;
        let Some(own) = own.upgrade() else { return };
        match opened {
            Ok(session) => {
                // Nobody else opens it.
                let _ = own.set(session);
                return;
            }
            Err(error) => tracing::debug!(%error, "a thread has no session of its own yet"),
        }
        drop(own);
        tokio::time::sleep(PAUSE).await;
    }
}
