//! Products of stored matrices with activations: what their types ask for, for all operators that multiply.
//!
//! ```text
//!  32 codes a block     x ─quantize_q8_1─▶ blocks of 8 bits ─▶ integers within blocks, f32 between
//!  other types          x as it is ─▶ each weight decoded to f32, f32 throughout
//! ```
//!
//! | way | tokens | kernels | sums |
//! |---|---|---|---|
//! | plain | any | `mul_mat.cu`, a warp a row and eight tokens | element k, or block k, to lane k mod 32 |
//! | rows | few | `mul_mat_rows.cu`, several rows a warp, 16 bytes a load | blocks as above; of r numbers of 16 bytes, element k to lane k mod 32 r |
//!
//! Which way is taken follows from types alone: one table answers both what is declared and what is launched. Blocks that do not lie in planes, which
//! only matrices that are no weights do not, are multiplied by the plain kernels, whose sums are no less exact than what is declared.

use super::{Argument, Call, Grid, Operand, suffix};
use crate::profile::{Accumulator, Activations, Profile, Rounding};
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};

/// Lanes of a warp.
pub const WARP: usize = 32;

/// Tokens that a warp of the plain kernels multiplies a row with, as `kernels/cuda/mul_mat.cu` has them.
const TOKENS: usize = 8;

/// Activations of a block, and its bytes: `kernels/cuda/activation_blocks.cuh`.
const BLOCK_LEN: usize = 32;
const BLOCK_BYTES: usize = 40;

/// Warps of a block of threads in the fast kernels.
pub const WARPS: usize = 4;

/// Blocks of these that one processor holds at once, about.
const RESIDENT: usize = 8;

/// Bytes of a wide load.
const LOAD_BYTES: usize = 16;

/// Sums in f32 of plain products; what a decoded weight is rounded by counts by itself.
const FLOATS: Profile = Profile { lanes: WARP, ..Profile::F32 };

/// Sums of integers per block, exact, and of blocks in f32.
const INTEGERS: Profile = Profile {
    activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
    accumulator: Accumulator::Int32ThenF32,
    lanes: WARP,
    ..Profile::F32
};

/// What products are computed by on a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Means {
    /// Whether weights lie in planes and the fast kernels are used; else the plain ones.
    pub repack: bool,
    /// Whether tensor cores multiply 8-bit integers and f16 as the kernels need it: from sm_80 on.
    pub tensor_cores: bool,
    /// How many processors the card has.
    pub processors: u32,
    /// Shared memory that a block of threads can have, in bytes.
    pub shared_bytes_max: usize,
}

/// How a product is computed: the table above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By the plain kernels.
    Plain,
    /// By rows.
    Rows,
}

impl Means {
    /// What an operator declares of which `plain` is declared by the plain kernels.
    pub fn declared(&self, op: &Op, inputs: &[TensorType], plain: Profile) -> Profile {
        let (weights, x) = match op {
            Op::MulMat(_) => (&inputs[..1], &inputs[1]),
            Op::MulMatGated(_) => (&inputs[..2], &inputs[2]),
            _ => return plain,
        };
        match self.way(weights, x) {
            Way::Rows if !takes_codes(weights[0].dtype) => Profile { lanes: WARP * run(&weights[0]), ..plain },
            Way::Plain | Way::Rows => plain,
        }
    }

    /// The way of products of these weights, one or two of one shape, with the same activations.
    pub fn way(&self, weights: &[TensorType], x: &TensorType) -> Way {
        if !self.repack {
            return Way::Plain;
        }
        if weights.iter().all(|w| takes_codes(w.dtype)) || weights.iter().all(|w| loads_runs(w, x)) {
            Way::Rows
        } else {
            Way::Plain
        }
    }
}

/// Numbers of a plain type in a wide load.
fn run(w: &TensorType) -> usize {
    LOAD_BYTES / w.dtype.block_bytes()
}

/// Whether plain weights and activations can be read by wide loads: rows begin at multiples of them and have no rest. Buffers begin so.
fn loads_runs(w: &TensorType, x: &TensorType) -> bool {
    let is_whole = |ty: &TensorType| {
        let strides = ty.shape.strides();
        let rows = ty.shape.sizes().into_iter().zip(strides.steps).skip(1);
        let run = run(ty);
        let begins = strides.offset.is_multiple_of(run)
            && rows.into_iter().all(|(size, step)| size == 1 || step.is_multiple_of(run));
        begins && (strides.steps[0] == 1 || ty.shape[0] <= 1)
    };
    let plain = matches!(w.dtype, DType::F32 | DType::F16 | DType::Bf16) && x.dtype == DType::F32;
    plain && w.shape[0].is_multiple_of(run(w)) && is_whole(w) && is_whole(x) && x.shape[2] * x.shape[3] <= 65_535
}

/// How weights of this type are multiplied by the plain kernels.
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
    if takes_codes(weights) { blocks(x) * BLOCK_BYTES } else { 0 }
}

fn blocks(x: &TensorType) -> usize {
    x.shape.elements() / BLOCK_LEN
}

/// Brings activations into 8 bits, at an address, where weights of this type take them so.
pub fn quantize(call: &Call, weights: DType, x: &Operand, codes: u64) -> Result<(), String> {
    if !takes_codes(weights) {
        return Ok(());
    }
    let kernel = format!("quantize_q8_1_{}", suffix(x.ty.dtype));
    call.launch(&kernel, Grid::elements(blocks(&x.ty) * WARP)?, &[Argument::View(x.view), Argument::Address(codes)])
}

/// `y = w x` as `mul_mat` has it; `codes` is where [`quantize`] put the activations.
pub fn multiply(call: &Call, way: Way, w: &Operand, x: &Operand, codes: u64, y: &Operand) -> Result<(), String> {
    match way {
        Way::Rows if w.divided.is_some() || !takes_codes(w.ty.dtype) => multiply_rows(call, w, x, codes, y),
        Way::Plain | Way::Rows => multiply_plainly(call, w, x, codes, y),
    }
}

fn multiply_plainly(call: &Call, w: &Operand, x: &Operand, codes: u64, y: &Operand) -> Result<(), String> {
    let [rows, tokens, n2, n3] = y.ty.shape.sizes();
    let warps = rows * tokens.div_ceil(TOKENS) * n2 * n3;
    let arguments = [weights(w), activations(w, x, codes), vec![Argument::View(y.view)]].concat();
    call.launch(&kernel("mul_mat", w, x), Grid::elements(warps * WARP)?, &arguments)
}

fn multiply_rows(call: &Call, w: &Operand, x: &Operand, codes: u64, y: &Operand) -> Result<(), String> {
    let tokens = tokens_of_warp(&w.ty, &y.ty);
    let kernel = format!("mul_mat_rows_{}_{tokens}", suffix(w.ty.dtype));
    let grid = rows_grid(call, &y.ty, rows_of_warp(&w.ty, tokens), tokens)?;
    call.launch(&kernel, grid, &[weights(w), activations(w, x, codes), vec![Argument::View(y.view)]].concat())
}

/// Tokens that a warp of the kernels by rows takes: what they are compiled for.
pub fn tokens_of_warp(w: &TensorType, y: &TensorType) -> usize {
    let most = if takes_codes(w.dtype) { 8 } else { 4 };
    y.shape[1].next_power_of_two().min(most)
}

/// Rows that it takes, of one matrix.
pub fn rows_of_warp(w: &TensorType, tokens: usize) -> usize {
    if takes_codes(w.dtype) && tokens >= 4 { 4 } else { 2 }
}

/// A grid that fills the card and goes through all rows, each block of threads equally often.
pub fn rows_grid(call: &Call, y: &TensorType, rows: usize, tokens: usize) -> Result<Grid, String> {
    let [all, columns, n2, n3] = y.shape.sizes();
    let (blocks, groups, batches) = (all.div_ceil(rows * WARPS), columns.div_ceil(tokens), n2 * n3);
    let at_once = (call.means.processors as usize * RESIDENT).div_ceil((groups * batches).max(1));
    let times = blocks.div_ceil(at_once.max(1)).max(1);
    Grid::of([blocks.div_ceil(times), groups, batches], (WARPS * WARP) as u32)
}

/// Weights as kernels take them: a view, and planes beside that of the codes.
pub fn weights(w: &Operand) -> Vec<Argument> {
    let mut arguments = vec![Argument::View(w.view)];
    arguments.extend(w.divided.iter().flat_map(|divided| divided.planes().beside()));
    arguments
}

/// What weights take as activations.
pub fn activations(w: &Operand, x: &Operand, codes: u64) -> Vec<Argument> {
    if takes_codes(w.ty.dtype) {
        vec![Argument::Address(codes), Argument::Index(blocks(&x.ty) as i64)]
    } else {
        vec![Argument::View(x.view)]
    }
}

/// The plain kernel of an operator for these weights and activations.
pub fn kernel(operator: &str, w: &Operand, x: &Operand) -> String {
    let weights = suffix(w.ty.dtype);
    if takes_codes(w.ty.dtype) {
        format!("{operator}_{weights}")
    } else {
        format!("{operator}_{weights}_{}", suffix(x.ty.dtype))
    }
}
