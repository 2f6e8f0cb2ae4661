//! The model that is converted: a Llama of a few MB, written as a safetensors folder with the tokenizer of a fixture,
//! so that a run takes long enough to be interrupted. Its weights are random and say nothing.

use crate::random::Random;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

const HIDDEN: usize = 256;
const FEED_FORWARD: usize = 704;
const HEADS: usize = 8;
const KV_HEADS: usize = 4;
const LAYERS: usize = 3;
/// The tokenizer's.
const VOCABULARY: usize = 1024;

/// Files of the fixture that describe its tokenizer.
const TOKENIZER: [&str; 4] = ["tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"];

/// Writes the model into a new folder; every name gives other weights.
pub fn write(folder: &Path, fixture: &Path, name: &str) {
    fs::create_dir(folder).expect("a directory can be made");
    for name in TOKENIZER {
        fs::copy(fixture.join(name), folder.join(name)).expect("a fixture can be copied");
    }
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": LAYERS, "vocab_size": VOCABULARY, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2,
    });
    fs::write(folder.join("config.json"), config.to_string()).expect("a file can be written");
    fs::write(folder.join("model.safetensors"), safetensors(name)).expect("a file can be written");
}

/// Names and shapes, in the order of the file.
fn tensors() -> Vec<(String, Vec<usize>)> {
    let kv = HIDDEN / HEADS * KV_HEADS;
    let mut tensors = vec![("model.embed_tokens.weight".to_owned(), vec![VOCABULARY, HIDDEN])];
    for layer in 0..LAYERS {
        let parts: [(&str, &[usize]); 9] = [
            ("input_layernorm", &[HIDDEN]),
            ("self_attn.q_proj", &[HIDDEN, HIDDEN]),
            ("self_attn.k_proj", &[kv, HIDDEN]),
            ("self_attn.v_proj", &[kv, HIDDEN]),
            ("self_attn.o_proj", &[HIDDEN, HIDDEN]),
            ("post_attention_layernorm", &[HIDDEN]),
            ("mlp.gate_proj", &[FEED_FORWARD, HIDDEN]),
            ("mlp.up_proj", &[FEED_FORWARD, HIDDEN]),
            ("mlp.down_proj", &[HIDDEN, FEED_FORWARD]),
        ];
        let named =
            parts.into_iter().map(|(part, shape)| (format!("model.layers.{layer}.{part}.weight"), shape.to_vec()));
        tensors.extend(named);
    }
    tensors.push(("model.norm.weight".to_owned(), vec![HIDDEN]));
    tensors
}

/// The length of the header, the header, the values, which follow from `name`.
fn safetensors(name: &str) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    let mut random = Random::new(1, name);
    for (tensor, shape) in tensors() {
        let start = data.len();
        for _ in 0..shape.iter().product::<usize>() {
            // Between -0.05 and 0.05.
            let value = (random.below(1 << 20) as f32 / (1 << 20) as f32 - 0.5) * 0.1;
            data.extend(value.to_le_bytes());
        }
        let entry: Value = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(tensor, entry);
    }
    let header = Value::Object(header).to_string().into_bytes();
    [&(header.len() as u64).to_le_bytes(), &header[..], &data].concat()
}
