//! Sixteen lanes of an AVX-512 register, for the searches.

use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

use crate::search::lanes::{LANES_MAX, Lanes};

/// Sixteen f32. Used only inside of functions that are compiled for AVX-512 and called where it was found.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

macro_rules! operators {
    ($($Trait:ident, $name:ident = $intrinsic:ident;)+) => {
        $(impl $Trait for Avx512 {
            type Output = Avx512;

            #[inline(always)]
            fn $name(self, other: Avx512) -> Avx512 {
                // SAFETY: the type is used only where AVX-512 was found.
                Avx512(unsafe { $intrinsic(self.0, other.0) })
            }
        })+
    };
}

operators! {
    Add, add = _mm512_add_ps;
    Sub, sub = _mm512_sub_ps;
    Mul, mul = _mm512_mul_ps;
    Div, div = _mm512_div_ps;
}

impl Lanes for Avx512 {
    const LANES: usize = 16;
    type Mask = __mmask16;

    #[inline(always)]
    fn splat(number: f32) -> Avx512 {
        // SAFETY: the type is used only where AVX-512 was found.
        Avx512(unsafe { _mm512_set1_ps(number) })
    }

    #[inline(always)]
    fn load(numbers: &[f32; LANES_MAX]) -> Avx512 {
        // SAFETY: the type is used only where AVX-512 was found; the array holds the 64 bytes that are read.
        Avx512(unsafe { _mm512_loadu_ps(numbers.as_ptr()) })
    }

    #[inline(always)]
    fn store(self) -> [f32; LANES_MAX] {
        let mut numbers = [0.0; LANES_MAX];
        // SAFETY: the type is used only where AVX-512 was found; the array holds the 64 bytes that are written.
        unsafe { _mm512_storeu_ps(numbers.as_mut_ptr(), self.0) }
        numbers
    }

    #[inline(always)]
    fn sqrt(self) -> Avx512 {
        // SAFETY: the type is used only where AVX-512 was found.
        Avx512(unsafe { _mm512_sqrt_ps(self.0) })
    }

    #[inline(always)]
    fn abs(self) -> Avx512 {
        // SAFETY: the type is used only where AVX-512 was found.
        Avx512(unsafe { _mm512_abs_ps(self.0) })
    }

    #[inline(always)]
    fn nearest(self, low: i32, high: i32) -> Avx512 {
        // SAFETY: the type is used only where AVX-512 was found.
        unsafe {
            let shifted = _mm512_castps_si512(_mm512_add_ps(self.0, _mm512_set1_ps(12_582_912.0)));
            let bits = _mm512_and_si512(shifted, _mm512_set1_epi32(0x7F_FFFF));
            let integer = _mm512_sub_epi32(bits, _mm512_set1_epi32(0x40_0000));
            let limited = _mm512_min_epi32(_mm512_max_epi32(integer, _mm512_set1_epi32(low)), _mm512_set1_epi32(high));
            Avx512(_mm512_cvtepi32_ps(limited))
        }
    }

    #[inline(always)]
    fn nearest_of_small(self, low: i32, high: i32) -> Avx512 {
        // SAFETY: the type is used only where AVX-512 was found.
        unsafe {
            let shift = _mm512_set1_ps(12_582_912.0);
            let rounded = _mm512_sub_ps(_mm512_add_ps(self.0, shift), shift);
            let (low, high) = (_mm512_set1_ps(low as f32), _mm512_set1_ps(high as f32));
            Avx512(_mm512_min_ps(_mm512_max_ps(rounded, low), high))
        }
    }

    #[inline(always)]
    fn is_below(self, other: Avx512) -> __mmask16 {
        // SAFETY: the type is used only where AVX-512 was found.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn is_equal(self, other: Avx512) -> __mmask16 {
        // SAFETY: the type is used only where AVX-512 was found.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn both(a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }

    #[inline(always)]
    fn any(mask: __mmask16) -> bool {
        mask != 0
    }

    #[inline(always)]
    fn or_else(self, mask: __mmask16, other: Avx512) -> Avx512 {
        // SAFETY: the type is used only where AVX-512 was found.
        Avx512(unsafe { _mm512_mask_blend_ps(mask, other.0, self.0) })
    }
}
