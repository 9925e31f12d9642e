//! A folder of documents: its files, cut into operations, and its manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use async_graphql::parser::parse_query;
use async_graphql::parser::types::{
    DocumentOperations, ExecutableDocument, OperationType, Selection, SelectionSet,
};
use async_graphql::{Name, Pos};

use super::super::document::{hash_of, syntax_error};
use super::super::lexer::check_text;
use super::manifest::{self, Entry};
use super::tell;

/// The file that says which documents are trusted.
pub(crate) const MANIFEST: &str = "manifest.json";
/// Most documents of a folder: more than any frontend has.
pub(super) const MAX_DOCUMENTS: usize = 5_000;
/// Most files of operations.
const MAX_FILES: usize = 2_000;
/// Most bytes of a file of operations.
const MAX_FILE_BYTES: u64 = 256 << 10;
/// Most tokens of such a file; each operation of it has the limit of any document besides.
const MAX_FILE_TOKENS: usize = 50_000;
/// Most bytes of a manifest.
const MAX_MANIFEST_BYTES: u64 = 32 << 20;

/// What cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path} {fault}")]
pub(crate) struct Unreadable {
    path: String,
    fault: String,
}

impl Unreadable {
    fn new(path: &Path, fault: impl Into<String>) -> Self {
        Self { path: path.display().to_string(), fault: fault.into() }
    }
}

/// A folder of documents.
pub(crate) struct Folder {
    dir: PathBuf,
    operations: Vec<Operation>,
    /// What kept files from being cut.
    faults: Vec<String>,
    /// `None` if there is none; else what it says, or why it cannot be used.
    manifest: Option<Result<Vec<Entry>, String>>,
}

/// An operation of a file.
#[derive(Debug)]
struct Operation {
    file: String,
    /// Where it begins in the file.
    begins: Pos,
    name: String,
    kind: OperationType,
    /// It and the fragments it spreads: the text that is trusted.
    body: String,
    /// The file with everything else blanked out, so that places in it are places in the file.
    in_place: String,
}

impl Folder {
    /// Reads a folder. What is wrong with its documents is no failure, what cannot be read is.
    pub(crate) fn read(dir: &Path) -> Result<Self, Unreadable> {
        let (mut operations, mut faults) = (Vec::new(), Vec::new());
        let files = files(dir)?;
        for path in &files {
            let text = read(path, MAX_FILE_BYTES)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            match cut(&name, &text) {
                Ok(found) => operations.extend(found),
                Err(found) => faults.extend(found),
            }
        }
        faults.extend(doubles(&operations));
        if operations.len() > MAX_DOCUMENTS {
            let fault = format!("has more than {MAX_DOCUMENTS} operations");
            return Err(Unreadable::new(dir, fault));
        }
        let path = dir.join(MANIFEST);
        let manifest = match path.try_exists() {
            Ok(false) => None,
            _ => Some(read(&path, MAX_MANIFEST_BYTES)?),
        };
        let manifest = manifest.map(|text| manifest::read(&text));
        match &manifest {
            None if files.is_empty() => {
                let fault = format!("has neither files *.graphql nor a {MANIFEST}");
                return Err(Unreadable::new(dir, fault));
            }
            // With files, `vitrina documents` makes a new one.
            Some(Err(fault)) if files.is_empty() => return Err(Unreadable::new(&path, fault)),
            _ => {}
        }
        Ok(Self { dir: dir.to_owned(), operations, faults, manifest })
    }

    /// What kept files from being cut into operations, each with its place.
    pub(super) fn faults(&self) -> &[String] {
        &self.faults
    }

    /// The documents that the manifest names; none if there is no manifest that can be used.
    pub(super) fn manifest(&self) -> &[Entry] {
        match &self.manifest {
            Some(Ok(entries)) => entries,
            _ => &[],
        }
    }

    /// The texts to be checked, each with the name of its place and where in it it begins.
    pub(super) fn texts(&self) -> Vec<(String, Option<Pos>, &str)> {
        if self.operations.is_empty() {
            let of_manifest = |entry: &'_ Entry| format!("{MANIFEST}, {}", entry.shown_name());
            let entries = self.manifest().iter();
            return entries.map(|entry| (of_manifest(entry), None, entry.body.as_str())).collect();
        }
        let operations = self.operations.iter();
        operations.map(|o| (o.file.clone(), Some(o.begins), o.in_place.as_str())).collect()
    }

    /// How many documents there are.
    pub(crate) fn len(&self) -> usize {
        if self.operations.is_empty() { self.manifest().len() } else { self.operations.len() }
    }

    /// In what the manifest is not what the files say. A manifest without files stands for itself.
    pub(crate) fn stale(&self) -> Vec<String> {
        if self.operations.is_empty() && self.faults.is_empty() {
            return Vec::new();
        }
        match &self.manifest {
            None => return vec!["it is missing".to_owned()],
            Some(Err(fault)) => return vec![format!("it {fault}")],
            Some(Ok(_)) => {}
        }
        let (files, manifest) = (self.entries(), self.manifest());
        let has = |list: &[Entry], entry: &Entry| list.iter().any(|e| e.hash == entry.hash);
        let name = Entry::shown_name;
        let mut stale = Vec::new();
        for entry in files.iter().filter(|entry| !has(manifest, entry)) {
            let was_there = manifest.iter().any(|old| old.name == entry.name);
            stale.push(format!(
                "{} {}",
                name(entry),
                if was_there { "has changed" } else { "is not in it" }
            ));
        }
        for entry in manifest.iter().filter(|entry| !has(&files, entry)) {
            if entry.name.is_none() || files.iter().all(|new| new.name != entry.name) {
                stale.push(format!("{} is in no file", name(entry)));
            }
        }
        stale
    }

    /// Writes the manifest that the files make, unless it is that one already; whether it was
    /// written. A manifest without files is left as it is.
    pub(crate) fn write(&self) -> io::Result<bool> {
        let path = self.dir.join(MANIFEST);
        if self.operations.is_empty() {
            return Ok(false);
        }
        let text = manifest::write(&self.entries());
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            return Ok(false);
        }
        // A server that starts meanwhile finds the old one or the new one, and never a half.
        let new = self.dir.join(format!("{MANIFEST}.new"));
        fs::write(&new, text)?;
        fs::rename(&new, &path)?;
        Ok(true)
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |operation: &Operation| Entry {
            hash: hash_of(&operation.body),
            body: operation.body.clone(),
            name: Some(operation.name.clone()),
            kind: Some(operation.kind.to_string()),
        };
        self.operations.iter().map(entry).collect()
    }
}

/// The files of operations of a folder, by their names.
fn files(dir: &Path) -> Result<Vec<PathBuf>, Unreadable> {
    let unreadable = |error: io::Error| Unreadable::new(dir, format!("cannot be read: {error}"));
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "graphql") {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(Unreadable::new(dir, format!("has more than {MAX_FILES} files")));
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path, max_bytes: u64) -> Result<String, Unreadable> {
    use std::io::Read;
    let unreadable = |error: io::Error| Unreadable::new(path, format!("cannot be read: {error}"));
    let mut text = String::new();
    // One byte more, to notice that it is longer.
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(max_bytes + 1).read_to_string(&mut text).map_err(unreadable)?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > max_bytes {
        return Err(Unreadable::new(path, format!("has more than {max_bytes} bytes")));
    }
    Ok(text)
}

/// Operations whose name another one has: clients look them up by it.
fn doubles(operations: &[Operation]) -> Vec<String> {
    let mut seen = BTreeMap::new();
    let mut faults = Vec::new();
    for Operation { file, begins, name, .. } in operations {
        if let Some(first) = seen.insert(name, file) {
            let place = format!("{file}:{}:{}", begins.line, begins.column);
            faults.push(format!("{place}: There is an operation {name} in {first} already."));
        }
    }
    faults
}

/// Cuts a file into its operations, each with the fragments that it spreads. A file with one
/// operation is that operation as it stands, so that its hash is what `sha256sum` says.
fn cut(file: &str, text: &str) -> Result<Vec<Operation>, Vec<String>> {
    let told = |refusal| tell(file, None, refusal);
    check_text(text, MAX_FILE_TOKENS).map_err(|error| told(error.into()))?;
    // To the parser such a line goes on, to people it has ended.
    if text.replace("\r\n", "").contains('\r') {
        return Err(vec![format!("{file}: Lines must not end with a carriage return alone.")]);
    }
    let parsed = parse_query(text).map_err(|error| told(syntax_error(&error)))?;
    let named = match &parsed.operations {
        DocumentOperations::Single(operation) => {
            let Pos { line, column } = operation.pos;
            return Err(vec![format!("{file}:{line}:{column}: An operation needs a name here.")]);
        }
        DocumentOperations::Multiple(named) => named,
    };
    let spans = spans(text, &parsed);
    let mut unused: BTreeSet<&Name> = parsed.fragments.keys().collect();
    let mut found = Vec::with_capacity(named.len());
    for (name, operation) in named {
        let fragments = fragments_of(&parsed, &operation.node.selection_set.node);
        unused.retain(|fragment| !fragments.contains(fragment));
        let (body, in_place) = if named.len() == 1 {
            (text.to_owned(), text.to_owned())
        } else {
            let spread = fragments.iter().filter_map(|name| parsed.fragments.get(*name));
            let mut kept: Vec<_> = spread.filter_map(|f| spans.get(&f.pos).cloned()).collect();
            kept.sort_by_key(|span| span.start);
            kept.splice(0..0, spans.get(&operation.pos).cloned());
            let parts: Vec<_> = kept.iter().map(|span| &text[span.clone()]).collect();
            (parts.join("\n\n"), blanked(text, &kept))
        };
        found.push(Operation {
            file: file.to_owned(),
            begins: operation.pos,
            name: name.to_string(),
            kind: operation.node.ty,
            body,
            in_place,
        });
    }
    // In a file with one operation the rules of the schema tell it.
    if let (Some(name), 2..) = (unused.first(), named.len()) {
        let at = parsed.fragments[*name].pos;
        let place = format!("{file}:{}:{}", at.line, at.column);
        return Err(vec![format!("{place}: No operation spreads the fragment {name}.")]);
    }
    found.sort_by_key(|operation| operation.begins);
    Ok(found)
}

/// Where each definition stands in the text, by the place where it begins; without the comments
/// behind it, which belong to the next.
fn spans(text: &str, parsed: &ExecutableDocument) -> BTreeMap<Pos, Range<usize>> {
    let mut places: Vec<Pos> = parsed.operations.iter().map(|(_, o)| o.pos).collect();
    places.extend(parsed.fragments.values().map(|fragment| fragment.pos));
    places.sort();
    let mut starts = Vec::with_capacity(places.len());
    let (mut line, mut column) = (1, 1);
    for (at, c) in text.char_indices() {
        if places.get(starts.len()) == Some(&Pos { line, column }) {
            starts.push(at);
        }
        // As the parser counts.
        (line, column) = match c {
            '\n' => (line + 1, 1),
            '\r' => (line, 1),
            _ => (line, column + 1),
        };
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let spans = starts.iter().zip(ends).map(|(&start, end)| start..end_of(text, start, end));
    places.into_iter().zip(spans).collect()
}

/// The end of a definition without what follows its last bracket.
fn end_of(text: &str, start: usize, end: usize) -> usize {
    let mut kept = text[start..end].trim_end();
    while let Some((before, last)) = kept.rsplit_once('\n')
        && last.trim_start().starts_with('#')
    {
        kept = before.trim_end();
    }
    start + kept.len()
}

/// The text with everything outside some parts of it made spaces, line by line.
fn blanked(text: &str, kept: &[Range<usize>]) -> String {
    let is_kept = |at: &usize| kept.iter().any(|span| span.contains(at));
    let one = |(at, c)| if is_kept(&at) || matches!(c, '\n' | '\r') { c } else { ' ' };
    text.char_indices().map(one).collect()
}

/// The fragments that a selection spreads, and those that they spread. One that is missing is told
/// of by the rules of the schema.
fn fragments_of<'a>(
    document: &'a ExecutableDocument,
    selection: &'a SelectionSet,
) -> BTreeSet<&'a Name> {
    let mut found = BTreeSet::new();
    let mut left = vec![selection];
    while let Some(selection) = left.pop() {
        for item in &selection.items {
            match &item.node {
                Selection::Field(field) => left.push(&field.node.selection_set.node),
                Selection::InlineFragment(inline) => left.push(&inline.node.selection_set.node),
                Selection::FragmentSpread(spread) => {
                    let name = &spread.node.fragment_name.node;
                    if found.insert(name)
                        && let Some(fragment) = document.fragments.get(name)
                    {
                        left.push(&fragment.node.selection_set.node);
                    }
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "# cards\nquery Card($id: ID!) { product(id: $id) { ...Short } }\n\n\
        # a list\nquery List { categories { ...Name } } # all\n\n\
        fragment Name on Category { name }\r\n\
        fragment Short on Product { id category { ...Name } } # «коротко»\n# the end\n";

    #[test]
    fn a_file_is_cut_into_operations_with_their_fragments() {
        let found = cut("a.graphql", TWO).unwrap();
        let bodies: Vec<_> = found.iter().map(|o| (o.name.as_str(), o.body.as_str())).collect();
        let name = "fragment Name on Category { name }";
        let short = "fragment Short on Product { id category { ...Name } } # «коротко»";
        let card = "query Card($id: ID!) { product(id: $id) { ...Short } }";
        let list = "query List { categories { ...Name } } # all";
        assert_eq!(
            bodies,
            [
                ("Card", format!("{card}\n\n{name}\n\n{short}").as_str()),
                ("List", format!("{list}\n\n{name}").as_str()),
            ]
        );
        for operation in &found {
            let in_place = &operation.in_place;
            assert_eq!(in_place.chars().count(), TWO.chars().count());
            let alone = parse_query(in_place).unwrap();
            assert_eq!(alone.operations.iter().next().unwrap().1.pos, operation.begins);
        }
    }

    #[test]
    fn a_file_with_one_operation_is_taken_as_it_stands() {
        let text = "# why\nquery A { ...F }\nfragment F on Query { __typename }\n";
        let found = cut("a.graphql", text).unwrap();
        assert_eq!((found.len(), found[0].body.as_str()), (1, text));
    }

    #[test]
    fn what_cannot_be_cut_is_named_with_its_place() {
        for (text, place) in [
            ("query A {\n  a(\n}", "a.graphql:"),
            ("{ a }", "a.graphql:1:1: An operation needs a name"),
            ("query A { a }\n{ b }", "a.graphql:"),
            ("query A { a }\n query A { b }", "a.graphql:"),
            ("fragment F on Query { a }", "a.graphql: "),
            ("", "a.graphql:"),
            ("query A { a }\rquery B { b }", "a.graphql: Lines"),
            (
                "query A { a }\nquery B { b }\n  fragment F on Q { c }",
                "a.graphql:3:3: No operation",
            ),
            (&"{".repeat(100_000), "a.graphql: The document nests"),
        ] {
            let faults = cut("a.graphql", text).unwrap_err();
            assert!(faults[0].starts_with(place), "{text:.50}: {faults:?}");
        }
    }
}
