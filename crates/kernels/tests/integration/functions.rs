//! Activation functions and softmax.

use crate::scalar;
use trueup_graph::op::Unary;
use trueup_kernels::samples::numbers;
use trueup_kernels::{EXPONENTIAL_ULP, Instructions, Isa, soft_max, unary};

/// One number, by the readable rule.
fn of(op: Unary, x: f32) -> f32 {
    let mut y = [f32::NAN];
    unary(scalar(), op, &[x], &mut y);
    y[0]
}

/// Every 211th number of the range in which results are neither 0 nor infinite.
#[test]
fn the_declared_error_of_the_exponential_function_holds() {
    let (mut worst, mut place) = (0.0, 0.0);
    let negative = (0x8000_0000..=(-104f32).to_bits()).step_by(211);
    let numbers: Vec<f32> = (0..=88.7f32.to_bits()).step_by(211).chain(negative).map(f32::from_bits).collect();
    let mut found = vec![f32::NAN; numbers.len()];
    unary(scalar(), Unary::Exp, &numbers, &mut found);
    for (x, found) in numbers.into_iter().zip(found) {
        let expected = f64::from(x).exp();
        let exponent = expected.log2().floor().max(-126.0) as i32;
        let error = (f64::from(found) - expected).abs() / 2f64.powi(exponent - 23);
        if error > worst {
            (worst, place) = (error, x);
        }
    }
    assert!(worst <= EXPONENTIAL_ULP.into(), "{worst} units in the last place at {place}");
    assert!(worst > 0.5, "{worst}: less than rounding cannot be");
}

#[test]
fn ends_of_the_exponential_function() {
    let cases = [(0.0, 1.0), (-0.0, 1.0), (f32::NEG_INFINITY, 0.0), (-1e30, 0.0), (-105.0, 0.0), (89.0, f32::INFINITY)];
    for (x, expected) in cases {
        assert_eq!(of(Unary::Exp, x).to_bits(), f32::to_bits(expected), "exp {x}");
    }
    assert_eq!(of(Unary::Exp, f32::INFINITY), f32::INFINITY);
    assert!(of(Unary::Exp, f32::NAN).is_nan());
}

/// Four units of rounding and, among the smallest numbers, one last place.
#[test]
fn silu_is_the_formula() {
    for x in (-2200..2200).map(|i| i as f32 * 0.05 + 0.0123) {
        let exact = f64::from(x) / (1.0 + (-f64::from(x)).exp());
        let error = (f64::from(of(Unary::Silu, x)) - exact).abs();
        assert!(
            error <= 4.0 * exact.abs() * 2f64.powi(-24) + 2f64.powi(-149),
            "{x}: {} for {exact}",
            of(Unary::Silu, x)
        );
    }
    assert_eq!(of(Unary::Silu, -1e30), 0.0);
    assert_eq!(of(Unary::Silu, 1e30), 1e30);
}

/// Four units of rounding; where the argument is rounded, it counts by the slope of the exponential function.
#[test]
fn sigmoids_are_the_formula() {
    let unit = 2f64.powi(-24);
    for x in (-2200..2200).map(|i| i as f32 * 0.05 + 0.0123) {
        let real = f64::from(x);
        let logistic = |t: f64| 1.0 / (1.0 + (-t).exp());
        let cubic = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (real + 0.044715 * real.powi(3));
        let cases = [
            ("sigmoid", of(Unary::Sigmoid, x), logistic(real), 0.0, 1.0),
            ("gelu", of(Unary::Gelu, x), real * logistic(cubic), 3.0 * cubic.abs() * logistic(-cubic), real.abs()),
            (
                "gelu_quick",
                of(Unary::GeluQuick, x),
                real * logistic(1.702 * real),
                2.0 * (1.702 * real).abs(),
                real.abs(),
            ),
        ];
        for (name, found, exact, argument, factor) in cases {
            let error = (f64::from(found) - exact).abs();
            let allowed = (5.0 + argument) * exact.abs() * unit + 2f64.powi(-149) * (1.0 + factor);
            assert!(error <= allowed, "{name} of {x}: {found} for {exact}");
        }
    }
}

#[test]
fn ends_of_the_activation_functions() {
    for op in [Unary::Sigmoid, Unary::Gelu, Unary::GeluQuick, Unary::Relu] {
        assert_eq!(of(op, -1e30), 0.0);
        assert!(of(op, f32::NAN).is_nan());
    }
    assert_eq!(of(Unary::Sigmoid, f32::NEG_INFINITY), 0.0);
    assert_eq!(of(Unary::Sigmoid, f32::INFINITY), 1.0);
    assert_eq!([of(Unary::Gelu, 1e30), of(Unary::GeluQuick, 1e30), of(Unary::Relu, 1e30)], [1e30; 3]);
}

#[test]
fn masked_places_are_zero_and_change_nothing() {
    let x = numbers(37, 5);
    let (mut alone, mut padded) = (x[..21].to_vec(), x);
    soft_max(scalar(), &mut alone, &[0.0; 21], 2.0);
    let mut mask = [0.0; 37];
    mask[21..].fill(f32::NEG_INFINITY);
    soft_max(scalar(), &mut padded, &mask, 2.0);
    assert_eq!(padded[..21], alone);
    assert!(padded[21..].iter().all(|y| y.to_bits() == 0));
}

#[test]
fn masked_places_are_zero_whatever_they_hold() {
    for isa in Isa::available() {
        let instructions = Instructions::of(isa).unwrap();
        for (len, seen) in [(37, 21), (64, 8), (9, 0), (33, 32)] {
            let mut mask = vec![0.0; len];
            mask[seen..].fill(f32::NEG_INFINITY);
            let mut x = numbers(len, 5);
            let mut alone = x[..seen].to_vec();
            soft_max(instructions, &mut alone, &mask[..seen], 2.0);
            for stale in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
                x[seen..].fill(stale);
                let mut y = x.clone();
                soft_max(instructions, &mut y, &mask, 2.0);
                assert_eq!(y[..seen], alone, "{isa}, {stale} after {seen} of {len}");
                assert!(y[seen..].iter().all(|y| y.to_bits() == 0), "{isa}, {stale} after {seen} of {len}: {y:?}");
            }
            if seen > 0 {
                x[0] = f32::NAN;
                let mut y = x.clone();
                soft_max(instructions, &mut y, &mask, 2.0);
                assert!(y[..seen].iter().all(|y| y.is_nan()), "a NaN that is seen stays");
                assert!(y[seen..].iter().all(|y| y.to_bits() == 0), "{isa}: {y:?}");
            }
        }
    }
}

#[test]
fn a_row_without_anything_is_zero_but_a_nan_stays() {
    let mut y = [2.0; 9];
    soft_max(scalar(), &mut y, &[f32::NEG_INFINITY; 9], 1.0);
    assert_eq!(y, [0.0; 9]);
    let mut y = [2.0; 9];
    y[4] = f32::NAN;
    soft_max(scalar(), &mut y, &[0.0; 9], 1.0);
    assert!(y.iter().all(|y| y.is_nan()));
}
