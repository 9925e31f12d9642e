//! Connections: pages of a list as Relay has them.

use std::borrow::Cow;

use async_graphql::parser::types::Field;
use async_graphql::{Object, Result, SimpleObject, TypeName};
use async_trait::async_trait;

use super::json::Json;
use super::leaf::{AtOnce, Leaf, LeafObject, Leaves};
use crate::error::Error;
use crate::page::ListCursors;

/// What is known of the ends of a page when somebody asks.
#[async_trait]
pub trait PageEnds: Send + Sync {
    /// Whether there is more after the page.
    async fn has_next(&self) -> Result<bool, Error>;
    /// Whether there is more before the page.
    async fn has_previous(&self) -> Result<bool, Error>;
    /// The cursor of the first entry.
    fn start_cursor(&self) -> Option<String>;
    /// The cursor of the last entry.
    fn end_cursor(&self) -> Option<String>;
}

/// Where a page lies in its list.
pub struct PageInfo<'a>(&'a dyn PageEnds);

impl<'a> PageInfo<'a> {
    /// Of a page whose ends are these.
    pub fn of(ends: &'a dyn PageEnds) -> Self {
        Self(ends)
    }
}

/// Where a page lies in its list.
#[Object]
impl PageInfo<'_> {
    /// Whether there is more after this page.
    #[graphql(cache_control(max_age = 1))]
    async fn has_next_page(&self) -> Result<bool> {
        Ok(self.0.has_next().await?)
    }

    /// Whether there is more before this page.
    #[graphql(cache_control(max_age = 1))]
    async fn has_previous_page(&self) -> Result<bool> {
        Ok(self.0.has_previous().await?)
    }

    /// The cursor of the first entry; null if there is none.
    #[graphql(cache_control(max_age = 1))]
    async fn start_cursor(&self) -> Option<String> {
        self.0.start_cursor()
    }

    /// The cursor of the last entry; null if there is none.
    #[graphql(cache_control(max_age = 1))]
    async fn end_cursor(&self) -> Option<String> {
        self.0.end_cursor()
    }
}

/// What lists are made of.
pub trait ListNode: AtOnce + Clone + 'static {
    /// The name of its edge in the schema.
    const EDGE: &'static str;
    /// The name of a page of it in the schema.
    const CONNECTION: &'static str;
}

/// An entry of a page.
#[derive(SimpleObject)]
#[graphql(name_type)]
pub struct Edge<N: ListNode> {
    /// Its place in the list, for `after`.
    cursor: String,
    /// The entry.
    node: N,
}

impl<N: ListNode> TypeName for Edge<N> {
    fn type_name() -> Cow<'static, str> {
        N::EDGE.into()
    }
}

impl<N: ListNode> LeafObject for Edge<N> {
    type Shape<'a> = &'a Self;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        match field.name.node.as_str() {
            "cursor" => out.plain(&self.cursor),
            "node" => self.node.write(&field.selection_set.node, out),
            _ => false,
        }
    }
}

/// A page of a list, in an answer.
pub type Connection<N> = Leaf<Box<Page<N>>>;

/// A page of a list. Cursors are made when somebody asks for them: a signature for each entry takes
/// as long as to write it.
pub struct Page<N: ListNode> {
    cursors: ListCursors,
    /// The entries, with their places in the list.
    entries: Vec<(Vec<u8>, N)>,
    has_previous: bool,
    has_next: bool,
    /// Where it goes on if that is further than the last entry.
    next: Option<Vec<u8>>,
}

impl<N: ListNode> Page<N> {
    /// A page of these entries. Where it goes on is the place of the last one, or `next` where that
    /// lies further on.
    pub fn connection(
        cursors: ListCursors,
        entries: Vec<(Vec<u8>, N)>,
        (has_previous, has_next): (bool, bool),
        next: Option<Vec<u8>>,
    ) -> Connection<N> {
        Leaf(Box::new(Self { cursors, entries, has_previous, has_next, next }))
    }

    fn all_edges(&self) -> Vec<Leaf<Box<Edge<N>>>> {
        let edge = |(place, node): &(Vec<u8>, N)| {
            Leaf(Box::new(Edge { cursor: self.cursors.seal(place), node: node.clone() }))
        };
        self.entries.iter().map(edge).collect()
    }

    fn first(&self) -> Option<String> {
        self.entries.first().map(|(place, _)| self.cursors.seal(place))
    }

    fn last(&self) -> Option<String> {
        let last = || self.entries.last().map(|(place, _)| place);
        self.next.as_ref().or_else(last).map(|place| self.cursors.seal(place))
    }
}

/// A page of a list.
#[Object(name_type)]
impl<N: ListNode> Page<N> {
    /// The entries with their cursors.
    async fn edges(&self) -> Leaves<Leaf<Box<Edge<N>>>> {
        Leaves(self.all_edges())
    }

    /// The entries.
    async fn nodes(&self) -> Leaves<N> {
        self.entries.iter().map(|(_, node)| node.clone()).collect()
    }

    /// Where this page lies in the list.
    async fn page_info(&self) -> PageInfo<'_> {
        PageInfo(self)
    }
}

impl<N: ListNode> TypeName for Page<N> {
    fn type_name() -> Cow<'static, str> {
        N::CONNECTION.into()
    }
}

impl<N: ListNode> LeafObject for Page<N> {
    type Shape<'a> = &'a Self;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        let inside = &field.selection_set.node;
        match field.name.node.as_str() {
            "edges" => out.list(&self.all_edges(), inside),
            "nodes" => out.list(self.entries.iter().map(|(_, node)| node), inside),
            "pageInfo" => out.object(&Ends(self), inside),
            _ => false,
        }
    }
}

#[async_trait]
impl<N: ListNode> PageEnds for Page<N> {
    async fn has_next(&self) -> Result<bool, Error> {
        Ok(self.has_next)
    }

    async fn has_previous(&self) -> Result<bool, Error> {
        Ok(self.has_previous)
    }

    fn start_cursor(&self) -> Option<String> {
        self.first()
    }

    fn end_cursor(&self) -> Option<String> {
        self.last()
    }
}

/// The ends of a page that are known already.
struct Ends<'p, N: ListNode>(&'p Page<N>);

impl<'a, N: ListNode> From<&'a Ends<'_, N>> for PageInfo<'a> {
    fn from(ends: &'a Ends<'_, N>) -> Self {
        Self(ends.0)
    }
}

impl<N: ListNode> LeafObject for Ends<'_, N> {
    type Shape<'a>
        = PageInfo<'a>
    where
        Self: 'a;

    fn write(&self, field: &Field, out: &mut Json) -> bool {
        match field.name.node.as_str() {
            "hasNextPage" => out.value(&self.0.has_next),
            "hasPreviousPage" => out.value(&self.0.has_previous),
            "startCursor" => out.plain_or_null(self.0.first()),
            "endCursor" => out.plain_or_null(self.0.last()),
            _ => false,
        }
    }
}
