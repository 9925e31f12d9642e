//! Bringing the tables up to date: numbered files of CQL, applied in order and recorded in the
//! keyspace. Safe to run twice, and from two instances at once.

use std::sync::Arc;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::QueryResult;
use scylla::statement::SerialConsistency;
use scylla::statement::unprepared::Statement as Cql;
use scylla::value::{CqlValue, Row};

use super::statement::{in_keyspace, open_error, store_error};
use crate::config::CassandraConfig;
use crate::storage::{OpenError, StoreError};

/// Every migration, in order. One that has been released is never changed: a new one follows.
const MIGRATIONS: &[(i32, &str, &str)] = &[
    (1, "catalogue", include_str!("migrations/0001_catalogue.cql")),
    (2, "browsing", include_str!("migrations/0002_browsing.cql")),
    (3, "inventory", include_str!("migrations/0003_inventory.cql")),
    (4, "sessions and carts", include_str!("migrations/0004_sessions_and_carts.cql")),
    (5, "checkout and orders", include_str!("migrations/0005_checkout_and_orders.cql")),
    (6, "errands", include_str!("migrations/0006_errands.cql")),
];

/// The tables that migrations themselves need.
const OWN_TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS ks.schema_migrations \
     (part text, number int, name text, applied_at timestamp, PRIMARY KEY ((part), number))",
    "CREATE TABLE IF NOT EXISTS ks.schema_lock (name text PRIMARY KEY, holder uuid)",
];

/// Who may run migrations now: one row, taken with a conditional write, given up by its life time
/// should its holder die.
///
/// Longer than all statements of a migration may take.
const LOCK_SECONDS: i32 = 300;
/// How often an instance that waits for another one's migrations looks again.
const LOCK_POLL: Duration = Duration::from_millis(300);
/// How often it looks before it gives up: longer than the life of the lock.
const LOCK_POLLS: u32 = 1_200;
/// Changing the schema waits for all nodes to agree; that takes longer than a query.
const DDL_TIMEOUT: Duration = Duration::from_secs(30);

/// Applies what is missing.
pub async fn migrate(session: &Session, config: &CassandraConfig) -> Result<(), OpenError> {
    let keyspace = config.keyspace.as_str();
    let known = MIGRATIONS.last().map_or(0, |(number, ..)| *number);
    // Asked first, so that an instance changes the schema only when there is something to change.
    // A keyspace without the table of migrations has none.
    if newest(session, keyspace).await.is_ok_and(|newest| newest >= known) {
        return Ok(());
    }
    create_keyspace(session, config).await?;
    for ddl in OWN_TABLES {
        run(session, &in_keyspace(ddl, keyspace)).await?;
    }
    let holder = uuid::Uuid::new_v4();
    lock(session, keyspace, holder).await?;
    let applied = apply_missing(session, keyspace).await;
    // Whatever happened, the next one must not wait for the lock's life to end.
    let unlock = "DELETE FROM ks.schema_lock WHERE name = 'migrate' IF holder = ?";
    let _ = session.query_unpaged(conditional(in_keyspace(unlock, keyspace)), (holder,)).await;
    applied
}

async fn create_keyspace(session: &Session, config: &CassandraConfig) -> Result<(), OpenError> {
    let replication: Vec<_> =
        config.replication.iter().map(|(dc, copies)| format!("'{dc}': {copies}")).collect();
    // Names were checked when the configuration was read; they need no quoting beyond this.
    let ddl = format!(
        "CREATE KEYSPACE IF NOT EXISTS \"{}\" WITH replication = \
         {{'class': 'NetworkTopologyStrategy', {}}}",
        config.keyspace,
        replication.join(", ")
    );
    run(session, &ddl).await
}

async fn apply_missing(session: &Session, keyspace: &str) -> Result<(), OpenError> {
    // Asked again under the lock: whoever held it before may have done the work.
    let newest = newest(session, keyspace).await?;
    for (number, name, text) in MIGRATIONS.iter().filter(|(number, ..)| *number > newest) {
        for statement in statements(text) {
            run(session, &in_keyspace(&statement, keyspace)).await?;
        }
        let record = "INSERT INTO ks.schema_migrations (part, number, name, applied_at) \
                      VALUES ('schema', ?, ?, toTimestamp(now()))";
        session
            .query_unpaged(in_keyspace(record, keyspace), (number, name))
            .await
            .map_err(|error| open_error(&error))?;
        tracing::info!(number, name, "migration applied");
    }
    Ok(())
}

/// The number of the newest migration that was applied, 0 if none was.
async fn newest(session: &Session, keyspace: &str) -> Result<i32, OpenError> {
    let wrong = |error: &dyn std::fmt::Display| OpenError::Cluster(error.to_string());
    let cql = "SELECT max(number) FROM ks.schema_migrations WHERE part = 'schema'";
    let rows = session
        .query_unpaged(in_keyspace(cql, keyspace), ())
        .await
        .map_err(|error| open_error(&error))?
        .into_rows_result()
        .map_err(|error| wrong(&error))?;
    let (newest,): (Option<i32>,) = rows.single_row().map_err(|error| wrong(&error))?;
    Ok(newest.unwrap_or(0))
}

async fn lock(session: &Session, keyspace: &str, holder: uuid::Uuid) -> Result<(), OpenError> {
    let cql = format!(
        "INSERT INTO \"{keyspace}\".schema_lock (name, holder) VALUES ('migrate', ?) \
         IF NOT EXISTS USING TTL {LOCK_SECONDS}"
    );
    for _ in 0..LOCK_POLLS {
        match session.query_unpaged(conditional(cql.clone()), (holder,)).await {
            Ok(result) => {
                if is_ours(result, holder) {
                    return Ok(());
                }
            }
            // Whether it was taken shows in the next round, which names the holder.
            Err(error) => match store_error("lock", &error) {
                StoreError::Timeout { cause, .. } | StoreError::Unavailable { cause, .. } => {
                    tracing::warn!(cause, "the migration lock was not answered");
                }
                StoreError::Fault { .. } => return Err(open_error(&error)),
            },
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
    Err(OpenError::Away("another instance holds the migration lock".to_owned()))
}

/// A conditional write for all data centres together, which the driver does not repeat.
fn conditional(cql: String) -> Cql {
    let mut statement = Cql::new(cql);
    statement.set_serial_consistency(Some(SerialConsistency::Serial));
    statement.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
    statement
}

/// Whether the lock is ours now: taken by this write, or by one whose answer was lost.
fn is_ours(result: QueryResult, holder: uuid::Uuid) -> bool {
    let row = result.into_rows_result().ok().and_then(|rows| rows.maybe_first_row::<Row>().ok()?);
    row.is_some_and(|row| {
        matches!(row.columns.first(), Some(Some(CqlValue::Boolean(true))))
            || row.columns.contains(&Some(CqlValue::Uuid(holder)))
    })
}

async fn run(session: &Session, ddl: &str) -> Result<(), OpenError> {
    let mut statement = Cql::new(ddl);
    statement.set_request_timeout(Some(DDL_TIMEOUT));
    session.query_unpaged(statement, ()).await.map(drop).map_err(|error| {
        tracing::warn!(ddl, %error, "a migration statement failed");
        open_error(&error)
    })
}

/// The statements of a file: comments dropped, cut at each `;`.
fn statements(text: &str) -> Vec<String> {
    let code: Vec<&str> =
        text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    code.join("\n")
        .split(';')
        .map(|statement| statement.trim().to_owned())
        .filter(|statement| !statement.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_are_numbered_without_gaps() {
        for (index, (number, name, text)) in MIGRATIONS.iter().enumerate() {
            assert_eq!(usize::try_from(*number).unwrap(), index + 1, "{name}");
            assert!(!statements(text).is_empty(), "{name}");
        }
    }

    #[test]
    fn a_file_is_cut_into_statements() {
        assert_eq!(statements("-- why; so\nA\nB;\n\nC;\n"), ["A\nB", "C"]);
    }
}
