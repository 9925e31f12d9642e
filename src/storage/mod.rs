//! What the stores share: the umbrella trait, the errors, and opening one from the configuration.

pub mod cassandra;
mod due;
pub mod embedded;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::due::{DUE_SHARDS, Due, DueRead, Task};
use crate::cart::CartStore;
use crate::catalog::CatalogStore;
use crate::checkout::service::SagaStore;
use crate::clock::{Clock, Timestamp};
use crate::config::StoreConfig;
use crate::held::{held, holding};
use crate::inventory::InventoryStore;
use crate::root_key::RootKey;
use crate::sessions::SessionStore;
use crate::telemetry::{Metrics, OperationStats};

/// Everything the shop keeps, behind one handle. A store implements the trait of every domain.
#[async_trait]
pub trait Store: CatalogStore + InventoryStore + SessionStore + CartStore + SagaStore {
    /// Whether the store can answer right now; the error says what is missing.
    async fn ready(&self) -> Result<(), StoreError>;

    /// The key that the shop's own signatures are derived from: made once, the same for every
    /// instance on this store.
    async fn root_key(&self) -> Result<RootKey, StoreError>;

    /// Takes or renews the right to do something alone, for a while. Answers whether `holder` has
    /// it now.
    async fn take_lease(
        &self,
        name: &str,
        holder: uuid::Uuid,
        life: Duration,
    ) -> Result<bool, StoreError>;

    /// Gives a lease back before its life is over.
    async fn give_up_lease(&self, name: &str, holder: uuid::Uuid) -> Result<(), StoreError>;

    /// How long after a change of a category's layout somebody may still act on the one before:
    /// as long as it is cached, and a page or a write takes, together.
    fn layout_grace(&self) -> Duration;

    /// Whether other processes may be writing here too.
    fn is_shared(&self) -> bool;

    /// What this store is, for a person: `embedded` or `Cassandra`.
    fn kind(&self) -> &'static str;
}

/// What is due. It belongs to no domain: whoever begins something notes when to look whether it was
/// finished.
#[async_trait]
pub trait DueStore: Send + Sync {
    /// Notes what is due. To do it again changes nothing.
    async fn add_due(&self, due: &Due) -> Result<(), StoreError>;

    /// Forgets what was due.
    async fn remove_due(&self, due: &Due) -> Result<(), StoreError>;

    /// What of a shard is due within a span, both ends included; at most `limit`.
    async fn due(
        &self,
        shard: i8,
        span: (Timestamp, Timestamp),
        limit: usize,
    ) -> Result<DueRead, StoreError>;

    /// Up to when nothing is left that was due.
    async fn swept(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Notes up to when nothing is left.
    async fn set_swept(&self, until: Timestamp) -> Result<(), StoreError>;
}

/// Why a store did not do what it was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No answer in time. A write may or may not have happened.
    #[error("{call} timed out: {cause}")]
    Timeout {
        /// The call that timed out.
        call: &'static str,
        /// What the engine or driver says, for the log alone.
        cause: String,
    },
    /// Not enough of the store is up, or it is being overrun; worth trying again later.
    #[error("{call} cannot be served: {cause}")]
    Unavailable {
        /// The call that failed.
        call: &'static str,
        /// What the engine or driver says, for the log alone.
        cause: String,
    },
    /// A fault that no retry mends: data that cannot be read, a statement the server refuses.
    #[error("{call} failed: {cause}")]
    Fault {
        /// The call that failed.
        call: &'static str,
        /// What the engine or driver says, for the log alone.
        cause: String,
    },
}

/// Why a store could not be opened. Each message is a sentence for the person who started it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the folder open.
    #[error("{0} is in use by another process; stop it, or give this one a folder of its own")]
    InUse(String),
    /// The folder was written by a later version of this program.
    #[error(
        "{dir} was written by a newer version of Vitrina (format {found}, this one reads up to \
         {known}); run that version, or give this one another folder"
    )]
    TooNew {
        /// The folder.
        dir: String,
        /// The format found there.
        found: String,
        /// The newest format this program reads.
        known: u32,
    },
    /// The folder cannot be opened.
    #[error("{dir} cannot be opened as a store: {cause}")]
    Broken {
        /// The folder.
        dir: String,
        /// What the engine says.
        cause: String,
    },
    /// The cluster answers, but not in a way this program can work with.
    #[error("the Cassandra cluster cannot be used: {0}")]
    Cluster(String),
    /// The cluster, or enough of it, does not answer; worth trying again.
    #[error("the Cassandra cluster does not answer: {0}")]
    Away(String),
}

/// Runs a change to its end, also when whoever asked for it goes away. What it costs is counted with
/// the operation that waits for it.
pub(crate) async fn to_its_end<T, E>(
    call: &'static str,
    change: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    match tokio::spawn(holding(held(), OperationStats::collect(change))).await {
        Ok((result, reads)) => {
            OperationStats::add(reads);
            result
        }
        Err(error) => Err(StoreError::Fault { call, cause: error.to_string() }.into()),
    }
}

/// 256 random bits for a root key.
fn random_key() -> Result<[u8; 32], StoreError> {
    let mut key = [0; 32];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| StoreError::Fault {
        call: "root key",
        cause: "the system gives no random numbers".to_owned(),
    })?;
    Ok(key)
}

/// Opens the store that the configuration names. For Cassandra it waits until enough of the cluster
/// answers, and brings its tables up to date.
pub async fn open(
    config: &StoreConfig,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
) -> Result<Arc<dyn Store>, OpenError> {
    match config {
        StoreConfig::Embedded { dir } => {
            let dir = dir.clone();
            // Recovery reads files; it may take a while after a crash.
            let path = dir.display().to_string();
            let broken = |cause: String| OpenError::Broken { dir: path, cause };
            let opening = move || embedded::EmbeddedStore::open(&dir, clock, metrics);
            let store = match tokio::task::spawn_blocking(opening).await {
                Ok(opened) => opened?,
                Err(_) => return Err(broken("the thread that opens it has ended".to_owned())),
            };
            store.upgrade().await.map_err(|error| broken(error.to_string()))?;
            Ok(Arc::new(store))
        }
        StoreConfig::Cassandra(config) => {
            let store = cassandra::patiently(config, async || {
                let session = cassandra::connect(config).await?;
                cassandra::migrate(&session, config).await?;
                // A node that has just come back may not know the tables yet.
                cassandra::await_agreement(&session).await?;
                // Preparing so many statements makes a large future.
                Box::pin(cassandra::CassandraStore::open(session, config, metrics.clone())).await
            });
            Ok(Arc::new(store.await?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_runs_to_its_end_is_counted_with_its_operation() {
        let change = async {
            OperationStats::store_read(3);
            OperationStats::degraded();
            Ok::<_, StoreError>(())
        };
        let (done, reads) = OperationStats::collect(async {
            OperationStats::store_read(1);
            to_its_end("test", change).await
        })
        .await;
        done.unwrap();
        assert_eq!((reads.store_reads, reads.lookups, reads.degraded), (2, 4, true));
    }
}
