//! Packed tiles: quantized matrices in the layout that the product kernels read, sixteen rows side by side, block
//! after block.
//!
//! ```text
//!  GGUF, row by row           f16 │ codes of block 0 │ f16 │ codes of block 1 │ ...        (2 S + 4 G bytes per block)
//!                             mxfp4: one byte (E8M0) instead of f16; nvfp4: pairs of bytes (UE4M3)
//!
//!  tile of rows 0 ... 15      ┌ block 0 ──────────────────────────────────────────────┐┌ block 1 ──
//!                             │ S scales of 16 rows │ group 0: 4 bytes of row 0, row 1, ... row 15 │ group 1 │ ... G
//!
//!             S               G groups
//!  q4_0       1  d            4  nibbles
//!  q4_1       2  d, m         4  nibbles
//!  q5_0       1  d            5  fifth bits, nibbles
//!  q5_1       2  d, m         5  fifth bits, nibbles
//!  q8_0       1  d            8  bytes
//!  q8_1       2  d, sum       8  bytes
//!
//!  iq4_nl     1  d            4  nibbles
//!  mxfp4      1  exponent     4  nibbles
//!  nvfp4      2  4 scales     8  nibbles of 4 times 16
//!  iq4_xs     2  d, high bits of the scales      33  low bits of the scales, nibbles
//!  q2_k       2  d, dmin (last in the file)      20  4 of scales and minima, 16 of two bits
//!  q3_k       1  d (last in the file)            27  8 of third bits, 16 of two bits, 3 of scales
//!  q4_k       2  d, dmin                         35  3 of scales and minima, 32 of nibbles
//!  q5_k       2  d, dmin                         43  3 of scales and minima, 8 of fifth bits, 32 of nibbles
//!  q6_k       1  d (last in the file)            52  32 of nibbles, 16 of two bits, 4 of scales
//!  tq2_0      1  d (last in the file)            16  two bits
//! ```
//!
//! A group is four bytes of codes. One 512-bit register, or two 256-bit registers, hold the same four places of
//! sixteen rows, and each lane sums one row. Byte groups hold four elements. Nibble groups hold elements `4 g ...` in
//! the low halves and `16 + 4 g ...` in the high halves. The fifth bits of a row are one number, with bit `k` for
//! element `k`. Types with blocks of 64 or 256 keep the order of their words in the file, except that scales come first
//! ([`Format`](super::sub_block::Format) says what a word holds). Packing moves bytes and never changes them. Next to
//! the one byte of an mxfp4 scale there is a mark, 1 if all codes of the block are worth 0 ([`ALL_ZERO`]). Missing rows
//! of the last tile are zero.
//!
//! Prompts use pairs of tiles, so that two tiles share each activation register. Up to four tokens read one tile at a
//! time.
#![allow(unsafe_code, reason = "tiles of all formats are kept in units of one type")]

use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Rows of a panel: the 32-bit lanes of a 512-bit register.
pub const PANEL_ROWS: usize = 16;

/// Elements of one block of activations, and of weights with one scale.
pub const BLOCK_LEN: usize = 32;

/// The mark in a scale of mxfp4, except NaN, all codes of whose block are worth 0.
pub const ALL_ZERO: u16 = 0x100;

/// One block of sixteen rows: `SCALES` times two bytes of scales and `GROUPS` times four bytes of codes each.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PanelBlock<const SCALES: usize, const GROUPS: usize> {
    /// `scales[i][row]`: bits of f16, the first what codes are multiplied by. In mxfp4 E8M0 with [`ALL_ZERO`], in nvfp4
    /// a pair of UE4M3.
    pub scales: [[u16; PANEL_ROWS]; SCALES],
    /// `codes[group][row]`: four bytes as in the file.
    pub codes: [[[u8; 4]; PANEL_ROWS]; GROUPS],
}

/// Two bytes of each of sixteen rows. The scales of a block take one unit each, and the groups take two.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C, align(2))]
pub struct PackedUnit(pub [u8; 2 * PANEL_ROWS]);

impl<const SCALES: usize, const GROUPS: usize> PanelBlock<SCALES, GROUPS> {
    /// Whether the file has the scales after the codes.
    pub const SCALES_LAST: bool = matches!((SCALES, GROUPS), (2, 20) | (1, 27) | (1, 52) | (1, 16));

    /// Where the scales are in a block of the file.
    pub const SCALES_AT: usize = if Self::SCALES_LAST { 4 * GROUPS } else { 0 };

    /// Whether codes are bytes with a sign; else they are nibbles, perhaps with a fifth bit, that count from 0.
    pub const BYTES: bool = GROUPS == 8;

    /// Whether codes have a fifth bit, which the first group holds.
    pub const FIFTH_BITS: bool = GROUPS == 5;

    /// Whether the second scale is added to each product of a code and a scale.
    pub const MINIMA: bool = SCALES == 2 && !Self::BYTES;

    /// What is subtracted from a code that counts from 0, for bytes once their sign bit is turned over.
    pub const OFFSET: i32 = match GROUPS {
        _ if Self::MINIMA => 0,
        4 => 8,
        5 => 16,
        _ => 128,
    };

    /// Scales 0, codes 0.
    pub const ZERO: PanelBlock<SCALES, GROUPS> =
        PanelBlock { scales: [[0; PANEL_ROWS]; SCALES], codes: [[[0; 4]; PANEL_ROWS]; GROUPS] };

    /// Units of a block.
    pub const UNITS: usize = size_of::<Self>() / size_of::<PackedUnit>();

    /// Bytes of one row's block in the file, with scales of `scale_bytes`.
    pub const fn source_bytes(scale_bytes: usize) -> usize {
        scale_bytes * SCALES + 4 * GROUPS
    }

    /// Where the codes are in a block of the file, with scales of `scale_bytes`.
    pub const fn codes_at(scale_bytes: usize) -> usize {
        if Self::SCALES_LAST { 0 } else { scale_bytes * SCALES }
    }

    /// The group that elements `4 group ...` lie in.
    #[inline(always)]
    pub fn group(&self, group: usize) -> &[[u8; 4]; PANEL_ROWS] {
        &self.codes[if Self::BYTES { group } else { group % 4 + usize::from(Self::FIFTH_BITS) }]
    }
}

/// The blocks of packed tiles. Panics if the last one is incomplete.
pub(crate) fn blocks_of<const S: usize, const G: usize>(units: &[PackedUnit]) -> &[PanelBlock<S, G>] {
    let len = whole_blocks::<S, G>(units.len());
    // SAFETY: a block is S + 2 G units of integers without padding and has the alignment of a unit; the slice holds
    // `len` of them.
    unsafe { from_raw_parts(units.as_ptr().cast(), len) }
}

/// As [`blocks_of`], to be written.
pub(crate) fn blocks_of_mut<const S: usize, const G: usize>(units: &mut [PackedUnit]) -> &mut [PanelBlock<S, G>] {
    let len = whole_blocks::<S, G>(units.len());
    // SAFETY: as above, and the units are borrowed as long as the blocks.
    unsafe { from_raw_parts_mut(units.as_mut_ptr().cast(), len) }
}

/// Blocks in `units`.
fn whole_blocks<const S: usize, const G: usize>(units: usize) -> usize {
    const {
        assert!(size_of::<PanelBlock<S, G>>() == (S + 2 * G) * size_of::<PackedUnit>());
        assert!(align_of::<PanelBlock<S, G>>() == align_of::<PackedUnit>());
    }
    assert!(units.is_multiple_of(PanelBlock::<S, G>::UNITS), "{units} units are not whole blocks");
    units / PanelBlock::<S, G>::UNITS
}
