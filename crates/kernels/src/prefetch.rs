//! Prefetch strategies for products with few tokens, which read each weight only once.
//!
//! The fastest strategy depends on the processor. On some, prefetching into the first-level cache alone is limited by
//! the number of lines that this cache can wait for. Results do not depend on the strategy.

use crate::Isa;
use std::sync::atomic::{AtomicU8, Ordering};

/// Most tokens of a product that reads each weight only once.
pub const STREAMED_TOKENS: usize = 4;

/// A strategy. How far ahead it prefetches is part of the variant of the instruction set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// Into the first-level cache alone (`prefetchnta`).
    NonTemporal,
    /// Into the second-level cache or the third, depending on the processor (`prefetcht2`).
    Outer,
    /// Into all caches (`prefetcht0`), at a shorter distance.
    All,
}

static CURRENT: AtomicU8 = AtomicU8::new(Prefetch::NonTemporal as u8);

impl Prefetch {
    /// All strategies.
    pub const STRATEGIES: [Prefetch; 3] = [Prefetch::NonTemporal, Prefetch::Outer, Prefetch::All];

    /// The strategy that the kernels of this process use.
    #[inline(always)]
    pub fn current() -> Prefetch {
        match CURRENT.load(Ordering::Relaxed) {
            1 => Prefetch::Outer,
            2 => Prefetch::All,
            _ => Prefetch::NonTemporal,
        }
    }

    /// Makes the kernels of this process use this strategy.
    pub fn set(self) {
        CURRENT.store(self as u8, Ordering::Relaxed);
    }

    /// Whether the kernels of an instruction set use the current strategy.
    pub fn is_used_by(isa: Isa) -> bool {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => true,
            _ => false,
        }
    }
}
