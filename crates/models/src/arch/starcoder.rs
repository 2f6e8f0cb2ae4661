//! StarCoder: layer norms with biases, learned positions, and one head of keys and values for all heads. With
//! `multi_query` false, each head has its keys and values, and a checkpoint stores the rows of a head together.

use super::gpt2::{CAUSAL_MASKS, STYLE, USUAL, only_plain_scores, with_learned_positions};
use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, split_by_head};
use crate::decoder::Decoder;
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `GPTBigCodeForCausalLM`.
pub static STARCODER: Architecture = Architecture {
    gguf_name: "starcoder",
    classes: &["GPTBigCodeForCausalLM"],
    from_config: |config| {
        config.only("activation_function", &["\"gelu_pytorch_tanh\"", "\"gelu_new\""]);
        only_plain_scores(config);
        let is_multi_query = config.flag_or("multi_query", true);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        decoder.kv_heads = if is_multi_query { vec![1; decoder.layers] } else { decoder.heads.clone() };
        with_learned_positions(decoder.spec(&STYLE))
    },
    from_metadata: |keys| with_learned_positions(Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE)),
    tensors: &[
        &[
            TensorRule::new("position_embd", "transformer.wpe"),
            TensorRule::new("blk.{l}.attn_qkv", "transformer.h.{l}.attn.c_attn")
                .when(has_kv_of_each_head)
                .with(split_by_head),
        ],
        NAMES,
    ],
    ignorable: CAUSAL_MASKS,
    ..Architecture::BASE
};

fn has_kv_of_each_head(spec: &ModelSpec) -> bool {
    spec.attention(0).is_some_and(|attention| attention.kv_heads == attention.heads)
}

/// Names of GPT-2 with queries, keys and values in one matrix.
pub(super) const NAMES: &[TensorRule] = &[
    TensorRule::new("token_embd", "transformer.wte"),
    TensorRule::new("blk.{l}.attn_norm", "transformer.h.{l}.ln_1"),
    TensorRule::new("blk.{l}.attn_qkv", "transformer.h.{l}.attn.c_attn"),
    TensorRule::new("blk.{l}.attn_output", "transformer.h.{l}.attn.c_proj"),
    TensorRule::new("blk.{l}.ffn_norm", "transformer.h.{l}.ln_2"),
    TensorRule::new("blk.{l}.ffn_up", "transformer.h.{l}.mlp.c_fc"),
    TensorRule::new("blk.{l}.ffn_down", "transformer.h.{l}.mlp.c_proj"),
    TensorRule::new("output_norm", "transformer.ln_f"),
    TensorRule::new("output", "lm_head"),
];
