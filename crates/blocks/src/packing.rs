//! The codes of a K type as bits in bytes: the inverse of what [`parts`](crate::parts) reads.

use crate::decoder::K_LEN;

/// The lower two bits of each code: of each 128 elements, byte `e % 32` holds every 32nd, the first lowest.
#[inline(always)]
pub(crate) fn pack_two_bits(codes: &[u8; K_LEN]) -> [u8; K_LEN / 4] {
    let mut packed = [0; K_LEN / 4];
    for (packed, codes) in packed.as_chunks_mut::<32>().0.iter_mut().zip(codes.as_chunks::<128>().0) {
        for (place, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
            for (byte, code) in packed.iter_mut().zip(codes) {
                *byte |= (code & 3) << (2 * place);
            }
        }
    }
    packed
}

/// The lower four bits of each code: of each `2 * RUN` elements, `RUN` bytes hold the first `RUN` low and the last
/// `RUN` high.
#[inline(always)]
pub(crate) fn pack_nibbles<const RUN: usize>(codes: &[u8; K_LEN]) -> [u8; K_LEN / 2] {
    let mut packed = [0; K_LEN / 2];
    let (runs, _) = codes.as_chunks::<RUN>();
    for (packed, [low, high]) in packed.as_chunks_mut::<RUN>().0.iter_mut().zip(runs.as_chunks::<2>().0) {
        for ((byte, low), high) in packed.iter_mut().zip(low).zip(high) {
            *byte = low & 15 | high << 4;
        }
    }
    packed
}

/// Bit `place` of each code: that of element e is bit e / 32 of byte e % 32.
#[inline(always)]
pub(crate) fn pack_single_bits(codes: &[u8; K_LEN], place: usize) -> [u8; K_LEN / 8] {
    let mut packed = [0; K_LEN / 8];
    for (number, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
        for (byte, code) in packed.iter_mut().zip(codes) {
            *byte |= (code >> place & 1) << number;
        }
    }
    packed
}

/// Six-bit steps and offsets of eight parts, as [`six_bits`](crate::decoder::six_bits) reads them.
#[inline(always)]
pub(crate) fn pack_steps_and_offsets(steps: &[u8; 8], offsets: &[u8; 8]) -> [u8; 12] {
    std::array::from_fn(|byte| match byte {
        0..4 => steps[byte] & 63 | steps[byte + 4] >> 4 << 6,
        4..8 => offsets[byte - 4] & 63 | offsets[byte] >> 4 << 6,
        _ => steps[byte - 4] & 15 | offsets[byte - 4] << 4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::{all_nibbles, all_two_bits, eight_steps_and_offsets, put_single_bits};

    #[test]
    fn what_is_packed_is_read_back() {
        let codes: [u8; K_LEN] = std::array::from_fn(|e| (e * 37 % 251) as u8);
        assert_eq!(all_two_bits(&pack_two_bits(&codes)), codes.map(|code| code & 3));
        assert_eq!(all_nibbles::<32>(&pack_nibbles::<32>(&codes)), codes.map(|code| code & 15));
        assert_eq!(all_nibbles::<64>(&pack_nibbles::<64>(&codes)), codes.map(|code| code & 15));
        let mut bits = [0; K_LEN];
        put_single_bits(&mut bits, &pack_single_bits(&codes, 5), 5);
        assert_eq!(bits, codes.map(|code| code & 32));
        let (steps, offsets) = ([0, 63, 21, 42, 15, 16, 48, 33], [1, 62, 20, 43, 14, 17, 49, 32]);
        let packed = pack_steps_and_offsets(&steps, &offsets);
        assert_eq!(eight_steps_and_offsets(&packed).map(|six| six.map(|integer| integer as u8)), [steps, offsets]);
    }
}
