//! The numeric loops of the `cpu` device: functions over slices, each with a readable rule and variants per instruction
//! set, and the packed layout of quantized weights.
//!
//! ```
//! use trueup_kernels::{Instructions, Isa, rms_norm};
//!
//! let instructions = Instructions::of(Isa::available()[0]).unwrap();
//! let mut y = [0.0; 2];
//! rms_norm(instructions, &[3.0, -3.0], &[1.0, 2.0], 0.0, &mut y);
//! assert_eq!(y, [1.0, -2.0]);
//! ```
//!
//! Other crates call no generic kernel, so that kernels are compiled only here. Each kernel is declared
//! as follows:
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
//!      SAMPLES_NAME on SAMPLES
//!  }
//! ```
//!
//! `recompiled` and `recompiled_wider` compile the rule for the instruction set. Rust does not reorder or contract
//! floating-point operations, so the bits stay the same. `SAMPLES` runs the kernel on many inputs and returns the bits
//! of all results. It is compiled with the feature `samples` and listed by its `SAMPLES_NAME` in `samples.rs`; the
//! compiler warns if the list lacks it. The tests of this crate compare every variant that this machine can run with
//! the scalar one. They repeat this in a child process with all arguments between guard pages, where an access outside
//! a slice kills the process (`guarded.rs`).
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
mod format;
mod gated;
#[cfg(feature = "samples")]
mod guarded;
mod isa;
mod key_scores;
mod lanes;
mod mix;
mod multiply_add;
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code, reason = "vector kernels load and store through pointers, and two instructions have no intrinsic")]
mod neon;
mod pack_panel;
mod panel_block;
mod panel_product;
mod prefetch;
mod quantize;
mod read_lines;
mod rms_norm;
mod rows;
#[cfg(feature = "samples")]
pub mod samples;
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
pub use format::PackedFormat;
pub use gated::gated;
pub use isa::{Instructions, Isa};
pub use key_scores::{key_scores_f16, key_scores_f32};
pub use lanes::{DOT_LANES, LANES, STEPS};
pub use mix::{mix_f16, mix_f32};
pub use multiply_add::{SUMS, multiply_add};
pub use panel_block::{BLOCK_LEN, PANEL_ROWS, PackedUnit};
pub use panel_product::TILE;
pub use prefetch::{Prefetch, STREAMED_TOKENS};
pub use quantize::{ActivationBlock, quantize};
pub use read_lines::{Line, read_lines};
pub use rms_norm::rms_norm;
pub use rows::Rows;
pub use soft_max::soft_max;
pub use sums::{SUMMED_COLUMNS, squares, sum_columns, sum_of};
pub use turned_product::{
    TURNED_ROWS, Turned, turn_bf16, turn_f16, turn_f32, turn_vectors, turned_from, turned_len, turned_product_bf16,
    turned_product_f16, turned_product_f32,
};
pub use unary::unary;

/// Declares a kernel with its variants and its samples; the form is documented above.
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
        $all:ident on $samples:expr
    ) => {
        $(#[$doc])*
        pub fn $name $(<$(const $number: usize),*>)? (instructions: $crate::isa::Instructions, $($argument: $Type),*) {
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

            #[cfg(feature = "samples")]
            if let Some(side) = instructions.guards() {
                $(let mut $argument = $crate::guarded::Laid::new($argument, side);)*
                $name $(::<$($number),*>)? (instructions.with_guards(None), $($argument.view()),*);
                $($argument.give_back();)*
                return;
            }
            match instructions.isa() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Instructions` of AVX-512 exist only where its parts that variants enable were found, and
                // AVX2, FMA and F16C.
                #[allow(unsafe_code, unused_unsafe, reason = "the rule in place of a variant is safe")]
                $crate::Isa::Avx512 => unsafe {
                    $crate::kernel!(@first $($avx512,)? $($avx2,)? $scalar)($($argument),*)
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Instructions` of AVX-VNNI exist only where it was found, and AVX2, FMA and F16C; the variant
                // enables no more.
                #[allow(unsafe_code, unused_unsafe, reason = "the rule in place of a variant is safe")]
                $crate::Isa::AvxVnni => unsafe {
                    $crate::kernel!(@first $($avx_vnni,)? $($avx2,)? $scalar)($($argument),*)
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Instructions` of AVX2 exist only where AVX2, FMA and F16C were found, and the variant
                // enables no more.
                #[allow(unsafe_code, unused_unsafe, reason = "the rule in place of a variant is safe")]
                $crate::Isa::Avx2 => unsafe {
                    $crate::kernel!(@first $($avx2,)? $scalar)($($argument),*)
                },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Instructions` of SSE4.1 exist only where it and SSSE3 were found, and the variant enables no
                // more.
                #[allow(unsafe_code, unused_unsafe, reason = "the rule in place of a variant is safe")]
                $crate::Isa::Sse41 => unsafe {
                    $crate::kernel!(@first $($sse41,)? $scalar)($($argument),*)
                },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: `Instructions` of NEON exist only where NEON and dot products were found, and the variant
                // enables no more.
                #[allow(unsafe_code, unused_unsafe, reason = "the rule in place of a variant is safe")]
                $crate::Isa::Neon => unsafe {
                    $crate::kernel!(@first $($neon,)? $scalar)($($argument),*)
                },
                $crate::Isa::Scalar => $scalar($($argument),*),
            }
        }

        #[cfg(feature = "samples")]
        #[doc = concat!("Results of [`", stringify!($name), "`] for many inputs.")]
        pub fn $all(instructions: $crate::isa::Instructions) -> Vec<f32> {
            $samples(instructions)
        }
    };
}
use kernel;
