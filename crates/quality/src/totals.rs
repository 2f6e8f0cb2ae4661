//! Figures over all positions, with the formulas of `llama-perplexity`.

use crate::score::{Against, Score};
use crate::statistics::{Estimate, Moments, Percentile, percentiles};
use serde::Serialize;

/// Percentiles of the KL divergence that are reported.
const KL_PERCENTS: [f64; 9] = [99.9, 99.0, 95.0, 90.0, 50.0, 10.0, 5.0, 1.0, 0.1];

/// Percentiles of the change in probability that are reported.
const PROBABILITY_PERCENTS: [f64; 11] = [99.9, 99.0, 95.0, 90.0, 75.0, 50.0, 25.0, 10.0, 5.0, 1.0, 0.1];

/// Sums over positions.
#[derive(Clone, Default, Debug)]
pub struct Totals {
    count: usize,
    nll: Moments,
    reference_nll: Moments,
    product: f64,
    kl: Moments,
    change: Moments,
    change_to_the_fourth: f64,
    same_top: usize,
    all_kl: Vec<f32>,
    all_changes: Vec<f32>,
}

/// Figures of all positions.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Number of positions.
    pub positions: usize,
    /// Perplexity of the model.
    pub perplexity: Estimate,
    /// The comparison; `None` without a reference.
    pub against: Option<AgainstFigures>,
}

/// Figures of the comparison with the reference.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct AgainstFigures {
    /// Perplexity of the reference.
    pub reference_perplexity: Estimate,
    /// Correlation of the logarithms of both perplexities, from -1 to 1; `None` if one of them has no spread.
    pub correlation: Option<f64>,
    /// Logarithm of the ratio of the perplexities.
    pub log_ratio: Estimate,
    /// Ratio of the perplexities.
    pub ratio: Estimate,
    /// Difference of the perplexities.
    pub difference: Estimate,
    /// KL divergence from the reference to the model, in nats.
    pub kl: KlFigures,
    /// Change of the probability of the next token.
    pub probability: ProbabilityFigures,
    /// Share of positions at which both have the same most probable token.
    pub same_top: Estimate,
}

/// Figures of the KL divergence, in nats.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KlFigures {
    /// Mean.
    pub mean: Estimate,
    /// Least value.
    pub minimum: f64,
    /// Greatest value.
    pub maximum: f64,
    /// Percentiles, from the greatest to the least.
    pub percentiles: Vec<Percentile>,
}

/// Figures of the change of the probability of the next token.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ProbabilityFigures {
    /// Mean.
    pub mean: Estimate,
    /// Root mean square.
    pub rms: Estimate,
    /// Least value.
    pub minimum: f64,
    /// Greatest value.
    pub maximum: f64,
    /// Percentiles, from the greatest to the least.
    pub percentiles: Vec<Percentile>,
}

/// Figures over the chunks up to this one.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ChunkFigures {
    /// Number of chunks.
    pub chunks: usize,
    /// Perplexity of the model.
    pub perplexity: Estimate,
    /// Mean KL divergence; `None` without a reference.
    pub kl: Option<Estimate>,
}

impl Totals {
    /// Adds a position. All positions have a reference, or none has one.
    pub fn add(&mut self, score: &Score) {
        self.count += 1;
        self.nll.add(score.nll);
        let Some(Against { nll, kl, probability_change, same_top, .. }) = score.against else { return };
        self.reference_nll.add(nll);
        self.product += f64::from(score.nll * nll);
        self.kl.add(kl);
        self.change.add(probability_change);
        self.change_to_the_fourth += f64::from(probability_change * probability_change).powi(2);
        self.same_top += usize::from(same_top);
        self.all_kl.push(kl);
        self.all_changes.push(probability_change);
    }

    /// The figures so far, after this number of chunks.
    pub fn chunk(&self, chunks: usize) -> ChunkFigures {
        let kl = (!self.all_kl.is_empty()).then(|| self.kl.mean(self.count));
        ChunkFigures { chunks, perplexity: exponential(self.nll.mean(self.count)), kl }
    }

    /// The figures of all positions.
    pub fn figures(&self) -> Figures {
        Figures {
            positions: self.count,
            perplexity: exponential(self.nll.mean(self.count)),
            against: (!self.all_kl.is_empty()).then(|| self.against()),
        }
    }

    fn against(&self) -> AgainstFigures {
        let n = self.count as f64;
        let (own, reference) = (self.nll.mean(self.count), self.reference_nll.mean(self.count));
        let covariance = (self.product / n - own.value * reference.value) / (n - 1.0);
        let variance = own.error.powi(2) + reference.error.powi(2) - 2.0 * covariance;
        let log_ratio = Estimate::new(own.value - reference.value, variance.max(0.0).sqrt());
        let spread = own.error * reference.error;
        let (perplexity, of_reference) = (exponential(own), exponential(reference));
        let difference_variance = perplexity.error.powi(2) + of_reference.error.powi(2)
            - 2.0 * perplexity.value * of_reference.value * covariance;
        let share = self.same_top as f64 / n;
        AgainstFigures {
            reference_perplexity: of_reference,
            correlation: (spread > 0.0).then(|| covariance / spread),
            log_ratio,
            ratio: exponential(log_ratio),
            difference: Estimate::new(perplexity.value - of_reference.value, difference_variance.max(0.0).sqrt()),
            kl: self.kl_figures(),
            probability: self.probability_figures(),
            same_top: Estimate::new(
                share,
                if self.count > 1 { (share * (1.0 - share) / (n - 1.0)).sqrt() } else { 0.0 },
            ),
        }
    }

    fn kl_figures(&self) -> KlFigures {
        let sorted = sorted(&self.all_kl);
        let [minimum, maximum] = ends(&sorted);
        KlFigures { mean: self.kl.mean(self.count), minimum, maximum, percentiles: percentiles(&sorted, &KL_PERCENTS) }
    }

    fn probability_figures(&self) -> ProbabilityFigures {
        let sorted = sorted(&self.all_changes);
        let [minimum, maximum] = ends(&sorted);
        let n = self.count as f64;
        let mean_of_squares = self.change.mean_of_squares(self.count);
        let variance = (self.change_to_the_fourth / n - mean_of_squares.powi(2)) / (n - 1.0);
        let rms = mean_of_squares.sqrt();
        let error = if rms > 0.0 && variance > 0.0 { 0.5 / rms * variance.sqrt() } else { 0.0 };
        ProbabilityFigures {
            mean: self.change.mean(self.count),
            rms: Estimate::new(rms, error),
            minimum,
            maximum,
            percentiles: percentiles(&sorted, &PROBABILITY_PERCENTS),
        }
    }
}

/// `e^x` with its error.
fn exponential(x: Estimate) -> Estimate {
    let value = libm::exp(x.value);
    Estimate::new(value, value * x.error)
}

fn sorted(values: &[f32]) -> Vec<f32> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    sorted
}

fn ends(sorted: &[f32]) -> [f64; 2] {
    [sorted.first(), sorted.last()].map(|end| end.map_or(f64::NAN, |end| f64::from(*end)))
}
