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
//! | tiles | more than 8 | `mul_mat_tiles.cu`, tensor cores on integers | block after block |
//! | halves | more than 8 | `mul_mat_halves.cu`, tensor cores on f16, x rounded to f16 | 64 elements after 64 |
//!
//! Which way is taken follows from types alone: one table answers both what is declared and what is launched. Blocks that do not lie in planes, which
//! only matrices that are no weights do not, are multiplied by the plain kernels, whose sums are no less exact than what is declared.

use super::{Argument, Call, Grid, Operand, View, moved, suffix};
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

/// Rows and tokens of a tile by tensor cores, and its threads: `kernels/cuda/tiles.cuh`.
const TILE: [usize; 2] = [128, 64];
const TILE_THREADS: u32 = 256;

/// Shared memory of such a block of threads: `Stage` in `mul_mat_tiles.cu` and in `mul_mat_halves.cu`.
const TILES_SHARED_BYTES: u32 = 47_616;
const HALVES_SHARED_BYTES: u32 = 37_632;

/// Batches that a grid takes at once.
const BATCHES_MAX: usize = 65_535;

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
}

/// How a product is computed: the table above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// By the plain kernels.
    Plain,
    /// By rows.
    Rows,
    /// By tiles of integers.
    Tiles,
    /// By tiles of f16.
    Halves,
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
            Way::Tiles => Profile { lanes: 1, ..plain },
            Way::Halves => Profile { activations: Activations::F16, lanes: 1, ..plain },
        }
    }

    /// The way of products of these weights, one or two of one shape, with the same activations.
    pub fn way(&self, weights: &[TensorType], x: &TensorType) -> Way {
        if !self.repack {
            return Way::Plain;
        }
        let is_prompt = self.tensor_cores && x.shape[1] > TOKENS;
        if is_prompt && weights.iter().all(|w| takes_codes(w.dtype)) {
            Way::Tiles
        } else if is_prompt
            && weights.iter().all(|w| w.dtype == DType::F16 && begins_whole(w))
            && batches(x) <= BATCHES_MAX
        {
            Way::Halves
        } else if weights.iter().all(|w| takes_codes(w.dtype)) || weights.iter().all(|w| loads_runs(w, x)) {
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

/// Whether plain weights and activations can be read by wide loads.
fn loads_runs(w: &TensorType, x: &TensorType) -> bool {
    let plain = matches!(w.dtype, DType::F32 | DType::F16 | DType::Bf16) && x.dtype == DType::F32;
    plain && w.shape[0].is_multiple_of(run(w)) && begins_whole(w) && begins_whole(x) && batches(x) <= BATCHES_MAX
}

/// Whether rows of plain numbers begin at multiples of a wide load, as buffers do, and whole ones are all that they have.
fn begins_whole(ty: &TensorType) -> bool {
    let (strides, run) = (ty.shape.strides(), run(ty));
    let mut rows = ty.shape.sizes().into_iter().zip(strides.steps).skip(1);
    let begins = strides.offset.is_multiple_of(run) && rows.all(|(size, step)| size == 1 || step.is_multiple_of(run));
    begins && strides.steps[0] == 1 && ty.shape[0].is_multiple_of(run)
}

fn batches(x: &TensorType) -> usize {
    x.shape[2] * x.shape[3]
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

/// Bytes of the activations as a way takes them, beside the activations themselves.
pub fn taken_bytes(way: Way, weights: DType, x: &TensorType) -> usize {
    match way {
        Way::Halves => x.shape.elements() * DType::F16.block_bytes(),
        Way::Plain | Way::Rows | Way::Tiles if takes_codes(weights) => blocks(x) * BLOCK_BYTES,
        Way::Plain | Way::Rows | Way::Tiles => 0,
    }
}

fn blocks(x: &TensorType) -> usize {
    x.shape.elements() / BLOCK_LEN
}

/// Brings activations into the form that a way takes with these weights, at an address.
pub fn take(call: &Call, way: Way, weights: DType, x: &Operand, taken: u64) -> Result<(), String> {
    let from = suffix(x.ty.dtype);
    if way == Way::Halves {
        let [n0, n1, n2, _] = x.view.sizes;
        let dense = View { data: taken, sizes: x.view.sizes, steps: [1, n0, n0 * n1, n0 * n1 * n2] };
        let kernel =
            if x.ty.dtype == DType::F16 { moved::kernel("cpy", DType::F16) } else { format!("cpy_{from}_f16") };
        let grid = Grid::elements(x.ty.shape.elements())?;
        return call.launch(&kernel, grid, &[Argument::View(x.view), Argument::View(dense)]);
    }
    if !takes_codes(weights) {
        return Ok(());
    }
    let grid = Grid::elements(blocks(&x.ty) * WARP)?;
    call.launch(&format!("quantize_q8_1_{from}"), grid, &[Argument::View(x.view), Argument::Address(taken)])
}

/// `y = w x` as `mul_mat` has it; `taken` is where [`take`] put the activations.
pub fn multiply(call: &Call, way: Way, w: &Operand, x: &Operand, taken: u64, y: &Operand) -> Result<(), String> {
    match way {
        Way::Rows if is_readable(w) => multiply_rows(call, w, x, taken, y),
        Way::Tiles if is_readable(w) => {
            let arguments = [weights(w), activations(w, x, taken), vec![Argument::View(y.view)]].concat();
            call.launch(&format!("mul_mat_tiles_{}", suffix(w.ty.dtype)), tiles_grid(way, &y.ty, 1)?, &arguments)
        }
        Way::Halves => {
            let arguments = [Argument::View(w.view), Argument::Address(taken), Argument::View(y.view)];
            call.launch("mul_mat_halves", tiles_grid(way, &y.ty, 1)?, &arguments)
        }
        Way::Plain | Way::Rows | Way::Tiles => multiply_plainly(call, w, x, taken, y),
    }
}

/// Whether the fast kernels can read a matrix: blocks lie in planes.
pub fn is_readable(w: &Operand) -> bool {
    w.divided.is_some() || !takes_codes(w.ty.dtype)
}

/// A grid of tiles of results; with several matrices a tile has its share of the rows of each.
pub fn tiles_grid(way: Way, y: &TensorType, matrices: usize) -> Result<Grid, String> {
    let [rows, tokens, n2, n3] = y.shape.sizes();
    let shared_bytes = if way == Way::Halves { HALVES_SHARED_BYTES } else { TILES_SHARED_BYTES };
    let grid = Grid::of([rows.div_ceil(TILE[0] / matrices), tokens.div_ceil(TILE[1]), n2 * n3], TILE_THREADS)?;
    Ok(Grid { shared_bytes, ..grid })
}

fn multiply_plainly(call: &Call, w: &Operand, x: &Operand, taken: u64, y: &Operand) -> Result<(), String> {
    let [rows, tokens, n2, n3] = y.ty.shape.sizes();
    let warps = rows * tokens.div_ceil(TOKENS) * n2 * n3;
    let arguments = [weights(w), activations(w, x, taken), vec![Argument::View(y.view)]].concat();
    call.launch(&kernel("mul_mat", w, x), Grid::elements(warps * WARP)?, &arguments)
}

fn multiply_rows(call: &Call, w: &Operand, x: &Operand, taken: u64, y: &Operand) -> Result<(), String> {
    let tokens = tokens_of_warp(&w.ty, &y.ty);
    let kernel = format!("mul_mat_rows_{}_{tokens}", suffix(w.ty.dtype));
    let grid = rows_grid(call, &y.ty, rows_of_warp(&w.ty, tokens), tokens)?;
    call.launch(&kernel, grid, &[weights(w), activations(w, x, taken), vec![Argument::View(y.view)]].concat())
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

/// What weights take as activations, in 8 bits or as they are.
pub fn activations(w: &Operand, x: &Operand, taken: u64) -> Vec<Argument> {
    if takes_codes(w.ty.dtype) {
        vec![Argument::Address(taken), Argument::Index(blocks(&x.ty) as i64)]
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
