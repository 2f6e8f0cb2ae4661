//! ChatGLM2 and ChatGLM3: queries, keys and values are one tensor, and so are gate and up; the first half of each head
//! is rotated.
//!
//! ```text
//! attn_qkv [hidden size, queries + keys + values]    ffn_up [hidden size, gate + up]    stored as in the checkpoint
//! ```
//!
//! ChatGLM-6B has the same class and is another model (`chatglm1.rs`), which markers select.

use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::decoder::{Decoder, Rotated, Style, Usual, shortest, usual_config};
use crate::metadata::Keys;
use crate::number::nearest_f32;
use crate::part::feed_forward::Storage;
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `ChatGLMModel`, also for generation.
pub static CHATGLM: Architecture = Architecture {
    gguf_name: "chatglm",
    classes: &["ChatGLMModel", "ChatGLMForConditionalGeneration"],
    flm_name: Some("chatglm"),
    from_config: |config| {
        for (key, allowed) in [
            ("multi_query_attention", "true"),
            ("rmsnorm", "true"),
            ("post_layer_norm", "true"),
            ("apply_residual_connection_post_layernorm", "false"),
            ("add_bias_linear", "false"),
            ("original_rope", "true"),
            // Prefixes that training put before the cache.
            ("pre_seq_len", "0"),
            ("quantization_bit", "0"),
        ] {
            config.only(key, &[allowed]);
        }
        let groups = config.count(USUAL.kv_heads);
        let ratio = config.number_or(USUAL.rope_base.0, 1.0);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Neighbours);
        decoder.kv_heads.fill(groups);
        decoder.rope.base = nearest_f32(ratio * BASE);
        decoder.spec(&Style { attention_bias: config.flag_or("add_qkv_bias", false), ..STYLE })
    },
    from_metadata: chatglm_from_metadata,
    to_config: |spec| {
        let mut config = usual_config(spec, &USUAL)?;
        let ratio = shortest(spec.rope()?.base) / BASE;
        config.insert(USUAL.rope_base.0.to_owned(), ratio.into());
        config.insert("add_qkv_bias".to_owned(), spec.attention(0)?.has_bias.into());
        Some(config)
    },
    tensors: &[&[
        TensorRule::new("token_embd", "transformer.embedding.word_embeddings"),
        TensorRule::new("blk.{l}.attn_norm", "transformer.encoder.layers.{l}.input_layernorm"),
        TensorRule::new("blk.{l}.attn_qkv", "transformer.encoder.layers.{l}.self_attention.query_key_value"),
        TensorRule::new("blk.{l}.attn_output", "transformer.encoder.layers.{l}.self_attention.dense"),
        TensorRule::new("blk.{l}.ffn_norm", "transformer.encoder.layers.{l}.post_attention_layernorm"),
        TensorRule::new("blk.{l}.ffn_up", "transformer.encoder.layers.{l}.mlp.dense_h_to_4h"),
        TensorRule::new("blk.{l}.ffn_down", "transformer.encoder.layers.{l}.mlp.dense_4h_to_h"),
        TensorRule::new("output_norm", "transformer.encoder.final_layernorm"),
        TensorRule::new("output", "transformer.output_layer"),
    ]],
    ignorable: &["transformer.rotary_pos_emb.inv_freq"],
    ..Architecture::BASE
};

/// Reads a GGUF file of the architecture `chatglm`, whose tensors decide whether queries, keys and values are separate.
pub(super) fn chatglm_from_metadata(keys: &mut Keys) -> ModelSpec {
    let is_fused = keys.has_tensor("blk.{l}.attn_qkv.weight");
    let bias = if is_fused { "blk.{l}.attn_qkv.bias" } else { "blk.{l}.attn_q.bias" };
    let style = Style { attention_bias: keys.has_tensor(bias), is_fused, ..STYLE };
    Decoder::from_keys(keys, RopePairs::Neighbours, style.norm).spec(&style)
}

const USUAL: Usual = Usual {
    layers: "num_layers",
    kv_heads: "multi_query_group_num",
    head_size: "kv_channels",
    intermediate: "ffn_hidden_size",
    vocabulary: "padded_vocab_size",
    context: "seq_length",
    epsilon: ("layernorm_epsilon", 1e-5),
    // In units of 10,000.
    rope_base: ("rope_ratio", 1.0),
    rotated: Rotated::Half,
    ..Usual::LLAMA
};
const BASE: f64 = 10_000.0;
const STYLE: Style = Style { is_fused: true, storage: Storage::FusedGate, ..Style::LLAMA };
