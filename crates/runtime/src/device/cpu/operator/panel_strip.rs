//! Rows of a matrix in panels, multiplied at once.

use super::super::kernel::{self, ActivationBlock};
use crate::device::cpu::isa::Instructions;
use crate::device::cpu::panels::{BLOCK_LEN, PANEL_ROWS, Packed, PanelBlock, Panels, pack_panel};
use std::borrow::Cow;
use trueup_blocks::DType;

/// Panels behind each other: borrowed, or packed for the while.
type Blocks<'a, const S: usize, const G: usize> = Cow<'a, [PanelBlock<S, G>]>;

/// The panels by their format.
pub enum PanelStrip<'a> {
    Q4_0(Blocks<'a, 1, 4>),
    Q4_1(Blocks<'a, 2, 4>),
    Q5_0(Blocks<'a, 1, 5>),
    Q5_1(Blocks<'a, 2, 5>),
    Q8_0(Blocks<'a, 1, 8>),
    Q8_1(Blocks<'a, 2, 8>),
}

impl<'a> PanelStrip<'a> {
    /// `count` rows of a matrix from `first` on.
    pub fn of(packed: &'a Packed, first: usize, count: usize) -> PanelStrip<'a> {
        match packed {
            Packed::Q4_0(panels) => PanelStrip::Q4_0(rows_of(panels, first, count)),
            Packed::Q4_1(panels) => PanelStrip::Q4_1(rows_of(panels, first, count)),
            Packed::Q5_0(panels) => PanelStrip::Q5_0(rows_of(panels, first, count)),
            Packed::Q5_1(panels) => PanelStrip::Q5_1(rows_of(panels, first, count)),
            Packed::Q8_0(panels) => PanelStrip::Q8_0(rows_of(panels, first, count)),
            Packed::Q8_1(panels) => PanelStrip::Q8_1(rows_of(panels, first, count)),
        }
    }

    /// Rows of `len` weights in blocks as in the file; `None` where the format has no panels.
    pub fn of_blocks(dtype: DType, bytes: &[u8], len: usize) -> Option<PanelStrip<'a>> {
        let blocks_per_row = len / BLOCK_LEN;
        Some(match dtype {
            DType::Q4_0 => PanelStrip::Q4_0(packed(bytes, blocks_per_row)),
            DType::Q4_1 => PanelStrip::Q4_1(packed(bytes, blocks_per_row)),
            DType::Q5_0 => PanelStrip::Q5_0(packed(bytes, blocks_per_row)),
            DType::Q5_1 => PanelStrip::Q5_1(packed(bytes, blocks_per_row)),
            DType::Q8_0 => PanelStrip::Q8_0(packed(bytes, blocks_per_row)),
            DType::Q8_1 => PanelStrip::Q8_1(packed(bytes, blocks_per_row)),
            _ => return None,
        })
    }

    /// Results of the panels' rows for each token, panel after panel; those behind the last row are of no meaning.
    pub fn multiply(
        &self,
        instructions: Instructions,
        xs: &[ActivationBlock],
        tokens: usize,
        sums: &mut [[f32; PANEL_ROWS]],
    ) {
        match self {
            PanelStrip::Q4_0(panels) => kernel::panel_product_q4_0(instructions, panels, xs, tokens, sums),
            PanelStrip::Q4_1(panels) => kernel::panel_product_q4_1(instructions, panels, xs, tokens, sums),
            PanelStrip::Q5_0(panels) => kernel::panel_product_q5_0(instructions, panels, xs, tokens, sums),
            PanelStrip::Q5_1(panels) => kernel::panel_product_q5_1(instructions, panels, xs, tokens, sums),
            PanelStrip::Q8_0(panels) => kernel::panel_product_q8_0(instructions, panels, xs, tokens, sums),
            PanelStrip::Q8_1(panels) => kernel::panel_product_q8_1(instructions, panels, xs, tokens, sums),
        }
    }
}

/// Rows from `first` on: panels of the matrix where one begins there, else packed again.
fn rows_of<const S: usize, const G: usize>(panels: &Panels<S, G>, first: usize, count: usize) -> Blocks<'_, S, G> {
    if first.is_multiple_of(PANEL_ROWS) {
        return Cow::Borrowed(panels.panels(first / PANEL_ROWS, count.div_ceil(PANEL_ROWS)));
    }
    let mut bytes = vec![0; count * panels.row_bytes()];
    for (row, bytes) in bytes.chunks_exact_mut(panels.row_bytes().max(1)).enumerate() {
        panels.unpack_row(first + row, bytes);
    }
    packed(&bytes, panels.blocks_per_row())
}

/// Packs rows that are kept as in the file.
fn packed<const S: usize, const G: usize>(bytes: &[u8], blocks_per_row: usize) -> Blocks<'static, S, G> {
    let panel_bytes = blocks_per_row * size_of::<PanelBlock<S, G>>();
    let mut panels = vec![PanelBlock::ZERO; bytes.len().div_ceil(panel_bytes.max(1)) * blocks_per_row];
    for (panel, bytes) in panels.chunks_mut(blocks_per_row.max(1)).zip(bytes.chunks(panel_bytes.max(1))) {
        pack_panel(bytes, panel);
    }
    Cow::Owned(panels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Usage;
    use crate::device::cpu::memory::{Cells, Memory, Room};
    use crate::device::cpu::pages::Store;
    use trueup_graph::TensorType;

    #[test]
    fn what_has_panels_has_them_everywhere() {
        let store = Store::default();
        for dtype in DType::all().filter(|dtype| dtype.decoder().is_some()) {
            let ty = TensorType::new(dtype, &[256, 3]);
            let memory = Memory::new(&ty, Usage::Weight, Room { store: &store, repack: true }).ok();
            let is_packed = memory.is_some_and(|memory| matches!(*memory.read(), Cells::Packed(_)));
            let bytes = vec![0; ty.bytes()];
            let found = (is_packed, PanelStrip::of_blocks(dtype, &bytes, 256).is_some());
            assert_eq!(found, (Packed::takes(dtype), Packed::takes(dtype)), "{dtype}");
        }
    }
}
