//! Published models that share a class with others: their keys of `config.json`, converted, compared and verified.

use trueup::convert::{self, Agreement, DiffOptions};
use trueup::formats::{OpenOptions, open};
use trueup::runtime::{DeviceOptions, open_device};
use trueup_tests::{Published, fixture, nmse, published, say, verdict};

/// The largest error of the reference. The golden logits have 6 digits.
const NMSE_MAX: f64 = 1e-9;

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
    for device in ["ref", "cpu"] {
        let said = say(&file, device, std::slice::from_ref(&model.ids), model.greedy_ids.len(), true).remove(0);
        if said.ids != model.greedy_ids {
            faults.push(format!("{device} continues with {:?}, not {:?}", said.ids, model.greedy_ids));
        }
        let last: Vec<f64> = said.prompt_logits.row(model.ids.len() - 1).to_vec();
        let error = nmse(&last, &model.logits);
        if device == "ref" && error > NMSE_MAX {
            faults.push(format!("the logits differ by an NMSE of {error:e}"));
        }
    }
    let device = open_device("cpu", &DeviceOptions::default()).expect("cpu");
    let report = verdict(&device, &fixture(&model.tokenizer), &file, true, None);
    faults.extend(report.err().map(|problem| format!("verify: {problem}")));
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
