//! Products of stored matrices with activations: what their types ask for, for all operators that multiply.
//!
//! ```text
//!  32 codes a block     x ─quantize_q8_1─▶ blocks of 8 bits ─▶ integers within blocks, f32 between
//!  other types          x as it is ─▶ each weight decoded to f32, f32 throughout
//! ```
//!
//! A warp sums: element k, or block k, to lane k mod 32. The kernels stand in `kernels/cuda/products.cuh`.

use super::{Argument, Call, Grid, Operand, suffix};
use crate::profile::{Accumulator, Activations, Profile, Rounding};
use trueup_blocks::DType;
use trueup_graph::TensorType;

/// Lanes of a warp.
pub const WARP: usize = 32;

/// Tokens that a warp multiplies a row with, as `kernels/cuda/mul_mat.cu` has them.
const TOKENS: usize = 8;

/// Activations of a block, and its bytes: `ActivationBlock` in `kernels/cuda/activation_blocks.cuh`.
const BLOCK_LEN: usize = 32;
const BLOCK_BYTES: usize = 40;

/// Sums in f32 of plain products; what a decoded weight is rounded by counts by itself.
const FLOATS: Profile = Profile { lanes: WARP, ..Profile::F32 };

/// Sums of integers per block, exact, and of blocks in f32.
const INTEGERS: Profile = Profile {
    activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
    accumulator: Accumulator::Int32ThenF32,
    lanes: WARP,
    ..Profile::F32
};

/// How weights of this type are multiplied.
pub fn profile(weights: DType) -> Result<Profile, String> {
    match weights {
        DType::F32 | DType::F16 | DType::Bf16 => Ok(FLOATS),
        DType::Q2K | DType::Q3K | DType::Q4K | DType::Q5K | DType::Q6K | DType::Iq4Nl => Ok(FLOATS),
        dtype if takes_codes(dtype) => Ok(INTEGERS),
        dtype => {
            Err(format!("{dtype} weights cannot be multiplied here; use f32, f16, bf16 or a type with 32 per block"))
        }
    }
}

/// Whether weights of this type are multiplied with activations in 8 bits.
pub fn takes_codes(weights: DType) -> bool {
    matches!(weights, DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0 | DType::Q8_1)
}

/// What matrices are multiplied with.
pub fn expect_multiplied(what: &str, ty: &TensorType) -> Result<(), String> {
    let multiplied = matches!(ty.dtype, DType::F32 | DType::F16);
    if multiplied { Ok(()) } else { Err(format!("{what} must be f32 or f16 here, not {}", ty.dtype)) }
}

/// Bytes of the activations as weights of this type take them, beside the activations themselves.
pub fn codes_bytes(weights: DType, x: &TensorType) -> usize {
    if takes_codes(weights) { x.shape.elements() / BLOCK_LEN * BLOCK_BYTES } else { 0 }
}

/// Brings activations into 8 bits, at an address, where weights of this type take them so.
pub fn quantize(call: &Call, weights: DType, x: &Operand, codes: u64) -> Result<(), String> {
    if !takes_codes(weights) {
        return Ok(());
    }
    let kernel = format!("quantize_q8_1_{}", suffix(x.ty.dtype));
    let warps = x.ty.shape.elements() / BLOCK_LEN;
    call.launch(&kernel, Grid::elements(warps * WARP)?, &[Argument::View(x.view), Argument::Address(codes)])
}

/// `y = w x` as `mul_mat` has it; `codes` is where [`quantize`] put the activations.
pub fn multiply(call: &Call, w: &Operand, x: &Operand, codes: u64, y: &Operand) -> Result<(), String> {
    let [rows, tokens, n2, n3] = y.ty.shape.sizes();
    let warps = rows * tokens.div_ceil(TOKENS) * n2 * n3;
    let arguments = [Argument::View(w.view), activations(w, x, codes), Argument::View(y.view)];
    call.launch(&kernel("mul_mat", w, x), Grid::elements(warps * WARP)?, &arguments)
}

/// What weights take as activations.
pub fn activations(w: &Operand, x: &Operand, codes: u64) -> Argument {
    if takes_codes(w.ty.dtype) { Argument::Address(codes) } else { Argument::View(x.view) }
}

/// The kernel of an operator for these weights and activations.
pub fn kernel(operator: &str, w: &Operand, x: &Operand) -> String {
    let weights = suffix(w.ty.dtype);
    if takes_codes(w.ty.dtype) {
        format!("{operator}_{weights}")
    } else {
        format!("{operator}_{weights}_{}", suffix(x.ty.dtype))
    }
}
