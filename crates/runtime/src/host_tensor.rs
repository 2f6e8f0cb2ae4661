//! A tensor in the host's memory, as it is stored or as the real numbers that a formula gave.
//!
//! ```text
//! stored  bytes laid out as in GGUF: weights, what a device holds, i32 indices
//! real    f64, innermost first, not yet rounded to the declared type: what the oracle computed
//! ```

use std::borrow::Cow;
use trueup_blocks::DType;
use trueup_graph::TensorType;

/// A tensor in the host's memory, its elements behind each other: of a view only what it shows.
#[derive(Clone, PartialEq, Debug)]
pub struct HostTensor {
    ty: TensorType,
    data: Data,
}

#[derive(Clone, PartialEq, Debug)]
enum Data {
    Stored(Vec<u8>),
    Real(Vec<f64>),
}

impl HostTensor {
    /// A tensor from its bytes, laid out as in GGUF. Panics when there are more or fewer than the type has.
    pub fn stored(ty: TensorType, bytes: Vec<u8>) -> HostTensor {
        assert_eq!(bytes.len(), ty.bytes(), "bytes of {ty}");
        HostTensor { ty: ty.dense(), data: Data::Stored(bytes) }
    }

    /// A tensor from real numbers, not rounded to its type. Panics when there are more or fewer than the type has.
    pub fn real(ty: TensorType, values: Vec<f64>) -> HostTensor {
        assert_eq!(values.len(), ty.shape.elements(), "elements of {ty}");
        HostTensor { ty: ty.dense(), data: Data::Real(values) }
    }

    /// An `i32[n]`.
    pub fn indices(indices: &[i32]) -> HostTensor {
        let bytes = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
        HostTensor::stored(TensorType::new(DType::I32, &[indices.len()]), bytes)
    }

    /// Shape and declared data type.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The same elements under another shape. Panics when their number or the data type differs.
    #[must_use]
    pub fn with_type(&self, ty: TensorType) -> HostTensor {
        assert!(ty.dtype == self.ty.dtype && ty.shape.elements() == self.ty.shape.elements(), "{} as {ty}", self.ty);
        HostTensor { ty: ty.dense(), data: self.data.clone() }
    }

    /// Whether the elements can be read as numbers: real, or stored as i32 or in a type that can be decoded.
    pub fn is_readable(&self) -> bool {
        matches!(self.data, Data::Real(_)) || self.ty.dtype == DType::I32 || self.ty.dtype.decoder().is_some()
    }

    /// Fills `target` with the exact values of the elements from number `start` on. Panics outside the tensor, inside a
    /// block, and where the tensor is not [readable](HostTensor::is_readable).
    pub fn read(&self, start: usize, target: &mut [f64]) {
        match &self.data {
            Data::Real(values) => target.copy_from_slice(&values[start..start + target.len()]),
            Data::Stored(bytes) if self.ty.dtype == DType::I32 => {
                let cells = &bytes.as_chunks::<4>().0[start..start + target.len()];
                for (target, cell) in target.iter_mut().zip(cells) {
                    *target = f64::from(i32::from_le_bytes(*cell));
                }
            }
            Data::Stored(bytes) => {
                let dtype = self.ty.dtype;
                let decoder = dtype.decoder().unwrap_or_else(|| panic!("{dtype} cannot be decoded"));
                let byte = |element: usize| element / dtype.block_len() * dtype.block_bytes();
                assert!(start.is_multiple_of(dtype.block_len()), "element {start} is inside a block of {dtype}");
                (decoder.decode_exact)(&bytes[byte(start)..byte(start + target.len())], target);
            }
        }
    }

    /// All elements as real numbers, innermost first.
    pub fn values(&self) -> Cow<'_, [f64]> {
        match &self.data {
            Data::Real(values) => Cow::Borrowed(values),
            Data::Stored(_) => {
                let mut values = vec![0.0; self.ty.shape.elements()];
                self.read(0, &mut values);
                Cow::Owned(values)
            }
        }
    }

    /// The elements of an i32 tensor; panics on other types.
    pub fn to_indices(&self) -> Vec<i32> {
        match &self.data {
            Data::Stored(bytes) if self.ty.dtype == DType::I32 => {
                bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect()
            }
            Data::Real(values) if self.ty.dtype == DType::I32 => values.iter().map(|value| *value as i32).collect(),
            Data::Stored(_) | Data::Real(_) => panic!("{} does not contain indices", self.ty),
        }
    }

    /// The bytes as in GGUF: real numbers are rounded once, to the nearest number of the declared type and halves to
    /// even; to an integer toward zero, and to the nearest one there is beyond its range; to blocks by the reference
    /// rule of their type, after a rounding to f32. Panics for real numbers of a type that is none of these.
    pub fn to_bytes(&self) -> Cow<'_, [u8]> {
        match &self.data {
            Data::Stored(bytes) => Cow::Borrowed(bytes),
            Data::Real(values) => {
                let mut bytes = vec![0; self.ty.bytes()];
                round_to_bytes(self.ty.dtype, values, &mut bytes);
                Cow::Owned(bytes)
            }
        }
    }

    /// The same, without a copy of what is stored.
    pub fn into_bytes(self) -> Vec<u8> {
        match self.data {
            Data::Stored(bytes) => bytes,
            Data::Real(_) => self.to_bytes().into_owned(),
        }
    }

    /// Element `i` of a tensor of type `ty` is element `source(i).1` of tensor number `source(i).0`, bit for bit, or
    /// `fill` where there is none. Panics outside the sources, and where a source has another type than `ty` or one
    /// with blocks.
    pub fn gathered(
        ty: TensorType,
        sources: &[&HostTensor],
        fill: f64,
        source: impl Fn(usize) -> Option<(usize, usize)>,
    ) -> HostTensor {
        let same = sources.iter().all(|source| source.ty.dtype == ty.dtype);
        assert!(same && !ty.dtype.is_quantized(), "elements gathered to {ty}");
        let stored: Option<Vec<&[u8]>> = sources.iter().map(|source| source.stored_bytes()).collect();
        let places = (0..ty.shape.elements()).map(source);
        match stored {
            Some(stored) => {
                let size = ty.dtype.block_bytes();
                let mut bytes = vec![0; ty.bytes()];
                let mut filler = vec![0; size];
                round_to_bytes(ty.dtype, &[fill], &mut filler);
                for (target, place) in bytes.chunks_exact_mut(size).zip(places) {
                    target.copy_from_slice(
                        place.map_or(&filler, |(which, place)| &stored[which][place * size..][..size]),
                    );
                }
                HostTensor::stored(ty, bytes)
            }
            None => {
                let values: Vec<Cow<[f64]>> = sources.iter().map(|source| source.values()).collect();
                HostTensor::real(
                    ty,
                    places.map(|place| place.map_or(fill, |(which, place)| values[which][place])).collect(),
                )
            }
        }
    }

    fn stored_bytes(&self) -> Option<&[u8]> {
        match &self.data {
            Data::Stored(bytes) => Some(bytes),
            Data::Real(_) => None,
        }
    }

    /// Overwrites elements from number `start` on, rounded to the declared type. Panics as [`HostTensor::to_bytes`]
    /// does.
    pub fn write(&mut self, start: usize, values: &[f64]) {
        match &mut self.data {
            Data::Real(target) => target[start..start + values.len()].copy_from_slice(values),
            Data::Stored(bytes) => {
                let (len, size) = (self.ty.dtype.block_len(), self.ty.dtype.block_bytes());
                assert!(start.is_multiple_of(len), "element {start} is inside a block of {}", self.ty.dtype);
                round_to_bytes(
                    self.ty.dtype,
                    values,
                    &mut bytes[start / len * size..(start + values.len()) / len * size],
                );
            }
        }
    }
}

/// Each value as the nearest number of a floating-point type, halves to even, as an integer cut toward zero, or as part
/// of a block.
fn round_to_bytes(dtype: DType, values: &[f64], bytes: &mut [u8]) {
    fn fill<const BYTES: usize>(values: &[f64], bytes: &mut [u8], round: impl Fn(f64) -> [u8; BYTES]) {
        let targets = bytes.as_chunks_mut::<BYTES>().0;
        assert_eq!(targets.len(), values.len(), "values and bytes");
        for (target, value) in targets.iter_mut().zip(values) {
            *target = round(*value);
        }
    }
    if dtype == DType::F64 {
        fill(values, bytes, f64::to_le_bytes);
    } else if dtype == DType::F32 {
        fill(values, bytes, |value| (value as f32).to_le_bytes());
    } else if dtype == DType::F16 {
        fill(values, bytes, |value| half::f16::from_f32(to_f32_odd(value)).to_le_bytes());
    } else if dtype == DType::Bf16 {
        fill(values, bytes, |value| half::bf16::from_f32(to_f32_odd(value)).to_le_bytes());
    } else if dtype == DType::I32 {
        fill(values, bytes, |value| (value as i32).to_le_bytes());
    } else if dtype == DType::I64 {
        fill(values, bytes, |value| (value as i64).to_le_bytes());
    } else if let Some(codec) = dtype.codec() {
        let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        (codec.encode)(&values, bytes);
    } else {
        panic!("real numbers are not rounded to {dtype}");
    }
}

/// f64 to f32 so that a second rounding, to a narrower type, gives what one rounding would have: cut toward zero, and
/// the last bit set where something was cut off ("round to odd", Boldo and Melquiond 2008).
fn to_f32_odd(value: f64) -> f32 {
    let near = value as f32;
    if !near.is_finite() || f64::from(near) == value {
        return near;
    }
    let cut = if f64::from(near).abs() > value.abs() { f32::from_bits(near.to_bits() - 1) } else { near };
    f32::from_bits(cut.to_bits() | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_just_above_a_half_step_rounds_up_in_one_rounding() {
        // 1 + 2^-11 is the middle between two f16; 2^-40 more is lost in f32 and must still decide.
        let middle = 1.0 + (-11f64).exp2();
        let tensor = |value| HostTensor::real(TensorType::new(DType::F16, &[1]), vec![value]).to_bytes().into_owned();
        assert_eq!(tensor(middle), half::f16::from_bits(0x3C00).to_le_bytes(), "halves go to the even neighbor");
        assert_eq!(tensor(middle + (-40f64).exp2()), half::f16::from_bits(0x3C01).to_le_bytes());
        assert_eq!(tensor(-middle - (-40f64).exp2()), half::f16::from_bits(0xBC01).to_le_bytes());
    }

    #[test]
    fn indices_that_were_computed_are_those_that_are_stored() {
        let ty = TensorType::new(DType::I32, &[3]);
        let computed = HostTensor::real(ty, vec![7.0, 0.0, 65537.0]);
        let stored = HostTensor::stored(ty, computed.to_bytes().into_owned());
        assert_eq!((computed.to_indices(), stored.to_indices()), (vec![7, 0, 65537], vec![7, 0, 65537]));
        let mut last = [0.0; 2];
        stored.read(1, &mut last);
        assert_eq!(last, [0.0, 65537.0]);
    }

    #[test]
    fn rows_of_blocks_are_read_where_they_lie() {
        let ty = TensorType::new(DType::Q8_0, &[32, 2]);
        let weights: Vec<f32> = (0..64).map(|i| i as f32 - 31.0).collect();
        let mut bytes = vec![0; ty.bytes()];
        (DType::Q8_0.codec().unwrap().encode)(&weights, &mut bytes);
        let tensor = HostTensor::stored(ty, bytes);
        let mut row = [0.0; 32];
        tensor.read(32, &mut row);
        assert_eq!(row, tensor.values()[32..]);
        assert!((row[31] - 32.0).abs() < 0.2, "{}", row[31]);
    }
}
