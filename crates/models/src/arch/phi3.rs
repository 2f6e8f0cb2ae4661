//! Phi 3, Phi 3.5 and Phi 4: Llama with queries, keys and values in one tensor and gate and up in another, which GGUF
//! stores as they are.

use super::llama::{INVERSE_FREQUENCIES, NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::checkpoint::TensorRule;
use crate::compatibility::window_note;
use crate::decoder::{Decoder, Rotated, Style, Usual};
use crate::part::feed_forward::Storage;
use trueup_graph::op::RopePairs;

/// `Phi3ForCausalLM`.
pub static PHI3: Architecture = Architecture {
    gguf_name: "phi3",
    classes: &["Phi3ForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        config.only("attention_bias", &["false"]);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        decoder.window = config.windows(None, vec![true; decoder.layers]);
        decoder.spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE),
    compatibility: |spec| window_note(spec).into_iter().collect(),
    tensors: &[
        &[
            TensorRule::new("blk.{l}.attn_qkv", "model.layers.{l}.self_attn.qkv_proj"),
            TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.mlp.gate_up_proj"),
        ],
        NAMES,
    ],
    ignorable: INVERSE_FREQUENCIES,
    ..Architecture::BASE
};

const USUAL: Usual = Usual {
    context_absent: Some(4096),
    epsilon: ("rms_norm_eps", 1e-5),
    rotated: Rotated::Share("partial_rotary_factor", 1.0),
    ..Usual::LLAMA
};
const STYLE: Style = Style { is_fused: true, storage: Storage::FusedGate, ..Style::LLAMA };
