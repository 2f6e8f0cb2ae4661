//! The predictions of a reference model in compact form, and the KL divergence of other logits from them.
//!
//! For each position, the probabilities of the most probable tokens are stored, and those of all other tokens as one
//! event. The event has a probability of at most 0.01%, unless that takes too many tokens. The divergence computed with
//! the event is a lower bound of the divergence over all tokens, and close to it, because the event is improbable.

/// Maximum probability of the tokens that are not stored separately.
const TAIL: f64 = 1e-4;

/// Maximum number of tokens that are stored for a position.
pub(super) const TOKENS_MAX: usize = 1 << 14;

/// The prediction of the reference at one position.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Prediction {
    tokens: Vec<u32>,
    probabilities: Vec<f32>,
    /// Probability of all other tokens.
    tail: f64,
    /// The sum of `p ln p` over the tokens and the event of all others.
    negative_entropy: f64,
}

impl Prediction {
    /// The prediction of these logits; `None` if they are not finite.
    pub fn new(logits: &[f32]) -> Option<Prediction> {
        let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exponentials: Vec<f64> = logits.iter().map(|logit| libm::exp(f64::from(logit - greatest))).collect();
        let sum: f64 = exponentials.iter().sum();
        if !(greatest.is_finite() && sum.is_finite()) {
            return None;
        }
        // A few thresholds are faster than sorting the whole vocabulary.
        let mut kept: Vec<u32> = Vec::new();
        for distance in (6..=24).step_by(2) {
            let least = libm::exp(-f64::from(distance));
            let above = |index: &u32| exponentials[*index as usize] >= least;
            let more: Vec<u32> = (0..logits.len() as u32).filter(above).collect();
            if more.len() > TOKENS_MAX && !kept.is_empty() {
                break;
            }
            kept = more;
            let mass: f64 = kept.iter().map(|index| exponentials[*index as usize]).sum();
            if mass >= (1.0 - TAIL) * sum {
                break;
            }
        }
        let probabilities: Vec<f32> = kept.iter().map(|index| (exponentials[*index as usize] / sum) as f32).collect();
        let tail = (1.0 - probabilities.iter().map(|p| f64::from(*p)).sum::<f64>()).max(0.0);
        let negative_entropy = probabilities.iter().map(|p| x_ln_x(f64::from(*p))).sum::<f64>() + x_ln_x(tail);
        Some(Prediction { tokens: kept, probabilities, tail, negative_entropy })
    }

    /// The KL divergence from this prediction to that of other logits, in nats; `None` if they are not finite.
    pub fn divergence(&self, logits: &[f32]) -> Option<f64> {
        let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for part in logits.chunks(64) {
            sum += f64::from(part.iter().map(|logit| exponential(logit - greatest)).sum::<f32>());
        }
        if !(greatest.is_finite() && sum.is_finite()) {
            return None;
        }
        let divisor = f64::from(greatest) + libm::log(sum);
        let (mut cross, mut kept) = (0.0, 0.0);
        for (token, p) in self.tokens.iter().zip(&self.probabilities) {
            let logit = logits[*token as usize];
            cross += f64::from(*p) * (f64::from(logit) - divisor);
            kept += f64::from(exponential(logit - greatest));
        }
        let tail = (1.0 - kept / sum).max(1e-12);
        let divergence = self.negative_entropy - cross - self.tail * libm::log(tail);
        divergence.is_finite().then_some(divergence)
    }
}

fn x_ln_x(x: f64) -> f64 {
    if x > 0.0 { x * libm::log(x) } else { 0.0 }
}

/// `e^x` for `x` up to 0, with a relative error below 3e-7: a polynomial near 0, times a power of 2. `libm::exp` takes
/// several times as long, and vocabularies are large.
fn exponential(x: f32) -> f32 {
    if x < -87.0 {
        return 0.0;
    }
    let octaves = (x * std::f32::consts::LOG2_E).round();
    // The first part of ln 2 has few bits, so its product with an integer is exact.
    let rest = (x - octaves * 0.693_359_4) - octaves * -2.121_944_4e-4;
    let polynomial = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0f32];
    let value = polynomial.into_iter().fold(0.0, |sum, factor| sum * rest + factor);
    value * f32::from_bits(((octaves as i32 + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Position;

    /// Pseudorandom numbers between -1 and 1.
    fn noise(seed: u32, count: usize) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from((state >> 16) as u16) / 32_768.0 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn exponentials_are_close_to_those_of_libm() {
        for step in 0..86_000 {
            let x = -(step as f32) / 1000.0;
            let expected = libm::exp(f64::from(x));
            assert!((f64::from(exponential(x)) - expected).abs() <= 3e-7 * expected, "{x}");
        }
        assert_eq!((exponential(0.0), exponential(-100.0)), (1.0, 0.0));
    }

    #[test]
    fn divergences_are_those_of_all_tokens() {
        for (seed, spread) in [(1, 12.0), (2, 6.0), (3, 2.0)] {
            let reference: Vec<f32> = noise(seed, 5000).iter().map(|x| spread * x).collect();
            let other: Vec<f32> = reference.iter().zip(noise(seed + 100, 5000)).map(|(x, e)| x + 0.2 * e).collect();
            let expected = Position::new(&other).against(&Position::new(&reference), 0).against.unwrap().kl;
            let prediction = Prediction::new(&reference).unwrap();
            let found = prediction.divergence(&other).unwrap();
            assert!((found - f64::from(expected)).abs() < 2e-3 * f64::from(expected), "{found}, expected {expected}");
            assert!(prediction.divergence(&reference).unwrap().abs() < 2e-6);
        }
    }

    #[test]
    fn logits_that_are_not_finite_have_no_divergence() {
        let prediction = Prediction::new(&[0.0, 1.0, -50.0]).unwrap();
        assert_eq!((Prediction::new(&[f32::NAN]), prediction.divergence(&[0.0, f32::INFINITY, 0.0])), (None, None));
        assert!(prediction.tokens.len() == 2 && prediction.tail < 1e-6);
    }
}
