//! Encoder-decoder models: their graphs, their keys, and what is refused.

use crate::description;
use serde_json::{Map, Value, json};
use std::path::Path;
use trueup_blocks::DType;
use trueup_formats::TensorInfo;
use trueup_formats::gguf::Metadata;
use trueup_graph::{Graph, Op};
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
    stage: Stage::Decoder { source: 64 },
    activation: DType::F32,
    kv: DType::F16,
};

fn config(more: Value) -> Map<String, Value> {
    let base = json!({
        "architectures": ["T5ForConditionalGeneration"], "d_model": 64, "d_ff": 96, "d_kv": 16, "num_layers": 2, "num_heads": 4,
        "vocab_size": 400, "feed_forward_proj": "relu", "decoder_start_token_id": 0, "relative_attention_num_buckets": 32,
    });
    description::with(base, more)
}

fn read(more: Value) -> Result<ModelSpec, String> {
    description::read(&config(more), 60)
}

/// A file of this description.
fn gguf(more: Value) -> (Metadata, Vec<TensorInfo>) {
    description::written(&read(more).unwrap())
}

fn model(more: Value) -> Model {
    let (metadata, tensors) = gguf(more);
    Model::from_gguf(&metadata, &tensors, Path::new("m.gguf")).unwrap()
}

fn states(graph: &Graph) -> Vec<&str> {
    let states = graph.values().iter().filter(|value| value.origin.is_state());
    states.map(|value| value.name.as_str()).collect()
}

/// The encoder leaves states that the decoder reads; the table of distances is read once in each.
#[test]
fn the_encoder_writes_what_the_decoder_reads() {
    let model = model(json!({ "num_decoder_layers": 3 }));
    let encoder = model.graph(&Batch { stage: Stage::Encoder, ..BATCH }).unwrap();
    let decoder = model.graph(&BATCH).unwrap();
    let cross: Vec<String> =
        (0..3).flat_map(|layer| ["k", "v"].map(|which| format!("cross_{which}-{layer}"))).collect();
    assert_eq!(states(&encoder), cross);
    assert!(cross.iter().all(|state| states(&decoder).contains(&state.as_str())));
    assert!(encoder.nodes().iter().all(|node| node.name.starts_with("enc_") || node.name.starts_with("cross_")));
    for (graph, table) in [(&encoder, "enc.blk.0.attn_rel_b.weight"), (&decoder, "dec.blk.0.attn_rel_b.weight")] {
        let table = graph.find(table).unwrap();
        assert_eq!(graph.nodes().iter().filter(|node| node.inputs.contains(&table)).count(), 1);
    }
    let sums = |graph: &Graph, end: &str| graph.nodes().iter().filter(|node| node.name.contains(end)).count();
    assert_eq!((sums(&encoder, "kq_b-"), sums(&decoder, "kq_b-")), (2, 3));
    let is_store = |node: &&trueup_graph::Node| matches!(node.op, Op::KvStore(_));
    assert_eq!(encoder.nodes().iter().filter(is_store).count(), 6);
    assert_eq!(decoder.nodes().iter().filter(is_store).count(), 6, "the decoder's own keys and values");
}

#[test]
fn keys_say_the_same_model() {
    for more in [
        json!({}),
        json!({ "num_decoder_layers": 3, "relative_attention_max_distance": 20, "decoder_start_token_id": 7 }),
        json!({ "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false, "d_kv": 24 }),
    ] {
        let spec = read(more.clone()).unwrap();
        let model = model(more);
        assert_eq!(model.spec().tensors(), spec.tensors());
        assert_eq!(model.spec().buckets(), spec.buckets());
        assert_eq!(model.spec().decoder_start(), spec.decoder_start());
        assert!(!model.spec().is_tied() && model.spec().has_encoder() && !model.spec().is_bidirectional());
    }
}

/// llama.cpp writes a table for each layer of UMT5. A file that has lost one of them is refused.
#[test]
fn layers_with_a_table_of_buckets_use_it() {
    let tables = |spec: &ModelSpec| spec.tensors().into_iter().filter(|t| t.name.contains("attn_rel_b")).count();
    let umt5 = json!({ "architectures": ["UMT5ForConditionalGeneration"], "feed_forward_proj": "gated-gelu" });
    for (more, count) in [(json!({}), 2), (umt5.clone(), 4)] {
        assert_eq!(tables(&read(more.clone()).unwrap()), count);
        assert_eq!(tables(model(more).spec()), count);
    }
    let (metadata, mut tensors) = gguf(umt5);
    assert_eq!(metadata.string("general.architecture"), Ok("t5"));
    let model = Model::from_gguf(&metadata, &tensors, Path::new("m.gguf")).unwrap();
    let uses = |graph: &Graph| {
        let is_table = |value: &&trueup_graph::Value| value.name.contains("attn_rel_b");
        graph.values().iter().filter(is_table).map(|value| value.name.clone()).collect::<Vec<_>>()
    };
    let encoder = model.graph(&Batch { stage: Stage::Encoder, ..BATCH }).unwrap();
    assert_eq!(uses(&encoder), ["enc.blk.0.attn_rel_b.weight", "enc.blk.1.attn_rel_b.weight"]);
    let decoder = model.graph(&BATCH).unwrap();
    assert_eq!(uses(&decoder), ["dec.blk.0.attn_rel_b.weight", "dec.blk.1.attn_rel_b.weight"]);
    let biases = |graph: &Graph| graph.nodes().iter().filter(|node| node.name.contains("pos_bias-")).count();
    assert_eq!((biases(&encoder), biases(&decoder)), (2, 2));
    tensors.retain(|tensor| tensor.name != "enc.blk.1.attn_rel_b.weight");
    let error = Model::from_gguf(&metadata, &tensors, Path::new("m.gguf")).map(drop).unwrap_err().to_string();
    assert!(error.contains("tensor enc.blk.1.attn_rel_b.weight is missing"), "{error}");
}

#[test]
fn relatives_of_t5_have_their_own_defaults() {
    let class = |name: &str| {
        let mut config = config(json!({ "architectures": [name] }));
        config.remove("feed_forward_proj");
        let spec = description::read(&config, 60).unwrap();
        let is_gated = spec.tensors().iter().any(|tensor| tensor.name == "enc.blk.0.ffn_gate.weight");
        (is_gated, spec.has_head_of_embedding())
    };
    assert_eq!(class("T5ForConditionalGeneration"), (false, true));
    assert_eq!(class("MT5ForConditionalGeneration"), (true, false));
    assert_eq!(class("UMT5ForConditionalGeneration"), (true, true));
}

/// llama.cpp refuses fixtures/encoder-decoders/flan-t5: `vector::_M_range_check`.
#[test]
fn a_note_says_what_llama_cpp_does_not_load_or_computes_otherwise() {
    let notes = |more: Value| read(more).unwrap().compatibility_notes();
    for (encoder, decoder) in [(2, 2), (2, 1)] {
        let more = json!({ "num_layers": encoder, "num_decoder_layers": decoder });
        assert_eq!(notes(more), Vec::<String>::new(), "{encoder} {decoder}");
    }
    let deep = "the decoder has 3 layers and the encoder has 2; llama.cpp does not load the file";
    assert_eq!(notes(json!({ "num_decoder_layers": 3 })), [deep]);
    let distance = "relative distances are bucketed up to 64 (t5.attention.relative_distance_max); llama.cpp always \
                    uses 128, and its results differ";
    assert_eq!(notes(json!({ "relative_attention_max_distance": 64 })), [distance]);
    let both = json!({ "num_decoder_layers": 3, "relative_attention_max_distance": 64 });
    assert_eq!(notes(both), [distance, deep]);
}

/// The first checkpoints have a table that their class does not use; llama.cpp keeps it in files.
#[test]
fn buckets_of_cross_attention_are_accepted_and_named() {
    let (metadata, tensors) = gguf(json!({}));
    let with = |name: &str| {
        let extra = TensorInfo { name: name.to_owned(), shape: vec![4, 32], dtype: DType::F32, bytes: 512 };
        let tensors: Vec<TensorInfo> = tensors.iter().cloned().chain([extra]).collect();
        Model::from_gguf(&metadata, &tensors, Path::new("m.gguf")).map_err(|error| error.to_string())
    };
    let notes = with("dec.blk.0.cross_attn_rel_b.weight").unwrap().notes().to_vec();
    assert_eq!(notes, ["tensor dec.blk.0.cross_attn_rel_b.weight is not used (buckets of cross attention)"]);
    for other in ["dec.blk.x.cross_attn_rel_b.weight", "enc.blk.0.cross_attn_rel_b.weight"] {
        assert!(with(other).is_err_and(|error| error.contains("is not known to t5")));
    }
}

#[test]
fn no_table_limits_the_context() {
    let spec = read(json!({ "n_positions": 512 })).unwrap();
    assert_eq!((spec.context_length(), spec.context_max()), (512, (1 << 31) - 1));
    assert_eq!(read(json!({})).unwrap().context_length(), 512);
}

#[test]
fn a_pruned_model_starts_with_the_same_token() {
    let spec = read(json!({ "decoder_start_token_id": 7 })).unwrap();
    assert_eq!(spec.clone().pruned(&[3, 7, 9]).and_then(|spec| spec.decoder_start()), Some(1));
    assert!(spec.pruned(&[3, 9]).is_none());
}

#[test]
fn descriptions_that_lie_are_refused() {
    let cases = [
        (json!({ "feed_forward_proj": "gated-silu" }), "feed_forward_proj: expected \"relu\" or \"gated-gelu\""),
        (json!({ "feed_forward_proj": 3 }), "feed_forward_proj: expected"),
        (json!({ "is_gated_act": true }), "is_gated_act: expected false, found true"),
        (json!({ "dense_act_fn": "silu" }), "dense_act_fn: expected \"relu\", found \"silu\""),
        (json!({ "num_heads": 0 }), "num_heads: expected 1 to 65536, found 0"),
        (json!({ "num_layers": 61 }), "num_layers: expected at most 60 (the number of tensors), found 61"),
        (
            json!({ "num_decoder_layers": 65536 }),
            "num_decoder_layers: expected at most 60 (the number of tensors), found 65536",
        ),
        (json!({ "num_decoder_layers": -1 }), "num_decoder_layers: expected a positive integer, found -1"),
        (json!({ "d_kv": 0 }), "d_kv: expected 1 to 65536, found 0"),
        (json!({ "relative_attention_num_buckets": 0 }), "relative_attention_num_buckets: expected 1 to 65536"),
        (json!({ "relative_attention_num_buckets": 1 }), "relative attention buckets: expected at least 4, found 1"),
        (json!({ "relative_attention_num_buckets": 2 }), "relative attention buckets: expected at least 4, found 2"),
        // The limit of the encoder, 8, is not reported in addition.
        (
            json!({ "relative_attention_max_distance": 8 }),
            "config.json: relative_attention_max_distance: maximum relative attention distance: expected more than 16, \
             found 8; correct",
        ),
        (
            json!({ "relative_attention_max_distance": 1 }),
            "maximum relative attention distance: expected more than 16, found 1;",
        ),
        (json!({ "decoder_start_token_id": 400 }), "decoder start token: expected an ID from 0 to 399, found 400"),
        (json!({ "decoder_start_token_id": "a" }), "decoder_start_token_id: expected a token ID"),
        (json!({ "layer_norm_epsilon": 0 }), "layer_norm_epsilon: expected a positive number, found 0"),
        (json!({ "tie_word_embeddings": "no" }), "tie_word_embeddings: expected true or false"),
        (json!({ "quantization_config": {} }), "quantization_config"),
    ];
    for (more, expected) in cases {
        let found = read(more.clone());
        assert!(found.as_ref().is_err_and(|message| message.contains(expected)), "{more}: {expected:?}, {found:?}");
    }
}

#[test]
fn files_that_lie_are_refused() {
    type Change = fn(&mut Metadata, &mut Vec<TensorInfo>);
    let cases: &[(Change, &str)] = &[
        (|m, _| drop(m.insert("t5.decoder_block_count", 1u32)), "expected 1 layer (t5.decoder_block_count), found"),
        (|m, _| drop(m.insert("t5.decoder_block_count", 3u32)), "tensor dec.blk.2.attn_q.weight is missing"),
        (|m, _| drop(m.insert("t5.decoder_block_count", 60_000u32)), "the number of tensors"),
        (|m, _| drop(m.insert("t5.block_count", 3u32)), "tensor enc.blk.2.attn_q.weight is missing"),
        (|m, _| drop(m.remove("t5.attention.relative_buckets_count")), "t5.attention.relative_buckets_count: expected"),
        (
            |m, _| drop(m.insert("t5.attention.relative_buckets_count", 16u32)),
            "attn_rel_b.weight: expected shape [4, 16]",
        ),
        (|m, _| drop(m.insert("t5.attention.relative_distance_max", 16u32)), "expected more than 16, found 16"),
        (|m, _| drop(m.insert("t5.decoder_start_token_id", 400u32)), "an ID from 0 to 399, found 400"),
        (|m, _| drop(m.insert("t5.decoder_start_token_id", u64::MAX)), "an ID from 0 to 399, found 4294967295"),
        (|_, t| t.retain(|tensor| tensor.name != "enc.output_norm.weight"), "tensor enc.output_norm.weight is missing"),
        (
            |_, t| t.retain(|tensor| tensor.name != "dec.blk.1.cross_attn_k.weight"),
            "dec.blk.1.cross_attn_k.weight is missing",
        ),
        (|_, t| t.iter_mut().for_each(|t| t.shape.reverse()), "enc.blk.0.attn_rel_b.weight: expected shape [4, 32]"),
    ];
    for (change, expected) in cases {
        let (mut metadata, mut tensors) = gguf(json!({}));
        change(&mut metadata, &mut tensors);
        let found = Model::from_gguf(&metadata, &tensors, Path::new("m.gguf")).map(drop).map_err(|e| e.to_string());
        assert!(found.as_ref().is_err_and(|message| message.contains(expected)), "{expected:?}: {found:?}");
    }
}
