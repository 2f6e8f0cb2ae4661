//! `y[j, t, h] = sum_d K[d, h / group, j] q[d, h, t]`: a dot product over the head size, keys as they are cached or as
//! weights are declared to be rounded.

use super::dot::{Accumulation, Loss, weight};
use super::{Case, in_strips};
use crate::activation::Row;
use crate::precision::Precision;
use crate::statistics::Statistics;

pub(super) fn judge(case: &Case) -> Statistics {
    let [q, keys, sequences] = case.inputs else { return Statistics::default() };
    let [head_size, heads, tokens, _] = q.ty.shape.sizes();
    let [capacity, ..] = case.output.ty.shape.sizes();
    let group = heads / (keys.ty.shape[0] / head_size);
    let accumulation = Accumulation::new(case.profile, Precision::of(case.output.ty.dtype), false);
    in_strips(case, tokens, |token, tally| {
        let (mut exact, mut key, mut products) = (Vec::new(), Vec::new(), Vec::new());
        let queries: Vec<(Vec<f64>, Row)> = (0..heads)
            .map(|head| {
                let exact = q.row(token * heads + head, &mut exact).to_vec();
                let declared = Row::declared(&exact, case.profile.activations);
                (exact, declared)
            })
            .collect();
        let first = super::sequence(sequences, token) * keys.ty.shape[1];
        for position in 0..capacity {
            let key = keys.row(first + position, &mut key);
            for (head, (exact, declared)) in queries.iter().enumerate() {
                let key = &key[head / group * head_size..][..head_size];
                let exact = key.iter().zip(exact).fold(0.0, |sum, (k, q)| sum + k * q);
                products.clear();
                products.extend(key.iter().zip(&declared.values).map(|(k, q)| weight(case.profile.weights, *k) * q));
                let expected = accumulation.expected(&products, exact, None, &Loss::default());
                tally.add((head * tokens + token) * capacity + position, &expected);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, numbers, passes};
    use crate::operand::Operand;
    use trueup_blocks::DType;
    use trueup_graph::{Op, TensorType, op::KvScores};
    use trueup_runtime::profile::{Profile, Weights};

    /// 4 heads of 8 on 2 cached heads, 2 tokens of sequences 1 and 0, capacity 3 of context 5.
    fn scores(q: &[f64], keys: &[f64], group: usize) -> Vec<f64> {
        let mut all = vec![0.0; 3 * 2 * 4];
        for head in 0..4 {
            for (token, sequence) in [1, 0].into_iter().enumerate() {
                for position in 0..3 {
                    let key = &keys[(sequence * 5 + position) * 16 + head / group % 2 * 8..][..8];
                    let query = &q[(token * 4 + head) * 8..][..8];
                    let score = key.iter().zip(query).fold(0.0f32, |sum, (k, q)| (*k as f32).mul_add(*q as f32, sum));
                    all[(head * 2 + token) * 3 + position] = f64::from(score);
                }
            }
        }
        all
    }

    #[test]
    fn f32_scores_pass_and_another_head_mapping_does_not() {
        let (q, keys) = (numbers(8 * 4 * 2, 5), numbers(16 * 5 * 2, 6));
        let inputs = [
            Operand::numbers(f32_type(&[8, 4, 2]), &q),
            Operand::numbers(f32_type(&[16, 5, 2]), &keys),
            Operand::integers(TensorType::new(DType::I32, &[2]), &[1, 0]),
        ];
        let op = Op::KvScores(KvScores { capacity: 3 });
        assert!(passes(&op, &inputs, &Profile::F32, &scores(&q, &keys, 2)));
        assert!(!passes(&op, &inputs, &Profile::F32, &scores(&q, &keys, 1)));
    }
    #[test]
    fn keys_that_are_declared_as_rounded_must_be() {
        let (q, keys) = (numbers(8 * 4 * 2, 5), numbers(16 * 5 * 2, 6));
        let inputs = [
            Operand::numbers(f32_type(&[8, 4, 2]), &q),
            Operand::numbers(f32_type(&[16, 5, 2]), &keys),
            Operand::integers(TensorType::new(DType::I32, &[2]), &[1, 0]),
        ];
        let op = Op::KvScores(KvScores { capacity: 3 });
        let halves: Vec<f64> = keys.iter().map(|key| half::f16::from_f64(*key).to_f64()).collect();
        let declared = Profile { weights: Weights::F16, ..Profile::F32 };
        for (profile, keys, right) in
            [(declared, &halves, true), (declared, &keys, false), (Profile::F32, &halves, false)]
        {
            assert_eq!(passes(&op, &inputs, &profile, &scores(&q, keys, 2)), right);
        }
    }
}
