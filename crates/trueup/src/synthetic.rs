//! Models of known shapes, made in memory: numbers at random where a checkpoint would have trained ones, and just as
//! much work.
//!
//! ```text
//! name ─ numbers of its config.json ─ spec ──┬─ keys                                  ┐
//!                                            └─ tensors ─ Recipe ─ types ─ made bytes ├─▶ ModelFile, checked like a file's
//! ```
//!
//! A tensor is made when it is asked for, by [`fill`](self::fill), so that no second copy of the model stays.

mod fill;

use fill::Filling;
use std::collections::HashMap;
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::gguf::Metadata;
use trueup_formats::{Error as FileError, TensorInfo, quote};
use trueup_models::{Architecture, ModelSpec, TensorKind, TensorSpec};
use trueup_quantize::{ModelFacts, Recipe, Scheme};
use trueup_runtime::{Error, ModelFile, Result};

/// A name and its `config.json` values.
struct Known {
    name: &'static str,
    config: &'static str,
}

/// All models that can be made: the published numbers of Llama-3.2-1B, Llama-3.1-8B, Qwen2.5 from 0.5B to 7B, of
/// llama2.c's stories110M and stories15M, of ChatGLM-6B, Mixtral-8x7B and Qwen3-30B-A3B.
const KNOWN: [Known; 11] = [
    Known {
        name: "llama-1b",
        config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 131072, "rope_theta": 500000.0, "tie_word_embeddings": true, "rope_scaling": {"rope_type": "llama3",
            "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}"#,
    },
    Known {
        name: "llama-8b",
        config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 14336, "vocab_size": 128256, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 131072, "rope_theta": 500000.0, "tie_word_embeddings": false, "rope_scaling": {"rope_type": "llama3",
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}"#,
    },
    Known {
        name: "qwen2-0.5b",
        config: r#"{"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
            "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 32768, "rope_theta": 1000000.0, "tie_word_embeddings": true}"#,
    },
    Known {
        name: "qwen2-1.5b",
        config: r#"{"architectures": ["Qwen2ForCausalLM"], "hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12,
            "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151936, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 32768, "rope_theta": 1000000.0, "tie_word_embeddings": true}"#,
    },
    Known {
        name: "qwen2-3b",
        config: r#"{"architectures": ["Qwen2ForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16,
            "num_key_value_heads": 2, "intermediate_size": 11008, "vocab_size": 151936, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 32768, "rope_theta": 1000000.0, "tie_word_embeddings": true}"#,
    },
    Known {
        name: "qwen2-7b",
        config: r#"{"architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
            "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 32768, "rope_theta": 1000000.0, "tie_word_embeddings": false}"#,
    },
    Known {
        name: "llama-110m",
        config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
            "num_key_value_heads": 12, "intermediate_size": 2048, "vocab_size": 32000, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 1024, "rope_theta": 10000.0, "tie_word_embeddings": true}"#,
    },
    Known {
        name: "llama-15m",
        config: r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 288, "num_hidden_layers": 6, "num_attention_heads": 6,
            "num_key_value_heads": 6, "intermediate_size": 768, "vocab_size": 32000, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 256, "rope_theta": 10000.0, "tie_word_embeddings": true}"#,
    },
    // Without the image tokens of the first published version. Its library ties the head to the embedding.
    Known {
        name: "chatglm-6b",
        config: r#"{"architectures": ["ChatGLMModel"], "hidden_size": 4096, "num_layers": 28, "num_attention_heads": 32,
            "inner_hidden_size": 16384, "vocab_size": 130528, "layernorm_epsilon": 1e-5, "max_sequence_length": 2048,
            "position_encoding_2d": true, "bos_token_id": 130004, "gmask_token_id": 130001, "mask_token_id": 130000,
            "tie_word_embeddings": true}"#,
    },
    Known {
        name: "mixtral-8x7b",
        config: r#"{"architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8,
            "num_experts_per_tok": 2, "vocab_size": 32000,
            "rms_norm_eps": 1e-5, "max_position_embeddings": 32768, "rope_theta": 1000000.0, "tie_word_embeddings": false}"#,
    },
    Known {
        name: "qwen3-30b-a3b",
        config: r#"{"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 48,
            "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144,
            "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true, "vocab_size": 151936, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 40960, "rope_theta": 1000000.0, "tie_word_embeddings": false}"#,
    },
];

/// The names of the models that can be made, as a sentence lists them.
pub fn names() -> String {
    KNOWN.map(|known| known.name).join(", ")
}

/// The model of that name with matrices of type `dtype`, as `quantize` would have made it: the ends of 4-bit models are
/// q8_0, tensors of one dimension f32. The numbers are the same each time, and such that activations stay finite.
///
/// # Errors
/// A name that is not known, and a type that no model is computed in.
pub fn model(name: &str, dtype: DType) -> Result<ModelFile> {
    let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
        let (name, known) = (quote(name), names());
        return Err(Error::Request(format!("unknown synthetic model {name}; expected one of {known}")));
    };
    let full_name = format!("synth:{name}:{dtype}");
    let path = Path::new(&full_name);
    let config: serde_json::Map<String, serde_json::Value> = serde_json::from_str(known.config)
        .map_err(|error| FileError::new(path, format!("its description is not valid JSON: {error}")))?;
    let architecture = Architecture::of_config(&config, path)?;
    // Layers and experts are limited by the tensors that a checkpoint holds.
    let spec = ModelSpec::from_config(architecture, &config, TENSORS_MAX, path)?;
    let expected = spec.tensors();
    let metadata = described(&spec, name, dtype);
    let tensors = typed(&expected, dtype, &metadata)?;
    let fillings = expected.iter().zip(&tensors).map(|(expected, tensor)| {
        let filling = filling(expected, &spec);
        (tensor.name.clone(), filling)
    });
    let fillings: HashMap<String, Filling> = fillings.collect();
    let make =
        move |tensor: &TensorInfo| fillings.get(&tensor.name).map_or_else(Vec::new, |filling| filling.bytes(tensor));
    ModelFile::made(path, metadata, tensors, Box::new(make))
}

/// No checkpoint of a model here has more tensors.
const TENSORS_MAX: usize = 100_000;

/// The tensors with the types that the recipe gives them.
fn typed(expected: &[TensorSpec], dtype: DType, metadata: &Metadata) -> Result<Vec<TensorInfo>> {
    let plain = expected.iter().map(|tensor| TensorInfo::new(tensor.name.clone(), &tensor.shape, DType::F32));
    let plain = plain.collect::<std::result::Result<Vec<_>, FileError>>()?;
    let facts = ModelFacts::new(metadata, &plain);
    let choices = Recipe::new(Some(dtype)).choose(&plain, &facts).map_err(|error| Error::Request(error.to_string()))?;
    let typed = plain
        .iter()
        .zip(choices)
        .map(|(tensor, choice)| Ok(TensorInfo::new(tensor.name.clone(), &tensor.shape, choice.dtype)?));
    typed.collect()
}

/// The keys that a file of the model would have, without a tokenizer's.
fn described(spec: &ModelSpec, name: &str, dtype: DType) -> Metadata {
    let mut metadata = Metadata::default();
    metadata.insert("general.architecture", spec.architecture().gguf_name);
    metadata.insert("general.type", "model");
    metadata.insert("general.name", name);
    if let Some(number) = Scheme::from(dtype).file_type() {
        metadata.insert("general.file_type", number);
    }
    spec.write_metadata(&mut metadata);
    metadata
}

/// What a tensor is filled with. Matrices keep the variance of what they multiply: each of `n` products has `1 / n` of
/// it.
fn filling(expected: &TensorSpec, spec: &ModelSpec) -> Filling {
    let columns = expected.shape.first().copied().and_then(|columns| u32::try_from(columns).ok()).unwrap_or(1);
    match expected.kind {
        TensorKind::RopeFactors => {
            Filling::Given(spec.rope().and_then(|rope| rope.factors_of(&expected.name)).unwrap_or_default())
        }
        TensorKind::NormWeight => Filling::Random { mean: 1.0, deviation: 0.1 },
        TensorKind::Bias | TensorKind::TokenBias => SMALL,
        TensorKind::Decay => Filling::Random { mean: -1.0, deviation: 0.1 },
        TensorKind::TokenRows | TensorKind::Matrix => matrix(columns),
    }
}

/// Biases.
const SMALL: Filling = Filling::Random { mean: 0.0, deviation: 0.02 };

fn matrix(columns: u32) -> Filling {
    Filling::Random { mean: 0.0, deviation: 1.0 / f64::from(columns).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use trueup_runtime::{DeviceOptions, Entry, Session, SessionOptions, Weights, open_device};

    #[test]
    fn every_known_name_is_a_model_of_its_published_size() {
        // Parameters as the models' pages count them, tied heads once.
        let expected = [
            1_235_814_400,
            8_030_261_248,
            494_032_768,
            1_543_714_304,
            3_085_938_688,
            7_615_616_512,
            109_529_856,
            15_191_712,
            6_173_286_400,
            46_702_792_704,
            30_532_122_624,
        ];
        for (known, parameters) in KNOWN.iter().zip(expected) {
            let model = model(known.name, DType::Q4_0).unwrap();
            let weights = model.tensors().iter().filter(|tensor| tensor.name != "rope_freqs.weight");
            let counted: u64 = weights.map(|tensor| tensor.shape.iter().product::<u64>()).sum();
            assert_eq!(counted, parameters, "{}", known.name);
            let types = ["token_embd.weight", "blk.0.attn_output.weight", "blk.0.attn_norm.weight"]
                .map(|name| model.tensors().iter().find(|tensor| tensor.name == name).unwrap().dtype);
            assert_eq!(types, [DType::Q8_0, DType::Q4_0, DType::F32], "{}", known.name);
        }
    }

    #[test]
    fn logits_are_finite_and_the_same_each_time_in_every_type() {
        let logits = |dtype| {
            let weights = Weights::new(
                Arc::new(model("llama-15m", dtype).unwrap()),
                open_device("cpu", &DeviceOptions::default()).unwrap(),
                None,
            );
            let mut session = Session::new(Arc::new(weights), &SessionOptions::default()).unwrap();
            let entry = |token| Entry { token, sequence: 0, wants_logits: token == 5 };
            session.compute(&[entry(1), entry(9), entry(5)], None).unwrap().row(0).to_vec()
        };
        for dtype in
            [DType::F32, DType::F16, DType::Bf16, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0]
        {
            let first = logits(dtype);
            let deviation = (first.iter().map(|logit| logit * logit).sum::<f64>() / first.len() as f64).sqrt();
            assert!((0.1..10.0).contains(&deviation), "{dtype}: {deviation}");
            assert_eq!(first, logits(dtype), "{dtype}");
        }
    }

    #[test]
    fn tensors_are_made_alike_however_they_are_asked_for_and_must_be_whole() {
        let made = model("llama-15m", DType::Q8_0).unwrap();
        let mut pieces = Vec::new();
        made.each_piece("blk.3.ffn_up.weight", &mut |piece| pieces.extend_from_slice(piece)).unwrap();
        assert_eq!(*made.tensor_bytes("blk.3.ffn_up.weight").unwrap(), pieces);
        assert!(made.tensor_bytes("blk.6.ffn_up.weight").unwrap_err().to_string().contains("no such tensor"));
        assert!(made.tokenizer().is_err() && made.unchanged().is_ok());
        let (metadata, tensors) = (made.metadata().clone(), made.tensors().to_vec());
        let short = ModelFile::made("short", metadata, tensors, Box::new(|_| vec![0; 7])).unwrap();
        let error = short.tensor_bytes("output_norm.weight").unwrap_err().to_string();
        assert!(error.contains("short") && error.contains("expected 1152 bytes, found 7"), "{error}");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = model("llama-2b", DType::Q4_0).map(drop).unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown synthetic model llama-2b; expected one of llama-1b, llama-8b, qwen2-0.5b, qwen2-1.5b, qwen2-3b, qwen2-7b, llama-110m, llama-15m, chatglm-6b, mixtral-8x7b, qwen3-30b-a3b"
        );
    }
}
