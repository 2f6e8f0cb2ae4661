//! `o = sum_j p_j V_j`, `p = softmax(scale K q + slope mask)` over the cached positions: the formula and the errors of
//! `flash_attn`, which stand there, with keys and values where the cache has them. Of a row whose scores are no numbers
//! nothing is said.

use super::flash_attn::{mixture, weights};
use super::soft_max::{biases, slope};
use super::{Case, in_strips, within};
use crate::activation::Row;
use crate::operand::Operand;
use crate::statistics::{Expected, Statistics};
use trueup_graph::op::{FlashAttn, KvAttention};

pub(super) fn judge(attention: &KvAttention, case: &Case) -> Statistics {
    let [q, keys, values, sequences, mask] = case.inputs else { return Statistics::default() };
    let [size, heads, tokens, _] = q.ty.shape.sizes();
    let kv_heads = keys.ty.shape[0] / size;
    let (group, width) = (heads / kv_heads, values.ty.shape[0] / kv_heads);
    let KvAttention { scale, max_bias } = *attention;
    let formula = FlashAttn { scale, max_bias, softcap: 0.0 };
    in_strips(case, tokens, |token, tally| {
        let first = super::sequence(sequences, token) * keys.ty.shape[1];
        let [mut keys, mut values] = [keys, values].map(|cache| Decoded::new(cache, first, mask.ty.shape[0]));
        let mut buffer = Vec::new();
        for head in 0..heads {
            let query = Row::declared(q.row(token * heads + head, &mut buffer), case.profile.activations).values;
            let biases = biases(Some(mask), [token, head, 0], mask.ty.shape[0], slope(max_bias, head, heads));
            let products = |position: usize| {
                let key = &keys.row(position)[head / group * size..][..size];
                key.iter().zip(&query).map(|(key, query)| key * query).collect()
            };
            let seen = weights(&formula, case, products, &biases);
            for element in 0..width {
                let column = head / group * width + element;
                let column: Vec<f64> = seen.iter().map(|seen| values.row(seen.position)[column]).collect();
                let (exact, error) = mixture(case, &seen, &column);
                let expected =
                    if exact.is_finite() { within(case, exact, error) } else { Expected::same(exact, exact) };
                tally.add((token * heads + head) * width + element, &expected);
            }
        }
    })
}

/// Rows of a cache, decoded when they are looked at: those that a mask hides never are.
struct Decoded<'a> {
    cache: &'a Operand<'a>,
    /// The row of the first position.
    first: usize,
    /// By position; empty until then.
    rows: Vec<Vec<f64>>,
    buffer: Vec<f64>,
}

impl<'a> Decoded<'a> {
    /// So many positions, the first of which is in row `first`.
    fn new(cache: &'a Operand<'a>, first: usize, count: usize) -> Decoded<'a> {
        Decoded { cache, first, rows: vec![Vec::new(); count], buffer: Vec::new() }
    }

    fn row(&mut self, position: usize) -> &[f64] {
        let row = &mut self.rows[position];
        if row.is_empty() {
            row.extend_from_slice(self.cache.row(self.first + position, &mut self.buffer));
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use crate::bound::testing::{f32_type, judged, numbers, passes};
    use crate::operand::Operand;
    use trueup_blocks::DType;
    use trueup_graph::op::KvAttention;
    use trueup_graph::{Op, TensorType};
    use trueup_runtime::profile::Profile;

    const SIZE: usize = 16;
    const CAPACITY: usize = 37;
    const CONTEXT: usize = 40;
    const OP: KvAttention = KvAttention { scale: 0.25, max_bias: 0.0 };
    const PROFILE: Profile = Profile { function_ulp: 1.0, ..Profile::F32 };
    /// Of two tokens.
    const SEQUENCES: [i32; 2] = [1, 0];

    /// What is done otherwise than the formula says.
    #[derive(Clone, Copy, PartialEq)]
    enum Change {
        None,
        /// The last position is left out.
        Dropped,
        /// All tokens look into the first sequence.
        FirstSequence,
        /// Heads take the cache's in turns.
        Interleaved,
        /// Weights are rounded to f16.
        HalfWeights,
    }

    /// 4 heads of 16 on 2 cached heads, 2 tokens, in f32: the weights first, all of them, then the mixture.
    fn attended(op: &KvAttention, [q, keys, values, mask]: [&[f64]; 4], change: Change) -> Vec<f64> {
        let mut all = Vec::new();
        for (token, head) in (0..2).flat_map(|token| (0..4).map(move |head| (token, head))) {
            let slope = if op.max_bias > 0.0 { 2f32.powf(-op.max_bias * (head as f32 + 1.0) / 4.0) } else { 1.0 };
            let sequence = if change == Change::FirstSequence { 0 } else { SEQUENCES[token] as usize };
            let kv_head = if change == Change::Interleaved { head % 2 } else { head / 2 };
            let row = |cache: &[f64], j: usize| -> Vec<f32> {
                let row = &cache[((sequence * CONTEXT + j) * 2 + kv_head) * SIZE..][..SIZE];
                row.iter().map(|x| *x as f32).collect()
            };
            let last = CAPACITY - usize::from(change == Change::Dropped);
            let seen: Vec<usize> = (0..last).filter(|j| mask[token * CAPACITY + j] != f64::NEG_INFINITY).collect();
            let query = &q[(token * 4 + head) * SIZE..][..SIZE];
            let score = |j: &usize| {
                let sum = row(keys, *j).iter().zip(query).fold(0.0f32, |sum, (k, q)| k.mul_add(*q as f32, sum));
                sum * op.scale + slope * mask[token * CAPACITY + j] as f32
            };
            let scores: Vec<f32> = seen.iter().map(score).collect();
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f32 = scores.iter().map(|score| (score - largest).exp()).sum();
            let mut mixed = [0.0f32; SIZE];
            for (j, score) in seen.iter().zip(&scores) {
                let mut weight = (score - largest).exp() / total;
                if change == Change::HalfWeights {
                    weight = half::f16::from_f32(weight).to_f32();
                }
                mixed.iter_mut().zip(row(values, *j)).for_each(|(mixed, v)| *mixed = weight.mul_add(v, *mixed));
            }
            all.extend(mixed.map(f64::from));
        }
        all
    }

    fn given() -> ([Vec<f64>; 3], Vec<f64>) {
        let caches = SIZE * 2 * CONTEXT * 2;
        let mut mask: Vec<f64> = (0..2 * CAPACITY).map(|j| (j % CAPACITY) as f64 - 36.0).collect();
        mask[3] = f64::NEG_INFINITY;
        ([numbers(SIZE * 4 * 2, 51), numbers(caches, 52), numbers(caches, 53)], mask)
    }

    fn inputs<'a>([q, keys, values, mask]: [&'a [f64]; 4]) -> [Operand<'a>; 5] {
        let cache = f32_type(&[SIZE * 2, CONTEXT, 2]);
        [
            Operand::numbers(f32_type(&[SIZE, 4, 2]), q),
            Operand::numbers(cache, keys),
            Operand::numbers(cache, values),
            Operand::integers(TensorType::new(DType::I32, &[2]), &SEQUENCES),
            Operand::numbers(f32_type(&[CAPACITY, 2]), mask),
        ]
    }

    #[test]
    fn attention_in_f32_passes_and_faults_do_not() {
        let ([q, keys, values], mask) = given();
        let tensors = [&q[..], &keys, &values, &mask];
        let passes = |op: KvAttention, result: &[f64]| passes(&op.into(), &inputs(tensors), &PROFILE, result);
        for op in [OP, KvAttention { max_bias: 8.0, ..OP }] {
            assert!(passes(op, &attended(&op, tensors, Change::None)), "{op:?}");
            for (what, change) in [
                ("a position is missing", Change::Dropped),
                ("the first sequence", Change::FirstSequence),
                ("heads in turns", Change::Interleaved),
                ("weights in f16", Change::HalfWeights),
            ] {
                assert!(!passes(op, &attended(&op, tensors, change)), "{op:?}: {what}");
            }
            let scaled = KvAttention { scale: 0.2501, ..op };
            assert!(!passes(op, &attended(&scaled, tensors, Change::None)), "{op:?}: another scale");
            let unmasked = [&q[..], &keys, &values, &[0.0; 2 * CAPACITY]];
            assert!(!passes(op, &attended(&op, unmasked, Change::None)), "{op:?}: no mask");
        }
    }

    #[test]
    fn of_a_row_whose_scores_are_no_numbers_nothing_is_said_and_one_without_any_is_0() {
        let ([mut q, keys, values], mut mask) = given();
        mask[CAPACITY..].fill(f64::NEG_INFINITY);
        let sound = attended(&OP, [&q, &keys, &values, &mask], Change::None);
        assert!(sound[SIZE * 4..].iter().all(|y| *y == 0.0));
        let op: Op = OP.into();
        assert!(passes(&op, &inputs([&q, &keys, &values, &mask]), &PROFILE, &sound));
        let mut leak = sound.clone();
        leak[SIZE * 5] = 1e-30;
        assert!(!passes(&op, &inputs([&q, &keys, &values, &mask]), &PROFILE, &leak), "a token that sees nothing");
        q[0] = f64::INFINITY;
        let mut broken = sound;
        broken[..SIZE].fill(f64::NAN);
        let statistics = judged(&op, &inputs([&q, &keys, &values, &mask]), &PROFILE, &broken);
        assert_eq!(crate::bound::gate(&op).verdict(&statistics, false), crate::verdict::Verdict::Inconclusive);
    }
}
