//! Llama 1, 2 and 3, and the many models of other names with the same class.

use crate::architecture::{Architecture, Condition, FieldRule, Fixed, FlagRule, Heads, Missing, Parts, TensorRule};
use crate::field::Field;
use crate::role::Role;
use trueup_graph::op::RopePairs;

/// `LlamaForCausalLM`. The Hugging Face class rotates halves of a head, GGUF's `llama` neighbours: hence the
/// permutation.
pub static LLAMA: Architecture = Architecture {
    gguf_name: "llama",
    classes: &["LlamaForCausalLM", "LLaMAForCausalLM"],
    is_internal: false,
    told_by: &[],
    flm_name: Some("llama"),
    fields: &[
        FieldRule::new(Field::Width, "hidden_size", Missing::Refused),
        FieldRule::new(Field::Layers, "num_hidden_layers", Missing::Refused),
        FieldRule::new(Field::Heads, "num_attention_heads", Missing::Refused),
        FieldRule::new(Field::KvHeads, "num_key_value_heads", Missing::Heads),
        FieldRule::new(Field::HeadSize, "head_dim", Missing::WidthOverHeads),
        FieldRule::new(Field::Ffn, "intermediate_size", Missing::Refused),
        FieldRule::new(Field::Vocabulary, "vocab_size", Missing::Refused),
        FieldRule::new(Field::Context, "max_position_embeddings", Missing::Is(2048.0)),
        FieldRule::new(Field::Epsilon, "rms_norm_eps", Missing::Is(1e-6)),
        FieldRule::new(Field::RopeBase, "rope_theta", Missing::Is(10_000.0)),
    ],
    flags: &[
        UNTIED_UNLESS_SAID,
        FlagRule {
            theirs: "attention_bias",
            missing: false,
            conditions: &[Condition::AttentionBias, Condition::AttentionOutputBias],
            inverted: false,
        },
        FlagRule { theirs: "mlp_bias", missing: false, conditions: &[Condition::FfnBias], inverted: false },
    ],
    signs: &[],
    fixed: GATED_SILU,
    window: None,
    tensors: TENSORS,
    ignorable: INVERSE_FREQUENCIES,
    parts: Parts::new(RopePairs::Neighbours),
    gaps: &[],
};

/// The tensors of the class, also under other names of it.
pub(crate) const TENSORS: &[TensorRule] = &[
    TensorRule::new(Role::TokenEmbedding, "model.embed_tokens.weight"),
    TensorRule::computed(Role::RopeFactors, Condition::RopeFactors),
    TensorRule::new(Role::AttentionNorm, "model.layers.{l}.input_layernorm.weight"),
    TensorRule::new(Role::Query, "model.layers.{l}.self_attn.q_proj.weight").permuted(Heads::Query),
    TensorRule::new(Role::QueryBias, "model.layers.{l}.self_attn.q_proj.bias")
        .when(Condition::AttentionBias)
        .permuted(Heads::Query),
    TensorRule::new(Role::Key, "model.layers.{l}.self_attn.k_proj.weight").permuted(Heads::Key),
    TensorRule::new(Role::KeyBias, "model.layers.{l}.self_attn.k_proj.bias")
        .when(Condition::AttentionBias)
        .permuted(Heads::Key),
    TensorRule::new(Role::Value, "model.layers.{l}.self_attn.v_proj.weight"),
    TensorRule::new(Role::ValueBias, "model.layers.{l}.self_attn.v_proj.bias").when(Condition::AttentionBias),
    TensorRule::new(Role::AttentionOutput, "model.layers.{l}.self_attn.o_proj.weight"),
    TensorRule::new(Role::AttentionOutputBias, "model.layers.{l}.self_attn.o_proj.bias")
        .when(Condition::AttentionOutputBias),
    TensorRule::new(Role::FfnNorm, "model.layers.{l}.post_attention_layernorm.weight"),
    TensorRule::new(Role::FfnGate, "model.layers.{l}.mlp.gate_proj.weight"),
    TensorRule::new(Role::FfnGateBias, "model.layers.{l}.mlp.gate_proj.bias").when(Condition::FfnBias),
    TensorRule::new(Role::FfnUp, "model.layers.{l}.mlp.up_proj.weight"),
    TensorRule::new(Role::FfnUpBias, "model.layers.{l}.mlp.up_proj.bias").when(Condition::FfnBias),
    TensorRule::new(Role::FfnDown, "model.layers.{l}.mlp.down_proj.weight"),
    TensorRule::new(Role::FfnDownBias, "model.layers.{l}.mlp.down_proj.bias").when(Condition::FfnBias),
    TensorRule::new(Role::OutputNorm, "model.norm.weight"),
    TensorRule::new(Role::Output, "lm_head.weight").when(Condition::Untied),
];

/// Old checkpoints keep the frequencies of rotation as a tensor; they follow from the description.
pub(crate) const INVERSE_FREQUENCIES: &[&str] =
    &["model.layers.{l}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"];

/// A gated feed-forward with silu, whole heads rotated, plain weights.
pub(crate) const GATED_SILU: &[Fixed] = &[
    Fixed { theirs: "hidden_act", allowed: &["\"silu\"", "\"swish\""] },
    Fixed { theirs: "partial_rotary_factor", allowed: &["1", "1.0"] },
    Fixed { theirs: "quantization_config", allowed: &[] },
];

/// The head is a matrix of its own unless the description ties it to the embedding.
pub(crate) const UNTIED_UNLESS_SAID: FlagRule =
    FlagRule { theirs: "tie_word_embeddings", missing: false, conditions: &[Condition::Untied], inverted: true };
