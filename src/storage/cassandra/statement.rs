//! A prepared statement with everything a reader wants to know of it: table, consistency, whether
//! it may be repeated, and how long it may take.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::policies::load_balancing::LoadBalancingPolicy;
use scylla::policies::retry::{DefaultRetryPolicy, FallthroughRetryPolicy};
use scylla::policies::speculative_execution::SimpleSpeculativeExecutionPolicy;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch as DriverBatch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::lines::Lines;
use super::outage::{Outage, PROBE_TIMEOUT, Probe};
use super::session::routing;
use crate::config::CassandraConfig;
use crate::fault;
use crate::storage::{OpenError, StoreError};
use crate::telemetry::{CallKind, Metrics};

/// A read that has not been answered after this long is sent to one more replica.
const SPECULATE_AFTER: Duration = Duration::from_millis(80);
/// How many more replicas a slow read is sent to at the most.
const SPECULATIVE_READS: usize = 1;

/// Partitions that one statement looks up at the most. The node that gets it gathers their rows: for a
/// page of products that takes a fraction of what as many statements take, the node's and ours. More
/// would keep one node busy with what others could do.
pub const KEYS_AT_ONCE: usize = 32;

/// How a statement uses the cluster. Each one fixes consistency, idempotence and retries together,
/// because only some combinations are safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// `LOCAL_ONE`, may be repeated, asks another replica when slow: fast, may be a moment old.
    ReadOne,
    /// `LOCAL_QUORUM`, may be repeated, asks another replica when slow: sees what was acknowledged.
    ReadQuorum,
    /// `LOCAL_SERIAL`, may be repeated: sees what conditional writes have done, and ends one that was
    /// left under way; for settling what became of it.
    ReadSerial,
    /// `ALL`, may be repeated: for what must not be missed anywhere; fails when a replica is away.
    ReadAll,
    /// `LOCAL_QUORUM`, may be repeated: writing the same again changes nothing.
    WriteQuorum,
    /// `LOCAL_QUORUM`, never repeated: counters, where twice is not once.
    CountQuorum,
    /// A conditional write (`IF …`), `LOCAL_SERIAL`, never repeated: a lost reply may mean that it
    /// happened.
    Conditional,
    /// The same for all data centres together, `SERIAL` and `EACH_QUORUM`: seldom, and seen by
    /// everybody who reads at `LOCAL_QUORUM` afterwards.
    ConditionalEverywhere,
    /// `ALL`, may be repeated: for rows that readers at `LOCAL_ONE` rely on from now on.
    WriteAll,
}

impl Access {
    fn is_read(self) -> bool {
        matches!(self, Self::ReadOne | Self::ReadQuorum | Self::ReadSerial | Self::ReadAll)
    }

    fn consistency(self) -> Consistency {
        match self {
            Self::ReadOne => Consistency::LocalOne,
            // A serial read is asked for by the ordinary consistency of a SELECT.
            Self::ReadSerial => Consistency::LocalSerial,
            Self::ConditionalEverywhere => Consistency::EachQuorum,
            Self::ReadAll | Self::WriteAll => Consistency::All,
            Self::ReadQuorum | Self::WriteQuorum | Self::CountQuorum | Self::Conditional => {
                Consistency::LocalQuorum
            }
        }
    }

    /// Whether one copy of a row is enough: such a call is answered as long as any node is.
    fn needs_one_copy(self) -> bool {
        self == Self::ReadOne
    }

    fn may_be_repeated(self) -> bool {
        self.is_read() || matches!(self, Self::WriteQuorum | Self::WriteAll)
    }

    fn serial_consistency(self) -> SerialConsistency {
        match self {
            Self::ConditionalEverywhere => SerialConsistency::Serial,
            _ => SerialConsistency::LocalSerial,
        }
    }

    fn profile(self, routing: &Arc<dyn LoadBalancingPolicy>) -> ExecutionProfileHandle {
        let profile = ExecutionProfile::builder()
            .load_balancing_policy(routing.clone())
            .consistency(self.consistency())
            .serial_consistency(Some(self.serial_consistency()));
        let profile = if self.may_be_repeated() {
            profile.retry_policy(Arc::new(DefaultRetryPolicy::new()))
        } else {
            profile.retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        };
        let speculation = self.is_read().then(|| {
            Arc::new(SimpleSpeculativeExecutionPolicy {
                max_retry_count: SPECULATIVE_READS,
                retry_interval: SPECULATE_AFTER,
            }) as Arc<_>
        });
        profile.speculative_execution_policy(speculation).build().into_handle()
    }
}

/// A read at quorum of a table that is always there: it answers when the shop can.
const PROBE: &str = "SELECT number FROM ks.schema_migrations WHERE part = 'schema' LIMIT 1";

/// Prepares statements on a session.
pub struct Statements {
    lines: Arc<Lines>,
    keyspace: String,
    routing: Arc<dyn LoadBalancingPolicy>,
    metrics: Arc<Metrics>,
    outage: Arc<Outage>,
}

impl Statements {
    /// Statements that run on `session` and others like it, on the tables of the shop's keyspace.
    pub async fn new(
        session: Arc<Session>,
        config: &CassandraConfig,
        metrics: Arc<Metrics>,
    ) -> Result<Self, OpenError> {
        let (keyspace, routing) = (config.keyspace.clone(), routing(config));
        let statement =
            prepare(&session, (&keyspace, &routing), PROBE, Access::ReadQuorum, PROBE_TIMEOUT)
                .await?;
        let lines = Lines::new(session.clone(), config.clone());
        let outage = Outage::new(Probe { session, statement }, metrics.clone());
        Ok(Self { lines, keyspace, routing, metrics, outage })
    }

    /// What is known of the cluster by those who run these statements.
    pub(super) fn outage(&self) -> Arc<Outage> {
        self.outage.clone()
    }

    /// Prepares one statement, in which `ks.` stands for the keyspace. `table` names what it works
    /// on, for metrics and errors.
    pub async fn prepare(
        &self,
        table: &'static str,
        cql: &'static str,
        access: Access,
        timeout: Duration,
    ) -> Result<Statement, OpenError> {
        let place = (self.keyspace.as_str(), &self.routing);
        let prepared = prepare(self.lines.aside(), place, cql, access, timeout).await?;
        Ok(Statement {
            lines: self.lines.clone(),
            metrics: self.metrics.clone(),
            prepared,
            table,
            kind: if access.is_read() { CallKind::Read } else { CallKind::Write },
            outage: (!access.needs_one_copy()).then(|| self.outage.clone()),
        })
    }

    /// A write that is run for several rows of one partition: for all of them or none.
    pub fn batch(&self, statement: Statement) -> Batch {
        Batch { statement }
    }
}

async fn prepare(
    session: &Session,
    (keyspace, routing): (&str, &Arc<dyn LoadBalancingPolicy>),
    cql: &str,
    access: Access,
    timeout: Duration,
) -> Result<PreparedStatement, OpenError> {
    let prepared = session.prepare(in_keyspace(cql, keyspace)).await;
    let mut prepared = prepared.map_err(|error| not_prepared(cql, &error))?;
    prepared.set_execution_profile_handle(Some(access.profile(routing)));
    prepared.set_is_idempotent(access.may_be_repeated());
    prepared.set_request_timeout(Some(timeout));
    // The columns were told when it was prepared; sending them with each answer is waste.
    prepared.set_use_cached_result_metadata(true);
    Ok(prepared)
}

/// A write for several rows of one partition, ready to run.
pub struct Batch {
    statement: Statement,
}

impl Batch {
    /// Runs it for these rows, which are all of one partition.
    pub async fn run<R: SerializeRow>(&self, rows: Vec<R>) -> Result<(), StoreError> {
        let Statement { lines, prepared, .. } = &self.statement;
        let mut batch = DriverBatch::new(BatchType::Unlogged);
        for _ in &rows {
            batch.append_statement(prepared.clone());
        }
        batch.set_execution_profile_handle(prepared.get_execution_profile_handle().cloned());
        batch.set_is_idempotent(prepared.get_is_idempotent());
        batch.set_request_timeout(prepared.get_request_timeout());
        let (batch, rows) = (&batch, &rows);
        let call = lines.call(|session| async move { session.batch(batch, rows).await });
        self.statement.call(Box::pin(call), 1).await.map(drop)
    }
}

/// A prepared statement, ready to run.
pub struct Statement {
    lines: Arc<Lines>,
    metrics: Arc<Metrics>,
    prepared: PreparedStatement,
    table: &'static str,
    kind: CallKind,
    /// For one that needs more than one copy of a row.
    outage: Option<Arc<Outage>>,
}

impl Statement {
    /// Runs the statement. What it reads comes as one page: its text bounds it.
    pub async fn run(&self, values: impl SerializeRow) -> Result<QueryResult, StoreError> {
        self.run_for(values, 1).await
    }

    /// Runs the statement, which looks up so many partitions.
    pub async fn run_for(
        &self,
        values: impl SerializeRow,
        lookups: usize,
    ) -> Result<QueryResult, StoreError> {
        let (prepared, values) = (&self.prepared, &values);
        let call = self
            .lines
            .call(|session| async move { session.execute_unpaged(prepared, values).await });
        self.call(Box::pin(call), lookups).await
    }

    /// Makes a call for this statement. It is large, and handed on.
    async fn call<T>(
        &self,
        call: Pin<Box<impl Future<Output = Result<T, ExecutionError>>>>,
        lookups: usize,
    ) -> Result<T, StoreError> {
        let started = Instant::now();
        let is_write = self.kind == CallKind::Write;
        if is_write {
            fault::writes(self.table);
        }
        let result = match &self.outage {
            Some(outage) => outage.guard((self.table, self.kind), call).await,
            None => call.await.map_err(|error| store_error(self.table, &error)),
        };
        if is_write {
            fault::written(self.table);
        }
        match self.kind {
            CallKind::Read => {
                let lookups = u32::try_from(lookups).unwrap_or(u32::MAX);
                self.metrics.store_read(self.table, started, result.is_ok(), lookups);
            }
            CallKind::Write => self.metrics.store_write(self.table, started, result.is_ok()),
        }
        result
    }

    /// Runs the statement and reads all rows of its answer.
    pub async fn rows<R>(&self, values: impl SerializeRow) -> Result<Vec<R>, StoreError>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        self.rows_for(values, 1).await
    }

    /// The same for one that looks up so many partitions.
    pub async fn rows_for<R>(
        &self,
        values: impl SerializeRow,
        lookups: usize,
    ) -> Result<Vec<R>, StoreError>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let answer = self.run_for(values, lookups).await?;
        let answer = answer.into_rows_result().map_err(|error| self.unexpected(&error))?;
        let rows = answer.rows::<R>().map_err(|error| self.unexpected(&error))?;
        rows.map(|row| row.map_err(|error| self.unexpected(&error))).collect()
    }

    /// Runs the statement and reads the first row of its answer.
    pub async fn first<R>(&self, values: impl SerializeRow) -> Result<Option<R>, StoreError>
    where
        R: for<'frame, 'metadata> DeserializeRow<'frame, 'metadata>,
    {
        let answer = self.run(values).await?;
        let answer = answer.into_rows_result().map_err(|error| self.unexpected(&error))?;
        answer.maybe_first_row().map_err(|error| self.unexpected(&error))
    }

    /// Runs a conditional write; answers whether its condition held.
    pub async fn applied(&self, values: impl SerializeRow) -> Result<bool, StoreError> {
        let row: Option<Row> = self.first(values).await?;
        let first = row.and_then(|row| row.columns.into_iter().next().flatten());
        Ok(first == Some(CqlValue::Boolean(true)))
    }

    /// What a table keeps as JSON.
    pub fn to_json<T: Serialize>(&self, value: &T) -> Result<String, StoreError> {
        serde_json::to_string(value).map_err(|error| self.unexpected(&error))
    }

    /// Reads it back.
    pub fn of_json<T: DeserializeOwned>(&self, text: &str) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|error| self.unexpected(&error))
    }

    /// One step through a whole table, for a statement that selects token and JSON of rows whose
    /// token is greater than one, so many at the most. Answers with them and where to go on.
    pub async fn scan_json<T: DeserializeOwned>(
        &self,
        after: Option<Vec<u8>>,
        step: i32,
    ) -> Result<(Vec<T>, Option<Vec<u8>>), StoreError> {
        let wrong = || self.unexpected(&"a place that this store did not give");
        let from = match after {
            Some(bytes) => i64::from_be_bytes(bytes.try_into().map_err(|_| wrong())?),
            None => i64::MIN,
        };
        let rows: Vec<(i64, Option<String>)> = self.rows((from, step)).await?;
        let is_last = rows.len() < usize::try_from(step).unwrap_or(0);
        let next = rows.last().filter(|_| !is_last).map(|(token, _)| token.to_be_bytes().to_vec());
        let texts = rows.into_iter().filter_map(|(_, text)| text);
        let found = texts.map(|text| self.of_json(&text)).collect::<Result<_, _>>()?;
        Ok((found, next))
    }

    /// The error of an answer that does not have the shape the statement asks for.
    pub fn unexpected(&self, error: &impl std::fmt::Display) -> StoreError {
        StoreError::Fault { call: self.table, cause: error.to_string() }
    }
}

/// A life as `USING TTL` takes it.
pub fn seconds(life: Duration) -> i32 {
    i32::try_from(life.as_secs()).unwrap_or(i32::MAX)
}

/// Puts the keyspace's name where a statement says `ks.`: Cassandra advises against `USE`.
pub(super) fn in_keyspace(cql: &str, keyspace: &str) -> String {
    cql.replace(" ks.", &format!(" \"{keyspace}\"."))
}

/// Tells a statement that the server refuses from a server that does not answer.
fn not_prepared(cql: &str, error: &PrepareError) -> OpenError {
    let message = format!("the statement «{cql}» cannot be prepared: {error}");
    match error {
        PrepareError::AllAttemptsFailed { first_attempt } => {
            match attempt_error("prepare", first_attempt, String::new()) {
                StoreError::Fault { .. } => OpenError::Cluster(message),
                _ => OpenError::Away(message),
            }
        }
        _ => OpenError::Away(message),
    }
}

/// The same for a statement of the migrations. «Invalid» is no refusal there: a node that has just
/// come back does not know a keyspace or table yet that others have. If it learns of one meanwhile, it
/// stumbles («Unknown CF»), which it tells as a fault of its own. Nor is it one that nodes do not agree: one
/// that was away asks for the tables that it missed a minute later, when the driver has given up waiting.
pub(super) fn open_error(error: &ExecutionError) -> OpenError {
    if let ExecutionError::SchemaAgreementError(_) | ExecutionError::MetadataError(_) = error {
        return OpenError::Away(error.to_string());
    }
    if let ExecutionError::LastAttemptError(RequestAttemptError::DbError(
        DbError::Invalid | DbError::ServerError,
        cause,
    )) = error
    {
        return OpenError::Away(cause.clone());
    }
    match store_error("open", error) {
        StoreError::Fault { cause, .. } => OpenError::Cluster(cause),
        StoreError::Timeout { cause, .. } | StoreError::Unavailable { cause, .. } => {
            OpenError::Away(cause)
        }
    }
}

/// Sorts the driver's many errors into the three that callers act on.
pub(super) fn store_error(call: &'static str, error: &ExecutionError) -> StoreError {
    let cause = error.to_string();
    match error {
        ExecutionError::RequestTimeout(_) => StoreError::Timeout { call, cause },
        ExecutionError::ConnectionPoolError(_) | ExecutionError::EmptyPlan => {
            StoreError::Unavailable { call, cause }
        }
        ExecutionError::LastAttemptError(attempt) => attempt_error(call, attempt, cause),
        _ => StoreError::Fault { call, cause },
    }
}

fn attempt_error(call: &'static str, attempt: &RequestAttemptError, cause: String) -> StoreError {
    match attempt {
        RequestAttemptError::BrokenConnectionError(_)
        | RequestAttemptError::UnableToAllocStreamId => StoreError::Unavailable { call, cause },
        RequestAttemptError::DbError(db, _) => match db {
            DbError::ReadTimeout { .. } | DbError::WriteTimeout { .. } => {
                StoreError::Timeout { call, cause }
            }
            DbError::Unavailable { .. }
            | DbError::Overloaded
            | DbError::IsBootstrapping
            | DbError::ReadFailure { .. }
            | DbError::WriteFailure { .. } => StoreError::Unavailable { call, cause },
            _ => StoreError::Fault { call, cause },
        },
        _ => StoreError::Fault { call, cause },
    }
}

#[cfg(test)]
mod tests {
    use scylla::errors::SchemaAgreementError;

    use super::*;
    use crate::config::StoreConfig;

    #[test]
    fn nodes_that_do_not_agree_yet_are_waited_for() {
        let late = SchemaAgreementError::Timeout(Duration::from_secs(60));
        assert!(matches!(open_error(&late.into()), OpenError::Away(_)));
    }

    #[test]
    fn every_statement_goes_to_the_instances_own_data_centre() {
        let config = StoreConfig::parse("cassandra://a/k?dc=msk&rf=1").unwrap();
        let StoreConfig::Cassandra(config) = config else { unreachable!() };
        let routing = routing(&config);
        for access in [
            Access::ReadOne,
            Access::ReadQuorum,
            Access::ReadSerial,
            Access::WriteQuorum,
            Access::CountQuorum,
            Access::Conditional,
            Access::ConditionalEverywhere,
            Access::ReadAll,
            Access::WriteAll,
        ] {
            let profile = access.profile(&routing).to_profile();
            assert!(Arc::ptr_eq(profile.get_load_balancing_policy(), &routing), "{access:?}");
        }
    }

    #[test]
    fn what_must_not_happen_twice_is_never_repeated() {
        assert!(!Access::Conditional.may_be_repeated());
        assert!(!Access::ConditionalEverywhere.may_be_repeated());
        assert!(!Access::CountQuorum.may_be_repeated());
    }
}
