//! What sessions need of a store.

use async_trait::async_trait;
use uuid::Uuid;

use super::model::Session;
use crate::storage::StoreError;

/// The contract of sessions with a store.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// A session, never older than what was acknowledged before the call. One whose token can be of
    /// no use any more may be gone.
    async fn session(&self, id: Uuid) -> Result<Option<Session>, StoreError>;

    /// Writes a session, for its [`life`](Session::life) from its last activity, and lists it for
    /// its user. One that was ended stays ended, also if this comes later.
    async fn put_session(&self, session: &Session) -> Result<(), StoreError>;

    /// Ends a session for [`ENDED_LIFE`](super::model::ENDED_LIFE), and lists it no more.
    async fn end_session(&self, session: &Session) -> Result<(), StoreError>;

    /// The sessions that are listed for a user, newest first; perhaps one that was just ended.
    async fn sessions_of(&self, user: &str, limit: usize) -> Result<Vec<Uuid>, StoreError>;
}
