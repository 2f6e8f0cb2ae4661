//! The trait of a block format, its functions as a table entry, and the loops over the blocks of a row.
//!
//! ```text
//!  bytes    │ block 0 (BYTES) │ block 1 (BYTES) │ ... │      n blocks, nothing between them
//!  weights  │ LEN elements    │ LEN elements    │ ... │      n * LEN elements, same order
//! ```

use crate::DType;
use multiversion::multiversion;

/// A block format. Each one is implemented in a separate file. Slices hold whole blocks, as in [`Codec`].
pub trait Block {
    /// The type whose bytes this format describes.
    const DTYPE: DType;

    /// Decodes elements to f32 by the rule of the format.
    fn decode(bytes: &[u8], weights: &mut [f32]);

    /// Decodes elements to the exact numbers that the bytes represent.
    fn decode_exact(bytes: &[u8], weights: &mut [f64]);

    /// Encodes finite elements by the reference rule of the format.
    fn encode(weights: &[f32], bytes: &mut [u8]);

    /// Whether [`encode_weighted`](Block::encode_weighted) depends on the importance.
    const USES_IMPORTANCE: bool = false;

    /// Encodes whole rows of finite elements by the reference rule of the format for columns of different importance.
    /// `importance` holds a finite number of at least 0 for each column, and `weights` holds one or more rows. Formats
    /// without such a rule ignore the importance.
    fn encode_weighted(weights: &[f32], importance: &[f32], bytes: &mut [u8]) {
        assert_whole_rows(weights, importance);
        Self::encode(weights, bytes);
    }
}

/// The functions of one block format. They take whole blocks: `bytes` holds `n` blocks of [`DType::block_bytes`] bytes,
/// and `weights` holds `n` times [`DType::block_len`] elements. They panic if a slice has another length.
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    /// The type whose bytes these functions read and write.
    pub dtype: DType,
    /// Decodes elements to f32 by the rule of the format.
    pub decode: fn(bytes: &[u8], weights: &mut [f32]),
    /// Decodes elements to the exact numbers that the bytes represent. Sums like `d * q + m` are not rounded to f32.
    pub decode_exact: fn(bytes: &[u8], weights: &mut [f64]),
    /// Encodes finite elements by the reference rule of the format.
    pub encode: fn(weights: &[f32], bytes: &mut [u8]),
    /// Encodes whole rows of finite elements by the reference rule of the format for columns of different importance.
    /// `importance` holds a finite number of at least 0 for each column, and `weights` holds one or more rows.
    pub encode_weighted: fn(weights: &[f32], importance: &[f32], bytes: &mut [u8]),
    /// Whether `encode_weighted` depends on the importance; otherwise it writes the same bytes as `encode`.
    pub uses_importance: bool,
}

impl Codec {
    /// The functions of a format as a table entry.
    pub(crate) const fn of<B: Block>() -> Codec {
        Codec {
            dtype: B::DTYPE,
            decode: B::decode,
            decode_exact: decode_exact::<B>,
            encode: B::encode,
            encode_weighted: B::encode_weighted,
            uses_importance: B::USES_IMPORTANCE,
        }
    }
}

/// [`Block::decode_exact`], compiled for the baseline and, on x86-64, for AVX2. Both variants give the same bits. There
/// is no AVX-512 variant, because it is slower for K types.
#[multiversion(targets("x86_64+avx2"))]
fn decode_exact<B: Block>(bytes: &[u8], weights: &mut [f64]) {
    B::decode_exact(bytes, weights);
}

/// Declares the list of formats, one entry per format, and [`DType::codec`], which searches the list.
macro_rules! codecs {
    ($($file:ident :: $Block:ident),+ $(,)?) => {
        $(pub use $file::$Block;)+

        static CODECS: &[Codec] = &[$(Codec::of::<$Block>()),+];

        impl DType {
            /// The codec of this type; `None` for types that this build only describes.
            pub fn codec(self) -> Option<&'static Codec> {
                CODECS.iter().find(|codec| codec.dtype == self)
            }
        }
    };
}
pub(crate) use codecs;

/// Decodes block after block: `BYTES` bytes to `LEN` elements each.
#[inline(always)]
pub(crate) fn decode_blocks<const BYTES: usize, const LEN: usize, T>(
    bytes: &[u8],
    weights: &mut [T],
    decode: impl Fn(&[u8; BYTES], &mut [T; LEN]),
) {
    let (blocks, targets) = whole_blocks(bytes.as_chunks::<BYTES>(), weights.as_chunks_mut::<LEN>());
    for (block, target) in blocks.iter().zip(targets) {
        decode(block, target);
    }
}

/// Encodes block after block: `LEN` elements to `BYTES` bytes each.
#[inline(always)]
pub(crate) fn encode_blocks<const BYTES: usize, const LEN: usize>(
    weights: &[f32],
    bytes: &mut [u8],
    encode: impl Fn(&[f32; LEN], &mut [u8; BYTES]),
) {
    let (sources, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<BYTES>());
    for (source, block) in sources.iter().zip(blocks) {
        encode(source, block);
    }
}

/// Encodes block after block of whole rows, each block with the importance of its columns.
#[inline(always)]
pub(crate) fn encode_blocks_weighted<const BYTES: usize, const LEN: usize>(
    weights: &[f32],
    importance: &[f32],
    bytes: &mut [u8],
    encode: impl Fn(&[f32; LEN], &[f32; LEN], &mut [u8; BYTES]),
) {
    assert_whole_rows(weights, importance);
    let (sources, blocks) = whole_blocks(weights.as_chunks::<LEN>(), bytes.as_chunks_mut::<BYTES>());
    let (columns, rest) = importance.as_chunks::<LEN>();
    assert!(rest.is_empty(), "a row ends inside a block, {} elements over", rest.len());
    for ((source, columns), block) in sources.iter().zip(columns.iter().cycle()).zip(blocks) {
        encode(source, columns, block);
    }
}

/// Panics unless `weights` holds whole rows, with one number of `importance` per column.
#[inline(always)]
#[track_caller]
pub(crate) fn assert_whole_rows(weights: &[f32], importance: &[f32]) {
    let rest = weights.len().checked_rem(importance.len()).unwrap_or(weights.len());
    assert!(rest == 0, "the weights end inside a row, {rest} elements over");
}

/// Returns the blocks of both sides. Panics if a side ends inside a block or if the numbers of blocks differ.
#[inline(always)]
#[track_caller]
pub(crate) fn whole_blocks<'s, 't, S, T>(
    (sources, source_rest): (&'s [S], &'s [impl Sized]),
    (targets, target_rest): (&'t mut [T], &'t mut [impl Sized]),
) -> (&'s [S], &'t mut [T]) {
    assert!(source_rest.is_empty(), "the source ends inside a block, {} elements over", source_rest.len());
    assert!(target_rest.is_empty(), "the target ends inside a block, {} elements over", target_rest.len());
    assert_eq!(sources.len(), targets.len(), "source and target differ in blocks");
    (sources, targets)
}

#[cfg(test)]
mod tests {
    use crate::DType;

    #[test]
    fn each_type_with_a_codec_is_listed_once_under_its_own_name() {
        let listed: Vec<DType> = crate::CODECS.iter().map(|codec| codec.dtype).collect();
        let expected = [
            DType::F32,
            DType::F16,
            DType::Bf16,
            DType::F64,
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
            DType::Tq1_0,
            DType::Tq2_0,
        ];
        assert_eq!(listed, expected);
        assert!(DType::Iq1S.codec().is_none(), "iq1_s is described but has no codec");
    }

    #[test]
    #[should_panic(expected = "the source ends inside a block")]
    fn a_row_that_ends_inside_a_block_is_refused() {
        let codec = DType::Q4_0.codec().unwrap();
        (codec.encode)(&[1.0; 33], &mut [0; 18]);
    }

    #[test]
    #[should_panic(expected = "source and target differ in blocks")]
    fn a_target_of_another_size_is_refused() {
        let codec = DType::Q8_0.codec().unwrap();
        (codec.decode)(&[0; 34], &mut [0.0; 64]);
    }
}
