//! StarCoder: layer norms with biases, learned positions, and one head of keys and values for all heads.

use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::decoder::{Decoder, Style, Usual};
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `GPTBigCodeForCausalLM`.
pub static STARCODER: Architecture = Architecture {
    gguf_name: "starcoder",
    classes: &["GPTBigCodeForCausalLM"],
    from_config: |config| {
        config.only("activation_function", &["\"gelu_pytorch_tanh\"", "\"gelu_new\""]);
        // Without it, the rows of each head are neighbours in the checkpoint.
        config.only("multi_query", &["true"]);
        config.only("scale_attn_weights", &["true"]);
        config.only("add_cross_attention", &["false"]);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        decoder.kv_heads.fill(1);
        with_learned_positions(decoder.spec(&STYLE))
    },
    from_metadata: |keys| with_learned_positions(Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE)),
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.wte"),
        TensorRule::new("position_embd", "transformer.wpe"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.h.{l}.ln_1"),
        TensorRule::new("blk.{l}.attn_qkv", "transformer.h.{l}.attn.c_attn"),
        TensorRule::new("blk.{l}.attn_output", "transformer.h.{l}.attn.c_proj"),
        TensorRule::new("blk.{l}.ffn_norm", "transformer.h.{l}.ln_2"),
        TensorRule::new("blk.{l}.ffn_up", "transformer.h.{l}.mlp.c_fc"),
        TensorRule::new("blk.{l}.ffn_down", "transformer.h.{l}.mlp.c_proj"),
        TensorRule::new("output_norm", "transformer.ln_f"),
        TensorRule::new("output", "lm_head"),
    ]],
    ..Architecture::BASE
};

const USUAL: Usual = Usual { context_absent: Some(1024), tied_absent: true, ..Usual::GPT };
const STYLE: Style = Style { is_fused: true, is_rotated: false, ..Style::GPT };

/// The same model with a row of a table for each position, added to the embedding.
fn with_learned_positions(mut spec: ModelSpec) -> ModelSpec {
    spec.embedding.positions = Some(spec.context_length);
    spec
}
