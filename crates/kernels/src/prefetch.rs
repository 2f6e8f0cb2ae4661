//! How products of a few tokens ask for weights before they use them. They read each weight once.
//!
//! The fastest way depends on the processor. On an Intel Xeon of the fourth generation, asking for the first-level
//! cache alone limits a core to as many lines as that cache can wait for: 12 GB/s on two cores, and 21 GB/s with the
//! second-level cache. Results do not depend on the way.

use std::sync::atomic::{AtomicU8, Ordering};

/// A way to ask for weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// Into the first-level cache alone, 8 KiB ahead.
    Once,
    /// Into the caches from the second or third level on, 8 KiB ahead.
    Far,
    /// Into all caches, 2 KiB ahead.
    Near,
}

static CURRENT: AtomicU8 = AtomicU8::new(Prefetch::Once as u8);

impl Prefetch {
    /// All ways.
    pub const ALL: [Prefetch; 3] = [Prefetch::Once, Prefetch::Far, Prefetch::Near];

    /// The way that the kernels of this process use.
    #[inline(always)]
    pub fn current() -> Prefetch {
        match CURRENT.load(Ordering::Relaxed) {
            1 => Prefetch::Far,
            2 => Prefetch::Near,
            _ => Prefetch::Once,
        }
    }

    /// Lets the kernels of this process use this way.
    pub fn set(self) {
        CURRENT.store(self as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_that_is_set_is_used() {
        for way in Prefetch::ALL {
            way.set();
            assert_eq!(Prefetch::current(), way);
        }
    }
}
