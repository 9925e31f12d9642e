//! Names that follow from what they name, the same on every machine and in every version.

use std::fmt::Write;

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

/// Bytes as hexadecimal digits in lower case.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes that hexadecimal digits stand for, if there are exactly so many.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16).and_then(|d| u8::try_from(d).ok());
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// One of so many shards, by what is kept in it. `shards` is at most 127.
pub fn shard_of(name: &str, shards: i8) -> i8 {
    let [first]: [u8; 1] = digest_of(&[name.as_bytes()]);
    i8::try_from(first % shards.unsigned_abs().max(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_are_read_as_they_are_written() {
        assert_eq!(hex(&[0, 15, 255]), "000fff");
        assert_eq!(from_hex("000fFF"), Some([0, 15, 255]));
        for text in ["", "0", "000ff", "000fff0", "000ffg", "+00fff", "яff"] {
            assert_eq!(from_hex::<3>(text), None, "{text}");
        }
    }
}
