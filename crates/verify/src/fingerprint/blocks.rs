//! Candidates for weights in blocks: codes, scales and minima that are read otherwise than the type has them.
//!
//! ```text
//!   block │ scale │ minimum │ high bits │ codes │      each change is one of the bytes, decoded by the rule of the type
//! ```

use super::sums::listed;
use super::{Candidate, CandidateKind, Guesses};
use crate::minimum;
use crate::scene::{Content, Scene};
use std::ops::Range;
use trueup_blocks::DType;

macro_rules! candidates {
    ($($name:literal: $change:expr;)*) => {
        /// The list.
        pub(super) const CANDIDATES: &[Candidate] = &[$(Candidate {
            name: $name,
            kind: CandidateKind::Formula,
            guess: |scene| guesses(scene, $change),
        }),*];
    };
}

candidates! {
    "swaps the low and the high halves of 4-bit codes": |dtype, block| {
        block.get_mut(nibbles(dtype)?)?.iter_mut().for_each(|byte| *byte = byte.rotate_left(4));
        Some(())
    };
    "treats the two codes of a byte as adjacent elements": |dtype, block| {
        let codes = block.get_mut(nibbles(dtype).filter(|_| dtype.block_len() == 32)?)?;
        let code = |place: usize| codes[place % 16] >> (place / 16 * 4) & 15;
        // What lies at place 2 i and 2 i + 1 in the file is taken for elements i and i + 16 by the rule of the type.
        let read = |place: usize| if place.is_multiple_of(2) { place / 2 } else { place / 2 + 16 };
        let swapped: Vec<u8> = (0..16).map(|place| code(read(place)) | code(read(place + 16)) << 4).collect();
        codes.copy_from_slice(&swapped);
        Some(())
    };
    "drops the high bits of the codes": |dtype, block| {
        block.get_mut(high_bits(dtype)?)?.fill(0);
        Some(())
    };
    "omits the block minima": |dtype, block| {
        block.get_mut(minimum::place(dtype)?)?.fill(0);
        Some(())
    };
}

/// Changes one block of a type; `None` where the type has nothing of that kind.
type Change = fn(DType, &mut [u8]) -> Option<()>;

/// The bytes of a block that each hold the low 4 bits of two codes; `None` for types without such bytes.
pub(crate) fn nibbles(dtype: DType) -> Option<Range<usize>> {
    let range = |dtypes: &[DType], range: Range<usize>| dtypes.contains(&dtype).then_some(range);
    range(&[DType::Q4_0, DType::Iq4Nl], 2..18)
        .or(range(&[DType::Q4_1], 4..20))
        .or(range(&[DType::Q5_0], 6..22))
        .or(range(&[DType::Q5_1], 8..24))
        .or(range(&[DType::Mxfp4], 1..17))
        .or(range(&[DType::Nvfp4], 4..36))
        .or(range(&[DType::Iq4Xs], 8..136))
        .or(range(&[DType::Q4K], 16..144))
        .or(range(&[DType::Q5K], 48..176))
        .or(range(&[DType::Q6K], 0..128))
}

/// The bytes of a block that hold the bits of codes above the fourth; `None` for types without any.
pub(crate) fn high_bits(dtype: DType) -> Option<Range<usize>> {
    let range = |wanted: DType, range: Range<usize>| (dtype == wanted).then_some(range);
    range(DType::Q5_0, 2..6).or(range(DType::Q5_1, 4..8)).or(range(DType::Q5K, 16..48)).or(range(DType::Q6K, 128..192))
}

/// What comes out where every block of the weight is changed.
fn guesses(scene: &Scene, change: Change) -> Option<Guesses> {
    let weight = scene
        .inputs
        .iter()
        .position(|input| matches!(input.content, Content::Blocks(_)) && input.ty.dtype.is_quantized())?;
    let mut scene = scene.clone();
    let input = &mut scene.inputs[weight];
    let Content::Blocks(bytes) = &mut input.content else { return None };
    let dtype = input.ty.dtype;
    let before = bytes.clone();
    bytes.chunks_exact_mut(dtype.block_bytes()).try_for_each(|block| change(dtype, block))?;
    (before != *bytes).then(|| listed(scene.judged().1))
}
