//! Every fault that can be planted is found, and its node is named.

#[allow(dead_code, reason = "the runtime's tests use more of it")]
#[path = "../../runtime/tests/tiny_model/mod.rs"]
mod tiny_model;

use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::device::Device;
use trueup_runtime::{DeviceOptions, ModelFile, open_device};
use trueup_verify::{Outcome, PLANTS, Reference, VerifyOptions, planted, verify};

/// Types of weights, tried in this order until a model can have the fault.
const TYPES: [DType; 5] = [DType::Q8_0, DType::Q4_0, DType::F32, DType::Q4_1, DType::Q5_0];

fn device() -> Arc<dyn Device> {
    open_device("cpu", &DeviceOptions { threads: Some(2), ..DeviceOptions::default() }).unwrap()
}

fn models() -> (tempfile::TempDir, Vec<Arc<ModelFile>>) {
    let folder = tempfile::tempdir().unwrap();
    let model = |dtype: DType| {
        let path = folder.path().join(format!("{dtype}.gguf"));
        tiny_model::write(&path, dtype, false);
        Arc::new(ModelFile::open(&path).unwrap())
    };
    let mut models: Vec<Arc<ModelFile>> = TYPES.into_iter().map(model).collect();
    let path = folder.path().join("window.gguf");
    tiny_model::write_kind(&path, tiny_model::Kind::Qwen3, tiny_model::CONTEXT, DType::F32, false);
    models.push(Arc::new(ModelFile::open(&path).unwrap()));
    (folder, models)
}

#[test]
fn every_planted_fault_is_found_at_its_node() {
    let (_folder, models) = models();
    let options = VerifyOptions {
        // Longer than the sliding window of the last model.
        prompts: vec![(0..tiny_model::WINDOW as u32 + 6).map(|place| 1 + 7 * place % 40).collect(), vec![40, 7]],
        steps: 3,
        ..VerifyOptions::default()
    };
    let mut problems = Vec::new();
    for plant in PLANTS {
        let Some((model, fault)) =
            models.iter().find_map(|model| Some((model, planted(plant.name, model, device()).ok()?)))
        else {
            problems.push(format!("{}: no model can have it", plant.name));
            continue;
        };
        let report = verify(model.clone(), fault.device, Reference::Oracle, &options, &mut |_| {}).unwrap();
        let found = report.first_bad.as_ref().map(|bad| bad.node.as_str());
        if report.result != Outcome::Fail
            || found != Some(fault.node.as_str())
            || !report.sentence.contains(&fault.node)
        {
            problems.push(format!("{} at {}, found {found:?}: {}", plant.name, fault.node, report.sentence));
        }
    }
    assert!(PLANTS.len() >= 40, "{} faults", PLANTS.len());
    assert!(problems.is_empty(), "{} of {}:\n{}", problems.len(), PLANTS.len(), problems.join("\n"));
}

#[test]
fn what_cannot_be_planted_is_said() {
    let (_folder, models) = models();
    let refused = |choice: &str| planted(choice, &models[0], device()).err().unwrap().to_string();
    assert!(refused("nothing").contains("--plant list"), "{}", refused("nothing"));
    assert!(refused("nibble-order").contains("a q4_0 or q4_1 weight"), "{}", refused("nibble-order"));
    assert!(refused("gain@l_out-0").contains("l_out-0"), "{}", refused("gain@l_out-0"));
    assert_eq!(planted("gain@ffn_up-0", &models[0], device()).unwrap().node, "ffn_up-0");
}
