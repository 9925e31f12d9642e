//! Embeds GraphiQL into the binary.
//!
//! With a built `web/dist` (see `web/build.js`) its files go in, and `/graphql` works in a browser
//! with no internet. Without it, so that `cargo build` needs no node, the page is `web/cdn.html`,
//! which loads the same versions, those of `web/package-lock.json`, from the CDN. Both ways give
//! `src/server/graphiql.rs` the same table, in `$OUT_DIR/web_assets.rs`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Files that `web/cdn.html` needs from the server itself.
const CDN_SCRIPTS: [&str; 2] = ["app.js", "examples.js"];

fn main() -> Result<(), Box<dyn Error>> {
    let web = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("web");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    // Never `web` itself: Cargo would look through node_modules at every build. `dist` is in a
    // fresh clone too, with nothing but a .gitignore, because Cargo reruns a script at every build
    // when a watched path is missing.
    for watched in ["dist", "cdn.html", "package-lock.json"] {
        println!("cargo::rerun-if-changed=web/{watched}");
    }
    for script in CDN_SCRIPTS {
        println!("cargo::rerun-if-changed=web/{script}");
    }

    let built_page = web.join("dist/index.html");
    let embedded = built_page.exists();
    let (page, assets) = if embedded {
        (built_page, built_assets(&web.join("dist"))?)
    } else {
        let page = out.join("cdn.html");
        fs::write(&page, cdn_page(&web)?)?;
        (page, CDN_SCRIPTS.map(|name| (name.to_owned(), web.join(name))).into())
    };
    fs::write(out.join("web_assets.rs"), table(embedded, &page, &assets)?)?;
    Ok(())
}

/// The gzipped files of the built page, by the name that the page asks for.
fn built_assets(dist: &Path) -> Result<BTreeMap<String, PathBuf>, Box<dyn Error>> {
    let mut assets = BTreeMap::new();
    for entry in fs::read_dir(dist)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".gz")) {
            assets.insert(name.to_owned(), path);
        }
    }
    Ok(assets)
}

/// `web/cdn.html` with each `{{package}}` replaced by that package's version.
fn cdn_page(web: &Path) -> Result<String, Box<dyn Error>> {
    let lock = fs::read_to_string(web.join("package-lock.json"))?;
    let template = fs::read_to_string(web.join("cdn.html"))?;
    let mut page = String::with_capacity(template.len());
    let mut rest = template.as_str();
    while let Some((before, after)) = rest.split_once("{{") {
        let (package, after) = after.split_once("}}").ok_or("cdn.html: {{ without }}")?;
        let version = locked_version(&lock, package)
            .ok_or_else(|| format!("package-lock.json has no version of {package}"))?;
        page.push_str(before);
        page.push_str(version);
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

/// The version of a package in the lock file. npm writes one property per line, the version first,
/// so this needs no JSON parser and the crate no build dependency.
fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let (_, entry) = lock.split_once(&format!("\"node_modules/{package}\": {{"))?;
    let (_, version) = entry.split_once("\"version\": \"")?;
    version.split_once('"').map(|(version, _)| version)
}

/// The Rust source of the table.
fn table(
    embedded: bool,
    page: &Path,
    assets: &BTreeMap<String, PathBuf>,
) -> Result<String, Box<dyn Error>> {
    let literal = |path: &Path| match path.to_str() {
        Some(path) => Ok(format!("{path:?}")),
        None => Err(format!("not a path in UTF-8: {}", path.display())),
    };
    let mut source = format!(
        "const EMBEDDED: bool = {embedded};\n\
         static PAGE: &[u8] = include_bytes!({});\n\
         static ASSETS: &[(&str, &str, &[u8])] = &[\n",
        literal(page)?
    );
    for (name, path) in assets {
        let content_type = match Path::new(name).extension().and_then(|ext| ext.to_str()) {
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            _ => return Err(format!("no content type known for {name}").into()),
        };
        writeln!(source, "    ({name:?}, {content_type:?}, include_bytes!({})),", literal(path)?)?;
    }
    source.push_str("];\n");
    Ok(source)
}
