//! How much an operator moves and computes at least, from its shapes.

use trueup_graph::{Op, TensorType};

/// What one node takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// Bytes read and written once each.
    pub bytes: u64,
    /// Multiplications and additions of products; 0 where memory is the only limit.
    pub operations: u64,
}

impl Work {
    /// The work of an operator on these types: none for a view. Tables, caches and experts count with what is used of them at most.
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
                let capacity = mask.shape[0];
                let read = all(&[*q, *sequences, *mask]) + used(keys, capacity) + used(values, capacity);
                let scored = 2 * q.shape.elements() as u64 * capacity as u64;
                Work { bytes: read + written, operations: scored + products(capacity, output) }
            }
            ("kv_mix", [p, values, _]) => {
                let read = used(values, p.shape[0]);
                Work { bytes: all(&[*p]) + read + written, operations: products(p.shape[0], output) }
            }
            ("get_rows", [table, index]) => {
                Work { bytes: used(table, index.shape[0]) + all(&[*index]) + written, operations: 0 }
            }
            ("kv_store", [cache, x, rows]) => {
                Work { bytes: all(&[*x, *rows]) + used(cache, x.shape[1]), operations: 0 }
            }
            _ => whole,
        }
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
}
