//! What rows that enter products are made of.

use half::{bf16, f16};

/// A stored floating-point number of at most 32 bits; the default is zero.
pub trait Element: Copy + Default + Send + Sync {
    /// The same number as f32.
    fn widen(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Element for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}
