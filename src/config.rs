//! The configuration: one small struct per topic, with every default and limit in one place.

mod auth;
mod cache;
mod origins;
mod store;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;

use crate::rate::RateLimits;
use crate::server::WorkLimits;

pub use self::auth::{
    AuthConfig, JWKS, JWT_SECRET, JWT_SECRET_PREVIOUS, JwksConfig, JwksSource, MIN_SECRET_BYTES,
};
pub use self::cache::{CacheConfig, RedisConfig};
pub use self::origins::Origins;
pub use self::store::{CassandraConfig, StoreConfig};

use crate::server::Trusted;

/// Why a setting cannot be used. The message names the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {fault}")]
pub struct ConfigError {
    /// The flag and its environment variable.
    pub setting: &'static str,
    /// What is wrong, as a sentence.
    pub fault: String,
}

impl ConfigError {
    /// A fault of one setting.
    pub fn new(setting: &'static str, fault: impl Into<String>) -> Self {
        Self { setting, fault: fault.into() }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs: one JSON object a line.
    Json,
}

/// Everything `serve` needs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where the data is.
    pub store: StoreConfig,
    /// Who is who.
    pub auth: AuthConfig,
    /// What one request may cost.
    pub limits: Limits,
    /// Whether clients may ask for the schema. Off, misspelt fields get no suggestions either.
    pub introspection: bool,
    /// Where what was read is kept for a moment.
    pub cache: CacheConfig,
    /// Whether every answer tells what it took to read; staff are told always.
    pub tells_reads: bool,
    /// How the shop does business.
    pub rules: ShopRules,
    /// What the payment service signs its messages with; without it there is no payment hook.
    pub payment_secret: Option<Secret>,
    /// The only documents that are executed; without them, every document that passes the checks.
    pub trusted: Option<Trusted>,
    /// The sites whose pages may use the shop from a browser, beside its own.
    pub origins: Origins,
}

/// How the shop does business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShopRules {
    /// Up to so many units of a product are shown as `LOW_STOCK`.
    pub low_stock: u32,
    /// An order that is not paid within this time is cancelled.
    pub payment_within: Duration,
    /// What clients may ask for.
    pub rates: RateLimits,
}

impl Default for ShopRules {
    fn default() -> Self {
        Self {
            low_stock: 5,
            payment_within: Duration::from_secs(15 * 60),
            rates: RateLimits::default(),
        }
    }
}

/// A secret that never shows up in a log or an error.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// What one request may cost. Over any of these it is refused before it is executed: the document
/// limits with `QUERY_TOO_COMPLEX`, the body with 413, the deadline with `TIMEOUT`.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a request's body, chunked or not.
    pub body_bytes: usize,
    /// Time from the first byte of the body to the answer.
    pub deadline: Duration,
    /// Tokens of a document. GraphiQL's introspection has about 300.
    pub tokens: usize,
    /// How deep fields may nest, fragments included. Introspection needs 13.
    pub depth: usize,
    /// Fields with an alias, fragments expanded.
    pub aliases: usize,
    /// Fields of the root, fragments expanded.
    pub root_fields: usize,
    /// Directives in a document.
    pub directives: usize,
    /// Fields after every fragment has been put in its place: what a fragment bomb blows up.
    pub expanded_fields: usize,
    /// Cost of an operation: a field is 1, a list multiplies what is inside it.
    pub cost: u64,
    /// Operations of a document: one is executed, all are checked.
    pub operations: usize,
    /// Memory for documents that were parsed and checked, in bytes, about.
    pub document_cache_bytes: u64,
    /// Memory for answers that are the same for everybody, in bytes, about; 0 keeps none.
    pub response_cache_bytes: u64,
    /// What connections may take.
    pub connections: ConnectionLimits,
    /// How much is worked on at once.
    pub work: WorkLimits,
    /// So many proxies stand in front of the server and say in `X-Forwarded-For` for whom they ask.
    pub proxies: usize,
    /// What WebSocket connections may take.
    pub sockets: SocketLimits,
}

/// What connections may take, whatever is spoken on them. Over a number a client is told to come
/// back later; over a time the connection ends.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Connections in all.
    pub all: usize,
    /// Connections from one address; of IPv6, from one network of a client (/64).
    pub per_address: usize,
    /// Time from the first byte of a request to the end of its head.
    pub head_within: Duration,
    /// Time in which a client must take some of what is written to it.
    pub take_within: Duration,
    /// How long a connection may be quiet between two requests. Longer than the proxies in front of
    /// a shop keep theirs (commonly 60 s), so that it is they who hang up.
    pub quiet_within: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            all: 20_000,
            per_address: 1_000,
            head_within: Duration::from_secs(10),
            take_within: Duration::from_secs(10),
            quiet_within: Duration::from_secs(75),
        }
    }
}

/// What WebSocket connections may take. A message is as long as a body at the most. Over a number
/// the client is told `RATE_LIMITED`, or `UNAVAILABLE` where it is not the one to blame; over a
/// time the connection ends.
#[derive(Debug, Clone)]
pub struct SocketLimits {
    /// Connections in all. Each takes a few kilobytes while it waits.
    pub connections: usize,
    /// Connections from one address; of IPv6, from one network of a client (/64).
    pub connections_per_address: usize,
    /// Subscriptions and other operations of one connection that run at once.
    pub subscriptions: usize,
    /// Time from the opening of a connection to its `connection_init`.
    pub init_within: Duration,
    /// A connection that says nothing for so long is sent a ping, and dropped if it then says
    /// nothing for as long again.
    pub ping_after: Duration,
    /// Time in which a client must have taken a message that is sent to it.
    pub send_within: Duration,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: 100,
            subscriptions: 20,
            init_within: Duration::from_secs(3),
            ping_after: Duration::from_secs(15),
            send_within: Duration::from_secs(10),
        }
    }
}

/// Memory for answers that are the same for everybody, unless told otherwise: some ten thousand cards
/// or pages, more than are hot within half a second.
pub const RESPONSE_CACHE_BYTES: u64 = 64 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 100 << 10,
            deadline: Duration::from_secs(5),
            tokens: 4_000,
            depth: 15,
            aliases: 250,
            root_fields: 250,
            directives: 50,
            expanded_fields: 5_000,
            cost: 10_000,
            operations: 20,
            document_cache_bytes: 32 << 20,
            response_cache_bytes: RESPONSE_CACHE_BYTES,
            connections: ConnectionLimits::default(),
            work: WorkLimits::default(),
            proxies: 0,
            sockets: SocketLimits::default(),
        }
    }
}

/// Reads `host` or `host:port`.
fn host_and_port(text: &str, default_port: u16) -> Option<(&str, u16)> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().ok().filter(|port| *port != 0)?),
        None => (text, default_port),
    };
    let sound = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    (!name.is_empty() && name.chars().all(sound)).then_some((name, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_can_be_shown() {
        let secret = |name: &str| Secret::new(format!("hunter2 {name}").repeat(MIN_SECRET_BYTES));
        let mut store = StoreConfig::parse("cassandra://db-1/shop").unwrap();
        if let StoreConfig::Cassandra(cassandra) = &mut store {
            cassandra.credentials = Some(("shop".to_owned(), secret("cassandra")));
        }
        let auth = AuthConfig::new(secret("now")).and_then(|a| a.with_previous(secret("before")));
        let config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            store,
            auth: auth.unwrap(),
            limits: Limits::default(),
            introspection: true,
            cache: CacheConfig::parse("redis://shop:hunter2@cache-1").unwrap(),
            tells_reads: false,
            rules: ShopRules::default(),
            payment_secret: Some(secret("payments")),
            trusted: None,
            origins: Origins::parse("https://shop.example").unwrap(),
        };
        for shown in [format!("{config:?}"), format!("{config:#?}")] {
            assert!(shown.contains("db-1") && shown.contains("cache-1"), "{shown}");
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn a_secret_is_never_shown() {
        let cache = CacheConfig::parse("redis://shop:hunter2@a").unwrap();
        assert!(!format!("{cache:?}").contains("hunter2"), "{cache:?}");
        let config = AuthConfig::new(Secret::new("x".repeat(MIN_SECRET_BYTES))).unwrap();
        assert!(!format!("{config:?}").contains('x'), "{config:?}");
        assert!(AuthConfig::new(Secret::new("short")).is_err());
        let error = config.with_previous(Secret::new("hunter2")).expect_err("short");
        assert_eq!(error.setting, JWT_SECRET_PREVIOUS);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
