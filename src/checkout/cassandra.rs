//! Checkouts on Cassandra. Only conditional writes touch the table.

use std::time::Duration;

use async_trait::async_trait;

use super::model::Checkout;
use super::store::{CheckoutStore, ScannedCheckouts};
use crate::owner::Owner;
use crate::storage::cassandra::{Access, CassandraStore, Statement, Statements};
use crate::storage::{Due, DueStore, OpenError, StoreError};

const TABLE: &str = "checkout_by_key";
/// A shopper waits for these.
const READ: Duration = Duration::from_secs(2);
const CHANGE: Duration = Duration::from_secs(2);
/// Checkouts of one step of a scan.
const SCAN_STEP: i32 = 500;

/// The prepared statements of checkouts.
pub struct CheckoutStatements {
    read: Statement,
    settled: Statement,
    add: Statement,
    change: Statement,
    scan: Statement,
}

const ROW: &str = "SELECT body FROM ks.checkout_by_key WHERE owner = ? AND idempotency_key = ?";

impl CheckoutStatements {
    /// Prepares all of them.
    pub async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let prepare = |cql, access, timeout| statements.prepare(TABLE, cql, access, timeout);
        Ok(Self {
            read: prepare(ROW, Access::ReadQuorum, READ).await?,
            settled: prepare(ROW, Access::ReadSerial, CHANGE).await?,
            add: prepare(
                "INSERT INTO ks.checkout_by_key (owner, idempotency_key, request_hash, state, \
                 order_id, version, body) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS",
                Access::Conditional,
                CHANGE,
            )
            .await?,
            change: prepare(
                "UPDATE ks.checkout_by_key SET request_hash = ?, state = ?, order_id = ?, \
                 version = ?, body = ? WHERE owner = ? AND idempotency_key = ? IF version = ?",
                Access::Conditional,
                CHANGE,
            )
            .await?,
            scan: prepare(
                "SELECT token(owner, idempotency_key), body FROM ks.checkout_by_key \
                 WHERE token(owner, idempotency_key) > ? LIMIT ?",
                Access::ReadQuorum,
                READ,
            )
            .await?,
        })
    }

    async fn row(
        &self,
        statement: &Statement,
        owner: &Owner,
        key: &str,
    ) -> Result<Option<Checkout>, StoreError> {
        let row: Option<(Option<String>,)> = statement.first((owner.to_string(), key)).await?;
        row.and_then(|(body,)| body).map(|body| statement.of_json(&body)).transpose()
    }
}

#[async_trait]
impl CheckoutStore for CassandraStore {
    async fn checkout(&self, owner: &Owner, key: &str) -> Result<Option<Checkout>, StoreError> {
        self.checkouts.row(&self.checkouts.read, owner, key).await
    }

    async fn settled_checkout(
        &self,
        owner: &Owner,
        key: &str,
    ) -> Result<Option<Checkout>, StoreError> {
        self.checkouts.row(&self.checkouts.settled, owner, key).await
    }

    async fn change_checkout(
        &self,
        expected: Option<i64>,
        after: &Checkout,
        due: Option<&Due>,
    ) -> Result<bool, StoreError> {
        let statements = &self.checkouts;
        if let Some(due) = due {
            self.add_due(due).await?;
        }
        let body = statements.change.to_json(after)?;
        let (owner, key, request) = (after.owner.to_string(), &*after.key, &after.request);
        let (state, order, version) = (after.state.name(), after.order.id, after.version);
        match expected {
            None => {
                let values = (owner, key, request, state, order, version, body);
                statements.add.applied(values).await
            }
            Some(expected) => {
                let values = (request, state, order, version, body, owner, key, expected);
                statements.change.applied(values).await
            }
        }
    }

    async fn scan_checkouts(&self, after: Option<Vec<u8>>) -> Result<ScannedCheckouts, StoreError> {
        let (checkouts, next) = self.checkouts.scan.scan_json(after, SCAN_STEP).await?;
        Ok(ScannedCheckouts { checkouts, next })
    }
}
