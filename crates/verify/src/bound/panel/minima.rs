//! Blocks that are summed in integers and whose weights lie above a minimum: two products for each block, which nearly
//! cancel often.
//!
//! ```text
//!   w = d q + m, x = dx c         A = (d dx) (sum of q c)      M = m f32(dx (sum of c))      A_0 + M_0 + A_1 + M_1 + ... in f32
//! ```
//!
//! In q2_k, q4_k and q5_k the blocks are sub-blocks: `d` is the scale of one, and `m` its minimum.
//!
//! Each has one rounded factor. That of `A` is another one for each row; that of `M` is the same for all rows, whose
//! errors would go together: it is declared, and therefore computed here.

use super::{Losses, MINIMUM_LEN, Numbers, ROWS};
use crate::activation::{BLOCK_LEN, Row};
use crate::precision::Precision;

/// One block of declared activations, summed.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockSum {
    /// The exact sum.
    pub exact: f64,
    /// As it is kept.
    pub kept: f64,
    /// Sum of absolute values.
    pub absolute: f64,
}

impl BlockSum {
    /// Those of all blocks of `len` elements of a row.
    pub fn of_row(declared: &[f64], len: usize) -> Vec<BlockSum> {
        let sum = |block: &[f64]| {
            let (exact, absolute) = block.iter().fold((0.0, 0.0), |(sum, absolute), x| (sum + x, absolute + x.abs()));
            BlockSum { exact, kept: Precision::F32.round(exact), absolute }
        };
        declared.chunks(len).map(sum).collect()
    }
}

/// Both products of a block whose element products sum up to `totals`: that of the codes, and that of the minima.
#[inline(always)]
pub(super) fn parts(totals: &Numbers, minima: &Numbers, x: &BlockSum) -> [Numbers; 2] {
    let mut parts = [[0.0; ROWS]; 2];
    for i in 0..ROWS {
        parts[0][i] = totals[i] - minima[i] * x.exact;
        parts[1][i] = minima[i] * x.kept;
    }
    parts
}

/// Adds how much larger the absolute element products of both parts are, at most, than those of the whole: `|d q x| +
/// |m x| <= |w x| + 2 |m x|`.
#[inline(always)]
pub(super) fn add_absolute(apart: &mut Numbers, minima: &Numbers, x: &BlockSum) {
    for i in 0..ROWS {
        apart[i] += 2.0 * minima[i].abs() * x.absolute;
    }
}

/// The products of minima with sums of activations: of each [`MINIMUM_LEN`] elements where the sum is exact, of each
/// block where it is rounded. Adds what the rounding of sums costs to `losses`.
pub(super) fn of_sums(apart: &[Numbers], row: &Row, losses: &mut Losses) -> Vec<Numbers> {
    if row.sums.is_empty() {
        let sum = |(x, minima): (&[f64], &Numbers)| minima.map(|minimum| minimum * x.iter().sum::<f64>());
        return row.values.chunks(MINIMUM_LEN).zip(apart).map(sum).collect();
    }
    let of_block = |block: usize| apart.get(block * BLOCK_LEN / MINIMUM_LEN).copied().unwrap_or_default();
    for (element, step) in &row.ties {
        // Another code moves the sum on by a step, to where it may be rounded the other way.
        let sum = row.sums.get(element / BLOCK_LEN).map_or(0.0, |sum| sum.abs() + step);
        losses.add_tie(&of_block(element / BLOCK_LEN), 2.0 * Precision::F16.unit * sum);
    }
    let product = |(block, sum): (usize, &f64)| {
        let products = of_block(block).map(|minimum| minimum * sum);
        losses.add_rounded(&products, Precision::F16);
        products
    };
    row.sums.iter().enumerate().map(product).collect()
}
