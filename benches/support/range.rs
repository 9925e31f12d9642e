//! A hundredth of a category's products, by price: how much of the store its pages touch.

use serde_json::json;
use vitrina::catalog::model::browse::amount;
use vitrina::catalog::model::buckets::{Layout, price_bucket};

use super::Result;
use super::figures::{float, print_table, thousands};
use super::listing::Reads;
use super::stand::{Inspector, PAGE, Stand, body};

/// One product of so many is in the range.
const SHARE: usize = 100;
/// Where ranges begin, in hundredths of the products in the order of their prices: both ends, and
/// between them.
const BEGINNINGS: [usize; 5] = [0, 10, 50, 90, 99];
/// The most partitions that a page of a narrow range may read.
const TARGET: u64 = 3;
/// Sizes below this are so small that a hundredth of them is not even a page.
const MIN_PRODUCTS: u64 = (SHARE * PAGE) as u64;

/// Measures and prints.
pub(crate) async fn run(stand: &mut Stand) -> Result<()> {
    let columns =
        ["", "prices", "products", "price buckets", "pages", "model", "partitions", "rows", "met"];
    let mut table = vec![columns.map(str::to_owned).to_vec()];
    let large = stand.sizes.iter().copied().skip(1).filter(|size| *size >= MIN_PRODUCTS);
    for products in large.collect::<Vec<_>>() {
        let shelf = stand.fill(products).await?;
        let prices = shelf.prices(products);
        let depth = Layout::for_products(products).price.level;
        let mut inspector = Inspector::open(stand.plain()?).await?;
        for beginning in BEGINNINGS {
            let from = prices.len() * beginning / SHARE;
            let (min, max) = (prices[from], prices[from + prices.len() / SHARE - 1]);
            let range = json!({ "min": amount(min).to_string(), "max": amount(max).to_string() });
            let mut reads = Reads::default();
            let (mut pages, mut found, mut after) = (0_u64, 0, None);
            loop {
                let body = body(&shelf.name, PAGE, after.as_deref(), &range);
                let page = inspector.look(&body).await?;
                reads.add(&page.told.ok_or("a page without its reads")?);
                pages += 1;
                found += page.len as u64;
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let is_met = reads.most_partitions() <= TARGET;
            let mut row = vec![
                format!("{} products, from {beginning} %", thousands(float(products))),
                format!("{}–{}", amount(min), amount(max)),
                thousands(float(found)),
                (price_bucket(max, depth) - price_bucket(min, depth) + 1).to_string(),
                pages.to_string(),
            ];
            row.extend(reads.cells());
            row.push(if is_met { "yes" } else { "NO" }.to_owned());
            table.push(row);
        }
    }
    println!();
    let heading = format!(
        "{}, all pages of {PAGE} of 1 % of a category's products by price (target: at most {TARGET} \
         partitions a page)",
        stand.name
    );
    print_table(&heading, &table);
    Ok(())
}
