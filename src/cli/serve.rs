//! `vitrina serve`: listen, open the store, fill an empty one, serve until told to stop.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use super::documents::DoorArgs;
use super::{AuthArgs, Failure, StoreArgs, demo_secret_path, no_secret};
use crate::app::{App, Shop};
use crate::cache::Tiers;
use crate::catalog::model::buckets::SPLIT_ROWS;
use crate::catalog::service::keeper;
use crate::checkout::sweeper;
use crate::clock::{Clock, SystemClock};
use crate::config::{
    CacheConfig, Config, ConfigError, ConnectionLimits, Limits, MIN_SECRET_BYTES,
    RESPONSE_CACHE_BYTES, Secret, ShopRules, SocketLimits, StoreConfig,
};
use crate::rate::{Rate, RateLimits};
use crate::server::{Trusted, WorkLimits};
use crate::storage::Store;
use crate::telemetry::Metrics;
use crate::{demo, server, storage};

/// The setting of the payment service's secret.
const PAYMENT_SECRET: &str = "VITRINA_PAYMENT_SECRET";
/// More at once than any machine works on.
const MAX_IN_WORK: usize = 1_000_000;
/// Files that the store and its connections have open, at the most.
const FILES_OF_STORE: u64 = 2_000;
/// How long requests in work may go on after the signal to stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);

#[derive(Parser)]
pub(super) struct ServeArgs {
    #[command(flatten)]
    pub(super) store: StoreArgs,
    #[command(flatten)]
    auth: AuthArgs,
    #[command(flatten)]
    doors: DoorArgs,
    /// Where to listen
    #[arg(
        long,
        env = "VITRINA_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT"
    )]
    listen: SocketAddr,
    /// Where what was read is kept for a moment: memory, off or redis://host:port
    // Its value may hold a password, which the help would show.
    #[arg(
        long,
        env = "VITRINA_CACHE",
        default_value = "memory",
        value_name = "CACHE",
        hide_env_values = true
    )]
    cache: String,
    /// Leave an empty store empty; one on Cassandra always is, use `vitrina demo`
    #[arg(long, env = "VITRINA_NO_DEMO", value_parser = clap::builder::FalseyValueParser::new())]
    no_demo: bool,
    /// Whether clients may ask for the schema
    #[arg(long, env = "VITRINA_INTROSPECTION", value_enum, default_value = "on")]
    introspection: Switch,
    /// Most bytes of a request
    #[arg(long, env = "VITRINA_MAX_BODY_BYTES", default_value_t = 102_400,
          value_parser = clap::value_parser!(u32).range(1_024..=10_485_760))]
    max_body_bytes: u32,
    /// Most milliseconds a request may take
    #[arg(long, env = "VITRINA_DEADLINE_MS", default_value_t = 5_000,
          value_parser = clap::value_parser!(u32).range(10..=60_000))]
    deadline_ms: u32,
    /// Highest cost of an operation: a field is 1, a list multiplies what is inside it
    #[arg(long, env = "VITRINA_MAX_COST", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(100..))]
    max_cost: u32,
    /// Most bytes of answers that are the same for everybody and kept for a moment; 0 keeps none
    #[arg(long, env = "VITRINA_MAX_RESPONSE_CACHE_BYTES", default_value_t = RESPONSE_CACHE_BYTES,
          value_name = "BYTES")]
    max_response_cache_bytes: u64,
    /// Most connections in all
    #[arg(long, env = "VITRINA_MAX_CLIENTS", default_value_t = ConnectionLimits::default().all,
          value_name = "CONNECTIONS")]
    max_clients: usize,
    /// Most connections from one address, unless it is this machine's own
    #[arg(long, env = "VITRINA_MAX_CLIENTS_PER_ADDRESS",
          default_value_t = ConnectionLimits::default().per_address, value_name = "CONNECTIONS")]
    max_clients_per_address: usize,
    /// Most operations that are worked on at once: so many of buyers, and so many of others
    #[arg(long, env = "VITRINA_MAX_IN_WORK", default_value_t = WorkLimits::default().in_work,
          value_name = "OPERATIONS", value_parser = positive)]
    max_in_work: usize,
    /// Most operations of either kind that wait for that; the rest is told to come back later
    #[arg(long, env = "VITRINA_MAX_WAITING", default_value_t = WorkLimits::default().waiting,
          value_name = "OPERATIONS")]
    max_waiting: usize,
    /// What one customer, guest or member of staff may ask for, in the cost of operations: what
    /// comes back in a second, and what can be taken at once; or off
    #[arg(
        long,
        env = "VITRINA_RATE_IDENTITY",
        default_value = "20000:200000",
        value_name = "RATE:BURST"
    )]
    rate_identity: String,
    /// What may be asked for from one address
    #[arg(
        long,
        env = "VITRINA_RATE_ADDRESS",
        default_value = "100000:1000000",
        value_name = "RATE:BURST"
    )]
    rate_address: String,
    /// What may be asked for of the pages of one category
    #[arg(
        long,
        env = "VITRINA_RATE_CATEGORY",
        default_value = "500000:1000000",
        value_name = "RATE:BURST"
    )]
    rate_category: String,
    /// Limit clients on this machine too
    #[arg(long, env = "VITRINA_RATE_LOOPBACK",
          value_parser = clap::builder::FalseyValueParser::new())]
    rate_loopback: bool,
    /// So many proxies stand in front and add to X-Forwarded-For for whom they ask
    #[arg(long, env = "VITRINA_PROXIES", default_value_t = 0, value_name = "NUMBER")]
    proxies: usize,
    /// Most WebSocket connections in all
    #[arg(long, env = "VITRINA_MAX_CONNECTIONS",
          default_value_t = SocketLimits::default().connections)]
    max_connections: usize,
    /// Most WebSocket connections from one address. Behind a proxy all clients have the proxy's:
    /// set it as high as --max-connections there and let the proxy limit each client
    #[arg(long, env = "VITRINA_MAX_CONNECTIONS_PER_ADDRESS",
          default_value_t = SocketLimits::default().connections_per_address)]
    max_connections_per_address: usize,
    /// Most subscriptions that run at once on one WebSocket connection
    #[arg(long, env = "VITRINA_MAX_SUBSCRIPTIONS",
          default_value_t = SocketLimits::default().subscriptions)]
    max_subscriptions: usize,
    /// Up to so many units of a product are shown as `LOW_STOCK`
    #[arg(long, env = "VITRINA_LOW_STOCK", default_value_t = ShopRules::default().low_stock)]
    low_stock: u32,
    /// Seconds after which an order that was not paid is cancelled
    #[arg(long, env = "VITRINA_PAYMENT_WITHIN", default_value_t = 900, value_name = "SECONDS",
          value_parser = clap::value_parser!(u32).range(1..=2_592_000))]
    payment_within: u32,
    /// Rows of a category's bucket beyond which it is split
    #[arg(long, env = "VITRINA_SPLIT_ROWS", default_value_t = SPLIT_ROWS,
          value_parser = clap::value_parser!(u64).range(100..))]
    split_rows: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Switch {
    On,
    Off,
}

/// Everything decided before anything is started.
pub(super) struct Plan {
    config: Config,
    /// An empty embedded store is filled. One on Cassandra is not: it may be somebody's shop on
    /// its first day.
    is_demo: bool,
    /// The secret was made for this run and must be left where `vitrina token` finds it.
    own_secret: bool,
    /// Rows beyond which a bucket is split.
    split_rows: u64,
    /// The folder with the only documents that are executed.
    documents: Option<PathBuf>,
}

impl ServeArgs {
    pub(super) fn plan(&self) -> Result<Plan, ConfigError> {
        let store = self.store.config()?;
        let is_demo = !self.no_demo && matches!(store, StoreConfig::Embedded { .. });
        let mut own_secret = false;
        let auth = self.auth.config_to_serve(|| {
            own_secret = is_demo;
            if is_demo { Ok(random_secret()) } else { Err(no_secret()) }
        })?;
        let limits = Limits {
            body_bytes: usize::try_from(self.max_body_bytes).unwrap_or(usize::MAX),
            deadline: Duration::from_millis(self.deadline_ms.into()),
            cost: self.max_cost.into(),
            response_cache_bytes: self.max_response_cache_bytes,
            connections: ConnectionLimits {
                all: self.max_clients,
                per_address: self.max_clients_per_address,
                ..ConnectionLimits::default()
            },
            work: WorkLimits { in_work: self.max_in_work, waiting: self.max_waiting },
            proxies: self.proxies,
            sockets: SocketLimits {
                connections: self.max_connections,
                connections_per_address: self.max_connections_per_address,
                subscriptions: self.max_subscriptions,
                ..SocketLimits::default()
            },
            ..Limits::default()
        };
        let auth_secrets = [auth.jwt_secret.clone(), auth.jwt_secret_previous.clone()];
        let config = Config {
            listen: self.listen,
            store,
            auth,
            limits,
            introspection: self.introspection == Switch::On,
            cache: CacheConfig::parse(&self.cache)?,
            tells_reads: is_demo,
            rules: ShopRules {
                low_stock: self.low_stock,
                payment_within: Duration::from_secs(self.payment_within.into()),
                rates: RateLimits {
                    identity: rate("--rate-identity / VITRINA_RATE_IDENTITY", &self.rate_identity)?,
                    address: rate("--rate-address / VITRINA_RATE_ADDRESS", &self.rate_address)?,
                    category: rate("--rate-category / VITRINA_RATE_CATEGORY", &self.rate_category)?,
                    loopback: self.rate_loopback,
                },
            },
            payment_secret: payment_secret(&auth_secrets)?,
            trusted: None,
            origins: self.doors.origins()?,
        };
        let documents = self.doors.documents.clone();
        Ok(Plan { config, is_demo, own_secret, split_rows: self.split_rows, documents })
    }
}

/// Reads `RATE:BURST` or `off`.
fn rate(setting: &'static str, text: &str) -> Result<Option<Rate>, ConfigError> {
    if text == "off" {
        return Ok(None);
    }
    let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
    let rate = text
        .split_once(':')
        .and_then(|(rate, burst)| Some(Rate { per_second: number(rate)?, burst: number(burst)? }));
    let fault = "is two whole numbers such as 20000:200000, or off";
    rate.map(Some).ok_or_else(|| ConfigError::new(setting, fault))
}

/// Reads a number of at least 1.
fn positive(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_IN_WORK).contains(number));
    number.ok_or_else(|| format!("must be a number from 1 to {MAX_IN_WORK}"))
}

/// What the payment service signs its messages with: nothing that could also sign a token, or that
/// service could make itself staff.
fn payment_secret(of_tokens: &[Option<Secret>; 2]) -> Result<Option<Secret>, ConfigError> {
    let found = super::secret(PAYMENT_SECRET)?;
    if found.is_some() && of_tokens.contains(&found) {
        let fault = "must not be a secret that signs tokens: the payment service knows this one";
        return Err(ConfigError::new(PAYMENT_SECRET, fault));
    }
    if found.as_ref().is_some_and(|secret| secret.expose().len() < MIN_SECRET_BYTES) {
        let fault = format!("must have at least {MIN_SECRET_BYTES} bytes");
        return Err(ConfigError::new(PAYMENT_SECRET, fault));
    }
    Ok(found)
}

/// 256 random bits as text.
fn random_secret() -> Secret {
    let half = || uuid::Uuid::new_v4().simple().to_string();
    Secret::new(format!("{}{}", half(), half()))
}

pub(super) async fn serve(plan: Plan) -> Result<(), Failure> {
    let Plan { mut config, is_demo, own_secret, split_rows, documents } = plan;
    if let Some(dir) = documents {
        config.trusted = Some(Trusted::load(&dir, &config.limits, config.introspection).await?);
    }
    let listener = server::listen(config.listen).map_err(|error| {
        Failure::Other(format!("--listen / VITRINA_LISTEN: {}: {error}", config.listen))
    })?;
    let address = listener
        .local_addr()
        .map_err(|error| Failure::Other(format!("the listener has no address: {error}")))?;
    let mut stop = Stop::listen()?;
    ask_for_files(&config.limits);
    let metrics = Arc::new(Metrics::default());
    let app = Arc::new(App::new(config, metrics.clone()));
    let auth = &app.config.auth;
    if auth.jwks.is_some() && (auth.issuer.is_none() || auth.audience.is_none()) {
        tracing::warn!(
            "tokens that the provider made for others are taken too; set --jwt-issuer and \
             --jwt-audience"
        );
    }
    tokio::spawn(app.identity.keep());

    // Listening comes first, so that health checks are answered while the store is being opened.
    let (tell_server, told) = tokio::sync::oneshot::channel::<()>();
    let told = async { told.await.unwrap_or(()) };
    let mut server =
        tokio::spawn(server::serve(listener, server::router(app.clone()), app.clone(), told));

    let clock = Arc::new(SystemClock);
    let opened = tokio::select! {
        () = stop.told() => return Ok(()),
        opened = open(&app, is_demo, clock, metrics) => opened,
    };
    opened?;
    // It ends with the runtime, at any point: what it has begun goes on the next time.
    if let Some(shop) = app.shop() {
        tokio::spawn(keeper::keep(shop.store.clone(), split_rows));
        tokio::spawn(sweeper::keep(shop.store.clone(), shop.checkout.clone()));
    }
    let secret = own_secret.then(|| SecretFile::write(&app.config)).transpose()?;
    greet(&app.config, address, secret.is_some());

    let ended = tokio::select! {
        () = stop.told() => {
            tracing::info!("stopping");
            let _ = tell_server.send(());
            tokio::time::timeout(STOP_WITHIN, &mut server).await.unwrap_or(Ok(()))
        }
        // Nobody has told it to; if it has not gone down, it has said why in the log.
        ended = &mut server => match ended {
            Ok(()) => return Err(Failure::Other("the server stopped".to_owned())),
            error => error,
        },
    };
    ended.map_err(|error| Failure::Other(format!("the server stopped: {error}")))
}

/// Every connection is an open file to the system, which by default allows a thousand.
fn ask_for_files(limits: &Limits) {
    let clients = limits.connections.all.saturating_add(limits.sockets.connections);
    let wanted = u64::try_from(clients).unwrap_or(u64::MAX).saturating_add(FILES_OF_STORE);
    match rlimit::increase_nofile_limit(wanted) {
        Ok(allowed) if allowed >= wanted => {}
        Ok(allowed) => tracing::warn!(
            allowed,
            wanted,
            "the system allows fewer open files than there may be clients; raise `ulimit -n`, or \
             lower --max-clients and --max-connections"
        ),
        Err(error) => tracing::warn!(%error, "the number of open files could not be raised"),
    }
}

async fn open(
    app: &App,
    is_demo: bool,
    clock: Arc<SystemClock>,
    metrics: Arc<Metrics>,
) -> Result<(), Failure> {
    let store = storage::open(&app.config.store, clock.clone(), metrics.clone()).await?;
    if is_demo && store.categories().await?.is_empty() {
        fill(store.as_ref(), clock.as_ref()).await?;
    }
    tracing::info!(store = store.kind(), "open");
    let tiers = Tiers::open(&app.config.cache).await;
    app.open(Shop::open(store, clock, &tiers, &app.config.rules, &metrics).await?);
    Ok(())
}

async fn fill(store: &dyn Store, clock: &dyn Clock) -> Result<(), Failure> {
    tracing::info!(products = demo::DEFAULT_PRODUCTS, "the store is empty: filling in the demo");
    // Stock first, and all products with one write: a process that is killed meanwhile leaves a
    // store without products, which is filled again.
    store.stock_up(demo::stock(0..demo::DEFAULT_PRODUCTS), clock.now()).await?;
    let products = (0..demo::DEFAULT_PRODUCTS).map(demo::catalogue::product).collect();
    store.upsert_products(products, clock.now()).await?;
    Ok(())
}

/// Tells a person where the shop is. A closed standard output is nobody to tell.
fn greet(config: &Config, address: SocketAddr, made_secret: bool) {
    let token = "vitrina token --user me --role staff";
    let how = match (&config.store, made_secret) {
        _ if config.auth.jwt_secret.is_none() => {
            "from the identity provider that VITRINA_JWKS names".to_owned()
        }
        (StoreConfig::Embedded { dir }, true) => format!(
            "{token} --store embedded:{}\n             (signed with a secret made for this run; \
             set VITRINA_JWT_SECRET to keep one)",
            dir.display()
        ),
        _ => format!("{token}\n             (with the same VITRINA_JWT_SECRET)"),
    };
    let _ = writeln!(
        std::io::stdout(),
        "Vitrina is open.\n\
         GraphQL    http://{address}/graphql    (a browser gets GraphiQL)\n\
         Schema     http://{address}/schema.graphql\n\
         Health     http://{address}/health/ready\n\
         Metrics    http://{address}/metrics\n\
         Token      {how}"
    );
}

/// The secret of a demo's run, left beside its data for `vitrina token` and removed at the end.
struct SecretFile(std::path::PathBuf);

impl SecretFile {
    fn write(config: &Config) -> Result<Self, Failure> {
        let (StoreConfig::Embedded { dir }, Some(secret)) =
            (&config.store, &config.auth.jwt_secret)
        else {
            return Err(no_secret().into());
        };
        let path = demo_secret_path(dir);
        write_private(&path, secret.expose())
            .map_err(|error| Failure::Other(format!("{}: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    // One left by a run that was killed may have other rights.
    let _ = std::fs::remove_file(path);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// The signals that ask the process to stop.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::Other(format!("no signals to listen to: {error}")))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn told(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
