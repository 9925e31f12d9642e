//! What the workers do.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use axum::routing::post;
use axum::serve::ListenerExt;
use http_body_util::BodyExt;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use tokio::net::TcpListener;
use tower::ServiceExt;
use vitrina::app::{App, Shop};
use vitrina::cache::Tiers;
use vitrina::clock::{Clock, SystemClock};
use vitrina::config::{
    AuthConfig, CacheConfig, CassandraConfig, Config, Limits, LogFormat, MIN_SECRET_BYTES, Origins,
    Secret, ShopRules, StoreConfig,
};
use vitrina::demo::{self, DEFAULT_PRODUCTS};
use vitrina::server::{Role as ViewerRole, sign_token};
use vitrina::storage::Store;
use vitrina::telemetry::{self, Metrics};
use vitrina::{server, storage};

use super::control::Control;
use super::requests::{self, Kind};
use super::worker::{self, Role};
use super::{
    Result, buyers, card_driver, cart_driver, cart_worker, checkout_worker, clerk, mixed_worker,
};

/// Where the bare handlers answer.
pub(super) const BARE_CARD: &str = "/card";
/// The same for a page.
pub(super) const BARE_PAGE: &str = "/page";
/// Where the shop answers.
pub(super) const SHOP: &str = "/graphql";
/// How long a token is good: longer than any run.
const TOKEN_LIFE: Duration = Duration::from_secs(24 * 3_600);
/// Longest wait for an execution.
const EXECUTE_WITHIN: Duration = Duration::from_secs(2);

/// Does a worker's work, if this process was started as one.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let role = std::env::var(worker::ROLE).ok()?;
    // As in production: a line for every operation is part of what it costs.
    let log = || telemetry::init(LogFormat::Text);
    let done = if role == Role::Serve.name() {
        let _log = log();
        in_runtime(serve())
    } else if role == Role::Clerk.name() {
        let _log = log();
        in_runtime(clerk::work())
    } else if role == Role::Buyers.name() {
        let _log = log();
        in_runtime(buyers::work())
    } else if role == Role::Carts.name() {
        let _log = log();
        in_runtime(cart_worker::work())
    } else if role == Role::Checkout.name() {
        let _log = log();
        in_runtime(checkout_worker::work())
    } else if role == Role::Mixed.name() {
        let _log = log();
        in_runtime(mixed_worker::work())
    } else if role == Role::DriveCarts.name() {
        in_runtime(cart_driver::work())
    } else {
        in_runtime(card_driver::work())
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{role}: {error}");
            ExitCode::FAILURE
        }
    })
}

/// Runs work on as many threads as the server uses.
fn in_runtime(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work)
}

pub(super) async fn control() -> Result<Control> {
    Control::connect(std::env::var(worker::CONTROL)?.parse()?).await
}

/// Serves the demo shop and the bare handlers until the benchmark is gone.
async fn serve() -> Result<()> {
    let mut control = control().await?;
    let (_, shop) = demo_shop().await?;
    let cards = Answers::of(&shop, &Kind::Card.bodies(), None).await?;
    let pages = Answers::of(&shop, &Kind::Page.bodies(), None).await?;
    let bare = Router::new()
        .route(BARE_CARD, post(bare).with_state(cards))
        .route(BARE_PAGE, post(bare).with_state(pages));
    let ports = (open(&shop).await?, listen(bare).await?);
    control.tell(&format!("{} {}", ports.0, ports.1)).await?;
    while control.hear().await?.is_some() {}
    Ok(())
}

/// The demo shop, filled, and its store.
pub(super) async fn demo_shop() -> Result<(Arc<dyn Store>, Arc<App>)> {
    let config = config(CacheConfig::Memory)?;
    let clock = Arc::new(SystemClock);
    let metrics = Arc::new(Metrics::default());
    let store = storage::open(&config.store, clock.clone(), metrics.clone()).await?;
    demo::fill(store.as_ref(), DEFAULT_PRODUCTS, clock.as_ref(), |_| {}).await?;
    Ok((store.clone(), shop(config, store, &metrics).await?))
}

/// The configuration of a worker's shop.
pub(super) fn config(cache: CacheConfig) -> Result<Config> {
    Ok(Config {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        store: StoreConfig::parse(&std::env::var(worker::STORE)?)?,
        auth: auth()?,
        limits: Limits::default(),
        introspection: true,
        cache,
        tells_reads: false,
        rules: ShopRules::default(),
        payment_secret: None,
        trusted: None,
        origins: Origins::default(),
    })
}

/// What tokens are signed with.
pub(super) fn secret() -> String {
    "x".repeat(MIN_SECRET_BYTES)
}

/// Whose tokens a worker's shop takes.
pub(super) fn auth() -> Result<AuthConfig> {
    Ok(AuthConfig::new(Secret::new(secret()))?)
}

/// The token that such a shop takes from somebody.
pub(super) fn token(user: &str, role: ViewerRole) -> Result<String> {
    let until = SystemClock.now().after(TOKEN_LIFE);
    Ok(sign_token(&auth()?, user, role, until)?)
}

/// A shop on a store.
pub(super) async fn shop(
    config: Config,
    store: Arc<dyn Store>,
    metrics: &Arc<Metrics>,
) -> Result<Arc<App>> {
    let app = Arc::new(App::new(config, metrics.clone()));
    let tiers = Tiers::open(&app.config.cache).await;
    let clock = Arc::new(SystemClock);
    app.open(Shop::open(store, clock, &tiers, &app.config.rules, metrics).await?);
    Ok(app)
}

/// Serves a shop the way `vitrina serve` does; the port.
pub(super) async fn open(shop: &Arc<App>) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    let router = server::router(shop.clone());
    tokio::spawn(server::serve(listener, router, shop.clone(), std::future::pending()));
    Ok(port)
}

/// Serves routes the way that axum does; the port.
pub(super) async fn listen(router: Router) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    let listener = listener.tap_io(|connection| {
        let _ = connection.set_nodelay(true);
    });
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(axum::serve(listener, service).into_future());
    Ok(port)
}

/// The shop's answers to some requests, for a handler that does nothing else than send the same
/// bytes.
pub(super) struct Answers {
    headers: HeaderMap,
    bodies: Vec<Bytes>,
    next: AtomicUsize,
}

impl Answers {
    /// The answers to requests with these bodies, from somebody with a token or from nobody.
    pub(super) async fn of(
        shop: &Arc<App>,
        asked: &[String],
        token: Option<&str>,
    ) -> Result<Arc<Self>> {
        let mut headers = HeaderMap::new();
        let mut bodies = Vec::new();
        for body in asked {
            let mut request = Request::post(SHOP)
                .header(ACCEPT, requests::ACCEPT)
                .header(CONTENT_TYPE, requests::CONTENT_TYPE);
            if let Some(token) = token {
                request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            }
            let request = request.body(Body::from(body.clone()))?;
            let response = server::router(shop.clone()).oneshot(request).await?;
            if response.status() != StatusCode::OK {
                return Err(format!("the shop answers {}", response.status()).into());
            }
            let (parts, body) = response.into_parts();
            headers = parts.headers;
            bodies.push(body.collect().await?.to_bytes());
        }
        // Told for each body anew.
        headers.remove(CONTENT_LENGTH);
        Ok(Arc::new(Self { headers, bodies, next: AtomicUsize::new(0) }))
    }
}

/// Reads the request, pays no attention to it, and answers with the next answer.
pub(super) async fn bare(State(answers): State<Arc<Answers>>, _: Bytes) -> Response {
    let next = answers.next.fetch_add(1, Ordering::Relaxed) % answers.bodies.len();
    let mut response = Response::new(Body::from(answers.bodies[next].clone()));
    let headers = response.headers_mut();
    for (name, value) in &answers.headers {
        headers.insert(name, value.clone());
    }
    response
}

/// Prepares a statement like the shop's, in which `ks.` stands for the keyspace.
pub(super) async fn prepare(
    session: &Session,
    config: &CassandraConfig,
    cql: &str,
    consistency: Consistency,
) -> Result<PreparedStatement> {
    let cql = cql.replace(" ks.", &format!(" \"{}\".", config.keyspace));
    let mut prepared = session.prepare(cql).await?;
    let profile = ExecutionProfile::builder().consistency(consistency).build();
    prepared.set_execution_profile_handle(Some(profile.into_handle()));
    prepared.set_is_idempotent(true);
    prepared.set_request_timeout(Some(EXECUTE_WITHIN));
    prepared.set_use_cached_result_metadata(true);
    Ok(prepared)
}
