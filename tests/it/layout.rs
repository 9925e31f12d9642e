//! The rules of the source tree, as ARCHITECTURE.md states them.

use std::fs;
use std::path::{Path, PathBuf};

use vitrina::graphql::ShopGraph;

const DOMAINS: [&str; 5] = ["cart", "catalog", "inventory", "orders", "sessions"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every source file below `dir`, by its path from there; without files of tests.
fn sources(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("tests.rs")
        {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}

/// The code of a file, without its tests and comments.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn assert_free_of(file: &Path, forbidden: &[&str]) {
    let code = code(&fs::read_to_string(file).unwrap());
    for word in forbidden {
        assert!(!code.contains(word), "{} must not name `{word}`", file.display());
    }
}

#[test]
fn every_domain_has_the_same_files() {
    for domain in DOMAINS {
        for file in ["mod", "model", "store", "embedded", "cassandra", "service", "graphql"] {
            let path = root().join(format!("src/{domain}/{file}.rs"));
            assert!(path.exists(), "{} is missing", path.display());
        }
    }
}

/// A file of a domain and what it was cut into: `model.rs`, `model/*.rs`.
fn part_of(domain: &str, part: &str) -> Vec<PathBuf> {
    let file = root().join(format!("src/{domain}/{part}.rs"));
    let folder = root().join(format!("src/{domain}/{part}"));
    let mut files = vec![file];
    if folder.exists() {
        files.extend(sources(&folder).into_iter().map(|(path, _)| path));
    }
    files
}

fn assert_parts_free_of(part: &str, forbidden: &[&str]) {
    for domain in DOMAINS {
        for file in part_of(domain, part) {
            assert_free_of(&file, forbidden);
        }
    }
}

#[test]
fn models_do_no_io() {
    let forbidden = ["tokio", "std::fs", "std::net", "scylla", "fjall", "redis", "async fn"];
    assert_parts_free_of("model", &forbidden);
}

#[test]
fn resolvers_name_no_driver_and_no_store() {
    let forbidden = ["scylla", "fjall", "redis", "crate::storage", "super::store"];
    assert_parts_free_of("graphql", &forbidden);
}

#[test]
fn services_know_no_graphql() {
    let forbidden = ["async_graphql", "crate::graphql", "axum", "scylla", "fjall"];
    assert_parts_free_of("service", &forbidden);
}

#[test]
fn stores_know_no_graphql_no_cache_and_no_http() {
    let forbidden = ["async_graphql", "axum", "crate::graphql", "crate::cache"];
    for (path, _) in sources(&root().join("src/storage")) {
        assert_free_of(&path, &forbidden);
    }
    for part in ["store", "embedded", "cassandra"] {
        assert_parts_free_of(part, &forbidden);
    }
}

#[test]
fn caches_know_no_domain_and_no_store() {
    for (path, _) in sources(&root().join("src/cache")) {
        assert_free_of(&path, &["crate::catalog", "crate::storage", "crate::graphql", "axum"]);
    }
}

#[test]
fn only_a_store_names_its_driver() {
    for (path, text) in sources(&root().join("src")) {
        let relative = path.strip_prefix(root()).unwrap().display().to_string();
        // The name of a log's source is not the use of it.
        let code = code(&text).replace("\"scylla::", "\"");
        if !relative.contains("cassandra") {
            assert!(!code.contains("scylla::"), "{relative} names the Cassandra driver");
        }
        if !relative.contains("embedded") {
            assert!(!code.contains("fjall::"), "{relative} names the embedded engine");
        }
        if !relative.contains("cache") {
            assert!(!code.contains("redis::"), "{relative} names the Redis driver");
        }
    }
}

#[test]
fn domains_do_not_import_each_other() {
    for domain in DOMAINS {
        for (path, text) in sources(&root().join("src").join(domain)) {
            let is_graph = path.display().to_string().contains("/graphql");
            for other in DOMAINS.iter().filter(|other| **other != domain) {
                let import = format!("crate::{other}::");
                // What is one graph to a client leads from one domain to the other.
                let graph = format!("crate::{other}::graphql::");
                let code = if is_graph { code(&text).replace(&graph, "") } else { code(&text) };
                assert!(!code.contains(&import), "{} imports {other}", path.display());
            }
        }
    }
}

#[test]
fn nothing_outside_tests_and_start_up_panics_on_purpose() {
    for (path, text) in sources(&root().join("src")) {
        for line in code(&text).lines() {
            let panics = [".unwrap()", "panic!(", "todo!(", "unimplemented!("];
            // A constant is computed by the compiler, which refuses a wrong one.
            let found = panics.iter().any(|panic| line.contains(panic)) && !line.contains("const ");
            assert!(!found, "{}: {}", path.display(), line.trim());
        }
    }
}

#[test]
fn the_printed_schema_is_the_one_checked_in() {
    let path = root().join("schema.graphql");
    let printed = ShopGraph::new(true).sdl();
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == printed,
        "schema.graphql differs from what the server prints; renew it with\n\n    \
         cargo run -- schema > schema.graphql\n"
    );
}

#[test]
fn every_type_of_the_schema_is_concrete() {
    use async_graphql::parser::parse_schema;
    use async_graphql::parser::types::{TypeKind, TypeSystemDefinition};
    // Flattening an operation and completing an answer rely on it.
    for definition in parse_schema(ShopGraph::new(true).sdl()).unwrap().definitions {
        if let TypeSystemDefinition::Type(ty) = definition {
            let is_abstract = matches!(ty.node.kind, TypeKind::Interface(_) | TypeKind::Union(_));
            assert!(!is_abstract, "{}", ty.node.name.node);
        }
    }
}

#[test]
fn every_type_and_field_of_the_schema_has_a_description() {
    use async_graphql::parser::parse_schema;
    use async_graphql::parser::types::{TypeKind, TypeSystemDefinition};
    let mut bare = Vec::new();
    for definition in parse_schema(ShopGraph::new(true).sdl()).unwrap().definitions {
        let TypeSystemDefinition::Type(ty) = definition else { continue };
        let name = ty.node.name.node.to_string();
        let mut check = |what: String, description: bool| {
            if !description {
                bare.push(what);
            }
        };
        check(name.clone(), ty.node.description.is_some());
        match ty.node.kind {
            TypeKind::Object(object) => {
                for field in object.fields {
                    let described = field.node.description.is_some();
                    check(format!("{name}.{}", field.node.name.node), described);
                }
            }
            TypeKind::InputObject(object) => {
                for field in object.fields {
                    let described = field.node.description.is_some();
                    check(format!("{name}.{}", field.node.name.node), described);
                }
            }
            TypeKind::Enum(values) => {
                for value in values.values {
                    let described = value.node.description.is_some();
                    check(format!("{name}.{}", value.node.value.node), described);
                }
            }
            _ => {}
        }
    }
    assert!(bare.is_empty(), "without a description: {bare:?}");
}
