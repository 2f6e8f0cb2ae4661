//! Converts a chunk from one type to another: decode, check for NaN and infinity, encode, measure the loss.
//!
//! ```text
//! bytes ─ decode ─▶ f32 ─ encode ─▶ bytes ─ decode ─▶ f32 ─ measure, if requested
//!                    └──── finite? ─────┘
//! ```
//!
//! A chunk is processed in pieces that fit in the L1 cache. Each thread reuses its buffers, because page faults of new
//! buffers would take longer than the codecs.

use crate::importance::WeightedRows;
use crate::walk::bytes_of;
use std::path::Path;
use trueup_blocks::{Codec, DType, DeviationSums, are_bytes_finite, encode_exact, first_not_finite, unused_code};
use trueup_formats::{Error, TensorInfo, element_indices, quote, significant};

/// A conversion from one type to another. Both types must have a codec unless they are equal. Only whole blocks are
/// converted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transcoder {
    source: DType,
    target: DType,
}

/// An element that the new type cannot represent.
#[derive(Clone, PartialEq, Debug)]
pub struct Unfit {
    /// Its index in the chunk.
    pub place: u64,
    /// Its value, and why the new type cannot represent it.
    problem: String,
    /// The remedy.
    help: String,
}

/// The help for elements of a damaged source.
const DAMAGED: &str = "the model is damaged; get the file again, or convert the model again";

/// The start of the help for values that are too large.
const KEEP: &str = "keep the tensor";

/// Elements converted at a time; their f32 values fit in the L1 cache. A multiple of every block length.
const PIECE_ELEMENTS: usize = 4096;

/// Buffers of a thread for the f32 values of elements that are converted.
#[derive(Debug)]
pub struct Scratch {
    weights: Box<[f32]>,
    decoded: Box<[f32]>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { weights: [0.0; PIECE_ELEMENTS].into(), decoded: [0.0; PIECE_ELEMENTS].into() }
    }
}

impl Scratch {
    /// Buffers for `count` source and decoded elements.
    fn of(&mut self, count: usize) -> (&mut [f32], &mut [f32]) {
        if self.weights.len() < count {
            (self.weights, self.decoded) = (vec![0.0; count].into(), vec![0.0; count].into());
        }
        (&mut self.weights[..count], &mut self.decoded[..count])
    }
}

/// Size of a piece of elements in bytes.
pub fn piece_bytes(dtype: DType) -> usize {
    PIECE_ELEMENTS / dtype.block_len() * dtype.block_bytes()
}

impl Transcoder {
    /// Creates a conversion from `source` to `target`.
    pub fn new(source: DType, target: DType) -> Transcoder {
        Transcoder { source, target }
    }

    /// Whether bytes are copied unchanged.
    pub fn is_copy(self) -> bool {
        self.source == self.target
    }

    /// Converts `source` to the new type, and writes the result to `target`, which must have exactly its size. `loss`
    /// accumulates the quantization error; a copy has none.
    ///
    /// # Errors
    /// An element that is not finite in the source or in the new type; the contents of `target` are then unspecified.
    /// Elements of a type without a codec are copied unchecked.
    pub fn transcode(
        self,
        source: &[u8],
        target: &mut [u8],
        scratch: &mut Scratch,
        mut loss: Option<&mut DeviationSums>,
    ) -> Result<(), Unfit> {
        if self.is_copy() {
            target.copy_from_slice(source);
            return self.check_copy(source);
        }
        let sources = source.chunks(piece_bytes(self.source));
        for (number, (source, target)) in sources.zip(target.chunks_mut(piece_bytes(self.target))).enumerate() {
            let encode = codec_of(self.target).encode;
            self.piece(source, target, scratch, loss.as_deref_mut(), encode)
                .map_err(|unfit| unfit.after(number * PIECE_ELEMENTS))?;
        }
        Ok(())
    }

    /// Checks the blocks of a ternary type for codes that encoders never write.
    fn check_codes(self, source: &[u8]) -> Result<(), Unfit> {
        if !matches!(self.source, DType::Tq1_0 | DType::Tq2_0) {
            return Ok(());
        }
        let mut blocks = source.chunks(self.source.block_bytes()).enumerate();
        let unused = blocks.find_map(|(number, block)| Some((number, unused_code(self.source, block)?)));
        unused.map_or(Ok(()), |(number, (element, byte))| {
            let problem = format!("is stored in the byte 0x{byte:02X}, which no encoder of {} writes", self.source);
            let unfit = Unfit { place: element as u64, problem, help: DAMAGED.to_owned() };
            Err(unfit.after(number * self.source.block_len()))
        })
    }

    /// Checks that copied elements are finite, and that their codes are valid.
    ///
    /// # Errors
    /// An element that is NaN or infinite, or a code that encoders never write. A type without a codec is not checked.
    pub fn check_copy(self, source: &[u8]) -> Result<(), Unfit> {
        self.check_codes(source)?;
        let Some(codec) = self.source.codec().filter(|_| !are_bytes_finite(self.source, source)) else { return Ok(()) };
        let length = self.source.block_len();
        let mut blocks = source.chunks(self.source.block_bytes()).enumerate();
        let damaged = blocks.find(|(_, block)| !are_bytes_finite(self.source, block));
        damaged.map_or(Ok(()), |(number, block)| {
            let mut weights = vec![0.0; length];
            (codec.decode)(block, &mut weights);
            let place = first_not_finite(&weights).unwrap_or(0);
            Err(self.damaged(place, block, weights[place]).after(number * length))
        })
    }

    /// [`Transcoder::transcode`] for whole rows with importance.
    ///
    /// # Errors
    /// As [`Transcoder::transcode`].
    pub fn transcode_weighted(
        self,
        source: &[u8],
        target: &mut [u8],
        scratch: &mut Scratch,
        rows: &WeightedRows,
        loss: &mut DeviationSums,
    ) -> Result<(), Unfit> {
        let columns = rows.columns();
        let (from, to) = (bytes_of(columns as u64, self.source), bytes_of(columns as u64, self.target));
        let encode_weighted = codec_of(self.target).encode_weighted;
        let sources = source.chunks(from as usize);
        for (row, (source, target)) in sources.zip(target.chunks_mut(to as usize)).enumerate() {
            let importance = rows.importance_of(row);
            let encode = |weights: &[f32], bytes: &mut [u8]| encode_weighted(weights, importance, bytes);
            self.piece(source, target, scratch, Some(loss), encode).map_err(|unfit| unfit.after(row * columns))?;
        }
        Ok(())
    }

    /// [`Transcoder::transcode`] without loss, for elements on the grid of the new type.
    ///
    /// # Errors
    /// As [`Transcoder::transcode`].
    pub fn transcode_exact(
        self,
        source: &[u8],
        target: &mut [u8],
        scratch: &mut Scratch,
        loss: &mut DeviationSums,
    ) -> Result<(), Unfit> {
        let sources = source.chunks(piece_bytes(self.source));
        for (number, (source, target)) in sources.zip(target.chunks_mut(piece_bytes(self.target))).enumerate() {
            // Weights off the grid are encoded by the codec.
            let encode = |weights: &[f32], bytes: &mut [u8]| {
                encode_exact(self.source, self.target, weights, bytes);
            };
            self.piece(source, target, scratch, Some(loss), encode)
                .map_err(|unfit| unfit.after(number * PIECE_ELEMENTS))?;
        }
        Ok(())
    }

    /// Decodes, encodes and checks one piece.
    fn piece(
        self,
        source: &[u8],
        target: &mut [u8],
        scratch: &mut Scratch,
        mut loss: Option<&mut DeviationSums>,
        encode: impl Fn(&[f32], &mut [u8]),
    ) -> Result<(), Unfit> {
        self.check_codes(source)?;
        let (from, to) = (codec_of(self.source), codec_of(self.target));
        let (weights, decoded) = scratch.of(elements(self.source, source));
        (from.decode)(source, weights);
        encode(weights, target);
        let is_finite = match &mut loss {
            Some(loss) => {
                (to.decode)(target, decoded);
                loss.add_finite(weights, decoded);
                // Squares of f32 do not overflow in f64, so the sums of finite elements are finite.
                loss.is_finite()
            }
            None => first_not_finite(weights).is_none() && are_bytes_finite(self.target, target),
        };
        if is_finite {
            return Ok(());
        }
        if let Some(place) = first_not_finite(weights) {
            return Err(self.damaged(place, source, weights[place]));
        }
        // If the scale of a block is not finite, its largest element is reported.
        (to.decode)(target, decoded);
        first_not_finite(decoded).map_or(Ok(()), |place| Err(self.too_large(place, weights)))
    }

    /// [`Transcoder::transcode`] without any checks.
    pub fn transcode_unchecked(self, source: &[u8], target: &mut [u8], scratch: &mut Scratch) {
        if self.is_copy() {
            return target.copy_from_slice(source);
        }
        let (from, to) = (codec_of(self.source), codec_of(self.target));
        let sources = source.chunks(piece_bytes(self.source));
        for (source, target) in sources.zip(target.chunks_mut(piece_bytes(self.target))) {
            let weights = &mut scratch.weights[..elements(self.source, source)];
            (from.decode)(source, weights);
            (to.encode)(weights, target);
        }
    }

    /// The error for an element of the source that is not finite in f32.
    fn damaged(self, place: usize, bytes: &[u8], found: f32) -> Unfit {
        if self.source == DType::F64 {
            let exact = decode_exact(DType::F64, bytes)[place];
            if exact.is_finite() {
                let problem = format!(
                    "is {}, too large for f32, the intermediate type of every conversion",
                    significant(exact, 4)
                );
                return Unfit {
                    place: place as u64,
                    problem,
                    help: "convert from a source whose weights fit into f32".to_owned(),
                };
            }
        }
        let problem = format!("is {}", significant(f64::from(found), 7));
        Unfit { place: place as u64, problem, help: DAMAGED.to_owned() }
    }

    /// The error for an element that became infinite; in a block, for the largest element with the same scale.
    fn too_large(self, place: usize, weights: &[f32]) -> Unfit {
        let length = self.target.block_len();
        let start = place / length * length;
        let block = weights[start..].iter().take(length).enumerate();
        let largest = block.max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs())).map_or(0, |(offset, _)| offset);
        let place = start + largest;
        let (wider, rule) = if self.target == DType::Bf16 { ("f32", "f32") } else { ("bf16 or f32", "bf16") };
        Unfit {
            place: place as u64,
            problem: format!("is {}, too large for {}", short(weights[place]), self.target),
            help: format!("{KEEP} in {wider} with `trueup quantize --rule 'NAME={rule}'`"),
        }
    }
}

impl Unfit {
    /// Whether the element is finite, but too large for the new type.
    pub fn is_too_large(&self) -> bool {
        self.help.starts_with(KEEP)
    }

    /// The same error with an index that is larger by `elements`.
    fn after(self, elements: usize) -> Unfit {
        Unfit { place: self.place + elements as u64, ..self }
    }

    /// As [`Unfit::in_tensor`], for a command without rules for types.
    pub fn in_checkpoint_tensor(mut self, path: &Path, tensor: &TensorInfo, element: u64) -> Error {
        if self.is_too_large() {
            self.help = format!("convert without --type, then {}", self.help);
        }
        self.in_tensor(path, tensor, element)
    }

    /// The error message for a tensor of a file; `element` is the index of the element in the tensor.
    pub fn in_tensor(self, path: &Path, tensor: &TensorInfo, element: u64) -> Error {
        let problem = format!("element {:?} {}", element_indices(element, &tensor.shape), self.problem);
        Error::new(path, problem).at(format!("tensor {}", quote(&tensor.name))).help(self.help)
    }
}

/// A number with all digits, or with four significant digits if it is large.
fn short(value: f32) -> String {
    if value.abs() < 1e9 { value.to_string() } else { format!("{value:.3e}") }
}

/// Decodes elements exactly, to f64.
pub fn decode_exact(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let mut weights = vec![0.0; elements(dtype, bytes)];
    (codec_of(dtype).decode_exact)(bytes, &mut weights);
    weights
}

fn elements(dtype: DType, bytes: &[u8]) -> usize {
    bytes.len() / dtype.block_bytes() * dtype.block_len()
}

/// The codec of a type that was checked to have one.
fn codec_of(dtype: DType) -> &'static Codec {
    dtype.codec().unwrap_or_else(|| unreachable!("{dtype} was rejected before"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message, which must be the same with and without `loss`, and for any number of pieces before the element.
    fn message(transcoder: Transcoder, bytes: Vec<u8>) -> String {
        let message = |pieces: usize, is_measured: bool| {
            let bytes = [vec![0; pieces * piece_bytes(transcoder.source)], bytes.clone()].concat();
            let mut target = vec![0; bytes_of(elements(transcoder.source, &bytes) as u64, transcoder.target) as usize];
            let mut loss = DeviationSums::default();
            let measured = Some(&mut loss).filter(|_| is_measured);
            let unfit = transcoder.transcode(&bytes, &mut target, &mut Scratch::default(), measured).unwrap_err();
            let tensor = TensorInfo { name: "t".to_owned(), shape: vec![1 << 20], dtype: transcoder.source, bytes: 0 };
            let element = 100 + unfit.place - (pieces * PIECE_ELEMENTS) as u64;
            unfit.in_tensor(Path::new("m"), &tensor, element).to_string()
        };
        let first = message(0, false);
        assert_eq!([message(0, true), message(3, false), message(3, true)], [&first; 3].map(String::clone));
        first
    }

    #[test]
    fn elements_that_do_not_fit_are_named_with_their_value() {
        let f32s = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let f64s = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut block = [1.0; 64];
        block[40] = 3e38;
        let mut ternary = vec![0x55; DType::Tq2_0.block_bytes()];
        ternary[1] = 0xC5;
        let unused = "element [197] is stored in the byte 0xC5, which no encoder of tq2_0 writes; the model is damaged";
        let cases = [
            (DType::F32, DType::F16, f32s(&[1.0, 65_520.0]), "element [101] is 65520, too large for f16"),
            (DType::F32, DType::Bf16, f32s(&[f32::NAN, 1.0]), "element [100] is NaN; the model is damaged"),
            (DType::F32, DType::Bf16, f32s(&[f32::MAX]), "too large for bf16; keep the tensor in f32"),
            (DType::F32, DType::Q8_0, f32s(&block), "element [140] is 3"),
            (DType::F64, DType::F32, f64s(&[0.0, -1e300]), "element [101] is -1e300, too large for f32"),
            (DType::F64, DType::F32, f64s(&[f64::INFINITY]), "element [100] is infinity; the model is damaged"),
            (DType::Tq2_0, DType::Q8_0, ternary.clone(), unused),
            (DType::Tq2_0, DType::Tq2_0, ternary, unused),
        ];
        for (source, target, bytes, expected) in cases {
            let found = message(Transcoder::new(source, target), bytes);
            assert!(found.contains(expected), "{source} to {target}: expected {expected:?}, found {found:?}");
        }
    }
}
