//! The manifest of trusted documents: written in the form of Apollo's tools, read in theirs and in
//! that of Relay's compiler.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::document::{DocumentHash, hash_of};
use super::folder::MAX_DOCUMENTS;
use crate::digest::{from_hex, hex};

/// What a manifest of Apollo's form says that it is.
const FORMAT: &str = "apollo-persisted-query-manifest";
/// The version of that form.
const VERSION: u32 = 1;
/// How many digits of its hash stand for a document without a name.
const SHORT_HASH: usize = 12;

/// A document of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The hash of its text, which it is asked for by.
    pub(crate) hash: DocumentHash,
    /// Its text.
    pub(crate) body: String,
    /// The name of its operation, where the manifest has names.
    pub(crate) name: Option<String>,
    /// `query`, `mutation` or `subscription`, where the manifest says it.
    pub(crate) kind: Option<String>,
}

impl Entry {
    /// What a person is told: its name, or the beginning of its hash.
    pub(crate) fn shown_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| hex(&self.hash)[..SHORT_HASH].to_owned())
    }
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    operations: Vec<Operation>,
}

#[derive(Serialize, Deserialize)]
struct Operation {
    id: String,
    name: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    body: String,
}

/// Reads a manifest. Every id must be the hash of its text: an id that somebody made up could stand
/// for anything.
pub(super) fn read(text: &str) -> Result<Vec<Entry>, String> {
    let value: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        format!("is no object of JSON: line {}, column {}", error.line(), error.column())
    })?;
    let operations = if value.contains_key("format") {
        let manifest: Manifest = serde_json::from_value(Value::Object(value))
            .map_err(|_| format!("is not of the form {FORMAT}"))?;
        if manifest.format != FORMAT || manifest.version != VERSION {
            return Err(format!("is neither {FORMAT} of version {VERSION} nor hashes with texts"));
        }
        manifest.operations
    } else {
        let of_relay = |(id, body): (String, Value)| match body {
            Value::String(body) => Ok(Operation { id, name: None, kind: None, body }),
            _ => Err(format!("is neither {FORMAT} of version {VERSION} nor hashes with texts")),
        };
        value.into_iter().map(of_relay).collect::<Result<_, _>>()?
    };
    if operations.is_empty() {
        return Err("names no document".to_owned());
    }
    if operations.len() > MAX_DOCUMENTS {
        return Err(format!("names more than {MAX_DOCUMENTS} documents"));
    }
    let entry = |(number, operation): (usize, Operation)| {
        let Operation { id, name, kind, body } = operation;
        let hash = hash_of(&body);
        if from_hex(&id) != Some(hash) {
            let name = name.unwrap_or_else(|| format!("number {}", number + 1));
            return Err(format!("has an id of {name} that is not the SHA-256 hash of its text"));
        }
        Ok(Entry { hash, body, name, kind })
    };
    operations.into_iter().enumerate().map(entry).collect()
}

/// Writes a manifest: the same bytes for the same documents, in the order of their names.
pub(super) fn write(entries: &[Entry]) -> String {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| (&a.name, a.hash).cmp(&(&b.name, b.hash)));
    let operation = |entry: &Entry| Operation {
        id: hex(&entry.hash),
        name: entry.name.clone(),
        kind: entry.kind.clone(),
        body: entry.body.clone(),
    };
    let manifest = Manifest {
        format: FORMAT.to_owned(),
        version: VERSION,
        operations: sorted.into_iter().map(operation).collect(),
    };
    // Texts and a number; they always can be written.
    serde_json::to_string_pretty(&manifest).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(name: &str, body: &str) -> Entry {
        let (body, kind) = (body.to_owned(), Some("query".to_owned()));
        Entry { hash: hash_of(&body), body, name: Some(name.to_owned()), kind }
    }

    #[test]
    fn what_is_written_is_read_and_always_the_same() {
        let (one, two) = (entry("A", "{ a }"), entry("B", "{ b }"));
        let text = write(&[two.clone(), one.clone()]);
        assert_eq!(text, write(&[one.clone(), two.clone()]));
        assert_eq!(read(&text), Ok(vec![one, two]));
        assert!(text.contains(FORMAT) && text.ends_with("}\n"), "{text}");
    }

    #[test]
    fn the_form_of_relay_is_read_too() {
        let hash = hex(&hash_of("{ a }"));
        let found = read(&json!({ hash: "{ a }" }).to_string()).unwrap();
        assert_eq!((found[0].body.as_str(), found[0].name.as_ref()), ("{ a }", None));
        assert_eq!(found[0].shown_name().len(), SHORT_HASH);
    }

    #[test]
    fn what_cannot_be_trusted_is_refused() {
        let good = write(&[entry("A", "{ a }")]);
        let other = hex(&hash_of("{ b }"));
        for text in [
            "",
            "[]",
            "{}",
            "{",
            "null",
            &"[".repeat(100_000),
            &json!({ other.clone(): "{ a }" }).to_string(),
            &json!({ "0cc175b9c0f1b6a831c399e269772661": "{ a }" }).to_string(),
            &json!({ other: ["{ b }"] }).to_string(),
            &good.replace("{ a }", "{ a b }"),
            &good.replace("\"version\": 1", "\"version\": 2"),
            &good.replace(FORMAT, "another"),
            &good.replace("operations", "documents"),
            &good.replace("body", "text"),
            &good[..good.len() - 4],
        ] {
            assert!(read(text).is_err(), "{text:.100}");
        }
    }
}
