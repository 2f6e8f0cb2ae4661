//! Reading from memory: what the roof of decoding is measured with.

use super::kernel;
#[cfg(test)]
use crate::device::cpu::isa::Instructions;

/// One cache line.
pub type Line = [u64; 8];

kernel! {
    /// Folds lines by exclusive or into `folded`. Each line is asked for `ahead` bytes before it is read; 0 leaves that to the processor.
    fn read_lines(lines: &[[u64; 8]], ahead: usize, folded: &mut [u64; 8]) {
        avx512 => super::avx512::read_lines::read_lines,
        avx2 => super::avx2::read_lines::read_lines,
        scalar => fold,
    }
    read_lines_variants_agree on samples
}

/// The processor of no instruction set is not asked for anything ahead.
fn fold(lines: &[Line], _ahead: usize, folded: &mut Line) {
    for line in lines {
        for (folded, word) in folded.iter_mut().zip(line) {
            *folded ^= word;
        }
    }
}

/// Words in four parts, each exact as f32.
#[cfg(test)]
fn samples(instructions: Instructions) -> Vec<f32> {
    let line =
        |row: u64| std::array::from_fn(|word| (row + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (word as u64) << 59);
    let lines: Vec<Line> = (0..200).map(line).collect();
    let mut results = Vec::new();
    for count in [0, 1, 2, 3, 4, 5, 7, 8, 9, 63, 200] {
        for ahead in [0, 4096] {
            let mut folded = [1; 8];
            read_lines(instructions, &lines[..count], ahead, &mut folded);
            results.extend(folded.iter().flat_map(|word| [0, 16, 32, 48].map(|bits| (word >> bits & 0xFFFF) as f32)));
        }
    }
    results
}
