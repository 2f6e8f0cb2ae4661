//! The `cpu` device: weights are packed at upload, kernels exist per instruction set, threads share rows, heads and
//! tokens.
//!
//! ```text
//!  Device ──▶ cpu.rs ──▶ operator.rs: what each operator declares, how it is split ──▶ crate kernels: numeric loops
//!                │                             avx512 │ avx-vnni │ avx2 │ sse41 │ neon │ scalar
//!                ├──▶ team.rs, columns.rs: distribution of work
//!                ├──▶ prefetch_tuner.rs: choice of the prefetch strategy
//!                └──▶ memory.rs, packed.rs, pages.rs, mapped.rs: storage of tensors
//! ```
//!
//! One thread computes each element, and its sums have a fixed order: element k of a product goes to lane k mod 32.
//! Quantized products are exact integers within a block and one f32 chain over the blocks. Results therefore do not
//! depend on the number of threads, the instruction set, weight packing, or the other tokens of a batch.
//!
//! ```
//! use trueup_runtime::device::Device;
//! use trueup_runtime::device::cpu::{Cpu, CpuOptions};
//!
//! let cpu = Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() }).unwrap();
//! assert_eq!(cpu.name(), "cpu");
//! ```

#[allow(unsafe_code, reason = "threads write different rows of one result")]
mod columns;
mod control_group;
mod gather;
mod limits;
mod mapped;
mod means;
mod memory;
mod operator;
mod packed;
#[allow(unsafe_code, reason = "memory that is not written to before the system was asked for huge pages")]
mod pages;
mod peaks;
mod prefetch_tuner;
mod processor;
mod spare;
#[allow(unsafe_code, reason = "threads look at work in the frame of a caller who waits for them")]
mod team;
#[cfg(test)]
mod tests;

use super::{About, Buffer, CopyRoom, Device, Rooms, Step, Tensor, Usage, expect_threads};
use crate::error::{Error, Result};
use crate::profile::Profile;
use crate::roof::{self, Roof};
use means::Means;
use memory::{Cells, Memory, Room, Split};
use operator::{Call, Operand};
use packed::Packed;
use pages::Store;
pub use peaks::Line;
pub use processor::system_memory;
use spare::Spares;
use std::sync::{Arc, Mutex, PoisonError, RwLockReadGuard};
use team::Team;
use trueup_blocks::DType;
use trueup_formats::counted;
use trueup_formats::gguf::MappedBytes;
use trueup_graph::{Op, TensorType};
pub use trueup_kernels::Isa;
use trueup_kernels::{self as kernel, Instructions, PackedFormat};

/// How the processor is used. Nothing here changes a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuOptions {
    /// Threads that compute; from 1 to [`THREADS_MAX`](super::THREADS_MAX).
    pub threads: usize,
    /// The instruction set; the fastest that the machine has if `None`.
    pub isa: Option<Isa>,
    /// Whether weights are brought at upload into the layout, and onto the pages, that kernels read fastest; otherwise
    /// they are computed with where they are mapped, which takes least memory.
    pub repack: bool,
}

impl Default for CpuOptions {
    /// All of the machine.
    fn default() -> CpuOptions {
        CpuOptions { threads: expect_threads(None).unwrap_or(1), isa: None, repack: true }
    }
}

/// The device `cpu`.
#[derive(Debug)]
pub struct Cpu {
    instructions: Instructions,
    repack: bool,
    /// Where weights lie.
    store: Store,
    team: Team,
    /// Room for numbers in another form.
    spares: Spares,
    /// Held by one call at a time: a thread that waits for its pieces must not begin another call that needs the same
    /// memory.
    turn: Mutex<()>,
}

impl Cpu {
    /// Starts the threads. Fails where the machine lacks the instruction set or the threads.
    pub fn new(options: CpuOptions) -> Result<Cpu> {
        let isa = options.isa.or(Isa::available().first().copied()).unwrap_or(Isa::Scalar);
        let instructions = Instructions::of(isa).ok_or_else(|| {
            let available: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
            failure(format!("this processor lacks the instruction set {isa}; use one of {}", available.join(", ")))
        })?;
        let threads = expect_threads(Some(options.threads)).map_err(failure)?;
        let team = Team::new(threads);
        let team = team.map_err(|error| failure(format!("{threads} threads cannot be started: {error}")))?;
        Ok(Cpu {
            instructions,
            repack: options.repack,
            store: Store::default(),
            team,
            spares: Spares::default(),
            turn: Mutex::new(()),
        })
    }

    /// The instruction set whose kernels run.
    pub fn isa(&self) -> Isa {
        self.instructions.isa()
    }

    /// Threads that compute.
    pub fn threads(&self) -> usize {
        self.team.threads()
    }

    /// Multiplies and adds f32 in registers on every thread, `rounds` times, and gives how many operations that was,
    /// each multiplication and each addition being one. No kernel of this instruction set that computes in f32 does
    /// more of them in the same time.
    pub fn multiply_add(&self, rounds: usize) -> u64 {
        let work = |_: usize| {
            let mut sums = [1.0; kernel::SUMS];
            kernel::multiply_add(self.instructions, rounds, std::hint::black_box(0.999), &mut sums);
            std::hint::black_box(sums);
        };
        self.run(|means| means.team.each(0..means.team.threads(), 1, work));
        2 * (self.threads() * kernel::SUMS * rounds) as u64
    }

    /// Runs with the threads, alone.
    fn run<R>(&self, work: impl FnOnce(Means) -> R) -> R {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        work(Means { instructions: self.instructions, team: &self.team, spares: &self.spares })
    }
}

fn compute(means: Means, step: &Step) -> std::result::Result<(), String> {
    let types: Vec<TensorType> = step.inputs.iter().map(|input| input.ty).collect();
    operator::profile(&step.op, &types, &step.output.ty)?;
    if step.op.is_view() {
        return Ok(());
    }
    expect_writable(&step.output, memory(&step.output)?)?;
    for tensor in step.inputs.iter().chain([&step.output]) {
        if !is_in_place(step, tensor, memory(tensor)?) {
            return compute_apart(means, step);
        }
    }
    compute_in_place(means, step)
}

/// Whether the operator of a step can use one of its tensors where it lies.
fn is_in_place(step: &Step, tensor: &Tensor, memory: &Memory) -> bool {
    let takes_view = || operator::takes_view(&step.op, &tensor.ty) && memory.is_in_place(&tensor.ty.held());
    memory.is_in_place(&tensor.ty) || takes_view()
}

/// Computes with tensors that kernels cannot read or write where they lie, in memory of their own.
fn compute_apart(means: Means, step: &Step) -> std::result::Result<(), String> {
    let apart = |tensor: &Tensor| -> std::result::Result<Tensor, String> {
        let source = memory(tensor)?;
        if is_in_place(step, tensor, source) {
            return Ok(tensor.clone());
        }
        let ty = tensor.ty.dense();
        Ok(Tensor { buffer: Buffer(Arc::new(taken_out(means, source, tensor)?)), offset_bytes: 0, ty })
    };
    let inputs = step.inputs.iter().map(apart).collect::<std::result::Result<Vec<Tensor>, String>>()?;
    let output = if step.op.is_alias() { inputs[0].clone() } else { apart(&step.output)? };
    let output = Tensor { ty: step.output.ty, ..output };
    let source = output.clone();
    compute_in_place(means, &Step { node: step.node, op: step.op.clone(), inputs, output })?;
    if !memory(&step.output)?.is_in_place(&step.output.ty) {
        move_bytes(means, (memory(&source)?, 0), (memory(&step.output)?, step.output.offset_bytes), &step.output.ty);
    }
    Ok(())
}

fn compute_in_place(means: Means, step: &Step) -> std::result::Result<(), String> {
    let inputs = match &step.op {
        Op::KvStore(_) => &step.inputs[1..],
        Op::Arithmetic(_) | Op::Gated(_) | Op::GetRows(_) | Op::KvMix(_) | Op::KvScores(_) | Op::MulMat(_) => {
            &step.inputs[..]
        }
        Op::RmsNorm(_) | Op::Rope(_) | Op::SoftMax(_) | Op::Unary(_) => &step.inputs[..],
        Op::Make(_) | Op::Norm(_) | Op::Rank(_) | Op::Reduce(_) => &step.inputs[..],
        Op::Im2Col(_) | Op::Pool2d(_) | Op::Upscale(_) => &step.inputs[..],
        Op::SsmConv(_) | Op::SsmScan(_) => &step.inputs[..],
        Op::DiagMask(_) | Op::FlashAttn(_) | Op::KvAttention(_) | Op::MulMatGated(_) | Op::MulMatId(_) => {
            &step.inputs[..]
        }
        Op::Arrange(_) | Op::Cast(_) | Op::Concat(_) | Op::IndexFill(_) => &step.inputs[..],
        Op::Overlay(_) | Op::Reshape(_) | Op::SetRows(_) => &step.inputs[..],
    };
    let written = memory(&step.output)?;
    let mut cells = written.write();
    let split = Split::new(&mut cells, &step.output.ty, step.output.offset_bytes)?;
    let guards = lock_others(written, inputs)?;
    let operands = inputs.iter().map(|input| operand(input, written, &split, &guards));
    let inputs = operands.collect::<std::result::Result<Vec<Operand>, String>>()?;
    let call = Call {
        instructions: means.instructions,
        team: means.team,
        spares: means.spares,
        inputs,
        output: split.target,
        output_type: step.output.ty,
    };
    operator::compute(&step.op, call)
}

/// The memory of a tensor of this device, in which it was found to lie.
fn memory(tensor: &Tensor) -> std::result::Result<&Memory, String> {
    let memory = buffer(tensor)?;
    memory.check(&tensor.ty, tensor.offset_bytes)?;
    Ok(memory)
}

/// The memory of a tensor, or of some rows of a state, whose bytes are read or written.
fn memory_of_bytes(tensor: &Tensor) -> std::result::Result<&Memory, String> {
    let memory = buffer(tensor)?;
    memory.check_bytes(&tensor.ty, tensor.offset_bytes)?;
    Ok(memory)
}

fn buffer(tensor: &Tensor) -> std::result::Result<&Memory, String> {
    let memory = tensor.buffer.0.downcast_ref::<Memory>();
    memory.ok_or_else(|| format!("{} is in the memory of another device; copy it to this device first", tensor.ty))
}

/// Fails if the memory of the tensor is not writable.
fn expect_writable(tensor: &Tensor, memory: &Memory) -> std::result::Result<(), String> {
    match memory.is_mapped() {
        false => Ok(()),
        true => Err(format!("{} is mapped from the model file and cannot be written", tensor.ty)),
    }
}

/// A copy of what a tensor shows, in memory of its own.
fn taken_out(means: Means, source: &Memory, tensor: &Tensor) -> std::result::Result<Memory, String> {
    let held = tensor.ty.held();
    let room = Room { store: &Store::default(), repack: false };
    let target = Memory::new(&tensor.ty.dense(), Usage::Input, room)?;
    if tensor.ty.shape.is_dense() {
        move_bytes(means, (source, tensor.offset_bytes), (&target, 0), &held);
        return Ok(target);
    }
    if !source.is_in_place(&held) {
        let part = Tensor { ty: held, ..tensor.clone() };
        let buffer = Buffer(Arc::new(taken_out(means, source, &part)?));
        let tensor = Tensor { buffer, offset_bytes: 0, ty: tensor.ty };
        return taken_out(means, memory(&tensor)?, &tensor);
    }
    {
        let (cells, mut written) = (source.read(), target.write());
        let mut split = Split::new(&mut written, &tensor.ty.dense(), 0)?;
        operator::moved::show(means.team, cells.view(&held, tensor.offset_bytes), &tensor.ty.shape, &mut split.target)?;
    }
    Ok(target)
}

/// Copies a tensor from one memory, at an offset in bytes, to another.
fn move_bytes(means: Means, source: (&Memory, usize), target: (&Memory, usize), ty: &TensorType) {
    let mut bytes = vec![0; ty.bytes()];
    source.0.read().give(means.team, ty, source.1, &mut bytes);
    target.0.write().take(means, &bytes, ty, target.1);
}

/// Memory that is read, locked once each.
type Guards<'a> = Vec<(&'a Memory, RwLockReadGuard<'a, Cells>)>;

/// Locks what the inputs lie in, but for the memory that is written.
fn lock_others<'a>(written: &Memory, inputs: &'a [Tensor]) -> std::result::Result<Guards<'a>, String> {
    let mut guards: Guards = Vec::with_capacity(inputs.len());
    for input in inputs {
        let memory = memory(input)?;
        let known = guards.iter().any(|(locked, _)| std::ptr::eq(*locked, memory));
        if !known && !std::ptr::eq(written, memory) {
            guards.push((memory, memory.read()));
        }
    }
    Ok(guards)
}

/// An input beside the output, or in locked memory.
fn operand<'a>(
    input: &Tensor,
    written: &Memory,
    split: &Split<'a>,
    guards: &'a Guards,
) -> std::result::Result<Operand<'a>, String> {
    let memory = memory(input)?;
    let held = input.ty.held();
    let view = match guards.iter().find(|(locked, _)| std::ptr::eq(*locked, memory)) {
        Some((_, cells)) => cells.view(&held, input.offset_bytes),
        None => {
            debug_assert!(std::ptr::eq(written, memory), "all other memory is locked");
            split.beside(&held, input.offset_bytes)?
        }
    };
    Ok(Operand { ty: input.ty, view })
}

const NAME: &str = "cpu";

fn failure(problem: String) -> Error {
    Error::Device { device: NAME.to_owned(), problem }
}

impl Device for Cpu {
    fn about(&self) -> About {
        let threads = self.threads();
        About {
            name: NAME.to_owned(),
            description: format!("{}, {}, {}", processor::name(), self.isa(), counted(threads, "thread")),
            simulated: false,
            memory: processor::memory(),
            memory_limit: None,
            batch_invariant: true,
        }
    }

    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        operator::profile(op, inputs, output)
    }

    fn scratch_bytes(&self, op: &Op, inputs: &[TensorType]) -> Rooms {
        [operator::scratch_bytes(op, inputs, self.instructions, self.threads()), 0, 0, 0, 0, 0]
    }

    /// The bytes of the packed tiles if a block is larger there than in the file, as in mxfp4.
    fn weight_bytes(&self, ty: &TensorType, _is_multiplied: bool) -> u64 {
        let larger = Packed::larger_bytes(ty).filter(|_| self.repack);
        self.taken_bytes(larger.unwrap_or(ty.bytes() as u64))
    }

    fn alloc(&self, ty: &TensorType, usage: Usage) -> Result<Buffer> {
        let memory = Memory::new(ty, usage, Room { store: &self.store, repack: self.repack }).map_err(failure)?;
        Ok(Buffer(Arc::new(memory)))
    }

    fn adopt(&self, bytes: &MappedBytes, ty: &TensorType, room: CopyRoom) -> Result<Option<Buffer>> {
        expect_bytes(bytes.len(), ty)?;
        // Into panels, or onto huge pages; what is decoded at each use gains nothing from either.
        let streamed =
            matches!(ty.dtype, DType::F32 | DType::F16 | DType::Bf16) || PackedFormat::of(ty.dtype).is_some();
        let is_faster_copied = self.repack && streamed;
        // Vectors are small.
        if ty.shape.rows() <= 1 || (is_faster_copied && room == CopyRoom::Enough) {
            return Ok(None);
        }
        Ok(Memory::mapped(bytes, ty).map(|memory| Buffer(Arc::new(memory))))
    }

    fn upload(&self, source: &[u8], target: &Tensor) -> Result<()> {
        let memory = memory_of_bytes(target).map_err(failure)?;
        expect_writable(target, memory).map_err(failure)?;
        expect_bytes(source.len(), &target.ty)?;
        if !target.ty.shape.is_dense() {
            return Err(failure(format!("a view cannot be written: {}", target.ty)));
        }
        self.run(|means| memory.write().take(means, source, &target.ty, target.offset_bytes));
        Ok(())
    }

    fn download(&self, source: &Tensor, target: &mut [u8]) -> Result<()> {
        let memory = memory_of_bytes(source).map_err(failure)?;
        expect_bytes(target.len(), &source.ty)?;
        self.run(|means| {
            let team = means.team;
            if source.ty.shape.is_dense() {
                memory.read().give(team, &source.ty, source.offset_bytes, target);
            } else {
                taken_out(means, memory, source)?.read().give(team, &source.ty.dense(), 0, target);
            }
            Ok(())
        })
        .map_err(failure)
    }

    fn execute(&self, steps: &[Step]) -> Result<()> {
        self.run(|means| steps.iter().try_for_each(|step| compute(means, step))).map_err(failure)
    }

    /// Nothing is left undone when a call returns.
    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn roof(&self) -> Result<Option<Roof>> {
        roof::host::measure(self).map(Some)
    }
}

fn expect_bytes(found: usize, ty: &TensorType) -> Result<()> {
    if found == ty.bytes() {
        Ok(())
    } else {
        Err(failure(format!("{ty} has {} bytes, not {found}; pass the whole tensor", ty.bytes())))
    }
}
