//! Every architecture, as transformers wrote and computed it: converted from each storage type, from one shard and from several,
//! logits of the oracle equal and greedy text the same.

use trueup::blocks::DType;
use trueup::convert::Agreement;
use trueup::formats::{Checkpoint, Gguf};
use trueup_tests::{Fixture, Prompt, Storage, convert, fixtures, nmse, say, write_variant};

/// What the oracle's logits may differ from those that transformers computed in f64 and stored as f32.
const NMSE_MAX: f64 = 1e-9;

fn prompt_ids(prompts: &[Prompt]) -> Vec<Vec<u32>> {
    prompts.iter().map(|prompt| prompt.ids.clone()).collect()
}

/// Logits and greedy text of `model` on `device` against the golden; `nmse_max` is `None` where rounding is the device's own affair.
fn compare(fixture: &Fixture, model: &std::path::Path, device: &str, nmse_max: Option<f64>, faults: &mut Vec<String>) {
    let prompts = fixture.prompts();
    let said = say(model, device, &prompt_ids(&prompts), 16, true);
    for (number, (said, prompt)) in said.iter().zip(&prompts).enumerate() {
        let golden = fixture.logits(&format!("logits_{number}"));
        assert_eq!(said.prompt_logits.dim(), golden.dim(), "{}: shape of the logits", fixture.name);
        let got: Vec<f64> = said.prompt_logits.iter().copied().collect();
        let nmse = nmse(&got, &golden.iter().copied().collect::<Vec<f64>>());
        if nmse_max.is_some_and(|most| nmse.is_nan() || nmse >= most) {
            faults.push(format!("{} on {device}, prompt {number}: NMSE {nmse:e}", fixture.name));
        }
        if said.ids != prompt.greedy_ids {
            faults.push(format!(
                "{} on {device}, prompt {number}: {:?} not {:?}",
                fixture.name, said.ids, prompt.greedy_ids
            ));
        }
    }
}

#[test]
fn logits_and_greedy_text_are_those_of_transformers() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let mut faults = Vec::new();
    for fixture in fixtures() {
        let model = scratch.path().join(format!("{}.gguf", fixture.name));
        let checks = convert(&fixture.folder, &model, None, None);
        let inexact = checks.iter().filter(|check| check.agreement != Agreement::Exact);
        faults.extend(inexact.map(|check| format!("{}: {check:?}", fixture.name)));
        compare(&fixture, &model, "ref", Some(NMSE_MAX), &mut faults);
        compare(&fixture, &model, "cpu", None, &mut faults);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_storage_and_number_of_shards_gives_the_same_tensors() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    for fixture in fixtures() {
        let of = |storage: Storage, shards: usize| {
            let folder = scratch.path().join(format!("{}-{storage:?}-{shards}", fixture.name));
            write_variant(&fixture.folder, &folder, storage, shards);
            let model = folder.with_extension("gguf");
            let checks = convert(&folder, &model, Some(DType::F32), None);
            assert!(checks.iter().all(|check| check.agreement == Agreement::Exact), "{}: {checks:?}", fixture.name);
            tensors(&model)
        };
        let one = of(Storage::F32, 1);
        for (storage, shards) in [(Storage::F32, 3), (Storage::F16, 1), (Storage::F16, 2), (Storage::Bf16, 4)] {
            let other = of(storage, shards);
            assert!(one == other, "{}: {storage:?} in {shards} shards gives other tensors", fixture.name);
        }
    }
}

/// Name, type, shape and bytes of every tensor, by name.
fn tensors(model: &std::path::Path) -> Vec<(String, DType, Vec<u64>, Vec<u8>)> {
    let file = Gguf::open(model).expect("it was just written");
    let read = |place: usize| {
        let info = &file.tensors()[place];
        let mut bytes = vec![0; info.bytes as usize];
        file.read(place, 0, &mut bytes).expect("tensors can be read");
        (info.name.clone(), info.dtype, info.shape.clone(), bytes)
    };
    let mut tensors: Vec<_> = (0..file.tensors().len()).map(read).collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    tensors
}

#[test]
fn all_storages_compute_the_same_text() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let mut faults = Vec::new();
    for fixture in fixtures() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            // Rows of this head are divided by their lengths, and no grid holds what comes of it.
            let most = match dtype {
                DType::Bf16 if fixture.name == "baichuan2-13b" => 1e-5,
                DType::F16 if fixture.name == "baichuan2-13b" => 1e-7,
                _ => NMSE_MAX,
            };
            let model = scratch.path().join(format!("{}-{dtype}.gguf", fixture.name));
            convert(&fixture.folder, &model, Some(dtype), None);
            compare(&fixture, &model, "ref", Some(most), &mut faults);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
