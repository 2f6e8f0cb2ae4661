//! GLM-4-0414: norms before and after each branch, half of each head rotated in adjacent pairs, gate and up in one
//! tensor.

use super::glm::{NAMES as GLM_NAMES, STYLE as GLM_STYLE, from_config_in};
use super::llama::{INVERSE_FREQUENCIES, NAMES};
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::decoder::{Decoder, Style};
use crate::spec::Arrangement;
use trueup_graph::op::RopePairs;

/// `Glm4ForCausalLM`.
pub static GLM4: Architecture = Architecture {
    gguf_name: "glm4",
    classes: &["Glm4ForCausalLM"],
    from_config: |config| from_config_in(config, &STYLE),
    from_metadata: |keys| {
        let style = Style { attention_bias: keys.has_tensor("blk.{l}.attn_q.bias"), ..STYLE };
        Decoder::from_keys(keys, RopePairs::Neighbours, style.norm).spec(&style)
    },
    tensors: &[
        &[
            TensorRule::new("blk.{l}.post_attention_norm", "model.layers.{l}.post_self_attn_layernorm"),
            TensorRule::new("blk.{l}.post_ffw_norm", "model.layers.{l}.post_mlp_layernorm"),
        ],
        GLM_NAMES,
        NAMES,
    ],
    ignorable: INVERSE_FREQUENCIES,
    has_free_head_size: true,
    ..Architecture::BASE
};

const STYLE: Style = Style { arrangement: Arrangement::sandwich, ..GLM_STYLE };
