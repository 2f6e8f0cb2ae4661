//! The formats of packed tiles: the one list of the types that have them, and what is computed with each.
//!
//! Functions of other crates choose among the formats at run time, so that the code of all of them is compiled here.

use super::isa::Instructions;
use super::pack_panel::{pack_panel, unpack_row};
use super::panel_block::{PANEL_ROWS, PackedUnit, PanelBlock, blocks_of, blocks_of_mut};
use super::panel_product::panel_product;
use super::quantize::ActivationBlock;
use super::sub_block::{Format, IQ4_NL, IQ4_XS, MXFP4, NVFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, TQ2_0};
use super::sub_block_product::sub_block_product;
use trueup_blocks::DType;

/// Declares the formats, each with the pairs of bytes of scales and the groups of a block of a row: types with blocks
/// of 32 elements, then types with sub-blocks, with the number of their [`Format`].
macro_rules! formats {
    (
        blocks { $($Block:ident [$block_scales:literal, $block_groups:literal],)+ }
        sub_blocks { $($SubBlock:ident [$number:ident, $scales:literal, $groups:literal],)+ }
    ) => {
        /// A type of weights that has a packed layout.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum PackedFormat {
            $(#[doc = concat!("Tiles of `DType::", stringify!($Block), "`.")] $Block,)+
            $(#[doc = concat!("Tiles of `DType::", stringify!($SubBlock), "`.")] $SubBlock,)+
        }

        impl PackedFormat {
            /// Every format.
            pub const ALL: &'static [PackedFormat] =
                &[$(PackedFormat::$Block,)+ $(PackedFormat::$SubBlock,)+];

            /// The formats without sub-blocks.
            #[cfg(feature = "samples")]
            pub(crate) const OF_BLOCKS: &'static [PackedFormat] = &[$(PackedFormat::$Block,)+];

            /// The formats with sub-blocks.
            #[cfg(feature = "samples")]
            pub(crate) const OF_SUB_BLOCKS: &'static [PackedFormat] = &[$(PackedFormat::$SubBlock,)+];

            /// The type of the weights.
            pub const fn dtype(self) -> DType {
                match self {
                    $(PackedFormat::$Block => DType::$Block,)+
                    $(PackedFormat::$SubBlock => DType::$SubBlock,)+
                }
            }

            /// Pairs of bytes of scales and groups of four bytes of codes in a block of a row.
            pub(crate) const fn scales_and_groups(self) -> (usize, usize) {
                match self {
                    $(PackedFormat::$Block => ($block_scales, $block_groups),)+
                    $(PackedFormat::$SubBlock => ($scales, $groups),)+
                }
            }

            /// Packs up to sixteen rows, whose blocks `bytes` holds as in the file, row after row; the places of other
            /// rows become zeros. `units` holds [`units`](PackedFormat::units) for each block of a row. Panics if the
            /// sizes differ.
            pub fn pack(self, instructions: Instructions, bytes: &[u8], units: &mut [PackedUnit]) {
                let scale_bytes = scale_bytes(self.dtype());
                match self {
                    $(PackedFormat::$Block => pack_panel::<$block_scales, $block_groups>(
                        instructions, bytes, blocks_of_mut(units), scale_bytes,
                    ),)+
                    $(PackedFormat::$SubBlock => pack_panel::<$scales, $groups>(
                        instructions, bytes, blocks_of_mut(units), scale_bytes,
                    ),)+
                }
            }

            /// Writes the blocks of row `row` of a tile as in the file. Panics if the sizes differ.
            pub fn unpack_row(self, units: &[PackedUnit], row: usize, bytes: &mut [u8]) {
                let scale_bytes = scale_bytes(self.dtype());
                match self {
                    $(PackedFormat::$Block => {
                        unpack_row::<$block_scales, $block_groups>(blocks_of(units), row, scale_bytes, bytes)
                    })+
                    $(PackedFormat::$SubBlock => {
                        unpack_row::<$scales, $groups>(blocks_of(units), row, scale_bytes, bytes)
                    })+
                }
            }

            /// `sums[t + tokens * p][r] = row r of tile p . x_t`, for consecutive tiles of one length and up to
            /// [`TILE`](super::TILE) tokens. Activations of tokens are side by side: block `b` of token `t` is
            /// `xs[b * tokens + t]`. Panics if the sizes differ.
            pub fn product(
                self,
                instructions: Instructions,
                units: &[PackedUnit],
                xs: &[ActivationBlock],
                tokens: usize,
                sums: &mut [[f32; PANEL_ROWS]],
            ) {
                match self {
                    $(PackedFormat::$Block => panel_product::<$block_scales, $block_groups>(
                        instructions, blocks_of(units), xs, tokens, sums,
                    ),)+
                    $(PackedFormat::$SubBlock => sub_block_product::<$number, $scales, $groups>(
                        instructions, blocks_of(units), xs, tokens, sums,
                    ),)+
                }
            }
        }

        const _: () = {
            $(assert!(has_blocks::<1, $block_scales, $block_groups>(DType::$Block));)+
            $(assert!(has_blocks::<{ Format::<$number>::BLOCKS }, $scales, $groups>(DType::$SubBlock));)+
        };
    };
}

formats! {
    blocks {
        Q4_0 [1, 4],
        Q4_1 [2, 4],
        Q5_0 [1, 5],
        Q5_1 [2, 5],
        Q8_0 [1, 8],
        Q8_1 [2, 8],
    }
    sub_blocks {
        Q2K [Q2_K, 2, 20],
        Q3K [Q3_K, 1, 27],
        Q4K [Q4_K, 2, 35],
        Q5K [Q5_K, 2, 43],
        Q6K [Q6_K, 1, 52],
        Iq4Nl [IQ4_NL, 1, 4],
        Iq4Xs [IQ4_XS, 2, 33],
        Mxfp4 [MXFP4, 1, 4],
        Nvfp4 [NVFP4, 2, 8],
        Tq2_0 [TQ2_0, 1, 16],
    }
}

impl PackedFormat {
    /// The format of a type; `None` if the type has none.
    pub fn of(dtype: DType) -> Option<PackedFormat> {
        PackedFormat::ALL.iter().copied().find(|format| format.dtype() == dtype)
    }

    /// Units of a block of sixteen rows.
    pub const fn units(self) -> usize {
        let (scales, groups) = self.scales_and_groups();
        scales + 2 * groups
    }
}

/// Bytes of a scale in the file.
const fn scale_bytes(dtype: DType) -> usize {
    if matches!(dtype, DType::Mxfp4) { 1 } else { 2 }
}

/// Whether a block of `BLOCKS` times 32 elements has the sizes of a type.
const fn has_blocks<const BLOCKS: usize, const S: usize, const G: usize>(dtype: DType) -> bool {
    let source_bytes = PanelBlock::<S, G>::source_bytes(scale_bytes(dtype));
    BLOCKS * super::BLOCK_LEN == dtype.block_len() && source_bytes == dtype.block_bytes()
}
