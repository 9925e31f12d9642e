//! Checkouts, of many products and of one, and pages of a history.

use std::time::Duration;

use serde_json::{Value, json};
use vitrina::server::Role as ViewerRole;

use super::carts::{Lane, print_targets, rounds};
use super::cassandra::kind;
use super::connection::Connection;
use super::figures::{Ratios, Round, Variant, float, print_table, ratios, thousands};
use super::requests::{Requests, post};
use super::roles::{SHOP, token};
use super::worker::{Role, Worker, folder, schedule};
use super::{Result, Settings};

/// Buyers of one product.
const HOT_BUYERS: usize = 1_000;
/// Carts that are filled for a second of a round: more than are bought.
pub(super) const CARTS_A_SECOND: u128 = 4_000;
/// How long filling them, or the shop, may take.
const FILL_WITHIN: Duration = Duration::from_secs(900);
/// Orders of a short history …
const FEW: u64 = 10;
/// … and of a long one.
const MANY: u64 = 10_000;
/// The page that is compared with the first.
const FAR_PAGE: usize = 100;

/// What the 95th percentile of a page may be on the embedded store, in milliseconds.
const P95_TARGET: f64 = 12.0;
/// Most partitions of a page.
const PARTITIONS_TARGET: f64 = 3.0;
/// How much more the hundredth page may take than the first.
const FAR_TARGET: f64 = 1.2;

/// A page of a history.
const PAGE: &str = "query($after: String) { orders(first: 20, after: $after) { \
                    nodes { id status createdAt total { amount } lines { productId quantity } } \
                    pageInfo { hasNextPage endCursor } } }";
/// How its answer begins.
pub(super) const PAGE_ANSWER: &[u8] = br#"{"data":{"orders":{"nodes":[{"id":""#;

/// Buying what is in the cart.
const BUY: &str = "mutation Buy($input: CheckoutInput!) { checkout(input: $input) { \
                   order { id status total { amount } paymentDueAt } userErrors { code } } }";
/// How the answer begins.
pub(super) const BUY_ANSWER: &[u8] = br#"{"data":{"checkout":{"order":{"id":""#;

/// The body of a request that buys what is in the caller's cart from a zone.
pub(super) fn buy_body(zone: &str) -> String {
    let address = json!({ "city": "Москва", "street": "Тверская, 1" });
    let input = json!({ "idempotencyKey": "bench", "geoZone": zone, "paymentMethod": "card",
        "shippingAddress": address });
    json!({ "query": BUY, "variables": { "input": input } }).to_string()
}

/// A worker with a filled shop.
async fn open(store: &str, settings: &Settings, folder: &std::path::Path) -> Result<Worker> {
    let mut shop = Worker::start(Role::Checkout, store, folder).await?;
    shop.order(&format!("fill {}", settings.products), FILL_WITHIN).await?;
    Ok(shop)
}

/// A round of checkouts; with how many calls of the store each took, and how many failed.
type Bought = (Round, f64, u64);

async fn buy(
    shop: &mut Worker,
    way: &str,
    buyers: usize,
    products: u64,
    time: Duration,
) -> Result<Bought> {
    let carts = time.as_millis() * CARTS_A_SECOND / 1_000;
    shop.order(&format!("carts {carts} {products}"), FILL_WITHIN).await?;
    let calls = async |shop: &mut Worker| -> Result<f64> {
        Ok(shop.order("calls", FILL_WITHIN).await?.parse()?)
    };
    let before = calls(shop).await?;
    let round = shop.measured(&format!("buy {way} {buyers} {}", time.as_millis()), time).await?;
    // What is done after the answer is part of it.
    shop.order("rest", FILL_WITHIN).await?;
    let each = (calls(shop).await? - before) / float(round.load.done.max(1));
    let failed = shop.order("errors", FILL_WITHIN).await?.parse()?;
    Ok((round, each, failed))
}

/// Prints rounds of several ways to buy.
fn print_ways(heading: &str, ways: &[(&str, Vec<Bought>)]) {
    let columns = [
        "",
        "checkouts/s",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "CPU µs each",
        "store calls each",
        "failed",
    ];
    let mut rows = vec![columns.map(str::to_owned).to_vec()];
    for (name, measured) in ways {
        let figure = |of: fn(&Round) -> f64| {
            Ratios::new(measured.iter().map(|(round, ..)| of(round)).collect()).median()
        };
        let calls = Ratios::new(measured.iter().map(|(_, calls, _)| *calls).collect()).median();
        let failed: u64 = measured.iter().map(|(.., failed)| failed).sum();
        rows.push(vec![
            (*name).to_owned(),
            thousands(figure(|round| round.load.per_second())),
            format!("{:.1}", figure(|round| round.load.p50())),
            format!("{:.1}", figure(|round| round.load.p95())),
            format!("{:.1}", figure(|round| round.load.p99())),
            format!("{:.0}", figure(Round::cpu_micros)),
            format!("{calls:.1}"),
            failed.to_string(),
        ]);
    }
    print_table(heading, &rows);
}

/// Measures checkouts of carts with several products.
pub(crate) async fn spread(store: &str, settings: &Settings) -> Result<()> {
    let folder = folder()?;
    let mut shop = open(store, settings, folder.path()).await?;
    let mut ways = Vec::new();
    let (few, all) = ("1 buyer", format!("{} buyers", settings.connections));
    for (name, buyers) in [(few, 1), (all.as_str(), settings.connections)] {
        let mut measured = Vec::new();
        for (time, counts) in schedule(settings) {
            let round = buy(&mut shop, "combined", buyers, settings.products, time).await?;
            if counts {
                measured.push(round);
            }
        }
        ways.push((name, measured));
    }
    let heading = format!(
        "{}, checkouts of 3 lines, {} products (median of {} rounds of {} s)",
        kind(store),
        thousands(float(settings.products)),
        settings.rounds,
        settings.round.as_secs_f64()
    );
    print_ways(&heading, &ways);
    Ok(())
}

/// Measures checkouts of one product.
pub(crate) async fn hot(store: &str, settings: &Settings) -> Result<()> {
    let folder = folder()?;
    let mut shop = open(store, settings, folder.path()).await?;
    let names = ["a conditional write for each", "combined"];
    let mut ways = names.map(|name| (name, Vec::new()));
    for (time, counts) in schedule(settings) {
        for ((_, measured), way) in ways.iter_mut().zip(["apart", "combined"]) {
            let round = buy(&mut shop, way, HOT_BUYERS, 1, time).await?;
            if counts {
                measured.push(round);
            }
        }
    }
    let heading = format!(
        "{}, {} buyers of one product, the whole checkout (median of {} rounds of {} s)",
        kind(store),
        thousands(float(HOT_BUYERS as u64)),
        settings.rounds,
        settings.round.as_secs_f64()
    );
    print_ways(&heading, &ways);
    Ok(())
}

/// The body of a request for it.
pub(super) fn page_body(after: Option<&str>) -> String {
    json!({ "query": PAGE, "variables": { "after": after } }).to_string()
}

/// The cursor that the hundredth page of a history begins after, and the partitions that its first
/// page and that one take.
async fn walk(connection: &mut Connection, user: &str) -> Result<(Option<String>, [f64; 2])> {
    // Staff are told what their answers took; their own orders are those of the customer of the
    // same name.
    let token = token(user, ViewerRole::Staff)?;
    let (mut after, mut partitions) = (None, [0.0; 2]);
    for page in 1..=FAR_PAGE {
        let request = post(SHOP, &page_body(after.as_deref()), Some(&token));
        let (status, answer) = connection.send(&request).await?;
        let read: Value = serde_json::from_slice(answer)?;
        let taken = read["extensions"]["reads"]["pages"][0]["partitions"].as_f64();
        let taken = taken.ok_or_else(|| format!("no page: status {status}, {read}"))?;
        partitions[usize::from(page > 1)] = taken;
        let info = &read["data"]["orders"]["pageInfo"];
        if info["hasNextPage"] != true || page == FAR_PAGE {
            break;
        }
        after = info["endCursor"].as_str().map(str::to_owned);
    }
    Ok((after, partitions))
}

/// Measures pages of histories.
pub(crate) async fn history(store: &str, settings: &Settings) -> Result<()> {
    let folder = folder()?;
    let mut shop = open(store, settings, folder.path()).await?;
    for (user, orders) in [("few", FEW), ("many", MANY)] {
        shop.order(&format!("history {user} {orders}"), FILL_WITHIN).await?;
    }
    let mut connection = Connection::open(shop.address(0)?).await?;
    let (_, [few, _]) = walk(&mut connection, "few").await?;
    let (far, [first, last]) = walk(&mut connection, "many").await?;
    let requests = |user: &str, after: Option<&str>| -> Result<Requests> {
        let callers = [(token(user, ViewerRole::Customer)?, page_body(after))];
        Ok(Requests::of_callers(&callers, PAGE_ANSWER, SHOP, 1))
    };
    let asked =
        [requests("few", None)?, requests("many", None)?, requests("many", far.as_deref())?];
    let names = [
        format!("first page, {FEW} orders"),
        format!("first page, {} orders", thousands(float(MANY))),
        format!("page {FAR_PAGE}, {} orders", thousands(float(MANY))),
    ];
    let lane = |place: usize, base: usize| {
        Lane::open((names[place].clone(), base), (&shop, 0), &asked[place], settings)
    };
    let lanes = [lane(0, 0).await?, lane(1, 0).await?, lane(2, 1).await?];
    let variants = rounds(lanes, settings).await?;
    let load = settings.describe(settings.connections);
    super::figures::print_variants(
        &format!("{}, orders(first: 20) over twelve months ({load})", kind(store)),
        &variants,
    );
    let p95 = |variant: &Variant| {
        let figures = variant.rounds.iter().map(|round| round.load.p95()).collect();
        (format!("{}: p95 ms", variant.name), Ratios::new(figures), P95_TARGET)
    };
    let partitions = |name: &str, taken: f64| {
        (format!("{name}: partitions"), Ratios::new(vec![taken]), PARTITIONS_TARGET)
    };
    let far = |what: &str, of: fn(&Round) -> f64| {
        (
            format!("page {FAR_PAGE} by the first: {what}"),
            ratios(&variants[2], &variants[1], of),
            FAR_TARGET,
        )
    };
    let mut targets = vec![
        partitions(&names[0], few),
        partitions(&names[1], first),
        partitions(&names[2], last),
        far("p50", |round| round.load.p50()),
        far("CPU", Round::cpu_micros),
    ];
    if !store.starts_with("cassandra") {
        targets.extend(variants.iter().map(p95));
    }
    print_targets(&targets);
    Ok(())
}
