//! Llama 1, 2 and 3, and the many models of other names with the same class.

use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, interleave_heads};
use crate::config::Config;
use crate::decoder::{Decoder, Style, Usual, usual_config};
use crate::metadata::Keys;
use crate::part::experts::{Routing, SparseLayers};
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `LlamaForCausalLM`. The Hugging Face class rotates halves of a head, GGUF's `llama` adjacent pairs: hence the
/// interleaved rows of queries and keys.
pub static LLAMA: Architecture = Architecture {
    gguf_name: "llama",
    classes: &["LlamaForCausalLM", "LLaMAForCausalLM", "AquilaForCausalLM"],
    flm_name: Some("llama"),
    from_config: |config| {
        gated_silu(config);
        let attention_bias = config.flag_or("attention_bias", false);
        let style = Style {
            attention_bias,
            output_bias: attention_bias,
            feed_forward_bias: config.flag_or("mlp_bias", false),
            ..Style::LLAMA
        };
        Decoder::from_config(config, &Usual::LLAMA, RopePairs::Neighbours).spec(&style)
    },
    from_metadata: llama_from_metadata,
    to_config: |spec| {
        let mut config = usual_config(spec, &Usual::LLAMA)?;
        let (attention, feed_forward) = biases(spec);
        config.insert("attention_bias".to_owned(), attention.into());
        config.insert("mlp_bias".to_owned(), feed_forward.into());
        Some(config)
    },
    tensors: &[INTERLEAVED, NAMES],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

/// Reads a GGUF file of the architecture `llama`, whose tensors decide which biases there are, and whether layers have
/// experts (Mixtral).
pub(super) fn llama_from_metadata(keys: &mut Keys) -> ModelSpec {
    let style = Style {
        attention_bias: keys.has_tensor("blk.{l}.attn_q.bias"),
        output_bias: keys.has_tensor("blk.{l}.attn_output.bias"),
        feed_forward_bias: keys.has_tensor("blk.{l}.ffn_up.bias"),
        ..Style::LLAMA
    };
    let decoder = Decoder::from_keys(keys, RopePairs::Neighbours, style.norm);
    let sparse = SparseLayers::from_keys(keys, &decoder, Routing::RENORMALIZED);
    decoder.spec(&style).with_experts(sparse)
}

/// Whether attention and feed-forward of the first layer have biases.
fn biases(spec: &ModelSpec) -> (bool, bool) {
    let attention = spec.attention(0).is_some_and(|attention| attention.has_bias || attention.has_output_bias);
    let names = spec.tensors();
    (attention, names.iter().any(|tensor| tensor.name == "blk.0.ffn_up.bias"))
}

/// Queries and keys of classes that rotate halves, for GGUF architectures that rotate adjacent pairs.
pub(super) const INTERLEAVED: &[TensorRule] = &[
    TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj").with(interleave_heads),
    TensorRule::new("blk.{l}.attn_k", "model.layers.{l}.self_attn.k_proj").with(interleave_heads),
];

/// The names that most classes share. A model uses the rules of the tensors that it has.
pub(super) const NAMES: &[TensorRule] = &[
    TensorRule::new("token_embd", "model.embed_tokens"),
    TensorRule::new("blk.{l}.attn_norm", "model.layers.{l}.input_layernorm"),
    TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj"),
    TensorRule::new("blk.{l}.attn_q_norm", "model.layers.{l}.self_attn.q_norm"),
    TensorRule::new("blk.{l}.attn_k", "model.layers.{l}.self_attn.k_proj"),
    TensorRule::new("blk.{l}.attn_k_norm", "model.layers.{l}.self_attn.k_norm"),
    TensorRule::new("blk.{l}.attn_v", "model.layers.{l}.self_attn.v_proj"),
    TensorRule::new("blk.{l}.attn_output", "model.layers.{l}.self_attn.o_proj"),
    TensorRule::new("blk.{l}.post_attention_norm", "model.layers.{l}.post_attention_layernorm"),
    TensorRule::new("blk.{l}.ffn_norm", "model.layers.{l}.post_attention_layernorm"),
    TensorRule::new("blk.{l}.ffn_gate", "model.layers.{l}.mlp.gate_proj"),
    TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.mlp.up_proj"),
    TensorRule::new("blk.{l}.ffn_down", "model.layers.{l}.mlp.down_proj"),
    TensorRule::new("blk.{l}.post_ffw_norm", "model.layers.{l}.post_feedforward_layernorm"),
    TensorRule::new("output_norm", "model.norm"),
    TensorRule::new("output", "lm_head"),
];

/// Old checkpoints store the frequencies of the rotation as a tensor; they follow from the description.
pub(super) const INVERSE_FREQUENCIES: &[&str] =
    &["model.layers.{l}.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"];

/// Refuses any activation but silu, and quantized weights.
pub(super) fn gated_silu(config: &mut Config) {
    config.only("hidden_act", &["\"silu\"", "\"swish\""]);
}
