//! Values as the log shows them: one line, whatever is in them. Somebody else may have chosen a text,
//! to look like a line of the log, or to make the terminal of whoever reads it do something.

use std::fmt::{self, Write};

/// Most characters of a value that the text log shows. What a client chooses is shorter; what a
/// driver says may not be.
const MAX_VALUE_CHARS: usize = 2_000;

/// Whether a character does something else than to be read: control characters, ends of lines,
/// marks that turn the direction of what follows, and those that cannot be seen.
fn is_sly(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || c == '\u{feff}'
}

/// What a character is written as that is not written as it is.
#[derive(Clone, Copy)]
enum Escapes {
    /// As Rust writes it.
    Text,
    /// As JSON does, where quotation marks and backslashes mean something.
    Json,
}

impl Escapes {
    fn is_plain(self, byte: u8) -> bool {
        let means_something = matches!(self, Self::Json) && matches!(byte, b'"' | b'\\');
        (0x20..0x7f).contains(&byte) && !means_something
    }

    fn write(self, out: &mut dyn Write, c: char) -> fmt::Result {
        match (self, c) {
            (Self::Text, c) if is_sly(c) => write!(out, "{}", c.escape_default()),
            (Self::Json, '"' | '\\') => write!(out, "\\{c}"),
            (Self::Json, '\n') => out.write_str("\\n"),
            // All that are sly are in the first plane, so one escape is enough.
            (Self::Json, c) if is_sly(c) => write!(out, "\\u{:04x}", u32::from(c)),
            _ => out.write_char(c),
        }
    }
}

/// Writes what it is given with sly characters made visible, and no more than a value may have.
struct Plain<'a> {
    out: &'a mut dyn Write,
    left: usize,
    escapes: Escapes,
}

impl Write for Plain<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // As nearly everything is.
        if text.len() < self.left && text.bytes().all(|byte| self.escapes.is_plain(byte)) {
            self.left -= text.len();
            return self.out.write_str(text);
        }
        for c in text.chars() {
            match self.left {
                0 => return Ok(()),
                1 => self.out.write_char('…')?,
                _ => self.escapes.write(self.out, c)?,
            }
            self.left -= 1;
        }
        Ok(())
    }
}

/// Writes a value of a line of text.
pub(super) fn write_value(out: &mut dyn Write, value: &dyn fmt::Debug) -> fmt::Result {
    write!(Plain { out, left: MAX_VALUE_CHARS, escapes: Escapes::Text }, "{value:?}")
}

/// Writes a text of a line of text, in quotation marks.
pub(super) fn write_quoted(out: &mut dyn Write, value: &str) -> fmt::Result {
    // As nearly every one: what Rust would not write otherwise.
    if value.len() < MAX_VALUE_CHARS && value.bytes().all(|byte| Escapes::Json.is_plain(byte)) {
        out.write_char('"')?;
        out.write_str(value)?;
        return out.write_char('"');
    }
    write_value(out, &value)
}

/// Writes a text of a line of JSON.
pub(super) fn write_json(out: &mut dyn Write, value: &dyn fmt::Display) -> fmt::Result {
    out.write_char('"')?;
    write!(Plain { out, left: MAX_VALUE_CHARS, escapes: Escapes::Json }, "{value}")?;
    out.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_on_its_line_and_in_its_measure() {
        let shown = |text: &str| {
            let mut out = String::new();
            write_value(&mut out, &format_args!("{text}")).unwrap();
            out
        };
        assert_eq!(shown("Чайник «1,7 л»"), "Чайник «1,7 л»");
        let sly = "a\nb\r\u{1b}[31m\u{7}\u{7f}\u{9b}\u{85}\u{202e}\u{2028}\u{feff}\0";
        let told = shown(sly);
        assert!(!told.contains(is_sly), "{told:?}");
        assert!(told.starts_with("a\\nb\\r\\u{1b}[31m"), "{told}");
        let long = shown(&"я".repeat(100_000));
        assert_eq!(long.chars().count(), MAX_VALUE_CHARS);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn a_text_of_json_means_the_same_afterwards() {
        let shown = |text: &str| {
            let mut out = String::new();
            write_json(&mut out, &text).unwrap();
            out
        };
        for text in ["plain", "Чайник", "a\nb\u{1b}", "\"\\\"", "я\u{7f}\u{9b}31m\u{202e}\u{2028}"]
        {
            let told = shown(text);
            assert!(!told.contains(is_sly), "{told:?}");
            assert_eq!(serde_json::from_str::<String>(&told).unwrap(), text, "{told}");
        }
        let long: String = serde_json::from_str(&shown(&"\"".repeat(100_000))).unwrap();
        assert_eq!(long.chars().count(), MAX_VALUE_CHARS);
    }
}
