//! `vitrina demo` into an empty folder.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::figures::{float, megabytes, print_table, thousands};
use super::process::{Process, vitrina};
use super::worker::folder;
use super::{Result, Settings};

/// How often its memory is looked at. The kernel keeps the peak, so only a peak in the last moment
/// could be missed.
const SAMPLE: Duration = Duration::from_millis(10);
/// Longest time for a thousand products: a load that hangs must end.
const THOUSAND_WITHIN: Duration = Duration::from_secs(5);
/// Time for the rest.
const REST_WITHIN: Duration = Duration::from_secs(60);

/// The unit that file systems count blocks in.
const BLOCK_BYTES: u64 = 512;

/// Measures and prints.
pub(crate) async fn run(settings: &Settings) -> Result<()> {
    let folder = folder()?;
    let data = folder.path().join("data");
    let store = format!("embedded:{}", data.display());
    let products = settings.products.to_string();
    let started = Instant::now();
    let mut demo = vitrina(&["demo", "--products", &products, "--store", &store]);
    let mut demo = Process::start(&mut demo, &folder.path().join("demo.log"))?;
    let mut peak = 0;
    let filled = async {
        loop {
            if let Some(status) = demo.ended()? {
                return Ok::<_, super::Error>(status);
            }
            peak = demo.memory("VmHWM").unwrap_or(0).max(peak);
            tokio::time::sleep(SAMPLE).await;
        }
    };
    let thousands_of = u32::try_from(settings.products.div_ceil(1_000))?;
    let limit = REST_WITHIN + THOUSAND_WITHIN * thousands_of;
    let status = tokio::time::timeout(limit, filled).await??;
    let elapsed = started.elapsed();
    if !status.success() {
        return Err(format!("the demo was not loaded: {}", demo.last_words()).into());
    }
    let row = |name: &str, figure: String| vec![name.to_owned(), figure];
    let per_second = float(settings.products) / elapsed.as_secs_f64();
    let rows = [
        row("time, start and last sync included", format!("{:.1} s", elapsed.as_secs_f64())),
        row("products/s", thousands(per_second)),
        row("peak memory (VmHWM)", format!("{:.0} MB", megabytes(peak))),
        row("folder afterwards", format!("{:.0} MB", megabytes(size_of(&data)?))),
    ];
    let count = thousands(float(settings.products));
    print_table(&format!("vitrina demo --products {count}, embedded store"), &rows);
    Ok(())
}

/// Bytes on disk of all files below a folder: less than their lengths where they have holes.
fn size_of(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let data = entry.metadata()?;
            if data.is_dir() {
                folders.push(entry.path());
            } else {
                bytes += data.blocks() * BLOCK_BYTES;
            }
        }
    }
    Ok(bytes)
}
