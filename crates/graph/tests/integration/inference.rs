//! What each operator makes of its inputs, and what it refuses.

use trueup_blocks::DType::{self, F16, F32, F64, I32, Q4_0, Q8_0};
use trueup_graph::op::{Arithmetic, Gated, KvMix, KvScores, KvStore, MulMat, RmsNorm, Rope, RopePairs, RopeScaling};
use trueup_graph::op::{SoftMax, Unary};
use trueup_graph::{Graph, Input, Op, TensorType};

fn ty(dtype: DType, sizes: &[usize]) -> TensorType {
    TensorType::new(dtype, sizes)
}

fn rope(dimensions: usize) -> Op {
    Rope { pairs: RopePairs::Halves, dimensions, base: 1e4, scaling: RopeScaling::None }.into()
}

#[test]
fn every_case_of_the_suite_keeps_the_rule_of_its_operator() {
    for case in Op::cases() {
        let types: Vec<TensorType> = case.inputs.iter().map(|(ty, _)| *ty).collect();
        let inferred = case.op.infer(&types);
        assert!(inferred.is_ok(), "{:?} of {types:?}: {inferred:?}", case.op);
    }
}

#[test]
fn outputs_follow_from_inputs() {
    let (cache, blocks) = (ty(F16, &[32, 256, 3]), ty(Q8_0, &[64, 256, 3]));
    let cases: Vec<(Op, Vec<TensorType>, TensorType)> = vec![
        (Arithmetic::Add.into(), vec![ty(F32, &[8, 5]), ty(F32, &[8])], ty(F32, &[8, 5])),
        (Arithmetic::Sub.into(), vec![ty(F32, &[4, 1, 6]), ty(F16, &[8, 5, 2])], ty(F32, &[8, 5, 6])),
        (Arithmetic::Pow.into(), vec![ty(F32, &[3]), ty(F32, &[0, 2])], ty(F32, &[0, 2])),
        (Arithmetic::Div.into(), vec![ty(F64, &[0]), ty(F64, &[0])], ty(F64, &[0])),
        (Unary::Clamp { min: f32::NEG_INFINITY, max: 1.0 }.into(), vec![ty(F32, &[7, 2])], ty(F32, &[7, 2])),
        (Op::get_rows(F64), vec![ty(Q4_0, &[64, 100]), ty(I32, &[7])], ty(F64, &[64, 7])),
        (Op::get_rows(F32), vec![ty(F32, &[1, 9, 5]), ty(I32, &[2, 5])], ty(F32, &[1, 2, 5])),
        (MulMat.into(), vec![ty(Q4_0, &[64, 10]), ty(F32, &[64, 7])], ty(F32, &[10, 7])),
        (Op::reshape(&[16, 4, 7]), vec![ty(F32, &[64, 7])], ty(F32, &[16, 4, 7])),
        (RmsNorm { epsilon: 1e-5 }.into(), vec![ty(F32, &[16, 4, 7]), ty(F32, &[16])], ty(F32, &[16, 4, 7])),
        (rope(8), vec![ty(F32, &[16, 4, 7]), ty(I32, &[7])], ty(F32, &[16, 4, 7])),
        (rope(16), vec![ty(F64, &[16, 4, 7]), ty(I32, &[7]), ty(F32, &[8])], ty(F64, &[16, 4, 7])),
        (KvStore.into(), vec![cache, ty(F32, &[32, 7]), ty(I32, &[7])], cache),
        (KvScores { capacity: 64 }.into(), vec![ty(F32, &[16, 4, 7]), cache, ty(I32, &[7])], ty(F32, &[64, 7, 4])),
        (
            SoftMax { scale: 0.25, max_bias: 0.0 }.into(),
            vec![ty(F32, &[64, 7, 4]), ty(F32, &[64, 7])],
            ty(F32, &[64, 7, 4]),
        ),
        (KvMix { kv_heads: 2 }.into(), vec![ty(F32, &[64, 7, 4]), cache, ty(I32, &[7])], ty(F32, &[64, 7])),
        (KvStore.into(), vec![blocks, ty(F32, &[64, 7]), ty(I32, &[7])], blocks),
        (KvScores { capacity: 64 }.into(), vec![ty(F32, &[32, 4, 7]), blocks, ty(I32, &[7])], ty(F32, &[64, 7, 4])),
        (KvMix { kv_heads: 2 }.into(), vec![ty(F32, &[64, 7, 4]), blocks, ty(I32, &[7])], ty(F32, &[128, 7])),
        (Gated::Swiglu.into(), vec![ty(F64, &[9, 2]), ty(F64, &[9, 2])], ty(F64, &[9, 2])),
    ];
    for (op, inputs, output) in &cases {
        assert_eq!(op.infer(inputs).as_ref(), Ok(output), "{}", op.name());
    }
}

#[test]
fn inputs_that_do_not_fit_are_refused_with_the_rule() {
    let (cache, blocks) = (ty(F16, &[32, 256, 3]), ty(Q8_0, &[64, 256, 3]));
    let cases: Vec<(Op, Vec<TensorType>, &str)> = vec![
        (Arithmetic::Add.into(), vec![ty(F32, &[8, 5])], "takes 2 inputs, got 1"),
        (
            Arithmetic::Add.into(),
            vec![ty(F32, &[8, 5]), ty(F32, &[5])],
            "a [8, 5] and b [5] cannot be broadcast to one shape",
        ),
        (Arithmetic::Add.into(), vec![ty(F32, &[8, 5]), ty(Q4_0, &[32])], "b must be floating point, not q4_0"),
        (Arithmetic::Mul.into(), vec![ty(F16, &[8]), ty(F16, &[8])], "a must be f32 or f64, not f16"),
        (Unary::Exp.into(), vec![ty(F16, &[8])], "x must be f32 or f64, not f16"),
        (Unary::Clamp { min: 2.0, max: 1.0 }.into(), vec![ty(F32, &[8])], "min 2 must be a number not above max 1"),
        (Unary::Clamp { min: f32::NAN, max: 1.0 }.into(), vec![ty(F32, &[8])], "min NaN must be a number"),
        (Unary::Scale { factor: 1.0, bias: f32::INFINITY }.into(), vec![ty(F32, &[8])], "bias must be finite, not inf"),
        (Op::get_rows(F32), vec![ty(F32, &[8, 5]), ty(F32, &[5])], "index must be i32[n], not f32[5]"),
        (Op::get_rows(F32), vec![ty(F32, &[8, 5, 3]), ty(I32, &[2, 4])], "index must be i32[n, 3], not i32[2, 4]"),
        (Op::get_rows(F32), vec![ty(F32, &[8, 5, 3, 2]), ty(I32, &[2, 3])], "table must be a matrix or a stack"),
        (MulMat.into(), vec![ty(Q4_0, &[64, 10]), ty(F32, &[32, 7])], "w has rows of 64, x of 32"),
        (MulMat.into(), vec![ty(F32, &[64, 10]), ty(I32, &[64, 7])], "x must be f32, f64 or f16, not i32"),
        (Op::reshape(&[16, 4, 7]), vec![ty(F32, &[64, 8])], "[64, 8] has 512 elements, [16, 4, 7] has 448"),
        (RmsNorm { epsilon: 0.0 }.into(), vec![ty(F32, &[16]), ty(F32, &[16])], "epsilon must be positive"),
        (RmsNorm { epsilon: 1e-5 }.into(), vec![ty(F32, &[16]), ty(F32, &[8])], "w must be floating point and [16]"),
        (rope(7), vec![ty(F32, &[16, 4, 7]), ty(I32, &[7])], "7 RoPE dimensions must be even"),
        (rope(32), vec![ty(F32, &[16, 4, 7]), ty(I32, &[7])], "at most the head size 16"),
        (rope(16), vec![ty(F32, &[16, 4, 7]), ty(I32, &[6])], "positions must be i32[7] or i32[7, 2], not i32[6]"),
        (rope(16), vec![ty(F32, &[16, 4, 7]), ty(I32, &[7]), ty(F32, &[4])], "factors must be [8]"),
        (KvStore.into(), vec![cache, ty(F32, &[16, 7]), ty(I32, &[7])], "the cache has rows of 32, x of 16"),
        (
            KvScores { capacity: 512 }.into(),
            vec![ty(F32, &[16, 4, 7]), cache, ty(I32, &[7])],
            "capacity 512 must be between",
        ),
        (KvScores { capacity: 64 }.into(), vec![ty(F32, &[16, 3, 7]), cache, ty(I32, &[7])], "3 heads of 16 do not"),
        (
            SoftMax { scale: 1.0, max_bias: 0.0 }.into(),
            vec![ty(F32, &[64, 7, 4]), ty(F32, &[64, 4])],
            "mask must be f32 or f16 and [64, 7]",
        ),
        (KvMix { kv_heads: 3 }.into(), vec![ty(F32, &[64, 7, 4]), cache, ty(I32, &[7])], "4 heads do not share"),
        (KvStore.into(), vec![ty(Q8_0, &[40, 64]), ty(F32, &[40, 7]), ty(I32, &[7])], "rows with a multiple of 32"),
        (KvStore.into(), vec![ty(Q4_0, &[64, 64]), ty(F32, &[64, 7]), ty(I32, &[7])], "floating point or q8_0"),
        (
            KvScores { capacity: 64 }.into(),
            vec![ty(F32, &[16, 4, 7]), blocks, ty(I32, &[7])],
            "heads with a multiple of 32",
        ),
        (
            KvMix { kv_heads: 4 }.into(),
            vec![ty(F32, &[64, 7, 4]), blocks, ty(I32, &[7])],
            "heads with a multiple of 32",
        ),
        (Gated::Swiglu.into(), vec![ty(F32, &[9, 2]), ty(F32, &[9, 3])], "must have one type"),
    ];
    for (op, inputs, rule) in &cases {
        let problem = op.infer(inputs).expect_err(rule);
        assert!(problem.contains(rule), "{}: {problem:?} does not say {rule:?}", op.name());
    }
}

#[test]
fn a_node_that_does_not_fit_is_named_with_its_inputs() {
    let mut graph = Graph::default();
    let tokens = graph.input(Input::Tokens, ty(I32, &[3]));
    let weight = graph.weight("blk.0.ffn_up.weight", ty(Q4_0, &[64, 10]));
    let error = graph.node("ffn_up-0", Some(0), MulMat.into(), &[weight, tokens]).unwrap_err();
    let sentence =
        "ffn_up-0 (mul_mat) of blk.0.ffn_up.weight q4_0[64, 10], inp_tokens i32[3]: x must be f32, f64 or f16, not i32";
    assert_eq!(error.to_string(), sentence);
    assert!(graph.nodes().is_empty());
    assert_eq!(graph.weight("blk.0.ffn_up.weight", ty(Q4_0, &[64, 10])), weight, "a weight is one value");
}
