//! Each pattern is found in a result that has it.

use super::*;
use crate::activation::Row;
use crate::bound::minima_tests::{BLOCK, Coded, INTEGERS, Matrix, products};
use crate::bound::testing::numbers;
use crate::operand::UNWRITTEN;
use crate::scene::{Content, Given};
use trueup_blocks::DType;
use trueup_graph::op::MulMat;
use trueup_graph::{Op, TensorType};
use trueup_runtime::device::Usage;
use trueup_runtime::profile::Profile;

const ROWS: usize = 64;
const DEPTH: usize = 96;
const TOKENS: usize = 4;

/// A right product of 64 rows, 96 deep, for 4 tokens.
fn right() -> Scene {
    let given = |sizes: &[usize], seed| {
        let ty = TensorType::new(DType::F32, sizes);
        Given { ty, usage: Usage::Arena, content: Content::Numbers(numbers(ty.shape.elements(), seed)) }
    };
    let output = TensorType::new(DType::F32, &[ROWS, TOKENS]);
    let inputs = vec![given(&[DEPTH, ROWS], 1), given(&[DEPTH, TOKENS], 2)];
    let mut scene = Scene {
        op: Op::MulMat(MulMat),
        profile: Profile::F32,
        inputs,
        output,
        device: vec![0.0; ROWS * TOKENS],
        focus: Vec::new(),
    };
    scene.device = product(&scene, |_, _, w, x| w * x);
    scene
}

/// The product with each term as `term` of row, element, weight and activation.
fn product(scene: &Scene, term: impl Fn(usize, usize, f64, f64) -> f64) -> Vec<f64> {
    let [w, x] = [0, 1].map(|input| scene.inputs[input].operand().all());
    let sum = |token: usize, row: usize| {
        let terms = (0..DEPTH).map(|k| term(row, k, w[row * DEPTH + k], x[token * DEPTH + k]));
        f64::from(terms.sum::<f64>() as f32)
    };
    (0..TOKENS).flat_map(|token| (0..ROWS).map(move |row| (token, row))).map(|(token, row)| sum(token, row)).collect()
}

fn found(scene: &Scene, repeats: bool) -> Option<Signature> {
    let (_, expected) = scene.judged();
    signature(&Evidence::new(scene, &expected, repeats, &["row", "token"]))
}

/// What is said of a result that `change` makes of the right one.
fn said(change: impl Fn(&mut Vec<f64>)) -> (SignatureKind, String) {
    let mut scene = right();
    change(&mut scene.device);
    let found = found(&scene, false).unwrap();
    (found.kind, found.text)
}

#[test]
fn a_right_result_has_no_signature() {
    assert_eq!(found(&right(), false), None);
}

/// A change of the result, and what is to be said about it.
type Planted = (fn(&mut Vec<f64>), SignatureKind, &'static str);

#[test]
fn each_pattern_of_a_result_is_found() {
    let cases: [Planted; 18] = [
        (
            |y| (0..TOKENS).for_each(|token| y[token * ROWS + 32..][..32].fill(UNWRITTEN)),
            SignatureKind::Unwritten,
            "nothing was written to rows 32 to 63 of every token",
        ),
        (
            |y| y[ROWS..2 * ROWS].fill(UNWRITTEN),
            SignatureKind::Unwritten,
            "nothing was written to every row of token 1",
        ),
        (
            |y| y[70] = UNWRITTEN,
            SignatureKind::Unwritten,
            "nothing was written to row 6 of token 1 (1 of 256 elements)",
        ),
        (|y| y[5] = f64::INFINITY, SignatureKind::NotFinite, "1 infinite in row 5 of token 0"),
        (|y| y[ROWS..].fill(0.0), SignatureKind::Zeros, "zeros in every row of tokens 1 to 3"),
        (|y| y[9] = -y[9], SignatureKind::Sign, "the opposite sign in row 9 of token 0"),
        (|y| y.iter_mut().for_each(|y| *y *= 0.5), SignatureKind::Factor, "a factor of 0.5 on the whole result"),
        (
            |y| y[32..64].iter_mut().for_each(|y| *y *= 1.25),
            SignatureKind::Factor,
            "a factor of 1.25 on rows 32 to 63 of token 0",
        ),
        (|y| y.chunks_mut(ROWS).for_each(|y| y.swap(3, 40)), SignatureKind::Moved, "rows 3 and 40 are swapped"),
        (
            |y| y.rotate_right(ROWS),
            SignatureKind::Moved,
            "each of the 4 tokens contains the values of the previous token, wrapping around",
        ),
        (
            |y| {
                (0..ROWS)
                    .for_each(|row| (0..2).for_each(|pair| y.swap(2 * pair * ROWS + row, (2 * pair + 1) * ROWS + row)))
            },
            SignatureKind::Moved,
            "4 tokens are permuted: 1 at 0, 0 at 1, 3 at 2, 2 at 3",
        ),
        (|y| y.fill(42.0), SignatureKind::Constant, "the same number, 42, in the whole result"),
        (
            |y| y.iter_mut().enumerate().for_each(|(i, y)| *y = if i == 9 { f64::NAN } else { -*y }),
            SignatureKind::NotFinite,
            "1 NaN in row 9 of token 0; 255 others are wrong too",
        ),
        (|y| y.copy_within(0..ROWS, ROWS), SignatureKind::Moved, "token 1 contains the values of token 0"),
        (|y| y.copy_within(ROWS.., 0), SignatureKind::Moved, "contains the values of the next token"),
        (
            |y| y.chunks_mut(ROWS).for_each(|y| y.copy_within(0..ROWS - 1, 1)),
            SignatureKind::Moved,
            "each of 63 rows, starting at 1, contains the values of the previous row",
        ),
        (
            |y| *y = (0..ROWS * TOKENS).map(|i| y[i % TOKENS * ROWS + i / TOKENS]).collect(),
            SignatureKind::Transposed,
            "rows and tokens are transposed",
        ),
        (
            |y| *y = numbers(y.len(), 9),
            SignatureKind::Unknown,
            "256 of 256 elements are wrong (the whole result); no known pattern fits",
        ),
    ];
    for (change, kind, text) in cases {
        let (found, said) = said(change);
        assert!(found == kind && said.contains(text), "expected {text}, found {found:?}: {said}");
    }
}

#[test]
fn sums_that_end_early_and_wrong_weights_are_found() {
    let scene = right();
    let cases = [
        (product(&scene, |_, k, w, x| if k < 93 { w * x } else { 0.0 }), "the last 3 elements of 96 are omitted"),
        (
            product(&scene, |row, k, w, x| if row == 7 && k / 32 == 2 { 1.1 * w * x } else { w * x }),
            "weights 64 to 95 of row 7 act as if multiplied by 1.1000",
        ),
        (
            product(&scene, |row, k, w, x| if row == 7 && k == 33 { -2.0 * w * x } else { w * x }),
            "weight 33 of row 7 acts as if multiplied by -2.0000",
        ),
    ];
    for (device, text) in cases {
        let said = found(&Scene { device, ..scene.clone() }, false).unwrap();
        assert!(said.kind == SignatureKind::Depth && said.text.contains(text), "expected {text}, found {said:?}");
    }
    let exchanged = |row: usize, k: usize| if row == 7 && (k == 5 || k == 60) { 65 - k } else { k };
    let [w, x] = [0, 1].map(|input| scene.inputs[input].operand().all().into_owned());
    let sum = |token: usize, row: usize| -> f64 {
        (0..DEPTH).map(|k| w[row * DEPTH + exchanged(row, k)] * x[token * DEPTH + k]).sum()
    };
    let device = (0..TOKENS * ROWS).map(|index| f64::from(sum(index / ROWS, index % ROWS) as f32)).collect();
    let said = found(&Scene { device, ..scene.clone() }, false).unwrap();
    assert!(said.text.contains("weights 5 and 60 of row 7 are swapped"), "{said:?}");
    let mut other = scene.clone();
    let Content::Numbers(w) = &mut other.inputs[0].content else { panic!("weights are numbers") };
    w[11 * DEPTH + 32..12 * DEPTH].rotate_left(32);
    let device = product(&other, |_, _, w, x| w * x);
    let said = found(&Scene { device, ..scene }, false).unwrap();
    assert!(
        said.text.contains("block 1 of row 11 and block 2 of row 11 (blocks of 32 weights) are swapped"),
        "{said:?}"
    );
}

#[test]
fn the_result_of_the_step_before_is_stale() {
    let mut scene = right();
    scene.device = numbers(scene.device.len(), 3);
    assert_eq!(found(&scene, true).unwrap().kind, SignatureKind::Stale);
}

/// What is said of a product in integers of which `change` changes the rows.
fn said_of_blocks(dtype: DType, change: impl Fn(&mut Matrix)) -> Option<Signature> {
    let mut matrix = Matrix::of(dtype, DEPTH, 80);
    let weights = Given { ty: matrix.ty, usage: Usage::Weight, content: Content::Blocks(matrix.bytes.clone()) };
    change(&mut matrix);
    let x: Vec<f64> = numbers(DEPTH * 5, 81).into_iter().map(|x| f64::from((x + 3.0) as f32)).collect();
    let token = |x: &[f64]| x.chunks(BLOCK).map(|block| Coded::rounded(block, f32::round_ties_even)).collect();
    let tokens: Vec<Vec<Coded>> = x.chunks(DEPTH).map(token).collect();
    let device = products(&matrix.rows, &tokens);
    let output = TensorType::new(DType::F32, &[matrix.rows.len(), 5]);
    let ty = TensorType::new(DType::F32, &[DEPTH, 5]);
    let inputs = vec![weights, Given { ty, usage: Usage::Arena, content: Content::Numbers(x) }];
    let scene = Scene { op: Op::MulMat(MulMat), profile: INTEGERS, inputs, output, device, focus: Vec::new() };
    found(&scene, false)
}

#[test]
fn another_minimum_or_scale_of_a_block_is_found() {
    for dtype in [DType::Q4_1, DType::Q5_1] {
        assert_eq!(said_of_blocks(dtype, |_| {}), None);
        let text = |change: fn(&mut Matrix)| said_of_blocks(dtype, change).map_or_else(String::new, |found| found.text);
        let behind = text(|matrix| matrix.rows[7][1].minimum = matrix.rows[7][2].minimum);
        assert!(behind.starts_with("the minimum of block 1 of row 7 is -"), "{dtype}: {behind}");
        assert!(behind.ends_with(": it is the minimum of the next block"), "{dtype}: {behind}");
        let before = text(|matrix| matrix.rows[40][2].minimum = matrix.rows[40][1].minimum);
        assert!(before.contains("block 2 of row 40"), "{dtype}: {before}");
        assert!(before.ends_with(": it is the minimum of the previous block"), "{dtype}: {before}");
        let other = text(|matrix| matrix.rows[0][0].minimum = 0.0);
        assert!(other.starts_with("the minimum of block 0 of row 0 is ") && !other.contains("block be"), "{other}");
        let scale = text(|matrix| matrix.rows[3][0].scale = matrix.rows[3][1].scale);
        assert!(scale.starts_with("the scale of block 0 of row 3 is "), "{dtype}: {scale}");
        assert!(scale.ends_with("the scale of the next block"), "{dtype}: {scale}");
    }
}

/// What is said of a product of 5 tokens with rows of 512 weights, in which `change` changes the second block of row 7.
fn said_of_sub_blocks(dtype: DType, change: impl Fn(&mut [u8])) -> String {
    const LEN: usize = 512;
    let ty = TensorType::new(dtype, &[LEN, 9]);
    let mut bytes: Vec<u8> = (0..ty.bytes()).map(|place| (place * 151 % 253) as u8).collect();
    for (number, block) in bytes.chunks_mut(dtype.block_bytes()).enumerate() {
        // Scales are 1 and 0.5; those of nvfp4 are 0.5 to 0.6875.
        let scales = dtype.scale_places().unwrap_or_default().iter().zip([[0x00, 0x3C], [0x00, 0x38]]);
        scales.for_each(|(at, scale)| block[*at..at + 2].copy_from_slice(&scale));
        if dtype == DType::Nvfp4 {
            block[..4].copy_from_slice(&[0x30, 0x31, 0x32, 0x33]);
        }
        if dtype == DType::Mxfp4 {
            block[0] = 120 + (number * 3 % 8) as u8;
        }
        if dtype == DType::Q6K {
            // Each of these scales is half of the next.
            block[194..197].copy_from_slice(&[10, 20, 40]);
        }
    }
    let mut changed = bytes.clone();
    let second = 7 * LEN / dtype.block_len() + 1;
    change(&mut changed[second * dtype.block_bytes()..][..dtype.block_bytes()]);
    let x: Vec<f64> = numbers(LEN * 5, 82).into_iter().map(|x| f64::from((x + 3.0) as f32)).collect();
    let (weights, used) = (crate::operand::decode(&ty, &changed), |x: &[f64]| Row::declared(x, INTEGERS.activations));
    let product = |x: &[f64], w: &[f64]| f64::from(w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() as f32);
    let of_token = |x: &[f64]| weights.chunks(LEN).map(|w| product(&used(x).values, w)).collect::<Vec<f64>>();
    let device = x.chunks(LEN).flat_map(of_token).collect();
    let inputs = vec![
        Given { ty, usage: Usage::Weight, content: Content::Blocks(bytes) },
        Given { ty: TensorType::new(DType::F32, &[LEN, 5]), usage: Usage::Arena, content: Content::Numbers(x) },
    ];
    let output = TensorType::new(DType::F32, &[9, 5]);
    let scene = Scene { op: Op::MulMat(MulMat), profile: INTEGERS, inputs, output, device, focus: Vec::new() };
    found(&scene, false).map_or_else(String::new, |found| found.text)
}

#[test]
fn another_scale_or_minimum_of_a_sub_block_is_found() {
    let same = |_: &mut [u8]| {};
    let next = ": it is the scale of the next sub-block";
    type Change = fn(&mut [u8]);
    // The bits of one sub-block's scale, or those of a block, by ggml's layout.
    let cases: [(DType, usize, Change, [&str; 2]); 14] = [
        (DType::Q2K, 19, |block| block[3] = block[3] & 0xF0 | block[4] & 15, ["the scale of sub-block 19", next]),
        (DType::Q3K, 17, |block| block[97] = block[97] & 0xF0 | 15, ["the scale of sub-block 17", ""]),
        (DType::Q4K, 9, |block| block[5] = block[5] & 0xC0 | block[6] & 63, ["the scale of sub-block 9", next]),
        (DType::Q5K, 9, |block| block[5] = block[5] & 0xC0 | block[6] & 63, ["the scale of sub-block 9", next]),
        (DType::Q6K, 21, |block| block[197] = block[198], ["the scale of sub-block 21", next]),
        (DType::Nvfp4, 6, |block| block[2] = block[3], ["the scale of sub-block 6", next]),
        (DType::Q2K, 19, |block| block[3] &= 15, ["the minimum of sub-block 19", " is 0 instead of -"]),
        (DType::Q4K, 9, |block| block[9] &= 0xC0, ["the minimum of sub-block 9", " is 0 instead of -"]),
        (
            DType::Q6K,
            1,
            |block| block[209] = 0x40,
            ["the scale of block 1 of row 7 is 2.0000 times the correct one", ""],
        ),
        (
            DType::Tq2_0,
            1,
            |block| block[65] = 0x40,
            ["the scale of block 1 of row 7 is 2.0000 times the correct one", ""],
        ),
        (
            DType::Tq1_0,
            1,
            |block| block[53] = 0x40,
            ["the scale of block 1 of row 7 is 2.0000 times the correct one", ""],
        ),
        (DType::Q2K, 1, |block| block[83] = 0x3C, ["the minima of block 1 of row 7 are 2.0000 times", ""]),
        (DType::Q4K, 1, |block| block[3] = 0x30, ["the minima of block 1 of row 7 are 0.2500 times", ""]),
        (DType::Q5K, 1, |block| block[2..4].fill(0), ["the minima of block 1 of row 7 are 0.0000 times", ""]),
    ];
    for (dtype, place, change, texts) in cases {
        assert_eq!(said_of_sub_blocks(dtype, same), "", "{dtype}, sub-block {place}: unchanged");
        let said = said_of_sub_blocks(dtype, change);
        assert!(said.contains("of row 7 ") && said.starts_with(texts[0]), "{dtype}, expected {texts:?}: {said}");
        assert!(said.contains(texts[1]), "{dtype}, expected {texts:?}: {said}");
    }
}

/// 32 weights of q6_k are two sub-blocks; a block of mxfp4 has one scale.
#[test]
fn a_scale_of_32_weights_is_that_of_a_neighbor() {
    let said = said_of_sub_blocks(DType::Q6K, |block| block[194..196].copy_from_slice(&[20, 40]));
    assert!(said.starts_with("weights 288 to 319 of row 7 act as if multiplied by 2.0000"), "{said}");
    assert!(said.ends_with("their block uses the scale of the next sub-block"), "{said}");
    let said = said_of_sub_blocks(DType::Q6K, |block| block[194..196].copy_from_slice(&[30, 60]));
    assert!(said.contains("act as if multiplied by 3.0000") && !said.contains("sub-block"), "{said}");
    // Block 113 has the exponent 120 + 339 % 8, and the next one 3 more.
    let said = said_of_sub_blocks(DType::Mxfp4, |block| block[0] = 126);
    assert!(said.starts_with("weights 32 to 63 of row 7 act as if multiplied by 8.0000"), "{said}");
    assert!(said.ends_with("their block uses the scale of the next block"), "{said}");
}
