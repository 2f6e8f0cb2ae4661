//! For each architecture: a description becomes numbers, GGUF keys and tensors, and these become the same numbers and a
//! graph.

use crate::description;
use serde_json::{Map, Value, json};
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::TensorInfo;
use trueup_formats::gguf::Metadata;
use trueup_graph::op::{RopePairs, RopeScaling};
use trueup_graph::{Graph, Input, Op, Origin};
use trueup_models::{Batch, Model, ModelSpec, Stage};

const BATCH: Batch = Batch {
    tokens: 3,
    outputs: 1,
    capacity: 64,
    context: 128,
    ring: 128,
    sequences: 2,
    streams: 1,
    is_long: false,
    stage: Stage::Decoder { source: 0 },
    activation: DType::F32,
    kv: DType::F16,
};

fn config(class: &str, more: Value) -> Map<String, Value> {
    let base = json!({
        "architectures": [class], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "vocab_size": 400,
    });
    description::with(base, more)
}

/// What convert writes for a description, without weights.
fn gguf(config: &Map<String, Value>) -> (Metadata, Vec<TensorInfo>, ModelSpec) {
    let spec = description::read(config, 100).unwrap();
    let (metadata, tensors) = description::written(&spec);
    (metadata, tensors, spec)
}

fn model(config: &Map<String, Value>) -> Model {
    let (metadata, tensors, _) = gguf(config);
    Model::from_gguf(&metadata, &tensors, Path::new("model.gguf")).unwrap()
}

fn shown(graph: &Graph, name: &str) -> String {
    let value = graph.value(graph.find(name).unwrap_or_else(|| panic!("no {name}")));
    value.ty.to_string()
}

/// Class, what else its description says, tensors in a file, nodes in each layer.
fn cases() -> Vec<(&'static str, Value, usize, usize)> {
    let llama3 = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32 });
    vec![
        ("LlamaForCausalLM", json!({}), 2 * 9 + 3, 22),
        ("LlamaForCausalLM", json!({ "tie_word_embeddings": true, "rope_scaling": llama3 }), 2 * 9 + 3, 22),
        ("LlamaForCausalLM", json!({ "attention_bias": true, "mlp_bias": true }), 2 * 16 + 3, 29),
        ("MistralForCausalLM", json!({ "sliding_window": 16 }), 2 * 9 + 3, 22),
        ("Llama2cForCausalLM", json!({ "tie_word_embeddings": true }), 2 * 9 + 2, 22),
        ("Qwen2ForCausalLM", json!({ "tie_word_embeddings": true }), 2 * 12 + 2, 25),
        ("Qwen3ForCausalLM", json!({ "head_dim": 32 }), 2 * 11 + 3, 24),
    ]
}

#[test]
fn descriptions_come_back_from_gguf_keys_and_tensors() {
    for (class, more, tensor_count, layer_nodes) in cases() {
        let config = config(class, more);
        let (metadata, tensors, spec) = gguf(&config);
        assert_eq!(tensors.len(), tensor_count, "{config:?}");
        let model = Model::from_gguf(&metadata, &tensors, Path::new("model.gguf")).unwrap();
        let names = |spec: &ModelSpec| spec.tensors().into_iter().map(|tensor| tensor.name).collect::<Vec<_>>();
        assert_eq!(names(model.spec()), names(&spec));
        assert_eq!(model.spec().window(), spec.window());
        assert_eq!(model.spec().rope().unwrap().scaling, spec.rope().unwrap().scaling);
        assert_eq!(model.spec().vocabulary_size(), 400);

        let graph = model.graph(&BATCH).unwrap();
        assert_eq!(graph.nodes().len(), 4 + 2 * layer_nodes, "{config:?}");
        for layer in [Some(0), Some(1)] {
            assert_eq!(graph.nodes().iter().filter(|node| node.layer == layer).count(), layer_nodes);
        }
        let used = graph.values().iter().filter(|value| value.origin == Origin::Weight).count();
        assert_eq!(used, tensor_count, "a tensor is not used by {config:?}");
        assert_eq!(shown(&graph, "result_output"), "f32[400]");
        assert_eq!(shown(&graph, "l_out-1"), "f32[64, 3]");
        assert_eq!(shown(&graph, "kq-0"), "f32[64, 3, 4]");
    }
}

/// Each layer has tensors, a cache and activations of its size, and GGUF keys say so.
#[test]
fn layers_may_differ_in_heads_and_feed_forward() {
    let more = json!({ "head_dim": 16, "num_attention_heads": [4, 2], "num_key_value_heads": [2, 1],
        "intermediate_size": [96, 160] });
    let config = config("LlamaForCausalLM", more);
    let (metadata, tensors, spec) = gguf(&config);
    assert_eq!(metadata.u64s("llama.attention.head_count").unwrap(), [4, 2]);
    assert_eq!(metadata.u64s("llama.feed_forward_length").unwrap(), [96, 160]);
    let model = Model::from_gguf(&metadata, &tensors, Path::new("model.gguf")).unwrap();
    assert_eq!(model.spec(), &spec);
    let graph = model.graph(&BATCH).unwrap();
    for (name, ty) in [
        ("Qcur_rope-0", "f32[16, 4, 3]"),
        ("Qcur_rope-1", "f32[16, 2, 3]"),
        ("kv_k-0", "f16[32, 128, 2]"),
        ("kv_k-1", "f16[16, 128, 2]"),
        ("kq-1", "f32[64, 3, 2]"),
        ("ffn_swiglu-0", "f32[96, 3]"),
        ("ffn_swiglu-1", "f32[160, 3]"),
        ("l_out-1", "f32[64, 3]"),
    ] {
        assert_eq!(shown(&graph, name), ty, "{name}");
    }
}

#[test]
fn nodes_of_a_layer_have_the_names_of_other_programs_traces() {
    let graph = model(&config("LlamaForCausalLM", json!({}))).graph(&BATCH).unwrap();
    let names: Vec<&str> =
        graph.nodes().iter().filter(|node| node.layer == Some(1)).map(|node| node.name.as_str()).collect();
    let expected = [
        "attn_norm-1",
        "Qcur-1",
        "Kcur-1",
        "Vcur-1",
        "Qcur_heads-1",
        "Kcur_heads-1",
        "Qcur_rope-1",
        "Kcur_rope-1",
        "Kcur_rows-1",
        "cache_k-1",
        "cache_v-1",
        "kq-1",
        "kq_soft_max-1",
        "kqv_out-1",
        "attn_out-1",
        "ffn_inp-1",
        "ffn_norm-1",
        "ffn_gate-1",
        "ffn_up-1",
        "ffn_swiglu-1",
        "ffn_out-1",
        "l_out-1",
    ];
    assert_eq!(names, expected);
    let outside: Vec<&str> =
        graph.nodes().iter().filter(|node| node.layer.is_none()).map(|node| node.name.as_str()).collect();
    assert_eq!(outside, ["inp_embd", "result_rows", "result_norm", "result_output"]);
    assert_eq!(shown(&graph, "kv_k-1"), "f16[32, 128, 2]");
    assert_eq!(shown(&graph, "Kcur_rope-1"), "f32[16, 2, 3]");
    assert_eq!(shown(&graph, "inp_mask"), "f32[64, 3]");
    assert!(graph.find("inp_mask_swa").is_none());
}

#[test]
fn layers_with_experts_and_dense_layers_take_turns() {
    let more = json!({ "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48, "mlp_only_layers": [1] });
    let (metadata, tensors, spec) = gguf(&config("Qwen2MoeForCausalLM", more));
    assert_eq!(metadata.u64("qwen2moe.feed_forward_length").unwrap(), 96);
    assert_eq!(metadata.u64("qwen2moe.expert_feed_forward_length").unwrap(), 32);
    let model = Model::from_gguf(&metadata, &tensors, Path::new("model.gguf")).unwrap();
    assert_eq!(model.spec(), &spec);
    let graph = model.graph(&BATCH).unwrap();
    for (name, ty) in [
        ("ffn_moe_probs-0", "f32[4, 3]"),
        ("ffn_moe_topk-0", "i32[2, 3]"),
        ("ffn_moe_weights-0", "f32[1, 2, 3]"),
        ("ffn_moe_swiglu-0", "f32[32, 2, 3]"),
        ("ffn_moe_down-0", "f32[64, 2, 3]"),
        ("ffn_moe_out-0", "f32[64, 3]"),
        ("ffn_shexp_swiglu-0", "f32[48, 3]"),
        ("shared_expert_gate-0", "f32[1, 3]"),
        ("ffn_out-0", "f32[64, 3]"),
        ("ffn_swiglu-1", "f32[96, 3]"),
    ] {
        assert_eq!(shown(&graph, name), ty, "{name}");
    }
    assert!(graph.find("ffn_moe_weights_norm-0").is_none() && graph.find("ffn_moe_out-1").is_none());
    let notes = model.spec().compatibility_notes();
    assert_eq!(notes, ["1 of 2 layers have no experts; llama.cpp does not load the file"]);
}

#[test]
fn a_note_says_when_llama_cpp_weighs_experts_otherwise() {
    let more = json!({ "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": true });
    let notes = |class: &str, more: &Value| gguf(&config(class, more.clone())).2.compatibility_notes();
    assert_eq!(notes("Qwen3MoeForCausalLM", &more), Vec::<String>::new());
    let note = "the weights of the chosen experts are divided by their sum (olmoe.expert_weights_norm); llama.cpp \
                leaves them as they are, and its results differ";
    assert_eq!(notes("OlmoeForCausalLM", &more), [note]);
    let plain = json!({ "num_experts": 4, "num_experts_per_tok": 2 });
    assert!(notes("Qwen3MoeForCausalLM", &plain)[0].contains("are not divided by their sum"));
}

#[test]
fn heads_have_their_own_size_and_norm_and_the_oracle_its_own_type() {
    let batch = Batch { activation: DType::F64, kv: DType::F64, outputs: 3, ..BATCH };
    let graph = model(&config("Qwen3ForCausalLM", json!({ "head_dim": 32 }))).graph(&batch).unwrap();
    assert_eq!(shown(&graph, "Qcur-0"), "f64[128, 3]");
    assert_eq!(shown(&graph, "Qcur_normed-0"), "f64[32, 4, 3]");
    assert_eq!(shown(&graph, "attn_out-0"), "f64[64, 3]");
    assert_eq!(shown(&graph, "result_output"), "f64[400, 3]");
    let soft_max = graph.nodes().iter().find(|node| node.name == "kq_soft_max-0").unwrap();
    assert_eq!(soft_max.op, Op::from(trueup_graph::op::SoftMax { scale: 0.176_776_69, max_bias: 0.0 }));
}

#[test]
fn pairs_of_the_rotation_follow_the_architecture() {
    let pairs = |class| {
        let graph = model(&config(class, json!({}))).graph(&BATCH).unwrap();
        let node = graph.nodes().iter().find(|node| node.name == "Kcur_rope-1").unwrap().clone();
        match node.op {
            Op::Rope(rope) => rope.pairs,
            other => panic!("{other:?}"),
        }
    };
    for class in ["LlamaForCausalLM", "MistralForCausalLM", "Llama2cForCausalLM"] {
        assert_eq!(pairs(class), RopePairs::Neighbours, "{class}");
    }
    for class in ["Qwen2ForCausalLM", "Qwen3ForCausalLM"] {
        assert_eq!(pairs(class), RopePairs::Halves, "{class}");
    }
}

#[test]
fn windows_hold_for_the_layers_that_have_them() {
    let mask = |graph: &Graph, layer: usize| {
        let node = graph.nodes().iter().find(|node| node.name == format!("kq_soft_max-{layer}")).unwrap();
        graph.value(node.inputs[1]).origin
    };
    let window = json!({ "use_sliding_window": true, "sliding_window": 16, "max_window_layers": 1 });
    let listed = json!({ "use_sliding_window": true, "sliding_window": 16,
        "layer_types": ["full_attention", "sliding_attention"] });
    for more in [window, listed] {
        let (metadata, _, spec) = gguf(&config("Qwen2ForCausalLM", more.clone()));
        assert_eq!(spec.window(), Some(16));
        assert_eq!(metadata.u64("qwen2.attention.sliding_window").unwrap(), 16);
        assert_eq!(metadata.bools("qwen2.attention.sliding_window_pattern").unwrap(), [false, true]);
        let graph = model(&config("Qwen2ForCausalLM", more)).graph(&BATCH).unwrap();
        assert_eq!(mask(&graph, 0), Origin::Input(Input::Mask));
        assert_eq!(mask(&graph, 1), Origin::Input(Input::MaskWindow));
    }
    let all = model(&config("MistralForCausalLM", json!({ "sliding_window": 16 }))).graph(&BATCH).unwrap();
    assert_eq!([mask(&all, 0), mask(&all, 1)], [Origin::Input(Input::MaskWindow); 2]);
    assert!(all.find("inp_mask").is_none());

    let size = |class, more| gguf(&config(class, more)).2.window();
    assert_eq!(size("MistralForCausalLM", json!({})), Some(4096), "the default of the class");
    assert_eq!(size("MistralForCausalLM", json!({ "sliding_window": null })), None);
    assert_eq!(size("Qwen2ForCausalLM", json!({ "sliding_window": 16 })), None, "it is not switched on");
    assert_eq!(size("LlamaForCausalLM", json!({ "sliding_window": 16 })), None, "the class knows none");
}

#[test]
fn the_factors_of_llama3_enter_both_rotations() {
    let scaling = json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32 });
    let graph = model(&config("LlamaForCausalLM", json!({ "rope_scaling": scaling }))).graph(&BATCH).unwrap();
    let factors = graph.find("rope_freqs.weight").unwrap();
    assert_eq!(graph.value(factors).ty.to_string(), "f32[8]");
    let rotated: Vec<_> =
        graph.nodes().iter().filter(|node| node.inputs.get(2) == Some(&factors)).map(|n| &n.name).collect();
    assert_eq!(rotated, ["Qcur_rope-0", "Kcur_rope-0", "Qcur_rope-1", "Kcur_rope-1"]);
}

#[test]
fn classes_that_rename_llama_have_its_tensors() {
    let tensors = |class, more| gguf(&config(class, more)).2.tensors();
    let llama = tensors("LlamaForCausalLM", json!({}));
    for class in ["AquilaForCausalLM", "InternLM3ForCausalLM", "XverseForCausalLM"] {
        assert_eq!(tensors(class, json!({})), llama, "{class}");
    }
    let biases = |more| -> Vec<String> {
        let biases = tensors("InternLM3ForCausalLM", more).into_iter().filter(|tensor| tensor.layer == Some(0));
        biases.filter_map(|tensor| tensor.name.strip_suffix(".bias").map(str::to_owned)).collect()
    };
    assert_eq!(biases(json!({ "qkv_bias": true })), ["blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"]);
    let rest = ["blk.0.attn_output", "blk.0.ffn_gate", "blk.0.ffn_up", "blk.0.ffn_down"];
    assert_eq!(biases(json!({ "bias": true })), rest);
}

#[test]
fn the_length_of_the_text_chooses_the_factors_of_longrope() {
    let scaling =
        json!({ "type": "su", "long_factor": [1, 2, 3, 4, 5, 6, 7, 8], "short_factor": [1, 1, 1, 1, 1, 1, 1, 2] });
    let more = json!({ "rope_scaling": scaling, "original_max_position_embeddings": 64 });
    let model = model(&config("Phi3ForCausalLM", more));
    for (tokens, expected, other) in [(64, "short", "long"), (65, "long", "short")] {
        let graph = model.graph(&Batch { is_long: model.spec().is_long(tokens), ..BATCH }).unwrap();
        let name = |which: &str| format!("rope_factors_{which}.weight");
        let factors = graph.find(&name(expected)).unwrap();
        assert_eq!(graph.nodes().iter().filter(|node| node.inputs.get(2) == Some(&factors)).count(), 4);
        assert!(graph.find(&name(other)).is_none(), "{tokens}");
    }
}

#[test]
fn scaling_is_read_in_the_words_of_transformers_4_and_5_and_comes_back() {
    let yarn = |more: Value| {
        let mut scaling = json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64 });
        scaling.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "rope_scaling": scaling })
    };
    let paper = RopeScaling::Yarn {
        factor: 4.0,
        original_context: 64,
        beta_fast: 32.0,
        beta_slow: 1.0,
        magnitude: 1.138_629_4,
    };
    // Magnitudes are the second result of transformers 4.57.6's ROPE_INIT_FUNCTIONS["yarn"] for these values.
    let magnitude = |magnitude: f32, factor: f32| RopeScaling::Yarn {
        factor,
        original_context: 64,
        beta_fast: 32.0,
        beta_slow: 1.0,
        magnitude,
    };
    let cases = [
        (json!({ "rope_scaling": null }), RopeScaling::None),
        (json!({ "rope_scaling": { "type": "linear", "factor": 4.0 } }), RopeScaling::Linear { factor: 4.0 }),
        (json!({ "rope_parameters": { "rope_type": "default", "rope_theta": 5.0 } }), RopeScaling::None),
        (
            json!({ "rope_parameters": { "rope_type": "linear", "factor": 2, "rope_theta": 5.0 } }),
            RopeScaling::Linear { factor: 2.0 },
        ),
        (yarn(json!({})), paper),
        (yarn(json!({ "attention_factor": 1.3 })), magnitude(1.3, 4.0)),
        (yarn(json!({ "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.9 })), magnitude(MSCALE_RATIO, 40.0)),
    ];
    for (more, expected) in cases {
        let (metadata, tensors, spec) = gguf(&config("LlamaForCausalLM", more.clone()));
        assert_eq!(spec.rope().unwrap().scaling, expected, "{more}");
        if more.get("rope_parameters").is_some() {
            assert_eq!(spec.rope().unwrap().base, 5.0, "{more}");
        }
        let back = Model::from_gguf(&metadata, &tensors, Path::new("m.gguf")).unwrap();
        let near = |a: f32, b: f32| (a - b).abs() <= 2e-7 * b.abs();
        match (back.spec().rope().unwrap().scaling, expected) {
            (
                RopeScaling::Yarn { magnitude: found, factor, .. },
                RopeScaling::Yarn { magnitude, factor: expected_factor, .. },
            ) => assert!(near(found, magnitude) && factor == expected_factor, "{found} for {more}"),
            (found, expected) => assert_eq!(found, expected),
        }
    }
}

/// Keys next to the objects of the kinds have no meaning, as in transformers 5.
#[test]
fn rotations_of_each_kind_of_layer_are_read_in_the_words_of_transformers_4_and_5() {
    let spec = |more: Value| gguf(&config("Gemma3ForCausalLM", more)).2;
    let before = spec(json!({ "rope_theta": 5.0, "rope_local_base_freq": 7.0,
        "rope_scaling": { "rope_type": "linear", "factor": 8.0 } }));
    let now = json!({ "full_attention": { "rope_type": "linear", "factor": 8.0, "rope_theta": 5.0 },
        "sliding_attention": { "rope_type": "default", "rope_theta": 7.0 }, "rope_type": "linear", "factor": 3.0 });
    assert_eq!(spec(json!({ "rope_parameters": now })), before);
    // A class with one rotation accepts kinds that are equal.
    let spec = |more: Value| gguf(&config("MistralForCausalLM", more)).2;
    let object = json!({ "rope_theta": 5.0 });
    let both = json!({ "full_attention": object, "sliding_attention": object });
    assert_eq!(spec(json!({ "rope_parameters": both })), spec(json!({ "rope_theta": 5.0 })));
}

/// The defaults of `Gemma3TextConfig` in transformers 5.24.0, which published multimodal checkpoints leave out.
#[test]
fn numbers_that_gemma_3_leaves_out_are_those_of_its_class() {
    let brief = json!({ "architectures": ["Gemma3ForConditionalGeneration"], "hidden_size": 2560, "intermediate_size": 10240,
        "num_hidden_layers": 34, "rope_scaling": { "rope_type": "linear", "factor": 8.0 }, "sliding_window": 1024 });
    let defaults = json!({ "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262_208,
        "max_position_embeddings": 131_072, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
        "query_pre_attn_scalar": 256, "sliding_window_pattern": 6, "tie_word_embeddings": true,
        "hidden_activation": "gelu_pytorch_tanh" });
    let read = |config: &Map<String, Value>| description::read(config, 500).unwrap();
    assert_eq!(read(&description::with(brief.clone(), json!({}))), read(&description::with(brief, defaults)));
}

/// `get_mscale(40, 0.707) / get_mscale(40, 0.9)` by the same function.
const MSCALE_RATIO: f32 = 0.946_55;

/// Of base 500000, factor 32, 32 elements.
const FACTORS_32: &[f32] =
    &[1.0, 2.311_814, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0, 32.0];

/// Of base 10000, factor 8, 16 elements.
const FACTORS_16: &[f32] = &[1.0, 3.299_539_3, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0];

#[test]
fn frequency_factors_are_those_of_transformers() {
    // default / llama3 inverse frequencies of transformers 4.57.6's ROPE_INIT_FUNCTIONS for these values.
    let cases: [(usize, f32, f64, &[f32]); 2] = [(32, 500_000.0, 32.0, FACTORS_32), (16, 10_000.0, 8.0, FACTORS_16)];
    for (head_dim, base, factor, expected) in cases {
        let scaling = json!({ "rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32 });
        let config =
            config("LlamaForCausalLM", json!({ "head_dim": head_dim, "rope_theta": base, "rope_scaling": scaling }));
        let (_, _, spec) = gguf(&config);
        let factors = spec.rope().unwrap().computed_factors().unwrap();
        assert_eq!(factors.len(), expected.len());
        for (found, expected) in factors.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-6 * expected, "{factors:?}");
        }
    }
}
