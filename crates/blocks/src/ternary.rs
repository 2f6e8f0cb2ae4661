//! What `tq1_0` and `tq2_0` share: 256 weights of -1, 0 and 1 times one scale, the largest magnitude.

use crate::decoder::K_LEN;
use crate::fp4::magnitude_max;
use crate::scale::{reciprocal, round};
use crate::{DType, tq1_0, tq2_0};

/// The scale, and each weight's digit: 0, 1 or 2.
#[inline(always)]
pub(crate) fn digits_of(weights: &[f32; K_LEN]) -> (f32, [u8; K_LEN]) {
    let scale = magnitude_max(weights);
    let inverse = reciprocal(scale);
    (scale, weights.map(|weight| (round(weight * inverse) + 1) as u8))
}

/// The first invalid code of a block of `tq1_0` or `tq2_0`: the number of its first weight, and the byte. `None` for
/// other types, which use all codes.
///
/// Such a code decodes to a number, but the block was changed after it was encoded.
///
/// ```
/// use trueup_blocks::{DType, unused_code};
///
/// let mut block = [0x55; 66];
/// assert_eq!(unused_code(DType::Tq2_0, &block), None);
/// block[1] = 0xC5;
/// assert_eq!(unused_code(DType::Tq2_0, &block), Some((97, 0xC5)));
/// ```
pub fn unused_code(dtype: DType, block: &[u8]) -> Option<(usize, u8)> {
    let (place, element): (Option<usize>, fn(usize, u8) -> usize) = match dtype {
        DType::Tq1_0 => (tq1_0::unused_byte(block), |place, _| tq1_0::first_element(place)),
        DType::Tq2_0 => (tq2_0::unused_byte(block), tq2_0::first_unused),
        _ => return None,
    };
    place.map(|place| (element(place, block[place]), block[place]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    /// All digits of a byte, in either kind of place.
    #[test]
    fn every_byte_that_an_encoder_writes_is_used_and_no_other() {
        let encode = DType::Tq1_0.codec().unwrap().encode;
        let mut seen = [[false; 256]; 2];
        for number in 0..243usize {
            let digit = |n: u32| (number / 3usize.pow(4 - n) % 3) as f32 - 1.0;
            let mut weights = [1.0; K_LEN];
            for n in 0..5 {
                weights[32 * n as usize] = digit(n);
                weights.iter_mut().skip(240 + 4 * n as usize).take(1).for_each(|weight| *weight = digit(n));
            }
            let mut block = [0; 54];
            encode(&weights, &mut block);
            (seen[0][usize::from(block[0])], seen[1][usize::from(block[48])]) = (true, true);
        }
        assert_eq!(seen.map(|seen| seen.iter().filter(|seen| **seen).count()), [243, 81]);
        for byte in 0..=255u8 {
            for (kind, place, element) in [(0, 3, 3), (0, 33, 161), (1, 50, 242)] {
                let mut block = [0; 54];
                block[place] = byte;
                let expected = (!seen[kind][usize::from(byte)]).then_some((element, byte));
                assert_eq!(unused_code(DType::Tq1_0, &block), expected, "{byte:#04x} at {place}");
            }
        }
    }

    #[test]
    fn encoded_blocks_have_no_unused_codes() {
        for dtype in [DType::Tq1_0, DType::Tq2_0] {
            let weights = samples::weights();
            let mut bytes = vec![0; weights.len() / K_LEN * dtype.block_bytes()];
            (dtype.codec().unwrap().encode)(&weights[..weights.len() / K_LEN * K_LEN], &mut bytes);
            let unused = bytes.chunks(dtype.block_bytes()).find_map(|block| unused_code(dtype, block));
            assert_eq!(unused, None, "{dtype}");
        }
        for pair in 0..4 {
            let mut block = [0xAA; 66];
            block[40] |= 3 << (2 * pair);
            let expected = (128 + 8 + 32 * pair, block[40]);
            assert_eq!(unused_code(DType::Tq2_0, &block), Some(expected));
            assert_eq!(unused_code(DType::Q4_0, &block), None);
        }
    }
}
