//! Fused operators that fail: the pieces say whose fault it is. Traces and baselines of fused runs, and devices that
//! fuse sometimes only.

use super::{device, model, verified};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::gguf::MappedBytes;
use trueup_formats::{Trace, TraceWriter};
use trueup_graph::{Op, TensorType};
use trueup_runtime::device::{Buffer, CopyRoom, Decorator, Device, Tensor};
use trueup_runtime::profile::Profile;
use trueup_runtime::{ModelFile, SessionOptions, Weights};
use trueup_verify::{
    Baseline, Follow, Outcome, PLANTS, Recording, Report, TraceOptions, TraceReport, Verdict, VerifyOptions,
    compare_trace, planted, planted_in, record,
};

const FUSED: &str = "mul_mat_swiglu";

fn options() -> VerifyOptions {
    VerifyOptions { prompts: vec![vec![1, 5, 9, 20, 33, 47, 2], vec![40]], steps: 2, ..VerifyOptions::default() }
}

#[test]
fn a_fault_inside_of_the_fused_kernel_leaves_its_pieces_right() {
    let inside = PLANTS.iter().filter(|plant| plant.ops == [FUSED] && plant.name != "fused-up-weight");
    let mut problems = Vec::new();
    for (plant, dtype) in inside.flat_map(|plant| [DType::Q8_0, DType::F32, DType::Q4_0].map(|dtype| (plant, dtype))) {
        let (_directory, model) = model(dtype);
        let fault = planted(&format!("{}@ffn_swiglu-0", plant.name), &model, device()).unwrap();
        assert_eq!((fault.op, fault.unfused), (FUSED, false));
        let report = verified(&model, fault.device, &options());
        let node = report.nodes.iter().find(|node| node.node == "ffn_swiglu-0").unwrap();
        let pieces: Vec<(&str, &str)> = node.pieces.iter().map(|piece| (&*piece.node, &*piece.op)).collect();
        let expected = [("ffn_gate-0", "mul_mat"), ("ffn_up-0", "mul_mat"), ("ffn_swiglu-0", "swiglu")];
        let said = "; its unfused nodes are correct (ffn_gate-0, ffn_up-0, ffn_swiglu-0): the fused kernel is at fault; try \
                    --fusion off";
        let found = report.first_bad.as_ref().is_some_and(|bad| bad.node == "ffn_swiglu-0");
        let right = node.pieces.iter().all(|piece| piece.verdict.passes() && piece.worst_z.is_some_and(|z| z <= 8.0));
        if !found || pieces != expected || !right || !report.sentence.contains(said) {
            problems.push(format!("{} of {dtype}: {} {:?}", plant.name, report.sentence, node.pieces));
        }
        let others = report.nodes.iter().filter(|node| node.node != "ffn_swiglu-0");
        assert!(others.clone().all(|node| node.pieces.is_empty()), "only where it failed");
        assert!(
            report.to_terminal().contains(said.trim_start_matches("; "))
                && report.to_html().unwrap().contains("Unfused nodes")
        );
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// A weight that is wrong on the device is so for the fused kernel and for the piece that reads it.
#[test]
fn a_wrong_weight_is_found_in_the_piece_that_reads_it() {
    for dtype in [DType::Q8_0, DType::F32, DType::Q4_1] {
        let (_directory, model) = model(dtype);
        let fault = planted("fused-up-weight@ffn_swiglu-1", &model, device()).unwrap();
        let report = verified(&model, fault.device, &options());
        let node = report.nodes.iter().find(|node| node.node == "ffn_swiglu-1").unwrap();
        let verdicts: Vec<bool> = node.pieces.iter().map(|piece| piece.verdict.fails()).collect();
        assert_eq!(verdicts, [false, true, false], "{dtype}: {:?}", node.pieces);
        assert!(
            report.sentence.contains("; ffn_up-1 is already wrong when computed separately"),
            "{}",
            report.sentence
        );
        let json = serde_json::to_value(&report).unwrap();
        let found = json["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "ffn_swiglu-1").unwrap();
        assert_eq!(found["pieces"][1]["node"], "ffn_up-1");
        assert_eq!(found["fused"], serde_json::json!(["ffn_gate-1", "ffn_up-1", "ffn_swiglu-1"]));
    }
}

/// The processor, which uploads one weight with a wrong byte.
struct WrongUpload {
    device: Arc<dyn Device>,
    weight: Vec<u8>,
}

impl Decorator for WrongUpload {
    fn device(&self) -> &dyn Device {
        &*self.device
    }

    fn adopt(&self, _: &MappedBytes, _: &TensorType, _: CopyRoom) -> trueup_runtime::Result<Option<Buffer>> {
        Ok(None)
    }

    fn upload(&self, source: &[u8], target: &Tensor) -> trueup_runtime::Result<()> {
        let mut bytes = source.to_vec();
        if source == self.weight {
            // A code in the first block, behind its scale.
            bytes[7] ^= 0x40;
        }
        self.device.upload(&bytes, target)
    }
}

#[test]
fn a_wrong_upload_is_found_in_the_piece_that_reads_it() {
    for (dtype, weight, piece) in
        [(DType::Q8_0, "gate", "ffn_gate-0"), (DType::Q4_0, "up", "ffn_up-0"), (DType::F32, "up", "ffn_up-0")]
    {
        let (_directory, model) = model(dtype);
        let weight = model.tensor_bytes(&format!("blk.0.ffn_{weight}.weight")).unwrap().into_owned();
        let report = verified(&model, Arc::new(WrongUpload { device: device(), weight }), &options());
        assert_eq!(report.first_bad.as_ref().map(|bad| bad.node.as_str()), Some("ffn_swiglu-0"), "{}", report.sentence);
        assert!(
            report.sentence.contains(&format!("; {piece} is already wrong when computed separately")),
            "{}",
            report.sentence
        );
    }
}

#[test]
fn a_fault_in_a_piece_is_planted_without_fusion() {
    let (_directory, model) = model(DType::Q8_0);
    for (choice, op) in [("gain@ffn_up-0", "mul_mat"), ("gate-exchanged@ffn_swiglu-0", "swiglu")] {
        let fault = planted(choice, &model, device()).unwrap();
        assert!(fault.unfused && fault.op == op, "{choice}");
        let (node, facts) = (fault.node.clone(), fault.facts());
        let mut report = verified(&model, fault.device, &options());
        report.was_planted(facts);
        assert_eq!(report.first_bad.as_ref().map(|bad| bad.node.clone()), Some(node));
        assert_eq!(report.coverage.fused, 0);
        assert!(report.to_terminal().contains("; fusion is off, so that the node exists"));
    }
    let fault = planted("gain@Qcur-1", &model, device()).unwrap();
    let report = verified(&model, fault.device, &options());
    assert!(!fault.unfused && report.coverage.fused == 4 && report.first_bad.is_some_and(|bad| bad.node == "Qcur-1"));
    // Where nothing is fused, there is no fused operator, and places are those of the unfused graph.
    let refused = planted_in("fused-gelu", &model, device(), false).err().unwrap().to_string();
    assert!(refused.contains("exists only with --fusion on"), "{refused}");
    let fault = planted_in("gain@l_out-1", &model, device(), false);
    assert!(fault.is_err(), "gain is of products");
    let fault = planted_in("gain@ffn_out-1", &model, device(), false).unwrap();
    let report = verified(&model, fault.device, &VerifyOptions { fusion: false, ..options() });
    assert!(!fault.unfused && report.first_bad.is_some_and(|bad| bad.node == "ffn_out-1"));
}

#[test]
fn fusion_off_looks_at_every_node_and_both_runs_give_the_same_logits() {
    let (_directory, model) = model(DType::Q4_0);
    let on = verified(&model, device(), &options());
    let off = verified(&model, device(), &VerifyOptions { fusion: false, ..options() });
    assert_eq!((on.result, off.result), (Outcome::Pass, Outcome::Pass));
    assert_eq!((on.coverage.fused, off.coverage.fused, off.coverage.nodes), (4, 0, on.coverage.nodes + 8));
    assert_eq!(on.repeat.logits_sha256, off.repeat.logits_sha256);
    // Against a report without fusion nothing got lost, and the other way round.
    let baseline = |report: &Report| Baseline::parse(&serde_json::to_vec(report).unwrap()).unwrap();
    let (mut newer, mut older) = (on.clone(), off.clone());
    newer.compare_with(&baseline(&off), "off.json");
    let found = newer.baseline.as_ref().unwrap();
    assert_eq!((newer.result, found.drifts), (Outcome::Pass, 0), "{found:#?}");
    assert!(found.changes.iter().any(|change| change.now == "fused into ffn_swiglu-1"));
    older.compare_with(&baseline(&on), "on.json");
    assert_eq!((older.result, older.baseline.as_ref().unwrap().drifts), (Outcome::Pass, 0));
}

/// The processor, which fuses where few tokens are computed only, as a device does that has a kernel for vectors alone.
struct FewTokens(Arc<dyn Device>);

impl Decorator for FewTokens {
    fn device(&self) -> &dyn Device {
        &*self.0
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> Result<Profile, String> {
        if op.name() == FUSED && output.shape[1] > 3 {
            return Err("only few tokens".to_owned());
        }
        self.0.supports(op, inputs, output)
    }
}

/// Pieces that are nodes of their own in the prompt phase count as judged while decoding where the fused node is.
#[test]
fn a_device_that_fuses_in_one_phase_only_is_covered_in_both() {
    let (_directory, model) = model(DType::Q8_0);
    let prompts = vec![vec![1, 5, 9, 20, 33, 47, 2]];
    let report = verified(&model, Arc::new(FewTokens(device())), &VerifyOptions { prompts, ..options() });
    let coverage = report.coverage;
    assert_eq!(report.result, Outcome::Pass, "{}", report.to_terminal());
    assert_eq!(coverage.fused, 4);
    assert_eq!(
        (coverage.checked, coverage.checked_prompt, coverage.checked_decode),
        (coverage.nodes, coverage.nodes, coverage.nodes)
    );
    let up = report.nodes.iter().find(|node| node.node == "ffn_up-0").unwrap();
    assert_eq!((up.phases.len(), up.fused.len()), (1, 0));
}

/// A trace of the device, with or without fusion.
fn trace(directory: &tempfile::TempDir, model: &Arc<ModelFile>, fusion: bool) -> Trace {
    let path = directory.path().join(format!("fusion-{fusion}.safetensors"));
    let weights = Arc::new(Weights::new(model.clone(), device(), None));
    let options = SessionOptions { fusion, ..SessionOptions::default() };
    let mut writer = TraceWriter::create(&path, &[]).unwrap();
    let prompt: Vec<u32> = vec![1, 5, 9, 20, 33, 47, 2];
    let recording = record(&weights, &options, &prompt, &Follow::Greedy(2), &|_| true, &mut |recorded| {
        let shape: Vec<u64> = recorded.ty.shape.sizes().iter().map(|size| *size as u64).collect();
        Ok(writer.add(recorded.step, &recorded.node.name, &shape, recorded.ty.dtype, &recorded.bytes)?)
    });
    let Recording { ids, tokens, texts } = recording.unwrap();
    assert_eq!(texts.iter().any(|(key, text)| key == "fused" && text.contains("ffn_swiglu-1")), fusion, "{texts:?}");
    writer.finish(&ids, &tokens, &texts).unwrap();
    Trace::open(&path).unwrap()
}

fn compared(model: &Arc<ModelFile>, trace: &Trace, fusion: bool) -> TraceReport {
    compare_trace(model.clone(), device(), trace, &TraceOptions { fusion, ..TraceOptions::default() }).unwrap()
}

#[test]
fn own_traces_of_fused_runs_are_judged_in_the_nodes_that_they_hold() {
    for dtype in [DType::F32, DType::Q8_0, DType::Q4_0] {
        let (directory, model) = model(dtype);
        let (fused, unfused) = (trace(&directory, &model, true), trace(&directory, &model, false));
        for fusion in [true, false] {
            let report = compared(&model, &fused, fusion);
            assert_eq!(report.result, Outcome::Pass, "{dtype}: {}", report.sentence);
            assert_eq!((report.checked, report.unchecked.len(), report.unknown), (report.graph_nodes, 0, 0), "{dtype}");
            let node = report.nodes.iter().find(|node| node.node == "ffn_swiglu-1").unwrap();
            assert_eq!((node.op.as_str(), node.verdict.passes()), (FUSED, true));
            let every = compared(&model, &unfused, fusion);
            assert_eq!(every.result, Outcome::Pass, "{dtype}: {}", every.sentence);
            assert_eq!((every.checked, every.graph_nodes), (every.graph_nodes, report.graph_nodes + 8));
            // Both sides give the same bits, at every node of the trace.
            assert!(
                every.free.distances.iter().all(|(_, distance)| *distance == Some(0.0)),
                "{:?}",
                every.free.distances
            );
            assert_eq!(every.free.distances.len(), every.graph_nodes);
        }
    }
}

#[test]
fn a_fault_in_a_fused_trace_is_found_at_the_fused_node() {
    let (directory, model) = model(DType::Q8_0);
    let sound = trace(&directory, &model, true);
    let values = |name: &str| {
        let tensor = sound.find(0, name).unwrap();
        let trueup_formats::TraceValues::All(values) = sound.read(tensor).unwrap() else { panic!("{name} is whole") };
        (tensor.shape.clone(), values)
    };
    let path = directory.path().join("faulty.safetensors");
    let mut writer = TraceWriter::create(&path, &[]).unwrap();
    for tensor in sound.tensors().iter().filter(|tensor| tensor.step == 0) {
        let (shape, mut found) = values(&tensor.node);
        if tensor.node == "ffn_swiglu-0" {
            found[17] *= 1.001;
        }
        let bytes: Vec<u8> = found.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect();
        writer.add(0, &tensor.node, &shape, DType::F32, &bytes).unwrap();
    }
    let texts: Vec<(String, String)> = ["profiles", "fused", "kv", "device", "program"]
        .into_iter()
        .map(|key| (key.to_owned(), sound.text(key).unwrap().to_owned()))
        .collect();
    writer.finish(&sound.ids().unwrap()[..7], &[7], &texts).unwrap();
    let report = compared(&model, &Trace::open(&path).unwrap(), true);
    let bad = report.first_bad.unwrap();
    assert_eq!((bad.node.as_str(), bad.op.as_str()), ("ffn_swiglu-0", FUSED), "{}", report.sentence);
    assert!(matches!(bad.verdict, Verdict::StructuralBug | Verdict::UndeclaredPrecision));
}
