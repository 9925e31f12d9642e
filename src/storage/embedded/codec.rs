//! How a row's value is kept: a mark, the end of its life where it has one, then its fields.
//!
//! The fields are `MessagePack` with their names, so that a later version can add a field (with
//! `#[serde(default)]`) and still read rows written before it, and skip one it no longer knows.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::Timestamp;

/// The row lives for ever.
const MARK_FOR_EVER: u8 = 1;
/// The mark is followed by the moment the row ends, as eight bytes of microseconds.
const MARK_UNTIL: u8 = 2;

/// Why bytes are not a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CodecError {
    #[error("a value with the unknown mark {0:?}")]
    Mark(Option<u8>),
    #[error("a value whose fields cannot be read: {0}")]
    Fields(String),
    #[error("a value that cannot be written: {0}")]
    Encode(String),
}

/// The bytes of a row that ends at `until`, or never.
pub(super) fn encode<T: Serialize>(
    row: &T,
    until: Option<Timestamp>,
) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::with_capacity(256);
    match until {
        None => bytes.push(MARK_FOR_EVER),
        Some(until) => {
            bytes.push(MARK_UNTIL);
            bytes.extend_from_slice(&until.micros().to_be_bytes());
        }
    }
    row.serialize(&mut rmp_serde::Serializer::new(&mut bytes).with_struct_map())
        .map_err(|error| CodecError::Encode(error.to_string()))?;
    Ok(bytes)
}

/// The row, or `None` if its life is over.
pub(super) fn decode<T: DeserializeOwned>(
    bytes: &[u8],
    now: Timestamp,
) -> Result<Option<T>, CodecError> {
    let (until, fields) = split(bytes)?;
    if until.is_some_and(|until| until <= now) {
        return Ok(None);
    }
    rmp_serde::from_slice(fields).map(Some).map_err(|error| CodecError::Fields(error.to_string()))
}

/// Whether the row's life is over; bytes that are no row count as alive, so that a fault is seen
/// by whoever reads them and not swept away.
pub(super) fn is_over(bytes: &[u8], now: Timestamp) -> bool {
    matches!(split(bytes), Ok((Some(until), _)) if until <= now)
}

fn split(bytes: &[u8]) -> Result<(Option<Timestamp>, &[u8]), CodecError> {
    match bytes.split_first() {
        Some((&MARK_FOR_EVER, fields)) => Ok((None, fields)),
        Some((&MARK_UNTIL, rest)) => match rest.split_first_chunk::<8>() {
            Some((until, fields)) => {
                Ok((Some(Timestamp::from_micros(i64::from_be_bytes(*until))), fields))
            }
            None => Err(CodecError::Mark(Some(MARK_UNTIL))),
        },
        other => Err(CodecError::Mark(other.map(|(&mark, _)| mark))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Before {
        name: String,
        dropped_later: u32,
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct After {
        name: String,
        #[serde(default)]
        added_later: Option<u32>,
    }

    #[test]
    fn a_field_can_be_added_and_dropped_later() {
        let row = Before { name: "Чехол".to_owned(), dropped_later: 7 };
        let bytes = encode(&row, None).unwrap();
        let read: After = decode(&bytes, NOW).unwrap().unwrap();
        assert_eq!(read, After { name: "Чехол".to_owned(), added_later: None });
    }

    #[test]
    fn a_row_is_gone_at_the_end_of_its_life() {
        let bytes = encode(&1_u32, Some(NOW)).unwrap();
        assert_eq!(decode::<u32>(&bytes, Timestamp::from_micros(NOW.micros() - 1)), Ok(Some(1)));
        assert_eq!(decode::<u32>(&bytes, NOW), Ok(None));
        assert!(is_over(&bytes, NOW));
    }

    #[test]
    fn rubbish_is_an_error_not_a_row() {
        for bytes in [&[][..], &[0], &[9, 1, 2], &[MARK_UNTIL, 1, 2], &[MARK_FOR_EVER, 0xC1]] {
            assert!(decode::<Before>(bytes, NOW).is_err(), "{bytes:?}");
            assert!(!is_over(bytes, NOW));
        }
    }

    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
    struct Row {
        name: String,
        count: Option<i64>,
        parts: Vec<(String, u16)>,
    }

    fn row() -> impl Strategy<Value = Row> {
        (any::<String>(), any::<Option<i64>>(), vec((any::<String>(), any::<u16>()), 0..4))
            .prop_map(|(name, count, parts)| Row { name, count, parts })
    }

    proptest! {
        #[test]
        fn a_row_comes_back_until_its_end(row in row(), until in any::<Option<i64>>(), now in any::<i64>()) {
            let (until, now) = (until.map(Timestamp::from_micros), Timestamp::from_micros(now));
            let bytes = encode(&row, until).unwrap();
            let lives = until.is_none_or(|until| now < until);
            prop_assert_eq!(decode(&bytes, now), Ok(lives.then_some(row)));
            prop_assert_eq!(is_over(&bytes, now), !lives);
        }

        #[test]
        fn any_bytes_are_a_row_or_an_error(mark in 0..4_u8, bytes in vec(any::<u8>(), 0..80)) {
            for bytes in [&bytes[..], &[&[mark][..], &bytes[..]].concat()] {
                let _ = (decode::<Row>(bytes, NOW), is_over(bytes, NOW));
            }
        }

        /// Bytes that claim to hold more than they do are believed no further than they reach.
        #[test]
        fn a_damaged_row_is_a_row_or_an_error(row in row(), at in any::<usize>(), byte in any::<u8>()) {
            let mut bytes = encode(&row, None).unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = decode::<Row>(&bytes, NOW);
            let _ = decode::<Row>(&bytes[..at], NOW);
        }
    }
}
