//! Which model a file holds: a hash of each tensor, and one of all.
//!
//! ```text
//!   bytes of a tensor ──sha256──▶ its digits ─┐
//!   name, type, sizes ────────────────────────┴─ in the order of names ──sha256──▶ the model
//! ```
//!
//! Other weights, other types and other shapes give another one; another name or order of the file does not.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use trueup_formats::{TensorInfo, hexadecimal};
use trueup_runtime::{ModelFile, Result};

/// One tensor of a model.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct TensorFacts {
    pub name: String,
    #[serde(rename = "type")]
    pub dtype: String,
    /// Innermost size first.
    pub shape: Vec<u64>,
    /// Of its bytes, in hexadecimal.
    pub sha256: String,
}

/// The tensors of a model, in the order of its file; each is read on one thread of the pool this is called in. Fails
/// where the file cannot be read.
pub(crate) fn tensor_facts(model: &ModelFile) -> Result<Vec<TensorFacts>> {
    let facts = |tensor: &TensorInfo| {
        let mut hash = Sha256::new();
        model.each_piece(&tensor.name, &mut |piece| hash.update(piece))?;
        let (name, dtype) = (tensor.name.clone(), tensor.dtype.name().to_owned());
        Ok(TensorFacts { name, dtype, shape: tensor.shape.clone(), sha256: hexadecimal(&hash.finalize()) })
    };
    // One at a time: the largest tensors are often neighbours.
    model.tensors().par_iter().with_max_len(1).map(facts).collect()
}

/// sha256 over each tensor's name, type, sizes and the digits of its hash, in the order of names.
pub(crate) fn model_hash(facts: &[TensorFacts]) -> String {
    let mut tensors: Vec<&TensorFacts> = facts.iter().collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let mut hash = Sha256::new();
    for TensorFacts { name, dtype, shape, sha256 } in tensors {
        // Lengths before what varies in length: no two models are the same text.
        for part in [name, dtype, sha256] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update((shape.len() as u64).to_le_bytes());
        shape.iter().for_each(|size| hash.update(size.to_le_bytes()));
    }
    hexadecimal(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(name: &str, dtype: &str, shape: &[u64], sha256: &str) -> TensorFacts {
        let [name, dtype, sha256] = [name, dtype, sha256].map(str::to_owned);
        TensorFacts { name, dtype, shape: shape.to_vec(), sha256 }
    }

    #[test]
    fn every_fact_of_a_tensor_counts_and_their_order_does_not() {
        let other = facts("b", "f32", &[4], "2");
        let hash = |first: TensorFacts| model_hash(&[first, other.clone()]);
        let usual = hash(facts("a", "f16", &[2, 4], "1"));
        assert_eq!(usual, model_hash(&[other.clone(), facts("a", "f16", &[2, 4], "1")]));
        // python: part = lambda s: struct.pack("<Q", len(s)) + s sha256(b"".join(part(n) + part(t) + part(h) +
        // struct.pack(f"<{1 + len(s)}Q", len(s), *s) for n, t, s, h in tensors))
        assert_eq!(usual, "3cd2b543faa14bc5a69598b5faa3fd29662434f6a293ed8398f63a0d74066ced");
        for changed in [
            facts("c", "f16", &[2, 4], "1"),
            facts("a", "f32", &[2, 4], "1"),
            facts("a", "f16", &[4, 2], "1"),
            facts("a", "f16", &[2, 4, 1], "1"),
            facts("a", "f16", &[2, 4], "3"),
            facts("af", "16", &[2, 4], "1"),
        ] {
            assert_ne!(hash(changed.clone()), usual, "{changed:?}");
        }
    }
}
