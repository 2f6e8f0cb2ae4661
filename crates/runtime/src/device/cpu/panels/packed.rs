//! A matrix in panels, of any of the formats that have them.

use super::{PANEL_ROWS, PanelBlock, Panels, scale_bytes};
use crate::device::cpu::kernel::Format;
use crate::device::cpu::means::Means;
use crate::device::cpu::team::Team;
use trueup_blocks::DType;
use trueup_graph::TensorType;

/// The matrix by its format.
#[derive(Debug)]
pub(in super::super) enum Packed {
    /// q4_0.
    Q4_0(Panels<1, 4>),
    /// q4_1.
    Q4_1(Panels<2, 4>),
    /// q5_0.
    Q5_0(Panels<1, 5>),
    /// q5_1.
    Q5_1(Panels<2, 5>),
    /// q8_0.
    Q8_0(Panels<1, 8>),
    /// q8_1.
    Q8_1(Panels<2, 8>),
    /// q2_k.
    Q2K(Panels<2, 20>),
    /// q3_k.
    Q3K(Panels<1, 27>),
    /// q4_k.
    Q4K(Panels<2, 35>),
    /// q5_k.
    Q5K(Panels<2, 43>),
    /// q6_k.
    Q6K(Panels<1, 52>),
    /// iq4_nl.
    Iq4Nl(Panels<1, 4>),
    /// iq4_xs.
    Iq4Xs(Panels<2, 33>),
    /// mxfp4.
    Mxfp4(Panels<1, 4>),
    /// nvfp4.
    Nvfp4(Panels<2, 8>),
    /// tq2_0.
    Tq2_0(Panels<1, 16>),
}

/// Computes the same with the panels of each format.
macro_rules! of_each {
    ($packed:expr, $panels:ident => $result:expr) => {
        match $packed {
            Packed::Q4_0($panels) => $result,
            Packed::Q4_1($panels) => $result,
            Packed::Q5_0($panels) => $result,
            Packed::Q5_1($panels) => $result,
            Packed::Q8_0($panels) => $result,
            Packed::Q8_1($panels) => $result,
            Packed::Q2K($panels) => $result,
            Packed::Q3K($panels) => $result,
            Packed::Q4K($panels) => $result,
            Packed::Q5K($panels) => $result,
            Packed::Q6K($panels) => $result,
            Packed::Iq4Nl($panels) => $result,
            Packed::Iq4Xs($panels) => $result,
            Packed::Mxfp4($panels) => $result,
            Packed::Nvfp4($panels) => $result,
            Packed::Tq2_0($panels) => $result,
        }
    };
}

impl Packed {
    /// Whether a format has panels.
    pub fn takes(dtype: DType) -> bool {
        let blocks = matches!(dtype, DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0 | DType::Q8_1);
        blocks || Format::is_of(dtype)
    }

    /// Bytes that a matrix takes in panels of whole rows, where a block takes more than in the file; `None` for other
    /// formats.
    pub fn larger_bytes(ty: &TensorType) -> Option<u64> {
        let blocks = ty.shape[0] / ty.dtype.block_len();
        let panels = ty.shape.rows().div_ceil(PANEL_ROWS).saturating_mul(blocks);
        let is_larger = Packed::takes(ty.dtype) && scale_bytes(ty.dtype) == 1;
        is_larger.then(|| panels.saturating_mul(size_of::<PanelBlock<1, 4>>()) as u64)
    }

    /// Bytes of a row in the file.
    pub fn row_bytes(&self) -> usize {
        of_each!(self, panels => panels.row_bytes())
    }

    /// Takes the matrix's bytes as in the file.
    pub fn pack(&mut self, means: Means, bytes: &[u8]) {
        of_each!(self, panels => panels.pack(means, bytes));
    }

    /// Gives one row's bytes as in the file, [`Packed::row_bytes`] of them.
    pub fn unpack_row(&self, row: usize, bytes: &mut [u8]) {
        of_each!(self, panels => panels.unpack_row(row, bytes));
    }

    /// Gives the matrix's bytes as in the file.
    pub fn unpack(&self, team: &Team, bytes: &mut [u8]) {
        of_each!(self, panels => panels.unpack(team, bytes));
    }
}
