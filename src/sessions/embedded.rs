//! Sessions on the embedded store.

use async_trait::async_trait;
use uuid::Uuid;

use super::model::{ENDED_LIFE, SESSION_LIFE, Session};
use super::store::SessionStore;
use crate::storage::embedded::{EmbeddedStore, Engine, Key, Reader, StoredKey, Table, Txn};
use crate::storage::{OpenError, StoreError};

const SESSIONS: &str = "user_sessions";
const BY_USER: &str = "sessions_by_user";

/// The tables of sessions.
#[derive(Clone)]
pub struct SessionTables {
    sessions: Table,
    by_user: Table,
}

impl SessionTables {
    /// Opens the tables, made if they are not there.
    pub fn open(engine: &Engine) -> Result<Self, OpenError> {
        Ok(Self { sessions: engine.table(SESSIONS)?, by_user: engine.table(BY_USER)? })
    }
}

fn key(id: Uuid) -> Key {
    Key::new().text(&id.simple().to_string())
}

fn listed_key(user: &str, session: &Session) -> Key {
    // Newest first.
    let newest_first = session.created_at.micros().saturating_neg();
    Key::new().text(user).int(newest_first).text(&session.id.simple().to_string())
}

#[async_trait]
impl SessionStore for EmbeddedStore {
    async fn session(&self, id: Uuid) -> Result<Option<Session>, StoreError> {
        let table = self.sessions.sessions.clone();
        self.engine.look(SESSIONS, 1, move |reader: &Reader| reader.get(&table, &key(id))).await
    }

    async fn put_session(&self, session: &Session) -> Result<(), StoreError> {
        let (tables, session) = (self.sessions.clone(), session.clone());
        let write = move |txn: &mut Txn<'_>| {
            let there: Option<Session> = txn.get(&tables.sessions, &key(session.id))?;
            if there.is_some_and(|there| there.is_ended) {
                return Ok(());
            }
            let until = Some(session.last_activity.after(session.life()));
            txn.put(&tables.sessions, key(session.id), &session, until)?;
            if let Some(user) = &session.user {
                let until = Some(session.last_activity.after(SESSION_LIFE));
                txn.put(&tables.by_user, listed_key(user, &session), &(), until)?;
            }
            Ok(())
        };
        self.engine.write(SESSIONS, write).await
    }

    async fn end_session(&self, session: &Session) -> Result<(), StoreError> {
        let tables = self.sessions.clone();
        let ended = Session { is_ended: true, ..session.clone() };
        let write = move |txn: &mut Txn<'_>| {
            let until = Some(txn.now().after(ENDED_LIFE));
            txn.put(&tables.sessions, key(ended.id), &ended, until)?;
            if let Some(user) = &ended.user {
                txn.delete(&tables.by_user, listed_key(user, &ended));
            }
            Ok(())
        };
        self.engine.write(SESSIONS, write).await
    }

    async fn sessions_of(&self, user: &str, limit: usize) -> Result<Vec<Uuid>, StoreError> {
        let (table, prefix) = (self.sessions.by_user.clone(), Key::new().text(user));
        let read = move |reader: &Reader| {
            let rows: Vec<(StoredKey, ())> = reader.scan(&table, &prefix, limit)?;
            let id = |(key, ()): (StoredKey, ())| {
                Reader::parts(&table, &key, |parts| {
                    parts.text()?;
                    parts.int()?;
                    Uuid::try_parse(&parts.text()?).ok()
                })
            };
            rows.into_iter().map(id).collect()
        };
        self.engine.read(BY_USER, read).await
    }
}
