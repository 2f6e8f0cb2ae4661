//! Choices between nearly equal scores: which expert, which token (docs/numerics.md#logits-and-tokens).
//!
//! ```text
//!   reference's scores   0.3  2.1  2.1004  -1       chooses 2      apart by less than the noise of two scores:
//!   device's             0.3  2.1002  2.1001  -1    chooses 1      one is as good as the other
//! ```
//!
//! A node with indices as its result is judged by itself on the device's own scores. Beside it the free-running
//! reference may choose otherwise; where no score tells the two choices apart, it follows the device, or everything
//! behind would differ for no fault.

use crate::tokens::tie_reach;

/// Whether all choices of the device are as good as the reference's, by the reference's own scores.
///
/// Scores are rows of `len` elements; each has as many choices as the others, indices into the row. The noise of a row
/// is the root mean square of the difference of both scores, their mean removed, which no choice depends on.
pub(crate) fn tied(len: usize, reference: Side, device: Side) -> bool {
    let rows = reference.scores.len().checked_div(len).unwrap_or(0);
    let alike = reference.scores.len() == device.scores.len() && reference.choices.len() == device.choices.len();
    if !alike || rows == 0 || reference.scores.len() != rows * len || !reference.choices.len().is_multiple_of(rows) {
        return false;
    }
    let choices = reference.choices.len() / rows;
    if choices == 0 {
        return true;
    }
    let scores = reference.scores.chunks(len).zip(device.scores.chunks(len));
    let choices = reference.choices.chunks(choices).zip(device.choices.chunks(choices));
    scores.zip(choices).all(|((expected, found), (own, other))| {
        let reach = tie_reach(noise(expected, found));
        let score = |choice: &i32| usize::try_from(*choice).ok().and_then(|choice| expected.get(choice));
        let near = |(own, other)| score(own).zip(score(other)).is_some_and(|(a, b)| (a - b).abs() <= reach);
        own.iter().zip(other).all(near)
    })
}

/// Scores and what was chosen by them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    pub scores: &'a [f64],
    pub choices: &'a [i32],
}

/// Root mean square of the difference, its mean removed.
fn noise(expected: &[f64], found: &[f64]) -> f64 {
    let differences = || expected.iter().zip(found).map(|(expected, found)| found - expected);
    let mean = differences().sum::<f64>() / expected.len() as f64;
    (differences().map(|difference| (difference - mean).powi(2)).sum::<f64>() / expected.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_tied_only_within_the_noise_of_their_scores() {
        let scores = [0.3, 2.1, 2.1004, -1.0];
        let noisy = [0.3, 2.1002, 2.1001, -1.0];
        let shifted = noisy.map(|score| score + 5.0);
        let cases = [
            ("the same", vec![2], noisy, vec![2], true),
            ("a near tie", vec![2], noisy, vec![1], true),
            ("a shift of all scores is no noise", vec![2], shifted, vec![1], true),
            ("another than the best two", vec![2], noisy, vec![0], false),
            ("without noise there is no tie", vec![2], scores, vec![1], false),
            ("the best two the other way around", vec![2, 1], noisy, vec![1, 2], true),
            ("the second is too far", vec![2, 1], noisy, vec![1, 0], false),
            ("no index of the row", vec![2], noisy, vec![4], false),
        ];
        for (name, own, found, other, expected) in cases {
            let reference = Side { scores: &scores, choices: &own };
            let device = Side { scores: &found, choices: &other };
            assert_eq!(tied(4, reference, device), expected, "{name}");
        }
    }

    #[test]
    fn each_row_has_its_own_noise() {
        let (expected, found) = ([1.0, 1.1, 5.0, 5.1], [1.0, 1.1, 5.1, 5.0]);
        let reference = Side { scores: &expected, choices: &[1, 1] };
        assert!(tied(2, reference, Side { scores: &found, choices: &[1, 0] }));
        assert!(!tied(2, reference, Side { scores: &found, choices: &[0, 1] }));
    }

    #[test]
    fn what_does_not_fit_is_not_tied() {
        let reference = Side { scores: &[1.0, 2.0], choices: &[1] };
        assert!(!tied(0, reference, reference));
        assert!(!tied(3, reference, reference));
        assert!(!tied(2, reference, Side { scores: &[1.0], choices: &[0] }));
        assert!(!tied(2, reference, Side { scores: &[1.0, 2.0], choices: &[1, 0] }));
        assert!(!tied(2, reference, Side { scores: &[1.0, f64::NAN], choices: &[0] }));
    }
}
