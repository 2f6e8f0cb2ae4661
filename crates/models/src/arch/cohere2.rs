//! Command R7B and Command A: Command R with a sliding window in three of four layers; the fourth has full attention
//! without RoPE.

use super::command_r::{LOGIT_SCALE, STYLE, USUAL, with_logit_scale, write_logit_scale};
use super::llama::{NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::decoder::Decoder;
use crate::part::attention::Position;
use crate::spec::ModelSpec;
use trueup_graph::op::RopePairs;

/// `Cohere2ForCausalLM`.
pub static COHERE2: Architecture = Architecture {
    gguf_name: "cohere2",
    classes: &["Cohere2ForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        config.only("tie_word_embeddings", &["true"]);
        config.only("rotary_pct", &["1", "1.0"]);
        let scale = config.number_or("logit_scale", 0.0625);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Neighbours);
        let period = config.count_or("sliding_window_pattern", PERIOD);
        decoder.window = config.windows_by_period(period, decoder.layers);
        finished(&decoder, scale)
    },
    from_metadata: |keys| {
        let scale = keys.number(LOGIT_SCALE, None);
        let mut decoder = Decoder::from_keys(keys, RopePairs::Neighbours, STYLE.norm);
        decoder.window = keys.window(decoder.layers, Some(PERIOD));
        finished(&decoder, scale)
    },
    more_keys: write_logit_scale,
    tensors: &[NAMES],
    ..Architecture::BASE
};

/// The last of each group of this many layers has full attention.
const PERIOD: usize = 4;

fn finished(decoder: &Decoder, scale: f64) -> ModelSpec {
    let spec = decoder.spec(&STYLE).with_attention(|_, attention| {
        if attention.window.is_none() {
            attention.position = Position::None;
        }
    });
    with_logit_scale(spec, scale)
}
