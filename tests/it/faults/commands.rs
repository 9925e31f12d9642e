//! The commands for whoever looks after the catalogue.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::process::{run, vitrina};

fn command(store: &Path, args: &[&str]) -> Output {
    let store = format!("embedded:{}", store.display());
    run(vitrina(args).args(["--store", &store]).env("VITRINA_FAULT_HURRY", "1"))
}

fn told(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The ids of an export; every line of it is a whole product.
fn ids(lines: &str) -> Vec<String> {
    let id = |line: &str| {
        let product: Value = serde_json::from_str(line).unwrap();
        assert_eq!(product["category"], "Электроника", "{line}");
        for field in ["name", "price", "currencyCode", "attributes", "createdAt"] {
            assert!(!product[field].is_null(), "{field}: {line}");
        }
        product["id"].as_str().unwrap().to_owned()
    };
    lines.lines().map(id).collect()
}

#[test]
fn a_category_is_listed_split_checked_and_exported() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("data");
    told(&command(&store, &["demo", "--products", "900"]));
    let list = told(&command(&store, &["category", "list"]));
    let line = |list: &str, model: &str| {
        let found = list.lines().find(|l| l.starts_with("Электроника") && l.contains(model));
        found.unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // category, products, model, level, buckets, min, median, max, state
    let hash = line(&list, "hash");
    assert_eq!(hash[3..], ["0", "1", "405", "405", "405", "stable"], "{list}");
    assert_eq!(line(&list, "price")[3], "24", "{list}");

    let split = told(&command(&store, &["category", "split", "Электроника"]));
    assert_eq!(split.matches("buckets: split").count(), 2, "{split}");
    let list = told(&command(&store, &["category", "list"]));
    assert_eq!(line(&list, "hash")[3..5], ["1", "2"], "{list}");
    assert_eq!(line(&list, "price")[3], "25", "{list}");
    let unknown = command(&store, &["category", "split", "Нет такой"]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");

    let checked = told(&command(&store, &["check"]));
    assert!(checked.contains("900 products and 1800 rows"), "{checked}");
    assert!(checked.contains("Nothing to mend."), "{checked}");

    let lines = told(&command(&store, &["export", "categories", "Электроника"]));
    let all = ids(&lines);
    assert_eq!(all.len(), 405);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 405, "each once");

    // Into a file: what a stopped export left is gone on with, and what it cannot use is not.
    let out = dir.path().join("out.ndjson");
    let export = ["export", "categories", "Электроника", "--out", out.to_str().unwrap()];
    let beside = |ending: &str| dir.path().join(format!("out.ndjson{ending}"));
    let first = lines.lines().next().unwrap();
    std::fs::write(beside(".partial"), format!("{first}\n{{\"half a li")).unwrap();
    std::fs::write(beside(".progress"), "{ not JSON").unwrap();
    told(&command(&store, &export));
    assert_eq!(ids(&std::fs::read_to_string(&out).unwrap()).len(), 405);
    assert!(!beside(".partial").exists() && !beside(".progress").exists());
    let wrong = command(&store, &["export", "categories", "Нет такой"]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
}

#[test]
fn an_export_that_was_stopped_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("data");
    told(&command(&store, &["demo", "--products", "2000"]));
    let out = dir.path().join("out.ndjson");
    let export = ["export", "categories", "Электроника", "--out", out.to_str().unwrap()];
    let fault = |n: &str| {
        let store = format!("embedded:{}", store.display());
        run(vitrina(&export)
            .args(["--store", &store])
            .env("VITRINA_FAULT", format!("export.step:{n}")))
    };
    let died = fault("2");
    assert_eq!(died.status.code(), None, "by a signal: {died:?}");
    assert!(!out.exists(), "half a file is not shown as a whole one");
    let partial = std::fs::read_to_string(dir.path().join("out.ndjson.partial")).unwrap();
    let before = ids(&partial);
    assert!(!before.is_empty() && before.len() < 900, "{}", before.len());
    told(&command(&store, &export));
    let whole = ids(&std::fs::read_to_string(&out).unwrap());
    assert_eq!(whole[..before.len()], before, "it went on");
    assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), 900);
    assert_eq!(whole.len(), 900, "each once");
}
