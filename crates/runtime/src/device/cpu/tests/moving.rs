//! Operators that move elements or change their type: the same bytes as the oracle's, for all of their cases.

use super::{default_cpu, numbers};
use crate::device::cpu::Cpu;
use crate::device::reference::evaluate;
use crate::device::{ARENA_ALIGN_BYTES, Device, Step, Tensor, Usage};
use crate::host_tensor::HostTensor;
use trueup_blocks::DType;
use trueup_graph::{Case, Fill, Op, TensorType};

/// Whether the operator gives bytes that the oracle's must equal.
fn moves(op: &Op) -> bool {
    matches!(
        op.name(),
        "permute"
            | "transpose"
            | "view"
            | "repeat"
            | "repeat_interleave"
            | "pad"
            | "roll"
            | "cpy"
            | "concat"
            | "set"
            | "acc"
    ) || matches!(op.name(), "index_fill" | "set_rows" | "get_rows")
}

fn filled(ty: TensorType, fill: Fill, seed: u64) -> HostTensor {
    let random = numbers(ty.shape.elements(), seed).into_iter().map(f64::from);
    let values: Vec<f64> = match fill {
        Fill::Normal(scale) => random.map(|number| number * scale).collect(),
        Fill::Uniform(from, to) => random.map(|number| from + (to - from) * (number + 1.0) / 2.0).collect(),
        Fill::Integers(from, to) => {
            let count = f64::from(to) - f64::from(from) + 1.0;
            random.map(|number| (f64::from(from) + (count * (number + 1.0) / 2.0).floor()).min(f64::from(to))).collect()
        }
        Fill::Distinct(below) => {
            (0..ty.shape.elements()).map(|i| f64::from(((i * 7 + 3) as i32).rem_euclid(below.max(1)))).collect()
        }
        Fill::Counting(first) => (0..ty.shape.elements()).map(|i| f64::from(first) + i as f64).collect(),
        Fill::Constant(number) => vec![number; ty.shape.elements()],
        Fill::Causal(_) | Fill::Window(..) | Fill::Distances(_) | Fill::Codes(..) => panic!("no {fill:?} is moved"),
    };
    HostTensor::stored(ty, HostTensor::real(ty, values).to_bytes().into_owned())
}

fn tensor(cpu: &Cpu, ty: TensorType, usage: Usage) -> Tensor {
    Tensor { buffer: cpu.alloc(&ty, usage).unwrap(), offset_bytes: 0, ty }
}

/// What is wrong with the device on one case.
fn fault(cpu: &Cpu, case: &Case, usage: Usage) -> Option<String> {
    let seeded = case.inputs.iter().zip(1u64..);
    let inputs: Vec<HostTensor> = seeded.map(|((ty, fill), seed)| filled(*ty, *fill, seed)).collect();
    let expected = match evaluate(&case.op, &inputs.iter().collect::<Vec<_>>()) {
        Ok(expected) => expected,
        Err(error) => return Some(error.to_string()),
    };
    let arena_bytes = (3 * ARENA_ALIGN_BYTES + expected.ty().bytes()).next_multiple_of(ARENA_ALIGN_BYTES);
    let arena = tensor(cpu, TensorType::new(DType::I8, &[arena_bytes]), Usage::Arena);
    let words = Tensor { ty: TensorType::new(DType::I32, &[arena_bytes / 4]), ..arena.clone() };
    let poison = vec![0xA5; arena_bytes];
    cpu.upload(&poison, &words).unwrap();
    let output = Tensor { offset_bytes: ARENA_ALIGN_BYTES, ty: *expected.ty(), ..arena };
    let tensors: Vec<Tensor> = inputs.iter().map(|input| tensor(cpu, *input.ty(), usage)).collect();
    for (input, tensor) in inputs.iter().zip(&tensors) {
        cpu.upload(&input.to_bytes(), tensor).unwrap();
    }
    let types: Vec<TensorType> = tensors.iter().map(|tensor| tensor.ty).collect();
    let result = cpu.supports(&case.op, &types, &output.ty).map_err(|problem| problem.to_string()).and_then(|_| {
        let step = Step { node: 0, op: case.op.clone(), inputs: tensors, output: output.clone() };
        cpu.execute(&[step]).map_err(|error| error.to_string())
    });
    if let Err(problem) = result {
        return Some(problem);
    }
    let mut image = vec![0; arena_bytes];
    cpu.download(&words, &mut image).unwrap();
    let (before, rest) = image.split_at(ARENA_ALIGN_BYTES);
    let (bytes, after) = rest.split_at(output.ty.bytes());
    if before.iter().chain(after).any(|byte| *byte != 0xA5) {
        return Some(format!("bytes beside {} are changed", output.ty));
    }
    let place = bytes.iter().zip(&*expected.to_bytes()).position(|(found, expected)| found != expected)?;
    Some(format!("byte {place} of {}", output.ty))
}

#[test]
fn every_case_gives_the_oracles_bytes() {
    let cpu = default_cpu();
    let cases: Vec<Case> = Op::cases().into_iter().filter(|case| moves(&case.op)).collect();
    assert!(cases.len() > 900, "{} cases", cases.len());
    let mut faults = Vec::new();
    for (case, usage) in cases.iter().flat_map(|case| [(case, Usage::Weight), (case, Usage::State)]) {
        let named = |problem| format!("{:?} of {:?}: {problem}", case.op, case.inputs);
        faults.extend(fault(&cpu, case, usage).map(named));
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults[..faults.len().min(30)].join("\n"));
}
