//! Packed tiles: quantized matrices in the layout that the product kernels read, sixteen rows side by side, block
//! after block.
//!
//! ```text
//!  GGUF, row by row           f16 │ codes of block 0 │ f16 │ codes of block 1 │ ...        (2 S + 4 G bytes per block)
//!                             mxfp4: one byte (E8M0) instead of f16; nvfp4: pairs of bytes (UE4M3)
//!
//!  tile of rows 0 ... 15      ┌ block 0 ──────────────────────────────────────────────┐┌ block 1 ──
//!                             │ S scales of 16 rows │ group 0: 4 bytes of row 0, row 1, ... row 15 │ group 1 │ ... G
//!
//!             S               G groups
//!  q4_0       1  d            4  nibbles
//!  q4_1       2  d, m         4  nibbles
//!  q5_0       1  d            5  fifth bits, nibbles
//!  q5_1       2  d, m         5  fifth bits, nibbles
//!  q8_0       1  d            8  bytes
//!  q8_1       2  d, sum       8  bytes
//!
//!  iq4_nl     1  d            4  nibbles
//!  mxfp4      1  exponent     4  nibbles
//!  nvfp4      2  4 scales     8  nibbles of 4 times 16
//!  iq4_xs     2  d, high bits of the scales      33  low bits of the scales, nibbles
//!  q2_k       2  d, dmin (last in the file)      20  4 of scales and minima, 16 of two bits
//!  q3_k       1  d (last in the file)            27  8 of third bits, 16 of two bits, 3 of scales
//!  q4_k       2  d, dmin                         35  3 of scales and minima, 32 of nibbles
//!  q5_k       2  d, dmin                         43  3 of scales and minima, 8 of fifth bits, 32 of nibbles
//!  q6_k       1  d (last in the file)            52  32 of nibbles, 16 of two bits, 4 of scales
//!  tq2_0      1  d (last in the file)            16  two bits
//! ```
//!
//! A group is four bytes of codes. One 512-bit register, or two 256-bit registers, hold the same four places of
//! sixteen rows, and each lane sums one row. Byte groups hold four elements. Nibble groups hold elements `4 g ...` in
//! the low halves and `16 + 4 g ...` in the high halves. The fifth bits of a row are one number, with bit `k` for
//! element `k`. Types with blocks of 64 or 256 keep the order of their words in the file, except that scales come first
//! ([`Format`](super::kernel::Format) says what a word holds). Packing moves bytes and never changes them; next to the
//! one byte of an mxfp4 scale there is a mark, 1 where all codes of the block are worth 0 ([`ALL_ZERO`]). Missing
//! rows of the last tile are zero.
//!
//! Prompts use pairs of tiles, so that two tiles share each activation register. Up to four tokens read one tile at a
//! time.

mod packed;

pub(super) use packed::Packed;

use super::kernel::pack_panel;
use super::means::Means;
use super::pages::Pages;
use super::team::Team;
use trueup_blocks::DType;

/// Rows of a panel: the 32-bit lanes of a 512-bit register.
pub(super) const PANEL_ROWS: usize = 16;

/// Elements of one block of activations, and of weights with one scale.
pub(super) const BLOCK_LEN: usize = 32;

/// The mark in a scale of mxfp4, except NaN, all codes of whose block are worth 0.
pub(super) const ALL_ZERO: u16 = 0x100;

/// One block of sixteen rows: `SCALES` times two bytes of scales and `GROUPS` times four bytes of codes each.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct PanelBlock<const SCALES: usize, const GROUPS: usize> {
    /// `scales[i][row]`: bits of f16, the first what codes are multiplied by. In mxfp4 E8M0 with [`ALL_ZERO`], in nvfp4
    /// a pair of UE4M3.
    pub scales: [[u16; PANEL_ROWS]; SCALES],
    /// `codes[group][row]`: four bytes as in the file.
    pub codes: [[[u8; 4]; PANEL_ROWS]; GROUPS],
}

const _: () = assert!(PanelBlock::<1, 4>::SOURCE_BYTES == DType::Q4_0.block_bytes());
const _: () = assert!(PanelBlock::<2, 4>::SOURCE_BYTES == DType::Q4_1.block_bytes());
const _: () = assert!(PanelBlock::<1, 5>::SOURCE_BYTES == DType::Q5_0.block_bytes());
const _: () = assert!(PanelBlock::<2, 5>::SOURCE_BYTES == DType::Q5_1.block_bytes());
const _: () = assert!(PanelBlock::<1, 8>::SOURCE_BYTES == DType::Q8_0.block_bytes());
const _: () = assert!(PanelBlock::<2, 8>::SOURCE_BYTES == DType::Q8_1.block_bytes());
const _: () = assert!(PanelBlock::<2, 20>::SOURCE_BYTES == DType::Q2K.block_bytes());
const _: () = assert!(PanelBlock::<1, 27>::SOURCE_BYTES == DType::Q3K.block_bytes());
const _: () = assert!(PanelBlock::<2, 35>::SOURCE_BYTES == DType::Q4K.block_bytes());
const _: () = assert!(PanelBlock::<2, 43>::SOURCE_BYTES == DType::Q5K.block_bytes());
const _: () = assert!(PanelBlock::<1, 52>::SOURCE_BYTES == DType::Q6K.block_bytes());
const _: () = assert!(PanelBlock::<1, 4>::SOURCE_BYTES == DType::Iq4Nl.block_bytes());
const _: () = assert!(PanelBlock::<2, 33>::SOURCE_BYTES == DType::Iq4Xs.block_bytes());
const _: () = assert!(PanelBlock::<1, 4>::source_bytes(1) == DType::Mxfp4.block_bytes());
const _: () = assert!(PanelBlock::<2, 8>::SOURCE_BYTES == DType::Nvfp4.block_bytes());
const _: () = assert!(PanelBlock::<1, 16>::SOURCE_BYTES == DType::Tq2_0.block_bytes());

/// Bytes of a scale in the file.
pub(super) const fn scale_bytes(dtype: DType) -> usize {
    if matches!(dtype, DType::Mxfp4) { 1 } else { 2 }
}

impl<const SCALES: usize, const GROUPS: usize> PanelBlock<SCALES, GROUPS> {
    /// Bytes of one row's block in the file, with scales of two bytes.
    pub const SOURCE_BYTES: usize = Self::source_bytes(2);

    /// Whether the file has the scales after the codes.
    pub const SCALES_LAST: bool = matches!((SCALES, GROUPS), (2, 20) | (1, 27) | (1, 52) | (1, 16));

    /// Where the scales are in a block of the file.
    pub const SCALES_AT: usize = if Self::SCALES_LAST { 4 * GROUPS } else { 0 };

    /// Whether codes are bytes with a sign; else they are nibbles, perhaps with a fifth bit, that count from 0.
    pub const BYTES: bool = GROUPS == 8;

    /// Whether codes have a fifth bit, which the first group holds.
    pub const FIFTH_BITS: bool = GROUPS == 5;

    /// Whether the second scale is added to each product of a code and a scale.
    pub const MINIMA: bool = SCALES == 2 && !Self::BYTES;

    /// What is subtracted from a code that counts from 0, for bytes once their sign bit is turned over.
    pub const OFFSET: i32 = match GROUPS {
        _ if Self::MINIMA => 0,
        4 => 8,
        5 => 16,
        _ => 128,
    };

    /// Scales 0, codes 0.
    pub const ZERO: PanelBlock<SCALES, GROUPS> =
        PanelBlock { scales: [[0; PANEL_ROWS]; SCALES], codes: [[[0; 4]; PANEL_ROWS]; GROUPS] };

    /// Bytes of one row's block in the file, with scales of `scale_bytes`.
    pub const fn source_bytes(scale_bytes: usize) -> usize {
        scale_bytes * SCALES + 4 * GROUPS
    }

    /// Where the codes are in a block of the file, with scales of `scale_bytes`.
    pub const fn codes_at(scale_bytes: usize) -> usize {
        if Self::SCALES_LAST { 0 } else { scale_bytes * SCALES }
    }

    /// The group that elements `4 group ...` lie in.
    #[inline(always)]
    pub fn group(&self, group: usize) -> &[[u8; 4]; PANEL_ROWS] {
        &self.codes[if Self::BYTES { group } else { group % 4 + usize::from(Self::FIFTH_BITS) }]
    }
}

impl<const SCALES: usize, const GROUPS: usize> Default for PanelBlock<SCALES, GROUPS> {
    fn default() -> PanelBlock<SCALES, GROUPS> {
        PanelBlock::ZERO
    }
}

/// A matrix of `rows` rows in panels.
#[derive(Debug)]
pub(super) struct Panels<const SCALES: usize, const GROUPS: usize> {
    blocks: Pages<PanelBlock<SCALES, GROUPS>>,
    blocks_per_row: usize,
    rows: usize,
    scale_bytes: usize,
}

impl<const SCALES: usize, const GROUPS: usize> Panels<SCALES, GROUPS> {
    /// A matrix of `rows` rows in these blocks, whose scales have `scale_bytes` in the file. Panics if the number of
    /// blocks is not that of its panels.
    pub fn new(
        blocks: Pages<PanelBlock<SCALES, GROUPS>>,
        rows: usize,
        blocks_per_row: usize,
        scale_bytes: usize,
    ) -> Panels<SCALES, GROUPS> {
        assert_eq!(blocks.len(), rows.div_ceil(PANEL_ROWS) * blocks_per_row, "blocks of whole panels");
        Panels { blocks, blocks_per_row, rows, scale_bytes }
    }

    /// Bytes of the matrix in the file.
    pub fn source_bytes(&self) -> usize {
        self.rows * self.row_bytes()
    }

    /// Bytes of a row in the file.
    pub fn row_bytes(&self) -> usize {
        self.blocks_per_row * PanelBlock::<SCALES, GROUPS>::source_bytes(self.scale_bytes)
    }

    /// Bytes of a scale in the file.
    pub fn scale_bytes(&self) -> usize {
        self.scale_bytes
    }

    /// Blocks of a row.
    pub fn blocks_per_row(&self) -> usize {
        self.blocks_per_row
    }

    /// Rows `16 index ...`, block after block.
    pub fn panel(&self, index: usize) -> &[PanelBlock<SCALES, GROUPS>] {
        self.panels(index, 1)
    }

    /// `count` panels behind each other, from rows `16 index ...` on.
    pub fn panels(&self, index: usize, count: usize) -> &[PanelBlock<SCALES, GROUPS>] {
        &self.blocks[index * self.blocks_per_row..][..count * self.blocks_per_row]
    }

    /// Takes the matrix's bytes as in the file, [`Panels::source_bytes`] of them.
    pub fn pack(&mut self, means: Means, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.source_bytes(), "bytes of a whole matrix");
        if bytes.is_empty() {
            return;
        }
        let panel_bytes = PANEL_ROWS * self.row_bytes();
        let panels = self.blocks.chunks_mut(self.blocks_per_row).zip(bytes.chunks(panel_bytes));
        let scale_bytes = self.scale_bytes;
        means.team.each(panels, 1, |(panel, bytes)| pack_panel(means.instructions, bytes, panel, scale_bytes));
    }

    /// Gives one row's bytes as in the file, [`Panels::row_bytes`] of them.
    pub fn unpack_row(&self, row: usize, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.row_bytes(), "bytes of a whole row");
        let lane = row % PANEL_ROWS;
        let scale_bytes = self.scale_bytes;
        let targets = bytes.chunks_exact_mut(PanelBlock::<SCALES, GROUPS>::source_bytes(scale_bytes));
        for (target, block) in targets.zip(self.panel(row / PANEL_ROWS)) {
            let scales = &mut target[PanelBlock::<SCALES, GROUPS>::SCALES_AT..];
            for (scale, of_rows) in scales.chunks_exact_mut(scale_bytes).zip(&block.scales) {
                scale.copy_from_slice(&of_rows[lane].to_le_bytes()[..scale_bytes]);
            }
            let codes = &mut target[PanelBlock::<SCALES, GROUPS>::codes_at(scale_bytes)..];
            for (codes, group) in codes.as_chunks_mut::<4>().0.iter_mut().zip(&block.codes) {
                *codes = group[lane];
            }
        }
    }

    /// Gives the matrix's bytes as in the file.
    pub fn unpack(&self, team: &Team, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.source_bytes(), "bytes of a whole matrix");
        if bytes.is_empty() {
            return;
        }
        let rows = bytes.chunks_mut(self.row_bytes()).enumerate();
        team.each(rows, PANEL_ROWS, |(row, bytes)| self.unpack_row(row, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::super::isa::{Instructions, Isa};
    use super::super::spare::Spares;
    use super::*;

    /// Packs with this machine's kernel, and gives the bytes back.
    fn packed<const S: usize, const G: usize>(panels: &mut Panels<S, G>, bytes: &[u8]) -> Vec<u8> {
        let (team, spares) = (Team::new(2).unwrap(), Spares::default());
        let mut found = vec![0xA5; bytes.len()];
        let instructions = Instructions::of(Isa::available()[0]).unwrap();
        panels.pack(Means { instructions, team: &team, spares: &spares }, bytes);
        panels.unpack(&team, &mut found);
        found
    }

    fn zeros<const S: usize, const G: usize>(rows: usize, blocks_per_row: usize, scale_bytes: usize) -> Panels<S, G> {
        let blocks = Pages::zeros(rows.div_ceil(PANEL_ROWS) * blocks_per_row).unwrap();
        Panels::new(blocks, rows, blocks_per_row, scale_bytes)
    }

    fn come_back<const S: usize, const G: usize>(scale_bytes: usize) {
        for (rows, blocks_per_row) in [(1, 1), (15, 3), (16, 1), (17, 2), (63, 5), (0, 2)] {
            let mut panels = zeros::<S, G>(rows, blocks_per_row, scale_bytes);
            let bytes: Vec<u8> = (0..panels.source_bytes()).map(|i| (i * 131 % 251) as u8).collect();
            assert_eq!(packed(&mut panels, &bytes), bytes, "{rows} rows of {blocks_per_row} blocks");
        }
    }

    #[test]
    fn what_is_packed_comes_back_byte_for_byte() {
        come_back::<1, 4>(2);
        come_back::<2, 4>(2);
        come_back::<1, 5>(2);
        come_back::<2, 5>(2);
        come_back::<1, 8>(2);
        come_back::<2, 8>(2);
        come_back::<2, 20>(2);
        come_back::<1, 27>(2);
        come_back::<2, 35>(2);
        come_back::<2, 43>(2);
        come_back::<1, 52>(2);
        come_back::<2, 33>(2);
        come_back::<1, 16>(2);
        come_back::<1, 4>(1);
    }

    /// Their mark does not come back.
    #[test]
    fn blocks_of_zeros_with_any_scale_come_back() {
        let mut panels = zeros::<1, 4>(17, 4, 1);
        let mut bytes = vec![0; panels.source_bytes()];
        bytes.chunks_mut(17).zip([0, 254, 255, 127].into_iter().cycle()).for_each(|(block, e)| block[0] = e);
        assert_eq!(packed(&mut panels, &bytes), bytes);
        let scales = [0, 1, 2, 3].map(|block| panels.panel(0)[block].scales[0][15]);
        assert_eq!(scales, [ALL_ZERO, ALL_ZERO | 254, 255, ALL_ZERO | 127], "all but NaN are marked");
    }

    #[test]
    fn a_group_holds_four_bytes_of_sixteen_rows() {
        let mut panels = zeros::<1, 8>(16, 1, 2);
        let bytes: Vec<u8> = (0..16 * 34).map(|i| (i / 34 * 32 + i % 34) as u8).collect();
        packed(&mut panels, &bytes);
        let block = panels.panel(0)[0];
        assert_eq!(block.scales[0][1], u16::from_le_bytes([32, 33]));
        assert_eq!(block.codes[2][1], [42, 43, 44, 45], "bytes 8 to 11 of row 1 behind its scale");

        let mut panels = zeros::<2, 5>(16, 1, 2);
        let bytes: Vec<u8> = (0..16 * 24).map(|i| (i / 24 * 16 + i % 24) as u8).collect();
        packed(&mut panels, &bytes);
        let block = panels.panel(0)[0];
        assert_eq!(block.scales[1][1], u16::from_le_bytes([18, 19]), "the minimum of row 1");
        assert_eq!(block.codes[0][1], [20, 21, 22, 23], "the fifth bits of row 1");
        assert_eq!(block.group(0)[1], [24, 25, 26, 27], "nibbles of row 1");
    }
}
