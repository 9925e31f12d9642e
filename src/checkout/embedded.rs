//! Checkouts on the embedded store.

use async_trait::async_trait;

use super::model::{Checkout, KEPT};
use super::store::{CheckoutStore, ScannedCheckouts};
use crate::owner::Owner;
use crate::storage::embedded::{EmbeddedStore, Engine, Key, Reader, StoredKey, Table, Txn};
use crate::storage::{Due, OpenError, StoreError};

const TABLE: &str = "checkout_by_key";
/// Checkouts of one step of a scan.
const SCAN_STEP: usize = 500;

/// The tables of checkouts.
#[derive(Clone)]
pub struct CheckoutTables {
    checkouts: Table,
}

impl CheckoutTables {
    /// Opens the tables, made if they are not there.
    pub fn open(engine: &Engine) -> Result<Self, OpenError> {
        Ok(Self { checkouts: engine.table(TABLE)? })
    }
}

fn row_key(owner: &Owner, key: &str) -> Key {
    Key::new().text(&owner.to_string()).text(key)
}

#[async_trait]
impl CheckoutStore for EmbeddedStore {
    async fn checkout(&self, owner: &Owner, key: &str) -> Result<Option<Checkout>, StoreError> {
        let (table, key) = (self.checkouts.checkouts.clone(), row_key(owner, key));
        self.engine.look(TABLE, 1, move |reader: &Reader| reader.get(&table, &key)).await
    }

    async fn settled_checkout(
        &self,
        owner: &Owner,
        key: &str,
    ) -> Result<Option<Checkout>, StoreError> {
        // The writer runs one write after another: an empty one comes after all that were taken.
        self.engine.write(TABLE, |_| Ok(())).await?;
        self.checkout(owner, key).await
    }

    async fn change_checkout(
        &self,
        expected: Option<i64>,
        after: &Checkout,
        due: Option<&Due>,
    ) -> Result<bool, StoreError> {
        let (table, due_table) = (self.checkouts.checkouts.clone(), self.due.clone());
        let (after, due) = (after.clone(), due.cloned());
        let write = move |txn: &mut Txn<'_>| {
            let key = row_key(&after.owner, &after.key);
            let there: Option<Checkout> = txn.get(&table, &key)?;
            if there.map(|there| there.version) != expected {
                return Ok(false);
            }
            if let Some(due) = due {
                due_table.add_to(txn, &due)?;
            }
            txn.put(&table, key, &after, Some(after.changed_at.after(KEPT)))?;
            Ok(true)
        };
        self.engine.write(TABLE, write).await
    }

    async fn scan_checkouts(&self, after: Option<Vec<u8>>) -> Result<ScannedCheckouts, StoreError> {
        let table = self.checkouts.checkouts.clone();
        let read = move |reader: &Reader| {
            let place =
                |key| Reader::parts(&table, key, |parts| Some((parts.text()?, parts.text()?)));
            let lower = match after.as_deref().map(place).transpose()? {
                Some((owner, key)) => Key::new().text(&owner).text(&key),
                None => Key::new(),
            };
            let rows: Vec<(StoredKey, Checkout)> =
                reader.range(&table, (&lower, &Key::last()), false, SCAN_STEP)?;
            let next = rows.last().filter(|_| rows.len() == SCAN_STEP).map(|(key, _)| key.to_vec());
            let checkouts = rows.into_iter().map(|(_, checkout)| checkout).collect();
            Ok(ScannedCheckouts { checkouts, next })
        };
        self.engine.read(TABLE, read).await
    }
}
