//! The log: lines of text or JSON on standard error.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry;

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

/// Starts logging to standard error. Called once, by `main`.
pub fn init(format: LogFormat) -> LogGuard {
    let out = BufferedStderr::start();
    // The driver's own notes about connections are not this program's news; its warnings are.
    let filter = Targets::new()
        .with_default(Level::INFO)
        .with_target("scylla", Level::WARN)
        // That the cluster is away is told once for each attempt, by whoever waits for it.
        .with_target("scylla::cluster::metadata", LevelFilter::OFF);
    let lines = fmt::layer().with_ansi(io::stderr().is_terminal()).with_writer(out.clone());
    // Fails only when logging was started before, as several tests of one process do.
    let _ = match format {
        LogFormat::Text => registry().with(lines.with_filter(filter)).try_init(),
        LogFormat::Json => {
            registry().with(lines.json().flatten_event(true).with_filter(filter)).try_init()
        }
    };
    LogGuard(out)
}

/// Writes log lines to standard error a buffer at a time: a system call per line would cost more
/// than all other work of a small request. Warnings and errors are written at once.
#[derive(Clone)]
struct BufferedStderr(Arc<Mutex<Vec<u8>>>);

impl BufferedStderr {
    fn start() -> Self {
        let this = Self(Arc::new(Mutex::new(Vec::with_capacity(LOG_BUFFER_BYTES * 2))));
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
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.extend_from_slice(line);
        if at_once || buffer.len() >= LOG_BUFFER_BYTES {
            write_out(&mut buffer);
        }
    }

    fn flush(&self) {
        write_out(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
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
