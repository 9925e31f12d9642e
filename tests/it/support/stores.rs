//! Real stores for tests: the embedded one in a folder of its own, Cassandra in a keyspace of its
//! own on the cluster that `VITRINA_TEST_CASSANDRA` names (`scripts/test` starts one).

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use vitrina::catalog::model::{Product, ProductDraft, ProductId};
use vitrina::clock::{Clock, SystemClock, Timestamp};
use vitrina::config::{CassandraConfig, StoreConfig};
use vitrina::storage::{self, Store};
use vitrina::telemetry::Metrics;

/// An open store for one test.
pub struct TestStore {
    pub store: Arc<dyn Store>,
    pub config: StoreConfig,
    /// What the store counts into; a server of this store shows it.
    pub metrics: Arc<Metrics>,
    /// Removed when the test ends.
    _dir: Option<TempDir>,
}

impl TestStore {
    pub async fn embedded() -> Self {
        Self::embedded_with(Arc::new(SystemClock)).await
    }

    pub async fn embedded_with(clock: Arc<dyn Clock>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig::Embedded { dir: dir.path().join("data") };
        let metrics = Arc::new(Metrics::default());
        let store = storage::open(&config, clock, metrics.clone()).await.unwrap();
        Self { store, config, metrics, _dir: Some(dir) }
    }

    /// `None` where no cluster is named and that is allowed; see [`cassandra_config`].
    pub async fn cassandra() -> Option<Self> {
        Some(Self::open_on(StoreConfig::Cassandra(cassandra_config()?)).await)
    }

    /// A store that others may have opened, too.
    pub async fn open_on(config: StoreConfig) -> Self {
        let metrics = Arc::new(Metrics::default());
        let store = storage::open(&config, Arc::new(SystemClock), metrics.clone()).await.unwrap();
        Self { store, config, metrics, _dir: None }
    }
}

impl TestStore {
    /// The same store for another instance of the shop, which must not outlive this one.
    pub fn beside(&self) -> Self {
        let Self { store, config, .. } = self;
        let metrics = Arc::new(Metrics::default());
        Self { store: store.clone(), config: config.clone(), metrics, _dir: None }
    }

    /// The same store, opened once more, as another instance of the shop would. Only a cluster can
    /// be.
    pub async fn open_again(&self) -> Self {
        Self::open_on(self.config.clone()).await
    }

    /// Writes products now; what is kept.
    pub async fn upsert(&self, drafts: Vec<ProductDraft>) -> Vec<Product> {
        self.upsert_at(drafts, SystemClock.now()).await
    }

    pub async fn upsert_at(&self, drafts: Vec<ProductDraft>, now: Timestamp) -> Vec<Product> {
        let written = self.store.upsert_products(drafts, now).await.unwrap();
        written.into_iter().map(|written| written.product).collect()
    }

    /// Deletes products now; those that were there.
    pub async fn delete(&self, ids: &[ProductId]) -> Vec<ProductId> {
        let deleted = self.store.delete_products(ids, SystemClock.now()).await.unwrap();
        deleted.into_iter().map(|deleted| deleted.id).collect()
    }
}

/// The test cluster, with a keyspace that no other test has. Without a cluster a test says so
/// loudly, and fails in CI.
pub fn cassandra_config() -> Option<CassandraConfig> {
    let nodes = match std::env::var("VITRINA_TEST_CASSANDRA") {
        Ok(nodes) if !nodes.is_empty() => nodes,
        _ => {
            let advice = "no Cassandra to test on: use scripts/test, or set VITRINA_TEST_CASSANDRA";
            // `scripts/test --quick` leaves them out on purpose.
            let on_purpose = std::env::var_os("VITRINA_TEST_SKIP_SERVERS").is_some();
            assert!(on_purpose || std::env::var("CI").as_deref() != Ok("true"), "{advice}");
            eprintln!("\n*** NOT TESTED: {advice} ***\n");
            return None;
        }
    };
    let keyspace = format!("t_{}", uuid::Uuid::new_v4().simple());
    let text = format!("cassandra://{nodes}/{keyspace}?dc=dc1&rf=1");
    match StoreConfig::parse(&text).unwrap() {
        StoreConfig::Cassandra(config) => Some(config),
        StoreConfig::Embedded { .. } => unreachable!(),
    }
}

/// The address of a keyspace, as a command line has it: with a copy on each of the first three nodes.
pub fn address_of(config: &CassandraConfig) -> String {
    let (nodes, copies) = (config.nodes.join(","), config.nodes.len().min(3));
    format!("cassandra://{nodes}/{}?dc={}&rf={copies}", config.keyspace, config.dc)
}

/// Takes a test's tables away: a node is slow with thousands of them. A test that failed leaves
/// them for whoever wants to look.
pub async fn drop_keyspace(config: &StoreConfig) {
    let StoreConfig::Cassandra(config) = config else { return };
    let session = storage::cassandra::connect(config).await.unwrap();
    let drop = format!("DROP KEYSPACE IF EXISTS \"{}\"", config.keyspace);
    let mut drop = scylla::statement::Statement::new(drop);
    // A node that runs many tests at once takes its time.
    drop.set_request_timeout(Some(Duration::from_secs(60)));
    match session.query_unpaged(drop, ()).await {
        // Nodes that were frozen a moment ago agree later; nobody waits for it.
        Ok(_) | Err(scylla::errors::ExecutionError::SchemaAgreementError(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// Runs every case of a contract suite on every store. A case is an
/// `async fn(&TestStore)`; it gets a fresh embedded store, or a keyspace of its own.
#[macro_export]
macro_rules! on_every_store {
    ($($case:ident),+ $(,)?) => {
        mod embedded {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case(&$crate::support::stores::TestStore::embedded().await).await;
                }
            )+
        }

        mod cassandra {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    if let Some(store) = $crate::support::stores::TestStore::cassandra().await {
                        super::$case(&store).await;
                        $crate::support::stores::drop_keyspace(&store.config).await;
                    }
                }
            )+
        }
    };
}
