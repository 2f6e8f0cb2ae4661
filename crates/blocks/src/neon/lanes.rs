//! Four lanes of a NEON register, for the searches.

use std::arch::aarch64::*;
use std::ops::{Add, Div, Mul, Sub};

use crate::search::lanes::{LANES_MAX, Lanes};

/// Four f32. Every aarch64 processor has NEON.
#[derive(Clone, Copy)]
pub(crate) struct Neon(float32x4_t);

macro_rules! operators {
    ($($Trait:ident, $name:ident = $intrinsic:ident;)+) => {
        $(impl $Trait for Neon {
            type Output = Neon;

            #[inline(always)]
            fn $name(self, other: Neon) -> Neon {
                // SAFETY: every aarch64 processor has NEON.
                Neon(unsafe { $intrinsic(self.0, other.0) })
            }
        })+
    };
}

operators! {
    Add, add = vaddq_f32;
    Sub, sub = vsubq_f32;
    Mul, mul = vmulq_f32;
    Div, div = vdivq_f32;
}

impl Lanes for Neon {
    const LANES: usize = 4;
    type Mask = uint32x4_t;

    #[inline(always)]
    fn splat(number: f32) -> Neon {
        // SAFETY: every aarch64 processor has NEON.
        Neon(unsafe { vdupq_n_f32(number) })
    }

    #[inline(always)]
    fn load(numbers: &[f32]) -> Neon {
        let numbers: &[f32; 4] = numbers.first_chunk().expect("a number for each lane");
        // SAFETY: every aarch64 processor has NEON; the array holds the 16 bytes that are read.
        Neon(unsafe { vld1q_f32(numbers.as_ptr()) })
    }

    #[inline(always)]
    fn store(self) -> [f32; LANES_MAX] {
        let mut numbers = [0.0; LANES_MAX];
        // SAFETY: every aarch64 processor has NEON; the array holds the 16 bytes that are written.
        unsafe { vst1q_f32(numbers.as_mut_ptr(), self.0) }
        numbers
    }

    #[inline(always)]
    fn zip(self, other: Neon) -> (Neon, Neon) {
        // SAFETY: every aarch64 processor has NEON.
        unsafe { (Neon(vzip1q_f32(self.0, other.0)), Neon(vzip2q_f32(self.0, other.0))) }
    }

    #[inline(always)]
    fn sqrt(self) -> Neon {
        // SAFETY: every aarch64 processor has NEON.
        Neon(unsafe { vsqrtq_f32(self.0) })
    }

    #[inline(always)]
    fn abs(self) -> Neon {
        // SAFETY: every aarch64 processor has NEON.
        Neon(unsafe { vabsq_f32(self.0) })
    }

    #[inline(always)]
    fn min(self, other: Neon) -> Neon {
        // SAFETY: every aarch64 processor has NEON.
        Neon(unsafe { vminq_f32(self.0, other.0) })
    }

    #[inline(always)]
    fn max(self, other: Neon) -> Neon {
        // SAFETY: every aarch64 processor has NEON.
        Neon(unsafe { vmaxq_f32(self.0, other.0) })
    }

    #[inline(always)]
    fn nearest(self, low: i32, high: i32) -> Neon {
        // SAFETY: every aarch64 processor has NEON.
        unsafe {
            let shifted = vreinterpretq_s32_f32(vaddq_f32(self.0, vdupq_n_f32(12_582_912.0)));
            let integer = vsubq_s32(vandq_s32(shifted, vdupq_n_s32(0x7F_FFFF)), vdupq_n_s32(0x40_0000));
            let limited = vminq_s32(vmaxq_s32(integer, vdupq_n_s32(low)), vdupq_n_s32(high));
            Neon(vcvtq_f32_s32(limited))
        }
    }

    #[inline(always)]
    fn is_below(self, other: Neon) -> uint32x4_t {
        // SAFETY: every aarch64 processor has NEON.
        unsafe { vcltq_f32(self.0, other.0) }
    }

    #[inline(always)]
    fn is_equal(self, other: Neon) -> uint32x4_t {
        // SAFETY: every aarch64 processor has NEON.
        unsafe { vceqq_f32(self.0, other.0) }
    }

    #[inline(always)]
    fn both(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: every aarch64 processor has NEON.
        unsafe { vandq_u32(a, b) }
    }

    #[inline(always)]
    fn either(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: every aarch64 processor has NEON.
        unsafe { vorrq_u32(a, b) }
    }

    #[inline(always)]
    fn all(mask: uint32x4_t) -> bool {
        // SAFETY: every aarch64 processor has NEON.
        unsafe { vminvq_u32(mask) != 0 }
    }

    #[inline(always)]
    fn any(mask: uint32x4_t) -> bool {
        // SAFETY: every aarch64 processor has NEON.
        unsafe { vmaxvq_u32(mask) != 0 }
    }

    #[inline(always)]
    fn or_else(self, mask: uint32x4_t, other: Neon) -> Neon {
        // SAFETY: every aarch64 processor has NEON.
        Neon(unsafe { vbslq_f32(mask, self.0, other.0) })
    }
}
