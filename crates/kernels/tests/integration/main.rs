//! Tests of the kernels. None is in the library, which is therefore compiled once.

mod agreement;
mod formats;
mod functions;
mod instructions;
mod prefetch;
mod products;
mod sums;

use trueup_kernels::{Instructions, Isa};

/// The readable rules.
fn scalar() -> Instructions {
    Instructions::of(Isa::Scalar).expect("every machine has the scalar set")
}
