//! Checkouts in the API, and changes of orders: thin types and resolvers.

use std::sync::Arc;

use async_graphql::{Context, ID, InputObject, Object, Result, SimpleObject};
use uuid::Uuid;

use super::model::{CheckoutRequest, Outcome, Short};
use super::service::Changed;
use crate::error::{Error, ErrorCode, UserError};
use crate::graphql::{ContextExt, DecimalScalar, Leaf, MoneyNode, Viewer};
use crate::input::argument_fault;
use crate::orders::graphql::OrderNode;
use crate::orders::model::{
    Actor, Address, MAX_NOTE_CHARS, MAX_TRACKING_CHARS, Order, OrderStatus, Step,
};

/// Buying, and what becomes of orders.
#[derive(Default)]
pub struct CheckoutMutation;

#[Object]
impl CheckoutMutation {
    /// Makes an order of the caller's cart: all of it or nothing, at the prices of this moment. With
    /// one `idempotencyKey` there is one order, however often it is sent; after an answer that was
    /// lost, send the same again to learn what became of it. What was ordered leaves the cart.
    async fn checkout(&self, ctx: &Context<'_>, input: CheckoutInput) -> Result<CheckoutPayload> {
        let request = ctx.request()?;
        let owner = request.owner()?;
        let expected_total = match input.expected_total {
            None => None,
            Some(total) => Some(total.exact().ok_or_else(|| {
                Error::argument("input.expectedTotal", "an amount such as \"89990.00\"")
            })?),
        };
        let AddressInput { city, street, postal_code, recipient, phone } = input.shipping_address;
        let wanted = CheckoutRequest {
            key: input.idempotency_key,
            zone: input.geo_zone,
            address: Address { city, street, postal_code, recipient, phone },
            payment_method: input.payment_method,
            expected_total,
        };
        Ok(match request.shop.checkout.checkout(owner, wanted).await? {
            Outcome::Order(order) => CheckoutPayload {
                order: Some(OrderNode::new(*order)),
                shortages: Vec::new(),
                current_total: None,
                user_errors: Vec::new(),
            },
            Outcome::Refused(refusal) => CheckoutPayload {
                order: None,
                shortages: refusal.shortages.iter().map(ShortageNode::new).collect(),
                current_total: refusal.total.map(|total| Leaf(Arc::new(total))),
                user_errors: refusal.errors,
            },
        })
    }

    /// Cancels an order of the caller's (of anybody, for staff) that has not been shipped. Its units
    /// can be bought by others then. To cancel it again is nothing wrong.
    async fn order_cancel(
        &self,
        ctx: &Context<'_>,
        id: ID,
        #[graphql(desc = "Why: at most 500 characters.")] reason: Option<String>,
    ) -> Result<OrderPayload> {
        let actor = match &ctx.request()?.caller.viewer {
            Viewer::Staff(id) => Actor::Staff(id.clone()),
            _ => Actor::Customer,
        };
        let faults = text_faults(&[("reason", reason.as_ref(), MAX_NOTE_CHARS)]);
        let step = Step { note: reason, ..Step::new(OrderStatus::Cancelled, actor) };
        change(ctx, &id, step, faults, "id").await
    }

    /// Staff: has an order take its next step: `CREATED`, `PAID`, `PROCESSING`, `SHIPPED`,
    /// `DELIVERED`, each only after the one before; or `CANCELLED` before it is shipped. To ask for
    /// the step it took last changes nothing.
    async fn order_advance(
        &self,
        ctx: &Context<'_>,
        id: ID,
        to: OrderStatus,
        #[graphql(desc = "For its timeline: at most 500 characters.")] note: Option<String>,
        #[graphql(desc = "Where the parcel can be followed; with `SHIPPED` only.")]
        tracking_number: Option<String>,
    ) -> Result<OrderPayload> {
        let request = ctx.request()?;
        request.require_staff()?;
        let actor = match &request.caller.viewer {
            Viewer::Staff(id) => Actor::Staff(id.clone()),
            _ => return Err(Error::Internal.into()),
        };
        let mut faults = text_faults(&[
            ("note", note.as_ref(), MAX_NOTE_CHARS),
            ("trackingNumber", tracking_number.as_ref(), MAX_TRACKING_CHARS),
        ]);
        if tracking_number.is_some() && to != OrderStatus::Shipped {
            let message = "A tracking number comes with SHIPPED.".to_owned();
            let field = Some(vec!["trackingNumber".to_owned()]);
            faults.push(UserError { code: ErrorCode::Invalid, field, message });
        }
        let step = Step { note, tracking_number, ..Step::new(to, actor) };
        change(ctx, &id, step, faults, "to").await
    }
}

fn text_faults(texts: &[(&str, Option<&String>, usize)]) -> Vec<UserError> {
    let fault = |(name, text, max): &(&str, Option<&String>, usize)| {
        argument_fault(&[name], (*text)?, *max)
    };
    texts.iter().filter_map(fault).collect()
}

/// Has an order take a step, if it is the caller's business.
async fn change(
    ctx: &Context<'_>,
    id: &str,
    step: Step,
    faults: Vec<UserError>,
    field: &str,
) -> Result<OrderPayload> {
    let request = ctx.request()?;
    let owner = request.owner()?;
    if !faults.is_empty() {
        return Ok(OrderPayload { order: None, user_errors: faults });
    }
    let is_staff = matches!(request.caller.viewer, Viewer::Staff(_));
    let may = move |order: &Order| is_staff || order.owner == owner;
    let to = step.to;
    let changed = match Uuid::try_parse(id) {
        Ok(id) => request.shop.checkout.step(id, step, may).await?,
        Err(_) => Changed::NotFound,
    };
    let refuse = |code, field: &str, message| {
        vec![UserError { code, field: Some(vec![field.to_owned()]), message }]
    };
    Ok(match changed {
        Changed::Done(order) => {
            OrderPayload { order: Some(OrderNode::new(*order)), user_errors: Vec::new() }
        }
        Changed::NotFound => OrderPayload {
            order: None,
            user_errors: refuse(ErrorCode::NotFound, "id", "There is no such order.".to_owned()),
        },
        Changed::Impossible(order) => {
            let (from, to) = (order.status.as_str(), to.as_str());
            let message = format!("An order that is {from} cannot become {to} like this.");
            let user_errors = refuse(ErrorCode::InvalidTransition, field, message);
            OrderPayload { order: Some(OrderNode::new(*order)), user_errors }
        }
    })
}

/// Where an order is to go.
#[derive(InputObject)]
pub struct AddressInput {
    /// The city: at most 200 characters.
    city: String,
    /// Street, house and flat: at most 200 characters.
    street: String,
    /// The postal code: at most 40 characters.
    postal_code: Option<String>,
    /// Who receives it: at most 200 characters.
    recipient: Option<String>,
    /// How to reach them: at most 40 characters.
    phone: Option<String>,
}

/// What is to be bought, and how.
#[derive(InputObject)]
pub struct CheckoutInput {
    /// Names this checkout: 1 to 255 visible characters. Sent again, it is carried out once; it is
    /// known for a week.
    idempotency_key: String,
    /// The zone whose stock it takes from.
    geo_zone: String,
    /// Where it goes.
    shipping_address: AddressInput,
    /// How it is to be paid, such as `card`: at most 40 characters.
    payment_method: String,
    /// What the shopper saw as the total. If the cart costs another sum now, nothing is bought and
    /// `currentTotal` tells it.
    expected_total: Option<DecimalScalar>,
}

/// A product of which there is too little.
#[derive(SimpleObject)]
#[graphql(name = "Shortage")]
pub struct ShortageNode {
    /// The product's id.
    product_id: ID,
    /// Units that were asked for.
    requested: i32,
    /// Units that there were in the zone.
    available: i32,
}

impl ShortageNode {
    fn new(short: &Short) -> Self {
        let int = |units: i64| i32::try_from(units).unwrap_or(i32::MAX);
        Self {
            product_id: ID(short.product.to_string()),
            requested: int(short.requested),
            available: int(short.available),
        }
    }
}

/// What a checkout came to.
#[derive(SimpleObject)]
pub struct CheckoutPayload {
    /// The order; null if there is none.
    order: Option<OrderNode>,
    /// Products of which there is too little, all of them.
    shortages: Vec<ShortageNode>,
    /// What the cart costs now, where another sum was expected.
    current_total: Option<MoneyNode>,
    /// Why there is no order; empty if there is one.
    user_errors: Vec<UserError>,
}

/// What a change of an order came to.
#[derive(SimpleObject)]
pub struct OrderPayload {
    /// The order as it is now; null if there is no such order for the caller.
    order: Option<OrderNode>,
    /// Why it was not changed; empty if it was.
    user_errors: Vec<UserError>,
}
