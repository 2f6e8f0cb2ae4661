//! llama2.c: Llama in the names and the row order of its first publication, whose pairs of rotation are neighbours
//! already.

use crate::architecture::{Architecture, FieldRule, Missing, Parts, TensorRule};
use crate::field::Field;
use crate::llama::UNTIED_UNLESS_SAID;
use crate::{Condition, Role};
use trueup_graph::op::RopePairs;

/// What the header of a llama2.c file describes; in GGUF a `llama`.
pub static LLAMA2C: Architecture = Architecture {
    gguf_name: "llama",
    classes: &["Llama2cForCausalLM"],
    is_internal: true,
    told_by: &[],
    flm_name: None,
    fields: &[
        FieldRule::new(Field::Width, "hidden_size", Missing::Refused),
        FieldRule::new(Field::Layers, "num_hidden_layers", Missing::Refused),
        FieldRule::new(Field::Heads, "num_attention_heads", Missing::Refused),
        FieldRule::new(Field::KvHeads, "num_key_value_heads", Missing::Refused),
        FieldRule::new(Field::HeadSize, "head_dim", Missing::WidthOverHeads),
        FieldRule::new(Field::Ffn, "intermediate_size", Missing::Refused),
        FieldRule::new(Field::Vocabulary, "vocab_size", Missing::Refused),
        FieldRule::new(Field::Context, "max_position_embeddings", Missing::Refused),
        FieldRule::new(Field::Epsilon, "rms_norm_eps", Missing::Is(1e-5)),
        FieldRule::new(Field::RopeBase, "rope_theta", Missing::Is(10_000.0)),
    ],
    flags: &[UNTIED_UNLESS_SAID],
    signs: &[],
    fixed: &[],
    window: None,
    tensors: &[
        TensorRule::new(Role::TokenEmbedding, "tok_embeddings.weight"),
        TensorRule::new(Role::AttentionNorm, "layers.{l}.attention_norm.weight"),
        TensorRule::new(Role::Query, "layers.{l}.attention.wq.weight"),
        TensorRule::new(Role::Key, "layers.{l}.attention.wk.weight"),
        TensorRule::new(Role::Value, "layers.{l}.attention.wv.weight"),
        TensorRule::new(Role::AttentionOutput, "layers.{l}.attention.wo.weight"),
        TensorRule::new(Role::FfnNorm, "layers.{l}.ffn_norm.weight"),
        TensorRule::new(Role::FfnGate, "layers.{l}.feed_forward.w1.weight"),
        TensorRule::new(Role::FfnUp, "layers.{l}.feed_forward.w3.weight"),
        TensorRule::new(Role::FfnDown, "layers.{l}.feed_forward.w2.weight"),
        TensorRule::new(Role::OutputNorm, "norm.weight"),
        TensorRule::new(Role::Output, "output.weight").when(Condition::Untied),
    ],
    ignorable: &[],
    parts: Parts::new(RopePairs::Neighbours),
    gaps: &[],
};
