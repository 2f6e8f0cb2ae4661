//! Qwen2 and Qwen2.5: biases on queries, keys and values; halves rotated; a sliding window on the upper layers, if any.

use crate::architecture::{Architecture, Condition, FieldRule, Missing, Parts, TensorRule, WindowRule};
use crate::field::Field;
use crate::gap::Gap;
use crate::llama::{GATED_SILU, INVERSE_FREQUENCIES, UNTIED_UNLESS_SAID};
use crate::role::Role;
use trueup_graph::op::RopePairs;

/// `Qwen2ForCausalLM`.
pub static QWEN2: Architecture = Architecture {
    gguf_name: "qwen2",
    classes: &["Qwen2ForCausalLM"],
    is_internal: false,
    told_by: &[],
    flm_name: Some("qwen2"),
    fields: &[
        FieldRule::new(Field::Width, "hidden_size", Missing::Refused),
        FieldRule::new(Field::Layers, "num_hidden_layers", Missing::Refused),
        FieldRule::new(Field::Heads, "num_attention_heads", Missing::Refused),
        FieldRule::new(Field::KvHeads, "num_key_value_heads", Missing::IsOrHeads(32.0)),
        FieldRule::new(Field::HeadSize, "head_dim", Missing::WidthOverHeads),
        FieldRule::new(Field::Ffn, "intermediate_size", Missing::Refused),
        FieldRule::new(Field::Vocabulary, "vocab_size", Missing::Refused),
        FieldRule::new(Field::Context, "max_position_embeddings", Missing::Is(32_768.0)),
        FieldRule::new(Field::Epsilon, "rms_norm_eps", Missing::Is(1e-6)),
        FieldRule::new(Field::RopeBase, "rope_theta", Missing::Is(10_000.0)),
    ],
    flags: &[UNTIED_UNLESS_SAID],
    signs: &[],
    fixed: GATED_SILU,
    window: Some(UPPER_LAYERS),
    tensors: &[
        TensorRule::new(Role::TokenEmbedding, "model.embed_tokens.weight"),
        TensorRule::computed(Role::RopeFactors, Condition::RopeFactors),
        TensorRule::new(Role::AttentionNorm, "model.layers.{l}.input_layernorm.weight"),
        TensorRule::new(Role::Query, "model.layers.{l}.self_attn.q_proj.weight"),
        TensorRule::new(Role::QueryBias, "model.layers.{l}.self_attn.q_proj.bias"),
        TensorRule::new(Role::Key, "model.layers.{l}.self_attn.k_proj.weight"),
        TensorRule::new(Role::KeyBias, "model.layers.{l}.self_attn.k_proj.bias"),
        TensorRule::new(Role::Value, "model.layers.{l}.self_attn.v_proj.weight"),
        TensorRule::new(Role::ValueBias, "model.layers.{l}.self_attn.v_proj.bias"),
        TensorRule::new(Role::AttentionOutput, "model.layers.{l}.self_attn.o_proj.weight"),
        TensorRule::new(Role::FfnNorm, "model.layers.{l}.post_attention_layernorm.weight"),
        TensorRule::new(Role::FfnGate, "model.layers.{l}.mlp.gate_proj.weight"),
        TensorRule::new(Role::FfnUp, "model.layers.{l}.mlp.up_proj.weight"),
        TensorRule::new(Role::FfnDown, "model.layers.{l}.mlp.down_proj.weight"),
        TensorRule::new(Role::OutputNorm, "model.norm.weight"),
        TensorRule::new(Role::Output, "lm_head.weight").when(Condition::Untied),
    ],
    ignorable: INVERSE_FREQUENCIES,
    parts: Parts::new(RopePairs::Halves),
    gaps: &[Gap::SlidingWindow, Gap::RopeFactors],
};

/// A window that must be switched on, and then holds from some layer on.
pub(crate) const UPPER_LAYERS: WindowRule =
    WindowRule { missing: 4096, enabled_by: Some("use_sliding_window"), first_layer: Some(("max_window_layers", 28)) };
