//! Variants for aarch64 with NEON and dot products of bytes: each as exact as its rule, in registers of four f32 or 16
//! codes.
//!
//! What these need and the oldest supported compiler has no intrinsic for stands here in one instruction each. Products
//! are f32 as the rules demand, so that f16 is widened, which every aarch64 processor can, and the f16 arithmetic of
//! ARMv8.2 has no use.

pub mod dots;
pub mod key_scores;
pub mod mix;
pub mod panel_product;
pub mod sub_block_product;

use half::{bf16, f16};
use std::arch::aarch64::*;
use std::arch::asm;

/// f32 of a register.
const LANES: usize = 4;

/// Four f32.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_f32(source: &[f32; LANES]) -> float32x4_t {
    // SAFETY: the array holds 16 bytes; the load needs no alignment.
    unsafe { vld1q_f32(source.as_ptr()) }
}

/// Four f16, widened.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_f16(source: &[f16; LANES]) -> float32x4_t {
    // SAFETY: the array holds 8 bytes, f16 is a transparent u16; the load needs no alignment.
    widen_f16(unsafe { vld1_u16(source.as_ptr().cast()) })
}

/// Four bf16, widened.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_bf16(source: &[bf16; LANES]) -> float32x4_t {
    // SAFETY: the array holds 8 bytes, bf16 is a transparent u16; the load needs no alignment.
    let halves = unsafe { vld1_u16(source.as_ptr().cast()) };
    vreinterpretq_f32_u32(vshll_n_u16::<16>(halves))
}

/// The four lanes as an array.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn store(lanes: float32x4_t) -> [f32; LANES] {
    let mut target = [0.0; LANES];
    // SAFETY: the array holds 16 bytes; the store needs no alignment.
    unsafe { vst1q_f32(target.as_mut_ptr(), lanes) };
    target
}

/// Bits of four f16 as f32.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn widen_f16(bits: uint16x4_t) -> float32x4_t {
    let wide;
    // SAFETY: one conversion between registers, which NEON has.
    unsafe {
        asm!(
            "fcvtl {wide:v}.4s, {bits:v}.4h",
            wide = lateout(vreg) wide,
            bits = in(vreg) bits,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    wide
}

/// Adds to each 32-bit lane the four products of its bytes of `codes` with the bytes of lane `LANE` of `x`, all signed.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn add_dots<const LANE: i32>(mut sums: int32x4_t, codes: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: one operation between registers, which the dot product extension has; LANE is 0 to 3, or assembling
    // fails.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {codes:v}.16b, {x:v}.4b[{lane}]",
            sums = inout(vreg) sums,
            codes = in(vreg) codes,
            x = in(vreg) x,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sums
}
