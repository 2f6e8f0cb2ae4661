//! Falcon of 7 and 40 billion parameters: attention and feed-forward in parallel, heads that share keys and values,
//! no biases but those of the norms.
//!
//! ```text
//! 7B    one norm                                           attn_norm
//! 40B   one norm for attention, one for the feed-forward   attn_norm_2, attn_norm
//! ```

use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, split_by_kv_head};
use crate::compatibility::gelu_note;
use crate::decoder::{Decoder, Style, Usual};
use crate::part::feed_forward::Activation;
use crate::part::norm::{NamedNorm, Norm};
use crate::spec::{Arrangement, ModelSpec};
use trueup_graph::op::RopePairs;

/// `FalconForCausalLM`.
pub static FALCON: Architecture = Architecture {
    gguf_name: "falcon",
    classes: &["FalconForCausalLM"],
    from_config: |config| {
        config.only("activation", &["\"gelu\""]);
        config.only("alibi", &["false"]);
        config.only("bias", &["false"]);
        config.only("parallel_attn", &["true"]);
        let is_new = config.flag_or("new_decoder_architecture", false);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        let heads = decoder.heads.first().copied().unwrap_or(1);
        let kv_heads = match (is_new, config.flag_or("multi_query", true)) {
            (true, _) => config.count_or("num_kv_heads", heads),
            (false, true) => 1,
            (false, false) => heads,
        };
        decoder.kv_heads.fill(kv_heads);
        let has_two_norms = is_new && config.count_or("num_ln_in_parallel_attn", 2) == 2;
        decoder.spec(if has_two_norms { &TWO_NORMS } else { &ONE_NORM })
    },
    from_metadata: |keys| {
        let style = if keys.has_tensor("blk.{l}.attn_norm_2.weight") { &TWO_NORMS } else { &ONE_NORM };
        Decoder::from_keys(keys, RopePairs::Halves, style.norm).spec(style)
    },
    compatibility: |_| vec![gelu_note()],
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.word_embeddings"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.h.{l}.ln_mlp").when(has_two_norms),
        TensorRule::new("blk.{l}.attn_norm", "transformer.h.{l}.input_layernorm"),
        TensorRule::new("blk.{l}.attn_norm_2", "transformer.h.{l}.ln_attn"),
        TensorRule::new("blk.{l}.attn_qkv", "transformer.h.{l}.self_attention.query_key_value").with(split_by_kv_head),
        TensorRule::new("blk.{l}.attn_output", "transformer.h.{l}.self_attention.dense"),
        TensorRule::new("blk.{l}.ffn_up", "transformer.h.{l}.mlp.dense_h_to_4h"),
        TensorRule::new("blk.{l}.ffn_down", "transformer.h.{l}.mlp.dense_4h_to_h"),
        TensorRule::new("output_norm", "transformer.ln_f"),
        TensorRule::new("output", "lm_head"),
    ]],
    ignorable: &["transformer.h.{l}.self_attention.rotary_emb.inv_freq"],
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    intermediate: "ffn_hidden_size",
    intermediate_absent: Some(4),
    epsilon: ("layer_norm_epsilon", 1e-5),
    tied_absent: true,
    ..Usual::LLAMA
};
const ONE_NORM: Style = Style {
    arrangement: Arrangement::parallel,
    is_fused: true,
    activation: Activation::GeluErf,
    attention_bias: false,
    output_bias: false,
    feed_forward_bias: false,
    ..Style::GPT
};
const TWO_NORMS: Style = Style { arrangement: two_norms, ..ONE_NORM };

fn two_norms(norm: Norm) -> Arrangement {
    Arrangement {
        before_mixer: Some(NamedNorm::new(norm, "attn_norm", "attn_norm_2")),
        before_feed_forward: Some(NamedNorm::new(norm, "ffn_norm", "attn_norm")),
        ..Arrangement::parallel(norm)
    }
}

fn has_two_norms(spec: &ModelSpec) -> bool {
    spec.layers.iter().any(|layer| layer.arrangement.before_feed_forward.is_some())
}
