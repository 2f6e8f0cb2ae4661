//! Writes the keys of a GGUF file.

use crate::architecture::Architecture;
use crate::number::nearest_f32;
use crate::rope::yarn_magnitude;
use trueup_formats::gguf::{Metadata, Value};
use trueup_graph::op::RopeScaling;

/// Writes keys that start with the architecture's name.
pub(crate) struct KeyWriter<'a> {
    pub(super) architecture: &'a Architecture,
    pub(super) metadata: &'a mut Metadata,
}

impl KeyWriter<'_> {
    pub fn value(&mut self, key: &str, value: impl Into<Value>) {
        self.metadata.insert(format!("{}.{key}", self.architecture.gguf_name), value);
    }

    /// A key that all architectures share.
    pub fn shared_value(&mut self, key: &str, value: impl Into<Value>) {
        self.metadata.insert(key, value);
    }

    /// A count, which is below 2^32 because every count has a limit.
    pub fn count(&mut self, key: &str, count: usize) {
        self.value(key, u32::try_from(count).unwrap_or_else(|_| unreachable!("{key} of {count} was refused")));
    }

    /// The count of each layer: one number if all are equal, else an array.
    pub fn per_layer(&mut self, key: &str, counts: impl Iterator<Item = usize>) {
        let counts: Vec<usize> = counts.collect();
        let Some(first) = counts.first().copied() else { return };
        if counts.iter().all(|count| *count == first) {
            return self.count(key, first);
        }
        let counts: Vec<u32> = counts.into_iter().map(|count| u32::try_from(count).unwrap_or(u32::MAX)).collect();
        self.value(key, counts);
    }

    pub(super) fn scaling(&mut self, scaling: &RopeScaling) {
        match *scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => {
                self.value("rope.scaling.type", "linear");
                self.value("rope.scaling.factor", factor);
            }
            RopeScaling::Long { magnitude } => {
                self.value("rope.scaling.type", "longrope");
                self.value("rope.scaling.attn_factor", magnitude);
            }
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude } => {
                self.value("rope.scaling.type", "yarn");
                self.value("rope.scaling.factor", factor);
                self.value("rope.scaling.original_context_length", original_context);
                let usual = yarn_magnitude(f64::from(factor), 1.0);
                for (key, value, default) in [
                    ("rope.scaling.attn_factor", nearest_f32(f64::from(magnitude) / usual), 1.0),
                    ("rope.scaling.yarn_beta_fast", beta_fast, 32.0),
                    ("rope.scaling.yarn_beta_slow", beta_slow, 1.0),
                ] {
                    if value != default {
                        self.value(key, value);
                    }
                }
            }
        }
    }
}
