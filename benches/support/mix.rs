//! What shoppers do, each kind of it alone and then all of it at once: beside bare handlers that
//! give the same bytes and, on Cassandra, beside a loop that only runs the prepared statements.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use vitrina::demo::DEFAULT_PRODUCTS;
use vitrina::server::Role as ViewerRole;

use super::carts::{self, VISITORS, guests};
use super::checkout::{BUY_ANSWER, CARTS_A_SECOND, PAGE_ANSWER, buy_body, page_body};
use super::checkout_worker::buyer;
use super::figures::Variant;
use super::http;
use super::lanes::Lane;
use super::mix_tables::print;
use super::mixed_worker::{
    BARE_ADD, BARE_CARD, BARE_CHECKOUT, BARE_HISTORY, BARE_PAGE, BARE_READS, BARE_STOCKED, regular,
};
use super::requests::{Kind, Requests};
use super::rival::{Rival, RivalLane};
use super::roles::{SHOP, secret, token};
use super::stand::time_for;
use super::window::{ZONE, card_bodies, card_requests, page_bodies, page_requests};
use super::worker::{Role, Worker, folder, schedule};
use super::{Result, Settings};

/// Products that are hot …
const HOT: usize = 20;
/// … and how many of a hundred cards are theirs.
const HOT_PERCENT: usize = 90;
/// Customers who look at their orders: more than connections, so that nobody asks twice at once.
const REGULARS: u64 = 64;
/// Carts that are filled for a second of the mix, of which few requests are checkouts.
const MIX_CARTS_A_SECOND: u128 = 1_000;
/// How long filling anything of this may take.
const FILL_WITHIN: Duration = Duration::from_secs(300);

/// Of a hundred requests of the mix: cards of what is hot …
const HOT_WEIGHT: usize = 45;
/// … any cards, with their stock …
const CARD_WEIGHT: usize = 20;
/// … pages of categories …
const PAGE_WEIGHT: usize = 27;
/// … changes of carts …
const ADD_WEIGHT: usize = 5;
/// … looks at one's orders …
const HISTORY_WEIGHT: usize = 2;
/// … and checkouts.
const CHECKOUT_WEIGHT: usize = 1;

/// The parts of the mix, in the order of its requests. The first three are browsing.
pub(super) const PARTS: [(&str, usize); 6] = [
    ("hot card", HOT_WEIGHT),
    ("card with stock", CARD_WEIGHT),
    ("category page with stock", PAGE_WEIGHT),
    ("cart add", ADD_WEIGHT),
    ("history", HISTORY_WEIGHT),
    ("checkout", CHECKOUT_WEIGHT),
];
/// Where the shop answers to each part …
const SHOP_PATHS: [&str; 6] = [SHOP; 6];
/// … and where the bare handlers do.
const BARE_PATHS: [&str; 6] =
    [BARE_CARD, BARE_STOCKED, BARE_PAGE, BARE_ADD, BARE_HISTORY, BARE_CHECKOUT];
/// How many of them are browsing.
const BROWSING: usize = 3;

/// A row of the table.
pub(super) struct Row {
    pub(super) lane: Lane,
    /// Whether the lane is of bare handlers.
    pub(super) is_bare: bool,
    /// The loop that runs the statements of the same reads.
    pub(super) driver: Option<Driver>,
    /// The same load on a server of another make.
    pub(super) rival: Option<RivalLane>,
    /// Carts that are filled before each second of a round.
    carts_a_second: u128,
}

/// A loop that only runs prepared statements.
pub(super) struct Driver {
    pub(super) variant: Variant,
    reads: Reads,
}

/// What such a loop runs.
#[derive(Clone, Copy)]
enum Reads {
    Card,
    CardAndStock,
    CartAdd,
}

impl Driver {
    fn new(reads: Reads, place: usize) -> Self {
        let name = match reads {
            Reads::Card => "the driver alone: card",
            Reads::CardAndStock => "the driver alone: card, then its stock",
            Reads::CartAdd => "the driver alone: read of the cart's log and insert",
        };
        Self { variant: Variant::new(name, place), reads }
    }
}

/// The workers that run the loops, where there is a cluster.
struct Drivers {
    cards: Worker,
    carts: Worker,
}

impl Drivers {
    async fn round(
        &mut self,
        driver: &mut Driver,
        at_once: usize,
        (time, counts): (Duration, bool),
    ) -> Result<()> {
        let millis = time.as_millis();
        let (worker, order) = match driver.reads {
            Reads::Card => (&mut self.cards, format!("{millis} {at_once}")),
            Reads::CardAndStock => (&mut self.cards, format!("{millis} {at_once} stock")),
            Reads::CartAdd => (&mut self.carts, format!("add {at_once} {millis}")),
        };
        let round = worker.measured(&order, time).await?;
        if counts {
            driver.variant.rounds.push(round);
        }
        Ok(())
    }
}

/// What is asked for, ready to be made into requests.
#[derive(Clone)]
struct Shoppers {
    cards: Vec<String>,
    stocked: Vec<String>,
    pages: Vec<String>,
    guests: Vec<String>,
    regulars: Vec<(String, String)>,
}

impl Shoppers {
    /// Requests of one part to a path; `name` tells its changes of carts from all others.
    fn requests(&self, part: usize, path: &str, name: &str) -> Result<Requests> {
        Ok(match part {
            0 => Requests::of(&self.cards, Kind::Card.answer(), path).skewed(HOT, HOT_PERCENT),
            1 => card_requests(&self.stocked, path),
            2 => page_requests(&self.pages, path),
            3 => carts::adds(&self.guests, path, name),
            4 => Requests::of_callers(&self.regulars, PAGE_ANSWER, path, 1),
            // Checkouts are renewed before each round; a bare handler takes any as often as it
            // comes.
            _ if path == SHOP => Requests::once(&[], BUY_ANSWER, path),
            _ => Requests::of_callers(&buyers(0..1)?, BUY_ANSWER, path, 1),
        })
    }

    /// The first so many parts in one load.
    fn mix(&self, parts: usize, paths: [&str; 6], name: &str) -> Result<Requests> {
        let weighed = PARTS.iter().enumerate().take(parts);
        let weighed = weighed
            .map(|(part, (_, weight))| Ok((*weight, self.requests(part, paths[part], name)?)));
        Ok(Requests::mixed(weighed.collect::<Result<_>>()?))
    }
}

/// Buyers of carts, with what they send.
fn buyers(carts: std::ops::Range<u64>) -> Result<Vec<(String, String)>> {
    let body = buy_body(ZONE);
    let caller = |cart| Ok((token(&buyer(cart), ViewerRole::Customer)?, body.clone()));
    carts.map(caller).collect()
}

/// The shop that is measured.
struct Stage<'a> {
    worker: Worker,
    drivers: Option<Drivers>,
    rival: Option<(Rival, Shoppers)>,
    bare: SocketAddr,
    shoppers: Shoppers,
    settings: &'a Settings,
    rows: Vec<Row>,
    /// The next cart that is filled and bought.
    next_cart: u64,
}

impl<'a> Stage<'a> {
    /// A filled shop with its visitors.
    async fn open(store: &str, folder: &Path, settings: &'a Settings) -> Result<Self> {
        let mut worker = Worker::start(Role::Mixed, store, folder).await?;
        let products = DEFAULT_PRODUCTS;
        worker.order(&format!("plenty {products}"), FILL_WITHIN).await?;
        worker.order(&format!("fill {products}"), time_for(products)?).await?;
        worker.order(&format!("histories {REGULARS}"), FILL_WITHIN).await?;
        // The first is for the answer of the bare handler.
        worker.order(&format!("carts 0 1 {products}"), FILL_WITHIN).await?;
        let bare = worker.order(&format!("bare {products}"), FILL_WITHIN).await?.parse()?;
        let shop = worker.address(0)?;
        let mut connections = http::connect(shop, settings.connections).await?;
        let regular =
            |number| Ok((token(&regular(number), ViewerRole::Customer)?, page_body(None)));
        let shoppers = Shoppers {
            cards: Kind::Card.bodies(),
            stocked: card_bodies(products),
            pages: page_bodies(shop).await?,
            guests: guests(&mut connections).await?,
            regulars: (0..REGULARS).map(regular).collect::<Result<_>>()?,
        };
        let drivers = if store.starts_with("cassandra") {
            let cards = Worker::start(Role::Drive, store, folder).await?;
            Some(Drivers { cards, carts: Worker::start(Role::DriveCarts, store, folder).await? })
        } else {
            None
        };
        let bare = (Ipv4Addr::LOCALHOST, bare).into();
        let rival = match Rival::start(store, &secret(), folder)? {
            // Its cursors are others, and it knows customers only.
            Some(rival) => {
                let pages = page_bodies(rival.address(false)).await?;
                let guest = |number| token(&format!("rival-{number}"), ViewerRole::Customer);
                let guests = (0..VISITORS).map(guest).collect::<Result<_>>()?;
                Some((rival, Shoppers { pages, guests, ..shoppers.clone() }))
            }
            None => None,
        };
        let (rows, next_cart) = (Vec::new(), 1);
        Ok(Self { worker, drivers, rival, bare, shoppers, settings, rows, next_cart })
    }

    /// A row of bare handlers; its place.
    async fn bare(&mut self, name: &str, requests: Requests) -> Result<usize> {
        let place = self.rows.len();
        let name = format!("bare handler: {name}");
        self.add((name, place), (self.bare, requests), (None, 0)).await?;
        Ok(place)
    }

    /// A row beside that of bare handlers at `base`.
    async fn add(
        &mut self,
        (name, base): (String, usize),
        (address, requests): (SocketAddr, Requests),
        (reads, carts_a_second): (Option<Reads>, u128),
    ) -> Result<()> {
        let (all, place) = (self.settings.connections, self.rows.len());
        let lane = Lane::open(Variant::new(name, base), address, requests, (all, all)).await?;
        let reads = reads.filter(|_| self.drivers.is_some());
        let driver = reads.map(|reads| Driver::new(reads, place));
        let is_bare = base == place;
        self.rows.push(Row { lane, is_bare, driver, rival: None, carts_a_second });
        Ok(())
    }

    /// A server of another make beside the last row, where there is one that can do the same.
    async fn add_rival(&mut self, part: usize, keeps: bool) -> Result<()> {
        let Some((rival, shoppers)) = &self.rival else { return Ok(()) };
        let place = self.rows.len() - 1;
        if PARTS[part].0 != "checkout"
            && let Some(row) = self.rows.last_mut()
        {
            let requests = shoppers.requests(part, SHOP, "rival")?;
            let (name, all) = (row.lane.variant.name.clone(), self.settings.connections);
            let address = rival.address(keeps);
            row.rival = Some(RivalLane::open((&name, place), address, requests, all).await?);
        }
        Ok(())
    }

    /// All rows, each beside what it is compared with.
    async fn set_up(&mut self) -> Result<()> {
        let (cached, plain) = (self.worker.address(0)?, self.worker.address(1)?);
        let names = PARTS.map(|(name, _)| name);
        let reads =
            [Some(Reads::Card), Some(Reads::CardAndStock), None, Some(Reads::CartAdd), None, None];
        for (part, name) in names.into_iter().enumerate() {
            let bare = self.shoppers.requests(part, BARE_PATHS[part], "")?;
            let base = self.bare(name, bare).await?;
            let requests = self.shoppers.requests(part, SHOP, "alone")?;
            let carts = if name == "checkout" { CARTS_A_SECOND } else { 0 };
            let named = (name.to_owned(), base);
            self.add(named, (cached, requests), (reads[part], carts)).await?;
            self.add_rival(part, true).await?;
            if part == 1 || part == 2 {
                let requests = self.shoppers.requests(part, SHOP, "")?;
                let named = (format!("{name}, nothing cached"), base);
                self.add(named, (plain, requests), (reads[part], 0)).await?;
                self.add_rival(part, false).await?;
            }
            if part == 1 && self.drivers.is_some() {
                let requests = self.shoppers.requests(part, BARE_READS, "")?;
                let named = ("card with stock, read by a bare handler".to_owned(), base);
                self.add(named, (self.bare, requests), (None, 0)).await?;
            }
        }
        for (name, parts, carts) in
            [(BROWSING_NAME, BROWSING, 0), (MIX_NAME, PARTS.len(), MIX_CARTS_A_SECOND)]
        {
            let bare = self.shoppers.mix(parts, BARE_PATHS, "")?;
            let base = self.bare(name, bare).await?;
            let requests = self.shoppers.mix(parts, SHOP_PATHS, "mixed")?;
            self.add((name.to_owned(), base), (cached, requests), (None, carts)).await?;
        }
        Ok(())
    }

    /// A round of every row.
    async fn round(&mut self, (time, counts): (Duration, bool)) -> Result<()> {
        for row in &mut self.rows {
            if let (Some(driver), Some(drivers)) = (&mut row.driver, &mut self.drivers) {
                drivers.round(driver, self.settings.connections, (time, counts)).await?;
            }
            if row.carts_a_second > 0 {
                let count = u64::try_from(time.as_millis() * row.carts_a_second / 1_000)?;
                let carts = self.next_cart..self.next_cart + count;
                let order = format!("carts {} {} {DEFAULT_PRODUCTS}", carts.start, carts.end);
                self.worker.order(&order, FILL_WITHIN).await?;
                self.next_cart = carts.end;
                row.lane.requests.renew(&buyers(carts)?, SHOP);
            }
            row.lane.round(&mut self.worker, (time, counts)).await?;
            if let (Some(lane), Some((rival, _))) = (&mut row.rival, &self.rival) {
                lane.round(rival, (time, counts)).await?;
            }
        }
        Ok(())
    }
}

/// The row of everybody who looks around.
pub(super) const BROWSING_NAME: &str = "the browsing of the mix";
/// The row of everything.
pub(super) const MIX_NAME: &str = "the mix";

/// Measures and prints.
pub(crate) async fn run(store: &str, settings: &Settings) -> Result<()> {
    let folder = folder()?;
    let mut stage = Stage::open(store, folder.path(), settings).await?;
    stage.set_up().await?;
    for round in schedule(settings) {
        stage.round(round).await?;
    }
    let knows_database = stage.worker.knows_database();
    print(store, settings, (&stage.rows, knows_database))
}
