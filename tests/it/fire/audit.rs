//! The books: what was sold against what was there, and every order once.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use serde_json::json;
use vitrina::server::Role;

use super::clients::Purchase;
use super::shop::{Front, PLENTY, ZONE, staff};
use crate::support::server::token;

/// How long what a dead process has left may take to be finished or undone.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);
/// Customers that are asked at once.
const AT_ONCE: usize = 8;

/// What must all be nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Harm {
    /// Units that were sold and not there.
    pub oversold: i64,
    /// Orders that a customer was told of and that are not there.
    pub lost: usize,
    /// Orders that nobody was told of, or that are there twice.
    pub doubled: usize,
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {} / {}", self.oversold, self.lost, self.doubled)
    }
}

/// What was ever stocked and sold in a shop.
#[derive(Default)]
pub struct Books {
    /// What there is little of; of all the rest there is plenty.
    scarce: BTreeMap<String, i64>,
    sold: BTreeMap<String, i64>,
}

impl Books {
    /// Notes a product of which there are only so many.
    pub fn stock(&mut self, product: &str, units: i64) {
        self.scarce.insert(product.to_owned(), units);
    }

    fn stocked(&self, product: &str) -> i64 {
        self.scarce.get(product).copied().unwrap_or(PLENTY)
    }

    /// Enters purchases, and compares them with what the shop says. Only what was bought since the
    /// last time is given.
    pub async fn audit(&mut self, front: &Front, purchases: &[Purchase]) -> Harm {
        let mut harm = Harm::default();
        let told: Vec<_> = stream::iter(purchases)
            .map(|purchase| async move { (purchase, orders_of(front, &purchase.user).await) })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for (purchase, orders) in told {
            let known = orders.iter().filter(|order| Some(*order) == purchase.order.as_ref());
            let known = known.count();
            harm.lost += usize::from(purchase.order.is_some() && known == 0);
            harm.doubled += orders.len() - known.min(1);
        }
        for purchase in purchases {
            let units = if purchase.order.is_some() { purchase.units } else { 0 };
            *self.sold.entry(purchase.product.clone()).or_default() += units;
        }
        for (product, units) in &self.sold {
            harm.oversold += (units - self.stocked(product)).max(0);
            self.await_stock(front, product, *units).await;
        }
        harm
    }

    /// Nobody holds units any more that nobody bought, once the sweeper has been there.
    async fn await_stock(&self, front: &Front, product: &str, sold: i64) {
        let stocked = self.stocked(product);
        let began = Instant::now();
        loop {
            let available = available(front, product).await;
            if available == stocked - sold {
                return;
            }
            let is_late = began.elapsed() > PATIENCE;
            assert!(!is_late, "{product}: {available} left, of {stocked} are sold {sold}");
            tokio::time::sleep(POLL).await;
        }
    }
}

async fn orders_of(front: &Front, user: &str) -> Vec<String> {
    let query = "{ orders(first: 10) { nodes { id } } }";
    let data = front.must(&token(user, Role::Customer), query, json!({})).await;
    let nodes = data["orders"]["nodes"].as_array().unwrap();
    nodes.iter().map(|node| node["id"].as_str().unwrap().to_owned()).collect()
}

async fn available(front: &Front, product: &str) -> i64 {
    let query = "query($id: ID!, $zone: String!) {
        product(id: $id) { stock(geoZone: $zone) { available } } }";
    let data = front.must(&staff(), query, json!({ "id": product, "zone": ZONE })).await;
    data["product"]["stock"]["available"].as_i64().unwrap()
}
