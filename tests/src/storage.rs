//! Copies of a fixture in another storage type and in several shards. The fixtures' values are exact in all three
//! types.

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::json;
use std::fs;
use std::path::Path;

use half::{bf16, f16};

/// How the weights are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants are the types' own names")]
pub enum Storage {
    F32,
    F16,
    Bf16,
}

/// Copies the Hugging Face directory `source` to `target`, its weights as `storage` in `shards` files.
pub fn write_variant(source: &Path, target: &Path, storage: Storage, shards: usize) {
    copy_description(source, target);
    let file = fs::read(source.join("model.safetensors")).expect("a fixture has weights");
    let weights = SafeTensors::deserialize(&file).expect("a fixture is safetensors");
    let converted: Vec<NewTensor> = weights
        .tensors()
        .into_iter()
        .map(|(name, tensor)| {
            (name, stored_type(&tensor, storage), tensor.shape().to_vec(), converted(&tensor, storage))
        })
        .collect();
    let per_shard = converted.len().div_ceil(shards);
    let mut map = serde_json::Map::new();
    for (number, shard) in converted.chunks(per_shard).enumerate() {
        let name = if shards == 1 {
            "model.safetensors".to_owned()
        } else {
            format!("model-{:05}-of-{shards:05}.safetensors", number + 1)
        };
        let views = shard.iter().map(|(tensor, dtype, shape, bytes)| {
            map.insert(tensor.clone(), json!(name));
            (tensor.as_str(), TensorView::new(*dtype, shape.clone(), bytes).expect("sizes fit"))
        });
        let views: Vec<_> = views.collect();
        safetensors::serialize_to_file(views, None, &target.join(&name)).expect("a shard can be written");
    }
    if shards > 1 {
        let index = json!({"metadata": {}, "weight_map": map}).to_string();
        fs::write(target.join("model.safetensors.index.json"), index).expect("an index can be written");
    }
}

/// A tensor to be written: name, type, shape and bytes.
pub type NewTensor = (String, Dtype, Vec<usize>, Vec<u8>);

/// Copies the Hugging Face directory `source` to `target` with other names of tensors, and with `more` tensors.
pub fn write_renamed(source: &Path, target: &Path, rename: impl Fn(&str) -> String, more: &[NewTensor]) {
    copy_description(source, target);
    let file = fs::read(source.join("model.safetensors")).expect("a fixture has weights");
    let weights = SafeTensors::deserialize(&file).expect("a fixture is safetensors");
    let renamed = weights.tensors().into_iter().map(|(name, tensor)| (rename(&name), tensor));
    let more = more.iter().map(|(name, dtype, shape, bytes)| {
        (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).expect("sizes fit"))
    });
    let all: Vec<(String, TensorView)> = renamed.chain(more).collect();
    safetensors::serialize_to_file(all, None, &target.join("model.safetensors")).expect("a file can be written");
}

/// Copies all files but weights and goldens.
pub(crate) fn copy_description(source: &Path, target: &Path) {
    fs::create_dir_all(target).expect("a scratch directory can be made");
    for entry in fs::read_dir(source).expect("a fixture can be read") {
        let path = entry.expect("entries can be read").path();
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        if !name.starts_with("golden") && name != "model.safetensors" {
            fs::copy(&path, target.join(name)).expect("files can be copied");
        }
    }
}

fn stored_type(tensor: &TensorView, storage: Storage) -> Dtype {
    match storage {
        _ if tensor.dtype() == Dtype::U8 => Dtype::U8,
        Storage::F32 => Dtype::F32,
        Storage::F16 => Dtype::F16,
        Storage::Bf16 => Dtype::BF16,
    }
}

/// The tensor's values in another type, which must hold them exactly; bytes stay bytes.
fn converted(tensor: &TensorView, storage: Storage) -> Vec<u8> {
    if tensor.dtype() == Dtype::U8 {
        return tensor.data().to_vec();
    }
    assert_eq!(tensor.dtype(), Dtype::BF16, "fixtures are stored as bf16");
    let values = tensor.data().chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32());
    let mut bytes = Vec::new();
    for value in values {
        match storage {
            Storage::F32 => bytes.extend(value.to_le_bytes()),
            Storage::F16 => {
                assert_eq!(f16::from_f32(value).to_f32(), value, "fixtures are exact in f16");
                bytes.extend(f16::from_f32(value).to_le_bytes());
            }
            Storage::Bf16 => bytes.extend(bf16::from_f32(value).to_le_bytes()),
        }
    }
    bytes
}
