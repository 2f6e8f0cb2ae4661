//! Faults planted where more than one computation meets them: in sessions one after the other, in batches of all sizes,
//! in repro files.

use super::plants::models;
use super::{device, model, tiny_model};
use std::sync::Arc;
use trueup_blocks::DType;
use trueup_formats::{Trace, TraceWriter};
use trueup_graph::{Op, TensorType};
use trueup_runtime::device::{Decorator, Device};
use trueup_runtime::profile::Profile;
use trueup_runtime::{ModelFile, SessionOptions, Weights};
use trueup_verify::{
    Follow, Outcome, PLANTS, Plant, Reference, Repro, TraceOptions, VerifyOptions, compare_trace, planted, planted_in,
    record, verify,
};

const FUSED: &str = "mul_mat_swiglu";

fn options() -> VerifyOptions {
    VerifyOptions { prompts: vec![vec![1, 5, 9, 20, 33, 47, 2], vec![40]], steps: 2, ..VerifyOptions::default() }
}

/// A trace of the right device.
fn trace(directory: &tempfile::TempDir, model: &Arc<ModelFile>) -> Trace {
    let path = directory.path().join("trace.safetensors");
    let weights = Arc::new(Weights::new(model.clone(), device(), None));
    let mut writer = TraceWriter::create(&path, &[]).unwrap();
    let options = SessionOptions::default();
    let recording = record(&weights, &options, &[1, 5, 9], &Follow::Greedy(1), &|_| true, &mut |recorded| {
        let shape: Vec<u64> = recorded.ty.shape.sizes().iter().map(|size| *size as u64).collect();
        Ok(writer.add(recorded.step, &recorded.node.name, &shape, recorded.ty.dtype, &recorded.bytes)?)
    });
    let recording = recording.unwrap();
    writer.finish(&recording.ids, &recording.tokens, &recording.texts).unwrap();
    Trace::open(&path).unwrap()
}

/// A session before has weights of its own: what is spoiled must be those of the session that runs.
#[test]
fn a_wrong_weight_is_found_in_its_piece_behind_a_trace_too() {
    for dtype in [DType::Q4_0, DType::F32] {
        let (directory, model) = model(dtype);
        let fault = planted("fused-up-weight@ffn_swiglu-1", &model, device()).unwrap();
        let trace = trace(&directory, &model);
        compare_trace(model.clone(), fault.device.clone(), &trace, &TraceOptions::default()).unwrap();
        let report = verify(model.clone(), fault.device, Reference::Oracle, &options(), &mut |_| {}).unwrap();
        let node = report.nodes.iter().find(|node| node.node == "ffn_swiglu-1").unwrap();
        let verdicts: Vec<bool> = node.pieces.iter().map(|piece| piece.verdict.fails()).collect();
        assert_eq!(verdicts, [false, true, false], "{dtype}: {:?}", node.pieces);
        assert!(
            report.sentence.contains("; ffn_up-1 is already wrong when computed separately"),
            "{}",
            report.sentence
        );
    }
}

/// The processor, which fuses for some numbers of tokens only.
struct Sometimes {
    device: Arc<dyn Device>,
    fuses: fn(usize) -> bool,
}

impl Decorator for Sometimes {
    fn device(&self) -> &dyn Device {
        &*self.device
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> Result<Profile, String> {
        if op.name() == FUSED && !(self.fuses)(output.shape[1]) {
            return Err("not for so many tokens".to_owned());
        }
        self.device.supports(op, inputs, output)
    }
}

#[test]
fn a_fault_never_moves_to_another_node_where_what_is_fused_changes() {
    let (_directory, model) = model(DType::Q8_0);
    let one_or_many: [fn(usize) -> bool; 2] = [|tokens| tokens == 1, |tokens| tokens > 1];
    // The choice, whether there is fusion, and whether the node has one place in all batches then.
    let cases = [
        ("gain@ffn_out-1", true, false),
        ("gain@Qcur-1", true, false),
        ("gain@ffn_out-1", false, true),
        // Left to its pieces by all batches, where one token is fused.
        ("gain@ffn_up-0", true, true),
    ];
    for (fuses, (choice, fusion, certain)) in one_or_many.into_iter().flat_map(|fuses| cases.map(|case| (fuses, case)))
    {
        let sometimes = Arc::new(Sometimes { device: device(), fuses });
        let fault = planted_in(choice, &model, sometimes, fusion).unwrap();
        let options = VerifyOptions { fusion, ..options() };
        let report = verify(model.clone(), fault.device, Reference::Oracle, &options, &mut |_| {});
        if certain && (fuses(1) || !fusion) {
            let report = report.unwrap();
            let found = report.first_bad.as_ref().map(|bad| bad.node.as_str());
            assert_eq!((report.result, found), (Outcome::Fail, Some(&*fault.node)), "{choice}: {}", report.sentence);
        } else {
            let problem = report.unwrap_err().to_string();
            assert!(problem.contains("the node of the fault is ambiguous") && problem.contains(FUSED), "{problem}");
        }
    }
}

/// The repro file of this fault in this model, where the model can have it.
fn repro_of(name: &str, model: &Arc<ModelFile>, folder: &std::path::Path) -> Option<Result<Repro, String>> {
    let fault = planted(name, model, device()).ok()?;
    let options = VerifyOptions {
        // Longer than the sliding windows.
        prompts: vec![(0..tiny_model::WINDOW as u32 + 6).map(|place| 1 + 7 * place % 40).collect(), vec![40, 7]],
        repro_folder: Some(folder.to_owned()),
        planted: Some(fault.facts()),
        ..options()
    };
    let report = verify(model.clone(), fault.device.clone(), Reference::Oracle, &options, &mut |_| {}).unwrap();
    let file = report.first_bad.as_ref().and_then(|bad| bad.repro.clone());
    Some(file.map_or(Err(report.sentence), |file| Ok(Repro::open(file).unwrap())))
}

#[test]
fn every_planted_fault_shows_alone_in_its_own_file_and_a_right_device_passes_it() {
    let (folder, models) = models();
    let (first, second) = PLANTS.split_at(PLANTS.len() / 2);
    let in_all = |plants: &[Plant]| -> Vec<String> {
        plants.iter().flat_map(|plant| problems_of(plant.name, &models, folder.path())).collect()
    };
    let problems = std::thread::scope(|scope| {
        let other = scope.spawn(|| in_all(second));
        let mut all = in_all(first);
        all.extend(other.join().unwrap());
        all
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is wrong with the repro files of a fault, in the first two models that can have it.
fn problems_of(name: &str, models: &[Arc<ModelFile>], folder: &std::path::Path) -> Vec<String> {
    let mut problems = Vec::new();
    let found = models
        .iter()
        .enumerate()
        .filter_map(|(index, model)| repro_of(name, model, &folder.join(format!("{name}-{index}"))));
    let found: Vec<Result<Repro, String>> = found.take(2).collect();
    if found.is_empty() {
        problems.push(format!("{name}: no model can have it"));
    }
    for repro in found {
        let repro = match repro {
            Ok(repro) => repro,
            Err(sentence) => {
                problems.push(format!("{name}: no file: {sentence}"));
                continue;
            }
        };
        let clean = repro.run(&*device()).unwrap();
        if (clean.result, clean.planted) != (Outcome::Pass, None) {
            problems.push(format!("{name}, a right device: {}", clean.sentence));
        }
        match repro.run_planted(name, device()) {
            Ok(again) if again.result == Outcome::Fail && again.planted.as_deref() == Some(name) => {}
            Ok(again) => problems.push(format!("{name}: {}", again.sentence)),
            Err(problem) => problems.push(format!("{name}: {problem}")),
        }
    }
    problems
}

#[test]
fn a_fault_that_does_not_show_in_a_foreign_file_is_inconclusive_and_windows_need_one() {
    let (folder, models) = models();
    let file = |name: &str, model: usize| {
        repro_of(name, &models[model], &folder.path().join(name))
            .unwrap()
            .unwrap_or_else(|sentence| panic!("{sentence}"))
    };
    // One token cannot be exchanged with another one.
    let result = file("decode-gain", 0).run_planted("tokens-swapped", device()).unwrap();
    assert_eq!(result.result, Outcome::Inconclusive, "{}", result.sentence);
    assert!(result.verdict.passes() && result.sentence.contains("does not expose it"), "{}", result.sentence);
    let problem = file("scale-forgotten", 0).run_planted("window-ignored", device()).unwrap_err().to_string();
    assert!(problem.contains("it needs soft_max of a layer with a sliding window"), "{problem}");
}
