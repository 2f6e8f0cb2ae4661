//! Quantized matrices as the product kernels stream them: sixteen rows side by side, block after block.
//!
//! ```text
//!  GGUF, row by row           d │ codes of block 0 │ d │ codes of block 1 │ ...        (2 + 4 G bytes a block)
//!
//!  panel of rows 0 ... 15     ┌ block 0 ─────────────────────────────────────────────┐┌ block 1 ──
//!                             │ d of 16 rows │ group 0: 4 bytes of row 0, row 1, ... row 15 │ group 1 │ ... G
//! ```
//!
//! A group is four bytes of codes, so that one 512-bit register, or two of 256, hold the same four places of sixteen rows, and a lane sums one
//! row. `q8_0` has eight groups of four elements a block; `q4_0` four groups, whose low nibbles are elements `4 g ...` and whose high
//! nibbles are elements `16 + 4 g ...`. Bytes are moved, never changed. Behind the last row a panel is filled with zeros.

use super::pages::Pages;
use super::team::Team;
use trueup_blocks::DType;

/// Rows of a panel: the 32-bit lanes of a 512-bit register.
pub(super) const PANEL_ROWS: usize = 16;

/// Elements of one block.
pub(super) const BLOCK_LEN: usize = 32;

/// One block of sixteen rows, `GROUPS` times four bytes of codes each.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct PanelBlock<const GROUPS: usize> {
    /// Bits of each row's f16 scale.
    pub scales: [u16; PANEL_ROWS],
    /// `codes[group][row]`: four bytes as in the file.
    pub codes: [[[u8; 4]; PANEL_ROWS]; GROUPS],
}

const _: () = assert!(size_of::<PanelBlock<8>>() == PANEL_ROWS * DType::Q8_0.block_bytes());
const _: () = assert!(size_of::<PanelBlock<4>>() == PANEL_ROWS * DType::Q4_0.block_bytes());

impl<const GROUPS: usize> PanelBlock<GROUPS> {
    /// Bytes of one row's block in the file.
    const SOURCE_BYTES: usize = 2 + 4 * GROUPS;

    /// Scale 0, codes 0.
    pub const ZERO: PanelBlock<GROUPS> = PanelBlock { scales: [0; PANEL_ROWS], codes: [[[0; 4]; PANEL_ROWS]; GROUPS] };
}

/// Packs up to sixteen rows, `bytes` of the file, each of `panel.len()` blocks.
pub(super) fn pack_panel<const GROUPS: usize>(bytes: &[u8], panel: &mut [PanelBlock<GROUPS>]) {
    let row_bytes = panel.len() * PanelBlock::<GROUPS>::SOURCE_BYTES;
    assert!(bytes.len() <= PANEL_ROWS * row_bytes, "more rows than a panel holds");
    if bytes.len() < PANEL_ROWS * row_bytes {
        panel.fill(PanelBlock::ZERO);
    }
    for (row, source) in bytes.chunks_exact(row_bytes).enumerate() {
        for (block, target) in source.chunks_exact(PanelBlock::<GROUPS>::SOURCE_BYTES).zip(panel.iter_mut()) {
            let (scale, codes) = block.split_at(2);
            target.scales[row] = u16::from_le_bytes([scale[0], scale[1]]);
            for (group, codes) in target.codes.iter_mut().zip(codes.as_chunks::<4>().0) {
                group[row] = *codes;
            }
        }
    }
}

/// A matrix of `rows` rows in panels.
#[derive(Debug)]
pub(super) struct Panels<const GROUPS: usize> {
    blocks: Pages<PanelBlock<GROUPS>>,
    blocks_per_row: usize,
    rows: usize,
}

impl<const GROUPS: usize> Panels<GROUPS> {
    /// A matrix of so many rows in these blocks. Panics where they are not as many as its panels have.
    pub fn new(blocks: Pages<PanelBlock<GROUPS>>, rows: usize, blocks_per_row: usize) -> Panels<GROUPS> {
        assert_eq!(blocks.len(), rows.div_ceil(PANEL_ROWS) * blocks_per_row, "blocks of whole panels");
        Panels { blocks, blocks_per_row, rows }
    }

    /// Bytes of the matrix in the file.
    pub fn source_bytes(&self) -> usize {
        self.rows * self.row_bytes()
    }

    /// Bytes of a row in the file.
    pub fn row_bytes(&self) -> usize {
        self.blocks_per_row * PanelBlock::<GROUPS>::SOURCE_BYTES
    }

    /// Blocks of a row.
    pub fn blocks_per_row(&self) -> usize {
        self.blocks_per_row
    }

    /// Rows `16 index ...`, block after block.
    pub fn panel(&self, index: usize) -> &[PanelBlock<GROUPS>] {
        self.panels(index, 1)
    }

    /// `count` panels behind each other, from rows `16 index ...` on.
    pub fn panels(&self, index: usize, count: usize) -> &[PanelBlock<GROUPS>] {
        &self.blocks[index * self.blocks_per_row..][..count * self.blocks_per_row]
    }

    /// Takes the matrix's bytes as in the file, [`Panels::source_bytes`] of them.
    pub fn pack(&mut self, team: &Team, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.source_bytes(), "bytes of a whole matrix");
        if bytes.is_empty() {
            return;
        }
        let panel_bytes = PANEL_ROWS * self.row_bytes();
        let panels = self.blocks.chunks_mut(self.blocks_per_row).zip(bytes.chunks(panel_bytes));
        team.each(panels, 1, |(panel, bytes)| pack_panel(bytes, panel));
    }

    /// Gives one row's bytes as in the file, [`Panels::row_bytes`] of them.
    pub fn unpack_row(&self, row: usize, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), self.row_bytes(), "bytes of a whole row");
        let lane = row % PANEL_ROWS;
        let targets = bytes.chunks_exact_mut(PanelBlock::<GROUPS>::SOURCE_BYTES);
        for (target, block) in targets.zip(self.panel(row / PANEL_ROWS)) {
            let (scale, codes) = target.split_at_mut(2);
            scale.copy_from_slice(&block.scales[lane].to_le_bytes());
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
    use super::*;

    fn team() -> Team {
        Team::new(2).unwrap()
    }

    fn zeros<const GROUPS: usize>(rows: usize, blocks_per_row: usize) -> Panels<GROUPS> {
        Panels::new(Pages::zeros(rows.div_ceil(PANEL_ROWS) * blocks_per_row).unwrap(), rows, blocks_per_row)
    }

    fn come_back<const GROUPS: usize>() {
        for (rows, blocks_per_row) in [(1, 1), (15, 3), (16, 1), (17, 2), (63, 5), (0, 2)] {
            let mut panels = zeros::<GROUPS>(rows, blocks_per_row);
            let bytes: Vec<u8> = (0..panels.source_bytes()).map(|i| (i * 131 % 251) as u8).collect();
            panels.pack(&team(), &bytes);
            let mut found = vec![0xA5; bytes.len()];
            panels.unpack(&team(), &mut found);
            assert_eq!(found, bytes, "{rows} rows of {blocks_per_row} blocks");
        }
    }

    #[test]
    fn what_is_packed_comes_back_byte_for_byte() {
        come_back::<4>();
        come_back::<8>();
    }

    #[test]
    fn a_group_holds_four_bytes_of_sixteen_rows() {
        let mut panels = zeros::<8>(16, 1);
        let bytes: Vec<u8> = (0..16 * 34).map(|i| (i / 34 * 32 + i % 34) as u8).collect();
        panels.pack(&team(), &bytes);
        let block = panels.panel(0)[0];
        assert_eq!(block.scales[1], u16::from_le_bytes([32, 33]));
        assert_eq!(block.codes[2][1], [42, 43, 44, 45], "bytes 8 to 11 of row 1 behind its scale");
    }
}
