//! Lines of JSON, written while an event tells its fields. The library's own go through two more
//! libraries, value by value; for the line that each operation has, that was a tenth of what a card takes
//! that is in no cache.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::plain::write_json;

/// An object for each event: when, how grave, its fields, and which part of the program tells of it.
/// The program has no spans that could be told of, too.
pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let about = event.metadata();
        line.write_str("{\"timestamp\":\"")?;
        SystemTime.format_time(&mut line)?;
        line.write_str("\",\"level\":\"")?;
        line.write_str(about.level().as_str())?;
        line.write_char('"')?;
        let mut members = Members { line: &mut line, written: Ok(()) };
        event.record(&mut members);
        members.written?;
        line.write_str(",\"target\":")?;
        write_json(&mut line, &about.target())?;
        line.write_str("}\n")
    }
}

/// Writes fields as members of an object that has some already.
struct Members<'a> {
    line: &'a mut dyn Write,
    written: fmt::Result,
}

impl Members<'_> {
    fn add(&mut self, field: &Field, value: impl FnOnce(&mut dyn Write) -> fmt::Result) {
        if self.written.is_ok() {
            self.written = self.key(field.name()).and_then(|()| value(self.line));
        }
    }

    /// Keys are names of the program.
    fn key(&mut self, name: &str) -> fmt::Result {
        self.line.write_str(",\"")?;
        self.line.write_str(name.strip_prefix("r#").unwrap_or(name))?;
        self.line.write_str("\":")
    }
}

impl Visit for Members<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, |line| {
            if value.is_finite() { write!(line, "{value:?}") } else { line.write_str("null") }
        });
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, |line| write!(line, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, |line| write!(line, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, |line| line.write_str(if value { "true" } else { "false" }));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, |line| write_json(line, &value));
    }

    /// Everything else: messages and errors, too.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, |line| write_json(line, &format_args!("{value:?}")));
    }
}
