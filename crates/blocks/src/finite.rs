//! Checks that weights are finite: block formats cannot store NaN or infinity.

use crate::{DType, mxfp4, nvfp4};
use multiversion::multiversion;

/// The index of the first NaN or infinity; `None` if all weights are finite.
///
/// ```
/// assert_eq!(trueup_blocks::first_not_finite(&[1.0, f32::NAN, f32::INFINITY]), Some(1));
/// assert_eq!(trueup_blocks::first_not_finite(&[0.0, f32::MAX]), None);
/// ```
pub fn first_not_finite(weights: &[f32]) -> Option<usize> {
    if all_finite(weights) {
        return None;
    }
    weights.iter().position(|weight| !weight.is_finite())
}

/// Whether all weights are finite. Has no branches, so it compiles to vector code.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512vl", "x86_64+avx2"))]
pub(crate) fn all_finite(weights: &[f32]) -> bool {
    // The largest magnitude is that of the largest bits; those of infinity and NaN are larger than any number's.
    let largest = weights.iter().fold(0, |largest: u32, weight| largest.max(weight.to_bits() & 0x7FFF_FFFF));
    f32::from_bits(largest).is_finite()
}

/// Whether all elements of whole blocks are finite. This is checked from exponents and scales, without decoding.
/// `dtype` must have a codec.
pub fn are_bytes_finite(dtype: DType, bytes: &[u8]) -> bool {
    match dtype.scale_places() {
        Some(places) => {
            let of_block = |block: &[u8]| places.iter().all(|place| block[*place + 1] & 0x7C != 0x7C);
            bytes.chunks_exact(dtype.block_bytes()).all(of_block)
        }
        None if dtype == DType::Mxfp4 => mxfp4::are_finite(bytes),
        None if dtype == DType::Nvfp4 => nvfp4::are_finite(bytes),
        None => are_floats_finite(dtype, bytes),
    }
}

/// Whether plain floats are finite: their exponents are not all ones.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512vl", "x86_64+avx2"))]
fn are_floats_finite(dtype: DType, bytes: &[u8]) -> bool {
    let halves = |exponent: u16| {
        let halves = bytes.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes) & exponent);
        halves.fold(0, u16::max) != exponent
    };
    match dtype.block_bytes() {
        2 => halves(if dtype == DType::F16 { 0x7C00 } else { 0x7F80 }),
        4 => {
            let words = bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes) & 0x7F80_0000);
            words.fold(0, u32::max) != 0x7F80_0000
        }
        _ => bytes.as_chunks().0.iter().all(|bytes| f64::from_le_bytes(*bytes).is_finite()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    /// Each block of the samples alone, and all of them in one.
    #[test]
    fn bytes_are_judged_as_what_they_decode_to() {
        let plain = |dtype: DType| {
            let mut bytes = vec![0; samples::around_halves().len() * dtype.block_bytes()];
            (dtype.codec().unwrap().encode)(&samples::around_halves(), &mut bytes);
            bytes
        };
        for codec in crate::CODECS {
            let dtype = codec.dtype;
            let bytes = if dtype.is_quantized() { samples::encoded(dtype) } else { plain(dtype) };
            let mut weights = vec![0.0; bytes.len() / dtype.block_bytes() * dtype.block_len()];
            (codec.decode)(&bytes, &mut weights);
            let blocks = bytes.chunks(dtype.block_bytes()).zip(weights.chunks(dtype.block_len()));
            let mut counts = [0; 2];
            for (bytes, weights) in blocks {
                let expected = weights.iter().all(|weight| weight.is_finite());
                assert_eq!(are_bytes_finite(dtype, bytes), expected, "{dtype}: {bytes:?}");
                counts[usize::from(expected)] += 1;
            }
            assert!(counts[0] > 100 && counts[1] > 1000, "{dtype}: {counts:?}");
            assert!(!are_bytes_finite(dtype, &bytes), "{dtype}");
            assert!(are_bytes_finite(dtype, &vec![0x11; 100 * dtype.block_bytes()]), "{dtype}");
        }
    }

    #[test]
    fn each_place_and_kind_is_found() {
        for length in [0usize, 1, 63, 64, 65, 200] {
            assert_eq!(first_not_finite(&vec![f32::MIN; length]), None);
            for place in 0..length {
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut weights = vec![f32::MAX; length];
                    weights[place..].fill(bad);
                    assert_eq!(first_not_finite(&weights), Some(place), "{bad} in {length}");
                }
            }
        }
    }
}
