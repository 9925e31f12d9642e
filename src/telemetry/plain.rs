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

/// Writes what it is given with sly characters made visible, and no more than a value may have.
struct Plain<'a> {
    out: &'a mut dyn Write,
    left: usize,
}

impl Write for Plain<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // As nearly everything is.
        if text.len() < self.left && text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
            self.left -= text.len();
            return self.out.write_str(text);
        }
        for c in text.chars() {
            match self.left {
                0 => return Ok(()),
                1 => self.out.write_char('…')?,
                _ if is_sly(c) => write!(self.out, "{}", c.escape_default())?,
                _ => self.out.write_char(c)?,
            }
            self.left -= 1;
        }
        Ok(())
    }
}

/// Writes a value of a line of text.
pub(super) fn write_value(out: &mut dyn Write, value: &dyn fmt::Debug) -> fmt::Result {
    write!(Plain { out, left: MAX_VALUE_CHARS }, "{value:?}")
}

/// A line of JSON in which sly characters are escaped as JSON does it. Its own escapes leave some as
/// they are, and such characters stand nowhere but in texts.
pub(super) fn plain_json(line: &[u8]) -> Option<String> {
    // All but a few lines have nothing of the kind, and most have no character beyond ASCII.
    if !line.iter().any(|byte| !byte.is_ascii() || *byte == 0x7f) {
        return None;
    }
    let text = str::from_utf8(line).ok()?;
    if !text.trim_end_matches('\n').contains(is_sly) {
        return None;
    }
    let mut plain = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if is_sly(c) && c != '\n' {
            // All of them are in the first plane, so one escape is enough.
            let _ = write!(plain, "\\u{:04x}", u32::from(c));
        } else {
            plain.push(c);
        }
    }
    Some(plain)
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
    fn a_line_of_json_means_the_same_afterwards() {
        let line = |text: &str| serde_json::json!({ "text": text }).to_string() + "\n";
        for text in ["plain", "Чайник", "a\nb\u{1b}"] {
            assert_eq!(plain_json(line(text).as_bytes()), None, "{text}");
        }
        let sly = "я\u{7f}\u{9b}31m\u{202e}\u{2028}";
        let told = plain_json(line(sly).as_bytes()).unwrap();
        assert!(!told.trim_end().contains(is_sly), "{told:?}");
        let read: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(read["text"], sly);
    }
}
