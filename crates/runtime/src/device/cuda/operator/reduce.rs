//! Sums and means, in f64 but for the result: a block of threads for each row, or for each chunk of everything.

use super::{Argument, Call, Grid, expect_f32};
use crate::profile::{Accumulator, Profile};
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::{Reduce, Reduction};

/// Elements of a sum of everything that a block takes (`CHUNK` in the kernels).
const CHUNK: usize = 1 << 14;

/// Threads of a block, and numbers that it shares: an f64 for each warp, or two for each thread.
const THREADS: usize = 256;
const WARPS_BYTES: u32 = 8 * 32;
const TWICE_BYTES: u32 = 8 * 2 * THREADS as u32;

pub fn profile(_: &Reduce, inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(Profile { accumulator: Accumulator::F64, lanes: THREADS, output: DType::F32, ..Profile::EXACT })
}

/// A sum of f64 for each chunk.
pub fn scratch_bytes(op: &Reduce, x: &TensorType) -> usize {
    if op.rule == Reduction::Sum { 8 * x.shape.elements().div_ceil(CHUNK) } else { 0 }
}

pub fn launch(op: &Reduce, call: &mut Call) -> Result<(), String> {
    let shape = call.inputs[0].ty.shape;
    let [x, y] = [call.inputs[0], call.output].map(|operand| Argument::View(operand.view));
    let rows = |shared_bytes| Grid::blocks(shape.rows(), shared_bytes);
    match op.rule {
        Reduction::Sum => {
            let chunks = shape.elements().div_ceil(CHUNK);
            let sums = Argument::Address(call.scratch(scratch_bytes(op, &call.inputs[0].ty))?);
            call.launch("sum_chunks_f32", Grid::blocks(chunks, WARPS_BYTES)?, &[x, sums])?;
            let count = Argument::Index(chunks as i64);
            call.launch("sum_of_chunks_f32", Grid::blocks(1, WARPS_BYTES)?, &[sums, count, y])
        }
        Reduction::SumRows => call.launch("sum_rows_f32", rows(WARPS_BYTES)?, &[x, y]),
        Reduction::Mean => call.launch("mean_f32", rows(WARPS_BYTES)?, &[x, y]),
        Reduction::CumSum => call.launch("cumsum_f32", rows(TWICE_BYTES)?, &[x, y]),
    }
}
