//! StableLM 3B and StableLM 2: layer norms with biases, a quarter of each head rotated, a gated feed-forward.
//! StableLM 2 12B has norms of query and key heads, and attention and feed-forward in parallel after one norm.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::config::Config;
use crate::decoder::{Decoder, Rotated, Style, Usual};
use crate::part::attention::{HeadNorm, HeadSpan};
use crate::part::norm::NormKind;
use crate::spec::{Arrangement, ModelSpec};
use trueup_graph::op::RopePairs;

/// `StableLmForCausalLM`; `StableLMEpochForCausalLM` in the first published version.
pub static STABLELM: Architecture = Architecture {
    gguf_name: "stablelm",
    classes: &["StableLmForCausalLM", "StableLMEpochForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("rotary_scaling_factor", &["1.0", "1"]);
        let style = style(config.flag_or("use_qkv_bias", false), config.flag_or(PARALLEL, false));
        let has_head_norm = config.flag_or("qk_layernorm", false);
        let usual = usual(config);
        finished(&Decoder::from_config(config, &usual, RopePairs::Halves), &style, has_head_norm)
    },
    from_metadata: |keys| {
        let has_bias = keys.has_tensor("blk.{l}.attn_q.bias");
        let style = style(has_bias, !keys.has_tensor("blk.{l}.ffn_norm.weight"));
        let has_head_norm = keys.has_tensor("blk.{l}.attn_q_norm.weight");
        finished(&Decoder::from_keys(keys, RopePairs::Halves, style.norm), &style, has_head_norm)
    },
    more_keys: |spec, writer| {
        let is_parallel = spec.layers.iter().all(|layer| layer.arrangement.is_parallel);
        writer.value(PARALLEL, is_parallel);
    },
    needs_head: true,
    tensors: &[
        &[
            TensorRule::new("blk.{l}.attn_q_norm", "model.layers.{l}.self_attn.q_layernorm.norms.{e}"),
            TensorRule::new("blk.{l}.attn_k_norm", "model.layers.{l}.self_attn.k_layernorm.norms.{e}"),
        ],
        NAMES,
    ],
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    context_absent: Some(4096),
    epsilon: ("layer_norm_eps", 1e-5),
    rotated: Rotated::Share("partial_rotary_factor", 0.25),
    ..Usual::LLAMA
};
/// The key, in `config.json` and in GGUF.
const PARALLEL: &str = "use_parallel_residual";

/// The usual keys, or the keys that the first published version has instead.
fn usual(config: &Config) -> Usual {
    let mut usual = USUAL;
    if config.has("norm_eps") {
        usual.epsilon.0 = "norm_eps";
    }
    if config.has("rope_pct") {
        usual.rotated = Rotated::Share("rope_pct", 0.25);
    }
    usual
}

fn style(attention_bias: bool, is_parallel: bool) -> Style {
    let arrangement = if is_parallel { Arrangement::parallel } else { Arrangement::pre };
    Style { norm: NormKind::LAYER, attention_bias, arrangement, ..Style::LLAMA }
}

/// The norms of query and key heads have weights for each head, and no biases.
fn finished(decoder: &Decoder, style: &Style, has_head_norm: bool) -> ModelSpec {
    let norm = decoder.norm(NormKind::Layer { has_weight: true, has_bias: false });
    decoder.spec(style).with_attention(|_, attention| {
        attention.head_norm = has_head_norm.then_some(HeadNorm { norm, span: HeadSpan::EachHead });
    })
}
