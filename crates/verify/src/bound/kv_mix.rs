//! `y[d, h, t] = sum_j V[d, h / group, j] p[j, t, h]`: a dot product over the cached positions. Masked positions weigh
//! exactly 0 and round nothing.

use super::dot::{Accumulation, Loss, weight};
use super::{Case, in_strips};
use crate::activation::Row;
use crate::precision::Precision;
use crate::statistics::Statistics;
use trueup_graph::op::KvMix;

pub(super) fn judge(mix: &KvMix, case: &Case) -> Statistics {
    let [p, values, sequences] = case.inputs else { return Statistics::default() };
    let [capacity, tokens, heads, _] = p.ty.shape.sizes();
    let head_size = values.ty.shape[0] / mix.kv_heads;
    let group = heads / mix.kv_heads;
    let accumulation = Accumulation::new(case.profile, Precision::of(case.output.ty.dtype), false);
    in_strips(case, tokens, |token, tally| {
        let first = super::sequence(sequences, token) * values.ty.shape[1];
        let cached: Vec<Vec<f64>> =
            (0..capacity).map(|position| values.row(first + position, &mut Vec::new()).to_vec()).collect();
        let (mut weights, mut products) = (Vec::new(), Vec::new());
        for head in 0..heads {
            let exact = p.row(head * tokens + token, &mut weights);
            let declared = Row::declared(exact, case.profile.activations).values;
            let looked_at: Vec<usize> = (0..capacity).filter(|position| exact[*position] != 0.0).collect();
            for element in 0..head_size {
                let column = head / group * head_size + element;
                products.clear();
                let cached_as = |position: &usize| weight(case.profile.weights, cached[*position][column]);
                products.extend(looked_at.iter().map(|position| cached_as(position) * declared[*position]));
                let exact =
                    looked_at.iter().fold(0.0, |sum, position| sum + cached[*position][column] * exact[*position]);
                let expected = accumulation.expected(&products, exact, None, &Loss::default());
                tally.add(token * head_size * heads + head * head_size + element, &expected);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_blocks::DType;
    use trueup_graph::{Op, TensorType, op::KvMix};
    use trueup_runtime::profile::Profile;

    /// 2 heads of 4 on 1 cached head, 1 token, capacity 70 of context 80, of which `used` positions are summed.
    fn mixed(p: &[f64], values: &[f64], used: usize) -> Vec<f64> {
        let mut all = vec![0.0; 8];
        for head in 0..2 {
            for element in 0..4 {
                let sum = (0..used).fold(0.0f32, |sum, position| {
                    (values[position * 4 + element] as f32).mul_add(p[head * 70 + position] as f32, sum)
                });
                all[head * 4 + element] = f64::from(sum);
            }
        }
        all
    }

    #[test]
    fn f32_mixtures_pass_and_a_dropped_position_does_not() {
        let values = numbers(4 * 80, 7);
        let mut p: Vec<f64> = numbers(140, 8).into_iter().map(f64::abs).collect();
        p[66..70].fill(0.0);
        p[136..140].fill(0.0);
        let inputs = [
            Operand::numbers(f32_type(&[70, 1, 2]), &p),
            Operand::numbers(f32_type(&[4, 80]), &values),
            Operand::integers(TensorType::new(DType::I32, &[1]), &[0]),
        ];
        let op = Op::KvMix(KvMix { kv_heads: 1 });
        assert!(passes(&op, &inputs, &Profile::F32, &mixed(&p, &values, 66)));
        assert!(!passes(&op, &inputs, &Profile::F32, &mixed(&p, &values, 65)));
    }

    #[test]
    fn positions_that_get_lost_behind_a_sink_are_rounding() {
        // Every position behind the first adds less than half a unit in the last place, always on the same side.
        let (capacity, mut p) = (4000, vec![2e-8; 4000]);
        p[0] = 1.0;
        let mut values = vec![1.0; capacity];
        let op = Op::KvMix(KvMix { kv_heads: 1 });
        let sum = |p: &[f64], values: &[f64]| {
            let pairs = p.iter().zip(values);
            vec![f64::from(pairs.fold(0.0f32, |sum, (p, v)| (*p as f32).mul_add(*v as f32, sum)))]
        };
        assert_eq!(sum(&p, &values), [1.0]);
        for (first, right) in [(1.0, true), (0.999, false)] {
            values[0] = first;
            let inputs = [
                Operand::numbers(f32_type(&[capacity, 1, 1]), &p),
                Operand::numbers(f32_type(&[1, capacity]), &values),
                Operand::integers(TensorType::new(DType::I32, &[1]), &[0]),
            ];
            assert_eq!(passes(&op, &inputs, &Profile::F32, &[1.0]), right, "the first value is {first}");
        }
    }
}
