//! Ids that nobody can guess. In a debug build a test may seed those of its thread, so that what it
//! has seen once can be seen again. A release build knows nothing of this.

use uuid::Uuid;

use crate::clock::Timestamp;

#[cfg(debug_assertions)]
pub use self::debug::seed;

/// A new id.
pub fn id() -> Uuid {
    #[cfg(debug_assertions)]
    if let Some(bytes) = debug::bytes() {
        return uuid::Builder::from_random_bytes(bytes).into_uuid();
    }
    Uuid::new_v4()
}

/// A new id that sorts by a moment.
pub fn id_at(at: Timestamp) -> Uuid {
    let millis = u64::try_from(at.millis()).unwrap_or(0);
    #[cfg(debug_assertions)]
    if let Some([bytes @ .., _, _, _, _, _, _]) = debug::bytes() {
        return uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid();
    }
    let nanos = u32::try_from(millis % 1_000 * 1_000_000).unwrap_or(0);
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, millis / 1_000, nanos))
}

#[cfg(debug_assertions)]
mod debug {
    use std::cell::Cell;

    thread_local! {
        static STATE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Has all ids of this thread follow from a seed; `None`: from nothing, as ever.
    pub fn seed(seed: Option<u64>) {
        STATE.set(seed);
    }

    pub(super) fn bytes() -> Option<[u8; 16]> {
        let mut state = STATE.get()?;
        // Splitmix64: two steps of eight bytes.
        let mut next = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        };
        let bytes = (u128::from(next()) << 64 | u128::from(next())).to_be_bytes();
        STATE.set(Some(state));
        Some(bytes)
    }
}
