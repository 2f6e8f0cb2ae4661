//! Matrix products: what the cube does to its inputs, weights in NZ and quantized, faults and orders.

use crate::card::*;
use std::ptr::null_mut;

/// a (m, k) times b (k, n) in f64.
fn product(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|t| a[i * k + t] * b[t * n + j]).sum();
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| at(i, j)).collect()
}

fn turned(matrix: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| matrix[row * columns + column])).collect()
}

/// f32 with 11 significand bits.
fn hf32(values: &[f64]) -> Vec<f64> {
    values
        .iter()
        .map(|&value| {
            let unit = 2f64.powi(value.abs().log2().floor() as i32 - 10);
            (value / unit).round_ties_even() * unit
        })
        .collect()
}

#[test]
fn the_cube_rounds_its_inputs_by_its_math_type() {
    let card = Card::open(r#"{"chip": "910b"}"#);
    let (m, k, n) = (5usize, 33, 17);
    let (a, b) = (drawn(m * k, 1, 2.0), drawn(k * n, 2, 2.0));
    let (a, b) = (rounded(F32, &a), rounded(F32, &b));
    let (x, w) = (card.numbers(F32, &[5, 33], &a), card.numbers(F32, &[33, 17], &b));
    let out = card.blank(F32, &[5, 17]);
    let exact = product(&a, &b, m, k, n);
    let low = product(&hf32(&a), &hf32(&b), m, k, n);
    // Told to take f16, a cube that takes f32 writes f16 too: half a unit in its last place, and a sum's noise may take
    // it to the next.
    let half = product(&rounded(F16, &a), &rounded(F16, &b), m, k, n);
    for (math, expected) in [(0i8, &exact), (1, &low), (3, &low), (4, &exact)] {
        card.done("Mm", (x.handle, w.handle, out.handle, math));
        near(&format!("math {math}"), &card.values(out), expected, 2e-6);
    }
    card.done("Mm", (x.handle, w.handle, out.handle, 2i8));
    let written = card.values(out);
    near("math 2", &written, &half, 2e-3);
    assert_eq!(written, rounded(F16, &written), "what is written are f16");
    let off = exact.iter().zip(&half).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off > 1e-4, "the test tells f16 from f32");
    card.refused("Mm", (x.handle, w.handle, out.handle, 5i8), 161002, "cubeMathType is 5");
}

#[test]
fn other_chips_have_other_math_types() {
    let card = Card::open(r#"{"chip": "310p"}"#);
    let (a, b) = (rounded(F32, &drawn(20, 1, 2.0)), rounded(F32, &drawn(30, 2, 2.0)));
    let (x, w) = (card.numbers(F32, &[4, 5], &a), card.numbers(F32, &[5, 6], &b));
    let out = card.blank(F32, &[4, 6]);
    card.refused("Mm", (x.handle, w.handle, out.handle, 0i8), 161002, "does not support f32");
    card.refused("Mm", (x.handle, w.handle, out.handle, 3i8), 161002, "HF32");
    card.done("Mm", (x.handle, w.handle, out.handle, 1i8));
    near("f16", &card.values(out), &product(&rounded(F16, &a), &rounded(F16, &b), 4, 5, 6), 1e-6);
    let brain = card.blank(BF16, &[4, 5]);
    card.refused("Mm", (brain.handle, w.handle, out.handle, 1i8), 161002, "self is bf16, Ascend310P3 supports");
}

#[test]
fn weights_may_be_swapped_views_and_batches_stretch() {
    let card = Card::open("{}");
    let (a, b) = (rounded(F16, &drawn(2 * 3 * 4 * 40, 3, 1.0)), rounded(F16, &drawn(3 * 40 * 9, 4, 1.0)));
    let x = card.numbers(F16, &[2, 3, 4, 40], &a);
    let w = card.upload(&encode(F16, &b));
    let swapped = card.view(w, F16, &[3, 40, 9], &[360, 1, 40], 0, 2);
    let out = card.blank(F16, &[2, 3, 4, 9]);
    card.done("Matmul", (x.handle, swapped, out.handle, 1i8));
    let mut expected = Vec::new();
    for batch in 0..6 {
        let right = turned(&b[batch % 3 * 360..][..360], 9, 40);
        expected.extend(product(&a[batch * 160..][..160], &right, 4, 40, 9));
    }
    near("batches", &card.values(out), &expected, 1e-3);
    card.refused("Mm", (x.handle, swapped, out.handle, 1i8), 161002, "has 4 axes, 2 to 2 are taken");
    let other = card.blank(F16, &[2, 3, 4, 8]);
    card.refused("Matmul", (x.handle, swapped, other.handle, 1i8), 161002, "out has the shape [2, 3, 4, 8]");
    let short = card.blank(F16, &[39, 9]);
    card.refused("Matmul", (x.handle, short.handle, out.handle, 1i8), 161002, "mat2 has the shape [39, 9]");
}

#[test]
fn vectors_and_added_products() {
    let card = Card::open("{}");
    let (a, b) = (rounded(F32, &drawn(12, 3, 1.0)), rounded(F32, &drawn(4, 4, 1.0)));
    let (x, v, out) = (card.numbers(F32, &[3, 4], &a), card.numbers(F32, &[4], &b), card.blank(F32, &[3]));
    card.done("Mv", (x.handle, v.handle, out.handle, 0i8));
    near("mv", &card.values(out), &product(&a, &b, 3, 4, 1), 1e-6);
    let (column, sum) = (card.numbers(F32, &[4, 1], &b), card.blank(F32, &[3, 1]));
    let bias = card.numbers(F32, &[1], &[10.0]);
    card.done("Addmm", (bias.handle, x.handle, column.handle, card.scalar(0.5), card.scalar(2.0), sum.handle, 0i8));
    let expected: Vec<f64> = product(&a, &b, 3, 4, 1).into_iter().map(|value| 5.0 + 2.0 * value).collect();
    near("addmm", &card.values(sum), &expected, 1e-6);
}

#[test]
fn a_weight_in_nz_gives_the_same_product() {
    let card = Card::open("{}");
    let (n, k) = (20usize, 37);
    let (a, b) = (rounded(F16, &drawn(3 * k, 5, 1.0)), rounded(F16, &drawn(n * k, 6, 1.0)));
    let x = card.numbers(F16, &[3, 37], &a);
    let mut stored = encode(F16, &b);
    let size: unsafe extern "C" fn(Handle, i32, *mut u64) -> i32 = card.symbol("aclnnCalculateMatmulWeightSizeV2");
    let mut elements = 0u64;
    // SAFETY: as the C interface says.
    assert_eq!(unsafe { size(card.ints(&[20, 37]), F16, &mut elements) }, 0);
    assert_eq!(elements, 32 * 48);
    let endless = [1 << 31, 1 << 31, 1 << 31, 16, 16];
    // SAFETY: as the C interface says.
    assert_eq!(unsafe { size(card.ints(&endless), F16, &mut elements) }, 161002);
    assert!(card.message().contains("larger than any card"), "{}", card.message());
    stored.resize(elements as usize * 2, 0);
    let w = card.upload(&stored);
    let plain = card.view(w, F16, &[20, 37], &[37, 1], 0, 2);
    card.done("TransMatmulWeight", (plain,));
    let fractal = decode(F16, &card.download(w, elements as usize * 2));
    let (row, column) = (18, 35);
    assert_eq!(fractal[column / 16 * 32 * 16 + row / 16 * 256 + row % 16 * 16 + column % 16], b[row * k + column]);
    let swapped = card.view(w, F16, &[37, 20], &[1, 37], 0, 29);
    let out = card.blank(F16, &[3, 20]);
    card.done("Mm", (x.handle, swapped, out.handle, 2i8));
    near("nz", &card.values(out), &product(&a, &turned(&b, n, k), 3, k, n), 1e-3);
}

#[test]
fn a_swapped_weight_in_nz_gives_the_same_product() {
    let card = Card::open("{}");
    for (shape, strides) in [(vec![32i64, 16], vec![1i64, 32]), (vec![2, 32, 16], vec![512, 1, 32])] {
        let batches = shape.len() - 1;
        let (a, b) = (rounded(F16, &drawn(batches * 96, 5, 1.0)), rounded(F16, &drawn(batches * 512, 6, 1.0)));
        let rows = [&shape[..batches - 1], &[3, 32]].concat();
        let x = card.numbers(F16, &rows, &a);
        let w = card.view(card.upload(&encode(F16, &b)), F16, &shape, &strides, 0, 2);
        let out = card.blank(F16, &[&shape[..batches - 1], &[3, 16]].concat());
        let expected: Vec<f64> = (0..batches)
            .flat_map(|batch| product(&a[batch * 96..][..96], &turned(&b[batch * 512..][..512], 16, 32), 3, 32, 16))
            .collect();
        card.done("Matmul", (x.handle, w, out.handle, 0i8));
        near("swapped", &card.values(out), &expected, 1e-3);
        card.done("TransMatmulWeight", (w,));
        card.done("Matmul", (x.handle, w, out.handle, 0i8));
        near("swapped in nz", &card.values(out), &expected, 1e-3);
    }
}

#[test]
fn a_chip_without_nz_says_so() {
    let card = Card::open(r#"{"chip": "910a"}"#);
    let size: unsafe extern "C" fn(Handle, i32, *mut u64) -> i32 = card.symbol("aclnnCalculateMatmulWeightSizeV2");
    let mut elements = 0u64;
    // SAFETY: as the C interface says.
    assert_eq!(unsafe { size(card.ints(&[20, 37]), F16, &mut elements) }, 361001);
    assert!(card.message().contains("support for Ascend910A is not implemented"));
}

/// Quants (n, k) of int8, scales (n, k / 32), and the decoded weight rounded to f16.
fn quantized(n: usize, k: usize, limit: f64) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let quants: Vec<f64> = drawn(n * k, 7, limit + 0.99).into_iter().map(f64::trunc).collect();
    let scales = rounded(F16, &drawn(n * k / 32, 8, 0.02));
    let decoded: Vec<f64> = (0..n * k).map(|at| quants[at] * scales[at / 32]).collect();
    (quants, scales, rounded(F16, &decoded))
}

#[test]
fn the_product_with_int8_groups_is_that_of_decoded_weights() {
    let card = Card::open("{}");
    let (m, n, k) = (3usize, 10, 96);
    let (quants, scales, decoded) = quantized(n, k, 127.0);
    let a = rounded(F16, &drawn(m * k, 9, 1.0));
    let x = card.numbers(F16, &[3, 96], &a);
    let weight = card.view(card.upload(&encode(I8, &quants)), I8, &[96, 10], &[1, 96], 0, 2);
    let scale = card.view(card.upload(&encode(F16, &scales)), F16, &[3, 10], &[1, 3], 0, 2);
    let y = card.blank(F16, &[3, 10]);
    let call = |x: Handle, weight: Handle, scale: Handle, group: i32, y: Handle| {
        (x, weight, scale, null_mut::<()>(), null_mut::<()>(), null_mut::<()>(), null_mut::<()>(), group, y)
    };
    let name = "WeightQuantBatchMatmulV2";
    card.done(name, call(x.handle, weight, scale, 32, y.handle));
    near("int8", &card.values(y), &product(&a, &turned(&decoded, n, k), m, k, n), 1e-3);
    for (group, words) in [
        (31, "antiquantGroupSize is 31"),
        (96, "antiquantGroupSize is 96"),
        (-32, "antiquantGroupSize is -32"),
        (64, "antiquantScale has the shape [3, 10]"),
        (0, "antiquantScale has the shape"),
    ] {
        card.refused(name, call(x.handle, weight, scale, group, y.handle), 161002, words);
    }
    let narrow = card.view(card.upload(&encode(I8, &quants)), I8, &[96, 10], &[2, 192], 0, 2);
    card.refused(name, call(x.handle, narrow, scale, 32, y.handle), 161002, "weight is strided");
    let wide = card.blank(F32, &[3, 96]);
    card.refused(
        name,
        call(wide.handle, weight, scale, 32, y.handle),
        161002,
        "x is f32, Ascend910B1 supports f16, bf16",
    );
    let long = card.blank(F16, &[1, 65_536]);
    let (column, y1) = (card.blank(I8, &[65_536, 1]), card.blank(F16, &[1, 1]));
    let scale1 = card.blank(F16, &[1]);
    card.refused(name, call(long.handle, column.handle, scale1.handle, 0, y1.handle), 161002, "k 65536, at most 65535");
    let bias = card.blank(F16, &[10]);
    card.refused(
        name,
        (x.handle, weight, scale, null_mut::<()>(), bias.handle, null_mut::<()>(), null_mut::<()>(), 32i32, y.handle),
        161002,
        "quantScaleOptional is not null",
    );
}

#[test]
fn int4_lies_low_nibble_first() {
    let card = Card::open("{}");
    let (m, n, k) = (2usize, 6, 64);
    let (quants, scales, decoded) = quantized(n, k, 7.0);
    let a = rounded(F16, &drawn(m * k, 9, 1.0));
    let nibbles: Vec<u8> =
        quants.chunks(2).map(|pair| (pair[0] as i8 as u8 & 15) | (pair[1] as i8 as u8) << 4).collect();
    let x = card.numbers(F16, &[2, 64], &a);
    let weight = card.view(card.upload(&nibbles), I4, &[64, 6], &[1, 64], 0, 2);
    let scale = card.view(card.upload(&encode(F16, &scales)), F16, &[2, 6], &[1, 2], 0, 2);
    let y = card.blank(F16, &[2, 6]);
    let none = null_mut::<()>();
    card.done("WeightQuantBatchMatmulV2", (x.handle, weight, scale, none, none, none, none, 32i32, y.handle));
    near("int4", &card.values(y), &product(&a, &turned(&decoded, n, k), m, k, n), 1e-3);
    let words = card.numbers(I32, &[6, 64], &quants);
    let packed_into = card.view(card.upload(&vec![0; nibbles.len()]), I4, &[6, 64], &[64, 1], 0, 2);
    card.done("ConvertWeightToINT4Pack", (words.handle, packed_into));
    let odd = card.view(card.upload(&nibbles), I4, &[64, 5], &[5, 1], 0, 2);
    let (scale5, y5) = (card.blank(F16, &[2, 5]), card.blank(F16, &[2, 5]));
    card.refused(
        "WeightQuantBatchMatmulV2",
        (x.handle, odd, scale5.handle, none, none, none, none, 32i32, y5.handle),
        161002,
        "a stride of it is odd",
    );
    let single = card.view(card.upload(&nibbles), I4, &[1, 5], &[5, 1], 0, 2);
    let (x1, scale1) = (card.blank(F16, &[2, 1]), card.blank(F16, &[1, 5]));
    card.refused(
        "WeightQuantBatchMatmulV2",
        (x1.handle, single, scale1.handle, none, none, none, none, 0i32, y5.handle),
        161002,
        "an even one is expected",
    );
}

#[test]
fn on_310p_only_int8_is_taken() {
    let card = Card::open(r#"{"chip": "310p"}"#);
    let none = null_mut::<()>();
    let (x, scale, y) = (card.blank(F16, &[2, 64]), card.blank(F16, &[1, 8]), card.blank(F16, &[2, 8]));
    let nibbles = card.view(card.upload(&[0; 256]), I4, &[64, 8], &[1, 64], 0, 2);
    card.refused(
        "WeightQuantBatchMatmulV2",
        (x.handle, nibbles, scale.handle, none, none, none, none, 0i32, y.handle),
        161002,
        "weight is i4",
    );
    let bytes = card.blank(I8, &[64, 8]);
    card.done(
        "WeightQuantBatchMatmulV2",
        (x.handle, bytes.handle, scale.handle, none, none, none, none, 0i32, y.handle),
    );
    assert_eq!(card.values(y), vec![64.0; 16]);
    drop(card);
    let card = Card::open(r#"{"chip": "910a"}"#);
    let (x, w, scale, y) =
        (card.blank(F16, &[2, 64]), card.blank(I8, &[64, 8]), card.blank(F16, &[1, 8]), card.blank(F16, &[2, 8]));
    card.refused(
        "WeightQuantBatchMatmulV2",
        (x.handle, w.handle, scale.handle, none, none, none, none, 0i32, y.handle),
        361001,
        "no kernel exists for Ascend910A",
    );
}

#[test]
fn int8_products_and_their_scales() {
    let card = Card::open("{}");
    let (a, b): (Vec<f64>, Vec<f64>) = (
        drawn(2 * 32, 1, 127.9).into_iter().map(f64::trunc).collect(),
        drawn(32 * 3, 2, 127.9).into_iter().map(f64::trunc).collect(),
    );
    let (x, w) = (card.numbers(I8, &[2, 32], &a), card.numbers(I8, &[32, 3], &b));
    let scale = card.numbers(F32, &[3], &[0.5, 0.25, 0.125]);
    let packed_scale = card.blank(I64, &[3]);
    let none = null_mut::<()>();
    card.done("TransQuantParamV2", (scale.handle, none, packed_scale.handle));
    let (out, tokens) = (card.blank(F16, &[2, 3]), card.numbers(F32, &[2], &[0.01, 0.02]));
    card.done(
        "QuantMatmulV4",
        (x.handle, w.handle, packed_scale.handle, none, tokens.handle, none, 0u8, 0u8, out.handle),
    );
    let sums = product(&a, &b, 2, 32, 3);
    let expected: Vec<f64> = (0..6).map(|at| sums[at] * [0.5, 0.25, 0.125][at % 3] * [0.01, 0.02][at / 3]).collect();
    near("w8a8", &card.values(out), &expected, 1e-3);
    let whole = card.blank(I32, &[2, 3]);
    card.done("QuantMatmulV3", (x.handle, w.handle, scale.handle, none, none, 0u8, 0u8, whole.handle));
    assert_eq!(card.values(whole), sums);
}

#[test]
fn rows_are_quantized_by_their_largest() {
    let card = Card::open("{}");
    let a = rounded(F16, &drawn(64, 1, 3.0));
    let (x, y, scale) = (card.numbers(F16, &[2, 32], &a), card.blank(I8, &[2, 32]), card.blank(F32, &[2]));
    card.done("DynamicQuant", (x.handle, null_mut::<()>(), y.handle, scale.handle));
    let (codes, scales) = (card.values(y), card.values(scale));
    for row in 0..2 {
        let largest = a[row * 32..][..32].iter().fold(0f64, |best, x| best.max(x.abs()));
        assert!((scales[row] - largest / 127.0).abs() < 1e-8);
        for column in 0..32 {
            assert!((codes[row * 32 + column] * scales[row] - a[row * 32 + column]).abs() <= 0.5001 * scales[row]);
        }
    }
}

#[test]
fn a_drawn_order_of_sums_changes_last_bits_only() {
    let run = |settings: &str| {
        let card = Card::open(settings);
        let (x, w) =
            (card.numbers(F32, &[4, 500], &drawn(2000, 1, 1.0)), card.numbers(F32, &[500, 6], &drawn(3000, 2, 1.0)));
        let out = card.blank(F32, &[4, 6]);
        card.done("Mm", (x.handle, w.handle, out.handle, 0i8));
        card.values(out)
    };
    let (forward, permuted) = (run("{}"), run(r#"{"sums": "permuted", "seed": 5}"#));
    near("orders", &permuted, &forward, 1e-6);
    assert_ne!(forward, permuted);
    assert_eq!(permuted, run(r#"{"sums": "permuted", "seed": 5}"#));
}

#[test]
fn integer_products_have_planned_faults() {
    let run = |fault: &str| {
        let plan = format!(r#"{{"faults": [{{"kind": "{fault}", "operator": "aclnnQuantMatmulV3", "at": 2}}]}}"#);
        let card = Card::open(&plan);
        let whole = |count, seed| -> Vec<f64> { drawn(count, seed, 127.9).into_iter().map(f64::trunc).collect() };
        let (x, w) = (card.numbers(I8, &[20, 64], &whole(1280, 1)), card.numbers(I8, &[64, 33], &whole(2112, 2)));
        let scale = card.numbers(F32, &[1], &[1.0]);
        let results = [(); 2].map(|()| {
            let (out, none) = (card.blank(I32, &[20, 33]), null_mut::<()>());
            card.done("QuantMatmulV3", (x.handle, w.handle, scale.handle, none, none, 0u8, 0u8, out.handle));
            card.values(out)
        });
        results[0].iter().zip(&results[1]).filter(|(a, b)| a != b).count()
    };
    let tile = run("wrong_tile");
    assert!((1..=256).contains(&tile), "{tile} numbers of one tile");
    assert!(run("dropped_group") > 600);
}

#[test]
fn planned_faults_are_made_where_they_are_planned() {
    let run = |fault: &str| {
        let card =
            Card::open(&format!(r#"{{"seed": 3, "faults": [{{"kind": "{fault}", "operator": "aclnnMm", "at": 2}}]}}"#));
        let (x, w) =
            (card.numbers(F32, &[40, 64], &drawn(2560, 1, 1.0)), card.numbers(F32, &[64, 50], &drawn(3200, 2, 1.0)));
        let (first, second) = (card.blank(F32, &[40, 50]), card.blank(F32, &[40, 50]));
        card.done("Mm", (x.handle, w.handle, first.handle, 0i8));
        card.done("Mm", (x.handle, w.handle, second.handle, 0i8));
        let (first, second) = (card.values(first), card.values(second));
        first.iter().zip(&second).filter(|(a, b)| a != b).count()
    };
    let tile = run("wrong_tile");
    assert!((1..=256).contains(&tile), "{tile} numbers of one tile");
    assert!(run("dropped_group") > 1900);
    assert!(run("through_f16") > 1900);
}
