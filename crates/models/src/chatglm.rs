//! ChatGLM2 and ChatGLM3: queries, keys and values are one tensor, and so are gate and up; the first half of each head
//! is rotated.
//!
//! ```text
//! attn_qkv [width, queries + keys + values]    ffn_up [width, gate + up]    stored as in the checkpoint, computed apart
//! ```
//!
//! ChatGLM-6B has the same class and is another model (`chatglm1.rs`), which its description tells.

use crate::architecture::{Architecture, Condition, FieldRule, Fixed, FlagRule, Missing, Parts, Rotated, TensorRule};
use crate::field::Field;
use crate::gap::Gap;
use crate::llama::UNTIED_UNLESS_SAID;
use crate::role::Role;
use trueup_graph::op::RopePairs;

/// `ChatGLMModel`, also for generation.
pub static CHATGLM: Architecture = Architecture {
    gguf_name: "chatglm",
    classes: &["ChatGLMModel", "ChatGLMForConditionalGeneration"],
    is_internal: false,
    told_by: &[],
    flm_name: Some("chatglm"),
    fields: &[
        FieldRule::new(Field::Width, "hidden_size", Missing::Refused),
        FieldRule::new(Field::Layers, "num_layers", Missing::Refused),
        FieldRule::new(Field::Heads, "num_attention_heads", Missing::Refused),
        FieldRule::new(Field::KvHeads, "multi_query_group_num", Missing::Refused),
        FieldRule::new(Field::HeadSize, "kv_channels", Missing::WidthOverHeads),
        FieldRule::new(Field::Ffn, "ffn_hidden_size", Missing::Refused),
        FieldRule::new(Field::Vocabulary, "padded_vocab_size", Missing::Refused),
        FieldRule::new(Field::Context, "seq_length", Missing::Is(2048.0)),
        FieldRule::new(Field::Epsilon, "layernorm_epsilon", Missing::Is(1e-5)),
        FieldRule::new(Field::RopeBase, "rope_ratio", Missing::Is(1.0)).in_units_of(10_000.0),
    ],
    flags: &[
        UNTIED_UNLESS_SAID,
        FlagRule { theirs: "add_qkv_bias", missing: false, conditions: &[Condition::AttentionBias], inverted: false },
    ],
    signs: &[],
    fixed: &[
        Fixed { theirs: "multi_query_attention", allowed: &["true"] },
        Fixed { theirs: "rmsnorm", allowed: &["true"] },
        Fixed { theirs: "post_layer_norm", allowed: &["true"] },
        Fixed { theirs: "apply_residual_connection_post_layernorm", allowed: &["false"] },
        Fixed { theirs: "add_bias_linear", allowed: &["false"] },
        Fixed { theirs: "original_rope", allowed: &["true"] },
        // Prefixes that training put before the cache.
        Fixed { theirs: "pre_seq_len", allowed: &["0"] },
        Fixed { theirs: "quantization_bit", allowed: &["0"] },
        Fixed { theirs: "quantization_config", allowed: &[] },
    ],
    window: None,
    tensors: &[
        TensorRule::new(Role::TokenEmbedding, "transformer.embedding.word_embeddings.weight"),
        TensorRule::computed(Role::RopeFactors, Condition::RopeFactors),
        TensorRule::new(Role::AttentionNorm, "transformer.encoder.layers.{l}.input_layernorm.weight"),
        TensorRule::new(Role::QueryKeyValue, "transformer.encoder.layers.{l}.self_attention.query_key_value.weight"),
        TensorRule::new(Role::QueryKeyValueBias, "transformer.encoder.layers.{l}.self_attention.query_key_value.bias")
            .when(Condition::AttentionBias),
        TensorRule::new(Role::AttentionOutput, "transformer.encoder.layers.{l}.self_attention.dense.weight"),
        TensorRule::new(Role::FfnNorm, "transformer.encoder.layers.{l}.post_attention_layernorm.weight"),
        TensorRule::new(Role::FfnGateUp, "transformer.encoder.layers.{l}.mlp.dense_h_to_4h.weight"),
        TensorRule::new(Role::FfnDown, "transformer.encoder.layers.{l}.mlp.dense_4h_to_h.weight"),
        TensorRule::new(Role::OutputNorm, "transformer.encoder.final_layernorm.weight"),
        TensorRule::new(Role::Output, "transformer.output_layer.weight").when(Condition::Untied),
    ],
    ignorable: &["transformer.rotary_pos_emb.inv_freq"],
    parts: Parts { rotated: Rotated::Half, ..Parts::new(RopePairs::Neighbours) },
    gaps: &[Gap::RopeFactors],
};
