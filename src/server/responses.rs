//! Answers that are the same for everybody, kept for a moment with what they were made of.
//!
//! Only queries all of whose fields are declared public ([`crate::graphql::public`]) are kept, and
//! only answers without errors and without extensions. An answer falls when anything that it was
//! made of is changed through this instance, or another one tells of it; and else with the first of
//! its parts that is too old (see [`DerivedCache`]), after [`MAX_AGE`] at the latest. A page is made
//! of cards that are no older than 250 ms and lives for 250 ms itself, a card lives for 500 ms: so
//! what is shown of the catalogue is 500 ms old at the most, whether it comes from here or not. Stock
//! lives for 200 ms where no messages come, and where they come a message ends the answer.
//!
//! A request is looked up by its bytes as they came, before anything of them is parsed. Two requests
//! that mean the same and are written differently are kept twice.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_graphql::Response as GraphQlResponse;
use axum::http::HeaderValue;
use bytes::Bytes;
use quick_cache::Equivalent;
use tokio::time::Instant;

use super::document::{Operation, Refusal};
use super::operation::{REQUEST_COST, Ready, limited, tell_kept};
use super::wire::Media;
use crate::app::{App, Shop};
use crate::cache::{Derived, DerivedCache, Got, Weighed};
use crate::config::{CacheConfig, Config};
use crate::digest::{digest_of, hex};
use crate::graphql::{Caller, Viewer, write_response};
use crate::telemetry::{Metrics, ResponseCounters};

/// The longest an answer is kept, as the shop's documents allow for what changes least.
const MAX_AGE: Duration = Duration::from_millis(500);
/// The largest answer that is kept, its request included: several pages of whole products.
const MAX_ENTRY_BYTES: u64 = 512 << 10;

/// How a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Way {
    /// As the parameters of an address.
    Get,
    /// As a body.
    Post,
}

/// A request as it came: everything that the bytes of a public answer depend on.
#[derive(Clone, Copy, Hash)]
pub(super) struct RawRequest<'a> {
    pub(super) way: Way,
    pub(super) media: Media,
    pub(super) text: &'a [u8],
}

/// The same, to be kept. It must hash alike.
#[derive(Clone, PartialEq, Eq, Hash)]
struct RequestKey {
    way: Way,
    media: Media,
    text: Arc<[u8]>,
}

impl Equivalent<RequestKey> for RawRequest<'_> {
    fn equivalent(&self, key: &RequestKey) -> bool {
        (self.way, self.media, self.text) == (key.way, key.media, &*key.text)
    }
}

impl From<RawRequest<'_>> for RequestKey {
    fn from(raw: RawRequest<'_>) -> Self {
        Self { way: raw.way, media: raw.media, text: raw.text.into() }
    }
}

/// An answer that anybody may be given.
pub(super) struct Kept {
    /// What is sent.
    pub(super) body: Bytes,
    /// Tells it from every other answer.
    pub(super) tag: HeaderValue,
    /// The operation's name and its first root field, for the log. Not the operation itself: that
    /// would keep its document in memory, which may be far larger than the answer.
    named: (Option<Arc<str>>, Arc<str>),
    cost: u64,
}

/// An answer that may be given to others too.
pub(super) type Shared = Arc<Derived<Kept>>;

impl Weighed for Kept {
    fn bytes(&self) -> usize {
        let name = self.named.0.as_ref().map_or(0, |name| name.len());
        size_of::<Self>() + self.body.len() + self.tag.len() + name
    }
}

impl Kept {
    /// What was executed, if anybody may be given it: errors may be over the next time, and
    /// extensions tell of this execution.
    pub(super) fn of(response: &GraphQlResponse, operation: &Operation, cost: u64) -> Option<Self> {
        if !response.errors.is_empty() || !response.extensions.is_empty() {
            return None;
        }
        let mut body = write_response(response);
        // What is kept takes about as much memory as it is counted for.
        if body.capacity() > 2 * body.len() {
            body.shrink_to_fit();
        }
        let body = Bytes::from(body);
        let tag: [u8; 16] = digest_of(&[&body]);
        let tag = HeaderValue::try_from(format!("\"{}\"", hex(&tag))).ok()?;
        let named = (operation.name.clone(), operation.root.clone());
        Some(Self { body, tag, named, cost })
    }
}

/// The answers that are kept.
pub(crate) struct Responses {
    /// `None` if it is off.
    cache: Option<DerivedCache<RequestKey, Kept>>,
    counters: ResponseCounters,
}

impl Responses {
    /// A cache as large as the configuration says. There is none where nothing is cached at all, or
    /// where every answer tells what it took: no two of those are the same.
    pub(crate) fn new(config: &Config, metrics: &Metrics) -> Self {
        let bytes = config.limits.response_cache_bytes;
        let is_on = bytes > 0 && config.cache != CacheConfig::Off && !config.tells_reads;
        let cache = || DerivedCache::new("response", MAX_AGE, bytes, MAX_ENTRY_BYTES);
        Self { cache: is_on.then(cache), counters: metrics.responses().clone() }
    }

    /// The answer to a request without a token, if it is at hand or somebody is just making it. It
    /// takes no place among the operations in work, and what it costs out of the caller's share.
    pub(super) async fn at_hand(
        &self,
        (app, shop): (&App, &Shop),
        raw: RawRequest<'_>,
        (address, asked): (Option<IpAddr>, Instant),
        id: &str,
    ) -> Option<Result<Shared, Refusal>> {
        let cache = self.cache.as_ref()?;
        let kept = match cache.get(&raw, asked) {
            Some(kept) => kept,
            None => Box::pin(cache.wait(&raw.into(), asked)).await?,
        };
        app.admission.note_other();
        let cost = kept.cost.saturating_add(REQUEST_COST);
        if let Err(error) = shop.rates.take(None, address, cost) {
            return Some(Err(limited(app, error)));
        }
        self.found(app, id, &kept, asked);
        Some(Ok(kept))
    }

    /// Whether the answer to an operation may be shared with others. Staff are told more.
    pub(super) fn may_share(&self, ready: &Ready, caller: &Caller) -> bool {
        let may = self.cache.is_some()
            && ready.operation.is_public
            && !matches!(caller.viewer, Viewer::Staff(_));
        if self.cache.is_some() && !may {
            self.counters.bypassed();
        }
        may
    }

    /// The answer to an operation that may be shared: one that is at hand, or that somebody is just
    /// making, or what `make` makes. `Err` is an answer for this caller alone.
    pub(super) async fn share<R, Fut: Future<Output = Result<Kept, R>>>(
        &self,
        app: &App,
        raw: RawRequest<'_>,
        asked: Instant,
        id: &str,
        make: impl FnOnce() -> Fut,
    ) -> Result<Shared, R> {
        let Some(cache) = &self.cache else { return make().await.map(Derived::alone) };
        match cache.get_or_make((&raw.into(), raw.text.len()), asked, make).await {
            Got::Found(kept) => {
                self.found(app, id, &kept, asked);
                Ok(kept)
            }
            Got::Made(kept) => {
                self.counters.missed();
                Ok(kept)
            }
            Got::Own(own) => {
                self.counters.missed();
                Err(own)
            }
        }
    }

    /// Tells of an answer that needed no execution.
    fn found(&self, app: &App, id: &str, kept: &Kept, asked: Instant) {
        self.counters.hit();
        let (name, root) = &kept.named;
        tell_kept(app, id, (name.as_deref(), root), asked);
    }
}
