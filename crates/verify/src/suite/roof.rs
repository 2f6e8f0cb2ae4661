//! What the machine can do at most, measured in the same run as what it does.
//!
//! - reading: all threads add up one large array of f32, each its own part, in as many partial sums as it takes to wait for memory only;
//! - copying: all threads copy one large array to another; bytes read and bytes written both count;
//! - multiplying: all threads run independent chains of fused multiply-add of f32 in registers, with the instruction set that the device uses.
//!
//! Each is the best of several passes: a roof is what was possible once. Kernels on 8-bit integers may go beyond the roof of multiplying,
//! and data that fits into a cache beyond that of reading.

use rayon::prelude::*;
use serde::Serialize;
use std::time::Instant;
use trueup_runtime::device::cpu::{Cpu, CpuOptions, Isa};
use trueup_runtime::{DeviceOptions, Error, Result};

/// Bytes of the arrays: more than caches hold.
const ARRAY_BYTES: usize = 256 << 20;

/// Passes of which the best counts.
const PASSES: usize = 5;

/// Rounds of multiplication in a pass of some ten milliseconds.
const ROUNDS: usize = 1 << 20;

/// The roofs of this machine's processor.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Roof {
    /// What was measured.
    pub what: &'static str,
    /// Threads that were used.
    pub threads: usize,
    /// The instruction set of the multiplications.
    pub isa: &'static str,
    /// Reading from memory, in 10^9 bytes a second.
    pub read_gb_per_s: f64,
    /// Copying in memory, in 10^9 bytes read and written a second.
    pub copy_gb_per_s: f64,
    /// Multiplications and additions of f32, in 10^9 a second.
    pub multiply_gflop_per_s: f64,
}

impl Roof {
    /// Measures on as many threads, and with the instruction set, that a device of these options has. Fails where there is no memory or no such
    /// instruction set.
    pub fn measure(options: &DeviceOptions) -> Result<Roof> {
        let defaults = CpuOptions::default();
        let isa = options.isa.as_deref().and_then(Isa::from_name);
        let cpu = Cpu::new(CpuOptions { threads: options.threads.unwrap_or(defaults.threads), isa, ..defaults })?;
        let threads = cpu.threads();
        let failure = |problem: String| Error::Device { device: "cpu".to_owned(), problem };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| failure(format!("{threads} threads cannot be started: {error}")))?;
        let array = || -> Result<Vec<f32>> {
            let mut array: Vec<f32> = Vec::new();
            let len = ARRAY_BYTES / size_of::<f32>();
            let room = array.try_reserve_exact(len);
            room.map_err(|_| failure(format!("no memory for {ARRAY_BYTES} bytes to measure the memory's speed with")))?;
            array.resize(len, 1.0);
            Ok(array)
        };
        let (source, mut target) = (array()?, array()?);
        let part = source.len().div_ceil(threads);
        let read = pool.install(|| best(|| read(&source, part)));
        let copy = pool.install(|| best(|| copy(&source, &mut target, part)));
        Ok(Roof {
            what: "reading and copying large arrays with all threads; f32 fused multiply-add in registers on all threads",
            threads,
            isa: cpu.isa().name(),
            read_gb_per_s: read / 1e9,
            copy_gb_per_s: copy / 1e9,
            multiply_gflop_per_s: best(|| cpu.multiply_add(ROUNDS)) / 1e9,
        })
    }

    /// The most of each that was possible in one of two measurements of the same device.
    pub(super) fn best_of(self, other: Roof) -> Roof {
        Roof {
            read_gb_per_s: self.read_gb_per_s.max(other.read_gb_per_s),
            copy_gb_per_s: self.copy_gb_per_s.max(other.copy_gb_per_s),
            multiply_gflop_per_s: self.multiply_gflop_per_s.max(other.multiply_gflop_per_s),
            ..self
        }
    }

    /// The least time in which so many bytes can be moved and so many operations be done, in seconds.
    pub(super) fn seconds(&self, bytes: u64, operations: u64) -> f64 {
        let moving = bytes as f64 / (self.read_gb_per_s.max(self.copy_gb_per_s) * 1e9);
        moving.max(operations as f64 / (self.multiply_gflop_per_s * 1e9))
    }
}

/// The most units a second that a pass, which gives its units, did.
fn best(mut pass: impl FnMut() -> u64) -> f64 {
    let once = |_| {
        let start = Instant::now();
        let units = pass();
        units as f64 / start.elapsed().as_secs_f64()
    };
    (0..PASSES).map(once).fold(0.0, f64::max)
}

/// Reads the array and gives its bytes.
fn read(source: &[f32], part: usize) -> u64 {
    const LANES: usize = 64;
    let add = |part: &[f32]| {
        let mut sums = [0.0f32; LANES];
        for chunk in part.as_chunks::<LANES>().0 {
            for (sum, value) in sums.iter_mut().zip(chunk) {
                *sum += value;
            }
        }
        sums.iter().sum::<f32>()
    };
    std::hint::black_box(source.par_chunks(part).map(add).sum::<f32>());
    size_of_val(source) as u64
}

/// Copies the array and gives the bytes read and written.
fn copy(source: &[f32], target: &mut [f32], part: usize) -> u64 {
    target
        .par_chunks_mut(part)
        .zip(source.par_chunks(part))
        .for_each(|(target, source)| target.copy_from_slice(source));
    std::hint::black_box(target);
    2 * size_of_val(source) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_of_moving_and_multiplying_is_the_roof() {
        let roof = Roof {
            what: "",
            threads: 1,
            isa: "scalar",
            read_gb_per_s: 10.0,
            copy_gb_per_s: 8.0,
            multiply_gflop_per_s: 100.0,
        };
        assert_eq!(roof.seconds(10_000_000_000, 1), 1.0);
        assert_eq!(roof.seconds(1, 200_000_000_000), 2.0);
        let other = Roof { read_gb_per_s: 5.0, multiply_gflop_per_s: 200.0, ..roof.clone() };
        let best = roof.best_of(other);
        assert_eq!((best.read_gb_per_s, best.copy_gb_per_s, best.multiply_gflop_per_s), (10.0, 8.0, 200.0));
    }
}
