//! Encoders: the graph that their descriptions give, and descriptions, keys and tensors that do not fit.

use crate::description;
use serde_json::{Map, Value, json};
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::TensorInfo;
use trueup_formats::gguf::Metadata;
use trueup_graph::{Graph, Input, Origin};
use trueup_models::{
    Architecture, Batch, Model, ModelResult, ModelSpec, Pooling, SourceNames, Stage, expected_tensors,
};

const BATCH: Batch = Batch {
    tokens: 5,
    outputs: 1,
    capacity: 64,
    context: 128,
    ring: 128,
    sequences: 1,
    streams: 1,
    is_long: false,
    stage: Stage::Decoder { source: 0 },
    activation: DType::F32,
    kv: DType::F16,
};

fn config(more: Value) -> Map<String, Value> {
    let base = json!({
        "architectures": ["BertModel"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 128, "vocab_size": 400, "type_vocab_size": 2,
    });
    description::with(base, more)
}

/// The description of a pooling module with these switches.
fn pooling(switches: Value) -> Value {
    let pooling = json!({ "type": "a.Pooling", "path": "1_Pooling", "config": switches });
    json!({ "modules.json": [{ "type": "a.Transformer" }, pooling] })
}

fn read(config: &Map<String, Value>) -> Result<ModelSpec, String> {
    description::read(config, 37)
}

fn gguf(config: &Map<String, Value>) -> (Metadata, Vec<TensorInfo>) {
    description::written(&read(config).unwrap())
}

fn open(metadata: &Metadata, tensors: &[TensorInfo]) -> Result<Model, String> {
    Model::from_gguf(metadata, tensors, Path::new("model.gguf")).map_err(|error| error.to_string())
}

fn graph(config: &Map<String, Value>) -> Graph {
    let (metadata, tensors) = gguf(config);
    open(&metadata, &tensors).unwrap().graph(&BATCH).unwrap()
}

#[test]
fn poolings_come_back_from_gguf_keys() {
    for (switch, number, expected) in [
        (None, 0, ModelResult::Hidden),
        (Some("pooling_mode_mean_tokens"), 1, ModelResult::Pooled(Pooling::Mean)),
        (Some("pooling_mode_cls_token"), 2, ModelResult::Pooled(Pooling::First)),
        (Some("pooling_mode_lasttoken"), 3, ModelResult::Pooled(Pooling::Last)),
    ] {
        let more =
            switch.map_or(json!({}), |switch| pooling(json!({ switch: true, "pooling_mode_max_tokens": false })));
        let config = config(more);
        let (metadata, tensors) = gguf(&config);
        assert_eq!(metadata.u64("bert.pooling_type").unwrap(), number);
        assert_eq!(metadata.bools("bert.attention.causal").ok(), None);
        assert!(!metadata.bool("bert.attention.causal").unwrap());
        assert_eq!(metadata.u64("tokenizer.ggml.token_type_count").unwrap(), 2);
        let model = open(&metadata, &tensors).unwrap();
        assert_eq!((model.spec(), model.spec().result()), (&read(&config).unwrap(), expected));
        assert!(model.spec().is_bidirectional() && !model.spec().has_logits());
        assert_eq!(model.spec().result_size(), 64);
        let graph = model.graph(&BATCH).unwrap();
        let last = graph.value(graph.nodes().last().unwrap().output);
        assert_eq!(last.ty.to_string(), "f32[64]", "{}", last.name);
        let used = graph.values().iter().filter(|value| value.origin == Origin::Weight).count();
        assert_eq!(used, tensors.len(), "a tensor is not used");
    }
}

#[test]
fn a_text_is_computed_without_a_cache() {
    let graph = graph(&config(pooling(json!({ "pooling_mode_mean_tokens": true }))));
    assert!(graph.values().iter().all(|value| !value.origin.is_state()));
    let ty = |name: &str| graph.value(graph.find(name).unwrap_or_else(|| panic!("no {name}"))).ty.to_string();
    for (name, expected) in [
        ("kq-0", "f32[5, 5, 4]"),
        ("inp_mask_text", "f32[5, 5]"),
        ("inp_mean", "f32[5]"),
        ("ffn_inp-1", "f32[64, 5]"),
        ("l_out-1", "f32[64, 5]"),
    ] {
        assert_eq!(ty(name), expected, "{name}");
    }
    let inputs: Vec<&str> = graph
        .values()
        .iter()
        .filter(|value| matches!(value.origin, Origin::Input(_)))
        .map(|value| value.name.as_str())
        .collect();
    let expected =
        [Input::Tokens, Input::Positions, Input::TokenTypes, Input::WholeBatch, Input::MaskText, Input::PoolShares];
    assert_eq!(inputs[..6], expected.map(Input::name));
}

#[test]
fn tensors_may_have_the_names_of_other_programs() {
    let spec = read(&config(json!({}))).unwrap();
    let word = "embeddings.word_embeddings.weight";
    for (start, bias) in [("", "bias"), ("bert.", "bias"), ("bert.", "beta"), ("", "beta"), ("module.bert.", "beta")] {
        let stored = [format!("{start}{word}"), format!("{start}embeddings.LayerNorm.{bias}")];
        let names = SourceNames::new(spec.architecture(), stored.iter().map(String::as_str));
        let tensors = expected_tensors(&spec, &names);
        let norm = tensors.into_iter().find(|tensor| tensor.name == "token_embd_norm.bias").unwrap();
        assert_eq!(norm.sources[0].name, stored[1]);
        let note = names.note().unwrap_or_default();
        let expected = if start.starts_with("module.") { "the additional prefix `module.`" } else { "" };
        assert!(note.contains(expected) && note.is_empty() == expected.is_empty(), "{start}: {note}");
        let part = |name: &str| names.unused_part(name, spec.layer_count());
        assert_eq!(part(&format!("{start}pooler.dense.bias")), Some("pooler"));
        assert_eq!(part("cls.predictions.bias"), Some("pre-training head"));
        assert_eq!((part("other.pooler.dense.bias"), part("pooler.other.bias")), (None, None));
    }
}

/// The description of a Transformer module with these settings.
fn settings(settings: Value) -> Value {
    json!({ "modules.json": [{ "type": "a.Transformer", "config": settings }] })
}

/// GGUF has no key for what sentence-transformers does to texts, so conversion reports it.
#[test]
fn settings_of_sentences_are_reported() {
    let notes = |given: Value| {
        let (config, path) = (config(settings(given)), Path::new("model"));
        let architecture = Architecture::of_config(&config, path).unwrap();
        ModelSpec::with_notes(architecture, &config, 37, path).unwrap().1
    };
    assert_eq!(notes(json!({ "max_seq_length": null, "do_lower_case": false })), [""; 0]);
    for (given, expected) in [
        (json!({ "max_seq_length": 100 }), "truncates texts to 100 tokens (max_seq_length)"),
        (json!({ "do_lower_case": true }), "converts texts to lower case (do_lower_case)"),
        (json!({ "tokenizer_args": {} }), "sentence_bert_config.json: \"tokenizer_args\" is ignored"),
    ] {
        let notes = notes(given);
        assert!(notes.len() == 1 && notes[0].contains(expected), "{notes:?}");
    }
}

#[test]
fn descriptions_that_lie_are_refused() {
    let module = |kind: &str| json!({ "modules.json": [{ "type": "a.Transformer" }, { "type": kind }] });
    let two = json!({ "modules.json": [
        { "type": "a.Transformer" },
        { "type": "a.Pooling", "config": { "pooling_mode_mean_tokens": true } },
        { "type": "a.Pooling", "config": { "pooling_mode_cls_token": true } },
    ] });
    let absent = json!({ "modules.json": [{ "type": "a.Transformer" }, { "type": "a.Pooling", "path": "1_Pooling" }] });
    for (more, expected) in [
        (json!({ "hidden_act": "relu" }), "hidden_act: expected \"gelu\""),
        (json!({ "hidden_act": "gelu_new" }), "hidden_act: expected \"gelu\""),
        (json!({ "position_embedding_type": "relative_key" }), "position_embedding_type: expected \"absolute\""),
        (json!({ "is_decoder": true }), "is_decoder: expected false"),
        (json!({ "add_cross_attention": true }), "add_cross_attention: expected false"),
        (json!({ "pruned_heads": { "0": [1] } }), "pruned_heads: expected {}"),
        (json!({ "quantization_config": { "bits": 4 } }), "quantization_config"),
        (json!({ "num_attention_heads": 3 }), "num_attention_heads: expected a divisor of hidden_size (64)"),
        (json!({ "num_attention_heads": 0 }), "num_attention_heads: expected 1 to 65536, found 0"),
        (json!({ "num_hidden_layers": 999 }), "(the number of tensors), found 999"),
        (json!({ "type_vocab_size": 0 }), "type_vocab_size: expected 1 to 65536, found 0"),
        (json!({ "type_vocab_size": u64::MAX }), "type_vocab_size: expected 1 to 65536"),
        (json!({ "max_position_embeddings": -1 }), "max_position_embeddings: expected a positive integer, found -1"),
        (json!({ "layer_norm_eps": 0.0 }), "layer_norm_eps: expected a positive number, found 0"),
        (json!({ "intermediate_size": null }), "intermediate_size: expected a positive integer, found null"),
        (json!({ "modules.json": {} }), "model: modules.json: expected a list of modules"),
        (settings(json!({ "max_seq_length": 0 })), "sentence_bert_config.json: max_seq_length: expected a positive"),
        (settings(json!({ "max_seq_length": -4 })), "max_seq_length: expected a positive integer, found -4"),
        (
            settings(json!({ "max_seq_length": "\u{1b}" })),
            "max_seq_length: expected a positive integer, found \"\\u001b\"",
        ),
        (settings(json!({ "do_lower_case": 1 })), "do_lower_case: expected true or false, found 1"),
        (module("sentence_transformers.models.Dense"), "found sentence_transformers.models.Dense"),
        (module("a\u{1b}[2J"), "\\u{1b}"),
        (json!({ "modules.json": [{ "type": "a.Pooling" }] }), "found a.Pooling"),
        (module("a.Transformer"), "found a.Transformer"),
        (module("a.Normalize"), "found a.Normalize; other modules are not supported"),
        (json!({ "modules.json": [7] }), "modules.json: expected a Transformer, one Pooling"),
        (two, "found a.Pooling"),
        (module("a.Pooling"), "model: modules.json: expected a path of the Pooling module, found none"),
        (absent, "model: 1_Pooling/config.json: the file is missing; get all files of the model"),
        (pooling(json!({})), "to be true, found none; other pooling modes are not supported"),
        (
            pooling(json!({ "pooling_mode_max_tokens": true })),
            "model: 1_Pooling/config.json: expected exactly one of pooling_mode_mean_tokens, pooling_mode_cls_token and \
             pooling_mode_lasttoken to be true, found pooling_mode_max_tokens; other pooling modes are not supported",
        ),
        (pooling(json!({ "pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true })), "found"),
        (pooling(json!({ "pooling_mode_mean_tokens": "yes" })), "found pooling_mode_mean_tokens"),
    ] {
        let error = read(&config(more.clone())).map(|_| ()).expect_err(&more.to_string());
        assert!(error.contains(expected), "{more}: {error}");
    }
}

#[test]
fn keys_and_tensors_that_lie_are_refused() {
    let (metadata, tensors) = gguf(&config(json!({})));
    type Lie = fn(&mut Metadata, &mut Vec<TensorInfo>);
    let lies: [(&str, Lie); 10] = [
        ("bert.attention.causal", |keys, _| drop(keys.remove("bert.attention.causal"))),
        ("bert.attention.causal", |keys, _| drop(keys.insert("bert.attention.causal", true))),
        ("bert.attention.causal", |keys, _| drop(keys.insert("bert.attention.causal", 0u32))),
        ("bert.pooling_type", |keys, _| drop(keys.insert("bert.pooling_type", 4u32))),
        ("bert.pooling_type", |keys, _| drop(keys.insert("bert.pooling_type", "mean"))),
        ("tensor position_embd.weight: expected", |keys, _| drop(keys.insert("bert.context_length", 99u32))),
        ("tensor token_embd_norm.bias is missing", |_, tensors| {
            tensors.retain(|tensor| tensor.name != "token_embd_norm.bias");
        }),
        ("tensor token_types.weight", |_, tensors| {
            for tensor in tensors.iter_mut().filter(|tensor| tensor.name == "token_types.weight") {
                *tensor = TensorInfo::new(tensor.name.clone(), &[32, 2], DType::F32).unwrap();
            }
        }),
        ("tensor output.weight is not known", |_, tensors| {
            tensors.push(TensorInfo::new("output.weight", &[64, 400], DType::F32).unwrap());
        }),
        ("tensor blk.1.layer_output_norm.weight is missing", |_, tensors| {
            tensors.retain(|tensor| tensor.name != "blk.1.layer_output_norm.weight");
        }),
    ];
    for (expected, lie) in lies {
        let (mut metadata, mut tensors) = (metadata.clone(), tensors.clone());
        lie(&mut metadata, &mut tensors);
        let error = open(&metadata, &tensors).map(|_| ()).expect_err(expected);
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
