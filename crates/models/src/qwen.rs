//! Qwen, the first: what Qwen2 computes, under other names, so its GGUF file is one of Qwen2.
//!
//! Queries, keys and values are one tensor in the checkpoint (`c_attn`), which its reader shows apart;
//! `intermediate_size` counts gate and up together.

use crate::architecture::{Architecture, Condition, FieldRule, Fixed, Missing, Parts, TensorRule};
use crate::field::Field;
use crate::gap::Gap;
use crate::llama::UNTIED_UNLESS_SAID;
use crate::role::Role;
use trueup_graph::op::RopePairs;

/// `QWenLMHeadModel`.
pub static QWEN: Architecture = Architecture {
    gguf_name: "qwen2",
    classes: &["QWenLMHeadModel"],
    is_internal: false,
    told_by: &[],
    flm_name: Some("qwen"),
    fields: &[
        FieldRule::new(Field::Width, "hidden_size", Missing::Refused),
        FieldRule::new(Field::Layers, "num_hidden_layers", Missing::Refused),
        FieldRule::new(Field::Heads, "num_attention_heads", Missing::Refused),
        FieldRule::new(Field::KvHeads, "num_key_value_heads", Missing::Heads),
        FieldRule::new(Field::HeadSize, "kv_channels", Missing::WidthOverHeads),
        FieldRule::new(Field::Ffn, "intermediate_size", Missing::Refused).of_several(2),
        FieldRule::new(Field::Vocabulary, "vocab_size", Missing::Refused),
        FieldRule::new(Field::Context, "seq_length", Missing::Key("max_position_embeddings")),
        FieldRule::new(Field::Epsilon, "layer_norm_epsilon", Missing::Is(1e-6)),
        FieldRule::new(Field::RopeBase, "rotary_emb_base", Missing::Is(10_000.0)),
    ],
    flags: &[UNTIED_UNLESS_SAID],
    signs: &[],
    fixed: &[
        Fixed { theirs: "no_bias", allowed: &["true"] },
        Fixed { theirs: "scale_attn_weights", allowed: &["true"] },
        Fixed { theirs: "rotary_pct", allowed: &["1", "1.0"] },
        Fixed { theirs: "quantization_config", allowed: &[] },
    ],
    window: None,
    tensors: &[
        TensorRule::new(Role::TokenEmbedding, "transformer.wte.weight"),
        TensorRule::computed(Role::RopeFactors, Condition::RopeFactors),
        TensorRule::new(Role::AttentionNorm, "transformer.h.{l}.ln_1.weight"),
        TensorRule::new(Role::Query, "transformer.h.{l}.attn.q_proj.weight"),
        TensorRule::new(Role::QueryBias, "transformer.h.{l}.attn.q_proj.bias"),
        TensorRule::new(Role::Key, "transformer.h.{l}.attn.k_proj.weight"),
        TensorRule::new(Role::KeyBias, "transformer.h.{l}.attn.k_proj.bias"),
        TensorRule::new(Role::Value, "transformer.h.{l}.attn.v_proj.weight"),
        TensorRule::new(Role::ValueBias, "transformer.h.{l}.attn.v_proj.bias"),
        TensorRule::new(Role::AttentionOutput, "transformer.h.{l}.attn.c_proj.weight"),
        TensorRule::new(Role::FfnNorm, "transformer.h.{l}.ln_2.weight"),
        // w2 goes through silu.
        TensorRule::new(Role::FfnGate, "transformer.h.{l}.mlp.w2.weight"),
        TensorRule::new(Role::FfnUp, "transformer.h.{l}.mlp.w1.weight"),
        TensorRule::new(Role::FfnDown, "transformer.h.{l}.mlp.c_proj.weight"),
        TensorRule::new(Role::OutputNorm, "transformer.ln_f.weight"),
        TensorRule::new(Role::Output, "lm_head.weight").when(Condition::Untied),
    ],
    ignorable: &["transformer.rotary_emb.inv_freq", "transformer.h.{l}.attn.rotary_emb.inv_freq"],
    parts: Parts::new(RopePairs::Halves),
    gaps: &[Gap::RopeFactors],
};
