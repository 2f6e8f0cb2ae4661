//! Element by element: formulas in f64, promotion, stretching, strides, and what each chip takes.

use crate::card::*;

/// The formula of a function of one number.
type Formula = fn(f64) -> f64;

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh())
}

const FORMULAS: &[(&str, f64, Formula)] = &[
    ("Exp", 3.0, f64::exp),
    ("Cos", 9.0, f64::cos),
    ("Sin", 9.0, f64::sin),
    ("Neg", 9.0, |x| -x),
    ("Abs", 9.0, f64::abs),
    ("Sign", 9.0, f64::signum),
    ("Reciprocal", 9.0, |x| 1.0 / x),
    ("Silu", 9.0, |x| x / (1.0 + (-x).exp())),
    ("Gelu", 3.0, gelu),
    ("Relu", 3.0, |x| x.max(0.0)),
    ("Sigmoid", 9.0, |x| 1.0 / (1.0 + (-x).exp())),
    ("Tanh", 3.0, f64::tanh),
    ("Hardswish", 6.0, |x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
    ("Hardsigmoid", 6.0, |x| (x + 3.0).clamp(0.0, 6.0) / 6.0),
];

#[test]
fn functions_are_their_formulas_rounded_once() {
    let card = Card::open("{}");
    for ty in [F32, F16, BF16] {
        for &(name, range, formula) in FORMULAS {
            let x = rounded(ty, &drawn(257, 3, range));
            let (input, out) = (card.numbers(ty, &[257], &x), card.blank(ty, &[257]));
            card.done(name, (input.handle, out.handle));
            let single: Vec<f64> = x.iter().map(|&x| f64::from(formula(x) as f32)).collect();
            let (found, expected) = (card.values(out), rounded(ty, &single));
            let unit =
                [1e-7, 1e-3, 8e-3][[F32, F16, BF16].iter().position(|listed| *listed == ty).expect("it is listed")];
            let off = found.iter().zip(&expected).filter(|(a, b)| (*a - *b).abs() > unit * b.abs()).count();
            assert_eq!(off, 0, "{name} of type {ty}");
        }
        for (name, formula) in [("Log", f64::ln as Formula), ("Sqrt", f64::sqrt), ("Rsqrt", |x: f64| 1.0 / x.sqrt())] {
            let x: Vec<f64> = rounded(ty, &drawn(33, 3, 2.0)).iter().map(|x| x.abs() + 0.5).collect();
            let x = rounded(ty, &x);
            let (input, out) = (card.numbers(ty, &[33], &x), card.blank(ty, &[33]));
            card.done(name, (input.handle, out.handle));
            near(name, &card.values(out), &x.iter().map(|&x| formula(x)).collect::<Vec<_>>(), 5e-3);
        }
    }
}

#[test]
fn two_operands_stretch_and_meet() {
    let card = Card::open("{}");
    let (a, b) = (rounded(F32, &drawn(6, 1, 4.0)), rounded(F16, &drawn(3, 2, 4.0)));
    let (x, y, out) = (card.numbers(F32, &[2, 3], &a), card.numbers(F16, &[3], &b), card.blank(F32, &[2, 3]));
    let each = |rule: fn(f64, f64) -> f64| (0..6).map(|at| rule(a[at], b[at % 3])).collect::<Vec<f64>>();
    card.done("Add", (x.handle, y.handle, card.scalar(2.0), out.handle));
    near("add", &card.values(out), &each(|a, b| a + 2.0 * b), 1e-7);
    card.done("Sub", (x.handle, y.handle, card.scalar(1.0), out.handle));
    near("sub", &card.values(out), &each(|a, b| a - b), 1e-7);
    card.done("Mul", (x.handle, y.handle, out.handle));
    near("mul", &card.values(out), &each(|a, b| a * b), 1e-7);
    card.done("Div", (x.handle, y.handle, out.handle));
    near("div", &card.values(out), &each(|a, b| a / b), 1e-7);
    card.done("Maximum", (x.handle, y.handle, out.handle));
    assert_eq!(card.values(out), each(f64::max));
    card.done("Minimum", (x.handle, y.handle, out.handle));
    assert_eq!(card.values(out), each(f64::min));
    card.done("InplaceAdd", (x.handle, y.handle, card.scalar(1.0)));
    near("in place", &card.values(x), &each(|a, b| a + b), 1e-7);
    let half = card.blank(F16, &[2, 3]);
    card.refused(
        "Add",
        (x.handle, card.blank(F32, &[4]).handle, card.scalar(1.0), out.handle),
        161002,
        "other has the shape [4], which cannot be broadcast with [2, 3] of self",
    );
    card.refused(
        "Add",
        (x.handle, y.handle, card.scalar(1.0), card.blank(F32, &[2, 4]).handle),
        161002,
        "out has the shape [2, 4]",
    );
    card.refused("Add", (x.handle, y.handle, std::ptr::null_mut::<()>(), out.handle), 161001, "alpha");
    card.refused(
        "Add",
        (x.handle, y.handle, card.scalar(1.0), card.blank(I32, &[2, 3]).handle),
        161002,
        "f32 does not convert to it",
    );
    card.done("Add", (x.handle, y.handle, card.scalar(1.0), half.handle));
    let whole = card.numbers(I32, &[3], &[1.0, 2.0, 3.0]);
    card.refused("Add", (whole.handle, whole.handle, card.scalar(0.5), whole.handle), 161002, "alpha is a float");
    card.done("Add", (whole.handle, whole.handle, card.whole(2), card.blank(I32, &[3]).handle));
}

#[test]
fn rows_of_int8_become_f16_by_their_scale() {
    let card = Card::open("{}");
    let quants: Vec<f64> = drawn(64, 5, 127.9).into_iter().map(f64::trunc).collect();
    let scale = rounded(F16, &[0.013, 0.21]);
    let (q, s, out) =
        (card.numbers(I8, &[2, 32], &quants), card.numbers(F16, &[2, 1], &scale), card.blank(F32, &[2, 32]));
    card.done("Mul", (q.handle, s.handle, out.handle));
    let exact: Vec<f64> = (0..64).map(|at| quants[at] * scale[at / 32]).collect();
    assert_eq!(card.values(out), rounded(F16, &exact));
}

#[test]
fn strided_views_are_read_and_written() {
    let card = Card::open("{}");
    let a: Vec<f64> = (0..12).map(f64::from).collect();
    let (x, out) = (card.numbers(F32, &[3, 4], &a), card.blank(F32, &[3, 8]));
    let turned = card.view(x.data, F32, &[4, 3], &[1, 4], 0, 2);
    let columns = card.view(out.data, F32, &[4, 3], &[2, 8], 1, 2);
    card.done("Muls", (turned, card.scalar(10.0), columns));
    let found = card.values(out);
    for (row, column) in (0..3).flat_map(|row| (0..8).map(move |column| (row, column))) {
        let expected = if column % 2 == 1 { 10.0 * a[row * 4 + column / 2] } else { 1.0 };
        assert_eq!(found[row * 8 + column], expected, "({row}, {column})");
    }
    let twice = card.view(out.data, F32, &[4, 3], &[0, 1], 0, 2);
    card.refused("Muls", (turned, card.scalar(10.0), twice), 161002, "two of its indices lead to one element");
    let shifted = card.view(x.data, F32, &[4, 2], &[1, 4], 1, 2);
    let first = card.view(x.data, F32, &[4, 2], &[1, 4], 0, 2);
    card.refused("Muls", (first, card.scalar(1.0), shifted), 161002, "out overlaps bytes of self");
    let rows = card.blank(F32, &[20_000, 8]);
    let columns = |from| card.view(rows.data, F32, &[20_000, 4], &[8, 1], from, 2);
    card.done("Muls", (columns(0), card.scalar(2.0), columns(4)));
    card.refused("Muls", (columns(0), card.scalar(2.0), columns(3)), 161002, "out overlaps bytes of self");
}

#[test]
fn tensors_that_are_wrong_in_themselves() {
    let card = Card::open("{}");
    let (x, out) = (card.blank(F32, &[4]), card.blank(F32, &[4]));
    let view = |ty, shape: &[i64], strides: &[i64], data: usize| card.view(data as Handle, ty, shape, strides, 0, 2);
    let at = x.data as usize;
    let wrong = [
        (view(F32, &[4], &[1], at + 4), 161002, "aligned to 32"),
        (view(F32, &[4], &[1], 0), 161001, "null data pointer"),
        (view(16, &[4], &[1], at), 161002, "data type 16"),
        (view(F32, &[-4], &[1], at), 161002, "negative size"),
        (view(F32, &[1 << 40, 1 << 40], &[1 << 40, 1], at), 161002, "larger than any card"),
        (view(F32, &[1; 9], &[1; 9], at), 161002, "has 9 axes"),
        (std::ptr::null_mut(), 161001, "self: a null pointer"),
        (card.scalar(1.0), 161002, "self: an aclScalar, an aclTensor is expected"),
    ];
    for (handle, code, words) in wrong {
        card.refused("Exp", (handle, out.handle), code, words);
    }
    card.done("Exp", (x.handle, out.handle));
}

#[test]
fn chips_without_a_type_or_a_kernel_say_so() {
    let cases: [(&str, &str, i32, i32, &str); 6] = [
        ("310p", "Silu", BF16, 161002, "self is bf16, Ascend310P3 supports f32, f16"),
        ("310b", "Silu", BF16, 161002, "supports f32, f16"),
        ("910a", "Silu", BF16, 161002, "supports f32, f16"),
        ("910b", "Silu", I8, 161002, "self is i8, Ascend910B1 supports f32, f16, bf16"),
        ("310b", "SwiGlu", F16, 361001, "no kernel exists for Ascend310B1"),
        ("910a", "SwiGlu", F16, 361001, "no kernel exists for Ascend910A"),
    ];
    for (chip, name, ty, code, words) in cases {
        let card = Card::open(&format!(r#"{{"chip": "{chip}"}}"#));
        let (x, out, half) = (card.blank(ty, &[2, 64]), card.blank(ty, &[2, 64]), card.blank(ty, &[2, 32]));
        match name {
            "SwiGlu" => card.refused(name, (x.handle, 1i64, half.handle), code, words),
            _ => card.refused(name, (x.handle, out.handle), code, words),
        }
        let (x, out) = (card.blank(F16, &[2, 64]), card.blank(F16, &[2, 64]));
        card.done("Silu", (x.handle, out.handle));
    }
}

#[test]
fn saturation_belongs_to_the_chip() {
    for (chip, expected) in [("910b", f64::INFINITY), ("310p", 65504.0)] {
        let card = Card::open(&format!(r#"{{"chip": "{chip}"}}"#));
        let (x, out) = (card.numbers(F16, &[2], &[300.0, 1.0]), card.blank(F16, &[2]));
        card.done("Mul", (x.handle, x.handle, out.handle));
        assert_eq!(card.values(out), [expected, 1.0], "{chip}");
    }
}

#[test]
fn gated_pairs() {
    let card = Card::open("{}");
    let a = rounded(F32, &drawn(3 * 8, 1, 3.0));
    let (x, out) = (card.numbers(F32, &[3, 8], &a), card.blank(F32, &[3, 4]));
    card.done("SwiGlu", (x.handle, -1i64, out.handle));
    let part = |at: usize, half: usize| a[at / 4 * 8 + half * 4 + at % 4];
    let silu: Vec<f64> = (0..12).map(|at| part(at, 0) / (1.0 + (-part(at, 0)).exp()) * part(at, 1)).collect();
    near("swiglu", &card.values(out), &silu, 1e-6);
    let gelus = card.blank(F32, &[3, 4]);
    card.done("GeGluV3", (x.handle, 1i64, 1i64, 1u8, out.handle, gelus.handle));
    let tanh: Vec<f64> = (0..12).map(|at| gelu(part(at, 0)) * part(at, 1)).collect();
    near("geglu", &card.values(out), &tanh, 1e-6);
    let odd = card.blank(F32, &[3, 7]);
    card.refused("SwiGlu", (odd.handle, -1i64, out.handle), 161002, "odd size on the split axis");
    let turned = card.view(x.data, F32, &[8, 3], &[1, 8], 0, 2);
    card.refused("SwiGlu", (turned, 0i64, card.blank(F32, &[4, 3]).handle), 161002, "x is not contiguous");
}

#[test]
fn limits_masks_and_choices() {
    let card = Card::open("{}");
    let a = [-2.0, -0.5, 0.0, 0.5, 2.0];
    let (x, out) = (card.numbers(F32, &[5], &a), card.blank(F32, &[5]));
    card.done("Clamp", (x.handle, card.scalar(-1.0), card.scalar(1.0), out.handle));
    assert_eq!(card.values(out), [-1.0, -0.5, 0.0, 0.5, 1.0]);
    let nothing = std::ptr::null_mut::<()>();
    card.refused("Clamp", (x.handle, nothing, nothing, out.handle), 161002, "both null");
    let mask = card.blank(BOOL, &[5]);
    card.done("GtScalar", (x.handle, card.scalar(0.0), mask.handle));
    assert_eq!(card.values(mask), [0.0, 0.0, 0.0, 1.0, 1.0]);
    card.done("SWhere", (mask.handle, x.handle, out.handle, card.blank(F32, &[5]).handle));
    card.done("InplaceMaskedFillScalar", (x.handle, mask.handle, card.scalar(9.0)));
    assert_eq!(card.values(x), [-2.0, -0.5, 0.0, 9.0, 9.0]);
    card.done("InplaceThreshold", (x.handle, card.scalar(-1.0), card.scalar(7.0)));
    assert_eq!(card.values(x), [7.0, -0.5, 0.0, 9.0, 9.0]);
    let whole = card.numbers(I32, &[5], &[-2.0, -1.0, 0.0, 1.0, 2.0]);
    card.done("Clamp", (whole.handle, card.scalar(-1.5), card.scalar(1.5), out.handle));
    assert_eq!(card.values(out), [-1.5, -1.0, 0.0, 1.0, 1.5], "the limits are of the result's type");
    card.done("InplaceMaskedFillScalar", (whole.handle, mask.handle, card.whole(2_147_483_648)));
    assert_eq!(card.values(whole), [-2.0, -1.0, 0.0, -2_147_483_648.0, -2_147_483_648.0], "as a fill does");
    card.done("PowTensorScalar", (x.handle, card.scalar(2.0), out.handle));
    assert_eq!(card.values(out), [49.0, 0.25, 0.0, 81.0, 81.0]);
}
