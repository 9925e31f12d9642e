//! The configuration: one small struct per topic, with every default and limit in one place.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;
use clap::ValueEnum;

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
    /// How the shop wants things shown.
    pub rules: ShopRules,
}

/// How the shop wants things shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShopRules {
    /// Up to so many units of a product are shown as `LOW_STOCK`.
    pub low_stock: u32,
}

impl Default for ShopRules {
    fn default() -> Self {
        Self { low_stock: 5 }
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

/// Who may sign tokens: the shop itself with a secret, an identity provider with its keys, or both.
#[derive(Debug, Clone, Default)]
pub struct AuthConfig {
    /// The HS256 secret that signs, and whose tokens are taken.
    pub jwt_secret: Option<Secret>,
    /// The secret before that one. Its tokens are still taken, and it signs nothing.
    pub jwt_secret_previous: Option<Secret>,
    /// The public keys of an identity provider.
    pub jwks: Option<JwksConfig>,
    /// The `iss` that every token must have.
    pub issuer: Option<String>,
    /// The `aud` that every token must have, alone or among others.
    pub audience: Option<String>,
}

/// Fewest bytes of an HS256 secret: as many as its hash has, or it can be guessed.
pub const MIN_SECRET_BYTES: usize = 32;
/// The variable with the secret that signs.
pub const JWT_SECRET: &str = "VITRINA_JWT_SECRET";
/// The variable with the secret before it.
pub const JWT_SECRET_PREVIOUS: &str = "VITRINA_JWT_SECRET_PREVIOUS";

impl AuthConfig {
    /// Takes the tokens of one secret.
    pub fn new(jwt_secret: Secret) -> Result<Self, ConfigError> {
        let jwt_secret = Some(strong(JWT_SECRET, jwt_secret)?);
        Ok(Self { jwt_secret, ..Self::default() })
    }

    /// Takes the tokens of the secret before as well: whoever still has one is not turned away.
    pub fn with_previous(mut self, secret: Secret) -> Result<Self, ConfigError> {
        self.jwt_secret_previous = Some(strong(JWT_SECRET_PREVIOUS, secret)?);
        Ok(self)
    }
}

fn strong(setting: &'static str, secret: Secret) -> Result<Secret, ConfigError> {
    if secret.expose().len() < MIN_SECRET_BYTES {
        let fault = format!("the secret must have at least {MIN_SECRET_BYTES} bytes");
        return Err(ConfigError::new(setting, fault));
    }
    Ok(secret)
}

/// Where the public keys of the identity provider are (a JSON Web Key Set), and how often they are
/// asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwksConfig {
    /// Where they are.
    pub source: JwksSource,
    /// How long an address has to answer.
    pub fetch_within: Duration,
    /// How often they are looked at by themselves. A key that was taken back is believed this long.
    pub refresh_every: Duration,
    /// How much time lies between two looks that tokens with unknown keys bring about. All such
    /// tokens share it: they cost nothing to make up.
    pub refresh_limit: Duration,
}

/// Where a key set is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksSource {
    /// In a file of this machine.
    File(PathBuf),
    /// At an `http://` or `https://` address.
    Address(Uri),
}

/// The setting that [`JwksConfig::parse`] speaks of.
pub const JWKS: &str = "--jwks / VITRINA_JWKS";

impl JwksConfig {
    /// Reads the path of a file or an address.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |fault: &str| ConfigError::new(JWKS, fault);
        let is_address = text.starts_with("http://") || text.starts_with("https://");
        let source = if is_address {
            let address: Uri = text.parse().map_err(|_| wrong("is not an address"))?;
            // It would be shown to everybody who sees the processes of the machine.
            if address.authority().is_some_and(|authority| authority.as_str().contains('@')) {
                return Err(wrong("must not hold a password; keys that verify are no secret"));
            }
            JwksSource::Address(address)
        } else if text.is_empty() || text.contains("://") {
            return Err(wrong(
                "must be a file, or an address that begins with https:// or http://",
            ));
        } else {
            JwksSource::File(text.into())
        };
        Ok(Self {
            source,
            fetch_within: Duration::from_secs(3),
            refresh_every: Duration::from_secs(600),
            refresh_limit: Duration::from_secs(10),
        })
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
    /// What WebSocket connections may take.
    pub sockets: SocketLimits,
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
            sockets: SocketLimits::default(),
        }
    }
}

/// Where the shop keeps its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConfig {
    /// In a folder of this machine, in this process.
    Embedded {
        /// The folder.
        dir: PathBuf,
    },
    /// In a Cassandra cluster.
    Cassandra(CassandraConfig),
}

/// How to reach and use a Cassandra cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CassandraConfig {
    /// Nodes to start from, `host:port`.
    pub nodes: Vec<String>,
    /// The shop's keyspace.
    pub keyspace: String,
    /// The data centre this instance works in.
    pub dc: String,
    /// How many copies of each row every data centre keeps: `dc1:3,dc2:3`.
    pub replication: Vec<(String, u8)>,
    /// Name and password, where the cluster asks for them.
    pub credentials: Option<(String, Secret)>,
    /// The certificate authority that signed the nodes' certificates; with it, TLS is used.
    pub tls_ca: Option<PathBuf>,
}

/// The setting that [`StoreConfig::parse`] speaks of.
const STORE: &str = "--store / VITRINA_STORE";
/// The port of a node that names none.
const CQL_PORT: u16 = 9042;
/// Most characters of a keyspace name, a limit of Cassandra's.
const MAX_KEYSPACE_CHARS: usize = 48;
/// Most copies of a row in a data centre: more than any sensible cluster keeps.
const MAX_REPLICAS: u8 = 9;

impl StoreConfig {
    /// Reads `embedded:DIR` or `cassandra://host:port,host:port/keyspace?dc=dc1&rf=3`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if let Some(dir) = text.strip_prefix("embedded:") {
            if dir.is_empty() {
                return Err(ConfigError::new(
                    STORE,
                    "embedded: needs a folder, as embedded:./data",
                ));
            }
            return Ok(Self::Embedded { dir: dir.into() });
        }
        match text.strip_prefix("cassandra://") {
            Some(rest) => CassandraConfig::parse(rest).map(Self::Cassandra),
            None => Err(ConfigError::new(
                STORE,
                "must be embedded:DIR or cassandra://host:port,host:port/keyspace?dc=dc1&rf=3",
            )),
        }
    }
}

impl CassandraConfig {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |fault: &str| ConfigError::new(STORE, fault);
        let (address, options) = text.split_once('?').unwrap_or((text, ""));
        let (hosts, keyspace) =
            address.split_once('/').ok_or_else(|| wrong("names no keyspace after the hosts"))?;
        if hosts.contains('@') {
            return Err(wrong(
                "must not hold a password; use VITRINA_CASSANDRA_USER and \
                 VITRINA_CASSANDRA_PASSWORD",
            ));
        }
        let nodes = hosts.split(',').map(node).collect::<Option<Vec<_>>>();
        let nodes = nodes.ok_or_else(|| wrong("has a host that is not host or host:port"))?;
        // Unlike a data centre, a keyspace has no `-` in its name.
        let is_keyspace = is_name(keyspace) && !keyspace.contains('-');
        if !is_keyspace || keyspace.len() > MAX_KEYSPACE_CHARS {
            return Err(wrong("has a keyspace that is not a name of letters, digits and _"));
        }
        let (mut dc, mut rf, mut tls_ca) = ("dc1".to_owned(), "3".to_owned(), None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("dc", value)) => value.clone_into(&mut dc),
                Some(("rf", value)) => value.clone_into(&mut rf),
                Some(("ca", value)) => tls_ca = Some(value.into()),
                _ => return Err(wrong("knows the options dc, rf and ca only")),
            }
        }
        if !is_name(&dc) {
            return Err(wrong("has a dc that is not a name of letters, digits and _ or -"));
        }
        let replication = replication(&rf, &dc).ok_or_else(|| {
            wrong("has an rf that is neither a number from 1 to 9 nor a list such as dc1:3,dc2:3")
        })?;
        let keyspace = keyspace.to_owned();
        Ok(Self { nodes, keyspace, dc, replication, credentials: None, tls_ca })
    }
}

fn node(host: &str) -> Option<String> {
    let (name, port) = host_and_port(host, CQL_PORT)?;
    Some(format!("{name}:{port}"))
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

fn replication(rf: &str, dc: &str) -> Option<Vec<(String, u8)>> {
    let copies = |text: &str| text.parse().ok().filter(|n| (1..=MAX_REPLICAS).contains(n));
    if let Some(copies) = copies(rf) {
        return Some(vec![(dc.to_owned(), copies)]);
    }
    let list: Option<Vec<_>> = rf
        .split(',')
        .map(|part| {
            let (dc, rf) = part.split_once(':')?;
            Some((is_name(dc).then(|| dc.to_owned())?, copies(rf)?))
        })
        .collect();
    list.filter(|list| list.iter().any(|(name, _)| name == dc))
}

/// Letters, digits, `_` and `-`: names that go into CQL as they are need no quoting rules.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Where the shop keeps what it has read a moment ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheConfig {
    /// Nowhere: everything is read from the store.
    Off,
    /// In this process.
    Memory,
    /// In this process, and in a Redis that instances share.
    Redis(RedisConfig),
}

/// How to reach a Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The number of its database.
    pub db: u16,
    /// Name and password, where it asks for them; the name is empty for its default user.
    pub credentials: Option<(String, Secret)>,
}

/// The setting that [`CacheConfig::parse`] speaks of.
const CACHE: &str = "--cache / VITRINA_CACHE";
/// The port of a Redis that names none.
const REDIS_PORT: u16 = 6379;

impl CacheConfig {
    /// Reads `off`, `memory` or `redis://user:password@host:port/db`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        match text {
            "off" => return Ok(Self::Off),
            "memory" => return Ok(Self::Memory),
            _ => {}
        }
        match text.strip_prefix("redis://") {
            Some(rest) => RedisConfig::parse(rest).map(Self::Redis),
            None => Err(ConfigError::new(
                CACHE,
                "must be off, memory or redis://user:password@host:port/db",
            )),
        }
    }
}

impl RedisConfig {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        // No fault repeats the text, which may hold a password.
        let wrong = |fault: &str| ConfigError::new(CACHE, fault);
        let (login, rest) = match text.rsplit_once('@') {
            Some((login, rest)) => (Some(login), rest),
            None => (None, text),
        };
        let credentials = match login {
            Some(login) => Some(credentials(login).ok_or_else(|| {
                wrong("has something before @ that is not user:password, with %XX for : @ and %")
            })?),
            None => None,
        };
        let (address, db) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = host_and_port(address, REDIS_PORT)
            .ok_or_else(|| wrong("names a host that is not host or host:port"))?;
        let db = match db {
            "" => 0,
            db => db.parse().map_err(|_| wrong("has a database that is not a number"))?,
        };
        Ok(Self { host: host.to_owned(), port, db, credentials })
    }
}

/// Reads `user:password` or `:password`.
fn credentials(login: &str) -> Option<(String, Secret)> {
    let (user, password) = login.split_once(':')?;
    let (user, password) = (decode_percent(user)?, decode_percent(password)?);
    (!password.is_empty()).then(|| (user, Secret::new(password)))
}

/// Puts characters in the place of their `%XX`.
fn decode_percent(text: &str) -> Option<String> {
    let mut parts = text.as_bytes().split(|byte| *byte == b'%');
    let mut bytes = parts.next()?.to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        let is_code = code.iter().all(u8::is_ascii_hexdigit);
        let code = std::str::from_utf8(code).ok().filter(|_| is_code)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend_from_slice(rest);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cassandra(text: &str) -> CassandraConfig {
        match StoreConfig::parse(text) {
            Ok(StoreConfig::Cassandra(config)) => config,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn reads_a_cluster() {
        let config = cassandra("cassandra://10.0.0.1:9043,db-2/mobile_world?dc=msk&rf=2");
        assert_eq!(config.nodes, ["10.0.0.1:9043", "db-2:9042"]);
        assert_eq!(config.keyspace, "mobile_world");
        assert_eq!(config.replication, [("msk".to_owned(), 2)]);
        let config = cassandra("cassandra://a/k?rf=dc1:3,dc2:3&ca=/etc/ca.pem");
        assert_eq!(config.replication, [("dc1".to_owned(), 3), ("dc2".to_owned(), 3)]);
        assert_eq!(config.tls_ca, Some("/etc/ca.pem".into()));
    }

    #[test]
    fn refuses_what_it_cannot_use_and_names_the_setting() {
        for text in [
            "",
            "redis://x",
            "embedded:",
            "cassandra://a",
            "cassandra:///k",
            "cassandra://a:0/k",
            "cassandra://a:b/k",
            "cassandra://a b/k",
            "cassandra://user:pw@a/k",
            "cassandra://a/",
            "cassandra://a/my-shop",
            "cassandra://a/k; DROP KEYSPACE x",
            "cassandra://a/k?rf=0",
            "cassandra://a/k?rf=10",
            "cassandra://a/k?rf=dc2:3",
            "cassandra://a/k?dc='",
            "cassandra://a/k?unknown=1",
        ] {
            let error = StoreConfig::parse(text).expect_err(text);
            assert_eq!(error.setting, STORE, "{text}");
        }
    }

    fn redis(text: &str) -> RedisConfig {
        match CacheConfig::parse(text) {
            Ok(CacheConfig::Redis(config)) => config,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn reads_where_the_cache_is() {
        assert_eq!(CacheConfig::parse("off"), Ok(CacheConfig::Off));
        assert_eq!(CacheConfig::parse("memory"), Ok(CacheConfig::Memory));
        let config = redis("redis://cache-1:6380/2");
        assert_eq!((config.host.as_str(), config.port, config.db), ("cache-1", 6380, 2));
        assert_eq!(config.credentials, None);
        let config = redis("redis://10.0.0.1");
        assert_eq!((config.host.as_str(), config.port, config.db), ("10.0.0.1", REDIS_PORT, 0));
        let config = redis("redis://shop:p%40ss%3Aw%25@a/");
        assert_eq!(config.credentials, Some(("shop".to_owned(), Secret::new("p@ss:w%"))));
        let config = redis("redis://:a:b@c@a:1");
        assert_eq!(config.credentials, Some((String::new(), Secret::new("a:b@c"))));
    }

    #[test]
    fn refuses_a_cache_it_cannot_use_and_names_the_setting() {
        for text in [
            "",
            "on",
            "Memory",
            "redis:",
            "redis://",
            "redis://:1",
            "redis://a:0",
            "redis://a:b",
            "redis://a:70000",
            "redis://a b",
            "redis://a,b",
            "redis://a/x",
            "redis://a/-1",
            "redis://a/0/0",
            "redis://hunter2@a",
            "redis://user:@a",
            "redis://user:hunter2%@a",
            "redis://user:hunter2%+1@a",
            "redis://user:hunter2%FF@a",
            "redis://user:hunter2@",
            "rediss://a",
        ] {
            let error = CacheConfig::parse(text).expect_err(text);
            assert_eq!(error.setting, CACHE, "{text}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
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

    #[test]
    fn reads_where_the_keys_are() {
        let source = |text: &str| JwksConfig::parse(text).map(|config| config.source);
        assert_eq!(source("/etc/keys.json"), Ok(JwksSource::File("/etc/keys.json".into())));
        assert_eq!(source("keys.json"), Ok(JwksSource::File("keys.json".into())));
        for address in ["http://127.0.0.1:81/a", "https://id.example/.well-known/jwks.json?a=b"] {
            assert_eq!(source(address), Ok(JwksSource::Address(Uri::from_static(address))));
        }
        for text in ["", "ftp://a/b", "http://", "https:///a", "http://a b", "http://u:hunter2@a"] {
            let error = source(text).expect_err(text);
            assert_eq!(error.setting, JWKS, "{text}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
