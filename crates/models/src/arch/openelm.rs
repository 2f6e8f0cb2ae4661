//! OpenELM: layers that differ in heads and in the size of the feed-forward, and norms of query and key heads.

use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, first_half_rows, second_half_rows};
use crate::config::Config;
use crate::decoder::{Decoder, NO_KEY, Style, Usual};
use crate::limit::SIZE_MAX;
use crate::number::{real, whole_u32};
use crate::part::attention::HeadSpan;
use trueup_graph::op::RopePairs;

/// `OpenELMForCausalLM`.
pub static OPENELM: Architecture = Architecture {
    gguf_name: "openelm",
    classes: &["OpenELMForCausalLM"],
    from_config: |config| {
        for (key, allowed) in [
            ("activation_fn_name", "\"swish\""),
            ("normalization_layer_name", "\"rms_norm\""),
            ("ffn_with_glu", "true"),
            ("normalize_qk_projections", "true"),
            ("share_input_output_layers", "true"),
        ] {
            config.only(key, &[allowed]);
        }
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        decoder.intermediate = feed_forward_sizes(config, &decoder);
        decoder.spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE),
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.token_embeddings"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.layers.{l}.attn_norm"),
        TensorRule::new("blk.{l}.attn_qkv", "transformer.layers.{l}.attn.qkv_proj"),
        TensorRule::new("blk.{l}.attn_q_norm", "transformer.layers.{l}.attn.q_norm"),
        TensorRule::new("blk.{l}.attn_k_norm", "transformer.layers.{l}.attn.k_norm"),
        TensorRule::new("blk.{l}.attn_output", "transformer.layers.{l}.attn.out_proj"),
        TensorRule::new("blk.{l}.ffn_norm", "transformer.layers.{l}.ffn_norm"),
        TensorRule::new("blk.{l}.ffn_gate", "transformer.layers.{l}.ffn.proj_1").with(first_half_rows),
        TensorRule::new("blk.{l}.ffn_up", "transformer.layers.{l}.ffn.proj_1").with(second_half_rows),
        TensorRule::new("blk.{l}.ffn_down", "transformer.layers.{l}.ffn.proj_2"),
        TensorRule::new("output_norm", "transformer.norm"),
    ]],
    has_free_head_size: true,
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    hidden_size: "model_dim",
    layers: "num_transformer_layers",
    heads: "num_query_heads",
    kv_heads: "num_kv_heads",
    intermediate: NO_KEY,
    intermediate_absent: Some(1),
    context: "max_context_length",
    epsilon: (NO_KEY, 1e-6),
    rope_base: ("rope_freq_constant", 10_000.0),
    tied_absent: true,
    ..Usual::LLAMA
};
const STYLE: Style = Style { is_fused: true, head_norm: Some(HeadSpan::Head), ..Style::LLAMA };
/// The list with the size of each feed-forward, in units of the hidden size.
const MULTIPLIERS: &str = "ffn_multipliers";

/// The sizes of the layers' feed-forwards: multiples of `ffn_dim_divisor`.
fn feed_forward_sizes(config: &mut Config, decoder: &Decoder) -> Vec<usize> {
    let divisor = config.count_or("ffn_dim_divisor", 256);
    let multipliers = config.numbers(MULTIPLIERS, decoder.layers);
    let sizes = multipliers.into_iter().map(|multiplier| {
        let size = nearest_multiple(multiplier * real(decoder.hidden_size), divisor);
        if size.is_none() {
            config.problem(format!("{MULTIPLIERS}: expected positive numbers, found {multiplier}"));
        }
        size.unwrap_or(1)
    });
    sizes.collect()
}

/// The multiple of `divisor` nearest to `size`, but not more than a tenth below it; `None` if it is no valid size.
fn nearest_multiple(size: f64, divisor: usize) -> Option<usize> {
    let rounded =
        usize::try_from(whole_u32((size + real(divisor) / 2.0).floor())).ok().filter(|rounded| *rounded > 0)?;
    let multiple = rounded.checked_div(divisor)?.checked_mul(divisor)?.max(divisor);
    let multiple = if real(multiple) < 0.9 * size { multiple.checked_add(divisor)? } else { multiple };
    (size > 0.0 && multiple <= SIZE_MAX).then_some(multiple)
}
