//! Variants of the encoders for aarch64, where every processor has NEON: the searches with a group in each lane of a
//! vector of four.

pub(crate) mod compiled;
pub(crate) mod lanes;
