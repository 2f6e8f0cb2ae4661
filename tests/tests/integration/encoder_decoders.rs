//! Encoder-decoder models, as transformers wrote and computed them: conversion, logits of the decoder, greedy text, and
//! verification of every node of both.

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use std::path::Path;
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::convert::Agreement;
use trueup::convert::doctor::diagnose;
use trueup::formats::{Checkpoint, Gguf};
use trueup::quantize::{Layout, NoProgress};
use trueup::runtime::device::{About, Decorator, Device};
use trueup::runtime::{
    DeviceOptions, Entry, GenerateOptions, ModelFile, Sampling, Session, SessionOptions, Weights, generate, open_device,
};
use trueup::verify::{NodeReport, Outcome, Phase, Reference, VerifyOptions, planted_in, verify};
use trueup_tests::{convert, encoder_decoders, nmse, quantize};

/// What logits of a device may differ from those that transformers computed in f64 and stored as f32.
fn nmse_max(device: &str) -> f64 {
    if device == "ref" { 1e-9 } else { 1e-7 }
}

fn session(model: &Path, device: &str, sequences: usize) -> Session {
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let device = open_device(device, &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    // A cache in f16 would round keys and values.
    let kv = (device.name() == "cpu").then_some(DType::F32);
    let options = SessionOptions { sequences, kv, ..SessionOptions::default() };
    Session::new(Arc::new(Weights::new(model, device, None)), &options).unwrap_or_else(|error| panic!("{error}"))
}

fn entries(ids: &[u32], sequence: usize) -> Vec<Entry> {
    ids.iter().map(|token| Entry { token: *token, sequence, wants_logits: true }).collect()
}

/// The logits after each token of the decoder.
fn logits(session: &mut Session, source: &[u32], ids: &[u32]) -> Vec<f64> {
    session.encode(0, source, None).unwrap_or_else(|error| panic!("{error}"));
    let rows = session.compute(&entries(ids, 0), None).unwrap_or_else(|error| panic!("{error}"));
    (0..rows.rows()).flat_map(|row| rows.row(row).to_vec()).collect()
}

#[test]
fn logits_and_greedy_text_are_those_of_transformers() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut faults = Vec::new();
    for fixture in encoder_decoders() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        let checks = convert(&fixture.folder, &model, Some(DType::F32), None);
        assert!(checks.iter().all(|check| check.agreement == Agreement::Exact), "{checks:?}");
        for device in ["ref", "cpu"] {
            let mut session = session(&model, device, 1);
            for (number, prompt) in fixture.prompts().iter().enumerate() {
                let golden: Vec<f64> = fixture.logits(&format!("logits_{number}")).iter().copied().collect();
                let error = nmse(&logits(&mut session, &prompt.ids, &prompt.decoder_ids), &golden);
                if error.is_nan() || error >= nmse_max(device) {
                    faults.push(format!("{} on {device}, prompt {number}: NMSE {error:e}", fixture.name));
                }
                let options =
                    GenerateOptions { tokens_max: Some(16), sampling: Sampling::GREEDY, ..GenerateOptions::default() };
                let said = generate(&mut session, std::slice::from_ref(&prompt.ids), &options, &mut |_, _| {
                    std::ops::ControlFlow::Continue(())
                });
                let ids = said.unwrap_or_else(|error| panic!("{error}")).remove(0).ids;
                if ids != prompt.greedy_ids {
                    faults.push(format!("{} on {device}: {ids:?} not {:?}", fixture.name, prompt.greedy_ids));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Two texts of different lengths in one batch: each decoder sees the text of its sequence, and has the bits that it
/// has alone.
#[test]
fn decoders_of_a_batch_see_their_own_texts() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for fixture in encoder_decoders() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &model, None, None);
        let prompts = fixture.prompts();
        let mut alone = session(&model, "cpu", 1);
        let alone: Vec<Vec<f64>> =
            prompts.iter().map(|prompt| logits(&mut alone, &prompt.ids, &prompt.decoder_ids[..5])).collect();
        let mut session = session(&model, "cpu", 2);
        let refused = session.compute(&entries(&[0], 0), None).expect_err("there is no text yet").to_string();
        assert!(refused.contains("call `encode` before the decoder"), "{refused}");
        for (sequence, prompt) in prompts.iter().take(2).enumerate() {
            session.encode(sequence, &prompt.ids, None).unwrap_or_else(|error| panic!("{error}"));
        }
        let turns = (0..5).flat_map(|place| [1, 0].map(|sequence| (place, sequence)));
        let entry = |(place, sequence): (usize, usize)| Entry {
            token: prompts[sequence].decoder_ids[place],
            sequence,
            wants_logits: true,
        };
        let entries: Vec<Entry> = turns.map(entry).collect();
        let rows = session.compute(&entries, None).unwrap_or_else(|error| panic!("{error}"));
        let vocabulary = rows.width();
        for (row, entry) in entries.iter().enumerate() {
            let place = row / 2;
            let expected = &alone[entry.sequence][vocabulary * place..vocabulary * (place + 1)];
            assert_eq!(rows.row(row), expected, "{}, sequence {}, token {place}", fixture.name, entry.sequence);
        }
        assert!(session.encode(0, &[], None).is_err() && session.encode(2, &[5], None).is_err());
        assert!(session.encode(0, &[5; 513], None).is_err() && session.encode(0, &[336], None).is_err());
    }
}

/// A text is encoded once, and copied to another sequence before and after its decoder has begun.
#[test]
fn copies_of_a_sequence_see_its_text() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = encoder_decoders().remove(0);
    let model = scratch.path().join("model.gguf");
    convert(&fixture.folder, &model, None, None);
    let prompt = fixture.prompts().remove(0);
    let (begin, rest) = prompt.decoder_ids[..5].split_at(2);
    let mut session = session(&model, "cpu", 3);
    session.encode(0, &prompt.ids, None).unwrap_or_else(|error| panic!("{error}"));
    session.fork(0, 1, 0).unwrap_or_else(|error| panic!("{error}"));
    let compute = |session: &mut Session, ids: &[u32], sequence: usize| {
        session.compute(&entries(ids, sequence), None).unwrap_or_else(|error| panic!("{error}"))
    };
    let first = compute(&mut session, begin, 0);
    let snapshot = session.snapshot(0).unwrap_or_else(|error| panic!("{error}"));
    let expected = compute(&mut session, rest, 0);
    assert_eq!(compute(&mut session, begin, 1), first);
    session.restore(2, &snapshot).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!([1, 2].map(|sequence| compute(&mut session, rest, sequence)), [expected.clone(), expected]);
    assert_eq!(session.reuse(2, &prompt.decoder_ids).unwrap_or(0), 5, "what it holds itself");
}

/// A text longer than the first room of the cache, which grows, and then a short one.
#[test]
fn long_texts_make_the_states_grow() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = encoder_decoders().remove(0);
    let model = scratch.path().join("model.gguf");
    convert(&fixture.folder, &model, None, None);
    let prompt = fixture.prompts().remove(0);
    let mut session = session(&model, "ref", 2);
    session.encode(1, &prompt.ids, None).unwrap_or_else(|error| panic!("{error}"));
    let long: Vec<u32> = prompt.ids.iter().copied().cycle().take(400).collect();
    let first = logits(&mut session, &long, &prompt.decoder_ids);
    assert_eq!(first, logits(&mut session, &long, &prompt.decoder_ids));
    let rows = session.compute(&entries(&prompt.decoder_ids, 1), None).unwrap_or_else(|error| panic!("{error}"));
    let golden: Vec<f64> = fixture.logits("logits_0").iter().copied().collect();
    let found: Vec<f64> = (0..rows.rows()).flat_map(|row| rows.row(row).to_vec()).collect();
    assert!(nmse(&found, &golden) < 1e-9);
}

/// No number of the model limits its texts: a longer context than the usual one changes no bit.
#[test]
fn a_context_may_exceed_the_usual_one() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = encoder_decoders().remove(0);
    let model = scratch.path().join("model.gguf");
    convert(&fixture.folder, &model, None, None);
    let prompt = fixture.prompts().remove(0);
    let mut usual = session(&model, "cpu", 1);
    assert_eq!(usual.context(), 512);
    let long: Vec<u32> = prompt.ids.iter().copied().cycle().take(600).collect();
    let refused = usual.encode(0, &[], None).expect_err("empty").to_string();
    assert!(refused.contains("expected at least one token, found an empty text"), "{refused}");
    let refused = usual.encode(0, &long, None).expect_err("too long").to_string();
    assert!(
        refused.contains("600 tokens exceed the context of 512; increase the context or shorten the text"),
        "{refused}"
    );
    let options = SessionOptions { context: Some(1024), kv: Some(DType::F32), ..SessionOptions::default() };
    let mut wide = Session::new(usual.weights().clone(), &options).unwrap_or_else(|error| panic!("{error}"));
    let expected = logits(&mut usual, &prompt.ids, &prompt.decoder_ids);
    assert_eq!(logits(&mut wide, &prompt.ids, &prompt.decoder_ids), expected);
    assert_ne!(logits(&mut wide, &long, &prompt.decoder_ids), expected);
    let refused = Session::new(usual.weights().clone(), &SessionOptions { context: Some(usize::MAX), ..options });
    let refused = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(refused.contains("expected a context of 1 to 2147483584 tokens"), "{refused}");
}

/// The time of a prompt is that of the encoder, which reads its tokens, and of the first token of the decoder.
#[test]
fn the_time_of_a_prompt_contains_the_encoder() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = encoder_decoders().remove(0);
    let model = scratch.path().join("model.gguf");
    convert(&fixture.folder, &model, None, None);
    let mut session = session(&model, "ref", 1);
    let prompt: Vec<u32> = fixture.prompts()[0].ids.iter().copied().cycle().take(500).collect();
    let options = GenerateOptions { tokens_max: Some(0), ..GenerateOptions::default() };
    let start = std::time::Instant::now();
    let said = generate(&mut session, &[prompt], &options, &mut |_, _| std::ops::ControlFlow::Continue(()));
    let all_ms = start.elapsed().as_secs_f64() * 1e3;
    let prompt_ms = said.unwrap_or_else(|error| panic!("{error}")).remove(0).prompt_ms;
    assert!(prompt_ms > all_ms / 2.0, "{prompt_ms} of {all_ms} ms");
}

/// The plan of the encoder is that of the batch that a session computes.
#[test]
fn the_encoder_has_a_plan() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = encoder_decoders().remove(0);
    let model = scratch.path().join("model.gguf");
    convert(&fixture.folder, &model, None, None);
    let session = session(&model, "cpu", 1);
    let plan = |tokens| Session::encoder_plan(session.weights(), &SessionOptions::default(), tokens);
    let [short, long] = [1, 500].map(|tokens| plan(tokens).expect("a plan").expect("an encoder").report());
    let has = |name: &str| long.nodes.iter().any(|node| node.name == name);
    assert!(has("enc_kq-1") && has("cross_cache_v-1") && !has("result_output"));
    assert!(long.devices[0].arena_bytes > 100 * short.devices[0].arena_bytes);
    assert!(plan(513).is_err_and(|error| error.to_string().contains("exceeds the context of 512; increase")));
}

/// What `trueup plan` predicts for both graphs is what a session copies: the embedding that both read counts once.
#[test]
fn weights_of_both_graphs_are_predicted() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for fixture in encoder_decoders() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &model, Some(DType::F32), None);
        let session = session(&model, "cpu", 1);
        let (weights, options) = (session.weights(), SessionOptions::default());
        let decoder = Session::plan(weights, &options, 1, 1, 64).expect("a plan");
        let encoder = Session::encoder_plan(weights, &options, 64).expect("a plan").expect("an encoder");
        let plans = [&encoder, &decoder];
        let (held, predicted) = (weights.held(), weights.copied_bytes(&plans, 0).expect("a sum"));
        assert_eq!(held.copied_bytes, predicted, "{}", fixture.name);
        assert_eq!(held.copied_bytes + held.mapped_bytes, Weights::stored_bytes(&plans, 0), "{}", fixture.name);
        let each = plans.map(|plan| Weights::stored_bytes(&[plan], 0));
        let table = weights.model().model().weight("token_embd.weight").expect("an embedding").bytes() as u64;
        assert_eq!(each[0] + each[1], Weights::stored_bytes(&plans, 0) + table, "{}: both read it", fixture.name);
    }
}

/// The processor with little free memory.
struct Small(Arc<dyn Device>, u64);

impl Decorator for Small {
    fn device(&self) -> &dyn Device {
        &*self.0
    }

    fn about(&self) -> About {
        About { memory: Some((1 << 40, self.1)), ..self.0.about() }
    }
}

/// Memory is kept free for the encoder's text, not for a text as long as the context, whose scores alone need 17 GB.
#[test]
fn memory_is_kept_free_for_the_text_of_the_encoder() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = encoder_decoders().remove(0);
    let path = scratch.path().join("model.gguf");
    convert(&fixture.folder, &path, Some(DType::F32), None);
    let model = Arc::new(ModelFile::open(&path).unwrap_or_else(|error| panic!("{error}")));
    let crowded_out = |source: Option<usize>| {
        let cpu = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let weights = Arc::new(Weights::new(model.clone(), Arc::new(Small(cpu, 4 << 30)), None));
        let options = SessionOptions { context: Some(32768), source, ..SessionOptions::default() };
        let mut session = Session::new(weights, &options).unwrap_or_else(|error| panic!("{error}"));
        let crowded_out = session.weights().held().crowded_out_bytes;
        session.encode(0, &vec![1; 700], None).unwrap_or_else(|error| panic!("{error}"));
        let error = session.encode(0, &vec![1; 32768], None).expect_err("gigabytes of scores").to_string();
        assert!(error.contains("bytes of memory, but only") && error.contains("shorter prompts"), "{error}");
        crowded_out
    };
    assert_eq!([crowded_out(None), crowded_out(Some(700))], [0, 0]);
    assert!(crowded_out(Some(32768)) > 0, "a long text is expected");
}

#[test]
fn encoder_and_decoder_are_verified_in_each_type() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for fixture in encoder_decoders() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &model, Some(DType::F32), None);
        for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0] {
            let path = scratch.path().join(format!("{}-{dtype}.gguf", fixture.name));
            quantize(&model, &path, dtype, Layout::Block);
            let file = Gguf::open(&path).expect("it was just written");
            let tables = file.tensors().iter().filter(|tensor| tensor.name.ends_with("attn_rel_b.weight"));
            let count = if fixture.name == "umt5" { 4 } else { 2 };
            assert!(tables.clone().count() == count && tables.clone().all(|table| table.dtype == DType::F32));
            let file = Arc::new(ModelFile::open(&path).unwrap_or_else(|error| panic!("{error}")));
            let prompts = fixture.prompts();
            let given = |with_decoder: bool| VerifyOptions {
                prompts: prompts.iter().map(|prompt| prompt.ids.clone()).collect(),
                decoder_prompts: match with_decoder {
                    true => prompts.iter().map(|prompt| prompt.decoder_ids.clone()).collect(),
                    false => Vec::new(),
                },
                steps: 3,
                ..VerifyOptions::default()
            };
            for with_decoder in [true, false] {
                let device = open_device("cpu", &DeviceOptions::default()).expect("the processor");
                let report = verify(file.clone(), device, Reference::Oracle, &given(with_decoder), &mut |_| {});
                let report = report.unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(report.result, Outcome::Pass, "{}", report.to_terminal());
                let decoded = |node: &&NodeReport| node.phases.iter().any(|found| found.phase == Phase::Decode);
                let (decoded, coverage) = (report.nodes.iter().filter(decoded).count(), &report.coverage);
                assert_eq!((coverage.checked_decode, coverage.nodes_decode), (decoded, decoded));
                assert!(decoded < coverage.nodes && coverage.checked_prompt == coverage.nodes);
                let has = |name: &str| report.nodes.iter().any(|node| node.node == name);
                assert!(has("enc_kq_b-0") && has("cross_cache_k-0") && has("cross_out-1") && has("result_output"));
                assert_eq!(report.prompts[0], prompts[0].ids);
                let expected = if with_decoder { prompts[0].decoder_ids.clone() } else { vec![0] };
                assert_eq!(report.decoder_prompts[0], expected);
            }
        }
    }
}

/// A single prompt is combined with its first half, which no separate run compared with the reference.
#[test]
fn the_batch_is_compared_with_the_reference_if_a_text_in_it_was_not() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = encoder_decoders().remove(0);
    let model = scratch.path().join("model.gguf");
    convert(&fixture.folder, &model, Some(DType::F32), None);
    let file = Arc::new(ModelFile::open(&model).unwrap_or_else(|error| panic!("{error}")));
    for (count, is_compared) in [(1, true), (2, false)] {
        let prompts: Vec<Vec<u32>> = fixture.prompts().into_iter().take(count).map(|prompt| prompt.ids).collect();
        let options = VerifyOptions { prompts, steps: 3, ..VerifyOptions::default() };
        let device = open_device("cpu", &DeviceOptions::default()).expect("the processor");
        let report = verify(file.clone(), device, Reference::Oracle, &options, &mut |_| {});
        let report = report.unwrap_or_else(|error| panic!("{error}"));
        let alone: usize = report.decoder_prompts.iter().map(|ids| ids.len() + report.steps).sum();
        let found = (report.batch.invariant, report.tokens.positions > alone, report.result);
        assert_eq!(found, (Some(true), is_compared, Outcome::Pass), "{}", report.to_terminal());
    }
}

#[test]
fn options_that_do_not_fit_are_refused_with_a_remedy() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = encoder_decoders().remove(0);
    let model = scratch.path().join("model.gguf");
    convert(&fixture.folder, &model, None, None);
    let file = Arc::new(ModelFile::open(&model).unwrap_or_else(|error| panic!("{error}")));
    let device = || open_device("cpu", &DeviceOptions::default()).expect("the processor");
    let refused = |prompts: usize, decoder_prompts: Vec<Vec<u32>>| {
        let options = VerifyOptions { prompts: vec![vec![5, 1]; prompts], decoder_prompts, ..VerifyOptions::default() };
        verify(file.clone(), device(), Reference::Oracle, &options, &mut |_| {}).expect_err("refused").to_string()
    };
    for (prompts, decoder_prompts, expected) in [
        (
            2,
            vec![vec![0], vec![]],
            "--decoder-ids: expected at least one token ID for each prompt, found none for prompt 1; pass the decoder \
             start token 0, or omit the option",
        ),
        (
            2,
            vec![vec![0]],
            "--decoder-ids: expected one list for each of 2 prompts, found 1; pass the option once per prompt, or omit it",
        ),
        (
            1,
            vec![vec![0], vec![0]],
            "--decoder-ids: expected one list for the prompt, found 2; pass the option once per prompt, or omit it",
        ),
        (0, vec![], "verify needs at least one prompt, and each prompt at least one token"),
    ] {
        assert_eq!(refused(prompts, decoder_prompts), expected);
    }
    let help = "use `trueup run` or `trueup verify`";
    let command = file.expect_no_encoder("bench", help).expect_err("refused").to_string();
    assert!(command.ends_with(&format!("bench does not support encoder-decoder models (t5); {help}")), "{command}");
}

/// A wrong bucket, a mask that shows what is after the encoder's text, and keys of the wrong sequence, among others:
/// each is found at its node, in either graph.
#[test]
fn faults_in_both_graphs_are_found() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = encoder_decoders().remove(0);
    let path = scratch.path().join("model.gguf");
    convert(&fixture.folder, &path, Some(DType::F32), None);
    let model = Arc::new(ModelFile::open(&path).unwrap_or_else(|error| panic!("{error}")));
    let device = || open_device("cpu", &DeviceOptions::default()).expect("the processor");
    let prompts = fixture.prompts();
    let options = VerifyOptions {
        prompts: prompts.iter().map(|prompt| prompt.ids.clone()).collect(),
        decoder_prompts: prompts.iter().map(|prompt| prompt.decoder_ids.clone()).collect(),
        steps: 2,
        fusion: false,
        ..VerifyOptions::default()
    };
    let mut faults = Vec::new();
    for (fault, node) in [
        ("token-off-by-one", "enc_pos_bias_rows-0"),
        ("token-off-by-one", "pos_bias_rows-0"),
        ("mask-none", "cross_kq_soft_max-1"),
        ("sequence-ignored", "cross_kq-0"),
        ("kv-sequence", "cross_cache_v-0"),
        ("kv-slot", "cross_cache_k-1"),
        ("gain", "enc_ffn_up-1"),
        ("gain", "cross_Qcur-0"),
        ("residual-dropped", "enc_l_out-0"),
        ("norm-weight-ignored", "enc_result_norm"),
    ] {
        let planted = planted_in(&format!("{fault}@{node}"), &model, device(), false);
        let planted = planted.unwrap_or_else(|error| panic!("{error}"));
        let report = verify(model.clone(), planted.device, Reference::Oracle, &options, &mut |_| {});
        let report = report.unwrap_or_else(|error| panic!("{fault}@{node}: {error}"));
        let found = report.first_bad.as_ref().map(|bad| bad.node.as_str());
        if (report.result, found) != (Outcome::Fail, Some(node)) {
            faults.push(format!("{fault}@{node}: {:?}, {found:?}", report.result));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let refused = planted_in("gain@enc_Qcur-0", &model, device(), false).err().map(|error| error.to_string());
    let refused = refused.unwrap_or_default();
    assert!(refused.contains("after the operators with which both encoder and decoder begin"), "{refused}");
    assert!(planted_in("gain", &model, device(), true).is_ok());
}

/// Copies of the embedding are not repeated layers, and a head with other values is reported, as in other families.
#[test]
fn the_doctor_knows_copies_of_the_embedding() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let fixture = encoder_decoders().remove(0);
    let folder = scratch.path();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(fixture.folder.join(name), folder.join(name)).expect("a copy");
    }
    let bytes = std::fs::read(fixture.folder.join("model.safetensors")).expect("a file");
    let rules = |head: fn(&[u8]) -> Vec<u8>| {
        let tensors = SafeTensors::deserialize(&bytes).expect("a checkpoint");
        let shared = tensors.tensor("shared.weight").expect("the embedding");
        let head = head(shared.data());
        let head = TensorView::new(shared.dtype(), shared.shape().to_vec(), &head).expect("a matrix");
        let copies = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"].map(|name| (name, shared.clone()));
        let all = tensors.iter().chain(copies).chain([("lm_head.weight", head)]);
        let written = safetensors::serialize(all, None).expect("a checkpoint");
        std::fs::write(folder.join("model.safetensors"), written).expect("a file");
        let diagnosis = diagnose(folder, None, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
        diagnosis.findings.iter().map(|finding| finding.name).collect::<Vec<_>>()
    };
    assert_eq!(rules(<[u8]>::to_vec), ["head-repeats-embedding"]);
    assert_eq!(rules(|bytes| bytes.as_chunks::<2>().0.iter().rev().flatten().copied().collect()), ["head-ignored"]);
}

/// llama.cpp makes one space of several by this key, which `tokenizer.json` says in other words.
#[test]
fn the_vocabulary_says_that_runs_of_spaces_are_one() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for fixture in encoder_decoders() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &model, None, None);
        let file = Gguf::open(&model).expect("it was just written");
        let key = |name: &str| file.metadata().bool(&format!("tokenizer.ggml.{name}")).ok();
        let keys = ["remove_extra_whitespaces", "add_space_prefix", "add_eos_token"].map(key);
        assert_eq!(keys, [Some(true); 3], "{}", fixture.name);
    }
}

#[test]
fn the_doctor_has_nothing_to_say_about_an_encoder_decoder() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for fixture in encoder_decoders() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        convert(&fixture.folder, &model, None, None);
        for path in [&fixture.folder, &model] {
            let diagnosis = diagnose(path, None, &NoProgress).unwrap_or_else(|error| panic!("{error}"));
            assert!(diagnosis.findings.is_empty(), "{:?}", diagnosis.findings);
        }
    }
}
