//! What belongs to no domain: the root key and leases.

use std::time::Duration;

use super::statement::{Access, Statement, Statements};
use crate::storage::{OpenError, StoreError, random_key};

/// These statements are seldom and worth waiting for.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The name of the root key.
const ROOT: &str = "root";

pub(super) struct SharedStatements {
    key: Statement,
    key_add: Statement,
    lease_take: Statement,
    lease_renew: Statement,
    lease_give_up: Statement,
}

impl SharedStatements {
    pub(super) async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let lease =
            |cql| statements.prepare("lease_by_name", cql, Access::ConditionalEverywhere, TIMEOUT);
        Ok(Self {
            key: statements
                .prepare(
                    "shop_key",
                    "SELECT value FROM ks.shop_key WHERE name = ?",
                    Access::ReadQuorum,
                    TIMEOUT,
                )
                .await?,
            key_add: statements
                .prepare(
                    "shop_key",
                    "INSERT INTO ks.shop_key (name, value) VALUES (?, ?) IF NOT EXISTS",
                    Access::ConditionalEverywhere,
                    TIMEOUT,
                )
                .await?,
            lease_take: lease(
                "INSERT INTO ks.lease_by_name (name, holder) VALUES (?, ?) IF NOT EXISTS USING TTL ?",
            )
            .await?,
            lease_renew: lease(
                "UPDATE ks.lease_by_name USING TTL ? SET holder = ? WHERE name = ? IF holder = ?",
            )
            .await?,
            lease_give_up: lease("DELETE FROM ks.lease_by_name WHERE name = ? IF holder = ?")
                .await?,
        })
    }

    pub(super) async fn root_key(&self) -> Result<[u8; 32], StoreError> {
        if let Some(key) = self.read_key().await? {
            return Ok(key);
        }
        // Of several instances that start at once, one wins; what is there then is everybody's.
        self.key_add.run((ROOT, random_key()?.as_slice())).await?;
        self.read_key().await?.ok_or_else(|| self.key.unexpected(&"the root key is not there"))
    }

    async fn read_key(&self) -> Result<Option<[u8; 32]>, StoreError> {
        let row: Option<(Vec<u8>,)> = self.key.first((ROOT,)).await?;
        row.map(|(value,)| {
            value.try_into().map_err(|_| self.key.unexpected(&"the root key has another length"))
        })
        .transpose()
    }

    pub(super) async fn take_lease(
        &self,
        name: &str,
        holder: uuid::Uuid,
        life: Duration,
    ) -> Result<bool, StoreError> {
        let seconds = i32::try_from(life.as_secs()).unwrap_or(i32::MAX).max(1);
        // Renewed first: a lease whose taking was not answered is found here the next time.
        Ok(self.lease_renew.applied((seconds, holder, name, holder)).await?
            || self.lease_take.applied((name, holder, seconds)).await?)
    }

    pub(super) async fn give_up_lease(
        &self,
        name: &str,
        holder: uuid::Uuid,
    ) -> Result<(), StoreError> {
        self.lease_give_up.run((name, holder)).await.map(drop)
    }
}
