//! How much an operator moves and computes at least, from its shapes and, where these do not say it, from its inputs.

use crate::host_tensor::HostTensor;
use std::collections::BTreeMap;
use trueup_graph::{Op, TensorType};

/// What one node takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// Bytes read and written once each.
    pub bytes: u64,
    /// Multiplications and additions of products; 0 where memory is the only limit.
    pub operations: u64,
}

/// Where attention reads keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Caches {
    /// One cache holds the keys, another one the values.
    Separate,
    /// The values are a part of the cached keys, as in multi-head latent attention.
    Shared,
}

impl Work {
    /// The work of an operator on these types: none for a view. Tables, caches and experts count with what is used of
    /// them at most.
    pub fn of(op: &Op, inputs: &[TensorType], output: &TensorType) -> Work {
        let all = |types: &[TensorType]| types.iter().map(|ty| ty.bytes() as u64).sum::<u64>();
        let written = output.bytes() as u64;
        let whole = Work { bytes: all(inputs) + written, operations: 0 };
        if op.is_view() {
            return Work { bytes: 0, operations: 0 };
        }
        match (op.name(), inputs) {
            ("mul_mat_id", [w, x, ids]) => {
                let experts = w.shape[2].max(1);
                let read = w.bytes() / experts * experts.min(ids.shape.elements());
                let bytes = read as u64 + all(&[*x, *ids]) + written;
                Work { bytes, operations: products(w.shape[0], output) }
            }
            ("flash_attn", [q, k, ..]) => {
                let scores = q.shape.rows() as u64 * k.shape[1] as u64;
                let scored = 2 * q.shape[0] as u64 * scores;
                Work { operations: scored + products(k.shape[1], output), ..whole }
            }
            ("ssm_conv", [_, w]) => Work { operations: products(w.shape[0], output), ..whole },
            (_, [w, ..]) if matches!(op, Op::MulMatGated(_)) => {
                Work { operations: 2 * products(w.shape[0], output), ..whole }
            }
            ("mul_mat", [w, _]) => Work { operations: products(w.shape[0], output), ..whole },
            ("kv_scores", [q, keys, _]) => {
                let read = used(keys, output.shape[0]);
                Work { bytes: all(&[*q]) + read + written, operations: products(q.shape[0], output) }
            }
            ("kv_attention", [q, keys, values, sequences, mask]) => {
                let (positions, queries) = (mask.shape[0], q.shape.rows());
                let visible = Visible { positions, pairs: positions as u64 * queries as u64 };
                Work::of_attention([q, keys, values, sequences, mask], Caches::Separate, output, visible)
            }
            ("kv_mix", [p, values, _]) => {
                let read = used(values, p.shape[0]);
                Work { bytes: all(&[*p]) + read + written, operations: products(p.shape[0], output) }
            }
            ("get_rows", [table, index]) => {
                Work { bytes: used(table, index.shape.elements()) + all(&[*index]) + written, operations: 0 }
            }
            ("kv_store", [cache, x, rows]) => {
                Work { bytes: all(&[*x, *rows]) + used(cache, x.shape[1]), operations: 0 }
            }
            _ => whole,
        }
    }

    /// As [`Work::of`], but of attention over the cache with what its tokens see only: `read` gives the inputs that say
    /// it.
    pub fn of_contents<E>(
        op: &Op,
        caches: Caches,
        inputs: &[TensorType],
        output: &TensorType,
        read: impl Fn(usize) -> Result<HostTensor, E>,
    ) -> Result<Work, E> {
        let (Op::KvAttention(_), [q, keys, values, sequences, mask]) = (op, inputs) else {
            return Ok(Work::of(op, inputs, output));
        };
        let visible = Visible::of(&read(SEQUENCES)?, &read(MASK)?, q.shape.rows());
        Ok(Work::of_attention([q, keys, values, sequences, mask], caches, output, visible))
    }

    /// Of `kv_attention`.
    fn of_attention(
        [q, keys, values, sequences, mask]: [&TensorType; 5],
        caches: Caches,
        output: &TensorType,
        visible: Visible,
    ) -> Work {
        let once = [q, sequences, mask, output].iter().map(|ty| ty.bytes() as u64).sum::<u64>();
        let read = match caches {
            Caches::Separate => used(keys, visible.positions) + used(values, visible.positions),
            Caches::Shared => used(keys, visible.positions),
        };
        let width = output.shape.elements() / q.shape.rows().max(1);
        Work { bytes: once + read, operations: 2 * (q.shape[0] + width) as u64 * visible.pairs }
    }
}

/// The tokens' sequences among the inputs of `kv_attention`.
const SEQUENCES: usize = 3;

/// The mask there.
const MASK: usize = 4;

/// How much of a cache the tokens of a batch see.
#[derive(Clone, Copy)]
struct Visible {
    /// Positions of all sequences that a token sees.
    positions: usize,
    /// Pairs of a query, one of each token and head, and a position that it sees.
    pairs: u64,
}

impl Visible {
    /// From i32 `[tokens]` and a mask `[capacity, tokens, ...]` that is repeated for so many `queries`; -inf hides.
    fn of(sequences: &HostTensor, mask: &HostTensor, queries: usize) -> Visible {
        let (sequences, capacity) = (sequences.to_indices(), mask.ty().shape[0].max(1));
        let mut seen: BTreeMap<i32, Vec<bool>> = BTreeMap::new();
        let mut shown = 0;
        for (row, sequence) in mask.values().chunks_exact(capacity).zip(sequences.iter().cycle()) {
            let seen = seen.entry(*sequence).or_insert_with(|| vec![false; capacity]);
            for (mask, seen) in row.iter().zip(seen) {
                let is_shown = *mask != f64::NEG_INFINITY;
                shown += u64::from(is_shown);
                *seen |= is_shown;
            }
        }
        let repeated = queries as u64 / (mask.ty().shape.rows() as u64).max(1);
        Visible { positions: seen.values().flatten().filter(|seen| **seen).count(), pairs: shown * repeated }
    }
}

/// Operations of a result whose elements are sums of `len` products each.
fn products(len: usize, output: &TensorType) -> u64 {
    2 * len as u64 * output.shape.elements() as u64
}

/// Bytes of so many rows of a table, or of one sequence of a cache; not more than there are.
fn used(table: &TensorType, rows: usize) -> u64 {
    let row = table.bytes() / table.shape.rows().max(1);
    (row * rows.min(table.shape.rows())) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_blocks::DType;
    use trueup_graph::op::{FlashAttn, Gated, KvAttention, MulMat, MulMatGated, MulMatId};

    #[test]
    fn work_follows_from_shapes() {
        let ty = |dtype, sizes: &[usize]| TensorType::new(dtype, sizes);
        let inputs = [ty(DType::Q4_0, &[64, 10]), ty(DType::F32, &[64, 3])];
        let work = Work::of(&MulMat.into(), &inputs, &ty(DType::F32, &[10, 3]));
        assert_eq!(work, Work { bytes: 360 + 768 + 120, operations: 2 * 64 * 30 });
        let inputs = [ty(DType::Q4_0, &[64, 10]), ty(DType::Q8_0, &[64, 10]), ty(DType::F32, &[64, 3])];
        let fused = MulMatGated { gated: Gated::Swiglu };
        let work = Work::of(&fused.into(), &inputs, &ty(DType::F32, &[10, 3]));
        assert_eq!(work, Work { bytes: 360 + 680 + 768 + 120, operations: 2 * 2 * 64 * 30 });
        let inputs = [ty(DType::Q8_0, &[32, 1000]), ty(DType::I32, &[2])];
        let work = Work::of(&Op::get_rows(DType::F32), &inputs, &ty(DType::F32, &[32, 2]));
        assert_eq!(work, Work { bytes: 68 + 8 + 256, operations: 0 });
        let inputs = [ty(DType::F32, &[8, 4, 16]), ty(DType::F32, &[8, 1, 3]), ty(DType::I32, &[2, 3])];
        let work = Work::of(&MulMatId.into(), &inputs, &ty(DType::F32, &[4, 2, 3]));
        assert_eq!(work, Work { bytes: 6 * 128 + 96 + 24 + 96, operations: 2 * 8 * 24 });
        let inputs = [ty(DType::F32, &[8, 5, 4]), ty(DType::F16, &[8, 9, 2]), ty(DType::F16, &[6, 9, 2])];
        let attention = FlashAttn { scale: 1.0, max_bias: 0.0, softcap: 0.0 };
        let work = Work::of(&attention.into(), &inputs, &ty(DType::F32, &[6, 4, 5]));
        assert_eq!(work, Work { bytes: 640 + 288 + 216 + 480, operations: 2 * (8 + 6) * 9 * 5 * 4 });
        let cache = ty(DType::F16, &[16, 20, 3]);
        let inputs = [ty(DType::F32, &[8, 4, 5]), cache, cache, ty(DType::I32, &[5]), ty(DType::F32, &[9, 5])];
        let attention = KvAttention { scale: 1.0, max_bias: 0.0 };
        let work = Work::of(&attention.into(), &inputs, &ty(DType::F32, &[32, 5]));
        assert_eq!(work, Work { bytes: 640 + 2 * 9 * 32 + 20 + 180 + 640, operations: 2 * (8 + 8) * 9 * 5 * 4 });
        let x = ty(DType::F32, &[4, 3]);
        assert_eq!(Work::of(&Op::reshape(&[12]), &[x], &x), Work { bytes: 0, operations: 0 });
    }

    #[test]
    fn attention_is_counted_by_what_its_tokens_see() {
        let ty = |dtype, sizes: &[usize]| TensorType::new(dtype, sizes);
        let cache = ty(DType::F16, &[16, 20, 3]);
        let op = KvAttention { scale: 1.0, max_bias: 0.0 }.into();
        let output = ty(DType::F32, &[32, 4]);
        // Two tokens of one sequence see positions 0 to 2 and 1 to 3, one of another sees 0, one sees nothing.
        let seen: [&[usize]; 4] = [&[0, 1, 2], &[1, 2, 3], &[0], &[]];
        for planes in [1, 4] {
            let mask_type = ty(DType::F32, &[9, 4, planes]);
            let cell = |i: usize| if seen[i / 9 % 4].contains(&(i % 9)) { -0.5 } else { f64::NEG_INFINITY };
            let mask = HostTensor::real(mask_type, (0..36 * planes).map(cell).collect());
            let sequences = HostTensor::indices(&[2, 2, 0, 1]);
            let inputs = [ty(DType::F32, &[8, 4, 4]), cache, cache, *sequences.ty(), mask_type];
            let read = |place: usize| match place {
                SEQUENCES => Ok(sequences.clone()),
                MASK => Ok(mask.clone()),
                _ => Err(place),
            };
            for (caches, count) in [(Caches::Separate, 2), (Caches::Shared, 1)] {
                let work = Work::of_contents(&op, caches, &inputs, &output, read).unwrap();
                let bytes = 512 + count * 5 * 32 + 16 + 144 * planes as u64 + 512;
                // 7 positions of a token, 4 heads.
                assert_eq!(work, Work { bytes, operations: 2 * (8 + 8) * 7 * 4 }, "{planes} planes, {caches:?}");
            }
        }
        let inputs = [ty(DType::F32, &[8, 3]), ty(DType::F32, &[8])];
        let norm = Op::from(trueup_graph::op::RmsNorm { epsilon: 1e-5 });
        let read = |place: usize| Err::<HostTensor, usize>(place);
        let expected = Work::of(&norm, &inputs, &inputs[0]);
        let found = Work::of_contents(&norm, Caches::Separate, &inputs, &inputs[0], read);
        assert_eq!(found, Ok(expected), "nothing else is read");
    }
}
