//! Sampling options, shared by `run` and `chat`.

use crate::value;
use clap::Args;
use trueup::runtime::Sampling;

/// Sampling options.
#[derive(Args, Clone)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArguments {
    /// Sampling temperature; 0 always selects the most likely token [default: 0]
    #[arg(long = "temp", value_name = "T", value_parser = value::not_negative, allow_negative_numbers = true)]
    temperature: Option<f64>,
    /// Sample from the K most likely tokens; 0 means all tokens [default: 40]
    #[arg(long, value_name = "K", value_parser = value::whole::<usize>, allow_negative_numbers = true)]
    top_k: Option<usize>,
    /// Sample from the most likely tokens whose probabilities add up to P [default: 0.95]
    #[arg(long, value_name = "P", value_parser = value::probability, allow_negative_numbers = true)]
    top_p: Option<f64>,
    /// Exclude tokens that are less likely than P times the most likely one [default: 0.05]
    #[arg(long, value_name = "P", value_parser = value::share, allow_negative_numbers = true)]
    min_p: Option<f64>,
    /// Penalize tokens that occurred recently; 1 turns the penalty off [default: 1]
    #[arg(long, value_name = "R", value_parser = value::positive, allow_negative_numbers = true)]
    repeat_penalty: Option<f64>,
    /// Penalize repetition within the last N tokens [default: 64]
    #[arg(long, value_name = "N", value_parser = value::whole::<usize>, allow_negative_numbers = true)]
    repeat_last_n: Option<usize>,
    /// Random seed for sampling [default: 0]
    #[arg(short, long, value_name = "N", value_parser = value::whole::<u64>, allow_negative_numbers = true)]
    seed: Option<u64>,
}

impl SamplingArguments {
    /// The options in the form that the sampler takes.
    pub fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(0.0),
            top_k: self.top_k.unwrap_or(40),
            top_p: self.top_p.unwrap_or(0.95),
            min_p: self.min_p.unwrap_or(0.05),
            repeat_penalty: self.repeat_penalty.unwrap_or(1.0),
            repeat_last: self.repeat_last_n.unwrap_or(64),
            seed: self.seed.unwrap_or(0),
        }
    }

    /// The first option that was given, for commands in which sampling has no effect.
    pub fn given(&self) -> Option<&'static str> {
        let options = [
            ("--temp", self.temperature.is_some()),
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
            ("--min-p", self.min_p.is_some()),
            ("--repeat-penalty", self.repeat_penalty.is_some()),
            ("--repeat-last-n", self.repeat_last_n.is_some()),
            ("--seed", self.seed.is_some()),
        ];
        options.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
    }
}
