//! Pages of a category in the API: a Relay connection.

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::{Context, Enum, InputObject, Object, Result, SelectionField, SimpleObject};
use async_trait::async_trait;

use super::super::model::browse::{PageQuery, Position, PriceRange, Sort};
use super::super::model::{Product, ProductId};
use super::super::service::{CatalogService, End, Listed, Page};
use super::ProductNode;
use crate::clock::Timestamp;
use crate::error::Error;
use crate::graphql::cost::PAGE_COST;
use crate::graphql::{
    AtOnce, ContextExt, DecimalScalar, Json, Leaf, LeafObject, Leaves, PageEnds, PageInfo,
};
use crate::inventory::graphql::foresee_stock;
use crate::page::{ListCursors, PageArgs};

/// The order of a category's products. Products of one price are in the order of their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
#[graphql(name = "ProductSort")]
pub enum ProductSort {
    /// The cheapest first.
    PriceAsc,
    /// The dearest first.
    PriceDesc,
}

/// A range of prices, both ends included. An end that is left out is open.
#[derive(Debug, Clone, Copy, InputObject)]
#[graphql(name = "PriceRange")]
pub struct PriceRangeInput {
    /// The lowest price.
    min: Option<DecimalScalar>,
    /// The highest price.
    max: Option<DecimalScalar>,
}

impl PriceRangeInput {
    fn check(self) -> Result<PriceRange, Error> {
        let end = |name: &str, end: Option<DecimalScalar>| {
            end.map(|end| {
                end.exact().ok_or_else(|| {
                    Error::argument(name, "a decimal is a string such as \"89990.00\"")
                })
            })
            .transpose()
        };
        let (min, max) = (end("price.min", self.min)?, end("price.max", self.max)?);
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            return Err(Error::argument("price", "`min` must not be above `max`"));
        }
        Ok(PriceRange::between(min, max))
    }
}

/// The arguments of `Category.products`.
pub(super) struct ProductsArgs {
    pub(super) page: PageArgs,
    pub(super) sort: ProductSort,
    pub(super) price: Option<PriceRangeInput>,
}

/// The fields of a product that the read models have; stock is found by the product's id.
const ROW_FIELDS: [&str; 7] = ["__typename", "id", "name", "price", "imageUrl", "stock", "stocks"];

/// Reads a page of a category.
pub(super) async fn products(
    ctx: &Context<'_>,
    category: &Arc<str>,
    args: ProductsArgs,
) -> Result<ProductConnection> {
    let request = ctx.request()?;
    let catalog = request.shop.catalog.clone();
    let range = args.price.map(PriceRangeInput::check).transpose()?.unwrap_or_default();
    let sort = match args.sort {
        ProductSort::PriceAsc => Sort::PriceAsc,
        ProductSort::PriceDesc => Sort::PriceDesc,
    };
    let list = List::new(&catalog, category.clone(), sort, range);
    let place =
        |cursor: &Option<String>| cursor.as_deref().map(|cursor| list.open(cursor)).transpose();
    let query = PageQuery {
        category: category.clone(),
        sort,
        range,
        after: place(&args.page.after)?,
        before: place(&args.page.before)?,
        limit: args.page.limit,
        from_end: args.page.from_end,
    };
    let cost = PAGE_COST.saturating_add(u64::try_from(query.limit).unwrap_or(u64::MAX));
    request.shop.rates.take_from_category(category, cost)?;
    let fields = asked_of_products(ctx.field());
    let page = catalog.page(&query, fields.iter().any(needs_card)).await?;
    // What is asked of them all is read at once here, and not for each when it is resolved.
    let ids: Vec<_> = page.entries.iter().map(|entry| entry.id().clone()).collect();
    let waits = fields.iter().any(waits_for_others);
    let stock = foresee_stock(request, fields.into_iter(), &ids);
    let page = ProductPage { catalog, list, query, page };
    if !waits && page.knows_its_ends(ctx.field()) {
        stock.read().await;
    }
    Ok(Leaf(Box::new(page)))
}

/// What is asked of the products of a page.
fn asked_of_products(connection: SelectionField<'_>) -> Vec<SelectionField<'_>> {
    let mut fields = Vec::new();
    for field in connection.selection_set() {
        match field.name() {
            "nodes" => fields.extend(field.selection_set()),
            "edges" => {
                for node in field.selection_set().filter(|field| field.name() == "node") {
                    fields.extend(node.selection_set());
                }
            }
            _ => {}
        }
    }
    fields
}

/// Whether the read models do not have what is asked for.
fn needs_card(field: &SelectionField<'_>) -> bool {
    !ROW_FIELDS.contains(&field.name()) && !is_name_of_category(field)
}

fn is_name_of_category(field: &SelectionField<'_>) -> bool {
    field.name() == "category"
        && field.selection_set().all(|inside| ["__typename", "name"].contains(&inside.name()))
}

/// Whether something else than stock in a zone has to be read for a field of a product. To wait for
/// the stock first would make two rounds of one.
pub(super) fn waits_for_others(field: &SelectionField<'_>) -> bool {
    field.name() == "stocks" || (field.name() == "category" && !is_name_of_category(field))
}

/// A list that cursors belong to.
struct List {
    category: Arc<str>,
    cursors: ListCursors,
}

impl List {
    fn new(catalog: &CatalogService, category: Arc<str>, sort: Sort, range: PriceRange) -> Self {
        let sort: &[u8] = match sort {
            Sort::PriceAsc => b"price, ascending",
            Sort::PriceDesc => b"price, descending",
        };
        let end = |price: Option<i64>| price.map(i64::to_be_bytes);
        let (min, max) = (end(range.min), end(range.max));
        let end =
            |bytes: &Option<[u8; 8]>| -> Vec<u8> { bytes.iter().flatten().copied().collect() };
        let (min, max) = (end(&min), end(&max));
        let cursors = catalog.cursors().of(&[b"category", category.as_bytes(), sort, &min, &max]);
        Self { category, cursors }
    }

    fn seal(&self, at: &Position) -> String {
        let mut place = at.price.to_be_bytes().to_vec();
        place.extend_from_slice(at.id.as_bytes());
        self.cursors.seal(&place)
    }

    fn open(&self, cursor: &str) -> Result<Position, Error> {
        let place = self.cursors.open(cursor)?;
        let (price, id) = place.split_first_chunk::<8>().ok_or(Error::InvalidCursor)?;
        let id = std::str::from_utf8(id).map_err(|_| Error::InvalidCursor)?;
        Ok(Position { price: i64::from_be_bytes(*price), id: id.into() })
    }
}

/// A page of a category's products, in an answer.
pub type ProductConnection = Leaf<Box<ProductPage>>;

/// A page of a category's products.
pub struct ProductPage {
    catalog: Arc<CatalogService>,
    list: List,
    query: PageQuery,
    page: Arc<Page>,
}

impl ProductPage {
    fn node(&self, entry: &Listed) -> ProductNode {
        Leaf(match entry {
            Listed::Card(card) => card.clone(),
            // Only fields that the row has were asked for.
            Listed::Row(row) => Arc::new(Product {
                id: ProductId::clone(&row.id),
                name: row.name.clone(),
                description: None,
                category: self.list.category.clone(),
                price: row.money(),
                attributes: Vec::new(),
                image_url: row.image_url.clone(),
                created_at: Timestamp::from_micros(0),
                updated_at: Timestamp::from_micros(0),
                version: row.version,
            }),
        })
    }

    fn all_nodes(&self) -> impl Iterator<Item = ProductNode> {
        self.page.entries.iter().map(|entry| self.node(entry))
    }

    fn all_edges(&self) -> impl Iterator<Item = ProductEdge> {
        self.page
            .entries
            .iter()
            .map(|entry| ProductEdge::new(self.list.seal(&entry.position()), self.node(entry)))
    }

    fn cursor(&self, entry: Option<&Listed>) -> Option<String> {
        entry.map(|entry| self.list.seal(&entry.position()))
    }

    /// The cursor that cuts the list off at one end of this page.
    fn cut(&self, end: End) -> Option<&Position> {
        match end {
            End::After => self.query.before.as_ref(),
            End::Before => self.query.after.as_ref(),
        }
    }

    /// Whether the list has a product beyond one end of this page, if the page itself tells.
    fn is_known_beyond(&self, end: End) -> Option<bool> {
        // The page was read towards one end, and one entry further.
        if (end == End::Before) == self.query.from_end && self.page.has_more {
            return Some(true);
        }
        // Without a cursor that cuts it off, a page goes to the end of the list. What lies beyond a
        // cursor is looked at when somebody asks.
        self.cut(end).is_none().then_some(false)
    }

    /// Whether nothing has to be read for what is asked of the ends of this page.
    fn knows_its_ends(&self, connection: SelectionField<'_>) -> bool {
        let infos = connection.selection_set().filter(|field| field.name() == "pageInfo");
        infos.flat_map(|info| info.selection_set().collect::<Vec<_>>()).all(|end| {
            match end.name() {
                "hasNextPage" => self.is_known_beyond(End::After).is_some(),
                "hasPreviousPage" => self.is_known_beyond(End::Before).is_some(),
                _ => true,
            }
        })
    }

    /// Whether the list has a product beyond one end of this page.
    async fn is_beyond(&self, end: End) -> Result<bool, Error> {
        if let Some(is_beyond) = self.is_known_beyond(end) {
            return Ok(is_beyond);
        }
        let (query, entries, catalog) = (&self.query, &self.page.entries, &self.catalog);
        let (edge, cut) = match end {
            End::After => (entries.last(), self.cut(end)),
            End::Before => (entries.first(), self.cut(end)),
        };
        match (edge, cut) {
            (Some(edge), _) => catalog.is_beyond(query, &edge.position(), end).await,
            // An empty page lies between its cursors; what stands at one of them is beyond it.
            (None, Some(cut)) => {
                Ok(catalog.is_listed(query, cut).await?
                    || catalog.is_beyond(query, cut, end).await?)
            }
            (None, None) => Ok(false),
        }
    }
}

/// A page of a category's products.
#[Object(name = "ProductConnection")]
impl ProductPage {
    /// The products with their cursors.
    #[graphql(cache_control(max_age = 1))]
    async fn edges(&self) -> Leaves<Leaf<Box<ProductEdge>>> {
        self.all_edges().map(Box::new).map(Leaf).collect()
    }

    /// The products.
    #[graphql(cache_control(max_age = 1))]
    async fn nodes(&self) -> Leaves<ProductNode> {
        self.all_nodes().collect()
    }

    /// Where this page lies in the list.
    #[graphql(cache_control(max_age = 1))]
    async fn page_info(&self) -> PageInfo<'_> {
        PageInfo::of(self)
    }
}

/// A product of a page.
#[derive(SimpleObject)]
pub struct ProductEdge {
    /// Its place in the list, for `after` and `before`.
    #[graphql(cache_control(max_age = 1))]
    cursor: String,
    /// The product.
    #[graphql(cache_control(max_age = 1))]
    node: ProductNode,
}

impl ProductEdge {
    pub(super) fn new(cursor: String, node: ProductNode) -> Self {
        Self { cursor, node }
    }
}

impl LeafObject for ProductEdge {
    type Shape<'a> = &'a Self;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        match field.name.node.as_str() {
            "cursor" => out.plain(&self.cursor),
            "node" => self.node.write(&field.selection_set.node, out),
            _ => false,
        }
    }
}

impl LeafObject for ProductPage {
    type Shape<'a> = &'a Self;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        let inside = &field.selection_set.node;
        match field.name.node.as_str() {
            "edges" => out.each(self.all_edges(), |out, edge| out.object(&edge, inside)),
            "nodes" => out.each(self.all_nodes(), |out, node| node.write(inside, out)),
            "pageInfo" => out.object(&Ends(self), inside),
            _ => false,
        }
    }
}

/// The ends of a page, as far as the page itself tells.
struct Ends<'p>(&'p ProductPage);

impl<'a> From<&'a Ends<'_>> for PageInfo<'a> {
    fn from(ends: &'a Ends<'_>) -> Self {
        Self::of(ends.0)
    }
}

impl LeafObject for Ends<'_> {
    type Shape<'a>
        = PageInfo<'a>
    where
        Self: 'a;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        let mut known =
            |end| self.0.is_known_beyond(end).is_some_and(|is_beyond| out.value(&is_beyond));
        match field.name.node.as_str() {
            "hasNextPage" => known(End::After),
            "hasPreviousPage" => known(End::Before),
            "startCursor" => out.plain_or_null(self.0.start_cursor()),
            "endCursor" => out.plain_or_null(self.0.end_cursor()),
            _ => false,
        }
    }
}

#[async_trait]
impl PageEnds for ProductPage {
    async fn has_next(&self) -> Result<bool, Error> {
        self.is_beyond(End::After).await
    }

    async fn has_previous(&self) -> Result<bool, Error> {
        self.is_beyond(End::Before).await
    }

    fn start_cursor(&self) -> Option<String> {
        self.cursor(self.page.entries.first())
    }

    fn end_cursor(&self) -> Option<String> {
        self.cursor(self.page.entries.last())
    }
}
