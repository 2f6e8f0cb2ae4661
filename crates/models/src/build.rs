//! The graph builder: from a model to the graph of one batch.
//!
//! ```text
//! tokens ─ inp_embd ─┬─ attn_norm ─ Q K V (bias, head norm, rope) ─ cache ─ kq ─ soft_max ─ kqv_out ─ attn_out ─┐
//!                    └───────────────────────────────────────────────────────────────────── ffn_inp (+) ◀──────┘
//!                       ffn_inp ─┬─ ffn_norm ─ gate, up ─ swiglu ─ ffn_out ─┐
//!                                └───────────────────────────── l_out (+) ◀─┘ ... result_norm ─ result_output
//! ```
//!
//! Each part builds its nodes (`part/`); this file contains the shared functions and the order of the parts.

use crate::model::Model;
use crate::part::norm::NamedNorm;
use crate::spec::{Arrangement, FeedForward, LayerSpec, Mixer, ModelResult, ModelSpec, Pooling, Residual};
use crate::tensor::tensor_name;
use trueup_blocks::DType;
use trueup_graph::op::{Arithmetic, KvMix, MulMat, MulMatId, Unary};
use trueup_graph::{Graph, Input, Op, ShapeError, StateKind, TensorType, ValueId};

/// The sizes that a graph is made for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Batch {
    /// Tokens computed at once, of all sequences together.
    pub tokens: usize,
    /// Tokens whose logits are computed.
    pub outputs: usize,
    /// KV cache rows that attention reads: at least the smaller of the longest sequence and `context`.
    pub capacity: usize,
    /// Rows of the KV cache for each sequence. Fewer than the positions only if every attention layer has a window.
    pub context: usize,
    /// Rows for each sequence in layers with a sliding window, at most `context`. If there are fewer rows than
    /// positions, they are reused as a [ring](StateKind::Ring), which must hold the windows of all tokens of the batch.
    pub ring: usize,
    /// Sequences of the KV cache.
    pub sequences: usize,
    /// Sequences in the batch if a layer is recurrent (each has the same number of consecutive tokens); otherwise 1.
    pub streams: usize,
    /// Whether the texts are [long](ModelSpec::is_long).
    pub is_long: bool,
    /// The part of the model that is computed.
    pub stage: Stage,
    /// The type of activations: `F64` on the `ref` device, otherwise `F32`.
    pub activation: DType,
    /// The type of the KV cache.
    pub kv: DType,
}

/// A part of a model that computes tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// The encoder of an encoder-decoder model, and the keys and values that the decoder computes from its output.
    Encoder,
    /// The decoder of an encoder-decoder model, or a whole model of another kind.
    Decoder {
        /// Encoder positions that attention reads; 0 in a model without an encoder.
        source: usize,
    },
    /// The layers of a decoder from `first_layer` on, and the head. The input is the residual stream before that layer.
    Rest {
        /// The first layer, from 0.
        first_layer: usize,
    },
}

impl Batch {
    /// Encoder positions that attention reads.
    pub(crate) fn source(&self) -> usize {
        match self.stage {
            Stage::Encoder | Stage::Rest { .. } => 0,
            Stage::Decoder { source } => source,
        }
    }

    /// Rows of a recurrent state: a row of zeros, the initial state, and one row for each sequence.
    pub(crate) fn slots(&self) -> usize {
        self.sequences.saturating_add(1)
    }
}

/// A node's output, or a shape error.
pub(crate) type Built = Result<ValueId, ShapeError>;

pub(crate) fn graph(model: &Model, batch: &Batch) -> Result<Graph, ShapeError> {
    let spec = model.spec();
    let stack = spec.prefix_of_layers();
    let mut builder = Builder { model, batch, graph: Graph::default(), layer: None, stack, nodes: "" };
    if let (Some(encoder), Stage::Encoder) = (&spec.encoder, batch.stage) {
        encoder.build(&mut builder, spec)?;
        return Ok(builder.graph);
    }
    let first_layer = if let Stage::Rest { first_layer } = batch.stage { first_layer } else { 0 };
    let mut stream = match batch.stage {
        Stage::Rest { .. } => builder.input(Input::Stream),
        Stage::Encoder | Stage::Decoder { .. } => embedding(&mut builder, spec)?,
    };
    for (number, layer) in spec.layers.iter().enumerate().skip(first_layer) {
        builder.layer = Some(number);
        stream = layer.build(&mut builder, stream)?;
    }
    builder.layer = None;
    head(&mut builder, spec, stream)?;
    Ok(builder.graph)
}

/// The residual stream before the first layer, `[hidden size, tokens]`.
pub(crate) fn embedding(builder: &mut Builder, spec: &ModelSpec) -> Built {
    let rows = Op::get_rows(builder.batch.activation);
    let tokens = builder.input(Input::Tokens);
    let table = builder.weight("token_embd", "weight");
    let mut stream = builder.node("inp_embd", rows, &[table, tokens])?;
    if let Some(scale) = spec.embedding.scale {
        stream = builder.scaled("inp_scaled", scale, stream)?;
    }
    if spec.embedding.positions.is_some() {
        let positions = builder.input(Input::Positions);
        let table = builder.weight("position_embd", "weight");
        let position = builder.node("inp_position", Op::get_rows(builder.batch.activation), &[table, positions])?;
        stream = builder.node("inp_sum", Arithmetic::Add, &[stream, position])?;
    }
    if spec.embedding.token_types.is_some() {
        let types = builder.input(Input::TokenTypes);
        let table = builder.weight("token_types", "weight");
        let types = builder.node("inp_type", Op::get_rows(builder.batch.activation), &[table, types])?;
        stream = builder.node("inp_typed", Arithmetic::Add, &[stream, types])?;
    }
    match &spec.embedding.norm {
        Some(norm) => norm.build(builder, "inp_norm", stream, "token_embd_norm"),
        None => Ok(stream),
    }
}

/// The rows of the residual stream whose logits are computed, `[hidden size, outputs]`, or one row for each text.
fn rows(builder: &mut Builder, spec: &ModelSpec, stream: ValueId) -> Built {
    let select = Op::get_rows(builder.batch.activation);
    let wanted = |builder: &mut Builder| builder.input(Input::OutputRows);
    match spec.head.result {
        ModelResult::Logits => unreachable!("logits have a head"),
        ModelResult::Hidden => {
            let wanted = wanted(builder);
            builder.node("result_embd", select, &[stream, wanted])
        }
        ModelResult::Pooled(Pooling::First | Pooling::Last) => {
            let wanted = wanted(builder);
            builder.node("result_embd_pooled", select, &[stream, wanted])
        }
        ModelResult::Pooled(Pooling::Mean) => {
            let shares = builder.input(Input::PoolShares);
            let whole = builder.input(Input::PoolBatch);
            builder.node("result_embd_pooled", KvMix { kv_heads: 1 }, &[shares, stream, whole])
        }
    }
}

/// Logits, `[vocabulary size, outputs]`, or the result of a model without logits.
fn head(builder: &mut Builder, spec: &ModelSpec, stream: ValueId) -> Built {
    let head = &spec.head;
    if !spec.has_logits() {
        let stream = match &head.norm {
            Some(norm) => norm.build(builder, "result_norm", stream, "output_norm")?,
            None => stream,
        };
        return rows(builder, spec, stream);
    }
    let wanted = builder.input(Input::OutputRows);
    let mut value = builder.node("result_rows", Op::get_rows(builder.batch.activation), &[stream, wanted])?;
    if let Some(norm) = &head.norm {
        value = norm.build(builder, "result_norm", value, spec.output_norm())?;
    }
    let matrix = builder.weight(if head.is_tied { "token_embd" } else { "output" }, "weight");
    let has_changes = head.has_bias || head.scale.is_some() || head.softcap.is_some();
    value = builder.node(if has_changes { "result_product" } else { "result_output" }, MulMat, &[matrix, value])?;
    if head.has_bias {
        let is_last = head.scale.is_none() && head.softcap.is_none();
        let bias = builder.weight("output", "bias");
        value = builder.node(if is_last { "result_output" } else { "result_bias" }, Arithmetic::Add, &[value, bias])?;
    }
    let Some(cap) = head.softcap else {
        return head.scale.map_or(Ok(value), |scale| builder.scaled("result_output", scale, value));
    };
    let inner = head.scale.unwrap_or(1.0) / cap;
    value = builder.scaled("result_inner", inner, value)?;
    value = builder.node("result_tanh", Unary::Tanh, &[value])?;
    builder.scaled("result_output", cap, value)
}

impl LayerSpec {
    /// One layer: `stream` `[hidden size, tokens]` to the same.
    pub(crate) fn build(&self, builder: &mut Builder, stream: ValueId) -> Built {
        let arrangement = &self.arrangement;
        let norm = |norm: &Option<NamedNorm>, builder: &mut Builder, x| match norm {
            Some(norm) => norm.build(builder, x),
            None => Ok(x),
        };
        let normed = norm(&arrangement.before_mixer, builder, stream)?;
        let mixed = match &self.mixer {
            Mixer::Attention(attention) => attention.build(builder, normed)?,
            Mixer::StateSpace(state_space) => state_space.build(builder, normed)?,
        };
        let mixed = if arrangement.norms_sums { mixed } else { norm(&arrangement.after_mixer, builder, mixed)? };
        if self.feed_forward == FeedForward::None {
            return self.added(builder, "l_out", mixed, "attn_norm", [stream, normed]);
        }
        if arrangement.is_parallel {
            let input = match &arrangement.before_feed_forward {
                Some(norm) => norm.build(builder, stream)?,
                None => normed,
            };
            let fed = self.feed_forward.build(builder, input)?;
            let fed = norm(&arrangement.after_feed_forward, builder, fed)?;
            let both = builder.node("attn_ffn", Arithmetic::Add, &[mixed, fed])?;
            return self.added(builder, "l_out", both, "attn_norm", [stream, normed]);
        }
        if arrangement.norms_sums {
            return self.build_with_normed_sums(builder, stream, mixed);
        }
        let middle = match &self.cross {
            None => self.added(builder, "ffn_inp", mixed, "attn_norm", [stream, normed])?,
            Some(cross) => {
                let stream = self.added(builder, "cross_inp", mixed, "attn_norm", [stream, normed])?;
                let looked = cross.build(builder, stream)?;
                builder.node("ffn_inp", Arithmetic::Add, &[looked, stream])?
            }
        };
        let normed = norm(&arrangement.before_feed_forward, builder, middle)?;
        let fed = self.feed_forward.build(builder, normed)?;
        let fed = norm(&arrangement.after_feed_forward, builder, fed)?;
        self.added(builder, "l_out", fed, "ffn_norm", [middle, normed])
    }

    /// The rest of a layer after its mixer, if the norms apply to the sums with the residual stream.
    fn build_with_normed_sums(&self, builder: &mut Builder, stream: ValueId, mixed: ValueId) -> Built {
        let Arrangement { after_mixer, after_feed_forward, .. } = &self.arrangement;
        let norm = |norm: &Option<NamedNorm>, builder: &mut Builder, x| match norm {
            Some(norm) => norm.build(builder, x),
            None => Ok(x),
        };
        let sum = self.added(builder, "attn_sum", mixed, "attn_norm", [stream, stream])?;
        let middle = norm(after_mixer, builder, sum)?;
        let fed = self.feed_forward.build(builder, middle)?;
        let sum = self.added(builder, "ffn_sum", fed, "ffn_norm", [middle, middle])?;
        norm(after_feed_forward, builder, sum)
    }

    /// `y` added to the residual stream, or to the tensor that replaces it; `node` names the sum, `norm` the norm's
    /// node.
    fn added(
        &self,
        builder: &mut Builder,
        node: &str,
        y: ValueId,
        norm: &str,
        [stream, normed]: [ValueId; 2],
    ) -> Built {
        match self.residual {
            Residual::Stream => builder.node(node, Arithmetic::Add, &[y, stream]),
            Residual::Scaled(factor) => {
                let scaled = builder.scaled(&format!("{node}_scaled"), factor, y)?;
                builder.node(node, Arithmetic::Add, &[scaled, stream])
            }
            Residual::ScaledNorm(factor) => {
                let scaled = builder.scaled(&format!("{norm}_alpha"), factor, normed)?;
                builder.node(node, Arithmetic::Add, &[y, scaled])
            }
        }
    }
}

impl FeedForward {
    /// `x` `[hidden size, tokens]` to the same.
    fn build(&self, builder: &mut Builder, x: ValueId) -> Built {
        match self {
            FeedForward::Dense(dense) => dense.build(builder, x),
            FeedForward::Experts(experts) => experts.build(builder, x),
            FeedForward::None => unreachable!("a layer without a feed-forward has no such node"),
        }
    }
}

/// A graph under construction.
pub(crate) struct Builder<'a> {
    model: &'a Model,
    batch: &'a Batch,
    graph: Graph,
    layer: Option<usize>,
    /// Prefix of tensor names in layers.
    stack: &'static str,
    /// Prefix of node names.
    nodes: &'static str,
}

impl Builder<'_> {
    /// The sizes of the batch.
    pub fn batch(&self) -> &Batch {
        self.batch
    }

    /// The current layer; `None` outside of the layers.
    pub fn layer(&self) -> Option<usize> {
        self.layer
    }

    /// Continues with a layer, or outside of the layers.
    pub fn enter(&mut self, layer: Option<usize>) {
        self.layer = layer;
    }

    /// Continues with another stack of layers, whose tensor and node names have these prefixes.
    pub fn enter_stack(&mut self, tensors: &'static str, nodes: &'static str) {
        (self.stack, self.nodes) = (tensors, nodes);
    }

    /// The node of this name in the first layer of the stack.
    pub fn of_first_layer(&self, name: &str) -> Option<ValueId> {
        self.graph.find(&format!("{}{name}-0", self.nodes))
    }

    /// Elements of the residual stream.
    pub fn hidden_size(&self) -> usize {
        self.model.spec().hidden_size()
    }

    /// `x` times `factor`.
    pub fn scaled(&mut self, name: &str, factor: f32, x: ValueId) -> Built {
        self.node(name, Unary::Scale { factor, bias: 0.0 }, &[x])
    }

    /// A matrix applied to each token, plus its bias if there is one.
    pub fn project(&mut self, name: &str, stem: &str, x: ValueId, has_bias: bool) -> Built {
        let y = self.product(name, stem, x)?;
        self.biased(name, stem, y, has_bias)
    }

    /// A matrix applied to each token.
    pub fn product(&mut self, name: &str, stem: &str, x: ValueId) -> Built {
        let weight = self.weight(stem, "weight");
        self.node(name, MulMat, &[weight, x])
    }

    /// The matrices of the experts `ids` `[used, tokens]` applied to `x` `[inputs, used or 1, tokens]`.
    pub fn chosen(&mut self, name: &str, stem: &str, x: ValueId, ids: ValueId) -> Built {
        let weight = self.weight(stem, "weight");
        self.node(name, MulMatId, &[weight, x, ids])
    }

    /// `y` plus the bias of its projection if there is one.
    pub fn biased(&mut self, name: &str, stem: &str, y: ValueId, has_bias: bool) -> Built {
        if !has_bias {
            return Ok(y);
        }
        let bias = self.weight(stem, "bias");
        self.node(&format!("{name}_bias"), Arithmetic::Add, &[y, bias])
    }

    /// A tensor of this layer. [`Model::from_gguf`] has checked that every tensor that the parts declare exists.
    pub fn weight(&mut self, stem: &str, suffix: &str) -> ValueId {
        self.weight_named(tensor_name(self.stack, self.layer, stem, suffix))
    }

    /// A tensor outside of the layers.
    pub fn weight_outside(&mut self, stem: &str, suffix: &str) -> ValueId {
        self.weight_named(tensor_name("", None, stem, suffix))
    }

    fn weight_named(&mut self, name: String) -> ValueId {
        let ty = self.model.weight(&name).unwrap_or_else(|| unreachable!("no part declares {name}"));
        self.graph.weight(&name, ty)
    }

    /// A recurrent state of this layer.
    pub fn state(&mut self, name: &str, ty: TensorType) -> ValueId {
        let name = self.name(name);
        self.graph.state(&name, StateKind::Recurrent, ty)
    }

    /// A state of this layer with rows of this many elements for each sequence.
    pub fn cache(&mut self, name: &str, kind: StateKind, elements: usize) -> ValueId {
        let Batch { kv, context, ring, sequences, .. } = *self.batch;
        let name = self.name(name);
        let ty = kind.with_room(&TensorType::new(kv, &[elements, context, sequences]), context, ring);
        self.graph.state(&name, kind, ty)
    }

    /// Rows of a cache of this kind that attention reads.
    pub fn capacity(&self, kind: StateKind) -> usize {
        let Batch { capacity, ring, .. } = *self.batch;
        if kind == StateKind::Ring { capacity.min(ring) } else { capacity }
    }

    /// An input, added to the graph when it is first needed.
    pub fn input(&mut self, input: Input) -> ValueId {
        let Batch { tokens, outputs, capacity, streams, .. } = *self.batch;
        let window_rows = self.capacity(StateKind::Ring);
        let ty = match input {
            Input::Tokens
            | Input::Positions
            | Input::TokenTypes
            | Input::Sequences
            | Input::WholeBatch
            | Input::KvRows
            | Input::KvRowsWindow => TensorType::new(DType::I32, &[tokens]),
            Input::PositionPairs => TensorType::new(DType::I32, &[tokens, 2]),
            Input::OutputRows | Input::PoolBatch => TensorType::new(DType::I32, &[outputs]),
            Input::StateSources | Input::StateTargets => TensorType::new(DType::I32, &[streams]),
            Input::Mask | Input::MaskDistance | Input::MaskPrefix => TensorType::new(DType::F32, &[capacity, tokens]),
            Input::MaskWindow => TensorType::new(DType::F32, &[window_rows, tokens]),
            Input::MaskSource => TensorType::new(DType::F32, &[self.batch.source(), tokens]),
            Input::Buckets => TensorType::new(DType::I32, &[capacity.saturating_mul(tokens)]),
            Input::BucketsText => TensorType::new(DType::I32, &[tokens.saturating_mul(tokens)]),
            Input::MaskText => TensorType::new(DType::F32, &[tokens, tokens]),
            Input::PoolShares => TensorType::new(self.batch.activation, &[tokens, outputs]),
            Input::Stream => TensorType::new(self.batch.activation, &[self.hidden_size(), tokens]),
        };
        self.graph.find(input.name()).unwrap_or_else(|| self.graph.input(input, ty))
    }

    /// Adds a node of this layer.
    pub fn node(&mut self, name: &str, op: impl Into<Op>, inputs: &[ValueId]) -> Built {
        self.graph.node(self.name(name), self.layer, op.into(), inputs)
    }

    /// The name followed by the layer's number.
    fn name(&self, name: &str) -> String {
        let name = format!("{}{name}", self.nodes);
        self.layer.map_or_else(|| name.clone(), |layer| format!("{name}-{layer}"))
    }
}
