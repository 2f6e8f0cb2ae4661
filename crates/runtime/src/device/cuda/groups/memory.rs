//! Whose memory tensors of steps share: what a group may compute at once.

use crate::device::{Step, Tensor};
use std::sync::Arc;

/// Whether both are one tensor.
pub fn is_same(a: &Tensor, b: &Tensor) -> bool {
    Arc::ptr_eq(&a.buffer.0, &b.buffer.0) && a.offset_bytes == b.offset_bytes && a.ty == b.ty
}

/// Whether no step writes what another one of them reads or writes.
pub fn are_apart(steps: &[Step]) -> bool {
    steps.iter().enumerate().all(|(place, step)| {
        let others = steps.iter().enumerate().filter(|(other, _)| *other != place);
        others
            .flat_map(|(_, other)| other.inputs.iter().chain([&other.output]))
            .all(|tensor| !overlap(&step.output, tensor))
    })
}

/// Whether they share a byte.
pub fn overlap(a: &Tensor, b: &Tensor) -> bool {
    let range = |tensor: &Tensor| (tensor.offset_bytes, tensor.offset_bytes + tensor.ty.held().bytes());
    let ((a_first, a_end), (b_first, b_end)) = (range(a), range(b));
    Arc::ptr_eq(&a.buffer.0, &b.buffer.0) && a_first < b_end && b_first < a_end
}
