//! MOSS (moss-moon-003): attention and feed-forward side by side, after one norm with a bias; queries, values and keys
//! in quarters of one tensor.
//!
//! ```text
//! x ─ attn_norm ─┬─ attention ────────────────┐
//!                └─ up, gelu, down ───────────(+)─ x ─ ...
//! ```
//!
//! ```text
//! rotary_dim     number of rotated elements of each head, in adjacent pairs
//! ```
//!
//! GGUF has no architecture for it; this one's keys and tensors have the usual names, and a bias of the head,
//! `output.bias`.

use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, split_by_quarter};
use crate::decoder::{Decoder, Rotated, Style, Usual, usual_config};
use crate::spec::Arrangement;
use trueup_graph::op::RopePairs;

/// `MossForCausalLM`.
pub static MOSS: Architecture = Architecture {
    gguf_name: "moss",
    classes: &["MossForCausalLM"],
    flm_name: Some("moss"),
    from_config: |config| {
        config.only("activation_function", &["\"gelu_new\""]);
        // Codes of a separate quantizer.
        config.only("wbits", &["32"]);
        Decoder::from_config(config, &USUAL, RopePairs::Neighbours).spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Neighbours, STYLE.norm).spec(&STYLE),
    to_config: |spec| usual_config(spec, &USUAL),
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.wte"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.h.{l}.ln_1"),
        TensorRule::new("blk.{l}.attn_qkv", "transformer.h.{l}.attn.qkv_proj").with(split_by_quarter),
        TensorRule::new("blk.{l}.attn_output", "transformer.h.{l}.attn.out_proj"),
        TensorRule::new("blk.{l}.ffn_up", "transformer.h.{l}.mlp.fc_in"),
        TensorRule::new("blk.{l}.ffn_down", "transformer.h.{l}.mlp.fc_out"),
        TensorRule::new("output_norm", "transformer.ln_f"),
        TensorRule::new("output", "lm_head"),
    ]],
    ignorable: &["transformer.h.{l}.attn.causal_mask"],
    ..Architecture::BASE
};

const USUAL: Usual = Usual { kv_heads: "n_head", rotated: Rotated::Count("rotary_dim", 64), ..Usual::GPT };
const STYLE: Style = Style {
    arrangement: Arrangement::parallel,
    is_fused: true,
    attention_bias: false,
    output_bias: false,
    head_bias: true,
    ..Style::GPT
};
