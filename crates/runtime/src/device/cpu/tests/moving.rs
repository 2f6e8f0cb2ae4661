//! Operators that move elements or change their type: the same bytes as the oracle's, for all of their cases.

use super::{default_cpu, numbers};
use crate::device::cpu::Cpu;
use crate::device::reference::evaluate;
use crate::device::{ARENA_ALIGN_BYTES, Device, Step, Tensor, Usage};
use crate::host_tensor::HostTensor;
use trueup_blocks::DType;
use trueup_graph::{Case, Fill, Op, Strides, TensorType};

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

/// All cases of these operators on tensors without gaps that can be filled with numbers.
fn cases() -> impl Iterator<Item = Case> {
    let plain = |(ty, fill): &(TensorType, Fill)| ty.shape.is_dense() && !matches!(fill, Fill::Blocks(_));
    Op::cases().into_iter().filter(move |case| moves(&case.op) && case.inputs.iter().all(plain))
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
        Fill::Causal(_)
        | Fill::Window(..)
        | Fill::Ring(..)
        | Fill::Holes(..)
        | Fill::Endless(..)
        | Fill::Distances(_)
        | Fill::Codes(..)
        | Fill::Blocks(_) => {
            panic!("no {fill:?} is moved")
        }
    };
    HostTensor::stored(ty, HostTensor::real(ty, values).to_bytes().into_owned())
}

fn tensor(cpu: &Cpu, ty: TensorType, usage: Usage) -> Tensor {
    let arena = TensorType::new(DType::I8, &[ty.bytes().next_multiple_of(ARENA_ALIGN_BYTES)]);
    let whole = if usage == Usage::Arena { arena } else { ty };
    Tensor { buffer: cpu.alloc(&whole, usage).unwrap(), offset_bytes: 0, ty }
}

/// What a view of this type shows of its source.
fn shown(source: &HostTensor, ty: TensorType) -> HostTensor {
    let Strides { offset, steps } = ty.shape.strides();
    let [n0, n1, n2, n3] = ty.shape.sizes();
    let mut places = Vec::new();
    for (l, k) in (0..n3).flat_map(|l| (0..n2).map(move |k| (l, k))) {
        for (j, i) in (0..n1).flat_map(|j| (0..n0).map(move |i| (j, i))) {
            places.push(offset + i * steps[0] + j * steps[1] + k * steps[2] + l * steps[3]);
        }
    }
    if ty.shape.is_dense() {
        source.clone()
    } else {
        HostTensor::gathered(ty.dense(), &[source], 0.0, |i| Some((0, places[i])))
    }
}

/// What is wrong with the device on one case.
fn fault(cpu: &Cpu, case: &Case, usage: Usage) -> Option<String> {
    let seeded = case.inputs.iter().zip(1u64..);
    let sources: Vec<HostTensor> = seeded.map(|((ty, fill), seed)| filled(ty.held(), *fill, seed)).collect();
    let inputs: Vec<HostTensor> =
        sources.iter().zip(&case.inputs).map(|(source, (ty, _))| shown(source, *ty)).collect();
    let expected = match evaluate(&case.op, &inputs.iter().collect::<Vec<_>>()) {
        Ok(expected) => expected,
        Err(error) => return Some(error.to_string()),
    };
    let types: Vec<TensorType> = case.inputs.iter().map(|(ty, _)| *ty).collect();
    let tensors: Vec<Tensor> = types.iter().map(|ty| Tensor { ty: *ty, ..tensor(cpu, ty.held(), usage) }).collect();
    for (source, tensor) in sources.iter().zip(&tensors) {
        cpu.upload(&source.to_bytes(), &Tensor { ty: *source.ty(), ..tensor.clone() }).unwrap();
    }
    let output_type = case.op.infer(&types).unwrap();
    let arena_bytes = (3 * ARENA_ALIGN_BYTES + output_type.bytes()).next_multiple_of(ARENA_ALIGN_BYTES);
    let arena = tensor(cpu, TensorType::new(DType::I32, &[arena_bytes / 4]), Usage::Arena);
    cpu.upload(&vec![0xA5; arena_bytes], &arena).unwrap();
    let output = if case.op.is_alias() {
        Tensor { ty: output_type, ..tensors[0].clone() }
    } else {
        Tensor { offset_bytes: ARENA_ALIGN_BYTES, ty: output_type, ..arena.clone() }
    };
    let result = cpu.supports(&case.op, &types, &output_type).and_then(|_| {
        let step = Step { node: 0, op: case.op.clone(), inputs: tensors, output: output.clone() };
        cpu.execute(&[step]).map_err(|error| error.to_string())
    });
    if let Err(problem) = result {
        return Some(problem);
    }
    let mut bytes = vec![0; output_type.bytes()];
    cpu.download(&output, &mut bytes).unwrap();
    let mut image = vec![0; arena_bytes];
    cpu.download(&arena, &mut image).unwrap();
    if !case.op.is_alias() {
        image.drain(ARENA_ALIGN_BYTES..ARENA_ALIGN_BYTES + bytes.len());
    }
    if image.iter().any(|byte| *byte != 0xA5) {
        return Some(format!("bytes beside {output_type} are changed"));
    }
    let place = bytes.iter().zip(&*expected.to_bytes()).position(|(found, expected)| found != expected)?;
    Some(format!("byte {place} of {output_type}"))
}

#[test]
fn every_case_gives_the_oracles_bytes() {
    let cpu = default_cpu();
    let cases: Vec<Case> = cases().collect();
    assert!(cases.len() > 900, "{} cases", cases.len());
    let mut faults = Vec::new();
    for (case, usage) in cases.iter().flat_map(|case| [(case, Usage::Weight), (case, Usage::Arena)]) {
        let named = |problem| format!("{:?} of {:?}: {problem}", case.op, case.inputs);
        faults.extend(fault(&cpu, case, usage).map(named));
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults[..faults.len().min(30)].join("\n"));
}

#[test]
fn every_case_on_views_gives_the_oracles_bytes() {
    let cpu = default_cpu();
    let cases: Vec<Case> = cases().flat_map(|case| case.strided()).collect();
    assert!(cases.len() > 1500, "{} cases", cases.len());
    let mut faults = Vec::new();
    for (case, usage) in cases.iter().flat_map(|case| [(case, Usage::State), (case, Usage::Arena)]) {
        let named = |problem| format!("{:?} of {:?}: {problem}", case.op, case.inputs);
        faults.extend(fault(&cpu, case, usage).map(named));
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults[..faults.len().min(30)].join("\n"));
}
