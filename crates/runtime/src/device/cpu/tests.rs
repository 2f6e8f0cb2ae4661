//! Every operator against its formula in f64, written here and sharing nothing with the kernels, on shapes that are odd
//! on purpose; and what may not change a bit: threads, instruction sets, packing, and the other tokens of a batch.

mod attention;
mod decoded;
mod formulas;
mod fused;
mod guarded;
mod invariance;
mod kv_attention;
mod mapped;
mod memory;
mod moving;
mod products;

use super::{Cpu, CpuOptions, Isa};
use crate::device::{ARENA_ALIGN_BYTES, Buffer, Device, Step, Tensor, Usage};
use crate::error::Result;
use crate::profile::Profile;
use trueup_blocks::DType;
use trueup_graph::{Op, TensorType};

/// An input with its bytes; activations lie in one arena with the output, the others in buffers of their own.
#[derive(Clone)]
struct Given {
    ty: TensorType,
    bytes: Vec<u8>,
    usage: Usage,
}

fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn floats_of(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Between -1 and 1, by xorshift from `seed`.
fn numbers(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8388608.0 - 1.0
    };
    (0..len + 16).map(|_| next()).skip(16).collect()
}

fn activation(sizes: &[usize], seed: u64) -> Given {
    let ty = TensorType::new(DType::F32, sizes);
    Given { ty, bytes: bytes_of(&numbers(ty.shape.elements(), seed)), usage: Usage::Arena }
}

fn activation_of(sizes: &[usize], numbers: &[f32]) -> Given {
    Given { ty: TensorType::new(DType::F32, sizes), bytes: bytes_of(numbers), usage: Usage::Arena }
}

fn stored(dtype: DType, sizes: &[usize], seed: u64, usage: Usage) -> Given {
    let ty = TensorType::new(dtype, sizes);
    let mut bytes = vec![0; ty.bytes()];
    (dtype.codec().unwrap().encode)(&numbers(ty.shape.elements(), seed), &mut bytes);
    Given { ty, bytes, usage }
}

/// Codes of each kind, floats, and a type that is decoded.
const MATRICES: [DType; 20] = [
    DType::F32,
    DType::F16,
    DType::Bf16,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q8_0,
    DType::Q8_1,
    DType::Q2K,
    DType::Q3K,
    DType::Q4K,
    DType::Q5K,
    DType::Q6K,
    DType::Iq4Nl,
    DType::Iq4Xs,
    DType::Mxfp4,
    DType::Nvfp4,
    DType::Tq2_0,
    DType::Tq1_0,
];

/// The least length of a row of whole blocks that is no less than this.
fn row_len(dtype: DType, len: usize) -> usize {
    len.next_multiple_of(dtype.block_len())
}

/// Of any type that is multiplied: those with sub-blocks and those that are decoded have blocks of any bytes.
fn weight(dtype: DType, sizes: &[usize], seed: u64) -> Given {
    if decoded::DECODED.contains(&dtype) || decoded::SUB_BLOCKS.contains(&dtype) {
        return decoded::weights(dtype, sizes, seed);
    }
    stored(dtype, sizes, seed, Usage::Weight)
}

fn integers(values: &[i32]) -> Given {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Given { ty: TensorType::new(DType::I32, &[values.len()]), bytes, usage: Usage::Input }
}

impl Given {
    /// The exact elements.
    fn exact(&self) -> Vec<f64> {
        let mut elements = vec![0.0; self.ty.shape.elements()];
        (self.ty.dtype.codec().unwrap().decode_exact)(&self.bytes, &mut elements);
        elements
    }
}

fn cpu(threads: usize, isa: Isa) -> Cpu {
    Cpu::new(CpuOptions { threads, isa: Some(isa), repack: true }).unwrap()
}

/// The device as users get it, with two threads.
fn default_cpu() -> Cpu {
    Cpu::new(CpuOptions { threads: 2, ..CpuOptions::default() }).unwrap()
}

/// Puts the output behind the first input in a poisoned arena, the other activations behind it; runs; gives the
/// output's bytes.
fn run(cpu: &Cpu, op: &Op, inputs: &[Given]) -> Result<Vec<u8>> {
    let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
    let output_type = op.infer(&types).unwrap();
    let room = |ty: &TensorType| ty.bytes().next_multiple_of(ARENA_ALIGN_BYTES);
    let arena_bytes = inputs.iter().map(|input| room(&input.ty)).sum::<usize>() + room(&output_type);
    let arena_type = TensorType::new(DType::I8, &[arena_bytes]);
    let arena = cpu.alloc(&arena_type, Usage::Arena)?;
    let poison = TensorType::new(DType::F32, &[arena_bytes / 4]);
    cpu.upload(
        &bytes_of(&vec![f32::NAN; arena_bytes / 4]),
        &Tensor { buffer: arena.clone(), offset_bytes: 0, ty: poison },
    )?;
    let mut end = 0;
    let mut place = |ty: TensorType, buffer: Option<Buffer>| {
        let offset_bytes = if buffer.is_none() { end } else { 0 };
        end += if buffer.is_none() { room(&ty) } else { 0 };
        Tensor { buffer: buffer.unwrap_or_else(|| arena.clone()), offset_bytes, ty }
    };
    let mut output = None;
    let mut tensors = Vec::new();
    for input in inputs {
        let own = (input.usage != Usage::Arena).then(|| cpu.alloc(&input.ty, input.usage)).transpose()?;
        let tensor = place(input.ty, own);
        cpu.upload(&input.bytes, &tensor)?;
        if !op.is_alias() {
            output.get_or_insert_with(|| place(output_type, None));
        }
        tensors.push(tensor);
    }
    let output = output.unwrap_or_else(|| Tensor { ty: output_type, ..tensors[0].clone() });
    cpu.execute(&[Step { node: 0, op: op.clone(), inputs: tensors, output: output.clone() }])?;
    let mut bytes = vec![0; output_type.bytes()];
    cpu.download(&output, &mut bytes)?;
    Ok(bytes)
}

/// As [`run`], of an operator with an f32 result.
fn compute(cpu: &Cpu, op: &Op, inputs: &[Given]) -> Vec<f32> {
    floats_of(&run(cpu, op, inputs).unwrap())
}

fn profile(cpu: &Cpu, op: &Op, inputs: &[Given]) -> Profile {
    let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
    cpu.supports(op, &types, &op.infer(&types).unwrap()).unwrap()
}

/// Fails at the first element beyond its tolerance; NaN is beyond any.
fn expect_close(what: &str, found: &[f32], expected: &[f64], tolerance: impl Fn(usize) -> f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(
            error <= tolerance(i),
            "{what}, element {i}: {found} for {expected}, {error:e} beyond {:e}",
            tolerance(i)
        );
    }
}

/// Unit roundoff of f32.
const U: f64 = 1.0 / 16777216.0;
