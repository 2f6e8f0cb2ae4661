//! The gated activation of the feed-forward.

use super::kernel;
#[cfg(feature = "samples")]
use super::samples::numbers;
use super::unary::{gelu, gelu_erf, gelu_quick, relu, silu};
#[cfg(feature = "samples")]
use crate::isa::Instructions;
use trueup_graph::op::Gated;

kernel! {
    /// `y[i] = f(gate[i]) * up[i]`.
    fn gated(op: Gated, gate: &[f32], up: &[f32], y: &mut [f32]) {
        avx512 => recompiled_wider,
        avx2 => recompiled,
        scalar => opened,
    }
    gated_samples on samples
}

#[inline(always)]
fn opened(op: Gated, gate: &[f32], up: &[f32], y: &mut [f32]) {
    match op {
        Gated::Reglu => open(gate, up, y, reglu),
        Gated::Geglu => open(gate, up, y, geglu),
        Gated::GegluErf => open(gate, up, y, geglu_erf),
        Gated::GegluQuick => open(gate, up, y, geglu_quick),
        Gated::Swiglu => open(gate, up, y, swiglu),
    }
}

/// The product is a function, not a closure: only functions are compiled again for the instruction set in any case.
#[inline(always)]
fn open(gate: &[f32], up: &[f32], y: &mut [f32], product: impl Fn(f32, f32) -> f32) {
    assert_eq!((gate.len(), gate.len()), (up.len(), y.len()), "rows of one length");
    for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
        *y = product(*gate, *up);
    }
}

#[inline(always)]
fn reglu(gate: f32, up: f32) -> f32 {
    relu(gate) * up
}

#[inline(always)]
fn geglu(gate: f32, up: f32) -> f32 {
    gelu(gate) * up
}

/// Rounded once, as the function in f64 is.
#[inline(always)]
fn geglu_erf(gate: f32, up: f32) -> f32 {
    (gelu_erf(gate.into()) * f64::from(up)) as f32
}

#[inline(always)]
fn geglu_quick(gate: f32, up: f32) -> f32 {
    gelu_quick(gate) * up
}

#[inline(always)]
fn swiglu(gate: f32, up: f32) -> f32 {
    silu(gate) * up
}

#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut gate = numbers(997, 21);
    gate[..8].copy_from_slice(&[-0.0, 1e-40, -90.0, 90.0, -101.0, -1e30, 1e30, f32::NAN]);
    let mut all = Vec::new();
    for op in Gated::ALL {
        let mut y = vec![f32::NAN; gate.len()];
        gated(instructions, op, &gate, &numbers(997, 22), &mut y);
        all.extend(y);
    }
    all
}
