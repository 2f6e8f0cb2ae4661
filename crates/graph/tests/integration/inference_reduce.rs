//! What norms, sums, ranks, made tensors, images and state space models make of their inputs, and what they refuse.

use trueup_blocks::DType::{self, F16, F32, F64, I32};
use trueup_graph::op::{
    Im2Col, Make, Making, Norm, NormRule, Pool2d, Pooling, Rank, RankRule, Reduce, Reduction, SsmConv, SsmScan,
    Upscale, Window,
};
use trueup_graph::{Op, Shape, TensorType};

fn ty(dtype: DType, sizes: &[usize]) -> TensorType {
    TensorType::new(dtype, sizes)
}

fn window(size: [usize; 2], stride: [usize; 2], padding: [usize; 2], dilation: [usize; 2]) -> Window {
    Window { size, stride, padding, dilation }
}

fn reduce(rule: Reduction) -> Op {
    Reduce { rule }.into()
}

fn rank(rule: RankRule) -> Op {
    Rank { rule }.into()
}

fn make(rule: Making) -> Op {
    Make { rule, output: F32 }.into()
}

fn scan(a: &[usize], ids: usize) -> Vec<TensorType> {
    // state 16, size 2, heads 6, slots 4; tokens 5, sequences 3; groups 2
    vec![
        ty(F32, &[16, 2, 6, 4]),
        ty(F32, &[2, 6, 5, 3]),
        ty(F32, &[6, 5, 3]),
        ty(F16, a),
        ty(F32, &[16, 2, 5, 3]),
        ty(F32, &[16, 2, 5, 3]),
        ty(I32, &[ids]),
    ]
}

#[test]
fn outputs_follow_from_inputs() {
    let image = ty(F32, &[9, 7, 3, 2]);
    let wide = window([3, 2], [2, 1], [1, 0], [1, 2]);
    let embedding = make(Making::TimestepEmbedding { dimensions: 9, period_max: 1e4 });
    let cases: Vec<(Op, Vec<TensorType>, TensorType)> = vec![
        (Norm { rule: NormRule::Group { groups: 3 }, epsilon: 1e-5 }.into(), vec![image], image),
        (reduce(Reduction::Sum), vec![image], ty(F32, &[1])),
        (reduce(Reduction::Mean), vec![ty(F64, &[9, 7])], ty(F64, &[1, 7])),
        (reduce(Reduction::CumSum), vec![image], image),
        (rank(RankRule::ArgMax), vec![image], ty(I32, &[7, 3, 2])),
        (rank(RankRule::Descending), vec![image], ty(I32, &[9, 7, 3, 2])),
        (rank(RankRule::TopK { k: 4 }), vec![image], ty(I32, &[4, 7, 3, 2])),
        (make(Making::Arange { start: 1.0, stop: 0.0, step: -0.4 }), vec![], ty(F32, &[3])),
        (make(Making::AlibiSlopes { heads: 12, bias_max: 8.0 }), vec![], ty(F32, &[12])),
        (embedding, vec![ty(F32, &[5])], ty(F32, &[9, 5])),
        (Im2Col { window: wide, lines: false }.into(), vec![image], ty(F32, &[18, 5, 5, 2])),
        (
            Im2Col { window: Window::line(3, 2, 1, 1), lines: true }.into(),
            vec![ty(F64, &[9, 7, 3])],
            ty(F64, &[21, 5, 3]),
        ),
        (
            Pool2d { window: window([3, 2], [2, 3], [1, 1], [1, 1]), rule: Pooling::Max }.into(),
            vec![image],
            ty(F32, &[5, 3, 3, 2]),
        ),
        (Upscale { factors: [2, 3, 1, 1] }.into(), vec![image], ty(F32, &[18, 21, 3, 2])),
        (SsmConv.into(), vec![ty(F32, &[8, 10, 2]), ty(F16, &[4, 10])], ty(F32, &[10, 5, 2])),
        (SsmScan.into(), scan(&[16, 6], 3), ty(F32, &[2 * 6 * 5 * 3 + 16 * 2 * 6 * 3])),
        (SsmScan.into(), scan(&[1, 6], 3), ty(F32, &[2 * 6 * 5 * 3 + 16 * 2 * 6 * 3])),
    ];
    for (op, inputs, output) in cases {
        assert_eq!(op.infer(&inputs), Ok(output), "{op:?}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let image = ty(F32, &[9, 7, 3, 2]);
    let seen = |window| Op::from(Im2Col { window, lines: false });
    let pooled = |window| Op::from(Pool2d { window, rule: Pooling::Average });
    let huge = usize::MAX / 2;
    let cases: Vec<(Op, Vec<TensorType>, &str)> = vec![
        (Norm { rule: NormRule::L2, epsilon: 0.0 }.into(), vec![image], "epsilon must be positive"),
        (Norm { rule: NormRule::Group { groups: 2 }, epsilon: 1.0 }.into(), vec![image], "must divide the 3 channels"),
        (Norm { rule: NormRule::Group { groups: 0 }, epsilon: 1.0 }.into(), vec![image], "must divide the 3 channels"),
        (reduce(Reduction::Mean), vec![ty(F32, &[0, 4])], "have no mean"),
        (reduce(Reduction::Sum), vec![ty(I32, &[4])], "must be f32 or f64"),
        (rank(RankRule::ArgMax), vec![ty(F32, &[0, 4])], "no maximum"),
        (rank(RankRule::TopK { k: 10 }), vec![image], "k must be from 1 to the 9"),
        (rank(RankRule::TopK { k: 0 }), vec![image], "k must be from 1 to the 9"),
        (make(Making::Arange { start: 0.0, stop: 1.0, step: 0.0 }), vec![], "the step not 0"),
        (make(Making::Arange { start: 0.0, stop: 1e9, step: 1e-3 }), vec![], "at most 16777216 elements"),
        (make(Making::Fill { shape: Shape::new(&[huge, huge]), value: 0.0 }), vec![], "overflows"),
        (make(Making::AlibiSlopes { heads: huge, bias_max: 8.0 }), vec![], "heads must be at most"),
        (make(Making::TimestepEmbedding { dimensions: 8, period_max: 0.0 }), vec![ty(F32, &[1])], "period_max"),
        (Make { rule: Making::AlibiSlopes { heads: 1, bias_max: 8.0 }, output: F16 }.into(), vec![], "not f16"),
        (seen(window([10, 1], [1, 1], [0, 0], [1, 1])), vec![image], "a window that spans 10 does not fit into 9"),
        (seen(window([1, 1], [0, 1], [0, 0], [1, 1])), vec![image], "at least 1"),
        (seen(window([1, 1], [1, 1], [huge, 0], [1, 1])), vec![image], "at most 16777216"),
        (
            Im2Col { window: window([1, 2], [1, 1], [0, 0], [1, 1]), lines: true }.into(),
            vec![ty(F32, &[9, 7])],
            "one axis",
        ),
        (pooled(window([2, 2], [1, 1], [2, 0], [1, 1])), vec![image], "padding of at most half"),
        (pooled(window([2, 2], [1, 1], [0, 0], [2, 1])), vec![image], "no dilation"),
        (pooled(window([1, 1], [1, 1], [0, 0], [1, 1])), vec![ty(F32, &[0, 4])], "covers no element"),
        (Upscale { factors: [0, 1, 1, 1] }.into(), vec![image], "at least 1"),
        (Upscale { factors: [huge, 1, 1, 1] }.into(), vec![image], "overflows"),
        (SsmConv.into(), vec![ty(F32, &[2, 10]), ty(F32, &[4, 10])], "for the 4 taps"),
        (SsmConv.into(), vec![ty(F32, &[8, 10]), ty(F32, &[4, 9])], "w must be floating point and [taps, 10]"),
        (SsmScan.into(), scan(&[3, 6], 3), "A must be floating point and [16, 6] or [1, 6]"),
        (SsmScan.into(), scan(&[16, 6], 2), "ids must be i32[3]"),
    ];
    for (op, inputs, problem) in cases {
        let found = op.infer(&inputs).expect_err(&format!("{op:?} of {inputs:?}"));
        assert!(found.contains(problem), "{op:?}: {found}");
    }
}
