//! Scores of one position: the probability of the next token, alone and compared with a reference.

use trueup_formats::LogitsRecord;

/// The logits of one position, with precomputed values for their softmax.
#[derive(Clone, Copy, Debug)]
pub struct Position<'l> {
    /// The logit of each token.
    pub logits: &'l [f32],
    /// The largest logit.
    pub greatest: f32,
    /// The logarithm of the sum of `exp(logit - greatest)`.
    pub log_sum: f32,
    /// The first token with the largest logit.
    pub top: usize,
}

/// The score of a position.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Score {
    /// The negative log-probability of the next token.
    pub nll: f32,
    /// The comparison, if there is a reference.
    pub against: Option<Against>,
}

/// The difference from a reference.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Against {
    /// The reference's negative log-probability of the next token.
    pub nll: f32,
    /// KL divergence, from the reference to the model.
    pub kl: f32,
    /// The model's probability of the next token, minus that of the reference.
    pub probability_change: f32,
    /// Whether both have the same most probable token.
    pub same_top: bool,
    /// The reference's most probable token.
    pub top: usize,
}

impl<'l> Position<'l> {
    /// Creates a position from at least one logit.
    pub fn new(logits: &'l [f32]) -> Position<'l> {
        let (mut greatest, mut top) = (f32::NEG_INFINITY, 0);
        for (token, logit) in logits.iter().enumerate() {
            if *logit > greatest {
                (greatest, top) = (*logit, token);
            }
        }
        let sum: f64 = logits.iter().map(|logit| f64::from(exp(logit - greatest))).sum();
        Position { logits, greatest, log_sum: libm::log(sum) as f32, top }
    }

    /// The negative log-probability of a token.
    pub fn nll(&self, token: usize) -> f32 {
        self.greatest + self.log_sum - self.logits[token]
    }

    /// The score without a reference.
    pub fn alone(&self, next: usize) -> Score {
        Score { nll: self.nll(next), against: None }
    }

    /// The score against the logits of a reference, computed in f64.
    pub fn against(&self, reference: &Position, next: usize) -> Score {
        let divisor = |position: &Position| f64::from(position.greatest) + f64::from(position.log_sum);
        let (own, other) = (divisor(self), divisor(reference));
        let terms = self.logits.iter().zip(reference.logits).map(|(logit, logit_of_reference)| {
            let log_probability = f64::from(*logit_of_reference) - other;
            libm::exp(log_probability) * (log_probability - (f64::from(*logit) - own))
        });
        self.compared(terms.sum::<f64>() as f32, reference.nll(next), reference.top, next)
    }

    /// The score against a stored record, as `llama-perplexity` computes it. Panics if the vocabularies differ.
    pub fn against_record(&self, record: &LogitsRecord, next: usize) -> Score {
        let own = self.greatest + self.log_sum;
        let (mut kl, mut top, mut greatest) = (0.0f64, 0, f32::NEG_INFINITY);
        for (token, (logit, code)) in self.logits.iter().zip(&record.codes).enumerate() {
            let log_probability = record.scale * f32::from(*code) + record.minimum;
            if log_probability > greatest {
                (greatest, top) = (log_probability, token);
            }
            if log_probability > -16.0 {
                kl += f64::from(exp(log_probability) * (log_probability - logit + own));
            }
        }
        let nll = -(record.scale * f32::from(record.codes[next]) + record.minimum);
        self.compared(kl as f32, nll, top, next)
    }

    fn compared(&self, kl: f32, reference_nll: f32, top: usize, next: usize) -> Score {
        let nll = self.nll(next);
        let probability_change = exp(-nll) - exp(-reference_nll);
        let against = Against { nll: reference_nll, kl, probability_change, same_top: top == self.top, top };
        Score { nll, against: Some(against) }
    }
}

/// `e^x`, computed in f64 and rounded once, so that no system library changes a digit.
pub fn exp(x: f32) -> f32 {
    libm::exp(f64::from(x)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_have_no_divergence() {
        let logits = [1.0, 3.0, 3.0, -200.0];
        let position = Position::new(&logits);
        assert_eq!(position.top, 1);
        let score = position.against(&Position::new(&logits), 2);
        let against = score.against.unwrap();
        assert_eq!((against.kl, against.probability_change, against.same_top), (0.0, 0.0, true));
        assert!((f64::from(score.nll) - (2.0 + (-2.0f64).exp()).ln()).abs() < 1e-6);
    }

    #[test]
    fn the_divergence_of_two_distributions_is_their_formula() {
        let ln = |p: f32| p.ln();
        let (model, reference) = ([ln(0.5), ln(0.25), ln(0.25)], [ln(0.25), ln(0.5), ln(0.25)]);
        let score = Position::new(&model).against(&Position::new(&reference), 0);
        let expected = 0.25 * (0.25f64 / 0.5).ln() + 0.5 * (0.5f64 / 0.25).ln();
        let against = score.against.unwrap();
        assert!((f64::from(against.kl) - expected).abs() < 1e-6);
        assert!((against.probability_change - 0.25).abs() < 1e-6 && !against.same_top && against.top == 1);
    }
}
