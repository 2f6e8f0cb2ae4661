//! PLaMo: attention and feed-forward in parallel after one norm. In the checkpoint, heads that share keys and values
//! are a fixed number of heads apart; in GGUF they are adjacent.

use super::llama::{NAMES, gated_silu};
use crate::architecture::Architecture;
use crate::checkpoint::{TensorRule, adjacent_outputs, adjacent_queries};
use crate::decoder::{Decoder, NO_KEY, Style, Usual};
use crate::spec::Arrangement;
use trueup_graph::op::RopePairs;

/// `PlamoForCausalLM`.
pub static PLAMO: Architecture = Architecture {
    gguf_name: "plamo",
    classes: &["PlamoForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        let shared = config.count_or(SHARED, 8);
        let mut decoder = Decoder::from_config(config, &USUAL, RopePairs::Halves);
        let heads = decoder.heads.first().copied().unwrap_or(1);
        if !heads.is_multiple_of(shared) {
            config.problem(format!("{SHARED}: expected a divisor of {heads} attention heads, found {shared}"));
        }
        decoder.kv_heads.fill(heads.checked_div(shared).unwrap_or(1).max(1));
        decoder.spec(&STYLE)
    },
    from_metadata: |keys| Decoder::from_keys(keys, RopePairs::Halves, STYLE.norm).spec(&STYLE),
    needs_head: true,
    tensors: &[
        &[
            TensorRule::new("blk.{l}.attn_norm", "model.layers.layers.{l}.norm"),
            TensorRule::new("blk.{l}.attn_q", "model.layers.layers.{l}.self_attn.q_proj").with(adjacent_queries),
            TensorRule::new("blk.{l}.attn_k", "model.layers.layers.{l}.self_attn.k_proj"),
            TensorRule::new("blk.{l}.attn_v", "model.layers.layers.{l}.self_attn.v_proj"),
            TensorRule::new("blk.{l}.attn_output", "model.layers.layers.{l}.self_attn.o_proj").with(adjacent_outputs),
            TensorRule::new("blk.{l}.ffn_gate", "model.layers.layers.{l}.mlp.gate_proj"),
            TensorRule::new("blk.{l}.ffn_up", "model.layers.layers.{l}.mlp.up_proj"),
            TensorRule::new("blk.{l}.ffn_down", "model.layers.layers.{l}.mlp.down_proj"),
        ],
        NAMES,
    ],
    ignorable: &["model.layers.layers.{l}.self_attn.rotary_emb.inv_freq"],
    ..Architecture::BASE
};

// The class does not read the number of KV heads that its description has.
const USUAL: Usual = Usual { kv_heads: NO_KEY, context_absent: Some(4096), ..Usual::LLAMA };
const STYLE: Style = Style { arrangement: Arrangement::parallel, ..Style::LLAMA };
/// How many heads share keys and values.
const SHARED: &str = "n_shared_head";
