//! The command line: `vitrina serve | migrate | demo | token | schema | documents | category | check |
//! export | health`.

mod catalog;
mod documents;
mod serve;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::clock::{Clock, SystemClock};
use crate::config::{
    AuthConfig, CassandraConfig, ConfigError, JWKS, JWT_SECRET, JWT_SECRET_PREVIOUS, JwksConfig,
    JwksSource, LogFormat, Secret, StoreConfig,
};
use crate::demo;
use crate::graphql::ShopGraph;
use crate::server::{Role, check_jwks_file, sign_token};
use crate::storage::{self, OpenError, StoreError};
use crate::telemetry::{self, Metrics};

/// The storefront backend of «Мобильный мир». Without a command it serves.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the shop over HTTP
    Serve(Box<serve::ServeArgs>),
    /// Bring the tables of a Cassandra store up to date
    Migrate(StoreArgs),
    /// Fill a store with the demo shop
    Demo(DemoArgs),
    /// Make a token for trying out
    Token(TokenArgs),
    /// Print the GraphQL schema
    Schema,
    /// Check a folder of documents and write its manifest, for `serve --documents`
    Documents(documents::DocumentsArgs),
    /// Look after categories: how they are laid out, splitting them
    Category(catalog::CategoryArgs),
    /// Compare products with their rows and counts, and mend what disagrees
    Check(StoreArgs),
    /// Write products to a file
    Export(catalog::ExportArgs),
    /// Ask a running server whether it is ready; exit code 0 if so
    Health(HealthArgs),
}

#[derive(Args)]
struct StoreArgs {
    /// Where the data is: embedded:DIR or cassandra://host:port,host:port/keyspace?dc=dc1&rf=3
    // Somebody may have put a password into it, which is refused; the help would show it.
    #[arg(
        long,
        env = "VITRINA_STORE",
        default_value = "embedded:./data",
        value_name = "STORE",
        hide_env_values = true
    )]
    store: String,
    /// User name for Cassandra; its password comes from `VITRINA_CASSANDRA_PASSWORD`
    #[arg(long, env = "VITRINA_CASSANDRA_USER", value_name = "NAME")]
    cassandra_user: Option<String>,
    /// How log lines look
    #[arg(long, env = "VITRINA_LOG", value_enum, default_value = "text")]
    log: LogFormat,
}

impl StoreArgs {
    fn config(&self) -> Result<StoreConfig, ConfigError> {
        let mut config = StoreConfig::parse(&self.store)?;
        if let StoreConfig::Cassandra(cassandra) = &mut config
            && let Some(user) = &self.cassandra_user
        {
            let password = secret("VITRINA_CASSANDRA_PASSWORD")?.ok_or_else(|| {
                let fault = "must be set when a Cassandra user is named";
                ConfigError::new("VITRINA_CASSANDRA_PASSWORD", fault)
            })?;
            cassandra.credentials = Some((user.clone(), password));
        }
        if let StoreConfig::Cassandra(CassandraConfig { tls_ca: Some(ca), .. }) = &config {
            std::fs::File::open(ca).map_err(|error| {
                let fault = format!("the file {} cannot be read: {error}", ca.display());
                ConfigError::new("--store / VITRINA_STORE", fault)
            })?;
        }
        Ok(config)
    }
}

#[derive(Args)]
struct AuthArgs {
    /// The identity provider's public keys (a JSON Web Key Set): a file, or an https:// address
    #[arg(long, env = "VITRINA_JWKS", value_name = "FILE|ADDRESS", hide_env_values = true)]
    jwks: Option<String>,
    /// The `iss` that every token must have
    #[arg(long, env = "VITRINA_JWT_ISSUER", value_name = "NAME")]
    jwt_issuer: Option<String>,
    /// The `aud` that every token must have
    #[arg(long, env = "VITRINA_JWT_AUDIENCE", value_name = "NAME")]
    jwt_audience: Option<String>,
}

impl AuthArgs {
    /// Who may sign tokens. Without a secret and without keys, `otherwise` says which secret does.
    fn config(
        &self,
        otherwise: impl FnOnce() -> Result<Secret, ConfigError>,
    ) -> Result<AuthConfig, ConfigError> {
        let jwks = self.jwks.as_deref().map(JwksConfig::parse).transpose()?;
        let previous = secret(JWT_SECRET_PREVIOUS)?;
        let mut auth = match secret(JWT_SECRET)? {
            Some(secret) => AuthConfig::new(secret)?,
            None if previous.is_some() => {
                let fault = "is of use only beside VITRINA_JWT_SECRET, which is not set";
                return Err(ConfigError::new(JWT_SECRET_PREVIOUS, fault));
            }
            None if jwks.is_some() => AuthConfig::default(),
            None => AuthConfig::new(otherwise()?)?,
        };
        if let Some(previous) = previous {
            auth = auth.with_previous(previous)?;
        }
        let issuer = named("--jwt-issuer / VITRINA_JWT_ISSUER", self.jwt_issuer.as_ref())?;
        let audience = named("--jwt-audience / VITRINA_JWT_AUDIENCE", self.jwt_audience.as_ref())?;
        Ok(AuthConfig { jwks, issuer, audience, ..auth })
    }

    /// The same, for a server: the file with the keys must be there.
    fn config_to_serve(
        &self,
        otherwise: impl FnOnce() -> Result<Secret, ConfigError>,
    ) -> Result<AuthConfig, ConfigError> {
        let auth = self.config(otherwise)?;
        if let Some(JwksConfig { source: JwksSource::File(path), .. }) = &auth.jwks {
            check_jwks_file(path).map_err(|fault| ConfigError::new(JWKS, fault))?;
        }
        Ok(auth)
    }
}

/// A name that tokens must have. An empty one is a mistake, not a wish to leave it unchecked.
fn named(setting: &'static str, name: Option<&String>) -> Result<Option<String>, ConfigError> {
    match name {
        Some(name) if name.is_empty() => Err(ConfigError::new(setting, "must not be empty")),
        name => Ok(name.cloned()),
    }
}

#[derive(Args)]
struct DemoArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// How many products
    #[arg(long, env = "VITRINA_DEMO_PRODUCTS", default_value_t = demo::DEFAULT_PRODUCTS,
          value_parser = clap::value_parser!(u64).range(1..=demo::MAX_PRODUCTS))]
    products: u64,
}

#[derive(Args)]
struct TokenArgs {
    /// Whose token: the `sub` of it
    #[arg(long, env = "VITRINA_TOKEN_USER")]
    user: String,
    /// What its bearer may do
    #[arg(long, env = "VITRINA_TOKEN_ROLE", value_enum, default_value = "customer")]
    role: Role,
    /// How long it is valid, in hours
    #[arg(long, env = "VITRINA_TOKEN_HOURS", default_value_t = 12,
          value_parser = clap::value_parser!(u32).range(1..=8_760))]
    hours: u32,
    #[command(flatten)]
    auth: AuthArgs,
    /// The store whose running demo accepts the token, if there is no `VITRINA_JWT_SECRET`
    #[arg(
        long,
        env = "VITRINA_STORE",
        default_value = "embedded:./data",
        value_name = "STORE",
        hide_env_values = true
    )]
    store: String,
}

#[derive(Args)]
struct HealthArgs {
    /// Where the server listens
    #[arg(long, env = "VITRINA_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// 2 for what a change of the configuration mends, 1 for the rest.
    fn exit_code(&self) -> ExitCode {
        ExitCode::from(if matches!(self, Self::Config(_)) { 2 } else { 1 })
    }
}

/// Runs the command that the command line names.
pub fn main() -> ExitCode {
    let command = Cli::parse().command;
    let command = command
        .unwrap_or_else(|| Command::Serve(Box::new(serve::ServeArgs::parse_from(["serve"]))));
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("vitrina: {failure}");
            failure.exit_code()
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => {
            let plan = args.plan()?;
            let _log = telemetry::init(args.store.log);
            runtime()?.block_on(serve::serve(plan))
        }
        Command::Migrate(args) => {
            let StoreConfig::Cassandra(config) = args.config()? else {
                println!("The embedded store needs no migration: it opens older folders itself.");
                return Ok(());
            };
            let _log = telemetry::init(args.log);
            runtime()?.block_on(async {
                storage::cassandra::patiently(&config, async || {
                    let session = storage::cassandra::connect(&config).await?;
                    storage::cassandra::migrate(&session, &config).await
                })
                .await?;
                println!("The tables of the keyspace {} are up to date.", config.keyspace);
                Ok(())
            })
        }
        Command::Demo(args) => {
            let config = args.store.config()?;
            let _log = telemetry::init(args.store.log);
            runtime()?.block_on(fill(&config, args.products))
        }
        Command::Token(args) => token(&args),
        Command::Schema => {
            print!("{}", ShopGraph::new(true).sdl());
            Ok(())
        }
        Command::Documents(args) => runtime()?.block_on(documents::documents(&args)),
        Command::Category(args) => {
            args.store().config()?;
            let _log = telemetry::init(args.store().log);
            runtime()?.block_on(catalog::category(args))
        }
        Command::Check(args) => {
            args.config()?;
            let _log = telemetry::init(args.log);
            runtime()?.block_on(catalog::check_all(&args))
        }
        Command::Export(args) => {
            args.store().config()?;
            let _log = telemetry::init(args.store().log);
            runtime()?.block_on(catalog::export(args))
        }
        Command::Health(args) => health(args.listen),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(format!("no threads to work with: {error}")))
}

async fn fill(config: &StoreConfig, products: u64) -> Result<(), Failure> {
    let clock = Arc::new(SystemClock);
    let store = storage::open(config, clock.clone(), Arc::new(Metrics::default())).await?;
    let bar = catalog::bar(products, "products");
    demo::fill(store.as_ref(), products, clock.as_ref(), |written| bar.inc(written)).await?;
    bar.finish();
    let seconds = bar.elapsed().as_secs_f64();
    println!("{products} products in {seconds:.1} s.");
    Ok(())
}

fn token(args: &TokenArgs) -> Result<(), Failure> {
    if args.user.trim().is_empty() {
        return Err(ConfigError::new("--user / VITRINA_TOKEN_USER", "must not be empty").into());
    }
    let store = StoreConfig::parse(&args.store)?;
    let auth = args.auth.config(|| match store {
        StoreConfig::Embedded { dir } => demo_secret(&dir),
        StoreConfig::Cassandra(_) => Err(no_secret()),
    })?;
    if auth.jwt_secret.is_none() {
        let fault = "is not set; tokens come from the identity provider that VITRINA_JWKS names";
        return Err(ConfigError::new(JWT_SECRET, fault).into());
    }
    let life = Duration::from_secs(u64::from(args.hours) * 3_600);
    let expires = SystemClock.now().after(life);
    println!("{}", sign_token(&auth, &args.user, args.role, expires).map_err(Failure::Other)?);
    Ok(())
}

/// Where a running demo leaves the secret that it made for its run.
fn demo_secret_path(dir: &Path) -> PathBuf {
    dir.join("demo-secret")
}

fn demo_secret(dir: &Path) -> Result<Secret, ConfigError> {
    std::fs::read_to_string(demo_secret_path(dir)).map(Secret::new).map_err(|_| {
        ConfigError::new(
            JWT_SECRET,
            format!("is not set, and no demo is running on {}", dir.display()),
        )
    })
}

fn no_secret() -> ConfigError {
    let fault = "is not set, and neither is VITRINA_JWKS; outside the demo the server needs the \
                 secret that signs its tokens, or the keys of an identity provider";
    ConfigError::new(JWT_SECRET, fault)
}

/// A secret from the environment: not a flag, because every process of the machine sees flags.
fn secret(variable: &'static str) -> Result<Option<Secret>, ConfigError> {
    match std::env::var(variable) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(Secret::new(text))),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(ConfigError::new(variable, "is not UTF-8")),
    }
}

fn health(listen: SocketAddr) -> Result<(), Failure> {
    use std::io::{Read, Write};
    const WAIT: Duration = Duration::from_secs(3);
    const LONGEST_ANSWER: u64 = 4_096;
    let unreachable = |error: std::io::Error| Failure::Other(format!("{listen}: {error}"));
    // A server that listens on every address is asked on this machine's own.
    let mut address = listen;
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    let mut stream = std::net::TcpStream::connect_timeout(&address, WAIT).map_err(unreachable)?;
    stream.set_read_timeout(Some(WAIT)).map_err(unreachable)?;
    stream
        .write_all(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .map_err(unreachable)?;
    let mut answer = String::new();
    stream.take(LONGEST_ANSWER).read_to_string(&mut answer).map_err(unreachable)?;
    let body = answer.rsplit("\r\n").next().unwrap_or_default();
    println!("{body}");
    if answer.starts_with("HTTP/1.1 200 ") {
        return Ok(());
    }
    Err(Failure::Other("the server is not ready".to_owned()))
}
