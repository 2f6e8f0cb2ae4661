//! What the bytes of a tensor mean: data types, block layouts, encode and decode, and the split-scale layout.
//!
//! ```text
//!  f32 weights of a row ──encode──▶ block │ block │ block   (one scale per 32 weights)
//!                       ◀─decode───        │
//!                                         split ⇄ join
//!                                          │
//!                            values of the tensor │ scales of the tensor   (split-scale layout)
//! ```
//!
//! [`DType`] names every type of a GGUF file. A type that this build can compute with has a [`Codec`], found by
//! [`DType::codec`]; one file of this crate holds one format: a picture of its bytes, its
//! rule as plain scalar code, and its faster variants. Bytes are the same for every variant, every instruction set and
//! every number of threads.
//!
//! ```
//! use trueup_blocks::DType;
//!
//! let codec = DType::Q8_0.codec().expect("q8_0 has a codec");
//! let weights = [0.5f32; 32];
//! let mut bytes = [0u8; 34];
//! (codec.encode)(&weights, &mut bytes);
//! let mut decoded = [0.0f32; 32];
//! (codec.decode)(&bytes, &mut decoded);
//! assert!((decoded[0] - 0.5).abs() < 0.5 / 127.0);
//! ```

// On aarch64, only tests use a scalar rule that has a NEON variant. Other processors have no searches in lanes.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "the other rules or searches are not used"))]

#[macro_use]
mod compiled;

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector kernels load and store through pointers")]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "vector kernels load and store through pointers")]
mod avx512;
mod codec;
#[macro_use]
mod decoder;
mod deviation;
#[macro_use]
mod dispatch;
mod dtype;
#[macro_use]
mod encoders;
mod finite;
mod nibbles;
mod parts;
#[cfg(test)]
mod samples;
mod scale;
mod scale_places;
mod split_scale;

mod bf16;
mod f16;
mod f32;
mod f64;
mod fp4;
mod grid;
mod iq4_nl;
mod iq4_xs;
mod k_affine;
mod k_lanes;
mod k_signed;
mod mxfp4;
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code, reason = "vector kernels load and store through pointers")]
mod neon;
mod nvfp4;
mod packing;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_1;
mod search;
mod ternary;
mod tq1_0;
mod tq2_0;
mod weighted;

pub use codec::{Block, Codec};
pub use decoder::Decoder;
pub use deviation::{Deviation, DeviationSums};
pub use dtype::DType;
pub use finite::{are_bytes_finite, first_not_finite};
pub use grid::{GRID_TYPES, encode_exact};
pub use split_scale::SplitScale;
pub use ternary::unused_code;

codec::codecs![
    f32::F32,
    f16::F16,
    bf16::Bf16,
    f64::F64,
    q4_0::Q4_0,
    q4_1::Q4_1,
    q5_0::Q5_0,
    q5_1::Q5_1,
    q8_0::Q8_0,
    q8_1::Q8_1,
    q2_k::Q2K,
    q3_k::Q3K,
    q4_k::Q4K,
    q5_k::Q5K,
    q6_k::Q6K,
    iq4_nl::Iq4Nl,
    iq4_xs::Iq4Xs,
    mxfp4::Mxfp4,
    nvfp4::Nvfp4,
    tq1_0::Tq1_0,
    tq2_0::Tq2_0,
];
