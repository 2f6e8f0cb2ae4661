//! What tensors are packed and computed with.

use super::spare::Spares;
use super::team::Team;
use trueup_kernels::Instructions;

/// Kernels, threads and room.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    /// Which kernels to call.
    pub instructions: Instructions,
    /// Who computes.
    pub team: &'a Team,
    /// Room for numbers in another form.
    pub spares: &'a Spares,
}
