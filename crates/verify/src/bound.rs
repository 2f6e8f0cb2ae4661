//! The expected result of each operator, element by element, and the error that rounding may cause. One file per
//! operator.
//!
//! ```text
//!   the device's inputs ──in f64──▶ R0 exact ─────┐
//!                profile ──as declared──▶ R1, sigma, B ├─▶ Tally of the device's result ──▶ Statistics
//! ```
//!
//! Nothing here shares code with a device. The operators of decoders share none with the reference either, except the
//! decoding of blocks and the transposition of rows, which computes nothing. Other operators take R0 from the reference
//! (`oracle.rs`), which goldens of other software pin. Work is split independently of the number of threads and
//! statistics are merged in order, so a report does not depend on that number.

pub(crate) mod angles;
mod arithmetic;
mod copied;
mod diag_mask;
pub(crate) mod dot;
mod flash_attn;
mod gated;
mod get_rows;
mod kv_attention;
mod kv_mix;
mod kv_scores;
mod kv_store;
mod make;
#[cfg(test)]
pub(crate) mod minima_tests;
mod moving;
mod mul_mat;
mod mul_mat_gated;
mod mul_mat_id;
mod norm;
mod oracle;
mod overlay;
mod panel;
mod pool_2d;
mod rank;
mod reduce;
mod reshape;
mod rms_norm;
mod rope;
mod soft_max;
mod ssm_conv;
mod ssm_scan;
mod unary;

use crate::collector::Collector;
use crate::detail::DetailCollector;
use crate::operand::Operand;
use crate::precision::Precision;
use crate::statistics::{Expected, Statistics, Tally};
use crate::verdict::Gate;
use rayon::prelude::*;
pub(crate) use rope::pair_places;
pub(crate) use soft_max::{biases, slope};
use std::ops::Range;
use trueup_graph::{Op, TensorType};
use trueup_runtime::profile::{Accumulator, Activations, Profile, Weights};

/// One node's computation in one step, as it is to be judged.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// What was computed.
    pub op: &'a Op,
    /// The inputs as the device had them, in the operator's order. For `kv_store` the first is the cache before.
    pub inputs: &'a [Operand<'a>],
    /// What the device declares about it.
    pub profile: &'a Profile,
    /// The device's result.
    pub output: Operand<'a>,
    /// The free-running reference's result, element for element; for `kv_store` that of the rows as they are stored.
    pub reference: Option<&'a [f64]>,
    /// For products of matrices, what each column of activations repeats. Columns after the end repeat nothing.
    pub copies: &'a [Repetition],
    /// For a device that does not repeat itself, the standard deviation of each element over computations on the same
    /// inputs; empty where all gave the same bits.
    pub spread: &'a [f64],
    /// The step of the run; 0 is the prompt.
    pub step: usize,
    /// Keeps what each element should be, where that is asked for.
    pub collector: Option<&'a Collector>,
}

/// How a column of a product's activations repeats a column on which the node was judged before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repetition {
    /// It does not.
    None,
    /// The activations repeat, but not the result: it is judged, but its errors are not new samples of the noise.
    Activations,
    /// Activations and result repeat bit for bit: the verdict is known, and the column is not judged again.
    Result,
}

impl Case<'_> {
    /// What results are rounded to: the type that is declared, or that they are stored in, where that is the coarser.
    fn output_precision(&self) -> Precision {
        let coarser = is_coarser(self.profile, &self.output.ty);
        Precision::of(if coarser { self.profile.output } else { self.output.ty.dtype })
    }
}

/// Compares the result with both references, element by element.
pub fn judge(case: &Case) -> Statistics {
    match case.op {
        Op::Arithmetic(arithmetic) => arithmetic::judge(*arithmetic, case),
        Op::Gated(gated) => gated::judge(*gated, case),
        Op::DiagMask(mask) => diag_mask::judge(mask, case),
        Op::FlashAttn(attention) => flash_attn::judge(attention, case),
        Op::GetRows(_) => get_rows::judge(case),
        Op::Im2Col(_) | Op::Upscale(_) => copied::judge(case),
        Op::Arrange(_) => moving::judge(case),
        Op::Cast(_) => moving::judge(case),
        Op::Concat(_) => moving::judge(case),
        Op::IndexFill(_) => moving::judge(case),
        Op::KvAttention(attention) => kv_attention::judge(attention, case),
        Op::KvMix(mix) => kv_mix::judge(mix, case),
        Op::KvScores(_) => kv_scores::judge(case),
        Op::KvStore(_) => kv_store::judge(case),
        Op::Make(make) => make::judge(make, case),
        Op::MulMat(_) => mul_mat::judge(case),
        Op::MulMatGated(op) => mul_mat_gated::judge(op, case),
        Op::Norm(norm) => norm::judge(norm, case),
        Op::Pool2d(pool) => pool_2d::judge(pool, case),
        Op::Rank(rank) => rank::judge(rank, case),
        Op::Reduce(reduce) => reduce::judge(reduce, case),
        Op::MulMatId(_) => mul_mat_id::judge(case),
        Op::Overlay(overlay) => overlay::judge(overlay, case),
        Op::Reshape(_) => reshape::judge(case),
        Op::RmsNorm(norm) => rms_norm::judge(norm, case),
        Op::Rope(rope) => rope::judge(rope, case),
        Op::SetRows(_) => moving::judge(case),
        Op::SoftMax(soft_max) => soft_max::judge(soft_max, case),
        Op::Unary(unary) => unary::judge(*unary, case),
        Op::SsmConv(_) => ssm_conv::judge(case),
        Op::SsmScan(_) => ssm_scan::judge(case),
    }
}

/// What each element of a result of `output`'s type should be, in the order of the elements. `kv_store` has no
/// expectation of its own: its rows are its input's, rounded.
pub fn expected(op: &Op, inputs: &[Operand], profile: &Profile, output: Operand) -> Vec<Expected> {
    let wanted = Collector::new(output.ty.shape.elements());
    let collector = Some(&wanted);
    judge(&Case { op, inputs, profile, output, reference: None, copies: &[], spread: &[], step: 0, collector });
    wanted.into_elements().into_iter().flatten().collect()
}

/// How results of the operator are judged.
pub fn gate(op: &Op) -> Gate {
    match op {
        Op::DiagMask(_) => Gate::Bits,
        Op::GetRows(_) | Op::KvStore(_) | Op::Reshape(_) => Gate::Bits,
        Op::Arithmetic(_) | Op::Gated(_) | Op::Unary(_) => Gate::Bound,
        Op::RmsNorm(_) | Op::Rope(_) | Op::SoftMax(_) => Gate::Bound,
        Op::Arrange(_) | Op::Cast(_) | Op::Concat(_) | Op::IndexFill(_) | Op::SetRows(_) => Gate::Bits,
        Op::Overlay(overlay) => overlay::gate(overlay),
        Op::KvMix(_) | Op::KvScores(_) | Op::MulMat(_) => Gate::Noise,
        Op::Im2Col(_) | Op::Rank(_) | Op::Upscale(_) => Gate::Bits,
        Op::Make(_) | Op::Norm(_) | Op::SsmScan(_) => Gate::Bound,
        Op::Pool2d(pool) => pool_2d::gate(pool),
        Op::Reduce(reduce) => reduce::gate(reduce),
        Op::SsmConv(_) => Gate::Noise,
        Op::FlashAttn(_) | Op::KvAttention(_) => Gate::Bound,
        Op::MulMatGated(_) | Op::MulMatId(_) => Gate::Noise,
    }
}

/// Whether the profile declares a rounding beyond f32 that shows in results of this operator.
pub fn declares_loss(op: &Op, profile: &Profile, output: &TensorType) -> bool {
    let sums = match op {
        Op::FlashAttn(_) | Op::KvMix(_) | Op::KvScores(_) | Op::MulMat(_) | Op::MulMatGated(_) | Op::MulMatId(_) => {
            profile.activations != Activations::Unchanged
                || profile.weights != Weights::Unchanged
                || profile.accumulator == Accumulator::F16
        }
        Op::KvAttention(_) => profile.activations != Activations::Unchanged || profile.accumulator == Accumulator::F16,
        Op::Arithmetic(_) | Op::Gated(_) | Op::Unary(_) => oracle::rounds_inputs(profile),
        Op::KvStore(_) => output.dtype.is_quantized(),
        Op::GetRows(_) => profile.weights != Weights::Unchanged,
        Op::Reshape(_) | Op::RmsNorm(_) | Op::Rope(_) => false,
        Op::SoftMax(_) => false,
        Op::Reduce(_) | Op::SsmConv(_) | Op::SsmScan(_) => profile.accumulator == Accumulator::F16,
        Op::Im2Col(_) | Op::Make(_) | Op::Norm(_) | Op::Pool2d(_) | Op::Rank(_) | Op::Upscale(_) => false,
        Op::DiagMask(_) => false,
        Op::Arrange(_) | Op::Cast(_) | Op::Concat(_) | Op::IndexFill(_) | Op::Overlay(_) | Op::SetRows(_) => false,
    };
    sums || is_coarser(profile, output) || Precision::of(output.dtype).unit > Precision::F32.unit
}

/// Whether results are declared to be rounded to less than they are stored in.
pub fn is_coarser(profile: &Profile, output: &TensorType) -> bool {
    Precision::of(profile.output).unit > Precision::of(output.dtype).unit
}

/// Pieces that one thread takes at a time.
const PIECE: usize = 16;

/// Runs `judge` over `strips` parts of the result on all threads and merges what they learnt in order.
fn in_strips(case: &Case, strips: usize, judge: impl Fn(usize, &mut Tally) + Sync) -> Statistics {
    // Not generic: most operators call this, and parallel loops are large.
    fn on_all_threads(case: &Case, strips: usize, judge: &(dyn Fn(usize, &mut Tally) + Sync)) -> Statistics {
        in_pieces(case, strips, |piece, (), tally| piece.for_each(|strip| judge(strip, tally)))
    }
    on_all_threads(case, strips, &judge)
}

/// The same, several neighbouring strips at once, with buffers that are made for many of them.
fn in_pieces<B: Default>(
    case: &Case,
    strips: usize,
    judge: impl Fn(Range<usize>, &mut B, &mut Tally) + Sync,
) -> Statistics {
    let device = case.output.all();
    let (output, shape) = (Precision::of(case.output.ty.dtype), &case.output.ty.shape);
    let detail = DetailCollector::new(shape[0], shape.rows());
    let tally = Tally::new(case.step, output, &device, case.reference).spreading(case.spread);
    let tally = tally.collecting(case.collector).detailed(&detail);
    let pieces: Vec<Statistics> = (0..strips.div_ceil(PIECE))
        .into_par_iter()
        .map_init(B::default, |buffers, piece| {
            let mut tally = tally.beside();
            judge(piece * PIECE..((piece + 1) * PIECE).min(strips), buffers, &mut tally);
            tally.finish()
        })
        .collect();
    let mut all = Statistics::default();
    for piece in &pieces {
        all.merge(piece);
    }
    all.detail = Some(Box::new(detail.finish()));
    all
}

/// What elementwise arithmetic and norms are computed in.
fn arithmetic(profile: &Profile) -> Precision {
    match profile.accumulator {
        Accumulator::F64 => Precision::F64,
        Accumulator::F32 | Accumulator::Int32ThenF32 | Accumulator::TensorCore { .. } => Precision::F32,
        Accumulator::F16 => Precision::F16,
    }
}

/// A result of few roundings: `error` is what arithmetic in f32 or better may cause, to which storing the result adds
/// half a unit in its last place; one whole unit is allowed. The verifier's own f64 arithmetic counts as much as an f64
/// device's.
fn within(case: &Case, exact: f64, error: f64) -> Expected {
    let [stored, declared] = [case.output.ty.dtype, case.profile.output].map(Precision::of);
    let output = if declared.unit > stored.unit { declared } else { stored };
    let own = 16.0 * Precision::F64.unit * exact.abs();
    let stored = if output.unit > arithmetic(case.profile).unit { output.ulp(exact) } else { 0.0 };
    let coarse = error.max(stored) + 2.0 * Precision::BF16.unit * exact.abs();
    Expected::within(exact, error + stored + own, coarse)
}

/// The sequence of the KV cache that a token belongs to; an index below zero is no sequence and counts as the first.
fn sequence(sequences: &Operand, token: usize) -> usize {
    usize::try_from(sequences.indices()[token]).unwrap_or(0)
}

/// Half of what functions are declared to be off, relative, in units of `u`: an error of one unit in the last place is
/// up to `2 u`.
fn function_error(profile: &Profile) -> f64 {
    2.0 * f64::from(profile.function_ulp)
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use trueup_blocks::DType;

    /// Numbers of both signs, f32, the same for one seed.
    pub fn numbers(len: usize, seed: u64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..len).map(|_| f64::from(((next() + next() + next()) * 2.0 - 3.0) as f32)).collect()
    }

    /// `f32` with these sizes.
    pub fn f32_type(sizes: &[usize]) -> TensorType {
        TensorType::new(DType::F32, sizes)
    }

    /// A matrix of these sizes in blocks, by the codec of the type.
    pub fn encoded(dtype: DType, sizes: &[usize], weights: &[f64]) -> (TensorType, Vec<u8>) {
        let ty = TensorType::new(dtype, sizes);
        let mut bytes = vec![0; ty.bytes()];
        let weights: Vec<f32> = weights.iter().map(|weight| *weight as f32).collect();
        (dtype.codec().unwrap().encode)(&weights, &mut bytes);
        (ty, bytes)
    }

    /// Judges a result of type f32.
    pub fn judged(op: &Op, inputs: &[Operand], profile: &Profile, result: &[f64]) -> Statistics {
        let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
        let output = Operand::numbers(op.infer(&types).unwrap(), result);
        let (copies, spread, collector) = (&[], &[], None);
        judge(&Case { op, inputs, profile, output, reference: None, copies, spread, step: 0, collector })
    }

    /// Whether the result passes.
    pub fn passes(op: &Op, inputs: &[Operand], profile: &Profile, result: &[f64]) -> bool {
        gate(op).verdict(&judged(op, inputs, profile, result), false).passes()
    }
}
