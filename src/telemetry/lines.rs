//! Log lines of text or JSON, written while an event tells its fields. The library's own go through a formatter
//! for each value, those of JSON through two more libraries; for the line that each operation has, that was a
//! twentieth or a tenth of what a card takes that is in no cache.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::plain::{write_json, write_quoted, write_value};
use crate::config::LogFormat;

/// A line for each event: when, how grave, which part of the program tells of it, its message and its other
/// fields. The program has no spans that could be told of, too.
pub(super) struct Lines(pub(super) LogFormat);

impl<S, N> FormatEvent<S, N> for Lines
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
        let (format, about) = (self.0, event.metadata());
        let level = about.level().as_str();
        match format {
            LogFormat::Text => {
                SystemTime.format_time(&mut line)?;
                write!(line, " {level:>5} {}:", about.target())?;
            }
            LogFormat::Json => {
                line.write_str("{\"timestamp\":\"")?;
                SystemTime.format_time(&mut line)?;
                write!(line, "\",\"level\":\"{level}\"")?;
            }
        }
        let mut fields = Fields { line: &mut line, format, written: Ok(()) };
        event.record(&mut fields);
        fields.written?;
        if let LogFormat::Json = format {
            line.write_str(",\"target\":")?;
            write_json(&mut line, &about.target())?;
            line.write_char('}')?;
        }
        line.write_char('\n')
    }
}

/// Writes fields: members of an object that has some already, or names and values after a space.
struct Fields<'a> {
    line: &'a mut dyn Write,
    format: LogFormat,
    written: fmt::Result,
}

impl Fields<'_> {
    fn add(&mut self, field: &Field, value: impl FnOnce(&mut dyn Write, LogFormat) -> fmt::Result) {
        if self.written.is_ok() {
            self.written = self.key(field.name()).and_then(|()| value(self.line, self.format));
        }
    }

    /// Keys are names of the program. In a line of text the message has none.
    fn key(&mut self, name: &str) -> fmt::Result {
        let (before, after) = match self.format {
            LogFormat::Json => (",\"", "\":"),
            LogFormat::Text if name == "message" => return self.line.write_char(' '),
            LogFormat::Text => (" ", "="),
        };
        self.line.write_str(before)?;
        self.line.write_str(name.strip_prefix("r#").unwrap_or(name))?;
        self.line.write_str(after)
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, |line, format| match format {
            LogFormat::Json if !value.is_finite() => line.write_str("null"),
            _ => write!(line, "{value:?}"),
        });
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, |line, _| write!(line, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, |line, _| write!(line, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, |line, _| line.write_str(if value { "true" } else { "false" }));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, |line, format| match format {
            LogFormat::Text => write_quoted(line, value),
            LogFormat::Json => write_json(line, &value),
        });
    }

    /// Everything else: messages and errors, too.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, |line, format| match format {
            LogFormat::Text => write_value(line, value),
            LogFormat::Json => write_json(line, &format_args!("{value:?}")),
        });
    }
}
