//! What operators that move elements refuse.

use trueup_blocks::DType;
use trueup_graph::op::{Arrange, Cast, Concat, IndexFill, Overlay, Overlaying, SetRows};
use trueup_graph::{Op, Shape, TensorType};

#[test]
fn operators_that_move_refuse_what_lies_outside() {
    let f32 = |sizes: &[usize]| TensorType::new(DType::F32, sizes);
    let q8 = TensorType::new(DType::Q8_0, &[64, 3]);
    let view = |offset, strides, sizes: &[usize]| Op::from(Arrange::View { offset, strides, shape: Shape::new(sizes) });
    let refused: [(Op, Vec<TensorType>, &str); 11] = [
        (view(6, [1, 0, 0, 0], &[7]), vec![f32(&[4, 3])], "is outside"),
        (view(0, [usize::MAX, 1, 1, 1], &[3]), vec![f32(&[4, 3])], "is outside"),
        (Arrange::Permute { to: [0, 0, 2, 3] }.into(), vec![f32(&[4, 3])], "each of 0 to 3 once"),
        (Arrange::Transpose.into(), vec![q8], "share blocks"),
        (Arrange::Repeat { shape: Shape::new(&[5, 3]) }.into(), vec![f32(&[4, 3])], "cannot be broadcast"),
        (Arrange::Pad { before: [usize::MAX; 4], after: [1; 4] }.into(), vec![f32(&[4, 3])], "overflows"),
        (Cast { to: DType::Q8_0 }.into(), vec![f32(&[33, 2])], "do not divide"),
        (Concat { dimension: 1 }.into(), vec![f32(&[4, 3]), f32(&[5, 3])], "in dimension 1 only"),
        (Overlay { how: Overlaying::Set, start: [2, 0, 0, 0] }.into(), vec![f32(&[4]), f32(&[3])], "is outside"),
        (
            IndexFill { dimension: 0, value: f32::NAN }.into(),
            vec![f32(&[4]), TensorType::new(DType::I32, &[1])],
            "finite",
        ),
        (SetRows.into(), vec![q8, f32(&[64, 2]), TensorType::new(DType::I32, &[3])], "rows must be i32[2]"),
    ];
    for (op, inputs, sentence) in refused {
        let problem = op.infer(&inputs).unwrap_err();
        assert!(problem.contains(sentence), "{}: {problem}", op.name());
    }
}
