//! Data for the inputs of a case: all of it follows from the seed, the case's name and the input's place. Of a view the
//! whole source is filled.
//!
//! ```text
//!  seed, name, place ──FNV-1a, splitmix64──▶ numbers ──nearest of the type, or the codec's blocks──▶ bytes as in GGUF
//! ```

use rayon::prelude::*;
use std::f64::consts::TAU;
use trueup_blocks::DType;
use trueup_graph::{Fill, TensorType};
use trueup_runtime::HostTensor;

/// The bytes of one input, as in GGUF, of a view those of its source; a problem where the type cannot be filled like
/// that.
pub(super) fn fill(ty: &TensorType, fill: &Fill, seed: u64) -> Result<Vec<u8>, String> {
    let ty = &ty.held();
    if let Fill::Blocks(deviation) = fill { blocks(ty, *deviation, seed) } else { encode(ty, numbers(ty, fill, seed)?) }
}

/// The seed of one input: every bit of the run's seed, of the case's name and of the input's place counts.
pub(super) fn input_seed(seed: u64, case: &str, input: usize) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = case.bytes().chain((input as u64).to_le_bytes());
    let hash = bytes.fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    Random(seed ^ hash).next()
}

/// splitmix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly distributed in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// What a normally distributed number is made of: in (0, 1] and in [0, 1).
    fn pair(&mut self) -> [f64; 2] {
        [1.0 - self.unit(), self.unit()]
    }

    /// A whole number from 0 to below `count`, which must not be 0.
    fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(count)) >> 64) as u64
    }
}

/// Normally distributed around 0 with standard deviation 1 (Box and Muller 1958).
fn normal([radius, angle]: [f64; 2]) -> f64 {
    (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
}

/// Normally distributed numbers that one thread computes at a time.
const PIECE: usize = 4096;

fn numbers(ty: &TensorType, fill: &Fill, seed: u64) -> Result<Vec<f64>, String> {
    let len = ty.shape.elements();
    let mut random = Random(seed);
    let each = |next: &mut dyn FnMut() -> f64| (0..len).map(|_| next()).collect();
    Ok(match *fill {
        Fill::Normal(deviation) => {
            let pairs: Vec<[f64; 2]> = (0..len).map(|_| random.pair()).collect();
            pairs.into_par_iter().with_min_len(PIECE).map(|pair| deviation * normal(pair)).collect()
        }
        Fill::Uniform(low, high) => each(&mut || low + (high - low) * random.unit()),
        Fill::Integers(low, high) if low <= high => {
            let count = (i64::from(high) - i64::from(low) + 1) as u64;
            each(&mut || (i64::from(low) + random.below(count) as i64) as f64)
        }
        Fill::Integers(low, high) => return Err(format!("no integer lies between {low} and {high}")),
        Fill::Distinct(limit) => distinct(len, limit, &mut random)?,
        Fill::Counting(first) => (0..len).map(|index| f64::from(first) + index as f64).collect(),
        Fill::Constant(value) => vec![value; len],
        Fill::Causal(first) => mask(ty, first, |_| 0.0),
        Fill::Window(first, window) => {
            mask(ty, first, |ahead| if ahead <= -i64::from(window) { f64::NEG_INFINITY } else { 0.0 })
        }
        Fill::Ring(first, window) => {
            let rows = ty.shape[0].max(1) as i64;
            let back = |index: usize| i64::from(first) + (index as i64 / rows) - (index as i64 % rows);
            let is_seen = |index: usize| back(index).rem_euclid(rows) < i64::from(window);
            (0..len).map(|index| if is_seen(index) { 0.0 } else { f64::NEG_INFINITY }).collect()
        }
        Fill::Holes(first, period) => {
            let seen = mask(ty, first, |_| 0.0).into_iter().enumerate();
            let hidden = |index: usize| is_last_of(index % ty.shape[0], period);
            seen.map(|(index, bias)| if hidden(index) { f64::NEG_INFINITY } else { bias }).collect()
        }
        Fill::Endless(deviation, period) => {
            let row = |index: usize| index / ty.shape[0] % ty.shape[1];
            let all = numbers(ty, &Fill::Normal(deviation), seed)?.into_iter().enumerate();
            all.map(|(index, number)| if is_last_of(row(index), period) { f64::INFINITY } else { number }).collect()
        }
        Fill::Distances(first) => mask(ty, first, |ahead| ahead as f64),
        Fill::Blocks(_) => return Err(format!("{ty} cannot be filled with random bytes")),
        Fill::Codes(low, high) => {
            let mut codes = numbers(ty, &Fill::Integers(low, high), seed)?;
            for row in codes.chunks_mut(ty.shape[0].max(1)) {
                row.iter_mut().step_by(CODES).for_each(|code| *code = f64::from(low));
                row.iter_mut().skip(1).step_by(CODES).for_each(|code| *code = f64::from(high));
            }
            codes
        }
    })
}

/// Blocks of random bytes with scales of this deviation.
fn blocks(ty: &TensorType, deviation: f64, seed: u64) -> Result<Vec<u8>, String> {
    let mut random = Random(seed);
    let mut bytes: Vec<u8> = (0..ty.bytes()).map(|_| random.below(256) as u8).collect();
    let blocks = bytes.chunks_exact_mut(ty.dtype.block_bytes());
    match (ty.dtype, ty.dtype.scale_places()) {
        (_, Some(places)) => {
            for block in blocks {
                for place in places {
                    let number = half::f16::from_f64(deviation * normal(random.pair()));
                    block[*place..place + 2].copy_from_slice(&number.to_le_bytes());
                }
            }
        }
        // A power of two, 128 being 1.
        (DType::Mxfp4, None) => {
            let exponent = 128 + deviation.log2() as i32;
            blocks.for_each(|block| block[0] = (exponent - random.below(4) as i32).clamp(0, 252) as u8);
        }
        // Four bits of exponent, 7 being 1, and three of fraction: anything up to the deviation.
        (DType::Nvfp4, None) => {
            let largest = ((7 + deviation.log2() as i32) << 3).clamp(8, 0x70) as u64;
            blocks.flat_map(|block| &mut block[..4]).for_each(|scale| *scale = random.below(largest) as u8);
        }
        _ => return Err(format!("{ty} cannot be filled with random bytes")),
    }
    Ok(bytes)
}

/// Elements of a row whose first two are the ends of the codes.
const CODES: usize = 32;

/// Whether a place is the last of each `period` that follow each other.
fn is_last_of(place: usize, period: i32) -> bool {
    let period = period.unsigned_abs().max(1) as usize;
    place % period == period - 1
}

/// A mask over `[positions, tokens]`: `shown` of how far a position lies ahead of `first + token` where it does not,
/// else -inf.
fn mask(ty: &TensorType, first: i32, shown: impl Fn(i64) -> f64) -> Vec<f64> {
    let [positions, tokens, ..] = ty.shape.sizes();
    let value = |index: usize| {
        let ahead = (index % positions) as i64 - i64::from(first) - (index / positions % tokens) as i64;
        if ahead <= 0 { shown(ahead) } else { f64::NEG_INFINITY }
    };
    (0..ty.shape.elements()).map(value).collect()
}

/// The first `len` of all integers below `limit` in random order (Fisher and Yates).
fn distinct(len: usize, limit: i32, random: &mut Random) -> Result<Vec<f64>, String> {
    let mut all: Vec<i32> = (0..limit).collect();
    if all.len() < len {
        return Err(format!("{len} different integers below {limit} do not exist"));
    }
    for place in 0..len {
        let other = place + random.below((all.len() - place) as u64) as usize;
        all.swap(place, other);
    }
    Ok(all[..len].iter().map(|integer| f64::from(*integer)).collect())
}

/// Numbers as the bytes of a tensor.
fn encode(ty: &TensorType, numbers: Vec<f64>) -> Result<Vec<u8>, String> {
    let integers = |bytes: fn(f64) -> Vec<u8>| Ok(numbers.iter().flat_map(|number| bytes(number.round())).collect());
    match ty.dtype {
        DType::I8 => integers(|number| (number as i8).to_le_bytes().to_vec()),
        DType::I16 => integers(|number| (number as i16).to_le_bytes().to_vec()),
        DType::I32 => integers(|number| (number as i32).to_le_bytes().to_vec()),
        DType::I64 => integers(|number| (number as i64).to_le_bytes().to_vec()),
        dtype if dtype.is_float() => Ok(HostTensor::real(*ty, numbers).to_bytes().into_owned()),
        dtype => {
            let codec = dtype.codec().ok_or_else(|| format!("{ty} cannot be filled: {dtype} has no codec"))?;
            let floats: Vec<f32> = numbers.iter().map(|number| *number as f32).collect();
            let mut bytes = vec![0; ty.bytes()];
            (codec.encode)(&floats, &mut bytes);
            Ok(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(dtype: DType, sizes: &[usize], with: Fill, seed: u64) -> Vec<f64> {
        let ty = TensorType::new(dtype, sizes);
        HostTensor::stored(ty, fill(&ty, &with, seed).unwrap()).values().into_owned()
    }

    fn integers(sizes: &[usize], with: Fill) -> Vec<i32> {
        let ty = TensorType::new(DType::I32, sizes);
        HostTensor::stored(ty, fill(&ty, &with, 5).unwrap()).to_indices()
    }

    #[test]
    fn one_seed_gives_one_tensor_and_another_seed_another() {
        let same = |seed| filled(DType::F32, &[100], Fill::Normal(1.0), seed);
        assert_eq!(same(3), same(3));
        assert_ne!(same(3), same(4));
        let seeds = [
            input_seed(1, "add/0", 0),
            input_seed(2, "add/0", 0),
            input_seed(1, "add/1", 0),
            input_seed(1, "add/0", 1),
        ];
        for (place, seed) in seeds.iter().enumerate() {
            assert!(!seeds[..place].contains(seed));
        }
    }

    #[test]
    fn distributions_have_their_moments() {
        let values = filled(DType::F32, &[40_000], Fill::Normal(2.0), 1);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
        // The standard errors of both are 0.01 and 0.028.
        assert!(mean.abs() < 0.05 && (variance - 4.0).abs() < 0.15, "{mean} {variance}");
        let values = filled(DType::F64, &[40_000], Fill::Uniform(-1.0, 3.0), 1);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        assert!((mean - 1.0).abs() < 0.03 && values.iter().all(|value| (-1.0..3.0).contains(value)), "{mean}");
    }

    #[test]
    fn integers_are_within_their_bounds_and_reach_them() {
        let values = integers(&[1000], Fill::Integers(-2, 3));
        assert_eq!((values.iter().min(), values.iter().max()), (Some(&-2), Some(&3)));
        let mut values = integers(&[7], Fill::Distinct(9));
        values.sort();
        assert!(values.windows(2).all(|pair| pair[0] < pair[1]) && (0..9).contains(&values[0]) && values[6] < 9);
        assert_eq!(integers(&[4], Fill::Counting(-1)), [-1, 0, 1, 2]);
        let ty = TensorType::new(DType::I32, &[3]);
        assert!(fill(&ty, &Fill::Distinct(2), 1).is_err() && fill(&ty, &Fill::Integers(1, 0), 1).is_err());
    }

    #[test]
    fn masks_hide_what_lies_behind_a_token() {
        let values = filled(DType::F32, &[4, 2], Fill::Causal(1), 1);
        let hidden: Vec<bool> = values.iter().map(|value| *value == f64::NEG_INFINITY).collect();
        assert_eq!(hidden, [false, false, true, true, false, false, false, true]);
        let none = f64::NEG_INFINITY;
        let values = filled(DType::F32, &[4, 2], Fill::Window(1, 2), 1);
        assert_eq!(values, [0.0, 0.0, none, none, none, 0.0, 0.0, none]);
        let values = filled(DType::F32, &[4, 2], Fill::Distances(1), 1);
        assert_eq!(values, [-1.0, 0.0, none, none, -2.0, -1.0, 0.0, none]);
        let values = filled(DType::F32, &[4, 2], Fill::Holes(1, 2), 1);
        assert_eq!(values, [0.0, none, none, none, 0.0, none, 0.0, none]);
        let values = filled(DType::F32, &[4, 2], Fill::Ring(8, 3), 1);
        assert_eq!(values, [0.0, none, 0.0, 0.0, 0.0, 0.0, none, 0.0], "positions 6, 7, 8 and 7, 8, 9");
        let values = filled(DType::F16, &[2, 4], Fill::Endless(1.0, 2), 1);
        let endless: Vec<bool> = values.iter().map(|value| *value == f64::INFINITY).collect();
        assert_eq!(endless, [false, false, true, true, false, false, true, true]);
    }

    #[test]
    fn codes_are_stored_exactly() {
        for (dtype, low, high) in [(DType::Q4_0, -8, 7), (DType::Q8_0, -127, 127)] {
            let stored = filled(dtype, &[64, 3], Fill::Codes(low, high), 1);
            assert_eq!(stored, filled(DType::F64, &[64, 3], Fill::Codes(low, high), 1), "{dtype}");
        }
    }

    #[test]
    fn any_bytes_with_scales_are_finite_numbers_of_their_size() {
        for dtype in DType::all().filter(|dtype| dtype.is_quantized() && dtype.decoder().is_some()) {
            let values = filled(dtype, &[512, 9], Fill::Blocks(0.01), 1);
            let square = values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64;
            assert!((1e-6..1000.0).contains(&square), "{dtype} {square}");
            assert_ne!(values, filled(dtype, &[512, 9], Fill::Blocks(0.01), 2));
        }
        for dtype in [DType::I32, DType::F32] {
            let ty = TensorType::new(dtype, &[32]);
            assert!(fill(&ty, &Fill::Blocks(1.0), 1).unwrap_err().contains("cannot be filled with random bytes"));
        }
    }

    #[test]
    fn blocks_hold_what_their_codec_makes_of_the_numbers() {
        let values = filled(DType::Q8_0, &[64], Fill::Normal(1.0), 1);
        let exact = filled(DType::F32, &[64], Fill::Normal(1.0), 1);
        let largest = exact.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        assert!(values.iter().zip(&exact).all(|(value, exact)| (value - exact).abs() <= largest / 127.0));
        assert_ne!(values, exact);
    }
}
