//! Phi 1, 1.5 and 2: attention and feed-forward in parallel after one norm, biases everywhere, also of the head, and a
//! part of each head rotated.

use super::llama::NAMES;
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::decoder::{Decoder, Rotated, Style, Usual};
use crate::spec::Arrangement;
use trueup_graph::op::RopePairs;

/// `PhiForCausalLM`.
pub static PHI2: Architecture = Architecture {
    gguf_name: "phi2",
    classes: &["PhiForCausalLM"],
    from_config: |config| {
        config.only("hidden_act", &["\"gelu_new\"", "\"gelu_pytorch_tanh\""]);
        config.only("qk_layernorm", &["false"]);
        Decoder::from_config(config, &USUAL, RopePairs::Halves).spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE),
    tensors: &[
        &[
            TensorRule::new("blk.{l}.attn_output", "model.layers.{l}.self_attn.dense"),
            TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.mlp.fc1"),
            TensorRule::new("blk.{l}.ffn_down", "model.layers.{l}.mlp.fc2"),
            TensorRule::new("output_norm", "model.final_layernorm"),
        ],
        NAMES,
    ],
    needs_head: true,
    ignorable: &["model.layers.{l}.self_attn.rotary_emb.inv_freq"],
    ..Architecture::BASE
};

const USUAL: Usual =
    Usual { epsilon: ("layer_norm_eps", 1e-5), rotated: Rotated::Share("partial_rotary_factor", 0.5), ..Usual::LLAMA };
const STYLE: Style = Style { arrangement: Arrangement::parallel, head_bias: true, ..Style::GPT };
