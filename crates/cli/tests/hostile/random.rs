//! Random numbers that a seed repeats: SplitMix64 (Steele, Lea and Flood 2014).

/// A stream of numbers.
pub struct Random(u64);

impl Random {
    /// The stream of a seed for one case: each case has its own, so a new case changes no other.
    pub fn new(seed: u64, case: &str) -> Random {
        let start = case.bytes().fold(seed, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Random(start)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A number from `start` to `end - 1`.
    pub fn between(&mut self, start: usize, end: usize) -> usize {
        start + self.below(end - start)
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
