//! Sixteen rows brought side by side: bytes are moved, never changed (see [`panels`](crate::panel_block)).
//! Scales of one byte get a mark where all codes of their block are worth 0.

use super::kernel;
use super::panel_block::{ALL_ZERO, PANEL_ROWS, PanelBlock};
#[cfg(feature = "samples")]
use super::{Instructions, PackedFormat, PackedUnit};

/// Blocks that one row after the other is brought to: as many as stay in the nearest cache for all sixteen.
const BLOCKS_AT_ONCE: usize = 32;

kernel! {
    /// Packs up to sixteen rows, `bytes` of the file, each of `panel.len()` blocks; the places of other rows become
    /// zeros. Scales have one or two bytes in the file.
    fn pack_panel [const S: usize, const G: usize] (
        bytes: &[u8],
        panel: &mut [PanelBlock<S, G>],
        scale_bytes: usize,
    ) {
        avx512 => super::avx512::pack_panel::pack,
        scalar => pack,
    }
    pack_panel_samples on samples
}

fn pack<const S: usize, const G: usize>(bytes: &[u8], panel: &mut [PanelBlock<S, G>], scale_bytes: usize) {
    match scale_bytes {
        1 => {
            pack_scales_of::<S, G, 1>(bytes, panel);
            mark_zeros(panel);
        }
        2 => pack_scales_of::<S, G, 2>(bytes, panel),
        _ => panic!("scales have one or two bytes, not {scale_bytes}"),
    }
}

/// Marks the scales of mxfp4 whose codes are all worth 0, except NaN. Encoders store large exponents in such blocks.
/// Their products with scales of activations are infinite, and 0 times that would be NaN.
#[inline(always)]
pub(super) fn mark_zeros<const S: usize, const G: usize>(panel: &mut [PanelBlock<S, G>]) {
    // Codes 0 and 8 are 0 and -0.
    const MAGNITUDES: u32 = 0x7777_7777;
    for block in panel {
        for row in 0..PANEL_ROWS {
            let codes = block.codes.iter().fold(0, |all, group| all | u32::from_le_bytes(group[row]));
            let scale = &mut block.scales[0][row];
            *scale |= if codes & MAGNITUDES == 0 && *scale != 0xFF { ALL_ZERO } else { 0 };
        }
    }
}

/// With scales of `B` bytes.
pub(super) fn pack_scales_of<const S: usize, const G: usize, const B: usize>(
    bytes: &[u8],
    panel: &mut [PanelBlock<S, G>],
) {
    let block_bytes = PanelBlock::<S, G>::source_bytes(B);
    let row_bytes = row_bytes_of(bytes, panel, B);
    if bytes.len() < PANEL_ROWS * row_bytes {
        panel.fill(PanelBlock::ZERO);
    }
    for (piece, panel) in panel.chunks_mut(BLOCKS_AT_ONCE).enumerate() {
        for (row, source) in bytes.chunks_exact(row_bytes).enumerate() {
            let source = &source[piece * BLOCKS_AT_ONCE * block_bytes..];
            for (block, target) in source.chunks_exact(block_bytes).zip(panel.iter_mut()) {
                let scales = &block[PanelBlock::<S, G>::SCALES_AT..];
                for (target, scale) in target.scales.iter_mut().zip(scales.as_chunks::<B>().0) {
                    target[row] = u16::from_le_bytes([scale[0], if B == 2 { scale[1] } else { 0 }]);
                }
                let codes = &block[PanelBlock::<S, G>::codes_at(B)..];
                for (group, codes) in target.codes.iter_mut().zip(codes.as_chunks::<4>().0) {
                    group[row] = *codes;
                }
            }
        }
    }
}

/// Bytes of a row. Panics where there are more rows than a panel holds, or not whole ones.
pub(super) fn row_bytes_of<const S: usize, const G: usize>(
    bytes: &[u8],
    panel: &[PanelBlock<S, G>],
    scale_bytes: usize,
) -> usize {
    let row_bytes = panel.len() * PanelBlock::<S, G>::source_bytes(scale_bytes);
    assert!(bytes.len() <= PANEL_ROWS * row_bytes, "more rows than a panel holds");
    assert!(bytes.len().is_multiple_of(row_bytes.max(1)), "whole rows");
    row_bytes
}

/// Writes the blocks of row `row` as in the file, with scales of `scale_bytes`. Panics if `bytes` does not hold all.
pub(super) fn unpack_row<const S: usize, const G: usize>(
    panel: &[PanelBlock<S, G>],
    row: usize,
    scale_bytes: usize,
    bytes: &mut [u8],
) {
    let block_bytes = PanelBlock::<S, G>::source_bytes(scale_bytes);
    assert_eq!(bytes.len(), panel.len() * block_bytes, "bytes of a whole row");
    for (target, block) in bytes.chunks_exact_mut(block_bytes).zip(panel) {
        let scales = &mut target[PanelBlock::<S, G>::SCALES_AT..];
        for (scale, of_rows) in scales.chunks_exact_mut(scale_bytes).zip(&block.scales) {
            scale.copy_from_slice(&of_rows[row].to_le_bytes()[..scale_bytes]);
        }
        let codes = &mut target[PanelBlock::<S, G>::codes_at(scale_bytes)..];
        for (codes, group) in codes.as_chunks_mut::<4>().0.iter_mut().zip(&block.codes) {
            *codes = group[row];
        }
    }
}

/// Tiles of all formats, of one to sixteen rows of 0 to 70 blocks: each byte as a number.
#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    let mut results = Vec::new();
    let sizes = [(16, 0), (16, 1), (16, 2), (1, 3), (15, 4), (16, 33), (7, 70), (16, 70)];
    for (format, (rows, blocks)) in PackedFormat::ALL.iter().flat_map(|format| sizes.map(|size| (*format, size))) {
        let bytes = rows * blocks * format.dtype().block_bytes();
        let bytes: Vec<u8> = (0..bytes).map(|i| (i * 131 % 251) as u8).collect();
        let mut units = vec![PackedUnit([0xA5; 2 * PANEL_ROWS]); blocks * format.units()];
        format.pack(instructions, &bytes, &mut units);
        results.extend(units.iter().flat_map(|unit| unit.0).map(f32::from));
    }
    results
}
