//! Numeric loops: free functions over slices, each with a readable rule and variants per instruction set.
//!
//! ```text
//!  kernel! {
//!      fn NAME [const A: usize, const B: usize] (arguments) {         constants, if it has any
//!          avx512 => PATH of the variant | recompiled_wider; default: that of avx2,
//!          avx_vnni => PATH of the variant; default: that of avx2,
//!          avx2 => PATH of the variant | recompiled; default: the rule,
//!          sse41 => PATH of the variant; default: the rule,
//!          neon => PATH of the variant; default: the rule, which compilers vectorize with NEON anyway,
//!          scalar => PATH of the readable rule,
//!      }
//!      TEST_NAME on SAMPLES
//!  }
//! ```
//!
//! `recompiled` and `recompiled_wider` compile the rule for the instruction set. Rust does not reorder or contract
//! floating-point operations, so the bits stay the same. `SAMPLES` runs the kernel on many inputs and returns the bits
//! of all results. The generated test compares every variant that this machine can run with the scalar one. It then
//! repeats this in a child process with all arguments between guard pages, where an access outside a slice kills the
//! process (`guarded.rs`).
//!
//! The rule fixes the order of every sum (see [`lanes`]). The number of rows and tokens that a variant processes at a
//! time does not affect results.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector kernels load and store through pointers")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector kernels load and store through pointers")]
mod avx512;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector kernels load and store through pointers")]
mod avx_vnni;
mod block_rows;
mod decode_q8_0;
mod dot_int8;
mod dots;
mod element;
mod exponential;
mod exponentials;
mod gated;
pub mod gather;
#[cfg(test)]
mod guarded;
mod key_scores;
mod lanes;
mod mix;
mod multiply_add;
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code, reason = "vector kernels load and store through pointers, and two instructions have no intrinsic")]
mod neon;
mod pack_panel;
mod panel_product;
mod quantize;
mod read_lines;
mod rms_norm;
mod rows;
mod soft_max;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector kernels load and store through pointers")]
mod sse41;
mod sub_block;
mod sub_block_product;
mod sums;
mod turned_product;
mod unary;

pub use block_rows::{key_scores_q8_0, mix_q8_0, reads_blocks};
pub use decode_q8_0::decode_q8_0;
pub use dot_int8::{INT8_PRODUCTS, INT8_SUMS, dot_int8, int8_codes};
pub use dots::{dots_bf16, dots_f16, dots_f32};
pub use exponential::EXPONENTIAL_ULP;
pub use exponentials::exponentials;
pub use gated::gated;
pub use key_scores::{key_scores_f16, key_scores_f32};
pub use mix::{mix_f16, mix_f32};
pub use multiply_add::{SUMS, multiply_add};
pub use pack_panel::pack_panel;
pub use panel_product::{TILE, panel_product};
pub use quantize::{ActivationBlock, quantize};
pub use read_lines::{Line, read_lines};
pub use rms_norm::rms_norm;
pub use rows::Rows;
pub use soft_max::soft_max;
pub use sub_block::{Format, IQ4_NL, IQ4_XS, MXFP4, NVFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, TQ2_0};
pub use sub_block_product::sub_block_product;
pub use sums::{SUMMED_COLUMNS, squares, sum_columns, sum_of};
pub use turned_product::{
    TURNED_ROWS, Turned, turn_bf16, turn_f16, turn_f32, turn_vectors, turned_from, turned_len, turned_product_bf16,
    turned_product_f16, turned_product_f32,
};
pub use unary::unary;

pub use lanes::{DOT_LANES, LANES, STEPS};

/// Declares a kernel with its variants and the test of their agreement; the form stands above.
macro_rules! kernel {
    (@first $first:path $(, $other:path)*) => {
        $first
    };
    (
        $(#[$doc:meta])*
        fn $name:ident $([$(const $number:ident: usize),*])? ($($argument:ident: $Type:ty),* $(,)?) {
            $(avx512 => $avx512:path,)?
            $(avx_vnni => $avx_vnni:path,)?
            $(avx2 => $avx2:path,)?
            $(sse41 => $sse41:path,)?
            $(neon => $neon:path,)?
            scalar => $scalar:path,
        }
        $test:ident on $samples:expr
    ) => {
        $(#[$doc])*
        pub fn $name $(<$(const $number: usize),*>)? (instructions: $crate::device::cpu::isa::Instructions, $($argument: $Type),*) {
            #[cfg(target_arch = "x86_64")]
            #[allow(dead_code, reason = "many kernels have separate variants")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
            fn recompiled_wider $(<$(const $number: usize),*>)? ($($argument: $Type),*) {
                $scalar($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[allow(dead_code, reason = "many kernels have separate variants")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn recompiled $(<$(const $number: usize),*>)? ($($argument: $Type),*) {
                $scalar($($argument),*)
            }

            #[cfg(test)]
            if let Some(side) = instructions.guards() {
                $(let mut $argument = $crate::device::cpu::kernel::guarded::Laid::new($argument, side);)*
                $name $(::<$($number),*>)? (instructions.with_guards(None), $($argument.view()),*);
                $($argument.give_back();)*
                return;
            }
            match instructions.isa() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Instructions` of AVX-512 exist only where its parts that variants enable were found, and
                // AVX2, FMA and F16C.
                #[allow(unsafe_code, unused_unsafe, reason = "the rule in place of a variant is safe")]
                $crate::device::cpu::Isa::Avx512 => unsafe {
                    $crate::device::cpu::kernel::kernel!(@first $($avx512,)? $($avx2,)? $scalar)($($argument),*)
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Instructions` of AVX-VNNI exist only where it was found, and AVX2, FMA and F16C; the variant
                // enables no more.
                #[allow(unsafe_code, unused_unsafe, reason = "the rule in place of a variant is safe")]
                $crate::device::cpu::Isa::AvxVnni => unsafe {
                    $crate::device::cpu::kernel::kernel!(@first $($avx_vnni,)? $($avx2,)? $scalar)($($argument),*)
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Instructions` of AVX2 exist only where AVX2, FMA and F16C were found, and the variant
                // enables no more.
                #[allow(unsafe_code, unused_unsafe, reason = "the rule in place of a variant is safe")]
                $crate::device::cpu::Isa::Avx2 => unsafe {
                    $crate::device::cpu::kernel::kernel!(@first $($avx2,)? $scalar)($($argument),*)
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Instructions` of SSE4.1 exist only where it and SSSE3 were found, and the variant enables no
                // more.
                #[allow(unsafe_code, unused_unsafe, reason = "the rule in place of a variant is safe")]
                $crate::device::cpu::Isa::Sse41 => unsafe {
                    $crate::device::cpu::kernel::kernel!(@first $($sse41,)? $scalar)($($argument),*)
                },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: `Instructions` of NEON exist only where NEON and dot products were found, and the variant
                // enables no more.
                #[allow(unsafe_code, unused_unsafe, reason = "the rule in place of a variant is safe")]
                $crate::device::cpu::Isa::Neon => unsafe {
                    $crate::device::cpu::kernel::kernel!(@first $($neon,)? $scalar)($($argument),*)
                },
                $crate::device::cpu::Isa::Scalar => $scalar($($argument),*),
            }
        }

        #[cfg(test)]
        #[test]
        fn $test() {
            $crate::device::cpu::kernel::samples::expect_agreement(concat!(module_path!(), "::", stringify!($test)), $samples);
        }
    };
}
use kernel;

#[cfg(test)]
mod samples {
    use crate::device::cpu::isa::{Instructions, Isa};
    use trueup_guard::{Side, expect_in_child, is_child};

    /// Holds each variant that this machine can run against the scalar one; says which it cannot. `test` is the path of
    /// the test that calls, which is run again in a child, where the variants' arguments lie between guard pages.
    pub fn expect_agreement(test: &str, samples: fn(Instructions) -> Vec<f32>) {
        let scalar = Instructions::of(Isa::Scalar).expect("the scalar set is always there");
        let expected = samples(scalar);
        assert!(expected.len() >= 64, "too few samples of {test} to mean anything");
        let placements: &[Option<Side>] = if is_child() { &[Some(Side::Start), Some(Side::End)] } else { &[None] };
        for isa in Isa::ALL {
            let Some(instructions) = Instructions::of(*isa) else {
                #[allow(clippy::print_stderr, reason = "a skipped variant is said")]
                {
                    eprintln!("skipped: the {isa} variant of {test}, which this machine cannot run");
                }
                continue;
            };
            for guards in placements {
                let found = samples(instructions.with_guards(*guards));
                expect_same_bits(test, *isa, &expected, &found);
            }
        }
        if !is_child() {
            expect_in_child(test);
        }
    }

    /// Of NaN only that it is one: Rust leaves open which.
    fn expect_same_bits(kernel: &str, isa: Isa, expected: &[f32], found: &[f32]) {
        assert_eq!(expected.len(), found.len());
        for (place, (expected, found)) in expected.iter().zip(found).enumerate() {
            let same = expected.to_bits() == found.to_bits() || expected.is_nan() && found.is_nan();
            assert!(same, "{kernel}, {isa}, result {place}: {expected:e} is {found:e}");
        }
    }

    /// Numbers of both signs and of magnitudes from about 2^-12 to 2^3, from `seed` by xorshift.
    pub fn numbers(len: usize, seed: u32) -> Vec<f32> {
        let mut state = seed.wrapping_mul(2654435761) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        };
        (0..len)
            .map(|_| {
                let (fraction, power) = (next() as f32 / 4294967296.0 * 2.0 - 1.0, (next() >> 28) as i32 - 12);
                fraction * 2f32.powi(power)
            })
            .collect()
    }
}
