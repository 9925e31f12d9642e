//! The shop served in the test's own process, on a real port, on either store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use vitrina::app::{App, Shop};
use vitrina::cache::Tiers;
use vitrina::clock::{Clock, SystemClock};
use vitrina::config::{
    AuthConfig, CacheConfig, Config, Limits, Origins, Secret, ShopRules, StoreConfig,
};
use vitrina::server::{self, Role, sign_token};
use vitrina::storage::Store;

use super::http::HttpClient;
use super::stores::TestStore;

/// The secret of every test server.
pub const SECRET: &str = "a secret for tests, not for a shop";

/// A server that stops when it is dropped.
pub struct TestServer {
    pub http: HttpClient,
    pub address: SocketAddr,
    /// Kept because the store's folder goes with it.
    store: TestStore,
    app: Arc<App>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl TestServer {
    /// The store that it serves.
    pub fn store(&self) -> &StoreConfig {
        &self.store.config
    }

    /// The same store as it is open here, to look at what no answer shows.
    pub fn opened(&self) -> &dyn Store {
        self.store.store.as_ref()
    }

    /// The services that it serves.
    pub fn shop(&self) -> &Arc<Shop> {
        self.app.shop().unwrap()
    }

    /// Another instance on the same store.
    pub async fn beside(&self, change: impl FnOnce(&mut Config)) -> Self {
        Self::start_on(self.store.beside(), change).await
    }

    /// Serves an empty embedded store.
    pub async fn start() -> Self {
        Self::start_on(TestStore::embedded().await, |_| {}).await
    }

    /// Serves a store, with the configuration changed by `change`.
    pub async fn start_on(store: TestStore, change: impl FnOnce(&mut Config)) -> Self {
        Self::start_with_clock(store, Arc::new(SystemClock), change).await
    }

    /// Serves a store at a time that the test decides. An embedded store has to be opened with the
    /// same clock. Tokens of the identity provider go by the system's clock all the same.
    pub async fn start_with_clock(
        store: TestStore,
        clock: Arc<dyn Clock>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            store: store.config.clone(),
            auth: AuthConfig::new(Secret::new(SECRET)).unwrap(),
            limits: Limits::default(),
            introspection: true,
            cache: CacheConfig::Memory,
            tells_reads: false,
            rules: ShopRules::default(),
            payment_secret: Some(Secret::new(SECRET)),
            trusted: None,
            origins: Origins::default(),
        };
        change(&mut config);
        let app = Arc::new(App::new(config, store.metrics.clone()));
        let tiers = Tiers::open(&app.config.cache).await;
        let (opened, metrics) = (store.store.clone(), &store.metrics);
        let shop = Shop::open(opened, clock, &tiers, &app.config.rules, metrics).await;
        app.open(shop.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (router, (stop, stopped)) = (server::router(app.clone()), oneshot::channel());
        let stopped = async {
            if stopped.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let task = tokio::spawn(server::serve(listener, router, app.clone(), stopped));
        let (http, stop) = (HttpClient::new(&format!("http://{address}")), Some(stop));
        Self { http, address, store, app, stop, task }
    }

    /// Tells it to stop.
    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Whether it has.
    pub fn has_stopped(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A token that every test server takes for the next hour.
pub fn token(user: &str, role: Role) -> String {
    let auth = AuthConfig::new(Secret::new(SECRET)).unwrap();
    let expires = SystemClock.now().after(Duration::from_secs(3_600));
    sign_token(&auth, user, role, expires).unwrap()
}
