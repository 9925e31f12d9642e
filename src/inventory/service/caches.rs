//! What of the stock is cached. Shoppers look at it; whoever buys never does.

use std::borrow::Cow;
use std::mem::size_of;
use std::sync::Arc;
use std::time::Duration;

use super::super::model::{StockKey, StockLevel};
use tokio::time::Instant;

use crate::cache::{CacheKey, CacheSettings, Entry, ReadableKey, Tiers, VersionedCache};
use crate::geo_zone::GeoZone;
use crate::product_id::ProductId;
use crate::telemetry::Metrics;

/// How old a level may be while instances tell each other what they change: so long a message that
/// was lost is believed.
const MAX_AGE: Duration = Duration::from_secs(1);
/// The same while they do not. A change is to be seen everywhere within a quarter of a second.
const DEAF_AGE: Duration = Duration::from_millis(200);
/// The same on a store that no other process writes to: every change goes through this cache.
const SOLE_AGE: Duration = Duration::from_secs(600);
/// Memory for levels: a hundred thousand rows.
const LEVEL_BYTES: u64 = 32 << 20;
/// About how many levels that is.
const LEVELS: usize = 131_072;
/// Memory for the zones of products.
const ZONE_BYTES: u64 = 8 << 20;
/// About how many products that is.
const ZONES: usize = 16_384;
/// A row goes to Redis once an instance was asked for it about so often within a second. Below
/// that, a read of the store now and then costs less than keeping it there.
const HOT_ASKS: u32 = 3;

/// The caches of the inventory.
pub struct StockCaches {
    pub(super) levels: Arc<VersionedCache<StockKey, StockLevel>>,
    pub(super) zones: VersionedCache<ProductId, Vec<GeoZone>>,
    /// Whether other processes change the stock too.
    pub(super) is_shared: bool,
}

impl StockCaches {
    /// Caches on these tiers. `shop` tells the keys of this shop's data from those of others;
    /// `is_shared` says that others change the data too.
    pub fn new(tiers: &Tiers, shop: &str, is_shared: bool, metrics: &Metrics) -> Self {
        let max_age = match tiers {
            Tiers::Redis(_) => MAX_AGE,
            // Nobody tells of what others change.
            _ if is_shared => DEAF_AGE,
            _ => SOLE_AGE,
        };
        let settings = |name, capacity_bytes, expected_entries| CacheSettings {
            name,
            prefix: format!("vitrina:{shop}"),
            max_age,
            capacity_bytes,
            expected_entries,
            hot_asks: HOT_ASKS,
            announces: false,
        };
        let levels = CacheSettings { announces: true, ..settings("stock", LEVEL_BYTES, LEVELS) };
        // New zones are seldom, and nobody tells of them.
        let zones = CacheSettings {
            max_age: max_age.min(DEAF_AGE),
            ..settings("zones", ZONE_BYTES, ZONES)
        };
        Self {
            levels: Arc::new(VersionedCache::new(
                tiers,
                &levels,
                |_| size_of::<StockLevel>(),
                metrics,
            )),
            zones: VersionedCache::new(tiers, &zones, weigh_zones, metrics),
            is_shared,
        }
    }

    /// Takes over what other instances change, and passes it on.
    pub(super) fn listen(&self, told: impl Fn(StockKey, StockLevel) + Send + Sync + 'static) {
        self.levels.listen(DEAF_AGE, move |key, entry| {
            if let Some(level) = entry.value {
                told(key, *level);
            }
        });
    }

    /// Takes over a change that was made here, after the moment `since`.
    pub(super) fn changed(&self, key: &StockKey, level: StockLevel, since: Instant) {
        let entry = Entry { version: level.version, value: Some(Arc::new(level)) };
        self.levels.put_since(key.clone(), entry, since);
    }

    /// Takes over the zones of a product that has got a new one.
    pub(super) fn has_zones(&self, product: &ProductId, zones: Vec<GeoZone>) {
        self.zones.put(product.clone(), zones_entry(zones));
    }
}

impl CacheKey for StockKey {
    fn redis_key(&self) -> Cow<'_, str> {
        // The length keeps apart what would read the same.
        let (product, zone) = (self.product.as_str(), self.zone.as_str());
        Cow::Owned(format!("{}:{product}{zone}", product.len()))
    }
}

impl ReadableKey for StockKey {
    fn from_redis_key(text: &str) -> Option<Self> {
        let (length, rest) = text.split_once(':')?;
        let (product, zone) = rest.split_at_checked(length.parse().ok()?)?;
        let product = ProductId::parse(product).ok()?;
        Some(Self { product, zone: GeoZone::parse(zone).ok()? })
    }
}

/// Zones come and never go: of two lists the longer one is the newer one.
pub(super) fn zones_entry(zones: Vec<GeoZone>) -> Entry<Vec<GeoZone>> {
    let version = i64::try_from(zones.len()).unwrap_or(i64::MAX);
    Entry { version, value: Some(Arc::new(zones)) }
}

#[allow(clippy::ptr_arg)] // The cache hands out what it keeps.
fn weigh_zones(zones: &Vec<GeoZone>) -> usize {
    zones.iter().map(|zone| size_of::<GeoZone>() + zone.as_str().len()).sum()
}
