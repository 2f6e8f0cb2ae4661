//! The packed layout of each format.

use crate::scalar;
use trueup_blocks::DType;
use trueup_kernels::{Instructions, Isa, PANEL_ROWS, PackedFormat, PackedUnit};

/// Bytes of sixteen rows, each of `blocks` blocks.
fn source(format: PackedFormat, blocks: usize) -> Vec<u8> {
    (0..PANEL_ROWS * blocks * format.dtype().block_bytes()).map(|i| (i * 131 % 251) as u8).collect()
}

fn packed(instructions: Instructions, format: PackedFormat, bytes: &[u8], blocks: usize) -> Vec<PackedUnit> {
    let mut units = vec![PackedUnit([0xA5; 2 * PANEL_ROWS]); blocks * format.units()];
    format.pack(instructions, bytes, &mut units);
    units
}

#[test]
fn these_types_have_a_packed_format() {
    let packed: Vec<_> = DType::all().filter(|dtype| PackedFormat::of(*dtype).is_some()).collect();
    let mut expected = [
        DType::Q4_0,
        DType::Q4_1,
        DType::Q5_0,
        DType::Q5_1,
        DType::Q8_0,
        DType::Q8_1,
        DType::Q2K,
        DType::Q3K,
        DType::Q4K,
        DType::Q5K,
        DType::Q6K,
        DType::Iq4Nl,
        DType::Iq4Xs,
        DType::Mxfp4,
        DType::Nvfp4,
        DType::Tq2_0,
    ];
    expected.sort_by_key(|expected| DType::all().position(|dtype| dtype == *expected));
    assert_eq!(packed, expected);
}

#[test]
fn rows_are_unpacked_byte_for_byte() {
    for isa in Isa::available() {
        for (format, blocks) in PackedFormat::ALL.iter().flat_map(|format| [1, 3].map(|blocks| (*format, blocks))) {
            let bytes = source(format, blocks);
            let units = packed(Instructions::of(isa).unwrap(), format, &bytes, blocks);
            for (row, expected) in bytes.chunks_exact(bytes.len() / PANEL_ROWS).enumerate() {
                let mut found = vec![0xA5; expected.len()];
                format.unpack_row(&units, row, &mut found);
                assert_eq!(found, expected, "row {row} of {format:?}, {blocks} blocks, {isa}");
            }
        }
    }
}

/// The mark of such blocks is not unpacked.
#[test]
fn blocks_of_zeros_in_mxfp4_are_marked_unless_their_scale_is_nan() {
    let (format, exponents) = (PackedFormat::Mxfp4, [0, 254, 255, 127]);
    for isa in Isa::available() {
        let mut bytes = vec![0; PANEL_ROWS * 4 * 17];
        bytes.chunks_exact_mut(17).zip(exponents.into_iter().cycle()).for_each(|(block, e)| block[0] = e);
        let units = packed(Instructions::of(isa).unwrap(), format, &bytes, 4);
        let scale = |block: usize| u16::from_ne_bytes([30, 31].map(|byte| units[block * format.units()].0[byte]));
        assert_eq!([0, 1, 2, 3].map(scale), [0x100, 0x100 | 254, 255, 0x100 | 127], "{isa}");
        let mut row = [0xA5; 4 * 17];
        format.unpack_row(&units, 15, &mut row);
        assert_eq!(row, bytes[15 * 4 * 17..]);
    }
}

#[test]
fn a_group_holds_four_bytes_of_sixteen_rows() {
    let bytes: Vec<u8> = (0..16 * 34).map(|i| (i / 34 * 32 + i % 34) as u8).collect();
    let units = packed(scalar(), PackedFormat::Q8_0, &bytes, 1);
    assert_eq!(u16::from_ne_bytes([units[0].0[2], units[0].0[3]]), u16::from_le_bytes([32, 33]), "the scale of row 1");
    assert_eq!(units[1 + 2 * 2].0[4..8], [42, 43, 44, 45], "bytes 8 to 11 of row 1 after its scale");

    let bytes: Vec<u8> = (0..16 * 24).map(|i| (i / 24 * 16 + i % 24) as u8).collect();
    let units = packed(scalar(), PackedFormat::Q5_1, &bytes, 1);
    assert_eq!(
        u16::from_ne_bytes([units[1].0[2], units[1].0[3]]),
        u16::from_le_bytes([18, 19]),
        "the minimum of row 1"
    );
    assert_eq!(units[2].0[4..8], [20, 21, 22, 23], "the fifth bits of row 1");
    assert_eq!(units[4].0[4..8], [24, 25, 26, 27], "nibbles of row 1");
}

#[test]
#[should_panic = "not whole blocks"]
fn incomplete_blocks_are_refused() {
    PackedFormat::Q4_0.unpack_row(&[PackedUnit::default(); 8], 0, &mut [0; 18]);
}
