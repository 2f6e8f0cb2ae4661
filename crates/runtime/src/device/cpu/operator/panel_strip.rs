//! Rows of a matrix in panels, multiplied at once.

use super::super::kernel::{self, ActivationBlock};
use crate::device::cpu::isa::Instructions;
use crate::device::cpu::means::Means;
use crate::device::cpu::panels::{PANEL_ROWS, Packed, PanelBlock, Panels, scale_bytes};
use crate::device::cpu::spare::{Lent, Spare};
use std::ops::Deref;
use trueup_blocks::DType;

/// Panels behind each other.
type Blocks<'a, const S: usize, const G: usize> = Stretch<'a, PanelBlock<S, G>>;

/// What lies in a matrix, or in room that is lent.
pub enum Stretch<'a, T> {
    There(&'a [T]),
    Lent(Lent<'a, T>),
}

impl<T> Deref for Stretch<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Stretch::There(lines) => lines,
            Stretch::Lent(lines) => lines,
        }
    }
}

/// The panels by their format.
pub enum PanelStrip<'a> {
    Q4_0(Blocks<'a, 1, 4>),
    Q4_1(Blocks<'a, 2, 4>),
    Q5_0(Blocks<'a, 1, 5>),
    Q5_1(Blocks<'a, 2, 5>),
    Q8_0(Blocks<'a, 1, 8>),
    Q8_1(Blocks<'a, 2, 8>),
    Q2K(Blocks<'a, 2, 20>),
    Q3K(Blocks<'a, 1, 27>),
    Q4K(Blocks<'a, 2, 35>),
    Q5K(Blocks<'a, 2, 43>),
    Q6K(Blocks<'a, 1, 52>),
    Iq4Nl(Blocks<'a, 1, 4>),
    Iq4Xs(Blocks<'a, 2, 33>),
    Mxfp4(Blocks<'a, 1, 4>),
    Nvfp4(Blocks<'a, 2, 8>),
    Tq2_0(Blocks<'a, 1, 16>),
}

impl<'a> PanelStrip<'a> {
    /// `count` rows of a matrix from `first` on.
    pub fn of(packed: &'a Packed, first: usize, count: usize, means: Means<'a>) -> PanelStrip<'a> {
        let (instructions, spares) = (means.instructions, &means.spares.panels);
        match packed {
            Packed::Q4_0(panels) => PanelStrip::Q4_0(rows_of(panels, first, count, instructions, &spares.q4_0)),
            Packed::Q4_1(panels) => PanelStrip::Q4_1(rows_of(panels, first, count, instructions, &spares.q4_1)),
            Packed::Q5_0(panels) => PanelStrip::Q5_0(rows_of(panels, first, count, instructions, &spares.q5_0)),
            Packed::Q5_1(panels) => PanelStrip::Q5_1(rows_of(panels, first, count, instructions, &spares.q5_1)),
            Packed::Q8_0(panels) => PanelStrip::Q8_0(rows_of(panels, first, count, instructions, &spares.q8_0)),
            Packed::Q8_1(panels) => PanelStrip::Q8_1(rows_of(panels, first, count, instructions, &spares.q8_1)),
            Packed::Q2K(panels) => PanelStrip::Q2K(rows_of(panels, first, count, instructions, &spares.q2k)),
            Packed::Q3K(panels) => PanelStrip::Q3K(rows_of(panels, first, count, instructions, &spares.q3k)),
            Packed::Q4K(panels) => PanelStrip::Q4K(rows_of(panels, first, count, instructions, &spares.q4k)),
            Packed::Q5K(panels) => PanelStrip::Q5K(rows_of(panels, first, count, instructions, &spares.q5k)),
            Packed::Q6K(panels) => PanelStrip::Q6K(rows_of(panels, first, count, instructions, &spares.q6k)),
            Packed::Iq4Nl(panels) => PanelStrip::Iq4Nl(rows_of(panels, first, count, instructions, &spares.iq4nl)),
            Packed::Iq4Xs(panels) => PanelStrip::Iq4Xs(rows_of(panels, first, count, instructions, &spares.iq4xs)),
            Packed::Mxfp4(panels) => PanelStrip::Mxfp4(rows_of(panels, first, count, instructions, &spares.mxfp4)),
            Packed::Nvfp4(panels) => PanelStrip::Nvfp4(rows_of(panels, first, count, instructions, &spares.nvfp4)),
            Packed::Tq2_0(panels) => PanelStrip::Tq2_0(rows_of(panels, first, count, instructions, &spares.tq2_0)),
        }
    }

    /// Rows of `len` weights in blocks as in the file; `None` where the format has no panels.
    pub fn of_blocks(dtype: DType, bytes: &[u8], len: usize, means: Means<'a>) -> Option<PanelStrip<'a>> {
        let (instructions, spares) = (means.instructions, &means.spares.panels);
        let layout = RowLayout { blocks_per_row: len / dtype.block_len(), scale_bytes: scale_bytes(dtype) };
        Some(match dtype {
            DType::Q4_0 => PanelStrip::Q4_0(packed(bytes, layout, instructions, &spares.q4_0)),
            DType::Q4_1 => PanelStrip::Q4_1(packed(bytes, layout, instructions, &spares.q4_1)),
            DType::Q5_0 => PanelStrip::Q5_0(packed(bytes, layout, instructions, &spares.q5_0)),
            DType::Q5_1 => PanelStrip::Q5_1(packed(bytes, layout, instructions, &spares.q5_1)),
            DType::Q8_0 => PanelStrip::Q8_0(packed(bytes, layout, instructions, &spares.q8_0)),
            DType::Q8_1 => PanelStrip::Q8_1(packed(bytes, layout, instructions, &spares.q8_1)),
            DType::Q2K => PanelStrip::Q2K(packed(bytes, layout, instructions, &spares.q2k)),
            DType::Q3K => PanelStrip::Q3K(packed(bytes, layout, instructions, &spares.q3k)),
            DType::Q4K => PanelStrip::Q4K(packed(bytes, layout, instructions, &spares.q4k)),
            DType::Q5K => PanelStrip::Q5K(packed(bytes, layout, instructions, &spares.q5k)),
            DType::Q6K => PanelStrip::Q6K(packed(bytes, layout, instructions, &spares.q6k)),
            DType::Iq4Nl => PanelStrip::Iq4Nl(packed(bytes, layout, instructions, &spares.iq4nl)),
            DType::Iq4Xs => PanelStrip::Iq4Xs(packed(bytes, layout, instructions, &spares.iq4xs)),
            DType::Mxfp4 => PanelStrip::Mxfp4(packed(bytes, layout, instructions, &spares.mxfp4)),
            DType::Nvfp4 => PanelStrip::Nvfp4(packed(bytes, layout, instructions, &spares.nvfp4)),
            DType::Tq2_0 => PanelStrip::Tq2_0(packed(bytes, layout, instructions, &spares.tq2_0)),
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
            PanelStrip::Q4_0(panels) => kernel::panel_product(instructions, panels, xs, tokens, sums),
            PanelStrip::Q4_1(panels) => kernel::panel_product(instructions, panels, xs, tokens, sums),
            PanelStrip::Q5_0(panels) => kernel::panel_product(instructions, panels, xs, tokens, sums),
            PanelStrip::Q5_1(panels) => kernel::panel_product(instructions, panels, xs, tokens, sums),
            PanelStrip::Q8_0(panels) => kernel::panel_product(instructions, panels, xs, tokens, sums),
            PanelStrip::Q8_1(panels) => kernel::panel_product(instructions, panels, xs, tokens, sums),
            PanelStrip::Q2K(panels) => {
                kernel::sub_block_product::<{ kernel::Q2_K }, 2, 20>(instructions, panels, xs, tokens, sums)
            }
            PanelStrip::Q3K(panels) => {
                kernel::sub_block_product::<{ kernel::Q3_K }, 1, 27>(instructions, panels, xs, tokens, sums)
            }
            PanelStrip::Q4K(panels) => {
                kernel::sub_block_product::<{ kernel::Q4_K }, 2, 35>(instructions, panels, xs, tokens, sums)
            }
            PanelStrip::Q5K(panels) => {
                kernel::sub_block_product::<{ kernel::Q5_K }, 2, 43>(instructions, panels, xs, tokens, sums)
            }
            PanelStrip::Q6K(panels) => {
                kernel::sub_block_product::<{ kernel::Q6_K }, 1, 52>(instructions, panels, xs, tokens, sums)
            }
            PanelStrip::Iq4Nl(panels) => {
                kernel::sub_block_product::<{ kernel::IQ4_NL }, 1, 4>(instructions, panels, xs, tokens, sums)
            }
            PanelStrip::Iq4Xs(panels) => {
                kernel::sub_block_product::<{ kernel::IQ4_XS }, 2, 33>(instructions, panels, xs, tokens, sums)
            }
            PanelStrip::Mxfp4(panels) => {
                kernel::sub_block_product::<{ kernel::MXFP4 }, 1, 4>(instructions, panels, xs, tokens, sums)
            }
            PanelStrip::Nvfp4(panels) => {
                kernel::sub_block_product::<{ kernel::NVFP4 }, 2, 8>(instructions, panels, xs, tokens, sums)
            }
            PanelStrip::Tq2_0(panels) => {
                kernel::sub_block_product::<{ kernel::TQ2_0 }, 1, 16>(instructions, panels, xs, tokens, sums)
            }
        }
    }
}

/// Rows from `first` on: panels of the matrix where one begins there, else packed again.
fn rows_of<'a, const S: usize, const G: usize>(
    panels: &'a Panels<S, G>,
    first: usize,
    count: usize,
    instructions: Instructions,
    spare: &'a Spare<PanelBlock<S, G>>,
) -> Blocks<'a, S, G> {
    if first.is_multiple_of(PANEL_ROWS) {
        return Stretch::There(panels.panels(first / PANEL_ROWS, count.div_ceil(PANEL_ROWS)));
    }
    let mut bytes = vec![0; count * panels.row_bytes()];
    for (row, bytes) in bytes.chunks_exact_mut(panels.row_bytes().max(1)).enumerate() {
        panels.unpack_row(first + row, bytes);
    }
    let layout = RowLayout { blocks_per_row: panels.blocks_per_row(), scale_bytes: panels.scale_bytes() };
    packed(&bytes, layout, instructions, spare)
}

/// What rows consist of in the file.
#[derive(Clone, Copy)]
struct RowLayout {
    blocks_per_row: usize,
    scale_bytes: usize,
}

/// Packs rows that are kept as in the file.
fn packed<'a, const S: usize, const G: usize>(
    bytes: &[u8],
    RowLayout { blocks_per_row, scale_bytes }: RowLayout,
    instructions: Instructions,
    spare: &'a Spare<PanelBlock<S, G>>,
) -> Blocks<'a, S, G> {
    let panel_bytes = PANEL_ROWS * blocks_per_row * PanelBlock::<S, G>::source_bytes(scale_bytes);
    let mut panels = spare.lend(bytes.len().div_ceil(panel_bytes.max(1)) * blocks_per_row);
    for (panel, bytes) in panels.chunks_mut(blocks_per_row.max(1)).zip(bytes.chunks(panel_bytes.max(1))) {
        kernel::pack_panel(instructions, bytes, panel, scale_bytes);
    }
    Stretch::Lent(panels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Usage;
    use crate::device::cpu::isa::Isa;
    use crate::device::cpu::memory::{Cells, Memory, Room};
    use crate::device::cpu::pages::Store;
    use crate::device::cpu::spare::Spares;
    use crate::device::cpu::team::Team;
    use trueup_graph::TensorType;

    #[test]
    fn what_has_panels_has_them_everywhere() {
        let (store, team, spares) = (Store::default(), Team::new(1).unwrap(), Spares::default());
        let means = Means { instructions: Instructions::of(Isa::Scalar).unwrap(), team: &team, spares: &spares };
        for dtype in DType::all().filter(|dtype| dtype.decoder().is_some()) {
            let ty = TensorType::new(dtype, &[256, 3]);
            let memory = Memory::new(&ty, Usage::Weight, Room { store: &store, repack: true }).ok();
            let is_packed = memory.is_some_and(|memory| matches!(*memory.read(), Cells::Packed(_)));
            let bytes = vec![0; ty.bytes()];
            let found = (is_packed, PanelStrip::of_blocks(dtype, &bytes, 256, means).is_some());
            assert_eq!(found, (Packed::takes(dtype), Packed::takes(dtype)), "{dtype}");
        }
    }
}
