//! BERT: an encoder with post-layer normalization, learned positions and token types (Devlin et al. 2019).
//!
//! Only the first token type is used. The pooler and the heads of pre-training are not converted: sentence embeddings
//! are pooled from the last layer.

use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::compatibility::gelu_note;
use crate::decoder::{Decoder, Style, Usual};
use crate::part::feed_forward::Activation;
use crate::spec::{Arrangement, ModelResult, ModelSpec};
use trueup_graph::op::RopePairs;

/// Number of token types, a key without the architecture.
const TOKEN_TYPES: &str = "tokenizer.ggml.token_type_count";

/// `BertModel` and `BertForMaskedLM`.
pub static BERT: Architecture = Architecture {
    gguf_name: "bert",
    classes: &["BertModel", "BertForMaskedLM"],
    from_config: |config| {
        config.only("hidden_act", &["\"gelu\""]);
        config.only("position_embedding_type", &["\"absolute\""]);
        config.only("is_decoder", &["false"]);
        config.only("add_cross_attention", &["false"]);
        config.only("pruned_heads", &["{}"]);
        config.only("quantization_config", &[]);
        let types = config.count_or("type_vocab_size", 2);
        let result = config.encoder_result();
        encoder(Decoder::from_config(config, &USUAL, RopePairs::Halves), types, result)
    },
    from_metadata: |keys| {
        let types = keys.shared_count_or(TOKEN_TYPES, keys.rows_of("token_types.weight").unwrap_or(1));
        let result = keys.encoder_result();
        encoder(Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm), types, result)
    },
    more_keys: |spec, writer| {
        let types = spec.embedding.token_types.unwrap_or(1);
        writer.shared_value(TOKEN_TYPES, u32::try_from(types).unwrap_or(u32::MAX));
    },
    compatibility: |_| vec![gelu_note()],
    tensors: &[&[
        TensorRule::new("token_embd", "embeddings.word_embeddings"),
        TensorRule::new("position_embd", "embeddings.position_embeddings"),
        TensorRule::new("token_types", "embeddings.token_type_embeddings"),
        TensorRule::new("token_embd_norm", "embeddings.LayerNorm"),
        TensorRule::new("blk.{l}.attn_q", "encoder.layer.{l}.attention.self.query"),
        TensorRule::new("blk.{l}.attn_k", "encoder.layer.{l}.attention.self.key"),
        TensorRule::new("blk.{l}.attn_v", "encoder.layer.{l}.attention.self.value"),
        TensorRule::new("blk.{l}.attn_output", "encoder.layer.{l}.attention.output.dense"),
        TensorRule::new("blk.{l}.attn_output_norm", "encoder.layer.{l}.attention.output.LayerNorm"),
        TensorRule::new("blk.{l}.ffn_up", "encoder.layer.{l}.intermediate.dense"),
        TensorRule::new("blk.{l}.ffn_down", "encoder.layer.{l}.output.dense"),
        TensorRule::new("blk.{l}.layer_output_norm", "encoder.layer.{l}.output.LayerNorm"),
    ]],
    base_prefix: "bert.",
    unused: &[
        ("embeddings.position_ids", "position numbers"),
        ("pooler.dense.", "pooler"),
        ("cls.predictions.", "pre-training head"),
        ("cls.seq_relationship.", "pre-training head"),
    ],
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    kv_heads: "num_attention_heads",
    context_absent: Some(512),
    epsilon: ("layer_norm_eps", 1e-12),
    tied_absent: true,
    ..Usual::LLAMA
};
const STYLE: Style =
    Style { arrangement: Arrangement::post_sum, is_rotated: false, activation: Activation::GeluErf, ..Style::GPT };

fn encoder(decoder: Decoder, types: usize, result: ModelResult) -> ModelSpec {
    let mut spec = decoder.spec(&STYLE).into_encoder(result);
    spec.embedding.positions = Some(spec.context_length);
    spec.embedding.token_types = Some(types);
    spec
}
