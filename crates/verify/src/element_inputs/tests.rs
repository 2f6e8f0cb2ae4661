use super::*;
use crate::bound::testing::{f32_type, numbers};
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_graph::op::{
    Arithmetic, KvMix, KvScores, KvStore, MulMat, MulMatId, RmsNorm, RopePairs, RopeScaling, SoftMax,
};
use trueup_runtime::profile::Profile;

fn inputs_of(op: &Op, inputs: &[Operand], index: usize) -> Option<ElementInputs> {
    let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
    let ty = op.infer(&types).unwrap();
    let result = vec![0.0; ty.shape.elements()];
    let output = Operand::numbers(ty, &result);
    let (copies, spread, collector) = (&[], &[], None);
    let profile = &Profile::F32;
    of(&Case { op, inputs, profile, output, reference: None, copies, spread, step: 0, collector }, index)
}

fn indices(shape: &[usize]) -> TensorType {
    TensorType::new(DType::I32, shape)
}

/// The values of an element by their names.
fn values(found: Option<ElementInputs>) -> Vec<(&'static str, f64)> {
    let (ElementInputs::Values { values } | ElementInputs::Row { values, .. }) = found.unwrap() else {
        panic!("products")
    };
    values.iter().map(|value| (value.name, value.value.unwrap())).collect()
}

/// The sum of the kept products and their number: where a sum has at most four, this is the element itself.
fn sum(found: Option<ElementInputs>) -> (usize, f64) {
    let ElementInputs::Products { terms, largest, .. } = found.unwrap() else { panic!("no products") };
    (terms, largest.iter().map(|product| product.first.unwrap() * product.second.unwrap()).sum())
}

#[test]
fn the_largest_products_come_first_and_what_is_no_number_before_them() {
    let w = [1.0, -5.0, 2.0, 0.0, 3.0, 0.5];
    let mut x = [1.0, 1.0, 1.0, 9.0, -1.0, 1.0];
    let op = Op::MulMat(MulMat);
    let largest = |x: &[f64]| {
        let inputs = [Operand::numbers(f32_type(&[6, 1]), &w), Operand::numbers(f32_type(&[6, 1]), x)];
        let Some(ElementInputs::Products { factors: ["w", "x"], terms: 6, largest }) = inputs_of(&op, &inputs, 0)
        else {
            panic!("no products")
        };
        largest
    };
    assert_eq!(largest(&x).iter().map(|product| product.k).collect::<Vec<_>>(), [1, 4, 2, 0]);
    assert_eq!(largest(&x)[1], Product { k: 4, first: Some(3.0), second: Some(-1.0) });
    x[5] = f64::NAN;
    assert_eq!(largest(&x)[0], Product { k: 5, first: Some(0.5), second: None });
}

#[test]
fn products_are_those_of_the_row_the_token_and_the_batch() {
    // With a depth of 3 all products are kept: their sum is the element, computed here from the shapes by hand.
    let (w, x) = (numbers(3 * 5 * 2, 1), numbers(3 * 4 * 4, 2));
    let inputs = [Operand::numbers(f32_type(&[3, 5, 2]), &w), Operand::numbers(f32_type(&[3, 4, 4]), &x)];
    for (row, token, batch) in [(0, 0, 0), (4, 3, 1), (2, 1, 2), (1, 2, 3)] {
        let expected: f64 = (0..3).map(|k| w[(batch / 2 * 5 + row) * 3 + k] * x[(batch * 4 + token) * 3 + k]).sum();
        let (terms, found) = sum(inputs_of(&Op::MulMat(MulMat), &inputs, (batch * 4 + token) * 5 + row));
        assert!(terms == 3 && (found - expected).abs() < 1e-12, "row {row}, token {token}, batch {batch}");
    }
    let inputs = [
        Operand::numbers(f32_type(&[3, 5, 2]), &w),
        Operand::numbers(f32_type(&[3, 1, 2]), &x[..6]),
        Operand::integers(indices(&[2, 2]), &[1, 0, 0, 1]),
    ];
    let expected: f64 = (0..3).map(|k| w[(5 + 4) * 3 + k] * x[3 + k]).sum();
    let (_, found) = sum(inputs_of(&Op::MulMatId(MulMatId), &inputs, (2 + 1) * 5 + 4));
    assert!((found - expected).abs() < 1e-12, "token 1 uses expert 1 in its second place");
}

#[test]
fn caches_are_read_at_the_sequence_and_the_head_of_the_token() {
    let (q, keys) = (numbers(2 * 4 * 2, 3), numbers(4 * 5 * 2, 4));
    let inputs = [
        Operand::numbers(f32_type(&[2, 4, 2]), &q),
        Operand::numbers(f32_type(&[4, 5, 2]), &keys),
        Operand::integers(indices(&[2]), &[1, 0]),
    ];
    // Head 3 of token 0 looks at head 1 of the cache, position 2 of sequence 1.
    let expected: f64 = (0..2).map(|k| q[3 * 2 + k] * keys[(5 + 2) * 4 + 2 + k]).sum();
    let op = Op::KvScores(KvScores { capacity: 3 });
    let (terms, found) = sum(inputs_of(&op, &inputs, 3 * 2 * 3 + 2));
    assert!(terms == 2 && (found - expected).abs() < 1e-12);
    let p = [0.25, 0.75, 0.0, 1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 1.0, 0.0];
    let inputs = [
        Operand::numbers(f32_type(&[3, 2, 2]), &p),
        Operand::numbers(f32_type(&[4, 5, 2]), &keys),
        Operand::integers(indices(&[2]), &[0, 1]),
    ];
    // Head 1 of token 0: the probabilities 0.5 and 0.5; element 1 of its head is column 3 of the cache.
    let (terms, found) = sum(inputs_of(&Op::KvMix(KvMix { kv_heads: 2 }), &inputs, 3));
    assert!(terms == 2 && (found - 0.5 * (keys[3] + keys[7])).abs() < 1e-12);
}

#[test]
fn elementwise_operators_show_the_elements_and_repeat_the_smaller_input() {
    let (a, b) = (numbers(6 * 4, 5), numbers(3, 6));
    let inputs = [Operand::numbers(f32_type(&[6, 4]), &a), Operand::numbers(f32_type(&[3]), &b)];
    let found = values(inputs_of(&Op::Arithmetic(Arithmetic::Add), &inputs, 2 * 6 + 5));
    assert_eq!(found, [("a", a[17]), ("b", b[2])]);
    let table: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0].iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect();
    let cache = TensorType::new(DType::F16, &[2, 2]);
    let x = [7.0, 8.0];
    let inputs = [
        Operand::blocks(cache, &table),
        Operand::numbers(f32_type(&[2, 1]), &x),
        Operand::integers(indices(&[1]), &[1]),
    ];
    assert_eq!(values(inputs_of(&Op::KvStore(KvStore), &inputs, 3)), [("x", 8.0)]);
    assert_eq!(values(inputs_of(&Op::KvStore(KvStore), &inputs, 1)), [("before", 2.0)]);
}

#[test]
fn a_rotated_element_shows_its_pair_and_its_position() {
    let x = numbers(8 * 2 * 3, 7);
    let inputs = [Operand::numbers(f32_type(&[8, 2, 3]), &x), Operand::integers(indices(&[3]), &[4, 5, 6])];
    let rope = Rope { dimensions: 6, pairs: RopePairs::Halves, base: 10_000.0, scaling: RopeScaling::None };
    let row = (2 * 2 + 1) * 8;
    let found = values(inputs_of(&Op::Rope(rope), &inputs, row + 4));
    assert_eq!(found, [("first", x[row + 1]), ("second", x[row + 4]), ("position", 6.0)]);
    assert_eq!(values(inputs_of(&Op::Rope(rope), &inputs, row + 7)), [("x", x[row + 7])]);
}

#[test]
fn rows_are_summed_up_without_what_is_masked() {
    let (x, w) = ([3.0, -4.0, 1.0, 1.0], [2.0, 0.5]);
    let inputs = [Operand::numbers(f32_type(&[2, 2]), &x), Operand::numbers(f32_type(&[2]), &w)];
    let found = inputs_of(&Op::RmsNorm(RmsNorm { epsilon: 1e-5 }), &inputs, 1);
    let Some(ElementInputs::Row { row, values: own }) = &found else { panic!("{found:?}") };
    // numpy: sqrt(mean([9, 16])) = 3.5355339059327378
    assert_eq!((row.elements, row.counted, row.min, row.max), (2, 2, Some(-4.0), Some(3.0)));
    assert!((row.rms.unwrap() - 3.535_533_905_932_737_8).abs() < 1e-15);
    assert_eq!((own[0].value, own[1].value), (Some(-4.0), Some(0.5)));
    let mask = [0.0, f64::NEG_INFINITY];
    let inputs = [Operand::numbers(f32_type(&[2, 1, 2]), &x), Operand::numbers(f32_type(&[2, 1]), &mask)];
    let found = inputs_of(&Op::SoftMax(SoftMax { scale: 1.0, max_bias: 0.0 }), &inputs, 2);
    let Some(ElementInputs::Row { row, values: own }) = &found else { panic!("{found:?}") };
    assert_eq!((row.elements, row.counted, row.min, row.max), (2, 1, Some(1.0), Some(1.0)));
    assert_eq!((own[1].name, own[1].value), ("mask", Some(0.0)));
}

#[test]
fn indices_outside_of_their_tensors_are_no_input() {
    let w = numbers(3 * 5, 8);
    let inputs = [
        Operand::numbers(f32_type(&[3, 5, 1]), &w),
        Operand::numbers(f32_type(&[3, 1, 1]), &w[..3]),
        Operand::integers(indices(&[1, 1]), &[i32::MAX]),
    ];
    assert_eq!(inputs_of(&Op::MulMatId(MulMatId), &inputs, 0), None);
}
