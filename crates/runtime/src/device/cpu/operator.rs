//! The operators of this device: one file each, with what it declares and how it computes. This file is the list.
//!
//! ```text
//!  supports ──▶ profile(op, inputs, output) ◀── execute, which then computes
//! ```

mod arithmetic;
mod arrange;
mod cast;
mod concat;
mod diag_mask;
mod flash_attn;
mod gated;
mod get_rows;
mod groups;
mod heads;
mod im2col;
mod index_fill;
mod kv_attention;
mod kv_mix;
mod kv_scores;
mod kv_store;
mod make;
mod matrix;
pub mod moved;
mod mul_mat;
mod mul_mat_gated;
mod mul_mat_id;
mod norm;
mod overlay;
mod panel_strip;
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

use super::means::Means;
use super::memory::{Target, View};
use super::spare::Spares;
use super::team::Team;
use crate::device::expect_inferred;
use crate::profile::{Accumulator, Profile};
use std::borrow::Cow;
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};
use trueup_kernels::Instructions;

/// What an operator declares: the same for all its parameters, or `by_member` of its family.
macro_rules! declared {
    ($file:ident, $op:ident, $inputs:ident) => {
        $file::profile($inputs)
    };
    ($file:ident, $op:ident, $inputs:ident, by_member) => {
        $file::profile($op, $inputs)
    };
}

macro_rules! operators {
    ($($Op:ident => $file:ident $($by_member:ident)?),* $(,)?) => {
        /// How an operator is computed on tensors of these types, or why it is not. Results are rounded to the type of
        /// the output.
        pub fn profile(op: &Op, inputs: &[TensorType], output: &TensorType) -> Result<Profile, String> {
            expect_inferred(op, inputs, output)?;
            let declared = match op {
                $(Op::$Op(_member) => declared!($file, _member, inputs $(, $by_member)?)
                    .map_err(|problem| format!("{}: {problem}", op.name())),)*
            };
            declared.map(|profile| Profile { output: output.dtype, ..profile })
        }

        /// Computes an operator that has a profile for the types of these tensors.
        pub fn compute(op: &Op, call: Call) -> Result<(), String> {
            match op {
                $(Op::$Op(op) => $file::compute(op, call),)*
            }
        }
    };
}

operators! {
    Arithmetic => arithmetic by_member,
    Arrange => arrange,
    Cast => cast,
    Concat => concat,
    DiagMask => diag_mask,
    FlashAttn => flash_attn,
    Gated => gated by_member,
    GetRows => get_rows,
    Im2Col => im2col,
    IndexFill => index_fill,
    KvAttention => kv_attention,
    KvMix => kv_mix,
    KvScores => kv_scores,
    KvStore => kv_store,
    Make => make,
    MulMat => mul_mat,
    MulMatGated => mul_mat_gated by_member,
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
    Unary => unary by_member,
    Upscale => upscale,
}

pub use kv_attention::Room;

/// Bytes of the room that so many threads keep for an operator, at most, as far as they grow with the context.
pub fn scratch_bytes(op: &Op, inputs: &[TensorType], instructions: Instructions, threads: usize) -> usize {
    if matches!(op, Op::KvAttention(_)) { kv_attention::scratch_bytes(inputs, instructions, threads) } else { 0 }
}

/// Whether an operator reads a view of this type where its source lies. All others get a copy of what it shows.
pub fn takes_view(op: &Op, input: &TensorType) -> bool {
    matches!(op, Op::Reduce(op) if reduce::takes_view(op, input))
}

/// One operator's tensors.
pub struct Call<'a> {
    /// Which kernels to call.
    pub instructions: Instructions,
    /// Who computes.
    pub team: &'a Team,
    /// Room for numbers in another form.
    pub spares: &'a Spares,
    /// In the operator's order; of an operator that writes into its first input, without that one.
    pub inputs: Vec<Operand<'a>>,
    /// Where the result goes.
    pub output: Target<'a>,
    /// Shape and type of the result.
    pub output_type: TensorType,
}

/// One tensor to be read.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Shape and type.
    pub ty: TensorType,
    /// Its cells.
    pub view: View<'a>,
}

impl<'a> Operand<'a> {
    /// The cells of an f32 tensor.
    pub fn floats(&self) -> Result<&'a [f32], String> {
        match self.view {
            View::F32(cells) => Ok(cells),
            View::F16(_) | View::Bf16(_) | View::Blocks(_) | View::Packed(_) => {
                Err(format!("{} is not in activation memory", self.ty))
            }
        }
    }

    /// The elements of a small tensor of any floating-point type, as f32.
    pub fn widened(&self) -> Result<Cow<'a, [f32]>, String> {
        match self.view {
            View::F32(cells) => Ok(Cow::Borrowed(cells)),
            View::F16(cells) => Ok(cells.iter().map(|cell| cell.to_f32()).collect()),
            View::Bf16(cells) => Ok(cells.iter().map(|cell| cell.to_f32()).collect()),
            View::Blocks(_) | View::Packed(_) => Err(format!("{} is not a plain number type", self.ty)),
        }
    }

    /// The elements of an i32 tensor, each of which must be below `limit`; `what` names them in the message.
    pub fn indices(&self, what: &str, limit: usize) -> Result<Vec<usize>, String> {
        let index = |cell: &f32| {
            let index = cell.to_bits() as i32;
            let inside = usize::try_from(index).ok().filter(|index| *index < limit);
            inside.ok_or_else(|| format!("{what} {index} must be at least 0 and below {limit}"))
        };
        self.floats()?.iter().map(index).collect()
    }
}

impl<'a> Call<'a> {
    /// What it is computed with.
    fn means(&self) -> Means<'a> {
        Means { instructions: self.instructions, team: self.team, spares: self.spares }
    }

    /// The cells of an f32 result.
    fn output_floats(output: Target<'a>) -> Result<&'a mut [f32], String> {
        match output {
            Target::F32(cells) => Ok(cells),
            Target::F16(_) => Err("an activation cannot be written to f16".to_owned()),
            Target::Bf16(_) | Target::Blocks(_) => Err("an activation is written to f32 only".to_owned()),
        }
    }
}

/// Results of f64 arithmetic, rounded once: sums in as many lanes as norms have.
const IN_F64: Profile =
    Profile { accumulator: Accumulator::F64, lanes: trueup_kernels::LANES, output: DType::F32, ..Profile::EXACT };

/// Results of f32 arithmetic without sums: what most operators declare.
const ELEMENTWISE: Profile = Profile::F32;

fn expect_f32(what: &str, ty: &TensorType) -> Result<(), String> {
    if ty.dtype == DType::F32 { Ok(()) } else { Err(format!("{what} must be f32, not {}", ty.dtype)) }
}

fn expect_plain(what: &str, ty: &TensorType) -> Result<(), String> {
    let plain = matches!(ty.dtype, DType::F32 | DType::F16 | DType::Bf16);
    if plain { Ok(()) } else { Err(format!("{what} must be f32, f16 or bf16, not {}", ty.dtype)) }
}

/// What matrices are multiplied with.
fn expect_multiplied(what: &str, ty: &TensorType) -> Result<(), String> {
    let multiplied = matches!(ty.dtype, DType::F32 | DType::F16);
    if multiplied { Ok(()) } else { Err(format!("{what} must be f32 or f16, not {}", ty.dtype)) }
}

/// What the KV cache holds.
fn expect_kv_cache(what: &str, ty: &TensorType) -> Result<(), String> {
    let cache = matches!(ty.dtype, DType::F32 | DType::F16 | DType::Q8_0);
    if cache { Ok(()) } else { Err(format!("{what} must be f32, f16 or q8_0, not {}", ty.dtype)) }
}

/// The first cells of a room, which hold anything. Where it is too small it is made anew, no larger than it must be.
fn cells(room: &mut Vec<f32>, len: usize) -> &mut [f32] {
    if room.len() < len {
        drop(std::mem::take(room));
        *room = vec![0.0; len];
    }
    &mut room[..len]
}

/// Pieces of `work` multiplications or so each that a thread takes at least, so that small tensors wake no other
/// thread.
fn pieces_min(work: usize) -> usize {
    const WORK_MIN: usize = 1 << 15;
    (WORK_MIN / work.max(1)).max(1)
}
