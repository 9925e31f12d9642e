//! `vitrina documents`, and the settings of `serve` about who may ask for what.

use std::path::PathBuf;

use clap::Args;

use super::Failure;
use super::serve::Switch;
use crate::config::{ConfigError, Limits, Origins};
use crate::server::{Folder, MANIFEST, faults};

/// Who may ask for what.
#[derive(Args)]
pub(super) struct DoorArgs {
    /// Execute only the documents of this folder, by their hash or their text; `vitrina documents`
    /// makes its manifest
    #[arg(long, env = "VITRINA_DOCUMENTS", value_name = "DIR")]
    pub(super) documents: Option<PathBuf>,
    /// The sites whose pages may use the shop from a browser, as `https://a.example`, with commas
    /// between them
    #[arg(long, env = "VITRINA_CORS_ORIGINS", value_name = "ORIGINS")]
    cors_origins: Option<String>,
}

impl DoorArgs {
    pub(super) fn origins(&self) -> Result<Origins, ConfigError> {
        self.cors_origins.as_deref().map_or_else(|| Ok(Origins::default()), Origins::parse)
    }
}

#[derive(Args)]
pub(super) struct DocumentsArgs {
    /// The folder: files *.graphql with operations that have names, and manifest.json
    #[arg(env = "VITRINA_DOCUMENTS", value_name = "DIR")]
    dir: PathBuf,
    /// Write nothing; say what is not up to date, with exit code 1
    #[arg(long, env = "VITRINA_DOCUMENTS_CHECK",
          value_parser = clap::builder::FalseyValueParser::new())]
    check: bool,
    /// Highest cost of an operation, as `serve` has it
    #[arg(long, env = "VITRINA_MAX_COST", default_value_t = 10_000,
          value_parser = clap::value_parser!(u32).range(100..))]
    max_cost: u32,
    /// Whether operations may ask for the schema, as `serve` has it
    #[arg(long, env = "VITRINA_INTROSPECTION", value_enum, default_value = "on")]
    introspection: Switch,
}

/// Checks the documents of a folder and brings its manifest up to date.
pub(super) async fn documents(args: &DocumentsArgs) -> Result<(), Failure> {
    let dir = args.dir.display();
    let folder = Folder::read(&args.dir)
        .map_err(|fault| ConfigError::new("DIR / VITRINA_DOCUMENTS", fault.to_string()))?;
    let limits = Limits { cost: args.max_cost.into(), ..Limits::default() };
    let wrong = faults(&folder, &limits, args.introspection == Switch::On).await;
    if !wrong.is_empty() {
        let list = wrong.join("\n");
        return Err(Failure::Other(format!("the documents of {dir} cannot be used:\n{list}")));
    }
    let count = folder.len();
    if args.check {
        let stale = folder.stale();
        if stale.is_empty() {
            println!("{count} documents, all of them good; {MANIFEST} is up to date.");
            return Ok(());
        }
        let list = stale.join("\n");
        return Err(Failure::Other(format!(
            "{MANIFEST} of {dir} is not what its files say; run `vitrina documents {dir}`:\n{list}"
        )));
    }
    let is_new = folder.write().map_err(|error| {
        Failure::Other(format!("{MANIFEST} of {dir} cannot be written: {error}"))
    })?;
    let what = if is_new { "was written" } else { "was up to date" };
    println!("{count} documents, all of them good; {MANIFEST} {what}.");
    Ok(())
}
