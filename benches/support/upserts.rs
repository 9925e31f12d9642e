//! Writing batches of products, beside writing their cards alone: what the read models cost.

use vitrina::catalog::model::MAX_BATCH;

use super::figures::{Round, Variant, float, median, print_table, ratios, thousands};
use super::stand::{Stand, time_for};
use super::writes::{Change, WRITERS, Way};
use super::{Result, Settings};

/// Measures and prints.
pub(crate) async fn run(stand: &mut Stand, settings: &Settings) -> Result<()> {
    let base = stand.hot_size;
    // Both are filled: the products, and the cards.
    let within = time_for(2 * base)?;
    stand.worker.order(&format!("prepare {base}"), within).await?;
    for change in Change::BOTH {
        let mut variants = Way::ALL.map(|way| Variant::new(name(way), 0));
        for _ in 0..settings.rounds {
            for (way, variant) in Way::ALL.into_iter().zip(&mut variants) {
                let millis = settings.round.as_millis();
                let order = format!("write {} {} {millis}", way.name(), change.name());
                variant.rounds.push(stand.worker.measured(&order, settings.round).await?);
            }
        }
        print(stand, settings, change, base, &variants);
        let repeats: u64 = stand.worker.order("repeats", within).await?.parse()?;
        if repeats > 0 {
            println!("Batches that failed and were written again: {repeats}\n");
        }
    }
    Ok(())
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Product => "products: card, rows of both read models, counts",
        Way::Card => "cards alone, read before they are written",
        Way::BlindCard => "cards alone, only written",
    }
}

fn print(
    stand: &Stand,
    settings: &Settings,
    change: Change,
    base: u64,
    variants: &[Variant; Way::ALL.len()],
) {
    let columns = ["", "products/s", "CPU µs/product", "p50 ms", "p95 ms", "slower", "more CPU"];
    let mut rows = vec![columns.map(str::to_owned).to_vec()];
    let batch = float(MAX_BATCH as u64);
    let products = &variants[Way::Product as usize];
    for (way, variant) in Way::ALL.into_iter().zip(variants) {
        let of = |figure: fn(&Round) -> f64| median(variant.rounds.iter().map(figure).collect());
        let (slower, more) = match way {
            Way::Product => (String::new(), String::new()),
            Way::Card | Way::BlindCard => (
                ratios(products, variant, |round| 1.0 / round.load.per_second()).to_string(),
                ratios(products, variant, Round::cpu_micros).to_string(),
            ),
        };
        rows.push(vec![
            variant.name.clone(),
            thousands(of(|round| round.load.per_second()) * batch),
            format!("{:.1}", of(Round::cpu_micros) / batch),
            format!("{:.1}", of(|round| round.load.p50())),
            format!("{:.1}", of(|round| round.load.p95())),
            slower,
            more,
        ]);
    }
    let what = match change {
        Change::New => "new products",
        Change::Price => "new prices of products that are there",
    };
    let (rounds, seconds) = (settings.rounds, settings.round.as_secs_f64());
    let heading = format!(
        "{}, {what}, {} there at the start, {WRITERS} writers with batches of {MAX_BATCH} (median of \
         {rounds} rounds of {seconds} s; the last two columns: products by this, min–max)",
        stand.name,
        thousands(float(base))
    );
    print_table(&heading, &rows);
}
