//! Baichuan 1 and 2, of 7 and of 13 billion parameters: one class, told apart by what the description has.
//!
//! ```text
//! 7B    positions rotate, and the description says how many there are (max_position_embeddings)
//! 13B   positions lower scores by distance (ALiBi), and it says the longest text instead (model_max_length)
//! 2     the head's rows are divided by their lengths, and it has a weight for a loss that only training needs (z_loss_weight)
//! ```
//!
//! Queries, keys and values are one tensor in the checkpoint (`W_pack`), which its reader shows apart.

use crate::architecture::{
    AlibiRule, Architecture, Condition, FieldRule, Heads, Missing, Parts, Sign, SignRule, TensorRule,
};
use crate::field::Field;
use crate::gap::Gap;
use crate::llama::{GATED_SILU, INVERSE_FREQUENCIES, UNTIED_UNLESS_SAID};
use crate::role::Role;
use trueup_graph::op::RopePairs;

/// `BaichuanForCausalLM`; the first of them wrote its name otherwise.
pub static BAICHUAN: Architecture = Architecture {
    gguf_name: "baichuan",
    classes: &["BaichuanForCausalLM", "BaiChuanForCausalLM"],
    is_internal: false,
    told_by: &[],
    flm_name: Some("baichuan"),
    fields: &[
        FieldRule::new(Field::Width, "hidden_size", Missing::Refused),
        FieldRule::new(Field::Layers, "num_hidden_layers", Missing::Refused),
        FieldRule::new(Field::Heads, "num_attention_heads", Missing::Refused),
        FieldRule::new(Field::KvHeads, "num_key_value_heads", Missing::Heads),
        FieldRule::new(Field::HeadSize, "head_dim", Missing::WidthOverHeads),
        FieldRule::new(Field::Ffn, "intermediate_size", Missing::Refused),
        FieldRule::new(Field::Vocabulary, "vocab_size", Missing::Refused),
        FieldRule::new(Field::Context, "max_position_embeddings", Missing::Key("model_max_length")),
        FieldRule::new(Field::Epsilon, "rms_norm_eps", Missing::Is(1e-6)),
        FieldRule::new(Field::RopeBase, "rope_theta", Missing::Is(10_000.0)),
    ],
    flags: &[UNTIED_UNLESS_SAID],
    signs: &[
        SignRule {
            condition: Condition::Alibi,
            signs: &[Sign::Absent("max_position_embeddings"), Sign::True("use_alibi")],
            note: "positions are encoded with ALiBi instead of RoPE: config.json has no \
                max_position_embeddings, or sets use_alibi",
        },
        SignRule {
            condition: Condition::UnitHead,
            signs: &[Sign::Present("z_loss_weight"), Sign::Vocabulary(125_696)],
            note: "rows of the output head are normalized, as in the original model: config.json has \
                z_loss_weight, or the vocabulary size of version 2",
        },
    ],
    fixed: GATED_SILU,
    window: None,
    tensors: &[
        TensorRule::new(Role::TokenEmbedding, "model.embed_tokens.weight"),
        TensorRule::computed(Role::RopeFactors, Condition::RopeFactors),
        TensorRule::new(Role::AttentionNorm, "model.layers.{l}.input_layernorm.weight"),
        TensorRule::new(Role::Query, "model.layers.{l}.self_attn.q_proj.weight").permuted(Heads::Query),
        TensorRule::new(Role::Key, "model.layers.{l}.self_attn.k_proj.weight").permuted(Heads::Key),
        TensorRule::new(Role::Value, "model.layers.{l}.self_attn.v_proj.weight"),
        TensorRule::new(Role::AttentionOutput, "model.layers.{l}.self_attn.o_proj.weight"),
        TensorRule::new(Role::FfnNorm, "model.layers.{l}.post_attention_layernorm.weight"),
        TensorRule::new(Role::FfnGate, "model.layers.{l}.mlp.gate_proj.weight"),
        TensorRule::new(Role::FfnUp, "model.layers.{l}.mlp.up_proj.weight"),
        TensorRule::new(Role::FfnDown, "model.layers.{l}.mlp.down_proj.weight"),
        TensorRule::new(Role::OutputNorm, "model.norm.weight"),
        TensorRule::new(Role::Output, "lm_head.weight").when(Condition::Untied).unit_rows(),
    ],
    ignorable: INVERSE_FREQUENCIES,
    parts: Parts { alibi: Some(AlibiRule { max_bias: 8.0, layers: 40 }), ..Parts::new(RopePairs::Neighbours) },
    gaps: &[Gap::RopeFactors, Gap::Alibi],
};
