//! Products of stored matrices with activations: the kernels that the types select, for all operators that multiply.
//!
//! ```text
//! 32 codes per block      x ─quantize_q8_1─▶ blocks of 8 bits ─▶ integers within blocks, f32 between them
//! other types, or         x unchanged ─▶ each weight decoded to f32, f32 throughout
//! `--matmul dequantize`   many tokens: both rounded to f16, sums in f32
//! ```
//!
//! | path | tokens | kernels | sums |
//! |---|---|---|---|
//! | plain | any | `mul_mat.cu`, one warp for a row and eight tokens | element k, or block k, to lane k mod 32; of decoded blocks, 8 neighbors to a lane |
//! | rows | few | `mul_mat_rows.cu`, rows per warp, wide loads | as above; r values per load: lane k mod 32 r |
//! | tiles | more than 8 | `mul_mat_tiles.cu`, integer tensor cores | block after block |
//! | halves | more than 8 | cuBLASLt, else `mul_mat_halves.cu`: f16 tensor cores, x in f16 | its own; 64 by 64 |
//! | decoded | more than 8 | `decode.cu`, weights rounded to f16, then as halves | as halves |
//!
//! The path follows from the types and the number of tokens. One table determines both the declared profile and the
//! launch. Blocks that are not stored in planes are not weights; plain kernels multiply them, with sums at least as
//! exact as declared.

use super::heads::HeadsTail;
use super::rms_norm::NormBehind;
use super::{ALIGNMENT, Argument, Call, Grid, Operand, Sizes, View, decoded, moved, suffix};
use super::{batches as parts, mul_mat_gated};
use crate::devices::Linear;
use crate::profile::{Accumulator, Activations, Profile, Rounding, Weights};
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

/// Blocks of these that one processor is given at once, at most: it has fewer where threads need many registers.
const RESIDENT_MAX: usize = 8;

/// Rows and tokens of a tile by tensor cores, and its threads: `kernels/cuda/tiles.cuh`.
pub const TILE: [usize; 2] = [128, 64];
const TILE_THREADS: u32 = 256;

/// Shared memory of such a block of threads: `Stage` in `mul_mat_tiles.cu` and in `mul_mat_halves.cu`.
const TILES_SHARED_BYTES: u32 = 47_616;
const HALVES_SHARED_BYTES: u32 = 37_632;

/// Products that tensor cores add before their sum is added in f32: `STEPS_AT_ONCE` in `mul_mat_halves.cu`.
const HALVES_CHAIN: usize = 64;

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
    /// How blocks of 32 codes are multiplied.
    pub linear: Linear,
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
    /// By tiles of integers.
    Tiles,
    /// By tiles of f16.
    Halves,
    /// Decoded to f16, and by tiles of these.
    Decoded,
}

impl Means {
    /// What an operator declares of which `plain` is declared by the plain kernels; `has_library` if cuBLASLt is used.
    pub fn declared(
        &self,
        op: &Op,
        inputs: &[TensorType],
        output: &TensorType,
        has_library: bool,
        plain: Profile,
    ) -> Profile {
        let (weights, x) = match op {
            Op::MulMat(_) => (&inputs[..1], &inputs[1]),
            Op::MulMatGated(_) => (&inputs[..2], &inputs[2]),
            Op::MulMatId(_) => (&inputs[..1], &inputs[1]),
            _ => return plain,
        };
        let is_decoded = has_codes(weights[0].dtype) && !self.takes_codes(weights[0].dtype);
        let plain = if is_decoded { Profile { function_ulp: plain.function_ulp, ..FLOATS } } else { plain };
        if matches!(op, Op::MulMatId(_)) {
            return plain;
        }
        let way = self.way(weights, x);
        // Many tokens or batches are multiplied in parts, which the library may take although it does not take the
        // whole.
        let is_cut = has_library && !parts::fits(output);
        let mut taken = weights.iter().map(|w| takes_library(way, has_library, w, output));
        // One kernel multiplies both matrices, unless the library takes both.
        let is_at_once = weights.len() == 2 && mul_mat_gated::is_at_once(way) && weights[0].dtype == weights[1].dtype;
        let by_library = is_cut || if is_at_once { taken.all(|takes| takes) } else { taken.any(|takes| takes) };
        // The library adds all products of a row in one chain.
        let in_tensor_cores = Accumulator::TensorCore { chain: if by_library { 0 } else { HALVES_CHAIN } };
        match way {
            Way::Rows if !self.takes_codes(weights[0].dtype) => Profile { lanes: WARP * run(&weights[0]), ..plain },
            Way::Plain | Way::Rows => plain,
            Way::Tiles => Profile { lanes: 1, ..plain },
            Way::Halves => Profile { activations: Activations::F16, accumulator: in_tensor_cores, lanes: 1, ..plain },
            Way::Decoded => Profile {
                activations: Activations::F16,
                weights: Weights::F16,
                accumulator: in_tensor_cores,
                lanes: 1,
                ..plain
            },
        }
    }

    /// Whether weights are divided into planes: those that are decoded stay in the file's form.
    pub fn divides(&self) -> bool {
        self.repack && self.linear == Linear::Q8_1
    }

    /// Whether weights of this type are multiplied with activations in 8 bits.
    pub fn takes_codes(&self, weights: DType) -> bool {
        self.linear == Linear::Q8_1 && has_codes(weights)
    }

    /// Bytes of activations in the form that a way takes with these weights.
    pub fn taken_bytes(&self, way: Way, w: &TensorType, x: &TensorType) -> usize {
        self.form(way, w.dtype).bytes(x)
    }

    /// The form of activations that a way takes with weights of this type.
    pub fn form(&self, way: Way, weights: DType) -> Form {
        match way {
            Way::Halves | Way::Decoded => Form::Halves,
            Way::Plain | Way::Rows | Way::Tiles if self.takes_codes(weights) => Form::Codes,
            Way::Plain | Way::Rows | Way::Tiles => Form::Same,
        }
    }

    /// The way of products of these weights, one or two of one shape, with the same activations.
    pub fn way(&self, weights: &[TensorType], x: &TensorType) -> Way {
        if !self.repack {
            return Way::Plain;
        }
        let is_prompt = self.tensor_cores && x.shape[1] > TOKENS;
        if is_prompt && weights.iter().all(|w| self.takes_codes(w.dtype)) {
            Way::Tiles
        } else if is_prompt && weights.iter().all(|w| w.dtype == DType::F16 && begins_whole(w)) {
            Way::Halves
        } else if is_prompt && weights.iter().all(|w| w.dtype.is_quantized()) {
            Way::Decoded
        } else if weights.iter().all(|w| self.takes_codes(w.dtype))
            || weights.iter().all(|w| loads_runs(w, x) && run(w) == run(&weights[0]))
        {
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
    plain && w.shape[0].is_multiple_of(run(w)) && begins_whole(w) && begins_whole(x)
}

/// Whether rows of plain numbers begin at multiples of a wide load, as buffers do, and whole ones are all that they
/// have.
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
        DType::Q2K | DType::Q3K | DType::Q4K | DType::Q5K | DType::Q6K | DType::Iq4Nl | DType::Iq4Xs => Ok(FLOATS),
        DType::Mxfp4 | DType::Nvfp4 | DType::Tq1_0 | DType::Tq2_0 => Ok(FLOATS),
        dtype if has_codes(dtype) => Ok(INTEGERS),
        dtype => Err(format!(
            "{dtype} weights cannot be multiplied on this device; use f32, f16, bf16 or a type with \
                32 elements per block"
        )),
    }
}

/// Whether a type has blocks of 32 codes, which can be multiplied as integers.
fn has_codes(weights: DType) -> bool {
    matches!(weights, DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0 | DType::Q8_1)
}

/// What matrices are multiplied with.
pub fn expect_multiplied(what: &str, ty: &TensorType) -> Result<(), String> {
    let multiplied = matches!(ty.dtype, DType::F32 | DType::F16);
    if multiplied { Ok(()) } else { Err(format!("{what} must be f32 or f16, not {}", ty.dtype)) }
}

/// The form of activations that products take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As they are.
    Same,
    /// Blocks of 8 bits.
    Codes,
    /// f16, without gaps.
    Halves,
}

impl Form {
    /// Bytes of activations in this form, where they do not stay as they are.
    pub fn bytes(self, x: &TensorType) -> usize {
        match self {
            Form::Same => 0,
            Form::Codes => blocks(x) * BLOCK_BYTES,
            Form::Halves => x.shape.elements() * DType::F16.block_bytes(),
        }
    }
}

fn blocks(x: &TensorType) -> usize {
    x.shape.elements() / BLOCK_LEN
}

/// Brings activations into the form that a way takes with these weights, unless a product before this one did; where
/// they lie then.
pub fn take(call: &Call, way: Way, weights: DType, x: &Operand) -> Result<u64, String> {
    let form = call.means.form(way, weights);
    if form == Form::Same {
        return Ok(0);
    }
    let (taken, is_there) = call.taken(form, x, form.bytes(&x.ty));
    if !is_there {
        launch_taking(call, form, x, taken)?;
    }
    Ok(taken)
}

fn launch_taking(call: &Call, form: Form, x: &Operand, taken: u64) -> Result<(), String> {
    let from = suffix(x.ty.dtype);
    if form == Form::Codes {
        let grid = Grid::elements(blocks(&x.ty) * WARP)?;
        return call.launch(
            &format!("quantize_q8_1_{from}"),
            grid,
            &[Argument::View(x.view), Argument::Address(taken)],
        );
    }
    let [n0, n1, n2, _] = x.view.sizes;
    let dense = View { data: taken, sizes: x.view.sizes, steps: [1, n0, n0 * n1, n0 * n1 * n2] };
    let kernel = if x.ty.dtype == DType::F16 { moved::kernel("cpy", DType::F16) } else { format!("cpy_{from}_f16") };
    call.launch(&kernel, Grid::elements(x.ty.shape.elements())?, &[Argument::View(x.view), Argument::View(dense)])
}

/// Whether a launch of these tokens is so short that it gains from being another one's: the kernels of groups take one
/// or two.
fn is_short(x: &TensorType) -> bool {
    x.shape[1] <= 2 && batches(x) == 1
}

/// Products by rows of the same tokens with two or three matrices of one type, each with where its result goes, and
/// what comes behind them; `call` is of the first. None where the kernel does not take them: then nothing is launched.
pub fn multiply_three(call: &mut Call, parts: &[[Operand; 2]], heads: Option<&HeadsTail>) -> Result<bool, String> {
    let x = call.inputs[1];
    let ([first, y], third) = (parts[0], parts.get(2));
    if !is_short(&x.ty) || !parts.iter().all(|[w, _]| is_readable(w)) {
        return Ok(false);
    }
    let taken = take(call, Way::Rows, first.ty.dtype, &x)?;
    let tokens = tokens_of_warp(&first.ty, &y.ty);
    let rows = rows_of_warp(&first.ty, tokens);
    let all = parts.iter().map(|[_, y]| y.ty.shape[0].next_multiple_of(rows)).sum();
    let kernel = format!("mul_mat_three_{}_{tokens}", suffix(first.ty.dtype));
    let grid = rows_grid(call, &kernel, &TensorType::new(DType::F32, &[all, y.ty.shape[1]]), rows, tokens)?;
    // Of no third matrix there are no rows.
    let none = Operand { view: View { sizes: [0; 4], ..y.view }, ..y };
    let [third, third_y] = third.copied().unwrap_or([first, none]);
    let matrices = [first, parts[1][0], third].iter().flat_map(weights).collect::<Vec<Argument>>();
    let results = [y, parts[1][1], third_y].map(|y| Argument::View(y.view));
    let heads = heads.map_or(Ok(HeadsTail::none()), |heads| heads.arguments(call))?;
    let arguments = [matrices, activations(call, &first, &x, taken), results.to_vec(), heads.to_vec()].concat();
    call.launch(&kernel, grid, &arguments).map(|()| true)
}

/// A product by rows, `call`, and what is added to it: the sum goes to `total`; and its norm, where one is behind it.
/// None where the kernel does not take them.
pub fn multiply_add(
    call: &mut Call,
    addend: Operand,
    total: Operand,
    norm: Option<NormBehind>,
) -> Result<bool, String> {
    let (w, x, y) = (call.inputs[0], call.inputs[1], call.output);
    if !is_short(&x.ty) || !is_readable(&w) {
        return Ok(false);
    }
    let taken = take(call, Way::Rows, w.ty.dtype, &x)?;
    let tokens = tokens_of_warp(&w.ty, &y.ty);
    let kernel = format!("mul_mat_add_{}_{tokens}", suffix(w.ty.dtype));
    let grid = rows_grid(call, &kernel, &y.ty, rows_of_warp(&w.ty, tokens), tokens)?;
    let results = [y, addend, total].map(|operand| Argument::View(operand.view));
    let norm = norm.map_or_else(|| NormBehind::none(y.view), |norm| norm.arguments(call));
    let arguments = [weights(&w), activations(call, &w, &x, taken), results.to_vec(), norm.to_vec()].concat();
    call.launch(&kernel, grid, &arguments).map(|()| true)
}

/// `y = w x` as `mul_mat` has it; at the first place is what [`take`] gave, at the second room of
/// [`Means::decoded_bytes`].
pub fn multiply(
    call: &Call,
    way: Way,
    w: &Operand,
    x: &Operand,
    [taken, room]: [u64; 2],
    y: &Operand,
) -> Result<(), String> {
    match way {
        Way::Rows if is_readable(w) => multiply_rows(call, w, x, taken, y),
        Way::Tiles if is_readable(w) => {
            let arguments = [weights(w), activations(call, w, x, taken), vec![Argument::View(y.view)]].concat();
            call.launch(&format!("mul_mat_tiles_{}", suffix(w.ty.dtype)), tiles_grid(way, &y.ty, 1)?, &arguments)
        }
        Way::Halves => multiply_halves(call, w.view, taken, y),
        Way::Decoded => decoded::multiply(call, w, [taken, room], y),
        Way::Plain | Way::Rows | Way::Tiles => multiply_plainly(call, w, x, taken, y),
    }
}

/// `y = w x` of weights and activations in f16.
pub fn multiply_halves(call: &Call, w: View, taken: u64, y: &Operand) -> Result<(), String> {
    let [rows, tokens, ..] = y.ty.shape.sizes();
    let sizes = Sizes { rows, tokens, len: w.sizes[0] as usize, step: y.view.steps[1] as usize };
    if by_library(call.library().is_used(), &w, taken, y) && call.multiply(sizes, [w.data, taken, y.view.data]) {
        return Ok(());
    }
    let arguments = [Argument::View(w), Argument::Address(taken), Argument::View(y.view)];
    call.launch("mul_mat_halves", tiles_grid(Way::Halves, &y.ty, 1)?, &arguments)
}

/// Whether the fast kernels can read a matrix: blocks lie in planes.
pub fn is_readable(w: &Operand) -> bool {
    w.divided.is_some() || !has_codes(w.ty.dtype)
}

/// Whether cuBLASLt, if it is used, computes a product of f16: rows of weights follow each other, and all three
/// matrices begin where buffers may.
pub fn by_library(has_library: bool, w: &View, taken: u64, y: &Operand) -> bool {
    let begins = [w.data, taken, y.view.data].iter().all(|address| address.is_multiple_of(ALIGNMENT as u64));
    let one = batches(&y.ty) == 1 && w.steps[1] == w.sizes[0] && y.ty.shape.elements() > 0 && w.sizes[0] > 0;
    has_library && begins && one
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
    let arguments = [weights(w), activations(call, w, x, taken), vec![Argument::View(y.view)]].concat();
    call.launch(&kernel(call, "mul_mat", w, x), Grid::elements(warps * WARP)?, &arguments)
}

fn multiply_rows(call: &Call, w: &Operand, x: &Operand, taken: u64, y: &Operand) -> Result<(), String> {
    let tokens = tokens_of_warp(&w.ty, &y.ty);
    let kernel = format!("mul_mat_rows_{}_{tokens}", suffix(w.ty.dtype));
    let grid = rows_grid(call, &kernel, &y.ty, rows_of_warp(&w.ty, tokens), tokens)?;
    call.launch(&kernel, grid, &[weights(w), activations(call, w, x, taken), vec![Argument::View(y.view)]].concat())
}

/// Tokens that a warp of the kernels by rows takes: what they are compiled for.
pub fn tokens_of_warp(w: &TensorType, y: &TensorType) -> usize {
    let most = if has_codes(w.dtype) { 8 } else { 4 };
    y.shape[1].next_power_of_two().min(most)
}

/// Rows that it takes, of one matrix.
pub fn rows_of_warp(w: &TensorType, tokens: usize) -> usize {
    if has_codes(w.dtype) && tokens >= 4 { 4 } else { 2 }
}

/// A grid of blocks of a kernel that all run at once, fill the card and go through all rows, each equally often.
pub fn rows_grid(call: &Call, kernel: &str, y: &TensorType, rows: usize, tokens: usize) -> Result<Grid, String> {
    let threads = (WARPS * WARP) as u32;
    let [all, columns, n2, n3] = y.shape.sizes();
    let (blocks, groups, batches) = (all.div_ceil(rows * WARPS), columns.div_ceil(tokens), n2 * n3);
    Grid::of([filling(call, kernel, blocks, groups * batches)?, groups, batches], threads)
}

/// How many of some blocks of threads of a kernel, each of which goes through rows, fill the card where there are as
/// many beside them: each goes on equally often.
pub fn filling(call: &Call, kernel: &str, blocks: usize, beside: usize) -> Result<usize, String> {
    let resident = call.resident(kernel, (WARPS * WARP) as u32)?.clamp(1, RESIDENT_MAX);
    Ok(equally_often(call.means.processors as usize * resident, blocks, beside))
}

/// How many of some blocks run, where so many run at once: each goes on equally often.
fn equally_often(at_once: usize, blocks: usize, beside: usize) -> usize {
    let times = blocks.div_ceil(at_once.div_ceil(beside.max(1)).max(1)).max(1);
    blocks.div_ceil(times)
}

/// Weights as kernels take them: a view, and planes beside that of the codes.
pub fn weights(w: &Operand) -> Vec<Argument> {
    let mut arguments = vec![Argument::View(w.view)];
    arguments.extend(w.divided.iter().flat_map(|divided| divided.planes().beside()));
    arguments
}

/// Whether a way may compute by cuBLASLt, of tensors that lie where buffers begin.
pub fn takes_library(way: Way, has_library: bool, w: &TensorType, y: &TensorType) -> bool {
    let result = Operand::unplaced(y);
    match way {
        Way::Halves => by_library(has_library, &Operand::unplaced(w).view, 0, &result),
        // Matrix by matrix, and batch by batch of the last dimension; decoded rows lie behind each other, whatever the
        // weights do.
        Way::Decoded => has_library && y.shape[2] == w.shape[2] && y.shape.elements() > 0 && w.shape[0] > 0,
        Way::Plain | Way::Rows | Way::Tiles => false,
    }
}

/// What weights take as activations, in 8 bits or as they are.
pub fn activations(call: &Call, w: &Operand, x: &Operand, taken: u64) -> Vec<Argument> {
    if call.means.takes_codes(w.ty.dtype) {
        vec![Argument::Address(taken), Argument::Index(blocks(&x.ty) as i64)]
    } else {
        vec![Argument::View(x.view)]
    }
}

/// The plain kernel of an operator for these weights and activations.
pub fn kernel(call: &Call, operator: &str, w: &Operand, x: &Operand) -> String {
    let weights = suffix(w.ty.dtype);
    if call.means.takes_codes(w.ty.dtype) {
        format!("{operator}_{weights}")
    } else {
        format!("{operator}_{weights}_{}", suffix(x.ty.dtype))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use trueup_graph::op::{Gated, MulMat, MulMatGated, MulMatId};
    use trueup_graph::{Shape, Strides};

    /// An H200.
    pub const FAST: Means =
        Means { repack: true, linear: Linear::Q8_1, tensor_cores: true, processors: 132, shared_bytes_max: 227 << 10 };

    fn ty(dtype: DType, sizes: &[usize]) -> TensorType {
        TensorType::new(dtype, sizes)
    }

    #[test]
    fn a_grid_is_no_larger_than_what_the_card_holds() {
        assert_eq!([100, 1056, 4096].map(|blocks| equally_often(1056, blocks, 1)), [100, 1056, 1024]);
        assert_eq!([8, 4000].map(|beside| equally_often(1056, 512, beside)), [128, 1]);
    }

    #[test]
    fn the_way_follows_from_types_and_means() {
        let older = Means { tensor_cores: false, ..FAST };
        let plain = Means { repack: false, ..FAST };
        let (q4_0, f16) = (ty(DType::Q4_0, &[64, 9]), ty(DType::F16, &[64, 9]));
        let (odd, q6_k) = (ty(DType::F16, &[60, 9]), ty(DType::Q6K, &[256, 9]));
        let decoding = Means { linear: Linear::Dequantize, ..FAST };
        let cases: [(Means, &[TensorType], usize, Way); 19] = [
            (FAST, &[q4_0], 8, Way::Rows),
            (FAST, &[q4_0], 9, Way::Tiles),
            (FAST, &[q4_0, ty(DType::Q8_0, &[64, 9])], 9, Way::Tiles),
            (FAST, &[f16], 8, Way::Rows),
            (FAST, &[f16], 9, Way::Halves),
            (FAST, &[f16, ty(DType::Bf16, &[64, 9])], 9, Way::Rows),
            (FAST, &[f16, ty(DType::F32, &[64, 9])], 1, Way::Plain),
            (FAST, &[odd], 9, Way::Plain),
            (FAST, &[q6_k], 8, Way::Plain),
            (FAST, &[q6_k], 9, Way::Decoded),
            (FAST, &[q6_k, f16], 9, Way::Plain),
            (decoding, &[q4_0], 8, Way::Plain),
            (decoding, &[q4_0, ty(DType::Q8_0, &[64, 9])], 9, Way::Decoded),
            (decoding, &[f16], 9, Way::Halves),
            (older, &[q6_k], 9, Way::Plain),
            (plain, &[q6_k], 9, Way::Plain),
            (older, &[q4_0], 9, Way::Rows),
            (older, &[f16], 9, Way::Rows),
            (plain, &[q4_0], 1, Way::Plain),
        ];
        for (means, weights, tokens, expected) in cases {
            let x = ty(DType::F32, &[weights[0].shape[0], tokens]);
            assert_eq!(means.way(weights, &x), expected, "{weights:?} and {tokens} tokens, {means:?}");
        }
    }

    #[test]
    fn rows_that_begin_anywhere_are_multiplied_plainly() {
        let seen = |offset, step| {
            let strides = Strides { offset, steps: [1, step, 9 * step, 9 * step] };
            TensorType { dtype: DType::F16, shape: Shape::new(&[64, 9]).seen_by(strides) }
        };
        let x = ty(DType::F32, &[64, 2]);
        assert_eq!(FAST.way(&[seen(8, 72)], &x), Way::Rows);
        for w in [seen(4, 72), seen(8, 68)] {
            assert_eq!(FAST.way(&[w], &x), Way::Plain, "{w:?}");
        }
        // Activations of a run are two loads of f32.
        let shifted = Shape::new(&[64, 2]).seen_by(Strides { offset: 2, steps: [1, 64, 128, 128] });
        assert_eq!(FAST.way(&[ty(DType::F16, &[64, 9])], &TensorType { shape: shifted, ..x }), Way::Plain);
    }

    #[test]
    fn what_is_declared_is_that_of_the_way() {
        let declared = |means: &Means, op: Op, dtype, tokens| {
            let (inputs, output) = ([ty(dtype, &[64, 9]), ty(DType::F32, &[64, tokens])], ty(DType::F32, &[9, tokens]));
            means.declared(&op, &inputs, &output, true, profile(dtype).unwrap())
        };
        assert_eq!(declared(&FAST, MulMat.into(), DType::Q4_0, 1), INTEGERS);
        assert_eq!(declared(&FAST, MulMat.into(), DType::Q4_0, 9), Profile { lanes: 1, ..INTEGERS });
        assert_eq!(declared(&FAST, MulMat.into(), DType::F16, 1), Profile { lanes: 256, ..FLOATS });
        let accumulator = Accumulator::TensorCore { chain: 0 };
        let halves = Profile { activations: Activations::F16, accumulator, lanes: 1, ..FLOATS };
        assert_eq!(declared(&FAST, MulMat.into(), DType::F16, 9), halves);
        assert_eq!(declared(&FAST, MulMatId.into(), DType::Q4_0, 9), INTEGERS);
        let decoded = Profile { weights: Weights::F16, ..halves };
        assert_eq!(declared(&FAST, MulMat.into(), DType::Q6K, 9), decoded);
        assert_eq!(declared(&FAST, MulMatId.into(), DType::Q6K, 9), FLOATS);
        let decoding = Means { linear: Linear::Dequantize, ..FAST };
        assert_eq!(declared(&decoding, MulMat.into(), DType::Q4_0, 8), FLOATS);
        assert_eq!(declared(&decoding, MulMat.into(), DType::Q4_0, 9), decoded);
        assert_eq!(declared(&decoding, MulMatId.into(), DType::Q4_0, 9), FLOATS);
    }

    /// cuBLASLt sums a row in one chain, the built-in kernels in chains of 64. Batches are left to these.
    #[test]
    fn the_chain_of_a_sum_is_that_of_the_product() {
        let chain = |dtype, has_library, tokens, batches| {
            let inputs = [ty(dtype, &[256, 16]), ty(DType::F32, &[256, tokens, batches])];
            let output = ty(DType::F32, &[16, tokens, batches]);
            let plain = profile(dtype).unwrap();
            match FAST.declared(&MulMat.into(), &inputs, &output, has_library, plain).accumulator {
                Accumulator::TensorCore { chain } => chain,
                other => panic!("{other:?}"),
            }
        };
        for dtype in [DType::F16, DType::Q6K] {
            assert_eq!(chain(dtype, true, 9, 1), 0, "{dtype}");
            assert_eq!(chain(dtype, false, 9, 1), HALVES_CHAIN, "{dtype}");
            assert_eq!(chain(dtype, true, 9, 2), HALVES_CHAIN, "{dtype}");
            assert_eq!(chain(dtype, true, parts::TOKENS_MAX + 1, 2), 0, "{dtype}: parts of one batch");
            assert_eq!(chain(dtype, true, 9, parts::BATCHES_MAX), HALVES_CHAIN, "{dtype}");
            assert_eq!(chain(dtype, true, 9, parts::BATCHES_MAX + 1), 0, "{dtype}: a part of one batch");
        }
    }

    /// Both matrices of a gated product are multiplied by one built-in kernel, unless cuBLASLt takes both.
    #[test]
    fn the_chain_of_a_gated_product_is_that_of_both_matrices() {
        let apart = Shape::new(&[256, 16]).seen_by(Strides { offset: 0, steps: [1, 512, 8192, 8192] });
        let chain = |dtype, is_apart: bool| {
            let gate = ty(dtype, &[256, 16]);
            let up = if is_apart { TensorType { shape: apart, ..gate } } else { gate };
            let (inputs, output) = ([gate, up, ty(DType::F32, &[256, 9])], ty(DType::F32, &[16, 9]));
            let op = MulMatGated { gated: Gated::Swiglu }.into();
            match FAST.declared(&op, &inputs, &output, true, profile(dtype).unwrap()).accumulator {
                Accumulator::TensorCore { chain } => chain,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!([false, true].map(|is_apart| chain(DType::F16, is_apart)), [0, HALVES_CHAIN]);
        assert_eq!(chain(DType::Q6K, false), 0);
    }
}
