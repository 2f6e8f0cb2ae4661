//! One walk over the values of all tensors, in chunks on all cores: what is not finite, the largest, rows of zeros, how
//! magnitudes lie.
//!
//! ```text
//! plain types   every element: magnitude bits of a row ── maximum ── NaN and infinity are the largest, 0 the smallest
//! blocks        every scale, which decides whether the block is finite, zero, large
//! samples       every 61st of them: a histogram of exponents, of which the median follows
//! packed bytes  every byte: four ternary values, of which none may be the unused code; the same in ternary blocks
//! ```
//!
//! Nothing is decoded: bits of magnitudes are in the order of the magnitudes.

use super::patient::is_readable;
use std::collections::HashSet;
use trueup_blocks::{DType, unused_code};
use trueup_formats::{Checkpoint, Result, TensorInfo};
use trueup_quantize::{CHUNK_ELEMENTS, Progress, bytes_of, chunk_ranges, walk};

/// Of so many values one goes into the histogram; prime, so that no period of a tensor's rows hides values.
const SAMPLE_STEP: usize = 61;

/// Rows beyond this one are counted only: no vocabulary is as large.
const LISTED_ROWS_MAX: u64 = 1 << 21;

/// What was seen of one tensor.
pub(super) struct Summary {
    /// Whether its values were looked at.
    pub is_read: bool,
    pub bytes: u64,
    /// Values that are NaN or infinite; blocks where the type has them.
    pub not_finite: u64,
    /// The first of them.
    pub first_not_finite: Option<u64>,
    /// The largest finite magnitude: of elements, or of scales of blocks.
    pub largest: f32,
    /// The element that has it, or the first of the block that has it.
    pub largest_at: u64,
    /// Whether every value is zero.
    pub is_zero: bool,
    /// How many rows hold only zeros; 0 where a row is longer than a chunk.
    pub zero_rows: u64,
    /// The first of them.
    pub first_zero_row: Option<u64>,
    /// All of them, rising, where they were asked for.
    pub listed_zero_rows: Vec<u64>,
    /// Samples: zeros and what is not finite left out.
    pub samples: u64,
    /// The power of two at or below the median magnitude of the samples; `None` without samples.
    pub median: Option<f32>,
    /// Samples that are subnormal in the type they are stored in; scales that have five bits and fewer.
    pub subnormal: u64,
    /// The codes of a tensor of packed ternary values; of ternary blocks only those that are invalid.
    pub codes: Codes,
    /// A number that equal bytes have in common.
    pub checksum: u64,
}

/// The bytes of packed or encoded ternary values.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    /// Bytes with an unused code; blocks, if the type has them.
    pub invalid: u64,
    /// The first of them: its place, which is an element of the tensor if the type has blocks, and its value.
    pub first_invalid: Option<(u64, u8)>,
    /// Bits that all bytes have, and bits that any byte has.
    common: u8,
    any: u8,
}

impl Codes {
    const NONE: Codes = Codes { invalid: 0, first_invalid: None, common: u8::MAX, any: 0 };

    /// Of bytes that begin at place `start` of their tensor.
    fn of(bytes: &[u8], start: u64) -> Codes {
        let (common, any) = bytes.iter().fold((u8::MAX, 0), |(common, any), byte| (common & byte, any | byte));
        let mut codes = Codes { common, any, ..Codes::NONE };
        if any & any >> 1 & 0x55 != 0 {
            for (place, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte & **byte >> 1 & 0x55 != 0) {
                codes.invalid += 1;
                codes.first_invalid.get_or_insert((start + place as u64, *byte));
            }
        }
        codes
    }

    fn merge(&mut self, later: Codes) {
        self.invalid += later.invalid;
        self.first_invalid = self.first_invalid.or(later.first_invalid);
        self.common &= later.common;
        self.any |= later.any;
    }

    /// The value that all codes have, if they have one.
    pub fn only_value(self) -> Option<i32> {
        let value = i32::from(self.any & 3) - 1;
        (self.common == self.any && self.any == (self.any & 3) * 0x55).then_some(value)
    }
}

/// Samples by the exponent of their magnitude as f32.
#[derive(Clone)]
struct Histogram([u32; 256]);

impl Histogram {
    const EMPTY: Histogram = Histogram([0; 256]);

    fn samples(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    fn median(&self) -> Option<f32> {
        let half = self.samples().div_ceil(2);
        let mut below = 0;
        for (exponent, count) in self.0.iter().enumerate() {
            below += u64::from(*count);
            if below >= half && half > 0 {
                return Some(f32::from_bits((exponent as u32).max(1) << 23));
            }
        }
        None
    }
}

impl Summary {
    fn new(bytes: u64, is_read: bool) -> Summary {
        Summary {
            is_read,
            bytes,
            not_finite: 0,
            first_not_finite: None,
            largest: 0.0,
            largest_at: 0,
            is_zero: is_read,
            zero_rows: 0,
            first_zero_row: None,
            listed_zero_rows: Vec::new(),
            samples: 0,
            median: None,
            subnormal: 0,
            codes: Codes::NONE,
            checksum: 0,
        }
    }

    fn merge(&mut self, seen: Seen) {
        self.not_finite += seen.not_finite;
        self.first_not_finite = self.first_not_finite.or(seen.first_not_finite);
        if seen.largest > self.largest {
            (self.largest, self.largest_at) = (seen.largest, seen.largest_at);
        }
        self.is_zero &= seen.is_zero;
        self.zero_rows += seen.zero_rows;
        self.first_zero_row = self.first_zero_row.or(seen.first_zero_row);
        self.listed_zero_rows.extend(seen.listed_zero_rows);
        self.subnormal += seen.subnormal;
        self.codes.merge(seen.codes);
        self.checksum = mixed(self.checksum, seen.checksum);
    }
}

/// A chunk of one tensor.
struct Chunk {
    tensor: usize,
    elements: std::ops::Range<u64>,
    /// Whether each row of zeros is listed, not only counted.
    lists_rows: bool,
    /// Whether its bytes are packed ternary values.
    is_packed: bool,
}

/// What was seen of one chunk.
struct Seen {
    bytes: u64,
    not_finite: u64,
    first_not_finite: Option<u64>,
    largest: f32,
    largest_at: u64,
    is_zero: bool,
    zero_rows: u64,
    first_zero_row: Option<u64>,
    listed_zero_rows: Vec<u64>,
    histogram: Box<Histogram>,
    subnormal: u64,
    codes: Codes,
    checksum: u64,
}

/// What is to be looked at.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// Names of the tensors whose rows of zeros are listed.
    pub rows_of: &'a [String],
    /// Numbers of the tensors with packed ternary values.
    pub packed: &'a HashSet<usize>,
    /// Whether values are read at all.
    pub values: bool,
}

/// Looks at every tensor whose type can be read.
pub(super) fn scan(
    checkpoint: &dyn Checkpoint,
    wanted: Wanted,
    threads: Option<usize>,
    progress: &dyn Progress,
) -> Result<Vec<Summary>> {
    let tensors = checkpoint.tensors();
    let is_packed = |number: usize| wanted.packed.contains(&number);
    let is_read =
        |(number, tensor): &(usize, &TensorInfo)| wanted.values && (is_readable(tensor.dtype) || is_packed(*number));
    let numbered = || tensors.iter().enumerate().filter(is_read);
    progress.start(numbered().map(|(_, tensor)| tensor.bytes).fold(0, u64::saturating_add));
    let all = tensors.iter().enumerate();
    let mut seen: Vec<Summary> = all.map(|entry| Summary::new(entry.1.bytes, is_read(&entry))).collect();
    let chunks = numbered().flat_map(|(number, tensor)| {
        let ranges = chunk_ranges(tensor.elements(), tensor.shape.first().copied().unwrap_or(1));
        let (lists_rows, is_packed) = (wanted.rows_of.contains(&tensor.name), is_packed(number));
        ranges.map(move |elements| Chunk { tensor: number, elements, lists_rows, is_packed })
    });
    let look = |chunk: &Chunk| {
        let seen = look(checkpoint, chunk)?;
        progress.advance(seen.bytes);
        Ok(seen)
    };
    // Chunks come in the order of tensors: one histogram is enough.
    let (mut current, mut histogram) = (usize::MAX, Histogram::EMPTY);
    let merge = |chunk: &Chunk, found: Seen| {
        if chunk.tensor != current {
            (current, histogram) = (chunk.tensor, Histogram::EMPTY);
        }
        histogram.0.iter_mut().zip(&found.histogram.0).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        let summary = &mut seen[chunk.tensor];
        (summary.samples, summary.median) = (histogram.samples(), histogram.median());
        summary.merge(found);
    };
    walk(chunks, threads, checkpoint.path(), look, merge)?;
    Ok(seen)
}

fn look(checkpoint: &dyn Checkpoint, chunk: &Chunk) -> Result<Seen> {
    let tensor = &checkpoint.tensors()[chunk.tensor];
    let dtype = tensor.dtype;
    let mut bytes = vec![0; bytes_of(chunk.elements.end - chunk.elements.start, dtype) as usize];
    checkpoint.read(chunk.tensor, bytes_of(chunk.elements.start, dtype), &mut bytes)?;
    let row = tensor.shape.first().copied().unwrap_or(1);
    // Vectors have no rows, and what is longer than a chunk is not counted.
    let is_matrix = tensor.shape.len() > 1 && row <= CHUNK_ELEMENTS;
    let mut seen = Seen {
        bytes: bytes.len() as u64,
        not_finite: 0,
        first_not_finite: None,
        largest: 0.0,
        largest_at: 0,
        is_zero: true,
        zero_rows: 0,
        first_zero_row: None,
        listed_zero_rows: Vec::new(),
        histogram: Box::new(Histogram::EMPTY),
        subnormal: 0,
        codes: Codes::NONE,
        checksum: checksum(&bytes),
    };
    if chunk.is_packed {
        (seen.is_zero, seen.codes) = (false, Codes::of(&bytes, chunk.elements.start));
        return Ok(seen);
    }
    let row = if is_matrix { row } else { u64::MAX };
    let place = Rows { start: chunk.elements.start, row, are_listed: chunk.lists_rows };
    match dtype {
        DType::F32 => {
            seen.look_at(&magnitudes(&bytes, |bytes: [u8; 4]| u32::from_le_bytes(bytes) as i32 & i32::MAX), &F32, place)
        }
        DType::F16 => {
            seen.look_at(&magnitudes(&bytes, |bytes: [u8; 2]| i16::from_le_bytes(bytes) & i16::MAX), &F16, place)
        }
        DType::Bf16 => {
            seen.look_at(&magnitudes(&bytes, |bytes: [u8; 2]| i16::from_le_bytes(bytes) & i16::MAX), &BF16, place)
        }
        // What f32 cannot hold no program of this kind can use.
        DType::F64 => {
            let narrow = |bytes: [u8; 8]| (f64::from_le_bytes(bytes) as f32).to_bits() as i32 & i32::MAX;
            seen.look_at(&magnitudes(&bytes, narrow), &F32, place);
        }
        DType::Mxfp4 | DType::Nvfp4 => seen.look_at(&decoded_magnitudes(dtype, &bytes), &FP4, place),
        blocks => seen.look_at_blocks(&bytes, blocks, place),
    }
    Ok(seen)
}

/// Where the first value of a chunk stands, and how long rows are.
#[derive(Clone, Copy)]
struct Rows {
    start: u64,
    row: u64,
    are_listed: bool,
}

/// How magnitude bits of a type are read.
struct Bits {
    /// The bits of infinity; NaN is above it.
    infinity: i32,
    /// The smallest bits of a number that has the precision it should have.
    normal: i32,
    widen: fn(i32) -> f32,
}

const F32: Bits = Bits { infinity: 0x7f80_0000, normal: 0x0080_0000, widen: |bits| f32::from_bits(bits as u32) };
const BF16: Bits = Bits { infinity: 0x7f80, normal: 0x0080, widen: |bits| f32::from_bits((bits as u32) << 16) };
/// Values of types without an f16 scale: their precision is the same at any size.
const FP4: Bits = Bits { normal: 0, ..F32 };
const F16: Bits = Bits { infinity: 0x7c00, normal: 0x0400, widen: widen_f16 };

/// A scale: its blocks are only wrong where five bits and fewer are left, below 2^-19.
const SCALE: Bits = Bits { normal: 0x0020, ..F16 };

/// A magnitude of f16, bits 0 to 0x7c00, as f32.
fn widen_f16(bits: i32) -> f32 {
    let (exponent, mantissa) = (bits >> 10, (bits & 0x3ff) as f32);
    match exponent {
        0 => mantissa * f32::from_bits((127 - 24) << 23),
        31 => f32::INFINITY,
        _ => (1.0 + mantissa / 1024.0) * f32::from_bits(((exponent + 127 - 15) as u32) << 23),
    }
}

/// The magnitude bits of the values that blocks decode to, as f32.
fn decoded_magnitudes(dtype: DType, bytes: &[u8]) -> Vec<i32> {
    let mut values = vec![0.0; bytes.len() / dtype.block_bytes() * dtype.block_len()];
    if let Some(decoder) = dtype.decoder() {
        (decoder.decode)(bytes, &mut values);
    }
    values.iter().map(|value: &f32| value.to_bits() as i32 & i32::MAX).collect()
}

/// The magnitude bits of all values.
fn magnitudes<T, const N: usize>(bytes: &[u8], bits: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|bytes| bits(*bytes)).collect()
}

impl Seen {
    /// Plain values by their magnitude bits.
    fn look_at<T: Copy + Ord + Default + Into<i32>>(&mut self, magnitudes: &[T], bits: &Bits, place: Rows) {
        let row = usize::try_from(place.row).unwrap_or(usize::MAX).min(magnitudes.len()).max(1);
        for (number, values) in magnitudes.chunks(row).enumerate() {
            let start = place.start + (number * row) as u64;
            let largest: i32 = values.iter().copied().fold(T::default(), T::max).into();
            if largest == 0 {
                self.count_zero_row(start, place);
                continue;
            }
            self.is_zero = false;
            if largest >= bits.infinity {
                self.count_not_finite(values.iter().map(|value| (*value).into()), bits, (start, 1));
            }
            let finite = if largest < bits.infinity { largest } else { largest_finite(values, bits) };
            if (bits.widen)(finite) > self.largest {
                self.largest = (bits.widen)(finite);
                let at = values.iter().position(|value| (*value).into() == finite).unwrap_or_default();
                self.largest_at = start + at as u64;
            }
        }
        magnitudes.iter().step_by(SAMPLE_STEP).for_each(|value| self.sample((*value).into(), bits));
    }

    /// Blocks by the magnitude bits of their scales.
    fn look_at_blocks(&mut self, bytes: &[u8], dtype: DType, place: Rows) {
        let places = dtype.scale_places().unwrap_or_default();
        let length = dtype.block_len() as u64;
        let scale = |block: &[u8], at: usize| i32::from(i16::from_le_bytes([block[at], block[at + 1]]) & i16::MAX);
        let of_row = if place.row == u64::MAX { u64::MAX } else { place.row / length };
        let mut zeros = 0;
        for (number, block) in bytes.chunks_exact(dtype.block_bytes()).enumerate() {
            let start = place.start + number as u64 * length;
            let largest = places.iter().map(|at| scale(block, *at)).max().unwrap_or_default();
            zeros = if largest == 0 { zeros + 1 } else { 0 };
            self.is_zero &= largest == 0;
            if largest >= F16.infinity {
                self.count_not_finite(std::iter::once(largest), &F16, (start, length));
            } else if widen_f16(largest) > self.largest {
                (self.largest, self.largest_at) = (widen_f16(largest), start);
            }
            if (number as u64 + 1).is_multiple_of(of_row) {
                if zeros >= of_row {
                    self.count_zero_row(start, place);
                }
                zeros = 0;
            }
            if let Some((element, byte)) = unused_code(dtype, block) {
                self.codes.invalid += 1;
                self.codes.first_invalid.get_or_insert((start + element as u64, byte));
            }
            // Scales are few: all of them go into the histogram.
            self.sample(largest, &SCALE);
        }
    }

    /// Counts the row that holds the element `start`; vectors have none.
    fn count_zero_row(&mut self, start: u64, place: Rows) {
        if place.row == u64::MAX {
            return;
        }
        let row = start / place.row;
        self.zero_rows += 1;
        self.first_zero_row.get_or_insert(row);
        if place.are_listed && row < LISTED_ROWS_MAX {
            self.listed_zero_rows.push(row);
        }
    }

    /// Counts what is NaN or infinite, values standing `step` elements apart.
    fn count_not_finite(&mut self, values: impl Iterator<Item = i32>, bits: &Bits, (start, step): (u64, u64)) {
        for (number, _) in values.enumerate().filter(|(_, value)| *value >= bits.infinity) {
            self.not_finite += 1;
            self.first_not_finite.get_or_insert(start + number as u64 * step);
        }
    }

    fn sample(&mut self, magnitude: i32, bits: &Bits) {
        if magnitude == 0 || magnitude >= bits.infinity {
            return;
        }
        self.subnormal += u64::from(magnitude < bits.normal);
        let exponent = (bits.widen)(magnitude).to_bits() >> 23;
        self.histogram.0[exponent as usize & 0xff] += 1;
    }
}

fn largest_finite<T: Copy + Into<i32>>(values: &[T], bits: &Bits) -> i32 {
    values.iter().map(|value| (*value).into()).filter(|value| *value < bits.infinity).max().unwrap_or_default()
}

/// A number that bytes give, of eight at a time.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let whole = words.iter().fold(0, |sum, word| mixed(sum, u64::from_le_bytes(*word)));
    rest.iter().fold(whole, |sum, byte| mixed(sum, u64::from(*byte)))
}

/// Two numbers as one, in which their order counts. The factor is odd, so that nothing is lost of the first.
fn mixed(sum: u64, next: u64) -> u64 {
    (sum.rotate_left(23) ^ next).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_magnitudes_are_those_of_the_codec() {
        let decode = DType::F16.codec().expect("f16 has a codec").decode;
        for bits in 0..=0x7c00u16 {
            let mut value = [0.0];
            decode(&bits.to_le_bytes(), &mut value);
            assert_eq!(widen_f16(i32::from(bits)), value[0], "{bits:#x}");
        }
    }

    #[test]
    fn unused_codes_are_counted_wherever_they_are() {
        let valid = [0x00, 0x55, 0xaa, 0x99, 0x21];
        assert_eq!((Codes::of(&valid, 0).invalid, Codes::of(&valid, 0).only_value()), (0, None));
        for pair in 0..4 {
            let byte = 3 << (2 * pair);
            let codes = Codes::of(&[0x55, 0x55, byte, 0xaa, byte], 100);
            assert_eq!((codes.invalid, codes.first_invalid), (2, Some((102, byte))));
        }
        for (byte, value) in [(0x00, Some(-1)), (0x55, Some(0)), (0xaa, Some(1)), (0x99, None)] {
            let mut codes = Codes::of(&[byte; 7], 0);
            codes.merge(Codes::of(&[byte; 2], 7));
            assert_eq!(codes.only_value(), value);
        }
    }

    #[test]
    fn a_checksum_depends_on_every_byte_and_their_order() {
        let bytes: Vec<u8> = (0..=255).chain(1..4).collect();
        let whole = checksum(&bytes);
        for place in 0..bytes.len() {
            let mut other = bytes.clone();
            other[place] ^= 1;
            assert_ne!(checksum(&other), whole, "byte {place}");
        }
        let mut other = bytes.clone();
        other[..16].rotate_left(8);
        assert_ne!(checksum(&other), whole);
    }
}
