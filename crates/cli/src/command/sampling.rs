//! Flags that say how the next token is chosen; `run` and `chat` share them.

use crate::value;
use clap::Args;
use trueup::runtime::Sampling;

/// How the next token is chosen.
#[derive(Args, Clone)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArguments {
    /// 0 takes the best token every time; higher is more varied
    #[arg(long = "temp", value_name = "T", default_value_t = 0.0, value_parser = value::not_negative, allow_negative_numbers = true)]
    temperature: f64,
    /// Choose among the K best tokens; 0 is all
    #[arg(long, value_name = "K", default_value_t = 40, allow_negative_numbers = true)]
    top_k: usize,
    /// Choose among the best tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 0.95, value_parser = value::probability, allow_negative_numbers = true)]
    top_p: f64,
    /// Drop tokens less probable than this share of the best one's
    #[arg(long, value_name = "P", default_value_t = 0.05, value_parser = value::share, allow_negative_numbers = true)]
    min_p: f64,
    /// Make tokens of the last ones less probable; 1 is off
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = value::positive, allow_negative_numbers = true)]
    repeat_penalty: f64,
    /// How many last tokens the penalty looks at
    #[arg(long, value_name = "N", default_value_t = 64)]
    repeat_last_n: usize,
    /// The same seed gives the same text
    #[arg(short, long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    seed: u64,
}

impl SamplingArguments {
    /// As the sampler takes it.
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
