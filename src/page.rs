//! Pages of a list: what a client may ask for, and the cursors it comes back with.

use std::sync::Arc;

use aws_lc_rs::{constant_time, hmac};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::error::Error;
use crate::root_key::{self, RootKey};

/// How long a page is if the client does not say.
pub const DEFAULT_PAGE: usize = 20;
/// The longest page.
pub const MAX_PAGE: usize = 100;
/// Longest text that can be a cursor: a product id of 64 characters of four bytes, the price, the
/// signature, in base 64, and room to spare.
const MAX_CURSOR_CHARS: usize = 512;
/// Bytes of a cursor's signature: enough that nobody guesses one.
const SIGNATURE_BYTES: usize = 16;

/// Which part of a list is asked for, as the arguments of a connection say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageArgs {
    /// How many.
    pub limit: usize,
    /// The last ones instead of the first.
    pub from_end: bool,
    /// Only what comes after this cursor.
    pub after: Option<String>,
    /// Only what comes before this cursor.
    pub before: Option<String>,
}

impl PageArgs {
    /// Checks the arguments of a connection.
    pub fn check(
        first: Option<i32>,
        after: Option<String>,
        last: Option<i32>,
        before: Option<String>,
    ) -> Result<Self, Error> {
        let size = |name: &str, asked: i32| match usize::try_from(asked) {
            Ok(size) if size <= MAX_PAGE => Ok(size),
            _ => Err(Error::argument(name, format!("a page has 0 to {MAX_PAGE} entries"))),
        };
        let (limit, from_end) = match (first, last) {
            (Some(_), Some(_)) => {
                let fault = "give either `first` or `last`, not both";
                return Err(Error::argument("last", fault));
            }
            (Some(first), None) => (size("first", first)?, false),
            (None, Some(last)) => (size("last", last)?, true),
            (None, None) => (DEFAULT_PAGE, false),
        };
        Ok(Self { limit, from_end, after, before })
    }
}

/// Signs cursors, so that a client can only come back with what it was given, for the list it was
/// given it for.
#[derive(Clone)]
pub struct CursorKey(Arc<hmac::Key>);

impl CursorKey {
    /// The key for cursors, made from the shop's root key. It is for nothing else.
    pub fn derive(root: &RootKey) -> Self {
        Self(Arc::new(root_key::derive(root, "vitrina cursors, first form")))
    }

    /// The cursors of a list. `list` tells it from all others.
    pub fn of(&self, list: &[&[u8]]) -> ListCursors {
        let mut name = Vec::new();
        for part in list {
            name.extend_from_slice(&length(part));
            name.extend_from_slice(part);
        }
        ListCursors { key: self.0.clone(), name }
    }
}

/// Signs the cursors of one list.
pub struct ListCursors {
    key: Arc<hmac::Key>,
    /// The parts of its name, each after its length, which keeps two parts from being taken for two
    /// others.
    name: Vec<u8>,
}

fn length(part: &[u8]) -> [u8; 8] {
    u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes()
}

impl ListCursors {
    /// A cursor for a place in the list.
    pub fn seal(&self, place: &[u8]) -> String {
        let mut bytes = place.to_vec();
        bytes.extend_from_slice(&self.signature(place).as_ref()[..SIGNATURE_BYTES]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The place of a cursor that was made for this list; of no other text.
    pub fn open(&self, cursor: &str) -> Result<Vec<u8>, Error> {
        if cursor.len() > MAX_CURSOR_CHARS {
            return Err(Error::InvalidCursor);
        }
        let mut bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| Error::InvalidCursor)?;
        let split = bytes.len().checked_sub(SIGNATURE_BYTES).ok_or(Error::InvalidCursor)?;
        let signature = bytes.split_off(split);
        let expected = self.signature(&bytes);
        constant_time::verify_slices_are_equal(&signature, &expected.as_ref()[..SIGNATURE_BYTES])
            .map_err(|_| Error::InvalidCursor)?;
        Ok(bytes)
    }

    fn signature(&self, place: &[u8]) -> hmac::Tag {
        let mut signing = hmac::Context::with_key(&self.key);
        for part in [&self.name[..], &length(place), place] {
            signing.update(part);
        }
        signing.sign()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cursor_opens_only_for_its_list_and_its_key() {
        let key = CursorKey::derive(&[7; 32].into());
        let list: [&[u8]; 2] = [b"a", b"bc"];
        let cursor = key.of(&list).seal(b"place");
        assert_eq!(key.of(&list).open(&cursor).unwrap(), b"place");
        assert!(key.of(&[b"ab", b"c"]).open(&cursor).is_err());
        assert!(CursorKey::derive(&[8; 32].into()).of(&list).open(&cursor).is_err());
        assert!(key.of(&list).open(&cursor[1..]).is_err());
        assert!(key.of(&list).open("").is_err());
    }

    proptest! {
        #[test]
        fn no_other_text_is_a_cursor(text in ".{0,80}", flip in 0..40_usize) {
            let key = CursorKey::derive(&[7; 32].into());
            prop_assert!(key.of(&[b"list"]).open(&text).is_err());
            let mut cursor = key.of(&[b"list"]).seal(b"some place").into_bytes();
            let at = flip % cursor.len();
            cursor[at] = if cursor[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(cursor).unwrap();
            // The last character carries bits that are not used; a strict decoder refuses them.
            prop_assert!(key.of(&[b"list"]).open(&changed).is_err());
        }

        #[test]
        fn a_cursor_comes_back_and_none_of_its_bits_may_change(
            list in vec(vec(any::<u8>(), 0..20), 0..4),
            place in vec(any::<u8>(), 0..60),
        ) {
            let key = CursorKey::derive(&[7; 32].into());
            let list: Vec<&[u8]> = list.iter().map(Vec::as_slice).collect();
            let cursor = key.of(&list).seal(&place);
            prop_assert_eq!(key.of(&list).open(&cursor).unwrap(), place);
            for bit in 0..cursor.len() * 8 {
                let mut changed = cursor.clone().into_bytes();
                changed[bit / 8] ^= 1 << (bit % 8);
                // What is no text cannot be sent.
                let Ok(changed) = String::from_utf8(changed) else { continue };
                prop_assert!(key.of(&list).open(&changed).is_err(), "{} for {}", changed, cursor);
            }
            for end in 0..cursor.len() {
                prop_assert!(key.of(&list).open(&cursor[..end]).is_err());
            }
            for more in ["A", "AAAA", "=", " "] {
                let longer = format!("{cursor}{more}");
                prop_assert!(key.of(&list).open(&longer).is_err());
            }
        }
    }

    #[test]
    fn pages_have_a_size() {
        let check =
            |first, last| PageArgs::check(first, None, last, None).map(|a| (a.limit, a.from_end));
        assert_eq!(check(None, None).unwrap(), (20, false));
        assert_eq!(check(Some(0), None).unwrap(), (0, false));
        assert_eq!(check(None, Some(100)).unwrap(), (100, true));
        for (first, last) in
            [(Some(-1), None), (Some(101), None), (None, Some(i32::MAX)), (Some(1), Some(1))]
        {
            assert!(check(first, last).is_err());
        }
    }
}
