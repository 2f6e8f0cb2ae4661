//! What this processor does at most, on the threads of the device: the work that its roof is measured with.

use super::Cpu;
use trueup_kernels as kernel;
pub use trueup_kernels::Line;

impl Cpu {
    /// Multiplies 8-bit codes and adds them up in registers on every thread, `rounds` times, and gives how many
    /// operations that was, each multiplication and each addition being one. No kernel of this instruction set does
    /// more of them in the same time.
    pub fn multiply_int8(&self, rounds: usize) -> u64 {
        let (weights, xs) = kernel::int8_codes();
        let work = |_: usize| {
            let mut sums = [0; kernel::INT8_SUMS];
            kernel::dot_int8(self.instructions, rounds, &weights, &xs, &mut sums);
            std::hint::black_box(sums);
        };
        self.run(|means| means.team.each(0..means.team.threads(), 1, work));
        2 * (self.threads() * kernel::INT8_PRODUCTS * rounds) as u64
    }

    /// Reads all lines on all threads and gives their bytes. Threads take `part` lines at a time, those of one part
    /// behind each other, and ask for each line `ahead` bytes before they read it; 0 leaves that to the processor.
    pub fn read_lines(&self, lines: &[Line], part: usize, ahead: usize) -> u64 {
        self.run(|means| {
            means.team.each(lines.chunks(part.max(1)), 1, |part| {
                let mut folded: Line = [0; 64];
                kernel::read_lines(self.instructions, part, ahead, &mut folded);
                std::hint::black_box(folded);
            });
        });
        size_of_val(lines) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::CpuOptions;

    #[test]
    fn operations_and_bytes_are_counted_over_all_threads() {
        let cpu = Cpu::new(CpuOptions { threads: 3, ..CpuOptions::default() }).unwrap();
        // 3 threads, 16 pairs of vectors of 64 codes, a multiplication and an addition each.
        assert_eq!(cpu.multiply_int8(5), 5 * 3 * 16 * 64 * 2);
        let lines = vec![[0; 64]; 1001];
        for part in [0, 1, 100, 5000] {
            assert_eq!(cpu.read_lines(&lines, part, 4096), 64_064, "parts of {part}");
        }
    }
}
