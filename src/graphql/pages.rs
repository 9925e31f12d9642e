//! Connections: pages of a list as Relay has them.

use std::borrow::Cow;

use async_graphql::{Object, OutputType, Result, SimpleObject, TypeName};
use async_trait::async_trait;

use crate::error::Error;

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

/// The ends of a page that are known already.
pub struct KnownEnds {
    has_next: bool,
    has_previous: bool,
    start: Option<String>,
    end: Option<String>,
}

#[async_trait]
impl PageEnds for KnownEnds {
    async fn has_next(&self) -> Result<bool, Error> {
        Ok(self.has_next)
    }

    async fn has_previous(&self) -> Result<bool, Error> {
        Ok(self.has_previous)
    }

    fn start_cursor(&self) -> Option<String> {
        self.start.clone()
    }

    fn end_cursor(&self) -> Option<String> {
        self.end.clone()
    }
}

/// Where a page lies in its list.
pub enum PageInfo<'a> {
    /// It is known already.
    Known(KnownEnds),
    /// It is found out when somebody asks.
    Asked(&'a dyn PageEnds),
}

impl PageInfo<'_> {
    fn ends(&self) -> &dyn PageEnds {
        match self {
            Self::Known(ends) => ends,
            Self::Asked(ends) => *ends,
        }
    }
}

/// Where a page lies in its list.
#[Object]
impl PageInfo<'_> {
    /// Whether there is more after this page.
    async fn has_next_page(&self) -> Result<bool> {
        Ok(self.ends().has_next().await?)
    }

    /// Whether there is more before this page.
    async fn has_previous_page(&self) -> Result<bool> {
        Ok(self.ends().has_previous().await?)
    }

    /// The cursor of the first entry; null if there is none.
    async fn start_cursor(&self) -> Option<String> {
        self.ends().start_cursor()
    }

    /// The cursor of the last entry; null if there is none.
    async fn end_cursor(&self) -> Option<String> {
        self.ends().end_cursor()
    }
}

/// What lists are made of.
pub trait ListNode: OutputType + Clone {
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

/// A page of a list.
#[derive(SimpleObject)]
#[graphql(name_type)]
pub struct Connection<N: ListNode> {
    /// The entries with their cursors.
    edges: Vec<Edge<N>>,
    /// The entries.
    nodes: Vec<N>,
    /// Where this page lies in the list.
    page_info: PageInfo<'static>,
}

impl<N: ListNode> TypeName for Connection<N> {
    fn type_name() -> Cow<'static, str> {
        N::CONNECTION.into()
    }
}

impl<N: ListNode> Connection<N> {
    /// A page of these entries. Where it goes on is the cursor of the last one, or `next` where
    /// that lies further on.
    pub fn new(
        entries: Vec<(String, N)>,
        has_previous: bool,
        has_next: bool,
        next: Option<String>,
    ) -> Self {
        let nodes = entries.iter().map(|(_, node)| node.clone()).collect();
        let start = entries.first().map(|(cursor, _)| cursor.clone());
        let end = next.or_else(|| entries.last().map(|(cursor, _)| cursor.clone()));
        let ends = KnownEnds { has_next, has_previous, start, end };
        let edges = entries.into_iter().map(|(cursor, node)| Edge { cursor, node }).collect();
        Self { edges, nodes, page_info: PageInfo::Known(ends) }
    }
}
