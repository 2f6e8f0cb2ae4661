//! The type of a tensor whose rows are not whole blocks of the chosen type.

use trueup_blocks::DType;

/// The type itself if it fits, or its replacement with smaller blocks, or f16. Rows are never padded.
pub(super) fn type_that_fits(dtype: DType, row_length: u64) -> DType {
    let fits = |dtype: DType| dtype.row_bytes(row_length).is_some();
    if fits(dtype) {
        return dtype;
    }
    smaller_blocks(dtype).filter(|smaller| fits(*smaller)).unwrap_or(DType::F16)
}

/// The type with blocks of 32 that is closest to a type with larger blocks.
fn smaller_blocks(dtype: DType) -> Option<DType> {
    match dtype {
        DType::Q2K | DType::Q3K | DType::Tq1_0 | DType::Tq2_0 | DType::Q2_0 => Some(DType::Q4_0),
        DType::Q4K => Some(DType::Q5_0),
        DType::Q5K => Some(DType::Q5_1),
        DType::Q6K => Some(DType::Q8_0),
        DType::Iq4Xs
        | DType::Iq1S
        | DType::Iq1M
        | DType::Iq2Xxs
        | DType::Iq2Xs
        | DType::Iq2S
        | DType::Iq3Xxs
        | DType::Iq3S => Some(DType::Iq4Nl),
        _ => None,
    }
}
