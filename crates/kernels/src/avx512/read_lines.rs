//! Reading from memory in whole registers, four lines at a time.

use super::super::read_lines::Line;
use std::arch::x86_64::*;

/// Registers of a line.
const PARTS: usize = 1;

/// Lines that are read side by side.
const ROWS: usize = 4;

/// Folds lines by exclusive or, each asked for `ahead` bytes before it is read.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub fn read_lines(lines: &[Line], ahead: usize, folded: &mut Line) {
    let (groups, rest) = lines.as_chunks::<ROWS>();
    let mut kept = [_mm512_setzero_si512(); PARTS * ROWS];
    for group in groups {
        for (row, line) in group.iter().enumerate() {
            if ahead > 0 {
                // Asking touches nothing: an address of no memory is passed over.
                _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().wrapping_byte_add(ahead).cast());
            }
            fold(line, &mut kept[PARTS * row..PARTS * (row + 1)]);
        }
    }
    for line in rest {
        fold(line, &mut kept[..PARTS]);
    }
    for parts in kept.chunks(PARTS) {
        let mut line: Line = [0; 64];
        for (part, bytes) in parts.iter().zip(line.chunks_mut(64 / PARTS)) {
            // SAFETY: as many bytes as a register holds; the store needs no alignment.
            unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), *part) };
        }
        folded.iter_mut().zip(line).for_each(|(folded, byte)| *folded ^= byte);
    }
}

/// One line into the registers of a row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn fold(line: &Line, kept: &mut [__m512i]) {
    for (bytes, kept) in line.chunks(64 / PARTS).zip(kept) {
        // SAFETY: as many bytes as a register holds; the load needs no alignment.
        *kept = _mm512_xor_si512(*kept, unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) });
    }
}
