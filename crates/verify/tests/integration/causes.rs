//! The sentence names what went wrong where that is no arithmetic: a cache too narrow, a race, activations that are not
//! the node's own.

use super::{device, model, verified};
use std::sync::{Arc, Mutex};
use trueup_blocks::DType;
use trueup_graph::TensorType;
use trueup_models::{Batch, Stage};
use trueup_runtime::ModelFile;
use trueup_runtime::device::{Decorator, Device, Step, Tensor, Usage};
use trueup_verify::{Outcome, VerifyOptions, planted};

/// The model with a tensor of f32 `factor` times as large.
fn scaled(tensor: &str, factor: f32) -> (tempfile::TempDir, Arc<ModelFile>) {
    let (directory, sound) = model(DType::F32);
    let path = directory.path().join("tiny.gguf");
    let mut bytes = std::fs::read(&path).unwrap();
    let weight = sound.tensor_bytes(tensor).unwrap().into_owned();
    let start = bytes.windows(weight.len()).position(|window| window == weight).unwrap();
    for number in bytes[start..start + weight.len()].as_chunks_mut::<4>().0 {
        *number = (f32::from_le_bytes(*number) * factor).to_le_bytes();
    }
    let changed = directory.path().join("my scaled.gguf");
    std::fs::write(&changed, bytes).unwrap();
    let model = ModelFile::open(&changed).unwrap();
    (directory, Arc::new(model))
}

fn options(prompt: &[u32], steps: usize) -> VerifyOptions {
    VerifyOptions { prompts: vec![prompt.to_vec()], steps, ..VerifyOptions::default() }
}

#[test]
fn keys_and_values_beyond_the_range_of_f16_are_named_where_they_are_stored() {
    for (tensor, cache) in [("blk.0.attn_k.weight", "cache_k-0"), ("blk.0.attn_v.weight", "cache_v-0")] {
        let (_directory, model) = scaled(tensor, 1e6);
        // With an oracle that keeps f64 the device's logits are lost, with one that keeps f16 nobody's are numbers.
        for (kv, outcome) in [(None, Outcome::Fail), (Some(DType::F16), Outcome::Inconclusive)] {
            let report = verified(&model, device(), &VerifyOptions { kv, ..options(&[1, 5, 9], 1) });
            let sentence = &report.sentence;
            assert_eq!((report.result, report.first_bad.is_none()), (outcome, true), "{sentence}");
            assert!(
                sentence.contains(&format!("of {cache} (kv_store) in layer 0 exceed the range of f16 (65504)")),
                "{sentence}"
            );
            let next = format!("trueup verify '{}' --ids '1 5 9' --steps 1 --kv f32`", model.path().display());
            assert!(sentence.contains(&next), "{sentence}");
        }
        let wide = verified(&model, device(), &VerifyOptions { kv: Some(DType::F32), ..options(&[1, 5, 9], 1) });
        assert_eq!(wide.result, Outcome::Pass, "the advice helps: {}", wide.sentence);
    }
}

#[test]
fn a_race_on_one_element_is_one_however_often_the_node_is_computed() {
    let (_directory, model) = model(DType::Q8_0);
    // With an even number of computations in a run all plain runs agree.
    for steps in 0..4 {
        let racy = planted("race@Qcur-1", &model, device()).unwrap().device;
        let report = verified(&model, racy, &options(&[7], steps));
        let (sentence, bad) = (&report.sentence, report.first_bad.as_ref().unwrap());
        let cause = bad.cause.as_deref().unwrap();
        assert_eq!((bad.node.as_str(), report.result), ("Qcur-1", Outcome::Fail), "{steps} steps: {sentence}");
        assert!(
            cause.starts_with("row ") && cause.contains("(1 of ") && cause.contains("a race"),
            "{steps} steps: {sentence}"
        );
        assert!(sentence.contains("different results on the same inputs"), "{steps} steps: {sentence}");
    }
}

#[test]
fn old_activations_are_named_behind_one_token_and_behind_many() {
    for dtype in [DType::Q8_0, DType::F32] {
        let (_directory, model) = model(dtype);
        for (prompt, steps) in [(&[7][..], 1), (&[7][..], 2), (&[1, 5, 9, 20, 33][..], 2)] {
            let stale = planted("activations-stale@ffn_out-1", &model, device()).unwrap().device;
            let report = verified(&model, stale, &options(prompt, steps));
            let cause = report.first_bad.as_ref().and_then(|bad| bad.cause.clone()).unwrap_or_default();
            assert!(
                cause.starts_with("the activations are those of the previous step"),
                "{dtype}: {}",
                report.sentence
            );
            assert!(!report.sentence.contains("data race"), "{dtype}: {}", report.sentence);
        }
    }
}

#[test]
fn a_fault_of_one_phase_says_that_the_other_is_right() {
    let (_directory, model) = model(DType::F32);
    for (fault, expected) in [
        (
            "decode-gain@Kcur-1",
            "a factor of 1.001 on the whole result; only decode steps are wrong, prompts are correct",
        ),
        ("token-first@result_rows", "; only prompts are wrong, decode steps are correct"),
        ("gain@Kcur-1", "a factor of 1.001 on the whole result. Next"),
    ] {
        let faulty = planted(fault, &model, device()).unwrap().device;
        let report = verified(&model, faulty, &options(&[1, 5, 9, 20, 33], 2));
        assert!(report.sentence.contains(expected), "{}", report.sentence);
    }
}

/// A device that computes one node on the activations that another node was given before it.
struct Misled {
    device: Arc<dyn Device>,
    /// The node, and the one whose activations it takes, by their places in the graph.
    nodes: [usize; 2],
    taken: Mutex<Option<Tensor>>,
}

impl Misled {
    fn compute(&self, step: &Step) -> trueup_runtime::Result<()> {
        let mut taken = self.taken.lock().unwrap();
        if step.node == self.nodes[1] {
            let input = &step.inputs[1];
            let mut bytes = vec![0; input.ty.bytes()];
            self.device.download(input, &mut bytes)?;
            let flat = TensorType::new(DType::I8, &[bytes.len()]);
            let copy = Tensor { buffer: self.device.alloc(&flat, Usage::Arena)?, offset_bytes: 0, ty: input.ty };
            self.device.upload(&bytes, &copy)?;
            *taken = Some(copy);
        }
        let mut step = step.clone();
        if let Some(other) = taken.as_ref().filter(|_| step.node == self.nodes[0]) {
            step.inputs[1] = other.clone();
        }
        self.device.execute(&[step])
    }
}

impl Decorator for Misled {
    fn device(&self) -> &dyn Device {
        &*self.device
    }

    fn execute(&self, steps: &[Step]) -> trueup_runtime::Result<()> {
        steps.iter().try_for_each(|step| self.compute(step))
    }
}

#[test]
fn activations_of_another_node_are_named_with_that_node() {
    let (_directory, model) = model(DType::Q8_0);
    let (activation, kv, stage) = (DType::F32, DType::F16, Stage::Decoder { source: 0 });
    let (tokens, outputs, capacity, context, ring, sequences, streams, is_long) = (1, 1, 64, 64, 64, 1, 1, false);
    let batch = Batch { tokens, outputs, capacity, context, ring, sequences, streams, is_long, stage, activation, kv };
    let graph = model.model().graph(&batch).unwrap();
    let place = |name: &str| graph.nodes().iter().position(|node| node.name == name).unwrap();
    let nodes = [place("ffn_gate-1"), place("attn_out-1")];
    let misled = Misled { device: device(), nodes, taken: Mutex::default() };
    let unfused = VerifyOptions { fusion: false, ..options(&[1, 5, 9, 20], 1) };
    let report = verified(&model, Arc::new(misled), &unfused);
    let bad = report.first_bad.unwrap();
    assert_eq!(bad.node, "ffn_gate-1");
    let expected = "the activations are those of another node: kqv_out-1 instead of ffn_norm-1";
    assert_eq!(bad.cause.as_deref(), Some(expected));
}
