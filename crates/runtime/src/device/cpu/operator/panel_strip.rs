//! Rows of a matrix in packed tiles, multiplied at once.

use crate::device::cpu::means::Means;
use crate::device::cpu::packed::Packed;
use crate::device::cpu::spare::Lent;
use trueup_blocks::DType;
use trueup_kernels::{ActivationBlock, Instructions, PANEL_ROWS, PackedFormat, PackedUnit};

/// Consecutive tiles.
pub struct PanelStrip<'a> {
    format: PackedFormat,
    tiles: Tiles<'a>,
}

/// Tiles in a matrix, or in memory that is lent.
enum Tiles<'a> {
    OfMatrix(&'a [PackedUnit]),
    Lent(Lent<'a, PackedUnit>),
}

impl<'a> PanelStrip<'a> {
    /// `count` rows of a matrix from `first` on: its tiles if one begins there, otherwise the rows are packed again.
    pub fn of(packed: &'a Packed, first: usize, count: usize, means: Means<'a>) -> PanelStrip<'a> {
        let format = packed.format();
        if first.is_multiple_of(PANEL_ROWS) {
            let tiles = packed.tiles(first / PANEL_ROWS, count.div_ceil(PANEL_ROWS));
            return PanelStrip { format, tiles: Tiles::OfMatrix(tiles) };
        }
        let mut bytes = vec![0; count * packed.row_bytes()];
        for (row, bytes) in bytes.chunks_exact_mut(packed.row_bytes().max(1)).enumerate() {
            packed.unpack_row(first + row, bytes);
        }
        PanelStrip::packed(format, &bytes, packed.blocks_per_row(), means)
    }

    /// Rows of `len` weights in blocks as in the file; `None` if the type has no packed format.
    pub fn of_blocks(dtype: DType, bytes: &[u8], len: usize, means: Means<'a>) -> Option<PanelStrip<'a>> {
        let format = PackedFormat::of(dtype)?;
        Some(PanelStrip::packed(format, bytes, len / dtype.block_len(), means))
    }

    /// Packs rows of `blocks_per_row` blocks, `bytes` as in the file.
    fn packed(format: PackedFormat, bytes: &[u8], blocks_per_row: usize, means: Means<'a>) -> PanelStrip<'a> {
        let tile_bytes = PANEL_ROWS * blocks_per_row * format.dtype().block_bytes();
        let units = blocks_per_row * format.units();
        let mut tiles = means.spares.tiles.lend(bytes.len().div_ceil(tile_bytes.max(1)) * units);
        for (tile, bytes) in tiles.chunks_mut(units.max(1)).zip(bytes.chunks(tile_bytes.max(1))) {
            format.pack(means.instructions, bytes, tile);
        }
        PanelStrip { format, tiles: Tiles::Lent(tiles) }
    }

    /// Results of the tiles' rows for each token, tile after tile; those after the last row have no meaning.
    pub fn multiply(
        &self,
        instructions: Instructions,
        xs: &[ActivationBlock],
        tokens: usize,
        sums: &mut [[f32; PANEL_ROWS]],
    ) {
        let tiles: &[PackedUnit] = match &self.tiles {
            Tiles::OfMatrix(tiles) => tiles,
            Tiles::Lent(tiles) => tiles,
        };
        self.format.product(instructions, tiles, xs, tokens, sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Usage;
    use crate::device::cpu::memory::{Cells, Memory, Room};
    use crate::device::cpu::pages::Store;
    use crate::device::cpu::spare::Spares;
    use crate::device::cpu::team::Team;
    use trueup_graph::TensorType;
    use trueup_kernels::Isa;

    #[test]
    fn what_has_panels_has_them_everywhere() {
        let (store, team, spares) = (Store::default(), Team::new(1).unwrap(), Spares::default());
        let means = Means { instructions: Instructions::of(Isa::Scalar).unwrap(), team: &team, spares: &spares };
        for dtype in DType::all().filter(|dtype| dtype.decoder().is_some()) {
            let ty = TensorType::new(dtype, &[256, 3]);
            let memory = Memory::new(&ty, Usage::Weight, Room { store: &store, repack: true }).ok();
            let is_packed = memory.is_some_and(|memory| matches!(*memory.read(), Cells::Packed(_)));
            let bytes = vec![0; ty.bytes()];
            let has_format = PackedFormat::of(dtype).is_some();
            let found = (is_packed, PanelStrip::of_blocks(dtype, &bytes, 256, means).is_some());
            assert_eq!(found, (has_format, has_format), "{dtype}");
        }
    }
}
