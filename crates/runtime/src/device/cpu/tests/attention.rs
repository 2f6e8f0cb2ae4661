//! Stacks of matrices, experts and attention in one operator: the bits of what they are made of, or the oracle's
//! formula.

use super::*;
use crate::device::reference::evaluate;
use crate::host_tensor::HostTensor;
use trueup_graph::op::{DiagMask, FlashAttn, MulMat, MulMatId, SoftMax, Triangle};

const WEIGHTS: [DType; 6] = [DType::F32, DType::F16, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q8_0];

fn devices() -> [Cpu; 2] {
    [true, false].map(|repack| Cpu::new(CpuOptions { threads: 2, isa: None, repack }).unwrap())
}

/// Matrix `index` of a stack, on its own.
fn matrix(stack: &Given, index: usize) -> Given {
    let ty = TensorType::new(stack.ty.dtype, &stack.ty.shape.sizes()[..2]);
    let bytes = stack.bytes[index * ty.bytes()..][..ty.bytes()].to_vec();
    Given { ty, bytes, usage: stack.usage }
}

/// Column `index` of activations, on its own.
fn column(x: &Given, index: usize) -> Given {
    let len = x.ty.shape[0];
    activation_of(&[len, 1], &floats_of(&x.bytes)[index * len..][..len])
}

#[test]
fn each_matrix_of_a_stack_gives_the_bits_that_it_gives_alone() {
    for cpu in devices() {
        for dtype in WEIGHTS {
            // 13 rows: the second matrix begins inside a panel.
            let (w, x) = (weight(dtype, &[64, 13, 3], 1), activation(&[64, 2, 6, 2], 2));
            let found = compute(&cpu, &MulMat.into(), &[w.clone(), x.clone()]);
            for (batch, found) in found.chunks(26).enumerate() {
                for (token, found) in found.chunks(13).enumerate() {
                    let alone = [matrix(&w, batch % 6 / 2), column(&x, batch * 2 + token)];
                    assert_eq!(found, compute(&cpu, &MulMat.into(), &alone), "{dtype}, batch {batch}, token {token}");
                }
            }
        }
    }
}

#[test]
fn each_expert_gives_the_bits_that_it_gives_alone() {
    let ids = [2, 0, 1, 2, 2, 1, 0, 1, 4, 3];
    let mut index = integers(&ids);
    index.ty = TensorType::new(DType::I32, &[2, 5]);
    for cpu in devices() {
        for dtype in WEIGHTS {
            for seen in [1, 2] {
                let (w, x) = (weight(dtype, &[64, 13, 5], 3), activation(&[64, seen, 5], 4));
                let found = compute(&cpu, &MulMatId.into(), &[w.clone(), x.clone(), index.clone()]);
                for (pair, found) in found.chunks(13).enumerate() {
                    let x = column(&x, pair % 2 % seen + seen * (pair / 2));
                    let alone = compute(&cpu, &MulMat.into(), &[matrix(&w, ids[pair] as usize), x]);
                    assert_eq!(found, alone, "{dtype}, {seen} seen, pair {pair}");
                }
            }
        }
    }
}

#[test]
fn an_expert_that_does_not_exist_is_refused() {
    let mut ids = integers(&[1, 2]);
    ids.ty = TensorType::new(DType::I32, &[1, 2]);
    let inputs = [weight(DType::F32, &[8, 3, 2], 5), activation(&[8, 1, 2], 6), ids];
    let refused = run(&default_cpu(), &MulMatId.into(), &inputs).unwrap_err().to_string();
    assert!(refused.contains("expert 2 must be at least 0 and below 2"), "{refused}");
}

fn host(given: &Given) -> HostTensor {
    HostTensor::stored(given.ty, given.bytes.clone())
}

/// `0` where `j <= i + past`, else -inf; or distances instead of 0.
fn mask(dtype: DType, positions: usize, tokens: usize, distances: bool) -> Given {
    let numbers: Vec<f32> = (0..positions * tokens)
        .map(|index| {
            let (j, own) = ((index % positions) as f32, (index / positions + positions - tokens) as f32);
            let seen = if distances { j - own } else { 0.0 };
            if j <= own { seen } else { f32::NEG_INFINITY }
        })
        .collect();
    let ty = TensorType::new(dtype, &[positions, tokens]);
    let mut bytes = vec![0; ty.bytes()];
    (dtype.codec().unwrap().encode)(&numbers, &mut bytes);
    Given { ty, bytes, usage: Usage::Input }
}

/// The largest difference from the oracle, by the largest result.
fn deviation(cpu: &Cpu, op: &Op, inputs: &[Given]) -> f64 {
    let found = compute(cpu, op, inputs);
    let hosts: Vec<HostTensor> = inputs.iter().map(host).collect();
    let expected = evaluate(op, &hosts.iter().collect::<Vec<_>>()).unwrap();
    let expected = expected.values();
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(f64::MIN_POSITIVE, |largest, value| largest.max(value.abs()));
    let errors = found.iter().zip(expected.iter()).map(|(found, expected)| (f64::from(*found) - expected).abs());
    errors.fold(0.0, |worst: f64, error| if error > worst || error.is_nan() { error } else { worst }) / largest
}

#[test]
fn flash_attention_is_the_formula() {
    let cpu = default_cpu();
    let plain = FlashAttn { scale: 0.25, max_bias: 0.0, softcap: 0.0 };
    for op in [plain, FlashAttn { softcap: 3.0, ..plain }, FlashAttn { max_bias: 8.0, ..plain }] {
        for kv in [DType::F32, DType::F16] {
            let q = activation(&[33, 3, 6, 2], 7);
            let k = stored(kv, &[33, 150, 3, 2], 8, Usage::State);
            let v = stored(kv, &[17, 150, 3, 2], 9, Usage::State);
            let mask = mask(DType::F16, 150, 3, op.max_bias > 0.0);
            let worst = deviation(&cpu, &op.into(), &[q, k, v, mask]);
            assert!(worst < 40.0 * U, "{op:?} of {kv}: {worst:e}");
        }
    }
}

#[test]
fn what_attention_may_not_see_changes_nothing() {
    let op = FlashAttn { scale: 0.25, max_bias: 0.0, softcap: 0.0 };
    let q = activation(&[16, 1, 2], 10);
    let mask = mask(DType::F32, 100, 1, false);
    let mut hidden = mask.clone();
    hidden.bytes[4 * 70..].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes().repeat(30));
    let state = |numbers: &[f32]| Given { usage: Usage::State, ..activation_of(&[16, 100, 1], numbers) };
    let (k, v) = (numbers(1600, 11), numbers(1600, 12));
    let expected = compute(&default_cpu(), &op.into(), &[q.clone(), state(&k), state(&v), hidden.clone()]);
    let stale = |numbers: &[f32]| state(&[&numbers[..16 * 70], &[f32::NAN; 16 * 30]].concat());
    assert_eq!(expected, compute(&default_cpu(), &op.into(), &[q.clone(), stale(&k), stale(&v), hidden.clone()]));
    hidden.bytes = f32::NEG_INFINITY.to_le_bytes().repeat(100);
    let nothing = compute(&default_cpu(), &op.into(), &[q, stale(&k), stale(&v), hidden]);
    assert!(nothing.iter().all(|y| y.to_bits() == 0), "{nothing:?}");
}

#[test]
fn slopes_of_alibi_are_the_formula_for_any_number_of_heads() {
    for heads in [1, 4, 7, 12] {
        for max_bias in [8.0, 300.0] {
            let op = SoftMax { scale: 0.3, max_bias };
            let inputs = [activation(&[40, 3, heads], 13), mask(DType::F32, 40, 3, true)];
            let worst = deviation(&default_cpu(), &op.into(), &inputs);
            assert!(worst < 60.0 * U, "{heads} heads, {max_bias}: {worst:e}");
        }
    }
}

#[test]
fn a_diagonal_mask_is_the_formula() {
    for triangle in [Triangle::Upper, Triangle::Lower] {
        for past in [0, 3, 50, usize::MAX] {
            let op = DiagMask { triangle, past, value: -7.0 };
            assert_eq!(deviation(&default_cpu(), &op.into(), &[activation(&[9, 5, 2], 14)]), 0.0, "{op:?}");
        }
    }
}

#[test]
fn infinite_values_survive_being_written() {
    for value in [f32::NEG_INFINITY, f32::INFINITY, 0.0, -65504.0, 0.1] {
        let op: Op = DiagMask { triangle: Triangle::Upper, past: 3, value }.into();
        let written = serde_json::to_string(&op).unwrap();
        assert_eq!(serde_json::from_str::<Op>(&written).unwrap(), op, "{written}");
    }
    let wrong = r#"{"DiagMask":{"triangle":"Upper","past":0,"value":"much"}}"#;
    assert!(serde_json::from_str::<Op>(wrong).unwrap_err().to_string().contains(r#""inf" or "-inf", not "much""#));
}
