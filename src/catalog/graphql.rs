//! The catalogue in the API: thin types and resolvers.
//!
//! A field that says `cache_control(max_age = 1)` gives everybody the same; see
//! [`crate::graphql::public`].

mod pages;

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::{Context, ID, InputObject, Object, Result, SimpleObject};
use async_trait::async_trait;
use futures_util::future::try_join_all;

use super::model::{
    Attribute, CategoryInfo, MAX_LOOKUP, Product, ProductId, RawProduct, check_category_name,
};
use super::service::CatalogService;
use crate::error::{Error, UserError};
use crate::graphql::{
    ContextExt, DateTimeScalar, Fetch, Json, Leaf, LeafObject, Leaves, MoneyInput,
};
use crate::inventory::graphql::{StockNode, foresee_stock, stock_of, stocks_of, write_stock};
use crate::money::{Currency, Money};
use crate::page::PageArgs;
pub use pages::{PriceRangeInput, ProductConnection, ProductEdge, ProductSort};
use pages::{ProductsArgs, waits_for_others};

/// Questions about the catalogue.
#[derive(Default)]
pub struct CatalogQuery;

#[Object]
impl CatalogQuery {
    /// A product by its id; null if there is none.
    #[graphql(cache_control(max_age = 1))]
    async fn product(&self, ctx: &Context<'_>, id: ID) -> Result<Option<ProductNode>> {
        let id = ProductId::parse(&id).map_err(|fault| Error::argument("id", fault))?;
        let request = ctx.request()?;
        let stock = foresee_stock(request, ctx.field().selection_set(), std::slice::from_ref(&id));
        let product = request.products.load(id).await?;
        if !ctx.field().selection_set().any(|field| waits_for_others(&field)) {
            stock.read().await;
        }
        Ok(product.map(Leaf))
    }

    /// Products by their ids (at most 250), in the order of the ids; null where there is none.
    #[graphql(cache_control(max_age = 1))]
    async fn products(
        &self,
        ctx: &Context<'_>,
        ids: Vec<ID>,
    ) -> Result<Leaves<Option<ProductNode>>> {
        if ids.len() > MAX_LOOKUP {
            let fault = format!("at most {MAX_LOOKUP} at once, got {}", ids.len());
            return Err(Error::argument("ids", fault).into());
        }
        let ids = ids.iter().enumerate().map(|(index, id)| {
            ProductId::parse(id).map_err(|fault| Error::argument(&format!("ids.{index}"), fault))
        });
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        let request = ctx.request()?;
        let stock = foresee_stock(request, ctx.field().selection_set(), &ids);
        let products = request.products.load_many(ids).await?;
        if !ctx.field().selection_set().any(|field| waits_for_others(&field)) {
            stock.read().await;
        }
        Ok(products.into_iter().map(|product| product.map(Leaf)).collect())
    }

    /// All categories that have products, by name.
    #[graphql(cache_control(max_age = 1))]
    async fn categories(&self, ctx: &Context<'_>) -> Result<Vec<CategoryNode>> {
        let categories = ctx.request()?.category_lists.load(()).await?.unwrap_or_default();
        Ok(categories.iter().cloned().map(CategoryNode::counted).collect())
    }

    /// A category by its name; null if no product stands in it.
    #[graphql(cache_control(max_age = 1))]
    async fn category(&self, ctx: &Context<'_>, name: String) -> Result<Option<CategoryNode>> {
        check_category_name(&name).map_err(|fault| Error::argument("name", fault))?;
        let category = ctx.request()?.categories.load(name.into()).await?;
        Ok(category.map(CategoryNode::counted))
    }
}

/// Something the shop sells, in an answer.
pub type ProductNode = Leaf<Arc<Product>>;

/// Something the shop sells.
pub struct ProductShape<'a>(&'a Product);

impl<'a> From<&'a Product> for ProductShape<'a> {
    fn from(product: &'a Product) -> Self {
        Self(product)
    }
}

/// Something the shop sells.
#[Object(name = "Product")]
impl ProductShape<'_> {
    /// The shop's own key of the product, such as `PROD-12345`.
    #[graphql(cache_control(max_age = 1))]
    async fn id(&self) -> ID {
        ID::from(self.0.id.as_str())
    }

    /// The name on the card.
    #[graphql(cache_control(max_age = 1))]
    async fn name(&self) -> &str {
        &self.0.name
    }

    /// The text of the product's page.
    #[graphql(cache_control(max_age = 1))]
    async fn description(&self) -> Option<&str> {
        self.0.description.as_deref()
    }

    /// The category it stands in.
    #[graphql(cache_control(max_age = 1))]
    async fn category(&self) -> CategoryNode {
        CategoryNode::from(&CategoryName(&self.0.category))
    }

    /// What it costs now.
    #[graphql(cache_control(max_age = 1))]
    async fn price(&self) -> Leaf<&Money> {
        Leaf(&self.0.price)
    }

    /// Its properties, sorted by name.
    #[graphql(cache_control(max_age = 1))]
    async fn attributes(&self) -> Leaves<Leaf<&Attribute>> {
        self.0.attributes.iter().map(Leaf).collect()
    }

    /// The address of its picture.
    #[graphql(cache_control(max_age = 1))]
    async fn image_url(&self) -> Option<&str> {
        self.0.image_url.as_deref()
    }

    /// How much there is of it in a geo zone, such as «Москва»; null if it is not sold there.
    #[graphql(cache_control(max_age = 1))]
    async fn stock(&self, ctx: &Context<'_>, geo_zone: String) -> Result<Option<StockNode>> {
        stock_of(ctx, &self.0.id, &geo_zone).await
    }

    /// How much there is of it in every zone where it is sold.
    #[graphql(cache_control(max_age = 1))]
    async fn stocks(&self, ctx: &Context<'_>) -> Result<Leaves<StockNode>> {
        stocks_of(ctx, &self.0.id).await
    }

    /// When it was first stored.
    #[graphql(cache_control(max_age = 1))]
    async fn created_at(&self) -> DateTimeScalar {
        DateTimeScalar(self.0.created_at)
    }

    /// When it was last stored.
    #[graphql(cache_control(max_age = 1))]
    async fn updated_at(&self) -> DateTimeScalar {
        DateTimeScalar(self.0.updated_at)
    }
}

impl LeafObject for Product {
    type Shape<'a> = ProductShape<'a>;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        let inside = &field.selection_set.node;
        match field.name.node.as_str() {
            "id" => out.text(self.id.as_str()),
            "name" => out.text(&self.name),
            "description" => out.text_or_null(self.description.as_deref()),
            "category" => out.object(&CategoryName(&self.category), inside),
            "price" => out.object(&self.price, inside),
            "attributes" => out.objects(&self.attributes, inside),
            "imageUrl" => out.text_or_null(self.image_url.as_deref()),
            "stock" => write_stock(&self.id, field, out),
            "createdAt" => out.plain(self.created_at),
            "updatedAt" => out.plain(self.updated_at),
            _ => false,
        }
    }
}

/// A property of a product.
#[derive(SimpleObject)]
#[graphql(name = "Attribute")]
pub struct AttributeShape {
    /// What the property is called, such as «Цвет».
    #[graphql(cache_control(max_age = 1))]
    name: String,
    /// What it is, such as «чёрный».
    #[graphql(cache_control(max_age = 1))]
    value: String,
}

impl From<&Attribute> for AttributeShape {
    fn from(attribute: &Attribute) -> Self {
        Self { name: attribute.name.clone(), value: attribute.value.clone() }
    }
}

impl LeafObject for Attribute {
    type Shape<'a> = AttributeShape;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        match field.name.node.as_str() {
            "name" => out.text(&self.name),
            "value" => out.text(&self.value),
            _ => false,
        }
    }
}

/// A group of products that shoppers browse.
pub struct CategoryNode {
    name: Arc<str>,
    /// Known when the category itself was asked for; looked up when it was reached by a product.
    product_count: Option<u64>,
}

impl CategoryNode {
    fn counted(category: CategoryInfo) -> Self {
        Self { name: category.name, product_count: Some(category.product_count) }
    }
}

/// A group of products that shoppers browse.
#[Object(name = "Category")]
impl CategoryNode {
    /// Its name, which is its key.
    #[graphql(cache_control(max_age = 1))]
    async fn name(&self) -> &str {
        &self.name
    }

    /// How many products stand in it.
    #[graphql(cache_control(max_age = 1))]
    async fn product_count(&self, ctx: &Context<'_>) -> Result<i32> {
        let count = match self.product_count {
            Some(count) => count,
            None => {
                let category = ctx.request()?.categories.load(self.name.clone()).await?;
                category.map_or(0, |category| category.product_count)
            }
        };
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// Its products, page by page: the first ones, or those after a cursor; or, with `last`, the
    /// last ones, or those before a cursor. A page has 20 entries unless `first` or `last` say
    /// otherwise, and at most 100. A cursor belongs to its category, sort and price range.
    #[allow(clippy::too_many_arguments)]
    #[graphql(cache_control(max_age = 1))]
    async fn products(
        &self,
        ctx: &Context<'_>,
        first: Option<i32>,
        after: Option<String>,
        last: Option<i32>,
        before: Option<String>,
        #[graphql(default_with = "Some(ProductSort::PriceAsc)")] sort: Option<ProductSort>,
        price: Option<PriceRangeInput>,
    ) -> Result<ProductConnection> {
        let page = PageArgs::check(first, after, last, before)?;
        // A variable that was not given comes as null.
        let sort = sort.unwrap_or(ProductSort::PriceAsc);
        pages::products(ctx, &self.name, ProductsArgs { page, sort, price }).await
    }

    /// Its lowest and highest price; null if no product stands in it.
    #[graphql(cache_control(max_age = 1))]
    async fn price_range(&self, ctx: &Context<'_>) -> Result<Option<CategoryPriceRange>> {
        let range = ctx.request()?.shop.catalog.price_range(&self.name).await?;
        Ok(range.map(|(low, high)| CategoryPriceRange { min: low.money(), max: high.money() }))
    }
}

/// The lowest and the highest price of a category.
pub struct CategoryPriceRange {
    min: Money,
    max: Money,
}

/// The lowest and the highest price of a category.
#[Object]
impl CategoryPriceRange {
    /// The lowest price.
    #[graphql(cache_control(max_age = 1))]
    async fn min(&self) -> Leaf<&Money> {
        Leaf(&self.min)
    }

    /// The highest price.
    #[graphql(cache_control(max_age = 1))]
    async fn max(&self) -> Leaf<&Money> {
        Leaf(&self.max)
    }
}

/// A category of which only the name is known yet.
struct CategoryName<'n>(&'n Arc<str>);

impl From<&CategoryName<'_>> for CategoryNode {
    fn from(category: &CategoryName<'_>) -> Self {
        Self { name: category.0.clone(), product_count: None }
    }
}

impl LeafObject for CategoryName<'_> {
    type Shape<'a>
        = CategoryNode
    where
        Self: 'a;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        field.name.node == "name" && out.text(self.0)
    }
}

/// Changes of the catalogue.
#[derive(Default)]
pub struct CatalogMutation;

#[Object]
impl CatalogMutation {
    /// Staff: stores products, new or in place of those with the same ids (at most 100). Either
    /// all of them are acceptable and stored, or `userErrors` names everything that is wrong and
    /// nothing is stored.
    async fn products_upsert(
        &self,
        ctx: &Context<'_>,
        products: Vec<ProductInput>,
    ) -> Result<ProductsUpsertPayload> {
        let request = ctx.request()?;
        request.require_staff()?;
        let batch = products.into_iter().map(RawProduct::from).collect();
        let (products, user_errors) = match request.shop.catalog.upsert(batch).await? {
            Ok(products) => (products, Vec::new()),
            Err(faults) => (Vec::new(), faults),
        };
        let products = products.into_iter().map(|product| Leaf(Arc::new(product))).collect();
        Ok(ProductsUpsertPayload { products, user_errors })
    }

    /// Staff: deletes products (at most 100). Ids that are not there are passed over, so the call
    /// can be repeated.
    async fn products_delete(
        &self,
        ctx: &Context<'_>,
        ids: Vec<ID>,
    ) -> Result<ProductsDeletePayload> {
        let request = ctx.request()?;
        request.require_staff()?;
        let ids = ids.into_iter().map(|id| id.0).collect();
        let (deleted, user_errors) = match request.shop.catalog.delete(ids).await? {
            Ok(deleted) => (deleted, Vec::new()),
            Err(faults) => (Vec::new(), faults),
        };
        let deleted_ids = deleted.iter().map(|id| ID::from(id.as_str())).collect();
        Ok(ProductsDeletePayload { deleted_ids, user_errors })
    }
}

/// A product to be stored.
#[derive(InputObject)]
pub struct ProductInput {
    /// The shop's own key: 1 to 64 characters.
    id: ID,
    /// The name on the card: 1 to 300 characters.
    name: String,
    /// The text of the product's page.
    description: Option<String>,
    /// The name of the category it stands in: 1 to 100 characters. A new name makes a new category.
    category: String,
    /// What it costs: at least 0, at most 2 fraction digits.
    price: MoneyInput,
    /// Its properties: at most 50, each name once.
    attributes: Option<Vec<AttributeInput>>,
    /// The address of its picture.
    image_url: Option<String>,
}

/// A property of a product to be stored.
#[derive(InputObject)]
pub struct AttributeInput {
    /// What the property is called: 1 to 100 characters.
    name: String,
    /// What it is: 1 to 1,000 characters.
    value: String,
}

impl From<ProductInput> for RawProduct {
    fn from(input: ProductInput) -> Self {
        let attributes = input.attributes.unwrap_or_default().into_iter();
        Self {
            id: input.id.0,
            name: input.name,
            description: input.description,
            category: input.category,
            amount: input.price.amount.exact(),
            currency: input.price.currency_code.unwrap_or_else(|| Currency::RUB.to_string()),
            attributes: attributes.map(|a| Attribute { name: a.name, value: a.value }).collect(),
            image_url: input.image_url,
        }
    }
}

/// What `productsUpsert` did.
#[derive(SimpleObject)]
pub struct ProductsUpsertPayload {
    /// The products as they are stored now; empty if nothing was stored.
    products: Leaves<ProductNode>,
    /// Everything that is wrong with the batch; empty if it was stored.
    user_errors: Vec<UserError>,
}

/// What `productsDelete` did.
#[derive(SimpleObject)]
pub struct ProductsDeletePayload {
    /// The ids of the products that were there and are gone now.
    deleted_ids: Vec<ID>,
    /// Everything that is wrong with the ids; empty if the call was carried out.
    user_errors: Vec<UserError>,
}

/// Loads product cards for a request.
pub struct ProductFetch(pub Arc<CatalogService>);

#[async_trait]
impl Fetch for ProductFetch {
    type Key = ProductId;
    type Row = Arc<Product>;

    async fn fetch(&self, ids: &[ProductId]) -> Result<Vec<Option<Arc<Product>>>, Error> {
        self.0.products(ids).await
    }
}

/// Loads the list of all categories for a request, once however often it is asked for.
pub struct CategoryListFetch(pub Arc<CatalogService>);

#[async_trait]
impl Fetch for CategoryListFetch {
    type Key = ();
    type Row = Arc<Vec<CategoryInfo>>;

    async fn fetch(&self, keys: &[()]) -> Result<Vec<Option<Self::Row>>, Error> {
        let list = self.0.categories().await?;
        Ok(vec![Some(list); keys.len()])
    }
}

/// Loads categories with their counts for a request.
pub struct CategoryFetch(pub Arc<CatalogService>);

#[async_trait]
impl Fetch for CategoryFetch {
    type Key = Arc<str>;
    type Row = CategoryInfo;

    async fn fetch(&self, names: &[Arc<str>]) -> Result<Vec<Option<CategoryInfo>>, Error> {
        try_join_all(names.iter().map(|name| self.0.category(name))).await
    }
}

#[cfg(test)]
mod tests;
