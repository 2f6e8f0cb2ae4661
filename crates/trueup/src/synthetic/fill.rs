//! Bytes of tensors at random: a stock of encoded blocks, from which each place takes one.
//!
//! ```text
//! normal numbers ─ codec ─ stock of 2048 units of 32 weights
//! tensor:  unit 1007 │ unit 3 │ unit 1500 │ ...      by a generator that starts anew in each piece: any threads, the same bytes
//! ```

use rayon::prelude::*;
use trueup_formats::TensorInfo;

/// Weights that are placed at a time: whole blocks of every type that is written.
const UNIT_WEIGHTS: usize = 32;

/// Units of the stock.
const STOCK_UNITS: usize = 2048;

/// Units of a piece, which one thread fills.
const PIECE_UNITS: usize = 1 << 14;

/// What a tensor is filled with.
#[derive(Clone, PartialEq, Debug)]
pub enum Filling {
    /// These numbers.
    Given(Vec<f32>),
    /// Numbers that are about normally distributed.
    Random {
        /// Their mean.
        mean: f64,
        /// Their standard deviation.
        deviation: f64,
    },
}

impl Filling {
    /// The bytes of a tensor, as its type says: none where nothing can write the type, fewer where there are fewer
    /// numbers.
    pub fn bytes(&self, tensor: &TensorInfo) -> Vec<u8> {
        let (Some(codec), Ok(bytes)) = (tensor.dtype.codec(), usize::try_from(tensor.bytes)) else {
            return Vec::new();
        };
        let encoded = |numbers: &[f32]| {
            let blocks = numbers.len().checked_div(tensor.dtype.block_len()).unwrap_or(0);
            let mut bytes = vec![0; blocks.saturating_mul(tensor.dtype.block_bytes())];
            (codec.encode)(numbers, &mut bytes);
            bytes
        };
        let (mean, deviation) = match self {
            Filling::Given(numbers) => return encoded(numbers),
            Filling::Random { mean, deviation } => (*mean, *deviation),
        };
        let seed = seed(&tensor.name);
        let mut random = Random(seed);
        let numbers: Vec<f32> = (0..STOCK_UNITS.saturating_mul(UNIT_WEIGHTS))
            .map(|_| nearest(mean + deviation * random.normal()))
            .collect();
        let stock = encoded(&numbers);
        let unit_bytes = stock.len().checked_div(STOCK_UNITS).unwrap_or(0);
        let units: Vec<&[u8]> = stock.chunks(unit_bytes.max(1)).collect();
        let mut target = vec![0; bytes];
        let pieces = target.par_chunks_mut(unit_bytes.max(1).saturating_mul(PIECE_UNITS));
        pieces.enumerate().for_each(|(number, piece)| {
            let number = u64::try_from(number).unwrap_or(u64::MAX);
            place(piece, &units, seed.rotate_left(17) ^ number);
        });
        target
    }
}

/// Fills a piece with units of the stock.
fn place(piece: &mut [u8], units: &[&[u8]], seed: u64) {
    let mut random = Random(seed);
    let unit_bytes = units.first().map_or(1, |unit| unit.len().max(1));
    for target in piece.chunks_mut(unit_bytes) {
        let source = units.get(random.below(units.len())).and_then(|unit| unit.get(..target.len()));
        if let Some(source) = source {
            target.copy_from_slice(source);
        }
    }
}

/// FNV-1a of 64 bits (Fowler, Noll and Vo).
fn seed(name: &str) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    name.bytes().fold(0xCBF2_9CE4_8422_2325, add)
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `count`, 0 where there is none.
    fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.next().checked_rem(count).and_then(|number| usize::try_from(number).ok()).unwrap_or(0)
    }

    /// About normal, of mean 0 and deviation 1: the sum of four uniform numbers, whose variance is 4 / 12.
    fn normal(&mut self) -> f64 {
        let bits = self.next();
        let part = |shift: u32| f64::from(u16::try_from((bits >> shift) & 0xFFFF).unwrap_or(0)) / 65_535.0 - 0.5;
        (part(0) + part(16) + part(32) + part(48)) * 3f64.sqrt()
    }
}

/// The number as f32; what a random one of this file is always within.
#[allow(clippy::as_conversions, reason = "rounding to f32 is what is meant")]
fn nearest(number: f64) -> f32 {
    number as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_blocks::DType;

    #[test]
    fn numbers_have_the_mean_and_the_deviation_that_were_asked_for() {
        let filling = Filling::Random { mean: 0.25, deviation: 0.5 };
        for (dtype, tolerance) in [(DType::F32, 0.01), (DType::F16, 0.01), (DType::Q8_0, 0.01), (DType::Q4_0, 0.03)] {
            let tensor = TensorInfo::new("blk.0.ffn_up.weight", &[2048, 513], dtype).unwrap();
            let bytes = filling.bytes(&tensor);
            assert_eq!(bytes.len() as u64, tensor.bytes);
            let mut weights = vec![0.0; 2048 * 513];
            (dtype.codec().unwrap().decode)(&bytes, &mut weights);
            let mean = weights.iter().map(|w| f64::from(*w)).sum::<f64>() / weights.len() as f64;
            let variance = weights.iter().map(|w| (f64::from(*w) - mean).powi(2)).sum::<f64>() / weights.len() as f64;
            assert!(
                (mean - 0.25).abs() < tolerance && (variance.sqrt() - 0.5).abs() < tolerance,
                "{dtype}: {mean} {variance}"
            );
        }
    }

    #[test]
    fn bytes_depend_on_the_name_alone_and_odd_lengths_are_whole() {
        let filling = Filling::Random { mean: 1.0, deviation: 0.1 };
        let bytes = |name: &str, len| filling.bytes(&TensorInfo::new(name, &[len], DType::F32).unwrap());
        assert_eq!(bytes("a", 901), bytes("a", 901));
        assert_ne!(bytes("a", 901), bytes("b", 901));
        assert_eq!(bytes("a", 901).len(), 3604);
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(alone.install(|| bytes("a", 2_000_000)), bytes("a", 2_000_000));
        let given = Filling::Given(vec![1.0, 2.5]);
        let tensor = TensorInfo::new("x", &[2], DType::F32).unwrap();
        assert_eq!(given.bytes(&tensor), [1f32, 2.5].iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    }
}
