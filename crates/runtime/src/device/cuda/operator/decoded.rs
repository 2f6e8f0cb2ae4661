//! Products of many tokens with weights in blocks whose codes are not multiplied as they are: weights become f16, some
//! rows at a time, and tensor cores multiply them.
//!
//! ```text
//!   rows of w ─decode.cu─▶ room of the call, f16 ─cuBLASLt, else mul_mat_halves.cu─▶ these rows of y      and the rows behind them, in the same room
//! ```

use super::matrix::{TILE, Way, multiply_halves};
use super::{ALIGNMENT, Argument, Call, Grid, Means, Operand, View, suffix};
use trueup_blocks::DType;
use trueup_graph::TensorType;

/// Bytes of decoded weights for each processor of a card, at most: with rows of 4096, 64 rows a processor, so that a
/// prompt of 512 tokens keeps all of them busy with two tiles each. More rows at once would take more room, and less of
/// them would still lie in the card's cache when they are multiplied.
const ROOM_OF_PROCESSOR: usize = 512 << 10;

/// Weights that a thread of the kernel decodes.
const RUN: usize = 8;

impl Means {
    /// Bytes of room that a product decodes its weights in: 0 where it does not.
    pub fn decoded_bytes(&self, weights: &[TensorType], x: &TensorType) -> usize {
        let decodes = self.way(weights, x) == Way::Decoded;
        let bytes = |w: &TensorType| w.shape[0] * self.rows_at_once(w) * DType::F16.block_bytes();
        weights.iter().filter(|_| decodes).map(bytes).max().unwrap_or(0).next_multiple_of(ALIGNMENT)
    }

    /// Rows of a matrix that are decoded at once: all, or pieces of about one size, each of whole tiles.
    fn rows_at_once(&self, w: &TensorType) -> usize {
        let [len, rows, ..] = w.shape.sizes();
        let fit = self.processors as usize * ROOM_OF_PROCESSOR / (len * DType::F16.block_bytes()).max(1);
        let most = (fit / TILE[0] * TILE[0]).max(TILE[0]);
        let pieces = rows.div_ceil(most).max(1);
        rows.div_ceil(pieces).next_multiple_of(TILE[0]).min(rows).max(1)
    }
}

/// `y = w x`, with activations in f16 at the first address, and room for decoded weights at the second.
pub fn multiply(call: &Call, w: &Operand, [taken, room]: [u64; 2], y: &Operand) -> Result<(), String> {
    let [len, rows, b2, b3] = w.ty.shape.sizes();
    let [_, tokens, n2, n3] = y.ty.shape.sizes();
    let at_once = call.means.rows_at_once(&w.ty);
    for (i3, i2) in (0..b3).flat_map(|i3| (0..b2).map(move |i2| (i3, i2))) {
        let (of2, of3) = (n2 / b2, n3 / b3);
        let matrix = w.part(3, i3, 1).part(2, i2, 1);
        for first in (0..rows).step_by(at_once) {
            let count = at_once.min(rows - first);
            let decoded = decode(call, &matrix.part(1, first, count), room)?;
            // Batches that share the matrix lie behind each other along the third dimension only.
            for batch in i3 * of3..(i3 + 1) * of3 {
                let before = tokens * (i2 * of2 + n2 * batch) * len * DType::F16.block_bytes();
                let y = y.part(3, batch, 1).part(2, i2 * of2, of2).part(0, first, count);
                multiply_halves(call, decoded, taken + before as u64, &y)?;
            }
        }
    }
    Ok(())
}

/// Rows of one matrix, in f16 at an address.
fn decode(call: &Call, w: &Operand, room: u64) -> Result<View, String> {
    let [len, rows, ..] = w.view.sizes;
    let decoded = View { data: room, sizes: [len, rows, 1, 1], steps: [1, len, len * rows, len * rows] };
    let grid = Grid::elements(w.ty.shape.elements() / RUN)?;
    call.launch(&format!("decode_{}", suffix(w.ty.dtype)), grid, &[Argument::View(w.view), Argument::Address(room)])?;
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::super::matrix::tests::FAST;
    use super::*;
    use crate::devices::Linear;

    #[test]
    fn rows_are_decoded_in_pieces_of_whole_tiles_that_fit() {
        let at_once = |len, rows| FAST.rows_at_once(&TensorType::new(DType::Q6K, &[len, rows]));
        // 66 MiB are 8448 rows of 4096.
        assert_eq!([at_once(4096, 0), at_once(4096, 1), at_once(4096, 8448)], [1, 1, 8448]);
        // Two pieces of about one size, each of whole tiles but the last.
        assert_eq!([at_once(4096, 8449), at_once(4096, 14_336)], [4352, 7168]);
        // Rows so long that a tile of them does not fit.
        assert_eq!(at_once(1 << 20, 1000), 128);
        for (len, rows) in [(256_usize, 1_usize << 20), (4096, 128_256), (14_336, 4096), (28_672, 8192)] {
            let (count, most) = (at_once(len, rows), 66 << 20);
            assert!(count.is_multiple_of(TILE[0]) && 2 * count * len <= most, "{count} of {rows} rows of {len}");
            assert!(2 * rows.div_ceil(rows.div_ceil(count)) > count, "{count} of {rows} rows of {len}");
        }
    }

    #[test]
    fn room_is_asked_for_where_weights_are_decoded() {
        let x = |tokens| TensorType::new(DType::F32, &[256, tokens]);
        let [q6_k, q4_0] = [DType::Q6K, DType::Q4_0].map(|dtype| TensorType::new(dtype, &[256, 9]));
        assert_eq!(FAST.decoded_bytes(&[q6_k], &x(9)), 256 * 9 * 2);
        // One matrix after the other is decoded.
        assert_eq!(FAST.decoded_bytes(&[q6_k, q6_k], &x(9)), 256 * 9 * 2);
        let decoding = Means { linear: Linear::Dequantize, ..FAST };
        assert_eq!(decoding.decoded_bytes(&[q4_0], &x(9)), 256 * 9 * 2);
        for (means, w, tokens) in [(FAST, q6_k, 8), (FAST, q4_0, 9), (decoding, q4_0, 8)] {
            assert_eq!(means.decoded_bytes(&[w], &x(tokens)), 0, "{w} and {tokens} tokens");
        }
    }
}
