//! How much one client may ask for: token buckets, filled at a steady rate up to a bound, from which
//! every operation takes what it costs.
//!
//! A bucket is one number: the moment at which it will be full again. Taking moves it into the
//! future, and a client whose moment is too far ahead is told when to come back. Where instances
//! share a Redis, they tell each other through it what was taken; see [`shared`]. Without one, each
//! counts for itself.

mod shared;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::time::Instant;

use self::shared::{Due, keep};
use crate::cache::Tiers;
use crate::digest::digest_of;
use crate::error::Error;
use crate::network::network;

/// Buckets of one kind that are remembered. One that is forgotten is full again, and those that are
/// used most are not forgotten.
const MAX_BUCKETS: usize = 100_000;

/// A rate, and how far it may be run ahead of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// What comes back in a second.
    pub per_second: u32,
    /// The most that can be taken at once.
    pub burst: u32,
}

/// What clients may ask for, in the cost of operations. `None`: as much as they like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimits {
    /// One customer, guest or member of staff.
    pub identity: Option<Rate>,
    /// One network address, whoever sends from there.
    pub address: Option<Rate>,
    /// The pages of one category, whoever asks for them.
    pub category: Option<Rate>,
    /// Whether clients on the same machine are limited too.
    pub loopback: bool,
}

impl Default for RateLimits {
    /// A shopper's page is some hundreds; these let a person and a family's router do what they
    /// like, and stop a program.
    fn default() -> Self {
        Self {
            identity: Some(Rate { per_second: 20_000, burst: 200_000 }),
            address: Some(Rate { per_second: 100_000, burst: 1_000_000 }),
            category: Some(Rate { per_second: 500_000, burst: 1_000_000 }),
            loopback: false,
        }
    }
}

/// Names a bucket: the same on all instances.
type Key = [u8; 16];

/// The buckets of a shop.
pub struct Rates {
    identity: Option<Buckets>,
    address: Option<Buckets>,
    category: Option<Buckets>,
    limits_loopback: bool,
}

impl Rates {
    /// Full buckets, shared where the tiers are. `shop` tells the shop from others there.
    pub fn new(limits: &RateLimits, tiers: &Tiers, shop: &str) -> Self {
        let buckets = |name: &'static str, rate: Option<Rate>| {
            rate.map(|rate| Buckets::new(rate, tiers, format!("vitrina:{shop}:rate:{name}")))
        };
        Self {
            identity: buckets("identity", limits.identity),
            address: buckets("address", limits.address),
            category: buckets("category", limits.category),
            limits_loopback: limits.loopback,
        }
    }

    /// What counts for a client's address.
    fn counted(&self, address: Option<IpAddr>) -> Option<IpAddr> {
        let limits =
            |address: &IpAddr| self.limits_loopback || !address.to_canonical().is_loopback();
        address.filter(limits).map(network)
    }

    /// Takes an operation's cost out of the caller's bucket and its address's. An operation that is
    /// refused costs nothing.
    pub fn take(
        &self,
        identity: Option<&[&[u8]]>,
        address: Option<IpAddr>,
        cost: u64,
    ) -> Result<(), Error> {
        let is_free = address.is_some_and(|address| self.counted(Some(address)).is_none());
        if is_free {
            return Ok(());
        }
        if let (Some(buckets), Some(identity)) = (&self.identity, identity) {
            buckets.take(digest_of(identity), cost)?;
        }
        self.take_from_address(address, cost)
    }

    /// Takes a cost out of the bucket of an address alone.
    pub fn take_from_address(&self, address: Option<IpAddr>, cost: u64) -> Result<(), Error> {
        match (&self.address, self.counted(address)) {
            (Some(buckets), Some(address)) => {
                let address = address.to_string();
                buckets.take(digest_of(&[address.as_bytes()]), cost)
            }
            _ => Ok(()),
        }
    }

    /// Takes a cost out of the bucket of an address whether it is there or not: what it paid for has
    /// been done.
    pub fn charge_address(&self, address: Option<IpAddr>, cost: u64) {
        if let (Some(buckets), Some(address)) = (&self.address, self.counted(address)) {
            buckets.charge(digest_of(&[address.to_string().as_bytes()]), cost);
        }
    }

    /// Takes a page's cost out of the bucket of its category.
    pub fn take_from_category(&self, category: &str, cost: u64) -> Result<(), Error> {
        match &self.category {
            Some(buckets) => buckets.take(digest_of(&[category.as_bytes()]), cost),
            None => Ok(()),
        }
    }
}

/// Buckets of one rate.
struct Buckets {
    rate: Rate,
    began: Instant,
    by_key: Cache<Key, Arc<Bucket>>,
    /// Where to note that others should hear of a bucket, if there are others.
    due: Option<Arc<Due>>,
}

/// A bucket. Times are microseconds since the buckets were made.
#[derive(Default)]
struct Bucket {
    full_at: AtomicU64,
    /// Taken here, and not told to the others.
    untold: AtomicU64,
    /// Whether it is noted that the others should hear of it.
    is_noted: AtomicBool,
}

impl Buckets {
    fn new(rate: Rate, tiers: &Tiers, prefix: String) -> Self {
        let began = Instant::now();
        let due = match tiers {
            Tiers::Redis(redis) => {
                let due = Arc::new(Due::default());
                tokio::spawn(keep(redis.clone(), prefix, Arc::downgrade(&due), began));
                Some(due)
            }
            Tiers::Off | Tiers::Memory => None,
        };
        Self { rate, began, by_key: Cache::new(MAX_BUCKETS), due }
    }

    fn bucket(&self, key: &Key) -> Arc<Bucket> {
        self.by_key.get(key).unwrap_or_else(|| {
            let made = self.by_key.get_or_insert_with(key, || Ok::<_, ()>(Arc::default()));
            made.unwrap_or_default()
        })
    }

    fn charge(&self, key: Key, cost: u64) {
        let now = whole_micros(self.began.elapsed());
        let took = micros_for(cost, self.rate);
        let taking = |full_at: u64| Some(full_at.max(now).saturating_add(took));
        let (order, again) = (Ordering::Relaxed, Ordering::Relaxed);
        let bucket = self.bucket(&key);
        let _ = bucket.full_at.fetch_update(order, again, taking);
        self.note(key, &bucket, took);
    }

    fn take(&self, key: Key, cost: u64) -> Result<(), Error> {
        let bucket = self.bucket(&key);
        let took = micros_for(cost, self.rate);
        let room = micros_for(self.rate.burst.into(), self.rate);
        let now = whole_micros(self.began.elapsed());
        let taking = |full_at: u64| {
            let ahead = full_at.saturating_sub(now);
            // A full bucket pays for anything: what costs more than it holds would never be done.
            (ahead == 0 || ahead.saturating_add(took) <= room)
                .then(|| full_at.max(now).saturating_add(took))
        };
        let (order, again) = (Ordering::Relaxed, Ordering::Relaxed);
        if let Err(full_at) = bucket.full_at.fetch_update(order, again, taking) {
            let over = full_at.saturating_sub(now).saturating_add(took).saturating_sub(room);
            return Err(Error::RateLimited {
                message: "This is more than one client may ask for at a time.".to_owned(),
                wait: Duration::from_micros(over.min(full_at.saturating_sub(now))),
            });
        }
        self.note(key, &bucket, took);
        Ok(())
    }

    /// Notes what was taken, for the others.
    fn note(&self, key: Key, bucket: &Arc<Bucket>, took: u64) {
        let Some(due) = &self.due else { return };
        let untold = bucket.untold.fetch_add(took, Ordering::Relaxed) + took;
        // Those who take little cannot have taken too much elsewhere.
        if untold >= micros_for(self.rate.burst.into(), self.rate) / shared::TELL_BY {
            due.note(key, bucket);
        }
    }
}

fn micros_for(cost: u64, rate: Rate) -> u64 {
    cost.saturating_mul(1_000_000) / u64::from(rate.per_second.max(1))
}

fn whole_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(limits: &RateLimits) -> Rates {
        Rates::new(limits, &Tiers::Memory, "shop")
    }

    fn of(rate: Rate) -> RateLimits {
        RateLimits {
            identity: Some(rate),
            address: Some(rate),
            category: Some(rate),
            loopback: true,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_gives_what_it_holds_and_then_what_comes_in() {
        let rates = rates(&of(Rate { per_second: 100, burst: 1_000 }));
        for _ in 0..10 {
            rates.take_from_category("a", 100).unwrap();
        }
        let Err(Error::RateLimited { wait, .. }) = rates.take_from_category("a", 50) else {
            panic!("it is empty");
        };
        assert_eq!(wait, Duration::from_millis(500));
        rates.take_from_category("b", 1_000).unwrap();
        tokio::time::advance(Duration::from_millis(499)).await;
        assert!(rates.take_from_category("a", 50).is_err());
        tokio::time::advance(Duration::from_millis(1)).await;
        rates.take_from_category("a", 50).unwrap();
        assert!(rates.take_from_category("a", 50).is_err(), "what was refused has cost nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_bucket_pays_for_what_it_cannot_hold() {
        let rates = rates(&of(Rate { per_second: 100, burst: 1_000 }));
        rates.take_from_category("a", 5_000).unwrap();
        let Err(Error::RateLimited { wait, .. }) = rates.take_from_category("a", 5_000) else {
            panic!("it is more than empty");
        };
        assert_eq!(wait, Duration::from_secs(50), "when it is full again");
        tokio::time::advance(wait).await;
        rates.take_from_category("a", 5_000).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_and_from_where_count_each_for_itself() {
        let rate = Rate { per_second: 1, burst: 100 };
        let rates = rates(&RateLimits { address: Some(Rate { burst: 150, ..rate }), ..of(rate) });
        let (one, other): (&[&[u8]], &[&[u8]]) = (&[b"one"], &[b"other"]);
        let address = "10.0.0.1".parse().ok();
        rates.take(Some(one), address, 100).unwrap();
        assert!(rates.take(Some(one), "10.0.0.2".parse().ok(), 1).is_err());
        rates.take(Some(other), address, 50).unwrap();
        assert!(rates.take(Some(other), address, 1).is_err(), "the address has given all");
        assert!(rates.take(None, address, 1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn all_addresses_of_a_network_are_one_client() {
        let rates = rates(&of(Rate { per_second: 1, burst: 100 }));
        let take = |text: &str| rates.take_from_address(text.parse().ok(), 100);
        take("2001:db8:1:2::1").unwrap();
        assert!(take("2001:db8:1:2:ffff::2").is_err());
        take("2001:db8:1:3::1").unwrap();
        // However it is written.
        take("10.0.0.1").unwrap();
        assert!(take("::ffff:10.0.0.1").is_err());
        rates.charge_address("2001:db8:1:4::1".parse().ok(), 100);
        assert!(take("2001:db8:1:4::2").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn those_on_the_same_machine_are_limited_only_if_told() {
        let rate = Rate { per_second: 1, burst: 10 };
        let limits = RateLimits { loopback: false, ..of(rate) };
        let (here, who): (_, &[&[u8]]) = ("::ffff:127.0.0.1".parse().ok(), &[b"one"]);
        let free = rates(&limits);
        assert!((0..100).all(|_| free.take(Some(who), here, 10).is_ok()));
        let counted = rates(&of(rate));
        assert!(!(0..100).all(|_| counted.take(Some(who), here, 10).is_ok()));
    }
}
