//! Host views of a node's tensors: numbers as f64, indices, or the bytes of the model file.
//!
//! ```text
//!   device ──download──▶ bytes ──decode──▶ f64 numbers     (activations; every f32 is an f64)
//!   model file ───────────────────────────▶ blocks          (weights; decoded row by row)
//! ```
//!
//! An f32 whose bits are all ones was never written: results are poisoned with that pattern before a run. Its f64 has
//! all bits set too, see [`is_unwritten`].

use std::borrow::Cow;
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_runtime::HostTensor;

/// A tensor, seen from the host.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Shape and the type that the data has, or had on the device.
    pub ty: TensorType,
    /// What it holds.
    pub data: Data<'a>,
}

/// What a tensor holds, in the order of the shape, innermost first.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// Floating-point elements.
    Numbers(&'a [f64]),
    /// Indices.
    Integers(&'a [i32]),
    /// Bytes as in GGUF: a weight or a KV cache.
    Blocks(&'a [u8]),
}

impl<'a> Operand<'a> {
    /// Numbers under this type.
    pub fn numbers(ty: TensorType, numbers: &'a [f64]) -> Operand<'a> {
        Operand { ty: ty.dense(), data: Data::Numbers(numbers) }
    }

    /// Indices under this type.
    pub fn integers(ty: TensorType, integers: &'a [i32]) -> Operand<'a> {
        Operand { ty: ty.dense(), data: Data::Integers(integers) }
    }

    /// Bytes as in GGUF under this type.
    pub fn blocks(ty: TensorType, bytes: &'a [u8]) -> Operand<'a> {
        Operand { ty: ty.dense(), data: Data::Blocks(bytes) }
    }

    /// The indices; none if it holds something else.
    pub fn indices(&self) -> &'a [i32] {
        match self.data {
            Data::Integers(integers) => integers,
            Data::Numbers(_) | Data::Blocks(_) => &[],
        }
    }

    /// Innermost row `row` as exact numbers, in `buffer` where they must be decoded.
    pub fn row<'b>(&self, row: usize, buffer: &'b mut Vec<f64>) -> &'b [f64]
    where
        'a: 'b,
    {
        let len = self.ty.shape[0];
        match self.data {
            Data::Numbers(numbers) => &numbers[row * len..(row + 1) * len],
            Data::Integers(integers) => {
                buffer.clear();
                buffer.extend(integers[row * len..(row + 1) * len].iter().map(|integer| f64::from(*integer)));
                buffer
            }
            Data::Blocks(_) => {
                buffer.resize(len, 0.0);
                decode_exact(self.ty.dtype, self.row_bytes(row).unwrap_or_default(), buffer);
                buffer
            }
        }
    }

    /// `len` elements of innermost row `row` from `start` on, as [`Operand::row`] gives the whole row. Both are whole
    /// blocks.
    pub fn row_part<'b>(&self, row: usize, start: usize, len: usize, buffer: &'b mut Vec<f64>) -> &'b [f64]
    where
        'a: 'b,
    {
        if let (Data::Blocks(_), Some(bytes)) = (self.data, self.row_bytes(row)) {
            let place = |element: usize| element / self.ty.dtype.block_len() * self.ty.dtype.block_bytes();
            buffer.resize(len, 0.0);
            decode_exact(self.ty.dtype, &bytes[place(start)..place(start + len)], buffer);
            return buffer;
        }
        &self.row(row, buffer)[start..start + len]
    }

    /// Element `column` of innermost row `row` as an exact number.
    pub fn at(&self, row: usize, column: usize) -> f64 {
        let index = row * self.ty.shape[0] + column;
        match self.data {
            Data::Numbers(numbers) => numbers[index],
            Data::Integers(integers) => f64::from(integers[index]),
            Data::Blocks(bytes) => {
                let (len, size) = (self.ty.dtype.block_len(), self.ty.dtype.block_bytes());
                let mut block = vec![0.0; len];
                decode_exact(self.ty.dtype, &bytes[index / len * size..][..size], &mut block);
                block[index % len]
            }
        }
    }

    /// The bytes of innermost row `row`, where the operand is kept as bytes.
    pub fn row_bytes(&self, row: usize) -> Option<&'a [u8]> {
        let bytes = self.ty.shape[0] / self.ty.dtype.block_len() * self.ty.dtype.block_bytes();
        match self.data {
            Data::Blocks(blocks) => Some(&blocks[row * bytes..(row + 1) * bytes]),
            Data::Numbers(_) | Data::Integers(_) => None,
        }
    }

    /// The same tensor as the oracle takes it.
    pub fn to_host_tensor(self) -> HostTensor {
        match self.data {
            Data::Numbers(numbers) => HostTensor::real(self.ty, numbers.to_vec()),
            Data::Integers(integers) => HostTensor::indices(integers).with_type(self.ty),
            Data::Blocks(bytes) => HostTensor::stored(self.ty, bytes.to_vec()),
        }
    }

    /// All elements as numbers.
    pub fn all(&self) -> Cow<'a, [f64]> {
        match self.data {
            Data::Numbers(numbers) => Cow::Borrowed(numbers),
            Data::Integers(integers) => Cow::Owned(integers.iter().map(|integer| f64::from(*integer)).collect()),
            Data::Blocks(bytes) => Cow::Owned(decode(&self.ty, bytes)),
        }
    }
}

/// All elements of a tensor as exact numbers, from bytes as in GGUF.
pub fn decode(ty: &TensorType, bytes: &[u8]) -> Vec<f64> {
    let mut numbers = vec![0.0; ty.shape.elements()];
    decode_exact(ty.dtype, bytes, &mut numbers);
    numbers
}

/// Elements of whole blocks as exact numbers, integers beyond 53 bits as the nearest ones; f32 bits that are all ones
/// stay recognisable.
fn decode_exact(dtype: DType, bytes: &[u8], numbers: &mut [f64]) {
    if dtype == DType::F32 {
        for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<4>().0) {
            let bits = u32::from_le_bytes(*bytes);
            *number = if bits == u32::MAX { UNWRITTEN } else { f64::from(f32::from_bits(bits)) };
        }
    } else if dtype == DType::I32 {
        for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *number = f64::from(i32::from_le_bytes(*bytes));
        }
    } else if dtype == DType::I64 {
        let integers = bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
        numbers.iter_mut().zip(integers).for_each(|(number, integer)| *number = integer as f64);
    } else if let Some(decoder) = dtype.decoder() {
        (decoder.decode_exact)(bytes, numbers);
    } else {
        numbers.fill(f64::NAN);
    }
}

/// What an element that nothing was written to holds.
pub const UNWRITTEN: f64 = f64::from_bits(u64::MAX);

/// Whether an element still holds the pattern that results are poisoned with.
pub fn is_unwritten(number: f64) -> bool {
    number.to_bits() == u64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poison_stays_recognisable_and_other_nan_are_not_poison() {
        let ty = TensorType::new(DType::F32, &[3]);
        let bytes: Vec<u8> =
            [u32::MAX, f32::NAN.to_bits(), 1.5f32.to_bits()].iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let numbers = decode(&ty, &bytes);
        assert!(is_unwritten(numbers[0]) && !is_unwritten(numbers[1]));
        assert!(numbers[1].is_nan());
        assert_eq!(numbers[2], 1.5);
    }

    #[test]
    fn indices_are_numbers_and_tensors_of_the_host() {
        let (ty, indices) = (TensorType::new(DType::I32, &[3]), [5, -1, 70000]);
        let tensor = Operand::integers(ty, &indices).to_host_tensor();
        assert_eq!(decode(&ty, &tensor.to_bytes()), [5.0, -1.0, 70000.0]);
        assert_eq!(tensor.to_indices(), indices);
    }

    #[test]
    fn rows_of_blocks_are_decoded_where_they_lie() {
        let ty = TensorType::new(DType::Q8_0, &[32, 2]);
        let mut bytes = vec![0; 68];
        let weights: Vec<f32> = (0..64).map(|i| i as f32).collect();
        (DType::Q8_0.codec().unwrap().encode)(&weights, &mut bytes);
        let operand = Operand::blocks(ty, &bytes);
        let mut buffer = Vec::new();
        let row = operand.row(1, &mut buffer).to_vec();
        assert_eq!(row, operand.all()[32..]);
        assert!((row[31] - 63.0).abs() < 0.3);
    }
}
