//! A product card over HTTP on the embedded store.

use std::net::SocketAddr;

use super::connection::Connection;
use super::figures::{Variant, print_variants};
use super::http;
use super::requests::{Kind, PAGE_SIZE, Requests};
use super::roles::{BARE_CARD, BARE_PAGE, SHOP};
use super::worker::{Role, Worker, folder, schedule};
use super::{Result, Settings};

/// A variant with what its rounds need.
struct Lane {
    variant: Variant,
    requests: Requests,
    connections: Vec<Connection>,
}

impl Lane {
    async fn open(
        name: impl Into<String>,
        base: usize,
        requests: Requests,
        address: SocketAddr,
        settings: &Settings,
    ) -> Result<Self> {
        let connections = http::connect(address, settings.connections).await?;
        Ok(Self { variant: Variant::new(name, base), requests, connections })
    }
}

/// Measures and prints.
pub(crate) async fn run(settings: &Settings) -> Result<()> {
    let folder = folder()?;
    let store = format!("embedded:{}", folder.path().join("data").display());
    let worker = Worker::start(Role::Serve, &store, folder.path()).await?;
    let (shop, bare) = (worker.address(0)?, worker.address(1)?);
    let page = format!("products(ids: {PAGE_SIZE} ids)");
    let card = |path| Requests::new(Kind::Card, path);
    let pages = |path| Requests::new(Kind::Page, path);
    let fresh = Requests::new(Kind::FreshCard, SHOP);
    let hot = Requests::new(Kind::HotCard, SHOP);
    let mut lanes = [
        Lane::open("bare handler, bytes of a card", 0, card(BARE_CARD), bare, settings).await?,
        Lane::open("card, repeated document", 0, card(SHOP), shop, settings).await?,
        Lane::open("always the same card", 0, hot, shop, settings).await?,
        Lane::open("card, parse and check each time", 0, fresh, shop, settings).await?,
        Lane::open(format!("bare handler, bytes of {page}"), 4, pages(BARE_PAGE), bare, settings)
            .await?,
        Lane::open(format!("{page}, repeated"), 4, pages(SHOP), shop, settings).await?,
    ];
    for (time, counts) in schedule(settings) {
        for Lane { variant, requests, connections } in &mut lanes {
            let round = worker.requests(connections, requests, time).await?;
            if counts {
                variant.rounds.push(round);
            }
        }
    }
    let heading = format!(
        "Embedded store, 2,000 products, over HTTP ({})",
        settings.describe(settings.connections)
    );
    print_variants(&heading, &lanes.map(|lane| lane.variant));
    Ok(())
}
