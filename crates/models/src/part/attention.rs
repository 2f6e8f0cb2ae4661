//! Attention over a cache of keys and values.
//!
//! ```text
//! x ─ Q K V (bias, clamp, head norm, rope) ─ cache ─ kq ─ (softcap) ─ soft_max ─ kqv_out ─ attn_out
//! ```

use crate::build::{Batch, Builder, Built};
use crate::diagnostics::Diagnostics;
use crate::encoder_decoder::Buckets;
use crate::number::{nearest_f32, real};
use crate::part::latent::Latent;
use crate::part::norm::Norm;
use crate::rope::RopeSpec;
use crate::tensor::{TensorKind, TensorList};
use trueup_graph::op::{Arithmetic, Arrange, KvMix, KvScores, KvStore, Op, Rope, SoftMax, Unary};
use trueup_graph::{Input, ShapeError, StateKind, ValueId};

/// The table of biases for relative positions, by bucket and head.
const TABLE: &str = "attn_rel_b";
/// Norm of the concatenated head outputs.
const OUTPUT_NORM: &str = "attn_sub_norm";

/// The attention of one layer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Attention {
    /// Number of attention heads; a multiple of `kv_heads`.
    pub heads: usize,
    /// Number of KV heads.
    pub kv_heads: usize,
    /// Size of a head of queries and keys.
    pub key_size: usize,
    /// Size of a head of values.
    pub value_size: usize,
    pub position: Position,
    /// A token at position `p` attends to positions `j <= p` with `p - j < window`, or to all `j <= p` if `None`.
    pub window: Option<usize>,
    /// Multiplier for the scores: `1 / sqrt(key_size)` in most models.
    pub scale: f64,
    /// Scores become `cap tanh(score / cap)` before the mask.
    pub softcap: Option<f32>,
    /// Queries, keys and values are clamped to `-clamp ..= clamp`.
    pub clamp: Option<f32>,
    /// Whether queries and keys are clamped after the norm of heads instead of before it.
    pub is_clamped_after_norm: bool,
    pub head_norm: Option<HeadNorm>,
    pub has_bias: bool,
    pub has_output_bias: bool,
    /// Whether queries, keys and values are the rows of one tensor, `attn_qkv`.
    pub is_fused: bool,
    /// Norm of the concatenated head outputs, before the output matrix.
    pub output_norm: Option<Norm>,
    /// The stem of the output matrix.
    pub output: &'static str,
    /// Whether the prefix of a text attends bidirectionally (prefix LM). Scores are then divided by `layer + 1` before
    /// the mask is added, and multiplied by `layer + 1` afterwards.
    pub has_prefix: bool,
    /// Whether every token attends to the whole text. Keys and values are then used directly, without a cache.
    pub is_bidirectional: bool,
    /// Latent attention: keys and values are computed from a shorter vector. The sizes above are those of the cache.
    pub latent: Option<Box<Latent>>,
}

/// Position encoding.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Position {
    /// Queries and keys are rotated (RoPE, Su et al. 2021).
    Rope(RopeSpec),
    /// Scores decrease with distance (ALiBi, Press et al. 2022).
    Alibi(Alibi),
    /// A learned bias is added to scores, by head and bucket of the distance (Raffel et al. 2020). Layers without a
    /// table use that of the first layer.
    Buckets { buckets: Buckets, has_table: bool },
    /// No position encoding.
    None,
}

/// The bias of scores: `-scale * slope * distance`, with a slope for each head.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Alibi {
    /// Largest exponent of the slopes: head `i` has the slope `2^(-max_bias i / heads)`.
    pub max_bias: f32,
    /// Multiplier for all slopes; 1 in most models.
    pub scale: f32,
}

impl Position {
    /// ALiBi with the scale 1.
    pub const fn alibi(max_bias: f32) -> Position {
        Position::Alibi(Alibi { max_bias, scale: 1.0 })
    }
}

/// The norm of queries and keys before the rotation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct HeadNorm {
    pub norm: Norm,
    pub span: HeadSpan,
}

/// The elements that a norm of queries and keys covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeadSpan {
    /// Each head separately, with the same weights for all heads.
    Head,
    /// Each head separately, with separate weights.
    EachHead,
    /// All heads together.
    AllHeads,
}

impl Attention {
    /// Elements of a token's queries.
    pub fn query_elements(&self) -> usize {
        self.heads.saturating_mul(self.key_size)
    }

    /// Elements of a token's keys.
    pub fn key_elements(&self) -> usize {
        self.kv_heads.saturating_mul(self.key_size)
    }

    /// Elements of a token's values.
    pub fn value_elements(&self) -> usize {
        self.kv_heads.saturating_mul(self.value_size)
    }

    /// Whether the values are the first elements of the keys, so that the keys alone are cached.
    pub fn has_values_in_keys(&self) -> bool {
        self.latent.as_ref().is_some_and(|latent| latent.is_split) && !self.is_bidirectional
    }

    /// How positions are addressed in its cache.
    pub fn cache_kind(&self) -> StateKind {
        if self.window.is_some() { StateKind::Ring } else { StateKind::Rows }
    }

    /// Elements of the concatenated head outputs.
    pub fn output_elements(&self) -> usize {
        match &self.latent {
            Some(latent) => latent.output_elements(self.heads),
            None => self.mixed_elements(),
        }
    }

    /// Elements of the weighted sums of cached values; of whole keys if the keys begin with the values.
    fn mixed_elements(&self) -> usize {
        let size = if self.has_values_in_keys() { self.key_size } else { self.value_size };
        self.heads.saturating_mul(size)
    }

    /// The longest row of its activations, except scores.
    pub fn widest_row(&self) -> usize {
        self.query_elements().max(self.mixed_elements()).max(self.output_elements())
    }

    /// The rotation of heads, if there is one.
    pub fn rope(&self) -> Option<&RopeSpec> {
        match &self.position {
            Position::Rope(rope) => Some(rope),
            Position::Alibi(_) | Position::Buckets { .. } | Position::None => None,
        }
    }

    fn parts(&self) -> [(&'static str, usize); 3] {
        [("attn_q", self.query_elements()), ("attn_k", self.key_elements()), ("attn_v", self.value_elements())]
    }

    pub fn tensors(&self, hidden_size: usize, list: &mut TensorList) {
        if let Some(latent) = &self.latent {
            return latent.tensors(self, hidden_size, list);
        }
        if self.is_fused {
            list.fused_matrix("attn_qkv", hidden_size, &self.parts());
            if self.has_bias {
                list.fused_bias("attn_qkv", &self.parts());
            }
        }
        for (stem, elements) in self.parts() {
            if !self.is_fused {
                list.matrix(stem, hidden_size, elements);
                if self.has_bias {
                    list.bias(stem, elements);
                }
            }
            if let Some(HeadNorm { norm, span }) = self.head_norm.filter(|_| stem != "attn_v") {
                let heads = if stem == "attn_q" { self.heads } else { self.kv_heads };
                let sizes = match span {
                    HeadSpan::Head => vec![self.key_size],
                    HeadSpan::EachHead => vec![self.key_size, heads],
                    HeadSpan::AllHeads => vec![elements],
                };
                norm.tensors_of(&format!("{stem}_norm"), &sizes, list);
            }
        }
        if let Position::Buckets { buckets, has_table: true } = &self.position {
            list.matrix(TABLE, self.heads, buckets.count);
        }
        if let Some(norm) = &self.output_norm {
            norm.tensors(OUTPUT_NORM, self.output_elements(), list);
        }
        list.matrix(self.output, self.output_elements(), hidden_size);
        if self.has_output_bias {
            list.add(self.output, "bias", &[hidden_size], TensorKind::Bias);
        }
    }

    pub fn check(&self, diagnostics: &mut Diagnostics) {
        let Attention { heads, kv_heads, key_size, .. } = *self;
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            diagnostics.add(format!(
                "number of KV heads: expected a divisor of {heads} (the number of attention heads), found {kv_heads}"
            ));
        }
        if self.widest_row() > crate::limit::SIZE_MAX {
            let most = crate::limit::SIZE_MAX;
            diagnostics.add(format!(
                "expected heads with at most {most} elements in total, found {heads} heads of {key_size}"
            ));
        }
        match &self.position {
            Position::Rope(rope) => rope.check(key_size, diagnostics),
            Position::Alibi(_) | Position::None if self.latent.is_some() => {
                diagnostics.add("latent attention without RoPE is not supported");
            }
            Position::Alibi(alibi) => {
                for (what, value) in [("largest ALiBi exponent", alibi.max_bias), ("scale of ALiBi", alibi.scale)] {
                    if !(value.is_finite() && value > 0.0) {
                        diagnostics.add(format!("{what}: expected a finite number above 0, found {value}"));
                    }
                }
            }
            Position::Buckets { buckets, .. } => buckets.check(diagnostics),
            Position::None => {}
        }
        if self.is_bidirectional && (self.has_prefix || matches!(self.position, Position::Alibi(_))) {
            diagnostics.add("bidirectional layers do not support ALiBi or a prefix");
        }
        for (what, value) in
            [("scale", Some(nearest_f32(self.scale))), ("softcap", self.softcap), ("clamp", self.clamp)]
        {
            if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
                diagnostics.add(format!("attention {what}: expected a finite number above 0, found {value}"));
            }
        }
        if self.window.is_some() && self.mask() != Input::MaskWindow {
            diagnostics.add("a sliding window cannot be combined with ALiBi, bidirectional attention or a prefix");
        }
        if self.window.is_some() && matches!(self.position, Position::Buckets { .. }) {
            diagnostics.add("a sliding window cannot be combined with relative position biases");
        }
        if let Some(HeadNorm { norm, .. }) = self.head_norm {
            norm.check(diagnostics);
        }
        if let Some(norm) = &self.output_norm {
            norm.check(diagnostics);
        }
        if let Some(latent) = &self.latent {
            latent.check(self, diagnostics);
        }
    }

    /// `x` `[hidden size, tokens]` to the same.
    pub fn build(&self, builder: &mut Builder, x: ValueId) -> Built {
        let [query, key, value] = match &self.latent {
            Some(latent) => latent.build(self, builder, x)?,
            None => self.projections(builder, x)?,
        };
        let (keys, values, sequences) = if self.is_bidirectional {
            (key, value, builder.input(Input::WholeBatch))
        } else {
            let kind = self.cache_kind();
            let keys = builder.cache("kv_k", kind, self.key_elements());
            let keys = store(builder, "cache_k", kind, [keys, key])?;
            let values = match self.has_values_in_keys() {
                true => keys,
                false => {
                    let values = builder.cache("kv_v", kind, self.value_elements());
                    store(builder, "cache_v", kind, [values, value])?
                }
            };
            (keys, values, builder.input(Input::Sequences))
        };
        let weights = self.weights(builder, query, keys, sequences)?;
        let mut mixed = builder.node("kqv_out", KvMix { kv_heads: self.kv_heads }, &[weights, values, sequences])?;
        if let Some(latent) = &self.latent {
            mixed = latent.output(self, builder, mixed)?;
        }
        if let Some(norm) = &self.output_norm {
            mixed = norm.build(builder, OUTPUT_NORM, mixed, OUTPUT_NORM)?;
        }
        builder.project("attn_out", self.output, mixed, self.has_output_bias)
    }

    /// Queries `[key size, heads, tokens]`, keys `[key size * kv heads, tokens]` and values `[value size * kv heads,
    /// tokens]`.
    fn projections(&self, builder: &mut Builder, x: ValueId) -> Result<[ValueId; 3], ShapeError> {
        // Nodes of one kind are adjacent, because a device can compute adjacent nodes together.
        let query = builder.product("Qcur", "attn_q", x)?;
        let key = builder.product("Kcur", "attn_k", x)?;
        let value = builder.product("Vcur", "attn_v", x)?;
        let query = self.limited(builder, "Qcur", "attn_q", query)?;
        let key = self.limited(builder, "Kcur", "attn_k", key)?;
        let value = self.limited(builder, "Vcur", "attn_v", value)?;
        let query = self.heads_of(builder, "Qcur", "attn_q", query, self.heads)?;
        let key = self.heads_of(builder, "Kcur", "attn_k", key, self.kv_heads)?;
        let late = self.clamp.filter(|_| self.is_clamped_after_norm);
        let query = clamped(builder, "Qcur", late, query)?;
        let key = clamped(builder, "Kcur", late, key)?;
        let query = self.rotated(builder, "Qcur", query)?;
        let key = self.rotated(builder, "Kcur", key)?;
        let flat = Op::reshape(&[self.key_elements(), builder.batch().tokens]);
        let key = builder.node("Kcur_rows", flat, &[key])?;
        Ok([query, key, value])
    }

    /// Attention weights, `[capacity, tokens, heads]`.
    fn weights(&self, builder: &mut Builder, query: ValueId, keys: ValueId, sequences: ValueId) -> Built {
        let (tokens, capacity) = (builder.batch().tokens, builder.capacity(self.cache_kind()));
        let kq = KvScores { capacity: if self.is_bidirectional { tokens } else { capacity } };
        let mask = self.mask();
        if self.has_prefix {
            // Dividing by the layer's number keeps scores small in f16; they are multiplied back after the mask.
            let coefficient = real(builder.layer().unwrap_or(0)) + 1.0;
            let factor = nearest_f32(self.scale / coefficient);
            let query = builder.scaled("Qcur_scaled", factor, query)?;
            let scores = builder.node("kq", kq, &[query, keys, sequences])?;
            let mask = builder.input(mask);
            let masked = builder.node("kq_masked", Arithmetic::Add, &[scores, mask])?;
            let scores = builder.scaled("kq_scaled", nearest_f32(coefficient), masked)?;
            return builder.node("kq_soft_max", SoftMax { scale: 1.0, max_bias: 0.0 }, &[scores]);
        }
        let mut scores = builder.node("kq", kq, &[query, keys, sequences])?;
        let mut scale = nearest_f32(self.scale);
        if let Some(cap) = self.softcap {
            let inner = nearest_f32(self.scale / f64::from(cap));
            scores = builder.scaled("kq_inner", inner, scores)?;
            scores = builder.node("kq_tanh", Unary::Tanh, &[scores])?;
            scale = cap;
        }
        if let Position::Buckets { has_table, .. } = self.position {
            let bias = self.position_bias(builder, has_table)?;
            scores = builder.node("kq_b", Arithmetic::Add, &[scores, bias])?;
        }
        let mask = builder.input(mask);
        let Position::Alibi(Alibi { max_bias, scale: of_distances }) = self.position else {
            return builder.node("kq_soft_max", SoftMax { scale, max_bias: 0.0 }, &[scores, mask]);
        };
        let distances = match builder.of_first_layer("kq_distances") {
            Some(known) => known,
            None if of_distances == 1.0 => mask,
            None => builder.scaled("kq_distances", of_distances, mask)?,
        };
        builder.node("kq_soft_max", SoftMax { scale, max_bias }, &[scores, distances])
    }

    /// The position bias of scores, `[capacity, tokens, heads]`, from the table of this layer or of the first layer.
    fn position_bias(&self, builder: &mut Builder, has_table: bool) -> Built {
        if let Some(known) = builder.of_first_layer("pos_bias").filter(|_| !has_table) {
            return Ok(known);
        }
        let Batch { tokens, capacity, activation, .. } = *builder.batch();
        let (input, seen) = match self.is_bidirectional {
            true => (Input::BucketsText, tokens),
            false => (Input::Buckets, capacity),
        };
        let (table, buckets) = (builder.weight(TABLE, "weight"), builder.input(input));
        let rows = builder.node("pos_bias_rows", Op::get_rows(activation), &[table, buckets])?;
        let rows = builder.node("pos_bias_heads", Op::reshape(&[self.heads, seen, tokens]), &[rows])?;
        builder.node("pos_bias", Arrange::Permute { to: [2, 0, 1, 3] }, &[rows])
    }

    /// The attention mask.
    fn mask(&self) -> Input {
        match (&self.position, self.window) {
            _ if self.has_prefix => Input::MaskPrefix,
            _ if self.is_bidirectional => Input::MaskText,
            (Position::Alibi(_), _) => Input::MaskDistance,
            (_, Some(_)) => Input::MaskWindow,
            (_, None) => Input::Mask,
        }
    }

    /// A projection plus its bias, clamped if the model does so.
    fn limited(&self, builder: &mut Builder, name: &str, stem: &str, x: ValueId) -> Built {
        let x = builder.biased(name, stem, x, self.has_bias)?;
        let is_late = self.is_clamped_after_norm && stem != "attn_v";
        clamped(builder, name, self.clamp.filter(|_| !is_late), x)
    }

    /// Heads of a projection `[key size * heads, tokens]`, normalized if the model does so: `[key size, heads,
    /// tokens]`.
    fn heads_of(&self, builder: &mut Builder, name: &str, stem: &str, flat: ValueId, heads: usize) -> Built {
        let shape = Op::reshape(&[self.key_size, heads, builder.batch().tokens]);
        let (split_name, normed, stem) = (format!("{name}_heads"), format!("{name}_normed"), format!("{stem}_norm"));
        match self.head_norm {
            None => builder.node(&split_name, shape, &[flat]),
            Some(HeadNorm { norm, span: HeadSpan::Head | HeadSpan::EachHead }) => {
                let split = builder.node(&split_name, shape, &[flat])?;
                norm.build(builder, &normed, split, &stem)
            }
            Some(HeadNorm { norm, span: HeadSpan::AllHeads }) => {
                let normed = norm.build(builder, &normed, flat, &stem)?;
                builder.node(&split_name, shape, &[normed])
            }
        }
    }

    /// Heads `[size, heads, tokens]`, rotated by their positions if the model uses RoPE.
    pub fn rotated(&self, builder: &mut Builder, name: &str, heads: ValueId) -> Built {
        let Some(rope) = self.rope() else { return Ok(heads) };
        let op = Rope { pairs: rope.pairs, dimensions: rope.dimensions, base: rope.base, scaling: rope.scaling };
        let positions = if self.has_prefix { Input::PositionPairs } else { Input::Positions };
        let mut inputs = vec![heads, builder.input(positions)];
        if let Some(stem) = rope.factors_for(builder.batch().is_long) {
            inputs.push(builder.weight_outside(stem, "weight"));
        }
        builder.node(&format!("{name}_rope"), op, &inputs)
    }
}

/// `x`, clamped to `-max ..= max` if `max` is given.
fn clamped(builder: &mut Builder, name: &str, max: Option<f32>, x: ValueId) -> Built {
    match max {
        Some(max) => builder.node(&format!("{name}_clamped"), Unary::Clamp { min: -max, max }, &[x]),
        None => Ok(x),
    }
}

/// Stores `x` `[elements, tokens]` in a cache of this kind.
pub(crate) fn store(builder: &mut Builder, name: &str, kind: StateKind, [cache, x]: [ValueId; 2]) -> Built {
    let rows = builder.input(if kind == StateKind::Ring { Input::KvRowsWindow } else { Input::KvRows });
    builder.node(name, KvStore, &[cache, x, rows])
}
