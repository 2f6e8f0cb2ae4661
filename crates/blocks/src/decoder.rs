//! Decoding without encoding, and the rule by which most block formats are read.
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
        fn exact_elements_are_those_of_the_rule() {
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

/// How one block format is read. The functions take whole blocks, as those of a [`Codec`](crate::Codec) do.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    /// The type whose bytes these functions read.
    pub dtype: DType,
    /// Elements as f32, by the rule of the format.
    pub decode: fn(bytes: &[u8], weights: &mut [f32]),
    /// Elements as the exact numbers that the bytes stand for.
    pub decode_exact: fn(bytes: &[u8], weights: &mut [f64]),
}

impl DType {
    /// How elements of this type are read; `None` for types that this build only describes.
    pub fn decoder(self) -> Option<Decoder> {
        self.codec().map(|codec| Decoder { dtype: codec.dtype, decode: codec.decode, decode_exact: codec.decode_exact })
    }
}

/// What one element stands for: `(scale * step) * code - low * offset`.
#[cfg(test)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Term {
    /// The block's scale.
    pub scale: f32,
    /// The scale of its part of the block.
    pub step: i8,
    /// The code, in the format's own range.
    pub code: i8,
    /// The block's scale of minima, 0 where the format has none.
    pub low: f32,
    /// The minimum of its part of the block.
    pub offset: i8,
}

#[cfg(test)]
impl Term {
    /// The rule of all formats here, each operation rounded to f32 by itself.
    fn rounded(self) -> f32 {
        self.scale * f32::from(self.step) * f32::from(self.code) - self.low * f32::from(self.offset)
    }

    /// The same in f64, without any rounding.
    pub fn exact(self) -> f64 {
        let product = f64::from(self.scale) * f64::from(self.step) * f64::from(self.code);
        product - f64::from(self.low) * f64::from(self.offset)
    }
}

/// Elements of whole blocks as f32: the rule by which the faster variants are tested.
#[cfg(test)]
pub(crate) fn decode<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    weights: &mut [f32],
    terms: fn(&[u8; BYTES]) -> [Term; LEN],
) {
    decode_blocks(bytes, weights, |block, weights| *weights = terms(block).map(Term::rounded));
}

/// Decodes whole blocks of a scale and codes exactly: each product is exact in f64. References use it, so it shares no
/// function with devices except `read`.
#[inline(always)]
pub(crate) fn decode_scaled<const BYTES: usize, const LEN: usize>(
    bytes: &[u8],
    weights: &mut [f64],
    read: impl Fn(&[u8; BYTES]) -> (f32, [i8; LEN]),
) {
    // Loops instead of closures, which are not inlined into the variants of `Codec::decode_exact`.
    let (blocks, targets) = whole_blocks(bytes.as_chunks::<BYTES>(), weights.as_chunks_mut::<LEN>());
    for (block, weights) in blocks.iter().zip(targets) {
        let (scale, codes) = read(block);
        let scale = f64::from(scale);
        for (weight, code) in weights.iter_mut().zip(codes) {
            *weight = scale * f64::from(code);
        }
    }
}

/// Decodes whole blocks of a scale, a minimum and codes exactly: scales and minima are f16, so their sums are exact in
/// f64.
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

/// The elements of a block as devices decode them: without rounding for a scale and codes, because a product of 11 and
/// 8 bits is exact in f32.
#[cfg(test)]
pub(crate) fn widened<F: crate::Block, const BYTES: usize, const LEN: usize>(block: &[u8; BYTES]) -> [f64; LEN] {
    let mut weights = [0.0; LEN];
    F::decode(block, &mut weights);
    weights.map(f64::from)
}

/// Elements of one block of the K types.
pub(crate) const K_LEN: usize = 256;

/// The two bits of element `e` of a K type in 64 bytes: of each 128 elements, byte `e % 32` holds every 32nd, the first
/// lowest.
#[cfg(test)]
pub(crate) fn two_bits(codes: &[u8; 64], e: usize) -> u8 {
    codes[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3
}

/// The six-bit step and offset of part `part` of eight: those of the first four in the low bits of four bytes each,
/// those of the last four in nibbles behind them, with their upper two bits above the first four's.
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

/// The nibble of element `e` of a K type: of each 64 elements, byte `e % 32` holds the first 32 low and the last 32
/// high.
#[cfg(test)]
pub(crate) fn nibble(codes: &[u8; 128], e: usize) -> u8 {
    codes[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4) & 15
}
