//! From logits to the next token.
//!
//! ```text
//! logits ─ repetition penalty ─ top-k ─ top-p ─ min-p ─ temperature ─ draw ─ id       (the default order of llama.cpp)
//! logits ─ repetition penalty ─ the largest, the lowest id among equals ─ id          (temperature 0)
//! ```
//!
//! The same logits, options and seed give the same ids on every machine: the generator and the exponential are our own.
//!
//! ```
//! use trueup_runtime::{Sampler, Sampling};
//!
//! let mut sampler = Sampler::new(Sampling::GREEDY, &[]).unwrap();
//! assert_eq!(sampler.sample(&[0.5, 2.0, 2.0]).unwrap(), 1);
//! ```

mod exponential;
mod random;

use crate::error::{Error, Result};
use exponential::exp;
use random::Random;
use std::cmp::Ordering;
use std::collections::{HashSet, VecDeque};

/// How tokens are chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampling {
    /// Logits are divided by it; 0 takes the largest.
    pub temperature: f64,
    /// Keep only the N most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Only the likeliest tokens remain whose probabilities together reach it; 1 keeps all.
    pub top_p: f64,
    /// Only tokens remain that are at least so likely, measured by the likeliest; 0 keeps all.
    pub min_p: f64,
    /// Logits of recent tokens are divided by it, negative ones multiplied (Keskar et al. 2019); 1 does nothing.
    pub repeat_penalty: f64,
    /// How many tokens are recent.
    pub repeat_last: usize,
    /// Where the random numbers start.
    pub seed: u64,
}

impl Sampling {
    /// The largest logit, nothing drawn.
    pub const GREEDY: Sampling =
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, repeat_last: 64, seed: 0 };
}

impl Default for Sampling {
    /// As llama.cpp's: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalty.
    fn default() -> Sampling {
        Sampling { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, ..Sampling::GREEDY }
    }
}

/// Chooses the tokens of one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    random: Random,
    /// The last `repeat_last` tokens.
    recent: VecDeque<u32>,
}

/// A token that may still be chosen.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: u32,
    logit: f64,
}

impl Sampler {
    /// A sampler for the text after a prompt. Fails if an option is out of range.
    pub fn new(sampling: Sampling, prompt: &[u32]) -> Result<Sampler> {
        let share = 0.0..=1.0;
        let rules = [
            ("temperature", sampling.temperature, sampling.temperature >= 0.0, "at least 0"),
            ("top-p", sampling.top_p, share.contains(&sampling.top_p) && sampling.top_p > 0.0, "above 0 and at most 1"),
            ("min-p", sampling.min_p, share.contains(&sampling.min_p), "between 0 and 1"),
            ("the repetition penalty", sampling.repeat_penalty, sampling.repeat_penalty > 0.0, "above 0"),
        ];
        for (name, value, holds, rule) in rules {
            if !holds || !value.is_finite() {
                return Err(Error::Request(format!("{name} must be {rule}, not {value}")));
            }
        }
        let random = Random::new(sampling.seed, 0);
        let mut sampler = Sampler { sampling, random, recent: VecDeque::new() };
        prompt.iter().for_each(|id| sampler.accept(*id));
        Ok(sampler)
    }

    /// Chooses the next token and takes it as part of the sequence. Fails where logits are no numbers, which is a fault
    /// of the device.
    pub fn sample(&mut self, logits: &[f64]) -> Result<u32> {
        if let Some(id) = logits.iter().position(|logit| logit.is_nan() || *logit == f64::INFINITY) {
            let problem = format!("the logit of token {id} is {}, so no token can be chosen", logits[id]);
            return Err(Error::Request(format!("{problem}; run `trueup verify` to find the operator at fault")));
        }
        let mut candidates: Vec<Candidate> =
            (0..).zip(logits).map(|(id, logit)| Candidate { id, logit: *logit }).collect();
        self.penalize(&mut candidates);
        let chosen = if self.sampling.temperature == 0.0 {
            candidates.into_iter().min_by(likelier)
        } else {
            self.narrow(&mut candidates);
            self.draw(&candidates)
        };
        let Some(Candidate { id, .. }) = chosen else {
            return Err(Error::Request("the vocabulary is empty, so no token can be chosen".to_owned()));
        };
        self.accept(id);
        Ok(id)
    }

    fn accept(&mut self, id: u32) {
        self.recent.push_back(id);
        if self.recent.len() > self.sampling.repeat_last {
            self.recent.pop_front();
        }
    }

    fn penalize(&self, candidates: &mut [Candidate]) {
        let penalty = self.sampling.repeat_penalty;
        if penalty == 1.0 {
            return;
        }
        let recent: HashSet<u32> = self.recent.iter().copied().collect();
        for id in recent {
            if let Some(candidate) = candidates.get_mut(id as usize) {
                candidate.logit *= if candidate.logit > 0.0 { 1.0 / penalty } else { penalty };
            }
        }
    }

    /// Keeps the candidates that top-k, top-p and min-p leave, the likeliest first; always at least one.
    fn narrow(&self, candidates: &mut Vec<Candidate>) {
        let Sampling { top_k, top_p, min_p, .. } = self.sampling;
        if top_k > 0 && top_k < candidates.len() {
            candidates.select_nth_unstable_by(top_k - 1, likelier);
            candidates.truncate(top_k);
        }
        candidates.sort_unstable_by(likelier);
        if top_p < 1.0 {
            let weights = weights(candidates, 1.0);
            let wanted = top_p * weights.iter().sum::<f64>();
            let mut sum = 0.0;
            let below = weights.iter().take_while(|weight| {
                sum += **weight;
                sum < wanted
            });
            let count = below.count() + 1;
            candidates.truncate(count);
        }
        if min_p > 0.0 {
            let weights = weights(candidates, 1.0);
            let count = weights.iter().take_while(|weight| **weight >= min_p).count();
            candidates.truncate(count.max(1));
        }
    }

    fn draw(&mut self, candidates: &[Candidate]) -> Option<Candidate> {
        let weights = weights(candidates, self.sampling.temperature);
        let mut left = self.random.unit() * weights.iter().sum::<f64>();
        for (candidate, weight) in candidates.iter().zip(&weights) {
            left -= weight;
            if left < 0.0 {
                return Some(*candidate);
            }
        }
        // Rounding of the sums can leave a rest.
        candidates.first().copied()
    }
}

/// The larger logit first, the lower id among equals.
fn likelier(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Probabilities of sorted candidates, measured by the first: `exp((logit - logit of the first) / temperature)`.
fn weights(candidates: &[Candidate], temperature: f64) -> Vec<f64> {
    let Some(first) = candidates.first() else { return Vec::new() };
    let weight = |candidate: &Candidate| match candidate.logit == first.logit {
        true => 1.0,
        false => exp((candidate.logit - first.logit) / temperature),
    };
    candidates.iter().map(weight).collect()
}

#[cfg(test)]
mod tests;
