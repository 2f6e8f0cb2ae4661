//! PCG32 (O'Neill 2014, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random Number
//! Generation"): the same numbers on every machine.

/// The variant "XSH RR": 64 bits of state, 32 of output, rotated.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
    increment: u64,
}

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

impl Random {
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random { state: 0, increment: stream << 1 | 1 };
        random.bits();
        random.state = random.state.wrapping_add(seed);
        random.bits();
        random
    }

    /// 32 random bits.
    pub fn bits(&mut self) -> u32 {
        let old = self.state;
        self.state = old.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
        let shifted = ((old >> 18 ^ old) >> 27) as u32;
        shifted.rotate_right((old >> 59) as u32)
    }

    /// A number in `0.0 .. 1.0`, all multiples of 2^-53 equally likely.
    pub fn unit(&mut self) -> f64 {
        let bits = u64::from(self.bits()) << 32 | u64::from(self.bits());
        (bits >> 11) as f64 * (-53f64).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// What `pcg32-demo` of the author's C library prints first, for `pcg32_srandom(42, 54)`.
    #[test]
    fn the_published_sequence_comes_out() {
        let mut random = Random::new(42, 54);
        let expected = [0xa15c_02b7, 0x7b47_f409, 0xba1d_3330, 0x83d2_f293, 0xbfa4_784b, 0xcbed_606e];
        assert_eq!(std::array::from_fn(|_| random.bits()), expected);
    }

    #[test]
    fn units_lie_below_one() {
        let mut random = Random::new(0, 0);
        let mean =
            (0..10_000).map(|_| random.unit()).inspect(|unit| assert!((0.0..1.0).contains(unit))).sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }
}
