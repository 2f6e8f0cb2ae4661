//! What a trace holds of one node's result, laid over the shape that the result has here.
//!
//! ```text
//!   here    [64, 5]          trace   [64, 5]      all tokens
//!                                    [64, 1]      the last token only, as programs do that want its logits alone
//!   scores  [64, 5, 4]               [5, 5, 4]    positions up to the last token: behind it all are masked
//! ```

use crate::record::result_shape;
use trueup_formats::{Trace, TraceTensor, TraceValues, quote};
use trueup_graph::{Graph, Node, Op, Shape};
use trueup_runtime::{Error, Result};

/// Known elements of a result.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Known {
    /// Places in the result, innermost first, and values.
    pub values: Vec<(usize, f64)>,
    /// Half a unit of the last digit that was printed; 0 where values are exact.
    pub slack: f64,
    /// The sum of all elements that the trace's tensor has.
    pub sum: Option<f64>,
    /// Places of these elements; none where there is no sum.
    pub covers: Vec<usize>,
    /// Values after the last position of the result. Other programs keep more positions.
    pub beyond: Vec<f64>,
}

impl Known {
    /// What the trace holds of the node in that step, which computes so many tokens; none where it holds nothing.
    pub fn of(trace: &Trace, step: usize, graph: &Graph, node: &Node, tokens: usize) -> Result<Option<Known>> {
        let Some(tensor) = trace.find(step, &node.name) else { return Ok(None) };
        let ours = result_shape(graph, node, tokens);
        let placement = placement(tensor, graph, node, tokens).ok_or_else(|| {
            let path = quote(&trace.source().path().to_string_lossy());
            Error::Request(format!("{path}: tensor {}", misplaced(tensor, &ours)))
        })?;
        Ok(Some(match trace.read(tensor)? {
            TraceValues::All(values) => {
                let (values, beyond) = placement.all(&values);
                Known { values, slack: 0.0, sum: None, covers: Vec::new(), beyond }
            }
            TraceValues::Shown(shown) => {
                let narrow = |index| usize::try_from(index).unwrap_or(usize::MAX);
                let indexed = shown.values.iter().map(|(indices, value)| (indices.map(narrow), *value));
                let (values, beyond) = placement.laid(indexed);
                let partial: f64 = shown.values.iter().map(|(_, value)| value).sum();
                let rounding = shown.unit * (shown.values.len() as f64 + 1.0) / 2.0;
                // Some versions sum what they show.
                let says_more = |sum: &f64| (sum - partial).abs() > rounding || shown.values.len() == ours.elements();
                let sum = shown.sum.filter(says_more);
                let covers = if sum.is_some() { placement.covered() } else { Vec::new() };
                Known { values, slack: shown.unit / 2.0, sum, covers, beyond }
            }
        }))
    }

    /// Whether the values are the program's own, not printed ones.
    pub fn is_exact(&self) -> bool {
        self.slack == 0.0
    }
}

/// Says what is wrong with a tensor whose shape is not that of the node's result; `whole` allows no part of it either.
pub(super) fn expect_place(
    tensor: &TraceTensor,
    graph: &Graph,
    node: &Node,
    tokens: usize,
    whole: bool,
) -> std::result::Result<(), String> {
    let ours = result_shape(graph, node, tokens);
    let elements = tensor.shape.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
    let is_part = whole && elements != Some(ours.elements() as u64);
    match placement(tensor, graph, node, tokens) {
        Some(_) if !is_part => Ok(()),
        Some(_) | None => Err(misplaced(tensor, &ours)),
    }
}

fn misplaced(tensor: &TraceTensor, ours: &Shape) -> String {
    format!("{}: expected shape {ours}, found {:?}", quote(&tensor.name()), tensor.shape)
}

fn placement(tensor: &TraceTensor, graph: &Graph, node: &Node, tokens: usize) -> Option<Placement> {
    Placement::new(tensor, &result_shape(graph, node, tokens), counts_positions(node), tokens)
}

/// Whether the innermost dimension of the result counts positions, of which programs keep any number.
fn counts_positions(node: &Node) -> bool {
    matches!(node.op, Op::KvScores(_) | Op::SoftMax(_))
}

/// How a trace's tensor lies in a result.
#[derive(Clone, Copy, Debug)]
struct Placement {
    theirs: [usize; 4],
    ours: [usize; 4],
    /// Added to each index.
    offsets: [usize; 4],
    /// Whether the same elements have another shape.
    reshaped: bool,
}

impl Placement {
    /// `masked` says that the innermost dimension counts positions, of which there may be any number.
    fn new(tensor: &TraceTensor, shape: &Shape, masked: bool, tokens: usize) -> Option<Placement> {
        let mut theirs = [1; 4];
        if tensor.shape.len() > theirs.len() {
            return None;
        }
        for (slot, size) in theirs.iter_mut().zip(&tensor.shape) {
            *slot = usize::try_from(*size).ok()?;
        }
        let ours = shape.sizes();
        let elements = theirs.iter().try_fold(1usize, |product, size| product.checked_mul(*size));
        // Texts show four sizes of any tensor.
        let outermost = tensor.shape.iter().rev().find(|size| **size != 1);
        let by_token = tokens == 1 || outermost.is_some_and(|outermost| *outermost == tokens as u64);
        if !masked && by_token && theirs != ours && elements == Some(shape.elements()) {
            // The same elements of each token under another shape.
            return Some(Placement { theirs, ours, offsets: [0; 4], reshaped: true });
        }
        let mut offsets = [0; 4];
        for (axis, offset) in offsets.iter_mut().enumerate() {
            if theirs[axis] == ours[axis] || (axis == 0 && masked) {
                continue;
            }
            if theirs[axis] != 1 || ours[axis] != tokens {
                return None;
            }
            *offset = ours[axis] - 1;
        }
        Some(Placement { theirs, ours, offsets, reshaped: false })
    }

    /// The place in the result of the element with these indices in the trace.
    fn place(&self, indices: [usize; 4]) -> Option<usize> {
        let sizes = if self.reshaped { self.theirs } else { self.ours };
        let mut place = 0;
        for axis in (0..4).rev() {
            let index = indices[axis].checked_add(self.offsets[axis]).filter(|index| *index < sizes[axis])?;
            place = place * sizes[axis] + index;
        }
        Some(place)
    }

    /// Places of all elements that the trace's tensor has.
    fn covered(&self) -> Vec<usize> {
        let [columns, rows, planes, outer] = self.ours;
        if self.reshaped {
            return (0..columns * rows * planes * outer).collect();
        }
        let has = |place: &usize| {
            let indices = [
                place % columns,
                place / columns % rows,
                place / columns / rows % planes,
                place / columns / rows / planes,
            ];
            let pairs = indices.iter().zip(self.offsets).zip(self.theirs);
            pairs.into_iter().all(|((index, offset), size)| *index >= offset && index - offset < size)
        };
        (0..columns * rows * planes * outer).filter(has).collect()
    }

    /// Places of values by their indices in the trace, and the values that have no place here.
    fn laid(&self, values: impl Iterator<Item = ([usize; 4], f64)>) -> (Vec<(usize, f64)>, Vec<f64>) {
        let (mut placed, mut beyond) = (Vec::new(), Vec::new());
        for (indices, value) in values {
            match self.place(indices) {
                Some(place) => placed.push((place, value)),
                None => beyond.push(value),
            }
        }
        (placed, beyond)
    }

    /// Places of all values of the trace's tensor, and the values that have none.
    fn all(&self, values: &[f64]) -> (Vec<(usize, f64)>, Vec<f64>) {
        let [columns, rows, planes, _] = self.theirs.map(|size| size.max(1));
        let indices = |index: usize| {
            [index % columns, index / columns % rows, index / columns / rows % planes, index / columns / rows / planes]
        };
        self.laid(values.iter().enumerate().map(|(index, value)| (indices(index), *value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trueup_formats::{SafetensorsArray, TraceValues, write_safetensors};

    /// Where the elements of a tensor of shape `theirs` lie in a result of shape `ours` over three tokens.
    fn places(theirs: &[u64], ours: &[usize], masked: bool) -> Option<Vec<usize>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.safetensors");
        let values: Vec<f32> = (0..theirs.iter().product::<u64>()).map(|value| value as f32).collect();
        write_safetensors(&path, &[SafetensorsArray::f32("0/a", theirs, &values)], &[], &[]).unwrap();
        let trace = Trace::open(&path).unwrap();
        let tensor = &trace.tensors()[0];
        let placement = Placement::new(tensor, &Shape::new(ours), masked, 3)?;
        let TraceValues::All(values) = trace.read(tensor).unwrap() else { return None };
        let (placed, beyond) = placement.all(&values);
        assert_eq!(placed.len() + beyond.len(), values.len(), "no value is lost");
        assert!(placed.iter().map(|(_, value)| *value).is_sorted(), "values stay in their order");
        Some(placed.into_iter().map(|(place, _)| place).collect())
    }

    #[test]
    fn tensors_of_other_shapes_find_their_places() {
        assert_eq!(places(&[2, 3], &[2, 3], false), Some(vec![0, 1, 2, 3, 4, 5]));
        assert_eq!(places(&[2, 1], &[2, 3], false), Some(vec![4, 5]), "the last token");
        assert_eq!(places(&[4, 3], &[2, 2, 3], false), Some((0..12).collect()), "heads behind each other");
        assert_eq!(places(&[2, 2, 3, 1], &[4, 3], false), Some((0..12).collect()), "heads in a text");
        assert_eq!(places(&[1, 3, 2], &[4, 3, 2], true), Some(vec![0, 4, 8, 12, 16, 20]), "few positions");
        assert_eq!(
            places(&[5, 3], &[4, 3], true),
            Some(vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
            "too many positions"
        );
    }

    #[test]
    fn tensors_of_other_models_have_no_place() {
        assert_eq!(places(&[3, 2], &[2, 3], false), None, "transposed");
        assert_eq!(places(&[4, 3], &[2, 3], false), None);
        assert_eq!(places(&[2, 2], &[2, 3], false), None);
        assert_eq!(places(&[4, 2, 2], &[4, 3, 2], true), None, "other tokens");
    }
}
