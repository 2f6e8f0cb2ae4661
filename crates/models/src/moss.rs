//! MOSS (moss-moon-003): attention and feed-forward side by side, behind one norm with a bias; queries, values and keys
//! in quarters of one tensor.
//!
//! ```text
//! x ─ attn_norm ─┬─ attention ────────────────┐
//!                └─ up, gelu, down ───────────(+)─ x ─ ...        the first rotary_dim elements of a head are rotated, as neighbours
//! ```
//!
//! GGUF has no architecture for it; this one's keys and tensors have the usual names, and a bias of the head,
//! `output.bias`.

use crate::architecture::{
    Architecture, Condition, FeedForward, FieldRule, Fixed, Grouped, Missing, Norm, Parts, Rotated, TensorRule,
};
use crate::field::Field;
use crate::llama::UNTIED_UNLESS_SAID;
use crate::role::Role;
use trueup_graph::op::RopePairs;

/// `MossForCausalLM`.
pub static MOSS: Architecture = Architecture {
    gguf_name: "moss",
    classes: &["MossForCausalLM"],
    is_internal: false,
    told_by: &[],
    flm_name: Some("moss"),
    fields: &[
        FieldRule::new(Field::Width, "n_embd", Missing::Refused),
        FieldRule::new(Field::Layers, "n_layer", Missing::Refused),
        FieldRule::new(Field::Heads, "n_head", Missing::Refused),
        FieldRule::new(Field::KvHeads, "n_head", Missing::Refused),
        FieldRule::new(Field::HeadSize, "head_dim", Missing::WidthOverHeads),
        FieldRule::new(Field::Ffn, "n_inner", Missing::Widths(4)),
        FieldRule::new(Field::Vocabulary, "vocab_size", Missing::Refused),
        FieldRule::new(Field::Context, "n_positions", Missing::Is(2048.0)),
        FieldRule::new(Field::Epsilon, "layer_norm_epsilon", Missing::Is(1e-5)),
        FieldRule::new(Field::RopeBase, "rope_theta", Missing::Is(10_000.0)),
    ],
    flags: &[UNTIED_UNLESS_SAID],
    signs: &[],
    fixed: &[
        Fixed { theirs: "activation_function", allowed: &["\"gelu_new\""] },
        // Codes of its own quantizer.
        Fixed { theirs: "wbits", allowed: &["32"] },
        Fixed { theirs: "quantization_config", allowed: &[] },
    ],
    window: None,
    tensors: &[
        TensorRule::new(Role::TokenEmbedding, "transformer.wte.weight"),
        TensorRule::new(Role::AttentionNorm, "transformer.h.{l}.ln_1.weight"),
        TensorRule::new(Role::AttentionNormBias, "transformer.h.{l}.ln_1.bias"),
        TensorRule::new(Role::QueryKeyValue, "transformer.h.{l}.attn.qkv_proj.weight").grouped(Grouped::ByQuarter),
        TensorRule::new(Role::AttentionOutput, "transformer.h.{l}.attn.out_proj.weight"),
        TensorRule::new(Role::FfnUp, "transformer.h.{l}.mlp.fc_in.weight"),
        TensorRule::new(Role::FfnUpBias, "transformer.h.{l}.mlp.fc_in.bias"),
        TensorRule::new(Role::FfnDown, "transformer.h.{l}.mlp.fc_out.weight"),
        TensorRule::new(Role::FfnDownBias, "transformer.h.{l}.mlp.fc_out.bias"),
        TensorRule::new(Role::OutputNorm, "transformer.ln_f.weight"),
        TensorRule::new(Role::OutputNormBias, "transformer.ln_f.bias"),
        TensorRule::new(Role::Output, "lm_head.weight").when(Condition::Untied),
        TensorRule::new(Role::OutputBias, "lm_head.bias"),
    ],
    ignorable: &["transformer.h.{l}.attn.causal_mask"],
    parts: Parts {
        norm: Norm::Layer,
        rotated: Rotated::Counted("rotary_dim", 64),
        is_parallel: true,
        feed_forward: FeedForward::Gelu,
        ..Parts::new(RopePairs::Neighbours)
    },
    gaps: &[],
};
