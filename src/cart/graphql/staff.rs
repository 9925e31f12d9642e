//! What staff see of carts: those that were left, and what happened to one.

use std::time::Duration;

use async_graphql::{Context, Enum, ID, Object, Result, SimpleObject};
use std::sync::Arc;
use uuid::Uuid;

use super::super::model::{Change, Operation, Units};
use super::super::service::{AbandonedCart, ReportPlace};
use super::{CartNode, subtotal};
use crate::clock::Timestamp;
use crate::error::Error;
use crate::graphql::{
    AtOnce, Connection, ContextExt, DateTimeScalar, Leaf, ListNode, MoneyNode, Page,
};
use crate::owner::Owner;
use crate::page::PageArgs;
use crate::product_id::ProductId;

/// Longest time that can be asked for: no cart is idle for longer.
const MAX_IDLE_MINUTES: i32 = 30 * 24 * 60;

/// A cart that nobody has come back to.
#[derive(Clone)]
pub struct AbandonedCartNode(CartNode);

impl AtOnce for AbandonedCartNode {}

impl ListNode for AbandonedCartNode {
    const EDGE: &'static str = "AbandonedCartEdge";
    const CONNECTION: &'static str = "AbandonedCartConnection";
}

/// A cart that nobody has come back to.
#[Object(name = "AbandonedCart")]
impl AbandonedCartNode {
    /// Names the cart, for `cartHistory`.
    async fn id(&self) -> ID {
        ID(self.0.0.owner.to_string())
    }

    /// The customer; null for a guest's.
    async fn user_id(&self) -> Option<ID> {
        match &self.0.0.owner {
            Owner::User(user) => Some(ID(user.to_string())),
            Owner::Guest(_) => None,
        }
    }

    /// How many lines it has.
    async fn line_count(&self) -> usize {
        self.0.0.cart.lines.len()
    }

    /// What its lines cost at the prices of now.
    async fn subtotal(&self, ctx: &Context<'_>) -> Result<MoneyNode> {
        Ok(Leaf(Arc::new(subtotal(ctx.request()?, &self.0.0.cart).await?)))
    }

    /// Since when nobody has changed it or looked at it.
    async fn idle_since(&self) -> Option<DateTimeScalar> {
        self.0.0.cart.touched_at.map(DateTimeScalar)
    }

    /// The cart.
    async fn cart(&self) -> &CartNode {
        &self.0
    }
}

pub(super) async fn abandoned(
    ctx: &Context<'_>,
    idle_for_minutes: i32,
    page: PageArgs,
) -> Result<Connection<AbandonedCartNode>> {
    let request = ctx.request()?;
    request.require_staff()?;
    if !(1..=MAX_IDLE_MINUTES).contains(&idle_for_minutes) {
        let fault = format!("1 to {MAX_IDLE_MINUTES} minutes");
        return Err(Error::argument("idleForMinutes", fault).into());
    }
    let idle = idle_for_minutes.to_be_bytes();
    let cursors = request.shop.cursors.of(&[b"abandoned carts", &idle]);
    let after = page.after.as_deref().map(|cursor| {
        let place = cursors.open(cursor)?;
        let (day, owner) = place.split_first_chunk::<8>().ok_or(Error::InvalidCursor)?;
        let owner = std::str::from_utf8(owner).ok().and_then(Owner::parse);
        let owner = owner.ok_or(Error::InvalidCursor)?;
        Ok::<_, Error>(ReportPlace { day: i64::from_be_bytes(*day), owner })
    });
    let bytes = |place: &ReportPlace| {
        [place.day.to_be_bytes().as_slice(), place.owner.to_string().as_bytes()].concat()
    };
    let minutes = u64::from(idle_for_minutes.unsigned_abs());
    let after = after.transpose()?;
    let has_previous = after.is_some();
    let idle = Duration::from_secs(minutes * 60);
    let found = request.shop.carts.abandoned(idle, after, page.limit).await?;
    let node = |AbandonedCart { place, cart }: AbandonedCart| {
        let at = bytes(&place);
        (at, AbandonedCartNode(CartNode::new(place.owner, Arc::new(cart))))
    };
    let next = found.next.as_ref().map(bytes);
    let entries = found.carts.into_iter().map(node).collect();
    Ok(Page::connection(cursors, entries, (has_previous, next.is_some()), next))
}

/// What happened to a cart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub enum CartEventType {
    /// Units were put in.
    Added,
    /// Quantities were set.
    Set,
    /// Products were taken out.
    Removed,
    /// Everything was taken out.
    Cleared,
    /// Units became an order.
    Ordered,
    /// What a guest had went to a customer's cart.
    HandedOver,
    /// What a guest had came in.
    TakenOver,
}

/// Something that happened to a cart.
#[derive(SimpleObject, Clone)]
#[graphql(name = "CartEvent")]
pub struct CartEventNode {
    /// Names the operation.
    id: ID,
    /// When.
    at: DateTimeScalar,
    /// What.
    #[graphql(name = "type")]
    kind: CartEventType,
    /// Of which products, and how many units.
    lines: Vec<CartEventLine>,
    /// The order that the units became.
    order_id: Option<ID>,
    /// The other cart of a hand-over.
    other_cart_id: Option<ID>,
}

/// A product that an operation speaks of.
#[derive(SimpleObject, Clone)]
pub struct CartEventLine {
    /// The product's id.
    product_id: ID,
    /// Its name then; null where nobody looked.
    name: Option<String>,
    /// How many units; 0 if it was taken out.
    quantity: i32,
}

impl AtOnce for CartEventNode {}

impl ListNode for CartEventNode {
    const EDGE: &'static str = "CartEventEdge";
    const CONNECTION: &'static str = "CartEventConnection";
}

impl CartEventNode {
    fn new(operation: Operation) -> Self {
        let units = |lines: Vec<Units>| -> Vec<CartEventLine> {
            let line = |line: Units| event_line(&line.product, line.units, Some(line.card.name));
            lines.into_iter().map(line).collect()
        };
        let gone = |products: Vec<ProductId>| -> Vec<CartEventLine> {
            products.iter().map(|product| event_line(product, 0, None)).collect()
        };
        let (mut order_id, mut other) = (None, None);
        let (kind, lines) = match operation.change {
            Change::Add(lines) => (CartEventType::Added, units(lines)),
            Change::Set(lines, removed) => {
                (CartEventType::Set, units(lines).into_iter().chain(gone(removed)).collect())
            }
            Change::Remove(products) => (CartEventType::Removed, gone(products)),
            Change::Clear => (CartEventType::Cleared, Vec::new()),
            Change::Ordered { order, taken } => {
                order_id = Some(ID(order.to_string()));
                let line = |(product, units): &(ProductId, i64)| event_line(product, *units, None);
                (CartEventType::Ordered, taken.iter().map(line).collect())
            }
            Change::HandOver(hand_over) | Change::HandedOver(hand_over) => {
                other = Some(Owner::User(hand_over.to));
                (CartEventType::HandedOver, units(hand_over.lines))
            }
            Change::TakeOver { from, lines } => {
                other = Some(Owner::Guest(from));
                (CartEventType::TakenOver, units(lines))
            }
        };
        Self {
            id: ID(operation.id.to_string()),
            at: DateTimeScalar(operation.at),
            kind,
            lines,
            order_id,
            other_cart_id: other.map(|owner| ID(owner.to_string())),
        }
    }
}

fn event_line(product: &ProductId, units: i64, name: Option<String>) -> CartEventLine {
    let quantity = i32::try_from(units).unwrap_or(i32::MAX);
    CartEventLine { product_id: ID(product.to_string()), name, quantity }
}

pub(super) async fn history(
    ctx: &Context<'_>,
    cart_id: &str,
    page: PageArgs,
) -> Result<Connection<CartEventNode>> {
    let request = ctx.request()?;
    request.require_staff()?;
    let owner = Owner::parse(cart_id)
        .ok_or_else(|| Error::argument("cartId", "a cart's id is user:… or guest:…"))?;
    let cursors = request.shop.cursors.of(&[b"cart history", cart_id.as_bytes()]);
    let after = page.after.as_deref().map(|cursor| {
        let place = cursors.open(cursor)?;
        let (at, id) = place.split_first_chunk::<8>().ok_or(Error::InvalidCursor)?;
        let id = Uuid::from_slice(id).map_err(|_| Error::InvalidCursor)?;
        Ok::<_, Error>((Timestamp::from_micros(i64::from_be_bytes(*at)), id))
    });
    let after = after.transpose()?;
    let has_previous = after.is_some();
    // One more tells whether there is a next page.
    let mut found = request.shop.carts.history(&owner, after, page.limit + 1).await?;
    let has_next = found.len() > page.limit;
    found.truncate(page.limit);
    let entry = |operation: Operation| {
        let at = operation.at.micros().to_be_bytes();
        let place = [at.as_slice(), operation.id.as_bytes()].concat();
        (place, CartEventNode::new(operation))
    };
    let entries = found.into_iter().map(entry).collect();
    Ok(Page::connection(cursors, entries, (has_previous, has_next), None))
}
