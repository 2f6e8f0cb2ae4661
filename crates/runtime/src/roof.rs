//! What the machine can do at most, measured in the same run as what it does.
//!
//! - reading: all threads read one large array, on huge pages where the system gives them, in large registers; of several ways (one part for each thread, or small parts as threads are
//!   free; asked for ahead, or not) the fastest;
//! - copying: all threads copy one large array to another; bytes read and bytes written both count;
//! - multiplying: all threads run independent chains of fused multiply-add of f32 in registers, with the instruction set that the device uses;
//! - multiplying codes: all threads multiply 8-bit codes and add them up in i32, in registers, with the same instruction set.
//!
//! Each is the best of several passes: a roof is what was possible once. Data that fits into a cache may be read faster.

use crate::device::cpu::{Cpu, CpuOptions, Isa, Line};
use crate::devices::DeviceOptions;
use crate::error::{Error, Result};
use crate::profile::{Accumulator, Activations, Profile};
use memmap2::MmapMut;
use rayon::prelude::*;
use serde::Serialize;
use std::ops::{Add, AddAssign};
use std::time::{Duration, Instant};

/// Bytes of the arrays: more than caches hold.
const ARRAY_BYTES: usize = 256 << 20;

/// Bytes that a thread reads at a time where threads take what is next.
const PART_BYTES: usize = 2 << 20;

/// How far ahead lines are asked for, where they are.
const AHEAD_BYTES: usize = 4096;

/// Passes of which the best counts.
const PASSES: usize = 5;

/// What a pass in registers takes at least.
const PASS: Duration = Duration::from_millis(10);

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
    /// Multiplications of 8-bit codes and additions of the products, in 10^9 a second.
    pub int8_gop_per_s: f64,
}

/// Multiplications and additions of products, by what they are computed in.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Operations {
    /// In floating point.
    pub f32: u64,
    /// On 8-bit codes, in integers.
    pub int8: u64,
}

impl Operations {
    /// So many operations of an operator that declares this arithmetic.
    pub fn of(profile: &Profile, count: u64) -> Operations {
        let codes = matches!(profile.activations, Activations::Q8 { .. });
        match profile.accumulator {
            Accumulator::Int32ThenF32 if codes => Operations { f32: 0, int8: count },
            Accumulator::F16 | Accumulator::F32 | Accumulator::F64 | Accumulator::Int32ThenF32 => {
                Operations { f32: count, int8: 0 }
            }
        }
    }

    /// Both together.
    pub fn count(&self) -> u64 {
        self.f32 + self.int8
    }
}

impl Add for Operations {
    type Output = Operations;

    fn add(self, other: Operations) -> Operations {
        Operations { f32: self.f32 + other.f32, int8: self.int8 + other.int8 }
    }
}

impl AddAssign for Operations {
    fn add_assign(&mut self, other: Operations) {
        *self = *self + other;
    }
}

impl Roof {
    /// Measures on as many threads, and with the instruction set, that a device of these options has. Fails where there is no memory or no such
    /// instruction set.
    pub fn measure(options: &DeviceOptions) -> Result<Roof> {
        let defaults = CpuOptions::default();
        let isa = options.isa.as_deref().and_then(Isa::from_name);
        let cpu = Cpu::new(CpuOptions { threads: options.threads.unwrap_or(defaults.threads), isa, ..defaults })?;
        let threads = cpu.threads();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|error| failure(format!("{threads} threads cannot be started: {error}")))?;
        let (source, mut target) = (array()?, array()?);
        let copy = pool.install(|| best(|| copy(&source, &mut target, ARRAY_BYTES.div_ceil(threads))));
        let source = source.as_chunks().0;
        let whole = source.len().div_ceil(threads);
        let small = PART_BYTES / size_of::<Line>();
        let ways = [(whole, 0), (whole, AHEAD_BYTES), (small, 0), (small, AHEAD_BYTES)];
        let read = ways.map(|(part, ahead)| best(|| cpu.read_lines(source, part, ahead)));
        Ok(Roof {
            what: "reading and copying large arrays with all threads; f32 fused multiply-add, and products of 8-bit codes added up in i32, in \
                registers on all threads",
            threads,
            isa: cpu.isa().name(),
            read_gb_per_s: read.into_iter().fold(0.0, f64::max) / 1e9,
            copy_gb_per_s: copy / 1e9,
            multiply_gflop_per_s: best_in_registers(|rounds| cpu.multiply_add(rounds)) / 1e9,
            int8_gop_per_s: best_in_registers(|rounds| cpu.multiply_int8(rounds)) / 1e9,
        })
    }

    /// The most of each that was possible in one of two measurements of the same device.
    #[must_use]
    pub fn best_of(self, other: Roof) -> Roof {
        Roof {
            read_gb_per_s: self.read_gb_per_s.max(other.read_gb_per_s),
            copy_gb_per_s: self.copy_gb_per_s.max(other.copy_gb_per_s),
            multiply_gflop_per_s: self.multiply_gflop_per_s.max(other.multiply_gflop_per_s),
            int8_gop_per_s: self.int8_gop_per_s.max(other.int8_gop_per_s),
            ..self
        }
    }

    /// The least time in which so many bytes can be read or written and so many operations be done, in seconds.
    pub fn seconds(&self, bytes: u64, operations: Operations) -> f64 {
        let moving = bytes as f64 / (self.read_gb_per_s.max(self.copy_gb_per_s) * 1e9);
        moving.max(self.computing_seconds(operations))
    }

    /// As [`Roof::seconds`], of bytes that are only read.
    pub fn reading_seconds(&self, bytes: u64, operations: Operations) -> f64 {
        (bytes as f64 / (self.read_gb_per_s * 1e9)).max(self.computing_seconds(operations))
    }

    fn computing_seconds(&self, operations: Operations) -> f64 {
        operations.f32 as f64 / (self.multiply_gflop_per_s * 1e9) + operations.int8 as f64 / (self.int8_gop_per_s * 1e9)
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

/// As [`best`], in passes of as many rounds as take long enough to be timed.
fn best_in_registers(pass: impl Fn(usize) -> u64) -> f64 {
    let takes_long = |rounds: &usize| {
        let start = Instant::now();
        pass(*rounds);
        start.elapsed() >= PASS
    };
    let rounds = (10..30).map(|power| 1 << power).find(takes_long).unwrap_or(1 << 30);
    best(|| pass(rounds))
}

/// Memory that was written, on huge pages where the system gives them.
fn array() -> Result<MmapMut> {
    let no_memory = |error: std::io::Error| {
        failure(format!("no memory for {ARRAY_BYTES} bytes to measure the memory's speed with: {error}"))
    };
    let mut array = MmapMut::map_anon(ARRAY_BYTES).map_err(no_memory)?;
    // Where the system refuses, pages are small.
    #[cfg(target_os = "linux")]
    let _ = array.advise(memmap2::Advice::HugePage);
    array.fill(1);
    Ok(array)
}

/// Copies the array and gives the bytes read and written.
fn copy(source: &[u8], target: &mut [u8], part: usize) -> u64 {
    target
        .par_chunks_mut(part)
        .zip(source.par_chunks(part))
        .for_each(|(target, source)| target.copy_from_slice(source));
    std::hint::black_box(target);
    2 * size_of_val(source) as u64
}

fn failure(problem: String) -> Error {
    Error::Device { device: "cpu".to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Rounding;

    #[test]
    fn the_slower_of_moving_and_multiplying_is_the_roof() {
        let roof = Roof {
            what: "",
            threads: 1,
            isa: "scalar",
            read_gb_per_s: 10.0,
            copy_gb_per_s: 20.0,
            multiply_gflop_per_s: 100.0,
            int8_gop_per_s: 400.0,
        };
        let both = Operations { f32: 200_000_000_000, int8: 400_000_000_000 };
        assert_eq!(roof.seconds(20_000_000_000, Operations::default()), 1.0);
        assert_eq!(roof.reading_seconds(20_000_000_000, Operations::default()), 2.0);
        assert_eq!((roof.seconds(1, both), roof.reading_seconds(1, both)), (3.0, 3.0));
        let other = Roof { read_gb_per_s: 5.0, multiply_gflop_per_s: 200.0, ..roof.clone() };
        let best = roof.best_of(other);
        assert_eq!((best.read_gb_per_s, best.copy_gb_per_s, best.multiply_gflop_per_s), (10.0, 20.0, 200.0));
        assert_eq!((best.int8_gop_per_s, both.count()), (400.0, 600_000_000_000));
    }

    #[test]
    fn operations_count_as_their_profile_says() {
        let codes = Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false };
        let integers = Profile { activations: codes, accumulator: Accumulator::Int32ThenF32, ..Profile::F32 };
        assert_eq!(Operations::of(&integers, 7), Operations { f32: 0, int8: 7 });
        for profile in [Profile { activations: codes, ..Profile::F32 }, Profile::F32, Profile::EXACT] {
            assert_eq!(Operations::of(&profile, 7), Operations { f32: 7, int8: 0 });
        }
    }

    #[test]
    fn a_measured_roof_has_every_number() {
        let roof = Roof::measure(&DeviceOptions { threads: Some(1), ..DeviceOptions::default() }).unwrap();
        for number in [roof.read_gb_per_s, roof.copy_gb_per_s, roof.multiply_gflop_per_s, roof.int8_gop_per_s] {
            assert!(number.is_finite() && number > 0.01, "{roof:?}");
        }
    }
}
