//! ChatGLM-6B, the first version: the prompt attends bidirectionally, each token has two positions, and results are
//! added to scaled norm outputs.
//!
//! ```text
//! x ─ attn_norm (h) ─ attention ─(+ alpha h)─ ffn_norm (g) ─ gelu ─(+ alpha g)─ ...      alpha = sqrt(2 layers)
//! kq = (q / (sqrt(head size) (layer + 1))) k, + mask of 0 and -10000, times (layer + 1), soft_max
//! ```
//!
//! GGUF has no architecture for it: `docs/chatglm.md` describes the one that is written here.

use super::chatglm::CHATGLM;
use crate::architecture::{Architecture, Marker};
use crate::checkpoint::{TensorRule, split_by_head};
use crate::decoder::{Decoder, Rotated, Style, Usual, usual_config};
use crate::number::{nearest_f32, real};
use crate::spec::{ModelSpec, Prefix, Residual};
use trueup_graph::op::RopePairs;

/// `ChatGLMModel` with positions in two rows.
pub static CHATGLM1: Architecture = Architecture {
    gguf_name: "chatglm1",
    classes: CHATGLM.classes,
    selected_by: &[Marker::True("position_encoding_2d"), Marker::Present("inner_hidden_size")],
    flm_name: Some("chatglm"),
    from_config: |config| {
        config.only("position_encoding_2d", &["true"]);
        // Prefixes that training put before the cache.
        config.only("pre_seq_len", &["0"]);
        config.only("quantization_bit", &["0"]);
        let [end, mark, other_mark] = IDS.map(|(key, absent)| config.token_or(key, absent));
        let decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        with_scaled_norms(decoder.spec(&STYLE)).with_prefix(Prefix { end, mark, other_mark })
    },
    from_metadata: |keys| {
        let decoder = Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm);
        let prefix = keys.prefix();
        with_scaled_norms(decoder.spec(&STYLE)).with_prefix(prefix)
    },
    to_config: |spec| {
        let mut config = usual_config(spec, &USUAL)?;
        let prefix = spec.prefix()?;
        config.extend(IDS.map(|(key, _)| key.to_owned()).into_iter().zip([
            prefix.end.into(),
            prefix.mark.into(),
            prefix.other_mark.into(),
        ]));
        config.insert("position_encoding_2d".to_owned(), true.into());
        Some(config)
    },
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.word_embeddings"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.layers.{l}.input_layernorm"),
        TensorRule::new("blk.{l}.attn_qkv", "transformer.layers.{l}.attention.query_key_value").with(split_by_head),
        TensorRule::new("blk.{l}.attn_output", "transformer.layers.{l}.attention.dense"),
        TensorRule::new("blk.{l}.ffn_norm", "transformer.layers.{l}.post_attention_layernorm"),
        TensorRule::new("blk.{l}.ffn_up", "transformer.layers.{l}.mlp.dense_h_to_4h"),
        TensorRule::new("blk.{l}.ffn_down", "transformer.layers.{l}.mlp.dense_4h_to_h"),
        TensorRule::new("output_norm", "transformer.final_layernorm"),
        TensorRule::new("output", "lm_head"),
    ]],
    ignorable: &["transformer.layers.{l}.attention.rotary_emb.inv_freq", "transformer.rotary_emb.inv_freq"],
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    layers: "num_layers",
    intermediate: "inner_hidden_size",
    context: "max_sequence_length",
    epsilon: ("layernorm_epsilon", 1e-5),
    rotated: Rotated::Half,
    ..Usual::LLAMA
};
const STYLE: Style = Style { is_fused: true, ..Style::GPT };
/// The tokens that divide a text: end, mark and other mark, with the ids of the first published version.
const IDS: [(&str, u32); 3] = [("bos_token_id", 150_004), ("gmask_token_id", 150_001), ("mask_token_id", 150_000)];

fn with_scaled_norms(mut spec: ModelSpec) -> ModelSpec {
    let alpha = nearest_f32((2.0 * real(spec.layers.len())).sqrt());
    spec.layers.iter_mut().for_each(|layer| layer.residual = Residual::ScaledNorm(alpha));
    spec
}
