//! Stock in the API: thin types and resolvers.

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::{
    Context, Enum, ID, InputObject, Object, Result, SelectionField, SimpleObject, Subscription,
    Value,
};
use async_trait::async_trait;
use futures_util::stream::{Stream, StreamExt};

use super::model::{MAX_BATCH, RawChange, RawEntry, StockKey, StockLevel};
use super::service::InventoryService;
use crate::catalog::graphql::ProductNode;
use crate::error::{Error, UserError};
use crate::geo_zone::GeoZone;
use crate::graphql::{
    ContextExt, DateTimeScalar, Fetch, Foreseen, Json, Leaf, LeafObject, Leaves, RequestContext,
};
use crate::product_id::ProductId;

/// Most products of one subscription.
const MAX_WATCHED: usize = 50;

/// How much there is of a product in a zone, in an answer.
pub type StockNode = Leaf<Arc<Stock>>;

/// How much there is of a product in a zone.
pub struct Stock {
    key: StockKey,
    level: StockLevel,
    /// Up to so many are few.
    few: i64,
}

impl Stock {
    fn new(service: &InventoryService, key: StockKey, level: StockLevel) -> Self {
        Self { key, level, few: service.low_stock() }
    }

    fn node(service: &InventoryService, key: StockKey, level: StockLevel) -> StockNode {
        Leaf(Arc::new(Self::new(service, key, level)))
    }

    fn available(&self) -> i32 {
        i32::try_from(self.level.available()).unwrap_or(i32::MAX)
    }

    fn status(&self) -> StockStatus {
        match self.level.available() {
            0 => StockStatus::OutOfStock,
            there if there <= self.few => StockStatus::LowStock,
            _ => StockStatus::InStock,
        }
    }
}

/// Whether a product can be bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub enum StockStatus {
    /// There is enough.
    InStock,
    /// There are only a few left.
    LowStock,
    /// There is nothing left.
    OutOfStock,
}

/// How much there is of a product in a zone.
pub struct StockShape<'a>(&'a Stock);

impl<'a> From<&'a Stock> for StockShape<'a> {
    fn from(stock: &'a Stock) -> Self {
        Self(stock)
    }
}

/// How much there is of a product in a zone.
#[Object(name = "Stock")]
impl StockShape<'_> {
    /// What is sold.
    #[graphql(cache_control(max_age = 1))]
    async fn product(&self, ctx: &Context<'_>) -> Result<ProductNode> {
        let product = ctx.request()?.products.load(self.0.key.product.clone()).await?;
        let gone = || Error::BadUserInput("The product is no longer in the catalogue.".to_owned());
        Ok(Leaf(product.ok_or_else(gone)?))
    }

    /// Where it is sold.
    #[graphql(cache_control(max_age = 1))]
    async fn geo_zone(&self) -> &str {
        self.0.key.zone.as_str()
    }

    /// Units that can be bought now: those that are there and not promised to somebody. A change
    /// made anywhere is seen everywhere within a quarter of a second; whether a checkout succeeds
    /// is decided by the stock itself.
    #[graphql(cache_control(max_age = 1))]
    async fn available(&self) -> i32 {
        self.0.available()
    }

    /// Whether it can be bought, in a word.
    #[graphql(cache_control(max_age = 1))]
    async fn status(&self) -> StockStatus {
        self.0.status()
    }

    /// When it last changed.
    #[graphql(cache_control(max_age = 1))]
    async fn updated_at(&self) -> DateTimeScalar {
        DateTimeScalar(self.0.level.updated_at)
    }
}

impl LeafObject for Stock {
    type Shape<'a> = StockShape<'a>;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        match field.name.node.as_str() {
            "geoZone" => out.text(self.key.zone.as_str()),
            "available" => out.value(&self.available()),
            "status" => out.name(self.status()),
            "updatedAt" => out.plain(self.level.updated_at),
            _ => false,
        }
    }
}

/// The stock of a product in a zone; for the product's own fields.
pub async fn stock_of(
    ctx: &Context<'_>,
    product: &ProductId,
    zone: &str,
) -> Result<Option<StockNode>> {
    let zone = GeoZone::parse(zone).map_err(|fault| Error::argument("geoZone", fault))?;
    let request = ctx.request()?;
    let key = StockKey { product: product.clone(), zone };
    let level = request.stock.load(key.clone()).await?;
    Ok(level.map(|level| Stock::node(&request.shop.inventory, key, level)))
}

/// Writes the stock of a product if it has been read.
pub fn write_stock(product: &ProductId, field: &Field, out: &mut Json) -> bool {
    let zone = out.text_argument(field, "geoZone").and_then(|zone| GeoZone::parse(&zone).ok());
    let (Some(zone), Some(request)) = (zone, out.request()) else { return false };
    let key = StockKey { product: product.clone(), zone };
    match request.stock.known(&key) {
        None => false,
        Some(None) => out.null(),
        Some(Some(level)) => {
            let stock = Stock::new(&request.shop.inventory, key, level);
            out.object(&stock, &field.selection_set.node)
        }
    }
}

/// Has the stock that will be asked for of these products read with what is asked for now. The
/// fields that are asked of the products tell. It can be waited for, where nothing else is.
pub fn foresee_stock<'a>(
    request: &RequestContext,
    fields: impl Iterator<Item = SelectionField<'a>>,
    products: &[ProductId],
) -> ForeseenStock {
    let mut foreseen = Vec::new();
    for field in fields {
        let is_plain = || field.directives().is_ok_and(|directives| directives.is_empty());
        match field.name() {
            "stock" if is_plain() => {
                let arguments = field.arguments().unwrap_or_default();
                let zone = arguments.iter().find_map(|(name, value)| match value {
                    // What is no zone is said by the field itself.
                    Value::String(zone) if name == "geoZone" => GeoZone::parse(zone).ok(),
                    _ => None,
                });
                let Some(zone) = zone else { continue };
                let key =
                    |product: &ProductId| StockKey { product: product.clone(), zone: zone.clone() };
                foreseen.push(request.stock.foresee(products.iter().map(key)));
            }
            "stocks" if is_plain() => drop(request.zones.foresee(products.iter().cloned())),
            _ => {}
        }
    }
    ForeseenStock(foreseen)
}

/// Stock that is being read because it will be asked for.
pub struct ForeseenStock(Vec<Foreseen<StockLevel>>);

impl ForeseenStock {
    /// Waits until all of it has been read.
    pub async fn read(self) {
        for foreseen in self.0 {
            foreseen.read().await;
        }
    }
}

/// The stock of a product in all zones; for the product's own fields.
pub async fn stocks_of(ctx: &Context<'_>, product: &ProductId) -> Result<Leaves<StockNode>> {
    let request = ctx.request()?;
    let zones = request.zones.load(product.clone()).await?.unwrap_or_default();
    let key = |zone: &GeoZone| StockKey { product: product.clone(), zone: zone.clone() };
    let keys: Vec<_> = zones.iter().map(key).collect();
    let levels = request.stock.load_many(keys.clone()).await?;
    let node = |(key, level): (StockKey, Option<StockLevel>)| {
        level.map(|level| Stock::node(&request.shop.inventory, key, level))
    };
    Ok(keys.into_iter().zip(levels).filter_map(node).collect())
}

/// How many units of each product can be bought in a zone; without one, in the zone that has most
/// of it.
pub async fn most_available(
    request: &RequestContext,
    products: &[ProductId],
    zone: Option<&GeoZone>,
) -> Result<Vec<i64>, Error> {
    let zones: Vec<Vec<GeoZone>> = match zone {
        Some(zone) => products.iter().map(|_| vec![zone.clone()]).collect(),
        None => {
            let found = request.zones.load_many(products.iter().cloned()).await?;
            found.into_iter().map(|zones| zones.unwrap_or_default().to_vec()).collect()
        }
    };
    let mut keys = Vec::new();
    for (product, zones) in products.iter().zip(&zones) {
        keys.extend(
            zones.iter().map(|zone| StockKey { product: product.clone(), zone: zone.clone() }),
        );
    }
    let mut levels = request.stock.load_many(keys).await?.into_iter();
    let most = zones.iter().map(|zones| {
        let levels = levels.by_ref().take(zones.len()).flatten();
        levels.map(|level| level.available()).max().unwrap_or(0)
    });
    Ok(most.collect())
}

/// Changes of the stock.
#[derive(Default)]
pub struct InventoryMutation;

#[Object]
impl InventoryMutation {
    /// Staff: sets how many units of products there are in zones (at most 100 entries), those that
    /// are reserved included. All entries are checked before the first is carried out; after that
    /// each counts for itself, and `userErrors` names those that were not.
    async fn stock_set(&self, ctx: &Context<'_>, entries: Vec<StockInput>) -> Result<StockPayload> {
        let entries = entries.into_iter().map(|entry| RawEntry {
            product: entry.product_id.0,
            zone: entry.geo_zone,
            change: RawChange::Set(entry.quantity.into()),
        });
        change(ctx, entries.collect()).await
    }

    /// Staff: adds units to what there is in zones, or takes them away (at most 100 entries). An
    /// entry is carried out once for its `idempotencyKey` within a day (of one product and zone, the
    /// last thousand keys are known): sending it again changes nothing. All entries are checked before the first is carried out; after that each counts for
    /// itself, and `userErrors` names those that were not.
    async fn stock_adjust(
        &self,
        ctx: &Context<'_>,
        entries: Vec<StockAdjustInput>,
    ) -> Result<StockPayload> {
        let entries = entries.into_iter().map(|entry| RawEntry {
            product: entry.product_id.0,
            zone: entry.geo_zone,
            change: RawChange::Adjust {
                delta: entry.delta.into(),
                reason: entry.reason,
                key: entry.idempotency_key,
            },
        });
        change(ctx, entries.collect()).await
    }
}

async fn change(ctx: &Context<'_>, entries: Vec<RawEntry>) -> Result<StockPayload> {
    let request = ctx.request()?;
    request.require_staff()?;
    let sound = entries.iter().enumerate().filter_map(|(index, entry)| {
        ProductId::parse(&entry.product).ok().map(|product| (index, product))
    });
    let sound: Vec<_> = sound.take(MAX_BATCH).collect();
    let found = request.products.load_many(sound.iter().map(|(_, id)| id.clone())).await?;
    let unknown = sound.iter().zip(found).filter(|(_, product)| product.is_none());
    let unknown: Vec<_> = unknown.map(|((index, _), _)| *index).collect();
    let inventory = &request.shop.inventory;
    let (changed, user_errors) = inventory.change(&entries, &unknown).await?;
    let node = |(key, level)| Stock::node(inventory, key, level);
    Ok(StockPayload { stocks: changed.into_iter().map(node).collect(), user_errors })
}

/// How many units of a product there are to be in a zone.
#[derive(InputObject)]
pub struct StockInput {
    /// The shop's own key of the product.
    product_id: ID,
    /// The zone: 1 to 64 characters. A new name makes a new zone.
    geo_zone: String,
    /// The units: at least 0, at most 1,000,000,000, and not below what is reserved.
    quantity: i32,
}

/// By how much the units of a product in a zone are to change.
#[derive(InputObject)]
pub struct StockAdjustInput {
    /// The shop's own key of the product.
    product_id: ID,
    /// The zone: 1 to 64 characters.
    geo_zone: String,
    /// The units to add, or below 0 to take away.
    delta: i32,
    /// Why, for the shop's log: at most 300 characters.
    reason: Option<String>,
    /// Names this adjustment: 1 to 255 characters. Sent again, it is carried out once.
    idempotency_key: String,
}

/// What `stockSet` or `stockAdjust` did.
#[derive(SimpleObject)]
pub struct StockPayload {
    /// The stock as it is now, for each entry that was carried out.
    stocks: Leaves<StockNode>,
    /// What is wrong with the others; empty if all were carried out.
    user_errors: Vec<UserError>,
}

/// What happens to the stock.
#[derive(Default)]
pub struct InventorySubscription;

#[Subscription]
impl InventorySubscription {
    /// The stock of products in a zone (at most 50): as it is now, and then whenever it changes, at
    /// most ten times a second for each product.
    async fn stock_changed(
        &self,
        ctx: &Context<'_>,
        product_ids: Vec<ID>,
        geo_zone: String,
    ) -> Result<impl Stream<Item = StockNode> + use<>> {
        if product_ids.is_empty() || product_ids.len() > MAX_WATCHED {
            let fault = format!("1 to {MAX_WATCHED} at once, got {}", product_ids.len());
            return Err(Error::argument("productIds", fault).into());
        }
        let zone = GeoZone::parse(&geo_zone).map_err(|fault| Error::argument("geoZone", fault))?;
        let mut keys: Vec<StockKey> = Vec::with_capacity(product_ids.len());
        for (index, id) in product_ids.iter().enumerate() {
            let wrong = |fault| Error::argument(&format!("productIds.{index}"), fault);
            let product = ProductId::parse(id).map_err(wrong)?;
            let key = StockKey { product, zone: zone.clone() };
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let request = ctx.request()?;
        let inventory = request.shop.inventory.clone();
        let changes = request.events(inventory.changes(keys).await?);
        Ok(changes.map(move |(key, level)| Stock::node(&inventory, key, level)))
    }
}

/// Loads stock for a request.
pub struct StockFetch(pub Arc<InventoryService>);

#[async_trait]
impl Fetch for StockFetch {
    type Key = StockKey;
    type Row = StockLevel;

    async fn fetch(&self, keys: &[StockKey]) -> Result<Vec<Option<StockLevel>>, Error> {
        self.0.levels(keys).await
    }
}

/// Loads the zones of products for a request.
pub struct ZonesFetch(pub Arc<InventoryService>);

#[async_trait]
impl Fetch for ZonesFetch {
    type Key = ProductId;
    type Row = Arc<Vec<GeoZone>>;

    async fn fetch(&self, ids: &[ProductId]) -> Result<Vec<Option<Self::Row>>, Error> {
        Ok(self.0.zones(ids).await?.into_iter().map(Some).collect())
    }
}

#[cfg(test)]
mod tests;
