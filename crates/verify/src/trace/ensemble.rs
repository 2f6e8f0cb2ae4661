//! A value together with the values of a few noisy runs of the same arithmetic.
//!
//! ```text
//!   base       y          without rounding noise
//!   members    y + e1, y + e2, ... y + e16       each with its own errors, carried from node to node
//! ```
//!
//! The spread of the members is the accumulated noise, with the correlations of a real run. Each element's variance is
//! a mean of [`MEMBERS`] squares. It is moderated by the mean of its row, because the smallest of many estimates would
//! be far too small (Smyth 2004).

use trueup_runtime::HostTensor;

/// Noisy runs that are carried along.
pub(super) const MEMBERS: usize = 16;

/// A value and its noisy versions; none where it is certain.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub base: HostTensor,
    pub members: Vec<HostTensor>,
}

impl Value {
    /// A value without noise.
    pub fn certain(base: HostTensor) -> Value {
        Value { base, members: Vec::new() }
    }

    /// Whether it carries no noise.
    pub fn is_certain(&self) -> bool {
        self.members.is_empty()
    }

    /// What noisy run number `member` has.
    pub fn member(&self, member: usize) -> &HostTensor {
        self.members.get(member).unwrap_or(&self.base)
    }
}

/// The standard deviation of each element around `base` over the noisy runs; rows are `len` elements.
pub(super) fn spread(base: &[f64], members: &[Vec<f64>], len: usize) -> Vec<f64> {
    let own = |place: usize| {
        let squares = members.iter().map(|member| (member[place] - base[place]).powi(2)).sum::<f64>();
        squares / members.len().max(1) as f64
    };
    let variances: Vec<f64> = (0..base.len()).map(own).collect();
    let mut deviations = Vec::with_capacity(base.len());
    for row in variances.chunks(len.max(1)) {
        let noisy = row.iter().filter(|variance| **variance > 0.0).count().max(1);
        let mean = row.iter().sum::<f64>() / noisy as f64;
        // An element that is the same in all runs is exact.
        let moderated = |variance: &f64| if *variance > 0.0 { ((variance + mean) / 2.0).sqrt() } else { 0.0 };
        deviations.extend(row.iter().map(moderated));
    }
    deviations
}

/// 1 or -1, without a pattern in any of the numbers.
pub(super) fn sign(node: usize, member: usize, element: usize) -> f64 {
    let mut state = (node as u64) << 40 ^ (member as u64) << 32 ^ element as u64;
    // The finaliser of splitmix64.
    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    if (state ^ (state >> 31)) & 1 == 0 { 1.0 } else { -1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_moderated_within_a_row_and_exact_elements_stay_exact() {
        let members: Vec<Vec<f64>> =
            (0..MEMBERS).map(|member| vec![sign(0, member, 0), 0.1 * sign(0, member, 1), 0.0]).collect();
        let spread = spread(&[0.0; 3], &members, 3);
        let mean: f64 = (1.0 + 0.01) / 2.0;
        assert!((spread[0] - ((1.0 + mean) / 2.0).sqrt()).abs() < 1e-12);
        assert!(spread[1] > 0.5 && spread[2] == 0.0);
    }

    #[test]
    fn signs_are_balanced() {
        let sum: f64 = (0..10_000).map(|element| sign(3, 5, element)).sum();
        assert!(sum.abs() < 400.0, "{sum}");
        let alike = (0..10_000).filter(|element| sign(3, 5, *element) == sign(3, 6, *element)).count();
        assert!((4_800..5_200).contains(&alike), "{alike}");
    }
}
