//! What the payment service tells of an order.

use std::sync::Arc;

use uuid::Uuid;

use super::{Changed, CheckoutService};
use crate::error::Error;
use crate::money::Money;
use crate::orders::model::{Actor, Order, OrderEvent, OrderStatus, Step, event_id};

/// What happened to a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentKind {
    /// The money is there.
    Paid,
    /// It did not come; the customer may try again.
    Failed,
    /// It went back.
    Refunded,
}

impl PaymentKind {
    /// The event of an order that tells of it.
    fn event(self) -> &'static str {
        match self {
            Self::Paid => "payment accepted",
            Self::Failed => "payment failed",
            Self::Refunded => "payment refunded",
        }
    }
}

/// A message of the payment service.
#[derive(Debug, Clone)]
pub struct PaymentNotice {
    /// Names the message: sent again, it counts once.
    pub id: String,
    /// What happened.
    pub kind: PaymentKind,
    /// To the payment of which order.
    pub order: Uuid,
    /// How much.
    pub amount: Money,
}

/// What a message came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentOutcome {
    /// It counts, now or since it was sent before.
    Taken,
    /// There is no such order.
    UnknownOrder,
    /// The order costs another amount.
    WrongAmount,
    /// The order stands so that the money cannot be taken: it was cancelled, or paid by another
    /// payment.
    NotPayable,
}

impl CheckoutService {
    /// Takes a message of the payment service. Whatever becomes of it is noted with the order.
    pub async fn payment(self: &Arc<Self>, notice: PaymentNotice) -> Result<PaymentOutcome, Error> {
        let Some(order) = self.store.order(notice.order).await? else {
            self.note(&notice, None, "payment refused", "There is no such order.").await?;
            return Ok(PaymentOutcome::UnknownOrder);
        };
        if notice.amount != order.total {
            let Money { amount, currency } = notice.amount;
            let message = format!("{amount} {currency} is not what the order costs.");
            self.note(&notice, Some(&order), "payment refused", &message).await?;
            return Ok(PaymentOutcome::WrongAmount);
        }
        match notice.kind {
            PaymentKind::Paid => self.paid(&notice).await,
            PaymentKind::Failed => {
                let text = "The customer may try again.";
                self.note(&notice, Some(&order), notice.kind.event(), text).await?;
                Ok(PaymentOutcome::Taken)
            }
            PaymentKind::Refunded => self.refunded(&notice, &order).await,
        }
    }

    async fn paid(self: &Arc<Self>, notice: &PaymentNotice) -> Result<PaymentOutcome, Error> {
        let payment = Some(notice.id.clone());
        let step = Step { payment, ..Step::new(OrderStatus::Paid, Actor::Payment) };
        match self.step(notice.order, step, |_| true).await? {
            Changed::Done(_) => Ok(PaymentOutcome::Taken),
            // By this very payment, and has gone on since.
            Changed::Impossible(order) if order.payment.as_ref() == Some(&notice.id) => {
                Ok(PaymentOutcome::Taken)
            }
            Changed::Impossible(order) => {
                let message = format!("The order was {} by then.", order.status.as_str());
                self.note(notice, Some(&order), "payment refused", &message).await?;
                Ok(PaymentOutcome::NotPayable)
            }
            Changed::NotFound => Ok(PaymentOutcome::UnknownOrder),
        }
    }

    /// Money that went back ends an order that has not left yet.
    async fn refunded(
        self: &Arc<Self>,
        notice: &PaymentNotice,
        order: &Order,
    ) -> Result<PaymentOutcome, Error> {
        let text = "The money went back to the customer.";
        self.note(notice, Some(order), notice.kind.event(), text).await?;
        if order.status.may_become(OrderStatus::Cancelled) {
            let note = Some("The payment was refunded.".to_owned());
            let step = Step { note, ..Step::new(OrderStatus::Cancelled, Actor::Payment) };
            self.step(notice.order, step, |_| true).await?;
        }
        Ok(PaymentOutcome::Taken)
    }

    /// Notes a message with its order, once.
    async fn note(
        &self,
        notice: &PaymentNotice,
        order: Option<&Order>,
        kind: &str,
        text: &str,
    ) -> Result<(), Error> {
        let id = event_id(notice.order, notice.id.as_bytes());
        let known = self.store.order_events(notice.order, crate::orders::model::MAX_EVENTS).await?;
        if known.iter().any(|event| event.id == id) {
            return Ok(());
        }
        let event = OrderEvent {
            id,
            at: OrderEvent::moment(self.clock.now(), order.and_then(|order| order.changes.last())),
            kind: kind.to_owned(),
            actor: Actor::Payment,
            note: Some(format!("{text} ({})", notice.id)),
        };
        tracing::info!(order = %notice.order, payment = notice.id, kind, "a payment was noted");
        self.store.add_order_event(notice.order, &event).await?;
        self.orders.changed(notice.order);
        Ok(())
    }
}
