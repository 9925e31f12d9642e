//! Orders in the API: thin types and resolvers.

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::{Context, Enum, ID, Object, Result, SimpleObject, Subscription};
use futures_util::future::ready;
use futures_util::stream::{Stream, StreamExt};
use uuid::Uuid;

use super::model::{Actor, Address, Order, OrderEvent, OrderLine, OrderPlace, OrderStatus, day_of};
use super::service::{DayQuery, HistoryQuery, OrderPage};
use crate::catalog::graphql::ProductNode;
use crate::clock::Timestamp;
use crate::error::Error;
use crate::geo_zone::GeoZone;
use crate::graphql::{
    Connection, ContextExt, DateScalar, DateTimeScalar, Json, Leaf, LeafObject, Leaves, ListNode,
    MoneyNode, Page, RequestContext, Viewer,
};
use crate::page::{ListCursors, PageArgs};

/// Reads orders.
#[derive(Default)]
pub struct OrderQuery;

#[Object]
impl OrderQuery {
    /// An order of the caller's; staff see any. Null for every other id, also of an order that
    /// somebody else has.
    async fn order(&self, ctx: &Context<'_>, id: ID) -> Result<Option<OrderNode>> {
        let request = ctx.request()?;
        request.owner()?;
        let Ok(id) = Uuid::try_parse(&id) else { return Ok(None) };
        let order = request.shop.orders.order(id).await?;
        Ok(order.filter(|order| may_see(request, order)).map(OrderNode::new))
    }

    #[allow(clippy::too_many_arguments, reason = "a connection has four, and the list two more")]
    /// The caller's orders, newest first; those that were placed at `from` or later and before `to`.
    async fn orders(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "How many of the first; at most 100.")] first: Option<i32>,
        #[graphql(desc = "Only what comes after this cursor.")] after: Option<String>,
        #[graphql(desc = "How many of the last; at most 100.")] last: Option<i32>,
        #[graphql(desc = "Only what comes before this cursor.")] before: Option<String>,
        #[graphql(desc = "Only orders placed then or later.")] from: Option<DateTimeScalar>,
        #[graphql(desc = "Only orders placed before.")] to: Option<DateTimeScalar>,
    ) -> Result<Connection<OrderNode>> {
        let request = ctx.request()?;
        let owner = request.owner()?;
        let page = PageArgs::check(first, after, last, before)?;
        let (from, to) = (from.map(|from| from.0), to.map(|to| to.0));
        let bound = |at: Option<Timestamp>| at.map_or(i64::MIN, Timestamp::micros).to_be_bytes();
        let (name, low, high) = (owner.to_string(), bound(from), bound(to));
        let cursors = request.shop.cursors.of(&[b"orders", name.as_bytes(), &low, &high]);
        let query = HistoryQuery {
            from,
            to,
            after: page.after.map(|cursor| open(&cursors, &cursor)).transpose()?,
            before: page.before.map(|cursor| open(&cursors, &cursor)).transpose()?,
            from_end: page.from_end,
            limit: page.limit,
        };
        let found = request.shop.orders.history(&owner, &query).await?;
        Ok(connection(cursors, found))
    }

    /// Staff: the orders that were placed on a day (UTC), newest first, perhaps only those of a
    /// status or a zone. A page may be short and still have a next one.
    async fn orders_by_period(
        &self,
        ctx: &Context<'_>,
        day: DateScalar,
        status: Option<OrderStatus>,
        geo_zone: Option<String>,
        first: Option<i32>,
        after: Option<String>,
    ) -> Result<Connection<OrderNode>> {
        let request = ctx.request()?;
        request.require_staff()?;
        let page = PageArgs::check(first, after, None, None)?;
        let zone = geo_zone
            .map(|zone| GeoZone::parse(&zone).map_err(|fault| Error::argument("geoZone", fault)));
        let zone = zone.transpose()?;
        let day = day_of(day.0);
        let (number, name) = (day.to_be_bytes(), zone.as_ref().map_or("", GeoZone::as_str));
        let standing = status.map_or("", OrderStatus::as_str);
        let list: [&[u8]; 4] = [b"orders of a day", &number, standing.as_bytes(), name.as_bytes()];
        let cursors = request.shop.cursors.of(&list);
        let after = page.after.map(|cursor| open(&cursors, &cursor)).transpose()?;
        let query = DayQuery { day, status, zone: zone.clone(), after, limit: page.limit };
        let found = request.shop.orders.on_day(&query).await?;
        Ok(connection(cursors, found))
    }
}

/// Whether an order is the caller's business.
pub fn may_see(request: &RequestContext, order: &Order) -> bool {
    matches!(request.caller.viewer, Viewer::Staff(_))
        || request.owner().is_ok_and(|owner| owner == order.owner)
}

fn open(cursors: &ListCursors, cursor: &str) -> Result<OrderPlace, Error> {
    let place = cursors.open(cursor)?;
    let (at, id) = place.split_first_chunk::<8>().ok_or(Error::InvalidCursor)?;
    let id = Uuid::from_slice(id).map_err(|_| Error::InvalidCursor)?;
    Ok(OrderPlace { created_at: Timestamp::from_micros(i64::from_be_bytes(*at)), id })
}

fn connection(cursors: ListCursors, page: OrderPage) -> Connection<OrderNode> {
    let place = |place: OrderPlace| {
        [place.created_at.micros().to_be_bytes().as_slice(), place.id.as_bytes()].concat()
    };
    let entry = |order: Order| (place(order.place()), OrderNode::new(order));
    let entries = page.orders.into_iter().map(entry).collect();
    let more = (page.has_previous, page.has_next);
    Page::connection(cursors, entries, more, page.next.map(place))
}

/// An order, in an answer.
pub type OrderNode = Leaf<Arc<Order>>;

impl OrderNode {
    /// An order as it was read.
    pub fn new(order: Order) -> Self {
        Leaf(Arc::new(order))
    }
}

impl ListNode for OrderNode {
    const EDGE: &'static str = "OrderEdge";
    const CONNECTION: &'static str = "OrderConnection";
}

/// What somebody has bought.
pub struct OrderShape<'a>(&'a Order);

impl<'a> From<&'a Order> for OrderShape<'a> {
    fn from(order: &'a Order) -> Self {
        Self(order)
    }
}

/// What somebody has bought.
#[Object(name = "Order")]
impl OrderShape<'_> {
    /// Names the order.
    async fn id(&self) -> ID {
        ID(self.0.id.to_string())
    }

    /// How it stands.
    async fn status(&self) -> OrderStatus {
        self.0.status
    }

    /// What was bought, at the prices of the moment it was accepted; at most 100 lines, in the order
    /// of the products' ids.
    async fn lines(&self) -> Leaves<Leaf<&OrderLine>> {
        self.0.lines.iter().map(Leaf).collect()
    }

    /// What it costs.
    async fn total(&self) -> MoneyNode {
        Leaf(Arc::new(self.0.total))
    }

    /// The zone whose stock it takes from.
    async fn geo_zone(&self) -> &str {
        self.0.zone.as_str()
    }

    /// Where it goes.
    async fn shipping_address(&self) -> Option<Leaf<&Address>> {
        Some(Leaf(&self.0.address))
    }

    /// How it is to be paid, as the checkout said it.
    async fn payment_method(&self) -> Option<&str> {
        Some(&self.0.payment_method)
    }

    /// When it was placed.
    async fn created_at(&self) -> DateTimeScalar {
        DateTimeScalar(self.0.created_at)
    }

    /// When it last changed.
    async fn updated_at(&self) -> DateTimeScalar {
        DateTimeScalar(self.0.updated_at)
    }

    /// When it is cancelled if it is not paid by then; null if it need not be paid any more.
    async fn payment_due_at(&self) -> Option<DateTimeScalar> {
        self.0.awaits_payment_until().map(DateTimeScalar)
    }

    /// Where the parcel can be followed.
    async fn tracking_number(&self) -> Option<&str> {
        self.0.tracking_number.as_deref()
    }

    /// What happened to it, oldest first; at most the last 100 things.
    async fn timeline(&self, ctx: &Context<'_>) -> Result<Vec<OrderEventNode>> {
        let request = ctx.request()?;
        let is_staff = matches!(request.caller.viewer, Viewer::Staff(_));
        let events = request.shop.orders.timeline(self.0).await?;
        Ok(events.into_iter().map(|event| OrderEventNode::new(event, is_staff)).collect())
    }
}

impl LeafObject for Order {
    type Shape<'a> = OrderShape<'a>;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        let inside = &field.selection_set.node;
        match field.name.node.as_str() {
            "id" => out.plain(self.id),
            "status" => out.name(self.status),
            "lines" => out.objects(&self.lines, inside),
            "total" => out.object(&self.total, inside),
            "geoZone" => out.text(self.zone.as_str()),
            "shippingAddress" => out.object(&self.address, inside),
            "paymentMethod" => out.text(&self.payment_method),
            "createdAt" => out.plain(self.created_at),
            "updatedAt" => out.plain(self.updated_at),
            "paymentDueAt" => out.plain_or_null(self.awaits_payment_until()),
            "trackingNumber" => out.text_or_null(self.tracking_number.as_deref()),
            _ => false,
        }
    }
}

/// A product of an order, as it was when the order was accepted.
pub struct OrderLineShape<'a>(&'a OrderLine);

impl<'a> From<&'a OrderLine> for OrderLineShape<'a> {
    fn from(line: &'a OrderLine) -> Self {
        Self(line)
    }
}

fn quantity(line: &OrderLine) -> i32 {
    i32::try_from(line.units).unwrap_or(i32::MAX)
}

/// A product of an order, as it was when the order was accepted.
#[Object(name = "OrderLine")]
impl OrderLineShape<'_> {
    /// The product as it is now; null if it is gone.
    async fn product(&self, ctx: &Context<'_>) -> Result<Option<ProductNode>> {
        Ok(ctx.request()?.products.load(self.0.product.clone()).await?.map(Leaf))
    }

    /// The product's id.
    async fn product_id(&self) -> ID {
        ID(self.0.product.to_string())
    }

    /// Its name then.
    async fn name(&self) -> &str {
        &self.0.name
    }

    /// How many units.
    async fn quantity(&self) -> i32 {
        quantity(self.0)
    }

    /// What one unit cost then.
    async fn unit_price(&self) -> MoneyNode {
        Leaf(Arc::new(self.0.price))
    }

    /// What all units cost then.
    async fn total(&self) -> MoneyNode {
        Leaf(Arc::new(self.0.price.times(self.0.units)))
    }
}

impl LeafObject for OrderLine {
    type Shape<'a> = OrderLineShape<'a>;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        let inside = &field.selection_set.node;
        match field.name.node.as_str() {
            "productId" => out.text(self.product.as_str()),
            "name" => out.text(&self.name),
            "quantity" => out.value(&quantity(self)),
            "unitPrice" => out.object(&self.price, inside),
            "total" => out.object(&self.price.times(self.units), inside),
            _ => false,
        }
    }
}

/// Where an order goes.
#[derive(SimpleObject)]
#[graphql(name = "Address")]
pub struct AddressShape {
    /// The city.
    city: String,
    /// Street, house and flat.
    street: String,
    /// The postal code.
    postal_code: Option<String>,
    /// Who receives it.
    recipient: Option<String>,
    /// How to reach them.
    phone: Option<String>,
}

impl From<&Address> for AddressShape {
    fn from(address: &Address) -> Self {
        let Address { city, street, postal_code, recipient, phone } = address.clone();
        Self { city, street, postal_code, recipient, phone }
    }
}

impl LeafObject for Address {
    type Shape<'a> = AddressShape;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        match field.name.node.as_str() {
            "city" => out.text(&self.city),
            "street" => out.text(&self.street),
            "postalCode" => out.text_or_null(self.postal_code.as_deref()),
            "recipient" => out.text_or_null(self.recipient.as_deref()),
            "phone" => out.text_or_null(self.phone.as_deref()),
            _ => false,
        }
    }
}

/// Who did something to an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub enum OrderActor {
    /// The one who placed it.
    Customer,
    /// A member of staff.
    Staff,
    /// The payment service.
    Payment,
    /// The shop itself, because a time was over.
    Shop,
}

/// Something that happened to an order.
#[derive(SimpleObject)]
#[graphql(name = "OrderEvent")]
pub struct OrderEventNode {
    /// Names the event.
    id: ID,
    /// What: a status such as `paid`, or what was heard of a payment.
    #[graphql(name = "type")]
    kind: String,
    /// When.
    at: DateTimeScalar,
    /// What was said with it.
    note: Option<String>,
    /// Who did it.
    actor: OrderActor,
    /// Which member of staff; only staff are told.
    actor_id: Option<ID>,
}

impl OrderEventNode {
    fn new(event: OrderEvent, is_staff: bool) -> Self {
        let (actor, actor_id) = match event.actor {
            Actor::Customer => (OrderActor::Customer, None),
            Actor::Staff(id) => (OrderActor::Staff, is_staff.then_some(ID(id))),
            Actor::Payment => (OrderActor::Payment, None),
            Actor::Shop => (OrderActor::Shop, None),
        };
        Self {
            id: ID(event.id.to_string()),
            kind: event.kind,
            at: DateTimeScalar(event.at),
            note: event.note,
            actor,
            actor_id,
        }
    }
}

/// What happens to orders.
#[derive(Default)]
pub struct OrderSubscription;

#[Subscription]
impl OrderSubscription {
    /// An order of the caller's (of anybody, for staff): as it is now, and then whenever its status
    /// changes.
    async fn order_status_changed(
        &self,
        ctx: &Context<'_>,
        id: ID,
    ) -> Result<impl Stream<Item = Result<OrderNode>> + use<>> {
        let request = ctx.request()?;
        let owner = request.owner()?;
        let is_staff = matches!(request.caller.viewer, Viewer::Staff(_));
        let may = move |order: &Order| is_staff || order.owner == owner;
        let unknown = || Error::argument("id", "there is no such order");
        let id = Uuid::try_parse(&id).map_err(|_| unknown())?;
        let orders = request.shop.orders.clone();
        // Watched before it is read: no change is missed in between.
        let changes = orders.changes(id)?;
        if !orders.order(id).await?.is_some_and(|order| may(&order)) {
            return Err(unknown().into());
        }
        let read = move |()| {
            let orders = orders.clone();
            async move { orders.order(id).await }
        };
        let mut told = None;
        let events = request.events(changes).then(read);
        // It ends where the order is none of the caller's business any more.
        let seen = events.take_while(move |order| {
            ready(!matches!(order, Ok(order) if !order.as_ref().is_some_and(&may)))
        });
        let news = seen.filter_map(move |order| {
            let news = match order {
                Ok(Some(order)) if told != Some(order.status) => {
                    told = Some(order.status);
                    Some(Ok(OrderNode::new(order)))
                }
                Ok(_) => None,
                Err(error) => Some(Err(error.into())),
            };
            ready(news)
        });
        Ok(news)
    }
}

#[cfg(test)]
mod tests;
