//! Read caches: what was read a moment ago is answered from memory, and what another instance has
//! read from Redis.
//!
//! Two kinds, over the same two tiers:
//!
//! - [`VersionedCache`] for single rows. Each has a version, and a newer one always wins.
//! - [`GroupCache`] for answers that many rows make up, such as a page. They belong to a group, and
//!   a write throws the whole group away.
//!
//! Over them, in memory only, lies [`DerivedCache`]: what was made of their entries and lives as long
//! as all of those do.
//!
//! # Age
//!
//! An entry knows since when it is true: the moment before its read began. It is answered with for
//! the cache's `max_age` from that moment, in whichever tier it is and however it came there. In
//! Redis the moment is kept by Redis's own clock, so that the clocks of instances need not agree;
//! where one clock is turned into the other, the error always makes an entry older, never younger.
//!
//! # Redis may be away
//!
//! It is asked under a short time-out. After a few failures in a row it is left alone until a probe
//! in the background succeeds; meanwhile the caches work as if there were memory only. See
//! [`Redis`].

mod derived;
mod flight;
mod group;
mod heat;
mod marks;
mod memory;
mod messages;
mod meter;
mod notes;
mod redis;
mod shared;
mod trail;
mod versioned;

use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

pub use self::derived::{Derived, DerivedCache, Got, Weighed};
pub use self::group::GroupCache;
pub use self::notes::Notes;
pub use self::redis::Redis;
pub use self::versioned::{Entry, VersionedCache};
use crate::config::CacheConfig;
use crate::telemetry::{CacheCounters, CacheTier, Metrics};

/// The longest a request waits for others to fill what it needs; then it reads by itself. Well
/// above a healthy read, well below a request's deadline.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// How often a request waits for others at the most. When a fill fails, one of those who waited
/// fills and the others wait once more; after that everybody reads by itself, so that a store
/// that keeps failing does not make them queue up behind each other.
const MAX_WAITS: usize = 2;

/// What an entry is asked for by.
pub trait CacheKey: Clone + Eq + Hash + Send + Sync + 'static {
    /// The key as text, different for different keys: the last part of its name in Redis.
    fn redis_key(&self) -> Cow<'_, str>;
}

impl CacheKey for String {
    fn redis_key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

/// A key that can be read back from its text.
pub trait ReadableKey: CacheKey {
    /// The key that [`CacheKey::redis_key`] has written; `None` if it has not.
    fn from_redis_key(text: &str) -> Option<Self>;
}

impl CacheKey for Arc<str> {
    fn redis_key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

/// How one cache is laid out.
#[derive(Debug, Clone)]
pub struct CacheSettings {
    /// Its name, in the metrics and in Redis.
    pub name: &'static str,
    /// What its keys in Redis begin with: `vitrina:shop`. Instances with the same prefix share
    /// entries, so it names the data that they serve.
    pub prefix: String,
    /// How old an answer may be.
    pub max_age: Duration,
    /// Memory for its entries, in bytes, about.
    pub capacity_bytes: u64,
    /// How many entries are expected in that memory. It decides into how many parts the cache is
    /// cut, and the largest entry is as large as a part.
    pub expected_entries: usize,
    /// An entry goes to Redis once it was asked for about so often within a second; 0 for all of
    /// them.
    pub hot_asks: u32,
    /// Whether instances tell each other what was put; see [`VersionedCache::listen`].
    pub announces: bool,
}

/// The reads of a store that a cache makes at once. Without Redis, or with an empty one, everything
/// falls through to the store; the rest of it waits here rather than there.
const MAX_FETCHES: usize = 256;

/// Where entries are kept.
#[derive(Clone)]
pub enum Tiers {
    /// Nowhere: every call reads.
    Off,
    /// In this process.
    Memory,
    /// In this process, and in a Redis that instances share.
    Redis(Arc<Redis>),
}

impl Tiers {
    /// Opens what the configuration names. A Redis that is away is not waited for.
    pub async fn open(config: &CacheConfig) -> Self {
        match config {
            CacheConfig::Off => Self::Off,
            CacheConfig::Memory => Self::Memory,
            CacheConfig::Redis(config) => Self::Redis(Redis::open(config).await),
        }
    }

    /// Keeps the metrics told of whether Redis is in use.
    pub fn tell(&self, metrics: &Arc<Metrics>) {
        let Self::Redis(redis) = self else { return };
        let (mut in_use, metrics) = (redis.in_use(), Arc::downgrade(metrics));
        tokio::spawn(async move {
            loop {
                let Some(metrics) = metrics.upgrade() else { return };
                metrics.redis_in_use(*in_use.borrow_and_update());
                drop(metrics);
                if in_use.changed().await.is_err() {
                    return;
                }
            }
        });
    }

    fn redis(&self) -> Option<&Arc<Redis>> {
        match self {
            Self::Redis(redis) => Some(redis),
            Self::Off | Self::Memory => None,
        }
    }
}

/// What a cache counts into. Found once: to look a counter up costs more than a hit.
struct Counters {
    memory: CacheCounters,
    redis: CacheCounters,
}

impl Counters {
    fn new(metrics: &Metrics, cache: &'static str) -> Self {
        Self {
            memory: metrics.cache(cache, CacheTier::Memory),
            redis: metrics.cache(cache, CacheTier::Redis),
        }
    }
}
