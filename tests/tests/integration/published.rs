//! Published models that share a class with others: their keys of `config.json`, converted, compared and verified.

use trueup::convert::{self, Agreement, DiffOptions};
use trueup::formats::{OpenOptions, open};
use trueup::quantize::Layout;
use trueup::runtime::{DeviceOptions, open_device};
use trueup_tests::{Published, VERIFIED_TYPES, fixture, nmse, published, quantize, say, say_exact, verdict};

/// Devices and the largest error of their logits. The golden logits have 6 digits.
const DEVICES: [(&str, f64); 2] = [("ref", 1e-9), ("cpu", 1e-7)];

/// What is wrong with one model.
fn faults(model: &Published, scratch: &std::path::Path) -> Vec<String> {
    let (folder, file) = (scratch.join(&model.name), scratch.join(format!("{}.gguf", model.name)));
    model.write(&folder);
    let mut faults = Vec::new();
    let checks = trueup_tests::convert(&folder, &file, None, None);
    let is_exact = |agreement| matches!(agreement, Agreement::Exact | Agreement::Rounded { .. });
    // Only the divided rows of Baichuan 2's head are rounded.
    let rounded = checks.iter().filter(|check| check.agreement != Agreement::Exact).count();
    if checks.iter().any(|check| !is_exact(check.agreement)) || rounded > usize::from(model.name == "Baichuan2-7B") {
        faults.push(format!("tensors differ: {checks:?}"));
    }
    let opened = |path: &std::path::Path| open(path, &OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let diff = convert::diff(opened(&folder).as_ref(), opened(&file).as_ref(), DiffOptions::default());
    match diff {
        Ok(diff) if diff.equal => {}
        Ok(diff) => faults.push(format!("diff: {:?}", diff.differences)),
        Err(error) => faults.push(format!("diff: {error}")),
    }
    for (device, most) in DEVICES {
        let said = say(&file, device, std::slice::from_ref(&model.ids), model.greedy_ids.len(), true).remove(0);
        if said.ids != model.greedy_ids {
            faults.push(format!("{device} continues with {:?}, not {:?}", said.ids, model.greedy_ids));
        }
        // The usual cache of keys and values rounds them.
        let said =
            if device == "cpu" { say_exact(&file, device, std::slice::from_ref(&model.ids)).remove(0) } else { said };
        let last: Vec<f64> = said.prompt_logits.row(model.ids.len() - 1).to_vec();
        let error = nmse(&last, &model.logits);
        if error > most {
            faults.push(format!("the logits of {device} differ by an NMSE of {error:e}"));
        }
    }
    let device = open_device("cpu", &DeviceOptions::default()).expect("cpu");
    for dtype in VERIFIED_TYPES {
        let quantized = scratch.join(format!("{}-{dtype}.gguf", model.name));
        quantize(&file, &quantized, dtype, Layout::Block);
        let report = verdict(&device, &fixture(&model.tokenizer), &quantized, true, None);
        faults.extend(report.err().map(|problem| format!("verify, {dtype}: {problem}")));
    }
    faults
}

#[test]
fn published_models_are_computed_as_by_other_software_and_verified() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut all = Vec::new();
    for model in published() {
        all.extend(faults(&model, scratch.path()).into_iter().map(|fault| format!("{}: {fault}", model.name)));
    }
    assert!(all.is_empty(), "{} faults:\n{}", all.len(), all.join("\n"));
}
