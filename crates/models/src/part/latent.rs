//! Attention whose keys and values are computed from a short vector for each token (multi-head latent attention,
//! DeepSeek-AI 2024, section 2.1).
//!
//! ```text
//! whole   x ─ attn_q_a ─ norm ─ attn_q_b ─┬─ plain part ──────────────────┬─ query   one for each head
//!                                         └─ rotated part ─ rope ─────────┘
//!         x ─ attn_kv_a_mqa ─┬─ vector ─ norm ─ attn_kv_b ─┬─ plain part ─┬─ key
//!                            │                             └──────────────│─ value
//!                            └─ rope, shared by all heads ────────────────┘
//! split   plain part of a query ─ attn_k_b ─┬─ query      vector, rotated part ─ key, shared by all heads
//!                            rotated part ──┘             vector ─ value        ... kqv_out ─ attn_v_b
//! ```
//!
//! Both forms give the same result: `q (K c) = (K^T q) c`, and the sum of `V c` is `V` times the sum of `c`. The split
//! form caches the key that all heads share, `rank` + `rotated` elements for each token, in place of the keys and
//! values of all heads. The key begins with the vector, so attention sums whole keys, and the first elements of each
//! sum are the weighted sum of the vectors.

use crate::build::{Builder, Built};
use crate::diagnostics::Diagnostics;
use crate::limit::SIZE_MAX;
use crate::metadata::KeyWriter;
use crate::number::nearest_f32;
use crate::part::attention::Attention;
use crate::part::norm::Norm;
use crate::tensor::{TensorKind, TensorList};
use trueup_graph::op::{Arrange, Cast, Concat, MulMat, Op};
use trueup_graph::{Shape, ShapeError, ValueId};

/// The projections of latent attention.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Latent {
    /// Elements of the vector that queries are computed from; `None` if they are computed from the layer's input.
    pub query_rank: Option<usize>,
    /// Elements of the vector that keys and values are computed from.
    pub rank: usize,
    /// Elements of a head's key, of which the last ones are rotated.
    pub key_size: usize,
    /// Elements of a head's value.
    pub value_size: usize,
    /// Norm of both vectors.
    pub norm: Norm,
    /// Split form: `attn_kv_b` is stored as `attn_k_b` and `attn_v_b`, and all heads share the cached vector. If false,
    /// `attn_kv_b` is one matrix, as in older GGUF files.
    pub is_split: bool,
    /// `mscale_all_dim` of YaRN, which the scale of scores contains; 0 without.
    pub scale_multiplier: f64,
}

impl Latent {
    /// Elements of a head's key that are rotated, and those that are not.
    fn key_parts(&self, attention: &Attention) -> [usize; 2] {
        let rotated = attention.rope().map_or(0, |rope| rope.dimensions);
        [rotated, self.key_size.saturating_sub(rotated)]
    }

    /// Elements of a head's key that are not rotated, and of its value.
    pub fn sizes(&self, attention: &Attention) -> [usize; 2] {
        let [_, plain] = self.key_parts(attention);
        [plain, self.value_size]
    }

    /// Elements of what the heads give.
    pub fn output_elements(&self, heads: usize) -> usize {
        heads.saturating_mul(self.value_size)
    }

    /// Elements of the queries of all heads, before the split form changes them.
    fn query_elements(&self, heads: usize) -> usize {
        heads.saturating_mul(self.key_size)
    }

    pub fn tensors(&self, attention: &Attention, hidden_size: usize, list: &mut TensorList) {
        let (heads, [rotated, plain]) = (attention.heads, self.key_parts(attention));
        match self.query_rank {
            Some(rank) => {
                list.matrix("attn_q_a", hidden_size, rank);
                self.norm.tensors("attn_q_a_norm", rank, list);
                list.matrix("attn_q_b", rank, self.query_elements(heads));
            }
            None => list.matrix("attn_q", hidden_size, self.query_elements(heads)),
        }
        list.matrix("attn_kv_a_mqa", hidden_size, self.rank.saturating_add(rotated));
        self.norm.tensors("attn_kv_a_norm", self.rank, list);
        if self.is_split {
            list.add("attn_k_b", "weight", &[plain, self.rank, heads], TensorKind::Matrix);
            list.add("attn_v_b", "weight", &[self.rank, self.value_size, heads], TensorKind::Matrix);
        } else {
            list.matrix("attn_kv_b", self.rank, heads.saturating_mul(plain.saturating_add(self.value_size)));
        }
        list.matrix("attn_output", self.output_elements(heads), hidden_size);
    }

    pub fn keys(&self, writer: &mut KeyWriter) {
        writer.count("attention.q_lora_rank", self.query_rank.unwrap_or(0));
        writer.count("attention.kv_lora_rank", self.rank);
        if self.is_split {
            writer.count("attention.key_length_mla", self.key_size);
            writer.count("attention.value_length_mla", self.value_size);
        }
        if self.scale_multiplier != 0.0 {
            // Programs that read the key divide it by 0.1.
            writer.value("rope.scaling.yarn_log_multiplier", nearest_f32(0.1 * self.scale_multiplier));
        }
    }

    pub fn check(&self, attention: &Attention, diagnostics: &mut Diagnostics) {
        let (size, [rotated, plain]) = (self.key_size, self.key_parts(attention));
        if plain == 0 || rotated == 0 {
            let most = size.saturating_sub(1);
            diagnostics
                .add(format!("RoPE dimensions of a key of {size} elements: expected 1 to {most}, found {rotated}"));
        }
        self.norm.check(diagnostics);
        let multiplier = self.scale_multiplier;
        if !(multiplier.is_finite() && multiplier >= 0.0) {
            diagnostics.add(format!(
                "mscale_all_dim (yarn_log_multiplier / 0.1): expected a finite number of at least 0, found {multiplier}"
            ));
        }
        let widest = attention.heads.saturating_mul(plain.saturating_add(self.value_size).max(self.key_size));
        if widest > SIZE_MAX {
            diagnostics
                .add(format!("keys and values of all heads: expected at most {SIZE_MAX} elements, found {widest}"));
        }
    }

    /// Queries `[key size, heads, tokens]`, keys `[key size * kv heads, tokens]` and values `[value size * kv heads,
    /// tokens]` with the sizes of the attention.
    pub fn build(&self, attention: &Attention, builder: &mut Builder, x: ValueId) -> Result<[ValueId; 3], ShapeError> {
        let (heads, tokens, [rotated, plain]) = (attention.heads, builder.batch().tokens, self.key_parts(attention));
        let size = self.key_size;
        let query = self.query(builder, x)?;
        let compressed = builder.product("KVcur_a", "attn_kv_a_mqa", x)?;
        let last =
            part(builder, "Qcur_pe", query, [plain, size, size.saturating_mul(heads)], [rotated, heads, tokens])?;
        let last = attention.rotated(builder, "Qcur_pe", last)?;
        let row = self.rank.saturating_add(rotated);
        let vector = part(builder, "KVcur_part", compressed, [0, row, row], [self.rank, 1, tokens])?;
        let vector = builder.node("KVcur_flat", Op::reshape(&[self.rank, tokens]), &[vector])?;
        let vector = self.norm.build(builder, "KVcur_norm", vector, "attn_kv_a_norm")?;
        let shared = part(builder, "Kcur_pe", compressed, [self.rank, row, row], [rotated, 1, tokens])?;
        let shared = attention.rotated(builder, "Kcur_pe", shared)?;
        let first = self.first_of_queries(attention, builder, query)?;
        let query = builder.node("Qcur", Concat { dimension: 0 }, &[first, last])?;
        let [keys, values] = match self.is_split {
            true => {
                let shared = builder.node("Kcur_pe_flat", Op::reshape(&[rotated, tokens]), &[shared])?;
                [builder.node("Kcur", Concat { dimension: 0 }, &[vector, shared])?, vector]
            }
            false => self.keys_and_values(attention, builder, vector, shared)?,
        };
        Ok([query, keys, values])
    }

    /// The part of queries that is not rotated, in the layout of the first part of the keys: `[plain, heads, tokens]`,
    /// or `[rank, heads, tokens]` if keys are the vectors.
    fn first_of_queries(&self, attention: &Attention, builder: &mut Builder, query: ValueId) -> Built {
        let (heads, tokens, [_, plain]) = (attention.heads, builder.batch().tokens, self.key_parts(attention));
        let row = self.key_size.saturating_mul(heads);
        if !self.is_split {
            return part(builder, "Qcur_nope", query, [0, self.key_size, row], [plain, heads, tokens]);
        }
        let first = part(builder, "Qcur_nope", query, [0, row, self.key_size], [plain, tokens, heads])?;
        let weight = builder.weight("attn_k_b", "weight");
        let first = builder.node("Qcur_latent", MulMat, &[weight, first])?;
        exchanged(builder, "Qcur_latent_heads", first)
    }

    /// Keys and values of each head, of the vectors and the rotated part that keys share.
    fn keys_and_values(
        &self,
        attention: &Attention,
        builder: &mut Builder,
        vector: ValueId,
        shared: ValueId,
    ) -> Result<[ValueId; 2], ShapeError> {
        let (heads, tokens, [rotated, plain]) = (attention.heads, builder.batch().tokens, self.key_parts(attention));
        let both = builder.product("KVcur", "attn_kv_b", vector)?;
        let size = plain.saturating_add(self.value_size);
        let row = size.saturating_mul(heads);
        let first = part(builder, "Kcur_nope", both, [0, size, row], [plain, heads, tokens])?;
        let values = part(builder, "Vcur", both, [plain, size, row], [self.value_size, heads, tokens])?;
        let repeated = Arrange::Repeat { shape: Shape::new(&[rotated, heads, tokens]) };
        let last = builder.node("Kcur_pe_heads", repeated, &[shared])?;
        let keys = builder.node("Kcur", Concat { dimension: 0 }, &[first, last])?;
        let keys = builder.node("Kcur_rows", Op::reshape(&[self.query_elements(heads), tokens]), &[keys])?;
        let values = builder.node("Vcur_rows", Op::reshape(&[self.output_elements(heads), tokens]), &[values])?;
        Ok([keys, values])
    }

    fn query(&self, builder: &mut Builder, x: ValueId) -> Built {
        if self.query_rank.is_none() {
            return builder.product("Qcur_all", "attn_q", x);
        }
        let vector = builder.product("Qcur_a", "attn_q_a", x)?;
        let vector = self.norm.build(builder, "Qcur_a_norm", vector, "attn_q_a_norm")?;
        builder.product("Qcur_all", "attn_q_b", vector)
    }

    /// Maps the attention result, the sums of whole keys in the split form, to the values of all heads, `[value size *
    /// heads, tokens]`.
    pub fn output(&self, attention: &Attention, builder: &mut Builder, mixed: ValueId) -> Built {
        if !self.is_split {
            return Ok(mixed);
        }
        let (heads, tokens) = (attention.heads, builder.batch().tokens);
        let size = if attention.has_values_in_keys() { attention.key_size } else { self.rank };
        let row = size.saturating_mul(heads);
        let vectors = part(builder, "kqv_latent", mixed, [0, row, size], [self.rank, tokens, heads])?;
        let weight = builder.weight("attn_v_b", "weight");
        let values = builder.node("kqv_values", MulMat, &[weight, vectors])?;
        let values = exchanged(builder, "kqv_heads", values)?;
        builder.node("kqv_flat", Op::reshape(&[self.output_elements(heads), tokens]), &[values])
    }
}

/// A copy of a part of `x`: elements from `offset` on, with these distances along the second and third dimension.
fn part(
    builder: &mut Builder,
    name: &str,
    x: ValueId,
    [offset, second, third]: [usize; 3],
    sizes: [usize; 3],
) -> Built {
    let strides = [1, second, third, third.max(second).saturating_mul(sizes[2].max(sizes[1]))];
    let view = Arrange::View { offset, strides, shape: Shape::new(&sizes) };
    let view = builder.node(&format!("{name}_view"), view, &[x])?;
    copied(builder, name, view)
}

/// A copy of `x` with its second and third dimension exchanged.
fn exchanged(builder: &mut Builder, name: &str, x: ValueId) -> Built {
    let view = builder.node(&format!("{name}_view"), Arrange::Permute { to: [0, 2, 1, 3] }, &[x])?;
    copied(builder, name, view)
}

fn copied(builder: &mut Builder, name: &str, x: ValueId) -> Built {
    let to = builder.batch().activation;
    builder.node(name, Cast { to }, &[x])
}
