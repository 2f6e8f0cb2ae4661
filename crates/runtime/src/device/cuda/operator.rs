//! The operators of this device: one file each, with what it declares and which kernels it launches. This file is the list.
//!
//! ```text
//!  supports ──▶ profile(op, inputs, output) ◀── execute, which then launches
//! ```

mod arithmetic;
mod arrange;
mod attention;
mod cast;
mod concat;
mod diag_mask;
mod flash_attn;
mod gated;
mod get_rows;
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

use super::driver::{Allocation, Card};
pub use super::driver::{Argument, Grid, View};
use super::memory::can_be_seen;
use crate::profile::Profile;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};

macro_rules! operators {
    ($setting:ident; $($Op:ident => $file:ident $(($of:ident))?),* $(,)?) => {
        fn declared(op: &Op, inputs: &[TensorType], $setting: &Setting) -> Result<Profile, String> {
            match op {
                $(Op::$Op(op) => $file::profile(op, inputs $(, $of)?),)*
            }
        }

        /// Launches the kernels of an operator that has a profile for the types of these tensors; the output is not empty.
        pub fn launch(op: &Op, call: &mut Call) -> Result<(), String> {
            match op {
                $(Op::$Op(op) => $file::launch(op, call),)*
            }
        }
    };
}

operators! {
    setting;
    Arithmetic => arithmetic,
    Arrange => arrange,
    Cast => cast,
    Concat => concat,
    DiagMask => diag_mask,
    FlashAttn => flash_attn(setting),
    Gated => gated,
    GetRows => get_rows,
    Im2Col => im2col,
    IndexFill => index_fill,
    KvAttention => kv_attention(setting),
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

/// What decides which kernels compute, beside the types of the tensors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Whether the plain kernels compute wherever there are faster ones.
    pub plain: bool,
    /// What the card's processors can do: 8 and 0 of `sm_80`.
    pub capability: (i32, i32),
    /// How many of them there are.
    pub processors: usize,
    /// Shared memory that a block of threads can have.
    pub shared_bytes_max: usize,
}

/// How an operator is computed on tensors of these types, or why it is not. Results are rounded to the type of the output.
pub fn profile(op: &Op, inputs: &[TensorType], output: &TensorType, setting: &Setting) -> Result<Profile, String> {
    let named = |problem: String| format!("{}: {problem}", op.name());
    match op.infer(inputs) {
        Ok(inferred) if inferred == *output => {}
        Ok(inferred) => return Err(format!("{} gives {inferred}, not {output}", op.name())),
        Err(problem) => return Err(named(problem)),
    }
    inputs.iter().try_for_each(can_be_seen).map_err(named)?;
    declared(op, inputs, setting).map(|profile| Profile { output: output.dtype, ..profile }).map_err(named)
}

/// One tensor.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// Shape and type.
    pub ty: TensorType,
    /// What kernels see.
    pub view: View,
}

impl Operand {
    /// A tensor of a buffer that begins at address 0: what kernels would see of one that begins at a multiple of 256.
    pub fn unplaced(ty: &TensorType) -> Operand {
        let strides = ty.shape.strides();
        let data = (strides.offset / ty.dtype.block_len() * ty.dtype.block_bytes()) as u64;
        let [sizes, steps] = [ty.shape.sizes(), strides.steps].map(|numbers| numbers.map(|number| number as i64));
        Operand { ty: *ty, view: View { data, sizes, steps } }
    }
}

/// One operator's tensors, and where its kernels are launched.
#[derive(Debug)]
pub struct Call<'a> {
    card: &'a Arc<Card>,
    /// What decides which kernels compute.
    pub setting: Setting,
    /// In the operator's order.
    pub inputs: Vec<Operand>,
    /// Where the result goes: without gaps.
    pub output: Operand,
    fault: u64,
    may_fault: bool,
    scratch: &'a mut Option<Allocation>,
}

impl<'a> Call<'a> {
    /// A call whose kernels tell at `fault` of indices that lie outside.
    pub fn new(
        card: &'a Arc<Card>,
        setting: Setting,
        inputs: Vec<Operand>,
        output: Operand,
        fault: u64,
        scratch: &'a mut Option<Allocation>,
    ) -> Call<'a> {
        Call { card, setting, inputs, output, fault, may_fault: false, scratch }
    }

    /// Runs a kernel behind those before; nothing where the grid has no block.
    pub fn launch(&self, kernel: &str, grid: Grid, arguments: &[Argument]) -> Result<(), String> {
        if grid.blocks.contains(&0) { Ok(()) } else { self.card.launch(kernel, grid, arguments) }
    }

    /// Where kernels tell of an index that lies outside: the host looks behind the call.
    pub fn fault(&mut self) -> Argument {
        self.may_fault = true;
        Argument::Address(self.fault)
    }

    /// Whether kernels can tell of one.
    pub fn may_fault(&self) -> bool {
        self.may_fault
    }

    /// Room of so many bytes, which hold anything, at a multiple of 256. It is this call's until the next time it asks.
    pub fn scratch(&mut self, bytes: usize) -> Result<u64, String> {
        if let Some(room) = self.scratch.as_ref().filter(|room| room.bytes() >= bytes) {
            return Ok(room.address());
        }
        // What is too small goes first: both may not find room.
        *self.scratch = None;
        let room = self.card.alloc(bytes)?.ok_or_else(|| format!("no room for {bytes} bytes to compute in"))?;
        Ok(self.scratch.insert(room).address())
    }
}

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

    /// So many blocks of 256 threads.
    pub fn blocks(blocks: usize, shared_bytes: u32) -> Result<Grid, String> {
        let x = u32::try_from(blocks).ok().filter(|x| *x <= i32::MAX as u32);
        let x = x.ok_or_else(|| format!("{blocks} blocks of threads are more than a card takes at once"))?;
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
    if ty.dtype == DType::F32 { Ok(()) } else { Err(format!("{what} must be f32 here, not {}", ty.dtype)) }
}

fn expect_plain(what: &str, ty: &TensorType) -> Result<(), String> {
    let plain = matches!(ty.dtype, DType::F32 | DType::F16 | DType::Bf16);
    if plain { Ok(()) } else { Err(format!("{what} must be f32, f16 or bf16 here, not {}", ty.dtype)) }
}
