//! The operators of this device: one file each, with what it declares and which kernels it launches. This file is the
//! list.
//!
//! ```text
//!  supports ──▶ profile(op, inputs, output) ◀── execute, which then launches
//! ```

mod arithmetic;
mod arrange;
mod attention;
mod batches;
mod cast;
mod concat;
mod decoded;
mod diag_mask;
mod flash_attn;
mod gated;
mod get_rows;
mod heads;
mod im2col;
mod index_fill;
mod kv_attention;
mod kv_mix;
mod kv_scores;
mod kv_store;
mod make;
mod matrix;
mod moved;
mod mul_mat;
mod mul_mat_gated;
mod mul_mat_id;
mod norm;
mod overlay;
mod pool_2d;
mod rank;
mod reduce;
mod reshape;
mod rms_norm;
mod rope;
mod set_rows;
mod soft_max;
mod ssm_conv;
mod ssm_scan;
mod unary;
mod upscale;

use super::carrier::room_bytes;
pub use super::driver::{Argument, Grid, Heads, HeadsBehind, Rotation, Sizes, View};
use super::driver::{BlasLibrary, WORKSPACE_BYTES};
use super::launches::{Needed, Recorder};
use super::memory::{Divided, can_be_seen};
use crate::device::expect_inferred;
use crate::profile::Profile;
pub use heads::{HEAD_MAX, HeadsOf, HeadsTail, launch as finish_heads};
pub use kv_attention::launch_for_products as attention_for_products;
pub use kv_store::launch_pair as store_pair;
pub use matrix::{Form, Means, Way, multiply_add, multiply_three};
pub use mul_mat_gated::launch_for_products as gated_for_products;
pub use rms_norm::{NormBehind, is_wide, launch_for_products as norm_for_products};
pub use rope::launch_pair as rotate_pair;
use trueup_blocks::DType;
use trueup_graph::{Op, Shape, Strides, TensorType};

macro_rules! operators {
    ($means:ident; $($Op:ident => $file:ident $(($of:ident))?),* $(,)?) => {
        fn declared(op: &Op, inputs: &[TensorType], $means: &Means) -> Result<Profile, String> {
            match op {
                $(Op::$Op(op) => $file::profile(op, inputs $(, $of)?),)*
            }
        }

        fn launch_one(op: &Op, call: &mut Call) -> Result<(), String> {
            match op {
                $(Op::$Op(op) => $file::launch(op, call),)*
            }
        }
    };
}

operators! {
    means;
    Arithmetic => arithmetic,
    Arrange => arrange,
    Cast => cast,
    Concat => concat,
    DiagMask => diag_mask,
    FlashAttn => flash_attn(means),
    Gated => gated,
    GetRows => get_rows,
    Im2Col => im2col,
    IndexFill => index_fill,
    KvAttention => kv_attention(means),
    KvMix => kv_mix,
    KvScores => kv_scores,
    KvStore => kv_store,
    Make => make,
    MulMat => mul_mat,
    MulMatGated => mul_mat_gated,
    MulMatId => mul_mat_id,
    Norm => norm,
    Overlay => overlay,
    Pool2d => pool_2d,
    Rank => rank,
    Reduce => reduce,
    Reshape => reshape,
    RmsNorm => rms_norm,
    Rope => rope,
    SetRows => set_rows,
    SoftMax => soft_max,
    SsmConv => ssm_conv,
    SsmScan => ssm_scan,
    Unary => unary,
    Upscale => upscale,
}

/// Launches the kernels of an operator that has a profile for the types of these tensors; the output is not empty, but
/// for operators that look at indices in any case.
pub fn launch(op: &Op, call: &mut Call) -> Result<(), String> {
    if !reads_planes(op) {
        call.join_planes()?;
    }
    launch_one(op, call)
}

/// Whether an operator's kernels read weights in planes; others get the file's form.
pub fn reads_planes(op: &Op) -> bool {
    matches!(op, Op::MulMat(_) | Op::MulMatGated(_) | Op::MulMatId(_) | Op::GetRows(_))
}

/// What computing an operator takes beside its tensors: where it computes, what products take, where its weights were
/// repacked. What weights take that have to be brought back into the file's form is not known of types.
pub fn needed(op: &Op, inputs: &[TensorType], means: &Means, library: &BlasLibrary) -> Needed {
    let Ok(y) = op.infer(inputs) else { return Needed::default() };
    let operands = || inputs.iter().map(Operand::unplaced).collect::<Vec<Operand>>();
    let repacked =
        if reads_planes(op) && means.divides() { inputs.iter().map(room_bytes).max().unwrap_or(0) } else { 0 };
    let needed = match op {
        Op::MulMat(_) => mul_mat::needed(inputs, &y, means, library),
        Op::MulMatId(_) => {
            Needed { activations: means.taken_bytes(Way::Rows, &inputs[0], &inputs[1]), ..Needed::default() }
        }
        Op::MulMatGated(_) => mul_mat_gated::needed(inputs, &y, means, library),
        Op::KvAttention(op) => kv_attention::needed(op, &operands(), means),
        Op::FlashAttn(op) => flash_attn::needed(op, &operands(), means),
        Op::RmsNorm(_) => Needed { counters: 1, ..Needed::default() },
        // One for each head, where queries, keys and values are the tail of their products.
        Op::Rope(_) => Needed { counters: 3 * inputs[0].shape[1], ..Needed::default() },
        Op::Rank(op) => Needed { operators: rank::scratch_bytes(op, &inputs[0]), ..Needed::default() },
        Op::Reduce(op) => Needed { operators: reduce::scratch_bytes(op, &inputs[0]), ..Needed::default() },
        _ => Needed::default(),
    };
    Needed { repacked, ..needed }
}

/// How an operator is computed on tensors of these types, or why it is not. Results are rounded to the type of the
/// output.
pub fn profile(
    op: &Op,
    inputs: &[TensorType],
    output: &TensorType,
    means: &Means,
    library: &BlasLibrary,
) -> Result<Profile, String> {
    let named = |problem: String| format!("{}: {problem}", op.name());
    expect_inferred(op, inputs, output)?;
    inputs.iter().try_for_each(can_be_seen).map_err(named)?;
    let profile = declared(op, inputs, means).map_err(named)?;
    Ok(Profile { output: output.dtype, ..means.declared(op, inputs, output, library.is_used(), profile) })
}

/// One tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Operand {
    /// Shape and type.
    pub ty: TensorType,
    /// What kernels see.
    pub view: View,
    /// Of a weight in planes, where they are; then the view is that of its codes.
    pub divided: Option<Divided>,
}

impl Operand {
    /// Whether both show bytes of the same memory, from the first that they show to the last.
    pub fn overlaps(&self, other: &Operand) -> bool {
        let range = |operand: &Operand| (operand.view.data, operand.view.data + operand.ty.held().bytes() as u64);
        let ((first, end), (other_first, other_end)) = (range(self), range(other));
        first < other_end && other_first < end
    }

    /// A tensor of a buffer that begins at address 0: what kernels would see of one that begins at a multiple of 256.
    pub fn unplaced(ty: &TensorType) -> Operand {
        let strides = ty.shape.strides();
        let data = (strides.offset / ty.dtype.block_len() * ty.dtype.block_bytes()) as u64;
        let [sizes, steps] = [ty.shape.sizes(), strides.steps].map(|numbers| numbers.map(|number| number as i64));
        Operand { ty: *ty, view: View { data, sizes, steps }, divided: None }
    }

    /// So many of its entries along a dimension, from one on: whole blocks.
    pub fn part(&self, dimension: usize, first: usize, count: usize) -> Operand {
        let (mut sizes, strides) = (self.ty.shape.sizes(), self.ty.shape.strides());
        sizes[dimension] = count;
        let distance = first * strides.steps[dimension];
        let shape = Shape::new(&sizes).seen_by(Strides { offset: strides.offset + distance, ..strides });
        let blocks = distance / self.ty.dtype.block_len();
        let divided = self.divided.map(|divided| divided.behind(blocks));
        let in_file = self.view.data + (blocks * self.ty.dtype.block_bytes()) as u64;
        let data = divided.map_or(in_file, |divided| divided.planes().codes);
        let view = View { data, sizes: sizes.map(|size| size as i64), ..self.view };
        Operand { ty: TensorType { shape, ..self.ty }, view, divided }
    }

    /// Whether each row begins at a multiple of so many bytes, and its elements lie behind each other. Types and views
    /// decide: buffers begin at multiples of 256.
    pub fn begins_at(&self, bytes: usize) -> bool {
        let len = self.ty.dtype.block_len() as i64;
        let unit = if len > 1 { len } else { bytes as i64 / self.ty.dtype.block_bytes() as i64 };
        let View { data, sizes, steps } = self.view;
        let rows = sizes.iter().zip(steps).skip(1).all(|(size, step)| *size == 1 || step % unit == 0);
        rows && steps[0] == 1 && (len > 1 || data.is_multiple_of(bytes as u64))
    }
}

/// One operator's tensors, and what it launches.
#[derive(Debug)]
pub struct Call<'a> {
    recorder: &'a Recorder<'a>,
    name: &'static str,
    /// What products are computed by.
    pub means: &'a Means,
    /// In the operator's order.
    pub inputs: Vec<Operand>,
    /// Where the result goes: without gaps.
    pub output: Operand,
}

impl<'a> Call<'a> {
    /// A call of the operator of that name, whose launches are recorded.
    pub fn new(recorder: &'a Recorder<'a>, name: &'static str, inputs: Vec<Operand>, output: Operand) -> Call<'a> {
        Call { recorder, name, means: recorder.means(), inputs, output }
    }

    /// Launches a kernel behind those before; nothing where the grid has no block.
    pub fn launch(&self, kernel: &str, grid: Grid, arguments: &[Argument]) -> Result<(), String> {
        if grid.blocks.contains(&0) { Ok(()) } else { self.recorder.launch(kernel, grid, arguments) }
    }

    /// Where kernels tell of an index that lies outside: the host looks when it waits for them.
    pub fn fault(&mut self) -> Argument {
        Argument::Address(self.recorder.fault(self.name))
    }

    /// Room of so many bytes, which hold anything, at a multiple of 256. It is this call's until the next time it asks.
    pub fn scratch(&mut self, bytes: usize) -> Result<u64, String> {
        Ok(self.recorder.scratch(bytes))
    }

    /// A product by the vendor's library; whether that computes it: see [`Recorder::multiply`].
    pub fn multiply(&self, sizes: Sizes, matrices: [u64; 3]) -> bool {
        self.recorder.multiply(sizes, matrices)
    }

    /// How many blocks of so many threads a processor has of a kernel at once.
    pub fn resident(&self, kernel: &str, threads: u32) -> Result<usize, String> {
        self.recorder.resident(kernel, threads)
    }

    /// The vendor's library of products.
    pub fn library(&self) -> &'a BlasLibrary {
        self.recorder.library()
    }

    /// So many counters, which are zero and which a launch leaves zero.
    pub fn counters(&self, count: usize) -> u64 {
        self.recorder.counters(count)
    }

    /// Where activations lie in a form of so many bytes, from now on until others are asked for, and whether they do
    /// already.
    pub fn taken(&self, form: Form, from: &Operand, bytes: usize) -> (u64, bool) {
        self.recorder.taken(form, from, bytes)
    }

    /// Brings weights that lie in planes into the file's form, in the call's room: for operators that read no planes,
    /// none of which takes both such weights and room of its own.
    fn join_planes(&mut self) -> Result<(), String> {
        if self.output.divided.is_some() {
            return Err(format!("{} is a weight and cannot be written", self.output.ty));
        }
        let bytes =
            |operand: &Operand| operand.divided.map_or(0, |divided| divided.file_bytes().next_multiple_of(ALIGNMENT));
        let all = self.inputs.iter().map(bytes).sum();
        if all == 0 {
            return Ok(());
        }
        let mut file = self.scratch(all)?;
        for operand in &mut self.inputs {
            if let Some(divided) = operand.divided.take() {
                operand.view.data = self.recorder.join(&divided, file)?;
                file += divided.file_bytes().next_multiple_of(ALIGNMENT) as u64;
            }
        }
        Ok(())
    }
}

/// Parts of a call's room begin at multiples of this.
const ALIGNMENT: usize = 256;

/// Threads of a block.
const THREADS: u32 = 256;

impl Grid {
    /// A thread for each element.
    pub fn elements(elements: usize) -> Result<Grid, String> {
        Grid::blocks(elements.div_ceil(THREADS as usize), 0)
    }

    /// A block for each row, with shared memory of a number for each of its warps.
    pub fn rows(rows: usize) -> Result<Grid, String> {
        Grid::blocks(rows, 32 * 4)
    }

    /// So many blocks of so many threads along x, y and z.
    pub fn of(blocks: [usize; 3], threads: u32) -> Result<Grid, String> {
        let limits = [i32::MAX as usize, 65_535, 65_535];
        let fits = blocks.iter().zip(limits).all(|(blocks, limit)| *blocks <= limit);
        let too_many = || format!("{blocks:?} thread blocks exceed the limit of a launch");
        if fits {
            Ok(Grid { blocks: blocks.map(|blocks| blocks as u32), threads, shared_bytes: 0 })
        } else {
            Err(too_many())
        }
    }

    /// So many blocks of 256 threads.
    pub fn blocks(blocks: usize, shared_bytes: u32) -> Result<Grid, String> {
        let x = u32::try_from(blocks).ok().filter(|x| *x <= i32::MAX as u32);
        let x = x.ok_or_else(|| format!("{blocks} thread blocks exceed the limit of a launch"))?;
        Ok(Grid { blocks: [x, 1, 1], threads: THREADS, shared_bytes })
    }
}

/// How kernels call a type in their names.
fn suffix(dtype: DType) -> &'static str {
    dtype.name()
}

/// Results of f32 arithmetic without sums: what most operators declare.
const ELEMENTWISE: Profile = Profile::F32;

fn expect_f32(what: &str, ty: &TensorType) -> Result<(), String> {
    if ty.dtype == DType::F32 { Ok(()) } else { Err(format!("{what} must be f32, not {}", ty.dtype)) }
}

fn expect_plain(what: &str, ty: &TensorType) -> Result<(), String> {
    let plain = matches!(ty.dtype, DType::F32 | DType::F16 | DType::Bf16);
    if plain { Ok(()) } else { Err(format!("{what} must be f32, f16 or bf16, not {}", ty.dtype)) }
}
