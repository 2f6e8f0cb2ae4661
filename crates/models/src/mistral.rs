//! Mistral 7B and its relatives: Llama's tensors without biases, grouped heads, a sliding window on all layers.

use crate::architecture::{Architecture, FieldRule, Missing, Parts, WindowRule};
use crate::field::Field;
use crate::gap::Gap;
use crate::llama::{GATED_SILU, INVERSE_FREQUENCIES, TENSORS, UNTIED_UNLESS_SAID};
use trueup_graph::op::RopePairs;

/// `MistralForCausalLM`, in GGUF a `llama`.
pub static MISTRAL: Architecture = Architecture {
    gguf_name: "llama",
    classes: &["MistralForCausalLM"],
    is_internal: false,
    told_by: &[],
    flm_name: Some("llama"),
    fields: &[
        FieldRule::new(Field::Width, "hidden_size", Missing::Refused),
        FieldRule::new(Field::Layers, "num_hidden_layers", Missing::Refused),
        FieldRule::new(Field::Heads, "num_attention_heads", Missing::Refused),
        FieldRule::new(Field::KvHeads, "num_key_value_heads", Missing::IsOrHeads(8.0)),
        FieldRule::new(Field::HeadSize, "head_dim", Missing::WidthOverHeads),
        FieldRule::new(Field::Ffn, "intermediate_size", Missing::Refused),
        FieldRule::new(Field::Vocabulary, "vocab_size", Missing::Refused),
        FieldRule::new(Field::Context, "max_position_embeddings", Missing::Is(131_072.0)),
        FieldRule::new(Field::Epsilon, "rms_norm_eps", Missing::Is(1e-6)),
        FieldRule::new(Field::RopeBase, "rope_theta", Missing::Is(10_000.0)),
    ],
    flags: &[UNTIED_UNLESS_SAID],
    signs: &[],
    fixed: GATED_SILU,
    window: Some(WindowRule { missing: 4096, enabled_by: None, first_layer: None }),
    tensors: TENSORS,
    ignorable: INVERSE_FREQUENCIES,
    parts: Parts::new(RopePairs::Neighbours),
    gaps: &[Gap::SlidingWindow],
};
