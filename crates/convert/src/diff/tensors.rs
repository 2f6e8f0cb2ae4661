//! Tensors of the same name: shapes, then values, chunk by chunk on all cores.

use super::side::{Side, SideTensor};
use super::{DiffOptions, Difference, Kind, ValueDifference, WEIGHTED_COSINE_MIN, WEIGHTED_RMSE_MAX};
use crate::chunk::{Chunk, Order, ordered_chunks, row_elements, whole_rows};
use std::borrow::Cow;
use std::collections::HashMap;
use trueup_blocks::{DType, Deviation, DeviationSums};
use trueup_formats::{Result, TensorInfo, element_indices};
use trueup_quantize::{Scratch, Transcoder, WeightedRows, bytes_of, decode_exact, possible_importance, walk};

/// What comparing all tensors gave.
pub(super) struct Tensors {
    pub tensors: usize,
    pub exact: usize,
    pub rounded: usize,
    pub weighted: usize,
    pub differences: Vec<Difference>,
}

/// Two tensors with the same name and shape.
struct Pair<'a> {
    a: usize,
    b: usize,
    /// How the tensor of a becomes that of b, and the other way round.
    changes: [Change<'a>; 2],
}

/// How a tensor of one side may become that of the other.
struct Change<'a> {
    source: TensorInfo,
    target: DType,
    /// The importance that the encoding may have used.
    importance: Vec<Cow<'a, [f32]>>,
    /// Whether it used one that is not known.
    is_weighted: bool,
}

impl<'a> Change<'a> {
    fn new(from: &SideTensor, (side, to): (&Side, &SideTensor), options: DiffOptions<'a>) -> Change<'a> {
        let (name, shape, target) = (from.name.clone(), from.shape.clone(), to.dtype);
        let source = TensorInfo { name, shape, dtype: from.dtype, bytes: 0 };
        let importance = options.importance.map_or_else(Vec::new, |file| possible_importance(file, &source, target));
        let uses_importance = target.codec().is_some_and(|codec| codec.uses_importance);
        let is_unknown = options.importance.is_none() && side.has_importance();
        let is_weighted = uses_importance && source.dtype != target && is_unknown;
        Change { source, target, importance, is_weighted }
    }

    /// The bytes of the plain encoding.
    fn plain(&self, elements: usize, bytes: &[u8]) -> Vec<u8> {
        let mut target = vec![0; bytes_of(elements as u64, self.target) as usize];
        Transcoder::new(self.source.dtype, self.target).transcode_unchecked(
            bytes,
            &mut target,
            &mut Scratch::default(),
        );
        target
    }

    /// Whether the lossless encoding gives these bytes. `quantize` and `convert` use it for tensors on the grid of the
    /// type. For types other than those below, it equals the plain encoding or is not used.
    fn is_exact(&self, bytes: &[u8], expected: &[u8]) -> bool {
        let is_possible = matches!(self.source.dtype, DType::F32 | DType::F16 | DType::Bf16)
            && matches!(self.target, DType::Q4_0 | DType::Q5_0);
        if !is_possible {
            return false;
        }
        let mut target = vec![0; expected.len()];
        let (mut scratch, mut loss) = (Scratch::default(), DeviationSums::default());
        let transcoder = Transcoder::new(self.source.dtype, self.target);
        transcoder.transcode_exact(bytes, &mut target, &mut scratch, &mut loss).is_ok() && target == expected
    }

    /// Whether an encoding by importance gives these bytes, for each importance.
    fn are_weighted(&self, (start, elements): (u64, usize), bytes: &[u8], expected: &[u8]) -> Vec<bool> {
        let gives = |importance: &Cow<[f32]>| {
            let rows = WeightedRows::new(&self.source, &(start..start + elements as u64), importance);
            let mut target = vec![0; expected.len()];
            let (mut scratch, mut loss) = (Scratch::default(), DeviationSums::default());
            let transcoder = Transcoder::new(self.source.dtype, self.target);
            let done = transcoder.transcode_weighted(bytes, &mut target, &mut scratch, &rows, &mut loss);
            done.is_ok() && target == expected
        };
        self.importance.iter().map(gives).collect()
    }
}

/// The same elements of both.
struct PairChunk {
    pair: usize,
    a: Chunk,
    b: Chunk,
}

pub(super) fn compare(a: &Side, b: &Side, options: DiffOptions) -> Result<Tensors> {
    let mut of_b: HashMap<&str, usize> =
        b.tensors.iter().enumerate().map(|(place, tensor)| (tensor.name.as_str(), place)).collect();
    let (mut pairs, mut lines) = (Vec::new(), Vec::new());
    for (place, tensor) in a.tensors.iter().enumerate() {
        let other = of_b.remove(tensor.name.as_str());
        let comparable = other.is_some_and(|other| are_comparable(tensor, &b.tensors[other]));
        if let (Some(other), true) = (other, comparable) {
            lines.push(Line::Pair(pairs.len()));
            let found = &b.tensors[other];
            let changes = [Change::new(tensor, (b, found), options), Change::new(found, (a, tensor), options)];
            pairs.push(Pair { a: place, b: other, changes });
        } else {
            lines.push(Line::Different(difference(Some(tensor), other.map(|other| &b.tensors[other]), None)));
        }
    }
    let only_b = b.tensors.iter().filter(|tensor| of_b.contains_key(tensor.name.as_str()));
    lines.extend(only_b.map(|tensor| Line::Different(difference(None, Some(tensor), None))));
    let found = read_all(a, b, &pairs, options.threads)?;
    Ok(summary(a, b, &pairs, lines, &found, options))
}

/// A tensor of either model, before its values are known.
enum Line {
    Pair(usize),
    Different(Difference),
}

/// Whether values can be compared: the same shape, both types known, and rows in chunks of the same elements.
fn are_comparable(a: &SideTensor, b: &SideTensor) -> bool {
    let known = |dtype: DType| dtype.codec().is_some();
    let sorted_alike = match (&a.order, &b.order) {
        (Some(Order::Rows(a)), Some(Order::Rows(b))) => a.interleaved_heads == b.interleaved_heads,
        (Some(a), Some(b)) => a == b,
        (None, _) | (_, None) => true,
    };
    a.shape == b.shape && sorted_alike && (a.dtype == b.dtype || known(a.dtype) && known(b.dtype))
}

fn difference(a: Option<&SideTensor>, b: Option<&SideTensor>, values: Option<ValueDifference>) -> Difference {
    let name = a.or(b).map(|tensor| tensor.name.clone()).unwrap_or_default();
    Difference { kind: Kind::Tensor, name, a: a.map(SideTensor::describe), b: b.map(SideTensor::describe), values }
}

fn summary(a: &Side, b: &Side, pairs: &[Pair], lines: Vec<Line>, found: &[Found], options: DiffOptions) -> Tensors {
    let mut tensors = Tensors { tensors: lines.len(), exact: 0, rounded: 0, weighted: 0, differences: Vec::new() };
    for line in lines {
        let number = match line {
            Line::Pair(number) => number,
            Line::Different(difference) => {
                tensors.differences.push(difference);
                continue;
            }
        };
        let (first, second) = (&a.tensors[pairs[number].a], &b.tensors[pairs[number].b]);
        let Some(values) = found[number].difference(&pairs[number]) else {
            tensors.exact += 1;
            continue;
        };
        tensors.rounded += usize::from(values.rounded);
        tensors.weighted += usize::from(values.weighted);
        if !(values.rounded && options.allow_rounding) {
            tensors.differences.push(difference(Some(first), Some(second), Some(values)));
        }
    }
    tensors
}

/// Reads all pairs, chunks of equal bytes without decoding them; pairs that differ are read again as a whole, for their
/// averages.
fn read_all(a: &Side, b: &Side, pairs: &[Pair], threads: Option<usize>) -> Result<Vec<Found>> {
    let everything = |_: usize| true;
    let mut found = vec![Found::default(); pairs.len()];
    read(a, b, pairs, threads, (&everything, true), &mut found)?;
    let again: Vec<bool> = found.iter().map(|found| found.different > 0 && found.skipped).collect();
    found.iter_mut().zip(&again).filter(|(_, again)| **again).for_each(|(found, _)| *found = Found::default());
    read(a, b, pairs, threads, (&|pair| again[pair], false), &mut found)?;
    Ok(found)
}

/// Reads the pairs that are wanted; `skips` leaves out the values of chunks whose bytes are equal.
fn read(
    a: &Side,
    b: &Side,
    pairs: &[Pair],
    threads: Option<usize>,
    (wanted, skips): (&dyn Fn(usize) -> bool, bool),
    found: &mut [Found],
) -> Result<()> {
    let wanted = pairs.iter().enumerate().filter(|(number, _)| wanted(*number));
    let chunks = wanted.flat_map(|(number, pair)| chunks(a, b, number, pair));
    let one = |chunk: &PairChunk| -> Result<Found> {
        let types = (a.tensors[chunk.a.tensor].dtype, b.tensors[chunk.b.tensor].dtype);
        let (a_bytes, b_bytes) = (a.read(&chunk.a)?, b.read(&chunk.b)?);
        if skips && types.0 == types.1 && a_bytes == b_bytes {
            return Ok(Found { skipped: true, ..Found::default() });
        }
        Ok(Found::of(chunk.a.elements.start, types, &pairs[chunk.pair].changes, &a_bytes, &b_bytes))
    };
    walk(chunks, threads, a.source.path(), one, |chunk, more| found[chunk.pair].merge(&more))
}

/// The same elements for both sides: whole heads where a side sorts rows.
fn chunks(a: &Side, b: &Side, number: usize, pair: &Pair) -> Vec<PairChunk> {
    let (first, second) = (&a.tensors[pair.a], &b.tensors[pair.b]);
    let total = first.shape.iter().product();
    let row = row_elements(&first.shape);
    let has_importance = pair.changes.iter().any(|change| !change.importance.is_empty());
    let ordered = match first.order.clone().or(second.order.clone()) {
        None if has_importance => whole_rows(0, total, row),
        order => ordered_chunks(0, total, row, order),
    };
    let of = |tensor: usize, order: &Option<Order>| -> Vec<Chunk> {
        match order {
            Some(_) => ordered_chunks(tensor, total, row, order.clone()),
            None => ordered.iter().map(|chunk| Chunk::unsorted(tensor, chunk.elements.clone())).collect(),
        }
    };
    let (a, b) = (of(pair.a, &first.order), of(pair.b, &second.order));
    a.into_iter().zip(b).map(|(a, b)| PairChunk { pair: number, a, b }).collect()
}

/// The plain encoding, the lossless one, and those by at most two importances.
const ENCODINGS: usize = 4;

/// What comparing some elements gave.
#[derive(Clone, Default)]
struct Found {
    /// Elements with another value.
    different: u64,
    /// The first of them, counted from the tensor's first element.
    first: Option<u64>,
    /// Whether some bytes of b are not what each encoding in its type makes of a; and the other way round.
    not_rounded_to: [[bool; ENCODINGS]; 2],
    /// Whether values of equal bytes are missing in the sums.
    skipped: bool,
    sums: DeviationSums,
    /// Of a and its plain encoding in the type of b, if that is of interest; and the other way round.
    plain: [DeviationSums; 2],
}

impl Found {
    fn of(start: u64, (a_type, b_type): (DType, DType), changes: &[Change; 2], a: &[u8], b: &[u8]) -> Found {
        if a_type.codec().is_none() {
            let block = a_type.block_bytes();
            let differs = |(a, b): (&[u8], &[u8])| a != b;
            let blocks = || a.chunks(block).zip(b.chunks(block));
            let different = blocks().filter(|pair| differs(*pair)).count() * a_type.block_len();
            let first = blocks().position(differs).map(|place| start + (place * a_type.block_len()) as u64);
            let not_rounded_to = [[true; ENCODINGS]; 2];
            return Found { different: different as u64, first, not_rounded_to, ..Found::default() };
        }
        let (a_values, b_values) = (decode_exact(a_type, a), decode_exact(b_type, b));
        let differs = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
        let pairs = || a_values.iter().zip(&b_values);
        let mut found = Found {
            different: pairs().filter(|pair| differs(*pair)).count() as u64,
            first: pairs().position(differs).map(|place| start + place as u64),
            ..Found::default()
        };
        let (a_narrow, b_narrow) = (narrowed(&a_values), narrowed(&b_values));
        found.sums.add(&a_narrow, &b_narrow);
        let sides = [(a, b, &a_narrow), (b, a, &b_narrow)];
        for (side, (source, target, values)) in sides.into_iter().enumerate() {
            let change = &changes[side];
            if found.different == 0 && !change.is_weighted {
                continue;
            }
            let plain = change.plain(values.len(), source);
            if change.is_weighted {
                found.plain[side].add(values, &narrowed(&decode_exact(change.target, &plain)));
            }
            if found.different > 0 {
                let weighted = change.are_weighted((start, values.len()), source, target);
                let not_rounded = &mut found.not_rounded_to[side];
                *not_rounded = [plain != target, !change.is_exact(source, target), true, true];
                weighted.into_iter().zip(&mut not_rounded[2..]).for_each(|(gives, not)| *not = !gives);
            }
        }
        found
    }

    fn merge(&mut self, other: &Found) {
        self.different += other.different;
        self.first = self.first.or(other.first);
        for side in 0..2 {
            let (mine, others) = (&mut self.not_rounded_to[side], &other.not_rounded_to[side]);
            mine.iter_mut().zip(others).for_each(|(mine, other)| *mine |= other);
            self.plain[side].merge(&other.plain[side]);
        }
        self.skipped |= other.skipped;
        self.sums.merge(&other.sums);
    }

    fn difference(&self, pair: &Pair) -> Option<ValueDifference> {
        let first = element_indices(self.first?, &pair.changes[0].source.shape);
        let Deviation { rmse, cosine, max_abs, not_finite } = self.sums.deviation();
        let rounded = self.not_rounded_to.as_flattened().contains(&false);
        let is_near = |plain: &DeviationSums| {
            rmse <= WEIGHTED_RMSE_MAX * plain.deviation().rmse && cosine >= WEIGHTED_COSINE_MIN && not_finite == 0
        };
        let weighted = [0, 1].into_iter().any(|side| pair.changes[side].is_weighted && is_near(&self.plain[side]));
        let (elements, weighted) = (self.different, weighted && !rounded);
        Some(ValueDifference { rounded, weighted, elements, first, rmse, max_abs, cosine })
    }
}

/// As f32, in which distances are measured.
fn narrowed(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plain encoding selects another scale, because the largest code of the block is not used.
    #[test]
    fn lossless_encodings_are_recognized() {
        let codes = (0..32).map(|place: i32| (place * 7 + 3) % 11 - 5);
        let numbers = codes.map(|code| if code == 0 { -0.0 } else { 0.11 * code as f32 });
        let source: Vec<u8> = {
            let numbers: Vec<f32> = numbers.collect();
            let mut bytes = vec![0; 64];
            (DType::F16.codec().expect("a codec").encode)(&numbers, &mut bytes);
            bytes
        };
        let mut target = vec![0; DType::Q4_0.block_bytes()];
        let (mut scratch, mut loss) = (Scratch::default(), DeviationSums::default());
        let done =
            Transcoder::new(DType::F16, DType::Q4_0).transcode_exact(&source, &mut target, &mut scratch, &mut loss);
        done.expect("finite weights");
        let change = |source: DType, target: DType| {
            let source = TensorInfo { name: "t".to_owned(), shape: vec![32], dtype: source, bytes: 0 };
            Change { source, target, importance: Vec::new(), is_weighted: false }
        };
        let changes = [change(DType::F16, DType::Q4_0), change(DType::Q4_0, DType::F16)];
        let found = Found::of(0, (DType::F16, DType::Q4_0), &changes, &source, &target);
        assert!(found.different > 0, "the sign of zero, at least");
        assert_eq!(found.not_rounded_to, [[true, false, true, true], [true; ENCODINGS]]);
        target[5] ^= 1;
        let found = Found::of(0, (DType::F16, DType::Q4_0), &changes, &source, &target);
        assert_eq!(found.not_rounded_to, [[true; ENCODINGS]; 2]);
    }
}
