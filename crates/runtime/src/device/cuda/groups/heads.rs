//! What comes behind the products for queries, keys and values: biases, norms of heads, rotation and stores into the
//! cache. A warp does all of that for a head of a token, by the kernel of the products or by one of its own.
//!
//! ```text
//!  product ─▶ + bias ─▶ norm of heads ─▶ rotation ─▶ store        each may be missing, but one of the rotations
//! ```
//!
//! Steps may stand in any order in which each finds what it reads, with views between them. The first that does not fit
//! ends the group.

use super::memory::{is_same, overlap};
use crate::device::cuda::launches::{Recorder, call, operand};
use crate::device::cuda::operator::{self, HEAD_MAX, HeadsOf, HeadsTail, is_wide};
use crate::device::{Step, Tensor};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_graph::op::{Arithmetic, Rope};
use trueup_graph::{Op, TensorType};

/// Up to so many tokens: angles are computed again for each head.
const TOKENS_MAX: usize = 8;

/// Queries, keys and values.
const STREAMS_MAX: usize = 3;

/// Behind products of other launches: at least two steps.
pub fn heads(recorder: &Recorder, steps: &[Step]) -> Result<usize, String> {
    let mut found = Found::default();
    let taken = found.walk(steps, true);
    if found.steps.len() < 2 || !found.are_apart(&[]) {
        return Ok(0);
    }
    let Some(tail) = found.tail(recorder)? else { return Ok(0) };
    operator::finish_heads(&call(recorder, found.steps[0])?, &tail)?;
    Ok(taken)
}

/// Behind the results of products, and how many of the steps it is.
pub fn behind(recorder: &Recorder, products: &[Step], steps: &[Step]) -> Result<Option<(HeadsTail, usize)>, String> {
    let streams = products.iter().map(|product| Stream::of(&product.output)).collect();
    let mut found = Found { streams, ..Found::default() };
    let taken = found.walk(steps, false);
    let are_of_tokens = |[_, tokens]: [usize; 2]| products.iter().all(|product| product.output.ty.shape[1] == tokens);
    if !found.sizes.is_some_and(are_of_tokens) || !found.are_apart(products) {
        return Ok(None);
    }
    Ok(found.tail(recorder)?.map(|tail| (tail, taken)))
}

/// The queries, keys or values on their way.
#[derive(Debug)]
struct Stream<'a> {
    /// What the product writes, and what the last step made of it.
    x: &'a Tensor,
    last: &'a Tensor,
    done: [Option<&'a Step>; 4],
}

/// Places in what is done with a stream, in the order in which it is done.
const BIAS: usize = 0;
const NORM: usize = 1;
const ROPE: usize = 2;
const STORE: usize = 3;

impl<'a> Stream<'a> {
    fn of(x: &'a Tensor) -> Stream<'a> {
        Stream { x, last: x, done: [None; 4] }
    }

    fn rows(&self, tokens: usize) -> usize {
        self.x.ty.shape.elements() / tokens
    }
}

/// Steps that go together.
#[derive(Default, Debug)]
struct Found<'a> {
    streams: Vec<Stream<'a>>,
    steps: Vec<&'a Step>,
    /// Of the first norm or rotation: elements of a head, tokens.
    sizes: Option<[usize; 2]>,
    /// All rotations and all stores are like the first one.
    rope: Option<&'a Step>,
    store: Option<&'a Step>,
}

impl<'a> Found<'a> {
    /// Takes steps as long as they fit; how many that are. Streams begin where a step reads what none of them holds, if
    /// they may.
    fn walk(&mut self, steps: &'a [Step], begins: bool) -> usize {
        let mut taken = 0;
        for (place, step) in steps.iter().enumerate() {
            if step.op.is_view() {
                continue;
            }
            if self.take(step, begins).is_none() {
                break;
            }
            taken = place + 1;
        }
        taken
    }

    fn take(&mut self, step: &'a Step, begins: bool) -> Option<()> {
        let (stage, x) = stage(step)?;
        let place = self.streams.iter().position(|stream| shows_all(x, stream.last));
        let is_new = place.is_none();
        if is_new && (!begins || self.streams.len() == STREAMS_MAX) {
            return None;
        }
        let place = place.unwrap_or(self.streams.len());
        let done = self.streams.get(place).map_or([None; 4], |stream| stream.done);
        let is_next = done[stage..].iter().all(Option::is_none);
        if !is_next || !self.fits(step, stage, x) {
            return None;
        }
        if is_new {
            self.streams.push(Stream::of(x));
        }
        let stream = &mut self.streams[place];
        stream.done[stage] = Some(step);
        stream.last = &step.output;
        match stage {
            NORM | ROPE => {
                let [head_size, _, tokens, _] = x.ty.shape.sizes();
                self.sizes = Some([head_size, tokens]);
                self.rope = self.rope.or((stage == ROPE).then_some(step));
            }
            STORE => self.store = self.store.or(Some(step)),
            _ => {}
        }
        self.steps.push(step);
        Some(())
    }

    /// Whether the kernels take a step, and those before it beside it.
    fn fits(&self, step: &Step, stage: usize, x: &Tensor) -> bool {
        let is_f32 = |tensor: &Tensor| tensor.ty.dtype == DType::F32 && tensor.ty.shape.is_dense();
        let others = is_f32(x) && (stage == STORE || is_f32(&step.output));
        others
            && match (&step.op, self.sizes) {
                (Op::RmsNorm(_), sizes) => self.heads_fit(&x.ty, sizes) && is_norm(step),
                (Op::Rope(op), sizes) => self.heads_fit(&x.ty, sizes) && self.rotates(op, step),
                (Op::KvStore(_), Some([head_size, _])) => self.stores(step, head_size),
                (Op::KvStore(_), None) => false,
                _ => {
                    let bias = &step.inputs[1];
                    is_f32(bias)
                        && bias.ty.shape[0] == x.ty.shape[0]
                        && bias.ty.shape.rows() == 1
                        && step.output.ty == x.ty
                }
            }
    }

    /// Whether heads are no longer than kernels take them, and like those before.
    fn heads_fit(&self, ty: &TensorType, sizes: Option<[usize; 2]>) -> bool {
        let [head_size, _, tokens, batches] = ty.shape.sizes();
        let fit = head_size <= HEAD_MAX && head_size.is_multiple_of(2) && tokens <= TOKENS_MAX && batches == 1;
        fit && ty.shape.elements() > 0 && sizes.is_none_or(|sizes| sizes == [head_size, tokens])
    }

    /// Whether a step rotates by one position a token, as those before do.
    fn rotates(&self, op: &Rope, step: &Step) -> bool {
        let others = &step.inputs[1..];
        let plain = |ty: &TensorType| matches!(ty.dtype, DType::I32 | DType::F32 | DType::F16 | DType::Bf16);
        let dense = others.iter().all(|other| other.ty.shape.is_dense() && plain(&other.ty));
        let is_alike = self.rope.is_none_or(|rope| {
            let same = rope.inputs.len() == step.inputs.len() && rope.op == step.op;
            same && others.iter().zip(&rope.inputs[1..]).all(|(a, b)| is_same(a, b))
        });
        dense && others[0].ty.shape[1] == 1 && op.dimensions <= step.inputs[0].ty.shape[0] && is_alike
    }

    /// Whether a step stores whole heads into a cache, at the rows that those before take.
    fn stores(&self, step: &Step, head_size: usize) -> bool {
        let (cache, x, rows) = (&step.output.ty, &step.inputs[1].ty, &step.inputs[2]);
        let type_fits = match cache.dtype {
            DType::F32 | DType::F16 => true,
            DType::Q8_0 => head_size.is_multiple_of(DType::Q8_0.block_len()),
            _ => false,
        };
        let is_alike = self
            .store
            .is_none_or(|store| is_same(&store.inputs[2], rows) && store.output.ty.shape.rows() == cache.shape.rows());
        let tokens = self.sizes.is_some_and(|[_, tokens]| tokens == x.shape[1] && tokens == rows.ty.shape.elements());
        type_fits && is_alike && tokens && cache.shape.is_dense() && rows.ty.shape.is_dense()
    }

    /// Whether no step writes what another one reads or writes, but what it reads of those before it; with products
    /// that stand before them.
    fn are_apart(&self, products: &[Step]) -> bool {
        let all: Vec<&Step> = products.iter().chain(self.steps.iter().copied()).collect();
        all.iter().enumerate().all(|(place, writer)| {
            all.iter().enumerate().all(|(other, reader)| {
                let output = &writer.output;
                let may_read = |input: &Tensor| match &reader.op {
                    // The cache is what a store writes.
                    Op::KvStore(_) if other == place => shows_all(input, output),
                    _ => other > place && shows_all(input, output),
                };
                let read = reader.inputs.iter().all(|input| !overlap(output, input) || may_read(input));
                read && (other == place || !overlap(output, &reader.output))
            })
        })
    }

    /// As kernels take it; `None` where there is no rotation, or rows are not whole heads.
    fn tail(&self, recorder: &Recorder) -> Result<Option<HeadsTail>, String> {
        let (Some([head_size, tokens]), Some(rope)) = (self.sizes, self.rope) else { return Ok(None) };
        let Op::Rope(op) = &rope.op else { return Ok(None) };
        let fits = |stream: &Stream| {
            let (elements, rows) = (stream.x.ty.shape.elements(), stream.rows(tokens));
            // A bias is one of all heads.
            let bias = stream.done[BIAS].is_none_or(|step| step.inputs[1].ty.shape[0] == rows);
            elements.is_multiple_of(tokens) && rows.is_multiple_of(head_size) && bias
        };
        // Plans count three times the heads that are rotated most.
        let rows = |stream: &Stream| stream.rows(tokens);
        let rotated = self.streams.iter().filter(|stream| stream.done[ROPE].is_some()).map(rows).max().unwrap_or(0);
        if !self.streams.iter().all(fits) || self.streams.iter().map(rows).sum::<usize>() > 3 * rotated {
            return Ok(None);
        }
        // What lay where these steps write is gone.
        for step in &self.steps {
            call(recorder, step)?;
        }
        let heads = self.streams.iter().map(|stream| heads_of(stream, tokens)).collect::<Result<_, String>>()?;
        let places = self.store.map(|store| operand(&store.inputs[2]).map(|rows| (rows, store.output.ty.shape.rows())));
        Ok(Some(HeadsTail {
            heads,
            head_size,
            tokens,
            rope: *op,
            positions: operand(&rope.inputs[1])?,
            factors: rope.inputs.get(2).map(operand).transpose()?,
            places: places.transpose()?,
            fault: self.store.map_or(0, |store| recorder.fault(store.op.name())),
        }))
    }
}

/// What a step does with heads, and to what.
fn stage(step: &Step) -> Option<(usize, &Tensor)> {
    match &step.op {
        Op::Arithmetic(Arithmetic::Add) => Some((BIAS, &step.inputs[0])),
        Op::RmsNorm(_) => Some((NORM, &step.inputs[0])),
        Op::Rope(_) => Some((ROPE, &step.inputs[0])),
        Op::KvStore(_) => Some((STORE, &step.inputs[1])),
        _ => None,
    }
}

/// Whether a tensor shows all of what another one holds, be it in other rows.
fn shows_all(a: &Tensor, b: &Tensor) -> bool {
    let same_place = Arc::ptr_eq(&a.buffer.0, &b.buffer.0) && a.offset_bytes == b.offset_bytes;
    let dense = a.ty.shape.is_dense() && b.ty.shape.is_dense();
    same_place && dense && a.ty.dtype == b.ty.dtype && a.ty.shape.elements() == b.ty.shape.elements()
}

/// Whether a norm's rows are read by 16 bytes, whose sums the kernels for heads have.
fn is_norm(step: &Step) -> bool {
    let wide = |x: &Tensor, w: &Tensor| Ok::<bool, String>(is_wide(&operand(x)?, &operand(w)?));
    wide(&step.inputs[0], &step.inputs[1]).unwrap_or(false)
}

fn heads_of(stream: &Stream, tokens: usize) -> Result<HeadsOf, String> {
    let [bias, norm, rope, store] = stream.done;
    let written = |step: &Step| Ok::<_, String>([operand(&step.inputs[1])?, operand(&step.output)?]);
    let epsilon = |step: &Step| if let Op::RmsNorm(op) = &step.op { op.epsilon } else { 0.0 };
    Ok(HeadsOf {
        x: operand(stream.x)?,
        rows: stream.rows(tokens),
        bias: bias.map(written).transpose()?,
        norm: norm.map(|step| written(step).map(|operands| (operands, epsilon(step)))).transpose()?,
        rotated: rope.map(|step| operand(&step.output)).transpose()?,
        cache: store.map(|step| operand(&step.output)).transpose()?,
    })
}
