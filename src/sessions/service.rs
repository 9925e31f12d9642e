//! What a visitor can do with sessions, and who a token belongs to.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use uuid::Uuid;

use super::model::{MAX_LISTED, Noted, Session, Standing, TOUCH_EVERY, TokenKey};
use super::store::SessionStore;
use crate::cache::{CacheKey, CacheSettings, Entry, Tiers, VersionedCache};
use crate::clock::{Clock, Timestamp};
use crate::error::Error;
use crate::root_key::RootKey;
use crate::storage::StoreError;
use crate::telemetry::Metrics;

/// How old what is known of a session may be: an ended one is refused everywhere within a second.
const MAX_AGE: Duration = Duration::from_millis(400);
/// Most sessions whose activity is being noted at once; that of more is noted a minute later.
const MAX_NOTING: usize = 256;
/// Memory for sessions.
const CACHE_BYTES: u64 = 16 << 20;
/// About how many sessions that is.
const CACHED: usize = 32_768;

/// Names a session in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SessionKey(Uuid);

impl CacheKey for SessionKey {
    fn redis_key(&self) -> Cow<'_, str> {
        Cow::Owned(self.0.simple().to_string())
    }
}

/// Sessions and their tokens.
pub struct SessionService {
    store: Arc<dyn SessionStore>,
    clock: Arc<dyn Clock>,
    tokens: TokenKey,
    known: VersionedCache<SessionKey, Session>,
    noting: Arc<Semaphore>,
    /// When the activity of a session was last noted here.
    noted: Mutex<HashMap<Uuid, Timestamp>>,
}

impl SessionService {
    /// Sessions on a store. `root` is the shop's root key.
    pub fn new(
        store: Arc<dyn SessionStore>,
        clock: Arc<dyn Clock>,
        root: &RootKey,
        tiers: &Tiers,
        metrics: &Metrics,
    ) -> Self {
        let settings = CacheSettings {
            name: "sessions",
            prefix: String::new(),
            max_age: MAX_AGE,
            capacity_bytes: CACHE_BYTES,
            expected_entries: CACHED,
            hot_asks: 0,
            announces: false,
        };
        // A session is asked for by the one instance that its visitor talks to: another's knowledge
        // of it saves nothing.
        let tiers = match tiers {
            Tiers::Off => Tiers::Off,
            Tiers::Memory | Tiers::Redis(_) => Tiers::Memory,
        };
        let known = VersionedCache::new(&tiers, &settings, weigh, metrics);
        let noting = Arc::new(Semaphore::new(MAX_NOTING));
        Self {
            store,
            clock,
            tokens: TokenKey::derive(root),
            known,
            noting,
            noted: Mutex::default(),
        }
    }

    /// Begins a session of a user, or of a guest; answers with its token.
    pub async fn start(
        &self,
        user: Option<Arc<str>>,
        noted: Noted,
    ) -> Result<(Session, String), Error> {
        let now = self.clock.now().to_millis_precision();
        let id = random_id()?;
        let session =
            Session { id, user, created_at: now, last_activity: now, is_ended: false, noted };
        self.store.put_session(&session).await?;
        self.remember(&session);
        Ok((session, self.tokens.sign(id)))
    }

    /// The session that a token continues; `None` if the token is worth nothing. That it was used is
    /// noted.
    pub async fn admit(&self, token: &str) -> Result<Option<Arc<Session>>, Error> {
        let Some(id) = self.tokens.open(token) else { return Ok(None) };
        self.admit_id(id).await
    }

    /// The same for a session whose token was seen before, as on a connection that goes on.
    pub async fn admit_id(&self, id: Uuid) -> Result<Option<Arc<Session>>, Error> {
        let (asked, now) = (Instant::now(), self.clock.now().to_millis_precision());
        let Some(session) = self.find(id).await? else { return Ok(None) };
        if session.standing(now) == Standing::Over {
            return Ok(None);
        }
        let Some(touched) = session.touched(now) else { return Ok(Some(session)) };
        // Before it is written, so that of many requests at once one writes; and as old as what it
        // was made of, because that it has not ended is not known any better.
        self.known.put_since(SessionKey(id), entry(Some(touched.clone())), asked);
        if self.is_worth_noting(id, now)
            && let Ok(permit) = self.noting.clone().try_acquire_owned()
        {
            let (store, noted) = (self.store.clone(), touched.clone());
            tokio::spawn(async move {
                if let Err(error) = store.put_session(&noted).await {
                    // The next request after a minute tries again.
                    tracing::warn!(%error, "activity of a session was not noted");
                }
                drop(permit);
            });
        }
        Ok(Some(Arc::new(touched)))
    }

    /// Whether activity has to be noted, and was not by somebody just now: what is known of a session
    /// may be read again before that is written.
    fn is_worth_noting(&self, id: Uuid, now: Timestamp) -> bool {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get(&id).is_some_and(|at| now < at.after(TOUCH_EVERY)) {
            return false;
        }
        if noted.len() >= CACHED {
            // Some are noted once more than needed.
            noted.clear();
        }
        noted.insert(id, now);
        true
    }

    /// Whether a session goes on, without taking that for activity.
    pub async fn goes_on(&self, id: Uuid) -> Result<bool, Error> {
        let now = self.clock.now();
        let found = self.find(id).await?;
        Ok(found.is_some_and(|session| session.standing(now) != Standing::Over))
    }

    /// The guest's session of a token that is good, without taking it for activity; `None` for any
    /// other text, a customer's token included.
    pub async fn guest_of(&self, token: &str) -> Result<Option<Uuid>, Error> {
        let Some(id) = self.tokens.open(token) else { return Ok(None) };
        let session = self.find(id).await?.filter(|session| session.user.is_none());
        let now = self.clock.now();
        Ok(session.filter(|session| session.standing(now) != Standing::Over).map(|_| id))
    }

    /// The sessions of a user that go on, newest first; at most [`MAX_LISTED`].
    pub async fn sessions_of(&self, user: &str) -> Result<Vec<Session>, Error> {
        let listed = self.store.sessions_of(user, MAX_LISTED).await?;
        let read = try_join_all(listed.into_iter().map(|id| self.store.session(id))).await?;
        let now = self.clock.now();
        let is_live = |session: &Session| {
            session.user.as_deref() == Some(user) && session.standing(now) == Standing::Live
        };
        let mut live: Vec<_> = read.into_iter().flatten().filter(is_live).collect();
        live.sort_unstable_by_key(|session| std::cmp::Reverse((session.created_at, session.id)));
        live.dedup_by_key(|session| session.id);
        Ok(live)
    }

    /// Ends a session, if it goes on and `may_end` says so. Answers whether it did.
    pub async fn end(&self, id: Uuid, may_end: impl Fn(&Session) -> bool) -> Result<bool, Error> {
        let now = self.clock.now();
        let found = self.store.session(id).await?;
        let goes_on = |session: &Session| session.standing(now) != Standing::Over;
        let Some(session) = found.filter(|session| goes_on(session) && may_end(session)) else {
            return Ok(false);
        };
        self.store.end_session(&session).await?;
        self.remember(&Session { is_ended: true, ..session });
        Ok(true)
    }

    async fn find(&self, id: Uuid) -> Result<Option<Arc<Session>>, Error> {
        let fetch = |keys: Vec<SessionKey>| {
            let store = self.store.clone();
            async move {
                let reads = keys.into_iter().map(|SessionKey(id)| {
                    let store = store.clone();
                    async move { store.session(id).await.map(entry) }
                });
                try_join_all(reads).await
            }
        };
        let found: Vec<Option<Arc<Session>>> =
            self.known.get_many::<StoreError, _, _>(&[SessionKey(id)], fetch).await?;
        Ok(found.into_iter().flatten().next())
    }

    fn remember(&self, session: &Session) {
        self.known.put(SessionKey(session.id), entry(Some(session.clone())));
    }
}

/// A later activity is newer, and nothing is newer than the end.
fn entry(session: Option<Session>) -> Entry<Session> {
    let version = match &session {
        None => 0,
        Some(session) if session.is_ended => i64::MAX,
        Some(session) => session.last_activity.micros(),
    };
    Entry { version, value: session.map(Arc::new) }
}

fn weigh(session: &Session) -> usize {
    let Noted { device_type, user_agent, address, .. } = &session.noted;
    let texts = [device_type, user_agent, address].into_iter().flatten().map(String::len);
    size_of::<Session>() + texts.sum::<usize>()
}

/// 128 random bits.
fn random_id() -> Result<Uuid, Error> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| {
        tracing::error!("the system gives no random numbers");
        Error::Internal
    })?;
    Ok(Uuid::from_bytes(bytes))
}
