//! Names that follow from what they name, the same on every machine and in every version.

use aws_lc_rs::digest;
use uuid::Uuid;

/// The first bytes of the SHA-256 of these parts.
pub fn digest_of<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        // The length keeps two parts from being taken for two others.
        context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        context.update(part);
    }
    let digest = context.finish();
    let mut bytes = [0; N];
    bytes.copy_from_slice(&digest.as_ref()[..N]);
    bytes
}

/// The id that follows from these parts.
pub fn derived_id(parts: &[&[u8]]) -> Uuid {
    Uuid::new_v8(digest_of(parts))
}

/// One of so many shards, by what is kept in it. `shards` is at most 127.
pub fn shard_of(name: &str, shards: i8) -> i8 {
    let [first]: [u8; 1] = digest_of(&[name.as_bytes()]);
    i8::try_from(first % shards.unsigned_abs().max(1)).unwrap_or(0)
}
