//! `general.file_type`: the number by which GGUF programs call the type of most of a file.

use trueup_blocks::DType;

/// The number for files whose matrices are mostly of this type; `None` where no number was ever given (q8_1).
///
/// Source: the GGUF specification, "general.file_type".
pub fn file_type(dtype: DType) -> Option<u32> {
    let known = [
        (DType::F32, 0),
        (DType::F16, 1),
        (DType::Q4_0, 2),
        (DType::Q4_1, 3),
        (DType::Q8_0, 7),
        (DType::Q5_0, 8),
        (DType::Q5_1, 9),
        (DType::Bf16, 32),
    ];
    known.iter().find(|(known, _)| *known == dtype).map(|(_, number)| *number)
}
