//! The roof of this machine's processor.
//!
//! - reading: all threads read one large array, on huge pages where the system gives them, in large registers; of
//!   several ways (one part for each thread, or small parts as threads are free; asked for ahead, or not) the fastest;
//! - copying: all threads copy one large array to another;
//! - multiplying: all threads run independent chains of fused multiply-add of f32 in registers, with the instruction
//!   set that the device uses;
//! - multiplying codes: all threads multiply 8-bit codes and add them up in i32, in registers, with the same
//!   instruction set.

use super::{Roof, best, best_in_registers};
use crate::device::cpu::{Cpu, Line};
use crate::error::{Error, Result};
use memmap2::MmapMut;
use rayon::prelude::*;

/// Bytes of the arrays: more than caches hold.
const ARRAY_BYTES: usize = 256 << 20;

/// Bytes that a thread reads at a time where threads take what is next.
const PART_BYTES: usize = 2 << 20;

/// How far ahead lines are asked for, where they are.
const AHEAD_BYTES: usize = 4096;

/// Measures on the device's threads, with its instruction set. Fails where there is no memory.
pub fn measure(cpu: &Cpu) -> Result<Roof> {
    let threads = cpu.threads();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|error| failure(format!("{threads} threads cannot be started: {error}")))?;
    let (source, mut target) = (array()?, array()?);
    let copy = pool.install(|| best(|| Ok(copy(&source, &mut target, ARRAY_BYTES.div_ceil(threads)))))?;
    let source = source.as_chunks().0;
    let whole = source.len().div_ceil(threads);
    let small = PART_BYTES / size_of::<Line>();
    let ways = [(whole, 0), (whole, AHEAD_BYTES), (small, 0), (small, AHEAD_BYTES)];
    let read = ways.map(|(part, ahead)| best(|| Ok(cpu.read_lines(source, part, ahead))));
    let read = read.into_iter().try_fold(0.0, |most: f64, read| Ok::<f64, Error>(most.max(read?)))?;
    Ok(Roof {
        what: "reading and copying large arrays with all threads; f32 fused multiply-add and 8-bit products \
            accumulated in i32, in registers on all threads",
        threads,
        unit: "thread",
        isa: cpu.isa().name().to_owned(),
        read_gb_per_s: read / 1e9,
        copy_gb_per_s: copy / 1e9,
        multiply_gflop_per_s: best_in_registers(|rounds| Ok(cpu.multiply_add(rounds)))? / 1e9,
        int8_gop_per_s: best_in_registers(|rounds| Ok(cpu.multiply_int8(rounds)))? / 1e9,
        f16_gflop_per_s: None,
    })
}

/// Memory that was written, on huge pages where the system gives them.
fn array() -> Result<MmapMut> {
    let no_memory = |error: std::io::Error| {
        failure(format!("not enough memory for {ARRAY_BYTES} bytes to measure the memory bandwidth: {error}"))
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
    use crate::device::cpu::CpuOptions;

    #[test]
    fn a_measured_roof_has_every_number() {
        let roof = measure(&Cpu::new(CpuOptions { threads: 1, ..CpuOptions::default() }).unwrap()).unwrap();
        for number in [roof.read_gb_per_s, roof.copy_gb_per_s, roof.multiply_gflop_per_s, roof.int8_gop_per_s] {
            assert!(number.is_finite() && number > 0.01, "{roof:?}");
        }
    }
}
