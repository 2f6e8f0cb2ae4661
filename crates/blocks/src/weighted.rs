//! Encoding with importance for `q4_0`, `q4_1`, `q5_0` and `q5_1`: the error weights depend on the mean square of a
//! whole row, and the codes that the search finds are final.

use crate::codec::{assert_whole_rows, encode_blocks_weighted, whole_blocks};
use crate::scale::LEN;
use crate::search::lanes::{self, Columns, Lanes};
use crate::search::{importance_of, sum_of_squares};

/// A format with blocks of `BYTES` bytes.
pub(crate) trait Format<const BYTES: usize> {
    /// Writes the codes of a block; returns its scale and its negated minimum (0 for formats without minima).
    fn search(weights: &[f32; LEN], counts: &[f32; LEN], codes: &mut [u8; LEN]) -> (f32, f32);

    /// [`Format::search`] of several blocks.
    fn search_lanes<V: Lanes>(weights: &Columns<V, LEN>, counts: &Columns<V, LEN>) -> lanes::Found<V, LEN>;

    /// Writes the bytes of a block from the result of [`Format::search`].
    fn pack(found: (f32, f32), codes: &[u8; LEN], block: &mut [u8; BYTES]);
}

/// Bytes of a row of `len` elements.
fn row_bytes<const BYTES: usize>(len: usize) -> usize {
    (len / LEN * BYTES).max(1)
}

/// Encodes rows, one block at a time.
pub(crate) fn encode_weighted<F: Format<BYTES>, const BYTES: usize>(
    weights: &[f32],
    importance: &[f32],
    bytes: &mut [u8],
) {
    assert_whole_rows(weights, importance);
    let rows = weights.chunks(importance.len().max(1));
    for (row, bytes) in rows.zip(bytes.chunks_mut(row_bytes::<BYTES>(importance.len()))) {
        let mean_square = sum_of_squares(row) / row.len() as f32;
        encode_blocks_weighted(row, importance, bytes, |weights, importance, block| {
            let mut codes = [0; LEN];
            let found = F::search(weights, &importance_of(weights, importance, mean_square), &mut codes);
            F::pack(found, &codes, block);
        });
    }
}

/// [`encode_weighted`] with a block in each lane.
#[inline(always)]
pub(crate) fn encode_weighted_lanes<F: Format<BYTES>, V: Lanes, const BYTES: usize>(
    weights: &[f32],
    importance: &[f32],
    bytes: &mut [u8],
) {
    assert_whole_rows(weights, importance);
    let rows = weights.chunks(importance.len().max(1));
    for (row, bytes) in rows.zip(bytes.chunks_mut(row_bytes::<BYTES>(importance.len()))) {
        let mean_square = V::splat(sum_of_squares(row) / row.len() as f32);
        let (sources, blocks) = whole_blocks(row.as_chunks::<LEN>(), bytes.as_chunks_mut::<BYTES>());
        let importance = importance.as_chunks::<LEN>().0.chunks(V::LANES);
        let batches = sources.chunks(V::LANES).zip(importance).zip(blocks.chunks_mut(V::LANES));
        for ((sources, importance), blocks) in batches {
            let columns = lanes::columns::<V, LEN>(sources);
            let counts = lanes::importance_of(&columns, &lanes::columns(importance), mean_square);
            let found = F::search_lanes(&columns, &counts);
            let (scales, minima, codes) = (found.scale.store(), found.minimum.store(), lanes::bytes(&found.codes));
            for (lane, block) in blocks.iter_mut().enumerate() {
                let mut codes_of_block = [0; LEN];
                for (code, column) in codes_of_block.iter_mut().zip(&codes) {
                    *code = column[lane];
                }
                F::pack((scales[lane], minima[lane]), &codes_of_block, block);
            }
        }
    }
}
