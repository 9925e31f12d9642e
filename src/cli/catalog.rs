//! Commands for whoever looks after the catalogue: `category`, `check`, `export`.

use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::{Failure, StoreArgs};
use crate::app::Shop;
use crate::cache::Tiers;
use crate::catalog::model::Product;
use crate::catalog::model::browse::CategoryMap;
use crate::catalog::model::buckets::{Axis, Model, Phase};
use crate::catalog::service::check::check;
use crate::catalog::service::export::{Progress, walk};
use crate::catalog::service::split::{SplitOutcome, Splitter};
use crate::checkout::check::check as check_checkouts;
use crate::clock::SystemClock;
use crate::config::ShopRules;
use crate::fault;
use crate::storage::{self, Store};
use crate::telemetry::Metrics;

#[derive(Args)]
pub(super) struct CategoryArgs {
    #[command(subcommand)]
    command: CategoryCommand,
}

#[derive(Subcommand)]
enum CategoryCommand {
    /// Show how each category is laid out
    List(StoreArgs),
    /// Split a category's buckets: twice as many by hash, half as wide by price
    Split(SplitArgs),
}

#[derive(Args)]
struct SplitArgs {
    /// The category
    name: String,
    /// Which buckets
    #[arg(long, env = "VITRINA_SPLIT_MODEL", value_enum, default_value = "both")]
    model: ModelChoice,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModelChoice {
    Hash,
    Price,
    Both,
}

#[derive(Args)]
pub(super) struct ExportArgs {
    #[command(subcommand)]
    command: ExportCommand,
}

#[derive(Subcommand)]
enum ExportCommand {
    /// Write all products of a category, one JSON object a line
    Categories(ExportCategoryArgs),
}

#[derive(Args)]
struct ExportCategoryArgs {
    /// The category
    name: String,
    /// The file to write; an export that was stopped goes on when it is called again. Without it,
    /// lines go to standard output
    #[arg(long, env = "VITRINA_EXPORT_OUT", value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

impl CategoryArgs {
    pub(super) fn store(&self) -> &StoreArgs {
        match &self.command {
            CategoryCommand::List(store) => store,
            CategoryCommand::Split(args) => &args.store,
        }
    }
}

impl ExportArgs {
    pub(super) fn store(&self) -> &StoreArgs {
        let ExportCommand::Categories(args) = &self.command;
        &args.store
    }
}

async fn open(args: &StoreArgs) -> Result<Arc<dyn Store>, Failure> {
    let metrics = Arc::new(Metrics::default());
    Ok(storage::open(&args.config()?, Arc::new(SystemClock), metrics).await?)
}

pub(super) async fn category(args: CategoryArgs) -> Result<(), Failure> {
    let store = open(args.store()).await?;
    match args.command {
        CategoryCommand::List(_) => list(store.as_ref()).await,
        CategoryCommand::Split(args) => split(store, &args).await,
    }
}

async fn list(store: &dyn Store) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let _ = writeln!(
        out,
        "{:<24} {:>9}  {:<6} {:>5}  {:>7} {:>7} {:>7} {:>7}  state",
        "category", "products", "model", "level", "buckets", "min", "median", "max"
    );
    for name in store.category_names().await? {
        let Some(map) = store.category_map(&name).await? else { continue };
        for model in Model::BOTH {
            // A reader that has gone away has seen enough.
            let _ = writeln!(out, "{}", line(&name, &map, model));
        }
    }
    Ok(())
}

/// A read model of a category in the list.
fn line(name: &str, map: &CategoryMap, model: Model) -> String {
    let Axis { level, phase, progress } = *map.layout.axis(model);
    let mut rows: Vec<u64> = map.buckets_of(model).map(|(_, rows)| rows).collect();
    if model == Model::Hash {
        // Empty ones have no count.
        rows.resize(1 << level, 0);
    }
    rows.sort_unstable();
    let at = |index: usize| rows.get(index).copied().unwrap_or(0);
    let state = match phase {
        Phase::Stable => "stable".to_owned(),
        phase => format!("{}, from bucket {progress} on", phase.as_str()),
    };
    format!(
        "{name:<24} {:>9}  {:<6} {level:>5}  {:>7} {:>7} {:>7} {:>7}  {state}",
        map.product_count,
        model.as_str(),
        rows.len(),
        at(0),
        at(rows.len() / 2),
        at(rows.len().saturating_sub(1)),
    )
}

async fn split(store: Arc<dyn Store>, args: &SplitArgs) -> Result<(), Failure> {
    let splitter = Splitter::new(store.clone(), store.layout_grace());
    let models: &[Model] = match args.model {
        ModelChoice::Hash => &[Model::Hash],
        ModelChoice::Price => &[Model::Price],
        ModelChoice::Both => &Model::BOTH,
    };
    if store.category_map(&args.name).await?.is_none() {
        return Err(Failure::Other(format!("there is no category «{}»", args.name)));
    }
    for &model in models {
        let told = match splitter.split(&args.name, model).await? {
            SplitOutcome::Done => "split",
            SplitOutcome::Busy => "another process is splitting it",
            SplitOutcome::Nothing => "as fine as it gets already",
        };
        println!("{}: {} buckets: {told}", args.name, model.as_str());
    }
    Ok(())
}

pub(super) async fn check_all(args: &StoreArgs) -> Result<(), Failure> {
    let store = open(args).await?;
    let mut products = 0;
    for category in store.categories().await? {
        products += category.product_count;
    }
    // Each product is looked at, and then its row in each of the two read models.
    let bar = bar(products * 3, "rows");
    let report = check(&store, &SystemClock, &|more| bar.inc(more)).await?;
    bar.finish_and_clear();
    println!("{} products and {} rows looked at.", report.products, report.rows);
    if report.in_work > 0 {
        println!(
            "{} rows belong to changes that are going on and were left alone.",
            report.in_work
        );
    }
    if report.counts_busy > 0 {
        println!(
            "{} categories kept changing; their counts were not compared.",
            report.counts_busy
        );
    }
    if report.is_clean() {
        println!("Nothing to mend.");
    } else {
        println!(
            "Mended: {} rows missing or different, {} rows without their product, counts of {} \
             categories.",
            report.rows_mended, report.ghosts, report.counts_mended
        );
    }
    check_orders(store).await
}

/// Compares orders with their lists and events, and the stock with the orders.
async fn check_orders(store: Arc<dyn Store>) -> Result<(), Failure> {
    let metrics = Arc::new(Metrics::default());
    let rules = ShopRules::default();
    let clock = Arc::new(SystemClock);
    let shop = Shop::open(store, clock, &Tiers::Off, &rules, &metrics).await?;
    let checked = check_checkouts(&shop.store, &shop.checkout).await;
    let report = checked.map_err(|error| {
        Failure::Other(format!("orders could not be checked: {}", error.message()))
    })?;
    println!(
        "{} orders, {} checkouts and {} rows of stock looked at.",
        report.orders, report.checkouts, report.rows
    );
    for fault in &report.faults {
        println!("  {fault}");
    }
    if report.busy_rows > 0 {
        println!("{} rows of stock kept changing and were left alone.", report.busy_rows);
    }
    if report.is_clean() {
        println!("Orders and stock agree.");
    } else {
        println!(
            "Mended: lists or events of {} orders, {} rows of stock; {} orders or checkouts were \
             finished.",
            report.mended_orders, report.mended_rows, report.finished
        );
    }
    Ok(())
}

pub(super) fn bar(length: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let template =
        format!("{{wide_bar}} {{human_pos}}/{{human_len}} {what}  {{per_sec}}  {{eta}} left");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}

pub(super) async fn export(args: ExportArgs) -> Result<(), Failure> {
    let store = open(args.store()).await?;
    let ExportCommand::Categories(args) = args.command;
    let Some(map) = store.category_map(&args.name).await? else {
        return Err(Failure::Other(format!("there is no category «{}»", args.name)));
    };
    let bar = bar(map.product_count, "products");
    let mut target = match &args.out {
        Some(path) => Target::file(path, &args.name)?,
        None => Target::Stdout(io::BufWriter::new(io::stdout())),
    };
    let resumed = target.progress();
    bar.set_position(resumed.products);
    let written = walk(&store, &args.name, resumed.progress, |products, progress| {
        bar.inc(products.len() as u64);
        target.write(&products, progress, bar.position())
    });
    written.await?;
    target.finish()?;
    bar.finish_and_clear();
    eprintln!("{} products of «{}».", bar.position(), args.name);
    Ok(())
}

/// A line of an export.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    id: &'a str,
    name: &'a str,
    description: Option<&'a str>,
    category: &'a str,
    price: String,
    currency_code: &'a str,
    attributes: serde_json::Map<String, serde_json::Value>,
    image_url: Option<&'a str>,
    created_at: String,
    updated_at: String,
}

impl<'a> From<&'a Product> for Line<'a> {
    fn from(product: &'a Product) -> Self {
        let attributes = product.attributes.iter();
        Self {
            id: product.id.as_str(),
            name: &product.name,
            description: product.description.as_deref(),
            category: &product.category,
            price: product.price.amount.to_string(),
            currency_code: product.price.currency.as_str(),
            attributes: attributes.map(|a| (a.name.clone(), a.value.clone().into())).collect(),
            image_url: product.image_url.as_deref(),
            created_at: product.created_at.to_string(),
            updated_at: product.updated_at.to_string(),
        }
    }
}

/// How far an export into a file has come.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Resumed {
    category: String,
    progress: Progress,
    /// Bytes of the unfinished file that belong to it.
    bytes: u64,
    products: u64,
}

enum Target {
    Stdout(io::BufWriter<io::Stdout>),
    File { out: PathBuf, partial: std::fs::File, resumed: Resumed },
}

impl Target {
    /// The unfinished file and its progress stand beside the file until it is whole.
    fn beside(out: &Path, ending: &str) -> PathBuf {
        let mut name = out.as_os_str().to_owned();
        name.push(ending);
        name.into()
    }

    fn file(out: &Path, category: &str) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::Other(format!("{}: {error}", out.display()));
        let length = std::fs::metadata(Self::beside(out, ".partial")).map_or(0, |file| file.len());
        let progress = std::fs::read(Self::beside(out, ".progress"));
        let resumed: Resumed = progress
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            // Another export, or one whose lines are lost, begins anew.
            .filter(|found: &Resumed| found.category == category && found.bytes <= length)
            .unwrap_or_else(|| Resumed { category: category.to_owned(), ..Resumed::default() });
        let mut partial = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(Self::beside(out, ".partial"))
            .map_err(failed)?;
        // What was written after the progress was noted is written again.
        partial.set_len(resumed.bytes).map_err(failed)?;
        partial.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok(Self::File { out: out.to_owned(), partial, resumed })
    }

    fn progress(&self) -> Resumed {
        match self {
            Self::Stdout(_) => Resumed::default(),
            Self::File { resumed, .. } => resumed.clone(),
        }
    }

    fn write(
        &mut self,
        products: &[Product],
        progress: &Progress,
        count: u64,
    ) -> Result<(), Failure> {
        let mut lines = Vec::new();
        for product in products {
            serde_json::to_writer(&mut lines, &Line::from(product))
                .map_err(|error| Failure::Other(format!("a product cannot be written: {error}")))?;
            lines.push(b'\n');
        }
        match self {
            Self::Stdout(out) => out
                .write_all(&lines)
                .map_err(|error| Failure::Other(format!("standard output: {error}"))),
            Self::File { out, partial, resumed } => {
                let mut note = || {
                    partial.write_all(&lines)?;
                    // The lines first, then the note that they are there.
                    partial.sync_data()?;
                    resumed.bytes += lines.len() as u64;
                    resumed.products = count;
                    resumed.progress = progress.clone();
                    // Put in place as a whole: one that is cut off would be of no use.
                    let (path, next) =
                        (Self::beside(out, ".progress"), Self::beside(out, ".progress~"));
                    std::fs::write(&next, serde_json::to_vec(resumed)?)?;
                    std::fs::rename(next, path)
                };
                note().map_err(|error| Failure::Other(format!("{}: {error}", out.display())))?;
                fault::point("export.step");
                Ok(())
            }
        }
    }

    fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Stdout(mut out) => {
                out.flush().map_err(|error| Failure::Other(format!("standard output: {error}")))
            }
            Self::File { out, partial, .. } => {
                let finish = || {
                    partial.sync_all()?;
                    // Before the file is in its place: a note without its lines must not be left.
                    match std::fs::remove_file(Self::beside(&out, ".progress")) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        _ => {}
                    }
                    std::fs::rename(Self::beside(&out, ".partial"), &out)
                };
                finish().map_err(|error: io::Error| {
                    Failure::Other(format!("{}: {error}", out.display()))
                })
            }
        }
    }
}
