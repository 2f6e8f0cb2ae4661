//! Indices of a row's elements by rank. A number and its place are sorted as one integer:
//!
//! ```text
//!  [ key of the number, 32 bits | place, 32 bits ]      so that equal numbers stay in the order in which they lie
//! ```

use super::{Call, ELEMENTWISE, expect_f32, pieces_min};
use crate::profile::Profile;
use trueup_graph::TensorType;
use trueup_graph::op::{Rank, RankRule};

pub fn profile(inputs: &[TensorType]) -> Result<Profile, String> {
    expect_f32("x", &inputs[0])?;
    Ok(ELEMENTWISE)
}

pub fn compute(op: &Rank, call: Call) -> Result<(), String> {
    let x = call.inputs[0].floats()?;
    let len = call.inputs[0].ty.shape[0];
    let y = Call::output_floats(call.output)?;
    if y.is_empty() {
        return Ok(());
    }
    let wanted = match op.rule {
        RankRule::ArgMax => 1,
        RankRule::Ascending | RankRule::Descending => len,
        RankRule::TopK { k } => k,
    };
    let rows = y.chunks_mut(wanted).zip(x.chunks(len));
    call.team.each(rows, pieces_min(len), |(y, x)| rank_row(op.rule, x, y));
    Ok(())
}

/// The wanted places of one row, as bits of i32.
fn rank_row(rule: RankRule, x: &[f32], y: &mut [f32]) {
    let descending = |(place, x): (usize, &f32)| u64::from(!key(*x)) << 32 | place as u64;
    let mut pairs: Vec<u64> = match rule {
        RankRule::Ascending => x.iter().enumerate().map(|(place, x)| u64::from(key(*x)) << 32 | place as u64).collect(),
        RankRule::ArgMax => x.iter().enumerate().map(descending).min().into_iter().collect(),
        RankRule::Descending | RankRule::TopK { .. } => x.iter().enumerate().map(descending).collect(),
    };
    if y.len() < pairs.len() {
        pairs.select_nth_unstable(y.len());
        pairs.truncate(y.len());
    }
    pairs.sort_unstable();
    for (y, pair) in y.iter_mut().zip(pairs) {
        *y = f32::from_bits(pair as u32);
    }
}

/// An integer that orders as the number does: zeros of either sign are equal, NaN is above all.
fn key(x: f32) -> u32 {
    let bits = if x.is_nan() { f32::NAN.to_bits() & (u32::MAX >> 1) } else { (x + 0.0).to_bits() };
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_numbers_do() {
        let ordered = [f32::NEG_INFINITY, -3.0, -1e-45, 0.0, 1e-45, 0.5, 3.0, f32::INFINITY, f32::NAN];
        assert!(ordered.windows(2).all(|pair| key(pair[0]) < key(pair[1])));
        assert_eq!((key(-0.0), key(-f32::NAN)), (key(0.0), key(f32::NAN)));
    }

    #[test]
    fn equal_elements_keep_their_order() {
        let x = [2.0, -1.0, 2.0, -0.0, 0.0, 2.0];
        let places = |rule, len| {
            let mut y = vec![0.0; len];
            rank_row(rule, &x, &mut y);
            y.iter().map(|y: &f32| y.to_bits()).collect::<Vec<u32>>()
        };
        assert_eq!(places(RankRule::Ascending, 6), [1, 3, 4, 0, 2, 5]);
        assert_eq!(places(RankRule::Descending, 6), [0, 2, 5, 3, 4, 1]);
        assert_eq!(places(RankRule::TopK { k: 2 }, 2), [0, 2]);
        assert_eq!(places(RankRule::ArgMax, 1), [0]);
    }
}
