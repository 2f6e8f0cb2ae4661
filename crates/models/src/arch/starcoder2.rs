//! StarCoder2: layer norms and biases everywhere, grouped heads, a sliding window, an ungated feed-forward.

use super::llama::NAMES;
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::compatibility::window_note;
use crate::decoder::{Decoder, Style, Usual};
use trueup_graph::op::RopePairs;

/// `Starcoder2ForCausalLM`.
pub static STARCODER2: Architecture = Architecture {
    gguf_name: "starcoder2",
    classes: &["Starcoder2ForCausalLM"],
    from_config: |config| {
        config.only("hidden_act", &["\"gelu_pytorch_tanh\""]);
        config.only("use_bias", &["true"]);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        decoder.window = config.windows(None, vec![true; decoder.layers]);
        decoder.spec(&Style::GPT)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, Style::GPT.norm).spec(&Style::GPT),
    compatibility: |spec| window_note(spec).into_iter().collect(),
    tensors: &[
        &[
            TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.mlp.c_fc"),
            TensorRule::new("blk.{l}.ffn_down", "model.layers.{l}.mlp.c_proj"),
        ],
        NAMES,
    ],
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    kv_heads_absent: Some(2),
    context_absent: Some(4096),
    epsilon: ("norm_epsilon", 1e-5),
    tied_absent: true,
    ..Usual::LLAMA
};
