//! What a shopper should know of a cart.

use std::collections::HashMap;

use async_graphql::{Enum, ID, SimpleObject};
use futures_util::future;
use std::sync::Arc;

use super::super::model::{Cart, CartLine, MAX_LINES, MAX_UNITS};
use crate::error::Error;
use crate::geo_zone::GeoZone;
use crate::graphql::{Leaf, MoneyNode, RequestContext};
use crate::inventory::graphql::most_available;
use crate::money::Money;
use crate::product_id::ProductId;

/// What a notice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub enum CartNoticeCode {
    /// The price is another one than when it was added.
    PriceChanged,
    /// There are fewer units than the cart has.
    NotEnoughStock,
    /// The product is no longer sold.
    ProductGone,
    /// The last merge found no room for all units.
    MergeLeftOut,
}

/// Something that a shopper should know of a cart.
#[derive(SimpleObject)]
pub struct CartNotice {
    /// What it is about.
    code: CartNoticeCode,
    /// The product.
    product_id: ID,
    /// What it is about, for a person.
    message: String,
    /// The price when it was added, where that has changed.
    price_when_added: Option<MoneyNode>,
    /// The price now, where that has changed.
    current_price: Option<MoneyNode>,
    /// How many units can be bought, where that is too few; how many were left out.
    quantity: Option<i32>,
}

/// The notices of a cart. Products and stock are read at once; where the zone is not known, stock
/// takes a second round.
pub(super) async fn of(
    request: &RequestContext,
    cart: &Cart,
    zone: Option<GeoZone>,
) -> Result<Vec<CartNotice>, Error> {
    let ids: Vec<_> = cart.lines.iter().map(|line| line.product.clone()).collect();
    let products = request.products.load_many(ids.iter().cloned());
    let stock = most_available(request, &ids, zone.as_ref());
    let (products, stock) = future::try_join(products, stock).await?;
    let available: HashMap<_, _> = ids.into_iter().zip(stock).collect();
    let mut notices = Vec::new();
    for (line, product) in cart.lines.iter().zip(products) {
        let Some(product) = product else {
            notices.push(gone(line));
            continue;
        };
        if product.price != line.card.price {
            notices.push(price_changed(line, product.price));
        }
        let available = available.get(&line.product).copied().unwrap_or(0);
        if available < line.units {
            notices.push(not_enough(line, available));
        }
    }
    notices.extend(cart.left_out.iter().map(|(product, units)| left_out(product, *units)));
    Ok(notices)
}

fn notice(code: CartNoticeCode, product: &ProductId, message: String) -> CartNotice {
    CartNotice {
        code,
        product_id: ID(product.to_string()),
        message,
        price_when_added: None,
        current_price: None,
        quantity: None,
    }
}

fn gone(line: &CartLine) -> CartNotice {
    let message = format!("«{}» is no longer sold.", line.card.name);
    notice(CartNoticeCode::ProductGone, &line.product, message)
}

fn price_changed(line: &CartLine, price: Money) -> CartNotice {
    let (before, name) = (line.card.price, &line.card.name);
    let message = format!(
        "The price of «{name}» has changed from {} {} to {} {}.",
        before.amount, before.currency, price.amount, price.currency
    );
    CartNotice {
        price_when_added: Some(Leaf(Arc::new(before))),
        current_price: Some(Leaf(Arc::new(price))),
        ..notice(CartNoticeCode::PriceChanged, &line.product, message)
    }
}

fn not_enough(line: &CartLine, available: i64) -> CartNotice {
    let message = format!("Of «{}» there are {available} left.", line.card.name);
    CartNotice {
        quantity: Some(i32::try_from(available).unwrap_or(i32::MAX)),
        ..notice(CartNoticeCode::NotEnoughStock, &line.product, message)
    }
}

fn left_out(product: &ProductId, units: i64) -> CartNotice {
    let message = format!(
        "{units} of {product} did not fit: a cart has at most {MAX_LINES} lines and {MAX_UNITS} of \
         one product, all with prices in one currency."
    );
    CartNotice {
        quantity: Some(i32::try_from(units).unwrap_or(i32::MAX)),
        ..notice(CartNoticeCode::MergeLeftOut, product, message)
    }
}
