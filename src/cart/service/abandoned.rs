//! Carts that nobody has come back to: a report for staff that reads no cart that was touched since.
//!
//! A cart is listed under each day it was touched on, so the report walks from the last day that is
//! long enough ago back to where carts end. A cart that was touched again on a later day is passed
//! over: it is listed there too.

use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt};

use super::super::model::{CART_LIFE, Cart, CartLog, SHARDS, day_of, shard_of};
use super::CartService;
use crate::clock::Timestamp;
use crate::error::Error;
use crate::owner::Owner;

/// Most carts that are looked at for one page. A page that is not full by then ends there, and its
/// last cursor goes on.
const MAX_LOOKS: usize = 500;
/// Carts that are read at once.
const LOOKS_AT_ONCE: usize = 32;

/// Where in the report a cart stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportPlace {
    /// The day it was last touched.
    pub day: i64,
    /// Whose it is.
    pub owner: Owner,
}

/// A cart that nobody has come back to.
#[derive(Debug, Clone)]
pub struct AbandonedCart {
    /// Where it stands in the report.
    pub place: ReportPlace,
    /// What is in it.
    pub cart: Cart,
}

/// A page of the report.
#[derive(Debug, Default)]
pub struct AbandonedPage {
    /// The carts.
    pub carts: Vec<AbandonedCart>,
    /// Where to go on; `None` at the end.
    pub next: Option<ReportPlace>,
}

impl CartService {
    /// Carts with something in them that were last touched longer ago than `idle`, those of the
    /// latest days first.
    pub async fn abandoned(
        &self,
        idle: Duration,
        after: Option<ReportPlace>,
        limit: usize,
    ) -> Result<AbandonedPage, Error> {
        let now = self.clock.now();
        let before = |by: Duration| now.before(by);
        let (newest, oldest) = (day_of(before(idle)), day_of(before(CART_LIFE)));
        let from = after.as_ref().map_or(newest, |place| place.day.min(newest));
        let (mut carts, mut looks, mut last) = (Vec::new(), 0, None);
        'days: for day in (oldest..=from).rev() {
            let place = after.as_ref().filter(|place| place.day == day);
            let owners = self.listed(day, place, MAX_LOOKS - looks).await?;
            let reads = owners.into_iter().map(async |owner| {
                // One that cannot be read must not keep staff from seeing the others.
                let log = self.store.cart_log(&owner).await.unwrap_or_else(|error| {
                    tracing::warn!(%error, "a cart is left out of the report");
                    CartLog::default()
                });
                (owner, log.fold(now))
            });
            let mut reads = stream::iter(reads).buffered(LOOKS_AT_ONCE);
            while let Some((owner, cart)) = reads.next().await {
                looks += 1;
                let place = ReportPlace { day, owner };
                last = Some(place.clone());
                // One that was touched on a later day stands there.
                let is_idle = |at: Timestamp| day_of(at) == day && at <= before(idle);
                if cart.touched_at.is_some_and(is_idle) && !cart.lines.is_empty() {
                    carts.push(AbandonedCart { place, cart });
                }
                if carts.len() > limit || looks >= MAX_LOOKS {
                    break 'days;
                }
            }
        }
        let next = if carts.len() > limit {
            carts.truncate(limit);
            carts.last().map(|cart| cart.place.clone())
        } else {
            last.filter(|_| looks >= MAX_LOOKS)
        };
        Ok(AbandonedPage { carts, next })
    }

    /// The carts of a day from a place on, in the order of the report: by shard, then by owner.
    async fn listed(
        &self,
        day: i64,
        after: Option<&ReportPlace>,
        limit: usize,
    ) -> Result<Vec<Owner>, Error> {
        let first = after.map_or(0, |place| shard_of(&place.owner));
        let reads = (first..SHARDS).map(|shard| {
            let after = after.filter(|_| shard == first).map(|place| &place.owner);
            self.store.listed_carts(day, shard, after, limit)
        });
        Ok(try_join_all(reads).await?.into_iter().flatten().take(limit).collect())
    }
}
