//! From measured rounds to a table.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Result;

/// The percentiles of times that are reported.
const PERCENTILES: [usize; 3] = [50, 95, 99];

/// The narrowest column of a table in a document: a line of fewer dashes is none.
const MIN_WIDTH: usize = 3;

/// What a load did in one round. As text it is how a worker tells of it.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) done: u64,
    pub(super) elapsed: Duration,
    times: [Duration; PERCENTILES.len()],
}

impl Load {
    /// A load that took so long, with the time of each request.
    pub(super) fn new(elapsed: Duration, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        let at = |percent| times.get(last * percent / 100).copied().unwrap_or_default();
        Self { done: times.len() as u64, elapsed, times: PERCENTILES.map(at) }
    }
}

impl Load {
    /// The median time in milliseconds.
    pub(super) fn p50(&self) -> f64 {
        self.times[0].as_secs_f64() * 1e3
    }

    /// The time in milliseconds that 95 of 100 stay below.
    pub(super) fn p95(&self) -> f64 {
        self.times[1].as_secs_f64() * 1e3
    }

    /// The time in milliseconds that 99 of 100 stay below.
    pub(super) fn p99(&self) -> f64 {
        self.times[2].as_secs_f64() * 1e3
    }

    /// How many a second.
    pub(super) fn per_second(&self) -> f64 {
        float(self.done) / self.elapsed.as_secs_f64()
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.done, self.elapsed.as_nanos())?;
        self.times.iter().try_for_each(|time| write!(f, " {}", time.as_nanos()))
    }
}

impl FromStr for Load {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(text: &str) -> Result<Self> {
        let numbers: Vec<u64> =
            text.split(' ').map(str::parse).collect::<std::result::Result<_, _>>()?;
        let [done, elapsed, times @ ..] = numbers.as_slice() else {
            return Err("a load without its numbers".into());
        };
        let times: Vec<Duration> = times.iter().copied().map(Duration::from_nanos).collect();
        Ok(Self {
            done: *done,
            elapsed: Duration::from_nanos(*elapsed),
            times: times.try_into().map_err(|_| "a load without its times")?,
        })
    }
}

/// One round of a variant: what was done, and the CPU time the measured process spent on it.
#[derive(Clone, Copy)]
pub(super) struct Round {
    pub(super) load: Load,
    pub(super) cpu: Duration,
    /// What the cluster spent meanwhile; nothing if there is none on this machine.
    pub(super) database: Duration,
}

impl Round {
    /// CPU time of the cluster for each.
    pub(super) fn database_micros(&self) -> f64 {
        self.database.as_secs_f64() * 1e6 / float(self.load.done.max(1))
    }

    /// How many a second.
    pub(super) fn per_second(&self) -> f64 {
        self.load.per_second()
    }

    /// CPU time of each.
    pub(super) fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / float(self.load.done.max(1))
    }
}

/// A variant and its rounds.
pub(super) struct Variant {
    /// What it is, for the table.
    pub(super) name: String,
    /// Which other variant it is compared with, by its place.
    pub(super) base: usize,
    /// Its rounds, each beside the same round of the others.
    pub(super) rounds: Vec<Round>,
}

impl Variant {
    /// A variant that is compared with the one at `base`.
    pub(super) fn new(name: impl Into<String>, base: usize) -> Self {
        Self { name: name.into(), base, rounds: Vec::new() }
    }

    /// The median of a figure of its rounds.
    pub(super) fn median(&self, figure: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(figure).collect())
    }
}

/// Prints variants as a table under a heading.
pub(super) fn print_variants(heading: &str, variants: &[Variant]) {
    let columns =
        ["", "requests/s", "CPU µs/request", "ratio (min–max)", "p50 ms", "p95 ms", "p99 ms"];
    let mut rows = vec![columns.map(str::to_owned).to_vec()];
    for (place, variant) in variants.iter().enumerate() {
        let of = |figure: fn(&Round) -> f64| median(variant.rounds.iter().map(figure).collect());
        let mut row = vec![
            variant.name.clone(),
            thousands(of(Round::per_second)),
            format!("{:.1}", of(Round::cpu_micros)),
            ratio(variant, &variants[variant.base], place == variant.base),
        ];
        for percentile in 0..PERCENTILES.len() {
            let times = variant.rounds.iter().map(|r| r.load.times[percentile].as_secs_f64() * 1e3);
            row.push(format!("{:.2}", median(times.collect())));
        }
        rows.push(row);
    }
    print_table(heading, &rows);
}

/// The CPU of a variant by that of its base, each round by the one beside it.
fn ratio(variant: &Variant, base: &Variant, is_base: bool) -> String {
    if is_base {
        return "1".to_owned();
    }
    ratios(variant, base, Round::cpu_micros).to_string()
}

/// A figure of one variant by the same of another, each round by the one beside it.
pub(super) fn ratios(variant: &Variant, base: &Variant, figure: fn(&Round) -> f64) -> Ratios {
    let pairs = variant.rounds.iter().zip(&base.rounds);
    Ratios(pairs.map(|(round, base)| figure(round) / figure(base)).collect())
}

/// Ratios of rounds that stood side by side.
pub(super) struct Ratios(Vec<f64>);

impl Ratios {
    /// Ratios that were taken elsewhere.
    pub(super) fn new(ratios: Vec<f64>) -> Self {
        Self(ratios)
    }

    /// The middle one.
    pub(super) fn median(&self) -> f64 {
        median(self.0.clone())
    }
}

impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let high = self.0.iter().copied().fold(0.0, f64::max);
        write!(f, "{:.2} ({low:.2}–{high:.2})", self.median())
    }
}

/// Prints rows with their columns aligned: the first to the left, the others to the right.
pub(super) fn print_table(heading: &str, rows: &[Vec<String>]) {
    println!("{heading}");
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell: &String| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") }
        });
        let line: String = cells.collect();
        println!("{}", line.trim_end());
    }
    println!();
}

/// Prints rows, the first of which has the names of the columns, as a table that can be put into a
/// document as it is; aligned like the others.
pub(super) fn print_markdown(heading: &str, rows: &[Vec<String>]) {
    println!("{heading}\n");
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).max(MIN_WIDTH)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (place, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column == 0 { format!("| {cell:<width$} |") } else { format!(" {cell:>width$} |") }
        });
        println!("{}", cells.collect::<String>());
        if place == 0 {
            let lines = widths.iter().enumerate().map(|(column, width)| {
                let line = "-".repeat(*width);
                if column == 0 { format!("|-{line}-|") } else { format!("-{line}:|") }
            });
            println!("{}", lines.collect::<String>());
        }
    }
    println!();
}

/// The middle one; of an even number, the higher of the two.
pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Median, smallest and largest, with a unit.
pub(super) fn spread(figures: &[f64], unit: &str) -> String {
    let low = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let high = figures.iter().copied().fold(0.0, f64::max);
    format!("{:.0} {unit} ({low:.0}–{high:.0})", median(figures.to_vec()))
}

/// Bytes in MB, as limits of memory are usually given.
pub(super) fn megabytes(bytes: u64) -> f64 {
    float(bytes >> 10) * 1_024.0 / 1e6
}

/// A count as a number that can be divided; larger ones than it holds do not occur here.
pub(super) fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// A whole number with its thousands apart.
pub(super) fn thousands(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
