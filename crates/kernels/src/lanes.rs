//! Sums kept side by side, and how they become one.

/// The f32 lanes of a 256-bit register: sums kept side by side by norms and softmax.
pub const LANES: usize = 8;

/// Sums kept side by side by dot products: four registers.
pub const DOT_LANES: usize = 4 * LANES;

/// Steps after which the sums of a dot product or a mixture are added to their totals and begin anew at zero: short
/// sums stay small, and so do their roundings.
pub const STEPS: usize = 16;

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

/// Adds the totals of a dot product in f64, each with the one 16, 8, 4, 2, 1 further, and rounds once.
#[inline(always)]
pub fn sum_of_dot(totals: [f32; DOT_LANES]) -> f32 {
    let mut sums = totals.map(f64::from);
    let mut half = DOT_LANES / 2;
    while half > 0 {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
        half /= 2;
    }
    sums[0] as f32
}

/// The rest of a row behind its whole chunks, with zeros behind it.
#[inline(always)]
pub fn padded<E: Copy + Default, const N: usize>(rest: &[E]) -> [E; N] {
    let mut chunk = [E::default(); N];
    chunk[..rest.len()].copy_from_slice(rest);
    chunk
}
