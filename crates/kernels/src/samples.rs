//! The samples of all kernels, for the tests that compare variants.

/// Calls a macro with the modules of this crate and the samples in each.
#[doc(hidden)]
#[macro_export]
macro_rules! each_samples {
    ($callback:ident) => {
        $callback! {
            block_rows: key_scores_q8_0_samples, mix_q8_0_samples;
            decode_q8_0: decode_q8_0_samples;
            dot_int8: dot_int8_samples;
            dots: dots_f32_samples, dots_f16_samples, dots_bf16_samples;
            exponentials: exponentials_samples;
            gated: gated_samples;
            key_scores: key_scores_f32_samples, key_scores_f16_samples;
            mix: mix_f32_samples, mix_f16_samples;
            multiply_add: multiply_add_samples;
            pack_panel: pack_panel_samples;
            panel_product: panel_product_samples;
            quantize: quantize_samples;
            read_lines: read_lines_samples;
            rms_norm: rms_norm_samples;
            soft_max: soft_max_samples;
            sub_block_product: sub_block_product_samples;
            turned_product: turn_vectors_samples, turn_f32_samples, turn_f16_samples,
                turn_bf16_samples, turned_product_f32_samples, turned_product_f16_samples,
                turned_product_bf16_samples;
            unary: unary_samples;
        }
    };
}

macro_rules! exported {
    ($($module:ident: $($samples:ident),+;)+) => {
        $(pub use crate::$module::{$($samples),+};)+
    };
}
each_samples!(exported);

pub use crate::guarded::{Laid, careless_samples};
#[cfg(target_arch = "x86_64")]
pub use crate::sse41::{sse41_multiply_add, sse41_widen};
pub use crate::sub_block::{half_of_e8m0, half_of_ue4m3};

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
