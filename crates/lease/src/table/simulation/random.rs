//! Generates random numbers for simulations.

/// Random numbers derived from a seed. Source: xorshift64*.
pub(in crate::table) struct Random(pub(in crate::table) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(in crate::table) fn below(&mut self, bound: usize) -> usize {
        usize::try_from((self.next() >> 33) % bound as u64).unwrap()
    }

    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// Returns `true` once in `times` calls, on average.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
