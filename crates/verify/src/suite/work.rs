//! How much an operator moves and computes at least, from its shapes.

use trueup_graph::{Op, TensorType};

/// What one node takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Work {
    /// Bytes read and written once each.
    pub bytes: u64,
    /// Multiplications and additions of products; 0 where memory is the only limit.
    pub operations: u64,
}

impl Work {
    /// The work of an operator on these types. Tables and caches count with the rows that are used.
    pub fn of(op: &Op, inputs: &[TensorType], output: &TensorType) -> Work {
        let all = |types: &[TensorType]| types.iter().map(|ty| ty.bytes() as u64).sum::<u64>();
        let written = output.bytes() as u64;
        let whole = Work { bytes: all(inputs) + written, operations: 0 };
        match (op.name(), inputs) {
            ("mul_mat", [w, _]) => Work { operations: products(w.shape[0], output), ..whole },
            ("kv_scores", [q, keys, _]) => {
                let read = used(keys, output.shape[0]);
                Work { bytes: all(&[*q]) + read + written, operations: products(q.shape[0], output) }
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
    use trueup_graph::op::MulMat;

    #[test]
    fn work_follows_from_shapes() {
        let ty = |dtype, sizes: &[usize]| TensorType::new(dtype, sizes);
        let inputs = [ty(DType::Q4_0, &[64, 10]), ty(DType::F32, &[64, 3])];
        let work = Work::of(&MulMat.into(), &inputs, &ty(DType::F32, &[10, 3]));
        assert_eq!(work, Work { bytes: 360 + 768 + 120, operations: 2 * 64 * 30 });
        let inputs = [ty(DType::Q8_0, &[32, 1000]), ty(DType::I32, &[2])];
        let work = Work::of(&Op::get_rows(DType::F32), &inputs, &ty(DType::F32, &[32, 2]));
        assert_eq!(work, Work { bytes: 68 + 8 + 256, operations: 0 });
    }
}
