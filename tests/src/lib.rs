//! What the end-to-end tests share: the fixtures, their goldens, and copies of them in other storage.

mod caches;
mod fixture;
pub mod fuzz;
mod llama2c;
mod published;
mod started;
mod storage;
mod traced;
mod verdict;
mod way;
mod wide;

pub use caches::caches;
pub use fixture::{
    DOWNLOADED_MODELS, Fixture, Prompt, Text, all_fixtures, downloaded_model, encoder_decoders, encoders, few_fixtures,
    fixture, fixtures, fixtures_of_other_kinds, flm, plain_fixture, root, stories,
};
pub use llama2c::{Version, write_llama2c};
pub use published::{Published, published, published_config_fixtures};
pub use started::run_written;
pub use storage::{NewTensor, Storage, write_renamed, write_variant};
pub use traced::{compared, quantized_fixture, with_number, with_tensor};
pub use verdict::{VERIFIED_TYPES, fell_back, verdict};
pub use way::{Said, convert, quantize, say, say_exact};
pub use wide::write_wide;

/// `sum (y - r)^2 / sum r^2` over all elements. The reference divides, so an inflated result does not look better; NaN
/// anywhere gives infinity.
pub fn nmse(got: &[f64], reference: &[f64]) -> f64 {
    assert_eq!(got.len(), reference.len(), "both sides have the same number of elements");
    let error: f64 = got.iter().zip(reference).map(|(y, r)| (y - r).powi(2)).sum();
    let energy: f64 = reference.iter().map(|r| r * r).sum();
    let nmse = error / energy;
    if nmse.is_nan() { f64::INFINITY } else { nmse }
}
