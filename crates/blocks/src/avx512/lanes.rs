//! Sixteen lanes of an AVX-512 register, for the searches.

use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Sub};

use crate::search::lanes::{LANES_MAX, Lanes};

/// Sixteen f32. Used only inside of functions that are compiled for AVX-512 and called where it was found.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

/// The numbers `0 ..= high` of each `high`, limited to these: of an integer from -8 to 23, at the place that its lowest
/// five bits give.
static LIMITED: [[f32; 2 * LANES_MAX]; 16] = {
    let mut tables = [[0.0; 2 * LANES_MAX]; 16];
    let mut high = 0;
    while high < tables.len() {
        let mut integer = 0;
        while integer < 24 {
            tables[high][integer] = (if integer < high { integer } else { high }) as f32;
            integer += 1;
        }
        high += 1;
    }
    tables
};

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
    fn load(numbers: &[f32]) -> Avx512 {
        let numbers: &[f32; LANES_MAX] = numbers.first_chunk().expect("a number for each lane");
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
    fn zip(self, other: Avx512) -> (Avx512, Avx512) {
        // SAFETY: the type is used only where AVX-512 was found.
        unsafe {
            let lower = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let upper = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            let lower = _mm512_permutex2var_ps(self.0, lower, other.0);
            (Avx512(lower), Avx512(_mm512_permutex2var_ps(self.0, upper, other.0)))
        }
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
    fn min(self, other: Avx512) -> Avx512 {
        // SAFETY: the type is used only where AVX-512 was found.
        Avx512(unsafe { _mm512_min_ps(self.0, other.0) })
    }

    #[inline(always)]
    fn max(self, other: Avx512) -> Avx512 {
        // SAFETY: the type is used only where AVX-512 was found.
        Avx512(unsafe { _mm512_max_ps(self.0, other.0) })
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

    const HAS_TABLE: bool = true;

    #[inline(always)]
    fn nearest_in_table(self, high: i32) -> Avx512 {
        let (lower, upper) = LIMITED[high as usize].split_at(LANES_MAX);
        // SAFETY: the type is used only where AVX-512 was found; the arrays hold the 64 bytes that are read.
        unsafe {
            let (lower, upper) = (_mm512_loadu_ps(lower.as_ptr()), _mm512_loadu_ps(upper.as_ptr()));
            // The lowest bits of the sum are those of the nearest integer.
            let shifted = _mm512_castps_si512(_mm512_add_ps(self.0, _mm512_set1_ps(12_582_912.0)));
            Avx512(_mm512_permutex2var_ps(lower, shifted, upper))
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
    fn either(a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }

    #[inline(always)]
    fn all(mask: __mmask16) -> bool {
        mask == __mmask16::MAX
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
