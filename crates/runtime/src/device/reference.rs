//! The reference: every operator as its formula in f64. One thread sums each element in index order.
//!
//! ```text
//! stored inputs -> exact f64 -> formula (one file per operator) -> f64 -> rounded once to the declared type
//! ```
//!
//! [`evaluate`] is the formula alone. [`Reference`] is a device that uses it, so that one session and one plan serve
//! the reference and the device under test. It shares only the decoding of blocks with other devices.
//!
//! Threads compute different elements, never parts of one sum, so results do not depend on their number. Eight f64
//! sums run side by side, each in its own order, and the compiler vectorizes over rows (`multiversion`). Products and
//! sums are rounded one by one, so the instruction set does not change a bit.

mod arithmetic;
mod arrange;
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
mod memory;
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
mod side_by_side;
mod soft_max;
mod ssm_conv;
mod ssm_scan;
mod unary;
mod upscale;

use super::cpu::{Cpu, CpuOptions};
use super::{About, Buffer, Device, Step, Tensor, Usage, expect_threads};
use crate::error::{Error, Result};
use crate::host_tensor::HostTensor;
use crate::profile::Profile;
use crate::roof::{self, Roof};
use memory::Memory;
pub use side_by_side::side_by_side;
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::counted;
use trueup_graph::{Op, Shape, TensorType};

/// The operator's formula on these inputs, in f64. The result is not rounded to the type it declares, but for operators
/// that move stored elements or write integers or blocks, whose result is as it is stored.
///
/// Fails where the inputs break the operator's rule, an index lies outside its tensor, or a type cannot be decoded.
pub fn evaluate(op: &Op, inputs: &[&HostTensor]) -> Result<HostTensor> {
    let types: Vec<TensorType> = inputs.iter().map(|input| *input.ty()).collect();
    let output = op.infer(&types).map_err(|problem| fault(op, problem))?;
    readable(op, &types).map_err(|problem| fault(op, problem))?;
    let values = match op {
        Op::Arithmetic(arithmetic) => arithmetic::evaluate(*arithmetic, inputs, &output),
        Op::Gated(gated) => gated::evaluate(*gated, inputs),
        Op::DiagMask(mask) => diag_mask::evaluate(mask, inputs),
        Op::FlashAttn(attention) => flash_attn::evaluate(attention, inputs, &output),
        Op::GetRows(_) => get_rows::evaluate(inputs, &output).map_err(|problem| fault(op, problem))?,
        Op::Im2Col(im2col) => im2col::evaluate(im2col, inputs, &output),
        Op::Arrange(arrange) => return Ok(arrange::evaluate(arrange, inputs, &output)),
        Op::Cast(_) => return Ok(cast::evaluate(inputs, &output)),
        Op::Concat(concat) => return Ok(concat::evaluate(concat, inputs, &output)),
        Op::IndexFill(fill) => {
            return index_fill::evaluate(fill, inputs, &output).map_err(|problem| fault(op, problem));
        }
        Op::KvAttention(attention) => {
            kv_attention::evaluate(attention, inputs, &output).map_err(|problem| fault(op, problem))?
        }
        Op::KvMix(mix) => kv_mix::evaluate(mix, inputs, &output).map_err(|problem| fault(op, problem))?,
        Op::KvScores(_) => kv_scores::evaluate(inputs, &output).map_err(|problem| fault(op, problem))?,
        Op::KvStore(_) => return kv_store::evaluate(inputs).map_err(|problem| fault(op, problem)),
        Op::Make(make) => make::evaluate(make, inputs, &output),
        Op::MulMat(_) => mul_mat::evaluate(inputs, &output),
        Op::MulMatGated(op) => mul_mat_gated::evaluate(op, inputs, &output),
        Op::Norm(norm) => norm::evaluate(norm, inputs),
        Op::Pool2d(pool) => pool_2d::evaluate(pool, inputs, &output),
        Op::Rank(rank) => rank::evaluate(rank, inputs),
        Op::Reduce(reduce) => reduce::evaluate(reduce, inputs, &output),
        Op::MulMatId(_) => mul_mat_id::evaluate(inputs, &output).map_err(|problem| fault(op, problem))?,
        Op::Overlay(overlay) => return Ok(overlay::evaluate(overlay, inputs, &output)),
        Op::Reshape(_) => return Ok(reshape::evaluate(inputs, &output)),
        Op::RmsNorm(norm) => rms_norm::evaluate(norm, inputs),
        Op::Rope(rope) => rope::evaluate(rope, inputs),
        Op::SetRows(_) => return set_rows::evaluate(inputs).map_err(|problem| fault(op, problem)),
        Op::SoftMax(soft_max) => soft_max::evaluate(soft_max, inputs),
        Op::SsmConv(_) => ssm_conv::evaluate(inputs, &output),
        Op::SsmScan(_) => ssm_scan::evaluate(inputs).map_err(|problem| fault(op, problem))?,
        Op::Upscale(upscale) => upscale::evaluate(upscale, inputs, &output),
        Op::Unary(unary) => unary::evaluate(unary, inputs),
    };
    Ok(HostTensor::real(output, values))
}

/// Whether every input is of integers or can be decoded.
fn readable(op: &Op, inputs: &[TensorType]) -> std::result::Result<(), String> {
    let is_integer = |ty: &TensorType| matches!(ty.dtype, DType::I32 | DType::I64);
    let unknown = inputs.iter().find(|ty| !is_integer(ty) && ty.dtype.decoder().is_none());
    unknown.map_or(Ok(()), |ty| Err(format!("this version cannot decode {} or compute {}", ty.dtype, op.name())))
}

fn fault(op: &Op, problem: String) -> Error {
    Error::Device { device: NAME.to_owned(), problem: format!("{}: {problem}", op.name()) }
}

/// The indices of element number `element` of a tensor of this shape.
fn indices(shape: &Shape, element: usize) -> [usize; 4] {
    let [n0, n1, n2, _] = shape.sizes();
    [element % n0, element / n0 % n1, element / n0 / n1 % n2, element / n0 / n1 / n2]
}

/// The number of the element with these indices.
fn element(shape: &Shape, [i0, i1, i2, i3]: [usize; 4]) -> usize {
    let [n0, n1, n2, _] = shape.sizes();
    i0 + n0 * (i1 + n1 * (i2 + n2 * i3))
}

/// `index` as a place among `len`, or which one it is not.
fn place(what: &str, index: i32, len: usize) -> std::result::Result<usize, String> {
    let place = usize::try_from(index).ok().filter(|place| *place < len);
    place.ok_or_else(|| format!("{what} {index} is not between 0 and {}", len.saturating_sub(1)))
}

const NAME: &str = "ref";

/// The oracle as a device. Activations are f64, or f32 where the graph says so.
pub struct Reference {
    pool: rayon::ThreadPool,
}

impl Reference {
    /// The oracle on that many threads, at most [`THREADS_MAX`](super::THREADS_MAX); 0 takes as many as the machine
    /// has. Results are the same for any number.
    pub fn new(threads: usize) -> Result<Reference> {
        let failure = |problem| Error::Device { device: NAME.to_owned(), problem };
        let threads = expect_threads(Some(threads).filter(|threads| *threads > 0)).map_err(failure)?;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| failure(format!("cannot start {threads} threads: {error}")))?;
        Ok(Reference { pool })
    }

    fn compute(&self, step: &Step) -> Result<()> {
        if step.op.is_view() {
            return Ok(());
        }
        if let Op::KvStore(_) = step.op {
            return self.store(step);
        }
        let held = step.inputs.iter().map(|input| Memory::of(input)?.read(input)).collect::<Result<Vec<_>>>()?;
        let inputs: Vec<&HostTensor> = held.iter().map(|held| &**held).collect();
        let result = self.pool.install(|| evaluate(&step.op, &inputs))?;
        let bytes = result.to_bytes();
        drop(held);
        Memory::of(&step.output)?.write(&step.output, &bytes)
    }

    /// The one operator that changes its input in place.
    fn store(&self, step: &Step) -> Result<()> {
        let [cache, x, rows] = step.inputs.as_slice() else {
            return Err(fault(&step.op, format!("takes 3 inputs, got {}", step.inputs.len())));
        };
        let (x, rows) = (Memory::of(x)?.read(x)?, Memory::of(rows)?.read(rows)?);
        Memory::of(cache)?
            .change(cache, |cache| kv_store::store(cache, &x, &rows).map_err(|problem| fault(&step.op, problem)))
    }
}

impl Device for Reference {
    fn about(&self) -> About {
        let threads = self.pool.current_num_threads();
        let description = format!("f64 reference, sums in index order, {}", counted(threads, "thread"));
        About {
            name: NAME.to_owned(),
            description,
            simulated: false,
            memory: None,
            memory_limit: None,
            batch_invariant: true,
        }
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        let inferred = op.infer(inputs)?;
        readable(op, inputs)?;
        if inferred != *output {
            return Err(format!("{} gives {inferred}, not {output}", op.name()));
        }
        Ok(Profile { output: output.dtype, ..Profile::EXACT })
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        Ok(Buffer(Arc::new(Memory::new(ty, usage)?)))
    }

    fn upload(&self, source: &[u8], target: &Tensor) -> Result<()> {
        Memory::of(target)?.write(target, source)
    }

    fn download(&self, source: &Tensor, target: &mut [u8]) -> Result<()> {
        target.copy_from_slice(&Memory::of(source)?.read(source)?.to_bytes());
        Ok(())
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|step| self.compute(step))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn roof(&self) -> Result<Option<Roof>> {
        let cpu = Cpu::new(CpuOptions { threads: self.pool.current_num_threads(), ..CpuOptions::default() })?;
        roof::host::measure(&cpu).map(Some)
    }
}

#[cfg(test)]
mod tests;
