//! Trusted documents: with a folder of them the server executes these and no others, by their hash
//! or by their text.
//!
//! The folder holds files of operations and the manifest that `vitrina documents` makes of them; or
//! a manifest alone, as the build of a frontend leaves it. The manifest is what is served. A server
//! does not start with one that is not what the files say: who changed a file meant it to count.

mod folder;
mod manifest;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_graphql::{Pos, ServerError};

pub(crate) use self::folder::{Folder, MANIFEST};
use super::document::{Document, DocumentHash, Refusal};
use crate::config::{ConfigError, Limits};
use crate::graphql::ShopGraph;

/// The setting that names the folder.
const DOCUMENTS: &str = "--documents / VITRINA_DOCUMENTS";
/// Most faults that are told at once.
const MAX_FAULTS: usize = 50;

/// The only documents that are executed: parsed and checked when the server starts, and kept.
#[derive(Clone)]
pub struct Trusted(Arc<HashMap<DocumentHash, Arc<Document>>>);

impl fmt::Debug for Trusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} trusted documents", self.0.len())
    }
}

impl Trusted {
    /// Reads and checks the documents of a folder.
    pub async fn load(
        dir: &Path,
        limits: &Limits,
        introspection: bool,
    ) -> Result<Self, ConfigError> {
        let wrong = |fault: String| ConfigError::new(DOCUMENTS, fault);
        let folder = Folder::read(dir).map_err(|fault| wrong(fault.to_string()))?;
        if let Some(first) = folder.faults().first() {
            return Err(wrong(first.clone()));
        }
        if let Some(first) = folder.stale().first() {
            let dir = dir.display();
            return Err(wrong(format!(
                "{MANIFEST} is not what the files say: {first}; run `vitrina documents {dir}`"
            )));
        }
        let graph = ShopGraph::new(introspection);
        let mut documents = HashMap::with_capacity(folder.manifest().len());
        for entry in folder.manifest() {
            let document = checked(&entry.body, &graph, (limits, introspection)).await;
            let document = document.map_err(|refusal| {
                let place = format!("{MANIFEST}, operation {}", entry.shown_name());
                let told = tell(&place, None, refusal);
                wrong(told.into_iter().next().unwrap_or(place))
            })?;
            documents.insert(entry.hash, Arc::new(document));
        }
        Ok(Self(Arc::new(documents)))
    }

    /// The document with this hash, if it is one of them.
    pub(super) fn get(&self, hash: &DocumentHash) -> Option<Arc<Document>> {
        self.0.get(hash).cloned()
    }
}

/// Everything that is wrong with the documents of a folder, each fault with its place.
pub(crate) async fn faults(folder: &Folder, limits: &Limits, introspection: bool) -> Vec<String> {
    let graph = ShopGraph::new(introspection);
    let mut faults = folder.faults().to_vec();
    for (place, at, text) in folder.texts() {
        if let Err(refusal) = checked(text, &graph, (limits, introspection)).await {
            faults.extend(tell(&place, at, refusal));
        }
        if faults.len() >= MAX_FAULTS {
            break;
        }
    }
    faults.truncate(MAX_FAULTS);
    faults
}

/// Parses a document and checks everything that does not depend on who asks and with what.
async fn checked(
    text: &str,
    graph: &ShopGraph,
    (limits, introspection): (&Limits, bool),
) -> Result<Document, Refusal> {
    let document = Document::new(text, graph, (limits, introspection)).await?;
    document.check_unasked(limits)?;
    Ok(document)
}

/// What is wrong with a document, as a compiler would say it: `cards.graphql:3:5: …`. What has no
/// place of its own is told of the place where the operation begins.
fn tell(place: &str, begins: Option<Pos>, refusal: Refusal) -> Vec<String> {
    let one = |fault: ServerError| match fault.locations.first().copied().or(begins) {
        Some(at) => format!("{place}:{}:{}: {}", at.line, at.column, fault.message),
        None => format!("{place}: {}", fault.message),
    };
    Vec::from(refusal).into_iter().map(one).collect()
}
