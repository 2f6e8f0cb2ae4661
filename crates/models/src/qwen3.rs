//! Qwen3: heads of their own size, each query and key head normed before it is rotated, no biases.

use crate::architecture::{Architecture, FieldRule, Fixed, Missing, Parts, TensorRule};
use crate::field::Field;
use crate::gap::Gap;
use crate::llama::{INVERSE_FREQUENCIES, UNTIED_UNLESS_SAID};
use crate::qwen2::UPPER_LAYERS;
use crate::{Condition, Role};
use trueup_graph::op::RopePairs;

/// `Qwen3ForCausalLM`.
pub static QWEN3: Architecture = Architecture {
    gguf_name: "qwen3",
    classes: &["Qwen3ForCausalLM"],
    is_internal: false,
    told_by: &[],
    flm_name: Some("qwen3"),
    fields: &[
        FieldRule::new(Field::Width, "hidden_size", Missing::Refused),
        FieldRule::new(Field::Layers, "num_hidden_layers", Missing::Refused),
        FieldRule::new(Field::Heads, "num_attention_heads", Missing::Refused),
        FieldRule::new(Field::KvHeads, "num_key_value_heads", Missing::IsOrHeads(32.0)),
        FieldRule::new(Field::HeadSize, "head_dim", Missing::IsOrWidthOverHeads(128.0)),
        FieldRule::new(Field::Ffn, "intermediate_size", Missing::Refused),
        FieldRule::new(Field::Vocabulary, "vocab_size", Missing::Refused),
        FieldRule::new(Field::Context, "max_position_embeddings", Missing::Is(32_768.0)),
        FieldRule::new(Field::Epsilon, "rms_norm_eps", Missing::Is(1e-6)),
        FieldRule::new(Field::RopeBase, "rope_theta", Missing::Is(10_000.0)),
    ],
    flags: &[UNTIED_UNLESS_SAID],
    signs: &[],
    fixed: &[
        Fixed { theirs: "hidden_act", allowed: &["\"silu\"", "\"swish\""] },
        Fixed { theirs: "partial_rotary_factor", allowed: &["1", "1.0"] },
        Fixed { theirs: "quantization_config", allowed: &[] },
        // GGUF's qwen3 has no names for them.
        Fixed { theirs: "attention_bias", allowed: &["false"] },
    ],
    window: Some(UPPER_LAYERS),
    tensors: &[
        TensorRule::new(Role::TokenEmbedding, "model.embed_tokens.weight"),
        TensorRule::computed(Role::RopeFactors, Condition::RopeFactors),
        TensorRule::new(Role::AttentionNorm, "model.layers.{l}.input_layernorm.weight"),
        TensorRule::new(Role::Query, "model.layers.{l}.self_attn.q_proj.weight"),
        TensorRule::new(Role::QueryNorm, "model.layers.{l}.self_attn.q_norm.weight"),
        TensorRule::new(Role::Key, "model.layers.{l}.self_attn.k_proj.weight"),
        TensorRule::new(Role::KeyNorm, "model.layers.{l}.self_attn.k_norm.weight"),
        TensorRule::new(Role::Value, "model.layers.{l}.self_attn.v_proj.weight"),
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
