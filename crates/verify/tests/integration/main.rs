//! Devices are verified with and without faults: verdicts, causes, reports, repro files.

mod causes;
mod decoded_types;
mod explained;
mod fused;
mod planted;
mod plants;
mod replanted;
mod reports;
mod rings;
mod routing;
#[allow(dead_code, reason = "the runtime's tests use more of it")]
#[path = "../../../runtime/tests/integration/tiny_model.rs"]
mod tiny_model;

use std::sync::Arc;
use trueup_blocks::DType;
use trueup_runtime::device::Device;
use trueup_runtime::{DeviceOptions, ModelFile, open_device};
use trueup_verify::{Reference, Report, VerifyOptions, verify};

/// A small Llama with matrices of this type. The directory contains the file.
fn model(dtype: DType) -> (tempfile::TempDir, Arc<ModelFile>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tiny.gguf");
    tiny_model::write(&path, dtype, false);
    let model = ModelFile::open(&path).unwrap();
    (directory, Arc::new(model))
}

/// `cpu` with two threads.
fn device() -> Arc<dyn Device> {
    open_device("cpu", &DeviceOptions { threads: Some(2), ..DeviceOptions::default() }).unwrap()
}

fn verified(model: &Arc<ModelFile>, device: Arc<dyn Device>, options: &VerifyOptions) -> Report {
    verify(model.clone(), device, Reference::Oracle, options, &mut |_| {}).unwrap()
}
