//! ChatGLM-6B, the first one: the words of a prompt see each other, positions have two rows, and results are added to
//! scaled norms.
//!
//! ```text
//! x ─ attn_norm (h) ─ attention ─(+ alpha h)─ ffn_norm (g) ─ gelu ─(+ alpha g)─ ...      alpha = sqrt(2 layers)
//! kq = (q / (sqrt(head size) (layer + 1))) k, + mask of 0 and -10000, times (layer + 1), soft_max
//! ```
//!
//! GGUF has no architecture for it: `docs/chatglm.md` describes the one that is written here.

use crate::Condition;
use crate::architecture::{
    Architecture, FeedForward, FieldRule, Fixed, Grouped, Missing, Norm, Parts, PrefixRule, Residual, Rotated, Sign,
    TensorRule,
};
use crate::field::Field;
use crate::llama::UNTIED_UNLESS_SAID;
use crate::role::Role;
use trueup_graph::op::RopePairs;

/// `ChatGLMModel` with positions in two rows.
pub static CHATGLM1: Architecture = Architecture {
    gguf_name: "chatglm1",
    classes: &["ChatGLMModel", "ChatGLMForConditionalGeneration"],
    is_internal: false,
    told_by: &[Sign::True("position_encoding_2d"), Sign::Present("inner_hidden_size")],
    flm_name: Some("chatglm"),
    fields: &[
        FieldRule::new(Field::Width, "hidden_size", Missing::Refused),
        FieldRule::new(Field::Layers, "num_layers", Missing::Refused),
        FieldRule::new(Field::Heads, "num_attention_heads", Missing::Refused),
        FieldRule::new(Field::KvHeads, "num_key_value_heads", Missing::Heads),
        FieldRule::new(Field::HeadSize, "head_dim", Missing::WidthOverHeads),
        FieldRule::new(Field::Ffn, "inner_hidden_size", Missing::Refused),
        FieldRule::new(Field::Vocabulary, "vocab_size", Missing::Refused),
        FieldRule::new(Field::Context, "max_sequence_length", Missing::Is(2048.0)),
        FieldRule::new(Field::Epsilon, "layernorm_epsilon", Missing::Is(1e-5)),
        FieldRule::new(Field::RopeBase, "rope_theta", Missing::Is(10_000.0)),
    ],
    flags: &[UNTIED_UNLESS_SAID],
    signs: &[],
    fixed: &[
        Fixed { theirs: "position_encoding_2d", allowed: &["true"] },
        // Prefixes that training put before the cache.
        Fixed { theirs: "pre_seq_len", allowed: &["0"] },
        Fixed { theirs: "quantization_bit", allowed: &["0"] },
        Fixed { theirs: "quantization_config", allowed: &[] },
    ],
    window: None,
    tensors: &[
        TensorRule::new(Role::TokenEmbedding, "transformer.word_embeddings.weight"),
        TensorRule::new(Role::AttentionNorm, "transformer.layers.{l}.input_layernorm.weight"),
        TensorRule::new(Role::AttentionNormBias, "transformer.layers.{l}.input_layernorm.bias"),
        TensorRule::new(Role::QueryKeyValue, "transformer.layers.{l}.attention.query_key_value.weight")
            .grouped(Grouped::ByHead),
        TensorRule::new(Role::QueryKeyValueBias, "transformer.layers.{l}.attention.query_key_value.bias")
            .grouped(Grouped::ByHead),
        TensorRule::new(Role::AttentionOutput, "transformer.layers.{l}.attention.dense.weight"),
        TensorRule::new(Role::AttentionOutputBias, "transformer.layers.{l}.attention.dense.bias"),
        TensorRule::new(Role::FfnNorm, "transformer.layers.{l}.post_attention_layernorm.weight"),
        TensorRule::new(Role::FfnNormBias, "transformer.layers.{l}.post_attention_layernorm.bias"),
        TensorRule::new(Role::FfnUp, "transformer.layers.{l}.mlp.dense_h_to_4h.weight"),
        TensorRule::new(Role::FfnUpBias, "transformer.layers.{l}.mlp.dense_h_to_4h.bias"),
        TensorRule::new(Role::FfnDown, "transformer.layers.{l}.mlp.dense_4h_to_h.weight"),
        TensorRule::new(Role::FfnDownBias, "transformer.layers.{l}.mlp.dense_4h_to_h.bias"),
        TensorRule::new(Role::OutputNorm, "transformer.final_layernorm.weight"),
        TensorRule::new(Role::OutputNormBias, "transformer.final_layernorm.bias"),
        TensorRule::new(Role::Output, "lm_head.weight").when(Condition::Untied),
    ],
    ignorable: &["transformer.layers.{l}.attention.rotary_emb.inv_freq", "transformer.rotary_emb.inv_freq"],
    parts: Parts {
        norm: Norm::Layer,
        rotated: Rotated::Half,
        residual: Residual::ScaledNorm,
        feed_forward: FeedForward::Gelu,
        prefix: Some(PrefixRule {
            end: ("bos_token_id", 150_004),
            mark: ("gmask_token_id", 150_001),
            other_mark: ("mask_token_id", 150_000),
        }),
        ..Parts::new(RopePairs::Halves)
    },
    gaps: &[],
};
