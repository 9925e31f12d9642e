//! Carts in the API: thin types and resolvers.

mod lines;
mod notices;
mod staff;

use std::collections::HashMap;
use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::{Context, ID, InputObject, Object, Result, SimpleObject, Subscription};
use async_trait::async_trait;
use futures_util::stream::{Stream, StreamExt};
use rust_decimal::Decimal;

pub use self::lines::CartLineNode;
pub use self::notices::CartNotice;
pub use self::staff::{AbandonedCartNode, CartEventLine, CartEventNode};
use super::model::change::{RawChange, RawLine};
use super::model::{Card, Cart};
use super::service::CartService;
use crate::catalog::graphql::ProductNode;
use crate::error::{Error, ErrorCode, UserError};
use crate::geo_zone::GeoZone;
use crate::graphql::{
    AtOnce, Connection, ContextExt, DateTimeScalar, Fetch, Json, Leaf, LeafObject, Leaves,
    MoneyNode, RequestContext, inside,
};
use crate::money::{Currency, Money, PRICE_SCALE};
use crate::owner::Owner;
use crate::page::PageArgs;

/// Reads carts.
#[derive(Default)]
pub struct CartQuery;

#[Object]
impl CartQuery {
    /// The caller's cart: a customer's, or that of a guest's session. It lives for 30 days after it
    /// was last changed or looked at.
    async fn cart(&self, ctx: &Context<'_>) -> Result<CartNode> {
        let request = ctx.request()?;
        let owner = request.owner()?;
        let cart = request.carts.load(owner.clone()).await?.unwrap_or_default();
        lines::get_ready(request, &cart, [&ctx.item.node.selection_set.node]).await;
        Ok(CartNode::new(owner, cart))
    }

    /// Staff: carts with something in them that nobody has changed or looked at for so long (1 to
    /// 43,200 minutes; a look is noted every ten minutes), those of the latest days first. A page
    /// may be short and still have a next one.
    async fn abandoned_carts(
        &self,
        ctx: &Context<'_>,
        idle_for_minutes: i32,
        first: Option<i32>,
        after: Option<String>,
    ) -> Result<Connection<AbandonedCartNode>> {
        staff::abandoned(ctx, idle_for_minutes, PageArgs::check(first, after, None, None)?).await
    }

    /// Staff: what happened to a cart in the last 30 days, newest first. Its id is `user:` and the
    /// customer's id, or as `Cart.id` and `AbandonedCart.id` tell it.
    async fn cart_history(
        &self,
        ctx: &Context<'_>,
        cart_id: ID,
        first: Option<i32>,
        after: Option<String>,
    ) -> Result<Connection<CartEventNode>> {
        staff::history(ctx, &cart_id, PageArgs::check(first, after, None, None)?).await
    }
}

/// A cart, in an answer.
pub type CartNode = Leaf<Arc<OwnedCart>>;

impl CartNode {
    fn new(owner: Owner, cart: Arc<Cart>) -> Self {
        Leaf(Arc::new(OwnedCart { owner, cart }))
    }
}

/// A cart, and whose it is.
pub struct OwnedCart {
    owner: Owner,
    cart: Arc<Cart>,
}

impl OwnedCart {
    fn total(&self) -> i32 {
        i32::try_from(self.cart.total_units()).unwrap_or(i32::MAX)
    }
}

/// What somebody wants to buy.
#[Object(name = "Cart")]
impl OwnedCart {
    /// Names the cart, for staff.
    async fn id(&self) -> ID {
        ID(self.owner.to_string())
    }

    /// The lines, those that have been there longest first; at most 100.
    async fn lines(&self, ctx: &Context<'_>) -> Result<Leaves<CartLineNode>> {
        lines::resolve(ctx, &self.cart).await
    }

    /// All units of all lines, for the badge. It takes one read.
    async fn total_quantity(&self) -> i32 {
        self.total()
    }

    /// What the lines cost at the prices of now. Products that are gone, or that have a price in
    /// another currency by now, are left out; `notices` tells of them.
    async fn subtotal(&self, ctx: &Context<'_>) -> Result<MoneyNode> {
        Ok(Leaf(Arc::new(subtotal(ctx.request()?, &self.cart).await?)))
    }

    /// What the shopper should know: prices that have changed, products that are gone or of which
    /// there is not enough in a zone. Without `geoZone` it is the session's; if that has none
    /// either, the zone that has most of a product counts.
    async fn notices(
        &self,
        ctx: &Context<'_>,
        geo_zone: Option<String>,
    ) -> Result<Vec<CartNotice>> {
        let request = ctx.request()?;
        let zone = geo_zone
            .map(|zone| GeoZone::parse(&zone).map_err(|fault| Error::argument("geoZone", fault)));
        let session = request.caller.session.as_ref();
        let own = || session.and_then(|session| session.noted.geo_zone.clone());
        let zone = zone.transpose()?.or_else(own);
        Ok(notices::of(request, &self.cart, zone).await?)
    }

    /// When it was last changed; null if it never was.
    async fn updated_at(&self) -> Option<DateTimeScalar> {
        self.cart.changed_at.map(DateTimeScalar)
    }

    /// When it ends if nobody changes it or looks at it.
    async fn expires_at(&self) -> Option<DateTimeScalar> {
        self.cart.expires_at().map(DateTimeScalar)
    }
}

impl LeafObject for OwnedCart {
    type Shape<'a> = &'a Self;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        let inside = &field.selection_set.node;
        match field.name.node.as_str() {
            "id" => out.text(&self.owner.to_string()),
            "lines" => lines::write(&self.cart, inside, out),
            "totalQuantity" => out.value(&self.total()),
            "subtotal" => {
                let products = lines::products_at_hand(&self.cart, out);
                products.is_some_and(|products| {
                    let prices = products.iter().map(|it| it.as_ref().map(|it| it.0.price));
                    out.object(&sum(&self.cart, prices), inside)
                })
            }
            "updatedAt" => out.plain_or_null(self.cart.changed_at),
            "expiresAt" => out.plain_or_null(self.cart.expires_at()),
            _ => false,
        }
    }
}

/// What a cart's lines cost now.
async fn subtotal(request: &RequestContext, cart: &Cart) -> Result<Money, Error> {
    let ids = cart.lines.iter().map(|line| line.product.clone());
    let products = request.products.load_many(ids).await?;
    Ok(sum(cart, products.into_iter().map(|product| Some(product?.price))))
}

/// The same by the prices of the lines; one that has none is left out.
fn sum(cart: &Cart, prices: impl Iterator<Item = Option<Money>>) -> Money {
    let lines = cart.lines.iter().zip(prices);
    let mut priced = lines.filter_map(|(line, price)| Some((line.units, price?)));
    let mut sum = Money { amount: Decimal::new(0, PRICE_SCALE), currency: Currency::RUB };
    if let Some((units, price)) = priced.next() {
        sum = price.times(units);
    }
    for (units, price) in priced.filter(|(_, price)| price.currency == sum.currency) {
        sum.amount += price.times(units).amount;
    }
    sum
}

/// Changes of carts.
#[derive(Default)]
pub struct CartMutation;

#[Object]
impl CartMutation {
    /// Puts units of products into the caller's cart, beside those that are there (at most 100 lines
    /// at once; several of one product add up). With an `idempotencyKey` it is carried out once,
    /// however often it is sent. If anything is wrong, the cart stays as it is.
    async fn cart_lines_add(
        &self,
        ctx: &Context<'_>,
        lines: Vec<CartLineInput>,
        idempotency_key: Option<String>,
    ) -> Result<CartAnswer> {
        change(ctx, RawChange::Add(raw(lines)), idempotency_key).await
    }

    /// Has so many units of products in the caller's cart, whatever was there; 0 takes a product
    /// out.
    async fn cart_lines_update(
        &self,
        ctx: &Context<'_>,
        lines: Vec<CartLineInput>,
        idempotency_key: Option<String>,
    ) -> Result<CartAnswer> {
        change(ctx, RawChange::Set(raw(lines)), idempotency_key).await
    }

    /// Takes products out of the caller's cart. One that is not there is nothing wrong.
    async fn cart_lines_remove(
        &self,
        ctx: &Context<'_>,
        product_ids: Vec<ID>,
        idempotency_key: Option<String>,
    ) -> Result<CartAnswer> {
        let products = product_ids.into_iter().map(|id| id.0).collect();
        change(ctx, RawChange::Remove(products), idempotency_key).await
    }

    /// Takes everything out of the caller's cart.
    async fn cart_clear(
        &self,
        ctx: &Context<'_>,
        idempotency_key: Option<String>,
    ) -> Result<CartAnswer> {
        change(ctx, RawChange::Clear, idempotency_key).await
    }

    /// Puts what a guest has in the cart into the caller's, at log-in: send the customer's token in
    /// the header and the guest's here. It happens once, however often it is sent; the guest's cart
    /// is empty then. What does not fit is left out, and a notice tells of it. The guest's orders are
    /// the customer's then.
    async fn cart_merge(&self, ctx: &Context<'_>, guest_token: String) -> Result<CartAnswer> {
        let request = ctx.request()?;
        let owner = request.owner()?;
        let Owner::User(user) = &owner else {
            let message = "A guest's cart is merged into a customer's: send the customer's token.";
            return Err(Error::Forbidden(message).into());
        };
        let shop = &request.shop;
        let (cart, user_errors) = match shop.sessions.guest_of(&guest_token).await? {
            Some(guest) => {
                let merge = shop.carts.merge(guest, user.clone());
                let (cart, ()) = tokio::try_join!(merge, shop.checkout.claim(guest, user.clone()))?;
                (cart, Vec::new())
            }
            None => {
                let message = "This is not the token of a guest whose session goes on.".to_owned();
                let field = Some(vec!["guestToken".to_owned()]);
                let error = UserError { code: ErrorCode::Invalid, field, message };
                (shop.carts.cart(&owner).await?, vec![error])
            }
        };
        Ok(CartPayload::answer(owner, cart, user_errors))
    }
}

fn raw(lines: Vec<CartLineInput>) -> Vec<RawLine> {
    let line = |line: CartLineInput| RawLine {
        product: line.product_id.0,
        quantity: line.quantity.into(),
    };
    lines.into_iter().map(line).collect()
}

async fn change(ctx: &Context<'_>, raw: RawChange, key: Option<String>) -> Result<CartAnswer> {
    let request = ctx.request()?;
    let owner = request.owner()?;
    let ids = raw.products();
    let products = request.products.load_many(ids.iter().cloned()).await?;
    let card = |product: &ProductNode| Card {
        name: product.0.name.clone(),
        price: product.0.price,
        image_url: product.0.image_url.clone(),
    };
    let cards: HashMap<_, _> = ids
        .into_iter()
        .zip(products)
        .filter_map(|(id, product)| Some((id, card(&Leaf(product?)))))
        .collect();
    let changed = request.shop.carts.change(&owner, &raw, &cards, key.as_deref()).await?;
    let shown = inside(&ctx.item.node.selection_set.node, "cart");
    lines::get_ready(request, &changed.cart, shown).await;
    Ok(CartPayload::answer(owner, changed.cart, changed.errors))
}

/// Units of a product for a cart.
#[derive(InputObject)]
pub struct CartLineInput {
    /// The shop's own key of the product.
    product_id: ID,
    /// How many units: 1 to 999; 0 as well where it is set.
    quantity: i32,
}

/// What a change of a cart came to.
#[derive(SimpleObject)]
pub struct CartPayload {
    /// The cart as it is now.
    cart: CartNode,
    /// Why it is unchanged; empty if it was changed.
    user_errors: Vec<UserError>,
}

/// What a change of a cart came to, in an answer.
pub type CartAnswer = Leaf<Box<CartPayload>>;

impl CartPayload {
    fn answer(owner: Owner, cart: Cart, user_errors: Vec<UserError>) -> CartAnswer {
        Leaf(Box::new(Self { cart: CartNode::new(owner, Arc::new(cart)), user_errors }))
    }
}

impl LeafObject for CartPayload {
    type Shape<'a> = &'a Self;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        let inside = &field.selection_set.node;
        match field.name.node.as_str() {
            "cart" => self.cart.write(inside, out),
            "userErrors" => out.objects(&self.user_errors, inside),
            _ => false,
        }
    }
}

/// What happens to carts.
#[derive(Default)]
pub struct CartSubscription;

#[Subscription]
impl CartSubscription {
    /// The caller's cart: as it is now, and then whenever it changes, on whatever device; at most
    /// ten times a second.
    async fn cart_changed(
        &self,
        ctx: &Context<'_>,
    ) -> Result<impl Stream<Item = Result<CartNode>> + use<>> {
        let request = ctx.request()?;
        let owner = request.owner()?;
        let carts = request.shop.carts.clone();
        let changes = request.events(carts.changes(&owner)?);
        Ok(changes.then(move |()| {
            let (carts, owner) = (carts.clone(), owner.clone());
            async move {
                let cart = Arc::new(carts.cart(&owner).await?);
                Ok(CartNode::new(owner, cart))
            }
        }))
    }
}

/// Loads carts for a request.
pub struct CartFetch(pub Arc<CartService>);

#[async_trait]
impl Fetch for CartFetch {
    type Key = Owner;
    type Row = Arc<Cart>;

    async fn fetch(&self, owners: &[Owner]) -> Result<Vec<Option<Arc<Cart>>>, Error> {
        let reads = owners.iter().map(async |owner| self.0.cart(owner).await);
        let carts = futures_util::future::try_join_all(reads).await?;
        Ok(carts.into_iter().map(|cart| Some(Arc::new(cart))).collect())
    }
}

#[cfg(test)]
mod tests;
