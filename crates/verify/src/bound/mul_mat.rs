//! `y[m, n] = sum_k w[k, m] x[k, n]`; in a stack, neighbouring batches use the same matrix. Around R1 there is
//! accumulation noise only; around R0 also the noise of 8-bit activations, if they are declared. The formulas are
//! derived in docs/numerics.md#sums-of-products and docs/numerics.md#quantized-activations.
//!
//! ```text
//!   R0: sigma^2 = sum over blocks b of d_b^2 / 12 (sum of w^2 in b)  [+ 0.18 u16^2 S_b^2]  + sigma_acc^2
//!   R1: sigma^2 = sigma_acc^2; with integer sums each block is one product, or two if it has a minimum
//! ```

use super::dot::Accumulation;
use super::panel::{Panel, Places, Token, products};
use super::{Case, in_pieces};
use crate::statistics::Statistics;

pub(super) fn judge(case: &Case) -> Statistics {
    let [weights, x] = case.inputs else { return Statistics::default() };
    let output = case.output_precision();
    let accumulation = Accumulation::with_weights(case.profile, output, weights);
    let places = Places::new(&weights.ty.shape, &x.ty.shape, case.copies);
    let all: Vec<Token> = places.columns().iter().map(|column| Token::of(x, *column, case.profile)).collect();
    in_pieces(case, places.strips(), |piece, (panel, results): &mut (Panel, Vec<_>), tally| {
        for group in places.groups(piece) {
            panel.read(weights, group.first, group.count, case.profile);
            products(&accumulation, case.profile, panel, &all[group.columns.clone()], results);
            group.add(&places, case, tally, |row, token| results[token][row]);
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::bound::{Case, Repetition, gate, judge};
    use crate::operand::Operand;
    use trueup_graph::{Op, op::MulMat};
    use trueup_runtime::profile::{Accumulator, Activations, Profile, Rounding, Weights};

    const Q8: Profile = Profile {
        activations: Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false },
        accumulator: Accumulator::F64,
        ..Profile::F32
    };

    fn judged(w: &[f64], x: &[f64], result: &[f64]) -> bool {
        let rows = w.len() / x.len();
        let inputs = [Operand::numbers(f32_type(&[x.len(), rows]), w), Operand::numbers(f32_type(&[x.len(), 1]), x)];
        passes(&Op::MulMat(MulMat), &inputs, &Q8, result)
    }

    #[test]
    fn a_tie_may_go_either_way_and_no_further() {
        // Scale 1, and 2.5 between two codes; the other products cancel but for little.
        let mut x = vec![0.0; 32];
        (x[0], x[1], x[2]) = (127.0, 127.0, 2.5);
        let mut w = vec![0.0; 32];
        (w[0], w[1], w[2]) = (1.0, f64::from(-1.0f32 + 1e-6), 0.7);
        let sum = |w: &[f64], code: f64| f64::from((w[0] * 127.0 + w[1] * 127.0 + w[2] * code) as f32);
        assert!(judged(&w, &x, &[sum(&w, 2.0)]) && judged(&w, &x, &[sum(&w, 3.0)]));
        assert!(!judged(&w, &x, &[sum(&w, 0.0)]) && !judged(&w, &x, &[sum(&w, 4.0)]));
        // Where the sum is small on one side of the tie, roundings are those of the larger other side.
        w[2] = -(w[0] + w[1]) * 127.0 / 2.0 * 1.000_001;
        assert!(judged(&w, &x, &[sum(&w, 2.0)]) && judged(&w, &x, &[sum(&w, 3.0)]));
    }

    #[test]
    fn weights_that_are_declared_as_rounded_must_be() {
        let rounded = Profile { weights: Weights::F16, ..Profile::F32 };
        let (w, x) = (numbers(64 * 40, 17), numbers(64, 18));
        let product = |round: &dyn Fn(f64) -> f64| -> Vec<f64> {
            let sum = |row: &[f64]| row.iter().zip(&x).map(|(w, x)| round(*w) * x).sum::<f64>();
            w.chunks(64).map(|row| f64::from(sum(row) as f32)).collect()
        };
        let passes_as = |profile: &Profile, result: &[f64]| {
            let inputs = [Operand::numbers(f32_type(&[64, 40]), &w), Operand::numbers(f32_type(&[64, 1]), &x)];
            passes(&Op::MulMat(MulMat), &inputs, profile, result)
        };
        let (as_f16, exact) = (product(&|w| half::f16::from_f64(w).to_f64()), product(&|w| w));
        assert!(passes_as(&rounded, &as_f16) && passes_as(&Profile::F32, &exact));
        assert!(!passes_as(&Profile::F32, &as_f16), "a rounding that is not declared is found");
        let as_bf16 = product(&|w| half::bf16::from_f64(w).to_f64());
        assert!(!passes_as(&rounded, &as_bf16), "and one that is coarser than declared");
    }

    #[test]
    fn weights_are_rounded_as_they_are_decoded() {
        // Just above the middle of two f16, where it is not known any more in f32: halves go to even.
        let weight = 1.0 + (-11f64).exp2() + (-30f64).exp2();
        let passes_as = |profile: &Profile, result: f64| {
            let operands = [weight, 1.0];
            let [w, x] = [&operands[..1], &operands[1..]].map(|number| Operand::numbers(f32_type(&[1, 1]), number));
            passes(&Op::MulMat(MulMat), &[w, x], profile, &[result])
        };
        let rounded = Profile { weights: Weights::F16, ..Profile::F32 };
        assert!(passes_as(&rounded, 1.0) && !passes_as(&rounded, 1.0 + (-10f64).exp2()));
    }

    #[test]
    fn quantized_products_pass_and_a_dropped_element_does_not() {
        let (w, x) = (numbers(64 * 40, 17), numbers(64, 18));
        let scale = |block: &[f64]| block.iter().fold(0.0f32, |largest, x| largest.max(x.abs() as f32)) / 127.0;
        let quantized: Vec<f64> = x
            .chunks(32)
            .flat_map(|block| {
                let scale = scale(block);
                block.iter().map(move |x| f64::from((*x as f32 / scale).round_ties_even()) * f64::from(scale))
            })
            .collect();
        let product = |len: usize| -> Vec<f64> {
            let sum = |row: &[f64]| row.iter().zip(&quantized).take(len).map(|(w, x)| w * x).sum::<f64>();
            w.chunks(64).map(|row| f64::from(sum(row) as f32)).collect()
        };
        assert!(judged(&w, &x, &product(64)));
        assert!(!judged(&w, &x, &product(63)));
    }

    #[test]
    fn columns_whose_result_repeats_are_not_judged_and_all_others_are() {
        use Repetition::{Activations, None, Result};
        let (rows, columns) = (19, 3);
        let (w, x) = (numbers(33 * rows * 2, 19), numbers(33 * columns * 2, 20));
        let inputs =
            [Operand::numbers(f32_type(&[33, rows, 2]), &w), Operand::numbers(f32_type(&[33, columns, 2]), &x)];
        let exact = |place: usize| {
            let (row, column) = (place % rows, place / rows);
            let pairs = w[(column / columns * rows + row) * 33..].iter().zip(&x[column * 33..]).take(33);
            f64::from(pairs.fold(0.0f32, |sum, (w, x)| (*w as f32).mul_add(*x as f32, sum)))
        };
        let right: Vec<f64> = (0..rows * columns * 2).map(exact).collect();
        let copies = [None, Result, Activations, Result, Result, None];
        for wrong in 0..columns * 2 {
            let mut found = right.clone();
            found[wrong * rows + 17] += 1.0;
            let output = Operand::numbers(f32_type(&[rows, columns, 2]), &found);
            let op = &Op::MulMat(MulMat);
            let case = Case {
                op,
                output,
                copies: &copies,
                reference: Option::None,
                spread: &[],
                step: 0,
                collector: Option::None,
                inputs: &inputs,
                profile: &Profile::F32,
            };
            let statistics = judge(&case);
            let passes = gate(op).verdict(&statistics, false).passes();
            assert_eq!((statistics.elements, passes), (3 * rows as u64, copies[wrong] == Result), "column {wrong}");
        }
    }
}
