//! InternLM2: Llama whose checkpoint stores queries, keys and values in one tensor, in a group for each KV head.

use super::llama::gated_silu;
use crate::architecture::Architecture;
use crate::checkpoint::{Target, TensorRule, interleave_heads, key_of_kv_heads, query_of_kv_heads, value_of_kv_heads};
use crate::decoder::{Decoder, Style, Usual};
use crate::spec::ModelSpec;
use crate::transform::Transform;
use trueup_graph::op::RopePairs;

/// `InternLM2ForCausalLM`.
pub static INTERNLM2: Architecture = Architecture {
    gguf_name: "internlm2",
    classes: &["InternLM2ForCausalLM"],
    from_config: |config| {
        gated_silu(config);
        let bias = config.flag_or("bias", true);
        let style = Style { attention_bias: bias, output_bias: bias, ..Style::LLAMA };
        Decoder::from_config(config, &Usual::LLAMA, RopePairs::Neighbours).spec(&style)
    },
    from_metadata: |keys| {
        let style = Style {
            attention_bias: keys.has_tensor("blk.{l}.attn_q.bias"),
            output_bias: keys.has_tensor("blk.{l}.attn_output.bias"),
            ..Style::LLAMA
        };
        Decoder::from_keys(keys, RopePairs::Neighbours, style.norm).spec(&style)
    },
    compatibility: |spec| bias_note(spec).into_iter().collect(),
    needs_head: true,
    tensors: &[&[
        TensorRule::new("token_embd", "model.tok_embeddings"),
        TensorRule::new("blk.{l}.attn_norm", "model.layers.{l}.attention_norm"),
        TensorRule::new("blk.{l}.attn_q", "model.layers.{l}.attention.wqkv").with(query),
        TensorRule::new("blk.{l}.attn_k", "model.layers.{l}.attention.wqkv").with(key),
        TensorRule::new("blk.{l}.attn_v", "model.layers.{l}.attention.wqkv").with(value_of_kv_heads),
        TensorRule::new("blk.{l}.attn_output", "model.layers.{l}.attention.wo"),
        TensorRule::new("blk.{l}.ffn_norm", "model.layers.{l}.ffn_norm"),
        TensorRule::new("blk.{l}.ffn_gate", "model.layers.{l}.feed_forward.w1"),
        TensorRule::new("blk.{l}.ffn_up", "model.layers.{l}.feed_forward.w3"),
        TensorRule::new("blk.{l}.ffn_down", "model.layers.{l}.feed_forward.w2"),
        TensorRule::new("output_norm", "model.norm"),
        TensorRule::new("output", "output"),
    ]],
    ignorable: &["model.layers.{l}.attention.rotary_emb.inv_freq"],
    ..Architecture::BASE
};

/// llama.cpp has biases of queries, keys and values only.
fn bias_note(spec: &ModelSpec) -> Option<String> {
    let has_bias = spec.attention(0).is_some_and(|attention| attention.has_output_bias);
    has_bias.then(|| {
        "the bias of the attention's output is written; llama.cpp does not expect it for internlm2 and rejects the file"
            .to_owned()
    })
}

fn query(target: &Target) -> Transform {
    Transform { interleaved_heads: interleave_heads(target).interleaved_heads, ..query_of_kv_heads(target) }
}

fn key(target: &Target) -> Transform {
    Transform { interleaved_heads: interleave_heads(target).interleaved_heads, ..key_of_kv_heads(target) }
}
