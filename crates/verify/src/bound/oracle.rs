//! R0 of operators outside the decoders' hot path: the oracle's, which PyTorch's results pin; and how far the declared
//! rounding of inputs moves it.

use super::Case;
use crate::precision::Precision;
use trueup_graph::Op;
use trueup_runtime::HostTensor;
use trueup_runtime::device::reference::evaluate;
use trueup_runtime::profile::{Accumulator, Activations, Profile};

/// Every element of `op` on the case's first inputs, as many as the operator takes; `None` where the oracle refuses
/// them.
pub(super) fn exact(op: &Op, inputs: &[&HostTensor]) -> Option<Vec<f64>> {
    evaluate(op, inputs).ok().map(|result| result.values().into_owned())
}

/// The inputs as the oracle takes them.
pub(super) fn host_inputs(case: &Case) -> Vec<HostTensor> {
    case.inputs.iter().map(|input| input.to_host_tensor()).collect()
}

/// For each element, how far away from `exact` it is at most when every input is rounded as the device declares: by one
/// unit of relative error down or up, whichever changes more. All 0 where inputs are used as they are.
pub(super) fn moved_by_inputs(case: &Case, inputs: &[HostTensor], exact: &[f64]) -> Vec<f64> {
    let unit = input_unit(case.profile);
    let mut moved = vec![0.0; exact.len()];
    if unit == 0.0 {
        return moved;
    }
    for place in 0..inputs.len() {
        let ends = [1.0 - unit, 1.0 + unit].map(|factor| {
            let values = inputs[place].values().iter().map(|value| value * factor).collect();
            let rounded = HostTensor::real(*inputs[place].ty(), values);
            let all: Vec<&HostTensor> =
                (0..inputs.len()).map(|other| if other == place { &rounded } else { &inputs[other] }).collect();
            self::exact(case.op, &all).unwrap_or_default()
        });
        for (moved, (exact, (down, up))) in moved.iter_mut().zip(exact.iter().zip(ends[0].iter().zip(&ends[1]))) {
            *moved += (down - exact).abs().max((up - exact).abs());
        }
    }
    moved
}

/// Whether the device declares that it rounds inputs.
pub(super) fn rounds_inputs(profile: &Profile) -> bool {
    input_unit(profile) > 0.0
}

/// Largest relative error of the declared rounding of inputs; 0 where they are used as they are.
fn input_unit(profile: &Profile) -> f64 {
    match (profile.activations, profile.accumulator) {
        (Activations::Bf16, _) => Precision::BF16.unit,
        (Activations::F16, _)
        | (
            Activations::Unchanged | Activations::Q8 { .. } | Activations::Q8_1 { .. } | Activations::Q8K,
            Accumulator::F16,
        ) => Precision::F16.unit,
        (
            Activations::Unchanged | Activations::Q8 { .. } | Activations::Q8_1 { .. } | Activations::Q8K,
            Accumulator::F64 | Accumulator::F32 | Accumulator::Int32ThenF32 | Accumulator::TensorCore { .. },
        ) => 0.0,
    }
}
