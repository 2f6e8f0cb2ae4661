//! Products of quantized weights and of floats.

use crate::scalar;
use trueup_kernels::samples::{half_of_e8m0, half_of_ue4m3, numbers};
use trueup_kernels::{
    ActivationBlock, BLOCK_LEN, INT8_SUMS, PANEL_ROWS, Rows, TURNED_ROWS, Turned, dot_int8, dots_f32, int8_codes,
    quantize, turn_f32, turn_vectors, turned_len, turned_product_f32,
};

#[test]
fn codes_are_nearest_and_ties_go_to_even() {
    let mut xs = [0.0; BLOCK_LEN];
    xs[..8].copy_from_slice(&[127.0, 0.5, 1.5, -0.5, -2.5, 2.5000002, -127.0, 3.49]);
    let mut blocks = [ActivationBlock::default()];
    quantize(scalar(), &xs, &mut blocks);
    assert_eq!(blocks[0].codes[..8], [127, 0, 2, 0, -2, 3, -127, 3]);
    assert_eq!((blocks[0].scale, blocks[0].bias), (1.0, -48));
}

#[test]
fn what_is_not_finite_stays_visible_and_the_smallest_numbers_are_zero() {
    let run = |x: f32| {
        let mut xs = [0.0; BLOCK_LEN];
        xs[3] = x;
        let mut blocks = [ActivationBlock::default()];
        quantize(scalar(), &xs, &mut blocks);
        blocks[0]
    };
    assert!(run(f32::NAN).scale.is_nan());
    assert_eq!(run(f32::NEG_INFINITY).scale, f32::INFINITY);
    assert_eq!((run(1e-45).scale, run(1e-45).codes), (0.0, [0; BLOCK_LEN]));
    let limited = run(190.0 * f32::from_bits(1));
    assert_eq!(limited.codes[3], 127, "a scale that is itself rounded coarsely must not wrap the codes");
}

/// The mark of blocks whose codes are all worth 0.
const ALL_ZERO: u16 = 0x100;

/// By the definitions of the OCP formats: an exponent alone, and 4 bits of exponent with 3 of fraction.
#[test]
fn small_scales_are_half_of_their_definition() {
    for e in 0..255 {
        assert_eq!(f64::from(half_of_e8m0(e)), 2f64.powi(i32::from(e) - 127) / 2.0, "E8M0 {e:#x}");
    }
    assert!(half_of_e8m0(255).is_nan());
    assert!((0..255).all(|e| half_of_e8m0(e | ALL_ZERO) == 0.0));
    for scale in 0..256u16 {
        let (exponent, fraction) = (i32::from(scale >> 3 & 15), f64::from(scale & 7) / 8.0);
        let number = if exponent == 0 { fraction * 2f64.powi(-6) } else { (1.0 + fraction) * 2f64.powi(exponent - 7) };
        let found = half_of_ue4m3(scale);
        assert_eq!((f64::from(found) == number / 2.0, found.is_nan()), (scale & 0x7F != 0x7F, scale & 0x7F == 0x7F));
    }
}

#[test]
fn sums_are_dot_products_of_four_codes_times_the_rounds() {
    let (weights, xs) = int8_codes();
    let mut sums = [5; INT8_SUMS];
    dot_int8(scalar(), 3, &weights, &xs, &mut sums);
    let dot: i32 = (4..8).map(|k| i32::from(weights[2][k]) * i32::from(xs[3][k])).sum();
    assert_eq!(sums[(2 * 4 + 3) * 16 + 1], 5 + 3 * dot);
    assert!(weights.iter().flatten().all(|code| *code < 128) && xs.iter().flatten().any(|code| *code < 0));
}

#[test]
fn turned_rows_have_the_sums_of_dot_products() {
    for (len, count, tokens) in [(1, 32, 1), (31, 5, 2), (64, 32, 3), (600, 17, 7), (1100, 32, 12)] {
        let (cells, xs) = (numbers(count * len, 3), numbers(tokens * len, 9));
        let (rows, xs) = (Rows::dense(&cells, count, len), Rows::dense(&xs, tokens, len));
        let mut expected = vec![f32::NAN; count * tokens];
        dots_f32(scalar(), rows, xs, &mut expected);
        let mut turned = vec![Turned([f32::NAN; TURNED_ROWS]); turned_len(len)];
        turn_f32(scalar(), rows, &mut turned);
        let mut vectors = vec![f32::NAN; turned_len(len) * tokens];
        turn_vectors(scalar(), xs, &mut vectors);
        let mut sums = vec![[f32::NAN; PANEL_ROWS]; 2 * tokens];
        turned_product_f32(scalar(), &turned, &vectors, tokens, &mut sums);
        for (row, t) in (0..count).flat_map(|row| (0..tokens).map(move |t| (row, t))) {
            let found = sums[t + tokens * (row / PANEL_ROWS)][row % PANEL_ROWS];
            assert_eq!(found.to_bits(), expected[t * count + row].to_bits(), "row {row} of {len}, vector {t}");
        }
    }
}
