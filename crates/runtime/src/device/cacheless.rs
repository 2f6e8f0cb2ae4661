//! A device without a KV cache (`--kv-device cpu`): the cache and attention move to the host, and the device memory is
//! free for weights.
//!
//! ```text
//! card   q k v of the new tokens ─┐                            ┌─▶ output projection, feed-forward
//! host                            └─▶ stored, attention ───────┘
//! ```
//!
//! The device declines every operator that reads or writes the cache, so planning places these operators on the host.
//! A token's queries, keys, values and result are a few rows, while the cache has one row per token of the sequence.

use super::{Decorator, Device, Tensor};
use crate::error::Result;
use crate::profile::Profile;
use std::sync::Arc;
use trueup_graph::{Op, TensorType};

/// Why it does not compute them.
const REASON: &str = "the KV cache is configured to stay on the host";

/// Another device, which keeps no KV cache.
pub struct Cacheless(Arc<dyn Device>);

impl Cacheless {
    /// The device without what is computed on a KV cache.
    pub fn new(device: Arc<dyn Device>) -> Cacheless {
        Cacheless(device)
    }
}

impl Decorator for Cacheless {
    fn device(&self) -> &dyn Device {
        &*self.0
    }

    fn supports(&self, op: &Op, inputs: &[TensorType], output: &TensorType) -> std::result::Result<Profile, String> {
        if is_on_cache(op) { Err(REASON.to_owned()) } else { self.0.supports(op, inputs, output) }
    }

    fn copy(&self, source: &Tensor, from: &dyn Device, target: &Tensor) -> Result<()> {
        self.0.copy(source, from, target)
    }

    fn gather(&self, ours: &Tensor, theirs: &Tensor) -> Result<Option<&str>> {
        self.0.gather(ours, theirs)
    }
}

/// Whether an operator reads or writes a KV cache.
pub(crate) fn is_on_cache(op: &Op) -> bool {
    matches!(op, Op::KvStore(_) | Op::KvScores(_) | Op::KvMix(_) | Op::KvAttention(_))
}
