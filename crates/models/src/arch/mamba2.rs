//! Mamba-2: like Mamba, but with one decay rate per head and a norm before the output projection.
//!
//! ```text
//! ssm_in    z | x B C | dt         A_log, D, dt_bias: one number for each head
//! ```
//!
//! Heads of a group share B and C, and the norm covers the elements of a group. transformers 4 covers all groups at
//! once, unlike the original program (`mamba_ssm`) and transformers 5.

use super::mamba::{CONTEXT, Numbers, spec};
use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, negated_exponential};
use crate::number::nearest_f32;
use crate::part::norm::{Norm, NormKind};
use crate::part::state_space::{Rates, StateSpace};
use serde_json::Value;
use trueup_formats::json::INFINITY;
use trueup_formats::quote;

/// `Mamba2ForCausalLM`.
pub static MAMBA2: Architecture = Architecture {
    gguf_name: "mamba2",
    classes: &["Mamba2ForCausalLM"],
    from_config: |config| {
        config.only("hidden_act", &["\"silu\""]);
        config.only("use_bias", &["false"]);
        config.only("rms_norm", &["true"]);
        if let Some(limit) = config.value("time_step_limit").filter(|limit| !is_unlimited(limit)) {
            let found = quote(&limit.to_string()).to_string();
            config.problem(format!(
                "time_step_limit: expected no limit ([0.0, Infinity]), found {found}; GGUF files have no key for the \
                 limits of the time step"
            ));
        }
        config.only("quantization_config", &[]);
        let layers = config.layers("num_hidden_layers");
        let hidden_size = config.size("hidden_size");
        let (heads, head_size) = (config.count_or("num_heads", 128), config.count_or("head_dim", 64));
        let groups = config.count_or("n_groups", 8);
        let inner_size = hidden_size.saturating_mul(config.count_or("expand", 2));
        if heads.saturating_mul(head_size) != inner_size && !config.has_problem() {
            config.problem(format!(
                "expected num_heads * head_dim = {inner_size} (hidden_size * expand), found {heads} * {head_size}"
            ));
        }
        let epsilon = nearest_f32(config.positive_or("layer_norm_epsilon", 1e-5));
        let mixer = StateSpace {
            inner_size,
            state_size: config.count_or("state_size", 128),
            taps: config.count_or("conv_kernel", 4),
            has_bias: config.flag_or("use_conv_bias", true),
            rates: Rates::Heads { heads, groups, norm: Norm { kind: NormKind::Rms, epsilon } },
        };
        let numbers = Numbers {
            hidden_size,
            vocabulary_size: config.vocabulary("vocab_size"),
            context_length: CONTEXT,
            epsilon,
            is_tied: config.flag_or("tie_word_embeddings", false),
        };
        spec(config.architecture(), &vec![mixer; layers], &numbers)
    },
    from_metadata: |keys| {
        let layers = keys.layers();
        let numbers = Numbers::from_keys(keys);
        let norm = Norm { kind: NormKind::Rms, epsilon: numbers.epsilon };
        let mixer = StateSpace::from_keys(keys, Rates::Heads { heads: 1, groups: 1, norm });
        spec(keys.architecture(), &vec![mixer; layers], &numbers)
    },
    more_keys: |_, writer| writer.count("attention.head_count", 0),
    tensors: &[&[
        TensorRule::new("token_embd", "backbone.embedding").if_present(),
        TensorRule::new("token_embd", "backbone.embeddings"),
        TensorRule::new("blk.{l}.attn_norm", "backbone.layers.{l}.norm"),
        TensorRule::new("blk.{l}.ssm_in", "backbone.layers.{l}.mixer.in_proj"),
        TensorRule::new("blk.{l}.ssm_conv1d.weight", "backbone.layers.{l}.mixer.conv1d.weight").with_unit_axis(),
        TensorRule::new("blk.{l}.ssm_conv1d", "backbone.layers.{l}.mixer.conv1d"),
        TensorRule::new("blk.{l}.ssm_dt.bias", "backbone.layers.{l}.mixer.dt_bias"),
        TensorRule::new("blk.{l}.ssm_a", "backbone.layers.{l}.mixer.A_log").with(negated_exponential).with_one_axis(),
        TensorRule::new("blk.{l}.ssm_d", "backbone.layers.{l}.mixer.D").with_one_axis(),
        TensorRule::new("blk.{l}.ssm_norm", "backbone.layers.{l}.mixer.norm").with_one_axis(),
        TensorRule::new("blk.{l}.ssm_out", "backbone.layers.{l}.mixer.out_proj"),
        TensorRule::new("output_norm", "backbone.norm_f"),
        TensorRule::new("output", "lm_head"),
    ]],
    ..Architecture::BASE
};

/// Whether the limits of the time step are 0 and infinity, or absent.
fn is_unlimited(limit: &Value) -> bool {
    let [lowest, highest] = limit.as_array().map_or(&[][..], Vec::as_slice) else { return false };
    lowest.as_f64() == Some(0.0) && highest.as_str() == Some(INFINITY)
}
