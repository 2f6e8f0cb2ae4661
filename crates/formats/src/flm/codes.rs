//! Numbers from codes of 8 and 4 bits, by the rule of FastLLM's loader.
//!
//! ```text
//! Q = 255 or 15     lo = min(minimum, 0)     hi = max(maximum, 0)     scale = (hi - lo) / Q     zero = round(-lo / scale), from 0 to Q
//! with a zero point   scale * (code - zero)
//! with a minimum      -scale * zero + scale * code
//! ```
//!
//! Writers have rules of their own, so the scale that a writer used cannot be told from minimum and maximum. Codes of 4
//! bits go through the whole tensor without a gap between rows: even elements in the high half of a byte, odd ones in
//! the low half.
//!
//! Source: `LowBitConfig` and `WeightMap::LoadFromFile` of FastLLM.

use crate::error::Result;
use crate::source_file::SourceFile;
use std::num::NonZeroU64;

/// Bytes of an f32.
pub(super) const F32_BYTES: u64 = 4;
/// Bytes of a minimum and a maximum.
pub(super) const RANGE_BYTES: u64 = 8;

/// Where a tensor's codes stand and what they mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Codes {
    /// Whether a code has 4 bits, not 8.
    pub are_halves: bool,
    /// Whether codes count from a minimum, not from a zero point.
    pub from_minimum: bool,
    /// Where the pairs of minimum and maximum begin.
    pub ranges_at: u64,
    /// Elements of a row.
    pub row: NonZeroU64,
    /// Elements that share a pair; the last group of a row may be short.
    pub group: NonZeroU64,
    /// Pairs of a row.
    pub row_ranges: u64,
    /// Where the codes begin.
    pub at: u64,
}

/// A minimum and a maximum.
fn range_of(bytes: [u8; 8]) -> [f32; 2] {
    [bytes.first_chunk(), bytes.last_chunk()].map(|bytes| f32::from_le_bytes(bytes.copied().unwrap_or_default()))
}

/// Whether codes between a minimum and a maximum stand for finite numbers.
pub(super) fn is_range(bytes: [u8; 8]) -> bool {
    let [low, high] = range_of(bytes);
    low.is_finite() && high.is_finite() && (high.max(0.0) - low.min(0.0)).is_finite()
}

/// The numbers that codes with one pair of minimum and maximum stand for.
#[derive(Clone, Copy)]
struct Grid {
    scale: f32,
    zero: f32,
    /// The number of code 0, where codes count from a minimum.
    minimum: Option<f32>,
}

impl Grid {
    fn new(range: [u8; 8], codes: &Codes) -> Grid {
        let [low, high] = range_of(range);
        Grid::of(low, high, codes)
    }

    fn of(minimum: f32, maximum: f32, codes: &Codes) -> Grid {
        let (low, high) = (minimum.min(0.0), maximum.max(0.0));
        let steps = codes.steps();
        let scale = (high - low) / steps;
        // A range of nothing holds zeros only, whatever its codes.
        let zero = if scale == 0.0 { 0.0 } else { (-low / scale).round().clamp(0.0, steps) };
        Grid { scale, zero, minimum: codes.from_minimum.then_some(-scale * zero) }
    }

    /// The code of a number, by the rule of FastLLM's writer: half a step more, then the whole part.
    #[allow(clippy::as_conversions, reason = "clamped to what a byte holds")]
    fn code(self, value: f32, steps: f32) -> u8 {
        if self.scale == 0.0 {
            return 0;
        }
        match self.minimum {
            Some(minimum) => ((value - minimum) / self.scale + 0.5).clamp(0.0, steps) as u8,
            None => (f64::from(value / self.scale + self.zero) + 0.5).clamp(0.0, f64::from(steps)) as u8,
        }
    }

    fn value(self, code: u8) -> f32 {
        match self.minimum {
            Some(minimum) => minimum + self.scale * f32::from(code),
            None => self.scale * (f32::from(code) - self.zero),
        }
    }
}

impl Codes {
    /// Steps between the smallest and the largest code.
    fn steps(&self) -> f32 {
        if self.are_halves { 15.0 } else { 255.0 }
    }

    /// What FastLLM calls them: `int8`, `int4`, and with the columns that share a pair, where a row has several,
    /// `int4g128`.
    pub fn name(&self) -> String {
        let bits = if self.are_halves { 4 } else { 8 };
        if self.row_ranges > 1 { format!("int{bits}g{}", self.group) } else { format!("int{bits}") }
    }

    /// Ranges and codes of whole rows, the first of which begins at a whole byte; what is read for them comes back in
    /// their place.
    pub fn encode(&self, values: &mut [f32]) -> (Vec<u8>, Vec<u8>) {
        let (mut ranges, mut codes) = (Vec::new(), Vec::with_capacity(values.len()));
        for row in values.chunks_mut(usize::try_from(self.row.get()).unwrap_or(usize::MAX)) {
            let (minimum, maximum) =
                row.iter().fold((f32::MAX, f32::MIN), |(low, high), value| (low.min(*value), high.max(*value)));
            let grid = Grid::of(minimum, maximum, self);
            // What is stored is the range as FastLLM keeps it, and what is read for a code follows from what is stored.
            let low = grid.minimum.unwrap_or(minimum.min(0.0));
            let range = [low.to_le_bytes(), maximum.max(0.0).to_le_bytes()];
            let read = Grid::of(low, maximum, self);
            for value in row.iter_mut() {
                let code = grid.code(*value, self.steps());
                codes.push(code);
                *value = read.value(code);
            }
            ranges.extend(range.as_flattened());
        }
        if self.are_halves {
            codes = codes
                .chunks(2)
                .map(|pair| pair.iter().fold(0, |byte, code| byte << 4 | code) << if pair.len() == 1 { 4 } else { 0 })
                .collect();
        }
        (ranges, codes)
    }

    /// Fills `out` with the f32 of the elements from `first` on.
    pub fn read(&self, source: &SourceFile, first: u64, out: &mut [u8]) -> Result<()> {
        let (mut numbers, rest) = out.as_chunks_mut::<4>();
        assert!(rest.is_empty(), "a range that cuts a number");
        let count = u64::try_from(numbers.len()).unwrap_or(u64::MAX);
        if count == 0 {
            return Ok(());
        }
        let end = first.saturating_add(count);
        let (first_byte, end_byte) = if self.are_halves { (first >> 1, end.div_ceil(2)) } else { (first, end) };
        // No more than a byte for each number of `out`, and one.
        let mut bytes = vec![0; usize::try_from(end_byte.saturating_sub(first_byte)).unwrap_or(usize::MAX)];
        source.read_at(self.at.saturating_add(first_byte), &mut bytes)?;
        let first_range = self.range_of(first);
        let ranges = self.range_of(end.saturating_sub(1)).saturating_sub(first_range).saturating_add(1);
        let mut pairs = vec![[0; 8]; usize::try_from(ranges).unwrap_or(usize::MAX)];
        let at = self.ranges_at.saturating_add(first_range.saturating_mul(RANGE_BYTES));
        source.read_at(at, pairs.as_flattened_mut())?;

        let mut codes = self.codes(&bytes, first);
        let (mut element, mut pairs) = (first, pairs.into_iter());
        while !numbers.is_empty() {
            let Some(pair) = pairs.next() else { unreachable!("fewer pairs than groups") };
            let grid = Grid::new(pair, self);
            let column = element % self.row;
            let left_in_group = self.group.get().saturating_sub(column % self.group);
            let left = left_in_group.min(self.row.get().saturating_sub(column));
            let size = usize::try_from(left).unwrap_or(usize::MAX).min(numbers.len());
            let (now, later) = std::mem::take(&mut numbers).split_at_mut(size);
            now.iter_mut().zip(&mut codes).for_each(|(number, code)| *number = grid.value(code).to_le_bytes());
            element = element.saturating_add(left);
            numbers = later;
        }
        Ok(())
    }

    /// The number of the pair that an element has.
    fn range_of(&self, element: u64) -> u64 {
        let (row, column) = (element / self.row, element % self.row);
        row.saturating_mul(self.row_ranges).saturating_add(column / self.group)
    }

    /// The codes in bytes of which the first holds element `first`.
    fn codes<'b>(&self, bytes: &'b [u8], first: u64) -> Box<dyn Iterator<Item = u8> + 'b> {
        if !self.are_halves {
            return Box::new(bytes.iter().copied());
        }
        let skipped = usize::from(first & 1 == 1);
        Box::new(bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]).skip(skipped))
    }
}
