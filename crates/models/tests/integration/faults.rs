//! Descriptions and files that do not fit are refused, with all that is wrong in one message.

use crate::description;
use serde_json::{Map, Value, json};
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::TensorInfo;
use trueup_formats::gguf::{Metadata, Value as GgufValue};
use trueup_models::{Model, ModelSpec};

fn config(more: Value) -> Map<String, Value> {
    let base = json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "vocab_size": 400,
    });
    description::with(base, more)
}

fn read(config: &Map<String, Value>) -> Result<ModelSpec, String> {
    description::read(config, 21)
}

#[test]
fn descriptions_that_lie_are_refused() {
    let rope = |scaling: Value| json!({ "rope_scaling": scaling });
    let long = |context| rope(json!({ "type": "yarn", "factor": 2.0, "original_max_position_embeddings": context }));
    let cases = [
        (json!({ "architectures": ["GPTNonsense"] }), "found \"GPTNonsense\""),
        (json!({ "architectures": ["A\u{1b}[2J"] }), "\\u{1b}"),
        (json!({ "architectures": [] }), "expected a list with one class name, found 0 class names"),
        (json!({ "architectures": null }), "expected a list with one class name, found null"),
        (
            json!({ "architectures": "LlamaForCausalLM" }),
            "expected a list with one class name, found the string \"LlamaForCausalLM\"",
        ),
        (json!({ "num_attention_heads": 0 }), "num_attention_heads: expected 1 to 65536, found 0"),
        (json!({ "num_attention_heads": 3 }), "num_attention_heads: expected a divisor of hidden_size (64)"),
        (
            json!({ "num_key_value_heads": 3 }),
            "num_key_value_heads: number of KV heads: expected a divisor of 4 (the number of attention heads), found 3",
        ),
        (json!({ "num_key_value_heads": 0 }), "num_key_value_heads: expected 1 to 65536, found 0"),
        (json!({ "head_dim": 15 }), "RoPE dimensions: expected an even number from 2 to"),
        (json!({ "head_dim": 65536, "num_attention_heads": 65536 }), "in total, found 65536 heads of 65536"),
        (
            json!({ "num_hidden_layers": 22 }),
            "num_hidden_layers: expected at most 21 (the number of tensors), found 22",
        ),
        (json!({ "num_hidden_layers": u64::MAX }), "num_hidden_layers: expected 1 to 65536"),
        (json!({ "hidden_size": -64 }), "hidden_size: expected a positive integer, found -64"),
        (json!({ "hidden_size": "64" }), "hidden_size: expected a positive integer"),
        (json!({ "hidden_size": 1u64 << 40 }), "hidden_size: expected 1 to 4194304"),
        (json!({ "vocab_size": 0 }), "vocab_size: expected 1 to"),
        (json!({ "vocab_size": null }), "vocab_size: expected a positive integer, found null"),
        (json!({ "max_position_embeddings": 1u64 << 31 }), "max_position_embeddings: expected 1 to"),
        (json!({ "rms_norm_eps": 0.0 }), "rms_norm_eps: expected a positive number, found 0"),
        (json!({ "rms_norm_eps": 1e-300 }), "rms_norm_eps: expected a number within the range of f32, found 1e-300"),
        (json!({ "rope_theta": -1.0 }), "rope_theta: expected a positive number, found -1"),
        (json!({ "rope_theta": 1e300 }), "rope_theta: expected a number within the range of f32, found 1e+300"),
        (json!({ "hidden_act": "gelu" }), "hidden_act: expected \"silu\""),
        (json!({ "partial_rotary_factor": 0.5 }), "partial_rotary_factor: expected 1, found 0.5"),
        (rope(json!({ "partial_rotary_factor": 0.5 })), "rope_scaling: partial_rotary_factor: expected 1, found 0.5"),
        (json!({ "attention_bias": 1 }), "attention_bias: expected true or false"),
        (json!({ "rope_scaling": 4 }), "rope_scaling: expected an object"),
        (rope(json!({ "rope_type": "wobble", "factor": 2.0 })), "found \"wobble\""),
        (rope(json!({ "type": null, "rope_type": "wobble", "factor": 2.0 })), "found \"wobble\""),
        (rope(json!({ "rope_type": "dynamic", "alpha": 2.0 })), "rope_scaling: unsupported key \"alpha\""),
        (rope(json!({ "type": null, "factor": 2.0 })), "rope_scaling: unsupported key \"factor\""),
        (rope(json!({ "rope_type": "linear" })), "rope_scaling: factor: expected a number, found nothing"),
        (rope(json!({ "rope_type": "linear", "factor": "2" })), "rope_scaling: factor: expected a number, found \"2\""),
        (
            rope(json!({ "rope_type": "linear", "factor": 0.0 })),
            "RoPE scaling factor: expected a finite number above 0",
        ),
        (rope(json!({ "rope_type": "linear", "factor": 2.0, "warp": 9 })), "rope_scaling: unsupported key \"warp\""),
        (rope(json!({ "rope_type": "yarn", "factor": 2.0, "truncate": false })), "truncate"),
        (rope(json!({ "rope_type": "yarn", "factor": 2.0, "beta_fast": 1.0, "beta_slow": 2.0 })), "beta_fast"),
        (long(json!(1e30)), "original context of the RoPE scaling"),
        (long(json!(1.5)), "original context of the RoPE scaling"),
        (long(json!(-64)), "original context of the RoPE scaling"),
        (
            rope(json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0,
            "original_max_position_embeddings": 32 })),
            "high_freq_factor",
        ),
        (rope(json!({ "rope_type": "llama3", "factor": 8.0 })), "rope_scaling: low_freq_factor: expected a number"),
    ];
    expect_refusals(cases);
}

#[test]
fn quantized_checkpoints_are_refused_before_anything_else() {
    expect_refusals([
        (
            json!({ "quantization_config": { "bits": 4 } }),
            "config.json: quantization_config: expected an unquantized checkpoint, found {\"bits\":4}; convert an \
             unquantized (bf16, f16 or f32) copy of the checkpoint",
        ),
        (
            json!({ "quantization_config": { "quant_method": "gptq", "bits": 4 }, "hidden_act": "gelu" }),
            "expected an unquantized checkpoint, found quant_method \"gptq\"; convert an",
        ),
    ]);
}

#[test]
fn rotations_of_kinds_of_layers_that_lie_are_refused() {
    let by_kind = |class: &str, full: Value, sliding: Value| {
        let kinds = json!({ "full_attention": full, "sliding_attention": sliding });
        json!({ "architectures": [class], "rope_parameters": kinds })
    };
    expect_refusals([
        (
            by_kind("LlamaForCausalLM", json!({ "rope_theta": 5.0 }), json!({ "rope_theta": 6.0 })),
            "rope_parameters: sliding_attention: expected the same values as in full_attention, found {\"rope_theta\":6.0}",
        ),
        (
            by_kind("Gemma3ForCausalLM", json!({}), json!({ "rope_type": "linear", "factor": 2.0 })),
            "rope_parameters: sliding_attention: rope_type: expected \"default\", found \"linear\"",
        ),
        (
            by_kind("Gemma3ForCausalLM", json!({ "factors": 2.0 }), json!({})),
            "rope_parameters: full_attention: unsupported key \"factors\"",
        ),
        (
            by_kind("Gemma3ForCausalLM", json!({}), json!({ "rope_theta": 0 })),
            "rope_parameters: sliding_attention: rope_theta: expected a positive",
        ),
        (by_kind("Gemma3ForCausalLM", json!({}), json!(1)), "sliding_attention: expected an object, found 1"),
        (
            by_kind("Gemma3ForCausalLM", json!({}), json!({ "partial_rotary_factor": 0.5 })),
            "rope_parameters: sliding_attention: partial_rotary_factor: expected 1, found 0.5",
        ),
        (
            json!({ "architectures": ["LlamaForCausalLM"],
                "rope_parameters": { "full_attention": {}, "chunked_attention": { "rope_theta": 7.0 } } }),
            "rope_parameters: unsupported layer type \"chunked_attention\"",
        ),
    ]);
}

/// Numbers and switches that only some classes have.
#[test]
fn descriptions_of_other_classes_that_lie_are_refused() {
    expect_refusals([
        (
            json!({ "architectures": ["Gemma2ForCausalLM"], "query_pre_attn_scalar": 0 }),
            "query_pre_attn_scalar: expected a positive number, found 0",
        ),
        (
            json!({ "architectures": ["GraniteForCausalLM"], "logits_scaling": -2.0 }),
            "logits_scaling: expected a positive number, found -2",
        ),
        (
            json!({ "architectures": ["GraniteForCausalLM"], "attention_multiplier": 0 }),
            "attention scale: expected a finite number above 0, found 0",
        ),
        (
            json!({ "architectures": ["GraniteForCausalLM"], "residual_multiplier": 0 }),
            "residual scale: expected a finite number other than 0, found 0",
        ),
        (
            json!({ "architectures": ["Cohere2ForCausalLM"], "sliding_window": null }),
            "sliding_window: expected a positive integer, found null",
        ),
        (
            json!({ "architectures": ["MistralForCausalLM"], "sliding_window": 0 }),
            "sliding_window: expected 1 to 2147483647, found 0",
        ),
        (
            json!({ "architectures": ["MistralForCausalLM"], "sliding_window": null,
                "layer_types": ["full_attention", "sliding_attention"] }),
            "layer_types: expected a sliding_window",
        ),
        (
            json!({ "architectures": ["OlmoForCausalLM"], "clip_qkv": -1.0 }),
            "attention clamp: expected a finite number above 0, found -1",
        ),
        (
            json!({ "architectures": ["FalconForCausalLM"], "new_decoder_architecture": true, "num_kv_heads": 3 }),
            "number of KV heads: expected a divisor of 4 (the number of attention heads), found 3",
        ),
        (json!({ "architectures": ["OrionForCausalLM"], "attention_bias": true }), "attention_bias: expected false"),
        (
            json!({ "architectures": ["StableLMEpochForCausalLM"], "rotary_scaling_factor": 2.0 }),
            "rotary_scaling_factor: expected 1.0 or 1, found 2.0",
        ),
        (
            json!({ "architectures": ["StableLMEpochForCausalLM"], "rope_pct": 0.01 }),
            "RoPE dimensions: expected an even number from 2 to 16, found 0",
        ),
        (
            json!({ "architectures": ["GPT2LMHeadModel"], "scale_attn_by_inverse_layer_idx": true }),
            "scale_attn_by_inverse_layer_idx: expected false",
        ),
        (
            json!({ "architectures": ["BloomForCausalLM"], "apply_residual_connection_post_layernorm": true }),
            "apply_residual_connection_post_layernorm: expected false",
        ),
        (json!({ "architectures": ["PersimmonForCausalLM"] }), "found \"PersimmonForCausalLM\""),
    ]);
}

/// Settings of decoders that are not Llama's, each with a wrong value.
#[test]
fn descriptions_of_more_decoders_that_lie_are_refused() {
    let open_elm = |more: Value| {
        let mut config = json!({ "architectures": ["OpenELMForCausalLM"], "model_dim": 64, "num_transformer_layers": 2,
            "num_query_heads": [2, 4], "num_kv_heads": [1, 2], "head_dim": 16, "ffn_multipliers": [1.0, 2.0] });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    let phi3 = |scaling: Value, original: Value| {
        json!({
            "architectures": ["Phi3ForCausalLM"],
            "rope_scaling": scaling,
            "original_max_position_embeddings": original,
        })
    };
    let long =
        |long: Value| json!({ "type": "longrope", "long_factor": long, "short_factor": [1, 1, 1, 1, 1, 1, 1, 1] });
    expect_refusals([
        (json!({ "architectures": ["MptForCausalLM"], "attn_config": 3 }), "attn_config: expected an object, found 3"),
        (
            json!({ "architectures": ["MptForCausalLM"], "attn_config": { "rope": true } }),
            "attn_config: rope: expected false, found true",
        ),
        (
            json!({ "architectures": ["MptForCausalLM"], "attn_config": { "alibi_bias_max": 0 } }),
            "attn_config: alibi_bias_max: expected a positive",
        ),
        (
            json!({ "architectures": ["MptForCausalLM"], "attn_config": { "clip_qkv": -2 } }),
            "attention clamp: expected a finite number above 0, found -2",
        ),
        (json!({ "architectures": ["GPTRefactForCausalLM"], "multi_query": false }), "multi_query: expected true"),
        (
            json!({ "architectures": ["CodeShellForCausalLM"] }),
            "position_embedding_type: expected \"rope\", found nothing",
        ),
        (
            json!({ "architectures": ["MiniCPMForCausalLM"], "mup_denominator": 3 }),
            "mup_denominator: expected 2, found 3",
        ),
        (
            json!({ "architectures": ["MiniCPMForCausalLM"], "dim_model_base": 0 }),
            "dim_model_base: expected a positive",
        ),
        (
            json!({ "architectures": ["PlamoForCausalLM"], "n_shared_head": 3 }),
            "n_shared_head: expected a divisor of 4",
        ),
        (open_elm(json!({ "ffn_multipliers": [1.0] })), "ffn_multipliers: expected a list of 2 numbers, found [1.0]"),
        (open_elm(json!({ "ffn_multipliers": [1.0, -1.0] })), "ffn_multipliers: expected positive numbers, found -1"),
        (open_elm(json!({ "ffn_multipliers": [1.0, 1e9] })), "ffn_multipliers: expected positive numbers"),
        (open_elm(json!({ "num_kv_heads": [1, 3] })), "num_kv_heads: number of KV heads: expected a divisor of 4"),
        (phi3(long(json!([1, 2])), json!(64)), "rope_scaling: long_factor: expected 8 numbers, found 2"),
        (phi3(long(json!([])), json!(64)), "rope_scaling: long_factor: expected a list of numbers, found []"),
        (phi3(long(json!([1, 1, 1, 1, 1, 1, 1, 0])), json!(64)), "rope_scaling: long_factor: expected finite numbers"),
        (phi3(long(json!([1, 1, 1, 1, 1, 1, 1, 1])), json!(0)), "original_max_position_embeddings: expected 1 to"),
        (phi3(long(json!([1, 1, 1, 1, 1, 1, 1, 1])), json!(null)), "rope_scaling: original_max_position_embeddings"),
    ]);
}

/// Each layer is within its limit, but all of them together are not.
#[test]
fn recurrent_states_are_limited_in_total() {
    let read = |layers: usize| {
        let config = config(json!({ "architectures": ["MambaForCausalLM"], "num_hidden_layers": layers,
            "intermediate_size": 1_048_576, "state_size": 16, "conv_kernel": 2 }));
        description::read(&config, 10_000).map(drop)
    };
    assert_eq!(read(60), Ok(()));
    let expected = "recurrent states of 100 layers: expected at most 1073741824 elements for each sequence, found \
                    1782579200";
    assert!(read(100).is_err_and(|message| message.contains(expected)), "{:?}", read(100));
}

#[test]
fn state_spaces_that_lie_are_refused() {
    let cases = [
        (json!({ "conv_kernel": 1 }), "conv_kernel: convolution taps: expected 2 to 64, found 1"),
        (json!({ "conv_kernel": 65536 }), "conv_kernel: convolution taps: expected 2 to 64, found 65536"),
        (json!({ "conv_kernel": 0 }), "conv_kernel: expected 1 to 65536, found 0"),
        (json!({ "conv_kernel": "x" }), "conv_kernel: expected a positive integer, found \"x\""),
        (json!({ "use_bias": true }), "use_bias: expected false, found true"),
        (json!({ "use_conv_bias": 2 }), "use_conv_bias: expected true or false, found 2"),
        (json!({ "hidden_act": "gelu" }), "hidden_act: expected \"silu\""),
        (json!({ "state_size": 0 }), "state_size: expected 1 to 65536, found 0"),
        (json!({ "state_size": -8 }), "state_size: expected a positive integer, found -8"),
        (
            json!({ "intermediate_size": 4_194_304, "state_size": 65536 }),
            "state space: expected at most 16777216 elements in each state and an inner size of at most 4194304, found \
             274877906944 (scan), 12582912 (convolution) and inner size 4194304",
        ),
        (json!({ "intermediate_size": 0 }), "intermediate_size: expected 1 to 4194304, found 0"),
        (json!({ "time_step_rank": "half" }), "time_step_rank: expected a positive integer, found \"half\""),
        (json!({ "time_step_rank": -1 }), "time_step_rank: expected a positive integer, found -1"),
        (json!({ "layer_norm_epsilon": 0 }), "epsilon"),
        (
            json!({ "num_hidden_layers": 65536 }),
            "num_hidden_layers: expected at most 21 (the number of tensors), found 65536",
        ),
        (json!({ "quantization_config": {} }), "quantization_config"),
    ];
    expect_refusals(cases.map(|(more, expected)| {
        let mut more = more.as_object().cloned().unwrap();
        more.insert("architectures".to_owned(), json!(["MambaForCausalLM"]));
        (Value::Object(more), expected)
    }));
    expect_refusals([
        (
            json!({ "architectures": ["Mamba2ForCausalLM"], "num_heads": 4, "head_dim": 32 }),
            "number of groups: expected a divisor of the 4 heads, found 8",
        ),
        (
            json!({ "architectures": ["Mamba2ForCausalLM"], "n_groups": 1, "num_heads": 3, "head_dim": 16 }),
            "expected num_heads * head_dim = 128 (hidden_size * expand), found 3 * 16",
        ),
        (
            json!({ "architectures": ["Mamba2ForCausalLM"], "n_groups": 1, "time_step_limit": [0.0, 0.1] }),
            "time_step_limit: expected no limit ([0.0, Infinity]), found [0.0,0.1]; GGUF files have no key for",
        ),
    ]);
}

#[test]
fn files_of_state_spaces_that_lie_are_refused() {
    let (metadata, tensors) = gguf_of(json!({ "architectures": ["MambaForCausalLM"] }));
    let said = |change: fn(&mut Metadata, &mut Vec<TensorInfo>)| {
        let (mut metadata, mut tensors) = (metadata.clone(), tensors.clone());
        change(&mut metadata, &mut tensors);
        Model::from_gguf(&metadata, &tensors, Path::new("model")).map(drop).unwrap_err().to_string()
    };
    for (message, expected) in [
        (said(|keys, _| drop(keys.insert("mamba.ssm.state_size", 0u32))), "mamba.ssm.state_size: expected 1 to"),
        (
            said(|keys, _| drop(keys.insert("mamba.ssm.conv_kernel", 1u32))),
            "key mamba.ssm.conv_kernel: convolution taps: exp",
        ),
        (
            said(|keys, _| drop(keys.insert("mamba.ssm.inner_size", 95u32))),
            "key mamba.ssm.inner_size: expected 96, the inner size of the tensors of layer 0, found 95",
        ),
        // If the tensors differ from each other, the tensor is named.
        (
            said(|keys, tensors| {
                keys.insert("mamba.ssm.inner_size", 95u32);
                tensors.iter_mut().filter(|t| t.name == "blk.0.ssm_x.weight").for_each(|t| t.shape[0] = 95);
            }),
            "tensor blk.0.ssm_in.weight: expected shape",
        ),
        (said(|keys, _| drop(keys.insert("mamba.ssm.dt_b_c_rms", true))), "not supported), found true"),
        (said(|_, tensors| tensors.retain(|tensor| tensor.name != "blk.1.ssm_a")), "tensor blk.1.ssm_a is missing"),
        (
            said(|_, tensors| tensors.iter_mut().filter(|t| t.name == "blk.0.ssm_a").for_each(|t| t.shape.reverse())),
            "tensor blk.0.ssm_a: expected shape",
        ),
    ] {
        assert!(message.contains(expected), "{expected:?}: {message}");
    }
}

#[test]
fn ternary_models_that_lie_are_refused() {
    let of_class = |class: &str, more: Value| {
        let mut more = more.as_object().cloned().unwrap();
        more.insert("architectures".to_owned(), json!([class]));
        Value::Object(more)
    };
    let quantized = |key: &str, value: Value| {
        let quantization = json!({ "quant_method": "bitnet", key: value });
        of_class("BitNetForCausalLM", json!({ "quantization_config": quantization }))
    };
    expect_refusals([
        (of_class("BitnetForCausalLM", json!({ "weight_bits": 2 })), "weight_bits: expected 1, found 2"),
        (of_class("BitnetForCausalLM", json!({ "input_bits": 4 })), "input_bits: expected 8, found 4"),
        (of_class("BitnetForCausalLM", json!({ "hidden_act": "gelu" })), "hidden_act: expected \"silu\""),
        (
            of_class("BitnetForCausalLM", json!({ "quantization_config": { "quant_method": "bitnet" } })),
            "expected an unquantized checkpoint, found quant_method \"bitnet\"",
        ),
        (
            of_class("BitNetForCausalLM", json!({ "quantization_config": { "quant_method": "gptq" } })),
            "expected an unquantized checkpoint, found quant_method \"gptq\"",
        ),
        (
            of_class("BitNetForCausalLM", json!({ "quantization_config": 4 })),
            "expected an unquantized checkpoint, found 4",
        ),
        (
            of_class("BitNetForCausalLM", json!({ "attention_bias": true })),
            "attention_bias: expected false, found true",
        ),
        (quantized("use_rms_norm", json!(true)), "quantization_config: use_rms_norm: expected false, found true"),
        (quantized("modules_to_not_convert", json!([])), "modules_to_not_convert: expected [\"lm_head\"], found []"),
        (
            of_class("BitNetForCausalLM", json!({ "hidden_act": "gelu" })),
            "expected \"silu\", \"swish\" or \"relu2\", f",
        ),
        (
            of_class(
                "BitNetForCausalLM",
                json!({ "quantization_config": { "quant_method": "bitnet" }, "intermediate_size": 98 }),
            ),
            "packed weights: expected matrices whose number of rows is a multiple of 4, found 98 rows",
        ),
        (quantized("linear_class", json!("linear")), "linear_class: expected \"bitlinear\" or \"autobitlinear\""),
        (quantized("quantization_mode", json!("later")), "quantization_mode: expected \"online\" or \"offline\""),
    ]);
    let cases: &[(Change, &str)] = &[
        (
            |m, _| drop(m.insert("bitnet.hidden_activation", "gelu\u{1b}")),
            "bitnet.hidden_activation: expected silu or relu2, found \"gelu\\u{1b}\"",
        ),
        (|m, _| drop(m.insert("bitnet.hidden_activation", 2u32)), "bitnet.hidden_activation"),
        (|m, _| drop(m.insert("bitnet.attention.layer_norm_rms_epsilon", 0.0f32)), "rms_epsilon: expected a positive"),
        (|m, _| drop(m.insert("bitnet.feed_forward_length", 95u32)), "blk.0.ffn_sub_norm.weight: expected shape [95]"),
        (
            |_, t| t.retain(|tensor| tensor.name != "blk.1.attn_sub_norm.weight"),
            "blk.1.attn_sub_norm.weight is missing",
        ),
        (|_, t| t.retain(|tensor| tensor.name != "blk.0.ffn_sub_norm.weight"), "blk.0.ffn_sub_norm.weight is missing"),
        (
            |_, t| shape_of(t, "blk.1.ffn_sub_norm.weight")[0] = 64,
            "blk.1.ffn_sub_norm.weight: expected shape [96], found [64]",
        ),
        (
            |_, t| shape_of(t, "blk.0.attn_sub_norm.weight").push(2),
            "blk.0.attn_sub_norm.weight: expected shape [64], found [64, 2]",
        ),
    ];
    expect_files_refused(|| gguf_of(json!({ "architectures": ["BitnetForCausalLM"] })), cases);
}

#[test]
fn falcon_models_that_lie_are_refused() {
    let falcon = |more: Value| {
        let mut config = json!({ "architectures": ["FalconForCausalLM"], "multi_query": false, "alibi": true });
        config.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        config
    };
    expect_refusals([
        (falcon(json!({ "alibi": "yes" })), "alibi: expected true or false, found \"yes\""),
        (falcon(json!({ "bias": 2 })), "bias: expected true or false, found 2"),
        (falcon(json!({ "parallel_attn": "no" })), "parallel_attn: expected true or false, found \"no\""),
        (falcon(json!({ "activation": "relu" })), "activation: expected \"gelu\", found \"relu\""),
        (falcon(json!({ "num_attention_heads": 0 })), "num_attention_heads: expected 1 to 65536, found 0"),
        (
            falcon(json!({ "new_decoder_architecture": true, "parallel_attn": false })),
            "parallel_attn: expected true with new_decoder_architecture, found false",
        ),
    ]);
    let cases: &[(Change, &str)] = &[
        (
            |m, _| drop(m.insert("falcon.attention.alibi_scale", 0.0f32)),
            "scale of ALiBi: expected a finite number above 0, found 0",
        ),
        (|m, _| drop(m.insert("falcon.attention.alibi_scale", f32::NAN)), "scale of ALiBi: expected a finite number"),
        (|m, _| drop(m.insert("falcon.attention.alibi_scale", -1.0f32)), "above 0, found -1"),
        (|m, _| drop(m.insert("falcon.attention.alibi_scale", "1")), "falcon.attention.alibi_scale"),
        (|m, _| drop(m.insert("falcon.attention.alibi_scale", 1e300f64)), "above 0, found inf"),
        (
            |m, _| drop(m.insert("falcon.attention.max_alibi_bias", -8.0f32)),
            "largest ALiBi exponent: expected a finite number above 0, found -8",
        ),
        (|m, _| drop(m.insert("falcon.attention.max_alibi_bias", f32::INFINITY)), "above 0, found inf"),
        (|m, _| drop(m.insert("falcon.attention.max_alibi_bias", true)), "falcon.attention.max_alibi_bias"),
        (|_, t| t.retain(|tensor| tensor.name != "blk.1.ffn_norm.weight"), "tensor blk.1.ffn_norm.weight is missing"),
        (|_, t| t.retain(|tensor| tensor.name != "blk.1.ffn_norm.bias"), "tensor blk.1.ffn_norm.bias is missing"),
        (|_, t| t.retain(|tensor| tensor.name != "blk.0.attn_qkv.bias"), "tensor blk.0.attn_qkv.bias is missing"),
        (|_, t| t.retain(|tensor| tensor.name != "blk.1.attn_output.bias"), "blk.1.attn_output.bias is missing"),
        (|_, t| t.retain(|tensor| tensor.name != "blk.1.ffn_down.bias"), "tensor blk.1.ffn_down.bias is missing"),
        (|_, t| shape_of(t, "blk.1.attn_qkv.bias")[0] = 64, "expected shape [192], found [64]"),
        (|_, t| shape_of(t, "blk.0.ffn_norm.weight")[0] = 65, "expected shape [64], found [65]"),
        (
            |_, t| t.push(TensorInfo { name: "blk.0.attn_norm_2.weight".to_owned(), ..t[1].clone() }),
            "blk.0.attn_norm_2.bias is missing",
        ),
    ];
    let file = || {
        gguf_of(json!({ "architectures": ["FalconForCausalLM"], "multi_query": false, "alibi": true, "bias": true,
            "parallel_attn": false }))
    };
    expect_files_refused(file, cases);
}

fn expect_refusals(cases: impl IntoIterator<Item = (Value, &'static str)>) {
    let mut failures = Vec::new();
    for (more, expected) in cases {
        let found = read(&config(more.clone()));
        if !found.as_ref().is_err_and(|message| message.contains(expected) && message.starts_with("model: ")) {
            failures.push(format!("{more}: expected {expected:?}, found {found:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_kind_of_scaling_is_found_under_either_name() {
    use trueup_graph::op::RopeScaling;
    let linear = RopeScaling::Linear { factor: 2.0 };
    let cases = [
        (json!({ "type": null, "rope_type": "linear", "factor": 2.0 }), linear),
        (json!({ "type": "linear", "rope_type": null, "factor": 2.0 }), linear),
        (json!({ "type": null, "rope_type": null }), RopeScaling::None),
        (json!({ "rope_type": "default", "factor": 1.0 }), RopeScaling::None),
    ];
    for (scaling, expected) in cases {
        let spec = read(&config(json!({ "rope_scaling": scaling })));
        assert_eq!(spec.map(|spec| spec.rope().unwrap().scaling), Ok(expected), "{scaling}");
    }
}

#[test]
fn what_other_programs_do_not_take_from_a_file_is_told() {
    let llama3 = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32 });
    let window = "attention.sliding_window is written";
    let cases = [
        ("LlamaForCausalLM", json!({ "rope_scaling": llama3, "sliding_window": 16 }), vec![]),
        ("MistralForCausalLM", json!({ "rope_scaling": llama3 }), vec!["llama.", window]),
        ("MistralForCausalLM", json!({ "sliding_window": null }), vec![]),
        ("Qwen2ForCausalLM", json!({ "sliding_window": 16 }), vec![]),
        (
            "Qwen2ForCausalLM",
            json!({ "sliding_window": 16, "use_sliding_window": true, "max_window_layers": 1 }),
            vec!["qwen2.", window],
        ),
        ("Qwen2ForCausalLM", json!({ "rope_scaling": llama3 }), vec!["rope_freqs.weight is written", "qwen2"]),
        ("Qwen3ForCausalLM", json!({ "rope_scaling": llama3 }), vec!["rope_freqs.weight is written", "qwen3"]),
        ("Qwen3ForCausalLM", json!({}), vec![]),
    ];
    for (class, more, parts) in cases {
        let mut config = config(more.clone());
        config.insert("architectures".to_owned(), json!([class]));
        config.insert("head_dim".to_owned(), json!(16));
        let spec = read(&config).unwrap();
        let notes = spec.compatibility_notes();
        assert_eq!(notes.len(), usize::from(!parts.is_empty()), "{class} {more}: {notes:?}");
        assert!(parts.iter().all(|part| notes[0].contains(part)), "{class} {more}: {notes:?}");
    }
}

#[test]
fn all_faults_of_a_description_are_told_at_once() {
    let message = read(&config(json!({ "hidden_act": "gelu", "vocab_size": "x", "mlp_bias": 3 }))).unwrap_err();
    for part in ["hidden_act", "vocab_size", "mlp_bias"] {
        assert!(message.contains(part), "{message}");
    }
}

fn gguf() -> (Metadata, Vec<TensorInfo>) {
    gguf_of(json!({ "attention_bias": true }))
}

fn gguf_of(more: Value) -> (Metadata, Vec<TensorInfo>) {
    description::written(&description::read(&config(more), 100).unwrap())
}

#[test]
fn files_that_lie_are_refused() {
    let cases: &[(Change, &str)] = &[
        (|m, _| drop(m.remove("general.architecture")), "general.architecture"),
        (|m, _| drop(m.insert("general.architecture", "grok")), "found \"grok\""),
        (|m, _| drop(m.insert("general.architecture", 3u32)), "expected a string"),
        (|m, _| drop(m.remove("llama.block_count")), "llama.block_count"),
        (|m, _| drop(m.insert("llama.block_count", u64::MAX)), "llama.block_count: expected 1 to"),
        (|m, _| drop(m.insert("llama.block_count", 3u32)), "tensor blk.2.attn_q.weight is missing"),
        (|m, _| drop(m.insert("llama.block_count", 1u32)), "(llama.block_count), found 13 tensors of other layers"),
        (
            |m, _| drop(m.insert("llama.attention.head_count", vec![4u32, 2])),
            "tensor blk.1.attn_q.weight: expected shape [64, 32], found [64, 64]",
        ),
        (
            |m, _| drop(m.insert("llama.attention.head_count", vec![4u32; 3])),
            "expected 2 integers, one for each layer, found 3",
        ),
        (|m, _| drop(m.insert("llama.feed_forward_length", Vec::<u32>::new())), "found an empty list"),
        (|m, _| drop(m.insert("llama.embedding_length", vec![64u32, 64])), "llama.embedding_length"),
        (
            |m, _| drop(m.insert("llama.attention.head_count_kv", 0u32)),
            "llama.attention.head_count_kv: expected 1 to 65536, found 0",
        ),
        (
            |m, _| drop(m.insert("llama.attention.value_length", 8u32)),
            "tensor blk.0.attn_v.weight: expected shape [64, 16], found [64, 32]",
        ),
        (
            |m, _| drop(m.insert("llama.rope.dimension_count", 7u32)),
            "RoPE dimensions: expected an even number from 2 to",
        ),
        (|m, _| drop(m.insert("llama.rope.dimension_count", 32u32)), "an even number from 2 to 16, found 32"),
        (|m, _| drop(m.insert("llama.rope.freq_base", f32::NAN)), "rope.freq_base: expected a"),
        (|m, _| drop(m.insert("llama.rope.scaling.type", "longrope")), "tensor rope_factors_long.weight is missing"),
        (|m, _| drop(m.insert("llama.attention.layer_norm_rms_epsilon", f32::INFINITY)), "epsilon"),
        (
            |m, _| drop(m.insert("llama.expert_count", 8u32)),
            "key llama.expert_used_count: expected a non-negative integer",
        ),
        (|m, _| drop(m.insert("llama.expert_group_count", 2u32)), "llama.expert_group_count: expected 0 or 1, found 2"),
        (|m, _| drop(m.insert("llama.rope.scaling.yarn_attn_factor", 2.0f32)), "llama.rope.scaling.yarn_attn_factor"),
        (
            |m, _| {
                m.insert("llama.rope.scaling.type", "yarn");
                m.insert("llama.rope.scaling.factor", 2.0f32);
                m.insert("llama.rope.dimension_count", 0u32);
            },
            "RoPE dimensions: expected an even number from 2 to",
        ),
        (|m, _| drop(m.insert("llama.rope.scaling.yarn_attn_factor", 0.5f64)), "llama.rope.scaling.yarn_attn_factor"),
        (
            |m, _| drop(m.insert("llama.vocab_size", 401u32)),
            "tensor token_embd.weight: expected shape [64, 401], found [64, 400]",
        ),
        (|m, _| drop(m.insert("tokenizer.ggml.tokens", GgufValue::from(vec!["a".to_owned()]))), "has 1 tokens"),
        (|_, t| drop(t.remove(0)), "tensor token_embd.weight is missing"),
        (|_, t| t.retain(|tensor| tensor.name != "blk.1.attn_k.bias"), "tensor blk.1.attn_k.bias is missing"),
        (|_, t| t.push(TensorInfo { name: "x\u{202e}".to_owned(), ..t[0].clone() }), "tensor x\\u{202e} is not known"),
        (|_, t| t[0].shape = vec![400, 64], "tensor token_embd.weight: expected shape [64, 400], found [400, 64]"),
        (|_, t| t[0].dtype = DType::Iq2S, "found iq2_s"),
        (|_, t| t[0].dtype = DType::I32, "found i32"),
        (|_, t| t[1].dtype = DType::Q8_0, "one dimension"),
    ];
    expect_files_refused(gguf, cases);
}

type Change = fn(&mut Metadata, &mut Vec<TensorInfo>);

fn expect_files_refused(file: fn() -> (Metadata, Vec<TensorInfo>), cases: &[(Change, &str)]) {
    let mut failures = Vec::new();
    for (index, (change, expected)) in cases.iter().enumerate() {
        let (mut metadata, mut tensors) = file();
        change(&mut metadata, &mut tensors);
        let found = Model::from_gguf(&metadata, &tensors, Path::new("m.gguf")).map(|_| ()).map_err(|e| e.to_string());
        if !found.as_ref().is_err_and(|message| message.contains(expected) && message.starts_with("m.gguf: ")) {
            failures.push(format!("case {index}: expected {expected:?}, found {found:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Two layers of Qwen2-MoE, the second one dense: 4 experts of 32 elements, 2 used, one shared of 48.
fn gguf_with_experts() -> (Metadata, Vec<TensorInfo>) {
    gguf_of(json!({ "architectures": ["Qwen2MoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48, "mlp_only_layers": [1] }))
}

fn shape_of<'a>(tensors: &'a mut [TensorInfo], name: &str) -> &'a mut Vec<u64> {
    &mut tensors.iter_mut().find(|tensor| tensor.name == name).unwrap().shape
}

#[test]
fn files_with_wrong_keys_of_experts_are_refused() {
    let (metadata, tensors) = gguf_with_experts();
    assert!(Model::from_gguf(&metadata, &tensors, Path::new("m.gguf")).is_ok());
    expect_files_refused(
        gguf_with_experts,
        &[
            (
                |m, _| drop(m.remove("qwen2moe.expert_count")),
                "key qwen2moe.expert_count: expected a non-negative integer",
            ),
            (
                |m, _| drop(m.insert("qwen2moe.expert_count", 0u32)),
                "qwen2moe.expert_count: expected 1 to 65536, found 0",
            ),
            (
                |m, _| drop(m.insert("qwen2moe.expert_count", 1u32 << 31)),
                "expert_count: expected 1 to 65536, found 2147483648",
            ),
            (|m, _| drop(m.insert("qwen2moe.expert_count", -4i32)), "qwen2moe.expert_count"),
            (|m, _| drop(m.insert("qwen2moe.expert_count", "4")), "qwen2moe.expert_count"),
            (
                |m, _| drop(m.insert("qwen2moe.expert_count", 8u32)),
                "qwen2moe.expert_count: expected 4, the number of experts in the tensors of layer 0, found 8",
            ),
            (|m, _| drop(m.insert("qwen2moe.expert_count", 1u32)), "in the tensors of layer 0, found 1"),
            (|m, _| drop(m.insert("qwen2moe.expert_used_count", 5u32)), "experts per token: expected 1 to 4, found 5"),
            (
                |m, _| drop(m.insert("qwen2moe.expert_used_count", 0u32)),
                "expert_used_count: expected 1 to 65536, found 0",
            ),
            (
                |m, _| drop(m.remove("qwen2moe.expert_used_count")),
                "key qwen2moe.expert_used_count: expected a non-negative integer",
            ),
            (
                |m, _| drop(m.insert("qwen2moe.expert_shared_feed_forward_length", 0u32)),
                "expert_shared_feed_forward_length: expected 1 to 4194304, found 0",
            ),
            (
                |m, _| drop(m.insert("qwen2moe.expert_gating_func", 9u32)),
                "expert_gating_func: expected 1 (softmax) or 2 (sigmoid), found 9",
            ),
            (|m, _| drop(m.insert("qwen2moe.expert_weights_norm", 1u32)), "qwen2moe.expert_weights_norm"),
            (
                |m, _| drop(m.insert("qwen2moe.expert_weights_scale", f32::NAN)),
                "scale of expert weights: expected a finite number",
            ),
            (
                |m, _| drop(m.insert("qwen2moe.expert_weights_scale", -1.0f32)),
                "scale of expert weights: expected a finite number",
            ),
        ],
    );
}

#[test]
fn a_wrong_size_of_experts_is_named_by_its_key() {
    expect_files_refused(
        gguf_with_experts,
        &[
            (
                |m, _| drop(m.insert("qwen2moe.expert_feed_forward_length", 1u32 << 22)),
                "expert_feed_forward_length: expected 32, the size of experts in the tensors of layer 0, found 4194304",
            ),
            (
                |m, _| drop(m.insert("qwen2moe.expert_feed_forward_length", 33u32)),
                "key qwen2moe.expert_feed_forward_length: expected 32, the size of experts in the tensors of layer 0",
            ),
            (
                |m, t| {
                    m.insert("qwen2moe.expert_feed_forward_length", 33u32);
                    shape_of(t, "blk.0.ffn_up_exps.weight")[1] = 31;
                },
                "tensor blk.0.ffn_gate_exps.weight: expected shape [64, 33, 4], found [64, 32, 4]",
            ),
            (
                |m, t| {
                    m.insert("qwen2moe.expert_feed_forward_length", 1u32 << 22);
                    shape_of(t, "blk.0.ffn_up_exps.weight")[1] = 31;
                },
                "expected at most 4194304 elements, found 2 experts of 4194304",
            ),
            (
                |m, _| {
                    m.insert("qwen2moe.expert_count", 8u32);
                    m.insert("qwen2moe.expert_feed_forward_length", 33u32);
                },
                "the number of experts in the tensors of layer 0, found 8; key qwen2moe.expert_feed_forward_length",
            ),
        ],
    );
}

#[test]
fn files_with_wrong_tensors_of_experts_are_refused() {
    expect_files_refused(
        gguf_with_experts,
        &[
            (
                |_, t| t.retain(|tensor| tensor.name != "blk.0.ffn_gate_inp.weight"),
                "tensor blk.0.ffn_gate_inp.weight is missing",
            ),
            (
                |_, t| t.retain(|tensor| !tensor.name.contains("exps") && !tensor.name.contains("gate_inp.")),
                "tensor blk.0.ffn_gate_inp.weight is missing",
            ),
            (
                |_, t| t.retain(|tensor| tensor.name != "blk.0.ffn_up_exps.weight"),
                "tensor blk.0.ffn_up_exps.weight is missing",
            ),
            (
                |_, t| *shape_of(t, "blk.0.ffn_gate_inp.weight") = vec![64, 3],
                "tensor blk.0.ffn_gate_inp.weight: expected shape [64, 4], found [64, 3]",
            ),
            (
                |_, t| *shape_of(t, "blk.0.ffn_down_exps.weight") = vec![32, 64, 3],
                "tensor blk.0.ffn_down_exps.weight: expected shape [32, 64, 4], found [32, 64, 3]",
            ),
            (
                |_, t| *shape_of(t, "blk.0.ffn_gate_inp_shexp.weight") = vec![64, 2],
                "tensor blk.0.ffn_gate_inp_shexp.weight: expected shape [64, 1], found [64, 2]",
            ),
            (
                |_, t| t.retain(|tensor| !tensor.name.contains("down_shexp")),
                "tensor blk.0.ffn_gate_shexp.weight is not known",
            ),
        ],
    );
}

#[test]
fn descriptions_that_lie_about_experts_are_refused() {
    let class = |class: &str, more: Value| {
        let mut found = json!({ "architectures": [class] });
        found.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        found
    };
    let qwen = |more| class("Qwen3MoeForCausalLM", more);
    let mixtral = |more| class("MixtralForCausalLM", more);
    expect_refusals([
        (
            mixtral(json!({ "num_local_experts": 1u64 << 31 })),
            "num_local_experts: expected 1 to 65536, found 2147483648",
        ),
        (
            mixtral(json!({ "num_local_experts": 11 })),
            "num_local_experts: 11 experts require at least 22 tensors, found 21",
        ),
        (
            qwen(json!({ "num_experts": null })),
            "num_experts is absent and defaults to 128, which requires at least 256 tensors; found 21",
        ),
        (mixtral(json!({ "num_local_experts": 0 })), "num_local_experts: expected 1 to 65536, found 0"),
        (mixtral(json!({ "num_local_experts": "8" })), "num_local_experts: expected a positive integer, found \"8\""),
        (
            mixtral(json!({ "num_local_experts": 4, "num_experts_per_tok": 5 })),
            "experts per token: expected 1 to 4, found 5",
        ),
        (mixtral(json!({ "num_experts_per_tok": -2 })), "num_experts_per_tok: expected a positive integer, found -2"),
        (mixtral(json!({ "hidden_act": "gelu" })), "hidden_act: expected \"silu\""),
        (
            qwen(json!({ "num_experts": 4, "mlp_only_layers": [2] })),
            "mlp_only_layers: expected a list of layers below 2",
        ),
        (
            qwen(json!({ "num_experts": 4, "mlp_only_layers": "0" })),
            "mlp_only_layers: expected a list of layers below 2",
        ),
        (
            qwen(json!({ "num_experts": 4, "decoder_sparse_step": 0 })),
            "decoder_sparse_step: expected 1 to 65536, found 0",
        ),
        (
            qwen(json!({ "num_experts": 4, "moe_intermediate_size": 1u64 << 23 })),
            "moe_intermediate_size: expected 1 to 4194304",
        ),
        (qwen(json!({ "num_experts": 4, "norm_topk_prob": 1 })), "norm_topk_prob: expected true or false, found 1"),
        (qwen(json!({ "num_experts": 4, "use_sliding_window": true })), "use_sliding_window: expected false"),
        (
            class("Qwen2MoeForCausalLM", json!({ "num_experts": 4, "shared_expert_intermediate_size": 0 })),
            "shared_expert_intermediate_size: expected 1 to 4194304, found 0",
        ),
        (
            class("OlmoeForCausalLM", json!({ "num_experts": 4, "clip_qkv": -8.0 })),
            "attention clamp: expected a finite",
        ),
        (
            class("GraniteMoeSharedForCausalLM", json!({ "shared_intermediate_size": -8 })),
            "shared_intermediate_size: expected an integer of at least 0, found -8",
        ),
    ]);
}

/// DeepSeek-V3: a dense layer, and one with 8 experts in two groups.
fn deepseek(more: Value) -> Value {
    let mut config = json!({ "architectures": ["DeepseekV3ForCausalLM"], "num_key_value_heads": 4, "q_lora_rank": 48,
        "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 24, "first_k_dense_replace": 1,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 32 });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

#[test]
fn descriptions_that_lie_about_latent_attention_are_refused() {
    let yarn = |more: Value| {
        let mut scaling = json!({ "type": "yarn", "factor": 4.0 });
        scaling.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        deepseek(json!({ "rope_scaling": scaling }))
    };
    expect_refusals([
        (deepseek(json!({ "kv_lora_rank": 0 })), "kv_lora_rank: expected 1 to 4194304, found 0"),
        (deepseek(json!({ "q_lora_rank": 0 })), "q_lora_rank: expected 1 to 4194304, found 0"),
        (deepseek(json!({ "q_lora_rank": "48" })), "q_lora_rank: expected a positive integer, found \"48\""),
        (deepseek(json!({ "qk_rope_head_dim": 0 })), "qk_rope_head_dim: expected 1 to 65536, found 0"),
        (deepseek(json!({ "qk_rope_head_dim": 15 })), "RoPE dimensions: expected an even number from 2 to"),
        (deepseek(json!({ "qk_nope_head_dim": 0 })), "qk_nope_head_dim: expected 1 to 65536, found 0"),
        (deepseek(json!({ "v_head_dim": -1 })), "v_head_dim: expected a positive integer, found -1"),
        (
            deepseek(json!({ "num_key_value_heads": 2 })),
            "num_key_value_heads: expected 4, the number of attention heads",
        ),
        (
            deepseek(json!({ "num_attention_heads": 65536, "num_key_value_heads": 65536, "kv_lora_rank": 512 })),
            "in total, found 65536 heads",
        ),
        (deepseek(json!({ "first_k_dense_replace": "1" })), "first_k_dense_replace: expected an integer of at least 0"),
        (deepseek(json!({ "first_k_dense_replace": -1 })), "expected an integer of at least 0, found -1"),
        (
            deepseek(json!({ "first_k_dense_replace": 65537 })),
            "first_k_dense_replace: expected 0 to 65536, found 65537",
        ),
        (deepseek(json!({ "moe_layer_freq": 2 })), "moe_layer_freq: expected 1, found 2"),
        (
            deepseek(json!({ "n_group": 3 })),
            "number of expert groups: expected a divisor of 8 (the number of experts) with at least 2 experts per group, \
             found 3",
        ),
        (deepseek(json!({ "n_group": 8 })), "with at least 2 experts per group, found 8"),
        (deepseek(json!({ "n_group": 0 })), "n_group: expected 1 to 65536, found 0"),
        (deepseek(json!({ "topk_group": 3 })), "expert groups per token: expected 1 to 2, found 3"),
        (
            deepseek(json!({ "num_experts_per_tok": 5 })),
            "expert groups per token: expected at least 5 experts in the selected groups, found 4 (1 x 4)",
        ),
        // The class has 8 groups, of which each token uses 4.
        (deepseek(json!({ "n_group": null })), "found 8"),
        (deepseek(json!({ "topk_group": null })), "found 4"),
        (
            deepseek(json!({ "architectures": ["DeepseekV2ForCausalLM"], "n_group": null,
                "topk_method": "group_limited_greedy" })),
            "n_group: expected a positive integer, found null",
        ),
        (deepseek(json!({ "n_shared_experts": -1 })), "n_shared_experts: expected an integer of at least 0, found -1"),
        (deepseek(json!({ "scoring_func": "softmax" })), "scoring_func: expected \"sigmoid\""),
        (deepseek(json!({ "attention_bias": true })), "attention_bias: expected false"),
        (deepseek(json!({ "rope_interleave": false })), "rope_interleave: expected true"),
        (yarn(json!({ "mscale_all_dim": "1" })), "mscale_all_dim"),
    ]);
}

#[test]
fn files_with_wrong_keys_of_latent_attention_are_refused() {
    let file = || gguf_of(deepseek(json!({})));
    let (metadata, tensors) = file();
    Model::from_gguf(&metadata, &tensors, Path::new("m.gguf")).unwrap_or_else(|error| panic!("{error}"));
    expect_files_refused(
        file,
        &[
            (|m, _| drop(m.remove("deepseek2.attention.kv_lora_rank")), "key deepseek2.attention.kv_lora_rank"),
            (
                |m, _| drop(m.insert("deepseek2.attention.kv_lora_rank", 1u32 << 31)),
                "attention.kv_lora_rank: expected 1 to 4194304, found 2147483648",
            ),
            (
                |m, _| drop(m.insert("deepseek2.attention.kv_lora_rank", 64u32)),
                "attention.key_length: expected 80 (attention.kv_lora_rank 64 + rope.dimension_count 16)",
            ),
            (
                |m, _| drop(m.insert("deepseek2.attention.key_length_mla", 16u32)),
                "RoPE dimensions of a key of 16 elements: expected 1 to 15, found 16",
            ),
            (
                |m, _| drop(m.insert("deepseek2.attention.value_length_mla", 32u32)),
                "tensor blk.0.attn_v_b.weight: expected shape [32, 32, 4], found [32, 24, 4]",
            ),
            (
                |m, _| drop(m.remove("deepseek2.attention.key_length_mla")),
                "key deepseek2.attention.key_length_mla: expected a non-negative integer",
            ),
            (
                |m, _| drop(m.insert("deepseek2.expert_group_count", 3u32)),
                "number of expert groups: expected a divisor of 8",
            ),
            (
                |m, _| drop(m.insert("deepseek2.expert_group_used_count", 0u32)),
                "expert_group_used_count: expected 1 to 65536, found 0",
            ),
            (|m, _| drop(m.insert("deepseek2.rope.scaling.yarn_log_multiplier", f32::NAN)), "yarn_log_multiplier"),
            (
                |m, _| drop(m.insert("deepseek2.expert_shared_count", 0u32)),
                "expert_shared_count: expected at least 1, because the file has a shared expert, found 0",
            ),
            (
                |m, _| drop(m.insert("deepseek2.attention.latent_norm_epsilon", -1.0f32)),
                "latent_norm_epsilon: expected a positive number, found -1",
            ),
            (
                |m, _| drop(m.insert("deepseek2.attention.temperature_scale", 0.1f32)),
                "attention.temperature_scale: expected 0, found 0.1",
            ),
            (
                |m, _| drop(m.insert("deepseek2.nextn_predict_layers", 1u32)),
                "nextn_predict_layers: expected 0, found 1",
            ),
            (|_, t| t.retain(|tensor| !tensor.name.contains("attn_v_b")), "tensor blk.0.attn_v_b.weight is missing"),
            (
                |_, t| *shape_of(t, "blk.1.attn_k_b.weight") = vec![32, 128],
                "expected shape [32, 32, 4], found [32, 128]",
            ),
        ],
    );
}

#[test]
fn all_faults_of_the_tensors_are_told_at_once() {
    let (metadata, mut tensors) = gguf();
    tensors.remove(5);
    let removed = tensors.remove(0).name;
    tensors[3].shape = vec![1, 2, 3];
    tensors[4].name = "other".to_owned();
    let message = Model::from_gguf(&metadata, &tensors, Path::new("m.gguf")).map(|_| ()).unwrap_err().to_string();
    for part in [removed.as_str(), "missing", "[1, 2, 3]", "other is not known"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_file_without_optional_keys_has_the_usual_values() {
    let (mut metadata, tensors) = gguf();
    for key in
        ["vocab_size", "attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base"]
    {
        assert!(metadata.remove(&format!("llama.{key}")).is_some(), "{key}");
    }
    metadata.insert("llama.rope.scaling.yarn_ext_factor", 1.0f32);
    metadata.insert("llama.rope.scaling.yarn_attn_factor", 1.0f32);
    let model = Model::from_gguf(&metadata, &tensors, Path::new("m.gguf")).unwrap();
    assert_eq!((model.spec().vocabulary_size(), model.spec().cached_head_sizes().next()), (400, Some(16)));
    assert_eq!((model.spec().rope().unwrap().dimensions, model.spec().rope().unwrap().base), (16, 10_000.0));
}

/// llama.cpp reads each of these keys as a number or as one number for each layer.
#[test]
fn equal_counts_of_all_layers_are_one_count() {
    let (metadata, tensors) = gguf();
    let path = Path::new("model.gguf");
    let expected = Model::from_gguf(&metadata, &tensors, path).unwrap();
    for key in ["attention.head_count", "attention.head_count_kv", "attention.key_length", "feed_forward_length"] {
        let (mut metadata, key) = (metadata.clone(), format!("llama.{key}"));
        let count = metadata.u64(&key).unwrap();
        metadata.insert(&key, vec![i32::try_from(count).unwrap(); expected.spec().layer_count()]);
        let model = Model::from_gguf(&metadata, &tensors, path).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(model.spec(), expected.spec(), "{key}");
    }
    let plain = read(&config(json!({ "head_dim": 16 }))).unwrap();
    let listed = config(json!({ "num_attention_heads": [4, 4], "num_key_value_heads": [2, 2], "head_dim": [16, 16],
        "intermediate_size": [96, 96] }));
    assert_eq!(read(&listed).unwrap(), plain);
    let sizes = read(&config(json!({ "head_dim": [16, 8] }))).unwrap_err();
    assert!(sizes.contains("head_dim: layers with different sizes of heads"), "{sizes}");
    for (value, part) in [
        (json!([96]), "expected 2 integers, one for each layer, found 1"),
        (json!([96, "x"]), "intermediate_size: expected a positive integer"),
        (json!(trueup_formats::json::INFINITY), "found Infinity"),
    ] {
        let message = read(&config(json!({ "intermediate_size": value }))).unwrap_err();
        assert!(message.contains(part), "{message}");
    }
}
