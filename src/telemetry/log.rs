//! The log: lines of text or JSON on standard error.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::{Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry;
use tracing_subscriber::registry::LookupSpan;

use super::lines::Lines;
use crate::config::LogFormat;

/// Log lines are written out once so many bytes have gathered, or after [`LOG_FLUSH`].
const LOG_BUFFER_BYTES: usize = 32 << 10;
/// The longest a log line waits to be written out.
const LOG_FLUSH: Duration = Duration::from_millis(100);

/// Keeps the log going; writes out what has gathered when it is dropped.
#[must_use]
pub struct LogGuard(BufferedStderr);

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Starts logging to standard error, of panics too: what they tell may have been sent by a client. Called
/// once, by `main`.
pub fn init(format: LogFormat) -> LogGuard {
    let out = BufferedStderr::start();
    // The driver's own notes about connections are not this program's news; its warnings are.
    let filter = Targets::new()
        .with_default(Level::INFO)
        .with_target("scylla", Level::WARN)
        // That the cluster is away is told once for each attempt, by whoever waits for it.
        .with_target("scylla::cluster::metadata", LevelFilter::OFF);
    let lines = lines(format, out.clone());
    // Fails only when logging was started before, as several tests of one process do.
    let _ = registry().with(lines.with_filter(filter)).try_init();
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.payload();
        let text = text.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.payload().downcast_ref::<String>().map(String::as_str));
        let place = panic.location().map(ToString::to_string);
        tracing::error!(place, text, "a panic");
    }));
    LogGuard(out)
}

/// Writes events as lines.
fn lines<S, W>(format: LogFormat, out: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // No colours: they are a feature of the library that is not built in, and it panics when asked.
    let lines = fmt::layer().with_ansi(false).with_writer(out);
    lines.event_format(Lines(format)).boxed()
}

/// Writes log lines to standard error a buffer at a time: a system call per line would cost more
/// than all other work of a small request. Warnings and errors are written at once.
#[derive(Clone)]
struct BufferedStderr {
    buffer: Arc<Mutex<Vec<u8>>>,
}

impl BufferedStderr {
    fn start() -> Self {
        let buffer = Arc::new(Mutex::new(Vec::with_capacity(LOG_BUFFER_BYTES * 2)));
        let this = Self { buffer };
        let flusher = this.clone();
        // Without the thread, lines still come out whenever the buffer is full.
        let _ = std::thread::Builder::new().name("log-flusher".to_owned()).spawn(move || {
            loop {
                std::thread::sleep(LOG_FLUSH);
                flusher.flush();
            }
        });
        this
    }

    fn append(&self, line: &[u8], at_once: bool) {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.extend_from_slice(line);
        if at_once || buffer.len() >= LOG_BUFFER_BYTES {
            write_out(&mut buffer);
        }
    }

    fn flush(&self) {
        write_out(&mut self.buffer.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

fn write_out(buffer: &mut Vec<u8>) {
    if !buffer.is_empty() {
        // A log that cannot be written must not stop the shop.
        let _ = io::stderr().write_all(buffer);
        buffer.clear();
    }
}

struct Line<'a> {
    out: &'a BufferedStderr,
    at_once: bool,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.append(bytes, self.at_once);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for BufferedStderr {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        Line { out: self, at_once: true }
    }

    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        Line { out: self, at_once: *meta.level() <= Level::WARN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the log makes of an event that does not go out at once.
    fn logged(format: LogFormat, log: impl FnOnce()) -> String {
        let out = BufferedStderr { buffer: Arc::default() };
        let subscriber = registry().with(lines(format, out.clone()));
        tracing::subscriber::with_default(subscriber, log);
        let bytes = out.buffer.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn nothing_that_is_logged_makes_a_second_line_or_reaches_the_terminal_raw() {
        let sly = "x\n2026-01-01T00:00:00Z  INFO forged\r\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\0";
        let log = || {
            tracing::info!(text = sly, shown = %sly, debug = ?sly, "a message of ours: {sly}");
        };
        for format in [LogFormat::Text, LogFormat::Json] {
            let told = logged(format, log);
            assert_eq!(told.matches('\n').count(), 1, "{told}");
            let raw = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
            assert!(!told.contains(raw), "{told:?}");
            assert!(told.contains("forged") && told.contains("a message of ours"), "{told}");
        }
    }

    #[test]
    fn a_line_begins_with_its_message() {
        let log = || {
            tracing::info!(request_id = "r-1", name = None::<&str>, ms = 1.5, n = 7, "operation");
        };
        let told = logged(LogFormat::Text, log);
        assert!(told.ends_with(": operation request_id=\"r-1\" ms=1.5 n=7\n"), "{told}");
        assert!(told.contains(" INFO "), "{told}");
        let told: serde_json::Value = serde_json::from_str(&logged(LogFormat::Json, log)).unwrap();
        assert_eq!((&told["message"], &told["n"]), (&"operation".into(), &7.into()));
    }

    #[test]
    fn a_line_of_json_has_values_of_every_kind() {
        let log = || {
            let (most, least, none) = (u64::MAX, i64::MIN, f64::NAN);
            tracing::info!(yes = true, most, least, none, ms = 0.25, r#type = ?"t", shown = %"«\"»", "m");
        };
        let line = logged(LogFormat::Json, log);
        let told: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(line.starts_with("{\"timestamp\":\"20") && line.ends_with("}\n"), "{line}");
        assert!(told["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
        let expected = serde_json::json!({
            "timestamp": told["timestamp"], "level": "INFO", "message": "m", "yes": true,
            "most": u64::MAX, "least": i64::MIN, "none": null, "ms": 0.25, "type": "\"t\"",
            "shown": "«\"»", "target": module_path!(),
        });
        assert_eq!(told, expected);
    }
}
