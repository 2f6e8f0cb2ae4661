//! GPT-NeoX and Pythia: queries, keys and values of each head side by side, a part of each head rotated, and usually
//! attention and feed-forward in parallel, each after a separate norm.

use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, split_by_head};
use crate::compatibility::gelu_note;
use crate::decoder::{Decoder, Rotated, Style, Usual};
use crate::part::feed_forward::Activation;
use crate::spec::Arrangement;
use trueup_graph::op::RopePairs;

/// `GPTNeoXForCausalLM`.
pub static GPTNEOX: Architecture = Architecture {
    gguf_name: "gptneox",
    classes: &["GPTNeoXForCausalLM"],
    from_config: |config| {
        config.only("hidden_act", &["\"gelu\""]);
        config.only("attention_bias", &["true"]);
        let style = style(config.flag_or(PARALLEL, true));
        Decoder::from_config(config, &USUAL, RopePairs::Halves).spec(&style)
    },
    from_metadata: |keys| {
        let style = style(keys.flag_or(PARALLEL, true));
        Decoder::from_keys(keys, RopePairs::Halves, style.norm).spec(&style)
    },
    more_keys: |spec, writer| {
        let is_parallel = spec.layers.iter().all(|layer| layer.arrangement.is_parallel);
        writer.value(PARALLEL, is_parallel);
    },
    compatibility: |_| vec![gelu_note()],
    tensors: &[&[
        TensorRule::new("token_embd", "gpt_neox.embed_in"),
        TensorRule::new("blk.{l}.attn_norm", "gpt_neox.layers.{l}.input_layernorm"),
        TensorRule::new("blk.{l}.attn_qkv", "gpt_neox.layers.{l}.attention.query_key_value").with(split_by_head),
        TensorRule::new("blk.{l}.attn_output", "gpt_neox.layers.{l}.attention.dense"),
        TensorRule::new("blk.{l}.ffn_norm", "gpt_neox.layers.{l}.post_attention_layernorm"),
        TensorRule::new("blk.{l}.ffn_up", "gpt_neox.layers.{l}.mlp.dense_h_to_4h"),
        TensorRule::new("blk.{l}.ffn_down", "gpt_neox.layers.{l}.mlp.dense_4h_to_h"),
        TensorRule::new("output_norm", "gpt_neox.final_layer_norm"),
        TensorRule::new("output", "embed_out"),
    ]],
    needs_head: true,
    ignorable: &[
        "gpt_neox.layers.{l}.attention.rotary_emb.inv_freq",
        // Old checkpoints store the causal mask, and the score of the positions that it hides.
        "gpt_neox.layers.{l}.attention.bias",
        "gpt_neox.layers.{l}.attention.masked_bias",
    ],
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    kv_heads: "num_attention_heads",
    epsilon: ("layer_norm_eps", 1e-5),
    rope_base: ("rotary_emb_base", 10_000.0),
    rotated: Rotated::Share("rotary_pct", 0.25),
    ..Usual::LLAMA
};
/// The key, in `config.json` and in GGUF.
const PARALLEL: &str = "use_parallel_residual";

fn style(is_parallel: bool) -> Style {
    let arrangement = if is_parallel { Arrangement::parallel_two_norms } else { Arrangement::pre };
    Style { arrangement, is_fused: true, activation: Activation::GeluErf, ..Style::GPT }
}
