//! Elements at other places, and elements in another type: bit for bit what the oracle gives, each rounded once to the
//! type of the result.

use super::{Case, in_strips};
use crate::operand::Operand;
use crate::precision::Precision;
use crate::statistics::{Expected, Statistics};
use trueup_runtime::HostTensor;
use trueup_runtime::device::reference::evaluate;

pub(super) fn judge(case: &Case) -> Statistics {
    let exact = exact(case);
    let stored = Precision::of(case.output.ty.dtype);
    let len = case.output.ty.shape[0];
    let rounds = case.output.ty.dtype.is_float();
    in_strips(case, case.output.ty.shape.rows(), |row, tally| {
        for index in row * len..(row + 1) * len {
            // Where the oracle refuses the inputs, as an index outside its tensor, no number could be right.
            let exact = exact.get(index).copied().unwrap_or(f64::NAN);
            tally.add(index, &Expected::same(exact, if rounds { stored.round(exact) } else { exact }));
        }
    })
}

/// The oracle's result, not rounded where it is floating point; empty where it refuses the inputs.
pub(super) fn exact(case: &Case) -> Vec<f64> {
    let inputs: Vec<HostTensor> = case.inputs.iter().map(|input| input.to_host_tensor()).collect();
    let result = evaluate(case.op, &inputs.iter().collect::<Vec<_>>());
    // Stored integers have no codec: they are read as any operand is.
    result.map_or_else(
        |_| Vec::new(),
        |result| {
            if result.ty().dtype.is_float() {
                result.values().into_owned()
            } else {
                Operand::blocks(*result.ty(), &result.to_bytes()).all().into_owned()
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, judged, numbers, passes};
    use crate::bound::{Case, gate, judge};
    use crate::operand::Operand;
    use trueup_blocks::DType;
    use trueup_graph::op::{Arrange, Cast, IndexFill};
    use trueup_graph::{Op, TensorType};
    use trueup_runtime::profile::Profile;

    #[test]
    fn a_transposed_matrix_passes_and_one_that_was_not_moved_does_not() {
        let x = numbers(15, 1);
        let inputs = [Operand::numbers(f32_type(&[5, 3]), &x)];
        let op = Op::from(Arrange::Transpose);
        let moved: Vec<f64> = (0..15).map(|i| x[i / 3 + i % 3 * 5]).collect();
        assert!(passes(&op, &inputs, &Profile::F32, &moved));
        assert!(!passes(&op, &inputs, &Profile::F32, &x));
    }

    #[test]
    fn a_quantizing_cast_passes_and_a_code_beside_does_not() {
        let x = numbers(64, 2);
        let floats: Vec<f32> = x.iter().map(|x| *x as f32).collect();
        let mut bytes = vec![0; 68];
        (DType::Q8_0.codec().unwrap().encode)(&floats, &mut bytes);
        let inputs = [Operand::numbers(f32_type(&[32, 2]), &x)];
        let op = Op::from(Cast { to: DType::Q8_0 });
        let passes = |bytes: &[u8]| {
            let output = Operand::blocks(TensorType::new(DType::Q8_0, &[32, 2]), bytes);
            let case = Case {
                op: &op,
                inputs: &inputs,
                profile: &Profile::F32,
                output,
                reference: None,
                copies: &[],
                spread: &[],
                step: 0,
                collector: None,
            };
            gate(&op).verdict(&judge(&case), false).passes()
        };
        assert!(passes(&bytes));
        bytes[40] = bytes[40].wrapping_add(1);
        assert!(!passes(&bytes));
    }

    #[test]
    fn an_index_outside_the_dimension_cannot_be_judged() {
        let x = numbers(8, 1);
        let index = Operand::integers(TensorType::new(DType::I32, &[1]), &[2]);
        let inputs = [Operand::numbers(f32_type(&[4, 2]), &x), index];
        let op = Op::from(IndexFill { dimension: 1, value: 0.0 });
        assert_eq!(judged(&op, &inputs, &Profile::F32, &x).broken.undefined, 8);
    }
}
