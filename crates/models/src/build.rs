//! The graph builder: from the parts of an architecture and a model config to the graph of a batch.
//!
//! ```text
//! tokens ─ inp_embd ─┬─ attn_norm ─ Q K V (bias, head norm, rope) ─ cache ─ kq ─ soft_max ─ kqv_out ─ attn_out ─┐
//!                    └───────────────────────────────────────────────────────────────────── ffn_inp (+) ◀──────┘
//!                       ffn_inp ─┬─ ffn_norm ─ gate, up ─ swiglu ─ ffn_out ─┐
//!                                └───────────────────────────── l_out (+) ◀─┘ ... result_norm ─ result_output
//! ```

use crate::architecture::{FeedForward, Norm, Residual};
use crate::model::Model;
use crate::number::{nearest_f32, real};
use crate::role::Role;
use trueup_blocks::DType;
use trueup_graph::op::{
    self, Arithmetic, Gated, KvMix, KvScores, KvStore, MulMat, NormRule, RmsNorm, Rope, SoftMax, Unary,
};
use trueup_graph::{Graph, Input, Op, ShapeError, TensorType, ValueId};

/// The sizes that a graph is made for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Batch {
    /// Tokens computed at once, of all sequences together.
    pub tokens: usize,
    /// Tokens whose logits are wanted.
    pub outputs: usize,
    /// Positions of the KV cache that are looked at: at least the longest sequence, at most `context`.
    pub capacity: usize,
    /// Positions of the KV cache of each sequence.
    pub context: usize,
    /// Sequences of the KV cache.
    pub sequences: usize,
    /// The type of activations: `F32`, on the oracle `F64`.
    pub activation: DType,
    /// The type of the KV cache.
    pub kv: DType,
}

/// A node's output, or which shapes do not fit.
type Built = Result<ValueId, ShapeError>;

pub(crate) fn graph(model: &Model, batch: &Batch) -> Result<Graph, ShapeError> {
    let mut builder = Builder { model, batch, graph: Graph::default(), layer: None };
    let tokens = builder.input(Input::Tokens);
    let embedding = builder.weight(Role::TokenEmbedding);
    let mut stream = builder.node("inp_embd", Op::get_rows(batch.activation), &[embedding, tokens])?;
    for layer in 0..model.hyper().layers() {
        builder.layer = Some(layer);
        stream = builder.layer(stream)?;
    }
    builder.layer = None;
    let wanted = builder.input(Input::OutputRows);
    let rows = builder.node("result_rows", Op::get_rows(batch.activation), &[stream, wanted])?;
    let normed = builder.norm("result_norm", rows, Role::OutputNorm)?;
    let head = if model.hyper().is_tied() { Role::TokenEmbedding } else { Role::Output };
    let head = builder.weight(head);
    if builder.weight_type(Role::OutputBias).is_none() {
        builder.node("result_output", MulMat, &[head, normed])?;
        return Ok(builder.graph);
    }
    let product = builder.node("result_product", MulMat, &[head, normed])?;
    let bias = builder.weight(Role::OutputBias);
    builder.node("result_output", Arithmetic::Add, &[product, bias])?;
    Ok(builder.graph)
}

/// A graph in the making, at one layer or outside of all.
struct Builder<'a> {
    model: &'a Model,
    batch: &'a Batch,
    graph: Graph,
    layer: Option<usize>,
}

/// The roles of one projection.
struct Projection {
    weight: Role,
    bias: Role,
    norm: Option<Role>,
}

const QUERY: Projection = Projection { weight: Role::Query, bias: Role::QueryBias, norm: Some(Role::QueryNorm) };
const KEY: Projection = Projection { weight: Role::Key, bias: Role::KeyBias, norm: Some(Role::KeyNorm) };
const VALUE: Projection = Projection { weight: Role::Value, bias: Role::ValueBias, norm: None };
const ATTENTION_OUTPUT: Projection =
    Projection { weight: Role::AttentionOutput, bias: Role::AttentionOutputBias, norm: None };
const GATE: Projection = Projection { weight: Role::FfnGate, bias: Role::FfnGateBias, norm: None };
const UP: Projection = Projection { weight: Role::FfnUp, bias: Role::FfnUpBias, norm: None };
const DOWN: Projection = Projection { weight: Role::FfnDown, bias: Role::FfnDownBias, norm: None };

impl Builder<'_> {
    /// One block: `stream` `[width, tokens]` to the same.
    fn layer(&mut self, stream: ValueId) -> Built {
        let normed = self.norm("attn_norm", stream, Role::AttentionNorm)?;
        let attention = self.attention(normed)?;
        if self.model.architecture().parts.is_parallel {
            let fed = self.feed_forward(normed)?;
            let both = self.node("attn_ffn", Arithmetic::Add, &[attention, fed])?;
            return self.node("l_out", Arithmetic::Add, &[both, stream]);
        }
        let kept = self.residual("attn_norm", stream, normed)?;
        let middle = self.node("ffn_inp", Arithmetic::Add, &[attention, kept])?;
        let normed = self.norm("ffn_norm", middle, Role::FfnNorm)?;
        let fed = self.feed_forward(normed)?;
        let kept = self.residual("ffn_norm", middle, normed)?;
        self.node("l_out", Arithmetic::Add, &[fed, kept])
    }

    /// What a result is added to: `stream`, or what its norm made of it.
    fn residual(&mut self, norm: &str, stream: ValueId, normed: ValueId) -> Built {
        match self.model.architecture().parts.residual {
            Residual::Stream => Ok(stream),
            Residual::ScaledNorm => {
                let factor = nearest_f32((2.0 * real(self.model.hyper().layers())).sqrt());
                self.scaled(&format!("{norm}_alpha"), factor, normed)
            }
        }
    }

    fn scaled(&mut self, name: &str, factor: f32, x: ValueId) -> Built {
        self.node(name, Unary::Scale { factor, bias: 0.0 }, &[x])
    }

    /// Attention over the cache: `x` `[width, tokens]` to the same.
    fn attention(&mut self, x: ValueId) -> Built {
        let hyper = self.model.hyper();
        let (head_size, heads, kv_heads) = (hyper.head_size(), hyper.heads(), hyper.kv_heads());
        // Nodes of one kind stand side by side: a device may compute such neighbours at once.
        let query = self.product("Qcur", &QUERY, x)?;
        let key = self.product("Kcur", &KEY, x)?;
        let value = self.product("Vcur", &VALUE, x)?;
        let query = self.biased("Qcur", &QUERY, query)?;
        let key = self.biased("Kcur", &KEY, key)?;
        let value = self.biased("Vcur", &VALUE, value)?;
        let query = self.heads("Qcur", &QUERY, query, heads)?;
        let key = self.heads("Kcur", &KEY, key, kv_heads)?;
        let (query, key) = match hyper.alibi() {
            Some(_) => (query, key),
            None => (self.rotated("Qcur", query)?, self.rotated("Kcur", key)?),
        };

        let key = self.node("Kcur_rows", Op::reshape(&[hyper.kv_elements(), self.batch.tokens]), &[key])?;
        let keys = self.store("k", key)?;
        let values = self.store("v", value)?;

        let sequences = self.input(Input::Sequences);
        let scale = 1.0 / real(head_size).sqrt();
        let kq = KvScores { capacity: self.batch.capacity };
        let weights = if hyper.prefix().is_some() {
            // What the division keeps small in f16 is multiplied back behind the mask.
            let coefficient = real(self.layer.unwrap_or(0)) + 1.0;
            let query = self.scaled("Qcur_scaled", nearest_f32(scale / coefficient), query)?;
            let scores = self.node("kq", kq, &[query, keys, sequences])?;
            let mask = self.mask();
            let masked = self.node("kq_masked", Arithmetic::Add, &[scores, mask])?;
            let scores = self.scaled("kq_scaled", nearest_f32(coefficient), masked)?;
            self.node("kq_soft_max", SoftMax { scale: 1.0, max_bias: 0.0 }, &[scores])?
        } else {
            let scores = self.node("kq", kq, &[query, keys, sequences])?;
            let (mask, max_bias) = (self.mask(), hyper.alibi().unwrap_or(0.0));
            self.node("kq_soft_max", SoftMax { scale: nearest_f32(scale), max_bias }, &[scores, mask])?
        };
        let mixed = self.node("kqv_out", KvMix { kv_heads }, &[weights, values, sequences])?;
        self.project("attn_out", &ATTENTION_OUTPUT, mixed)
    }

    /// What this layer's tokens see.
    fn mask(&mut self) -> ValueId {
        let hyper = self.model.hyper();
        let has_window = self
            .layer
            .is_some_and(|layer| hyper.window().is_some_and(|window| window.layers().get(layer) == Some(&true)));
        if hyper.prefix().is_some() {
            return self.input(Input::MaskPrefix);
        }
        self.input(match (hyper.alibi(), has_window) {
            (Some(_), _) => Input::MaskDistance,
            (None, true) => Input::MaskWindow,
            (None, false) => Input::Mask,
        })
    }

    /// Heads of a projection `[head size * heads, tokens]`, normed where the model does that: `[head size, heads,
    /// tokens]`.
    fn heads(&mut self, name: &str, projection: &Projection, flat: ValueId, heads: usize) -> Built {
        let hyper = self.model.hyper();
        let shape = Op::reshape(&[hyper.head_size(), heads, self.batch.tokens]);
        let split = self.node(&format!("{name}_heads"), shape, &[flat])?;
        match projection.norm.filter(|norm| self.weight_type(*norm).is_some()) {
            None => Ok(split),
            Some(norm) => self.norm(&format!("{name}_normed"), split, norm),
        }
    }

    /// Heads turned by their positions.
    fn rotated(&mut self, name: &str, heads: ValueId) -> Built {
        let rope = self.model.hyper().rope();
        let op = Rope {
            pairs: self.model.architecture().parts.pairs,
            dimensions: rope.dimensions,
            base: rope.base,
            scaling: rope.scaling,
        };
        let has_pairs = self.model.hyper().prefix().is_some();
        let mut inputs = vec![heads, self.input(if has_pairs { Input::PositionPairs } else { Input::Positions })];
        if let Some(ty) = self.model.weight(Role::RopeFactors, 0) {
            inputs.push(self.graph.weight(&Role::RopeFactors.name(0), ty));
        }
        self.node(&format!("{name}_rope"), op, &inputs)
    }

    /// A matrix applied to each token, plus its bias where the model has one.
    fn project(&mut self, name: &str, projection: &Projection, x: ValueId) -> Built {
        let y = self.product(name, projection, x)?;
        self.biased(name, projection, y)
    }

    fn product(&mut self, name: &str, projection: &Projection, x: ValueId) -> Built {
        let weight = self.weight(projection.weight);
        self.node(name, MulMat, &[weight, x])
    }

    fn biased(&mut self, name: &str, projection: &Projection, y: ValueId) -> Built {
        if self.weight_type(projection.bias).is_none() {
            return Ok(y);
        }
        let bias = self.weight(projection.bias);
        self.node(&format!("{name}_bias"), Arithmetic::Add, &[y, bias])
    }

    /// Puts `x` `[head size * kv heads, tokens]` into the cache of keys (`k`) or values (`v`).
    fn store(&mut self, which: &str, x: ValueId) -> Built {
        let hyper = self.model.hyper();
        let sizes = [hyper.kv_elements(), self.batch.context, self.batch.sequences];
        let state = self.graph.state(&self.name(&format!("kv_{which}")), TensorType::new(self.batch.kv, &sizes));
        let rows = self.input(Input::KvRows);
        self.node(&format!("cache_{which}"), KvStore, &[state, x, rows])
    }

    fn feed_forward(&mut self, x: ValueId) -> Built {
        match self.model.architecture().parts.feed_forward {
            FeedForward::GatedSilu => {
                let gate = self.project("ffn_gate", &GATE, x)?;
                let up = self.project("ffn_up", &UP, x)?;
                let hidden = self.node("ffn_swiglu", Gated::Swiglu, &[gate, up])?;
                self.project("ffn_out", &DOWN, hidden)
            }
            FeedForward::Gelu => {
                let up = self.project("ffn_up", &UP, x)?;
                let hidden = self.node("ffn_gelu", Unary::Gelu, &[up])?;
                self.project("ffn_out", &DOWN, hidden)
            }
        }
    }

    fn norm(&mut self, name: &str, x: ValueId, role: Role) -> Built {
        let epsilon = self.model.hyper().epsilon();
        match self.model.architecture().parts.norm {
            Norm::Rms => {
                let weight = self.weight(role);
                self.node(name, RmsNorm { epsilon }, &[x, weight])
            }
            Norm::Layer => {
                let normed = self.node(&format!("{name}_plain"), op::Norm { rule: NormRule::Layer, epsilon }, &[x])?;
                let weight = self.weight(role);
                let bias = role.bias().map(|bias| self.weight(bias));
                let scaled = if bias.is_some() { format!("{name}_w") } else { name.to_owned() };
                let weighted = self.node(&scaled, Arithmetic::Mul, &[normed, weight])?;
                bias.map_or(Ok(weighted), |bias| self.node(name, Arithmetic::Add, &[weighted, bias]))
            }
        }
    }

    /// The tensor of a role in this layer. Roles of every model are there (checked by [`Model::from_gguf`]); optional
    /// ones are asked for only after [`Builder::weight_type`].
    fn weight(&mut self, role: Role) -> ValueId {
        let ty = self.weight_type(role).unwrap_or_else(|| unreachable!("a model without {role:?}"));
        self.graph.weight(&role.name(self.layer.unwrap_or(0)), ty)
    }

    fn weight_type(&self, role: Role) -> Option<TensorType> {
        self.model.weight(role, self.layer.unwrap_or(0))
    }

    /// The input, added when it is first asked for.
    fn input(&mut self, input: Input) -> ValueId {
        let Batch { tokens, outputs, capacity, .. } = *self.batch;
        let ty = match input {
            Input::Tokens | Input::Positions | Input::Sequences | Input::KvRows => {
                TensorType::new(DType::I32, &[tokens])
            }
            Input::PositionPairs => TensorType::new(DType::I32, &[tokens, 2]),
            Input::OutputRows => TensorType::new(DType::I32, &[outputs]),
            Input::Mask | Input::MaskWindow | Input::MaskDistance | Input::MaskPrefix => {
                TensorType::new(DType::F32, &[capacity, tokens])
            }
        };
        self.graph.find(input.name()).unwrap_or_else(|| self.graph.input(input, ty))
    }

    fn node(&mut self, name: &str, op: impl Into<Op>, inputs: &[ValueId]) -> Built {
        self.graph.node(self.name(name), self.layer, op.into(), inputs)
    }

    /// The name with the layer behind it.
    fn name(&self, name: &str) -> String {
        self.layer.map_or_else(|| name.to_owned(), |layer| format!("{name}-{layer}"))
    }
}
