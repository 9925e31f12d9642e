//! The tables and the plot of what shoppers do.

use super::cassandra::kind;
use super::figures::{Load, Ratios, Round, float, median, print_markdown, ratios, thousands};
use super::lanes::{COLUMNS, cells};
use super::mix::{BROWSING_NAME, MIX_NAME, PARTS, Row};
use super::plot::{self, Dots};
use super::{Result, Settings};

/// How many requests a second of browsing are to be answered, by those of the bare handlers.
const BROWSING_TARGET: f64 = 0.6;

/// Prints what was measured, and plots it if told where.
pub(super) fn print(
    store: &str,
    settings: &Settings,
    (rows, knows_database): (&[Row], bool),
) -> Result<()> {
    let load = settings.describe(settings.connections);
    let what = format!("{}, demo shop of 2,000 products", kind(store));
    print_rows(&format!("{what}: what shoppers do ({load})"), rows, knows_database);
    print_bases(&format!("{what}: what it is beside"), rows);
    print_parts(&format!("{what}: inside the mix"), rows);
    print_target(&format!("{what}: browsing"), rows);
    if rows.iter().any(|row| row.rival.is_some()) {
        print_rivals(&format!("{what}: beside a server of another make ({load})"), rows);
    }
    for row in rows {
        if let Some(failure) = &row.lane.first_failure {
            println!("The first failure of «{}»: {failure}\n", row.lane.variant.name);
        }
    }
    plot_rows(&what, store, rows)
}

fn columns(more: &[&str]) -> Vec<String> {
    let names = [""].into_iter().chain(COLUMNS).chain(more.iter().copied());
    names.map(str::to_owned).collect()
}

fn print_rows(heading: &str, rows: &[Row], knows_database: bool) {
    let has_drivers = rows.iter().any(|row| row.driver.is_some());
    let mut more = vec!["failed", "memory MB", "store calls/request", "CPU / bare handler"];
    more.extend(has_drivers.then_some("CPU / driver alone"));
    more.extend(knows_database.then_some("database CPU µs/request"));
    let mut table = vec![columns(&more)];
    for row in rows.iter().filter(|row| !row.is_bare) {
        let variant = &row.lane.variant;
        let mut line = vec![variant.name.clone()];
        line.extend(cells(variant));
        line.push(thousands(float(row.lane.failed)));
        line.push(format!("{:.0}", row.lane.memory()));
        line.push(format!("{:.2}", row.lane.calls()));
        let bare = &rows[variant.base].lane.variant;
        line.push(ratios(variant, bare, Round::cpu_micros).to_string());
        if has_drivers {
            let beside = row
                .driver
                .as_ref()
                .map(|driver| ratios(variant, &driver.variant, Round::cpu_micros).to_string());
            line.push(beside.unwrap_or_else(|| "–".to_owned()));
        }
        if knows_database {
            line.push(format!("{:.0}", variant.median(Round::database_micros)));
        }
        table.push(line);
    }
    print_markdown(heading, &table);
}

fn print_bases(heading: &str, rows: &[Row]) {
    let mut table = vec![columns(&[])];
    let bare = rows.iter().filter(|row| row.is_bare).map(|row| &row.lane.variant);
    let drivers = rows.iter().filter_map(|row| row.driver.as_ref());
    let drivers = drivers.map(|driver| {
        let beside = &rows[driver.variant.base].lane.variant.name;
        (format!("{} (for «{beside}»)", driver.variant.name), &driver.variant)
    });
    for (name, variant) in bare.map(|variant| (variant.name.clone(), variant)).chain(drivers) {
        let mut line = vec![name];
        line.extend(cells(variant));
        table.push(line);
    }
    print_markdown(heading, &table);
}

/// What each part of the mix saw, and how much longer it took than alone.
fn print_parts(heading: &str, rows: &[Row]) {
    let Some(mix) = rows.iter().find(|row| row.lane.variant.name == MIX_NAME) else { return };
    let names = ["", "of 100 requests", "requests/s", "p50 ms", "p95 ms", "p99 ms", "p95 / alone"];
    let mut table = vec![names.map(str::to_owned).to_vec()];
    for (part, (name, weight)) in PARTS.iter().enumerate() {
        let loads: Vec<&Load> = mix.lane.parts.iter().filter_map(|round| round.get(part)).collect();
        let figure = |of: fn(&Load) -> f64| median(loads.iter().map(|load| of(load)).collect());
        let alone = rows.iter().find(|row| row.lane.variant.name == *name);
        let beside = alone.map(|alone| {
            let pairs = loads.iter().zip(&alone.lane.variant.rounds);
            Ratios::new(pairs.map(|(load, round)| load.p95() / round.load.p95()).collect())
        });
        table.push(vec![
            (*name).to_owned(),
            weight.to_string(),
            thousands(figure(Load::per_second)),
            format!("{:.2}", figure(Load::p50)),
            format!("{:.2}", figure(Load::p95)),
            format!("{:.2}", figure(Load::p99)),
            beside.map_or_else(String::new, |ratios| ratios.to_string()),
        ]);
    }
    print_markdown(heading, &table);
}

/// What a server of another make needs for the same, and how much less Vitrina does.
fn print_rivals(heading: &str, rows: &[Row]) {
    let names = [
        "",
        "CPU µs/request: Vitrina",
        "Mercurius",
        "Vitrina / Mercurius",
        "database CPU µs/request: Vitrina",
        "Mercurius",
        "Vitrina / Mercurius",
        "requests/s: Vitrina",
        "Mercurius",
    ];
    let mut table = vec![names.map(str::to_owned).to_vec()];
    for row in rows {
        let (Some(rival), own) = (&row.rival, &row.lane.variant) else { continue };
        let mut line = vec![own.name.clone()];
        for figure in [Round::cpu_micros as fn(&Round) -> f64, Round::database_micros] {
            line.push(format!("{:.0}", own.median(figure)));
            line.push(format!("{:.0}", rival.variant.median(figure)));
            line.push(ratios(own, &rival.variant, figure).to_string());
        }
        line.push(thousands(own.median(Round::per_second)));
        line.push(thousands(rival.variant.median(Round::per_second)));
        table.push(line);
    }
    print_markdown(heading, &table);
}

fn print_target(heading: &str, rows: &[Row]) {
    let Some(row) = rows.iter().find(|row| row.lane.variant.name == BROWSING_NAME) else { return };
    let beside =
        ratios(&row.lane.variant, &rows[row.lane.variant.base].lane.variant, Round::per_second);
    let met = if beside.median() >= BROWSING_TARGET { "yes" } else { "NO" };
    let names = ["", "median (min–max)", "target", "met"].map(str::to_owned).to_vec();
    let line = vec![
        "requests/s by those of the bare handlers".to_owned(),
        beside.to_string(),
        format!("≥ {BROWSING_TARGET}"),
        met.to_owned(),
    ];
    print_markdown(heading, &[names, line]);
}

fn plot_rows(what: &str, store: &str, rows: &[Row]) -> Result<()> {
    let dots = |figure: fn(&Round) -> f64| {
        let own = rows.iter().filter(|row| !row.is_bare);
        let pair = own.map(|row| {
            let bare = &rows[row.lane.variant.base].lane.variant;
            [row.lane.variant.median(figure), bare.median(figure)]
        });
        pair.collect::<Vec<_>>()
    };
    let names = rows.iter().filter(|row| !row.is_bare).map(|row| row.lane.variant.name.clone());
    let svg = plot::dots(&Dots {
        title: format!("{what}, over HTTP"),
        names: names.collect(),
        kinds: ["Vitrina", "a bare handler that gives the same bytes"],
        panels: [
            ("CPU of the server, µs per request (logarithmic)", dots(Round::cpu_micros)),
            ("requests per second (logarithmic)", dots(Round::per_second)),
        ],
    });
    plot::write("mix", store, &svg)
}
