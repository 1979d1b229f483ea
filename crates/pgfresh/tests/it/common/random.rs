//! Random numbers, different in each run.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Source of random numbers.
pub(crate) struct Random(u64);

impl Random {
    /// Returns a source with a random seed.
    pub(crate) fn new() -> Self {
        Self(RandomState::new().hash_one(0))
    }

    /// Returns a random number (`SplitMix64`, Steele et al. 2014).
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random duration up to `longest`.
    pub(crate) fn moment(&mut self, longest: Duration) -> Duration {
        let span = u64::try_from(longest.as_nanos()).unwrap().max(1);
        Duration::from_nanos(self.number() % span)
    }
}

impl Random {
    /// Returns a source that generates the same numbers for the same seed.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number from 0 up to, but not including, `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % u64::try_from(bound).unwrap()).unwrap()
    }

    /// Returns true in `percent` of all calls.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a random element of `choices`.
    pub(crate) fn choose<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}
