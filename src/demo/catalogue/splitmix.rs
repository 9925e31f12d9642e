//! The draws that decide what a demo product is.

use super::super::tables::{Kind, TOP_TIER};

/// The generator `SplitMix64`: a counter and a mixing function, the same everywhere.
pub(super) struct SplitMix(u64);

impl SplitMix {
    /// The stream of draws that belongs to an index.
    pub(super) fn of(index: u64, seed: u64) -> Self {
        // The streams of neighbours would overlap if they started at neighbouring counters.
        Self(Self(index ^ seed).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or 0 if there is none.
    fn below_u64(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.below_u64(bound)).unwrap_or(0)
    }

    /// A number from 0 to `most`, both included.
    pub(super) fn up_to(&mut self, most: u32) -> u32 {
        u32::try_from(self.below_u64(u64::from(most) + 1)).unwrap_or(0)
    }

    pub(super) fn digit(&mut self, bound: u8) -> u8 {
        u8::try_from(self.below_u64(u64::from(bound))).unwrap_or(0)
    }

    /// A tier somewhat above or below this one.
    pub(super) fn near(&mut self, tier: u32) -> u32 {
        const SPREAD: u32 = 130;
        (tier + self.up_to(2 * SPREAD)).saturating_sub(SPREAD).min(TOP_TIER)
    }

    pub(super) fn one_of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    pub(super) fn word(&mut self, list: &[&'static str]) -> &'static str {
        list[self.below(list.len())]
    }

    pub(super) fn weighted<'a>(&mut self, kinds: &'a [Kind]) -> &'a Kind {
        let mut left = self.below_u64(kinds.iter().map(|kind| kind.weight).sum());
        for kind in kinds {
            if left < kind.weight {
                return kind;
            }
            left -= kind.weight;
        }
        &kinds[0]
    }
}
