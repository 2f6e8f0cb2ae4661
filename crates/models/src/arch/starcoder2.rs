//! StarCoder2: layer norms and biases everywhere, grouped heads, a sliding window, an ungated feed-forward.

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
        config.only("quantization_config", &[]);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        decoder.window = config.window("sliding_window", None).map(|size| (size, vec![true; decoder.layers]));
        decoder.spec(&Style::GPT)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, Style::GPT.norm).spec(&Style::GPT),
    compatibility: |spec| window_note(spec).into_iter().collect(),
    tensors: &[
        TensorRule::new("token_embd", "model.embed_tokens"),
        TensorRule::new("blk.{l}.attn_norm", "model.layers.{l}.input_layernorm"),
        TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.self_attn.q_proj"),
        TensorRule::new("blk.{l}.attn_k", "model.layers.{l}.self_attn.k_proj"),
        TensorRule::new("blk.{l}.attn_v", "model.layers.{l}.self_attn.v_proj"),
        TensorRule::new("blk.{l}.attn_output", "model.layers.{l}.self_attn.o_proj"),
        TensorRule::new("blk.{l}.ffn_norm", "model.layers.{l}.post_attention_layernorm"),
        TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.mlp.c_fc"),
        TensorRule::new("blk.{l}.ffn_down", "model.layers.{l}.mlp.c_proj"),
        TensorRule::new("output_norm", "model.norm"),
        TensorRule::new("output", "lm_head"),
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
