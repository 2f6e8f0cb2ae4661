//! Nanoseconds per weight of each encoder, on one thread, for normally distributed weights.
//!
//!     cargo bench -p trueup-blocks --bench encode -- [TYPE ...]
//!
//! Prints the fastest of several runs for each type, and hashes of the bytes to compare builds with.
#![allow(clippy::print_stdout, reason = "a measurement for people")]

use std::time::Instant;
use trueup_blocks::DType;

/// Weights of a run.
const WEIGHTS: usize = 1 << 21;
const RUNS: usize = 5;

/// Normally distributed numbers, by Marsaglia's polar method on a linear congruential generator.
fn normal(len: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut unit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let mut numbers = Vec::with_capacity(len);
    while numbers.len() < len {
        let (x, y) = (unit(), unit());
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            let factor = 0.02 * (-2.0 * square.ln() / square).sqrt();
            numbers.extend([x * factor, y * factor]);
        }
    }
    numbers
}

/// FNV-1a: the same in every build.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn main() {
    let names: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let dtypes: Vec<DType> = DType::all().filter(|dtype| dtype.codec().is_some()).collect();
    for name in &names {
        let is_known = dtypes.iter().any(|dtype| dtype.to_string() == *name);
        assert!(is_known, "{name} is not a type with an encoder");
    }
    let weights = normal(WEIGHTS);
    let importance: Vec<f32> = normal(1 << 12).iter().map(|number| number.abs()).collect();
    for dtype in dtypes {
        let name = dtype.to_string();
        let Some(codec) = dtype.codec().filter(|_| names.is_empty() || names.contains(&name)) else { continue };
        let mut bytes = vec![0; WEIGHTS / dtype.block_len() * dtype.block_bytes()];
        let mut fastest = |encode: &dyn Fn(&mut [u8])| {
            let seconds = (0..RUNS).map(|_| {
                let start = Instant::now();
                encode(&mut bytes);
                start.elapsed().as_secs_f64()
            });
            let seconds = seconds.fold(f64::INFINITY, f64::min);
            (seconds * 1e9 / WEIGHTS as f64, hash(&bytes))
        };
        let (plain, hash) = fastest(&|bytes| (codec.encode)(&weights, bytes));
        let (weighted, weighted_hash) = fastest(&|bytes| (codec.encode_weighted)(&weights, &importance, bytes));
        println!(
            "{name:8} {plain:7.3} ns per weight ({hash:08x}), {weighted:7.3} with importance ({weighted_hash:08x})"
        );
    }
}
