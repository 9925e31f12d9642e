//! The lines of a cart in the API.

use std::iter::repeat_with;
use std::sync::Arc;

use async_graphql::parser::types::{Field, SelectionSet};
use async_graphql::{Context, ID, Object, Result};

use super::super::model::{Cart, CartLine};
use crate::catalog::graphql::ProductNode;
use crate::graphql::{
    AtOnce, ContextExt, DateTimeScalar, Json, Leaf, LeafObject, Leaves, MoneyNode, RequestContext,
    asks_for, inside,
};
use crate::money::Money;

/// What is known of a product.
enum Looked {
    /// Nobody has looked.
    NotYet,
    /// It is gone.
    Gone,
    /// It is there.
    There(ProductNode),
}

/// The fields of a line that need its product as it is now.
const OF_THE_PRODUCT: [&str; 3] = ["product", "unitPrice", "total"];

/// The lines of a cart of whose products so much is known.
fn with(cart: &Arc<Cart>, products: impl Iterator<Item = Looked>) -> Vec<Line> {
    let line = |(place, product)| Line { cart: cart.clone(), place, product };
    (0..cart.lines.len()).zip(products).map(line).collect()
}

/// The lines without their products.
pub(super) fn bare(cart: &Arc<Cart>) -> Vec<Line> {
    with(cart, repeat_with(|| Looked::NotYet))
}

/// Has the products of a cart at hand that these selections of its fields need. Not if they ask for
/// notices, which read them together with their stock.
pub(super) async fn get_ready<'s>(
    request: &RequestContext,
    cart: &Cart,
    selections: impl IntoIterator<Item = &'s SelectionSet>,
) {
    let (mut needs_products, mut has_notices) = (false, false);
    for selection in selections {
        has_notices |= asks_for(selection, &["notices"]);
        needs_products |= asks_for(selection, &["subtotal"])
            || inside(selection, "lines").any(|line| asks_for(line, &OF_THE_PRODUCT));
    }
    if needs_products && !has_notices {
        let products = cart.lines.iter().map(|line| line.product.clone());
        request.products.foresee(products).read().await;
    }
}

/// The products of a cart's lines, if all of them have been read.
pub(super) fn products_at_hand(cart: &Cart, out: &Json) -> Option<Vec<Option<ProductNode>>> {
    let request = out.request()?;
    let known = |line: &CartLine| Some(request.products.known(&line.product)?.map(Leaf));
    cart.lines.iter().map(known).collect()
}

fn looked(found: Option<ProductNode>) -> Looked {
    found.map_or(Looked::Gone, Looked::There)
}

/// Writes the lines, unless products are needed for that which nobody has read.
pub(super) fn write(cart: &Arc<Cart>, selection: &SelectionSet, out: &mut Json) -> bool {
    if !asks_for(selection, &OF_THE_PRODUCT) {
        return out.objects(&bare(cart), selection);
    }
    products_at_hand(cart, out).is_some_and(|products| {
        out.objects(&with(cart, products.into_iter().map(looked)), selection)
    })
}

/// The lines, with their products where those are needed: all of them in one round.
pub(super) async fn resolve(ctx: &Context<'_>, cart: &Arc<Cart>) -> Result<Leaves<CartLineNode>> {
    let mut lines = bare(cart);
    if asks_for(&ctx.item.node.selection_set.node, &OF_THE_PRODUCT) {
        let ids = cart.lines.iter().map(|line| line.product.clone());
        // If they cannot be read, each field that needs one says so for itself.
        if let Ok(products) = ctx.request()?.products.load_many(ids).await {
            lines = with(cart, products.into_iter().map(|product| looked(product.map(Leaf))));
        }
    }
    Ok(lines.into_iter().map(Box::new).map(Leaf).collect())
}

/// A line of a cart, in an answer.
pub type CartLineNode = Leaf<Box<Line>>;

/// A line of a cart.
pub struct Line {
    cart: Arc<Cart>,
    place: usize,
    product: Looked,
}

impl Line {
    fn line(&self) -> &CartLine {
        &self.cart.lines[self.place]
    }

    fn quantity_shown(&self) -> i32 {
        i32::try_from(self.line().units).unwrap_or(i32::MAX)
    }

    /// The price of now, or the last one that is known; `None` if nobody has looked.
    fn price_at_hand(&self) -> Option<Money> {
        match &self.product {
            Looked::NotYet => None,
            Looked::Gone => Some(self.line().card.price),
            Looked::There(product) => Some(product.0.price),
        }
    }

    /// The price of now, or the last one that is known.
    async fn price(&self, ctx: &Context<'_>) -> Result<Money> {
        let product = ctx.request()?.products.load(self.line().product.clone()).await?;
        Ok(product.map_or(self.line().card.price, |product| product.price))
    }
}

/// A product in a cart.
#[Object(name = "CartLine")]
impl Line {
    /// The product as it is now; null if it is gone.
    async fn product(&self, ctx: &Context<'_>) -> Result<Option<ProductNode>> {
        Ok(ctx.request()?.products.load(self.line().product.clone()).await?.map(Leaf))
    }

    /// The product's id.
    async fn product_id(&self) -> ID {
        ID(self.line().product.to_string())
    }

    /// Its name when it was last added or set.
    async fn name(&self) -> &str {
        &self.line().card.name
    }

    /// Its picture when it was last added or set.
    async fn image_url(&self) -> Option<&str> {
        self.line().card.image_url.as_deref()
    }

    /// How many units.
    async fn quantity(&self) -> i32 {
        self.quantity_shown()
    }

    /// What one unit costs now; for a product that is gone, what it did cost.
    async fn unit_price(&self, ctx: &Context<'_>) -> Result<MoneyNode> {
        Ok(Leaf(Arc::new(self.price(ctx).await?)))
    }

    /// What one unit did cost when it was last added or set.
    async fn price_when_added(&self) -> MoneyNode {
        Leaf(Arc::new(self.line().card.price))
    }

    /// What all units cost now.
    async fn total(&self, ctx: &Context<'_>) -> Result<MoneyNode> {
        Ok(Leaf(Arc::new(self.price(ctx).await?.times(self.line().units))))
    }

    /// When it was first put into the cart.
    async fn added_at(&self) -> DateTimeScalar {
        DateTimeScalar(self.line().added_at)
    }
}

impl LeafObject for Line {
    type Shape<'a> = &'a Self;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        let (line, inside) = (self.line(), &field.selection_set.node);
        match field.name.node.as_str() {
            "product" => match &self.product {
                Looked::NotYet => false,
                Looked::Gone => out.null(),
                Looked::There(product) => product.write(inside, out),
            },
            "productId" => out.text(line.product.as_str()),
            "name" => out.text(&line.card.name),
            "imageUrl" => out.text_or_null(line.card.image_url.as_deref()),
            "quantity" => out.value(&self.quantity_shown()),
            "unitPrice" => self.price_at_hand().is_some_and(|price| out.object(&price, inside)),
            "priceWhenAdded" => out.object(&line.card.price, inside),
            "total" => {
                let price = self.price_at_hand();
                price.is_some_and(|price| out.object(&price.times(line.units), inside))
            }
            "addedAt" => out.plain(line.added_at),
            _ => false,
        }
    }
}
