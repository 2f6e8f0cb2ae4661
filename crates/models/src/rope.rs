//! How positions rotate heads, and the frequency divisors of Llama 3.1.

use crate::diagnostics::Diagnostics;
use crate::number::{nearest_f32, real};
use std::f64::consts::PI;
use trueup_graph::op::{RopePairs, RopeScaling};

/// How positions rotate heads.
#[derive(Clone, PartialEq, Debug)]
pub struct RopeSpec {
    /// Which elements of a head are rotated together, in the GGUF file.
    pub pairs: RopePairs,
    /// Elements of each head that are rotated; even.
    pub dimensions: usize,
    /// Base of the frequencies ("theta").
    pub base: f32,
    /// How angles are changed for long contexts.
    pub scaling: RopeScaling,
    /// Divisors of the frequencies.
    pub factors: RopeFactors,
}

/// Divisors of the frequencies, which a GGUF file stores as tensors.
#[derive(Clone, PartialEq, Debug)]
pub enum RopeFactors {
    /// There are none.
    None,
    /// Conversion computes them from these numbers.
    Llama3(Llama3Scaling),
    /// The GGUF file has them.
    Stored,
    /// There are two lists, and the length of the text chooses one.
    Long(LongFactors),
}

/// The divisors of LongRoPE (Ding et al. 2024). The lists are empty if the GGUF file has them.
#[derive(Clone, PartialEq, Debug)]
pub struct LongFactors {
    /// For texts that are longer than the original context.
    pub long: Vec<f32>,
    /// For texts of up to the original context.
    pub short: Vec<f32>,
    /// Original context length.
    pub original_context: usize,
}

/// The scaling of Llama 3.1: low frequencies are divided by a factor, high ones stay, those between change smoothly.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Llama3Scaling {
    /// Divisor of low frequencies.
    pub factor: f64,
    /// Frequencies with a wavelength above `original_context / low_frequency_factor` are low.
    pub low_frequency_factor: f64,
    /// Frequencies with a wavelength below `original_context / high_frequency_factor` are high.
    pub high_frequency_factor: f64,
    /// Original context length.
    pub original_context: f64,
}

impl RopeSpec {
    /// Checks the parameters for a head of `head_size` elements.
    pub(crate) fn check(&self, head_size: usize, diagnostics: &mut Diagnostics) {
        let dimensions = self.dimensions;
        if dimensions == 0 || !dimensions.is_multiple_of(2) || dimensions > head_size {
            diagnostics
                .add(format!("RoPE dimensions: expected an even number from 2 to {head_size}, found {dimensions}"));
        }
        let mut positive = |what: &str, value: f64| {
            if !(value.is_finite() && value > 0.0) {
                diagnostics.add(format!("{what}: expected a finite number above 0, found {value}"));
            }
        };
        positive("RoPE base", self.base.into());
        match self.scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => positive("RoPE scaling factor", factor.into()),
            RopeScaling::Long { magnitude } => positive("RoPE scaling magnitude", magnitude.into()),
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, magnitude } => {
                positive("RoPE scaling factor", factor.into());
                positive("original context of the RoPE scaling", original_context.into());
                positive("beta_fast of the RoPE scaling", beta_fast.into());
                positive("beta_slow of the RoPE scaling", beta_slow.into());
                positive("RoPE scaling magnitude", magnitude.into());
                self.check_ramp(original_context, beta_fast, beta_slow, diagnostics);
            }
        }
        match &self.factors {
            RopeFactors::Llama3(llama3) => llama3.check(diagnostics),
            RopeFactors::Long(factors) => factors.check(self.dimensions / 2, diagnostics),
            RopeFactors::None | RopeFactors::Stored => {}
        }
    }

    /// YaRN's ramp must rise from its lower to its upper end inside the head, and logarithms of the base must not
    /// vanish.
    fn check_ramp(&self, original_context: u32, beta_fast: f32, beta_slow: f32, diagnostics: &mut Diagnostics) {
        if self.base <= 1.0 {
            diagnostics.add(format!("RoPE base: expected a number above 1 for YaRN, found {}", self.base));
        } else if beta_fast < beta_slow {
            diagnostics.add(format!("YaRN needs beta_fast of at least beta_slow, found {beta_fast} and {beta_slow}"));
        } else {
            let turns = f64::from(original_context) / (2.0 * PI * f64::from(beta_fast));
            let dimensions = real(self.dimensions);
            let low = dimensions * turns.ln() / (2.0 * f64::from(self.base).ln());
            if low.floor() > dimensions - 1.0 {
                diagnostics.add(format!("YaRN's ramp starts at {low}, after the {} RoPE dimensions", self.dimensions));
            }
        }
    }

    /// Whether a GGUF file has divisors of the frequencies.
    pub fn has_factors(&self) -> bool {
        self.factors != RopeFactors::None
    }

    /// Stems of the tensors with divisors.
    pub(crate) fn factor_tensors(&self) -> &'static [&'static str] {
        match self.factors {
            RopeFactors::None => &[],
            RopeFactors::Llama3(_) | RopeFactors::Stored => &["rope_freqs"],
            RopeFactors::Long(_) => &[LONG, SHORT],
        }
    }

    /// Stem of the tensor with the divisors for long texts, or for others.
    pub(crate) fn factors_for(&self, is_long: bool) -> Option<&'static str> {
        match &self.factors {
            RopeFactors::Long(_) if !is_long => Some(SHORT),
            _ => self.factor_tensors().first().copied(),
        }
    }

    /// The divisors that conversion writes as the tensor of this name.
    pub fn factors_of(&self, tensor: &str) -> Option<Vec<f32>> {
        match &self.factors {
            RopeFactors::Long(factors) if tensor.starts_with(SHORT) => Some(factors.short.clone()),
            RopeFactors::Long(factors) => Some(factors.long.clone()),
            _ => self.computed_factors(),
        }
    }

    /// Computes the divisor of each frequency in f64, `[dimensions / 2]`; `None` without the scaling of Llama 3.1.
    pub fn computed_factors(&self) -> Option<Vec<f32>> {
        let RopeFactors::Llama3(llama3) = self.factors else { return None };
        let pairs = self.dimensions / 2;
        let factor = |pair: usize| {
            let frequency = f64::from(self.base).powf(-2.0 * real(pair) / real(self.dimensions));
            nearest_f32(llama3.divisor(frequency))
        };
        Some((0..pairs).map(factor).collect())
    }
}

/// Stems of the tensors with the divisors of LongRoPE.
pub(crate) const LONG: &str = "rope_factors_long";
/// The tensor with the divisors for long texts.
pub const LONG_FACTORS: &str = "rope_factors_long.weight";
const SHORT: &str = "rope_factors_short";

impl LongFactors {
    fn check(&self, pairs: usize, diagnostics: &mut Diagnostics) {
        for (key, list) in [("long_factor", &self.long), ("short_factor", &self.short)] {
            if list.iter().any(|factor| !(factor.is_finite() && *factor > 0.0)) {
                diagnostics.add(format!("rope_scaling: {key}: expected finite numbers above 0"));
            }
            if !(list.is_empty() || list.len() == pairs) {
                let found = list.len();
                diagnostics.add(format!("rope_scaling: {key}: expected {pairs} numbers, found {found}"));
            }
        }
    }
}

impl Llama3Scaling {
    /// The divisor of this frequency. The scaled frequency is `f / factor` for wavelengths `2 pi / f` above
    /// `context / low`, `f` below `context / high`, and `f ((1 - s) / factor + s)` with
    /// `s = (context / wavelength - low) / (high - low)` between them. Source: the model code published with Llama 3.1.
    fn divisor(&self, frequency: f64) -> f64 {
        let wavelength = 2.0 * PI / frequency;
        if wavelength < self.original_context / self.high_frequency_factor {
            1.0
        } else if wavelength > self.original_context / self.low_frequency_factor {
            self.factor
        } else {
            let turns = self.original_context / wavelength;
            let smooth = (turns - self.low_frequency_factor) / (self.high_frequency_factor - self.low_frequency_factor);
            1.0 / ((1.0 - smooth) / self.factor + smooth)
        }
    }

    fn check(&self, diagnostics: &mut Diagnostics) {
        let numbers = [
            ("factor", self.factor),
            ("low_freq_factor", self.low_frequency_factor),
            ("high_freq_factor", self.high_frequency_factor),
            ("original_max_position_embeddings", self.original_context),
        ];
        for (key, value) in numbers {
            if !(value.is_finite() && value > 0.0) {
                diagnostics.add(format!("{key} of the RoPE scaling: expected a finite number above 0, found {value}"));
            }
        }
        if self.high_frequency_factor <= self.low_frequency_factor {
            diagnostics.add(format!(
                "high_freq_factor of the RoPE scaling: expected a number above low_freq_factor, {}, found {}",
                self.low_frequency_factor, self.high_frequency_factor
            ));
        }
    }
}

/// YaRN's factor for cosine and sine at this scaling factor: `1 + 0.1 mscale ln factor` (Peng et al. 2023, section
/// 3.4).
pub(crate) fn yarn_magnitude(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}
