//! Softmax of scaled and masked scores.

use super::{Call, Operand, expect_f32, pieces_min};
use crate::profile::Profile;
use std::borrow::Cow;
use trueup_graph::TensorType;
use trueup_graph::op::SoftMax;
use trueup_kernels as kernel;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(Profile { lanes: kernel::LANES, function_ulp: kernel::EXPONENTIAL_ULP, ..Profile::F32 })
}

pub fn compute(op: &SoftMax, call: Call) -> Result<(), String> {
    let x = call.inputs[0].floats()?;
    let y = Call::output_floats(call.output)?;
    // y[j, t, h, b]
    let [capacity, tokens, heads, _] = call.output_type.shape.sizes();
    if y.is_empty() {
        return Ok(());
    }
    let masks = Masks::of(call.inputs.get(1), capacity)?;
    let rows = y.chunks_mut(capacity).zip(x.chunks(capacity)).enumerate();
    call.team.each(rows, pieces_min(8 * capacity), |(row, (y, x))| {
        let (token, head, batch) = (row % tokens, row / tokens % heads, row / tokens / heads);
        let mask = masks.row([token, head, batch], slope(op.max_bias, head, heads));
        y.copy_from_slice(x);
        kernel::soft_max(call.instructions, y, &mask, op.scale);
    });
    Ok(())
}

/// What is added to scores, `[capacity, tokens, heads, batch]`, repeated along the outer two dimensions; 0 where there
/// is no mask.
pub struct Masks<'a> {
    cells: Cow<'a, [f32]>,
    sizes: [usize; 4],
}

impl<'a> Masks<'a> {
    /// The mask of an operator over `capacity` positions.
    pub fn of(mask: Option<&Operand<'a>>, capacity: usize) -> Result<Masks<'a>, String> {
        match mask {
            Some(mask) => Ok(Masks { cells: mask.widened()?, sizes: mask.ty.shape.sizes() }),
            None => Ok(Masks { cells: Cow::Owned(vec![0.0; capacity]), sizes: [capacity, 1, 1, 1] }),
        }
    }

    /// Heads that have masks of their own; further ones take these again.
    pub fn heads(&self) -> usize {
        self.sizes[2]
    }

    /// The row of a token, a head and a batch, times `slope`; -infinity stays.
    pub fn row(&self, [token, head, batch]: [usize; 3], slope: f32) -> Cow<'_, [f32]> {
        let [capacity, tokens, heads, batches] = self.sizes;
        let index = token % tokens + tokens * (head % heads + heads * (batch % batches));
        let cells = &self.cells[index * capacity..][..capacity];
        if slope == 1.0 {
            return Cow::Borrowed(cells);
        }
        let sloped = |cell: &f32| if *cell == f32::NEG_INFINITY { *cell } else { cell * slope };
        cells.iter().map(sloped).collect()
    }
}

/// The slope of a head, see [`SoftMax`]: computed in f64, rounded once.
pub fn slope(max_bias: f32, head: usize, heads: usize) -> f32 {
    if max_bias == 0.0 {
        return 1.0;
    }
    let power = 1usize << heads.max(1).ilog2();
    let halves = if head < power { 2 * head + 2 } else { 2 * (head - power) + 1 };
    2f64.powf(-f64::from(max_bias) * halves as f64 / (2 * power) as f64) as f32
}
