//! `vitrina documents`, and a server that is to trust them.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use super::start::fails_with;
use crate::support::process::{ServerProcess, run, vitrina};
use crate::support::server::SECRET;

const CARD: &str = "query Card($id: ID!) {\n  product(id: $id) { ...Short }\n}\n\n\
    fragment Short on Product { id name }\n";
const OTHERS: &str = "# All categories\nquery Categories { categories { ...Name } }\n\n\
    # What a category has\nquery Category($name: String!) { category(name: $name) { ...Name } }\n\n\
    fragment Name on Category { name }\n";

fn documents(dir: &Path, args: &[&str]) -> Output {
    run(vitrina(&["documents", dir.to_str().unwrap()]).args(args))
}

fn told(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What is said of documents that cannot be used, or of a manifest that is not up to date.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn serve(dir: &Path) -> std::process::Command {
    let store = format!("embedded:{}", dir.join("never").display());
    let mut command = vitrina(&["serve", "--no-demo", "--listen", "127.0.0.1:0"]);
    command.args(["--store", &store, "--documents", dir.to_str().unwrap()]);
    command.env("VITRINA_JWT_SECRET", SECRET);
    command
}

#[test]
fn a_manifest_is_made_and_kept_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, write) = (dir.path(), |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
    });
    write("others.graphql", OTHERS);
    write("card.graphql", CARD);
    write("notes.txt", "nothing of interest");
    let missing = refused(&documents(dir, &["--check"]));
    assert!(missing.contains("manifest.json") && missing.contains("missing"), "{missing}");
    assert!(told(&documents(dir, &[])).contains("3 documents"));
    let manifest = || fs::read_to_string(dir.join("manifest.json")).unwrap();
    let first = manifest();
    let read: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(read["format"], "apollo-persisted-query-manifest");
    assert_eq!(read["version"], 1);
    let names: Vec<_> = read["operations"].as_array().unwrap().iter().map(|o| &o["name"]).collect();
    assert_eq!(names, ["Card", "Categories", "Category"]);
    let card = &read["operations"][0];
    assert_eq!((&card["body"], &card["type"]), (&json!(CARD), &json!("query")));
    let sum = run(std::process::Command::new("sha256sum").arg(dir.join("card.graphql")));
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert_eq!(card["id"].as_str(), sum.split_whitespace().next());
    assert_eq!(
        read["operations"][1]["body"],
        "query Categories { categories { ...Name } }\n\nfragment Name on Category { name }"
    );

    assert!(told(&documents(dir, &[])).contains("was up to date"));
    assert!(told(&documents(dir, &["--check"])).contains("is up to date"));
    assert_eq!(manifest(), first, "the same bytes for the same documents");

    write("card.graphql", &CARD.replace("id name", "id"));
    write("others.graphql", &OTHERS.replace("Categories {", "All {"));
    let stale = refused(&documents(dir, &["--check"]));
    for line in ["Card has changed", "All is not in it", "Categories is in no file"] {
        assert!(stale.contains(line), "{stale}");
    }
    assert_eq!(manifest(), first, "--check writes nothing");
    fails_with(
        &mut serve(dir),
        2,
        &["--documents", "VITRINA_DOCUMENTS", "manifest.json", "Card has changed"],
    );
    told(&documents(dir, &[]));
    told(&documents(dir, &["--check"]));

    // A manifest that somebody has spoilt is made anew.
    write("manifest.json", &manifest().replace("categories", "cart"));
    assert!(refused(&documents(dir, &["--check"])).contains("not the SHA-256 hash"));
    fails_with(&mut serve(dir), 2, &["--documents", "VITRINA_DOCUMENTS", "SHA-256"]);
    told(&documents(dir, &[]));
    assert!(!dir.join("never").exists(), "nothing was started");
}

#[test]
fn a_bad_document_is_named_with_its_place() {
    for (text, place) in [
        ("query A {\n  product(id: 1) { nope }\n}", "bad.graphql:2:20: "),
        ("query A {\n  product(id: 1) {\n}", "bad.graphql:"),
        ("query A { __typename }\nquery B {\n  nope\n}", "bad.graphql:3:3: "),
        (
            "query A { __typename }\nquery B { ...F }\nfragment F on Query { nope }",
            "bad.graphql:3:23",
        ),
        ("{ __typename }", "bad.graphql:1:1: An operation needs a name"),
        (
            "query Card { __typename }",
            "card.graphql:1:1: There is an operation Card in bad.graphql",
        ),
        (
            "query A {\n  a: categories { products(first: 100) { nodes { stocks { geoZone } } } }\n}",
            "bad.graphql:1:1: The operation costs",
        ),
        ("subscription A { __typename }", "bad.graphql:1:"),
        ("query A { ...F } fragment F on Query { ...F }", "bad.graphql:1:1: A fragment"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("card.graphql"), CARD).unwrap();
        fs::write(dir.path().join("bad.graphql"), text).unwrap();
        for args in [&[][..], &["--check"]] {
            let told = refused(&documents(dir.path(), args));
            assert!(told.contains(place), "{text}\n{told}");
        }
        assert!(!dir.path().join("manifest.json").exists());
    }
    // What the limits of the server will be counts.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.graphql"), "query A { __schema { queryType { name } } }").unwrap();
    refused(&documents(dir.path(), &["--introspection", "off"]));
    refused(&documents(dir.path(), &["--max-cost", "100"]));
    told(&documents(dir.path(), &[]));
    fails_with(
        serve(dir.path()).args(["--introspection", "off"]),
        2,
        &["--documents", "operation A", "Introspection"],
    );
}

#[test]
fn a_folder_that_cannot_be_used_is_a_sentence_and_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    fails_with(&mut vitrina(&["documents", nowhere.to_str().unwrap()]), 2, &["DIR", "nowhere"]);
    fails_with(&mut vitrina(&["documents"]), 2, &["DIR"]);
    fails_with(&mut serve(&nowhere), 2, &["--documents", "VITRINA_DOCUMENTS", "nowhere"]);
    fails_with(&mut serve(dir.path()), 2, &["--documents", "neither"]);
    for manifest in ["", "{", "{}", "[]", r#"{"a":"query A { __typename }"}"#] {
        fs::write(dir.path().join("manifest.json"), manifest).unwrap();
        fails_with(&mut serve(dir.path()), 2, &["--documents", "manifest.json"]);
        let output = documents(dir.path(), &[]);
        assert_eq!(output.status.code(), Some(2), "{manifest}: {output:?}");
    }
    fs::remove_file(dir.path().join("manifest.json")).unwrap();
    fs::write(dir.path().join("a.graphql"), CARD).unwrap();
    fails_with(&mut serve(dir.path()), 2, &["--documents", "missing", "vitrina documents"]);
    fs::write(dir.path().join("a.graphql"), "x".repeat(300 << 10)).unwrap();
    fails_with(&mut serve(dir.path()), 2, &["--documents", "a.graphql", "bytes"]);
    fs::write(dir.path().join("a.graphql"), b"query A { __typename } # \xFF").unwrap();
    fails_with(&mut serve(dir.path()), 2, &["--documents", "a.graphql"]);
    assert!(!dir.path().join("never").exists(), "nothing was started");
}

#[tokio::test]
async fn a_server_trusts_what_the_command_made() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("card.graphql"), CARD).unwrap();
    fs::write(dir.path().join("others.graphql"), OTHERS).unwrap();
    told(&documents(dir.path(), &[]));
    let text = fs::read_to_string(dir.path().join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&text).unwrap();
    let mut command = vitrina(&["serve", "--no-demo", "--listen", "127.0.0.1:0"]);
    let store = format!("embedded:{}", dir.path().join("data").display());
    command.args(["--store", &store]).env("VITRINA_JWT_SECRET", SECRET);
    let server = ServerProcess::spawn(command.env("VITRINA_DOCUMENTS", dir.path()));
    for operation in manifest["operations"].as_array().unwrap() {
        let id = format!("sha256:{}", operation["id"].as_str().unwrap());
        let variables = match operation["name"].as_str() {
            Some("Card") => json!({ "id": "1" }),
            Some("Category") => json!({ "name": "Книги" }),
            _ => json!({}),
        };
        for body in [
            json!({ "documentId": id, "variables": variables }),
            json!({ "query": operation["body"], "variables": variables }),
        ] {
            let answer = server.http.post(None, &body).await.json();
            assert_eq!(answer["errors"], Value::Null, "{body}: {answer}");
        }
    }
    let refused = server.http.query("{ __typename }", json!({})).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (400, "DOCUMENT_NOT_TRUSTED"));
}
