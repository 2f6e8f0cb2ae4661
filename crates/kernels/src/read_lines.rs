//! Reading from memory: what the roof of decoding is measured with.

use super::kernel;
#[cfg(feature = "samples")]
use crate::isa::Instructions;

/// One cache line.
pub type Line = [u8; 64];

kernel! {
    /// Folds lines by exclusive or into `folded`. Each line is asked for `ahead` bytes before it is read; 0 leaves that
    /// to the processor.
    fn read_lines(lines: &[[u8; 64]], ahead: usize, folded: &mut [u8; 64]) {
        avx512 => super::avx512::read_lines::read_lines,
        avx2 => super::avx2::read_lines::read_lines,
        scalar => fold,
    }
    read_lines_samples on samples
}

/// The processor of no instruction set is not asked for anything ahead.
fn fold(lines: &[Line], _ahead: usize, folded: &mut Line) {
    for line in lines {
        for (folded, byte) in folded.iter_mut().zip(line) {
            *folded ^= byte;
        }
    }
}

#[cfg(feature = "samples")]
fn samples(instructions: Instructions) -> Vec<f32> {
    let line = |row: usize| std::array::from_fn(|byte| (row * 37 + byte * byte * 11) as u8);
    let lines: Vec<Line> = (0..200).map(line).collect();
    let mut results = Vec::new();
    for count in [0, 1, 2, 3, 4, 5, 7, 8, 9, 63, 200] {
        for ahead in [0, 4096] {
            let mut folded = [1; 64];
            read_lines(instructions, &lines[..count], ahead, &mut folded);
            results.extend(folded.map(f32::from));
        }
    }
    results
}
