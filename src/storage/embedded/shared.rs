//! What belongs to no domain: the root key and leases.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::engine::{Engine, Table};
use super::keys::Key;
use super::writer::Txn;
use crate::storage::{OpenError, StoreError};

const KEYS: &str = "shop_key";
const LEASES: &str = "lease_by_name";
/// The name of the root key in [`KEYS`].
const ROOT: &str = "root";

/// A row of `shop_key`.
#[derive(Serialize, Deserialize)]
struct KeyRow {
    value: [u8; 32],
}

/// A row of `lease_by_name`; its life is the life of the lease.
#[derive(Serialize, Deserialize)]
struct LeaseRow {
    holder: uuid::Uuid,
}

pub(super) struct SharedTables {
    keys: Table,
    leases: Table,
}

impl SharedTables {
    pub(super) fn open(engine: &Engine) -> Result<Self, OpenError> {
        Ok(Self { keys: engine.table(KEYS)?, leases: engine.table(LEASES)? })
    }

    pub(super) async fn root_key(&self, engine: &Engine) -> Result<[u8; 32], StoreError> {
        let table = self.keys.clone();
        let write = move |txn: &mut Txn<'_>| {
            let key = Key::new().text(ROOT);
            if let Some(row) = txn.get::<KeyRow>(&table, &key)? {
                return Ok(row.value);
            }
            let row = KeyRow { value: crate::storage::random_key()? };
            txn.put(&table, key, &row, None)?;
            Ok(row.value)
        };
        engine.write(KEYS, write).await
    }

    pub(super) async fn take_lease(
        &self,
        engine: &Engine,
        name: &str,
        holder: uuid::Uuid,
        life: Duration,
    ) -> Result<bool, StoreError> {
        let (table, key) = (self.leases.clone(), Key::new().text(name));
        let write = move |txn: &mut Txn<'_>| {
            let held = txn.get::<LeaseRow>(&table, &key)?;
            if held.is_some_and(|held| held.holder != holder) {
                return Ok(false);
            }
            let until = txn.now().after(life);
            txn.put(&table, key, &LeaseRow { holder }, Some(until))?;
            Ok(true)
        };
        engine.write(LEASES, write).await
    }

    pub(super) async fn give_up_lease(
        &self,
        engine: &Engine,
        name: &str,
        holder: uuid::Uuid,
    ) -> Result<(), StoreError> {
        let (table, key) = (self.leases.clone(), Key::new().text(name));
        let write = move |txn: &mut Txn<'_>| {
            if txn.get::<LeaseRow>(&table, &key)?.is_some_and(|held| held.holder == holder) {
                txn.delete(&table, key);
            }
            Ok(())
        };
        engine.write(LEASES, write).await
    }
}
