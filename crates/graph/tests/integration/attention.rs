//! Stacks of matrices, experts, masks and attention: what they make of their inputs, and what they refuse.

use trueup_blocks::DType::{self, Bf16, F16, F32, F64, I32, Q4_0};
use trueup_graph::op::{FlashAttn, MulMat, MulMatId, Rope, RopePairs, RopeScaling, SoftMax};
use trueup_graph::{Op, TensorType};

const ATTENTION: FlashAttn = FlashAttn { scale: 0.125, max_bias: 0.0, softcap: 0.0 };

fn ty(dtype: DType, sizes: &[usize]) -> TensorType {
    TensorType::new(dtype, sizes)
}

fn rope(dimensions: usize) -> Op {
    Rope { pairs: RopePairs::Halves, dimensions, base: 1e4, scaling: RopeScaling::Long { magnitude: 1.2 } }.into()
}

#[test]
fn outputs_follow_from_inputs() {
    let (k, v) = (ty(F16, &[64, 40, 2]), ty(F16, &[48, 40, 2]));
    let ids = ty(I32, &[2, 7]);
    let cases: Vec<(Op, Vec<TensorType>, TensorType)> = vec![
        (MulMat.into(), vec![ty(Q4_0, &[64, 10, 2, 3]), ty(F32, &[64, 7, 8, 3])], ty(F32, &[10, 7, 8, 3])),
        (MulMat.into(), vec![ty(F16, &[64, 10]), ty(F16, &[64, 7, 5])], ty(F32, &[10, 7, 5])),
        (MulMatId.into(), vec![ty(Q4_0, &[64, 10, 4]), ty(F64, &[64, 2, 7]), ids], ty(F64, &[10, 2, 7])),
        (MulMatId.into(), vec![ty(F32, &[64, 10, 4]), ty(F16, &[64, 1, 7]), ids], ty(F32, &[10, 2, 7])),
        (SoftMax { scale: 1.0, max_bias: 0.0 }.into(), vec![ty(F32, &[9, 3, 4])], ty(F32, &[9, 3, 4])),
        (
            SoftMax { scale: 1.0, max_bias: 8.0 }.into(),
            vec![ty(F32, &[9, 3, 4, 2]), ty(F16, &[9, 3, 2])],
            ty(F32, &[9, 3, 4, 2]),
        ),
        (ATTENTION.into(), vec![ty(F32, &[64, 7, 8]), k, v], ty(F32, &[48, 8, 7])),
        (ATTENTION.into(), vec![ty(F16, &[64, 7, 8]), k, v, ty(F16, &[40, 7])], ty(F32, &[48, 8, 7])),
        (rope(8), vec![ty(F32, &[16, 4, 7]), ty(I32, &[7, 2])], ty(F32, &[16, 4, 7])),
    ];
    for (op, inputs, output) in &cases {
        assert_eq!(op.infer(inputs).as_ref(), Ok(output), "{}", op.name());
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused_with_the_rule() {
    let (w, ids) = (ty(Q4_0, &[64, 10, 4]), ty(I32, &[2, 7]));
    let (k, v) = (ty(F16, &[64, 40, 2]), ty(F16, &[48, 40, 2]));
    let biased = SoftMax { scale: 1.0, max_bias: 8.0 };
    let cases: Vec<(Op, Vec<TensorType>, &str)> = vec![
        (MulMat.into(), vec![ty(F32, &[64, 10, 3]), ty(F32, &[64, 7, 8])], "matrices [3] do not share batches [8]"),
        (MulMat.into(), vec![ty(F32, &[64, 10]), ty(Bf16, &[64, 7])], "x must be f32, f64 or f16, not bf16"),
        (MulMatId.into(), vec![w, ty(F32, &[64, 3, 7]), ids], "x must be [64, 2, 7] or [64, 1, 7]"),
        (MulMatId.into(), vec![w, ty(F32, &[32, 2, 7]), ids], "w has rows of 64, x of 32"),
        (MulMatId.into(), vec![w, ty(F32, &[64, 2, 7]), ty(F32, &[2, 7])], "ids must be i32[used, tokens]"),
        (biased.into(), vec![ty(F32, &[9, 3, 4])], "max_bias 8 needs a mask"),
        (biased.into(), vec![ty(F32, &[9, 3, 4]), ty(F32, &[9, 3, 3])], "mask must be f32 or f16 and [9, 3]"),
        (biased.into(), vec![ty(F32, &[9, 3, 4]), ty(Bf16, &[9, 3])], "mask must be f32 or f16 and [9, 3]"),
        (ATTENTION.into(), vec![ty(F32, &[64, 7, 3]), k, v], "3 heads of 1 batches do not share k [64, 40, 2]"),
        (ATTENTION.into(), vec![ty(F32, &[32, 7, 8]), k, v], "k has rows of 64, q of 32"),
        (ATTENTION.into(), vec![ty(F32, &[64, 7, 8]), k, ty(F16, &[48, 39, 2])], "v [48, 39, 2] must have"),
        (FlashAttn { softcap: -1.0, ..ATTENTION }.into(), vec![ty(F32, &[64, 7, 8]), k, v], "softcap must be"),
        (rope(16), vec![ty(F32, &[16, 4, 7]), ty(I32, &[7, 2])], "32 RoPE dimensions must be even and at most"),
        (rope(4), vec![ty(F32, &[16, 4, 7]), ty(I32, &[7, 3])], "positions must be i32[7] or i32[7, 2]"),
    ];
    for (op, inputs, problem) in cases {
        let found = op.infer(&inputs).unwrap_err();
        assert!(found.contains(problem), "{}: {found:?} does not say {problem:?}", op.name());
    }
}
