//! Shapes of views: where elements lie, what is refused, and how they are written down.

use trueup_blocks::DType;
use trueup_graph::op::{Arithmetic, Arrange, Gated, KvStore};
use trueup_graph::{Case, Fill, Op, Shape, Strides, TensorType};

fn f32(sizes: &[usize]) -> TensorType {
    TensorType::new(DType::F32, sizes)
}

#[test]
fn views_of_views_lie_in_the_same_memory() {
    let transposed = Op::from(Arrange::Transpose).infer(&[f32(&[5, 3, 2])]).unwrap();
    assert_eq!(transposed.to_string(), "f32[3, 5, 2] at 0 by [5, 1, 15]");
    let permuted = Op::from(Arrange::Permute { to: [2, 0, 1, 3] }).infer(&[transposed]).unwrap();
    // Dimension 0, of 3 by 5, became dimension 2; 5 by 1 became 0; 2 by 15 became 1.
    assert_eq!(permuted.to_string(), "f32[5, 2, 3] at 0 by [1, 15, 5]");
    let back = Op::from(Arrange::Transpose).infer(&[transposed]).unwrap();
    assert!(back.shape.is_dense() && back == f32(&[5, 3, 2]), "{back}");
    assert_eq!((permuted.held(), permuted.bytes()), (f32(&[30]), 120));
}

#[test]
fn results_are_dense_and_memory_is_seen_only_where_it_is_dense() {
    let view = Arrange::View { offset: 2, strides: [3, 1, 0, 0], shape: Shape::new(&[4, 2]) };
    let seen = Op::from(view).infer(&[f32(&[13])]).unwrap();
    assert_eq!(seen.held(), f32(&[13]), "2 + 3 * 3 + 1 and one more");
    assert!(Op::from(view).infer(&[f32(&[12])]).unwrap_err().contains("is outside"));
    assert_eq!(Op::from(Arithmetic::Add).infer(&[seen, f32(&[4, 2])]), Ok(f32(&[4, 2])));
    assert_eq!(Op::from(Gated::Swiglu).infer(&[f32(&[4, 2]), seen]), Ok(f32(&[4, 2])));
    let part = Arrange::View { offset: 1, strides: [1; 4], shape: Shape::new(&[3]) };
    for op in [Op::reshape(&[8]), Op::from(part)] {
        assert!(op.infer(&[seen]).unwrap_err().contains("copy it with `cpy` first"), "{}", op.name());
    }
    let rows = TensorType::new(DType::I32, &[2]);
    assert!(Op::from(KvStore).infer(&[seen, f32(&[4, 2]), rows]).unwrap_err().contains("copy it with `cpy` first"));
    let endless = f32(&[4, 2]).shape.seen_by(Strides { offset: 0, steps: [usize::MAX, 1, 1, 1] });
    let endless = TensorType { shape: endless, ..f32(&[1]) };
    assert!(Op::from(Arithmetic::Add).infer(&[endless, f32(&[4, 2])]).unwrap_err().contains("overflows"));
}

#[test]
fn strided_cases_show_the_same_sizes_of_larger_tensors() {
    let input = |sizes: &[usize]| (f32(sizes), Fill::Normal(1.0));
    let cases = Case::new(Arithmetic::Add, &[input(&[5, 3, 2]), input(&[5])]).strided();
    let shown = cases.iter().map(|case| case.inputs[0].0.to_string() + " + " + &case.inputs[1].0.to_string());
    let expected = [
        "f32[5, 3, 2] at 0 by [3, 1, 15] + f32[5]",
        "f32[5, 3, 2] at 2 by [1, 8, 24] + f32[5]",
        "f32[5, 3, 2] at 1 by [2, 10, 30] + f32[5]",
        "f32[5, 3, 2] + f32[5] at 2 by [1]",
        "f32[5, 3, 2] + f32[5] at 1 by [2]",
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
    assert!(Case::new(Op::reshape(&[30]), &[input(&[5, 3, 2])]).strided().is_empty());
}
