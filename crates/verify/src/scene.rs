//! One node's computation with all it needs, owned: it can be cut smaller, changed, judged and run again.
//!
//! ```text
//!   Case (borrowed, whole) ──▶ Scene ──pick rows, tokens, depth──▶ smaller Scene ──▶ what it should be, element by element
//!
//!   mul_mat   w [K, M]  x [K, N]  ─▶  y [M, N]        rows: M        tokens: N        depth: K
//! ```

use crate::bound::{Case, judge};
use crate::collector::Collector;
use crate::operand::{Data, Operand};
use crate::statistics::{Expected, Statistics};
use trueup_blocks::DType;
use trueup_graph::op::{Arithmetic, Gated};
use trueup_graph::{Graph, Node, Op, Origin, Shape, TensorType, ValueId};
use trueup_runtime::HostTensor;
use trueup_runtime::device::Usage;
use trueup_runtime::profile::Profile;

/// What an input holds, in the order of its shape, innermost first.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Content {
    Numbers(Vec<f64>),
    Integers(Vec<i32>),
    /// Bytes as in GGUF.
    Blocks(Vec<u8>),
}

/// An input.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Given {
    pub ty: TensorType,
    pub usage: Usage,
    pub content: Content,
}

/// A computation and what the device made of it.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub op: Op,
    pub profile: Profile,
    pub inputs: Vec<Given>,
    pub output: TensorType,
    /// The device's result, element by element.
    pub device: Vec<f64>,
    /// Elements that a sample of this result must hold.
    pub focus: Vec<usize>,
}

/// A direction in which a computation can be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Axis {
    /// Results of one token that are computed on their own: rows of a matrix, heads, cached positions.
    Rows,
    /// Tokens.
    Tokens,
    /// What is summed over.
    Depth,
}

/// Along which dimension an axis lies in each input, where it does, and in the result.
type Dimensions = (Vec<Option<usize>>, Option<usize>);

impl Given {
    /// A copy of an operand.
    pub fn of(operand: &Operand, usage: Usage) -> Given {
        let content = match operand.data {
            Data::Numbers(numbers) => Content::Numbers(numbers.to_vec()),
            Data::Integers(integers) => Content::Integers(integers.to_vec()),
            Data::Blocks(bytes) => Content::Blocks(bytes.to_vec()),
        };
        Given { ty: operand.ty, usage, content }
    }

    /// A view for the judge.
    pub fn operand(&self) -> Operand<'_> {
        match &self.content {
            Content::Numbers(numbers) => Operand::numbers(self.ty, numbers),
            Content::Integers(integers) => Operand::integers(self.ty, integers),
            Content::Blocks(bytes) => Operand::blocks(self.ty, bytes),
        }
    }

    /// The bytes as in GGUF.
    pub fn bytes(&self) -> Vec<u8> {
        match &self.content {
            Content::Numbers(numbers) => HostTensor::real(self.ty, numbers.clone()).to_bytes().into_owned(),
            Content::Integers(integers) => integers.iter().flat_map(|integer| integer.to_le_bytes()).collect(),
            Content::Blocks(bytes) => bytes.clone(),
        }
    }

    /// The elements `keep` of one dimension; of the innermost one whole blocks only.
    fn pick(&self, dimension: usize, keep: &[usize]) -> Option<Given> {
        let mut sizes = self.ty.shape.sizes();
        let inner: usize = sizes[..dimension].iter().product();
        let size = std::mem::replace(&mut sizes[dimension], keep.len());
        let content = match &self.content {
            Content::Numbers(numbers) => Content::Numbers(gather(numbers, inner, size, keep)),
            Content::Integers(integers) => Content::Integers(gather(integers, inner, size, keep)),
            Content::Blocks(bytes) => Content::Blocks(self.pick_blocks(bytes, dimension, keep)?),
        };
        Some(Given { ty: TensorType { shape: Shape::new(&sizes), ..self.ty }, content, ..*self })
    }

    fn pick_blocks(&self, bytes: &[u8], dimension: usize, keep: &[usize]) -> Option<Vec<u8>> {
        let (len, size) = (self.ty.dtype.block_len(), self.ty.dtype.block_bytes());
        let sizes = self.ty.shape.sizes();
        if dimension > 0 {
            let inner = sizes[..dimension].iter().product::<usize>() / len * size;
            return Some(gather(bytes, inner, sizes[dimension], keep));
        }
        let whole = |block: &[usize]| {
            let consecutive = block.windows(2).all(|pair| pair[1] == pair[0] + 1);
            block.len() == len && block[0].is_multiple_of(len) && consecutive
        };
        let blocks: Vec<usize> = keep.chunks(len).map(|block| block[0] / len).collect();
        keep.chunks(len).all(whole).then(|| gather(bytes, size, sizes[0] / len, &blocks))
    }

    /// The input with each innermost row changed, as numbers.
    fn rewritten(&self, change: impl Fn(&[f64]) -> Vec<f64>) -> Given {
        let operand = self.operand();
        let rows = (0..self.ty.shape.rows()).flat_map(|row| change(operand.row(row, &mut Vec::new())));
        let ty = TensorType { dtype: DType::F32, ..self.ty };
        Given { ty, content: Content::Numbers(rows.collect()), ..*self }
    }
}

/// `keep` of each `size` pieces of `inner` elements.
fn gather<T: Copy>(data: &[T], inner: usize, size: usize, keep: &[usize]) -> Vec<T> {
    let mut all = Vec::with_capacity(data.len() / size.max(1) * keep.len());
    for outer in data.chunks(inner * size) {
        keep.iter().for_each(|piece| all.extend_from_slice(&outer[piece * inner..][..inner]));
    }
    all
}

impl Scene {
    /// A copy of a case; `usages` says how each input lies on the device.
    pub fn new(case: &Case, usages: &[Usage]) -> Scene {
        let inputs = case.inputs.iter().zip(usages).map(|(operand, usage)| Given::of(operand, *usage));
        Scene {
            op: case.op.clone(),
            profile: *case.profile,
            inputs: inputs.collect(),
            output: case.output.ty,
            device: case.output.all().into_owned(),
            focus: Vec::new(),
        }
    }

    /// What each element should be, and how the device's result compares.
    pub fn judged(&self) -> (Statistics, Vec<Option<Expected>>) {
        let inputs: Vec<Operand> = self.inputs.iter().map(Given::operand).collect();
        let collector = Collector::new(self.output.shape.elements());
        // Blocks would be rounded again, which is not what the device has.
        let bytes = (matches!(self.op, Op::KvStore(_)) && self.output.dtype.is_float()).then(|| self.stored());
        let output = match &bytes {
            Some(bytes) => Operand::blocks(self.output, bytes),
            None => Operand::numbers(self.output, &self.device),
        };
        let (op, profile, collector_) = (&self.op, &self.profile, Some(&collector));
        let case = Case {
            op,
            inputs: &inputs,
            profile,
            output,
            reference: None,
            copies: &[],
            spread: &[],
            step: 0,
            collector: collector_,
        };
        let statistics = judge(&case);
        (statistics, collector.into_elements())
    }

    /// The result as it is stored.
    fn stored(&self) -> Vec<u8> {
        HostTensor::real(self.output, self.device.clone()).to_bytes().into_owned()
    }

    /// The size of an axis; `None` where the operator cannot be cut that way.
    pub fn len(&self, axis: Axis) -> Option<usize> {
        let (_, output) = self.dimensions(axis)?;
        if matches!(self.op, Op::KvAttention(_)) && output.is_none() {
            // The mask says how many positions are looked at; the caches may have more.
            return self.inputs.last().map(|mask| mask.ty.shape[0]);
        }
        Some(output.map_or(self.inputs[0].ty.shape[0], |at| self.output.shape[at]))
    }

    /// The elements `keep` of an axis; the device's result is kept for those, except where a sum got shorter.
    pub fn pick(&self, axis: Axis, keep: &[usize]) -> Option<Scene> {
        let (inputs, output) = self.dimensions(axis)?;
        let picked: Option<Vec<Given>> = inputs
            .iter()
            .zip(&self.inputs)
            .map(|(at, input)| at.map_or(Some(input.clone()), |at| input.pick(at, keep)))
            .collect();
        let (mut op, inputs) = (self.op.clone(), picked?);
        if let (Op::KvScores(scores), Axis::Rows) = (&mut op, axis) {
            scores.capacity = keep.len();
        }
        let types: Vec<TensorType> = inputs.iter().map(|input| input.ty).collect();
        let ty = op.infer(&types).ok()?;
        let sizes = self.output.shape.sizes();
        let device = output.map_or_else(
            || vec![0.0; ty.shape.elements()],
            |at| gather(&self.device, sizes[..at].iter().product(), sizes[at], keep),
        );
        let output = TensorType { dtype: self.output.dtype, ..ty };
        Some(Scene { op, profile: self.profile, inputs, output, device, focus: Vec::new() })
    }

    /// The scene with the rows of one input changed; the result stays.
    pub fn with_rows(&self, input: usize, change: impl Fn(&[f64]) -> Vec<f64>) -> Scene {
        let mut scene = self.clone();
        scene.inputs[input] = self.inputs[input].rewritten(change);
        scene
    }

    /// The scene with other activations: its own in reverse order and with the other sign.
    pub fn reversed_activations(&self) -> Scene {
        let mut scene = self.clone();
        for input in scene.inputs.iter_mut().filter(|input| input.usage == Usage::Arena) {
            if let Content::Numbers(numbers) = &mut input.content {
                numbers.reverse();
                numbers.iter_mut().for_each(|number| *number = -*number);
            }
        }
        scene
    }

    /// Which dimensions an axis is, for the operators that can be cut.
    fn dimensions(&self, axis: Axis) -> Option<Dimensions> {
        let shape = self.inputs.first()?.ty.shape;
        let last = shape.sizes().iter().rposition(|size| *size > 1).unwrap_or(0).max(1);
        let (op, tokens) = (&self.op, axis == Axis::Tokens);
        let found = match axis {
            Axis::Rows if matches!(op, Op::MulMat(_)) => (vec![Some(1), None], Some(0)),
            Axis::Depth if matches!(op, Op::MulMat(_)) => (vec![Some(0), Some(0)], None),
            Axis::Rows if matches!(op, Op::MulMatGated(_)) => (vec![Some(1), Some(1), None], Some(0)),
            Axis::Depth if matches!(op, Op::MulMatGated(_)) => (vec![Some(0); 3], None),
            Axis::Rows if matches!(op, Op::KvScores(_)) => (vec![None, Some(1), None], Some(0)),
            Axis::Depth if matches!(op, Op::KvMix(_)) => (vec![Some(0), Some(1), None], None),
            Axis::Depth if matches!(op, Op::KvAttention(_)) => (vec![None, Some(1), Some(1), None, Some(0)], None),
            Axis::Rows if matches!(op, Op::SoftMax(_)) => (vec![Some(2), None], Some(2)),
            Axis::Rows if matches!(op, Op::Rope(_)) => {
                let mut inputs = vec![None; self.inputs.len()];
                inputs[0] = Some(1);
                (inputs, Some(1))
            }
            Axis::Rows | Axis::Depth => return None,
            Axis::Tokens if matches!(op, Op::MulMat(_)) => (vec![None, Some(1)], Some(1)),
            Axis::Tokens if matches!(op, Op::MulMatGated(_)) => (vec![None, None, Some(1)], Some(1)),
            Axis::Tokens if matches!(op, Op::KvScores(_)) => (vec![Some(2), None, Some(0)], Some(1)),
            Axis::Tokens if matches!(op, Op::KvMix(_)) => (vec![Some(1), None, Some(0)], Some(1)),
            Axis::Tokens if matches!(op, Op::KvAttention(_)) => (vec![Some(2), None, None, Some(0), Some(1)], Some(1)),
            Axis::Tokens if matches!(op, Op::SoftMax(_)) => (vec![Some(1), Some(1)], Some(1)),
            Axis::Tokens if matches!(op, Op::GetRows(_)) => (vec![None, Some(0)], Some(1)),
            Axis::Tokens if matches!(op, Op::RmsNorm(_)) => (vec![Some(last), None], Some(last)),
            Axis::Tokens if matches!(op, Op::Gated(Gated::Swiglu)) => (vec![Some(last); 2], Some(last)),
            Axis::Tokens => return self.others(last),
        };
        // A picked position of a mixture is one of each sequence, so all have as many.
        (tokens || found.0.len() == self.inputs.len()).then_some(found)
    }

    /// Tokens of rope, which may have factors, and of an addition, whose second input may be shorter.
    fn others(&self, last: usize) -> Option<Dimensions> {
        if matches!(self.op, Op::Rope(_)) {
            let mut inputs = vec![Some(2), Some(0)];
            inputs.resize(self.inputs.len(), None);
            return Some((inputs, Some(2)));
        }
        let [a, b] = self.inputs.as_slice() else { return None };
        let whole = a.ty.shape[last] == b.ty.shape[last];
        let fits = matches!(self.op, Op::Arithmetic(Arithmetic::Add)) && (whole || b.ty.shape[last] == 1);
        fits.then(|| (vec![Some(last), whole.then_some(last)], Some(last)))
    }

    /// At most `rows` rows and `tokens` tokens, spread evenly, with those of element `worst`.
    pub fn sampled(&self, worst: usize, rows: usize, tokens: usize) -> Scene {
        let mut scene = self.clone();
        for (axis, count) in [(Axis::Rows, rows), (Axis::Tokens, tokens)] {
            let Some((len, (_, Some(at)))) = self.len(axis).zip(self.dimensions(axis)) else { continue };
            let sizes = self.output.shape.sizes();
            let own = worst / sizes[..at].iter().product::<usize>() % sizes[at];
            if let Some(smaller) = scene.pick(axis, &spread(len, count, own)) {
                scene = smaller;
            }
        }
        scene
    }
}

/// At most `count + 1` of `len` numbers, evenly spread, with `own` among them.
fn spread(len: usize, count: usize, own: usize) -> Vec<usize> {
    let count = count.min(len).max(1);
    let mut all: Vec<usize> = (0..count).map(|index| index * len / count).collect();
    all.push(own);
    all.sort_unstable();
    all.dedup();
    all
}

/// How the inputs of a node lie on the device.
pub(crate) fn usages(graph: &Graph, node: &Node) -> Vec<Usage> {
    node.inputs.iter().map(|input| usage(graph, *input)).collect()
}

fn usage(graph: &Graph, id: ValueId) -> Usage {
    match graph.value(id).origin {
        Origin::Input(_) => Usage::Input,
        Origin::Weight => Usage::Weight,
        Origin::State(_) => Usage::State,
        Origin::Node(_) => match graph.nodes().iter().find(|node| node.output == id) {
            Some(node) if node.op.is_alias() => usage(graph, node.inputs[0]),
            Some(_) | None => Usage::Arena,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picked_blocks_rows_and_tokens_are_those_of_the_whole() {
        let bytes: Vec<u8> = (0..34 * 2 * 3).map(|i| i as u8).collect();
        let w = Given {
            ty: TensorType::new(DType::Q8_0, &[64, 3]),
            usage: Usage::Weight,
            content: Content::Blocks(bytes.clone()),
        };
        let rows = w.pick(1, &[2, 0]).unwrap();
        assert_eq!(rows.bytes(), [&bytes[136..], &bytes[..68]].concat());
        assert_eq!(rows.ty, TensorType::new(DType::Q8_0, &[64, 2]));
        let second: Vec<usize> = (32..64).collect();
        assert_eq!(w.pick(0, &second).unwrap().bytes()[..34], bytes[34..68]);
        assert!(w.pick(0, &second[1..]).is_none(), "a part of a block is no tensor");
    }

    #[test]
    fn samples_hold_the_worst_element() {
        assert_eq!(spread(10, 3, 7), [0, 3, 6, 7]);
        assert_eq!(spread(2, 64, 1), [0, 1]);
    }
}
