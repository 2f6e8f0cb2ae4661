//! The decoding half of a codec, and the decoding rule of most block formats.
//!
//! ```text
//!  bytes of a block ──terms──▶ LEN times (scale, step, low, offset, code) ──▶ (scale * step) * code - low * offset
//! ```

use crate::DType;
#[cfg(test)]
use crate::codec::decode_blocks;
use crate::codec::whole_blocks;

/// Declares a test that `decode_exact` of a format agrees with a rule for one block, by default its `terms`.
macro_rules! exact_test {
    ($Format:ident) => {
        exact_test! { $Format, |block| terms(block).map(crate::decoder::Term::exact) }
    };
    ($Format:ident, $rule:expr) => {
        #[cfg(test)]
        #[test]
        fn exact_elements_match_the_rule() {
            let bytes = crate::samples::encoded($Format::DTYPE);
            let count = bytes.len() / $Format::DTYPE.block_bytes() * $Format::DTYPE.block_len();
            let (mut expected, mut found) = (vec![0.0; count], vec![1.0; count]);
            let rule: fn(&[u8; BYTES]) -> [f64; $Format::DTYPE.block_len()] = $rule;
            crate::codec::decode_blocks(&bytes, &mut expected, |block, weights| *weights = rule(block));
            <$Format as Block>::decode_exact(&bytes, &mut found);
            let differs = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
            assert_eq!(expected.iter().zip(&found).position(differs), None);
        }
    };
}

/// The decoding functions of one block format. They take whole blocks, as in [`Codec`](crate::Codec).
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    /// The type whose bytes these functions read.
    pub dtype: DType,
    /// Decodes elements to f32 by the rule of the format.
    pub decode: fn(bytes: &[u8], weights: &mut [f32]),
    /// Decodes elements to the exact numbers that the bytes represent.
    pub decode_exact: fn(bytes: &[u8], weights: &mut [f64]),
}

impl DType {
    /// The decoder of this type; `None` for types that this build only describes.
    pub fn decoder(self) -> Option<Decoder> {
        self.codec().map(|codec| Decoder { dtype: codec.dtype, decode: codec.decode, decode_exact: codec.decode_exact })
    }
}

/// The operands of one element, whose value is `(scale * step) * code - low * offset`.
#[cfg(test)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Term {
    /// The block's scale.
    pub scale: f32,
    /// The scale of its part of the block.
    pub step: i8,
    /// The code, in the format's own range.
    pub code: i8,
    /// The block's scale of minima; 0 if the format has none.
    pub low: f32,
    /// The minimum of its part of the block.
    pub offset: i8,
}

#[cfg(test)]
impl Term {
    /// The value in f32. Each operation is rounded separately.
    fn rounded(self) -> f32 {
        self.scale * f32::from(self.step) * f32::from(self.code) - self.low * f32::from(self.offset)
    }

    /// The value in f64, without rounding.
    pub fn exact(self) -> f64 {
        let product = f64::from(self.scale) * f64::from(self.step) * f64::from(self.code);
        product - f64::from(self.low) * f64::from(self.offset)
    }
}

/// Decodes whole blocks to f32, element by element. Tests compare the faster variants with it.
#[cfg(test)]
pub(crate) fn decode<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    weights: &mut [f32],
    terms: fn(&[u8; BYTES]) -> [Term; LEN],
) {
    decode_blocks(bytes, weights, |block, weights| *weights = terms(block).map(Term::rounded));
}

/// Decodes whole blocks of a scale and codes exactly: each product is exact in f64. References use it, so it shares
/// only `read` and [`whole_blocks`] with the decoders of devices.
#[inline(always)]
pub(crate) fn decode_scaled<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    weights: &mut [f64],
    read: impl Fn(&[u8; BYTES]) -> (f32, [i8; LEN]),
) {
    // Loops, because closures are not inlined into the variants of `codec::decode_exact`.
    let (blocks, targets) = whole_blocks(bytes.as_chunks::<BYTES>(), weights.as_chunks_mut::<LEN>());
    for (block, weights) in blocks.iter().zip(targets) {
        let (scale, codes) = read(block);
        let scale = f64::from(scale);
        for (weight, code) in weights.iter_mut().zip(codes) {
            *weight = scale * f64::from(code);
        }
    }
}

/// Decodes whole blocks of a scale, a minimum and codes exactly: the scale and the minimum are f16 numbers, so
/// `scale * code + minimum` is exact in f64.
#[inline(always)]
pub(crate) fn decode_affine<const BYTES: usize, const LEN: usize, C: Copy + Into<f64>>(
    bytes: &[u8],
    weights: &mut [f64],
    read: impl Fn(&[u8; BYTES]) -> (f32, f32, [C; LEN]),
) {
    let (blocks, targets) = whole_blocks(bytes.as_chunks::<BYTES>(), weights.as_chunks_mut::<LEN>());
    for (block, weights) in blocks.iter().zip(targets) {
        let (scale, minimum, codes) = read(block);
        let (scale, minimum) = (f64::from(scale), f64::from(minimum));
        for (weight, code) in weights.iter_mut().zip(codes) {
            *weight = scale * code.into() + minimum;
        }
    }
}

/// The elements of a block as devices decode them. For formats with only a scale and codes they are exact, because a
/// product of 11 and 8 bits fits into f32.
#[cfg(test)]
pub(crate) fn widened<F: crate::Block, const BYTES: usize, const LEN: usize>(block: &[u8; BYTES]) -> [f64; LEN] {
    let mut weights = [0.0; LEN];
    F::decode(block, &mut weights);
    weights.map(f64::from)
}

/// Elements of one block of the K types.
pub(crate) const K_LEN: usize = 256;

/// The two bits of element `e` of a K type. Each 128 elements take 32 bytes: byte `e % 32` holds every 32nd element,
/// starting with the lowest bits.
#[cfg(test)]
pub(crate) fn two_bits(codes: &[u8; 64], e: usize) -> u8 {
    codes[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3
}

/// The six-bit step and offset of part `part` of eight. The low six bits of bytes 0 to 3 are the steps of the first
/// four parts, those of bytes 4 to 7 their offsets. For the last four parts, bytes 8 to 11 hold the low four bits of
/// the step and of the offset; their upper two bits are the upper two bits of bytes 0 to 3 and 4 to 7.
#[cfg(test)]
pub(crate) fn six_bits(packed: &[u8; 12], part: usize) -> (i8, i8) {
    let (step, offset) = if part < 4 {
        (packed[part] & 63, packed[part + 4] & 63)
    } else {
        let nibbles = packed[part + 4];
        (nibbles & 15 | packed[part - 4] >> 6 << 4, nibbles >> 4 | packed[part] >> 6 << 4)
    };
    (step as i8, offset as i8)
}

/// The nibble of element `e` of a K type. Each 64 elements take 32 bytes: the low nibbles hold the first 32 elements,
/// the high nibbles the last 32.
#[cfg(test)]
pub(crate) fn nibble(codes: &[u8; 128], e: usize) -> u8 {
    codes[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4) & 15
}
