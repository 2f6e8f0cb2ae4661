//! Pairs of elements rotated: cosines and sines are computed on the host in f64, for it knows the positions, and stay
//! on the card for all layers.

use super::{Call, ONE};
use crate::device::ascend::acl::{Array, Type};
use crate::device::ascend::notes::integers;
use std::ops::Range;
use trueup_graph::op::{Rope, RopePairs, RopeScaling};

/// Longest rotated part that the vendor's operator takes.
const DIMENSIONS_MAX: usize = 896;

pub fn compose(op: &Rope, call: &Call) -> Result<(), String> {
    let (queue, x, out) = (&call.engine.queue, call.input(0)?, call.output()?);
    let tokens = x.sizes[1].unsigned_abs() as usize;
    let size = op.dimensions as i64;
    let rows = call.ty(1).shape.elements() / tokens.max(1);
    for row in 0..if size == 0 { 0 } else { rows } {
        let part = |array: &Array| array.clone().part(3, row as i64 * size, size);
        rotate(op, call, &part(&x), row * tokens..(row + 1) * tokens, &part(&out))?;
    }
    let (rotated, len) = (size * rows as i64, x.sizes[3]);
    if rotated == len {
        return Ok(());
    }
    let rest = |array: &Array| array.clone().part(3, rotated, len - rotated);
    queue.copy_to(&rest(&out), &rest(&x))
}

/// Cosines and sines times the magnitude, `[1, tokens, 1, dimensions / 2]`, or `dimensions` where both elements of a
/// pair have one.
struct Waves {
    cos: Array,
    sin: Array,
}

impl Waves {
    fn new(op: &Rope, call: &Call, tokens: Range<usize>, doubled: bool) -> Result<Waves, String> {
        let width = if doubled { op.dimensions } else { op.dimensions / 2 };
        let sizes = [1, tokens.len() as i64, 1, width as i64];
        let inputs: &[usize] = if call.inputs() > 2 { &[1, 2] } else { &[1] };
        let table = |name: &str, wave: fn(f64) -> f64| {
            let (op, of) = (*op, tokens.clone());
            let numbers = move |inputs: &[Vec<u8>]| waves(&op, inputs, of.clone(), wave, doubled);
            call.table(&format!("{name} {op:?} {tokens:?}"), &sizes, inputs, Box::new(numbers))
        };
        Ok(Waves { cos: table("cos", f64::cos)?, sin: table("sin", f64::sin)? })
    }
}

/// Waves of some tokens, whose positions are the first input; the second are factors.
fn waves(op: &Rope, inputs: &[Vec<u8>], tokens: Range<usize>, wave: fn(f64) -> f64, doubled: bool) -> Vec<f32> {
    let factors = inputs.get(1).map(|bytes| bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)));
    let (magnitude, frequencies) = frequencies(op, factors.map(Iterator::collect::<Vec<f32>>).as_deref());
    let of = |position: &i32| -> Vec<f32> {
        let position = f64::from(*position);
        let pairs = frequencies.iter().map(|frequency| (magnitude * wave(position * frequency)) as f32);
        match op.pairs {
            _ if !doubled => pairs.collect(),
            RopePairs::Neighbours => pairs.flat_map(|number| [number; 2]).collect(),
            RopePairs::Halves => pairs.clone().chain(pairs).collect(),
        }
    };
    integers(&inputs[0])[tokens].iter().flat_map(of).collect()
}

/// The magnitude, and for each pair the angle of one position.
fn frequencies(op: &Rope, factors: Option<&[f32]>) -> (f64, Vec<f64>) {
    let (base, dimensions) = (f64::from(op.base), op.dimensions as f64);
    let plain = |i: usize| {
        let factor = factors.and_then(|factors| factors.get(i)).map_or(1.0, |factor| f64::from(*factor));
        base.powf(-2.0 * i as f64 / dimensions) / factor
    };
    let all = |change: &dyn Fn(usize) -> f64| (0..op.dimensions / 2).map(|i| plain(i) * change(i)).collect();
    match op.scaling {
        RopeScaling::None => (1.0, all(&|_| 1.0)),
        RopeScaling::Linear { factor } => (1.0, all(&|_| 1.0 / f64::from(factor))),
        RopeScaling::Long { magnitude } => (f64::from(magnitude), all(&|_| 1.0)),
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude } => {
            let turn = |beta: f32| {
                dimensions * (f64::from(original_context) / (2.0 * std::f64::consts::PI * f64::from(beta))).ln()
                    / (2.0 * base.ln())
            };
            let (low, high) = (turn(beta_fast).floor().max(0.0), turn(beta_slow).ceil().min(dimensions - 1.0));
            let ramp = |i: usize| 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            (f64::from(magnitude), all(&|i| (1.0 - ramp(i)) / f64::from(factor) + ramp(i)))
        }
    }
}

/// Rotates all of `x` `[1, tokens, heads, dimensions]`.
fn rotate(op: &Rope, call: &Call, x: &Array, tokens: Range<usize>, out: &Array) -> Result<(), String> {
    let queue = &call.engine.queue;
    let is_installed = call.engine.chip.rotation && queue.has(c"aclnnRotaryPositionEmbeddingGetWorkspaceSize");
    if is_installed && op.dimensions < DIMENSIONS_MAX {
        let mode = i64::from(op.pairs == RopePairs::Neighbours);
        let waves = Waves::new(op, call, tokens, true)?;
        let x = call.gathered(x, Type::F32)?;
        return call.dense(out, |out| queue.rotate(&x, &waves.cos, &waves.sin, mode, out));
    }
    let waves = Waves::new(op, call, tokens, false)?;
    let halves = |array: &Array| {
        let half = |number: i64| match op.pairs {
            RopePairs::Neighbours => {
                array.clone().split(3, array.sizes[3] / 2).part(4, number, 1).ordered(&[0, 1, 2, 3])
            }
            RopePairs::Halves => array.clone().part(3, number * array.sizes[3] / 2, array.sizes[3] / 2),
        };
        (half(0), half(1))
    };
    let ((x1, x2), (y1, y2)) = (halves(x), halves(out));
    let (a, b) = (call.room(Type::F32, &x1.sizes)?, call.room(Type::F32, &x1.sizes)?);
    queue.mul(&x1, &waves.cos, &a)?;
    queue.mul(&x2, &waves.sin, &b)?;
    queue.sub(&a, &b, ONE, &y1)?;
    queue.mul(&x1, &waves.sin, &a)?;
    queue.mul(&x2, &waves.cos, &b)?;
    queue.add(&a, &b, ONE, &y2)
}
