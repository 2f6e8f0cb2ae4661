//! Attention in one operator: scores, their softmax and the mixture of values, some positions at a time.
//!
//! ```text
//!  positions 0 ... 63 ─▶ scores ─▶ largest m ─▶ p = exp(s - m) ─▶ total = sum p, mixed = sum p v
//!  the next 64        ─▶ scores ─▶ m' >= m   ─▶ total, mixed times exp(m - m'), then as before ─▶ ... ─▶ mixed / total
//! ```
//!
//! What a position holds that is not to be seen changes nothing.

use super::heads::CachedRows;
use super::soft_max::{Masks, slope};
use super::{Call, Operand, expect_multiplied, pieces_min};
use crate::device::cpu::memory::View;
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::FlashAttn;
use trueup_kernels::Instructions;
use trueup_kernels::{self as kernel, Rows};

/// Positions whose scores are held at a time.
const POSITIONS: usize = 64;

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_multiplied("q", &inputs[0])?;
    expect_multiplied("k", &inputs[1])?;
    expect_multiplied("v", &inputs[2])?;
    Ok(Profile { lanes: kernel::DOT_LANES, function_ulp: kernel::EXPONENTIAL_ULP, ..Profile::F32 })
}

pub fn compute(op: &FlashAttn, call: Call) -> Result<(), String> {
    let (q, k, v) = (call.inputs[0].widened()?, &call.inputs[1], &call.inputs[2]);
    let [len, tokens, heads, _] = call.inputs[0].ty.shape.sizes();
    let [_, positions, kv_heads, _] = k.ty.shape.sizes();
    let width = call.output_type.shape[0];
    let masks = Masks::of(call.inputs.get(3), positions)?;
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    // y[d, h, t, b]
    let pieces = y.chunks_mut(width).enumerate();
    call.team.try_each(pieces, pieces_min(positions * (len + width)), |(piece, y)| {
        let (head, token, batch) = (piece % heads, piece / heads % tokens, piece / heads / tokens);
        let query = &q[len * (token + tokens * (head + heads * batch))..][..len];
        let mask = masks.row([token, head, batch], slope(op.max_bias, head, heads));
        let first = positions * (head / (heads / kv_heads) + kv_heads * batch);
        let mut online = Online { op, instructions: call.instructions, query, total: 0.0, largest: f32::NEG_INFINITY };
        for start in (0..positions).step_by(POSITIONS) {
            let mask = &mask[start..positions.min(start + POSITIONS)];
            online.add(k, v, first + start, mask, y)?;
        }
        online.finish(y);
        Ok(())
    })
}

/// One token's and head's attention over the positions so far.
struct Online<'a> {
    op: &'a FlashAttn,
    instructions: Instructions,
    query: &'a [f32],
    /// Sum of the exponentials.
    total: f32,
    /// The largest score.
    largest: f32,
}

impl Online<'_> {
    /// Adds the positions of `mask`, whose keys and values begin at row `first`, to what `mixed` holds.
    fn add(&mut self, k: &Operand, v: &Operand, first: usize, mask: &[f32], mixed: &mut [f32]) -> Result<(), String> {
        if self.largest == f32::NEG_INFINITY {
            mixed.fill(0.0);
        }
        let mut scores = vec![0.0; mask.len()];
        self.score(k, first, mask, &mut scores)?;
        let largest =
            scores.iter().fold(self.largest, |largest, score| if *score > largest { *score } else { largest });
        // Of nothing but unseen positions: their exponentials are 0, or NaN where a score is.
        let subtracted = if largest == f32::NEG_INFINITY { 0.0 } else { largest };
        let mut kept = [self.largest];
        kernel::exponentials(self.instructions, subtracted, &mut kept);
        kernel::exponentials(self.instructions, subtracted, &mut scores);
        self.total = self.total * kept[0] + scores.iter().sum::<f32>();
        let (mut added, weights) = (vec![0.0; mixed.len()], Rows::dense(&scores, 1, scores.len()));
        match dense_rows(v, first, mask.len())? {
            CachedRows::F32(values) => kernel::mix_f32(self.instructions, values, weights, &mut added),
            CachedRows::F16(values) => kernel::mix_f16(self.instructions, values, weights, &mut added),
            CachedRows::Q8_0(_) => return Err(format!("does not support values of type {}", v.ty)),
        }
        mixed.iter_mut().zip(&added).for_each(|(mixed, added)| *mixed = *mixed * kept[0] + added);
        self.largest = largest;
        Ok(())
    }

    /// Scaled, capped and masked scores; -infinity where nothing is to be seen.
    fn score(&self, k: &Operand, first: usize, mask: &[f32], scores: &mut [f32]) -> Result<(), String> {
        let query = Rows::dense(self.query, 1, self.query.len());
        match dense_rows(k, first, mask.len())? {
            CachedRows::F32(keys) => kernel::dots_f32(self.instructions, keys, query, scores),
            CachedRows::F16(keys) => kernel::dots_f16(self.instructions, keys, query, scores),
            CachedRows::Q8_0(_) => return Err(format!("does not support keys of type {}", k.ty)),
        }
        for (score, mask) in scores.iter_mut().zip(mask) {
            *score = if *mask == f32::NEG_INFINITY { *mask } else { self.capped(*score) + mask };
        }
        Ok(())
    }

    /// The scaled score between the limits; the cap itself in f64, rounded once.
    fn capped(&self, dot: f32) -> f32 {
        let softcap = f64::from(self.op.softcap);
        if softcap == 0.0 {
            return dot * self.op.scale;
        }
        let score = f64::from(dot) * f64::from(self.op.scale);
        (softcap * (score / softcap).tanh()) as f32
    }

    /// The mixture becomes a mean.
    fn finish(&self, mixed: &mut [f32]) {
        if self.total == 0.0 {
            mixed.fill(0.0);
        } else {
            mixed.iter_mut().for_each(|mixed| *mixed /= self.total);
        }
    }
}

/// Rows of a tensor without gaps.
fn dense_rows<'a>(rows: &Operand<'a>, first: usize, count: usize) -> Result<CachedRows<'a>, String> {
    let len = rows.ty.shape[0];
    match rows.view {
        View::F32(cells) => Ok(CachedRows::F32(Rows::dense(&cells[first * len..], count, len))),
        View::F16(cells) => Ok(CachedRows::F16(Rows::dense(&cells[first * len..], count, len))),
        View::Bf16(_) | View::Blocks(_) | View::Packed(_) => Err(format!("{} is not in activation memory", rows.ty)),
    }
}
