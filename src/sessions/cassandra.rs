//! Sessions on Cassandra.

use std::time::Duration;

use async_trait::async_trait;
use foldhash::HashMap;
use scylla::DeserializeRow;
use scylla::value::CqlTimestamp;
use uuid::Uuid;

use super::model::{ENDED_LIFE, Noted, SESSION_LIFE, Session};
use super::store::SessionStore;
use crate::clock::Timestamp;
use crate::geo_zone::GeoZone;
use crate::storage::cassandra::{Access, CassandraStore, Reads, Statement, Statements, seconds};
use crate::storage::{OpenError, StoreError};

const TABLE: &str = "user_sessions";
const BY_USER: &str = "sessions_by_user";
/// Every request of a visitor waits for this.
const READ: Duration = Duration::from_secs(2);
const WRITE: Duration = Duration::from_secs(2);

/// The columns of [`Columns`].
macro_rules! select_session {
    ($which:literal) => {
        concat!(
            "SELECT session_id, user_id, created_at, last_activity, ended_at, ip, user_agent, \
             device_type, geo_zone FROM ks.user_sessions WHERE session_id ",
            $which
        )
    };
}

/// The prepared statements of sessions.
pub struct SessionStatements {
    read: Statement,
    read_several: Statement,
    put: Statement,
    end: Statement,
    listed: Statement,
    list: Statement,
    unlist: Statement,
}

impl SessionStatements {
    /// Prepares all of them.
    pub async fn prepare(statements: &Statements) -> Result<Self, OpenError> {
        let prepare = |cql, access, timeout| statements.prepare(TABLE, cql, access, timeout);
        let listed = |cql, access, timeout| statements.prepare(BY_USER, cql, access, timeout);
        Ok(Self {
            read: prepare(select_session!("= ?"), Access::ReadQuorum, READ).await?,
            read_several: prepare(select_session!("IN ?"), Access::ReadQuorum, READ).await?,
            // Without `ended_at`: whoever notes activity late does not bring an ended one back.
            put: prepare(
                "INSERT INTO ks.user_sessions (session_id, user_id, created_at, last_activity, \
                 ip, user_agent, device_type, geo_zone) VALUES (?, ?, ?, ?, ?, ?, ?, ?) \
                 USING TTL ?",
                Access::WriteQuorum,
                WRITE,
            )
            .await?,
            end: prepare(
                "UPDATE ks.user_sessions USING TTL ? SET ended_at = ? WHERE session_id = ?",
                Access::WriteQuorum,
                WRITE,
            )
            .await?,
            listed: listed(
                "SELECT session_id FROM ks.sessions_by_user WHERE user_id = ? LIMIT ?",
                Access::ReadOne,
                READ,
            )
            .await?,
            list: listed(
                "INSERT INTO ks.sessions_by_user (user_id, created_at, session_id, device_type, \
                 last_activity) VALUES (?, ?, ?, ?, ?) USING TTL ?",
                Access::WriteQuorum,
                WRITE,
            )
            .await?,
            unlist: listed(
                "DELETE FROM ks.sessions_by_user \
                 WHERE user_id = ? AND created_at = ? AND session_id = ?",
                Access::WriteQuorum,
                WRITE,
            )
            .await?,
        })
    }
}

#[derive(DeserializeRow)]
struct Columns {
    session_id: Uuid,
    user_id: Option<String>,
    created_at: Option<CqlTimestamp>,
    last_activity: Option<CqlTimestamp>,
    ended_at: Option<CqlTimestamp>,
    ip: Option<String>,
    user_agent: Option<String>,
    device_type: Option<String>,
    geo_zone: Option<String>,
}

impl Columns {
    /// `None` if nothing is left but that it was ended.
    fn into_session(self) -> Option<Session> {
        let time = |at: Option<CqlTimestamp>| at.map(|at| Timestamp::from_millis(at.0));
        Some(Session {
            id: self.session_id,
            user: self.user_id.map(Into::into),
            created_at: time(self.created_at)?,
            last_activity: time(self.last_activity)?,
            is_ended: self.ended_at.is_some(),
            noted: Noted {
                device_type: self.device_type,
                geo_zone: self.geo_zone.map(GeoZone::new_unchecked),
                user_agent: self.user_agent,
                address: self.ip,
            },
        })
    }
}

impl Reads for SessionStatements {
    type Key = Uuid;
    type Row = Option<Session>;

    async fn one(&self, id: &Uuid) -> Result<Option<Session>, StoreError> {
        let row: Option<Columns> = self.read.first((id,)).await?;
        Ok(row.and_then(Columns::into_session))
    }

    async fn several(&self, ids: &[Uuid]) -> Result<Vec<Option<Session>>, StoreError> {
        let rows: Vec<Columns> = self.read_several.rows_for((ids,), ids.len()).await?;
        let mut found: HashMap<Uuid, Session> = rows
            .into_iter()
            .filter_map(|row| Some((row.session_id, row.into_session()?)))
            .collect();
        Ok(ids.iter().map(|id| found.remove(id)).collect())
    }
}

fn time(at: Timestamp) -> CqlTimestamp {
    CqlTimestamp(at.millis())
}

#[async_trait]
impl SessionStore for CassandraStore {
    async fn session(&self, id: Uuid) -> Result<Option<Session>, StoreError> {
        self.known_sessions.read(&id).await
    }

    async fn put_session(&self, session: &Session) -> Result<(), StoreError> {
        let Session { id, user, created_at, last_activity, noted, .. } = session;
        let Noted { device_type, geo_zone, user_agent, address } = noted;
        let (created, active) = (time(*created_at), time(*last_activity));
        let zone = geo_zone.as_ref().map(GeoZone::as_str);
        let row = (id, user.as_deref(), created, active, address, user_agent, device_type, zone);
        let (id, user_id, created, active, address, agent, device, zone) = row;
        let life = seconds(session.life());
        let row = self
            .sessions
            .put
            .run((id, user_id, created, active, address, agent, device, zone, life));
        let list = async {
            let Some(user) = user_id else { return Ok(()) };
            let values = (user, created, id, device, active, seconds(SESSION_LIFE));
            self.sessions.list.run(values).await.map(drop)
        };
        tokio::try_join!(row, list).map(drop)
    }

    async fn end_session(&self, session: &Session) -> Result<(), StoreError> {
        let ended = time(session.last_activity);
        self.sessions.end.run((seconds(ENDED_LIFE), ended, session.id)).await?;
        if let Some(user) = session.user.as_deref() {
            let values = (user, time(session.created_at), session.id);
            self.sessions.unlist.run(values).await?;
        }
        Ok(())
    }

    async fn sessions_of(&self, user: &str, limit: usize) -> Result<Vec<Uuid>, StoreError> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let rows: Vec<(Uuid,)> = self.sessions.listed.rows((user, limit)).await?;
        Ok(rows.into_iter().map(|(id,)| id).collect())
    }
}
