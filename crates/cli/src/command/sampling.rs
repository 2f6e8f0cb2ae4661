//! Sampling options, shared by `run` and `chat`.

use crate::value;
use clap::Args;
use trueup::runtime::Sampling;

/// Sampling options.
#[derive(Args, Clone)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArguments {
    /// Sampling temperature; 0 always selects the most likely token
    #[arg(long = "temp", value_name = "T", default_value_t = 0.0, value_parser = value::not_negative,
        allow_negative_numbers = true)]
    temperature: f64,
    /// Sample from the K most likely tokens; 0 means all tokens
    #[arg(long, value_name = "K", default_value_t = 40, value_parser = value::whole::<usize>,
        allow_negative_numbers = true)]
    top_k: usize,
    /// Sample from the most likely tokens whose probabilities add up to P
    #[arg(long, value_name = "P", default_value_t = 0.95, value_parser = value::probability,
        allow_negative_numbers = true)]
    top_p: f64,
    /// Exclude tokens that are less likely than P times the most likely one
    #[arg(long, value_name = "P", default_value_t = 0.05, value_parser = value::share,
        allow_negative_numbers = true)]
    min_p: f64,
    /// Penalize tokens that occurred recently; 1 turns the penalty off
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = value::positive,
        allow_negative_numbers = true)]
    repeat_penalty: f64,
    /// Penalize repetition within the last N tokens
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value::whole::<usize>,
        allow_negative_numbers = true)]
    repeat_last_n: usize,
    /// Random seed for sampling
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = value::whole::<u64>,
        allow_negative_numbers = true)]
    seed: u64,
}

impl SamplingArguments {
    /// The options in the form that the sampler takes.
    pub fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last: self.repeat_last_n,
            seed: self.seed,
        }
    }
}
