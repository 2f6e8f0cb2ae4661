//! Matrices in packed tiles: sixteen rows side by side, in the layout of
//! [`PackedFormat`](trueup_kernels::PackedFormat). Missing rows of the last tile are zero.

use super::means::Means;
use super::pages::Pages;
use super::team::Team;
use trueup_graph::TensorType;
use trueup_kernels::{PANEL_ROWS, PackedFormat, PackedUnit};

/// The tiles of a matrix of `rows` rows.
#[derive(Debug)]
pub(super) struct Packed {
    format: PackedFormat,
    units: Pages<PackedUnit>,
    blocks_per_row: usize,
    rows: usize,
}

impl Packed {
    /// A matrix of `rows` rows in these units. Panics if the number of units is not that of its tiles.
    pub fn new(format: PackedFormat, units: Pages<PackedUnit>, rows: usize, blocks_per_row: usize) -> Packed {
        let blocks = rows.div_ceil(PANEL_ROWS) * blocks_per_row;
        assert_eq!(units.len(), blocks * format.units(), "units of whole tiles");
        Packed { format, units, blocks_per_row, rows }
    }

    /// The type of the weights.
    pub fn format(&self) -> PackedFormat {
        self.format
    }

    /// Units of the tiles of a matrix; saturates.
    pub fn units_of(format: PackedFormat, ty: &TensorType) -> usize {
        let blocks = ty.shape.rows().div_ceil(PANEL_ROWS).saturating_mul(ty.shape[0] / ty.dtype.block_len());
        blocks.saturating_mul(format.units())
    }

    /// Bytes of a matrix in tiles of whole rows, if its blocks are larger there than in the file.
    pub fn larger_bytes(ty: &TensorType) -> Option<u64> {
        let format = PackedFormat::of(ty.dtype)?;
        let is_larger = format.units() * size_of::<PackedUnit>() > PANEL_ROWS * ty.dtype.block_bytes();
        is_larger.then(|| Packed::units_of(format, ty).saturating_mul(size_of::<PackedUnit>()) as u64)
    }

    /// Bytes of the matrix in the file.
    pub fn source_bytes(&self) -> usize {
        self.rows * self.row_bytes()
    }

    /// Bytes of a row in the file.
    pub fn row_bytes(&self) -> usize {
        self.blocks_per_row * self.format.dtype().block_bytes()
    }

    /// Blocks of a row.
    pub fn blocks_per_row(&self) -> usize {
        self.blocks_per_row
    }

    /// `count` consecutive tiles, from rows `16 index ...` on.
    pub fn tiles(&self, index: usize, count: usize) -> &[PackedUnit] {
        let units = self.units_per_tile();
        &self.units[index * units..][..count * units]
    }

    /// Takes the matrix's bytes as in the file, [`Packed::source_bytes`] of them.
    pub fn pack(&mut self, means: Means, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.source_bytes(), "bytes of a whole matrix");
        if bytes.is_empty() {
            return;
        }
        let (format, units, tile_bytes) = (self.format, self.units_per_tile(), PANEL_ROWS * self.row_bytes());
        let tiles = self.units.chunks_mut(units).zip(bytes.chunks(tile_bytes));
        means.team.each(tiles, 1, |(tile, bytes)| format.pack(means.instructions, bytes, tile));
    }

    /// Gives one row's bytes as in the file, [`Packed::row_bytes`] of them.
    pub fn unpack_row(&self, row: usize, bytes: &mut [u8]) {
        self.format.unpack_row(self.tiles(row / PANEL_ROWS, 1), row % PANEL_ROWS, bytes);
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

    fn units_per_tile(&self) -> usize {
        self.blocks_per_row * self.format.units()
    }
}

#[cfg(test)]
mod tests {
    use super::super::spare::Spares;
    use super::*;
    use trueup_kernels::{Instructions, Isa};

    #[test]
    fn what_is_packed_is_unpacked_byte_for_byte() {
        let (team, spares) = (Team::new(2).unwrap(), Spares::default());
        let means =
            Means { instructions: Instructions::of(Isa::available()[0]).unwrap(), team: &team, spares: &spares };
        let sizes = [(1, 1), (15, 3), (16, 1), (17, 2), (63, 5), (0, 2)];
        for (format, size) in PackedFormat::ALL.iter().flat_map(|format| sizes.map(|size| (*format, size))) {
            let (rows, blocks_per_row) = size;
            let ty = TensorType::new(format.dtype(), &[blocks_per_row * format.dtype().block_len(), rows]);
            let units = Pages::zeros(Packed::units_of(format, &ty)).unwrap();
            let mut matrix = Packed::new(format, units, rows, blocks_per_row);
            let bytes: Vec<u8> = (0..ty.bytes()).map(|i| (i * 131 % 251) as u8).collect();
            let mut found = vec![0xA5; bytes.len()];
            matrix.pack(means, &bytes);
            matrix.unpack(&team, &mut found);
            assert_eq!(found, bytes, "{rows} rows of {blocks_per_row} blocks of {format:?}");
        }
    }
}
