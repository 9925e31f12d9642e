//! What is derived from the shop's root key: a key for each purpose, so that what is signed for one
//! means nothing to another.

use std::fmt;

use aws_lc_rs::hmac;

/// The key that all others are derived from; see [`Store::root_key`](crate::storage::Store::root_key).
/// It never shows up in a log or an error.
#[derive(Clone, PartialEq, Eq)]
pub struct RootKey([u8; 32]);

impl From<[u8; 32]> for RootKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[root key]")
    }
}

/// The key for a purpose.
pub fn derive(root: &RootKey, purpose: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, mark(root, purpose).as_ref())
}

/// What only this shop has for a purpose, and nothing that the root key could be guessed from.
pub fn mark(root: &RootKey, purpose: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &root.0), purpose.as_bytes())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::page::CursorKey;
    use crate::sessions::model::TokenKey;

    #[test]
    fn a_key_is_never_shown() {
        let root = RootKey::from([0xAB; 32]);
        assert_eq!(format!("{root:?} {root:#?}"), "[root key] [root key]");
        // The library shows the algorithm of a key, and nothing of the key.
        let shown = format!("{:?}", derive(&root, "a purpose"));
        assert!(shown.len() < 80 && !shown.contains("171"), "{shown}");
    }

    #[test]
    fn what_is_signed_for_one_purpose_means_nothing_to_another() {
        let root = RootKey::from([7; 32]);
        let (cursors, tokens) = (CursorKey::derive(&root), TokenKey::derive(&root));
        let id = Uuid::from_u128(7);
        let token = tokens.sign(id);
        // The same bytes in either form, each offered as the other.
        let as_cursor = token.trim_start_matches("vs1.");
        assert!(cursors.of(&[]).open(as_cursor).is_err());
        assert!(cursors.of(&[b"orders"]).open(as_cursor).is_err());
        assert_eq!(tokens.open(&format!("vs1.{}", cursors.of(&[]).seal(id.as_bytes()))), None);
        assert_eq!(tokens.open(&token), Some(id));
        let purposes = ["", "vitrina cursors, first form", "vitrina session tokens, first form"];
        for (n, one) in purposes.iter().enumerate() {
            for other in &purposes[n + 1..] {
                assert_ne!(mark(&root, one).as_ref(), mark(&root, other).as_ref());
            }
        }
    }
}
