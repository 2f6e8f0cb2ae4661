//! Refact: layer norms without biases, ALiBi, one head of keys and values for all heads, a gated feed-forward.

use super::gpt2::{USUAL, only_plain_scores};
use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, first_half_rows, second_half_rows};
use crate::decoder::{Decoder, Style, Usual};
use crate::part::attention::Position;
use crate::part::norm::NormKind;
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `GPTRefactForCausalLM`.
pub static REFACT: Architecture = Architecture {
    gguf_name: "refact",
    classes: &["GPTRefactForCausalLM"],
    from_config: |config| {
        config.only("multi_query", &["true"]);
        only_plain_scores(config);
        let usual = Usual { context_absent: Some(4096), ..USUAL };
        let mut decoder = Decoder::from_config(config, &usual, RopePairs::Halves);
        decoder.kv_heads.fill(1);
        decoder.intermediate.iter_mut().for_each(|size| *size = two_thirds(*size));
        finished(&decoder)
    },
    from_metadata: |keys| {
        keys.only_alibi_bias(MAX_BIAS);
        finished(&Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm))
    },
    more_keys: |spec, writer| {
        // llama.cpp looks for the epsilon of an RMS norm.
        if let Some(epsilon) = spec.epsilon() {
            writer.value("attention.layer_norm_rms_epsilon", epsilon);
        }
    },
    compatibility: |_| {
        vec![
            "layer norms subtract the mean, as in the original model; llama.cpp computes RMS norms in their place, and \
             its results differ"
                .to_owned(),
        ]
    },
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.wte"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.h.{l}.ln_1"),
        TensorRule::new("blk.{l}.attn_q", "transformer.h.{l}.attn.q"),
        TensorRule::new("blk.{l}.attn_k", "transformer.h.{l}.attn.kv").with(first_half_rows),
        TensorRule::new("blk.{l}.attn_v", "transformer.h.{l}.attn.kv").with(second_half_rows),
        TensorRule::new("blk.{l}.attn_output", "transformer.h.{l}.attn.c_proj"),
        TensorRule::new("blk.{l}.ffn_norm", "transformer.h.{l}.ln_2"),
        TensorRule::new("blk.{l}.ffn_gate", "transformer.h.{l}.mlp.gate_up_proj").with(first_half_rows),
        TensorRule::new("blk.{l}.ffn_up", "transformer.h.{l}.mlp.gate_up_proj").with(second_half_rows),
        TensorRule::new("blk.{l}.ffn_down", "transformer.h.{l}.mlp.c_proj"),
        TensorRule::new("output_norm", "transformer.ln_f"),
        TensorRule::new("output", "lm_head"),
    ]],
    has_free_head_size: true,
    ..Architecture::BASE
};

const STYLE: Style =
    Style { norm: NormKind::Layer { has_weight: true, has_bias: false }, is_rotated: false, ..Style::LLAMA };
/// The largest exponent of ALiBi's slopes, for which there is no key.
const MAX_BIAS: f32 = 8.0;
/// The size of the feed-forward is a multiple of this.
const MULTIPLE: usize = 256;

/// The size of a gated feed-forward with about as many weights as an ungated one of `size`.
fn two_thirds(size: usize) -> usize {
    (size.saturating_mul(2) / 3).div_ceil(MULTIPLE).saturating_mul(MULTIPLE)
}

fn finished(decoder: &Decoder) -> ModelSpec {
    decoder.spec(&STYLE).with_attention(|_, attention| attention.position = Position::alibi(MAX_BIAS))
}
