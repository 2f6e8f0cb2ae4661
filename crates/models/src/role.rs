//! Roles of tensors. A role determines the tensor's name in a GGUF file and its shape, for every architecture.
//!
//! Some architectures store several tensors joined, row after row, as other programs expect (`chatglm`: `attn_qkv`,
//! `ffn_up`). Such a role has parts, and graphs are built from the parts.

use crate::hyper::Hyper;
use crate::number::wide;

/// What a tensor is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the names say it: a projection's weight, its bias, a norm's weight")]
pub enum Role {
    TokenEmbedding,
    RopeFactors,
    AttentionNorm,
    AttentionNormBias,
    Query,
    QueryBias,
    QueryNorm,
    Key,
    KeyBias,
    KeyNorm,
    Value,
    ValueBias,
    QueryKeyValue,
    QueryKeyValueBias,
    AttentionOutput,
    AttentionOutputBias,
    FfnNorm,
    FfnNormBias,
    FfnGate,
    FfnGateBias,
    FfnUp,
    FfnUpBias,
    FfnGateUp,
    FfnDown,
    FfnDownBias,
    OutputNorm,
    OutputNormBias,
    Output,
    OutputBias,
}

impl Role {
    /// The name in a GGUF file, `{l}` standing for the layer.
    pub fn pattern(self) -> &'static str {
        match self {
            Role::TokenEmbedding => "token_embd.weight",
            Role::RopeFactors => "rope_freqs.weight",
            Role::AttentionNorm => "blk.{l}.attn_norm.weight",
            Role::AttentionNormBias => "blk.{l}.attn_norm.bias",
            Role::Query => "blk.{l}.attn_q.weight",
            Role::QueryBias => "blk.{l}.attn_q.bias",
            Role::QueryNorm => "blk.{l}.attn_q_norm.weight",
            Role::Key => "blk.{l}.attn_k.weight",
            Role::KeyBias => "blk.{l}.attn_k.bias",
            Role::KeyNorm => "blk.{l}.attn_k_norm.weight",
            Role::Value => "blk.{l}.attn_v.weight",
            Role::ValueBias => "blk.{l}.attn_v.bias",
            Role::QueryKeyValue => "blk.{l}.attn_qkv.weight",
            Role::QueryKeyValueBias => "blk.{l}.attn_qkv.bias",
            Role::AttentionOutput => "blk.{l}.attn_output.weight",
            Role::AttentionOutputBias => "blk.{l}.attn_output.bias",
            Role::FfnNorm => "blk.{l}.ffn_norm.weight",
            Role::FfnNormBias => "blk.{l}.ffn_norm.bias",
            Role::FfnGate => "blk.{l}.ffn_gate.weight",
            Role::FfnGateBias => "blk.{l}.ffn_gate.bias",
            // Where the gate is a tensor of its own, this name is of the other one alone.
            Role::FfnUp | Role::FfnGateUp => "blk.{l}.ffn_up.weight",
            Role::FfnUpBias => "blk.{l}.ffn_up.bias",
            Role::FfnDown => "blk.{l}.ffn_down.weight",
            Role::FfnDownBias => "blk.{l}.ffn_down.bias",
            Role::OutputNorm => "output_norm.weight",
            Role::OutputNormBias => "output_norm.bias",
            Role::Output => "output.weight",
            Role::OutputBias => "output.bias",
        }
    }

    /// The name in a GGUF file; `layer` counts only where there is one tensor in each.
    pub fn name(self, layer: usize) -> String {
        self.pattern().replace("{l}", &layer.to_string())
    }

    /// Whether it has a row for each token.
    pub fn is_per_token(self) -> bool {
        matches!(self, Role::TokenEmbedding | Role::Output | Role::OutputBias)
    }

    /// The bias of a norm with this weight.
    pub(crate) fn bias(self) -> Option<Role> {
        match self {
            Role::AttentionNorm => Some(Role::AttentionNormBias),
            Role::FfnNorm => Some(Role::FfnNormBias),
            Role::OutputNorm => Some(Role::OutputNormBias),
            _ => None,
        }
    }

    /// Whether each layer has one.
    pub fn is_per_layer(self) -> bool {
        self.pattern().contains("{l}")
    }

    /// The roles of its rows, in their order, and how many rows each has; `None` for a tensor that is one thing.
    pub fn parts(self, hyper: &Hyper) -> Option<Vec<(Role, usize)>> {
        let (queries, keys) = (hyper.query_elements(), hyper.kv_elements());
        match self {
            Role::QueryKeyValue => Some(vec![(Role::Query, queries), (Role::Key, keys), (Role::Value, keys)]),
            Role::QueryKeyValueBias => {
                Some(vec![(Role::QueryBias, queries), (Role::KeyBias, keys), (Role::ValueBias, keys)])
            }
            Role::FfnGateUp => Some(vec![(Role::FfnGate, hyper.ffn()), (Role::FfnUp, hyper.ffn())]),
            _ => None,
        }
    }

    /// The shape, innermost first: a projection is `[inputs, outputs]`.
    pub fn shape(self, hyper: &Hyper) -> Vec<u64> {
        let (width, ffn) = (hyper.width(), hyper.ffn());
        let (queries, keys) = (hyper.query_elements(), hyper.kv_elements());
        let rows =
            self.parts(hyper).map_or(0, |parts| parts.iter().map(|(_, rows)| *rows).fold(0, usize::saturating_add));
        let sizes: &[usize] = match self {
            Role::TokenEmbedding | Role::Output => &[width, hyper.vocabulary()],
            Role::OutputBias => &[hyper.vocabulary()],
            Role::RopeFactors => &[hyper.rope().dimensions / 2],
            Role::Query => &[width, queries],
            Role::Key | Role::Value => &[width, keys],
            Role::QueryKeyValue | Role::FfnGateUp => &[width, rows],
            Role::QueryKeyValueBias => &[rows],
            Role::AttentionOutput => &[queries, width],
            Role::FfnGate | Role::FfnUp => &[width, ffn],
            Role::FfnDown => &[ffn, width],
            Role::QueryBias => &[queries],
            Role::KeyBias | Role::ValueBias => &[keys],
            Role::QueryNorm | Role::KeyNorm => &[hyper.head_size()],
            Role::FfnGateBias | Role::FfnUpBias => &[ffn],
            Role::AttentionNorm | Role::FfnNorm | Role::OutputNorm => &[width],
            Role::AttentionNormBias | Role::FfnNormBias | Role::OutputNormBias => &[width],
            Role::AttentionOutputBias | Role::FfnDownBias => &[width],
        };
        sizes.iter().map(|&size| wide(size)).collect()
    }
}
