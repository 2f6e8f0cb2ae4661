//! The oracle against PyTorch and NumPy: `fixtures/operators`, made by `scripts/make_operator_goldens.py`.

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::collections::BTreeSet;
use std::path::Path;
use trueup_blocks::DType;
use trueup_graph::{Case, Op, TensorType};
use trueup_runtime::HostTensor;
use trueup_runtime::device::reference::evaluate;

/// Operators without a golden, with the reason.
const WITHOUT: &[(&str, &str)] = &[
    ("reshape", "moves nothing"),
    ("kv_store", "moves bytes; judged inside whole models, whose logits are transformers'"),
    ("kv_scores", "judged inside whole models, whose logits are transformers'"),
    ("kv_mix", "judged inside whole models, whose logits are transformers'"),
];

/// Largest error by the largest result: f64 on both sides, in other orders of summation.
const ERROR_MAX: f64 = 1e-12;

fn tensor(view: &TensorView) -> HostTensor {
    let dtype = match view.dtype() {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        other => panic!("goldens hold no {other:?}"),
    };
    let sizes: Vec<usize> = view.shape().iter().rev().copied().collect();
    HostTensor::stored(TensorType::new(dtype, &sizes), view.data().to_vec())
}

fn numbers(tensor: &HostTensor) -> Vec<f64> {
    if tensor.ty().dtype == DType::I32 {
        tensor.to_indices().into_iter().map(f64::from).collect()
    } else if tensor.ty().dtype == DType::I64 {
        tensor.to_bytes().as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as f64).collect()
    } else {
        tensor.values().into_owned()
    }
}

/// What is wrong with the oracle on one case.
fn fault(op: &Op, inputs: &[HostTensor], expected: &HostTensor) -> Option<String> {
    let result = match evaluate(op, &inputs.iter().collect::<Vec<_>>()) {
        Ok(result) => result,
        Err(error) => return Some(error.to_string()),
    };
    if result.ty().shape != expected.ty().shape {
        return Some(format!("gives {}, the golden is {}", result.ty(), expected.ty()));
    }
    let (found, expected) = (numbers(&result), numbers(expected));
    let largest = expected.iter().filter(|value| value.is_finite()).fold(0.0f64, |all, value| all.max(value.abs()));
    let same = |found: f64, expected: f64| {
        found == expected
            || (found.is_nan() && expected.is_nan())
            || (found - expected).abs() <= ERROR_MAX * largest.max(1.0)
    };
    let place = found.iter().zip(&expected).position(|(found, expected)| !same(*found, *expected))?;
    Some(format!("element {place} is {}, the golden has {}", found[place], expected[place]))
}

#[test]
fn the_oracle_agrees_with_others_on_every_operator() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/operators");
    let (mut faults, mut seen) = (Vec::new(), BTreeSet::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        for (case, op) in header.metadata().as_ref().unwrap() {
            let op: Op = serde_json::from_str(op).unwrap_or_else(|error| panic!("{path:?} {case}: {op}: {error}"));
            seen.insert(op.name());
            let inputs: Vec<HostTensor> =
                (0..).map_while(|place| Some(tensor(&file.tensor(&format!("{case}.{place}")).ok()?))).collect();
            let expected = tensor(&file.tensor(&format!("{case}.y")).unwrap());
            faults.extend(fault(&op, &inputs, &expected).map(|fault| format!("{} {case}: {fault}", op.name())));
        }
    }
    let unseen = Op::names().into_iter().filter(|name| !seen.contains(name));
    faults.extend(
        unseen
            .filter(|name| WITHOUT.iter().all(|(other, _)| other != name))
            .map(|name| format!("{name} has no golden")),
    );
    faults
        .extend(WITHOUT.iter().filter(|(name, _)| seen.contains(name)).map(|(name, _)| format!("{name} has a golden")));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_case_of_the_suite_survives_json() {
    for case in Op::cases() {
        let text = serde_json::to_string(&case).unwrap();
        let read: Case = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(read, case, "{text}");
    }
}
