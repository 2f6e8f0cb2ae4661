//! Weights that are read directly from the mapped file: no copy, no load time, pages shared between processes.
//!
//! File pages are small, so streaming is slower than from huge pages, and blocks that the kernels need in packed tiles
//! are packed on each use. A weight stays mapped if a copy would gain nothing, if free memory is short, or with
//! `--no-repack`.

use super::memory::View;
use super::pages::{Plain, cells};
use trueup_blocks::DType;
use trueup_formats::gguf::MappedBytes;

/// One tensor in a mapped file.
#[derive(Debug)]
pub(super) struct Mapped {
    bytes: MappedBytes,
    form: Form,
}

/// What kernels read its bytes as.
#[derive(Clone, Copy, Debug)]
enum Form {
    F32,
    F16,
    Bf16,
    Blocks,
}

impl Mapped {
    /// A tensor of this type; `None` where its bytes cannot be read where they lie: where numbers are not aligned,
    /// where the processor has their bytes in the other order, and where kernels do not know the type.
    pub fn new(bytes: &MappedBytes, dtype: DType) -> Option<Mapped> {
        let (form, is_readable) = match dtype {
            DType::F32 | DType::I32 => (Form::F32, are_cells::<f32>(bytes)),
            DType::F16 => (Form::F16, are_cells::<half::f16>(bytes)),
            DType::Bf16 => (Form::Bf16, are_cells::<half::bf16>(bytes)),
            dtype => (Form::Blocks, dtype == DType::I64 || dtype.is_quantized() && dtype.decoder().is_some()),
        };
        is_readable.then(|| Mapped { bytes: bytes.clone(), form })
    }

    /// The tensor's bytes as in the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The tensor.
    pub fn view(&self) -> View<'_> {
        match self.form {
            Form::F32 => View::F32(self.cells()),
            Form::F16 => View::F16(self.cells()),
            Form::Bf16 => View::Bf16(self.cells()),
            Form::Blocks => View::Blocks(&self.bytes),
        }
    }

    fn cells<T: Plain>(&self) -> &[T] {
        cells(&self.bytes).unwrap_or_else(|| unreachable!("the bytes were found to be cells, and do not move"))
    }
}

/// Whether bytes, which lie as in the file, are numbers as this processor has them.
fn are_cells<T: Plain>(bytes: &[u8]) -> bool {
    cfg!(target_endian = "little") && cells::<T>(bytes).is_some()
}
