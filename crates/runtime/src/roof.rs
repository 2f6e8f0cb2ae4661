//! The hardware limit of a device, measured in the same run as its speed: by [`host`] on the processor, by kernels on
//! a GPU.
//!
//! - reading and copying large arrays; a copy counts bytes read and bytes written;
//! - f32: independent chains of fused multiply-add in registers;
//! - 8-bit integers: products accumulated in i32, in registers;
//! - f16, if the hardware has units for it: products accumulated in f32.
//!
//! Each value is the best of several passes. Data that fits into a cache may be read faster.

pub(crate) mod host;

use crate::error::Result;
use crate::profile::{Accumulator, Activations, Profile};
use serde::Serialize;
use std::ops::{Add, AddAssign};
use std::time::{Duration, Instant};

/// Passes of which the best counts.
const PASSES: usize = 5;

/// What a pass in registers takes at least.
const PASS: Duration = Duration::from_millis(10);

/// The roofs of one device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Roof {
    /// What was measured.
    pub what: &'static str,
    /// Threads of the processor, or multiprocessors of the card, that were used.
    pub threads: usize,
    /// Which of them: `thread`, `multiprocessor`.
    pub unit: &'static str,
    /// The instruction set of the multiplications.
    pub isa: String,
    /// Reading from memory, in 10^9 bytes a second.
    pub read_gb_per_s: f64,
    /// Copying in memory, in 10^9 bytes read and written a second.
    pub copy_gb_per_s: f64,
    /// Multiplications and additions of f32, in 10^9 a second.
    pub multiply_gflop_per_s: f64,
    /// Multiplications of 8-bit codes and additions of the products, in 10^9 a second.
    pub int8_gop_per_s: f64,
    /// Multiplications of f16 and additions of the products in f32, in 10^9 a second; null where no unit does that.
    pub f16_gflop_per_s: Option<f64>,
}

/// Multiplications and additions of products, by what they are computed in.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Operations {
    /// In floating point.
    pub f32: u64,
    /// On 8-bit codes, in integers.
    pub int8: u64,
    /// On f16, with sums in f32.
    pub f16: u64,
}

impl Operations {
    /// So many operations of an operator that declares this arithmetic.
    pub fn of(profile: &Profile, count: u64) -> Operations {
        let none = Operations::default();
        match (profile.accumulator, profile.activations) {
            (Accumulator::Int32ThenF32, Activations::Q8 { .. }) => Operations { int8: count, ..none },
            (Accumulator::F32 | Accumulator::TensorCore { .. }, Activations::F16) => Operations { f16: count, ..none },
            _ => Operations { f32: count, ..none },
        }
    }

    /// All together.
    pub fn count(&self) -> u64 {
        self.f32 + self.int8 + self.f16
    }
}

impl Add for Operations {
    type Output = Operations;

    fn add(self, other: Operations) -> Operations {
        Operations { f32: self.f32 + other.f32, int8: self.int8 + other.int8, f16: self.f16 + other.f16 }
    }
}

impl AddAssign for Operations {
    fn add_assign(&mut self, other: Operations) {
        *self = *self + other;
    }
}

impl Roof {
    /// The most of each that was possible in one of two measurements of the same device.
    #[must_use]
    pub fn best_of(self, other: Roof) -> Roof {
        Roof {
            read_gb_per_s: self.read_gb_per_s.max(other.read_gb_per_s),
            copy_gb_per_s: self.copy_gb_per_s.max(other.copy_gb_per_s),
            multiply_gflop_per_s: self.multiply_gflop_per_s.max(other.multiply_gflop_per_s),
            int8_gop_per_s: self.int8_gop_per_s.max(other.int8_gop_per_s),
            f16_gflop_per_s: self.f16_gflop_per_s.zip(other.f16_gflop_per_s).map(|(own, other)| own.max(other)),
            ..self
        }
    }

    /// The minimum time, in seconds, to read or write these bytes and to execute these operations.
    pub fn seconds(&self, bytes: u64, operations: Operations) -> f64 {
        let moving = bytes as f64 / (self.read_gb_per_s.max(self.copy_gb_per_s) * 1e9);
        moving.max(self.computing_seconds(operations))
    }

    /// As [`Roof::seconds`], of bytes that are only read.
    pub fn reading_seconds(&self, bytes: u64, operations: Operations) -> f64 {
        (bytes as f64 / (self.read_gb_per_s * 1e9)).max(self.computing_seconds(operations))
    }

    fn computing_seconds(&self, operations: Operations) -> f64 {
        let seconds = |operations: u64, giga_per_s: f64| operations as f64 / (giga_per_s * 1e9);
        seconds(operations.f32, self.multiply_gflop_per_s)
            + seconds(operations.int8, self.int8_gop_per_s)
            + seconds(operations.f16, self.f16_gflop_per_s.unwrap_or(self.multiply_gflop_per_s))
    }
}

/// The most units a second that a pass, which gives its units, did.
pub(crate) fn best(mut pass: impl FnMut() -> Result<u64>) -> Result<f64> {
    let once = |most: f64, _| {
        let start = Instant::now();
        let units = pass()?;
        Ok(most.max(units as f64 / start.elapsed().as_secs_f64()))
    };
    (0..PASSES).try_fold(0.0, once)
}

/// As [`best`], in passes of as many rounds as take long enough to be timed.
pub(crate) fn best_in_registers(pass: impl Fn(usize) -> Result<u64>) -> Result<f64> {
    let mut rounds = 1;
    loop {
        let start = Instant::now();
        pass(rounds)?;
        if start.elapsed() >= PASS || rounds == 1 << 30 {
            return best(|| pass(rounds));
        }
        rounds *= 2;
    }
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
            unit: "thread",
            isa: "scalar".to_owned(),
            read_gb_per_s: 10.0,
            copy_gb_per_s: 20.0,
            multiply_gflop_per_s: 100.0,
            int8_gop_per_s: 400.0,
            f16_gflop_per_s: Some(1000.0),
        };
        let both = Operations { f32: 100_000_000_000, int8: 400_000_000_000, f16: 1_000_000_000_000 };
        assert_eq!(roof.seconds(20_000_000_000, Operations::default()), 1.0);
        assert_eq!(roof.reading_seconds(20_000_000_000, Operations::default()), 2.0);
        assert_eq!((roof.seconds(1, both), roof.reading_seconds(1, both)), (3.0, 3.0));
        let other = Roof { read_gb_per_s: 5.0, multiply_gflop_per_s: 200.0, ..roof.clone() };
        let best = roof.clone().best_of(other);
        assert_eq!((best.read_gb_per_s, best.copy_gb_per_s, best.multiply_gflop_per_s), (10.0, 20.0, 200.0));
        assert_eq!((best.int8_gop_per_s, both.count()), (400.0, 1_500_000_000_000));
        // Where no unit multiplies f16, they are multiplied as f32.
        let without = Roof { f16_gflop_per_s: None, ..roof };
        assert_eq!(without.seconds(1, Operations { f16: 200_000_000_000, ..Operations::default() }), 2.0);
    }

    #[test]
    fn operations_count_as_their_profile_says() {
        let codes = Activations::Q8 { rounding: Rounding::HalfEven, scale_f16: false };
        let integers = Profile { activations: codes, accumulator: Accumulator::Int32ThenF32, ..Profile::F32 };
        let none = Operations::default();
        assert_eq!(Operations::of(&integers, 7), Operations { int8: 7, ..none });
        let halves = Profile { activations: Activations::F16, ..Profile::F32 };
        assert_eq!(Operations::of(&halves, 7), Operations { f16: 7, ..none });
        for profile in [Profile { activations: codes, ..Profile::F32 }, Profile::F32, Profile::EXACT] {
            assert_eq!(Operations::of(&profile, 7), Operations { f32: 7, ..none });
        }
    }
}
