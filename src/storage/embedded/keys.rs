//! Keys whose byte order is the order of what they stand for: partition key first, then the
//! clustering key, as in the tables of Cassandra.

use std::borrow::Cow;

/// Ends a text. Lower than any continuation of the text, so that `a` sorts before `ab`.
const TEXT_END: [u8; 2] = [0x00, 0x01];
/// Follows a zero byte inside a text, so that it cannot be taken for the end.
const ZERO_ESCAPE: u8 = 0xFF;

/// A key being put together, part by part.
///
/// Two keys of the same parts compare as bytes exactly as their parts compare one after another;
/// no key of a table is the beginning of another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key(Vec<u8>);

impl Key {
    /// A key with no parts: the beginning of every key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Greater than every key that begins with a text.
    pub fn last() -> Self {
        // No UTF-8 text has this byte.
        Self(vec![0xFF])
    }

    /// Adds a text. Texts sort by their UTF-8 bytes, which is the order of their code points.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.0.reserve(text.len() + TEXT_END.len());
        // Hardly any text has a zero in it.
        for (place, piece) in text.split('\0').enumerate() {
            if place > 0 {
                self.0.extend_from_slice(&[0, ZERO_ESCAPE]);
            }
            self.0.extend_from_slice(piece.as_bytes());
        }
        self.0.extend_from_slice(&TEXT_END);
        self
    }

    /// Adds a number.
    #[must_use]
    pub fn int(mut self, number: i64) -> Self {
        // With the sign bit turned over, negative numbers come first as bytes too.
        self.0.extend_from_slice(&(number ^ i64::MIN).to_be_bytes());
        self
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Reads the parts of a stored key back, in the order they were added.
pub struct KeyParts<'a>(&'a [u8]);

impl<'a> KeyParts<'a> {
    /// Starts at the first part.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next part as a text; `None` if it is not one.
    pub fn text(&mut self) -> Option<Cow<'a, str>> {
        let mut escaped = Vec::new();
        loop {
            // Up to the first zero, which is the end of nearly all texts.
            let (piece, rest) = self.0.split_at(self.0.iter().position(|byte| *byte == 0)?);
            let (mark, rest) = rest.split_first_chunk::<2>()?;
            self.0 = rest;
            match *mark {
                TEXT_END if escaped.is_empty() => return str::from_utf8(piece).ok().map(Cow::from),
                TEXT_END => {
                    escaped.extend_from_slice(piece);
                    return String::from_utf8(escaped).ok().map(Cow::from);
                }
                [0, ZERO_ESCAPE] => {
                    escaped.extend_from_slice(piece);
                    escaped.push(0);
                }
                // No key is written so.
                _ => return None,
            }
        }
    }

    /// The next part as a number; `None` if there are too few bytes.
    pub fn int(&mut self) -> Option<i64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(i64::from_be_bytes(*number) ^ i64::MIN)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_sort_as_the_parts_do(
            a in ("[\u{0}-\u{3}aяЯ]{0,4}", any::<i64>(), "[\u{0}-\u{2}b]{0,3}"),
            b in ("[\u{0}-\u{3}aяЯ]{0,4}", any::<i64>(), "[\u{0}-\u{2}b]{0,3}"),
        ) {
            let key = |parts: &(String, i64, String)| {
                Key::new().text(&parts.0).int(parts.1).text(&parts.2)
            };
            prop_assert_eq!(a.cmp(&b), key(&a).as_bytes().cmp(key(&b).as_bytes()));
        }

        #[test]
        fn parts_come_back(text in any::<String>(), number in any::<i64>(), last in any::<String>()) {
            let key = Key::new().text(&text).int(number).text(&last);
            let mut parts = KeyParts::new(key.as_bytes());
            prop_assert_eq!(parts.text(), Some(text.as_str().into()));
            prop_assert_eq!(parts.int(), Some(number));
            prop_assert_eq!(parts.text(), Some(last.as_str().into()));
        }

        #[test]
        fn rubbish_is_refused_not_a_panic(bytes in any::<Vec<u8>>()) {
            let mut parts = KeyParts::new(&bytes);
            let _ = (parts.text(), parts.int(), parts.text());
        }

        /// Two different keys are never read as the same parts.
        #[test]
        fn what_can_be_read_is_written_in_one_way_only(
            bytes in vec(prop_oneof![0..4_u8, Just(ZERO_ESCAPE), any::<u8>()], 0..40),
        ) {
            let mut parts = KeyParts::new(&bytes);
            if let (Some(text), Some(number), Some(last)) = (parts.text(), parts.int(), parts.text()) {
                let key = Key::new().text(&text).int(number).text(&last);
                prop_assert_eq!(&bytes[..bytes.len() - parts.0.len()], key.as_bytes());
            }
        }

        #[test]
        fn no_key_is_the_beginning_of_another(
            a in ("[\u{0}-\u{3}aя]{0,4}", any::<i64>()),
            b in ("[\u{0}-\u{3}aя]{0,4}", any::<i64>()),
        ) {
            let key = |parts: &(String, i64)| Key::new().text(&parts.0).int(parts.1);
            prop_assert_eq!(key(&a).as_bytes().starts_with(key(&b).as_bytes()), a == b);
            prop_assert!(key(&a) < Key::last());
        }
    }
}
