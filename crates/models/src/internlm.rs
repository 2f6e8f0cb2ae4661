//! InternLM, the first version: Llama with biases on all projections of attention, unless the description says that it
//! has none.

use crate::architecture::{Architecture, Condition, FieldRule, FlagRule, Missing, Parts};
use crate::field::Field;
use crate::llama::{GATED_SILU, INVERSE_FREQUENCIES, TENSORS, UNTIED_UNLESS_SAID};
use trueup_graph::op::RopePairs;

/// `InternLMForCausalLM`, in GGUF a `llama`.
pub static INTERNLM: Architecture = Architecture {
    gguf_name: "llama",
    classes: &["InternLMForCausalLM"],
    is_internal: false,
    told_by: &[],
    flm_name: Some("internlm"),
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
            theirs: "bias",
            missing: true,
            conditions: &[Condition::AttentionBias, Condition::AttentionOutputBias],
            inverted: false,
        },
    ],
    signs: &[],
    fixed: GATED_SILU,
    window: None,
    tensors: TENSORS,
    ignorable: INVERSE_FREQUENCIES,
    parts: Parts::new(RopePairs::Neighbours),
    gaps: &[],
};
