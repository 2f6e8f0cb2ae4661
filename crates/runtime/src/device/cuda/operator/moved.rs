//! Elements that are moved and not computed with: words of as many bits, whatever they mean.

use super::{Argument, Call, ELEMENTWISE, Grid, Operand, View};
use crate::profile::Profile;
use trueup_blocks::DType;
use trueup_graph::TensorType;

/// What is declared about moving elements of this type.
pub fn profile(what: &str, ty: &TensorType) -> Result<Profile, String> {
    if is_word(ty.dtype) {
        Ok(ELEMENTWISE)
    } else {
        Err(format!("{what} must be f32, f16, bf16, i32 or i64, not {}", ty.dtype))
    }
}

fn is_word(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::I32 | DType::I64)
}

/// A kernel for words of the size of a type's elements.
pub fn kernel(operator: &str, dtype: DType) -> String {
    format!("{operator}_word{}", 8 * dtype.block_bytes())
}

/// Four numbers of elements.
pub fn indices(numbers: [usize; 4]) -> [Argument; 4] {
    numbers.map(|number| Argument::Index(number as i64))
}

/// All elements of `x` into the output, which has their type.
pub fn copy(call: &Call, x: Operand) -> Result<(), String> {
    let dtype = x.ty.dtype;
    if is_word(dtype) {
        let grid = Grid::elements(x.ty.shape.elements())?;
        return call.launch(&kernel("cpy", dtype), grid, &[x, call.output].map(|operand| Argument::View(operand.view)));
    }
    // Every format's blocks have an even number of bytes.
    let words = dtype.block_bytes() / 2;
    let views = [x, call.output].map(|operand| Argument::View(blocks_as_words(&operand, words)));
    call.launch("cpy_word16", Grid::elements(x.ty.shape.elements() / dtype.block_len() * words)?, &views)
}

/// Rows of blocks as rows of so many words for each block.
fn blocks_as_words(operand: &Operand, words: usize) -> View {
    let len = operand.ty.dtype.block_len() as i64;
    let View { data, mut sizes, mut steps } = operand.view;
    sizes[0] = sizes[0] / len * words as i64;
    steps.iter_mut().skip(1).for_each(|step| *step = *step / len * words as i64);
    View { data, sizes, steps }
}
