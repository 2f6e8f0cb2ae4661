//! Sources that FastLLM's files store as the rows of one tensor.

use crate::checkpoint::{Part, Target, qkv_place};

/// The rows of a part in a fused tensor.
#[derive(Clone, Copy)]
pub(crate) enum FusedPart {
    Qkv(Part),
    Gate,
    Up,
}

/// Names of sources that FastLLM stores as the rows of one tensor.
const FUSED: [(&str, &str, FusedPart); 5] = [
    ("self_attn.q_proj.", "self_attn.mergeqkv.", FusedPart::Qkv(Part::Query)),
    ("self_attn.k_proj.", "self_attn.mergeqkv.", FusedPart::Qkv(Part::Key)),
    ("self_attn.v_proj.", "self_attn.mergeqkv.", FusedPart::Qkv(Part::Value)),
    ("mlp.gate_proj.", "mlp.gateup_proj.", FusedPart::Gate),
    ("mlp.up_proj.", "mlp.gateup_proj.", FusedPart::Up),
];

/// The fused tensor that may have the rows of this source, and which of them they are.
pub(crate) fn fused(source: &str) -> Option<(String, FusedPart)> {
    let (own, whole, part) = FUSED.iter().find(|(own, _, _)| source.contains(own))?;
    Some((source.replace(own, whole), *part))
}

impl FusedPart {
    /// The first row of the part, and the rows of the whole tensor.
    pub fn place(self, target: &Target) -> (u64, u64) {
        match self {
            FusedPart::Qkv(part) => qkv_place(target, part),
            FusedPart::Gate => (0, target.rows().saturating_mul(2)),
            FusedPart::Up => (target.rows(), target.rows().saturating_mul(2)),
        }
    }
}
