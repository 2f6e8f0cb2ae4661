//! Sums kept side by side, and how they become one.

/// Sums kept side by side: the f32 lanes of a 256-bit register.
pub const LANES: usize = 8;

/// Adds the lanes, each with the one four, two, one further: the order in which halves of registers are added.
///
/// ```text
///  ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7))
/// ```
#[inline(always)]
pub fn sum(lanes: [f32; LANES]) -> f32 {
    let fours: [f32; 4] = [lanes[0] + lanes[4], lanes[1] + lanes[5], lanes[2] + lanes[6], lanes[3] + lanes[7]];
    (fours[0] + fours[2]) + (fours[1] + fours[3])
}

/// The rest of a row behind its whole chunks, with zeros behind it.
#[inline(always)]
pub fn padded<E: Copy + Default>(rest: &[E]) -> [E; LANES] {
    let mut chunk = [E::default(); LANES];
    chunk[..rest.len()].copy_from_slice(rest);
    chunk
}
