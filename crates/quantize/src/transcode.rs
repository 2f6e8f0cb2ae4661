//! Converts a chunk from one type to another: decode, check for NaN and infinity, encode, measure the loss.
//!
//! ```text
//! bytes ─ decode ─▶ f32 ─ encode ─▶ bytes ─ decode ─▶ f32 ─ measure, if requested
//!                    └──── finite? ─────┘
//! ```
//!
//! A chunk is processed in parts that fit into the first-level cache, in buffers that each thread keeps, because page
//! faults of large new buffers would cost more than the codecs.

use crate::importance::WeightedRows;
use crate::walk::bytes_of;
use std::path::Path;
use trueup_blocks::{Codec, DType, DeviationSums, are_bytes_finite, encode_exact, first_not_finite};
use trueup_formats::{Error, TensorInfo, element_indices, quote, significant};

/// From one type to another. Both have a codec, unless they are the same; blocks divide what is transcoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transcoder {
    source: DType,
    target: DType,
}

/// An element that the new type cannot hold.
#[derive(Clone, PartialEq, Debug)]
pub struct Unfit {
    /// Its place in the chunk.
    pub place: u64,
    /// Its value and why that cannot be kept.
    problem: String,
    /// What to do.
    help: String,
}

/// How the help for values that are too large begins.
const KEEP: &str = "keep the tensor";

/// Elements that are between two types at once: their f32 stay in the first level cache. A multiple of every block
/// length.
const PIECE_ELEMENTS: usize = 4096;

/// Room for the elements that are between two types.
#[derive(Debug)]
pub struct Rooms {
    weights: Box<[f32]>,
    decoded: Box<[f32]>,
}

impl Default for Rooms {
    fn default() -> Rooms {
        Rooms { weights: [0.0; PIECE_ELEMENTS].into(), decoded: [0.0; PIECE_ELEMENTS].into() }
    }
}

impl Rooms {
    /// Room for so many elements twice: before and after.
    fn of(&mut self, count: usize) -> (&mut [f32], &mut [f32]) {
        if self.weights.len() < count {
            (self.weights, self.decoded) = (vec![0.0; count].into(), vec![0.0; count].into());
        }
        (&mut self.weights[..count], &mut self.decoded[..count])
    }
}

/// Bytes of the elements that are looked at together.
pub fn piece_bytes(dtype: DType) -> usize {
    PIECE_ELEMENTS / dtype.block_len() * dtype.block_bytes()
}

impl Transcoder {
    /// From `source` to `target`.
    pub fn new(source: DType, target: DType) -> Transcoder {
        Transcoder { source, target }
    }

    /// Whether bytes stay as they are.
    pub fn is_copy(self) -> bool {
        self.source == self.target
    }

    /// Writes `source` in the new type to `target`, which has room for exactly that. `loss` accumulates the encoding
    /// error; a copy has none.
    ///
    /// # Errors
    /// An element that is not finite, or is not in the new type; `target` then holds anything. Elements of a type
    /// without a codec are copied unchecked.
    pub fn transcode(
        self,
        source: &[u8],
        target: &mut [u8],
        rooms: &mut Rooms,
        mut loss: Option<&mut DeviationSums>,
    ) -> Result<(), Unfit> {
        if self.is_copy() {
            target.copy_from_slice(source);
            return self.check_copy(source);
        }
        let sources = source.chunks(piece_bytes(self.source));
        for (number, (source, target)) in sources.zip(target.chunks_mut(piece_bytes(self.target))).enumerate() {
            let encode = codec_of(self.target).encode;
            self.piece(source, target, rooms, loss.as_deref_mut(), encode)
                .map_err(|unfit| unfit.after(number * PIECE_ELEMENTS))?;
        }
        Ok(())
    }

    /// Checks elements that are copied: damage would otherwise pass unnoticed.
    ///
    /// # Errors
    /// An element that is NaN or infinite. A type without a codec is not checked.
    pub fn check_copy(self, source: &[u8]) -> Result<(), Unfit> {
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

    /// The same for whole rows whose columns have an importance.
    ///
    /// # Errors
    /// As [`Transcoder::transcode`].
    pub fn transcode_weighted(
        self,
        source: &[u8],
        target: &mut [u8],
        rooms: &mut Rooms,
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
            self.piece(source, target, rooms, Some(loss), encode).map_err(|unfit| unfit.after(row * columns))?;
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
        rooms: &mut Rooms,
        loss: &mut DeviationSums,
    ) -> Result<(), Unfit> {
        let sources = source.chunks(piece_bytes(self.source));
        for (number, (source, target)) in sources.zip(target.chunks_mut(piece_bytes(self.target))).enumerate() {
            // Weights off the grid are encoded by the codec.
            let encode = |weights: &[f32], bytes: &mut [u8]| {
                encode_exact(self.source, self.target, weights, bytes);
            };
            self.piece(source, target, rooms, Some(loss), encode)
                .map_err(|unfit| unfit.after(number * PIECE_ELEMENTS))?;
        }
        Ok(())
    }

    /// Decodes, encodes and checks elements that fit into the rooms.
    fn piece(
        self,
        source: &[u8],
        target: &mut [u8],
        rooms: &mut Rooms,
        mut loss: Option<&mut DeviationSums>,
        encode: impl Fn(&[f32], &mut [u8]),
    ) -> Result<(), Unfit> {
        let (from, to) = (codec_of(self.source), codec_of(self.target));
        let (weights, decoded) = rooms.of(elements(self.source, source));
        (from.decode)(source, weights);
        encode(weights, target);
        let is_finite = match &mut loss {
            Some(loss) => {
                (to.decode)(target, decoded);
                loss.add_finite(weights, decoded);
                // Squares of f32 do not overflow: of what is finite, the sums are.
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
        // A block whose scale is not finite has elements that are not; the one to blame is the largest.
        (to.decode)(target, decoded);
        first_not_finite(decoded).map_or(Ok(()), |place| Err(self.too_large(place, weights)))
    }

    /// The same without a look at the elements.
    pub fn transcode_unchecked(self, source: &[u8], target: &mut [u8], rooms: &mut Rooms) {
        if self.is_copy() {
            return target.copy_from_slice(source);
        }
        let (from, to) = (codec_of(self.source), codec_of(self.target));
        let sources = source.chunks(piece_bytes(self.source));
        for (source, target) in sources.zip(target.chunks_mut(piece_bytes(self.target))) {
            let weights = &mut rooms.weights[..elements(self.source, source)];
            (from.decode)(source, weights);
            (to.encode)(weights, target);
        }
    }

    /// An element of the source that is no finite f32.
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
        let help = "the model is damaged; get the checkpoint again";
        Unfit { place: place as u64, problem, help: help.to_owned() }
    }

    /// An element that became infinite; in a block, the largest of those that share its scale.
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

    /// The same, with its place counted from so many elements before.
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

    /// As an error of a file's tensor; `element` is the number of the element in it.
    pub fn in_tensor(self, path: &Path, tensor: &TensorInfo, element: u64) -> Error {
        let problem = format!("element {:?} {}", element_indices(element, &tensor.shape), self.problem);
        Error::new(path, problem).at(format!("tensor {}", quote(&tensor.name))).help(self.help)
    }
}

/// A number with all of its digits, or with four if they are many.
fn short(value: f32) -> String {
    if value.abs() < 1e9 { value.to_string() } else { format!("{value:.3e}") }
}

/// Elements as the exact numbers that the bytes stand for.
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
    dtype.codec().unwrap_or_else(|| unreachable!("{dtype} was refused before"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same whether losses are measured or not, and wherever the elements stand.
    fn message(transcoder: Transcoder, bytes: Vec<u8>) -> String {
        let told = |pieces: usize, is_measured: bool| {
            let bytes = [vec![0; pieces * piece_bytes(transcoder.source)], bytes.clone()].concat();
            let mut target = vec![0; bytes_of(elements(transcoder.source, &bytes) as u64, transcoder.target) as usize];
            let mut loss = DeviationSums::default();
            let measured = Some(&mut loss).filter(|_| is_measured);
            let unfit = transcoder.transcode(&bytes, &mut target, &mut Rooms::default(), measured).unwrap_err();
            let tensor = TensorInfo { name: "t".to_owned(), shape: vec![1 << 20], dtype: transcoder.source, bytes: 0 };
            let element = 100 + unfit.place - (pieces * PIECE_ELEMENTS) as u64;
            unfit.in_tensor(Path::new("m"), &tensor, element).to_string()
        };
        let first = told(0, false);
        assert_eq!([told(0, true), told(3, false), told(3, true)], [&first; 3].map(String::clone));
        first
    }

    #[test]
    fn elements_that_do_not_fit_are_named_with_their_value() {
        let f32s = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let f64s = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut block = [1.0; 64];
        block[40] = 3e38;
        let cases = [
            (DType::F32, DType::F16, f32s(&[1.0, 65_520.0]), "element [101] is 65520, too large for f16"),
            (DType::F32, DType::Bf16, f32s(&[f32::NAN, 1.0]), "element [100] is NaN; the model is damaged"),
            (DType::F32, DType::Bf16, f32s(&[f32::MAX]), "too large for bf16; keep the tensor in f32"),
            (DType::F32, DType::Q8_0, f32s(&block), "element [140] is 3"),
            (DType::F64, DType::F32, f64s(&[0.0, -1e300]), "element [101] is -1e300, too large for f32"),
            (DType::F64, DType::F32, f64s(&[f64::INFINITY]), "element [100] is infinity; the model is damaged"),
        ];
        for (source, target, bytes, expected) in cases {
            let found = message(Transcoder::new(source, target), bytes);
            assert!(found.contains(expected), "{source} to {target}: expected {expected:?}, found {found:?}");
        }
    }
}
