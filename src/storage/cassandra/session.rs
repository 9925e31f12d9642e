//! Reaching the cluster: waiting for it, credentials, TLS, and time-outs of seconds.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::{DefaultPolicy, LoadBalancingPolicy};
use scylla::statement::Consistency;

use crate::config::CassandraConfig;
use crate::storage::OpenError;

/// Time to open a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time of a statement that names none of its own (the driver's metadata, migrations).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// A silent connection is asked for a sign of life this often …
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// … and given up after so long without one. A frozen node goes unnoticed for a minute otherwise.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections of a session to each node. One carries thousands of requests at once; over two of them
/// fewer would go together.
const CONNECTIONS_PER_NODE: NonZeroUsize = NonZeroUsize::new(1).unwrap();
/// The first pause between two attempts to reach the cluster; it doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Does what `attempt` does, again and again as long as the cluster is away, and says what it waits
/// for. What no waiting mends (refused credentials, a bad certificate, a broken statement) is an
/// error.
pub async fn patiently<T>(
    config: &CassandraConfig,
    attempt: impl AsyncFn() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match attempt().await {
            Err(OpenError::Away(error)) => error,
            done => return done,
        };
        tracing::warn!(
            nodes = config.nodes.join(","),
            retry_in_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            error,
            "waiting for Cassandra"
        );
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Connects to the cluster.
pub async fn connect(config: &CassandraConfig) -> Result<Arc<Session>, OpenError> {
    let tls = config.tls_ca.as_ref().map(|path| tls_config(path)).transpose()?;
    match builder(config, tls).build().await {
        Ok(session) => Ok(Arc::new(session)),
        Err(error) if is_refusal(&error) => Err(OpenError::Cluster(error.to_string())),
        Err(error) => Err(OpenError::Away(error.to_string())),
    }
}

/// Waits until all nodes that are up have the same tables.
pub async fn await_agreement(session: &Session) -> Result<(), OpenError> {
    let agreed = session.await_schema_agreement().await;
    agreed.map(drop).map_err(|error| OpenError::Away(error.to_string()))
}

/// Where requests go: to a replica in this instance's data centre. A statement's own profile takes
/// the place of the session's, so both are given it.
pub(super) fn routing(config: &CassandraConfig) -> Arc<dyn LoadBalancingPolicy> {
    DefaultPolicy::builder().prefer_datacenter(config.dc.clone()).token_aware(true).build()
}

fn builder(config: &CassandraConfig, tls: Option<Arc<rustls::ClientConfig>>) -> SessionBuilder {
    let profile = ExecutionProfile::builder()
        .load_balancing_policy(routing(config))
        .consistency(Consistency::LocalQuorum)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&config.nodes)
        .default_execution_profile_handle(profile.into_handle())
        .connection_timeout(CONNECT_TIMEOUT)
        .keepalive_interval(KEEPALIVE_INTERVAL)
        .keepalive_timeout(KEEPALIVE_TIMEOUT)
        .pool_size(PoolSize::PerHost(CONNECTIONS_PER_NODE))
        .keyspaces_to_fetch([config.keyspace.as_str()])
        .tls_context(tls);
    if let Some((user, password)) = &config.credentials {
        builder = builder.user(user, password.expose());
    }
    builder
}

/// Whether the cluster was reached and said no.
fn is_refusal(error: &scylla::errors::NewSessionError) -> bool {
    use scylla::errors::{
        ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, MetadataError,
        NewSessionError,
    };
    let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
        ConnectionPoolError::Broken { last_connection_error },
    )) = error
    else {
        return false;
    };
    let error = match last_connection_error {
        ConnectionError::ConnectionSetupRequestError(error) => error,
        // A certificate that is not to be trusted does not become so.
        ConnectionError::IoError(error) => {
            let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
            return matches!(tls, Some(rustls::Error::InvalidCertificate(_)));
        }
        _ => return false,
    };
    matches!(
        error.get_error(),
        ConnectionSetupRequestErrorKind::DbError(scylla::errors::DbError::AuthenticationError, _)
            | ConnectionSetupRequestErrorKind::MissingAuthentication
            | ConnectionSetupRequestErrorKind::AuthFinishError(_)
    )
}

fn tls_config(ca: &std::path::Path) -> Result<Arc<rustls::ClientConfig>, OpenError> {
    let wrong = |error: String| OpenError::Cluster(format!("{}: {error}", ca.display()));
    let mut roots = rustls::RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(ca).map_err(|error| wrong(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("holds no certificate".to_owned()));
    }
    Ok(Arc::new(
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth(),
    ))
}
