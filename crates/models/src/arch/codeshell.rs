//! CodeShell: layer norms with biases, heads that share keys and values, and a rotation of halves.

use super::gpt2::{USUAL, only_plain_scores};
use super::starcoder::NAMES;
use crate::architecture::Architecture;
use crate::decoder::{Decoder, Style, Usual};
use trueup_graph::op::RopePairs;

/// `CodeShellForCausalLM`.
pub static CODESHELL: Architecture = Architecture {
    gguf_name: "codeshell",
    classes: &["CodeShellForCausalLM"],
    from_config: |config| {
        config.only("activation_function", &["\"gelu_pytorch_tanh\"", "\"gelu_new\""]);
        only_plain_scores(config);
        if config.value("position_embedding_type").is_none() {
            config.problem("position_embedding_type: expected \"rope\", found nothing");
        }
        config.only("position_embedding_type", &["\"rope\""]);
        let is_grouped = config.flag_or("group_query_attention", true);
        let usual =
            Usual { kv_heads: "num_query_groups", kv_heads_absent: Some(1), context_absent: Some(8192), ..USUAL };
        let mut decoder = Decoder::from_config(config, &usual, RopePairs::Halves);
        if !is_grouped {
            decoder.kv_heads = decoder.heads.clone();
        }
        decoder.spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE),
    needs_head: true,
    tensors: &[NAMES],
    ignorable: &["transformer.h.{l}.attn.rotary_emb.inv_freq"],
    ..Architecture::BASE
};

const STYLE: Style = Style { is_fused: true, ..Style::GPT };
