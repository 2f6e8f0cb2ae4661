//! A chunk from one type to another: decode, look for numbers that are none, encode, look at what came of it.
//!
//! ```text
//! bytes ─ decode ─▶ f32 ─ finite? ─ encode ─▶ bytes ─ decode ─▶ f32 ─ finite? ─▶ bytes
//! ```

use crate::walk::bytes_of;
use std::path::Path;
use trueup_blocks::{Codec, DType, first_not_finite};
use trueup_formats::Error;

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

impl Transcoder {
    /// From `source` to `target`.
    pub fn new(source: DType, target: DType) -> Transcoder {
        Transcoder { source, target }
    }

    /// Whether bytes stay as they are.
    pub fn is_copy(self) -> bool {
        self.source == self.target
    }

    /// The bytes in the new type. `observe` sees the elements before and after; a copy is not looked at.
    pub fn transcode(self, bytes: Vec<u8>, observe: impl FnOnce(&[f32], &[f32])) -> Result<Vec<u8>, Unfit> {
        if self.is_copy() {
            return Ok(bytes);
        }
        let weights = decode(self.source, &bytes);
        if let Some(place) = first_not_finite(&weights) {
            return Err(self.damaged(place, &bytes, weights[place]));
        }
        let encoded = self.encode(&weights);
        let decoded = decode(self.target, &encoded);
        // A block whose scale is not finite has elements that are none; the one to blame is the largest.
        if let Some(place) = first_not_finite(&decoded) {
            return Err(self.too_large(place, &weights));
        }
        observe(&weights, &decoded);
        Ok(encoded)
    }

    /// The bytes in the new type, without a look at them.
    pub fn transcode_unchecked(self, bytes: Vec<u8>) -> Vec<u8> {
        if self.is_copy() { bytes } else { self.encode(&decode(self.source, &bytes)) }
    }

    fn encode(self, weights: &[f32]) -> Vec<u8> {
        let mut encoded = vec![0; bytes_of(weights.len() as u64, self.target) as usize];
        (codec_of(self.target).encode)(weights, &mut encoded);
        encoded
    }

    /// An element of the source that is no finite f32.
    fn damaged(self, place: usize, bytes: &[u8], found: f32) -> Unfit {
        if self.source == DType::F64 {
            let exact = decode_exact(DType::F64, bytes)[place];
            if exact.is_finite() {
                let problem = format!("is {exact:e}, too large for f32, through which every type goes");
                return Unfit {
                    place: place as u64,
                    problem,
                    help: "only weights within f32 can be written".to_owned(),
                };
            }
        }
        let problem = format!("is {found}, not a finite number");
        let help = "the model is damaged: get it, or make it from its source, again";
        Unfit { place: place as u64, problem, help: help.to_owned() }
    }

    /// An element that became infinite; in a block, the largest of those that share its scale.
    fn too_large(self, place: usize, weights: &[f32]) -> Unfit {
        let length = self.target.block_len();
        let start = place / length * length;
        let block = weights[start..].iter().take(length).enumerate();
        let largest = block.max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs())).map_or(0, |(offset, _)| offset);
        let place = start + largest;
        let wider = if self.target == DType::Bf16 { "f32" } else { "bf16 or f32" };
        Unfit {
            place: place as u64,
            problem: format!("is {}, too large for {}", weights[place], self.target),
            help: format!("keep the tensor in {wider} with a rule"),
        }
    }
}

impl Unfit {
    /// As an error of a file's tensor; `element` is the number of the element in it.
    pub fn in_tensor(self, path: &Path, tensor: &str, element: u64) -> Error {
        Error::new(path, format!("element {element} {}", self.problem)).at(format!("tensor {tensor}")).help(self.help)
    }
}

/// Elements as f32.
fn decode(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let mut weights = vec![0.0; elements(dtype, bytes)];
    (codec_of(dtype).decode)(bytes, &mut weights);
    weights
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

    fn message(transcoder: Transcoder, bytes: Vec<u8>) -> String {
        let unfit = transcoder.transcode(bytes, |_, _| ()).unwrap_err();
        let element = 100 + unfit.place;
        unfit.in_tensor(Path::new("m"), "t", element).to_string()
    }

    #[test]
    fn elements_that_do_not_fit_are_named_with_their_value() {
        let f32s = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let f64s = |values: &[f64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut block = [1.0; 64];
        block[40] = 3e38;
        let cases = [
            (DType::F32, DType::F16, f32s(&[1.0, 65_520.0]), "element 101 is 65520, too large for f16"),
            (DType::F32, DType::Bf16, f32s(&[f32::NAN, 1.0]), "element 100 is NaN, not a finite number"),
            (DType::F32, DType::Bf16, f32s(&[f32::MAX]), "too large for bf16; keep the tensor in f32"),
            (DType::F32, DType::Q8_0, f32s(&block), "element 140 is 3"),
            (DType::F64, DType::F32, f64s(&[0.0, -1e300]), "element 101 is -1e300, too large for f32"),
            (DType::F64, DType::F32, f64s(&[f64::INFINITY]), "element 100 is inf, not a finite number"),
        ];
        for (source, target, bytes, expected) in cases {
            let found = message(Transcoder::new(source, target), bytes);
            assert!(found.contains(expected), "{source} to {target}: expected {expected:?}, found {found:?}");
        }
    }
}
