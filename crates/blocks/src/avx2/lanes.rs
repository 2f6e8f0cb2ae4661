//! Eight lanes of an AVX register, for the searches.

use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

use crate::search::lanes::{LANES_MAX, Lanes};

/// Eight f32. Used only inside of functions that are compiled for AVX2 and called where it was found.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256);

macro_rules! operators {
    ($($Trait:ident, $name:ident = $intrinsic:ident;)+) => {
        $(impl $Trait for Avx2 {
            type Output = Avx2;

            #[inline(always)]
            fn $name(self, other: Avx2) -> Avx2 {
                // SAFETY: the type is used only where AVX2 was found.
                Avx2(unsafe { $intrinsic(self.0, other.0) })
            }
        })+
    };
}

operators! {
    Add, add = _mm256_add_ps;
    Sub, sub = _mm256_sub_ps;
    Mul, mul = _mm256_mul_ps;
    Div, div = _mm256_div_ps;
}

impl Lanes for Avx2 {
    const LANES: usize = 8;
    type Mask = __m256;

    #[inline(always)]
    fn splat(number: f32) -> Avx2 {
        // SAFETY: the type is used only where AVX2 was found.
        Avx2(unsafe { _mm256_set1_ps(number) })
    }

    #[inline(always)]
    fn load(numbers: &[f32]) -> Avx2 {
        let numbers: &[f32; 8] = numbers.first_chunk().expect("a number for each lane");
        // SAFETY: the type is used only where AVX2 was found; the array holds the 32 bytes that are read.
        Avx2(unsafe { _mm256_loadu_ps(numbers.as_ptr()) })
    }

    #[inline(always)]
    fn store(self) -> [f32; LANES_MAX] {
        let mut numbers = [0.0; LANES_MAX];
        // SAFETY: the type is used only where AVX2 was found; the array holds the 32 bytes that are written.
        unsafe { _mm256_storeu_ps(numbers.as_mut_ptr(), self.0) }
        numbers
    }

    #[inline(always)]
    fn zip(self, other: Avx2) -> (Avx2, Avx2) {
        // SAFETY: the type is used only where AVX2 was found.
        unsafe {
            let (low, high) = (_mm256_unpacklo_ps(self.0, other.0), _mm256_unpackhi_ps(self.0, other.0));
            let lower = _mm256_permute2f128_ps::<0x20>(low, high);
            (Avx2(lower), Avx2(_mm256_permute2f128_ps::<0x31>(low, high)))
        }
    }

    #[inline(always)]
    fn sqrt(self) -> Avx2 {
        // SAFETY: the type is used only where AVX2 was found.
        Avx2(unsafe { _mm256_sqrt_ps(self.0) })
    }

    #[inline(always)]
    fn abs(self) -> Avx2 {
        // SAFETY: the type is used only where AVX2 was found.
        Avx2(unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0) })
    }

    #[inline(always)]
    fn min(self, other: Avx2) -> Avx2 {
        // SAFETY: the type is used only where AVX2 was found.
        Avx2(unsafe { _mm256_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn max(self, other: Avx2) -> Avx2 {
        // SAFETY: the type is used only where AVX2 was found.
        Avx2(unsafe { _mm256_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn nearest(self, low: i32, high: i32) -> Avx2 {
        // SAFETY: the type is used only where AVX2 was found.
        unsafe {
            let shifted = _mm256_castps_si256(_mm256_add_ps(self.0, _mm256_set1_ps(12_582_912.0)));
            let bits = _mm256_and_si256(shifted, _mm256_set1_epi32(0x7F_FFFF));
            let integer = _mm256_sub_epi32(bits, _mm256_set1_epi32(0x40_0000));
            let limited = _mm256_min_epi32(_mm256_max_epi32(integer, _mm256_set1_epi32(low)), _mm256_set1_epi32(high));
            Avx2(_mm256_cvtepi32_ps(limited))
        }
    }

    #[inline(always)]
    fn is_below(self, other: Avx2) -> __m256 {
        // SAFETY: the type is used only where AVX2 was found.
        unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn is_equal(self, other: Avx2) -> __m256 {
        // SAFETY: the type is used only where AVX2 was found.
        unsafe { _mm256_cmp_ps::<_CMP_EQ_OQ>(self.0, other.0) }
    }

    #[inline(always)]
    fn both(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the type is used only where AVX2 was found.
        unsafe { _mm256_and_ps(a, b) }
    }

    #[inline(always)]
    fn either(a: __m256, b: __m256) -> __m256 {
        // SAFETY: the type is used only where AVX2 was found.
        unsafe { _mm256_or_ps(a, b) }
    }

    #[inline(always)]
    fn all(mask: __m256) -> bool {
        // SAFETY: the type is used only where AVX2 was found.
        unsafe { _mm256_movemask_ps(mask) == 0xFF }
    }

    #[inline(always)]
    fn any(mask: __m256) -> bool {
        // SAFETY: the type is used only where AVX2 was found.
        unsafe { _mm256_movemask_ps(mask) != 0 }
    }

    #[inline(always)]
    fn or_else(self, mask: __m256, other: Avx2) -> Avx2 {
        // SAFETY: the type is used only where AVX2 was found.
        Avx2(unsafe { _mm256_blendv_ps(other.0, self.0, mask) })
    }
}
