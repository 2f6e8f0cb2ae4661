//! Completes the descriptions of FastLLM files of versions 0 and 1: the kind of model follows from the vocabulary size,
//! as in FastLLM, and its parameters from the shapes of its tensors.
//!
//! ```text
//! 106,072 tokens  MOSS
//! 64,000          Baichuan
//! other sizes     ChatGLM: the name of the embedding decides the generation
//! ```

use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::path::Path;
use trueup_formats::{Checkpoint, OpenOptions, Result, Survey};

/// Opens a model as [`trueup_formats::open`] does, and completes the descriptions of FastLLM's oldest files.
///
/// # Errors
/// As [`trueup_formats::open`].
pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
    trueup_formats::open_with(path, options, complete)
}

/// Reads as much of a model as possible, as [`trueup_formats::survey`] does, and completes the descriptions of
/// FastLLM's oldest files.
///
/// # Errors
/// As [`trueup_formats::survey`].
pub fn survey(path: impl AsRef<Path>) -> Result<Survey> {
    trueup_formats::survey_with(path, complete)
}

/// Head size of the published models, used if the file has no frequency table.
const HEAD_SIZE: u64 = 128;
/// Head size of MOSS.
const HEAD_SIZE_MOSS: u64 = 256;
/// Number of layers of the Baichuan models with ALiBi.
const LAYERS_ALIBI: u64 = 40;
/// ChatGLM-6B vocabulary size with and without image tokens, and the ID of the first special token.
const SPECIAL_TOKENS: [(u64, u64); 2] = [(150_528, 150_000), (130_528, 130_000)];

/// The shapes of the tensors of a file, by name.
struct Sizes<'r>(&'r HashMap<&'r str, &'r [u64]>);

impl Sizes<'_> {
    fn of(&self, name: &str) -> Option<&[u64]> {
        self.0.get(name).copied()
    }

    fn columns(&self, name: &str) -> Option<u64> {
        self.of(name)?.first().copied()
    }

    fn rows(&self, name: &str) -> Option<u64> {
        self.of(name)?.last().copied()
    }

    /// The number of layers with a tensor of this name; `{l}` is the layer index.
    fn layers(&self, name: &str) -> u64 {
        (0u64..)
            .take_while(|layer| self.of(&name.replace("{l}", &layer.to_string())).is_some())
            .fold(0, |sum, _| sum.saturating_add(1))
    }

    /// The head size: four times the number of frequencies in a table.
    fn head(&self, frequencies: &str) -> u64 {
        self.columns(frequencies).map_or(HEAD_SIZE, |count| count.saturating_mul(4)).max(1)
    }
}

/// The description of a file with a vocabulary of `tokens` tokens and tensors of these shapes; `None` if they do not
/// belong to a known model.
fn complete(tokens: usize, shapes: &HashMap<&str, &[u64]>) -> Option<Map<String, Value>> {
    let sizes = Sizes(shapes);
    let found = match tokens {
        106_072 => moss(&sizes),
        64_000 => baichuan(&sizes),
        _ if sizes.of("transformer.embedding.word_embeddings.weight").is_some() => chatglm2(&sizes),
        _ => chatglm1(&sizes),
    };
    match found? {
        Value::Object(config) => Some(config),
        _ => None,
    }
}

fn chatglm1(sizes: &Sizes<'_>) -> Option<Value> {
    let embedding = "transformer.word_embeddings.weight";
    let (width, rows) = (sizes.columns(embedding)?, sizes.rows(embedding)?);
    let head = sizes.head("transformer.layers.0.attention.rotary_emb.inv_freq");
    let mut config = json!({
        "model_type": "chatglm", "position_encoding_2d": true, "hidden_size": width, "vocab_size": rows, "layernorm_epsilon": 1e-5,
        "num_layers": sizes.layers("transformer.layers.{l}.input_layernorm.weight"),
        "num_attention_heads": width.checked_div(head)?,
        "inner_hidden_size": sizes.rows("transformer.layers.0.mlp.dense_h_to_4h.weight")?,
    });
    if let (Some((_, first)), Some(config)) =
        (SPECIAL_TOKENS.iter().find(|(all, _)| *all == rows), config.as_object_mut())
    {
        let id = |place: u64| Value::from(first.saturating_add(place));
        let ids =
            [("mask_token_id", id(0)), ("gmask_token_id", id(1)), ("bos_token_id", id(4)), ("eos_token_id", id(5))];
        config.extend(ids.map(|(key, id)| (key.to_owned(), id)));
    }
    Some(config)
}

fn chatglm2(sizes: &Sizes<'_>) -> Option<Value> {
    let embedding = "transformer.embedding.word_embeddings.weight";
    let attention = "transformer.encoder.layers.0.self_attention.query_key_value";
    let (width, head) = (sizes.columns(embedding)?, sizes.head("transformer.rotary_pos_emb.inv_freq"));
    let heads = width.checked_div(head)?;
    let groups = sizes.rows(&format!("{attention}.weight"))?.checked_div(head)?.checked_sub(heads)?.checked_div(2)?;
    Some(json!({
        "model_type": "chatglm", "hidden_size": width, "padded_vocab_size": sizes.rows(embedding)?, "layernorm_epsilon": 1e-5,
        "num_layers": sizes.layers("transformer.encoder.layers.{l}.input_layernorm.weight"),
        "num_attention_heads": heads, "kv_channels": head, "multi_query_attention": true, "multi_query_group_num": groups,
        "ffn_hidden_size": sizes.rows("transformer.encoder.layers.0.mlp.dense_h_to_4h.weight")?.checked_div(2)?,
        "add_qkv_bias": sizes.of(&format!("{attention}.bias")).is_some(), "seq_length": 32_768, "eos_token_id": 2,
    }))
}

fn baichuan(sizes: &Sizes<'_>) -> Option<Value> {
    let embedding = "model.embed_tokens.weight";
    let (width, layers) = (sizes.columns(embedding)?, sizes.layers("model.layers.{l}.input_layernorm.weight"));
    let context = if layers == LAYERS_ALIBI { "model_max_length" } else { "max_position_embeddings" };
    Some(json!({
        "model_type": "baichuan", "hidden_size": width, "vocab_size": sizes.rows(embedding)?, "num_hidden_layers": layers,
        "num_attention_heads": width.checked_div(HEAD_SIZE)?, "rms_norm_eps": 1e-6, context: 4096, "hidden_act": "silu",
        "intermediate_size": sizes.rows("model.layers.0.mlp.gate_proj.weight")?, "bos_token_id": 1, "eos_token_id": 2,
    }))
}

fn moss(sizes: &Sizes<'_>) -> Option<Value> {
    let width = sizes.columns("transformer.wte.weight")?;
    Some(json!({
        "model_type": "moss", "n_embd": width, "vocab_size": sizes.rows("transformer.wte.weight")?,
        "n_layer": sizes.layers("transformer.h.{l}.ln_1.weight"), "n_head": width.checked_div(HEAD_SIZE_MOSS)?, "rotary_dim": 64,
        "n_inner": sizes.rows("transformer.h.0.mlp.fc_in.weight")?, "n_positions": 2048, "layer_norm_epsilon": 1e-5,
    }))
}
