//! Models and traces for tests of `verify --ref`: fixtures in a type, copies with one fault, and the comparison.

use crate::{convert, fixture, quantize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trueup::blocks::DType;
use trueup::formats::Trace;
use trueup::quantize::Layout;
use trueup::runtime::{DeviceOptions, ModelFile, open_device};
use trueup::verify::{TraceOptions, TraceReport, compare_trace};

/// The fixture `name` as a GGUF file with matrices of this type.
pub fn quantized_fixture(folder: &Path, name: &str, dtype: DType) -> PathBuf {
    let (source, target) = (folder.join(format!("{name}.gguf")), folder.join(format!("{name}-{dtype}.gguf")));
    convert(&fixture(name).folder, &source, None, None);
    quantize(&source, &target, dtype, Layout::Block);
    target
}

/// Compares a trace with a model, on the CPU.
pub fn compared(model: &Path, trace: &Path) -> TraceReport {
    let model = Arc::new(ModelFile::open(model).unwrap_or_else(|error| panic!("{error}")));
    let device = open_device("cpu", &DeviceOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let trace = Trace::open(trace).unwrap_or_else(|error| panic!("{error}"));
    compare_trace(model, device, &trace, &TraceOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// A copy of the model in which `change` was made to the bytes of a tensor.
pub fn with_tensor(source: &Path, folder: &Path, tensor: &str, change: impl Fn(&mut [u8])) -> PathBuf {
    let model = ModelFile::open(source).unwrap_or_else(|error| panic!("{error}"));
    let bytes = model.tensor_bytes(tensor).unwrap_or_else(|error| panic!("{error}")).into_owned();
    let mut file = fs::read(source).expect("the model exists");
    let place = file.windows(bytes.len()).position(|window| window == bytes).expect("the file contains the tensor");
    change(&mut file[place..place + bytes.len()]);
    written(folder, &file)
}

/// A copy of the model with another f32 under `key`.
pub fn with_number(source: &Path, folder: &Path, key: &str, value: f32) -> PathBuf {
    let mut file = fs::read(source).expect("the model exists");
    let place = file.windows(key.len()).position(|window| window == key.as_bytes()).expect("the model has the key");
    // The type follows the key, then the number.
    let place = place + key.len() + 4;
    file[place..place + 4].copy_from_slice(&value.to_le_bytes());
    written(folder, &file)
}

fn written(folder: &Path, file: &[u8]) -> PathBuf {
    let target = folder.join("changed.gguf");
    fs::write(&target, file).expect("the directory is writable");
    target
}
