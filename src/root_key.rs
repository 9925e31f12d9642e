//! What is derived from the shop's root key: a key for each purpose, so that what is signed for one
//! means nothing to another.

use aws_lc_rs::hmac;

/// The key that all others are derived from; see [`Store::root_key`](crate::storage::Store::root_key).
pub type RootKey = [u8; 32];

/// The key for a purpose.
pub fn derive(root: &RootKey, purpose: &str) -> hmac::Key {
    let root = hmac::Key::new(hmac::HMAC_SHA256, root);
    let own = hmac::sign(&root, purpose.as_bytes());
    hmac::Key::new(hmac::HMAC_SHA256, own.as_ref())
}
