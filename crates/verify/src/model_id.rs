//! Whether two files hold the same model, without reading all of either.

use sha2::{Digest, Sha256};
use trueup_runtime::{ModelFile, Result};

/// Bytes that are read at each end of a tensor.
const END_BYTES: usize = 4096;

/// sha256 over each tensor's name, type, sizes, and the first and last 4096 bytes, in the order of names: other weights, other types and
/// other shapes give another one, another name or order of the file does not. Fails where the file cannot be read.
pub(crate) fn model_id(model: &ModelFile) -> Result<String> {
    let mut tensors: Vec<_> = model.tensors().iter().collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let mut hash = Sha256::new();
    for tensor in tensors {
        let bytes = model.tensor_bytes(&tensor.name)?;
        // Lengths before what varies in length: no two models are the same text.
        for part in [tensor.name.as_bytes(), tensor.dtype.name().as_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update((tensor.shape.len() as u64).to_le_bytes());
        tensor.shape.iter().for_each(|size| hash.update(size.to_le_bytes()));
        hash.update(&bytes[..bytes.len().min(END_BYTES)]);
        hash.update(&bytes[bytes.len().saturating_sub(END_BYTES)..]);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
